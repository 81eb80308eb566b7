"""The page of a comparison, whether of techniques in trials or of logged runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from itertools import starmap
from pathlib import Path
from typing import cast

from greenlove_tracker.logs.comparisons import read_comparison
from greenlove_tracker.logs.intensity_sources import is_mock
from greenlove_tracker.logs.run import Run
from greenlove_tracker.rendering.document import Blocks, Document, Heading, Note, Paragraph, Table, Texts, columns
from greenlove_tracker.report import comparison_sides, wording
from greenlove_tracker.report.metric_report import number_text
from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.comparisons import Comparison, ComparisonRow, Verdict, is_modelled
from greenlove_tracker.vocabulary.errors import LogError
from greenlove_tracker.vocabulary.forecasting import Estimate

Comparisons = Sequence[Comparison]
Facts = Sequence[tuple[str, str]]  # what is said of what
QUANTITIES = {
    "time_ratio": "time",
    "energy_ratio": "energy",
    "co2e_ratio": "CO2e",
    "cost_ratio": "cost",
    "memory_ratio": "peak memory",
}
"""What is compared: its short name, by the field of the ratio."""
_SHORT_VERDICTS = {Verdict.NO_DIFFERENCE: "no difference", Verdict.TOO_SHORT: "too short"}
_FINE = 0.01  # of the baseline: intervals that reach no farther from their middle are told to a tenth of a percent
_MODEL_NOTE = "* what of the energy is modelled says nothing beyond the time."
_OF_MACHINE = ("host", "system", "CPU", "GPUs", "meter", "place", "PUE")
_OF_TRIALS = (
    "The training itself ran in short trials, the arms by turns in mirrored order (A B B A), each from the same "
    "weights. A linear model of the logarithm of a trial's value gives the ratios. Combinations were measured, not "
    "multiplied. The whole training is projected from the trials."
)
_OF_RUNS = (
    "Whole logged runs were compared: the ratio of the geometric means of each group, less a drift over the order of "
    "runs where groups took turns, with t intervals from how much the runs of one group differ. With one run each, "
    "they come from the noise of its epochs and an assumption."
)
_EACH = (
    "Each interval holds for its own row, not for all at once. The method, and how often its intervals held: "
    "docs/method/comparisons.md; what each technique does: docs/guides/what-saves.md."
)


def comparison_document(comparison: Comparison, groups: comparison_sides.Groups = ()) -> Document:
    """Return the page of a comparison.

    Args:
        comparison: of techniques, or of logged runs.
        groups: the logged runs that were compared; none of trials.
    """
    title = "What saves time and energy in this training"
    if comparison.is_of_runs:
        title = "How the runs compare"
    return Document(
        title=title,
        subtitle=f"{_names(comparison.rows) or 'nothing'} against {comparison.baseline.name}",
        footer=wording.footer(comparison.run_dir.name if comparison.run_dir else ""),
        verdict=f"{headline(comparison)}.",
        blocks=comparison_blocks(comparison, groups),
    )


def compared_blocks(run: Run) -> tuple[str, Blocks]:
    """Return the verdict and the result of a comparison, from its log; the reason where it cannot be read."""
    try:
        comparison = read_comparison(cast("Path", run.path))  # one of a store is read alike
    except LogError as error:
        return f"The comparison cannot be read: {error}.", []
    if comparison is None:
        names = wording.field_text(run, "compared")
        return f"{names or 'Techniques'} were to be compared; nothing was found before it ended.", []
    return f"{headline(comparison)}.", comparison_blocks(comparison)


def comparison_blocks(comparison: Comparison, groups: comparison_sides.Groups = ()) -> Blocks:
    """Return the changes and what each takes, what differed, and how it was measured."""
    sides = list(starmap(comparison_sides.side_of, groups))
    return [
        *answer_blocks([comparison], sides),
        *(Paragraph(f"! Not put back: {text}.") for text in comparison.left_changed),
        *not_run_blocks([(row.name, row.reason) for row in comparison.rows if row.verdict is Verdict.NOT_RUN]),
        *detail_blocks([comparison], sides),
        *method_blocks(comparison),
    ]


def answer_blocks(comparisons: Comparisons, sides: comparison_sides.Sides, savings: Sequence[Table] = ()) -> Blocks:
    """Return the savings, else the table of changes and that of totals, and what has to be known to read them."""
    blocks: Blocks = [*comparison_sides.metric_chart(sides), *savings]
    if len(comparisons) != 1 or not savings:
        blocks += _changes(comparisons)
        blocks += comparison_sides.took_by_runs(sides) if sides else _took_whole(comparisons)
    if any(map(has_model, comparisons)):
        blocks.append(Paragraph(_MODEL_NOTE))
    of_machine = [label for label, *_ in comparison_sides.unlike(sides) if label in _OF_MACHINE]
    if of_machine:
        blocks.append(Paragraph(f"! The runs also differ in {wording.joined(of_machine, comparison_sides.MOST_SAID)}."))
    if any(is_mock(run.intensity_sources) for side in sides for run in side.runs):
        blocks.append(Paragraph("! MOCK: the carbon intensity is invented, and so is the CO2e."))
    return blocks


def detail_blocks(comparisons: Comparisons, sides: comparison_sides.Sides) -> Blocks:
    notes = [note for comparison in comparisons for note in _notes(comparison)]
    for side in sides:
        notes += [(side.name, run.text("technique_note")) for run in side.runs if run.text("technique_note")]
        for run in side.left_out:
            notes.append((side.name, f"{run.run_id} is left out: {run.summary.status}, {wording.progress(run)}"))
    blocks = comparison_sides.difference_blocks(sides)
    if notes:
        blocks += [Heading("Notes"), wording.facts_table(dict.fromkeys(notes))]
    return blocks


def headline(comparison: Comparison) -> str:
    """Return the answer in one sentence: what saves most, and how sure that is; or that nothing does."""
    ran = rows_that_ran(comparison)
    if not comparison.rows:
        return f"Nothing was compared with {comparison.baseline.name}"
    if not ran:
        return f"{_names(comparison.rows)} could not be run"
    if comparison.notes and not comparison.trials:  # the first note says why there is none
        said = f"Nothing was measured: {comparison.notes[0]}"
        budgets_s = [row.budget_s for row in ran if row.budget_s is not None]
        if budgets_s:
            said += f"; --budget {math.ceil(max(budgets_s))} would show more"
        return said
    best = next((row for row in ran if row.verdict is Verdict.SAVES), ran[0])
    if best.verdict is Verdict.SAVES or len(ran) == 1:
        return row_sentence(comparison, best)
    return ". ".join(
        ["Nothing shows a saving", *(row_sentence(comparison, row) for row in ran[: comparison_sides.MOST_SAID])]
    )


def _names(rows: Iterable[ComparisonRow]) -> str:
    return wording.joined([row.name for row in rows], comparison_sides.MOST_SAID)


def row_sentence(comparison: Comparison, row: ComparisonRow) -> str:
    """Return what an arm does: ``amp-bf16 saves 31% of the energy [27 – 35] and 38% of the time [36 – 40]``."""
    learnt = ""
    if row.learns_otherwise:
        learnt = f"; {row.learns_otherwise}"
    energy = "energy"
    if is_modelled(comparison.energy_method):
        energy = "modelled energy"
    both = ((energy, row.energy_ratio), ("time", row.time_ratio))
    ratios = [(name, ratio) for name, ratio in both if ratio is not None]
    if row.verdict is Verdict.TOO_SHORT:
        advice = ""
        if comparison.is_of_runs:
            advice = ": more runs of each may tell"
        elif row.budget_s is not None:
            advice = f": --budget {math.ceil(row.budget_s)} would show more"
        found = [*(f"{name} {change_text(ratio)}" for name, ratio in ratios), Verdict.TOO_SHORT]
        return f"{row.name}: {', '.join(found)}{advice}{learnt}"
    saved = []
    spent = []
    for name, ratio in ratios:
        if ratio.upper < 1:
            saved.append(share_text(ratio, name))
        elif ratio.lower > 1:
            spent.append(share_text(ratio, name))
    memory = row.memory_ratio
    if spent and memory is not None and memory.upper < 1:
        saved.append(share_text(memory, "peak memory"))
    does = []
    if saved:
        does.append(f"saves {' and '.join(saved)}")
    if spent:
        does.append(f"takes {' and '.join(spent)}")
    return f"{row.name} {', but '.join(does) or 'makes no measurable difference'}{learnt}"


def share_text(ratio: Estimate, of_what: str) -> str:
    """Write what is saved or spent more: ``31% of the energy [27 – 35]``, ``14% more time [12 – 16]``."""
    decimals = _decimals(ratio)
    percent = 100
    what = f"more {of_what}"
    if ratio.point < 1:
        percent = -100
        what = f"of the {of_what}"
    ends = sorted(percent * (end - 1) for end in (ratio.lower, ratio.upper))
    share, lower, upper = (f"{value:,.{decimals}f}" for value in (percent * (ratio.point - 1), *ends))
    if ratio.has_interval and not lower == share == upper:
        what += f" [{lower} – {upper}]"
    return f"{share}% {what}"


def change_text(ratio: Estimate | None) -> str:
    """Write a ratio to the baseline as a change with its interval: ``−31% [−35 – −27]``; ``unknown`` without one."""
    if ratio is None or not math.isfinite(ratio.point):
        return fmt.UNKNOWN
    decimals = _decimals(ratio)
    lower, point, upper = (signed(end - 1, decimals) for end in (ratio.lower, ratio.point, ratio.upper))
    if not ratio.has_interval or lower == point == upper:
        return f"{point}%"
    return f"{point}% [{lower} – {upper}]"


def _decimals(ratio: Estimate) -> int:
    return int(0 < ratio.upper - ratio.lower < 2 * _FINE or 0 < abs(ratio.point - 1) < _FINE / 2)


def signed(change: float, decimals: int) -> str:
    text = f"{change * 100:+,.{decimals}f}"
    if not float(text.replace(",", "")):
        return "0"
    return text.replace("-", "−")


def rows_that_ran(comparison: Comparison) -> list[ComparisonRow]:
    """Return the arms beside the baseline that ran, in their order."""
    return [row for row in comparison.rows if row.verdict is not Verdict.NOT_RUN]


def has_model(comparison: Comparison) -> bool:
    """Return True where some of the energy is modelled, so that its ratio says nothing beyond that of the time."""
    methods = filter(None, comparison.energy_method.split("+"))
    return any(map(is_modelled, methods)) and any(row.energy_ratio for row in comparison.rows)


def not_run_blocks(reasons: Facts) -> Blocks:
    return [Paragraph(f"! {name} not run: {reason}.") for name, reason in reasons]


def _changes(comparisons: Comparisons) -> Blocks:
    """Return the changes of each arm that ran; quantities that change alike share a column, unknown ones have none."""
    ran = [row for comparison in comparisons for row in rows_that_ran(comparison)]
    alike: dict[Texts, list[str]] = {}
    for field_name, name in QUANTITIES.items():
        cells = tuple(change_text(getattr(row, field_name)) for row in ran)
        if name == "energy" and any(map(has_model, comparisons)):
            name += wording.STAR
        if set(cells) - {fmt.UNKNOWN}:
            alike.setdefault(cells, []).append(name)
    if not alike:  # nothing ran, or the budget held too few trials for any ratio
        return []
    baseline = "the baseline with the same values"
    if len(comparisons) == 1:
        baseline = comparisons[0].baseline.name
    heads = columns({f"against {baseline}": 1.5, "": 1}, map(", ".join, alike.values()), 1.6)
    said = [(row.name, _SHORT_VERDICTS.get(row.verdict, row.verdict)) for row in ran]
    return [Table(heads, [(*row, *cells) for row, cells in zip(said, zip(*alike, strict=True), strict=True)])]


def _took_whole(comparisons: Comparisons) -> Blocks:
    """Return what the whole training takes by each arm that ran, after the baseline; nothing that is not known."""
    rows = [row for comparison in comparisons for row in (comparison.baseline, *rows_that_ran(comparison))]
    numbers: dict[str, Texts] = {}
    for field_name, (name, _) in fmt.QUANTITIES.items():
        estimates: list[Estimate | None] = [getattr(row.whole_run, field_name) for row in rows]
        known = next(filter(None, estimates), None)
        if known is not None:
            unit, text = fmt.in_one_unit(field_name, known.point)
            numbers[f"{name}, {unit}"] = [_whole_cell(estimate, text) for estimate in estimates]
    if any(row.final_loss is not None for row in rows):
        numbers["loss"] = [number_text(row.final_loss) for row in rows]
    if len(rows) < 2 or not numbers:
        return []
    heads = columns({"the whole training": 1.6}, numbers, 1.3)
    return [Table(heads, list(zip([row.name for row in rows], *numbers.values(), strict=True)))]


def _whole_cell(estimate: Estimate | None, text: fmt.Text) -> str:
    if estimate is None:
        return fmt.UNKNOWN
    if estimate.lower < estimate.upper:
        return fmt.interval(estimate, text)
    return text(estimate.point)


def _notes(comparison: Comparison) -> Facts:
    rows = (comparison.baseline, *rows_that_ran(comparison))
    return [
        *((row.name, row.learns_otherwise) for row in rows if row.learns_otherwise),
        *((row.name, note.removeprefix(f"{row.name}: ")) for row in rows for note in row.notes),
        *(("all", note) for note in comparison.notes),
    ]


def method_blocks(comparison: Comparison) -> Blocks:
    """Say how it was measured: ``12 trials of 5.2 s · residual 1.8% · energy: counter``."""
    if not comparison.trials:
        return []
    noun = "trial"
    method = _OF_TRIALS
    if comparison.is_of_runs:
        noun = "run"
        method = _OF_RUNS
    lengths_s = [trial.duration_s for trial in comparison.trials]
    parts = [f"{fmt.plural(len(lengths_s), noun)} of {fmt.duration(statistics.median(lengths_s))}"]
    if comparison.residual_cv is not None:
        parts.append(f"residual {fmt.percent(comparison.residual_cv, 1)}")
    known_by = "not measured"
    if comparison.energy_method:
        known_by = wording.method(comparison.energy_method)
    parts.append(f"energy: {known_by}")
    if comparison.budget_s is not None:
        parts.append(f"took {fmt.duration(comparison.spent_s)} of {fmt.duration(comparison.budget_s)}")
    return [Heading("How we know"), Paragraph(f"{' · '.join(parts)}."), Note(f"{method} {_EACH}")]
