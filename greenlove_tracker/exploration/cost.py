"""What an epoch takes, for planning; ``extrapolate`` makes the forecast."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cost:
    """What an epoch takes: a start, and so much a batch."""

    start_s: float
    batch_s: float

    @classmethod
    def fit(cls, points: Sequence[tuple[int, float]]) -> Cost:
        """Least squares of relative residuals, neither part below zero; one size alone has no start.

        Where the free minimum has a negative part, the constrained one has that part at zero: the problem is convex,
        and with positive data only one part can be negative.

        Args:
            points: batches of an epoch and its time in s; at least one.
        """
        most = max(m for m, _ in points)
        u = [(1 / y, m / most / y) for m, y in points]  # rows of the design over their own time; the target is 1
        aa, ab, bb = (math.fsum(r[i] * r[j] for r in u) for i, j in ((0, 0), (0, 1), (1, 1)))
        a, b = math.fsum(r[0] for r in u), math.fsum(r[1] for r in u)
        determinant = aa * bb - ab * ab
        if len({m for m, _ in points}) == 1 or determinant <= 1e-15 * aa * bb:
            return cls(0.0, b / bb / most)
        start_s, slope_s = (a * bb - b * ab) / determinant, (b * aa - a * ab) / determinant
        if start_s < 0:
            return cls(0.0, b / bb / most)
        return cls(a / aa, 0.0) if slope_s < 0 else cls(start_s, slope_s / most)

    def of(self, batches: int) -> float:
        """An epoch of so many batches, in s."""
        return self.start_s + self.batch_s * batches
