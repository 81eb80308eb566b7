"""Runs at once on one machine: the energy that a sum over them counts twice.

Processor and memory are metered for the whole machine, and a GPU for all that run on it. Where two runs overlap in
time, both hold what such a counter measured. It is taken to have drawn the mean power of its run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from greenlove_tracker.logs.run_rows import RunRow
from greenlove_tracker.logs.totals import utc_s
from greenlove_tracker.vocabulary.records import COMPONENTS, Method, sum_known

_LEAST_S = 1.0  # of an overlap: the next run of a script may begin within the last second of the one before


@dataclass(slots=True)
class Overlap:
    """The overlap of a run with others on its machine.

    Attributes:
        runs: the others.
        twice_kwh: the part of its energy that is in runs which began before it, too; None where it names no machine.
    """

    runs: set[str]
    twice_kwh: float | None


class _Span(NamedTuple):
    """The time of a run, and the energy of one counter in it."""

    begin_s: float
    end_s: float
    kwh: float
    run: str
    overlap: Overlap


def overlaps(rows: Sequence[RunRow]) -> list[Overlap]:
    """Return the overlap of each row with the others."""
    found = []
    by_counter = defaultdict[tuple[str, str], list[_Span]](list)
    for row in rows:
        host = row.facts.host
        begin_s = utc_s(row.started_at)
        overlap = Overlap(set(), 0.0 if host else None)
        found.append(overlap)
        if begin_s is None or not host or not row.duration_s:
            continue
        for counter, kwh in _counters(row).items():
            span = _Span(begin_s, begin_s + row.duration_s, kwh, row.run, overlap)
            by_counter[host, counter].append(span)
    for spans in by_counter.values():
        running: list[_Span] = []
        for span in sorted(spans, key=lambda span: span[:2]):
            running = [one for one in running if one.end_s > span.begin_s + _LEAST_S]
            for one in running:
                one.overlap.runs.add(span.run)
            overlap = span.overlap
            overlap.runs.update(one.run for one in running)
            until_s = min(span.end_s, max((one.end_s for one in running), default=span.begin_s))
            share = (until_s - span.begin_s) / (span.end_s - span.begin_s)
            overlap.twice_kwh = sum_known([overlap.twice_kwh, share * span.kwh])
            running.append(span)
    return found


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
