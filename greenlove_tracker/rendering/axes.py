"""The geometry of charts, whatever draws them: ticks, shapes in shares of the plot, and lines thinned to what shows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from greenlove_tracker.rendering.document import Chart, ColumnChart, LineChart, MarkChart

MAX_POINTS = 500
_N_LOOKS = 5  # of lines, and of layers, that differ without colour; further ones begin anew
_MOST_LABELS = 8  # below columns
# Size of a mark's label, as shares of the axes: of two that are nearer, the lower one moves down.
_LABEL_HEIGHT = 0.09
_LABEL_WIDTH = 0.3
_FARTHEST = 1.6  # times the largest point: what a range reaches beyond is cut off

Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """A shape of a chart, in shares of its plot: x from the left, y from the bottom.

    Attributes:
        kind: ``area``, ``line``, ``dot`` or ``text``.
        look: its style, by name.
        points: of an area its corners.
        text: of a text what it says; of a dot its tooltip.
    """

    kind: str
    look: str
    points: Points
    text: str = ""


@dataclass
class Plot:
    """A chart, ready to be drawn: ticks of both axes (share, label), shapes, and a legend (kind, look, name)."""

    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]
    shapes: list[Shape] = field(default_factory=list)
    legend: list[tuple[str, str, str]] = field(default_factory=list)
    note: str = ""  # above the plot, at the right


@dataclass(frozen=True, slots=True)
class _Axis:
    low: float
    high: float
    ticks: Sequence[float]

    def at(self, value: float) -> float:
        return min(1.0, max(0.0, (value - self.low) / ((self.high - self.low) or 1.0)))

    @property
    def labels(self) -> list[tuple[float, str]]:
        """Each tick's place and its number, with the decimals that their distance needs."""
        if len(self.ticks) > 1:
            step = self.ticks[1] - self.ticks[0]
        else:
            step = abs(self.ticks[0]) or 1.0
        decimals = max(0, -math.floor(math.log10(step) + 1e-9))
        return [(self.at(tick), f"{tick:,.{decimals}f}") for tick in self.ticks]


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
    every = [point for line in chart.lines for point in line.points]
    xs = [*(x for x, _ in every), *(x for x, *_ in chart.band)]
    ys = [*(y for _, y in every), *(e for _, *ends in chart.band for e in ends)]
    ys += [chart.level[0]] if chart.level else []
    x = _Axis(min(xs), max(xs), nice_ticks(min(xs), max(xs), 6, only_whole=chart.is_by_number))
    y = _covering(ys, is_from_0=chart.is_from_0)

    def spots(points: Sequence[tuple[float, float]]) -> Points:
        return tuple((x.at(px), y.at(py)) for px, py in points)

    named = [(x.at(at), name) for at, name in chart.x_names]
    drawn = Plot(named or x.labels, y.labels, note=chart.level[1] if chart.level else "")
    for span in chart.spans:
        left = x.at(span.begin)
        right = x.at(span.end)
        drawn.shapes.append(Shape("area", "span", ((left, 0.0), (right, 0.0), (right, 1.0), (left, 1.0))))
        if span.name:
            is_left = left + right < 1
            at = (right if is_left else left, 0.94)
            drawn.shapes.append(Shape("text", "start" if is_left else "end", (at,), span.name))
    if chart.band:
        edge = [(px, low) for px, low, _ in chart.band] + [(px, high) for px, _, high in reversed(chart.band)]
        drawn.shapes.append(Shape("area", "band", spots(edge)))
    if chart.level:
        height = y.at(chart.level[0])
        drawn.shapes.append(Shape("line", "level", ((0.0, height), (1.0, height))))
    for i, line in enumerate(chart.lines):
        look = f"line-{i % _N_LOOKS}"
        drawn.shapes.append(Shape("line", look, spots(line.points)))
        if len(chart.lines) > 1:
            drawn.legend.append(("line", look, line.name))
    return drawn


def _of_marks(chart: MarkChart) -> Plot:
    x, y = (_of_values(chart, name) for name in ("x", "y"))
    drawn = Plot(x.labels, y.labels)
    taken = list[tuple[float, float]]()
    for mark in sorted(chart.marks, key=lambda mark: (mark.is_named, -mark.y)):
        at = (x.at(mark.x), y.at(mark.y))
        if mark.is_here:
            look = "here"
        elif mark.is_named:
            look = "chosen"
        else:
            look = "other"
        across = tuple((x.at(end), at[1]) for end in mark.x_range or ())
        upwards = tuple((at[0], y.at(end)) for end in mark.y_range or ())
        drawn.shapes += [Shape("line", "range", ends) for ends in (across, upwards) if ends]
        tooltip = f"{mark.name}: {mark.x:,.3g} {chart.x_label}, {mark.y:,.3g} {chart.y_label}"
        drawn.shapes.append(Shape("dot", look, (at,), tooltip))
        if mark.is_named:
            height = at[1]
            while any(abs(height - own) < _LABEL_HEIGHT and abs(at[0] - left) < _LABEL_WIDTH for left, own in taken):
                height -= _LABEL_HEIGHT
            taken.append((at[0], height))
            side = "mark-start" if at[0] < 0.6 else "mark-end"
            drawn.shapes.append(Shape("text", side, ((at[0], height),), mark.name))
    return drawn


def _of_values(chart: MarkChart, name: str) -> _Axis:
    values: list[float] = [getattr(mark, name) for mark in chart.marks]
    ends = [end for mark in chart.marks for end in getattr(mark, f"{name}_range") or ()]
    most = max(values) * _FARTHEST
    return _covering([*values, *(min(end, most) for end in ends)], is_from_0=chart.is_from_0 or name == "x")


def _of_columns(chart: ColumnChart) -> Plot:
    n = len(chart.labels)
    y = _covering([sum(stack) for stack in zip(*(heights for _, heights in chart.series), strict=True)])
    step = -(-n // _MOST_LABELS)
    drawn = Plot([((i + 0.5) / n, label) for i, label in enumerate(chart.labels) if i % step == 0], y.labels)
    below = [0.0] * n
    for number, (name, heights) in enumerate(chart.series):
        look = f"layer-{number % _N_LOOKS}"
        for i, height in enumerate(heights):
            left = (i + 0.12) / n
            right = (i + 0.88) / n
            low = y.at(below[i])
            high = y.at(below[i] + height)
            if height > 0:
                drawn.shapes.append(Shape("area", look, ((left, low), (right, low), (right, high), (left, high))))
                below[i] += height
        if len(chart.series) > 1:
            drawn.legend.append(("area", look, name))
    return drawn


# -- Ticks --


def nice_ticks(lower: float, upper: float, n_wanted: int = 5, *, only_whole: bool = False) -> list[float]:
    """Return round numbers within ``lower`` and ``upper``, 1, 2 or 5 times a power of ten apart."""
    span = upper - lower
    if span <= 0:
        return [lower]
    if only_whole:
        step = max(1.0, _step(span, n_wanted))
    else:
        step = _step(span, n_wanted)
    first = math.ceil(lower / step - 1e-9)
    last = math.floor(upper / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def _step(span: float, n_wanted: int = 5) -> float:
    power = 10.0 ** math.floor(math.log10(span / n_wanted))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= span / n_wanted * 0.999)


def _covering(values: Sequence[float], *, is_from_0: bool = True) -> _Axis:
    """Return an axis of round numbers from 0, or below the lowest value, to above the highest."""
    highest = max([*values, 0.0]) if is_from_0 else max(values)
    lowest = min([0.0, *values]) if is_from_0 else min(values)
    step = _step((highest * (1.02 if is_from_0 else 1.0) - lowest) or abs(highest) or 1.0)
    first = math.floor(lowest / step + 1e-9)
    last = math.ceil(highest / step - 1e-9)
    ticks = [i * step for i in range(first, max(last, first + 1) + 1)]
    return _Axis(ticks[0], ticks[-1], ticks)


def thinned(points: Sequence[tuple[float, float]], limit: int = MAX_POINTS) -> Points:
    """Return at most ``limit`` points: of each stretch its lowest and its highest, so that no spike is lost."""
    if len(points) <= limit:
        return tuple(points)
    inner = points[1:-1]
    n_buckets = (limit - 2) // 2
    kept = [points[0]]
    for i in range(n_buckets):
        bucket = inner[i * len(inner) // n_buckets : (i + 1) * len(inner) // n_buckets]
        kept += sorted({min(bucket, key=lambda p: p[1]), max(bucket, key=lambda p: p[1])})
    return (*kept, points[-1])
