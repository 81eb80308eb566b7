"""The report on the metrics of runs, such as an accuracy: last and best of each, and the runs with the best ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from greenlove_tracker import format as fmt
from greenlove_tracker.logs.metrics import kwh_per_point
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.sums import RunRow
from greenlove_tracker.rendering import document as doc
from greenlove_tracker.report.learning_curves import final_value
from greenlove_tracker.report.wording import run_label

_MAX_METRICS = 40  # of a run
_MAX_SHARED = 6  # of a directory
N_BEST = 10  # runs of one
_DIGITS = 4
_PER_POINT = (
    "Per point: the energy of the whole run divided by its best score in points, hundredths of one from 0 to 1."
)


def number_text(value: float | None) -> str:
    """Write the value of a metric; empty where there is none."""
    if value is None:
        return ""
    if math.isfinite(value):
        is_plain = value == 0 or 1e-4 <= abs(value) < 1e7
        return fmt.significant(value, _DIGITS) if is_plain else f"{value:.{_DIGITS - 1}e}"
    return "not a number" if math.isnan(value) else "infinite" if value > 0 else "-infinite"


def _per_point(value_kwh: float | None) -> str:
    return "" if value_kwh is None else fmt.energy(value_kwh)


def metric_blocks(run: Run) -> tuple[doc.Block, ...]:
    """Return the last and best value of each metric that a run logged; nothing without any."""
    metrics, energy_kwh = run.summary.metrics, run.summary.energy_kwh
    if not metrics:
        return ()
    heads = ["metric", "last", "best", "lowest", "highest", "values", "per point"]
    rows = []
    for one in metrics[:_MAX_METRICS]:
        values = map(number_text, (one.last, one.best, one.lowest, one.highest))
        per_point = _per_point(kwh_per_point(one, energy_kwh))
        rows.append([fmt.shortened(one.name, 40), *values, f"{one.n_values:,}", per_point])
    notes = ["Best is of all epochs, whichever weights were kept."]
    if run.stopped_early_after is not None:  # the weights are those of another epoch than the last
        heads.append("of the kept weights")
        for row, one in zip(rows, metrics, strict=False):
            row.append(number_text(final_value(run, one.name)))
    notes += [_PER_POINT] if any(row[6] for row in rows) else []
    notes += [f"{len(metrics) - _MAX_METRICS:,} more are in the log."] if len(metrics) > _MAX_METRICS else []
    columns = tuple(doc.Column(head, 1 if i else 2.4, i > 0) for i, head in enumerate(heads))
    table = doc.Table(columns, tuple(map(tuple, rows)))
    return (doc.Heading("Metrics"), table, doc.Paragraph(" ".join(notes), is_note=True))


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
        (name, is_higher), ranked = key, metrics[key]
        rows = []
        for one in ranked[:N_BEST]:
            values = (number_text(one.best), number_text(one.last), fmt.energy(one.energy_kwh))
            rows.append((run_label(one.run_id), *values, _per_point(one.kwh_per_point)))
        more = f"; {fmt.plural(len(ranked), 'run')} in all" if len(ranked) > N_BEST else ""
        columns = (doc.Column("run", 2), *(doc.Column(h, 1, True) for h in ("best", "last", "energy", "per point")))
        title = f"Runs by {fmt.shortened(name, 40)}, {'larger' if is_higher else 'smaller'} is better{more}"
        blocks += [doc.Heading(title), doc.Table(columns, tuple(rows))]
    return (*blocks, doc.Paragraph(_PER_POINT, is_note=True)) if blocks else ()
