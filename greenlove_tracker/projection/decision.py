"""The decision among the machines of a projection: the cheapest to rent, or the cheapest that keeps the limits.

It is decided in draws of the machines' joint distribution (``ranking.JointDraws``). Machines that are sold whole, of
which less is wanted, and after them reservations, are recommended only where nothing else will do: they have minimum
terms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from greenlove_tracker import format as fmt
from greenlove_tracker.forecasting import PROJECTION_LEVEL
from greenlove_tracker.projection.catalogue import software_notes
from greenlove_tracker.projection.listings import DEFAULT_PROVIDER, DEFAULT_PROVIDER_NAME
from greenlove_tracker.projection.ranking import (
    NO_LIMITS,
    TERM_COSTS_MORE,
    WINNER,
    Chance,
    JointDraws,
    Limits,
    SuggestedTrial,
    amount_text,
    label,
    machine_here,
    shortlist_of,
    suggested_trial,
    value_of,
    without_spot,
)
from greenlove_tracker.projection.types import MINIMUM_TERM_DAYS, Projection, ProjectionOptions
from greenlove_tracker.units import h_from_s

_LEAST_HOPE = 0.05  # the probability to keep the limits below which a machine is not even named for it
_EVEN = 0.5  # the probability from which one of two machines is likely to be the better
_MOST_REASONS = 4  # of machines that fall out
# A training that takes less here is not moved: renting bills by the minute, and what is rented takes minutes to start.
_WORTH_MOVING_S = 600.0  # a rented machine takes minutes to start
# Nobody pays as much for a kWh: the dearest price in electricity_prices.csv is under half of it.
_DEAREST_USD_PER_KWH = 1.0
_WIDE = 2.0  # relative width of the time here from which it is to be narrowed before anything is rented
# Less is not worth renting a machine for: it takes minutes to start, and more to copy code and data to.
_LEAST_GAIN_S = 600.0
_PARTS = ((1e6, "A million"), (1e3, "A thousand"))  # of the work, in which a cost of each is written


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a training.

    Attributes:
        count: over all epochs.
        unit: ``sample``, ``token`` or ``step``.
    """

    count: int
    unit: str


@dataclass(frozen=True, slots=True)
class Decision:
    """The machine to train on, and why.

    Attributes:
        goal: what was asked for: ``the cheapest within 2 d for at most $500``.
        recommended: the machine; None where nothing comes near the limits, or nothing is known.
        probability: that it is the best of those that it is chosen from; None where it is the only one.
        meets: probability that it keeps the limits; None without limits.
        alternatives: others that may be the best one, with their probabilities.
        sentence: what to do, in words.
        reasons: why, and why not the others, in sentences.
        limits: that it is to keep.
        is_too_short: the training is over before moving it could pay.
        trial: that would tell the recommended one and the others apart; None where nothing is open or none is worth it.
    """

    goal: str
    recommended: Projection | None
    probability: float | None
    meets: float | None
    alternatives: tuple[Chance, ...]
    sentence: str
    reasons: tuple[str, ...]
    limits: Limits = NO_LIMITS
    trial: SuggestedTrial | None = None
    is_too_short: bool = False


def decide(
    projections: Sequence[Projection], options: ProjectionOptions | None = None, work: Work | None = None
) -> Decision:
    """Return what to do.

    Args:
        projections: this machine first, as ``project`` gives them.
        options: with the limits (``within_s``, ``max_cost_usd``) and the price of a card, where there are any.
        work: that the training goes through, to say what a part of it costs.
    """
    known = [row for row in projections if row.is_compared and row.duration_s is not None]
    compared, drawn = without_spot(known), JointDraws(known)
    limits = Limits(options.within_s, options.max_cost_usd) if options else NO_LIMITS
    here = machine_here(compared)
    own = here if limits.is_any else machine_here(projections)  # whatever it costs: that may not be known
    if own is not None and own.duration_s is not None and own.duration_s.point < _WORTH_MOVING_S:
        return _too_short(own, limits, drawn)
    found = _within(compared, limits, drawn) if limits.is_any else _cheapest(compared, drawn)
    found = replace(found, limits=limits)
    left_out = [row for row in known if not any(row is other for other in compared)]
    before = (*_to_narrow(here), *_rough(found.recommended), *_cannot_hold(projections))
    found = replace(found, reasons=(*before, *found.reasons, *_spot_instead(left_out, found, drawn)))
    if found.recommended is None:
        return found
    card_usd = options.card_price_usd if options else None
    more = (
        *_spread_over_work(found.recommended, work),
        *_buy_or_rent(compared, found.recommended, card_usd, drawn),
        *_terms(found.recommended),
        *_needs(compared, found.recommended),
    )
    open_to = [found.recommended, *(chance.machine for chance in found.alternatives)] if found.alternatives else []
    return replace(found, reasons=(*found.reasons, *more), trial=suggested_trial(open_to, here))


def _too_short(here: Projection, limits: Limits, drawn: JointDraws) -> Decision:
    """Return to train here, in one sentence; a limit that even this breaks is said."""
    broken = limits.broken_text(here, drawn)
    sentence = f"Train here: {_time(here)} is too short to be worth moving."
    named = _here_named(here)
    reasons = (f"{named[0].upper()}{named[1:]}: {broken}.",) if broken else ()
    meets = limits.kept(here, drawn) if limits.is_any else None
    return Decision(
        f"the cheapest {limits.text}".rstrip(), here, None, meets, (), sentence, reasons, limits, is_too_short=True
    )


def _cannot_hold(projections: Sequence[Projection]) -> Iterator[str]:
    """Yield that the GPU here has too little memory, which leaves it out of the choice."""
    here = machine_here(projections)
    if here is not None and here.fits is False and here.gpu is not None:
        yield f"The {_short(here)} here ({here.gpu.memory_gb:g} GB) cannot hold the training's peak memory."


def _to_narrow(here: Projection | None) -> Iterator[str]:
    """Yield that the time here is too uncertain to rent by."""
    if here is not None and here.duration_s is not None and here.duration_s.relative_width > _WIDE:
        half = here.duration_s.relative_width / 2
        off_by = fmt.percent(half)
        yield f"First narrow the forecast: the time here may be off by ±{off_by}. Explore with a larger --budget."


def _rough(row: Projection | None) -> Iterator[str]:
    """Yield that a speedup starts from an assumed CPU."""
    if row is not None and row.speedup is not None and row.speedup.known_from.startswith("rough"):
        yield "This is a rough guess: without a GPU here, speeds are known to a factor of five. Explore on a GPU."


# -- Without limits --


def _cheapest(compared: Sequence[Projection], drawn: JointDraws) -> Decision:
    """Return the cheapest to rent, beside the machine here."""
    here = machine_here(compared)
    for goal, rows in _to_choose_from(compared):
        chances = drawn.best(rows, "cost")
        if chances:
            return _cheapest_of(goal, rows, chances, here, drawn)
    if here is None:
        return Decision("the cheapest", None, None, None, (), "No machine's time is known.", ())
    sentence = f"{_train_here(here)}. Nothing that is compared has a price."
    return Decision("the cheapest", here, None, None, (), sentence, ())


def _cheapest_of(
    goal: str, rows: Sequence[Projection], chances: Sequence[Chance], here: Projection | None, drawn: JointDraws
) -> Decision:
    best = chances[0]
    if here is not None and here.cost_basis == "machine":  # its price is all that it costs, as that of those for rent
        own, *others = drawn.best([here, *rows], "cost")
        if own.machine is here:
            reason = f"It is {fmt.chance(own.probability)} likely to cost less than {label(best.machine)}."
            return Decision(goal, here, own.probability, None, tuple(others[:1]), f"{_train_here(here)}.", (reason,))
    n_rows = len(rows)
    if here is not None and here.cost_usd is not None:
        rows = [row for row in rows if _is_worth_moving(here, row, drawn)]
        if not rows:
            least, of_those = fmt.duration(_LEAST_GAIN_S), goal.removeprefix("the cheapest ")
            reason = f"None of those {of_those} is likely to save money, or {least}. The cheapest is "
            reason = f"{reason}{_described(best.machine)}."
            return Decision("the cheapest", here, None, None, (), f"{_train_here(here)}.", (reason,))
        chances = drawn.best(rows, "cost")
        best = chances[0]
    has_winner = best.probability >= WINNER
    alternatives = () if has_winner else shortlist_of(chances)[1:]
    sentence = f"{_action(best.machine)}{_beside_here(here, best.machine)}"
    reasons = tuple(_why(best, chances, goal, has_winner=has_winner, is_alone=n_rows == 1))
    probability = None if len(chances) == 1 else best.probability
    return Decision(goal, best.machine, probability, None, alternatives, sentence, reasons)


def _is_worth_moving(here: Projection, row: Projection, drawn: JointDraws) -> bool:
    """Return True where a machine is likely to cost less than the one here, or to save more than it takes to start."""
    own, there = drawn.of(here, "time"), drawn.of(row, "time")
    saves_money = (drawn.better(row, here, "cost") or 0.0) > _EVEN
    return saves_money or own is None or there is None or float((own - there > _LEAST_GAIN_S).mean()) > _EVEN


def _to_choose_from(compared: Sequence[Projection]) -> Iterator[tuple[str, list[Projection]]]:
    """Yield the machines for rent, those first that are to be had without further ado."""
    yield "the cheapest to rent now", [row for row in compared if row.is_for_rent_now]
    yield from _with_terms(compared)


def _with_terms(rows: Sequence[Projection]) -> Iterator[tuple[str, list[Projection]]]:
    """Yield the machines with a minimum term: those sold whole, of which less is wanted, and those to be reserved."""
    whole = [row for row in rows if row.is_without_term and not row.is_for_rent_now]
    yield "the cheapest to rent now, as whole machines", whole
    yield "the cheapest to reserve", [row for row in rows if row.obtained == "reserved"]


def _why(best: Chance, chances: Sequence[Chance], goal: str, *, has_winner: bool, is_alone: bool) -> Iterator[str]:
    if len(chances) == 1:
        only = f"the only one {goal.removeprefix('the cheapest ')} that"
        yield (
            f"It is {only} is compared." if is_alone else f"It is {only} is likely to save money, or time worth a move."
        )
    elif has_winner:
        rival = chances[1].machine
        yield f"It is {goal} ({fmt.chance(best.probability)} likely). Next: {_described(rival)}."
    else:
        names = _named(shortlist_of(chances))
        yield f"No clear winner: {goal} is {names}."


def _beside_here(here: Projection | None, rented: Projection) -> str:
    """Say what the machine here asks for instead, where that is no more money; else nothing."""
    if here is None or rented.payable_usd is None:
        return "."
    if here.cost_usd is None:
        energy = f", {fmt.energy(here.energy_kwh.point)} of electricity at an unknown price" if here.energy_kwh else ""
        return f"; or {_lowered(_train_here(here))}{energy}."
    if here.cost_basis == "electricity" and here.cost_usd.point < rented.payable_usd.point:
        return f"; or {_lowered(_train_here(here))}."
    return "."


def _lowered(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


# -- With limits --


def _within(compared: Sequence[Projection], limits: Limits, drawn: JointDraws) -> Decision:
    """Return the cheapest of those that keep the limits with 90%; without one, the one that is most likely to."""
    goal = f"the cheapest {limits.text}"
    kept = [(row, probability) for row in compared if (probability := limits.kept(row, drawn)) is not None]
    meets = {id(row): probability for row, probability in kept}
    to_have = [row for row, _ in kept if row.is_to_be_had]
    at_once = [row for row in to_have if row.is_local or row.is_for_rent_now]
    (_, whole), (_, reserved) = _with_terms(to_have)
    likeliest = sorted((row for row in to_have if row.obtained != "reserved"), key=lambda row: -meets[id(row)])
    is_hope = bool(likeliest) and meets[id(likeliest[0])] >= _EVEN
    for rows in (at_once, whole) if is_hope else (at_once, whole, reserved):
        sure = [row for row in rows if meets[id(row)] >= WINNER]
        chances = drawn.best(sure, "cost") or tuple(Chance(row, 1.0 / len(sure)) for row in sure)
        if chances:
            best = chances[0]
            if (unpriced := _unpriced_here(compared, best.machine, limits, drawn, goal)) is not None:
                return unpriced
            probability = meets[id(best.machine)]
            sentence = f"{_action(best.machine)}, {limits.text} ({fmt.chance(probability)} likely)."
            only = len(chances) == 1
            is_settled = only or best.probability >= WINNER
            reasons = _other_reasons(best.machine, chances, compared, limits, drawn, is_settled=is_settled)
            return Decision(
                goal,
                best.machine,
                None if only else best.probability,
                probability,
                tuple(c for c in chances[1:4] if c.probability >= _LEAST_HOPE),
                sentence,
                tuple(reasons),
            )
    if is_hope:
        surer = [row for row in reserved if meets[id(row)] > meets[id(likeliest[0])]]
        return _most_likely(goal, likeliest, surer, meets, compared, limits, drawn)
    return _most_likely(goal, sorted(to_have, key=lambda row: -meets[id(row)]), (), meets, compared, limits, drawn)


def _unpriced_here(
    compared: Sequence[Projection], rented: Projection, limits: Limits, drawn: JointDraws, goal: str
) -> Decision | None:
    """Return to train here where only the price of its electricity is unknown, and no price could make it dearer."""
    here = machine_here(compared)
    if here is None or here.cost_usd is not None or here.energy_kwh is None or rented.payable_usd is None:
        return None
    in_time = limits.time_alone.kept(here, drawn) or 0.0
    dearest_usd = here.energy_kwh.upper * _DEAREST_USD_PER_KWH
    if in_time < WINNER or dearest_usd > min(rented.payable_usd.point, limits.max_cost_usd or math.inf):
        return None
    per_kwh = fmt.money(rented.payable_usd.point / here.energy_kwh.point)
    sentence = f"{_train_here(here)}, {limits.text}."
    reason = (
        f"Its {fmt.energy(here.energy_kwh.point)} of electricity cost less than {_described(rented)}, unless a kWh "
        f"costs over {per_kwh}."
    )
    return Decision(goal, here, None, in_time, (), sentence, (reason,))


def _most_likely(
    goal: str,
    rows: Sequence[Projection],
    surer: Sequence[Projection],
    meets: Mapping[int, float],
    compared: Sequence[Projection],
    limits: Limits,
    drawn: JointDraws,
) -> Decision:
    """Return the first of machines of which none is sure to keep the limits, and those surer that are not chosen."""
    if not rows or meets[id(rows[0])] < _LEAST_HOPE:
        sentence = f"Nothing compared finishes {limits.text}."
        reasons = tuple(_with_one_limit(compared, limits, drawn)) or tuple(_nearest(compared, limits))
        return Decision(goal, None, None, None, (), sentence, reasons)
    best, *others = (Chance(row, meets[id(row)]) for row in rows[:4] if meets[id(row)] >= _LEAST_HOPE)
    reserved = tuple(Chance(row, meets[id(row)]) for row in surer)
    sentence = (
        f"Nothing compared is {fmt.chance(WINNER)} sure to finish {limits.text}. The best chance "
        f"({fmt.chance(best.probability)}): {_lowered(_action(best.machine))}."
    )
    why = [f"Surer, but with a minimum term to pay: {_named(reserved)}."] if reserved else []
    why += _other_reasons(best.machine, (best, *others, *reserved), compared, limits, drawn)
    return Decision(goal, best.machine, None, best.probability, tuple(others), sentence, tuple(why))


def _other_reasons(
    best: Projection,
    chances: Sequence[Chance],
    compared: Sequence[Projection],
    limits: Limits,
    drawn: JointDraws,
    *,
    is_settled: bool = True,
) -> Iterator[str]:
    """Yield why the others are not chosen: one sentence a reason, with the machines that it is of."""
    if not is_settled:
        names = _named(shortlist_of(chances))
        yield f"No clear winner: the cheapest {limits.text} is {names}."
    rented = drawn.best([c.machine for c in chances if c.machine.is_rented], "cost")
    if best.is_local and rented:
        yield f"The cheapest to rent {limits.text} is {_described(rented[0].machine)}."
    here = machine_here(compared)
    if here is not None and here is not best and here.cost_usd is None and not limits.broken_text(here, drawn):
        yield f"{_train_here(here)}, {limits.text} too, but what that costs is not known, so it is not compared."
    by_reason: dict[str, list[str]] = {}
    shown = {id(c.machine) for c in chances} | {id(best)}
    # Those to be had without further ado first: a reader asks of them why they are not chosen.
    for row in sorted(compared, key=lambda row: not (row.is_local or row.is_for_rent_now)):
        if id(row) in shown:
            continue
        reason = limits.broken_text(row, drawn)
        if not reason:
            reason = {"no offer": "nobody rents it out", "reserved": "can only be reserved"}.get(row.obtained, "")
        if reason:
            by_reason.setdefault(reason, []).append(_here_named(row) if row.is_local else label(row))
    for reason, machines in list(by_reason.items())[:_MOST_REASONS]:
        names = ", ".join(machines)
        yield f"{names[0].upper()}{names[1:]}: {reason}."


def _with_one_limit(compared: Sequence[Projection], limits: Limits, drawn: JointDraws) -> Iterator[str]:
    """Yield what to do with either of two limits alone."""
    if limits.within_s is None or limits.max_cost_usd is None:
        return
    for only in (limits.time_alone, Limits(max_cost_usd=limits.max_cost_usd)):
        found = _within(compared, only, drawn)
        if found.recommended is not None:
            start = f"{only.text[0].upper()}{only.text[1:]} alone"
            yield f"{start}: {_lowered(found.sentence.replace(f', {only.text}', ''))}"


def _nearest(compared: Sequence[Projection], limits: Limits) -> Iterator[str]:
    if limits.max_cost_usd is not None:
        unpriced = [_short(row) if row.is_local else label(row) for row in compared if row.cost_usd is None]
        if unpriced:
            yield f"{', '.join(unpriced)}: its cost is not known."
    held = [row for row in compared if limits.is_broken_by_term(row)]  # else they would seem to keep the limits
    if held:
        yield f"{', '.join(map(label, held))}: {TERM_COSTS_MORE}."
        compared = [row for row in compared if not limits.is_broken_by_term(row)]
    fastest = min(compared, key=lambda row: row.duration_s.point if row.duration_s else math.inf, default=None)
    priced = [row for row in compared if row.cost_usd is not None]
    cheapest = min(priced, key=lambda row: row.cost_usd.point if row.cost_usd else math.inf, default=None)
    if fastest is not None:
        yield f"{'Without a minimum term, the' if held else 'The'} fastest is {_described(fastest)}."
    if cheapest is not None and cheapest is not fastest:
        yield f"The cheapest is {_described(cheapest)}."


# -- What else is to be said --


def _spread_over_work(row: Projection, work: Work | None) -> Iterator[str]:
    """Yield what a million or a thousand samples, tokens or steps cost and emit; nothing where there are fewer."""
    part = next(((count, name) for count, name in _PARTS if work is not None and work.count >= count), None)
    if work is None or part is None:
        return
    count, name = part
    texts = []
    if (cost := row.payable_usd) is not None:
        spent = " of electricity" if row.cost_basis == "electricity" else ""
        texts.append(f"cost {amount_text('cost', cost.times(count / work.count, 'USD'))}{spent}")
    if row.emissions_kgco2e is not None:
        texts.append(f"emit {amount_text('co2e', row.emissions_kgco2e.times(count / work.count, 'kgCO2e'))} CO2e")
    if texts:
        yield f"{name} {work.unit}s {' and '.join(texts)}."


def _buy_or_rent(
    compared: Sequence[Projection], rented: Projection, card_usd: float | None, drawn: JointDraws
) -> Iterator[str]:
    """Yield after how many hours of training the cards here have cost less than renting, and their electricity.

    Where that is not known, the hours are without it, and the sentence says so: they are then the fewest.
    """
    import numpy as np

    here = machine_here(compared)
    if card_usd is None or here is None:
        return
    if here.gpu is None:
        yield "Buying a card is not compared: which GPU is here is not known."
        return
    if rented.is_local:
        chances = drawn.best([row for row in compared if row.is_for_rent_now], "cost")
        if not chances:
            return
        rented = chances[0].machine
    there, own, time_s = drawn.of(rented, "cost"), drawn.of(here, "cost"), drawn.of(here, "time")
    if there is None or time_s is None:
        return
    is_counted = own is not None and here.cost_basis == "electricity"
    saved_usd = there - own if own is not None and is_counted else there
    cards = f"{fmt.plural(here.n_gpus, 'card')} at {fmt.money(card_usd)} each" if here.n_gpus > 1 else "the card"
    if np.median(saved_usd) <= 0:
        yield f"Buying {cards} never pays against {label(rented)}: its electricity alone costs more."
        return
    buying = f"Buying {cards}" if is_counted else f"Without electricity, {_why_no_electricity(here)}, buying {cards}"
    with np.errstate(divide="ignore"):
        hours = np.where(saved_usd > 0, here.n_gpus * card_usd / saved_usd * h_from_s(1.0) * time_s, math.inf)
    tail = (1 - PROJECTION_LEVEL) / 2
    lower, point, upper = (float(h) for h in np.quantile(hours, (tail, 0.5, 1 - tail), method="nearest"))
    ends = f"{fmt.significant(lower, 2)}–{fmt.significant(upper, 2) if math.isfinite(upper) else 'never'}"
    hours_text = f"{fmt.significant(point, 2)} h of training here [{ends}]"
    more = "" if is_counted else "; with it, after more"
    trainings = point / float(h_from_s(1.0) * np.median(time_s))
    as_trainings = f", {fmt.significant(trainings, 2)} such trainings" if math.isfinite(trainings) else ""
    yield f"{buying} costs less than renting {label(rented)} after {hours_text}{as_trainings}{more}."


def _why_no_electricity(here: Projection) -> str:
    if here.cost_basis == "machine":
        return "which is in the price of the machine here"
    return "whose price here is not known" if here.energy_kwh is not None else "which is not known here"


def _terms(row: Projection) -> Iterator[str]:
    """Yield what an offer asks for besides its price: a minimum term, a whole machine, or to bear being taken away."""
    if row.obtained == "spot":
        yield "It is a spot offer, which may be taken away: the time and money that this costs are not in."
    if row.obtained == "reserved":
        used = f" The training itself uses {amount_text('cost', row.cost_usd)} of that." if _is_of_term(row) else ""
        yield f"It can only be reserved; the minimum term of {MINIMUM_TERM_DAYS} d is an assumption.{used}"
    elif row.is_rented and row.billed_gpus > row.n_gpus:
        yield f"It is rented as a whole machine alone: all {row.billed_gpus} GPUs are paid for, and used."


def _needs(compared: Sequence[Projection], row: Projection) -> Iterator[str]:
    """Yield what the code must do on a machine that it need not do here."""
    here = machine_here(compared)
    if here is not None and here.n_gpus == 1 and row.billed_gpus > 1:
        yield f"The code must train on {row.billed_gpus} GPUs at once."
    own = here.gpu.vendor if here is not None and here.gpu is not None else ""
    if row.gpu is not None:
        yield from (f"{note[0].upper()}{note[1:]}." for note in software_notes(own, row.gpu.vendor))


def _spot_instead(offers: Sequence[Projection], found: Decision, drawn: JointDraws) -> Iterator[str]:
    """Yield the cheapest spot offer where it is likely to cost less than what is recommended, or alone may do."""
    if found.limits.is_any:
        offers = [row for row in offers if (found.limits.kept(row, drawn) or 0.0) >= _EVEN]
    chances = drawn.best(offers, "cost")
    if not chances:
        return
    spot, start = chances[0].machine, "Only a spot offer does"
    if found.recommended is not None:
        if (drawn.better(spot, found.recommended, "cost") or 0.0) < _EVEN:
            return
        start = "A spot offer is cheaper"
    yield f"{start}: {_described(spot)}. It may be taken away, and the time and money that this costs are not in."


def _named(chances: Sequence[Chance]) -> str:
    return " or ".join(f"{label(c.machine)} ({fmt.chance(c.probability)})" for c in chances)


def _action(row: Projection) -> str:
    return _train_here(row) if row.is_local else f"{_verb(row)} {_described(row, names_usual=True)}"


def _verb(row: Projection) -> str:
    return "Reserve" if row.obtained == "reserved" else "Rent"


def _train_here(row: Projection) -> str:
    spent = ""
    if row.cost_usd is not None:
        own = " of electricity" if row.cost_basis == "electricity" else ""
        spent = f", {amount_text('cost', row.cost_usd)}{own}"
    on = f" on your {_short(row)}" if row.gpu is not None else ""
    return f"Train here{on}: {amount_text('time', row.duration_s)}{spent}"


def _described(row: Projection, *, names_usual: bool = False) -> str:
    """Return ``1 × L40S: $25 [15–41], 16 h``; ``names_usual``: the usual provider too, ``1 × L40S at Crusoe Cloud``."""
    if row.is_local:
        return f"here: {amount_text('cost', row.cost_usd)}, {_time(row)}"
    is_usual = row.offer is not None and row.offer.provider == DEFAULT_PROVIDER
    at = f" at {DEFAULT_PROVIDER_NAME}" if names_usual and is_usual else ""
    cost = amount_text("cost", value_of(row, "cost"))
    if _is_of_term(row):
        cost = f"at least {cost} for a minimum term of {MINIMUM_TERM_DAYS} d"
    return f"{label(row)}{at}: {cost}, {amount_text('time', row.duration_s) if names_usual else _time(row)}"


def _is_of_term(row: Projection) -> bool:
    """Return True for a reservation whose minimum term costs more than the training."""
    return row.cost_usd is not None and (row.minimum_term_usd or 0.0) > row.cost_usd.point


def _here_named(row: Projection) -> str:
    return f"the {_short(row)} here" if row.gpu is not None else "this machine"


def _time(row: Projection) -> str:
    return fmt.duration(row.duration_s.point) if row.duration_s else fmt.UNKNOWN


def _short(row: Projection) -> str:
    name = fmt.shortened(row.name, 60).removeprefix("GeForce ").removeprefix("Instinct ")
    return f"{row.n_gpus} × {name}" if row.n_gpus > 1 else name
