"""The page of a comparison, whether of techniques in trials, of logged runs, or of the trainings of an experiment."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import starmap
from pathlib import Path
from typing import cast

from greenlove_tracker.extrapolation.run_comparison import compare_runs
from greenlove_tracker.logs.comparisons import read_comparison
from greenlove_tracker.logs.intensity_sources import is_mock
from greenlove_tracker.logs.run import GOOD_ENDINGS, Run
from greenlove_tracker.logs.run_fields import names_by
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
    Texts,
    columns,
)
from greenlove_tracker.report import wording
from greenlove_tracker.report.metric_report import final_value, is_learning_rate, number_text, rank_of_metric
from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.comparisons import Comparison, ComparisonRow, Verdict, is_modelled
from greenlove_tracker.vocabulary.errors import LogError
from greenlove_tracker.vocabulary.forecasting import Estimate

Comparisons = Sequence[Comparison]
Runs = Sequence[Run]
Groups = Sequence[tuple[str, Runs]]
"""Runs by the name of their group; the first is the baseline."""
_Facts = Sequence[tuple[str, str]]  # what is said of what

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
_MOST_SAID = 3  # names in a sentence
_MOST_METRICS = 2
_MOST_NAMED = 8  # points of a chart
_NAME_WIDTH = 40
_DASH = "–"
_MODEL_NOTE = "* what of the energy is modelled says nothing beyond the time."

_OF_MACHINE = ("host", "system", "CPU", "GPUs", "meter", "place", "PUE")
_OF_TRIALS = (
    "The training itself ran in short trials, the arms by turns in mirrored order (A B B A), each from the same "
    "weights. A linear model of the logarithm of a trial's value gives the ratios. Combinations were measured, not "
    "multiplied. The whole training is projected from the trials."
)
_OF_RUNS = (
    "Whole logged runs were compared: the ratio of the geometric means of each group, with t intervals from how much "
    "the runs of one group differ. With one run each, they come from the noise of its epochs and an assumption."
)
_EACH = (
    "Each interval holds for its own row, not for all at once. The method, and how often its intervals held: "
    "docs/method/comparisons.md; what each technique does: docs/guides/what-saves.md."
)


def comparison_document(comparison: Comparison, groups: Groups = ()) -> Document:
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


def comparison_blocks(comparison: Comparison, groups: Groups = ()) -> Blocks:
    """Return the changes and what each takes, what differed, and how it was measured."""
    sides = list(starmap(side_of, groups))
    return [
        *_answer([comparison], sides),
        *(Paragraph(f"! Not put back: {text}.") for text in comparison.left_changed),
        *_not_run([(row.name, row.reason) for row in comparison.rows if row.verdict is Verdict.NOT_RUN]),
        *_details([comparison], sides),
        *_method(comparison),
    ]


def _answer(comparisons: Comparisons, sides: Sides) -> Blocks:
    """Return the table of changes, that of totals, and what has to be known to read them."""
    blocks = [*_marks(sides), *_changes(comparisons), *(_took_by_runs(sides) if sides else _took_whole(comparisons))]
    if any(map(_has_model, comparisons)):
        blocks.append(Paragraph(_MODEL_NOTE))
    differing = {label for label, *_ in _unlike(sides)}
    unlike = [label for label in _OF_MACHINE if label in differing]
    if unlike:
        blocks.append(Paragraph(f"! The runs also differ in {wording.joined(unlike, _MOST_SAID)}."))
    if any(is_mock(run.intensity_sources) for side in sides for run in side.runs):
        blocks.append(Paragraph("! MOCK: the carbon intensity is invented, and so is the CO2e."))
    return blocks


def _details(comparisons: Comparisons, sides: Sides) -> Blocks:
    notes = [note for comparison in comparisons for note in _notes(comparison)]
    for side in sides:
        notes += [(side.name, run.text("technique_note")) for run in side.runs if run.text("technique_note")]
        for run in side.left_out:
            notes.append((side.name, f"{run.run_id} is left out: {run.summary.status}, {wording.progress(run)}"))
    blocks = _differences(sides)
    if notes:
        blocks += [Heading("Notes"), wording.facts_table(dict.fromkeys(notes))]
    return blocks


# -- The answer --


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
    return ". ".join(["Nothing shows a saving", *(row_sentence(comparison, row) for row in ran[:_MOST_SAID])])


def _names(rows: Iterable[ComparisonRow]) -> str:
    return wording.joined([row.name for row in rows], _MOST_SAID)


def row_sentence(comparison: Comparison, row: ComparisonRow) -> str:
    """Return what an arm does: ``amp-bf16 saves 31% of the energy [27 – 35] and 38% of the time [36 – 40]``."""
    learnt = ""
    if row.learns_otherwise:
        learnt = f"; {row.learns_otherwise}"
    if row.verdict is Verdict.TOO_SHORT:
        advice = ""
        if comparison.is_of_runs:
            advice = ": more runs of each may tell"
        elif row.budget_s is not None:
            advice = f": --budget {math.ceil(row.budget_s)} would show more"
        return f"{row.name}: {Verdict.TOO_SHORT}{advice}{learnt}"
    energy = "energy"
    if is_modelled(comparison.energy_method):
        energy = "modelled energy"
    saved = []
    spent = []
    for ratio, name in ((row.energy_ratio, energy), (row.time_ratio, "time")):
        if ratio is not None and ratio.upper < 1:
            saved.append(share_text(ratio, name))
        elif ratio is not None and ratio.lower > 1:
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
    if ratio.point < 1:
        values = (1 - ratio.point, 1 - ratio.upper, 1 - ratio.lower)
        what = f"of the {of_what}"
    else:
        values = (ratio.point - 1, ratio.lower - 1, ratio.upper - 1)
        what = f"more {of_what}"
    share, lower, upper = (f"{value * 100:,.{decimals}f}" for value in values)
    if ratio.has_interval and not lower == share == upper:
        what += f" [{lower} – {upper}]"
    return f"{share}% {what}"


def change_text(ratio: Estimate | None) -> str:
    """Write a ratio to the baseline as a change with its interval: ``−31% [−35 – −27]``; ``unknown`` without one."""
    if ratio is None or not math.isfinite(ratio.point):
        return fmt.UNKNOWN
    decimals = _decimals(ratio)
    lower, point, upper = (_signed(end - 1, decimals) for end in (ratio.lower, ratio.point, ratio.upper))
    if not ratio.has_interval or lower == point == upper:
        return f"{point}%"
    return f"{point}% [{lower} – {upper}]"


def _decimals(ratio: Estimate) -> int:
    return int(0 < ratio.upper - ratio.lower < 2 * _FINE or 0 < abs(ratio.point - 1) < _FINE / 2)


def _signed(change: float, decimals: int) -> str:
    if not math.isfinite(change):
        return fmt.UNKNOWN
    text = f"{change * 100:+,.{decimals}f}"
    if not float(text.replace(",", "")):
        return "0"
    return text.replace("-", "−")


def rows_that_ran(comparison: Comparison) -> list[ComparisonRow]:
    """Return the arms beside the baseline that ran, in their order."""
    return [row for row in comparison.rows if row.verdict is not Verdict.NOT_RUN]


def _has_model(comparison: Comparison) -> bool:
    """Return True where some of the energy is modelled, so that its ratio says nothing beyond that of the time."""
    methods = filter(None, comparison.energy_method.split("+"))
    return any(map(is_modelled, methods)) and any(row.energy_ratio for row in comparison.rows)


def _not_run(reasons: _Facts) -> Blocks:
    return [Paragraph(f"! {name} not run: {reason}.") for name, reason in reasons]


# -- The tables --


def _changes(comparisons: Comparisons) -> Blocks:
    """Return the changes of each arm that ran; quantities that change alike share a column, unknown ones have none."""
    ran = [row for comparison in comparisons for row in rows_that_ran(comparison)]
    alike: dict[Texts, list[str]] = {}
    for field_name, name in QUANTITIES.items():
        cells = tuple(change_text(getattr(row, field_name)) for row in ran)
        if name == "energy" and any(map(_has_model, comparisons)):
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


# -- Logged runs --


@dataclass(frozen=True, slots=True)
class Side:
    """The runs of one name.

    Attributes:
        name: of them.
        runs: trainings that came to their end.
        left_out: the others.
    """

    name: str
    runs: Runs
    left_out: Runs = ()

    def values(self, quantity: str) -> list[float | None]:
        """Return a total of each run, by the name of its field."""
        # the CO2e of a run is None where its carbon intensity is not known; that of its summary is not
        return [getattr(run if quantity == "emissions_kgco2e" else run.summary, quantity) for run in self.runs]

    def cells(self, metrics: Texts) -> Texts:
        """Write how far the runs trained, the means of what they took, and what they learnt."""
        each = dict.fromkeys(map(wording.progress, self.runs))
        planned = {run.summary.epochs_planned for run in self.runs}
        trained = "; ".join(each) or "did not finish"
        if len(each) > 1 and len(planned) == 1 and None not in planned:  # each may have stopped early
            done = [run.summary.epochs_done for run in self.runs]
            trained = f"{min(done):,}–{max(done):,} of {planned.pop():,} epochs"
        name = fmt.shortened(self.name, _NAME_WIDTH)
        if len(self.runs) > 1:
            name += f" ({len(self.runs)} runs)"
        took = (_mean_text(self.values(quantity), text) for quantity, (_, text) in fmt.QUANTITIES.items())
        return (name, trained, *took, *map(self.learnt, metrics))

    def learnt(self, metric: str) -> str:
        """Write the mean of the values that a metric had at last."""
        return _mean_text([final_value(run, metric) for run in self.runs], number_text)


Sides = Sequence[Side]


def side_of(name: str, runs: Runs) -> Side:
    """Return the runs of one name: trainings that came to their end, and apart from them the others."""
    kept = [run for run in runs if _is_done(run)]
    return Side(name, kept, [run for run in runs if not _is_done(run)])


def _is_done(run: Run) -> bool:
    return run.summary.status in GOOD_ENDINGS and not (run.summary.exit_code or run.is_exploration)


def _mean_text(values: Sequence[float | None], text: fmt.Text) -> str:
    """Write the mean; a dash where there is no value, or any is not known."""
    known = [value for value in values if value is not None]
    if known and len(known) == len(values):
        return text(statistics.fmean(known))
    return _DASH


def shared_metrics(sides: Sides) -> list[str]:
    """Return the metrics that the baseline and another side have, the one to compare by first."""
    found = [{name: metric for run in side.runs for name, metric in run.metrics.items()} for side in sides]
    baseline, *others = found or [{}]
    shared = [metric for name, metric in baseline.items() if any(name in other for other in others)]
    learnt = [m for m in shared if m.higher_is_better is not None and not is_learning_rate(m.name)]
    return [metric.name for metric in sorted(learnt, key=rank_of_metric)]


def _took_by_runs(sides: Sides) -> Blocks:
    """Return what the runs of each side took on average, and what they learnt."""
    if not any(side.runs for side in sides):
        return []
    metrics = shared_metrics(sides)[:_MOST_METRICS]
    return [Table(_side_columns(metrics), [side.cells(metrics) for side in sides])]


def _side_columns(metrics: Texts) -> list[Column]:
    """Return the columns of ``Side.cells``."""
    numbers = [*(name for name, _ in fmt.QUANTITIES.values()), *(f"final {fmt.shortened(m, 24)}" for m in metrics)]
    return columns({"": 1.8, "trained": 1.2}, numbers, 1.2)


def learnt_differences(groups: Groups) -> Mapping[str, str]:
    """Return by group how what it learnt differs from the first one's, as a clause; none where it is the same."""
    sides = list(starmap(side_of, groups))
    metrics = shared_metrics(sides)
    texts = {side.name: _learnt_text(side, sides[0], metrics) for side in sides[1:]}
    return {name: text for name, text in texts.items() if text}


def _learnt_text(side: Side, baseline: Side, metrics: Texts) -> str:
    """Say how the first metric of a side differs from the baseline's; empty where it does not, or none is shared."""
    if not metrics:
        return ""
    name = metrics[0]
    own = side.learnt(name)
    before = baseline.learnt(name)
    if own == before or _DASH in (own, before):
        return ""
    return f"its final {name} is {own} instead of {before}"


def _marks(sides: Sides) -> Blocks:
    """Draw the first metric against the energy, a point a side with the ranges of its runs."""
    metrics = shared_metrics(sides)
    if not metrics:
        return []
    runs = [(side.name, run.summary.energy_kwh, final_value(run, metrics[0])) for side in sides for run in side.runs]
    found = wording.grouped((name, (kwh, value)) for name, kwh, value in runs if kwh is not None and value is not None)
    if len(found) < 2:
        return []
    scale = fmt.energy_scale(max(kwh for pairs in found.values() for kwh, _ in pairs))
    marks: list[MarkedPoint] = []
    for name, pairs in found.items():
        energies = [scale.value(kwh) for kwh, _ in pairs]
        values = [value for _, value in pairs]
        point = (fmt.shortened(name, 24), statistics.fmean(energies), statistics.fmean(values))
        ranges = ((min(energies), max(energies)), (min(values), max(values)))
        marks.append(MarkedPoint(*point, *ranges, is_named=len(found) <= _MOST_NAMED, is_here=not marks))
    name = f"final {fmt.shortened(metrics[0], 24)}"
    return [ChartRow([MarkChart(f"{name} against energy", f"energy, {scale.unit}", name, marks, is_from_0=False)])]


def _unlike(sides: Sides) -> list[Texts]:
    """Return the settings, versions and machines that were not the same, with the text of each side."""
    with_runs = [side.runs for side in sides if side.runs]
    names = names_by("difference")
    rows = [(label, *(_settings_text(runs, name) for runs in with_runs)) for label, (name,) in names.items()]
    return [row for row in rows if len(set(row[1:])) > 1]


def _settings_text(runs: Runs, name: str) -> str:
    return wording.joined(sorted({wording.field_text(run, name, 60) for run in runs}), _MOST_SAID) or _DASH


def _differences(sides: Sides) -> Blocks:
    rows = _unlike(sides)
    if not rows:
        return []
    names = [fmt.shortened(side.name, _NAME_WIDTH) for side in sides if side.runs]
    heads = [Column("", 1.2), *(Column(name, 2.0) for name in names)]
    return [Heading("What differed between the runs"), Table(heads, rows)]


# -- Details --


def _notes(comparison: Comparison) -> _Facts:
    rows = (comparison.baseline, *rows_that_ran(comparison))
    return [
        *((row.name, row.learns_otherwise) for row in rows if row.learns_otherwise),
        *((row.name, note.removeprefix(f"{row.name}: ")) for row in rows for note in row.notes),
        *(("all", note) for note in comparison.notes),
    ]


def _method(comparison: Comparison) -> Blocks:
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
    said = Paragraph(f"{' · '.join(parts)}.")
    return [Heading("How we know"), said, Note(f"{method} {_EACH}")]


# -- An experiment --


@dataclass(frozen=True, slots=True)
class ExperimentRecord:
    """An experiment as far as it is done: its trainings, and why others are missing.

    Attributes:
        name: of the experiment.
        sha256: of the file's bytes.
        groups: trainings by the name of their group, the baseline's first; each one run (of several runs,
            ``experiments.whole_training`` makes one). Trainings of a group differ in their seed alone.
        not_run: name and reason of each training of which there is no run.
        notes: on the whole: sentences without a full stop.
        budget: what all trainings used and may use together, by the total's name in ``format.QUANTITIES``.
    """

    name: str
    sha256: str
    groups: Groups
    not_run: _Facts = ()
    notes: Texts = ()
    budget: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def runs(self) -> list[Run]:
        """All trainings, those too that did not come to their end."""
        return [run for _, runs in self.groups for run in runs]


def experiment_document(record: ExperimentRecord) -> Document:
    """Return the page of an experiment: what was saved and learnt, every training, and what was asked for."""
    sides = list(starmap(side_of, record.groups))
    combinations = _combinations(sides)
    comparisons = [combination.comparison for combination in combinations]
    n_all = len(record.runs) + len(record.not_run)
    parts = [f"{sum(len(side.runs) for side in sides):,} of {fmt.plural(n_all, 'training')} finished"]
    if len(sides) > 1:
        parts.append(fmt.plural(len(sides), "group"))
    begun = min((run.started_at for run in record.runs if run.started_at), default="")
    if begun:
        parts.append(f"begun {begun[:16].replace('T', ' ')} UTC")
    blocks = [*_answer(comparisons, sides), *_not_run(record.not_run)]
    blocks += [Paragraph(f"! {note}.") for note in record.notes]
    for quantity, (used, limit) in record.budget.items():
        name, text = fmt.QUANTITIES[quantity]
        if limit:
            blocks.append(Paragraph(f"{text(used)} of the budget of {text(limit)} used."))
        else:
            blocks.append(Paragraph(f"Budget of {name}: {text(used)} used."))
    blocks += _trainings(record, shared_metrics(sides)[:_MOST_METRICS])
    blocks += _details(comparisons, sides)
    if comparisons:
        blocks += _method(comparisons[0])
    return Document(
        title=f"Experiment {record.name}",
        subtitle=" · ".join(parts),
        footer=wording.footer(fmt.shortened(record.name, 40), f"file {record.sha256[:12]}"),
        verdict=_experiment_verdict(sides, combinations),
        blocks=blocks,
    )


@dataclass(frozen=True, slots=True)
class _Combination:
    """The arms of one combination of the matrix, or of all of them together, compared.

    Attributes:
        name: of the combination, such as ``batch_size=16``; empty where there is only one.
        sides: by the name of their row; the baseline's first.
        comparison: of their totals.
    """

    name: str
    sides: dict[str, Side]
    comparison: Comparison

    def rows_of(self, arm: str) -> list[ComparisonRow]:
        """Return the row of an arm; none where it has not finished here."""
        return [row for row in self.comparison.rows if _arm(self.sides[row.name]) == arm]


def _combinations(sides: Sides) -> list[_Combination]:
    """Compare the arms within each combination of the matrix by itself; with several, what holds over all is first.

    A combination without a finished training of the baseline and of another arm is left out.
    """
    arms = [_arm(side) for side in sides]
    by_name: dict[str, list[Side]] = {}
    for side, arm in zip(sides, arms, strict=True):
        name = ""
        if len(set(arms)) > 1:
            name = side.name.removeprefix(arm).removeprefix(", ")
        by_name.setdefault(name, []).append(side)
    found = []
    for name, own in by_name.items():
        own.sort(key=lambda side: arms.index(_arm(side)))  # in each second combination the baseline was trained second
        done = {side.name: side for side in own if side.runs}
        if len(done) > 1 and own[0].runs and _arm(own[0]) == arms[0]:
            groups = [(side.name, side.runs) for side in done.values()]
            found.append(_Combination(name, done, compare_runs(groups, of_whole=True)))
    if len(found) > 1:
        return [_over_all(found), *found]
    return found


def _over_all(combinations: Sequence[_Combination]) -> _Combination:
    """Compare each arm with the baseline of the same combination, over all combinations together."""
    name = f"over all {len(combinations)} combinations"
    runs: dict[str, list[Run]] = {}
    block_of: dict[str, int] = {}
    for number, combination in enumerate(combinations):
        for side in combination.sides.values():
            runs.setdefault(f"{_arm(side)} {name}", []).extend(side.runs)
            block_of |= {run.run_id: number for run in side.runs}
    compared = compare_runs(list(runs.items()), of_whole=True, block_of=lambda run: block_of[run.run_id])
    sides = {arm: Side(arm, own) for arm, own in runs.items()}
    return _Combination(name, sides, replace(compared, notes=()))  # they are on what differs between combinations


def _arm(side: Side) -> str:
    return next((run.text("arm") for run in (*side.runs, *side.left_out)), "") or side.name.partition(", ")[0]


def _experiment_verdict(sides: Sides, combinations: Sequence[_Combination]) -> str:
    """Say what each arm saved, the best one first, and what it learnt for that."""
    if not sides:
        return "No training has been run."
    missing = [side.name for side in sides if not side.runs]
    if not combinations and missing:
        return f"Nothing can be compared: no training of {wording.joined(missing, _MOST_SAID)} has finished."
    if not combinations:
        return "Nothing can be compared: there is one group of trainings."
    answer, *cells = combinations
    rows = answer.comparison.rows[: _MOST_SAID if cells else 1]
    baseline = answer.sides[answer.comparison.baseline.name]
    said = []
    for row in rows:
        side = answer.sides[row.name]
        in_cells = [(cell.name, own) for cell in cells for own in cell.rows_of(_arm(side))]
        learnt = _learnt_text(side, baseline, shared_metrics(sides))
        parts = [row_sentence(answer.comparison, row), _cells_text(in_cells), learnt]
        said.append("; ".join(filter(None, parts)))
    return f"{'. '.join(said)}."


def _cells_text(rows: Sequence[tuple[str, ComparisonRow]]) -> str:
    """Say from what to what an arm goes in the combinations, by their names; empty where no ratio is known."""
    quantity = "energy_ratio" if all(row.energy_ratio for _, row in rows) else "time_ratio"
    found: list[tuple[Estimate | None, str]] = [(getattr(row, quantity), name) for name, row in rows]
    known = sorted((ratio.point, name) for ratio, name in found if ratio is not None)
    if not known:
        return ""
    least, most = (f"{_signed(point - 1, 0)}% at {name}" for point, name in (known[0], known[-1]))
    return f"its {QUANTITIES[quantity]} from {least} to {most}"


def _trainings(record: ExperimentRecord, metrics: Texts) -> Blocks:
    """Return every training by itself."""
    rows = []
    for name, runs in record.groups:
        for run in runs:
            seed = run.text("seed")
            own = name
            if seed:
                own += f", seed {seed}"
            elif len(runs) > 1:
                own += f", {run.run_id}"
            status = fmt.shortened(run.summary.status, 20)
            if len(run.parts) > 1:
                status += f", {len(run.parts)} runs"
            rows.append((*Side(own, (run,)).cells(metrics), status))
    if not rows:
        return []
    return [Heading("The trainings"), Table([*_side_columns(metrics), Column("status")], rows)]
