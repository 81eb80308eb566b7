"""``spans-<rank>.csv``: what named parts of a script took, and how they add up where they are nested."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from greenlove_tracker.logs.tables import SpanRow
from greenlove_tracker.records import UNKNOWN_ENERGY, DescribedStr, Energy, sum_energies


class SpanFlag(DescribedStr):
    """A reservation about a row of ``spans-<rank>.csv``."""

    BY_TIME = (
        "by_time",
        "over a tenth of its energy is an estimate: it shared those readings with other work, and has its part by time",
    )
    UNMETERED = "unmetered", "no energy: the meter was not up, had failed, or is carried by another rank"
    UNFINISHED = "unfinished", "the run ended while the span was open"


@dataclass(frozen=True, slots=True)
class SpanSummary:
    """All calls of the spans of one path.

    Attributes:
        path: the names of the spans that it lies in, and its own last.
        calls: those that ended.
        failed: those of them that an exception ended.
        duration_s: time in it, with that of the spans within it.
        own_s: of it, without that of the spans within it.
        energy: with that of the spans within it; of the time that was metered.
        own_energy: without that of the spans within it.
        emissions_gco2e: of ``energy``, PUE included.
        unmetered_s: time in it and the spans within it that has no energy.
        flags: of its rows and of those of the spans within it.
    """

    path: tuple[str, ...]
    calls: int
    failed: int
    duration_s: float
    own_s: float
    energy: Energy
    own_energy: Energy
    emissions_gco2e: float | None
    unmetered_s: float
    flags: frozenset[str]

    @property
    def name(self) -> str:
        """The span's own name."""
        return self.path[-1]

    @property
    def depth(self) -> int:
        """The number of spans it lies in."""
        return len(self.path) - 1


def summarise_spans(rows: Iterable[SpanRow]) -> tuple[SpanSummary, ...]:
    """Return what the spans of each path came to; each is followed by those within it, those of most time first."""
    by_path: dict[tuple[str, ...], list[SpanRow]] = {}
    for row in rows:
        for length in range(1, len(row.path)):  # a span that is open still may have no row of its own yet
            by_path.setdefault(row.path[:length], [])
        by_path.setdefault(row.path, []).append(row)
    within: dict[tuple[str, ...], list[SpanRow]] = {path: [] for path in by_path}
    for path, own in by_path.items():
        for length in range(1, len(path) + 1):
            within[path[:length]] += own
    found = {path: _summary(path, own, within[path]) for path, own in by_path.items()}

    def order(summary: SpanSummary) -> list[tuple[float, str]]:
        ancestors = (found[summary.path[: length + 1]] for length in range(len(summary.path)))
        return [(-ancestor.duration_s, ancestor.name) for ancestor in ancestors]

    return tuple(sorted(found.values(), key=order))


def _summary(path: tuple[str, ...], own: Sequence[SpanRow], all_within: Sequence[SpanRow]) -> SpanSummary:
    emissions = [row.emissions_gco2e for row in all_within if row.emissions_gco2e is not None]
    return SpanSummary(
        path,
        sum(row.calls for row in own),
        sum(row.failed for row in own),
        math.fsum(row.duration_s for row in own),
        math.fsum(row.own_s for row in own),
        _sum(all_within),
        _sum(own),
        math.fsum(emissions) if emissions else None,
        math.fsum(row.own_s for row in all_within if not row.energy.is_known),
        frozenset[str]().union(*(row.flags for row in all_within)),
    )


def _sum(rows: Sequence[SpanRow]) -> Energy:
    return sum_energies(row.energy for row in rows) if rows else UNKNOWN_ENERGY
