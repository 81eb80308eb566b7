"""Single runs that a report of many names, kept to a size that does not grow with their number."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from greenlove_tracker.logs.lost_work import Resumption
from greenlove_tracker.logs.metrics import kwh_per_point
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.scoring import headline_forecast
from greenlove_tracker.logs.sums import Contribution, ExactTotals, TopN
from greenlove_tracker.records import Factor, MetricSummary, RunStatus

N_TOP = 10
_N_INCOMPLETE = 25
N_FACTORS = 200
_N_RANKED = 10
_MAX_METRICS = 500  # names of metrics that many runs have, in the order of the alphabet
_N_ENERGIES = 11  # a sum of more is not written out
INCOMPLETE = frozenset(RunStatus) - {RunStatus.FINISHED, RunStatus.EXITED}  # of the latter nobody said how


class RankedMetric(NamedTuple):
    """The best value of a metric in one run.

    Attributes:
        rank: less for a better one.
        run_id: of the run.
        best: the value.
        last: the last value.
        energy_kwh: of the whole run, PUE included.
        kwh_per_point: of a score, as ``metrics.kwh_per_point`` defines it.
    """

    rank: float
    run_id: str
    best: float
    last: float
    energy_kwh: float | None
    kwh_per_point: float | None


class Notable(NamedTuple):
    """The facts for which a report may name one run."""

    run_id: str
    contribution: Contribution
    emissions_kgco2e: float | None
    duration_s: float
    energy_kwh: float | None
    is_cut: bool
    is_simulated: bool
    is_incomplete: bool
    factors: tuple[Factor, ...]
    country: str
    day: str
    record: ForecastRecord
    metrics: tuple[MetricSummary, ...]
    metrics_kwh: float | None  # of the whole run, which the metrics are of
    resumption: Resumption | None


def notable(run: Run, part: Run, added: Contribution) -> Notable:
    """Return the facts for which a report may name a run.

    What became of a run (its ending, its forecasts, its metrics) counts in the period in which it ended, and how it
    went on with another in that in which it began: once, however many periods it lies in.

    Args:
        run: the whole run.
        part: what counts of it.
        added: what that adds.
    """
    summary, cut = part.summary, part.cut
    has_begin, has_end = (True, True) if cut is None else (cut.has_begin, cut.has_end)
    return Notable(
        run_id=run.run_id,
        contribution=added,
        emissions_kgco2e=part.emissions_kgco2e,
        duration_s=summary.duration_s,
        energy_kwh=summary.energy_kwh,
        is_cut=cut is not None,
        is_simulated=run.is_simulated,
        is_incomplete=has_end and summary.status in INCOMPLETE,
        factors=part.factors,
        country=run.text("country"),
        day=part.text("started_at")[:10],
        record=ForecastRecord.of(run) if has_end else ForecastRecord(),
        metrics=run.summary.metrics if has_end else (),
        metrics_kwh=run.summary.energy_kwh,
        resumption=Resumption.of(run) if has_begin else None,
    )


@dataclass(frozen=True, slots=True)
class Highlights:
    """The single runs that a report names, and facts about all beside their sums.

    Attributes:
        top: the runs with the highest emissions, each (-kg, run id, what it comes to).
        largest: the one to take as an example, (is a part or simulated, -kg, -s, run id): another if any.
        incomplete: (-kg, run id) of those that did not finish, those that emitted most first.
        energies: (run id, kWh), where it is known.
        factors: (run id, number in it, factor): where each was first met; 200 at most.
        countries: two of them at most.
        days: the first and the last, as far as known.
        forecasts: how they came out.
        metrics: by name of a metric and which of its values are better, the runs with the best ones.
        resumptions: by the id of each run that went on with another, how; as many as there are such runs.
    """

    top: TopN[tuple[float, str, ExactTotals]]
    largest: TopN[tuple[bool, float, float, str]]
    incomplete: TopN[tuple[float, str]]
    energies: TopN[tuple[str, float]]
    factors: tuple[tuple[str, int, Factor], ...]
    countries: tuple[str, ...]
    days: tuple[str, ...]
    forecasts: ForecastRecord
    metrics: Mapping[tuple[str, bool], TopN[RankedMetric]]
    resumptions: Mapping[str, Resumption]

    @classmethod
    def of(cls, runs: Sequence[Notable]) -> Highlights:
        """Return the highlights of these runs."""
        ranked = TopN.of(N_TOP, ((-(r.emissions_kgco2e or 0.0), r.run_id, r.contribution) for r in runs))
        top = tuple((kg, run_id, ExactTotals.of([added])) for kg, run_id, added in ranked.items)
        return cls(
            top=TopN(N_TOP, ranked.count, top),
            largest=TopN.of(
                1, ((r.is_cut or r.is_simulated, -(r.emissions_kgco2e or 0.0), -r.duration_s, r.run_id) for r in runs)
            ),
            incomplete=TopN.of(
                _N_INCOMPLETE, ((-(r.emissions_kgco2e or 0.0), r.run_id) for r in runs if r.is_incomplete)
            ),
            energies=TopN.of(_N_ENERGIES, ((r.run_id, r.energy_kwh) for r in runs if r.energy_kwh is not None)),
            factors=_first_met((r.run_id, i, factor) for r in runs for i, factor in enumerate(r.factors)),
            countries=_few({r.country for r in runs}),
            days=_ends({r.day for r in runs} - {""}),
            forecasts=ForecastRecord.merged(r.record for r in runs),
            metrics=_ranked(runs),
            resumptions={r.run_id: r.resumption for r in runs if r.resumption is not None},
        )

    @classmethod
    def merged(cls, parts: Iterable[Highlights]) -> Highlights:
        """Merge highlights, of which there is at least one."""
        parts = list(parts)
        return cls(
            top=TopN.merged(p.top for p in parts),
            largest=TopN.merged(p.largest for p in parts),
            incomplete=TopN.merged(p.incomplete for p in parts),
            energies=TopN.merged(p.energies for p in parts),
            factors=_first_met(met for p in parts for met in p.factors),
            countries=_few({country for p in parts for country in p.countries}),
            days=_ends({day for p in parts for day in p.days}),
            forecasts=ForecastRecord.merged(p.forecasts for p in parts),
            metrics=_few_metrics(p.metrics for p in parts),
            resumptions={run_id: one for p in parts for run_id, one in p.resumptions.items()},
        )


def _first_met(met: Iterable[tuple[str, int, Factor]]) -> tuple[tuple[str, int, Factor], ...]:
    first: dict[Factor, tuple[str, int]] = {}
    for run_id, i, found_factor in met:
        # NaN, of a damaged log, equals itself only as one object
        is_number = math.isfinite(found_factor.value)
        factor = found_factor if is_number else replace(found_factor, value=math.nan)
        first[factor] = min(first.get(factor, (run_id, i)), (run_id, i))
    found = sorted((run_id, i, factor.name, factor) for factor, (run_id, i) in first.items())
    return tuple((run_id, i, factor) for run_id, i, _, factor in found[:N_FACTORS])


def _ranked(runs: Sequence[Notable]) -> Mapping[tuple[str, bool], TopN[RankedMetric]]:
    found: dict[tuple[str, bool], list[RankedMetric]] = {}
    for run in runs:
        for metric in run.metrics:
            best, is_higher = metric.best, metric.higher_is_better
            if best is not None and is_higher is not None:
                rank, kwh = -best if is_higher else best, run.metrics_kwh
                ranked = RankedMetric(rank, run.run_id, best, metric.last, kwh, kwh_per_point(metric, kwh))
                found.setdefault((metric.name, is_higher), []).append(ranked)
    return _few_metrics([{key: TopN.of(_N_RANKED, ranked) for key, ranked in found.items()}])


def _few_metrics(
    parts: Iterable[Mapping[tuple[str, bool], TopN[RankedMetric]]],
) -> Mapping[tuple[str, bool], TopN[RankedMetric]]:
    """Merge what runs came to, of the first so many names: as few however the runs were split up."""
    found: dict[tuple[str, bool], list[TopN[RankedMetric]]] = {}
    for part in parts:
        for key, ranked in part.items():
            found.setdefault(key, []).append(ranked)
    return {key: TopN.merged(found[key]) for key in sorted(found)[:_MAX_METRICS]}


def _few(countries: set[str]) -> tuple[str, ...]:
    return tuple(sorted(countries)[:2])


def _ends(days: set[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((min(days), max(days)))) if days else ()


# -- How the forecasts of many runs came out, counted: as much for a million runs as for one --

_MAX_ERROR = 10.0  # a forecast that is farther off counts as off by this


@dataclass(frozen=True, slots=True)
class ForecastRecord:
    """The outcomes of runs' own forecasts of their time, one of each run, which makes them independent.

    Attributes:
        n_held: runs whose interval held.
        errors: by |error| to a thousandth, the number of runs.
        levels: by the level of the interval, the number of runs.
    """

    n_held: int = 0
    errors: Mapping[float, int] = field(default_factory=dict)
    levels: Mapping[float, int] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Run) -> ForecastRecord:
        """Return the record of one run; empty where it made no forecast, or did not do what it forecast."""
        headline = headline_forecast(run)
        if headline is None or not headline.estimate.has_interval:
            return cls()
        error = round(min(abs(headline.error), _MAX_ERROR), 3)
        return cls(int(headline.has_held), {error: 1}, {headline.estimate.level: 1})

    @classmethod
    def merged(cls, records: Iterable[ForecastRecord]) -> ForecastRecord:
        """Merge the records of runs."""
        n_held = 0
        errors: Counter[float] = Counter()
        levels: Counter[float] = Counter()
        for record in records:
            n_held += record.n_held
            errors.update(record.errors)
            levels.update(record.levels)
        return cls(n_held, dict(errors), dict(levels))

    @property
    def n_runs(self) -> int:
        """Runs that did what they forecast."""
        return sum(self.errors.values())

    @property
    def median_error(self) -> float | None:
        """The median of |error|, each to a thousandth; of two in the middle, their mean."""
        if not self.n_runs:
            return None
        return (self._ranked((self.n_runs + 1) // 2) + self._ranked(self.n_runs // 2 + 1)) / 2

    def _ranked(self, rank: int) -> float:
        """Return the error of a rank, counted from 1 for the smallest."""
        n_counted = 0
        for error, n in sorted(self.errors.items()):
            n_counted += n
            if n_counted >= rank:
                return error
        raise IndexError(rank)
