"""The report on the metrics of runs, such as an accuracy: last and best of each, and the runs with the best ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
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


def shared_metric_blocks(runs: Sequence[RunRow], least_runs: int = 2) -> tuple[doc.Block, ...]:
    """Return the runs with the best values of each metric that so many runs have; nothing without such a metric."""
    metrics = ranked_metrics(runs)
    shared = sorted((-len(ranked), key) for key, ranked in metrics.items() if len(ranked) >= least_runs)
    blocks: list[doc.Block] = []
    for _, key in shared[:_MAX_SHARED]:
        (name, is_higher), best = key, metrics[key][:N_BEST]
        rows = tuple(
            (
                fmt.shortened(item.run_id, 40),
                number_text(item.best),
                number_text(item.last),
                fmt.energy(item.energy_kwh),
                "" if item.kwh_per_point is None else fmt.energy(item.kwh_per_point),
            )
            for item in best
        )
        better = "larger" if is_higher else "smaller"
        more = f"; {fmt.plural(len(metrics[key]), 'run')} in all" if len(metrics[key]) > len(best) else ""
        columns = (doc.Column("run", 3.6), *(doc.Column(head, 1.2, True) for head in _HEADS))
        title = f"Runs by {fmt.shortened(name, 40)}, {better} is better{more}"
        blocks += [doc.Heading(title), doc.Table(columns, rows)]
    return (*blocks, doc.Paragraph(_PER_POINT, is_note=True)) if blocks else ()


_HEADS = ("best", "last", "energy", "per point")
