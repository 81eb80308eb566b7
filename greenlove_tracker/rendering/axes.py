"""The axes of charts, whatever draws them: ticks, and lines thinned to the points that a page can show."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from greenlove_tracker.format import significant
from greenlove_tracker.rendering.document import BarChart, LineChart


def nice_ticks(lower: float, upper: float, n_wanted: int = 5, *, only_whole: bool = False) -> list[float]:
    """Return round numbers within ``lower`` and ``upper``, 1, 2 or 5 times a power of ten apart."""
    span = upper - lower
    if span <= 0:
        return [lower]
    step = _step(span, n_wanted)
    if only_whole:
        step = max(1.0, step)
    first, last = math.ceil(lower / step - 1e-9), math.floor(upper / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def _step(span: float, n_wanted: int = 5) -> float:
    power = 10.0 ** math.floor(math.log10(span / n_wanted))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= span / n_wanted * 0.999)


def tick_labels(ticks: Sequence[float]) -> list[str]:
    """Write the ticks with the decimals that their distance needs."""
    step = ticks[1] - ticks[0] if len(ticks) > 1 else (abs(ticks[0]) or 1.0)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return [f"{tick:,.{decimals}f}" for tick in ticks]


def y_ticks(chart: LineChart) -> list[float]:
    """Return the ticks of the y axis: round numbers from 0, or below the lowest point, to above the highest."""
    if chart.is_from_0:
        highest = chart.highest * 1.02 or 1.0
        step = nice_ticks(0.0, highest)[1]
        return nice_ticks(0.0, step * math.ceil(highest / step))
    lowest, highest = chart.lowest, chart.highest
    step = _step(highest - lowest or abs(highest) or 1.0)
    first, last = math.floor(lowest / step + 1e-9), math.ceil(highest / step - 1e-9)
    return [i * step for i in range(first, max(last, first + 1) + 1)]


def change_ticks(chart: BarChart) -> list[tuple[float, str]]:
    """Return the ticks below bars around a baseline: the share of the width, and the change from it in percent."""
    low, high = chart.extent
    changes = nice_ticks((low / chart.baseline - 1) * 100, (high / chart.baseline - 1) * 100)
    labels = (text if change < 0 else f"+{text}" for change, text in zip(changes, tick_labels(changes), strict=True))
    return [
        (
            chart.share(chart.baseline * (1 + change / 100)),
            f"{label.replace('-', '−')}%" if change else chart.baseline_name,
        )
        for change, label in zip(changes, labels, strict=True)
    ]


# -- What is shown of a chart where somebody points at it --

MOST_STRETCHES = 120  # that can be pointed at; of more points, some stand together


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a chart's width that is pointed at, and what is said of it.

    Attributes:
        left: where it begins, and
        right: ends, as shares of the width.
        x: of its value, as a share of the width, and
        y: as a share of the height; None where several points stand together, or several lines.
        text: the numbers.
    """

    left: float
    right: float
    x: float
    y: float | None
    text: str


def stretches(chart: LineChart) -> list[Stretch]:
    """Return the parts of a chart from left to right; each says its point, or the range of the points in it.

    Thinned lines keep the lowest and the highest of each two points, and so does a stretch of them.
    """
    x_low, x_high, ticks = min(chart.x_values), max(chart.x_values), y_ticks(chart)
    span = x_high - x_low or 1.0
    groups = _groups(chart)
    centres = [(group[0] + group[-1]) / 2 for group in groups]
    edges = [x_low, *((a[-1] + b[0]) / 2 for a, b in itertools.pairwise(groups)), x_high]
    found = []
    for group, centre, (left, right) in zip(groups, centres, itertools.pairwise(edges), strict=True):
        values = [[y for x, y in line.points if group[0] <= x <= group[-1]] for line in chart.lines]
        is_one = len(values) == len(values[0]) == 1
        y = (values[0][0] - ticks[0]) / (ticks[-1] - ticks[0]) if is_one else None
        begin, end, x = ((value - x_low) / span for value in (left, right, centre))
        found.append(Stretch(begin, end, x, y, _stretch_text(chart, group, values)))
    return found


def _groups(chart: LineChart) -> list[Sequence[float]]:
    """Return the x values in groups, one each where they are few; pairs that were thinned together stay together."""
    xs = sorted({x for line in chart.lines for x, _ in line.points})
    if len(xs) <= MOST_STRETCHES:
        return [[x] for x in xs]
    size = 2 * -(-(len(xs) - 2) // (2 * MOST_STRETCHES))
    inner = xs[1:-1]
    groups = [inner[i : i + size] for i in range(0, len(inner), size)]
    return [[xs[0], *groups[0]], *groups[1:-1], [*groups[-1], xs[-1]]]


def _stretch_text(chart: LineChart, group: Sequence[float], values: Sequence[Sequence[float]]) -> str:
    """Write a stretch: ``epoch: 3 · 1.86 s``, or ``epoch: 401 to 500 · 1.20 to 1.45 s``."""
    where = " to ".join(dict.fromkeys(point_number(x) for x in (group[0], group[-1])))
    named = [
        f"{f'{line.name}: ' if line.name else ''}{_span_text(ys)} {chart.y_label}"
        for line, ys in zip(chart.lines, values, strict=True)
        if ys
    ]
    return f"{chart.x_label}: {where} · {' · '.join(named)}"


def _span_text(values: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys(point_number(y) for y in (min(values), max(values))))


def point_number(value: float) -> str:
    """Write a number of a point: whole, or with three significant digits."""
    return f"{value:,.0f}" if value.is_integer() else significant(value)


MAX_POINTS = 500

Points = tuple[tuple[float, float], ...]


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
