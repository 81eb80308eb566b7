"""``spans-<rank>.csv``: what named parts of a script took, and how they add up where they are nested."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from greenlove_tracker.logs.schema import ENERGY_COLUMNS, amount, cell, count, energy_from_cells
from greenlove_tracker.records import UNKNOWN_ENERGY, DescribedStr, Energy, sum_energies

SPAN_COLUMNS = (
    "name",
    "path",
    "is_nested",
    "calls",
    "failed",
    "started_at",
    "duration_s",
    "own_s",
    *ENERGY_COLUMNS,
    "emissions_gco2e",
    "flags",
)
SEPARATOR = " > "  # of the names in a path


class SpanFlag(DescribedStr):
    """A reservation about a row of ``spans-<rank>.csv``."""

    BY_TIME = (
        "by_time",
        "over a tenth of its energy is its share, by time, of readings of whose time over a tenth is not its own",
    )
    UNMETERED = "unmetered", "no energy: the meter was not up, had failed, or is carried by another rank"
    UNFINISHED = "unfinished", "the run ended while the span was open"


def spans_file(stream: int | str) -> str:
    """Return the name of the file that holds the spans of a rank."""
    return f"spans-{stream}.csv"


@dataclass(frozen=True, slots=True)
class SpanRow:
    """The sums added to the spans of one path since its last row.

    Attributes:
        path: the names of the spans that it lies in, and its own last.
        calls: those that ended.
        failed: those of them that an exception ended.
        started_at: UTC, ISO 8601.
        duration_s: time in it, with that of the spans within it.
        own_s: of it, without that of the spans within it.
        energy: of ``own_s``; all rows together are the energy of all spans, each counted once.
        emissions_gco2e: of that energy, PUE included.
        flags: of ``SpanFlag``.
    """

    path: tuple[str, ...]
    calls: int
    failed: int
    started_at: str
    duration_s: float
    own_s: float
    energy: Energy
    emissions_gco2e: float | None
    flags: frozenset[str] = frozenset()


def span_cells(row: SpanRow) -> list[str]:
    """Return the cells of a row in the order of SPAN_COLUMNS."""
    energy = row.energy
    values = (
        row.path[-1],
        SEPARATOR.join(row.path),
        len(row.path) > 1,
        row.calls,
        row.failed,
        row.started_at,
        row.duration_s,
        row.own_s,
        energy.total_kwh,
        energy.cpu_kwh,
        energy.gpu_kwh,
        energy.ram_kwh,
        energy.cpu_method,
        energy.gpu_method,
        energy.ram_method,
        row.emissions_gco2e,
        row.flags,
    )
    return [cell(value) for value in values]


def span_from_cells(cells: Sequence[str]) -> SpanRow:
    """Return the row that cells, in the order of SPAN_COLUMNS, stand for.

    Raises:
        ValueError: where a cell is not what its column holds.
    """
    path = tuple(cells[1].split(SEPARATOR))
    if not cells[0] or path[-1] != cells[0]:
        raise ValueError(f"a span {cells[0]!r} at {cells[1]!r}")
    return SpanRow(
        path,
        count(cells[3]),
        count(cells[4]),
        cells[5],
        amount(cells[6]),
        amount(cells[7]),
        energy_from_cells(cells[9:12], cells[12:15], cells[8]),
        amount(cells[15]) if cells[15] else None,
        frozenset(cells[16].split()),
    )


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
