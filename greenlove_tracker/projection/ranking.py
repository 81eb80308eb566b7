"""The probability of each machine to be the cheapest, fastest or greenest, what it saves, and what would settle it.

Machines share errors: the time here is in each time elsewhere, and GPUs of one architecture are off together. So the
probabilities are counted in draws of their joint distribution, and not read off ranges that overlap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from greenlove_tracker.forecasting import PROJECTION_LEVEL, Estimate
from greenlove_tracker.format import chance, duration, interval, mass, money, significant
from greenlove_tracker.projection.listings import DEFAULT_PROVIDER
from greenlove_tracker.projection.types import MINIMUM_TERM_DAYS, Projection
from greenlove_tracker.projection.uncertain import draws
from greenlove_tracker.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TRIAL_MINUTES = 15.0  # a trial of that length repeats an epoch or hundreds of steps many times
WINNER = 0.9  # the probability from which one machine is named
MOST_LISTED = 4  # machines left to choose from
TERM_COSTS_MORE = f"can only be reserved, and a minimum term of {MINIMUM_TERM_DAYS} d (assumed) alone costs more"
_MOST_FOR_A_TRIAL = 0.25  # of the cost of the training: a dearer trial saves less than the training itself takes
_DRAWS = 20_000  # a probability of 90% is then known within 0.4 points

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

    @property
    def text(self) -> str:
        """The pair in words: ``H200 SXM rather than H100 SXM5 80GB (75%)``; numbers of GPUs where they differ."""
        rows = (self.first, self.second)
        labels = [label(row) for row in rows]
        is_plain = all(text == f"{self.first.billed_gpus} × {row.name}" for text, row in zip(labels, rows, strict=True))
        first, second = (row.name for row in rows) if is_plain else labels
        return f"{first} rather than {second} ({chance(self.probability)})"


@dataclass(frozen=True, slots=True)
class RankingVerdict:
    """The best by one criterion, as far as it is known.

    Attributes:
        criterion: "cost", "time" or "co2e" (location-based).
        among: the machines that it is said of: "" for all that are compared, "to rent now" or "to rent as whole
            machines", and the limits that they keep.
        chances: of each of them, the most probable first.
        winner: the one that is best with 90% or more; None without one.
        shortlist: the fewest that hold the best one with 90%, four at most.
        pairs: the most probable one and each other one of the shortlist, or a winner and the next: the better first.
        sentence: the same in words, but for the pairs.
    """

    criterion: Criterion
    among: str
    chances: tuple[Chance, ...]
    winner: Projection | None
    shortlist: tuple[Chance, ...]
    pairs: tuple[Pair, ...]
    sentence: str


@dataclass(frozen=True, slots=True)
class Saving:
    """The saving of one machine against the local one; negative where it takes more.

    Attributes:
        criterion: "cost", "time" or "co2e".
        machine: the one that is compared with the local one.
        amount: in USD, s or kgCO2e.
        probability: that it saves anything.
        sentence: the same in words, and which emissions it rests on.
    """

    criterion: Criterion
    machine: Projection
    amount: Estimate
    probability: float
    sentence: str


@dataclass(frozen=True, slots=True)
class SuggestedTrial:
    """A trial that would cut a range.

    Attributes:
        machine: the one to try.
        cost_usd: on the smallest instance that is rented out.
        gpus: of that instance.
        sentence: the same in words.
    """

    machine: Projection
    cost_usd: float
    gpus: int
    sentence: str


@dataclass(frozen=True, slots=True)
class Ranking:
    """The verdicts at the end of a table; None where too little is known for one.

    Attributes:
        cheapest: of all that is to be had at a price and keeps the limits: this machine, for rent, or reserved.
        cheapest_rented: of what can be rented at once, as many GPUs as are wanted; without any, of whole machines.
        fastest: of all that is compared.
        greenest: likewise.
        savings: of the best machine for rent by each criterion, against the one here.
        notes: what the reader of all of it must know.
    """

    cheapest: RankingVerdict | None
    cheapest_rented: RankingVerdict | None
    fastest: RankingVerdict | None
    greenest: RankingVerdict | None
    savings: tuple[Saving, ...]
    notes: tuple[str, ...]


class JointDraws:
    """Draws of the joint distribution of the machines of a projection; the same for the same machines.

    Args:
        rows: the machines.
    """

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

    def better(self, first: Projection, second: Projection, criterion: Criterion) -> float | None:
        """Return the probability that one machine has less than another; None where that is not known of both."""
        one, other = self.of(first, criterion), self.of(second, criterion)
        if one is None or other is None:
            return None
        return float((one < other).mean() + (one == other).mean() / 2)  # equal ones share it


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that a training may take.

    Attributes:
        within_s: None for no limit.
        max_cost_usd: likewise; a reservation costs its minimum term at least.
    """

    within_s: float | None = None
    max_cost_usd: float | None = None

    @property
    def is_any(self) -> bool:
        """True where there is a limit."""
        return self.within_s is not None or self.max_cost_usd is not None

    @property
    def text(self) -> str:
        """Them in words: ``within 2 d for at most $500``."""
        parts = [f"within {duration(self.within_s)}"] if self.within_s is not None else []
        parts += [f"for at most {money(self.max_cost_usd)}"] if self.max_cost_usd is not None else []
        return " ".join(parts)

    @property
    def time_alone(self) -> Limits:
        """The limit of time without that of the cost."""
        return Limits(self.within_s)

    def kept(self, row: Projection, drawn: JointDraws) -> float | None:
        """Return the probability that a machine keeps them; None where a limited quantity of it is not known."""
        import numpy as np

        kept = np.array(True)
        for criterion, limit in self._each():
            values = drawn.of(row, criterion)
            if values is None:
                return None
            kept = kept & (values <= limit)
        return float(kept.mean())

    def broken_text(self, row: Projection, drawn: JointDraws) -> str:
        """Say which limit a machine is likely to break; empty where it keeps both with 90%."""
        if self.is_broken_by_term(row):
            return TERM_COSTS_MORE
        for criterion, limit in self._each():
            values, value = drawn.of(row, criterion), value_of(row, criterion)
            if values is None or value is None:
                return "its cost is not known"
            if (over := float((values > limit).mean())) > 1 - WINNER:
                if value.lower == value.upper:
                    return f"{'takes' if criterion == 'time' else 'costs'} {amount_text(criterion, value)}"
                verb, limit_text = ("take", duration(limit)) if criterion == "time" else ("cost", money(limit))
                return f"{chance(over)} likely to {verb} over {limit_text} ({chance(1 - WINNER)} is accepted)"
        return ""

    def _each(self) -> list[tuple[Criterion, float]]:
        both: tuple[tuple[Criterion, float | None], ...] = (("time", self.within_s), ("cost", self.max_cost_usd))
        return [(criterion, limit) for criterion, limit in both if limit is not None]

    def is_broken_by_term(self, row: Projection) -> bool:
        """Return True for a reservation whose minimum term alone costs more than is to be spent."""
        return self.max_cost_usd is not None and (row.minimum_term_usd or 0.0) > self.max_cost_usd


NO_LIMITS = Limits()


def rank(projections: Sequence[Projection], limits: Limits = NO_LIMITS) -> Ranking:
    """Return the verdicts on the rows of a projection, spot offers left out where there are others.

    Args:
        projections: the local one first.
        limits: that the cheapest to rent and the rented machines set against the one here are to keep, with 90%.
    """
    compared = without_spot([row for row in projections if row.is_compared])
    drawn = JointDraws(compared)
    keeping = [row for row in compared if (limits.kept(row, drawn) or 0.0) >= WINNER] if limits.is_any else compared
    to_have = [row for row in keeping if row.is_to_be_had]
    to_rent, among = [row for row in keeping if row.is_for_rent_now], "to rent now"
    if not to_rent:
        to_rent, among = [row for row in keeping if row.is_without_term], "to rent as whole machines"
    among = f"{among} {limits.text}".rstrip()
    rented = [row for row in keeping if row.is_rented]
    cheapest = _verdict("cost", to_have, drawn)
    cheapest_rented = _verdict("cost", to_rent, drawn, among)
    fastest = _verdict("time", _one_offer_of_each(compared, drawn), drawn)
    greenest = _verdict("co2e", compared, drawn)
    local = machine_here(compared)
    savings = [_saving(criterion, rented, local, drawn) for criterion in QUANTITIES]
    return Ranking(
        cheapest=cheapest,
        cheapest_rented=cheapest_rented,
        fastest=fastest,
        greenest=greenest,
        savings=tuple(saving for saving in savings if saving is not None),
        notes=_notes(compared),
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


def label(row: Projection) -> str:
    """Return ``8 × H200 SXM``, with another provider than the usual one and a spot offer behind it, or ``here``."""
    if row.is_local:
        return "here"
    provider = row.offer.provider if row.offer and row.offer.provider != DEFAULT_PROVIDER else ""
    of = ", ".join(filter(None, (provider, "spot" if row.obtained == "spot" else "")))
    return f"{row.billed_gpus} × {row.name}" + (f" ({of})" if of else "")


_TOLD_APART = 0.6  # below, which of two is better is a coin toss


def pairs_text(verdicts: Sequence[RankingVerdict | None]) -> str:
    """Return ``faster: H200 rather than H100 (75%) · …``: the first pair of each that says more than its verdict."""
    parts = []
    for verdict in verdicts:
        pair = verdict.pairs[0] if verdict is not None and verdict.pairs else None
        if (
            verdict is None
            or pair is None
            or pair.probability < _TOLD_APART
            or chance(pair.probability) == chance(verdict.chances[0].probability)
        ):
            continue
        better = " ".join(filter(None, (_COMPARATIVES[verdict.criterion], verdict.among)))
        parts.append(f"{better}: {pair.text}")
    return " · ".join(parts)


def shortlist_of(chances: Sequence[Chance]) -> tuple[Chance, ...]:
    """Return the fewest that hold the best one with 90%, four at most."""
    found, total = list[Chance](), 0.0
    for one in chances[:MOST_LISTED]:
        found.append(one)
        total += one.probability
        if total >= WINNER:
            break
    return tuple(found)


def amount_text(criterion: Criterion, value: Estimate | None) -> str:
    """Write what a criterion compares, with its range where it has one."""
    if value is None:
        return "unknown"
    write = {"cost": money, "time": duration, "co2e": mass}[criterion]
    return write(value.point) if value.lower == value.upper else interval(value, write)


def _point(row: Projection, criterion: Criterion) -> float:
    value = value_of(row, criterion)
    return float("inf") if value is None else value.point


_ADJECTIVES = {"cost": "cheapest", "time": "fastest", "co2e": "greenest"}
_COMPARATIVES = {"cost": "cheaper", "time": "faster", "co2e": "greener"}


def _verdict(
    criterion: Criterion, rows: Sequence[Projection], drawn: JointDraws, among: str = ""
) -> RankingVerdict | None:
    """Return the verdict; None where fewer than two are known."""
    chances = drawn.best(rows, criterion)
    if len(chances) < 2:
        return None
    winner = chances[0].machine if chances[0].probability >= WINNER else None
    shortlist = shortlist_of(chances)
    rivals = chances[1:2] if winner is not None else shortlist[1:]
    first = chances[0].machine
    compared = [(rival.machine, drawn.better(first, rival.machine, criterion)) for rival in rivals]
    pairs = tuple(_pair(first, rival, probability) for rival, probability in compared if probability is not None)
    sentence = _verdict_sentence(criterion, among, chances, winner, shortlist)
    return RankingVerdict(criterion, among, chances, winner, shortlist, pairs, sentence)


def _pair(one: Projection, other: Projection, probability: float) -> Pair:
    """Return the pair, the better one first: the most probable to lead all may still lose to another more often."""
    return Pair(one, other, probability) if probability >= 0.5 else Pair(other, one, 1 - probability)


def _verdict_sentence(
    criterion: Criterion,
    among: str,
    chances: Sequence[Chance],
    winner: Projection | None,
    shortlist: Sequence[Chance],
) -> str:
    adjective = " ".join(filter(None, (_ADJECTIVES[criterion], among)))
    basis = ", location-based" if criterion == "co2e" else ""
    if winner is not None:
        spent = " of electricity alone" if criterion == "cost" and winner.cost_basis == "electricity" else ""
        text = amount_text(criterion, value_of(winner, criterion))
        named = _with_term(criterion, winner)
        return f"{adjective}: {named}, {text}{spent}{basis} ({chance(chances[0].probability)})"
    names = " or ".join(f"{_with_term(criterion, one.machine)} ({chance(one.probability)})" for one in shortlist)
    return f"{adjective}: {names}{basis}"


def _with_term(criterion: Criterion, row: Projection) -> str:
    """Return the machine, and that a price is one of a reservation."""
    return f"{label(row)}, reserved" if criterion == "cost" and row.obtained == "reserved" else label(row)


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
    probability = float((saved > 0).mean())
    return Saving(criterion, best, amount, probability, _saving_sentence(criterion, best, amount, probability))


def _saving_sentence(criterion: Criterion, row: Projection, amount: Estimate, probability: float) -> str:
    noun = {"cost": "money", "time": "time", "co2e": "CO2e"}[criterion]
    basis = ", location-based" if criterion == "co2e" else ""
    if amount.lower <= 0 <= amount.upper:
        return f"{label(row)} saves {noun} against here with {chance(probability)}{basis}"
    low, high = sorted((abs(amount.lower), abs(amount.upper)))
    size = Estimate(abs(amount.point), low, high, amount.level, amount.unit, amount.kind)
    shown = amount_text(criterion, size) + (" CO2e" if criterion == "co2e" else "")
    if amount.point > 0:
        return f"{label(row)} saves {shown} against here{basis}"
    verb = {"cost": "costs", "time": "takes", "co2e": "emits"}[criterion]
    return f"{label(row)} {verb} {shown} more than here{basis}"


def suggested_trial(machines: Sequence[Projection], local: Projection | None) -> SuggestedTrial | None:
    """Return a trial on the cheapest to try of some machines; None where no trial is worth it."""
    tried = [row for row in machines if _is_worth_a_trial(row)]
    if not tried or local is None or local.duration_s is None:
        return None
    machine = min(tried, key=lambda row: _trial_usd(row) or 0.0)
    offer, cost = machine.offer, _trial_usd(machine)
    if offer is None or cost is None:
        return None
    gpus = min(offer.gpus_per_instance)
    half = local.duration_s.relative_width / 2
    comes_to = "that of a forecast made there"  # nothing tells how wide that is where the time here has no range
    if half > 0:
        comes_to = f"about ±{significant(half * 100, 1)}%, as wide as that of the forecast here"
    sentence = (
        f"exploring for {TRIAL_MINUTES:.0f} minutes on {gpus} × {machine.name} ({money(cost)}) would narrow its range "
        f"to {comes_to}"
    )
    return SuggestedTrial(machine, cost, gpus, sentence)


def _is_worth_a_trial(row: Projection) -> bool:
    """Return True where a trial is for rent at a price, and both shorter and far cheaper than the training itself."""
    trial_usd = _trial_usd(row)
    if not row.is_without_term or trial_usd is None or row.cost_usd is None or row.duration_s is None:
        return False
    is_cheap = trial_usd <= _MOST_FOR_A_TRIAL * row.cost_usd.point
    return is_cheap and row.duration_s.point > TRIAL_MINUTES * 60


def _trial_usd(row: Projection) -> float | None:
    if row.offer is None or row.offer.usd_per_gpu_hour is None:
        return None
    return row.offer.usd_per_gpu_hour * min(row.offer.gpus_per_instance) * TRIAL_MINUTES * 60 / SECONDS_PER_HOUR


def _notes(rows: Sequence[Projection]) -> tuple[str, ...]:
    """Return what the reader of the whole comparison must know."""
    bases = {row.intensity.coverage for row in rows if row.intensity} - {""}
    costs = {row.cost_basis for row in rows if row.cost_basis}
    notes = []
    if len(bases) > 1:
        notes.append(
            "CO2e mixes direct (EPA eGRID) and lifecycle (Our World in Data) intensities: close ones do not rank"
        )
    if "electricity" in costs and "machine" in costs:
        notes.append(
            "the cost here is electricity alone, without the price of the card; a rented machine's cost is all of it"
        )
    if any(row.market for row in rows):
        notes.append("market-based figures are the provider's claims, not audited; no ranking rests on them")
    return tuple(notes)
