"""Totals of a run up to any time, so that a run can be cut at the end of a period.

What a run had come to at a time is a share of its totals: that of the rows before it, and of a row that lies across
it the part before, in proportion to time. What a stretch of time came to is the difference of two such totals. So the
stretches of a run add up to the run, whatever they are and however much of it was estimated.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple

from greenlove_tracker.logs.totals import is_measured, timed_stretches, total_duration_s
from greenlove_tracker.pricing import Rates
from greenlove_tracker.records import COMPONENTS, Energy, Row, RunSummary

_TIMESTAMP_S = 0.002  # rows note their beginning to the millisecond


class _Interval(NamedTuple):
    """A gap or a row of one stream, with what it weighs in each sum.

    Attributes:
        start_s: its beginning, in seconds since the Unix epoch.
        end_s: its end.
        weights: by the name of a sum.
    """

    start_s: float
    end_s: float
    weights: Mapping[str, float]


class _Cumulative:
    """A sum over the intervals of one stream as a function of time, which never falls where no weight is negative.

    It is the same number for a time whatever other times are asked for, so that adjacent stretches fit exactly.
    """

    def __init__(self, intervals: Sequence[_Interval], weight_of: Callable[[_Interval], float]) -> None:
        self._starts_s = [one.start_s for one in intervals]
        self._intervals = intervals
        self._weights = list(map(weight_of, intervals))
        self._before = [0.0, *accumulate(self._weights)]

    def at(self, utc_s: float) -> float:
        """Return the sum of what lies before a time."""
        n_begun = bisect_left(self._starts_s, utc_s)
        if not n_begun:
            return 0.0
        last, weight = self._intervals[n_begun - 1], self._weights[n_begun - 1]
        if utc_s < last.end_s:
            weight *= (utc_s - last.start_s) / (last.end_s - last.start_s)
        return self._before[n_begun - 1] + weight


class Accrual:
    """The totals of a run up to a time.

    Args:
        summary: its totals, of which everything is a share.
        streams: the rows of each rank that has a meter, or of the whole command; without any row with a time, the
            totals are spread evenly.
        rates: the factors of the run, which count where a row has none of its own.
        begins_s: when the run began, in seconds since the Unix epoch: before, it had come to nothing.
        ends_s: when it ended: from then on, it had come to its totals.
    """

    def __init__(
        self, summary: RunSummary, streams: Sequence[Sequence[Row]], rates: Rates, begins_s: float, ends_s: float
    ) -> None:
        self._summary = summary
        streams = sorted(streams, key=total_duration_s, reverse=True)  # the time of a run is that of the slowest
        found = [_intervals(rows, rates) for rows in streams]
        _estimate_unmetered(found)
        self._streams = [stream for stream in found if stream] or [[_Interval(begins_s, ends_s, {"energy": 1.0})]]
        self._time = _Cumulative(self._streams[0], _length_s)
        every = [one for stream in self._streams for one in stream]  # a clock may have been set
        self._begins_s = min([begins_s, *(one.start_s for one in every)])
        self._ends_s = max([ends_s, *(one.end_s for one in every)])
        self._sums: dict[str, list[_Cumulative]] = {}

    def at(self, utc_s: float) -> RunSummary:
        """Return the totals with those of its numbers that add up over time as they were at a time, in UTC seconds."""
        if utc_s >= self._ends_s and utc_s > self._begins_s:
            return self._summary
        summary = self._summary
        begun = utc_s > self._begins_s
        time = _share(self._time.at(utc_s), self._time.at(math.inf)) if begun else 0.0

        def share(name: str) -> float:
            if not begun:
                return 0.0
            whole = self._sum(name, math.inf)
            return min(1.0, self._sum(name, utc_s) / whole) if whole > 0 else time

        energy = share("energy")
        cpu_kwh, gpu_kwh, ram_kwh = (_part(summary.energy.component_kwh(c), share(c)) for c in COMPONENTS)
        return replace(
            summary,
            duration_s=summary.duration_s * time,
            gpu_hours=summary.gpu_hours * time,
            energy=replace(summary.energy, cpu_kwh=cpu_kwh, gpu_kwh=gpu_kwh, ram_kwh=ram_kwh),
            measured_kwh=_part(summary.measured_kwh, share("measured")),
            unmetered_estimate_kwh=_part(summary.unmetered_estimate_kwh, share("estimate")),
            node_assumed_kwh=_part(summary.node_assumed_kwh, energy),
            energy_kwh=_part(summary.energy_kwh, energy),
            emissions_kgco2e=_part(summary.emissions_kgco2e, share("emissions")),
            cost_usd=self._cost_usd(utc_s, time if summary.cost_basis == "machine" else energy),
        )

    def _sum(self, name: str, utc_s: float) -> float:
        """Return what the intervals before a time weigh in a sum."""
        if name not in self._sums:
            self._sums[name] = [_Cumulative(s, lambda one: one.weights.get(name, 0.0)) for s in self._streams]
        return math.fsum(of_one.at(utc_s) for of_one in self._sums[name])

    def _cost_usd(self, utc_s: float, share: float) -> float | None:
        """Return the cost up to a time: a share of the whole, and what the energy then cost more than on average.

        It is no plain share, as the others are: prices of an exchange may be negative, and the whole cost may be zero.
        """
        cost_usd, energy_kwh, whole = self._summary.cost_usd, self._summary.energy_kwh, self._sum("energy", math.inf)
        if cost_usd is None or self._summary.cost_basis == "machine" or not energy_kwh or not whole or not share:
            return _part(cost_usd, share)
        mean = self._sum("cost", math.inf) / whole
        dearer = self._sum("cost", utc_s) / whole - mean * (self._sum("energy", utc_s) / whole)
        return cost_usd * share + dearer * energy_kwh

    def splits_a_row(self, utc_s: float) -> bool:
        """Return True where a time lies within a row, of which a part is counted in proportion to time."""
        if not self._begins_s < utc_s < self._ends_s:
            return False
        return any(
            one.start_s + _TIMESTAMP_S < utc_s < one.end_s - _TIMESTAMP_S for stream in self._streams for one in stream
        )


@dataclass(frozen=True, slots=True)
class Cut:
    """The part of a run's time that it stands for.

    Attributes:
        before: what the run had come to when the part began, and
        until: when it ended; the part is the difference.
        has_begin: the run began within the part.
        has_end: the run ended within the part.
        splits_a_row: a row lay across an end of the part, and was split in proportion to time.
    """

    before: RunSummary
    until: RunSummary
    has_begin: bool
    has_end: bool
    splits_a_row: bool


def difference(later: RunSummary, earlier: RunSummary, *, base: RunSummary) -> RunSummary:
    """Return ``base`` with what came between two totals of a run; each number is rounded once."""
    a, b = later.energy, earlier.energy
    cpu_kwh, gpu_kwh, ram_kwh = (_minus(a.component_kwh(c), b.component_kwh(c)) for c in COMPONENTS)
    return replace(
        base,
        duration_s=later.duration_s - earlier.duration_s,
        gpu_hours=later.gpu_hours - earlier.gpu_hours,
        energy=replace(a, cpu_kwh=cpu_kwh, gpu_kwh=gpu_kwh, ram_kwh=ram_kwh),
        measured_kwh=_minus(later.measured_kwh, earlier.measured_kwh),
        unmetered_estimate_kwh=_minus(later.unmetered_estimate_kwh, earlier.unmetered_estimate_kwh),
        node_assumed_kwh=_minus(later.node_assumed_kwh, earlier.node_assumed_kwh),
        energy_kwh=_minus(later.energy_kwh, earlier.energy_kwh),
        emissions_kgco2e=_minus(later.emissions_kgco2e, earlier.emissions_kgco2e),
        cost_usd=_minus(later.cost_usd, earlier.cost_usd),
    )


def _minus(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b


def _part(value: float | None, share: float) -> float | None:
    return None if value is None else value * share


def _share(part: float, whole: float) -> float:
    return min(1.0, part / whole) if whole > 0 else 0.0


def _length_s(one: _Interval) -> float:
    return one.end_s - one.start_s


def _intervals(rows: Iterable[Row], rates: Rates) -> list[_Interval]:
    """Return what lies in the rows of one stream, by its beginning; rows whose time cannot be read are left out."""
    found = [
        _Interval(start_s, start_s + duration_s, dict(_weights(energy, row, rates)))
        for start_s, duration_s, energy, row in timed_stretches(rows)
        if duration_s > 0 or energy.is_known
    ]
    return sorted(found, key=itemgetter(0))


def _weights(energy: Energy, row: Row, rates: Rates) -> Iterator[tuple[str, float]]:
    """Yield what was metered in a stretch, by the sum that it belongs to."""
    metered_kwh = energy.total_kwh
    if metered_kwh is None:
        return
    own, own_price = row.carbon_intensity_gco2e_per_kwh, row.electricity_price_usd_per_kwh
    intensity = rates.carbon_intensity if own is None else own
    price = rates.electricity_price if own_price is None else own_price
    yield "energy", metered_kwh
    yield "emissions", metered_kwh * (1.0 if intensity is None else intensity)
    yield "cost", metered_kwh * (1.0 if price is None else price)
    known = {c: kwh for c in COMPONENTS if (kwh := energy.component_kwh(c)) is not None}
    yield from known.items()
    yield "measured", math.fsum(kwh for c, kwh in known.items() if is_measured(energy.component_method(c)))


def _estimate_unmetered(streams: Sequence[list[_Interval]]) -> None:
    """Add, in place, the energy of time without a meter: the mean power of each component while it was metered.

    A stream that metered nothing is taken at the mean power of the others, as in the totals of a run.
    """
    rated = _mean_rates(streams)
    means_kw: list[float] = []
    for at, stream in enumerate(streams):
        mean_kw = {c: kw for c in COMPONENTS if (kw := _mean_kw(stream, c)) is not None}
        if mean_kw:
            means_kw.append(math.fsum(mean_kw.values()))
            streams[at][:] = [_with_estimate(one, mean_kw, rated) for one in stream]
    if means_kw:
        mean = {"": math.fsum(means_kw) / len(means_kw)}
        for at, stream in enumerate(streams):
            if not any("energy" in one.weights for one in stream):
                streams[at][:] = [_with_estimate(one, mean, rated) for one in stream]


def _mean_rates(streams: Sequence[Sequence[_Interval]]) -> Mapping[str, float]:
    """Return what a metered kWh emits and costs on average."""
    kwh, *rated = (math.fsum(one.weights.get(n, 0.0) for s in streams for one in s) for n in ("energy", *_RATED))
    return {name: total / kwh if kwh > 0 else 1.0 for name, total in zip(_RATED, rated, strict=True)}


_RATED = ("emissions", "cost")


def _mean_kw(stream: Sequence[_Interval], component: str) -> float | None:
    """Return kWh per second of a component while it was metered; None where it never was."""
    known = [one for one in stream if component in one.weights]
    known_s = math.fsum(map(_length_s, known))
    return math.fsum(one.weights[component] for one in known) / known_s if known_s > 0 else None


def _with_estimate(one: _Interval, mean_kw: Mapping[str, float], rated: Mapping[str, float]) -> _Interval:
    """Add the energy of components without a meter, which emits and costs what a metered kWh does on average."""
    estimate = math.fsum(kw for c, kw in mean_kw.items() if c not in one.weights) * _length_s(one)
    if not estimate:
        return one
    added = {"estimate": estimate, "energy": estimate, **{name: estimate * rate for name, rate in rated.items()}}
    return one._replace(weights={**one.weights, **{n: one.weights.get(n, 0.0) + value for n, value in added.items()}})
