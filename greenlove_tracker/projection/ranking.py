"""The cheapest, fastest and greenest machine, the savings, and the trial that would tell apart those that overlap.

Two machines whose 90% ranges overlap are not ranked: the winner is the one with the lowest figure only where nobody's
range reaches into its own. The error of the local forecast is in every range, so an overlap is judged with caution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from greenlove_tracker.forecasting import PROJECTION_LEVEL, Estimate
from greenlove_tracker.format import duration, interval, mass, money, significant
from greenlove_tracker.projection.types import Projection
from greenlove_tracker.units import SECONDS_PER_HOUR

TRIAL_MINUTES = 15.0  # a trial of that length repeats an epoch or hundreds of steps many times

Criterion = Literal["cost", "time", "co2e"]


@dataclass(frozen=True, slots=True)
class RankingVerdict:
    """The leaders by one criterion.

    Attributes:
        criterion: "cost", "time" or "co2e" (location-based).
        leaders: the one with the lowest figure first, then those whose ranges overlap with its.
        sentence: the same in words.
    """

    criterion: Criterion
    leaders: tuple[Projection, ...]
    sentence: str

    @property
    def winner(self) -> Projection | None:
        """The machine that leads clearly; None where ranges overlap."""
        return self.leaders[0] if len(self.leaders) == 1 else None


@dataclass(frozen=True, slots=True)
class Saving:
    """The saving of one machine against the local one; negative where it takes more.

    Attributes:
        criterion: "cost", "time" or "co2e".
        machine: the one that is compared with the local one.
        amount: in USD, s or kgCO2e; its ends pair the far ends of both ranges, so they are wider than 90%.
        sentence: the same in words, and which emissions it rests on.
    """

    criterion: Criterion
    machine: Projection
    amount: Estimate
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
    """The verdicts at the end of a table; None where too little is known for one."""

    cheapest: RankingVerdict | None
    cheapest_rented: RankingVerdict | None
    fastest: RankingVerdict | None
    greenest: RankingVerdict | None
    savings: tuple[Saving, ...]
    suggested_trial: SuggestedTrial | None
    notes: tuple[str, ...]


def rank(projections: Sequence[Projection]) -> Ranking:
    """Return the verdicts on the rows of a projection, the local one first."""
    compared = [row for row in projections if row.is_compared]
    rented = [row for row in compared if row.is_rented]
    cheapest, cheapest_rented = _verdict("cost", compared), _verdict("cost", rented, " rented")
    fastest, greenest = _verdict("time", compared), _verdict("co2e", compared)
    local = next((row for row in compared if row.is_local), None)
    savings = [_saving("cost", rented, local), _saving("time", rented, local), _saving("co2e", rented, local)]
    return Ranking(
        cheapest=cheapest,
        cheapest_rented=cheapest_rented,
        fastest=fastest,
        greenest=greenest,
        savings=tuple(saving for saving in savings if saving is not None),
        suggested_trial=_suggested_trial([v for v in (cheapest_rented, fastest) if v is not None], local),
        notes=_notes(compared),
    )


def value_of(row: Projection, criterion: Criterion) -> Estimate | None:
    """Return the estimate that a criterion compares; None where it is not known."""
    return {"cost": row.cost_usd, "time": row.duration_s, "co2e": row.emissions_kgco2e}[criterion]


def label(row: Projection) -> str:
    """Return ``8 × H200 SXM``, or ``here``."""
    return "here" if row.is_local else f"{row.billed_gpus} × {row.name}"


def _verdict(criterion: Criterion, rows: Sequence[Projection], among: str = "") -> RankingVerdict | None:
    known = sorted(
        ((value, row) for row in rows if (value := value_of(row, criterion)) is not None),
        key=lambda pair: pair[0].point,
    )
    if len(known) < 2:
        return None
    first = known[0][0]
    leaders = tuple(row for value, row in known if row is known[0][1] or _overlap(first, value))
    return RankingVerdict(criterion, leaders, _verdict_sentence(criterion, leaders, among))


def _overlap(a: Estimate, b: Estimate) -> bool:
    return a.lower <= b.upper and b.lower <= a.upper


_ADJECTIVES = {"cost": "cheapest", "time": "fastest", "co2e": "greenest"}


def _verdict_sentence(criterion: Criterion, leaders: Sequence[Projection], among: str) -> str:
    adjective = _ADJECTIVES[criterion] + among
    basis = ", location-based" if criterion == "co2e" else ""
    if len(leaders) == 1:
        value = value_of(leaders[0], criterion)
        spent = " of electricity alone" if criterion == "cost" and leaders[0].cost_basis == "electricity" else ""
        return f"{adjective}: {label(leaders[0])}, {_text(criterion, value)}{spent}{basis}"
    names = ", ".join(label(row) for row in leaders)
    return f"{adjective}: no winner can be named{basis}, the ranges of {names} overlap"


def _saving(criterion: Criterion, rented: Sequence[Projection], local: Projection | None) -> Saving | None:
    """Return that of the first rented machine by the criterion; None where it or the local one is not known."""
    known = [(value, row) for row in rented if (value := value_of(row, criterion)) is not None]
    a = value_of(local, criterion) if local is not None else None
    if a is None or not known:
        return None
    b, best = min(known, key=lambda pair: pair[0].point)
    amount = Estimate(a.point - b.point, a.lower - b.upper, a.upper - b.lower, PROJECTION_LEVEL, a.unit, b.kind)
    n_tied = sum(_overlap(b, value) for value, _ in known)
    return Saving(criterion, best, amount, _saving_sentence(criterion, best, amount, n_tied))


def _saving_sentence(criterion: Criterion, row: Projection, amount: Estimate, n_tied: int) -> str:
    """Return the saving in words; ``n_tied``: rented machines whose ranges overlap with this row's, itself too."""
    noun = {"cost": "money", "time": "time", "co2e": "CO2e"}[criterion]
    basis = ", location-based" if criterion == "co2e" else ""
    which = label(row) + (f", one of {n_tied} whose ranges overlap," if n_tied > 1 else "")
    if amount.lower <= 0 <= amount.upper:
        return f"whether {which} saves {noun} against here cannot be told{basis}"
    low, high = sorted((abs(amount.lower), abs(amount.upper)))
    size = Estimate(abs(amount.point), low, high, amount.level, amount.unit, amount.kind)
    shown = _text(criterion, size) + (" CO2e" if criterion == "co2e" else "")
    if amount.point > 0:
        return f"{which} saves {shown} against here{basis}"
    verb = {"cost": "costs", "time": "takes", "co2e": "emits"}[criterion]
    return f"{which} {verb} {shown} more than here{basis}"


def _text(criterion: Criterion, value: Estimate | None) -> str:
    if value is None:
        return "unknown"
    write = {"cost": money, "time": duration, "co2e": mass}[criterion]
    return write(value.point) if value.lower == value.upper else interval(value, write)


def _suggested_trial(verdicts: Sequence[RankingVerdict], local: Projection | None) -> SuggestedTrial | None:
    """Return a trial on the cheapest of the tied machines, which brings its range down to that of a forecast there."""
    tied = {id(row): row for v in verdicts if v.winner is None for row in v.leaders if _is_worth_a_trial(row)}
    if not tied or local is None or local.duration_s is None:
        return None
    machine = min(tied.values(), key=lambda row: _trial_usd(row) or 0.0)
    offer, cost = machine.offer, _trial_usd(machine)
    if offer is None or cost is None:
        return None
    gpus = min(offer.gpus_per_instance)
    half = local.duration_s.relative_width / 2
    comes_to = "what a forecast made there has"  # nothing tells how wide that is where the time here has no range
    if half > 0:
        comes_to = f"about ±{significant(half * 100, 1)}%, as wide as that of the forecast here"
    sentence = (
        f"{TRIAL_MINUTES:.0f} minutes of {gpus} × {machine.name} ({money(cost)}) would cut its range to {comes_to}"
    )
    return SuggestedTrial(machine, cost, gpus, sentence)


def _is_worth_a_trial(row: Projection) -> bool:
    """Return True where a trial has a price, and is shorter than the training itself."""
    trial_s = TRIAL_MINUTES * 60
    return _trial_usd(row) is not None and row.duration_s is not None and row.duration_s.point > trial_s


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
        notes.append("the cost here is electricity alone, without the price of the card; rented, it is all")
    if any(row.market for row in rows):
        notes.append("market-based figures are the provider's claims, not audited; no ranking rests on them")
    return tuple(notes)
