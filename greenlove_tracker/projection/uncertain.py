"""Positive quantities that are products of uncertain factors, and the errors that they share.

The logarithm of a quantity is a sum of independent normal errors, each with a name. Quantities that share an error move
together: every time elsewhere contains the time here, so a ranking of machines does not depend on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import TYPE_CHECKING

from greenlove_tracker.vocabulary.forecasting import PROJECTION_LEVEL, Estimate, Kind

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DEVIATIONS = NormalDist().inv_cdf((1 + PROJECTION_LEVEL) / 2)  # standard ones, from the middle to an end
_LEAST_SHARE = 1e-3
Deviations = tuple[float, float]  # of the logarithm, per standard deviation of the error below and above its middle


@dataclass(frozen=True, slots=True)
class Uncertain:
    """A positive quantity and its errors.

    Attributes:
        point: the median.
        errors: for each named error, the change of the logarithm for one standard deviation below and above its middle:
            (0.1, 0.1) for a symmetric error of 10%. Negative if the quantity falls where the error rises.
    """

    point: float
    errors: Mapping[str, Deviations] = field(default_factory=dict)

    def times(self, other: Uncertain | float) -> Uncertain:
        """Return the product; errors of one name add up."""
        if not isinstance(other, Uncertain):
            return Uncertain(self.point * other, self.errors)
        errors = dict(self.errors)
        for name, (below, above) in other.errors.items():
            own = errors.get(name, (0.0, 0.0))
            errors[name] = (own[0] + below, own[1] + above)
        return Uncertain(self.point * other.point, errors)

    def over(self, other: Uncertain) -> Uncertain:
        """Return the quotient; an error that both share equally cancels."""
        inverse = {name: (-below, -above) for name, (below, above) in other.errors.items()}
        return self.times(Uncertain(1.0 / other.point, inverse))

    def scaled_to(self, point: float) -> Uncertain:
        """Return the quantity times an exact factor, so that its median is ``point``."""
        return Uncertain(point, self.errors)

    def moved(self, error: str, by: float) -> float:
        """Return the quantity if one error is ``by`` standard deviations from its middle and no other is."""
        below, above = self.errors.get(error, (0.0, 0.0))
        return self.point * math.exp(by * (below if by < 0 else above))

    def estimate(self, unit: str) -> Estimate:
        """Return the 90% interval: the errors of each side in quadrature; exact if all are symmetric."""
        down = math.hypot(*(max(below, -above, 0.0) for below, above in self.errors.values()))
        up = math.hypot(*(max(above, -below, 0.0) for below, above in self.errors.values()))
        lower = self.point * math.exp(-DEVIATIONS * down)
        upper = self.point * math.exp(DEVIATIONS * up)
        return Estimate(self.point, lower, upper, PROJECTION_LEVEL, unit, Kind.ASSUMPTION)


def uncertain(estimate: Estimate, error: str) -> Uncertain:
    """Return an estimate as a quantity with one named error; each side of its interval is half a normal.

    A lower end below a thousandth of the point counts as a thousandth.
    """
    if not 0 < estimate.point <= estimate.upper:
        raise ValueError(f"no positive estimate: {estimate}")
    estimate = replace(estimate, lower=max(estimate.lower, _LEAST_SHARE * estimate.point))
    z = NormalDist().inv_cdf((1 + estimate.level) / 2)
    below = math.log(estimate.point / estimate.lower) / z
    above = math.log(estimate.upper / estimate.point) / z
    return Uncertain(estimate.point, {error: (below, above)} if below or above else {})


def at_level(estimate: Estimate) -> Estimate:
    """Return the estimate at the 90% level; each side of the interval is read as half a normal distribution."""
    if estimate.level == PROJECTION_LEVEL:
        return estimate
    normal = NormalDist()
    ratio = normal.inv_cdf((1 + PROJECTION_LEVEL) / 2) / normal.inv_cdf((1 + estimate.level) / 2)
    point = estimate.point
    lower = max(0.0, point - (point - estimate.lower) * ratio)
    upper = point + (estimate.upper - point) * ratio
    return replace(estimate, lower=lower, upper=upper, level=PROJECTION_LEVEL)


def propagated(of: Callable[..., float], *quantities: Uncertain) -> Uncertain:
    """Return a function of uncertain quantities, with each error's effect found by moving it one deviation."""
    names = dict.fromkeys(name for quantity in quantities for name in quantity.errors)
    point = of(*(quantity.point for quantity in quantities))
    errors = {}
    for name in names:
        below = of(*(quantity.moved(name, -1.0) for quantity in quantities))
        above = of(*(quantity.moved(name, 1.0) for quantity in quantities))
        sides = (math.log(point / below), math.log(above / point))
        if any(sides):
            errors[name] = sides
    return Uncertain(point, errors)


def draws(quantities: Sequence[Uncertain], n: int, seed: int = 0) -> NDArray[np.float64]:
    """Return draws from the joint distribution, quantities × ``n``; the same seed gives the same draws."""
    import numpy as np

    names = sorted({name for quantity in quantities for name in quantity.errors})
    z = dict(zip(names, np.random.default_rng(seed).standard_normal((len(names), n)), strict=True))
    logs = []
    for quantity in quantities:
        error = np.zeros(n)
        for name, sides in quantity.errors.items():
            error += np.where(z[name] < 0, *sides) * z[name]
        logs.append(math.log(quantity.point) + error)
    drawn: NDArray[np.float64] = np.exp(np.array(logs).reshape(len(quantities), n))
    return drawn
