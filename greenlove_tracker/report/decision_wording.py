"""What to do about a training that can run here or elsewhere, in words: the advice, its reasons, and the machines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date

from greenlove_tracker.projection.catalogue import software_notes
from greenlove_tracker.projection.decision import (
    WINNER,
    Decision,
    Faster,
    LeftOut,
    Limits,
    cost_point,
    has_less_memory,
    machine_here,
    saved_co2e_share,
)
from greenlove_tracker.projection.listings import DEFAULT_PROVIDER, DEFAULT_PROVIDER_NAME
from greenlove_tracker.projection.types import MINIMUM_TERM_DAYS, Projection
from greenlove_tracker.report.wording import grouped, sentence
from greenlove_tracker.text import format as fmt
from greenlove_tracker.text.format import Scale, energy_scale, mass_scale, time_scale
from greenlove_tracker.vocabulary.forecasting import Estimate
from greenlove_tracker.vocabulary.units import SECONDS_PER_HOUR

Rows = Sequence[Projection]
_WIDE = 2.0  # relative width of the time here from which it is to be narrowed before anything is rented
_NARROW = 0.2  # relative width of a range up to which three digits say something
_NARROW_SHARE = 0.02  # between the ends of a share up to which the range says nothing
_LEFT_OUT = {
    "term": f"only to reserve, and a minimum term of {MINIMUM_TERM_DAYS} d (assumed) alone costs more",
    "unknown cost": "cost unknown",
}
_NOTES = (
    "Ranges hold 90%, if your training is like the benchmarks that the speeds come from.",
    "CO2e is location-based. A provider's market-based claim stands beside it, and nothing is ranked by it.",
    "Not counted: storage, transfer, set-up, making of the hardware, a machine of your own. Rented = scope 3 for you.",
)
_MUCH_LONGER = 2.0  # times as long as here: then the time is told before the money
_ORDER = ("here", "on demand", "spot", "reserved", "on request", "withdrawn", "no offer")


# -- What is compared --


def compared(projections: Iterable[Projection]) -> list[Projection]:
    """Return the rows of the table: this machine, then those neither set aside nor too small, by terms and cost."""
    return sorted((row for row in projections if row.is_local or row.is_compared), key=_place)


def _place(row: Projection) -> tuple[int, bool, float, str]:
    is_whole = row.is_without_term and not row.is_for_rent_now
    return _ORDER.index(row.obtained), is_whole, cost_point(row), row.name


def machines_named(decision: Decision) -> list[Projection]:
    """Return what the advice names: the recommended machine, and the faster one."""
    machines = [decision.recommended, getattr(decision.faster, "machine", None)]
    return [row for row in machines if row is not None]


def units_of(rows: Rows) -> tuple[Scale, Scale, Scale]:
    """Return the units of time, energy and mass that suit the largest number of each."""

    def largest(name: str) -> float:
        known = filter(None, (getattr(row, name) for row in rows))
        return max((one.point for one in known), default=1.0)

    time_s = largest("duration_s")
    return time_scale(time_s), energy_scale(largest("energy_kwh")), mass_scale(largest("emissions_kgco2e"))


def names_text(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))


# -- What to do --


def advice(decision: Decision, rows: Rows) -> str:
    """Return what to do, and what is faster at which price, in the table's unit of time."""
    row = decision.recommended
    limits = limits_text(decision.limits)
    time, *_ = units_of(compared(rows))
    if row is None:
        if limits:
            return f"Nothing compared finishes {limits}."
        return "No machine's time is known."
    if decision.verdict == "too short":
        return f"Train here: {time_text(row.duration_s, time)} is too short to be worth moving."
    likely = ""
    if decision.meets is not None:
        likely = f" ({fmt.chance(decision.meets)} likely)"
    if row.is_local:
        do = "Train here"
    elif row.obtained == "reserved":
        do = f"Reserve {at(row)}"
    else:
        do = f"Rent {at(row)}"
    here = machine_here(rows)
    what = f"{_takes(row, time, here)}{_memory_condition(row, here)}"
    if decision.verdict == "best chance":
        do = f"{do[0].lower()}{do[1:]}"
        return f"Nothing compared surely finishes {limits}. The best chance{likely}: {do}, {what}."
    if limits:
        do += f", {limits}"
    return f"{do}{likely}: {what}.{_faster(decision.faster, row, time, here)}"


def _memory_condition(row: Projection, here: Projection | None) -> str:
    """Return ``, if it fits in 16 GB`` where nobody knows: the peak is unknown, and no GPU here has as little."""
    if row.is_local or row.fits is not None or row.gpu is None or row.gpu.memory_gb is None:
        return ""
    if here is not None and here.gpu is not None and not has_less_memory(row, here):
        return ""
    return f", if it fits in {row.gpu.memory_gb:g} GB"


def _faster(faster: Faster | None, chosen: Projection, time: Scale, here: Projection | None) -> str:
    if faster is None:
        return ""
    row = faster.machine
    more = ""
    name = "Faster"
    if chosen.cost_usd is not None and faster.more_usd < 0:
        more = f" for {fmt.money(-faster.more_usd)} less"
        name = "Faster and cheaper"
    elif chosen.cost_usd is not None:
        more = f" for {fmt.money(faster.more_usd)} more"
        if faster.saved_s > SECONDS_PER_HOUR:
            an_hour = faster.more_usd / faster.saved_s * SECONDS_PER_HOUR
            more += f" ({fmt.money(an_hour)} an hour saved)"
    likely = ""
    if faster.probability < WINNER:
        likely = f" ({fmt.chance(faster.probability)} likely)"
    sooner = f"{fmt.significant(time.value(faster.saved_s), 2)} {time.unit} sooner"
    what = f"{time_text(row.duration_s, time)}, {fmt.money(cost_point(row))}{_memory_condition(row, here)}"
    if row.billed_gpus > chosen.billed_gpus:
        name += f" with {row.billed_gpus} GPUs"
    return f" {name}{likely}: {at(row)}, {what}: {sooner}{more}."


def _saves(row: Projection, here: Projection) -> Iterator[str]:
    """Yield ``1 × L40S at Crusoe Cloud emits 70.1 kg CO2e less than here, 69% [52%–80%]``, if that is likely."""
    share = saved_co2e_share(row, here)
    if share is None:
        return
    than = "less"
    if share.point < 0:
        than = "more"
        share = share.times(-1.0, "")
    mass = fmt.mass(here.joint["emissions_kgco2e"].point * share.point)
    change = fmt.percent(share.point)
    if share.upper - share.lower > _NARROW_SHARE:
        change = fmt.interval(share, fmt.percent)
    text = f"{at(row)} emits {mass} CO2e {than} than here, {change}"
    if row.coverage != here.coverage:
        text += f", {here.coverage or 'unknown'} here against {row.coverage or 'unknown'} emissions there"
    yield f"{text}."


def _takes(row: Projection, time: Scale, here: Projection | None = None) -> str:
    """Return time and cost: ``16 h [10–25], $25``; the range of the cost stands in the table.

    What takes much longer than here says so first.
    """
    cost = fmt.money(cost_point(row))
    if row.is_local and row.cost_usd is None:
        cost = "at an unknown cost"
        if row.energy_kwh:
            cost = f"{fmt.energy(row.energy_kwh.point)} of electricity at an unknown price"
    elif row.cost_basis == "electricity":
        cost = f"{cost} of electricity"
    elif row.cost_basis == "minimum term":
        cost = f"at least {cost} for a minimum term of {MINIMUM_TERM_DAYS} d"
    text = time_text(row.duration_s, time)
    if here is not None and here.duration_s is not None and row.duration_s is not None:
        times = row.duration_s.point / here.duration_s.point
        if times >= _MUCH_LONGER:
            text = f"{fmt.significant(times, 2)} times as long as here, {text}"
            if here.cost_usd is not None:
                cost += f" instead of {fmt.money(here.cost_usd.point)}"
    return f"{text}, {cost}"


def advice_reasons(decision: Decision, rows: Rows) -> Iterator[str]:
    """Yield what else is to be known before it is done: of the machine here, of others, and of what is asked for."""
    here = machine_here(rows)
    row = decision.recommended
    time, *_ = units_of(compared(rows))
    if here is not None and here.duration_s is not None and here.duration_s.relative_width > _WIDE:
        off_by = fmt.percent(here.duration_s.relative_width / 2)
        yield f"First narrow the forecast: the time here may be off by ±{off_by}. Explore with a larger --budget."
    named = machines_named(decision)
    if here is not None:
        yield from (text for one in named if not one.is_local for text in _saves(one, here))
    if any(one.speedup is not None and one.speedup.known_from.startswith("rough") for one in named):
        yield "This is a rough guess: without a GPU here, speeds are known to a factor of five. Explore on a GPU."
    if here is not None and here.fits is False and here.gpu is not None:
        yield f"The {short_name(here)} here ({here.gpu.memory_gb:g} GB) cannot hold the training's peak memory."
    times_s = {one.duration_s.point: one for one in rows if one.is_compared and one.is_to_be_had and one.duration_s}
    if row is None and times_s:
        fastest = times_s[min(times_s)]
        yield f"The fastest is {at(fastest)}: {_takes(fastest, time)}."
    smaller = decision.if_it_fits
    if smaller is not None:
        what = f"{_takes(smaller, time, here)}{_memory_condition(smaller, here)}"
        yield f"Cheaper: {at(smaller)}, {what}, which --peak-memory would tell."
    if decision.spot is not None:
        spot = f"{at(decision.spot)}, {_takes(decision.spot, time)}"
        yield f"A spot offer is cheaper: {spot}, without what its loss would cost."
    yield from dict.fromkeys(text for one in named for text in _terms(one, here))


def _terms(row: Projection, here: Projection | None) -> Iterator[str]:
    """Yield what a machine asks for besides its price: a minimum term, a whole machine, code for it."""
    if row.obtained == "spot":
        yield "It is a spot offer, which may be taken away: what that costs is not in."
    if row.obtained == "reserved":
        yield f"It can only be reserved; the minimum term of {MINIMUM_TERM_DAYS} d is an assumption."
    elif row.is_rented and row.billed_gpus > row.n_gpus:
        yield f"{at(row)} is rented only as a whole machine: all {row.billed_gpus} GPUs are paid for, and used."
    if row.n_machines > 1:
        yield f"The code must train on {row.n_machines} machines at once, {row.billed_gpus} GPUs."
    elif here is not None and here.n_gpus == 1 and row.billed_gpus > 1:
        yield f"The code must train on {row.billed_gpus} GPUs at once."
    if row.gpu and here is not None:
        own = getattr(here.gpu, "vendor", "")
        yield from map(sentence, software_notes(own, row.gpu.vendor))


def left_out(machines: Sequence[LeftOut], limits: Limits) -> Iterator[str]:
    """Yield one sentence a reason, with the machines that it is of."""
    by_reason = grouped((_why_left_out(one, limits), label(one.machine)) for one in machines)
    for reason, names in by_reason.items():
        yield sentence(f"{', '.join(names)}: {reason}")


def _why_left_out(one: LeftOut, limits: Limits) -> str:
    if one.why in _LEFT_OUT:
        return _LEFT_OUT[one.why]
    likely = f"{fmt.chance(one.probability or 0.0)} likely"
    if one.why == "time":
        return f"{likely} to take over {fmt.duration(limits.within_s)}"
    return f"{likely} to cost over {fmt.money(limits.max_cost_usd)}"


def limits_text(limits: Limits) -> str:
    """Return ``within 2 d for at most $500``; empty without limits."""
    parts = []
    if limits.within_s is not None:
        parts.append(f"within {fmt.duration(limits.within_s)}")
    if limits.max_cost_usd is not None:
        parts.append(f"for at most {fmt.money(limits.max_cost_usd)}")
    return " ".join(parts)


# -- Machines --


def short_name(row: Projection) -> str:
    """Return the GPU without its maker's brand, in one line; of a log it may be any text."""
    return fmt.shortened(row.name, 60).removeprefix("GeForce ").removeprefix("Instinct ")


def label(row: Projection) -> str:
    """Return ``8 × H200 SXM (lambda, reserved)``: who rents it out, but for the usual one, and how it is obtained."""
    name = short_name(row)
    if row.is_local and row.gpu is None and row.name == "this machine":
        return "here"
    if row.is_local:
        return f"here  {row.n_gpus} × {name}".replace("  1 × ", "  ")
    terms = []
    if row.offer and row.offer.provider != DEFAULT_PROVIDER:
        terms.append(fmt.shortened(row.offer.provider, 20))
    if row.obtained != "on demand":
        terms.append(row.obtained)
    if row.n_machines > 1:
        terms.append(f"{row.n_machines} machines")
    if terms:
        name += f" ({', '.join(terms)})"
    return f"{row.billed_gpus} × {name}"


def at(row: Projection) -> str:
    """Return ``1 × L40S at Crusoe Cloud``, or ``here``."""
    if row.is_local or row.offer is None:
        return label(row).partition("  ")[0]
    where = f"{row.billed_gpus} × {short_name(row)} at {_provider_name(row.offer.provider)}"
    if row.obtained == "spot":
        where += " (spot)"
    if row.n_machines > 1:
        where += f" ({row.n_machines} machines, joined by a network)"
    return where


def _provider_name(provider: str) -> str:
    if provider == DEFAULT_PROVIDER:
        return DEFAULT_PROVIDER_NAME
    return fmt.shortened(provider, 20)


def head_text(local: Projection, about: Sequence[str]) -> str:
    """Return the training, its time here, and how that is known."""
    name, *basis = about or ("",)
    where = f" on {local.n_gpus} × {short_name(local)}"
    if label(local) == "here":
        where = ", without a GPU"
    time_here = f"{time_text(local.duration_s)} here{where}"
    return " · ".join(filter(None, (fmt.shortened(name, 100), time_here, *basis)))


def time_text(value_s: Estimate | None, scale: Scale | None = None) -> str:
    """Return ``8.1 h [6–11]``, in the unit of a table where one is given."""
    if value_s is None:
        return fmt.UNKNOWN
    scale = scale or fmt.time_scale(value_s.point)
    point, _, ends = figure(value_s, scale.per_canonical).partition(" ")
    if "." in point and not ends:
        point = point.rstrip("0").rstrip(".")
    return f"{point} {scale.unit} {ends}".rstrip()


def figure(estimate: Estimate | None, factor: float) -> str:
    """Return ``16 [10–25]``: two digits, or three where the range is narrow; its ends in the decimals of the point.

    Args:
        estimate: None where it is not known.
        factor: makes it the unit of its column.
    """
    if estimate is None:
        return "–"
    value = estimate.point * factor
    digits = 2
    if estimate.relative_width < _NARROW:
        digits = 3
    point = fmt.significant(value, digits)
    if estimate.upper <= estimate.lower:
        return point
    lower = fmt.significant(estimate.lower * factor, 1)
    decimals = max(len(text.partition(".")[2]) for text in (point, lower))
    if decimals:
        point = f"{value:,.{decimals}f}"
    return f"{point} [{estimate.lower * factor:,.{decimals}f}–{estimate.upper * factor:,.{decimals}f}]"


# -- What it rests on --


def prices(rows: Rows, today: date | None) -> str:
    """Return whose prices they are, and how old the oldest is on a day; without one, or read after it, its date."""
    offers = [row.offer for row in rows if row.offer and row.offer.usd_per_gpu_hour is not None]
    if not offers:
        return ""
    providers = [offer.provider for offer in offers]
    oldest = min(offer.price_date for offer in offers)
    aged = f"read {oldest}"
    if today is not None and today.isoformat() >= oldest:
        aged = f"at most {(today - date.fromisoformat(oldest)).days} days old"
    text = f"Prices of {names_text(map(_provider_name, providers))}, {aged}"
    if set(providers) == {DEFAULT_PROVIDER}:
        text += "; --provider all adds others"
    return f"{text}."


def coverages(rows: Rows) -> Iterator[str]:
    """Yield which CO2e is of lifecycle and which of direct emissions, if a table holds both."""
    by_coverage = grouped((row.coverage, short_name(row)) for row in rows if row.coverage)
    if len(by_coverage) > 1:
        named = "; ".join(f"{coverage} for {names_text(names)}" for coverage, names in by_coverage.items())
        yield f"CO2e is {named}. Lifecycle adds some 10 to 50 g/kWh to direct."


def beside(rows: Rows) -> list[str]:
    """Return those set aside, by reason, and those that the training does not fit into."""
    by_reason = grouped(_set_aside(row) for row in rows if not (row.is_local or row.is_compared))
    return [sentence(f"{names_text(names)}: {reason}") for reason, names in by_reason.items()]


def _set_aside(row: Projection) -> tuple[str, str]:
    """Return why a machine is set aside, and its name; with its memory where that is too small."""
    name = short_name(row)
    if row.fits is not False:
        return row.aside, name
    if row.gpu and row.gpu.memory_gb:
        name += f" ({row.gpu.memory_gb:g} GB)"
    if row.is_fit_estimated:
        return "too small for the estimated peak memory", name
    return "too small for the peak memory seen here", name


def notes(rows: Rows) -> Iterator[str]:
    """Yield short sentences on the ground of the numbers."""
    others = [row for row in rows if not row.is_local]
    if any(row.is_fit_estimated for row in others):
        yield "Whether it fits goes by an estimated peak of memory, which no GPU has measured yet."
    elif all(row.fits is None for row in others):
        yield "Memory fit not checked: peak GPU memory is unknown."
    yield from _NOTES
