"""What runs learnt: the last and best of each metric, the runs with the best ones, and learning curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from greenlove_tracker.logs.aggregate import Totals
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.run_rows import RunRow
from greenlove_tracker.logs.tables import MetricRecord
from greenlove_tracker.rendering import document as doc
from greenlove_tracker.rendering.axes import thinned
from greenlove_tracker.report.wording import grouped, run_label, sum_mark
from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.metrics import LARGER_IS_BETTER, SMALLER_IS_BETTER, words_of
from greenlove_tracker.vocabulary.records import MetricSummary

_Records = Sequence[MetricRecord]
_MAX_METRICS = 40  # of a run
_MAX_SHARED = 6  # of a directory
N_BEST = 10  # runs of one
_DIGITS = 4
_MOST_CHARTS = 4  # of a run
_MOST_LINES = 5  # of a chart: further ones would look like the first
_NAME_WIDTH = 40
_HELD_OUT = frozenset({"val", "valid", "validation", "eval", "test", "dev"})
_TRAINED_ON = frozenset({"train", "training"})
_ACCURACY = frozenset({"acc", "accuracy", "top1"})


def number_text(value: float | None) -> str:
    """Write the value of a metric; empty where there is none."""
    if value is None:
        return ""
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "infinite" if value > 0 else "-infinite"
    if value == 0 or 1e-4 <= abs(value) < 1e7:
        return fmt.significant(value, _DIGITS)
    return f"{value:.{_DIGITS - 1}e}"


def metric_blocks(run: Run) -> doc.BlockIterator:
    """Yield the last and best value of each metric that a run logged; nothing without any."""
    metrics = run.summary.metrics
    if not metrics:
        return
    shown = metrics[:_MAX_METRICS]
    cells = {name: [number_text(getattr(one, name)) for one in shown] for name in ("last", "best", "lowest", "highest")}
    cells["values"] = [f"{one.n_values:,}" for one in shown]
    if run.stopped_early_after is not None:  # the weights are those of another epoch than the last
        cells["of the kept weights"] = [number_text(final_value(run, one.name)) for one in shown]
    names = [fmt.shortened(one.name, 40) for one in shown]
    yield doc.Heading("Metrics")
    yield doc.Table(doc.columns({"metric": 2.4}, cells), list(zip(names, *cells.values(), strict=True)))
    note = "Best is of all epochs, whichever weights were kept."
    if len(metrics) > _MAX_METRICS:
        note += f" {len(metrics) - _MAX_METRICS:,} more are in the log."
    yield doc.Note(note)


class RankedMetric(NamedTuple):
    """The best value of a metric in one run.

    Attributes:
        run: the run.
        best: the value.
        last: the last value.
        energy_kwh: of the whole run, PUE included.
        kwh_per_point: of a score, see ``points``.
    """

    run: RunRow
    best: float
    last: float
    energy_kwh: float | None
    kwh_per_point: float | None


def ranked_metrics(runs: Sequence[RunRow]) -> dict[tuple[str, bool], list[RankedMetric]]:
    """Return all runs with a metric, the best first, by its name and whether larger values of it are better."""
    found = grouped(
        (
            (metric.name, metric.higher_is_better),
            RankedMetric(run, metric.best, metric.last, run.whole_kwh, kwh_per_point(metric, run.whole_kwh)),
        )
        for run in runs
        for metric in run.metrics
        if metric.best is not None and metric.higher_is_better is not None and not _is_twice(metric.name, run)
    )
    for (_, is_higher), ranked in found.items():
        ranked.sort(key=lambda one: one.run.run)  # of those that are as good
        ranked.sort(key=lambda one: one.best, reverse=is_higher)
    return dict(sorted(found.items()))


def _is_twice(name: str, run: RunRow) -> bool:
    plain = name.removesuffix("_step").removesuffix("_epoch")  # Lightning logs all three
    return plain != name and any(metric.name == plain for metric in run.metrics)


# Scores from 0 to 1, often given in percent: a hundredth of one is a point
_IN_POINTS_TEXT = (
    "acc accuracies accuracy ap ap50 auc auprc auroc dice f1 iou jaccard map map50 miou precision recall sensitivity "
    "specificity top1 top5"
)
_IN_POINTS = frozenset(_IN_POINTS_TEXT.split())


def kwh_per_point(metric: MetricSummary, energy_kwh: float | None) -> float | None:
    """Return the energy of a run, PUE included, divided by the points of its best score; None where one is unknown."""
    best_points = points(metric)
    if best_points is None or energy_kwh is None:
        return None
    return energy_kwh / best_points


def points(metric: MetricSummary) -> float | None:
    """Return the best value of a score from 0 to 1 in points, which are hundredths; None of any other metric.

    Where a value above 1 was logged, the metric is taken to be in points, that is in percent, already.
    """
    best = metric.best
    highest = metric.highest
    words = [word for word in words_of(metric.name) if word in LARGER_IS_BETTER | SMALLER_IS_BETTER]
    if not words or words[-1] not in _IN_POINTS or not metric.higher_is_better or best is None or highest is None:
        return None
    if not 0 < best <= 100:
        return None
    return best if highest > 1 else 100.0 * best


def shared_metric_blocks(runs: Sequence[RunRow], least_runs: int = 2) -> doc.BlockIterator:
    """Yield the runs with the best values of each metric that so many runs have; nothing without such a metric."""
    shared = [item for item in ranked_metrics(runs).items() if len(item[1]) >= least_runs]
    shared.sort(key=lambda item: -len(item[1]))  # those of as many runs stay in the order of their names
    for (name, is_higher), ranked in shared[:_MAX_SHARED]:
        rows = [
            (
                run_label(one.run.run, one.run.facts.label),
                number_text(one.best),
                number_text(one.last),
                f"{sum_mark(Totals([one.run]))}{fmt.energy(one.energy_kwh)}",
                one.run.run.rpartition("-")[2][:8],
            )
            for one in ranked[:N_BEST]
        ]
        title = f"Runs by {fmt.shortened(name, 40)}, {'larger' if is_higher else 'smaller'} is better"
        if len(ranked) > N_BEST:
            title += f"; {fmt.plural(len(ranked), 'run')} in all"
        yield doc.Heading(title)
        yield doc.Table([*doc.columns({"run": 2}, ("best", "last", "energy")), doc.Column("id", 0.7)], rows)


# -- How a run learnt --


def is_learning_rate(name: str) -> bool:
    """Return True for the name of a learning rate, which is set and not learnt: ``lr``, ``lr-Adam``."""
    words = words_of(name)
    return "lr" in words or "learningrate" in words or {"learning", "rate"} <= set(words)


def rank_of_metric(metric: MetricSummary) -> tuple[bool, ...]:
    """Return what metrics are sorted by: what was held out before what was trained on, and accuracies first."""
    words = set(words_of(metric.name))
    is_trained_on = not words.isdisjoint(_TRAINED_ON)
    return is_trained_on, not metric.higher_is_better, words.isdisjoint(_ACCURACY), words.isdisjoint(_HELD_OUT)


# -- The energy so far --


def overhead(run: Run) -> float:
    """Return the energy of a run in that of its components: the rest of the node, PUE, and its calibration."""
    summary = run.summary
    metered_kwh = run.metered_summary.energy_kwh
    calibration = 1.0
    if run.calibration and metered_kwh and summary.energy_kwh is not None:
        calibration = summary.energy_kwh / metered_kwh
    return run.terms.node_factor(summary.energy) * summary.pue * calibration


# -- Of one run --


def learning_blocks(run: Run) -> doc.BlockIterator:
    """Yield how a run learnt, a chart for each metric that has two values; nothing without one.

    What was trained on and what was held out share a chart where their names pair: ``train_loss`` and ``val_loss``.
    """
    names = sorted(run.metrics, key=lambda name: ("loss" not in words_of(name), name))
    found = {name: _values(run, name) for name in names}
    pairs = grouped((frozenset(words_of(name)) - _HELD_OUT - _TRAINED_ON, name) for name in names)
    drawn = (_chart(run, {name: found[name] for name in own}) for own in pairs.values())
    charts = list(filter(None, drawn))[:_MOST_CHARTS]
    if not charts:
        return
    yield doc.Heading("Learning curves")
    for i in range(0, len(charts), 2):
        yield doc.ChartRow(charts[i : i + 2])
    n_lost = sum(run.metrics[name].n_values - len(values) for name, values in found.items())
    if n_lost > 0:
        yield doc.Note(f"Not drawn: {fmt.plural(n_lost, 'value')}, not finite or not in the log.")
    if len(run.metric_values) > 1:
        yield doc.Note("Several ranks logged values: those of the first are drawn.")


def _chart(run: Run, values: Mapping[str, _Records]) -> doc.LineChart | None:
    """Draw the metrics that have two values or more; None where none has."""
    is_by_epoch = all(map(_is_by_epoch, values.values()))
    lines = []
    for name, records in list(values.items())[:_MOST_LINES]:
        at = {(r.epoch or 0) if is_by_epoch else run.first_step + r.steps_done: r.value for r in records}
        if len(at) > 1:
            points = thinned(sorted((float(x), value) for x, value in at.items()))
            lines.append(doc.Line(fmt.shortened(name, _NAME_WIDTH), points))
    if not lines:
        return None
    title = fmt.shortened(", ".join(line.name for line in lines), 2 * _NAME_WIDTH)
    return doc.LineChart(title, "epoch" if is_by_epoch else "step", "", lines, is_from_0=False)


def _values(run: Run, name: str) -> _Records:
    """Return each finite value of a metric, of the first rank that logged it."""
    for _, records in sorted(run.metric_values.items()):
        own = [record for record in records if record.name == name]
        if own:
            return [record for record in own if math.isfinite(record.value)]
    return []


def final_value(run: Run, name: str) -> float | None:
    """Return the value of the weights that a run ended with: at its best epoch where early stopping went back to it."""
    best = run.amount("best_epoch")
    if run.stopped_early_after is not None and best is not None:
        return next((r.value for r in reversed(_values(run, name)) if r.epoch == best), None)
    found = run.metrics.get(name)
    if found is not None and math.isfinite(found.last):
        return found.last
    return None


def _is_by_epoch(records: _Records) -> bool:
    """Return True where there is one value an epoch."""
    epochs = [record.epoch for record in records if record.epoch is not None]
    return epochs == sorted(set(epochs)) and len(epochs) == len(records)
