"""Runs at once on one machine: the energy of the machine's counters that each of them holds whole.

Processor and memory are metered for the whole machine, and a GPU for all that run on it. Where two runs overlap in
time, a sum over them counts such a counter twice. Each counter is taken to have drawn the mean power of its run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from greenlove_tracker.logs.run_rows import RunRow
from greenlove_tracker.logs.totals import utc_s
from greenlove_tracker.vocabulary.records import Method, sum_known
from greenlove_tracker.vocabulary.units import SECONDS_PER_HOUR

_LEAST_S = 1.0  # of an overlap: the next run of a script may begin within the last second of the one before


@dataclass(slots=True)
class Overlap:
    """The overlap of a run with others on its machine.

    Attributes:
        runs: the others.
        twice_kwh: its part of what a sum over all of them counts more than once; None where it names no machine.
    """

    runs: set[str]
    twice_kwh: float | None


def overlaps(rows: Sequence[RunRow]) -> list[Overlap]:
    """Return the overlap of each row with the others; none of a run that names no machine."""
    found = [Overlap(set(), 0.0 if row.facts.host else None) for row in rows]
    edges: dict[tuple[str, str], list[tuple[float, bool, int, float]]] = {}
    for n, row in enumerate(rows):
        begin_s = utc_s(row.started_at)
        if begin_s is None or not row.facts.host or not row.duration_s:
            continue
        for counter, kwh in _counters(row):
            power_kw = kwh * SECONDS_PER_HOUR / row.duration_s
            ends = edges.setdefault((row.facts.host, counter), [])
            ends += [(begin_s, True, n, power_kw), (begin_s + row.duration_s, False, n, power_kw)]
    for ends in edges.values():
        running: dict[int, float] = {}
        since_s = 0.0
        for at_s, is_start, n, power_kw in sorted(ends):
            if len(running) > 1 and at_s - since_s > _LEAST_S:
                _add(running, (at_s - since_s) / SECONDS_PER_HOUR, rows, found)
            since_s = at_s
            if is_start:
                running[n] = power_kw
            else:
                del running[n]
    return found


def _add(running: dict[int, float], hours: float, rows: Sequence[RunRow], found: list[Overlap]) -> None:
    """Add a time in which some runs held the same counter: all but the most that any of them says is too much."""
    too_much = 1 - max(running.values()) / sum(running.values())
    for n, power_kw in running.items():
        found[n].twice_kwh = (found[n].twice_kwh or 0.0) + hours * power_kw * too_much
        found[n].runs |= {rows[other].run for other in running if other != n}


def _counters(row: RunRow) -> Iterator[tuple[str, float]]:
    """Yield the counters of the machine in the energy of a run, each with its part of it."""
    metered_kwh = sum_known([row.cpu_kwh, row.gpu_kwh, row.ram_kwh])
    if not metered_kwh or not row.energy_kwh or row.facts.tracking_mode == "process":
        return
    scale = row.energy_kwh / metered_kwh  # with PUE, and what is estimated
    has_share = row.facts.cpu_share not in ("", "1", "1.0")  # of the machine, by which what is modelled is charged
    for name, kwh, method in zip(("cpu", "ram"), (row.cpu_kwh, row.ram_kwh), row.methods[::2], strict=True):
        if kwh and (method == Method.COUNTER or not has_share):
            yield name, scale * kwh
    if not row.gpu_kwh:
        return
    each = {f"gpu {gpu.index}": gpu.kwh or 0.0 for gpu in row.gpu_energies}
    of_all = sum(each.values())
    if not of_all:
        yield "gpu", scale * row.gpu_kwh
        return
    for name, kwh in each.items():
        if kwh:
            yield name, scale * row.gpu_kwh * kwh / of_all
