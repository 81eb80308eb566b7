"""Sums that come out the same to the last bit however they are split up: over chunks, processes or machines.

``math.fsum`` rounds the exact sum of many floats once. Asked again with what it gave taken off, it gives what was
rounded away, and so on until nothing is left: a handful of floats that hold the sum exactly, the same ones in whatever
order and grouping the values came. ``fractions.Fraction`` holds it as well, at thirty times the cost.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain


@dataclass(frozen=True, slots=True)
class ExactSum:
    """The exact sum of those values that are known.

    Attributes:
        n_known: how many that were.
        parts: floats that add up to it exactly, each the rounded sum of itself and all that follow.
    """

    n_known: int = 0
    parts: tuple[float, ...] = ()

    @classmethod
    def of(cls, values: Iterable[float | None]) -> ExactSum:
        """The sum of the values that are not None."""
        known = [value for value in values if value is not None]
        return cls(len(known), _parts(known))

    @classmethod
    def merged(cls, sums: Iterable[ExactSum]) -> ExactSum:
        """The sum of sums."""
        sums = list(sums)
        return cls(sum(s.n_known for s in sums), _parts(list(chain.from_iterable(s.parts for s in sums))))

    def without(self, other: ExactSum) -> ExactSum:
        """What is left without values that are in it."""
        return ExactSum(self.n_known - other.n_known, _parts([*self.parts, *(-part for part in other.parts)]))

    @property
    def value(self) -> float | None:
        """The sum, rounded once; None where nothing was known."""
        if not self.n_known:
            return None
        return self.parts[0] if self.parts else 0.0


NOTHING = ExactSum()


def _parts(values: list[float]) -> tuple[float, ...]:
    parts: list[float] = []
    while part := math.fsum(values):
        parts.append(part)
        values = [*values, -part]
    return tuple(parts)
