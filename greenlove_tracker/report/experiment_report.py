"""The page of an experiment: what its trainings took and learnt, compared by the matrix that they were made from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import starmap
from typing import Any

from greenlove_tracker.extrapolation.run_comparison import compare_runs, difference_of_means
from greenlove_tracker.logs.run import Run
from greenlove_tracker.rendering.document import Blocks, Column, Document, Heading, Paragraph, Table, Texts, columns
from greenlove_tracker.report import comparison, comparison_sides, wording
from greenlove_tracker.report.metric_report import number_text
from greenlove_tracker.report.plain_values import values_at
from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.comparisons import Comparison
from greenlove_tracker.vocabulary.forecasting import Estimate
from greenlove_tracker.vocabulary.units import BYTES_PER_GB

_RATIOS = {
    "emissions_kgco2e": "co2e_ratio",
    "energy_kwh": "energy_ratio",
    "peak_memory_gb": "memory_ratio",
    "duration_s": "time_ratio",
    "cost_usd": "cost_ratio",
}
_TITLES: dict[str, tuple[str, fmt.Text]] = {
    **fmt.QUANTITIES,
    "peak_memory_gb": ("peak memory", lambda peak_gb: fmt.memory((peak_gb or 0.0) * BYTES_PER_GB)),
    "wait_s": ("waited", fmt.duration),
    "intensity_at_request_gco2e_per_kwh": ("grid before, gCO2e/kWh", fmt.count),
    "intensity_at_start_gco2e_per_kwh": ("grid at the start", fmt.count),
}
_CHANGE = {"change": "point", "change_lower": "lower", "change_upper": "upper"}
DATA_COLUMNS = ("combination", "arm", "quantity", "baseline", "value", *_CHANGE)


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
        weights: name of each training and the file of its weights.
    """

    name: str
    sha256: str
    groups: comparison_sides.Groups
    not_run: comparison.Facts = ()
    notes: Texts = ()
    budget: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    weights: comparison.Facts = ()

    @property
    def runs(self) -> list[Run]:
        """All trainings, those too that did not come to their end."""
        return [run for _, runs in self.groups for run in runs]


def experiment_document(record: ExperimentRecord) -> Document:
    """Return the page of an experiment: what was saved and learnt, every training, and what was asked for."""
    sides = list(starmap(comparison_sides.side_of, record.groups))
    combinations = _combinations(sides)
    comparisons = [combination.comparison for combination in combinations]
    n_all = len(record.runs) + len(record.not_run)
    parts = [f"{sum(len(side.runs) for side in sides):,} of {fmt.plural(n_all, 'training')} finished"]
    parts.append(fmt.plural(len(sides), "group"))
    begun = min((run.started_at for run in record.runs if run.started_at), default="")
    if begun:
        parts.append(f"begun {begun[:16].replace('T', ' ')} UTC")
    metrics = comparison_sides.shared_metrics(sides)[: comparison_sides.MOST_METRICS]
    savings = [table for combination in combinations[:1] for table in _savings_tables(combination, metrics)]
    blocks = [*comparison.answer_blocks(comparisons, sides, savings), *comparison.not_run_blocks(record.not_run)]
    blocks += [Paragraph(f"! {note}.") for note in record.notes]
    for quantity, (used, limit) in record.budget.items():
        text = fmt.QUANTITIES[quantity][1]
        blocks.append(Paragraph(f"{text(used)} of the budget of {text(limit)} used."))
    blocks += _trainings(record, metrics)
    if record.weights:
        blocks += [Heading("Weights"), wording.facts_table(record.weights)]
    blocks += comparison.detail_blocks(comparisons, sides)
    if comparisons:
        blocks += comparison.method_blocks(comparisons[0])
    return Document(
        title=f"Experiment {record.name}",
        subtitle=" · ".join(parts),
        footer=wording.footer(fmt.shortened(record.name, 40), f"file {record.sha256[:12]}"),
        verdict=_experiment_verdict(sides, combinations),
        blocks=blocks,
    )


def experiment_savings(record: ExperimentRecord) -> Iterator[dict[str, Any]]:
    """Yield the savings of an experiment as data, by ``DATA_COLUMNS``: a row for each quantity of each arm.

    A change without a range has its point as both ends.
    """
    sides = list(starmap(comparison_sides.side_of, record.groups))
    metrics = comparison_sides.shared_metrics(sides)
    for combination in _combinations(sides):
        baseline = combination.baseline
        for arm, changes in combination.changes(metrics):
            arm_name = arm.arm
            if arm_name == baseline.arm:  # a sweep of one arm
                arm_name = arm.name
            for name, change in changes.items():
                means = {"baseline": baseline.mean(name), "value": arm.mean(name)}
                what = {"combination": combination.name, "arm": arm_name, "quantity": name}
                yield {**what, **means, **values_at(change, _CHANGE)}


@dataclass(frozen=True, slots=True)
class _Combination:
    """The arms of one combination of the matrix, or of all of them together, compared.

    Attributes:
        name: of the combination, such as ``batch_size=16``; empty where there is only one.
        sides: by the name of their row; the baseline's first.
        comparison: of their totals.
    """

    name: str
    sides: dict[str, comparison_sides.Side]
    comparison: Comparison

    @property
    def baseline(self) -> comparison_sides.Side:
        """The trainings that the others are compared with."""
        return self.sides[self.comparison.baseline.name]

    def changes(self, metrics: Texts) -> Iterator[tuple[comparison_sides.Side, dict[str, Estimate | None]]]:
        """Yield each arm and its changes: of an amount the ratio to the baseline, of a metric the difference."""
        for row in self.comparison.rows:
            arm = self.sides[row.name]
            changes = dict.fromkeys(_TITLES) | {name: getattr(row, ratio) for name, ratio in _RATIOS.items()}
            for metric in metrics:
                changes[metric] = difference_of_means(arm.values(metric), self.baseline.values(metric))
            yield arm, changes


def _combinations(sides: comparison_sides.Sides) -> list[_Combination]:
    """Compare the arms within each combination of the matrix by itself; with several, what holds over all is first.

    A combination without a finished training of the baseline and of another arm is left out.
    """
    arms = [side.arm for side in sides]
    names = [side.name.removeprefix(side.arm).removeprefix(", ") if len(set(arms)) > 1 else "" for side in sides]
    found = []
    for name, own in wording.grouped(zip(names, sides, strict=True)).items():
        own.sort(key=lambda side: arms.index(side.arm))  # in each second combination the baseline was trained second
        done = {side.name: side for side in own if side.runs}
        if len(done) > 1 and own[0].runs and own[0].arm == arms[0]:
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
            runs.setdefault(f"{side.arm} {name}", []).extend(side.runs)
            block_of |= {run.run_id: number for run in side.runs}
    compared = compare_runs(list(runs.items()), of_whole=True, block_of=lambda run: block_of[run.run_id])
    sides = {row: comparison_sides.Side(row.removesuffix(f" {name}"), own) for row, own in runs.items()}
    return _Combination(name, sides, replace(compared, notes=()))  # they are on what differs between combinations


def _experiment_verdict(sides: comparison_sides.Sides, combinations: Sequence[_Combination]) -> str:
    """Say what each arm saved, the best one first, and what it learnt for that."""
    if not combinations:
        reason = "there is one group of trainings"
        missing = [side.name for side in sides if not side.runs]
        if missing:
            reason = f"no training of {wording.joined(missing, comparison_sides.MOST_SAID)} has finished"
        return f"Nothing can be compared: {reason}."
    answer = combinations[0]
    metrics = comparison_sides.shared_metrics(sides)
    said = []
    for row in answer.comparison.rows[: comparison_sides.MOST_SAID]:
        learnt = comparison_sides.learnt_text(answer.sides[row.name], answer.baseline, metrics)
        said.append("; ".join(filter(None, (comparison.row_sentence(answer.comparison, row), learnt))))
    return f"{'. '.join(said)}."


def _savings_tables(combination: _Combination, metrics: Texts) -> Iterator[Table]:
    """Yield a table for each arm, beside the baseline, with each change and its range."""
    before = combination.baseline
    for arm, changes in combination.changes(metrics):
        rows = [("trained", before.trained, arm.trained, "")]
        for name, change in changes.items():
            title, text = _TITLES.get(name, (f"final {fmt.shortened(name, 24)}", number_text))
            if name == "energy_kwh" and comparison.has_model(combination.comparison):
                title += wording.STAR
            cells = (before.text(name, text), arm.text(name, text))
            if cells != (comparison_sides.DASH, comparison_sides.DASH):
                rows.append((title, *cells, _text_of(name, change)))
        yield Table(columns({"": 1}, (before.title, arm.title, "change")), rows, is_whole=True)


def _text_of(name: str, change: Estimate | None) -> str:
    """Write a change with its range: ``−31% [−35 – −27]``; of a metric ``−0.0018 [−0.011 – +0.0073]``."""
    if name in _RATIOS:
        return comparison.change_text(change)
    if change is None:
        return ""
    point = _signed(change.point)
    return f"{point} [{fmt.bounds(change, _signed)}]" if change.has_interval else point


def _signed(difference: float | None) -> str:
    return f"{difference or 0.0:+.2g}".replace("-", "−")


def _trainings(record: ExperimentRecord, metrics: Texts) -> Blocks:
    rows = []
    for name, runs in record.groups:
        for run in runs:
            seed = run.text("seed")
            own = f"{name}, seed {seed}" if seed else name
            status = fmt.shortened(run.summary.status, 20)
            if len(run.parts) > 1:
                status += f", {len(run.parts)} runs"
            rows.append((*comparison_sides.Side(own, (run,)).cells(metrics), status))
    return [Heading("The trainings"), Table([*comparison_sides.side_columns(metrics), Column("status")], rows)]
