"""Where to train, and how likely each machine is to be the cheapest.

The rule: recommend the cheapest machine that keeps the limits with 90% probability, among the machine here and those
rented by the hour with the wanted number of GPUs in as few nodes as possible. If none qualifies, consider more or
larger machines. Consider reservations only if no other machine has an even chance.

Beside it stands a machine of any size that saves time with at least 80% probability, at the lowest price. The machine
here is left only for one that is likely to cost less, or if it does not keep the limits.

If the peak memory is unknown, a GPU with less memory than the one here is recommended only if no other machine keeps
the limits.

Machines share errors: every time elsewhere contains the time here, and GPUs of one architecture err together.
So the probabilities are counted in draws from the joint distribution, not read off overlapping ranges.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

from greenlove_tracker.projection.options import ProjectionOptions
from greenlove_tracker.projection.types import Projection, Rows
from greenlove_tracker.projection.uncertain import draws
from greenlove_tracker.vocabulary.forecasting import Estimate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

WINNER = 0.9  # the probability from which one machine is named
_MOST_LISTED = 4  # machines left to choose from
_DRAWS = 20_000  # a probability of 90% is then known within 0.4 points
EVEN = 0.5  # the probability from which one of two machines is likely to be the better
LIKELY = 0.8  # the probability from which a machine is called faster
_LEAST_HOPE = 0.05  # the probability to keep the limits below which a machine is not even named for it
# Less is not worth renting a machine for: it takes minutes to start, and more to copy code and data to.
LEAST_GAIN_S = 600.0
_DEAREST_USD_PER_KWH = 1.0  # nobody pays as much: the dearest price in electricity_prices.csv is under half of it


@dataclass(frozen=True, slots=True)
class Chance:
    """A machine, and the probability that it is the best one."""

    machine: Projection
    probability: float


Chances = tuple[Chance, ...]


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that a training must keep.

    Attributes:
        within_s: the longest time; None for no limit.
        max_cost_usd: the highest cost; None for no limit. A reservation costs its minimum term at least.
    """

    within_s: float | None = None
    max_cost_usd: float | None = None

    def each(self) -> list[tuple[str, float]]:
        """Return the limits that are set, by the name of the quantity."""
        both = (("duration_s", self.within_s), ("cost_usd", self.max_cost_usd))
        return [(quantity, limit) for quantity, limit in both if limit is not None]


class JointDraws:
    """Draws from the joint distribution of a projection's machines. The same machines give the same draws.

    Args:
        rows: the machines.
        limits: the limits to keep.
    """

    def __init__(self, rows: Rows, limits: Limits = Limits()) -> None:
        import numpy as np

        self.limits = limits
        named = [(id(row), quantity) for row in rows for quantity in row.joint]
        drawn = draws([row.joint[quantity] for row in rows for quantity in row.joint], _DRAWS)
        self._drawn: dict[tuple[int, str], Array] = dict(zip(named, drawn, strict=True))
        for row in rows:
            cost = (id(row), "cost_usd")
            if cost in self._drawn and row.minimum_term_usd is not None:
                self._drawn[cost] = np.maximum(self._drawn[cost], row.minimum_term_usd)

    def of(self, row: Projection, quantity: str) -> Array | None:
        """Return the draws of a quantity, by its name in ``Projection``; None if it is unknown."""
        return self._drawn.get((id(row), quantity))

    def at_most(self, row: Projection, quantity: str) -> Array | None:
        """Return the same; the electricity here, where only its price is unknown, at more than anybody pays."""
        energy = self._drawn.get((id(row), "energy_kwh"))
        if quantity == "cost_usd" and row.is_local and row.cost_usd is None and energy is not None:
            return energy * _DEAREST_USD_PER_KWH
        return self.of(row, quantity)

    def cheapest(self, rows: Rows) -> Chances:
        """Return how likely each machine with a known cost is to be the cheapest, the likeliest first."""
        import numpy as np

        known = [row for row in rows if self.of(row, "cost_usd") is not None]
        if not known:
            return ()
        values = np.array([self.of(row, "cost_usd") for row in known])
        is_least = values == values.min(axis=0)
        shares = (is_least / is_least.sum(axis=0)).mean(axis=1)  # equal ones share the first place
        found = [Chance(row, float(share)) for row, share in zip(known, shares, strict=True)]
        point = dict(zip(map(id, known), values.mean(axis=1), strict=True))
        return tuple(sorted(found, key=lambda c: (-c.probability, point[id(c.machine)])))

    def meets(self, row: Projection) -> float:
        """Return the probability that a machine keeps the limits; 0 if a limited quantity is unknown."""
        import numpy as np

        kept = np.array(True)
        for quantity, limit in self.limits.each():
            values = self.at_most(row, quantity)
            if values is None:
                return 0.0
            kept = kept & (values <= limit)
        return float(kept.mean())

    def better(self, first: Projection, second: Projection, quantity: str, by: float = 0.0) -> float:
        """Return the probability that one machine has less than another by ``by``; 0 if it is unknown."""
        one = self.of(first, quantity)
        other = self.of(second, quantity)
        if one is None or other is None:
            return 0.0
        return float((one + by < other).mean() + (one + by == other).mean() / 2)  # equal ones share it


def without_spot(rows: Rows) -> list[Projection]:
    """Return the machines without spot offers, whose cost does not yet include what interruptions lose.

    If none is on demand, spot offers stay: they were asked for, or there is no other way to rent by the hour.
    """
    has_others = any(row.obtained == "on demand" for row in rows)
    return [row for row in rows if not (has_others and row.obtained == "spot")]


def machine_here(rows: Rows) -> Projection | None:
    """Return the local machine among the rows; None if it is not there."""
    return next((row for row in rows if row.is_local), None)


# -- The decision --


@dataclass(frozen=True, slots=True)
class Faster:
    """A machine that is likely to be faster than the recommended one, at a higher price.

    Attributes:
        machine: the machine with the lowest price for each hour saved.
        saved_s: the time that it saves.
        more_usd: its extra cost; its whole cost if the cost of the recommended machine is unknown.
        probability: the probability that it saves ten minutes.
    """

    machine: Projection
    saved_s: float
    more_usd: float
    probability: float


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A machine that is not chosen, and why.

    Attributes:
        machine: the machine.
        why: ``term``: the minimum term alone costs more than the limit; ``time`` or ``cost``: it is likely to break
            that limit; ``unknown cost``.
        probability: the probability that it breaks that limit; None for the other reasons.
    """

    machine: Projection
    why: Literal["term", "time", "cost", "unknown cost"]
    probability: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The machine to train on, and its alternatives.

    Attributes:
        verdict: ``cheapest``: the cheapest of those that keep the limits with 90% probability; ``too short``: the
            training ends before moving it could pay; ``best chance``: none keeps the limits with 90% probability, and
            this one is the most likely to; ``nothing``.
        limits: the limits to keep.
        recommended: the machine; None if no machine comes near the limits, or nothing is known.
        probability: the probability that it is the cheapest of its candidates; None if it is the only one, or its cost
            is unknown.
        meets: the probability that it keeps the limits; None without limits.
        alternatives: other machines that may be the cheapest; for a best chance, others that may keep the limits.
        faster: a machine that saves time; None if none saves ten minutes with 80% probability within the limits.
        if_it_fits: a machine with less memory that is likely to cost less, if the memory needed is unknown.
        spot: a spot offer that is likely to cost less, or that alone may keep the limits.
        left_out: with limits, the machines that are not chosen.
    """

    verdict: Literal["cheapest", "too short", "best chance", "nothing"]
    limits: Limits
    recommended: Projection | None
    probability: float | None
    meets: float | None
    alternatives: Chances
    faster: Faster | None
    if_it_fits: Projection | None
    spot: Projection | None
    left_out: tuple[LeftOut, ...]


def decide(projections: Sequence[Projection], options: ProjectionOptions | None = None) -> Decision:
    """Decide where to train.

    Args:
        projections: the machines, this machine first, as ``project`` returns them.
        options: the options of the projection, with its limits (``within_s``, ``max_cost_usd``).
    """
    limits = Limits(options.within_s, options.max_cost_usd) if options else Limits()
    rows = [row for row in projections if row.is_compared]
    drawn = JointDraws(rows, limits)
    known = [row for row in rows if row.duration_s is not None]
    compared = without_spot(known)
    to_have = [row for row in compared if row.is_to_be_had]
    here = machine_here(compared)
    smaller = [row for row in to_have if has_less_memory(row, here)]
    as_large = [row for row in to_have if not has_less_memory(row, here)]
    if here and here.duration_s and here.duration_s.point < LEAST_GAIN_S:
        chosen_by: _Choice = "too short", here, ()  # it takes less than it takes to move it
    else:
        chosen_by = _chosen(as_large, drawn)
        if chosen_by[0] != "cheapest":
            chosen_by = _chosen(to_have, drawn)
    verdict, chosen, chances = chosen_by
    probability = next((c.probability for c in chances if c.machine is chosen), None)
    shortlist = chances[:_MOST_LISTED]
    faster = None
    if_it_fits = None
    if chosen and verdict == "cheapest":
        totals = list(accumulate(one.probability for one in shortlist))
        shortlist = shortlist[: bisect_left(totals, WINNER) + 1]  # the fewest that contain the best one with 90%
        faster = _faster(chosen, as_large, drawn)
        if chosen in as_large:
            if_it_fits = _cheaper([row for row in smaller if row.is_for_rent_now], chosen, drawn)
        if probability is None or probability >= WINNER:  # nothing is left to choose
            shortlist = ()
    if verdict != "cheapest" or len(chances) < 2:
        probability = None
    others = tuple(c for c in shortlist if c.machine is not chosen)
    spot = None
    if verdict != "too short":
        spot = _cheaper([row for row in known if row not in compared], chosen, drawn)
    keeps = None
    left_out = []
    if limits.each():
        if chosen:
            keeps = drawn.meets(chosen)
        listed = [chosen, *(c.machine for c in others)]
        left_out = [one for one in (_left_out(row, drawn) for row in compared if row not in listed) if one]
    return Decision(verdict, limits, chosen, probability, keeps, others, faster, if_it_fits, spot, tuple(left_out))


_Choice = tuple[Literal["cheapest", "too short", "best chance", "nothing"], Projection | None, Chances]


def _chosen(to_have: Rows, drawn: JointDraws) -> _Choice:
    """Return the cheapest machine that keeps the limits with 90%; else the one most likely to keep them."""
    without_term = [row for row in to_have if row.obtained != "reserved"]
    rows = to_have
    if any(drawn.meets(row) >= EVEN for row in without_term):
        rows = without_term
    for_rent = [row for row in rows if row.is_for_rent_now]
    fewest = min((row.n_machines for row in for_rent), default=1)
    of_wanted_size = [row for row in rows if row.is_local or (row in for_rent and row.n_machines == fewest)]
    for group in (of_wanted_size, without_term, rows):
        sure = [row for row in group if drawn.meets(row) >= WINNER]
        if sure:
            return _cheapest(sure, drawn)
    hopes = [Chance(row, drawn.meets(row)) for row in rows]
    likely = sorted((one for one in hopes if one.probability >= _LEAST_HOPE), key=lambda one: -one.probability)
    if likely:
        return ("best chance", likely[0].machine, tuple(likely))
    return ("nothing", None, ())


def _cheapest(rows: Rows, drawn: JointDraws) -> _Choice:
    """Return the cheapest machine that is likely to cost less than the one here; else the one here."""
    here = machine_here(rows)
    chances = drawn.cheapest(rows)
    priced = [chance.machine for chance in chances]
    if here:
        priced = [row for row in priced if drawn.better(row, here, "cost_usd") > EVEN]
    cheapest = min(priced, key=cost_point, default=here)
    if not cheapest:
        return ("nothing", None, ())
    return ("cheapest", cheapest, chances)


def _faster(chosen: Projection, rows: Rows, drawn: JointDraws) -> Faster | None:
    """Return the rented machine, in few nodes, that is likely to save time at the lowest price per hour saved."""
    chosen_s = chosen.duration_s
    chosen_usd = chosen.cost_usd.point if chosen.cost_usd else 0.0  # all of the other's where it is not known
    found = []
    for row in rows:
        probability = drawn.better(row, chosen, "duration_s", LEAST_GAIN_S)
        is_faster = row.is_without_term and probability >= LIKELY and drawn.meets(row) >= WINNER
        if is_faster and chosen_s and row.duration_s and row.cost_usd:
            saved_s = chosen_s.point - row.duration_s.point
            found.append(Faster(row, saved_s, row.cost_usd.point - chosen_usd, probability))
    now = [one for one in found if one.machine.is_for_rent_now]
    return min(now or found, key=lambda one: (one.machine.n_machines, one.more_usd / one.saved_s), default=None)


def _cheaper(rows: Rows, chosen: Projection | None, drawn: JointDraws) -> Projection | None:
    """Return the cheapest machine that is likely to keep the limits and to cost less than the chosen one."""
    likely = [row for row in rows if row.cost_usd and drawn.meets(row) >= EVEN]
    cheapest = min(likely, key=cost_point, default=None)
    if not cheapest or (chosen and drawn.better(cheapest, chosen, "cost_usd") < EVEN):
        return None
    return cheapest


def saved_co2e_share(row: Projection, here: Projection) -> Estimate | None:
    """Return the share of the CO2e here that a machine saves, negative if it emits more.

    Returns:
        None if it is unknown, or if neither less nor more has 80% probability.
    """
    there_kg = row.joint.get("emissions_kgco2e")
    here_kg = here.joint.get("emissions_kgco2e")
    if there_kg is None or here_kg is None:
        return None
    ratio = there_kg.over(here_kg)
    drawn = draws([ratio], _DRAWS)
    if max((drawn < 1).mean(), (drawn > 1).mean()) < LIKELY:
        return None
    return ratio.estimate("").plus(-1.0).times(-1.0, "")


def cost_point(row: Projection) -> float:
    """Return the cost of a machine for ranking; an unknown cost comes last."""
    if not row.cost_usd:
        return math.inf
    return row.cost_usd.point


def has_less_memory(row: Projection, here: Projection | None) -> bool:
    """Return True if a GPU has less memory than one here and the memory needed is unknown."""
    if row.fits is not None or not row.gpu or not here or not here.gpu:
        return False
    return (row.gpu.memory_gb or 0.0) < (here.gpu.memory_gb or 0.0)


def _left_out(row: Projection, drawn: JointDraws) -> LeftOut | None:
    """Return the limit that a machine is likely to break; None if it keeps them."""
    limits = drawn.limits
    if limits.max_cost_usd is not None and (row.minimum_term_usd or 0.0) > limits.max_cost_usd:
        return LeftOut(row, "term")
    for quantity, limit in limits.each():
        values = drawn.at_most(row, quantity)
        over = float((values > limit).mean()) if values is not None else 1.0
        if over > 1 - WINNER:
            if drawn.of(row, quantity) is None:
                return LeftOut(row, "unknown cost")
            if quantity == "duration_s":
                return LeftOut(row, "time", over)
            return LeftOut(row, "cost", over)
    return None
