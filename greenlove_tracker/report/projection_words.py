"""Where to train, in words: what to do, what is faster at which price, and what the numbers rest on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date

from greenlove_tracker import format as fmt
from greenlove_tracker.forecasting import Estimate
from greenlove_tracker.projection.catalogue import software_notes
from greenlove_tracker.projection.decision import Decision, Faster, LeftOut, Limits, machine_here
from greenlove_tracker.projection.listings import DEFAULT_PROVIDER, DEFAULT_PROVIDER_NAME
from greenlove_tracker.projection.types import MINIMUM_TERM_DAYS, Projection
from greenlove_tracker.units import SECONDS_PER_HOUR

_WIDE = 2.0  # relative width of the time here from which it is to be narrowed before anything is rented
_NARROW = 0.2  # relative width of a range up to which three digits say something
_LEFT_OUT = {
    "term": f"only to reserve, and a minimum term of {MINIMUM_TERM_DAYS} d (assumed) alone costs more",
    "unknown cost": "cost unknown",
}

_NOTES = (
    "Ranges hold 90%, if your training is like the benchmarks that the speeds come from.",
    "CO2e is location-based. A provider's market-based claim stands beside it, and nothing is ranked by it.",
    "Not counted: storage, transfer, set-up, making of the hardware, a machine of your own. Rented = scope 3 for you.",
)

# -- What to do --


def advice(decision: Decision) -> str:
    """Return what to do, and what is faster at which price."""
    row, limits = decision.recommended, limits_text(decision.limits)
    if row is None:
        return f"Nothing compared finishes {limits}." if limits else "No machine's time is known."
    if decision.verdict == "too short":
        return f"Train here: {time_text(row.duration_s)} is too short to be worth moving."
    likely = f" ({fmt.chance(decision.meets)} likely)" if decision.meets is not None else ""
    do = "Train here" if row.is_local else f"{'Reserve' if row.obtained == 'reserved' else 'Rent'} {at(row)}"
    if decision.verdict == "best chance":
        do = f"{do[0].lower()}{do[1:]}"
        return f"Nothing compared surely finishes {limits}. The best chance{likely}: {do}, {takes(row)}."
    return f"{do}{f', {limits}' if limits else ''}{likely}: {takes(row)}.{_faster(decision.faster)}"


def _faster(faster: Faster | None) -> str:
    if faster is None:
        return ""
    row, more = faster.machine, f"for {fmt.money(-faster.more_usd)} less"
    if faster.more_usd >= 0:
        an_hour = faster.more_usd / faster.saved_s * SECONDS_PER_HOUR
        more = f"for {fmt.money(faster.more_usd)} more"
        more += f" ({fmt.money(an_hour)} an hour saved)" if faster.saved_s > SECONDS_PER_HOUR else ""
    cost = fmt.money(row.cost_usd.point) if row.cost_usd else fmt.UNKNOWN
    scale = fmt.time_scale(faster.saved_s)
    sooner = f"{fmt.significant(scale.value(faster.saved_s), 2)} {scale.unit} sooner"
    return f" Faster: {at(row)}, {time_text(row.duration_s)}, {cost}: {sooner} {more}."


def takes(row: Projection) -> str:
    """Return time and cost: ``16 h [10–25], $25``; the range of the cost stands in the table."""
    cost = fmt.money(row.payable_usd.point) if row.payable_usd else fmt.UNKNOWN
    if row.is_local and row.cost_usd is None:
        energy = f"{fmt.energy(row.energy_kwh.point)} of electricity " if row.energy_kwh else ""
        cost = f"{energy}at an unknown {'price' if energy else 'cost'}"
    elif row.cost_basis == "electricity":
        cost = f"{cost} of electricity"
    elif row.cost_usd is not None and (row.minimum_term_usd or 0.0) > row.cost_usd.point:
        cost = f"at least {cost} for a minimum term of {MINIMUM_TERM_DAYS} d"
    return f"{time_text(row.duration_s)}, {cost}"


def advice_reasons(decision: Decision, rows: Sequence[Projection]) -> Iterator[str]:
    """Yield what else is to be known before it is done: of the machine here, of others, and of what is asked for."""
    here, row = machine_here(rows), decision.recommended
    if here is not None and here.duration_s is not None and here.duration_s.relative_width > _WIDE:
        off_by = fmt.percent(here.duration_s.relative_width / 2)
        yield f"First narrow the forecast: the time here may be off by ±{off_by}. Explore with a larger --budget."
    named = [one for one in (row, decision.faster.machine if decision.faster else None) if one is not None]
    if any(one.speedup is not None and one.speedup.known_from.startswith("rough") for one in named):
        yield "This is a rough guess: without a GPU here, speeds are known to a factor of five. Explore on a GPU."
    if here is not None and here.fits is False and here.gpu is not None:
        yield f"The {short_name(here)} here ({here.gpu.memory_gb:g} GB) cannot hold the training's peak memory."
    to_have = [one for one in rows if one.is_compared and one.is_to_be_had and one.duration_s is not None]
    if row is None and to_have:
        fastest = min(to_have, key=lambda one: one.duration_s.point if one.duration_s else 0.0)
        yield f"The fastest is {at(fastest)}: {takes(fastest)}."
    if decision.spot is not None:
        yield f"A spot offer is cheaper: {at(decision.spot)}, {takes(decision.spot)}, without what its loss would cost."
    for one in named:
        yield from _terms(one)
        if here is not None and here.n_gpus == 1 and one.billed_gpus > 1:
            yield f"The code must train on {one.billed_gpus} GPUs at once."
        own = here.gpu.vendor if here is not None and here.gpu is not None else ""
        yield from (sentence(note) for note in (software_notes(own, one.gpu.vendor) if one.gpu else ()))


def _terms(row: Projection) -> Iterator[str]:
    """Yield what an offer asks for besides its price: a minimum term, a whole machine, or to bear being taken away."""
    if row.obtained == "spot":
        yield "It is a spot offer, which may be taken away: what that costs is not in."
    if row.obtained == "reserved":
        yield f"It can only be reserved; the minimum term of {MINIMUM_TERM_DAYS} d is an assumption."
    elif row.is_rented and row.billed_gpus > row.n_gpus:
        yield f"It is rented as a whole machine alone: all {row.billed_gpus} GPUs are paid for, and used."


def left_out(machines: Sequence[LeftOut], limits: Limits) -> Iterator[str]:
    """Yield one sentence a reason, with the machines that it is of; those first that are to be had without ado."""
    by_reason: dict[str, list[str]] = {}
    for one in sorted(machines, key=lambda one: not (one.machine.is_local or one.machine.is_for_rent_now)):
        limit = fmt.duration(limits.within_s) if one.why == "time" else fmt.money(limits.max_cost_usd)
        verb = "take" if one.why == "time" else "cost"
        likely = f"{fmt.chance(one.probability or 0.0)} likely to {verb} over {limit}"
        by_reason.setdefault(_LEFT_OUT.get(one.why, likely), []).append(label(one.machine))
    yield from (sentence(f"{', '.join(names)}: {reason}") for reason, names in by_reason.items())


def limits_text(limits: Limits) -> str:
    """Return ``within 2 d for at most $500``; empty without limits."""
    parts = [f"within {fmt.duration(limits.within_s)}"] if limits.within_s is not None else []
    parts += [f"for at most {fmt.money(limits.max_cost_usd)}"] if limits.max_cost_usd is not None else []
    return " ".join(parts)


# -- Machines --


def short_name(row: Projection) -> str:
    """Return the GPU without its maker's brand, in one line; of a log it may be any text."""
    return fmt.shortened(row.name, 60).removeprefix("GeForce ").removeprefix("Instinct ")


def label(row: Projection) -> str:
    """Return ``8 × H200 SXM (lambda, reserved)``: who rents it out, but for the usual one, and how it is obtained."""
    if row.is_local:
        is_nameless = row.gpu is None and row.name == "this machine"
        number = f"{row.n_gpus} × " if row.n_gpus > 1 else ""
        return "here" if is_nameless else f"here  {number}{short_name(row)}"
    whose = row.offer.provider if row.offer and row.offer.provider != DEFAULT_PROVIDER else ""
    how = "" if row.obtained == "on demand" else row.obtained
    of = ", ".join(filter(None, (fmt.shortened(whose, 20), how)))
    return f"{row.billed_gpus} × {short_name(row)}{f' ({of})' if of else ''}"


def at(row: Projection) -> str:
    """Return ``1 × L40S at Crusoe Cloud``, or ``here``."""
    if row.is_local or row.offer is None:
        return label(row).partition("  ")[0]
    usual = row.offer.provider == DEFAULT_PROVIDER
    whose = DEFAULT_PROVIDER_NAME if usual else fmt.shortened(row.offer.provider, 20)
    return f"{row.billed_gpus} × {short_name(row)} at {whose}{' (spot)' if row.obtained == 'spot' else ''}"


def head_text(local: Projection, about: Sequence[str]) -> str:
    """Return the training, its time here, and how that is known."""
    name, *basis = about or ("",)
    machine = label(local).partition("  ")[2] if local.n_gpus > 1 else f"1 × {fmt.shortened(local.name, 60)}"
    where = ", without a GPU" if label(local) == "here" else f" on {machine}"
    time_here = f"{time_text(local.duration_s)} here{where}"
    return " · ".join(part for part in (fmt.shortened(name, 100), time_here, *basis) if part)


def time_text(value_s: Estimate | None) -> str:
    """Return ``8.1 h [6–11]``."""
    if value_s is None:
        return fmt.UNKNOWN
    scale = fmt.time_scale(value_s.point)
    point, _, ends = figure(value_s, scale.per_canonical).partition(" ")
    return f"{point if ends else point.removesuffix('.0')} {scale.unit} {ends}".rstrip()


def figure(estimate: Estimate | None, factor: float) -> str:
    """Return ``16 [10–25]``: two digits, or three where the range is narrow; its ends in the decimals of the point.

    Args:
        estimate: None where it is not known.
        factor: makes it the unit of its column.
    """
    if estimate is None:
        return "–"
    point = fmt.significant(estimate.point * factor, 3 if estimate.relative_width < _NARROW else 2)
    if estimate.upper <= estimate.lower:
        return point
    decimals = max(len(text.partition(".")[2]) for text in (point, fmt.significant(estimate.lower * factor, 1)))
    ends = "–".join(f"{value * factor:,.{decimals}f}" for value in (estimate.lower, estimate.upper))
    return f"{f'{estimate.point * factor:,.{decimals}f}' if decimals else point} [{ends}]"


def sentence(text: str) -> str:
    """Return a text in one line as a sentence, without what cannot be seen: names may come from a file of prices."""
    text = fmt.shortened(text, 1000).rstrip(".")
    return f"{text[:1].upper()}{text[1:]}."


# -- What it rests on --


def prices(rows: Iterable[Projection], today: date | None) -> str:
    """Return whose prices they are, and how old the oldest is today, else when it was read."""
    offers = [row.offer for row in rows if row.offer and row.offer.usd_per_gpu_hour is not None]
    if not offers:
        return ""
    providers = dict.fromkeys(offer.provider for offer in offers)
    names = (DEFAULT_PROVIDER_NAME if name == DEFAULT_PROVIDER else fmt.shortened(name, 20) for name in providers)
    oldest = min(offer.price_date for offer in offers)
    aged = f"read {oldest}" if today is None else f"{(today - date.fromisoformat(oldest)).days} days old"
    others = "; --provider all adds others" if list(providers) == [DEFAULT_PROVIDER] else ""
    return f"Prices of {', '.join(names)}, at most {aged}{others}."


def beside(rows: Sequence[Projection]) -> list[str]:
    """Return those set aside, by reason, and those that the training does not fit into."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if not (row.is_local or row.is_compared):
            memory = f" ({row.gpu.memory_gb:g} GB)" if row.fits is False and row.gpu and row.gpu.memory_gb else ""
            peak = "estimated peak memory" if row.is_fit_estimated else "peak memory seen here"
            reason = f"too small for the {peak}" if row.fits is False else row.aside
            reasons.setdefault(reason, []).append(short_name(row) + memory)
    return [sentence(f"{', '.join(dict.fromkeys(names))}: {reason}") for reason, names in reasons.items()]


def notes(rows: Iterable[Projection]) -> Iterator[str]:
    """Yield short sentences on the ground of the numbers."""
    others = [row for row in rows if not row.is_local]
    if any(row.is_fit_estimated for row in others):
        yield "Whether it fits goes by an estimated peak of memory, which no GPU has measured yet."
    elif all(row.fits is None for row in others):
        yield "Memory fit not checked: peak GPU memory is unknown."
    yield from _NOTES
