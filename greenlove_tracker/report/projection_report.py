"""The report of a training on this machine beside others: charts, table, who leads, assumptions and sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date

import greenlove_tracker
from greenlove_tracker import format as fmt
from greenlove_tracker.errors import GreenloveError, UsageError
from greenlove_tracker.forecasting import Estimate
from greenlove_tracker.format import Scale
from greenlove_tracker.logs.run import Run
from greenlove_tracker.projection.ranking import Criterion, value_of
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
from greenlove_tracker.report.projection_text import (
    ProjectionText,
    compared,
    figure,
    market,
    projection_text,
    row_name,
    units_of,
)

_MOST_BARS = 12  # of a file with the offers of many providers, the table holds them all
_LABEL = 36
_TITLE = "Here and on other machines"


def projection_document(projections: Sequence[Projection], about: Sequence[str] = ()) -> Document:
    """Return a report of its own.

    Args:
        projections: this machine first, as ``project`` gives them.
        about: the training in words: its name or empty, then how its time is known.
    """
    return Document(
        title="This training on other machines",
        subtitle=projection_text(projections, about).head,
        footer=f"greenlove_tracker {greenlove_tracker.__version__}",
        blocks=projection_blocks(projections),
    )


def projection_blocks(projections: Sequence[Projection]) -> tuple[Block, ...]:
    """Return the same as sections of another report; nothing without projections."""
    if not projections:
        return ()
    return (*_side_by_side(projections), *_equivalents(projections[0]), *_basis(compared(projections)))


def elsewhere_blocks(run: Run) -> tuple[tuple[Block, ...], tuple[Block, ...]]:
    """Return the training of a run on GPUs for rent, from its log, and apart its assumptions and sources.

    Where it cannot be compared, the first blocks say why.
    """
    from greenlove_tracker.projection.comparison import compare_run  # an exploration needs statsmodels: over a second

    try:
        day = date.fromisoformat(run.started_at[:10])  # not today: the same log gives the same report
        projections = compare_run(run, ProjectionOptions(today=day)).projections
    except (GreenloveError, ValueError) as error:
        reason = error.in_options(OPTION_NAMES) if isinstance(error, UsageError) else str(error)
        return (Heading(_TITLE), Paragraph(f"Not compared: {reason}.")), ()
    return _side_by_side(projections, OPTION_NAMES), _basis(compared(projections))


def _side_by_side(projections: Sequence[Projection], options: Mapping[str, str] | None = None) -> tuple[Block, ...]:
    text = projection_text(projections, options=options)
    return (
        Heading(_TITLE),
        *_charts(compared(projections)),
        comparison_table(text),
        *(Paragraph(f"{sentence}.") for sentence in text.beside),
        *((Table((Column("", 1), Column("", 6)), text.verdicts),) if text.verdicts else ()),
        *(Paragraph(f"{sentence}.") for sentence in text.warnings),
        *(Paragraph(sentence, is_note=True) for sentence in text.notes),
    )


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
        value = value_of(row, criterion)
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
    """Return the machines that are compared, this one first."""
    units = text.units
    columns = (
        Column("machine", 2.2),
        Column("rent as, × $/h", 1.4, True),
        Column(f"time, {units.time.unit}", 2.0, True),
        Column(f"cost, {units.cost.unit}", 2.4, True),
        Column(units.energy.unit, 1.0, True),
        Column(f"CO2e, {units.mass.unit}: location", 1.3, True),
        Column("market", 1.45, True),
        Column("speedup known from", 1.4),
    )
    rows = tuple(
        (
            line.name,
            line.rent_as,
            line.time.text,
            line.cost.text,
            line.energy,
            line.location,
            line.market,
            line.known_from,
        )
        for line in text.lines
    )
    return Table(columns, rows)


def _equivalents(local: Projection) -> tuple[Block, ...]:
    """Return everyday amounts of the emissions of this machine; its country is known by its grid only."""
    if local.emissions_kgco2e is None or local.intensity is None:
        return ()
    source = local.intensity.source
    country = "US" if source.startswith("United States") or "eGRID" in source else ""
    return equivalent_blocks(local.emissions_kgco2e.point, country)


def _basis(shown: Sequence[Projection]) -> tuple[Block, ...]:
    """Return the assumptions about each machine, and every source with the machines that rest on it."""
    return (
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
    cells = tuple((", ".join(dict.fromkeys(names)), text) for text, names in by_text.items())
    return Heading(title), Table((Column(first, 1), Column(second, 3)), cells)
