"""The axes of charts, whatever draws them: ticks, and lines thinned to the points that a page can show."""

from __future__ import annotations

import math
from collections.abc import Sequence

from greenlove_tracker.rendering.document import LineChart


def nice_ticks(lower: float, upper: float, n_wanted: int = 5, *, only_whole: bool = False) -> list[float]:
    """Return round numbers within ``lower`` and ``upper``, 1, 2 or 5 times a power of ten apart."""
    span = upper - lower
    if span <= 0:
        return [lower]
    power = 10.0 ** math.floor(math.log10(span / n_wanted))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= span / n_wanted * 0.999)
    if only_whole:
        step = max(1.0, step)
    first, last = math.ceil(lower / step - 1e-9), math.floor(upper / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def tick_labels(ticks: Sequence[float]) -> list[str]:
    """Write the ticks with the decimals that their distance needs."""
    step = ticks[1] - ticks[0] if len(ticks) > 1 else (abs(ticks[0]) or 1.0)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return [f"{tick:,.{decimals}f}" for tick in ticks]


def ticks_from_0(chart: LineChart) -> list[float]:
    """Return the ticks of the y axis: from 0 to a round number that is not below the highest point."""
    highest = chart.highest * 1.02 or 1.0
    step = nice_ticks(0.0, highest)[1]
    return nice_ticks(0.0, step * math.ceil(highest / step))


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
