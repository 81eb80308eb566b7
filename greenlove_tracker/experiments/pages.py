"""The pages of an experiment: the forecast of a dry run, and the report of what is done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from greenlove_tracker.experiments.definition import Experiment
from greenlove_tracker.experiments.dry_run import ExperimentForecast, GroupForecast
from greenlove_tracker.experiments.progress import ExperimentProgress
from greenlove_tracker.experiments.whole_training import whole_training
from greenlove_tracker.rendering.document import Block, Document, Paragraph, Table, columns
from greenlove_tracker.report.experiment_report import ExperimentRecord
from greenlove_tracker.text import format as fmt

_IN_TABLE = ("duration_s", "energy_kwh", "emissions_kgco2e")


def experiment_record(
    experiment: Experiment, progress: ExperimentProgress, reasons: Mapping[str, str]
) -> ExperimentRecord:
    """Return an experiment for its report, as far as it has got.

    Args:
        experiment: that is reported.
        progress: of it.
        reasons: by the names of trainings, why they were not begun or have not finished.
    """
    groups = [
        (name, tuple(whole_training(training.runs) for training in trainings if training.runs))
        for name, trainings in progress.groups(experiment.baseline)
    ]
    notes = [*progress.notes]
    not_run = []
    for run in progress.left:
        name = run.planned.name
        if run.runs:
            reason = reasons.get(name) or run.reason
            said = ", ".join(filter(None, (run.state, reason)))
            notes.append(f"{name}: {said}")
        else:
            not_run.append((name, reasons.get(name, "not begun yet")))
    budget = {quantity: (progress.use[quantity], limit) for quantity, limit in experiment.budget.limits.items()}
    weights = []
    for run in progress.runs:
        file = f"weights/{run.planned.key}.pt"
        if (experiment.outputs / file).exists():
            weights.append((run.planned.name, file))
    return ExperimentRecord(experiment.name, experiment.sha256, groups, not_run, notes, budget, weights)


def forecast_document(forecast: ExperimentForecast) -> Document:
    """Return a dry run: what all that is left takes, then what a training of each group does."""
    progress = forecast.progress
    verdict = fmt.plural(len(progress.runs), "training")
    if progress.n_finished:
        verdict += f", {progress.n_finished} of them finished"
    lines = [_limit_text(forecast, quantity, limit) for quantity, limit in forecast.experiment.budget.limits.items()]
    blocks: list[Block] = []
    if progress.left:
        titles = ["left", *(fmt.QUANTITIES[quantity][0] for quantity in _IN_TABLE)]
        blocks.append(Table(columns({"one training": 1.0}, titles), list(map(_group_row, forecast.groups))))
        verdict += f": {', '.join(_totals(forecast))}"
        start_up = fmt.duration(forecast.start_up_s)
        lines.append(f"beside these times, starting the processes takes about {start_up}")
        for start, n_left in Counter(forecast.experiment.start_of(run.planned) for run in progress.left).items():
            if start.below_gco2e_per_kwh is not None:
                grid = f"a grid at or below {start.below_gco2e_per_kwh:g} gCO2e/kWh"
                each = f"at most {start.max_wait} for each of the {n_left}"
                lines.append(f"before a training it waits for {grid}, {each}")
    lines += [f"* {note}" for note in progress.notes]
    for group in forecast.groups:
        lines += _group_lines(group)
    blocks += map(Paragraph, lines)
    title = f"Experiment {fmt.shortened(forecast.experiment.name, 44)}, a dry run: nothing is trained"
    return Document(title, verdict=f"{verdict}.", blocks=blocks)


def _totals(forecast: ExperimentForecast) -> Iterator[str]:
    """Yield what all that is left takes."""
    for quantity, (name, text) in fmt.QUANTITIES.items():
        total = forecast.totals[quantity]
        if total is not None:
            yield f"{name} {fmt.interval(total, text)}"
        elif quantity != "cost_usd":
            yield f"{name} {fmt.UNKNOWN}"


def _limit_text(forecast: ExperimentForecast, quantity: str, limit: float) -> str:
    """Return how likely a limit holds, and what is used of it."""
    name, text = fmt.QUANTITIES[quantity]
    used = forecast.progress.use[quantity]
    probability = forecast.over.get(quantity)
    spent = f", of which {text(used)} is used" if used else ""
    holds = "whether it holds is not known" if probability is None else f"holds with {fmt.chance(1 - probability)}"
    return f"budget: {name} {text(limit)}{spent}: {holds}"


def _group_lines(group: GroupForecast) -> Iterator[str]:
    """Yield what else is known of a group: its plan, why it was not explored, and what to beware of."""
    facts = " · ".join(filter(None, (group.plan, group.stop)))
    if facts:
        yield f"{group.group}: {facts}"
    if group.reason:
        yield f"! {group.group} is in no sum: {group.reason}"
    for warning in group.warnings:
        yield f"! {group.group}: {warning}"


def _group_row(group: GroupForecast) -> list[str]:
    """Return what one training of a group takes."""
    cells = [group.group, f"{group.n_left} of {group.n_runs}"]
    for quantity in _IN_TABLE:
        estimate = getattr(group, quantity)
        cells.append("–" if estimate is None else fmt.interval(estimate, fmt.QUANTITIES[quantity][1]))
    return cells
