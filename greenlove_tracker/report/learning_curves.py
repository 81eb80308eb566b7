"""Learning curves: the losses, scores and learning rate of a run as it went on, or of several runs side by side."""

from __future__ import annotations

import itertools
import math
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from greenlove_tracker import format as fmt
from greenlove_tracker.format import energy_scale, time_scale
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.tables import MetricRecord
from greenlove_tracker.records import MetricSummary
from greenlove_tracker.rendering import document as doc
from greenlove_tracker.rendering.axes import Points, thinned
from greenlove_tracker.report.metric_report import number_text
from greenlove_tracker.report.run_report import cumulative_energy_kwh

NamedRuns = Sequence[tuple[str, Sequence[Run]]]
"""Runs by the name of their line."""

_MOST_CHARTS = 8  # of a run, beside that of the learning rate
_MOST_LINES = 5  # of a chart: further ones would look like the first (rendering.svg.N_LINE_STYLES)
_NAME_WIDTH = 40
_LEAST_POINTS = 2
_HELD_OUT = frozenset({"val", "valid", "validation", "eval", "test", "dev"})
_TRAINED_ON = frozenset({"train", "training"})
_ACCURACY = frozenset({"acc", "accuracy", "top1"})
_LEARNING_RATE = re.compile(r"(?:^|[^a-z0-9])(?:lr|learning[^a-z0-9]?rate)(?:$|[^a-z0-9])")
_MOST_NOTES = 5
_PLAIN_EXPONENTS = range(-3, 6)  # of ten, of values that are written as they are


def learning_blocks(run: Run) -> tuple[doc.Block, ...]:
    """Return how a run learnt: each loss and score that has two values, and its learning rate; nothing without one.

    What was trained on and what was held out share a chart where their names pair: ``train_loss`` and ``val_loss``.
    """
    values = _first_values(run)
    drawable = sorted((name for name, found in values.items() if len(found) >= _LEAST_POINTS), key=_by_loss_first)
    rates = [name for name in drawable if is_learning_rate(name)]
    pairs: dict[tuple[str, ...], list[str]] = {}
    for name in drawable:
        if name not in rates:
            pairs.setdefault(_paired_by(name), []).append(name)
    best_epoch = _number_in(run, "best_epoch")
    charts = [_own_chart(run, values, own, best_epoch) for own in list(pairs.values())[:_MOST_CHARTS]]
    constant = [name for name in rates if len({record.value for record in values[name]}) == 1]
    charts.append(_own_chart(run, values, [name for name in rates if name not in constant], is_from_0=True))
    shown = [chart for chart in charts if chart is not None]
    if not shown:
        return ()
    notes = ["The open circles mark the best epoch."] if any(chart.dots for chart in shown) else []
    notes += [
        f"{fmt.shortened(name, _NAME_WIDTH)} was {number_text(values[name][0].value)} throughout." for name in constant
    ]
    notes += _left_out_notes(run, values, drawable)
    if len(pairs) > _MOST_CHARTS:
        notes.append(f"And {fmt.plural(len(pairs) - _MOST_CHARTS, 'more metric')}, which are in the log.")
    return (
        doc.Heading("Learning curves"),
        *(doc.ChartRow(tuple(shown[i : i + 2])) for i in range(0, len(shown), 2)),
        *(doc.Paragraph(note, is_note=True) for note in notes),
    )


def _number_in(run: Run, field: str) -> int | None:
    text = run.text(field)
    return int(text) if text.isdecimal() and int(text) else None


def is_learning_rate(name: str) -> bool:
    """Return True for the name of a learning rate, which is set and not learnt: ``lr``, ``lr-Adam``."""
    return _LEARNING_RATE.search(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()) is not None


def is_held_out(name: str) -> bool:
    """Return True for the name of a metric of data that were held out."""
    return not _words(name).isdisjoint(_HELD_OUT)


def rank_of_metric(metric: MetricSummary) -> tuple[bool, ...]:
    """Return what metrics are sorted by: what was held out before what was trained on, and accuracies first."""
    words = _words(metric.name)
    is_trained_on = not words.isdisjoint(_TRAINED_ON)
    return is_trained_on, not metric.higher_is_better, words.isdisjoint(_ACCURACY), words.isdisjoint(_HELD_OUT)


def _words(name: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", name.lower()))


def _paired_by(name: str) -> tuple[str, ...]:
    """Return the words of a name that what was trained on and what was held out have in common."""
    return tuple(w for w in re.findall(r"[a-z0-9]+", name.lower()) if w not in _HELD_OUT | _TRAINED_ON)


def _by_loss_first(name: str) -> tuple[bool, tuple[str, ...], bool]:
    words = _words(name)
    return "loss" not in words, _paired_by(name), not words.isdisjoint(_HELD_OUT)


# -- Of one run --


def _first_values(run: Run) -> dict[str, list[MetricRecord]]:
    """Return by name every value that is finite, of the first rank that logged it."""
    found: dict[str, list[MetricRecord]] = {}
    for _, records in sorted(run.metric_values.items()):
        own: dict[str, list[MetricRecord]] = {}
        for record in records:
            own.setdefault(record.name, []).append(record)
        found = own | found
    return {name: [r for r in records if math.isfinite(r.value)] for name, records in found.items()}


def _own_chart(
    run: Run,
    values: Mapping[str, Sequence[MetricRecord]],
    names: Sequence[str],
    best_epoch: int | None = None,
    *,
    is_from_0: bool = False,
) -> doc.LineChart | None:
    """Return metrics of one run in one chart, with circles where the best epoch was; None where none has two points."""
    is_by_epoch = all(_is_by_epoch(values[name]) for name in names)
    lines = []
    for name in names[:_MOST_LINES]:
        points = tuple(sorted({_position(run, r, is_by_epoch): r.value for r in values[name]}.items()))
        shown = fmt.shortened(name, _NAME_WIDTH)
        lines.append(doc.Line(shown, points) if len(points) >= _LEAST_POINTS else None)
    title = ", ".join(line.name for line in lines if line is not None)
    chart = line_chart(fmt.shortened(title, 2 * _NAME_WIDTH), _axis(is_by_epoch), "", lines, is_from_0=is_from_0)
    if chart is None or not is_by_epoch:
        return chart
    return replace(chart, dots=tuple((x, y) for line in chart.lines for x, y in line.points if x == best_epoch))


def _left_out_notes(run: Run, values: Mapping[str, Sequence[MetricRecord]], names: Sequence[str]) -> list[str]:
    """Say which values have no point: those that are not finite, and those of further ranks."""
    notes = []
    for name in names:
        metric = run.metrics.get(name)
        n_lost = 0 if metric is None else metric.n_values - len(values[name])
        if n_lost > 0:
            shown = fmt.shortened(name, _NAME_WIDTH)
            notes.append(f"{shown}: {fmt.plural(n_lost, 'value')} not drawn, not finite or not in the log.")
    if sum(any(r.name in values for r in records) for records in run.metric_values.values()) > 1:
        notes.append("Several ranks logged values: those of the first are drawn.")
    return notes[:_MOST_NOTES]


def _axis(is_by_epoch: bool) -> str:
    return "epoch" if is_by_epoch else "step"


def _position(run: Run, record: MetricRecord, is_by_epoch: bool) -> float:
    return float(record.epoch or 0) if is_by_epoch else float(run.first_step + record.steps_done)


def _is_by_epoch(records: Sequence[MetricRecord]) -> bool:
    """Return True where there is one value an epoch."""
    epochs = [record.epoch for record in records if record.epoch is not None]
    return len(epochs) == len(records) and all(a < b for a, b in itertools.pairwise(epochs))


# -- Of several, side by side --


@dataclass(frozen=True, slots=True)
class Curve:
    """A metric of one run: for each value where it lies, and what had been used by then.

    Attributes:
        values: by position.
        kwh: with PUE, by position; empty where the energy is unknown.
        elapsed_s: by position.
    """

    values: Mapping[float, float]
    kwh: Mapping[float, float]
    elapsed_s: Mapping[float, float]


def metric_charts(title: str, sides: NamedRuns, name: str) -> tuple[doc.LineChart, ...]:
    """Return a metric by epoch, or step, and by what had been used by then; none where no line has two points.

    A line of several runs is their mean, where all have a value.
    """
    curves, is_by_epoch = _curves(sides, name)
    knows_energy = all(curve.kwh for own in curves for curve in own if curve.values)

    def drawn(x_of: Callable[[Curve], Mapping[float, float]]) -> list[doc.Line | None]:
        return [mean_line(side, own, x_of) for (side, _), own in zip(sides, curves, strict=True)]

    found = [line_chart(title, _axis(is_by_epoch), "", drawn(_positions), is_from_0=False)]
    used = drawn(lambda curve: curve.kwh if knows_energy else curve.elapsed_s)
    most = max((x for line in used if line for x, _ in line.points), default=0.0)
    if most > 0:
        scale = energy_scale(most) if knows_energy else time_scale(most)
        label = f"energy so far, {scale.unit}" if knows_energy else f"time since the start, {scale.unit}"
        by = "energy" if knows_energy else "time"
        lines = [line and replace(line, points=tuple((scale.value(x), y) for x, y in line.points)) for line in used]
        found.append(line_chart(f"{title}, by the {by} that it took", label, "", lines, is_from_0=False))
    return tuple(chart for chart in found if chart is not None)


def learning_rate_chart(sides: NamedRuns) -> doc.LineChart | None:
    """Return the learning rates of runs, by epoch or step; None where none is logged, or all are one constant."""
    names = [name for _, runs in sides for run in runs for name in run.metrics if is_learning_rate(name)]
    if not names:
        return None
    name = max(dict.fromkeys(names), key=names.count)
    curves, is_by_epoch = _curves(sides, name)
    if len({value for own in curves for curve in own for value in curve.values.values()}) < _LEAST_POINTS:
        return None
    lines = [mean_line(side, own, _positions) for (side, _), own in zip(sides, curves, strict=True)]
    return line_chart(fmt.shortened(name, _NAME_WIDTH), _axis(is_by_epoch), "", lines)


def _curves(sides: NamedRuns, name: str) -> tuple[list[list[Curve]], bool]:
    """Return the curves of a metric by side and run, and True where they are by epoch."""
    is_by_epoch = all(_is_by_epoch(_values(run, name)) for _, runs in sides for run in runs)
    return [[_curve(run, name, is_by_epoch=is_by_epoch) for run in runs] for _, runs in sides], is_by_epoch


def _positions(curve: Curve) -> Mapping[float, float]:
    return {x: x for x in curve.values}


def _values(run: Run, name: str) -> Sequence[MetricRecord]:
    """Return each finite value of a metric, of the first rank that logged it."""
    for _, records in sorted(run.metric_values.items()):
        own = [record for record in records if record.name == name]
        if own:
            return [record for record in own if math.isfinite(record.value)]
    return []


def value_at_epoch(run: Run, name: str, epoch: int) -> float | None:
    """Return the last finite value that a metric had in an epoch, whose number is from 1; None where there is none."""
    return next((record.value for record in reversed(_values(run, name)) if record.epoch == epoch), None)


def _curve(run: Run, name: str, *, is_by_epoch: bool) -> Curve:
    """Return a metric of a run, by epoch or else by step."""
    values, elapsed_s = dict[float, float](), dict[float, float]()
    for record in _values(run, name):
        x = _position(run, record, is_by_epoch)
        values[x] = record.value
        if (passed_s := _seconds_between(run.started_at, record.logged_at)) is not None:
            elapsed_s[x] = passed_s
    return Curve(values, _energy_at(cumulative_energy_kwh(run), elapsed_s), elapsed_s)


def _energy_at(so_far: Points, elapsed_s: Mapping[float, float]) -> Mapping[float, float]:
    """Return what had been used at each time, between the rows of the log by proportion; empty where it is unknown."""
    if not so_far:
        return {}
    times_s = [at_s for at_s, _ in so_far]
    return {x: _height(so_far, times_s, s) for x, s in elapsed_s.items()}


def _seconds_between(begin: str, end: str) -> float | None:
    try:
        return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()
    except (ValueError, TypeError):  # a damaged log, or one with and one without a zone
        return None


def _height(line: Points, xs: Sequence[float], x: float) -> float:
    """Return the height of a line at x, between its points and at its ends."""
    index = bisect_left(xs, x)
    if index == 0 or index == len(line):
        return line[min(index, len(line) - 1)][1]
    (x0, y0), (x1, y1) = line[index - 1], line[index]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def mean_line(
    name: str, curves: Sequence[Curve], x_of: Callable[[Curve], Mapping[float, float]] = _positions
) -> doc.Line | None:
    """Return the mean of curves, where all have a value; None of fewer than two points."""
    shared = set(curves[0].values)
    for curve in curves:
        shared &= curve.values.keys() & x_of(curve).keys()
    drawn = []
    for at in sorted(shared):
        x = math.fsum(x_of(curve)[at] for curve in curves) / len(curves)
        drawn.append((x, math.fsum(curve.values[at] for curve in curves) / len(curves)))
    return doc.Line(name, tuple(drawn)) if len(drawn) >= _LEAST_POINTS else None


def line_chart(
    title: str, x_label: str, y_label: str, lines: Sequence[doc.Line | None], *, is_from_0: bool = True
) -> doc.LineChart | None:
    """Return a chart of the lines that there are; None without any.

    Values too large or too small to be written out stand in powers of ten, which the label then says.
    """
    drawn = [line for line in lines if line is not None]
    if not drawn:
        return None
    highest = max(abs(y) for line in drawn for _, y in line.points)
    exponent = math.floor(math.log10(highest)) if highest > 0 else 0
    if exponent not in _PLAIN_EXPONENTS:
        y_label = " ".join(filter(None, (y_label, f"× 1e{exponent}")))
        drawn = [replace(line, points=tuple((x, y / 10.0**exponent) for x, y in line.points)) for line in drawn]
    first, *others = (replace(line, points=thinned(line.points)) for line in drawn)
    return doc.LineChart(
        title, x_label, y_label, first.points, name=first.name, others=tuple(others), is_from_0=is_from_0
    )
