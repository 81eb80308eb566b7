"""Where to train: on the cheapest machine that keeps the limits; beside it, the one that saves time at the least price.

It is decided in draws of the machines' joint distribution (``ranking.JointDraws``). The machine here is left only for
one that is likely to cost less, or where it does not keep the limits. Machines that are sold whole, of which less is
wanted, and after them reservations, are taken only where nothing else will do: they have minimum terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from greenlove_tracker.projection.options import ProjectionOptions
from greenlove_tracker.projection.ranking import (
    WINNER,
    Chance,
    JointDraws,
    Limits,
    Ranking,
    machine_here,
    rank,
    shortlist_of,
    without_spot,
)
from greenlove_tracker.projection.types import Projection

EVEN = 0.5  # the probability from which one of two machines is likely to be the better
_LEAST_HOPE = 0.05  # the probability to keep the limits below which a machine is not even named for it
# Less is not worth renting a machine for: it takes minutes to start, and more to copy code and data to.
LEAST_GAIN_S = 600.0


@dataclass(frozen=True, slots=True)
class Faster:
    """A machine that is likely to be faster than the one recommended, at a price.

    Attributes:
        machine: the one whose saved hours cost the least.
        saved_s: time that it saves.
        more_usd: what it costs more; all that it costs where what the recommended one costs is not known.
    """

    machine: Projection
    saved_s: float
    more_usd: float


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A machine that is not chosen, and why.

    Attributes:
        machine: the machine.
        why: ``term``: the minimum term alone costs more than the limit; ``time``, ``cost``: it is likely to break that
            limit; ``unknown cost``.
        probability: that it breaks that limit; None of the other reasons.
    """

    machine: Projection
    why: Literal["term", "time", "cost", "unknown cost"]
    probability: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The machine to train on, and what stands beside it.

    Attributes:
        verdict: ``cheapest`` of those that keep the limits with 90%; ``too short``: the training is over before moving
            it could pay; ``best chance``: none keeps the limits with 90%, and this one most likely; ``nothing``.
        limits: that it is to keep.
        recommended: the machine; None where nothing comes near the limits, or nothing is known.
        probability: that it is the cheapest of those that it is chosen from; None where it is the only one, or what it
            costs is not known.
        meets: probability that it keeps the limits; None without limits.
        alternatives: others that may be the cheapest; of a best chance, others that may keep the limits.
        faster: the one that saves time; None where none is likely to save ten minutes within the limits.
        spot: a spot offer that is likely to cost less, or that alone may keep the limits.
        left_out: with limits, the machines that are not chosen.
        ranking: the chances of all machines.
    """

    verdict: Literal["cheapest", "too short", "best chance", "nothing"]
    limits: Limits
    recommended: Projection | None
    probability: float | None
    meets: float | None
    alternatives: tuple[Chance, ...]
    faster: Faster | None
    spot: Projection | None
    left_out: tuple[LeftOut, ...]
    ranking: Ranking


def decide(projections: Sequence[Projection], options: ProjectionOptions | None = None) -> Decision:
    """Return where to train.

    Args:
        projections: this machine first, as ``project`` gives them.
        options: with the limits (``within_s``, ``max_cost_usd``), where there are any.
    """
    limits = Limits(options.within_s, options.max_cost_usd) if options else Limits()
    known = [row for row in projections if row.is_compared and row.duration_s is not None]
    drawn = JointDraws([row for row in projections if row.is_compared])
    compared = without_spot(known)
    meets = {id(row): kept for row in known if (kept := limits.kept(row, drawn)) is not None}
    to_have = [row for row in compared if id(row) in meets and row.is_to_be_had]
    verdict, chosen, chances = _too_short(compared) or _chosen(to_have, meets, drawn)
    probability = next((c.probability for c in chances if c.machine is chosen), None)
    is_settled = probability is None or (verdict == "cheapest" and probability >= WINNER)
    shortlist = shortlist_of(chances) if verdict == "cheapest" else chances[:4]
    others = () if is_settled else tuple(c for c in shortlist if c.machine is not chosen)
    sure = [row for row in to_have if meets[id(row)] >= WINNER]
    listed = {id(chosen), *(id(c.machine) for c in others)}
    left_out = (_left_out(row, limits, drawn) for row in compared if id(row) not in listed) if limits.each() else ()
    return Decision(
        verdict,
        limits,
        chosen,
        probability if verdict == "cheapest" and len(chances) > 1 else None,
        meets.get(id(chosen)) if limits.each() else None,
        others,
        _faster(chosen, sure, drawn) if chosen is not None and verdict == "cheapest" else None,
        _spot(known, compared, chosen, meets, drawn) if verdict != "too short" else None,
        tuple(row for row in left_out if row is not None),
        rank(projections, limits, drawn),
    )


_Choice = tuple[Literal["cheapest", "too short", "best chance", "nothing"], Projection | None, tuple[Chance, ...]]


def _too_short(compared: Sequence[Projection]) -> _Choice | None:
    """Return to stay here where the training takes less than it takes to move it, whatever it costs."""
    here = machine_here(compared)
    if here is None or here.duration_s is None or here.duration_s.point >= LEAST_GAIN_S:
        return None
    return "too short", here, ()


def _chosen(to_have: Sequence[Projection], meets: dict[int, float], drawn: JointDraws) -> _Choice:
    """Return the cheapest of those that keep the limits with 90%; without one, the one that is most likely to."""
    without_term = [row for row in to_have if row.obtained != "reserved"]
    has_hope = any(meets[id(row)] >= EVEN for row in without_term)
    at_once = [row for row in without_term if row.is_local or row.is_for_rent_now]
    for rows in (at_once, without_term) if has_hope else (at_once, without_term, to_have):
        sure = [row for row in rows if meets[id(row)] >= WINNER]
        if sure:
            return _cheapest(sure, drawn)
    likely = sorted(
        (Chance(row, meets[id(row)]) for row in to_have if meets[id(row)] >= _LEAST_HOPE),
        key=lambda chance: -chance.probability,
    )
    first = next((c.machine for c in likely if not has_hope or c.machine.obtained != "reserved"), None)
    return ("nothing", None, ()) if first is None else ("best chance", first, tuple(likely))


def _cheapest(rows: Sequence[Projection], drawn: JointDraws) -> _Choice:
    """Return the most probable to be the cheapest; the machine here, unless that one is likely to cost less."""
    here, chances = machine_here(rows), drawn.best(rows, "cost")
    if here is not None and (not chances or drawn.better(chances[0].machine, here, "cost") <= EVEN):
        return "cheapest", here, chances
    return ("cheapest", chances[0].machine, chances) if chances else ("nothing", None, ())


def _faster(chosen: Projection, sure: Sequence[Projection], drawn: JointDraws) -> Faster | None:
    """Return the machine for rent that is likely to save time, at the least price for an hour saved."""
    found = [
        Faster(row, chosen.duration_s.point - row.duration_s.point, row.cost_usd.point - _usd(chosen))
        for row in sure
        if row.is_without_term and row.cost_usd is not None and row.duration_s is not None and chosen.duration_s
        if drawn.better(row, chosen, "time", LEAST_GAIN_S) > EVEN
    ]
    now = [one for one in found if one.machine.is_for_rent_now]
    return min(now or found, key=lambda one: one.more_usd / one.saved_s, default=None)


def _usd(row: Projection) -> float:
    return row.payable_usd.point if row.payable_usd else 0.0


def _spot(
    known: Sequence[Projection],
    compared: Sequence[Projection],
    chosen: Projection | None,
    meets: dict[int, float],
    drawn: JointDraws,
) -> Projection | None:
    """Return the cheapest spot offer where it is likely to cost less than what is recommended, or alone may do."""
    among = {id(row) for row in compared}
    offers = [row for row in known if id(row) not in among and meets.get(id(row), 0.0) >= EVEN]
    chances = drawn.best(offers, "cost")
    if not chances or (chosen is not None and drawn.better(chances[0].machine, chosen, "cost") < EVEN):
        return None
    return chances[0].machine


def _left_out(row: Projection, limits: Limits, drawn: JointDraws) -> LeftOut | None:
    """Return which limit a machine is likely to break; None where it keeps them."""
    if limits.max_cost_usd is not None and (row.minimum_term_usd or 0.0) > limits.max_cost_usd:
        return LeftOut(row, "term")
    for criterion, limit in limits.each():
        values = drawn.at_most(row, criterion)
        over = 1.0 if values is None else float((values > limit).mean())
        if over > 1 - WINNER:
            if drawn.of(row, criterion) is None:
                return LeftOut(row, "unknown cost")
            return LeftOut(row, "time" if criterion == "time" else "cost", over)
    return None
