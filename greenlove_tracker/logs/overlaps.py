"""Runs at once on one machine: the energy that a sum over them counts twice.

Processor and memory are metered for the whole machine, and a GPU for all that run on it. Where two runs overlap in
time, both hold what such a counter measured. It is taken to have drawn the mean power of its run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from greenlove_tracker.logs.run_rows import RunRow
from greenlove_tracker.logs.totals import utc_s
from greenlove_tracker.vocabulary.records import COMPONENTS, Method, sum_known

_LEAST_S = 1.0  # of an overlap: the next run of a script may begin within the last second of the one before


class _Span(NamedTuple):
    """The time of a run, and the energy of one counter in it; ``n`` is the number of its row."""

    end_s: float  # first: the greatest ends last
    begin_s: float
    n: int
    kwh: float


def overlapping(rows: Sequence[RunRow]) -> list[set[str]]:
    """Return the runs that each row shared a counter with."""
    found = [set[str]() for _ in rows]
    for span, earlier in _overlapping_spans(rows):
        for one in earlier:
            found[one.n].add(rows[span.n].run)
            found[span.n].add(rows[one.n].run)
    return found


def twice_kwh(rows: Sequence[RunRow]) -> list[float | None]:
    """Return of each row the energy that is in runs which began before it, too; None without a machine."""
    found = [[0.0] if row.facts.host else [] for row in rows]
    for span, earlier in _overlapping_spans(rows):
        until_s = min(span.end_s, max(earlier).end_s)
        found[span.n].append(span.kwh * (until_s - span.begin_s) / (span.end_s - span.begin_s))
    return list(map(sum_known, found))


def _overlapping_spans(rows: Sequence[RunRow]) -> Iterator[tuple[_Span, Sequence[_Span]]]:
    """Yield the spans of each counter that others were running at the beginning of, with these."""
    by_counter = defaultdict[tuple[str, str], list[_Span]](list)
    for n, row in enumerate(rows):
        host = row.facts.host
        begin_s = utc_s(row.started_at)
        if begin_s is None or not host or not row.duration_s:
            continue
        for counter, kwh in _counters(row).items():
            by_counter[host, counter].append(_Span(begin_s + row.duration_s, begin_s, n, kwh))
    for spans in by_counter.values():
        running: list[_Span] = []
        for span in sorted(spans, key=lambda span: (span.begin_s, span.end_s)):
            running = [one for one in running if one.end_s > span.begin_s + _LEAST_S]
            if running:
                yield span, running
            running.append(span)


def _counters(row: RunRow) -> dict[str, float]:
    """Return the energy of each counter of the machine in that of a run, with PUE."""
    energy = row.energy
    parts = {component: energy.component_kwh(component) for component in COMPONENTS}
    if row.facts.cpu_share not in ("", "1", "1.0"):  # of the machine, by which what is modelled is charged
        del parts["ram"]
        if energy.cpu_method != Method.COUNTER:
            del parts["cpu"]
    each = {f"gpu {gpu.index}": gpu.kwh for gpu in row.gpu_energies if gpu.kwh}
    if each and energy.gpu_kwh:
        scale = energy.gpu_kwh / sum(each.values())
        del parts["gpu"]
        parts |= {name: scale * kwh for name, kwh in each.items()}
    if not energy.total_kwh or not row.energy_kwh:
        return {}
    more = row.energy_kwh / energy.total_kwh
    return {name: more * kwh for name, kwh in parts.items() if kwh}
