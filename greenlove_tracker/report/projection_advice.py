"""Where to train, in words: what to do, what is faster at which price, and why other machines fall out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from greenlove_tracker import format as fmt
from greenlove_tracker.forecasting import Estimate
from greenlove_tracker.projection.catalogue import software_notes
from greenlove_tracker.projection.decision import Decision, Faster, LeftOut, PartOfWork
from greenlove_tracker.projection.listings import DEFAULT_PROVIDER, DEFAULT_PROVIDER_NAME
from greenlove_tracker.projection.ranking import (
    WINNER,
    Chance,
    Criterion,
    Limits,
    Pair,
    RankingVerdict,
    Saving,
    machine_here,
    value_of,
)
from greenlove_tracker.projection.types import MINIMUM_TERM_DAYS, Projection

_MOST_REASONS = 4  # of machines that fall out
_WIDE = 2.0  # relative width of the time here from which it is to be narrowed before anything is rented
_TOLD_APART = 0.6  # below, which of two is better is a coin toss
_PARTS = {1_000_000: "A million", 1_000: "A thousand"}
_LEFT_OUT = {
    "term": f"can only be reserved, and a minimum term of {MINIMUM_TERM_DAYS} d (assumed) alone costs more",
    "unknown cost": "its cost is not known",
}
_COMPARATIVES: dict[Criterion, str] = {"cost": "cheaper", "time": "faster", "co2e": "greener"}
_AMONG = {"all": "", "to rent now": " to rent now", "to rent as whole machines": " to rent as whole machines"}


def advice_sentence(decision: Decision) -> str:
    """Return what to do."""
    row, limits = decision.recommended, limits_text(decision.limits)
    if row is None:
        return f"Nothing compared finishes {limits}." if limits else "No machine's time is known."
    if decision.verdict == "too short":
        return f"Train here: {_time(row)} is too short to be worth moving."
    likely = f" ({fmt.chance(decision.meets)} likely)" if decision.meets is not None else ""
    if decision.verdict == "best chance":
        action = _action(row)
        return (
            f"Nothing compared is {fmt.chance(WINNER)} sure to finish {limits}. The best chance{likely}: "
            f"{action[0].lower()}{action[1:]}: {_takes(row)}."
        )
    within = f", {limits}{likely}" if limits else ""
    return " ".join(filter(None, (f"{_action(row)}{within}: {_takes(row)}.", _faster(decision.faster, row))))


def _faster(faster: Faster | None, chosen: Projection) -> str:
    if faster is None:
        return ""
    row, more = faster.machine, "for no more"
    if faster.more_usd > 0:
        most = "at most " if chosen.cost_usd is None else ""
        more = f"for {most}{fmt.money(faster.more_usd)} more"
    time, cost = amount_text("time", row.duration_s), fmt.money(row.cost_usd.point) if row.cost_usd else fmt.UNKNOWN
    return f"Faster: {_at(row)}, {time}, {cost}: {fmt.duration(faster.saved_s)} sooner {more}."


def advice_reasons(decision: Decision, projections: Sequence[Projection]) -> Iterator[str]:
    """Yield what else is to be known before it is done: of the machine here, of others, and of what is asked for."""
    here, row, limits = machine_here(projections), decision.recommended, decision.limits
    if here is not None and here.duration_s is not None and here.duration_s.relative_width > _WIDE:
        off_by = fmt.percent(here.duration_s.relative_width / 2)
        yield f"First narrow the forecast: the time here may be off by ±{off_by}. Explore with a larger --budget."
    named = [one for one in (row, decision.faster.machine if decision.faster else None) if one is not None]
    if any(one.speedup is not None and one.speedup.known_from.startswith("rough") for one in named):
        yield "This is a rough guess: without a GPU here, speeds are known to a factor of five. Explore on a GPU."
    if here is not None and here.fits is False and here.gpu is not None:
        yield f"The {_short(here)} here ({here.gpu.memory_gb:g} GB) cannot hold the training's peak memory."
    if decision.verdict == "too short" and decision.meets is not None and decision.meets < WINNER:
        yield f"That it finishes {limits_text(limits)} is {fmt.chance(decision.meets)} likely."
    yield from _left_out(decision.left_out, limits)
    for near, what in zip(
        decision.nearest, ("fastest", "cheapest") if limits.within_s else ("cheapest",), strict=False
    ):
        yield f"The {what} is {'here' if near.is_local else _at(near)}: {_takes(near)}."
    if decision.spot is not None:
        start = "Only a spot offer does" if row is None else "A spot offer is cheaper"
        terms = "It may be taken away, and the time and money that this costs are not in"
        yield f"{start}: {_at(decision.spot)}: {_takes(decision.spot)}. {terms}."
    if decision.part is not None and row is not None:
        yield from _part(decision.part, is_electricity=row.cost_basis == "electricity")
    if row is not None:
        yield from _terms(row)
    for one in named:
        yield from _needs(here, one)


def _left_out(machines: Sequence[LeftOut], limits: Limits) -> Iterator[str]:
    """Yield one sentence a reason, with the machines that it is of; those first that are to be had without ado."""
    by_reason: dict[str, list[str]] = {}
    for one in sorted(machines, key=lambda one: not (one.machine.is_local or one.machine.is_for_rent_now)):
        reason = _LEFT_OUT.get(one.why) or _breaks(one, limits)
        named = f"the {_short(one.machine)} here" if one.machine.is_local else label(one.machine)
        by_reason.setdefault(reason, []).append(named)
    for reason, machines_text in list(by_reason.items())[:_MOST_REASONS]:
        names = ", ".join(machines_text)
        yield f"{names[0].upper()}{names[1:]}: {reason}."


def _breaks(one: LeftOut, limits: Limits) -> str:
    criterion: Criterion = "time" if one.why == "time" else "cost"
    verb, value = ("take", one.machine.duration_s) if criterion == "time" else ("cost", one.machine.payable_usd)
    if value is not None and value.lower == value.upper:
        return f"{verb}s {amount_text(criterion, value)}"
    limit = fmt.duration(limits.within_s or 0.0) if criterion == "time" else fmt.money(limits.max_cost_usd or 0.0)
    return f"{fmt.chance(one.probability or 0.0)} likely to {verb} over {limit} ({fmt.chance(1 - WINNER)} is accepted)"


def _part(part: PartOfWork, *, is_electricity: bool) -> Iterator[str]:
    texts = []
    if part.cost_usd is not None:
        texts.append(f"cost {amount_text('cost', part.cost_usd)}{' of electricity' if is_electricity else ''}")
    if part.emissions_kgco2e is not None:
        texts.append(f"emit {amount_text('co2e', part.emissions_kgco2e)} CO2e")
    if texts:
        yield f"{_PARTS[part.count]} {part.unit}s {' and '.join(texts)}."


def _terms(row: Projection) -> Iterator[str]:
    """Yield what an offer asks for besides its price: a minimum term, a whole machine, or to bear being taken away."""
    if row.obtained == "spot":
        yield "It is a spot offer, which may be taken away: the time and money that this costs are not in."
    if row.obtained == "reserved":
        used = f" The training itself uses {amount_text('cost', row.cost_usd)} of that." if _is_of_term(row) else ""
        yield f"It can only be reserved; the minimum term of {MINIMUM_TERM_DAYS} d is an assumption.{used}"
    elif row.is_rented and row.billed_gpus > row.n_gpus:
        yield f"It is rented as a whole machine alone: all {row.billed_gpus} GPUs are paid for, and used."


def _needs(here: Projection | None, row: Projection) -> Iterator[str]:
    """Yield what the code must do on a machine that it need not do here."""
    if here is not None and here.n_gpus == 1 and row.billed_gpus > 1:
        yield f"The code must train on {row.billed_gpus} GPUs at once."
    own = here.gpu.vendor if here is not None and here.gpu is not None else ""
    if row.gpu is not None:
        yield from (f"{note[0].upper()}{note[1:]}." for note in software_notes(own, row.gpu.vendor))


def _action(row: Projection) -> str:
    if row.is_local:
        return "Train here"
    return f"{'Reserve' if row.obtained == 'reserved' else 'Rent'} {_at(row)}"


def _at(row: Projection) -> str:
    """Return ``1 × L40S at Crusoe Cloud``; another provider and a spot offer stand in the label."""
    is_usual = row.offer is not None and row.offer.provider == DEFAULT_PROVIDER
    return f"{label(row)} at {DEFAULT_PROVIDER_NAME}" if is_usual else label(row)


def _takes(row: Projection) -> str:
    """Return time and cost: ``16 h, $25 [15–41]``."""
    cost = amount_text("cost", row.payable_usd)
    if row.is_local and row.cost_usd is None:
        energy = f"{fmt.energy(row.energy_kwh.point)} of electricity " if row.energy_kwh else ""
        cost = f"{energy}at an unknown {'price' if energy else 'cost'}"
    elif row.cost_basis == "electricity":
        cost = f"{cost} of electricity"
    elif _is_of_term(row):
        cost = f"at least {cost} for a minimum term of {MINIMUM_TERM_DAYS} d"
    return f"{amount_text('time', row.duration_s)}, {cost}"


def _is_of_term(row: Projection) -> bool:
    """Return True for a reservation whose minimum term costs more than the training."""
    return row.cost_usd is not None and (row.minimum_term_usd or 0.0) > row.cost_usd.point


def _time(row: Projection) -> str:
    return fmt.duration(row.duration_s.point) if row.duration_s else fmt.UNKNOWN


def _short(row: Projection) -> str:
    name = "machine" if row.gpu is None else short_name(row)
    return f"{row.n_gpus} × {name}" if row.n_gpus > 1 else name


def short_name(row: Projection) -> str:
    """Return the GPU without its maker's brand, in one line; of a log it may be any text."""
    return fmt.shortened(row.name, 60).removeprefix("GeForce ").removeprefix("Instinct ")


def label(row: Projection) -> str:
    """Return ``8 × H200 SXM``, with another provider than the usual one and a spot offer behind it, or ``here``."""
    if row.is_local:
        return "here"
    provider = row.offer.provider if row.offer and row.offer.provider != DEFAULT_PROVIDER else ""
    of = ", ".join(filter(None, (provider, "spot" if row.obtained == "spot" else "")))
    return f"{row.billed_gpus} × {row.name}" + (f" ({of})" if of else "")


def limits_text(limits: Limits) -> str:
    """Return ``within 2 d for at most $500``; empty without limits."""
    parts = [f"within {fmt.duration(limits.within_s)}"] if limits.within_s is not None else []
    parts += [f"for at most {fmt.money(limits.max_cost_usd)}"] if limits.max_cost_usd is not None else []
    return " ".join(parts)


def amount_text(criterion: Criterion, value: Estimate | None) -> str:
    """Write what a criterion compares, with its range where it has one."""
    if value is None:
        return fmt.UNKNOWN
    write = {"cost": fmt.money, "time": fmt.duration, "co2e": fmt.mass}[criterion]
    return write(value.point) if value.lower == value.upper else fmt.interval(value, write)


# -- Verdicts on all machines --


def verdict_text(verdict: RankingVerdict) -> str:
    """Return the winner with its amount, or those that may be the best."""
    basis = ", location-based" if verdict.criterion == "co2e" else ""
    if verdict.winner is None:
        return f"{' or '.join(_named(verdict.criterion, one) for one in verdict.shortlist)}{basis}"
    row, is_cost = verdict.winner, verdict.criterion == "cost"
    spent = " of electricity alone" if is_cost and row.cost_basis == "electricity" else ""
    amount = amount_text(verdict.criterion, value_of(row, verdict.criterion))
    return (
        f"{_with_term(verdict.criterion, row)}, {amount}{spent}{basis} ({fmt.chance(verdict.chances[0].probability)})"
    )


def _named(criterion: Criterion, chance: Chance) -> str:
    return f"{_with_term(criterion, chance.machine)} ({fmt.chance(chance.probability)})"


def _with_term(criterion: Criterion, row: Projection) -> str:
    """Return the machine, and that a price is one of a reservation."""
    return f"{label(row)}, reserved" if criterion == "cost" and row.obtained == "reserved" else label(row)


def pairs_text(verdicts: Sequence[RankingVerdict | None]) -> str:
    """Return ``faster: H200 rather than H100 (75%) · …``: the first pair of each that says more than its verdict."""
    parts = []
    for verdict in verdicts:
        pair = verdict.pairs[0] if verdict is not None and verdict.pairs else None
        if verdict is None or pair is None or pair.probability < _TOLD_APART:
            continue
        if fmt.chance(pair.probability) != fmt.chance(verdict.chances[0].probability):
            parts.append(f"{_COMPARATIVES[verdict.criterion]}{_AMONG[verdict.among]}: {_pair_text(pair)}")
    return " · ".join(parts)


def _pair_text(pair: Pair) -> str:
    """Return ``H200 SXM rather than H100 SXM5 80GB (75%)``; numbers of GPUs where they differ."""
    rows = (pair.first, pair.second)
    labels = [label(row) for row in rows]
    is_plain = all(text == f"{pair.first.billed_gpus} × {row.name}" for text, row in zip(labels, rows, strict=True))
    first, second = (row.name for row in rows) if is_plain else labels
    return f"{first} rather than {second} ({fmt.chance(pair.probability)})"


def saving_text(saving: Saving) -> str:
    """Return what the best rented machine saves against the one here, and which emissions that rests on."""
    criterion, amount, name = saving.criterion, saving.amount, label(saving.machine)
    basis = ", location-based" if criterion == "co2e" else ""
    if amount.lower <= 0 <= amount.upper:
        noun = {"cost": "money", "time": "time", "co2e": "CO2e"}[criterion]
        return f"{name} saves {noun} against here with {fmt.chance(saving.probability)}{basis}"
    low, high = sorted((abs(amount.lower), abs(amount.upper)))
    size = Estimate(abs(amount.point), low, high, amount.level, amount.unit, amount.kind)
    shown = amount_text(criterion, size) + (" CO2e" if criterion == "co2e" else "")
    if amount.point > 0:
        return f"{name} saves {shown} against here{basis}"
    verb = {"cost": "costs", "time": "takes", "co2e": "emits"}[criterion]
    return f"{name} {verb} {shown} more than here{basis}"
