"""A bar while many runs are read, where that takes longer than a moment."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from greenlove_tracker.console import StatusLine, bar

_PATIENCE_S = 1.0  # before a bar is drawn

Item = TypeVar("Item")


def with_bar(items: Iterable[Item], n_items: int, n_runs: int) -> Iterator[Item]:
    """The same items; a bar shows how far they are.

    Args:
        items: what is read, one by one.
        n_items: how many that will be.
        n_runs: how many runs are in them.
    """
    line, begun_s, drawn = StatusLine(even_beside_stdout=True), time.monotonic(), ""
    try:
        for n_done, item in enumerate(items, 1):
            if time.monotonic() - begun_s > _PATIENCE_S:
                text = f"reading {n_runs:,} runs  {bar(n_done / n_items)}  {n_done / n_items:.0%}"
                if text != drawn:  # a terminal takes longer than a run
                    line.draw(text)
                drawn = text
            yield item
    finally:
        line.clear()
