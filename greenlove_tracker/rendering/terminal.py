"""Plain text for a terminal: tables, figures with their labels, and paragraphs, within 100 columns."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Sequence

from greenlove_tracker.format import shortened

WIDTH = 100
MARGIN = "  "
_GAP = "  "  # between columns
_LEAST_NAME = 4  # columns that a name is cut to
_DURATION = re.compile(r"(?<![\w.])\d[\d.]* (?:d|h|min|s|ms)\b(?: \d+ (?:h|min|s)\b)*", re.ASCII)
_JOINED = "\N{NO-BREAK SPACE}"  # of the spaces that textwrap leaves alone


def wrap(
    text: str, first: str = "", further: str = "", *, breaks_hyphens: bool = True, width: int = WIDTH
) -> list[str]:
    """Break a text into lines that fit; a duration, such as 1 h 2 min, stays in one line.

    Args:
        text: the text; one without a word gives no line.
        first: stands before the first line.
        further: stands before every other line.
        breaks_hyphens: whether a line may end within a hyphenated word; not where names and paths are copied.
        width: columns of a line.
    """
    text = _DURATION.sub(lambda found: found[0].replace(" ", _JOINED), text)
    lines = textwrap.wrap(text, width, initial_indent=first, subsequent_indent=further, break_on_hyphens=breaks_hyphens)
    return [line.replace(_JOINED, " ") for line in lines]


def display_width(text: str) -> int:
    """Return the columns that ``text`` takes: two for East Asian wide characters, none for combining ones."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) != 0 for c in text)


def table(
    rows: Sequence[Sequence[str]],
    alignment: str,
    *,
    widths: Sequence[int] = (),
    rules_below: Sequence[int] = (),
    gap: str = _GAP,
) -> list[str]:
    """Lay out a table.

    Args:
        rows: cells, those of the head too.
        alignment: ``<`` or ``>`` for each column.
        widths: of the first columns; longer cells are cut in the middle. The others are as wide as their cells.
        rules_below: indices of the rows that a rule is drawn below.
        gap: between columns.
    """
    needed = [max(map(display_width, column)) for column in zip(*rows, strict=True)]
    widths = [*widths, *needed[len(widths) :]]
    rule = "─" * (sum(widths) + len(gap) * (len(widths) - 1))
    lines = []
    for i, row in enumerate(rows):
        cells = (_cell(cell, width, side) for cell, width, side in zip(row, widths, alignment, strict=True))
        lines += [gap.join(cells).rstrip(), *([rule] if i in rules_below else [])]
    return lines


def _cell(text: str, width: int, side: str) -> str:
    """Cut a cell to its column, and fill it up."""
    cut = text
    for length in range(width, 0, -1):
        if display_width(cut) <= width:
            break
        cut = shortened(text, length)
    padding = " " * (width - display_width(cut))
    return cut + padding if side == "<" else padding + cut


def name_widths(rows: Sequence[Sequence[str]], numbers: Sequence[Sequence[str]]) -> list[int]:
    """Return the widths of columns of names beside columns of numbers, which are never cut.

    Args:
        rows: the names, one sequence a row.
        numbers: the numbers of the same rows.

    Returns:
        What each column needs, or an equal share of what the numbers leave.
    """
    taken = sum(len(_GAP) + max(map(display_width, column)) for column in zip(*numbers, strict=True))
    needed = [max(map(display_width, column)) for column in zip(*rows, strict=True)]
    available = WIDTH - taken - len(_GAP) * (len(needed) - 1)
    if sum(needed) <= available:
        return needed
    return [min(width, max(_LEAST_NAME, available // len(needed))) for width in needed]


def figure(label: str, value: str, text: str = "", *, label_width: int = 6, value_width: int = 12) -> list[str]:
    """Write a figure: its label, its value aligned to the right, and behind both a text that is wrapped."""
    head = f"{MARGIN}{label}{value.rjust(max(label_width + value_width - len(label), len(value) + 1))}"
    further = " " * (len(MARGIN) + label_width + value_width + 3)
    return wrap(text, f"{head}   ", further, breaks_hyphens=False) or [head]
