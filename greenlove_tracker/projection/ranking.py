"""The probability of each machine to be the cheapest, fastest or greenest.

Machines share errors: the time here is in each time elsewhere, and GPUs of one architecture are off together. So the
probabilities are counted in draws of their joint distribution, and not read off ranges that overlap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from greenlove_tracker.forecasting import Estimate
from greenlove_tracker.projection.types import Projection
from greenlove_tracker.projection.uncertain import draws

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

WINNER = 0.9  # the probability from which one machine is named
_MOST_LISTED = 4  # machines left to choose from
_DRAWS = 20_000  # a probability of 90% is then known within 0.4 points
_DEAREST_USD_PER_KWH = 1.0  # nobody pays as much: the dearest price in electricity_prices.csv is under half of it

Criterion = Literal["cost", "time", "co2e"]
QUANTITIES: dict[Criterion, str] = {"cost": "cost_usd", "time": "duration_s", "co2e": "emissions_kgco2e"}


@dataclass(frozen=True, slots=True)
class Chance:
    """A machine, and the probability that it is the best one."""

    machine: Projection
    probability: float


@dataclass(frozen=True, slots=True)
class Ranking:
    """The chances of each machine to be the best, the most probable first; empty where fewer than two are known.

    Attributes:
        cheapest_rented: of what keeps the limits and can be rented at once, as many GPUs as are wanted; without any, of
            whole machines.
        fastest: of all that is compared.
        greenest: likewise, by location-based CO2e.
    """

    cheapest_rented: tuple[Chance, ...]
    fastest: tuple[Chance, ...]
    greenest: tuple[Chance, ...]


class JointDraws:
    """Draws of the joint distribution of the machines of a projection; the same for the same machines."""

    def __init__(self, rows: Sequence[Projection]) -> None:
        import numpy as np

        named = [(id(row), quantity) for row in rows for quantity in row.joint]
        drawn = draws([row.joint[quantity] for row in rows for quantity in row.joint], _DRAWS)
        self._drawn: dict[tuple[int, str], NDArray[np.float64]] = dict(zip(named, drawn, strict=True))
        for row in rows:
            if row.least_s is not None:  # no shorter than the launches of its kernels; the rest goes with its time
                times_s = self._drawn[id(row), "duration_s"]
                longer = np.maximum(times_s, row.least_s) / times_s
                for quantity in row.joint:
                    self._drawn[id(row), quantity] = self._drawn[id(row), quantity] * longer
            if (cost := (id(row), "cost_usd")) in self._drawn and row.minimum_term_usd is not None:
                self._drawn[cost] = np.maximum(self._drawn[cost], row.minimum_term_usd)

    def of(self, row: Projection, criterion: Criterion) -> NDArray[np.float64] | None:
        """Return the draws of what a criterion compares; None where it is not known."""
        return self._drawn.get((id(row), QUANTITIES[criterion]))

    def at_most(self, row: Projection, criterion: Criterion) -> NDArray[np.float64] | None:
        """Return the same; the electricity here, where only its price is unknown, at more than anybody pays."""
        energy = self._drawn.get((id(row), "energy_kwh"))
        if criterion == "cost" and row.is_local and row.cost_usd is None and energy is not None:
            return energy * _DEAREST_USD_PER_KWH
        return self.of(row, criterion)

    def best(self, rows: Sequence[Projection], criterion: Criterion) -> tuple[Chance, ...]:
        """Return the probability of each known machine to have the least, the most probable first."""
        import numpy as np

        known = [(row, drawn) for row in rows if (drawn := self.of(row, criterion)) is not None]
        if not known:
            return ()
        values = np.array([drawn for _, drawn in known])
        is_least = values == values.min(axis=0)
        shares = (is_least / is_least.sum(axis=0)).mean(axis=1)  # equal ones share the first place
        found = [Chance(row, float(share)) for (row, _), share in zip(known, shares, strict=True)]
        return tuple(sorted(found, key=lambda c: (-c.probability, _point(c.machine, criterion))))

    def better(self, first: Projection, second: Projection, criterion: Criterion, by: float = 0.0) -> float:
        """Return the probability that one machine has less than another, ``by`` so much; 0 where that is not known."""
        one, other = self.of(first, criterion), self.of(second, criterion)
        if one is None or other is None:
            return 0.0
        return float((one + by < other).mean() + (one + by == other).mean() / 2)  # equal ones share it


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that a training may take.

    Attributes:
        within_s: None for no limit.
        max_cost_usd: likewise; a reservation costs its minimum term at least.
    """

    within_s: float | None = None
    max_cost_usd: float | None = None

    def each(self) -> list[tuple[Criterion, float]]:
        """Return those that are set."""
        both: tuple[tuple[Criterion, float | None], ...] = (("time", self.within_s), ("cost", self.max_cost_usd))
        return [(criterion, limit) for criterion, limit in both if limit is not None]

    def kept(self, row: Projection, drawn: JointDraws) -> float | None:
        """Return the probability that a machine keeps them; None where a limited quantity of it is not known."""
        import numpy as np

        kept = np.array(True)
        for criterion, limit in self.each():
            values = drawn.at_most(row, criterion)
            if values is None:
                return None
            kept = kept & (values <= limit)
        return float(kept.mean())


def rank(projections: Sequence[Projection], limits: Limits = Limits(), drawn: JointDraws | None = None) -> Ranking:
    """Return the verdicts on the rows of a projection, spot offers left out where there are others.

    Args:
        projections: the local one first.
        limits: that the cheapest are to keep, with 90%.
        drawn: their draws, where they are at hand.
    """
    compared = without_spot([row for row in projections if row.is_compared])
    drawn = drawn or JointDraws(compared)
    keeping = [row for row in compared if (limits.kept(row, drawn) or 0.0) >= WINNER]
    whole = [row for row in keeping if row.is_without_term]
    now = [row for row in whole if row.is_for_rent_now]

    def chances(criterion: Criterion, rows: Sequence[Projection]) -> tuple[Chance, ...]:
        found = drawn.best(rows, criterion)
        return found if len(found) > 1 else ()

    return Ranking(
        chances("cost", now or whole),
        chances("time", _one_offer_of_each(compared, drawn)),
        chances("co2e", compared),
    )


def without_spot(rows: Sequence[Projection]) -> list[Projection]:
    """Return machines without the spot offers, which are no choice beside others: what their loss costs is not in.

    Who gives nothing but spot offers asks for them, and has them.
    """
    has_others = any(row.obtained == "on demand" for row in rows)
    return [row for row in rows if not (has_others and row.obtained == "spot")]


def machine_here(rows: Sequence[Projection]) -> Projection | None:
    """Return the local machine of some; None where it is not among them."""
    return next((row for row in rows if row.is_local), None)


def _one_offer_of_each(rows: Sequence[Projection], drawn: JointDraws) -> list[Projection]:
    """Return the rows without those that are as fast as another in every draw: one GPU at several providers.

    They would share its probability to be the fastest. The cheapest stays.
    """
    found: dict[object, Projection] = {}
    for row in sorted(rows, key=lambda row: row.cost_usd.point if row.cost_usd else math.inf):
        times = drawn.of(row, "time")
        found.setdefault(id(row) if times is None or row.is_local else (row.name, times.tobytes()), row)
    return [row for row in rows if any(row is kept for kept in found.values())]


def value_of(row: Projection, criterion: Criterion) -> Estimate | None:
    """Return the estimate that a criterion compares, of a reservation at least its term; None where not known."""
    found: Estimate | None = row.payable_usd if criterion == "cost" else getattr(row, QUANTITIES[criterion])
    return found


def shortlist_of(chances: Sequence[Chance]) -> tuple[Chance, ...]:
    """Return the fewest that hold the best one with 90%, four at most."""
    found, total = list[Chance](), 0.0
    for one in chances[:_MOST_LISTED]:
        found.append(one)
        total += one.probability
        if total >= WINNER:
            break
    return tuple(found)


def _point(row: Projection, criterion: Criterion) -> float:
    value = value_of(row, criterion)
    return math.inf if value is None else value.point
