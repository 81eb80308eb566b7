"""The runs that a comparison sets side by side: what they took and learnt, and in what they differ."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap

from greenlove_tracker.extrapolation.run_comparison import QUANTITIES
from greenlove_tracker.logs.run import GOOD_ENDINGS, Run
from greenlove_tracker.logs.run_fields import FIELDS, names_by
from greenlove_tracker.rendering.document import (
    Blocks,
    ChartRow,
    Column,
    Heading,
    MarkChart,
    MarkedPoint,
    Table,
    Texts,
    columns,
)
from greenlove_tracker.report import wording
from greenlove_tracker.report.metric_report import final_value, is_learning_rate, number_text, rank_of_metric
from greenlove_tracker.text import format as fmt

MOST_SAID = 3  # names in a sentence
Runs = Sequence[Run]
Groups = Sequence[tuple[str, Runs]]
"""Runs by the name of their group; the first is the baseline."""
DASH = "–"
_NAME_WIDTH = 40
MOST_METRICS = 2
_MOST_NAMED = 8  # points of a chart


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

    @property
    def arm(self) -> str:
        """The arm that they are of."""
        return next((run.text("arm") for run in (*self.runs, *self.left_out)), "") or self.name.partition(", ")[0]

    @property
    def title(self) -> str:
        """Their name, with how many they are."""
        name = fmt.shortened(self.name, _NAME_WIDTH)
        return f"{name} ({len(self.runs)} runs)" if len(self.runs) > 1 else name

    def values(self, name: str) -> list[float]:
        """Return an amount of each run by its field, or the value of a metric at last; none where one is not known."""
        found = [_value(run, name) for run in self.runs]
        known = [value for value in found if value is not None]
        return known if len(known) == len(found) else []

    def mean(self, name: str) -> float | None:
        """Return the mean of such values, of what ratios are of the geometric one; None where one is not known."""
        values = self.values(name)
        if not values:
            return None
        if name in QUANTITIES and min(values) > 0:  # a price may be below zero
            return statistics.geometric_mean(values)
        return statistics.fmean(values)

    def text(self, name: str, write: fmt.Text) -> str:
        """Write the mean of such values; a dash where one is not known."""
        mean = self.mean(name)
        return DASH if mean is None else write(mean)

    @property
    def trained(self) -> str:
        """How far they trained."""
        each = dict.fromkeys(map(wording.progress, self.runs))
        planned = {run.summary.epochs_planned for run in self.runs}
        trained = "; ".join(each) or "did not finish"
        if len(each) > 1 and len(planned) == 1 and None not in planned:  # each may have stopped early
            done = [run.summary.epochs_done for run in self.runs]
            trained = f"{min(done):,}–{max(done):,} of {planned.pop():,} epochs"
        return trained

    def cells(self, metrics: Texts) -> Texts:
        """Write how far the runs trained, the means of what they took, and what they learnt."""
        took = (self.text(quantity, write) for quantity, (_, write) in fmt.QUANTITIES.items())
        return (self.title, self.trained, *took, *(self.text(metric, number_text) for metric in metrics))


Sides = Sequence[Side]


def side_of(name: str, runs: Runs) -> Side:
    """Return the runs of one name: trainings that came to their end, and apart from them the others."""
    kept = [run for run in runs if _is_done(run)]
    return Side(name, kept, [run for run in runs if not _is_done(run)])


def _is_done(run: Run) -> bool:
    return run.summary.status in GOOD_ENDINGS and not (run.summary.exit_code or run.is_exploration)


def _value(run: Run, name: str) -> float | None:
    if name in QUANTITIES:
        return QUANTITIES[name].of_run(run)
    return run.amount(name) if name in FIELDS else final_value(run, name)


def shared_metrics(sides: Sides) -> list[str]:
    """Return the metrics that the baseline and another side have, the one to compare by first."""
    found = [{name: metric for run in side.runs for name, metric in run.metrics.items()} for side in sides]
    baseline, *others = found or [{}]
    shared = [metric for name, metric in baseline.items() if any(name in other for other in others)]
    learnt = [m for m in shared if m.higher_is_better is not None and not is_learning_rate(m.name)]
    return [metric.name for metric in sorted(learnt, key=rank_of_metric)]


def took_by_runs(sides: Sides) -> Blocks:
    """Return what the runs of each side took on average, and what they learnt."""
    metrics = shared_metrics(sides)[:MOST_METRICS]
    return [Table(side_columns(metrics), [side.cells(metrics) for side in sides])]


def side_columns(metrics: Texts) -> list[Column]:
    """Return the columns of ``Side.cells``."""
    numbers = [*(name for name, _ in fmt.QUANTITIES.values()), *(f"final {fmt.shortened(m, 24)}" for m in metrics)]
    return columns({"": 1.8, "trained": 1.2}, numbers, 1.2)


def learnt_differences(groups: Groups) -> Mapping[str, str]:
    """Return how the final metrics of each group differ from the first one's, as a clause; empty if they do not."""
    sides = list(starmap(side_of, groups))
    metrics = shared_metrics(sides)
    return {side.name: learnt_text(side, sides[0], metrics) for side in sides[1:]}


def learnt_text(side: Side, baseline: Side, metrics: Texts) -> str:
    """Say how the first metric of a side differs from the baseline's; empty where it does not, or none is shared."""
    if not metrics:
        return ""
    name = metrics[0]
    own = side.text(name, number_text)
    before = baseline.text(name, number_text)
    if own == before or DASH in (own, before):
        return ""
    return f"its final {name} is {own} instead of {before}"


def metric_chart(sides: Sides) -> Blocks:
    """Draw the first metric against the energy, a point a side with the ranges of its runs."""
    metrics = shared_metrics(sides)
    if not metrics:
        return []
    known = [(side.name, side.values("energy_kwh"), side.values(metrics[0])) for side in sides]
    known = [one for one in known if all(one)]
    if len(known) < 2:
        return []
    scale = fmt.energy_scale(max(kwh for _, energies_kwh, _ in known for kwh in energies_kwh))
    marks: list[MarkedPoint] = []
    for name, energies_kwh, values in known:
        energies = list(map(scale.value, energies_kwh))
        point = (fmt.shortened(name, 24), statistics.fmean(energies), statistics.fmean(values))
        ranges = ((min(energies), max(energies)), (min(values), max(values)))
        marks.append(MarkedPoint(*point, *ranges, is_named=len(known) <= _MOST_NAMED, is_here=not marks))
    name = f"final {fmt.shortened(metrics[0], 24)}"
    return [ChartRow([MarkChart(f"{name} against energy", f"energy, {scale.unit}", name, marks, is_from_0=False)])]


def unlike(sides: Sides) -> list[Texts]:
    """Return the settings, versions and machines that were not the same, with the text of each side."""
    with_runs = [side.runs for side in sides if side.runs]
    names = names_by("difference")
    rows = [(label, *(_settings_text(runs, name) for runs in with_runs)) for label, (name,) in names.items()]
    return [row for row in rows if len(set(row[1:])) > 1]


def _settings_text(runs: Runs, name: str) -> str:
    return wording.joined(sorted({wording.field_text(run, name, 60) for run in runs}), MOST_SAID) or DASH


def difference_blocks(sides: Sides) -> Blocks:
    rows = unlike(sides)
    if not rows:
        return []
    names = [fmt.shortened(side.name, _NAME_WIDTH) for side in sides if side.runs]
    heads = [Column("", 1.2), *(Column(name, 2.0) for name in names)]
    return [Heading("What differed between the runs"), Table(heads, rows)]
