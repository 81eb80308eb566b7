"""The report of a training here beside other machines: what to do, charts, table, who leads, and its grounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date

import greenlove_tracker
from greenlove_tracker import format as fmt
from greenlove_tracker.errors import GreenloveError, UsageError
from greenlove_tracker.forecasting import Estimate
from greenlove_tracker.format import Scale
from greenlove_tracker.logs.run import Run
from greenlove_tracker.projection.decision import Decision, decide
from greenlove_tracker.projection.ranking import QUANTITIES, Criterion, Ranking
from greenlove_tracker.projection.types import OPTION_NAMES, Projection, ProjectionOptions
from greenlove_tracker.rendering.document import (
    Bar,
    BarChart,
    BarStyle,
    Block,
    Column,
    Document,
    Heading,
    Paragraph,
    Table,
)
from greenlove_tracker.report.equivalents import equivalent_blocks
from greenlove_tracker.report.projection_advice import advice_sentence, label
from greenlove_tracker.report.projection_text import (
    DASH,
    ProjectionText,
    compared,
    figure,
    head_text,
    market,
    projection_text,
    row_name,
    units_of,
)

_MOST_BARS = 12  # of a file with the offers of many providers, the table holds them all
_LABEL = 36
_TITLE = "Here and on other machines"
_DECISION = "Where to train"
_LEAST_SHOWN = 0.01  # of a machine's chance


def projection_document(
    projections: Sequence[Projection], about: Sequence[str] = (), decision: Decision | None = None
) -> Document:
    """Return a report of its own.

    Args:
        projections: this machine first, as ``project`` gives them.
        about: the training in words: its name or empty, then how its time is known.
        decision: between them; None for the cheapest without limits.
    """
    return Document(
        title="Where to train",
        subtitle=head_text(projections[0], about),
        footer=f"greenlove_tracker {greenlove_tracker.__version__}",
        blocks=projection_blocks(projections, OPTION_NAMES, decision),
    )


def projection_blocks(
    projections: Sequence[Projection], options: Mapping[str, str] | None = None, decision: Decision | None = None
) -> tuple[Block, ...]:
    """Return the same as sections of another report; nothing without projections.

    Args:
        projections: this machine first.
        options: of a command line by the names of arguments, for warnings; None: Python's names.
        decision: between them; None for the cheapest without limits.
    """
    if not projections:
        return ()
    made = decision or decide(projections)
    text = projection_text(projections, options=options, decision=made)
    return (
        *_side_by_side(projections, text, made),
        *_equivalents(projections[0]),
        *_basis(compared(projections), text),
    )


def elsewhere_blocks(run: Run) -> tuple[tuple[Block, ...], tuple[Block, ...]]:
    """Return the training of a run on GPUs for rent, from its log, and apart its assumptions and sources.

    Where it cannot be compared, the first blocks say why.
    """
    from greenlove_tracker.projection.comparison import compare_run  # an exploration needs statsmodels: over a second

    try:
        day = date.fromisoformat(run.started_at[:10])  # not today: the same log gives the same report
        options = ProjectionOptions(today=day)
        found = compare_run(run, options)
    except (GreenloveError, ValueError) as error:
        reason = error.in_options(OPTION_NAMES) if isinstance(error, UsageError) else str(error)
        return (Heading(_TITLE), Paragraph(f"Not compared: {reason}.")), ()
    projections = found.projections
    decision = decide(projections, options, found.work)
    if decision.verdict == "too short":
        sentence = advice_sentence(decision)
        return (Heading(_TITLE), Paragraph(f"{sentence} greenlove project compares it all the same.")), ()
    text = projection_text(projections, options=OPTION_NAMES, decision=decision)
    return _side_by_side(projections, text, decision), _basis(compared(projections), text)


def _side_by_side(projections: Sequence[Projection], text: ProjectionText, decision: Decision) -> tuple[Block, ...]:
    return (
        Heading(_DECISION),
        Paragraph(text.decision),
        *(Paragraph(reason) for reason in text.reasons),
        *_chances(decision.ranking),
        Heading(_TITLE),
        *_charts(compared(projections)),
        comparison_table(text),
        *(Paragraph(f"{sentence}.") for sentence in text.beside),
        *((Table((Column("", 1), Column("", 6)), text.verdicts),) if text.verdicts else ()),
        *(Paragraph(f"{sentence}.") for sentence in text.savings),
        *(Paragraph(f"{sentence}.") for sentence in text.warnings),
    )


def _chances(ranking: Ranking) -> tuple[Block, ...]:
    """Return a table of probabilities: of each machine to be the cheapest to rent, the fastest, the greenest."""
    verdicts = {
        "cheapest to rent": ranking.cheapest_rented,
        "fastest": ranking.fastest,
        "greenest": ranking.greenest,
    }
    known = {title: verdict for title, verdict in verdicts.items() if verdict is not None}
    by_machine: dict[str, dict[str, float]] = {}
    for title, verdict in known.items():
        for chance in verdict.chances:
            if chance.probability >= _LEAST_SHOWN:
                by_machine.setdefault(label(chance.machine), {})[title] = chance.probability
    if not by_machine:
        return ()
    columns = (Column("chance of each to be", 2), *(Column(title, 1, True) for title in known))
    rows = (
        (fmt.shortened(name, _LABEL), *(fmt.percent(chances[title]) if title in chances else "" for title in known))
        for name, chances in by_machine.items()
    )
    return (Table(columns, tuple(rows)),)


def _charts(shown: Sequence[Projection]) -> tuple[Block, ...]:
    units, drawn = units_of(shown), shown[:_MOST_BARS]
    own = "the machine here" if shown[0].cost_basis == "machine" else "electricity here"
    charts = (
        _chart("time", drawn, f"Time, {units.time.unit}", units.time),
        _chart("cost", drawn, f"Cost, {units.cost.unit}: {own}, the machine where it is rented", units.cost),
        _chart("co2e", drawn, f"CO2e, {units.mass.unit}, location-based", units.mass),
    )
    left_out = len(shown) - len(drawn)
    note = f"The charts show the {len(drawn)} first rows of the table; {left_out} more are in it."
    return (*(chart for chart in charts if chart), *((Paragraph(note, is_note=True),) if left_out else ()))


def _chart(criterion: Criterion, rows: Sequence[Projection], title: str, scale: Scale) -> BarChart | None:
    """Return a bar for each row; None where there is nothing to compare."""
    factor = scale.per_canonical
    bars = []
    for row in rows:
        value: Estimate | None = getattr(row, QUANTITIES[criterion])
        label = fmt.shortened(row_name(row) if row.is_local else f"{row.billed_gpus} × {row_name(row)}", _LABEL)
        if value is None:
            bars.append(Bar(label, None, fmt.UNKNOWN))
            continue
        text = figure(value, factor).text
        if criterion == "co2e" and row.market is not None:
            text += f" · market-based: {market(row)}"
        style = BarStyle.PLAIN if row.is_local else BarStyle.PROJECTED
        bars.append(Bar(label, value.point * factor, text, style, _range(value, factor)))
    known = [bar.value for bar in bars if bar.value is not None]
    is_comparison = len(known) > 1 and (len(known) == len(bars) == 2 or len(set(known)) > 2)  # not all others alike
    return BarChart(tuple(bars), title) if is_comparison else None


def _range(value: Estimate, factor: float) -> tuple[float, float] | None:
    return (value.lower * factor, value.upper * factor) if value.lower < value.upper else None


def comparison_table(text: ProjectionText) -> Table:
    """Return the machines that are compared, this one first, the others group by group; no column without a value."""
    units, lines = text.units, text.lines
    speedups = [", ".join(filter(None, (line.speedup, line.known_from))) for line in lines]
    columns = [
        (Column("GPUs × $/h", 1.3, True), [line.rent_as for line in lines]),
        (Column(f"time, {units.time.unit}", 2.0, True), [line.time.text for line in lines]),
        (Column(f"cost, {units.cost.unit}", 2.0, True), [line.cost.text for line in lines]),
        (Column(units.energy.unit, 0.9, True), [line.energy for line in lines]),
        (Column(f"CO2e, {units.mass.unit}", 1.1, True), [line.location for line in lines]),
        (Column("market", 1.4, True), [line.market for line in lines]),
        (Column("speedup of one GPU", 1.9), speedups),
    ]
    shown = [(column, cells) for column, cells in columns if any(cell not in ("", DASH, "none") for cell in cells)]
    rows, group = [], ""
    for i, line in enumerate(lines):
        if line.group != group:
            group = line.group
            rows.append((f"{group}:", *("" for _ in shown)))
        rows.append((line.name, *(cells[i] for _, cells in shown)))
    return Table((Column("machine", 2.4), *(column for column, _ in shown)), tuple(rows))


def _equivalents(local: Projection) -> tuple[Block, ...]:
    """Return everyday amounts of the emissions of this machine; its country is known by its grid only."""
    if local.emissions_kgco2e is None or local.intensity is None:
        return ()
    source = local.intensity.source
    country = "US" if source.startswith("United States") or "eGRID" in source else ""
    return equivalent_blocks(local.emissions_kgco2e.point, country)


def _basis(shown: Sequence[Projection], text: ProjectionText) -> tuple[Block, ...]:
    """Return notes, the assumptions about each machine, and every source with the machines that rest on it."""
    return (
        Heading("What it rests on"),
        *(Paragraph(f"{sentence}.") for sentence in text.of_machines),
        *(Paragraph(sentence, is_note=True) for sentence in text.notes),
        *_grouped("What was assumed of these machines", "machine", "assumption", shown, lambda row: row.assumptions),
        *_grouped("Sources of the comparison", "machine", "source", shown, _sources),
    )


def _sources(row: Projection) -> list[str]:
    """Return a row's sources without those of the speedup that are the data sheet's anyway."""
    return [text for text in row.sources if f"data sheet: {text}" not in row.sources]


def _grouped(
    title: str, first: str, second: str, rows: Sequence[Projection], texts: Callable[[Projection], Sequence[str]]
) -> tuple[Block, ...]:
    """Return a section of texts, each once, with the machines that share it."""
    by_text: dict[str, list[str]] = {}
    for row in rows:
        for text in texts(row):
            by_text.setdefault(fmt.shortened(text, 600), []).append(row_name(row).partition("  ")[0])
    if not by_text:
        return ()
    elsewhere = {row_name(row).partition("  ")[0] for row in rows if not row.is_local}

    def whose(names: Sequence[str]) -> str:
        is_of_all = len(elsewhere) > 2 and set(names) == elsewhere
        return "all but here" if is_of_all else ", ".join(dict.fromkeys(names))

    cells = tuple((whose(names), text) for text, names in by_text.items())
    return Heading(title), Table((Column(first, 1), Column(second, 3)), cells)
