"""Learning curves: the metrics of a run as it went on, or one metric of several runs by the energy that they took."""

from __future__ import annotations

import itertools
import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from greenlove_tracker import format as fmt
from greenlove_tracker.format import energy_scale, time_scale
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.tables import MetricRecord
from greenlove_tracker.records import MetricSummary
from greenlove_tracker.rendering import document as doc
from greenlove_tracker.rendering.axes import Points, thinned
from greenlove_tracker.report.run_report import cumulative_energy_kwh

_MOST_CHARTS = 4  # of a run
_MOST_LINES = 5  # of a chart: further ones would look like the first (rendering.svg.N_LINE_STYLES)
_NAME_WIDTH = 40
_LEAST_POINTS = 2
_HELD_OUT = frozenset({"val", "valid", "validation", "eval", "test", "dev"})
_TRAINED_ON = frozenset({"train", "training"})
_ACCURACY = frozenset({"acc", "accuracy", "top1"})
_LEARNING_RATE = re.compile(r"(?:^|[^a-z0-9])(?:lr|learning[^a-z0-9]?rate)(?:$|[^a-z0-9])")
_PLAIN_EXPONENTS = range(-3, 6)  # of ten, of values that are written as they are


def is_learning_rate(name: str) -> bool:
    """Return True for the name of a learning rate, which is set and not learnt: ``lr``, ``lr-Adam``."""
    return _LEARNING_RATE.search(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()) is not None


def rank_of_metric(metric: MetricSummary) -> tuple[bool, ...]:
    """Return what metrics are sorted by: what was held out before what was trained on, and accuracies first."""
    words = set(_words(metric.name))
    is_trained_on = not words.isdisjoint(_TRAINED_ON)
    return is_trained_on, not metric.higher_is_better, words.isdisjoint(_ACCURACY), words.isdisjoint(_HELD_OUT)


def _words(name: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", name.lower())


def _paired_by(name: str) -> tuple[str, ...]:
    """Return the words of a name that what was trained on and what was held out have in common."""
    return tuple(word for word in _words(name) if word not in _HELD_OUT | _TRAINED_ON)


def _by_loss_first(name: str) -> tuple[bool, tuple[str, ...], bool]:
    return "loss" not in _words(name), _paired_by(name), not _HELD_OUT.isdisjoint(_words(name))


# -- Of one run --


def learning_blocks(run: Run) -> tuple[doc.Block, ...]:
    """Return how a run learnt, a chart for each metric that has two values; nothing without one.

    What was trained on and what was held out share a chart where their names pair: ``train_loss`` and ``val_loss``.
    """
    values = {name: _values(run, name) for name in run.metrics}
    pairs: dict[tuple[str, ...], list[str]] = {}
    for name in sorted((name for name, found in values.items() if len(found) >= _LEAST_POINTS), key=_by_loss_first):
        pairs.setdefault(_paired_by(name), []).append(name)
    drawn = [_chart(run, {name: values[name] for name in own[:_MOST_LINES]}) for own in pairs.values()]
    charts = [chart for chart in drawn if chart is not None][:_MOST_CHARTS]
    if not charts:
        return ()
    notes = [
        f"{fmt.shortened(name, _NAME_WIDTH)}: {fmt.plural(n_lost, 'value')} not drawn, not finite or not in the log."
        for name in itertools.chain(*pairs.values())
        if (n_lost := run.metrics[name].n_values - len(values[name])) > 0
    ]
    if len(run.metric_values) > 1:
        notes.append("Several ranks logged values: those of the first are drawn.")
    rows = (doc.ChartRow(tuple(charts[i : i + 2])) for i in range(0, len(charts), 2))
    return (doc.Heading("Learning curves"), *rows, *(doc.Paragraph(note, is_note=True) for note in notes))


def _chart(run: Run, values: Mapping[str, Sequence[MetricRecord]]) -> doc.LineChart | None:
    is_by_epoch = all(map(_is_by_epoch, values.values()))
    lines = []
    for name, records in values.items():
        points = {_position(run, record, is_by_epoch=is_by_epoch): record.value for record in records}
        lines.append(doc.Line(fmt.shortened(name, _NAME_WIDTH), tuple(sorted(points.items()))))
    title = fmt.shortened(", ".join(line.name for line in lines), 2 * _NAME_WIDTH)
    return line_chart(title, "epoch" if is_by_epoch else "step", lines)


def _values(run: Run, name: str) -> Sequence[MetricRecord]:
    """Return each finite value of a metric, of the first rank that logged it."""
    for _, records in sorted(run.metric_values.items()):
        if own := [record for record in records if record.name == name]:
            return [record for record in own if math.isfinite(record.value)]
    return []


def final_value(run: Run, name: str) -> float | None:
    """Return the value of the weights that a run ended with: at its best epoch where early stopping went back to it."""
    epoch = run.text("best_epoch") if run.stopped_early_after is not None else ""
    if epoch.isdecimal():
        return next((r.value for r in reversed(_values(run, name)) if r.epoch == int(epoch)), None)
    found = run.metrics.get(name)
    return found.last if found is not None and math.isfinite(found.last) else None


def _position(run: Run, record: MetricRecord, *, is_by_epoch: bool) -> float:
    return float(record.epoch or 0) if is_by_epoch else float(run.first_step + record.steps_done)


def _is_by_epoch(records: Sequence[MetricRecord]) -> bool:
    """Return True where there is one value an epoch."""
    epochs = [record.epoch for record in records if record.epoch is not None]
    return len(epochs) == len(records) and all(a < b for a, b in itertools.pairwise(epochs))


# -- Of several, side by side --


def metric_by_energy(sides: Iterable[tuple[str, Sequence[Run]]], name: str) -> doc.LineChart | None:
    """Return a metric by the energy that it took, or by the time where an energy is unknown; a line a side.

    A line of several runs is their mean, where all of them have a value.
    """
    drawn = list(sides)[:_MOST_LINES]
    so_far = {id(run): cumulative_energy_kwh(run) for _, runs in drawn for run in runs}
    knows_energy = all(so_far.values())
    lines = [
        _mean_line(side, [_curve(run, name, so_far[id(run)] if knows_energy else ()) for run in runs])
        for side, runs in drawn
    ]
    most = max((x for line in lines for x, _ in line.points), default=0.0)
    if most <= 0:
        return None
    scale, what = (energy_scale(most), "energy") if knows_energy else (time_scale(most), "time")
    lines = [replace(line, points=tuple((scale.value(x), y) for x, y in line.points)) for line in lines]
    title = f"{fmt.shortened(name, _NAME_WIDTH)}, by the {what} that it took"
    return line_chart(title, f"{what} so far, {scale.unit}", lines)


def _curve(run: Run, name: str, so_far: Points) -> dict[float, tuple[float, float]]:
    """Return, by epoch or step, what had been used when a value was logged, and the value."""
    records, found = _values(run, name), {}
    is_by_epoch, times_s = _is_by_epoch(records), [at_s for at_s, _ in so_far]
    for record in records:
        try:
            passed = datetime.fromisoformat(record.logged_at) - datetime.fromisoformat(run.started_at)
        except (ValueError, TypeError):  # a damaged log, or one with and one without a zone
            continue
        used = _height(so_far, times_s, passed.total_seconds()) if so_far else passed.total_seconds()
        found[_position(run, record, is_by_epoch=is_by_epoch)] = (used, record.value)
    return found


def _height(line: Points, xs: Sequence[float], x: float) -> float:
    """Return the height of a line at x, between its points and at its ends."""
    index = bisect_left(xs, x)
    if index == 0 or index == len(line):
        return line[min(index, len(line) - 1)][1]
    (x0, y0), (x1, y1) = line[index - 1], line[index]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def _mean_line(name: str, curves: Sequence[Mapping[float, tuple[float, float]]]) -> doc.Line:
    shared = sorted(set.intersection(*(set(curve) for curve in curves))) if curves else []
    means = ([math.fsum(c[at][i] for c in curves) / len(curves) for i in (0, 1)] for at in shared)
    return doc.Line(name, tuple((x, y) for x, y in means))


def line_chart(title: str, x_label: str, lines: Iterable[doc.Line]) -> doc.LineChart | None:
    """Return a chart of the lines of two points or more; None without any.

    Values too large or too small to be written out stand in powers of ten, which the label then says.
    """
    drawn = [line for line in lines if len(line.points) >= _LEAST_POINTS]
    if not drawn:
        return None
    y_label, highest = "", max(abs(y) for line in drawn for _, y in line.points)
    exponent = math.floor(math.log10(highest)) if highest > 0 else 0
    if exponent not in _PLAIN_EXPONENTS:
        y_label = f"× 1e{exponent}"
        drawn = [replace(line, points=tuple((x, y / 10.0**exponent) for x, y in line.points)) for line in drawn]
    first, *others = (replace(line, points=thinned(line.points)) for line in drawn)
    return doc.LineChart(title, x_label, y_label, first.points, name=first.name, others=tuple(others), is_from_0=False)
