"""Forecasts an experiment before it is run: each group explored in a process of its own, and the sum over what is left.

A dry run leaves nothing behind.
"""

from __future__ import annotations

import math
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from greenlove_tracker.experiments import one_run
from greenlove_tracker.experiments.definition import Experiment, PlannedRun
from greenlove_tracker.experiments.progress import ExperimentProgress, PlannedRunState
from greenlove_tracker.experiments.runner import check_runnable
from greenlove_tracker.text import format as fmt
from greenlove_tracker.text.console import StatusLine
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.forecasting import Estimate

DEFAULT_BUDGET_S = 60.0
_LEAST_GROUP_S = 5.0  # under it no meter is up, and a mean power is noise
_LOADING_S = 120.0  # for torch, the data and the end of the last trial, before a group is given up


@dataclass(frozen=True, slots=True)
class GroupForecast:
    """The forecast of one training of a group, and how many of them are left.

    Attributes:
        group: its name.
        n_runs: trainings that it has.
        n_left: of them, those that are left; one that was interrupted counts as a whole one.
        reason: why it could not be explored; empty where it was, or where nothing is left of it.
        plan: of one training, in words.
        duration_s: of one training; None where it was not explored.
        energy_kwh: likewise, and where no energy was measured.
        emissions_kgco2e: likewise.
        cost_usd: likewise, and where no price is known.
        stop: where early stopping is expected to end it, in words; empty without a rule that may.
        warnings: of the forecast, in sentences.
        start_up_s: that its process took beside the trials: Python, torch and the data; in none of the above.
    """

    group: str
    n_runs: int
    n_left: int
    reason: str = ""
    plan: str = ""
    duration_s: Estimate | None = None
    energy_kwh: Estimate | None = None
    emissions_kgco2e: Estimate | None = None
    cost_usd: Estimate | None = None
    stop: str = ""
    warnings: tuple[str, ...] = ()
    start_up_s: float | None = None


@dataclass(frozen=True, slots=True)
class ExperimentForecast:
    """The forecast of what is left of an experiment.

    Attributes:
        experiment: that is forecast.
        progress: of it so far.
        groups: in the order of the file.
        totals: by quantity, of what is left and could be explored; None where that is not known. Errors of all groups
            are taken to have the same sign, so that the intervals are rather too wide: what slows one down slows all.
        over: probability that a limit of the budget is exceeded in the end, by its quantity.
    """

    experiment: Experiment
    progress: ExperimentProgress
    groups: tuple[GroupForecast, ...]
    totals: Mapping[str, Estimate | None]
    over: Mapping[str, float]

    @property
    def start_up_s(self) -> float:
        """The time that the processes of all that is left take before and after they train."""
        return math.fsum(group.n_left * (group.start_up_s or 0.0) for group in self.groups)


def forecast_experiment(
    experiment: Experiment, budget_s: float = DEFAULT_BUDGET_S, *, command: Sequence[str] = one_run.COMMAND
) -> ExperimentForecast:
    """Forecast what is left of an experiment; nothing is trained to its end, and nothing is written into its outputs.

    Args:
        experiment: what would be run.
        budget_s: for all groups together; each has 5 s at least.
        command: that explores a group.

    Raises:
        UsageError: where it cannot be run.
    """
    if not (math.isfinite(budget_s) and budget_s > 0):
        raise UsageError(f"{{argument}} must be a positive number of seconds, not {budget_s!r}", argument="budget_s")
    check_runnable(experiment)
    progress = ExperimentProgress.of(experiment)
    each_s = max(_LEAST_GROUP_S, budget_s / max(1, len({run.planned.group for run in progress.left})))
    by_group = progress.groups(experiment.runs[0].group)
    groups = list[GroupForecast]()
    status = StatusLine()
    try:
        for name, runs in by_group:
            left = [run.planned for run in runs if run.state is not PlannedRunState.FINISHED]
            group = GroupForecast(name, len(runs), len(left))
            if left:
                status.draw(f"greenlove  exploring {name}, {each_s:.0f} s ({len(groups) + 1} of {len(by_group)})")
                group = _explored(group, experiment, left[0], each_s, command)
            groups.append(group)
    finally:
        status.clear()
    explored = [group for group in groups if group.n_left and not group.reason]
    totals = {quantity: _total(explored, quantity) for quantity in fmt.QUANTITIES}
    over = {}
    for quantity, limit in experiment.budget.limits.items():
        total = totals[quantity]
        if total is not None:
            over[quantity] = total.probability_above(limit - progress.use[quantity])
    return ExperimentForecast(experiment, progress, tuple(groups), totals, over)


def _total(groups: Sequence[GroupForecast], quantity: str) -> Estimate | None:
    """Return what all trainings that are left take; None where there is none, or one is not known.

    Errors have the same sign in all of them: that of the speed is the same for all seeds.
    """
    estimates = [getattr(group, quantity) for group in groups]
    if not estimates or None in estimates:
        return None
    parts = [(group.n_left, estimate) for group, estimate in zip(groups, estimates, strict=True)]
    point, lower, upper = (math.fsum(n * getattr(one, end) for n, one in parts) for end in ("point", "lower", "upper"))
    total: Estimate = replace(estimates[0], point=point, lower=lower, upper=upper)
    return total


def _explored(
    group: GroupForecast, experiment: Experiment, planned: PlannedRun, budget_s: float, command: Sequence[str]
) -> GroupForecast:
    """Explore one training in a process of its own; a crash or a hang is that group's alone."""
    with tempfile.TemporaryDirectory(prefix="greenlove-dry-run-") as directory:
        answer = Path(directory, "answer.json")
        timeout_s = budget_s + _LOADING_S
        words = [*command, str(experiment.path), planned.key, str(answer), "--explore", str(budget_s)]
        began_s = time.perf_counter()
        try:
            quiet = subprocess.DEVNULL
            done = subprocess.run(words, stdin=quiet, stdout=quiet, stderr=quiet, timeout=timeout_s, check=False)
        except subprocess.TimeoutExpired:
            return replace(group, reason=f"the exploration did not end within {timeout_s:.0f} s")
        found = one_run.read_answer(answer, done.returncode)[0]
        took_s = time.perf_counter() - began_s
    if found.pop("outcome", "finished") != "finished":
        return replace(group, reason=found["reason"])
    for quantity in fmt.QUANTITIES:
        if found[quantity] is not None:
            found[quantity] = Estimate(**found[quantity])
    found["warnings"] = tuple(found["warnings"])
    start_up_s = max(0.0, took_s - found.pop("spent_s"))
    return replace(group, **found, start_up_s=start_up_s)
