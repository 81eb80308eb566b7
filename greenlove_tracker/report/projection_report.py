"""A training here beside other machines, as one document: what to do, tables, and their grounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import date
from typing import Any

import greenlove_tracker
from greenlove_tracker import format as fmt
from greenlove_tracker.errors import GreenloveError, UsageError
from greenlove_tracker.forecasting import Estimate
from greenlove_tracker.format import Scale, energy_scale, mass_scale, time_scale
from greenlove_tracker.logs.run import Run
from greenlove_tracker.projection.decision import Chance, Decision, decide
from greenlove_tracker.projection.options import ProjectionOptions, option_names
from greenlove_tracker.projection.types import Projection
from greenlove_tracker.rendering import document as doc
from greenlove_tracker.report import projection_words as words
from greenlove_tracker.report.projection_words import figure, label, sentence, short_name

_MOST_BRIEF = 3  # machines beside the one here, of a first look
_LABEL = 44
_MOST_MARKS = 12  # of a chart, the cheapest; the table holds them all
_CENTS_BELOW_USD = 0.1
_DOLLARS, _CENTS = Scale("$", 1.0, 2), Scale("¢", 100.0, 2)
_TITLE = "Here and on other machines"
_OPTIONS = option_names(ProjectionOptions)
_ORDER = ("here", "on demand", "spot", "reserved", "on request", "withdrawn", "no offer")


def projection_document(
    projections: Sequence[Projection],
    about: Sequence[str] = (),
    decision: Decision | None = None,
    today: date | None = None,
    *,
    is_list: bool = False,
) -> doc.Document:
    """Return where to train.

    Args:
        projections: this machine first, as ``project`` gives them.
        about: the training in words: its name or empty, then how its time is known.
        decision: between them; None for the cheapest without limits.
        today: against which the age of prices is counted.
        is_list: all machines and nothing of how they are known.
    """
    made = decision or decide(projections)
    answer, details, basis = _blocks(projections, made, today)
    blocks = (*answer, *details, *basis)
    n_more = len(compared(projections)) - len(_first_look(compared(projections), made))
    if is_list:
        listed, n_more = (block for block in details if isinstance(block, doc.Table | doc.Paragraph)), 0
        blocks = (*(block for block in answer if isinstance(block, doc.Paragraph)), *listed)
    return doc.Document(
        title="Where to train",
        subtitle=words.head_text(projections[0], about),
        footer=f"greenlove_tracker {greenlove_tracker.__version__}",
        verdict=words.advice(made),
        blocks=blocks,
        next_steps=(f"--all shows {n_more} more machines",) if n_more > 0 else (),
    )


def projection_blocks(
    projections: Sequence[Projection], options: Mapping[str, str] = _OPTIONS, decision: Decision | None = None
) -> tuple[doc.Block, ...]:
    """Return the same as sections of another report; nothing without projections.

    Args:
        projections: this machine first.
        options: of a command line by the names of arguments, for warnings; empty: Python's names.
        decision: between them; None for the cheapest without limits.
    """
    if not projections:
        return ()
    made = decision or decide(projections)
    answer, details, basis = _blocks(projections, made, None, options)
    return doc.Heading("Where to train"), doc.Paragraph(words.advice(made)), *answer, *details, *basis


def elsewhere_blocks(run: Run) -> tuple[doc.Block, ...]:
    """Return where the training of a run would best be done again, from its log; why where it cannot be compared."""
    from greenlove_tracker.projection.comparison import compare_run  # an exploration needs statsmodels: over a second

    try:
        day = date.fromisoformat(run.started_at[:10])  # not today: the same log gives the same report
        found = compare_run(run, ProjectionOptions(today=day))
    except (GreenloveError, ValueError) as error:
        reason = error.in_options(_OPTIONS) if isinstance(error, UsageError) else str(error)
        return doc.Heading(_TITLE), doc.Paragraph(f"Not compared: {reason}.")
    decision = decide(found.projections, found.options)
    if decision.verdict == "too short":
        told = doc.Paragraph(f"{words.advice(decision)} greenlove project compares it all the same.")
        return doc.Heading(_TITLE), told
    answer, *_ = _blocks(found.projections, decision, day)
    answer = tuple(block for block in answer if not isinstance(block, doc.ChartRow))  # the page has its own
    more = doc.Paragraph("greenlove project compares all machines, and says how each is known.", is_note=True)
    return doc.Heading("Where to train"), doc.Paragraph(words.advice(decision)), *answer, more


def _blocks(
    projections: Sequence[Projection],
    decision: Decision,
    today: date | None,
    options: Mapping[str, str] = _OPTIONS,
) -> tuple[tuple[doc.Block, ...], tuple[doc.Block, ...], tuple[doc.Block, ...]]:
    """Return the answer, all that is compared, and what it rests on."""
    shown, local = compared(projections), projections[0]
    warnings = (sentence(caveat.in_options(options)) for caveat in local.caveats)
    told = (*warnings, words.prices(shown, today))
    of_machines: dict[str, list[str]] = {}
    for row in shown[1:]:
        for caveat in row.caveats:
            of_machines.setdefault(caveat.in_options(options), []).append(short_name(row))
    return (
        (
            *_chart(shown, decision),
            *map(doc.Paragraph, words.advice_reasons(decision, projections)),
            machines_table(_first_look(shown, decision), shown),
            doc.Paragraph(" ".join(filter(None, told))),
        ),
        (
            doc.Heading(_TITLE),
            machines_table(shown, shown, is_brief=False),
            *map(doc.Paragraph, (*words.beside(projections), *words.left_out(decision.left_out, decision.limits))),
        ),
        (
            doc.Heading("How other machines are known"),
            *(
                doc.Paragraph(sentence(text if text.startswith(names[0]) else f"{_names(names)}: {text}"))
                for text, names in of_machines.items()
            ),
            *(doc.Paragraph(note, is_note=True) for note in words.notes(shown)),
            *_grouped("What was assumed of these machines", "assumption", shown, lambda row: row.assumptions),
            *_grouped("Sources of the comparison", "source", shown, lambda row: row.sources),
        ),
    )


def compared(projections: Iterable[Projection]) -> list[Projection]:
    """Return the rows of the table: this machine, then those neither set aside nor too small, by terms and cost."""
    return sorted((row for row in projections if row.is_local or row.is_compared), key=_place)


def _place(row: Projection) -> tuple[int, bool, float, str]:
    is_whole = row.is_without_term and not row.is_for_rent_now
    return _ORDER.index(row.obtained), is_whole, row.cost_usd.point if row.cost_usd else math.inf, row.name


def _first_look(shown: Sequence[Projection], decision: Decision) -> list[Projection]:
    """Return the machine here and those to choose from: the recommended, the faster, and what comes next."""
    faster, here = decision.faster.machine if decision.faster else None, shown[0]
    wanted = [decision.recommended, faster, *(chance.machine for chance in decision.alternatives)]
    least_s = here.duration_s.point if here.duration_s else math.inf
    wanted += [row for row in shown if row.is_for_rent_now and row.duration_s and row.duration_s.point < least_s]
    by_name: dict[str, Projection] = {}
    for one in wanted:
        if one is not None and not one.is_local:
            by_name.setdefault(one.name, one)
    chosen = list(by_name.values())[:_MOST_BRIEF]
    return [row for row in shown if row.is_local or any(row is one for one in chosen)]


def _units_of(rows: Sequence[Projection]) -> tuple[Scale, Scale, Scale, Scale]:
    """Return the units of time, cost, energy and mass that suit the largest number of each."""

    def largest(name: str) -> float:
        return max((e.point for row in rows if (e := getattr(row, name)) is not None), default=1.0)

    cost = _CENTS if largest("cost_usd") < _CENTS_BELOW_USD else _DOLLARS
    return (
        time_scale(largest("duration_s")),
        cost,
        energy_scale(largest("energy_kwh")),
        mass_scale(largest("emissions_kgco2e")),
    )


def machines_table(rows: Sequence[Projection], shown: Sequence[Projection], *, is_brief: bool = True) -> doc.Table:
    """Return machines side by side, in the units that suit all that are compared; no column without a value.

    Args:
        rows: of the table.
        shown: all that are compared.
        is_brief: without energy and claims.
    """
    time, cost, energy, mass = _units_of(shown)
    columns: list[tuple[doc.Column, Callable[[Projection], str]]] = [
        (doc.Column("price/h", 0.8, True), _price),
        (doc.Column(f"time, {time.unit}", 1.6, True), lambda r: figure(r.duration_s, time.per_canonical)),
        (doc.Column(f"cost, {cost.unit}", 1.6, True), lambda r: figure(r.cost_usd, cost.per_canonical)),
    ]
    if is_brief:
        columns.append((doc.Column(f"{mass.unit} CO2e", 1.0, True), lambda r: _bare(r.emissions_kgco2e, mass)))
    else:
        columns += [
            (doc.Column(f"{mass.unit} CO2e", 1.4, True), lambda r: _with_claim(r, mass)),
            (doc.Column(energy.unit, 0.8, True), lambda r: _bare(r.energy_kwh, energy)),
        ]
    columns.append((doc.Column("known from", 1.2), _known_from))
    told = [(column, [text(row) for row in rows]) for column, text in columns]
    kept = [(column, cells) for column, cells in told if any(cell not in ("", "–") for cell in cells)]
    names = [label(row) for row in rows]
    return doc.Table(
        (doc.Column("machine", 2.6), *(c for c, _ in kept)), tuple(zip(names, *(t for _, t in kept), strict=True))
    )


def _price(row: Projection) -> str:
    """Return the price of one GPU for an hour."""
    per_hour = row.offer.usd_per_gpu_hour if row.offer else None
    return "–" if per_hour is None else f"{per_hour:.2f}"


def _bare(estimate: Estimate | None, scale: Scale) -> str:
    return figure(estimate, scale.per_canonical).partition(" ")[0]


def _with_claim(row: Projection, scale: Scale) -> str:
    """Return the location-based figure with the provider's claim beside it, which is never a bare 0 kg."""
    text = _bare(row.emissions_kgco2e, scale)
    if row.market is None:
        return text
    return f"{text} ({fmt.mass(row.market.kgco2e.point) if row.market.kgco2e.point else '0'} claimed)"


def _known_from(row: Projection) -> str:
    return row.speedup.known_from.partition(":")[0] if row.speedup else ""


def _chart(shown: Sequence[Projection], decision: Decision) -> tuple[doc.Block, ...]:
    """Draw cost by time with their ranges: this machine, the choice and what is faster are named."""
    (time_unit, cost_unit, *_), named = (
        _units_of(shown),
        [decision.recommended, decision.faster.machine if decision.faster else None],
    )
    per_s, per_usd, marks = time_unit.per_canonical, cost_unit.per_canonical, list[doc.MarkedPoint]()
    for row in [row for i, row in enumerate(shown) if i < _MOST_MARKS or any(row is one for one in named)]:
        time, cost = row.duration_s, row.cost_usd
        if time is not None and cost is not None:
            name = fmt.shortened(label(row), _LABEL)
            x_range, y_range = _ends(time, per_s), _ends(cost, per_usd)
            is_named = row.is_local or any(row is one for one in named)
            point = (time.point * per_s, cost.point * per_usd)
            marks.append(doc.MarkedPoint(name, *point, x_range, y_range, is_named=is_named, is_here=row.is_local))
    if len(marks) < 2:
        return ()
    title = "What it takes and costs, each with its 90% range"
    return (doc.ChartRow((doc.MarkChart(title, f"time, {time_unit.unit}", f"cost, {cost_unit.unit}", tuple(marks)),)),)


def _ends(estimate: Estimate, factor: float) -> tuple[float, float] | None:
    return (estimate.lower * factor, estimate.upper * factor) if estimate.lower < estimate.upper else None


def _grouped(
    title: str, what: str, rows: Sequence[Projection], texts: Callable[[Projection], Sequence[str]]
) -> tuple[doc.Block, ...]:
    """Return a section of texts, each once, with the machines that share it."""
    by_text: dict[str, list[str]] = {}
    for row in rows:
        for text in texts(row):
            by_text.setdefault(fmt.shortened(text, 600), []).append("here" if row.is_local else short_name(row))
    if not by_text:
        return ()
    elsewhere = {short_name(row) for row in rows if not row.is_local}
    cells = tuple(
        ("all but here" if len(elsewhere) > 2 and set(names) == elsewhere else _names(names), text)
        for text, names in by_text.items()
    )
    return doc.Heading(title), doc.Table((doc.Column("machine", 1), doc.Column(what, 3)), cells)


def _names(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))


# -- For programs --


def projection_record(
    projections: Sequence[Projection], about: Sequence[str], decision: Decision | None = None
) -> dict[str, Any]:
    """Return all of it as one object for JSON."""
    made = decision or decide(projections)
    faster = made.faster
    lists = [{"sources": row.sources, "assumptions": row.assumptions, "warnings": row.warnings} for row in projections]
    return {
        "about": words.head_text(projections[0], about),
        "decision": {
            "verdict": made.verdict,
            **asdict(made.limits),
            "recommended": _machine(made.recommended) or None,
            "probability": made.probability,
            "meets_limits": made.meets,
            "alternatives": _chance_values(made.alternatives),
            "faster": faster and {**_machine(faster.machine), "saved_s": faster.saved_s, "more_usd": faster.more_usd},
            "spot": _machine(made.spot) or None,
            "left_out": [
                {**_machine(one.machine), "why": one.why, "probability": one.probability} for one in made.left_out
            ],
            "sentence": words.advice(made),
            "reasons": list(words.advice_reasons(made, projections)),
        },
        "projections": [{**projection_values(row), **more} for row, more in zip(projections, lists, strict=True)],
    }


def _machine(row: Projection | None) -> dict[str, Any]:
    if row is None:
        return {}
    provider = row.offer.provider if row.offer else None
    return {"gpu": row.name, "gpus": row.billed_gpus, "provider": provider, "obtained": row.obtained}


def _chance_values(chances: Iterable[Chance]) -> list[dict[str, Any]]:
    return [{**_machine(chance.machine), "probability": chance.probability} for chance in chances]


def projection_values(row: Projection) -> dict[str, Any]:
    """Return a machine in plain values, None where something is not known."""
    offer, speedup, intensity = row.offer, row.speedup, row.intensity
    return {
        "gpu": row.name,
        "is_local": row.is_local,
        "aside": row.aside,
        "provider": offer.provider if offer else None,
        "region": row.region or None,
        "access": offer.access if offer else None,
        "obtained": row.obtained,
        "gpus_wanted": row.n_gpus,
        "gpus_billed": row.billed_gpus,
        "usd_per_gpu_hour": offer.usd_per_gpu_hour if offer else None,
        "price_date": offer.price_date if offer else None,
        "price_date_is_of_file": False if offer else None,
        **interval_fields("speedup", "", speedup.estimate if speedup else None),
        "speedup_known_from": speedup.known_from if speedup else None,
        "gain_of_gpus": row.gain,
        **interval_fields("duration", "_s", row.duration_s),
        **interval_fields("energy", "_kwh", row.energy_kwh),
        **interval_fields("cost", "_usd", row.cost_usd),
        "cost_basis": row.cost_basis or None,
        **interval_fields("emissions", "_kgco2e", row.emissions_kgco2e),
        "carbon_intensity_gco2e_per_kwh": intensity.value if intensity else None,
        "carbon_intensity_basis": intensity.basis if intensity else None,
        "market_based_claim_kgco2e": row.market.kgco2e.point if row.market else None,
        "market_based_claim": row.market.text if row.market else None,
        "scope": row.scope,
        "pue": row.pue,
        "fits": row.fits,
    }


def interval_fields(name: str, unit: str, estimate: Estimate | None) -> dict[str, float | None]:
    """Return the point and both ends of an estimate as fields of a row; None where it is not known."""
    values = (None,) * 3 if estimate is None else (estimate.point, estimate.lower, estimate.upper)
    return dict(zip((f"{name}{unit}", f"{name}_lower{unit}", f"{name}_upper{unit}"), values, strict=True))
