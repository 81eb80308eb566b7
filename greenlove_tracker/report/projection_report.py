"""A training here beside other machines, as one document: what to do, tables, and their grounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date

from greenlove_tracker.logs.run import Run
from greenlove_tracker.projection.decision import Decision, decide
from greenlove_tracker.projection.options import ProjectionOptions, option_names
from greenlove_tracker.projection.types import Projection
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
from greenlove_tracker.report import decision_wording as words
from greenlove_tracker.report.wording import footer, grouped, sentence
from greenlove_tracker.text import format as fmt
from greenlove_tracker.text.format import Scale
from greenlove_tracker.vocabulary.errors import GreenloveError, UsageError
from greenlove_tracker.vocabulary.forecasting import Estimate

_FOR_A_TERM = "(a week)"  # of MINIMUM_TERM_DAYS
_MOST_BRIEF = 3  # machines beside the one here, of a first look
_LABEL = 44
_MOST_MARKS = 12  # of a chart beside those with a name, the cheapest; the table holds them all
_TITLE = "Here and on other machines"
_OPTIONS = option_names(ProjectionOptions)


def projection_document(
    projections: words.Rows,
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
    shown = words.compared(projections)
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
        subtitle=words.head_text(projections[0], about),
        footer=footer(),
        verdict=words.advice(made, projections),
        blocks=blocks,
        next_steps=next_steps,
    )


def projection_blocks(projections: words.Rows) -> Blocks:
    """Return the same as sections of another report, with Python's names of arguments; nothing without projections."""
    if not projections:
        return []
    made = decide(projections)
    answer, details, basis = _blocks(projections, made, None, {})
    return [Heading("Where to train"), Paragraph(words.advice(made, projections)), *answer, *details, *basis]


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
        return [Heading(_TITLE), Paragraph(f"Not compared: {reason}.")]
    decision = decide(found.projections, found.options)
    answer, *_ = _blocks(found.projections, decision, day)
    answer = [block for block in answer if not isinstance(block, ChartRow)]  # the page has its own
    more = Note("greenlove project compares all machines, and says how each is known.")
    return [Heading("Where to train"), Paragraph(words.advice(decision, found.projections)), *answer, more]


def _blocks(
    projections: words.Rows,
    decision: Decision,
    today: date | None,
    options: Mapping[str, str] = _OPTIONS,
    name: str = "",
) -> tuple[Blocks, Blocks, Blocks]:
    """Return the answer, all that is compared, and what it rests on."""
    shown = words.compared(projections)
    first = _first_look(shown, decision)
    answer = [
        *_chart(shown, decision),
        *map(Paragraph, words.advice_reasons(decision, projections)),
        machines_table(first, shown),
        Paragraph(" ".join([*_told(shown, today, options, name), *words.coverages(first)])),
    ]
    details: Blocks = [
        Heading(_TITLE),
        machines_table(shown, shown, is_brief=False),
        *map(Paragraph, words.coverages(shown)),
        *map(Paragraph, (*words.beside(projections), *words.left_out(decision.left_out, decision.limits))),
    ]
    basis = [
        Heading("How other machines are known"),
        *map(Paragraph, _warnings_of_others(shown, options)),
        *map(Note, words.notes(shown)),
        *_texts_by_machine("What was assumed of these machines", "assumption", shown, lambda row: row.assumptions),
        *_texts_by_machine("Sources of the comparison", "source", shown, lambda row: row.sources),
    ]
    return answer, details, basis


def _told(shown: words.Rows, today: date | None, options: Mapping[str, str], name: str) -> Iterator[str]:
    """Yield what has to be known of the answer: of what it is, warnings of this machine, and the prices."""
    if name:
        yield f"For {name}."
    for caveat in shown[0].caveats:
        yield sentence(caveat.in_options(options))
    prices = words.prices(shown, today)
    if prices:
        yield prices


def _warnings_of_others(shown: words.Rows, options: Mapping[str, str]) -> Iterator[str]:
    """Yield each warning of the other machines once, with those that it is of."""
    by_text = grouped(
        (caveat.in_options(options), words.short_name(row)) for row in shown[1:] for caveat in row.caveats
    )
    for text, names in by_text.items():
        whose = ""
        if not text.startswith(names[0]):
            whose = f"{words.names_text(names)}: "
        yield sentence(f"{whose}{text}")


def _first_look(shown: words.Rows, decision: Decision) -> list[Projection]:
    """Return the machine here and those to choose from: the recommended, the faster, and what comes next."""
    named = words.machines_named(decision)
    left_out = [one.machine for one in decision.left_out]
    others = [chance.machine for chance in decision.alternatives]
    others += [row for row in _faster_than_here(shown) if row.is_for_rent_now and row not in left_out]
    by_name = grouped((one.name, one) for one in (*named, *others) if not one.is_local)
    chosen = [*named, *(own[0] for own in by_name.values() if own[0] not in named)]
    return [row for row in shown if row.is_local or any(row is one for one in chosen[:_MOST_BRIEF])]


def _faster_than_here(shown: words.Rows) -> list[Projection]:
    here = shown[0].duration_s
    return [row for row in shown if here and row.duration_s and row.duration_s.point < here.point]


def machines_table(rows: words.Rows, shown: words.Rows, *, is_brief: bool = True) -> Table:
    """Return machines side by side, in the units that suit all that are compared; no column without a value.

    Args:
        rows: of the table.
        shown: all that are compared.
        is_brief: without energy and claims.
    """
    time, energy, mass = words.units_of(shown)
    declared: list[tuple[Column, Callable[[Projection], str]]] = [
        (Column("$/GPU-h", 0.8, True), _price),
        (Column(f"time, {time.unit}", 1.6, True), lambda r: words.figure(r.duration_s, time.per_canonical)),
        (Column("cost, $", 1.6, True), _cost),
        (Column(f"{mass.unit} CO2e", 1.4), lambda r: _emissions(r, mass)),
    ]
    if not is_brief:
        declared.append((Column(energy.unit, 0.8, True), lambda r: _bare(r.energy_kwh, energy)))
    declared.append((Column("known from", 1.2), _known_from))
    heads = [Column("machine", 2.6)]
    told = [list(map(words.label, rows))]
    for column, text in declared:
        cells = list(map(text, rows))
        if set(cells) - {"", "–"}:
            heads.append(column)
            told.append(cells)
    return Table(heads, list(zip(*told, strict=True)))


def _price(row: Projection) -> str:
    if row.offer is None or row.offer.usd_per_gpu_hour is None:
        return "–"
    return f"{row.offer.usd_per_gpu_hour:.2f}"


def _bare(estimate: Estimate | None, scale: Scale) -> str:
    return words.figure(estimate, scale.per_canonical).partition(" ")[0]


def _cost(row: Projection) -> str:
    """Return what is paid; where that is for more time than the training takes, for how long."""
    text = words.figure(row.cost_usd, 1.0)
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


def _chart(shown: words.Rows, decision: Decision) -> Blocks:
    """Draw cost by time: this machine, the choice and what is faster by name and with their ranges, others as dots.

    What is slower than here, and no choice, would crowd the rest into a corner.
    """
    unit, *_ = words.units_of(shown)
    named = [row for row in shown if row.is_local or row in words.machines_named(decision)]
    faster = _faster_than_here(shown)[:_MOST_MARKS]
    # The price of a week would press all others together.
    others = [row for row in faster if row not in named and row.cost_basis != "minimum term"]
    marks = []
    for row in (*named, *others):
        time = row.duration_s
        cost = row.cost_usd
        if time is None or cost is None:
            continue
        name = fmt.shortened(words.label(row), _LABEL)
        if row.cost_basis == "minimum term":
            name += f", ${_cost(row)}"
        mark = MarkedPoint(name, unit.value(time.point), cost.point, is_here=row.is_local)
        if row in named:
            x_range = (unit.value(time.lower), unit.value(time.upper))
            mark = replace(mark, is_named=True, x_range=x_range, y_range=(cost.lower, cost.upper))
        marks.append(mark)
    if len(marks) < 2:
        return []
    return [ChartRow([MarkChart("Time and cost; bars show 90% ranges", f"time, {unit.unit}", "cost, $", marks)])]


def _texts_by_machine(title: str, what: str, rows: words.Rows, texts: Callable[[Projection], Sequence[str]]) -> Blocks:
    """Return a section of texts, each once, with the machines that share it."""
    elsewhere = {words.short_name(row) for row in rows if not row.is_local}
    by_text = grouped(
        (fmt.shortened(text, 600), "here" if row.is_local else words.short_name(row))
        for row in rows
        for text in texts(row)
    )
    cells = []
    for text, names in by_text.items():
        shown = words.names_text(names)
        if len(elsewhere) > 2 and set(names) == elsewhere:
            shown = "all but here"
        cells.append((shown, text))
    if not cells:
        return []
    return [Heading(title), Table(columns({"machine": 1, what: 3}), cells)]
