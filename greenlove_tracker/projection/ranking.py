"""The probability of each machine to be the cheapest, fastest or greenest, and what it saves.

Machines share errors: the time here is in each time elsewhere, and GPUs of one architecture are off together. So the
probabilities are counted in draws of their joint distribution, and not read off ranges that overlap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from greenlove_tracker.forecasting import PROJECTION_LEVEL, Estimate
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
class Pair:
    """Two machines, and the joint probability that the first is better than the second."""

    first: Projection
    second: Projection
    probability: float


@dataclass(frozen=True, slots=True)
class RankingVerdict:
    """The best by one criterion, as far as it is known.

    Attributes:
        criterion: "cost", "time" or "co2e" (location-based).
        among: the machines that it is said of: "all" that are compared, those "to rent now" or "to rent as whole
            machines".
        chances: of each of them, the most probable first.
        winner: the one that is best with 90% or more; None without one.
        shortlist: the fewest that hold the best one with 90%, four at most.
        pairs: the most probable one and each other one of the shortlist, or a winner and the next: the better first.
    """

    criterion: Criterion
    among: Literal["all", "to rent now", "to rent as whole machines"]
    chances: tuple[Chance, ...]
    winner: Projection | None
    shortlist: tuple[Chance, ...]
    pairs: tuple[Pair, ...]


@dataclass(frozen=True, slots=True)
class Saving:
    """The saving of one machine against the local one; negative where it takes more.

    Attributes:
        criterion: "cost", "time" or "co2e".
        machine: the one that is compared with the local one.
        amount: in USD, s or kgCO2e.
        probability: that it saves anything.
    """

    criterion: Criterion
    machine: Projection
    amount: Estimate
    probability: float


@dataclass(frozen=True, slots=True)
class Ranking:
    """The verdicts at the end of a table; None where too little is known for one.

    Attributes:
        cheapest: of all that is to be had at a price and keeps the limits: this machine, for rent, or reserved.
        cheapest_rented: of what can be rented at once, as many GPUs as are wanted; without any, of whole machines.
        fastest: of all that is compared.
        greenest: likewise.
        savings: of the best machine for rent by each criterion, against the one here.
    """

    cheapest: RankingVerdict | None
    cheapest_rented: RankingVerdict | None
    fastest: RankingVerdict | None
    greenest: RankingVerdict | None
    savings: tuple[Saving, ...]


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
        limits: that the cheapest to rent and the rented machines set against the one here are to keep, with 90%.
        drawn: their draws, where they are at hand.
    """
    compared = without_spot([row for row in projections if row.is_compared])
    drawn = drawn or JointDraws(compared)
    keeping = [row for row in compared if (limits.kept(row, drawn) or 0.0) >= WINNER]
    to_have = [row for row in keeping if row.is_to_be_had]
    whole = [row for row in keeping if row.is_without_term]
    now = [row for row in whole if row.is_for_rent_now]
    rented = [row for row in keeping if row.is_rented]
    local = machine_here(compared)
    savings = (_saving(criterion, rented, local, drawn) for criterion in QUANTITIES)
    return Ranking(
        cheapest=_verdict("cost", to_have, drawn),
        cheapest_rented=_verdict("cost", now or whole, drawn, "to rent now" if now else "to rent as whole machines"),
        fastest=_verdict("time", _one_offer_of_each(compared, drawn), drawn),
        greenest=_verdict("co2e", compared, drawn),
        savings=tuple(saving for saving in savings if saving is not None),
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


def _verdict(
    criterion: Criterion,
    rows: Sequence[Projection],
    drawn: JointDraws,
    among: Literal["all", "to rent now", "to rent as whole machines"] = "all",
) -> RankingVerdict | None:
    """Return the verdict; None where fewer than two are known."""
    chances = drawn.best(rows, criterion)
    if len(chances) < 2:
        return None
    first = chances[0].machine
    winner = first if chances[0].probability >= WINNER else None
    shortlist = shortlist_of(chances)
    rivals = chances[1:2] if winner is not None else shortlist[1:]
    pairs = (_pair(first, rival.machine, drawn.better(first, rival.machine, criterion)) for rival in rivals)
    return RankingVerdict(criterion, among, chances, winner, shortlist, tuple(pairs))


def _pair(one: Projection, other: Projection, probability: float) -> Pair:
    """Return the pair, the better one first: the most probable to lead all may still lose to another more often."""
    return Pair(one, other, probability) if probability >= 0.5 else Pair(other, one, 1 - probability)


def _saving(
    criterion: Criterion, rented: Sequence[Projection], local: Projection | None, drawn: JointDraws
) -> Saving | None:
    """Return that of the most probable rented machine by the criterion; None where it or the local one is not known."""
    import numpy as np

    here = None if local is None else drawn.of(local, criterion)
    chances = drawn.best(rented, criterion)
    if local is None or here is None or not chances:
        return None
    best = chances[0].machine
    there, value, own = drawn.of(best, criterion), value_of(best, criterion), value_of(local, criterion)
    if there is None or value is None or own is None:
        return None
    saved = here - there
    tail = (1 - PROJECTION_LEVEL) / 2
    lower, upper = (float(end) for end in np.quantile(saved, (tail, 1 - tail)))
    point = own.point - value.point
    amount = Estimate(point, min(lower, point), max(upper, point), PROJECTION_LEVEL, value.unit, value.kind)
    return Saving(criterion, best, amount, float((saved > 0).mean()))
