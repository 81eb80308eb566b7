"""The report of a comparison: the answer, its bars with intervals, the whole training, and the trials behind it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import greenlove_tracker
from greenlove_tracker import format as fmt
from greenlove_tracker.comparisons import BASELINE, ArmTrial, Comparison, ComparisonRow, Verdict, is_modelled
from greenlove_tracker.errors import LogError
from greenlove_tracker.forecasting import Estimate
from greenlove_tracker.logs.comparisons import read_comparison
from greenlove_tracker.logs.run import Run
from greenlove_tracker.rendering import document as doc
from greenlove_tracker.rendering.axes import thinned
from greenlove_tracker.report import wording
from greenlove_tracker.report.comparison_screen import (
    QUANTITIES,
    change_text,
    energy_caveat,
    headline,
    how_measured,
    loss_text,
    notes_by_arm,
    ratio_columns,
    rows_that_ran,
    too_short_text,
    unknown_text,
    whole_columns,
)

_MOST_LINES = 5  # arms of a chart, the baseline among them
_MOST_KEY_FIGURES = 4
_MOST_NAMES = 80  # characters of names in the subtitle
_LONGEST_TICK = 16  # characters of the baseline's name below bars


def comparison_document(comparison: Comparison, more: tuple[doc.Block, ...] = ()) -> doc.Document:
    """Return the report of a comparison.

    Args:
        comparison: of techniques, or of logged runs.
        more: blocks that stand behind its own.
    """
    names = ", ".join(row.name for row in comparison.rows)
    if len(names) > _MOST_NAMES:
        names = fmt.plural(len(comparison.rows), "other" if comparison.is_of_runs else "technique")
    parts = [f"{names or 'nothing'} against {_the_baseline(comparison)}"]
    if comparison.budget_s is not None:
        parts.append(f"measured within {fmt.duration(comparison.spent_s)}")
    return doc.Document(
        title="How the runs compare" if comparison.is_of_runs else "What saves time and energy in this training",
        subtitle=" · ".join(parts),
        footer=" · ".join(
            filter(
                None,
                (
                    f"greenlove_tracker {greenlove_tracker.__version__}",
                    comparison.run_dir.name if comparison.run_dir else "",
                ),
            )
        ),
        blocks=(*comparison_blocks(comparison), *more),
    )


def _the_baseline(comparison: Comparison) -> str:
    name = comparison.baseline.name
    return f"the {name}" if name == BASELINE else name


def compared_blocks(run: Run) -> tuple[doc.Block, ...]:
    """Return the result of a comparison, from its log; the reason where it cannot be read."""
    try:
        comparison = read_comparison(cast("Path", run.path))  # one of a store is read alike
    except LogError as error:
        return (doc.Paragraph(f"The comparison cannot be read: {error}."),)
    if comparison is None:
        names = wording.field_text(run, "compared")
        return (doc.Paragraph(f"{names or 'Techniques'} were to be compared; nothing was found before it ended."),)
    return comparison_blocks(comparison)


def comparison_blocks(comparison: Comparison) -> tuple[doc.Block, ...]:
    """Return the answer, the key figures of the best arm, bars, tables, the trials, and how it was measured."""
    ran = rows_that_ran(comparison)
    blocks: list[doc.Block] = [doc.Paragraph(f"{headline(comparison)}.")]
    blocks += [doc.Paragraph(f"! Not put back: {text}.") for text in comparison.left_changed]
    blocks += ratio_blocks(comparison)
    blocks += _not_run(comparison)
    if ran:
        blocks += _whole(comparison, ran)
        blocks += _trials(comparison)
    return (*blocks, *background_blocks(comparison))


def ratio_blocks(comparison: Comparison, *, has_key_figures: bool = True) -> tuple[doc.Block, ...]:
    """Return the key figures of the best arm, and all changes with their intervals as bars and in a table."""
    ran = rows_that_ran(comparison)
    if not ran:
        return ()
    return (
        *((_key_figures(comparison, ran[0]),) if has_key_figures else ()),
        doc.Heading(f"Against {_the_baseline(comparison)}"),
        *_bars(comparison, ran),
        *_changes(comparison, ran),
        *(doc.Paragraph(f"{text}.", is_note=True) for text in _below_table(comparison)),
    )


def background_blocks(comparison: Comparison) -> tuple[doc.Block, ...]:
    """Return what else is to be known of a comparison, and how it was measured."""
    return (*_notes(comparison), *_method(comparison))


def _key_figures(comparison: Comparison, row: ComparisonRow) -> doc.KeyFigures:
    """Return the changes by the arm that stands first, and what the whole training comes to with it."""
    figures = []
    for field, name in QUANTITIES.items():
        ratio: Estimate | None = getattr(row, field)
        if ratio is None or not math.isfinite(ratio.point):
            continue
        change, _, interval = change_text(ratio).partition(" (")
        how = [f"with {row.name}"]
        if interval and ratio.lower <= 1 <= ratio.upper:  # a percentage in large type would pass for a result
            how.append(f"{change}, which may be chance")
            change = "no clear change"
        if interval:
            how.append(f"{ratio.level:.0%} {ratio.kind} interval {interval.removesuffix(')')}%")
        how += _whole_texts(comparison, row, field)
        if is_modelled(comparison.energy_method) and field != "time_ratio" and ratio == row.energy_ratio:
            how.append("of a model's energy")
        figures.append(doc.KeyFigure(name.removeprefix("peak "), change, tuple(how)))
    if not figures:
        figures = [doc.KeyFigure("time", fmt.UNKNOWN, (f"no ratio is known for {row.name}",))]
    return doc.KeyFigures(tuple(figures[:_MOST_KEY_FIGURES]))


_WHOLE_FIELDS = {
    "time_ratio": "duration_s",
    "energy_ratio": "energy_kwh",
    "co2e_ratio": "emissions_kgco2e",
    "cost_ratio": "cost_usd",
}


def _whole_texts(comparison: Comparison, row: ComparisonRow, field: str) -> list[str]:
    name = _WHOLE_FIELDS.get(field)
    if name is None:
        pairs = [(comparison.baseline.peak_memory_gb, row.peak_memory_gb)]
        return [
            f"{fmt.significant(own)} instead of {fmt.significant(before)} GiB"
            for before, own in pairs
            if before and own
        ]
    own, before = (getattr(of.whole_run, name) for of in (row, comparison.baseline))
    if own is None or before is None:
        return []
    text = fmt.QUANTITIES[name][1]
    return [f"{text(own.point)} instead of {text(before.point)} for the whole training"]


def _bars(comparison: Comparison, ran: Sequence[ComparisonRow]) -> list[doc.Block]:
    """Return a chart of bars around the baseline for each quantity whose ratios are its own."""
    columns = ratio_columns(comparison)
    blocks: list[doc.Block] = []
    for title, cells in columns:
        field = next(field for field, name in QUANTITIES.items() if title.split(",")[0].rstrip("*") == name)
        bars = [_bar(row, getattr(row, field), cell) for row, cell in zip(ran, cells, strict=True)]
        level = next((getattr(row, field).level for row, cell in zip(ran, cells, strict=True) if "(" in cell), None)
        interval = "" if level is None else f": change, with its {level:.0%} interval"
        name = comparison.baseline.name if len(comparison.baseline.name) <= _LONGEST_TICK else BASELINE
        blocks.append(doc.BarChart(tuple(bars), f"{title[0].upper()}{title[1:]}{interval}", 1.0, name))
    return blocks


def _bar(row: ComparisonRow, ratio: Estimate | None, text: str) -> doc.Bar:
    if ratio is None or not math.isfinite(ratio.point):
        return doc.Bar(row.name, None, text)
    style = doc.BarStyle.UNCLEAR
    if ratio.upper < 1:
        style = doc.BarStyle.SAVES
    elif ratio.lower > 1:
        style = doc.BarStyle.COSTS_MORE
    interval = (ratio.lower, ratio.upper) if "(" in text else None  # none that is too narrow to be told
    return doc.Bar(row.name, ratio.point, text, style, interval)


def _changes(comparison: Comparison, ran: Sequence[ComparisonRow]) -> list[doc.Block]:
    """Return the arms with their verdicts and changes; below it what a sample and the memory come to, and the loss."""
    verdicts = ("verdict", [str(row.verdict) for row in ran])
    changes = (verdicts, *ratio_columns(comparison))
    weights = (1.5, 1.5, *[1.6] * (len(changes) - 1))
    columns = tuple(
        doc.Column(title, weight, is_number=i > 1)
        for i, (title, weight) in enumerate(zip(("", *(title for title, _ in changes)), weights, strict=True))
    )
    names = [row.name for row in ran]
    blocks: list[doc.Block] = [doc.Table(columns, tuple(zip(names, *(cells for _, cells in changes), strict=True)))]
    rows = (comparison.baseline, *ran)
    absolute = [
        ("a sample takes" if _knows_samples(comparison) else "a run takes", [_duration(row) for row in rows]),
        ("peak memory, GiB", [_significant(row.peak_memory_gb, 3) for row in rows]),
        ("loss", [_significant(row.final_loss, 4) for row in rows]),
    ]
    absolute = [(title, cells) for title, cells in absolute if any(cell != fmt.UNKNOWN for cell in cells)]
    if absolute:
        columns = (doc.Column("", 1.5), *(doc.Column(title, 1.6, is_number=True) for title, _ in absolute))
        cells = zip([row.name for row in rows], *(cells for _, cells in absolute), strict=True)
        blocks.append(doc.Table(columns, tuple(cells)))
    return blocks


def _knows_samples(comparison: Comparison) -> bool:
    return not comparison.is_of_runs or any(trial.samples > 1 for trial in comparison.trials)


def _duration(row: ComparisonRow) -> str:
    return fmt.duration(row.duration_s_per_sample)


def _significant(value: float | None, digits: int) -> str:
    return fmt.UNKNOWN if value is None else fmt.significant(value, digits)


def _below_table(comparison: Comparison) -> list[str]:
    """Return what a star means, which quantities are unknown, and what the losses are."""
    caveat, unknown = energy_caveat(comparison), unknown_text(comparison)
    texts = [f"* {caveat}"] if caveat else []
    texts += [f"{unknown[0].upper()}{unknown[1:]}" if not unknown.startswith("CO2e") else unknown] if unknown else []
    texts += (
        ["The loss is that at the end of the trials, after as many samples of each"] if loss_text(comparison) else []
    )
    too_short = [row for row in rows_that_ran(comparison) if row.verdict is Verdict.TOO_SHORT]
    said: dict[str, list[str]] = {}
    for row in too_short:
        said.setdefault(too_short_text(comparison, row), []).append(row.name)
    return [*(f"{', '.join(names)}: {text}" for text, names in said.items()), *texts]


def _not_run(comparison: Comparison) -> list[doc.Block]:
    rows = tuple((row.name, row.reason) for row in comparison.rows if row.verdict is Verdict.NOT_RUN)
    if not rows:
        return []
    return [doc.Heading("Not run"), doc.Table((doc.Column("", 1), doc.Column("reason", 4)), rows)]


def _whole(comparison: Comparison, ran: Sequence[ComparisonRow]) -> list[doc.Block]:
    columns = whole_columns(comparison)
    if not columns:
        return []
    names = [comparison.baseline.name, *(row.name for row in ran)]
    rows = tuple(zip(names, *(cells for _, cells in columns), strict=True))
    heads = (
        doc.Column("", 1.6),
        *(doc.Column(title, 1.6 if i == 0 else 1.2, True) for i, (title, _) in enumerate(columns)),
    )
    note = "Projected from the times and energies of the trials, with the starts of all epochs and what is spent once."
    return [doc.Heading("The whole training"), doc.Table(heads, rows), doc.Paragraph(note, is_note=True)]


def _trials(comparison: Comparison) -> list[doc.Block]:
    """Return two charts of the trials in their order: the times, and each against the mean of its arm."""
    arms: dict[str, list[ArmTrial]] = {}
    for trial in comparison.trials:
        if trial.duration_s > 0 and trial.samples > 0:
            arms.setdefault(trial.arm, []).append(trial)
    shown = [name for name in (comparison.baseline.name, *(row.name for row in comparison.rows)) if name in arms]
    n_known, shown = len(shown), shown[:_MOST_LINES]
    if not shown or max(len(arms[name]) for name in shown) < 2:
        return []
    values = {name: [(float(t.position + 1), t.duration_s / t.samples) for t in arms[name]] for name in shown}
    scale = _sample_scale(max(y for points in values.values() for _, y in points))
    means = {name: statistics.geometric_mean(y for _, y in points) for name, points in values.items()}
    noun = "run" if comparison.is_of_runs else "trial"
    times = _chart(
        f"Time of a {'sample' if _knows_samples(comparison) else 'run'}",
        noun,
        scale[0],
        {name: [(x, y * scale[1]) for x, y in points] for name, points in values.items()},
    )
    drift = _chart(
        f"Each {noun} against its arm's mean",
        noun,
        "%",
        {name: [(x, y / means[name] * 100) for x, y in points] for name, points in values.items()},
        level=(100.0, "mean"),
    )
    notes = [f"On the right, a movement shared by all lines is drift; the rest is the noise of a {noun}."]
    if n_known > len(shown):
        notes.append(f"{len(shown)} of {n_known} are drawn.")
    title = "The runs" if comparison.is_of_runs else "The trials, in the order in which they ran"
    return [doc.Heading(title), doc.ChartRow((times, drift)), doc.Paragraph(" ".join(notes), is_note=True)]


def _sample_scale(longest_s: float) -> tuple[str, float]:
    """Return the unit of times up to this one, and what a second is in it."""
    if longest_s >= 1:
        scale = fmt.time_scale(longest_s)
        return scale.unit, scale.per_canonical
    return ("ms", 1e3) if longest_s >= 1e-3 else ("µs", 1e6)


def _chart(
    title: str,
    noun: str,
    unit: str,
    points: dict[str, list[tuple[float, float]]],
    level: tuple[float, str] | None = None,
) -> doc.LineChart:
    (first, own), *others = points.items()
    return doc.LineChart(
        title=title,
        x_label=f"{noun}, in order",
        y_label=unit,
        points=thinned(own),
        level=level,
        name=first,
        others=tuple(doc.Line(name, thinned(line)) for name, line in others),
        is_from_0=level is None,
    )


def _notes(comparison: Comparison) -> list[doc.Block]:
    learnt = ((row.name, row.learns_otherwise) for row in comparison.rows if row.learns_otherwise)
    rows = (*learnt, *notes_by_arm(comparison), *(("all", note) for note in comparison.notes))
    if not rows:
        return []
    return [doc.Heading("Notes"), doc.Table((doc.Column("", 1), doc.Column("", 4)), rows)]


def _method(comparison: Comparison) -> list[doc.Block]:
    if not comparison.trials:
        return []
    own = how_measured(comparison)
    if comparison.is_of_runs:
        text = (
            "Whole logged runs were compared: the ratio of the geometric means of each arm, with t intervals from how "
            "much runs of one arm differ. With one run each, they come from the noise of its epochs and an assumption."
        )
    else:
        text = (
            "The training itself ran in short trials, the arms by turns in mirrored order (A B B A), each arm from the "
            "same weights. One linear model of the logarithm of a trial's value, with arm, block and drift, gives the "
            "ratios; their intervals are Student's t with the residual of all arms together. Combinations were "
            "measured, not multiplied."
        )
    return [
        doc.Heading("How it was measured"),
        doc.Paragraph(f"{own[0].upper()}{own[1:]}."),
        doc.Paragraph(
            f"{text} Each interval holds for its own arm, not for all at once. The method, and how often its "
            "intervals held: docs/comparison.md; what each technique does: docs/techniques.md.",
            is_note=True,
        ),
    ]
