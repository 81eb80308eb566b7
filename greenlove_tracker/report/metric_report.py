"""The report on the metrics of runs, such as an accuracy: last and best of each, and the runs with the best ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from greenlove_tracker import format as fmt
from greenlove_tracker.logs.metrics import kwh_per_point, points
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.sums import RunRow
from greenlove_tracker.records import MetricSummary
from greenlove_tracker.rendering import document as doc

_MAX_METRICS = 40  # of a run
_MAX_SHARED = 6  # of a directory
N_BEST = 10  # runs of one
_DIGITS = 4
_PER_POINT = (
    "kWh per point: the energy of the whole run, PUE included, divided by its best score in points, which are "
    "hundredths of a score from 0 to 1; a score of which a value above 1 was logged is taken to be in points."
)


def number_text(value: float | None) -> str:
    """Write the value of a metric; empty where there is none."""
    if value is None:
        return ""
    if math.isfinite(value):
        is_plain = value == 0 or 1e-4 <= abs(value) < 1e7
        return fmt.significant(value, _DIGITS) if is_plain else f"{value:.{_DIGITS - 1}e}"
    return "not a number" if math.isnan(value) else "infinite" if value > 0 else "-infinite"


def metric_blocks(run: Run) -> tuple[doc.Block, ...]:
    """Return the last and best value of each metric that a run logged; nothing without any."""
    metrics = run.summary.metrics
    if not metrics:
        return ()
    shown = metrics[:_MAX_METRICS]
    has_points = any(points(metric) is not None for metric in shown) and run.summary.energy_kwh is not None
    columns = (
        doc.Column("metric", 2.4),
        *(doc.Column(title, 1, True) for title in ("last", "best", "lowest", "highest", "values")),
        *([doc.Column("per point", 1.2, True)] if has_points else []),
    )
    rows = [(*_cells(metric), *([_per_point(run, metric)] if has_points else [])) for metric in shown]
    unclear = any(metric.best is None for metric in shown)
    notes = [_PER_POINT] if has_points else []
    if unclear:
        notes.append("No best is given where the name of the metric does not tell whether larger values are better.")
    if len(metrics) > len(shown):
        notes.append(f"And {len(metrics) - len(shown):,} more, which are in the log.")
    return (
        doc.Heading("Metrics"),
        doc.Table(columns, tuple(rows)),
        *(doc.Paragraph(note, is_note=True) for note in notes),
    )


def _cells(metric: MetricSummary) -> tuple[str, ...]:
    values = (metric.last, metric.best, metric.lowest, metric.highest)
    return (fmt.shortened(metric.name, 40), *map(number_text, values), f"{metric.n_values:,}")


def _per_point(run: Run, metric: MetricSummary) -> str:
    value = kwh_per_point(metric, run.summary.energy_kwh)
    return "" if value is None else fmt.energy(value)


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


def ranked_metrics(runs: Sequence[RunRow]) -> dict[tuple[str, bool], list[RankedMetric]]:
    """Return all runs with a metric, the best first, by its name and whether larger values of it are better."""
    found: dict[tuple[str, bool], list[RankedMetric]] = {}
    for run in runs:
        for metric in run["metrics"]:
            best, is_higher, kwh = metric.best, metric.higher_is_better, run["whole_kwh"]
            if best is not None and is_higher is not None:
                ranked = (-best if is_higher else best, run["run"], best, metric.last, kwh, kwh_per_point(metric, kwh))
                found.setdefault((metric.name, is_higher), []).append(RankedMetric(*ranked))
    return {key: sorted(found[key], key=lambda one: one[:2]) for key in sorted(found)}


@dataclass(frozen=True, slots=True)
class MetricRanking:
    """The runs with the best values of one metric, as text.

    Attributes:
        title: names it.
        columns: titles of the cells.
        rows: one a run, the best first.
        n_more: runs that have the metric beside those.
        has_points: its energy is given per point.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    n_more: int
    has_points: bool


def rankings(runs: Sequence[RunRow], least_runs: int = 2, run_width: int = 40) -> Sequence[MetricRanking]:
    """Return the metrics that several runs have, those that most have first.

    Args:
        runs: one row each.
        least_runs: that have it.
        run_width: characters of a run's name.
    """
    metrics = ranked_metrics(runs)
    shared = sorted((-len(ranked), key) for key, ranked in metrics.items() if len(ranked) >= least_runs)
    found = []
    for _, key in shared[:_MAX_SHARED]:
        (name, is_higher), best = key, metrics[key][:N_BEST]
        has_points = any(item.kwh_per_point is not None for item in best)
        rows = []
        for item in best:
            per_point = [fmt.energy(item.kwh_per_point)] if has_points else []
            values = (number_text(item.best), number_text(item.last), fmt.energy(item.energy_kwh))
            rows.append((fmt.shortened(item.run_id, run_width), *values, *per_point))
        title = f"{fmt.shortened(name, 40)}, {'larger' if is_higher else 'smaller'} is better"
        columns = ("run", "best", "last", "energy", *(["per point"] if has_points else []))
        found.append(MetricRanking(title, columns, tuple(rows), len(metrics[key]) - len(rows), has_points))
    return found


def shared_metric_blocks(runs: Sequence[RunRow]) -> tuple[doc.Block, ...]:
    """Return the runs with the best values of each metric that several runs have; nothing without such a metric."""
    blocks: list[doc.Block] = []
    found = rankings(runs)
    for ranking in found:
        columns = [doc.Column(title, 3.6 if i == 0 else 1.2, i > 0) for i, title in enumerate(ranking.columns)]
        blocks += [doc.Heading(f"Runs by {ranking.title}"), doc.Table(tuple(columns), ranking.rows)]
        if ranking.n_more:
            blocks.append(doc.Paragraph(f"and {fmt.plural(ranking.n_more, 'run')} more"))
    if any(ranking.has_points for ranking in found):
        blocks.append(doc.Paragraph(_PER_POINT, is_note=True))
    return tuple(blocks)
