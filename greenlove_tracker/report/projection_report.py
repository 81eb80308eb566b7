"""A training here beside other machines, as one document: what to do, tables, and their grounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

from greenlove_tracker.logs.run import Run
from greenlove_tracker.projection.catalogue import software_notes
from greenlove_tracker.projection.decision import (
    WINNER,
    Decision,
    Faster,
    LeftOut,
    Limits,
    cost_point,
    decide,
    has_less_memory,
    machine_here,
)
from greenlove_tracker.projection.listings import DEFAULT_PROVIDER, DEFAULT_PROVIDER_NAME
from greenlove_tracker.projection.options import ProjectionOptions, option_names
from greenlove_tracker.projection.types import MINIMUM_TERM_DAYS, Projection
from greenlove_tracker.rendering.document import (
    Blocks,
    ChartRow,
    Column,
    Document,
    Heading,
    MarkChart,
    MarkedPoint,
    Note,
    Paragraph,
    Table,
    columns,
)
from greenlove_tracker.report.plain_values import QUANTITY_COLUMNS, columns_of, same, values_at
from greenlove_tracker.report.wording import footer, grouped, sentence
from greenlove_tracker.text import format as fmt
from greenlove_tracker.text.format import Scale, energy_scale, mass_scale, time_scale
from greenlove_tracker.vocabulary.errors import GreenloveError, UsageError
from greenlove_tracker.vocabulary.forecasting import Estimate
from greenlove_tracker.vocabulary.units import SECONDS_PER_HOUR

Rows = Sequence[Projection]
_WIDE = 2.0  # relative width of the time here from which it is to be narrowed before anything is rented
_NARROW = 0.2  # relative width of a range up to which three digits say something
_FOR_A_TERM = "(a week)"  # of MINIMUM_TERM_DAYS
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
_MOST_BRIEF = 3  # machines beside the one here, of a first look
_LABEL = 44
_MOST_MARKS = 12  # of a chart beside those with a name, the cheapest; the table holds them all
_TITLE = "Here and on other machines"
_OPTIONS = option_names(ProjectionOptions)
_ORDER = ("here", "on demand", "spot", "reserved", "on request", "withdrawn", "no offer")


def projection_document(
    projections: Rows,
    about: Sequence[str] = (),
    decision: Decision | None = None,
    today: date | None = None,
    *,
    is_list: bool = False,
) -> Document:
    """Return where to train.

    Args:
        projections: this machine first, as ``project`` gives them.
        about: the training in words: its name or empty, then how its time is known.
        decision: between them; None for the cheapest without limits.
        today: against which the age of prices is counted.
        is_list: all machines and nothing of how they are known.
    """
    made = decision or decide(projections)
    shown = compared(projections)
    name, *_ = about or ("",)
    answer, details, basis = _blocks(projections, made, today, name=fmt.shortened(name, 100))
    blocks = [*answer, *details, *basis]
    next_steps = []
    n_more = len(shown) - len(_first_look(shown, made))
    if is_list:
        blocks = [block for block in answer if isinstance(block, Paragraph)]
        blocks += details[1:]
    elif n_more > 0:
        next_steps.append(f"--all shows {n_more} more machines")
    return Document(
        title="Where to train",
        subtitle=head_text(projections[0], about),
        footer=footer(),
        verdict=advice(made, projections),
        blocks=blocks,
        next_steps=next_steps,
    )


def projection_blocks(projections: Rows) -> Blocks:
    """Return the same as sections of another report, with Python's names of arguments; nothing without projections."""
    if not projections:
        return ()
    made = decide(projections)
    answer, details, basis = _blocks(projections, made, None, {})
    return Heading("Where to train"), Paragraph(advice(made, projections)), *answer, *details, *basis


def elsewhere_blocks(run: Run) -> Blocks:
    """Return where the training of a run would best be done again, from its log; why where it cannot be compared."""
    from greenlove_tracker.projection.from_log import compare_run  # an exploration needs statsmodels: over a second

    try:
        day = date.fromisoformat(run.started_at[:10])  # not today: the same log gives the same report
        found = compare_run(run, ProjectionOptions(today=day))
    except (GreenloveError, ValueError) as error:
        reason = str(error)
        if isinstance(error, UsageError):
            reason = error.in_options(_OPTIONS)
        return Heading(_TITLE), Paragraph(f"Not compared: {reason}.")
    decision = decide(found.projections, found.options)
    answer, *_ = _blocks(found.projections, decision, day)
    answer = [block for block in answer if not isinstance(block, ChartRow)]  # the page has its own
    more = Note("greenlove project compares all machines, and says how each is known.")
    return Heading("Where to train"), Paragraph(advice(decision, found.projections)), *answer, more


def _blocks(
    projections: Rows,
    decision: Decision,
    today: date | None,
    options: Mapping[str, str] = _OPTIONS,
    name: str = "",
) -> tuple[Blocks, Blocks, Blocks]:
    """Return the answer, all that is compared, and what it rests on."""
    shown = compared(projections)
    answer = (
        *_chart(shown, decision),
        *map(Paragraph, advice_reasons(decision, projections)),
        machines_table(_first_look(shown, decision), shown),
        Paragraph(_told(shown, today, options, name)),
    )
    details: Blocks = (
        Heading(_TITLE),
        machines_table(shown, shown, is_brief=False),
        *map(Paragraph, (*beside(projections), *left_out(decision.left_out, decision.limits))),
    )
    basis = (
        Heading("How other machines are known"),
        *map(Paragraph, _warnings_of_others(shown, options)),
        *map(Note, notes(shown)),
        *_texts_by_machine("What was assumed of these machines", "assumption", shown, lambda row: row.assumptions),
        *_texts_by_machine("Sources of the comparison", "source", shown, lambda row: row.sources),
    )
    return answer, details, basis


def _told(shown: Rows, today: date | None, options: Mapping[str, str], name: str) -> str:
    """Say what has to be known of the answer: of what it is, warnings of this machine, and the prices."""
    told = [sentence(caveat.in_options(options)) for caveat in shown[0].caveats]
    if name:
        told.insert(0, f"For {name}.")
    told.append(prices(shown, today))
    coverages = {row.intensity.coverage for row in shown if row.intensity and row.emissions_kgco2e} - {""}
    if len(coverages) > 1:
        told.append("Some CO2e is by direct and some by lifecycle intensities: compare it with care.")
    return " ".join(filter(None, told))


def _warnings_of_others(shown: Rows, options: Mapping[str, str]) -> Iterator[str]:
    """Yield each warning of the other machines once, with those that it is of."""
    by_text = grouped((caveat.in_options(options), short_name(row)) for row in shown[1:] for caveat in row.caveats)
    for text, names in by_text.items():
        whose = ""
        if not text.startswith(names[0]):
            whose = f"{_names(names)}: "
        yield sentence(f"{whose}{text}")


def compared(projections: Iterable[Projection]) -> list[Projection]:
    """Return the rows of the table: this machine, then those neither set aside nor too small, by terms and cost."""
    return sorted((row for row in projections if row.is_local or row.is_compared), key=_place)


def _place(row: Projection) -> tuple[int, bool, float, str]:
    is_whole = row.is_without_term and not row.is_for_rent_now
    return _ORDER.index(row.obtained), is_whole, cost_point(row), row.name


def _first_look(shown: Rows, decision: Decision) -> list[Projection]:
    """Return the machine here and those to choose from: the recommended, the faster, and what comes next."""
    wanted = [*_named(decision), *(chance.machine for chance in decision.alternatives)]
    wanted += [row for row in _faster_than_here(shown) if row.is_for_rent_now]
    by_name = grouped((one.name, one) for one in wanted if not one.is_local)
    chosen = [own[0] for own in by_name.values()][:_MOST_BRIEF]
    return [row for row in shown if row.is_local or any(row is one for one in chosen)]


def _named(decision: Decision) -> list[Projection]:
    """Return what the advice names: the recommended machine, and the faster one."""
    machines = [decision.recommended, getattr(decision.faster, "machine", None)]
    return [row for row in machines if row is not None]


def _faster_than_here(shown: Rows) -> list[Projection]:
    here = shown[0].duration_s
    return [row for row in shown if here and row.duration_s and row.duration_s.point < here.point]


def _units_of(rows: Rows) -> tuple[Scale, Scale, Scale]:
    """Return the units of time, energy and mass that suit the largest number of each."""

    def largest(name: str) -> float:
        known = filter(None, (getattr(row, name) for row in rows))
        return max((one.point for one in known), default=1.0)

    time_s = largest("duration_s")
    return time_scale(time_s), energy_scale(largest("energy_kwh")), mass_scale(largest("emissions_kgco2e"))


def machines_table(rows: Rows, shown: Rows, *, is_brief: bool = True) -> Table:
    """Return machines side by side, in the units that suit all that are compared; no column without a value.

    Args:
        rows: of the table.
        shown: all that are compared.
        is_brief: without energy and claims.
    """
    time, energy, mass = _units_of(shown)
    declared: list[tuple[Column, Callable[[Projection], str]]] = [
        (Column("$/GPU-h", 0.8, True), _price),
        (Column(f"time, {time.unit}", 1.6, True), lambda r: figure(r.duration_s, time.per_canonical)),
        (Column("cost, $", 1.6, True), _cost),
        (Column(f"{mass.unit} CO2e", 1.4), lambda r: _emissions(r, mass)),
    ]
    if not is_brief:
        declared.append((Column(energy.unit, 0.8, True), lambda r: _bare(r.energy_kwh, energy)))
    declared.append((Column("known from", 1.2), _known_from))
    heads = [Column("machine", 2.6)]
    told = [list(map(label, rows))]
    for column, text in declared:
        cells = list(map(text, rows))
        if set(cells) - {"", "–"}:
            heads.append(column)
            told.append(cells)
    return Table(heads, list(zip(*told, strict=True)))


def _price(row: Projection) -> str:
    """Return the price of one GPU for an hour."""
    if row.offer is None or row.offer.usd_per_gpu_hour is None:
        return "–"
    return f"{row.offer.usd_per_gpu_hour:.2f}"


def _bare(estimate: Estimate | None, scale: Scale) -> str:
    return figure(estimate, scale.per_canonical).partition(" ")[0]


def _cost(row: Projection) -> str:
    """Return what is paid; where that is for more time than the training takes, for how long."""
    text = figure(row.cost_usd, 1.0)
    if row.cost_basis == "minimum term":
        return f"{text.partition(' ')[0]} {_FOR_A_TERM}"
    return text


def _emissions(row: Projection, scale: Scale) -> str:
    """Return the location-based figure and its place, the other places of the offer, and the provider's claim.

    The claim stands beside the figure, which is never a bare 0 kg.
    """
    places = [f"{fmt.significant(scale.value(kg), 2)} {place}" for place, kg in row.kgco2e_by_place.items()]
    text, *others = places or [_bare(row.emissions_kgco2e, scale)]
    if others:
        text += f" ({', '.join(others)})"
    if row.market is None:
        return text
    claimed = "0"
    if row.market.kgco2e.point:
        claimed = fmt.mass(row.market.kgco2e.point)
    return f"{text} ({claimed} claimed)"


def _known_from(row: Projection) -> str:
    if row.speedup:
        return row.speedup.known_from.partition(":")[0]
    return ""


def _chart(shown: Rows, decision: Decision) -> Blocks:
    """Draw cost by time: this machine, the choice and what is faster by name and with their ranges, others as dots.

    What is slower than here, and no choice, would crowd the rest into a corner.
    """
    unit, *_ = _units_of(shown)
    named = [row for row in shown if row.is_local or row in _named(decision)]
    faster = _faster_than_here(shown)[:_MOST_MARKS]
    # The price of a week would press all others together.
    others = [row for row in faster if row not in named and row.cost_basis != "minimum term"]
    marks = []
    for row in (*named, *others):
        time = row.duration_s
        cost = row.cost_usd
        if time is None or cost is None:
            continue
        name = fmt.shortened(label(row), _LABEL)
        if row.cost_basis == "minimum term":
            name += f", ${_cost(row)}"
        mark = MarkedPoint(name, unit.value(time.point), cost.point, is_here=row.is_local)
        if row in named:
            x_range = (unit.value(time.lower), unit.value(time.upper))
            mark = replace(mark, is_named=True, x_range=x_range, y_range=(cost.lower, cost.upper))
        marks.append(mark)
    if len(marks) < 2:
        return ()
    return [ChartRow([MarkChart("Time and cost; bars show 90% ranges", f"time, {unit.unit}", "cost, $", marks)])]


def _texts_by_machine(title: str, what: str, rows: Rows, texts: Callable[[Projection], Sequence[str]]) -> Blocks:
    """Return a section of texts, each once, with the machines that share it."""
    elsewhere = {short_name(row) for row in rows if not row.is_local}
    by_text = grouped(
        (fmt.shortened(text, 600), "here" if row.is_local else short_name(row)) for row in rows for text in texts(row)
    )
    cells = []
    for text, names in by_text.items():
        shown = _names(names)
        if len(elsewhere) > 2 and set(names) == elsewhere:
            shown = "all but here"
        cells.append((shown, text))
    if not cells:
        return ()
    return Heading(title), Table(columns({"machine": 1, what: 3}), cells)


def _names(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))


# -- For programs --


def projection_record(projections: Rows, about: Sequence[str], decision: Decision | None = None) -> dict[str, Any]:
    """Return all of it as one object for JSON."""
    made = decision or decide(projections)
    decided = values_at(made, _OF_DECISION)
    decided["sentence"] = advice(made, projections)
    decided["reasons"] = list(advice_reasons(made, projections))
    rows = [values_at(row, _COLUMNS | _TEXTS) for row in projections]
    return {"about": head_text(projections[0], about), "decision": decided, "projections": rows}


def projection_values(row: Projection) -> dict[str, Any]:
    """Return a machine in plain values, None where something is not known."""
    return values_at(row, _COLUMNS)


_COLUMNS = {
    "gpu": "name",
    "is_local": "is_local",
    "aside": "aside",
    "provider": "offer.provider",
    "region": "region",
    "access": "offer.access",
    "obtained": "obtained",
    "gpus_wanted": "n_gpus",
    "gpus_billed": "billed_gpus",
    "machines": "n_machines",
    "usd_per_gpu_hour": "offer.usd_per_gpu_hour",
    "price_date": "offer.price_date",
    **columns_of("speedup", "speedup.estimate"),
    "speedup_known_from": "speedup.known_from",
    "gain_of_gpus": "gain",
    **QUANTITY_COLUMNS,
    "cost_basis": "cost_basis",
    "carbon_intensity_gco2e_per_kwh": "intensity.value",
    "carbon_intensity_basis": "intensity.basis",
    "market_based_claim_kgco2e": "market.kgco2e.point",
    "market_based_claim": "market.text",
    "scope": "scope",
    "pue": "pue",
    "fits": "fits",
}
_TEXTS = same(("kgco2e_by_place", "sources", "assumptions", "warnings"))
_OF_MACHINE = {"gpu": "name", "gpus": "billed_gpus", "provider": "offer.provider", "obtained": "obtained"}
_OF_CHANCE = {column: f"machine.{path}" for column, path in _OF_MACHINE.items()} | {"probability": "probability"}
_OF_DECISION = {
    "verdict": "verdict",
    "within_s": "limits.within_s",
    "max_cost_usd": "limits.max_cost_usd",
    "probability": "probability",
    "meets_limits": "meets",
    **dict.fromkeys(("recommended", "if_it_fits", "spot"), _OF_MACHINE),
    "faster": _OF_CHANCE | same(("saved_s", "more_usd")),
    "alternatives": _OF_CHANCE,
    "left_out": _OF_CHANCE | {"why": "why"},
}


# -- What to do --


def advice(decision: Decision, rows: Rows) -> str:
    """Return what to do, and what is faster at which price, in the table's unit of time."""
    row = decision.recommended
    limits = limits_text(decision.limits)
    time, *_ = _units_of(compared(rows))
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
    if chosen.cost_usd is not None and faster.more_usd < 0:
        more = f" for {fmt.money(-faster.more_usd)} less"
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
    return f" Faster{likely}: {at(row)}, {what}: {sooner}{more}."


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
    time, *_ = _units_of(compared(rows))
    if here is not None and here.duration_s is not None and here.duration_s.relative_width > _WIDE:
        off_by = fmt.percent(here.duration_s.relative_width / 2)
        yield f"First narrow the forecast: the time here may be off by ±{off_by}. Explore with a larger --budget."
    named = _named(decision)
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
    text = f"Prices of {_names(map(_provider_name, providers))}, {aged}"
    if set(providers) == {DEFAULT_PROVIDER}:
        text += "; --provider all adds others"
    return f"{text}."


def beside(rows: Rows) -> list[str]:
    """Return those set aside, by reason, and those that the training does not fit into."""
    by_reason = grouped(_set_aside(row) for row in rows if not (row.is_local or row.is_compared))
    return [sentence(f"{_names(names)}: {reason}") for reason, names in by_reason.items()]


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
