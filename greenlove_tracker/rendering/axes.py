"""The geometry of charts for every format: ticks, shapes in shares of the plot, and thinned lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from greenlove_tracker.rendering.document import Chart, ColumnChart, LineChart, MarkChart, Points

MAX_POINTS = 500
_N_LOOKS = 5  # styles that differ without colour; further lines or layers use them again
_MOST_LABELS = 8  # below columns
# Size of a mark's label, as shares of the axes. If two labels are nearer, the lower one moves down.
_LABEL_HEIGHT = 0.09
_LABEL_WIDTH = 0.3
_FARTHEST = 1.6  # times the largest point: longer ranges are cut off


@dataclass(frozen=True, slots=True)
class Shape:
    """A shape of a chart, in shares of its plot: x from the left, y from the bottom.

    Attributes:
        kind: ``area``, ``line``, ``dot`` or ``text``.
        look: the name of its style.
        points: its points; the corners of an area.
        text: the words of a text, or the tooltip of a dot.
    """

    kind: str
    look: str
    points: Points
    text: str = ""


@dataclass(frozen=True, slots=True)
class _Axis:
    low: float
    high: float
    ticks: Sequence[float]

    def at(self, value: float) -> float:
        return min(1.0, max(0.0, (value - self.low) / ((self.high - self.low) or 1.0)))

    @property
    def labels(self) -> list[tuple[float, str]]:
        """The place of each tick, and its number with as many decimals as needed."""
        if len(self.ticks) > 1:
            step = self.ticks[1] - self.ticks[0]
        else:
            step = abs(self.ticks[0]) or 1.0
        decimals = max(0, -math.floor(math.log10(step) + 1e-9))
        return [(self.at(tick), f"{tick:,.{decimals}f}") for tick in self.ticks]


@dataclass
class Plot:
    """A chart, ready to be drawn: its axes, ticks of x (share, label), shapes, and a legend (kind, look, name)."""

    x: _Axis
    y: _Axis
    x_ticks: list[tuple[float, str]]
    shapes: list[Shape] = field(default_factory=list)
    legend: list[tuple[str, str, str]] = field(default_factory=list)
    note: str = ""  # above the plot, at the right

    def draw(self, kind: str, look: str, points: Points, text: str = "") -> None:
        """Add a shape on top of the others, by points of the chart."""
        places = tuple((self.x.at(x), self.y.at(y)) for x, y in points)
        self.shapes.append(Shape(kind, look, places, text))

    def write(self, look: str, x: float, height: float, text: str) -> None:
        """Add a text at a height that is a share of the plot."""
        self.shapes.append(Shape("text", look, [(self.x.at(x), height)], text))


def plot(chart: Chart) -> Plot:
    """Lay a chart out."""
    match chart:
        case LineChart():
            return _of_lines(chart)
        case MarkChart():
            return _of_marks(chart)
        case ColumnChart():
            return _of_columns(chart)


def _of_lines(chart: LineChart) -> Plot:
    band = [(x, low) for x, low, _ in chart.band]
    band += [(x, high) for x, _, high in reversed(chart.band)]
    every = list(band)
    for line in chart.lines:
        every += line.points
    xs = [x for x, _ in every]
    ys = [y for _, y in every]
    if chart.level:
        ys.append(chart.level[0])
    x = _Axis(min(xs), max(xs), nice_ticks(min(xs), max(xs), only_whole=chart.is_by_number))
    y = _covering(ys, is_from_0=chart.is_from_0)
    named = [(x.at(place), name) for place, name in chart.x_names]
    drawn = Plot(x, y, named or x.labels)
    for span in chart.spans:
        drawn.draw("area", "span", rectangle(span.begin, y.low, span.end, y.high))
        if span.name and x.at(span.begin) + x.at(span.end) < 1:
            drawn.write("start", span.end, 0.94, span.name)
        elif span.name:
            drawn.write("end", span.begin, 0.94, span.name)
    if band:
        drawn.draw("area", "band", band)
    if chart.level:
        height, drawn.note = chart.level
        drawn.draw("line", "level", [(x.low, height), (x.high, height)])
    for i, line in enumerate(chart.lines):
        look = f"line-{i % _N_LOOKS}"
        drawn.draw("line", look, line.points)
        if len(chart.lines) > 1:
            drawn.legend.append(("line", look, line.name))
    return drawn


def rectangle(left: float, low: float, right: float, high: float) -> Points:
    """Return the corners of a rectangle."""
    return ((left, low), (right, low), (right, high), (left, high))


def _of_marks(chart: MarkChart) -> Plot:
    x = _of_values(chart, "x")
    y = _of_values(chart, "y")
    drawn = Plot(x, y, x.labels)
    taken = list[tuple[float, float]]()
    for mark in sorted(chart.marks, key=lambda mark: (mark.is_named, -mark.y)):
        look = "other"
        if mark.is_here:
            look = "here"
        elif mark.is_named:
            look = "chosen"
        if mark.x_range:
            drawn.draw("line", "range", [(end, mark.y) for end in mark.x_range])
        if mark.y_range:
            drawn.draw("line", "range", [(mark.x, end) for end in mark.y_range])
        tooltip = f"{mark.name}: {mark.x:,.3g} {chart.x_label}, {mark.y:,.3g} {chart.y_label}"
        drawn.draw("dot", look, [(mark.x, mark.y)], tooltip)
        if mark.is_named:
            left = x.at(mark.x)
            height = y.at(mark.y)
            near = [own for other, own in taken if abs(left - other) < _LABEL_WIDTH]
            while any(abs(height - own) < _LABEL_HEIGHT for own in near):
                height -= _LABEL_HEIGHT
            taken.append((left, height))
            side = "mark-start"
            if left >= 0.6:
                side = "mark-end"
            drawn.write(side, mark.x, height, mark.name)
    return drawn


def _of_values(chart: MarkChart, name: str) -> _Axis:
    values: list[float] = [getattr(mark, name) for mark in chart.marks]
    most = max(values) * _FARTHEST
    for mark in chart.marks:
        ends = getattr(mark, f"{name}_range") or ()
        values += [min(end, most) for end in ends]
    return _covering(values, is_from_0=chart.is_from_0 or name == "x")


def _of_columns(chart: ColumnChart) -> Plot:
    n = len(chart.labels)
    stacks = zip(*(heights for _, heights in chart.series), strict=True)
    x = _Axis(0.0, n, ())
    ticks = [(x.at(i + 0.5), label) for i, label in enumerate(chart.labels)]
    drawn = Plot(x, _covering(list(map(sum, stacks))), ticks[:: math.ceil(n / _MOST_LABELS)])
    below = [0.0] * n
    for number, (name, heights) in enumerate(chart.series):
        look = f"layer-{number % _N_LOOKS}"
        for i, height in enumerate(heights):
            if height > 0:
                top = below[i] + height
                drawn.draw("area", look, rectangle(i + 0.12, below[i], i + 0.88, top))
                below[i] = top
        if len(chart.series) > 1:
            drawn.legend.append(("area", look, name))
    return drawn


# -- Ticks --


def nice_ticks(lower: float, upper: float, *, only_whole: bool) -> list[float]:
    """Return round numbers within ``lower`` and ``upper``, 1, 2 or 5 times a power of ten apart."""
    span = upper - lower
    if span <= 0:
        return [lower]
    step = _step(span, 6)
    if only_whole:
        step = max(1.0, step)
    first = math.ceil(lower / step - 1e-9)
    last = math.floor(upper / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def _step(span: float, n_wanted: int) -> float:
    wanted = span / n_wanted
    power = 10.0 ** math.floor(math.log10(wanted))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= wanted * 0.999)


def _covering(values: Sequence[float], *, is_from_0: bool = True) -> _Axis:
    """Return an axis of round numbers from 0, or below the lowest value, to above the highest."""
    lowest = min(values)
    highest = max(values)
    span = highest - lowest
    if is_from_0:
        lowest = min(0.0, lowest)
        highest = max(0.0, highest)
        span = highest * 1.02 - lowest
    step = _step(span or abs(highest) or 1.0, 5)
    first = math.floor(lowest / step + 1e-9)
    last = math.ceil(highest / step - 1e-9)
    ticks = [i * step for i in range(first, max(last, first + 1) + 1)]
    return _Axis(ticks[0], ticks[-1], ticks)


def thinned(points: Points) -> Points:
    """Return at most ``MAX_POINTS`` points: the lowest and the highest of each stretch, so that no spike is lost."""
    if len(points) <= MAX_POINTS:
        return tuple(points)
    inner = points[1:-1]
    n_buckets = (MAX_POINTS - 2) // 2
    kept = [points[0]]
    begin = 0
    for i in range(1, n_buckets + 1):
        end = i * len(inner) // n_buckets
        bucket = inner[begin:end]
        lowest = min(bucket, key=itemgetter(1))
        highest = max(bucket, key=itemgetter(1))
        kept += sorted({lowest, highest})
        begin = end
    return [*kept, points[-1]]
