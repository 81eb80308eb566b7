"""Forecasts an experiment before it is run: each group explored in a process of its own, and the sum over what is left.

``python -m greenlove_tracker.experiments.dry_run FILE`` is such a process: it reads what to explore as JSON from stdin
and writes what it found into the file. A dry run leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from greenlove_tracker import format as fmt
from greenlove_tracker.config import load_settings, setting_names
from greenlove_tracker.console import StatusLine
from greenlove_tracker.errors import UsageError
from greenlove_tracker.experiments.definition import (
    Experiment,
    PlannedRun,
    TechniqueChoice,
    expanded,
    technique_of,
)
from greenlove_tracker.experiments.progress import (
    ExperimentProgress,
    ExperimentUse,
    PlannedRunProgress,
    PlannedRunState,
    budget_limits,
)
from greenlove_tracker.experiments.runner import check_runnable
from greenlove_tracker.experiments.start_policy import DEFAULT_MAX_WAIT, ExpectedLengths, planned_start
from greenlove_tracker.files import write_atomically
from greenlove_tracker.forecasting import LEVEL, Estimate, stop_estimate

if TYPE_CHECKING:
    from greenlove_tracker.logs.run import Run
    from greenlove_tracker.stopping import ExpectedStop, StoppingRule
    from greenlove_tracker.techniques.technique import Parts

EXPLORE = (sys.executable, "-P", "-m", "greenlove_tracker.experiments.dry_run")  # a file follows
DEFAULT_BUDGET_S = 60.0
_LEAST_GROUP_S = 5.0  # under it no meter is up, and a mean power is noise
_LOADING_S = 120.0  # for torch, the data and the end of the last trial, before a group is given up
_MOCK = "mock"  # the setting of an invented carbon intensity (grid.live.offline)
_LEAST_STARTUP_S = 1.0  # that is worth a sentence
_LAST_LINES_BYTES = 2000  # of what a process printed, for the reason of its end


@dataclass(frozen=True, slots=True)
class GroupForecast:
    """The forecast of one training of a group, and how many of them are left.

    Attributes:
        group: its name.
        n_runs: trainings that it has.
        n_finished: of them, finished.
        n_left: trainings that are left; of one that was interrupted, the share that is left of it.
        reason: why it could not be explored; empty where it was, or where nothing is left of it.
        plan: of one training, in words.
        duration_s: of one training; None where it was not explored.
        energy_kwh: likewise, and where no energy was measured.
        emissions_kgco2e: likewise.
        cost_usd: likewise, and where no price is known.
        stop: where early stopping is expected to end it, in words; empty without a rule that may.
        startup_s: until a process is ready to train: Python, its libraries and the data; in no total.
        warnings: of the forecast, in sentences.
    """

    group: str
    n_runs: int
    n_finished: int
    n_left: float
    reason: str = ""
    plan: str = ""
    duration_s: Estimate | None = None
    energy_kwh: Estimate | None = None
    emissions_kgco2e: Estimate | None = None
    cost_usd: Estimate | None = None
    stop: str = ""
    startup_s: float | None = None
    warnings: tuple[str, ...] = ()

    def left(self, quantity: str) -> Estimate | None:
        """Return what all trainings that are left of it take: the error of the speed is the same for all seeds."""
        of_one: Estimate | None = getattr(self, quantity)
        return None if of_one is None else of_one.times(self.n_left, of_one.unit)


@dataclass(frozen=True, slots=True)
class ExperimentForecast:
    """The forecast of what is left of an experiment.

    Attributes:
        name: of the experiment.
        outputs: its directory.
        groups: in the order of the file.
        n_runs: trainings that it has.
        n_finished: of them, finished.
        totals: by quantity, of what is left and could be explored; None where that is not known. Errors of all groups
            are taken to have the same sign, so that the intervals are rather too wide: what slows one down slows all.
        use: what its trainings took so far.
        limits: of the budget, by quantity.
        over: probability that a limit is exceeded in the end, by its quantity.
        start: when it would begin, as lines.
        notes: on the logs, as sentences.
    """

    name: str
    outputs: Path
    groups: tuple[GroupForecast, ...]
    n_runs: int
    n_finished: int
    totals: Mapping[str, Estimate | None]
    use: ExperimentUse
    limits: Mapping[str, float]
    over: Mapping[str, float]
    start: str
    notes: tuple[str, ...]

    def record(self) -> dict[str, Any]:
        """Return it as plain values, for JSON; what is not known is null."""
        return {**asdict(self), "outputs": str(self.outputs)}


def forecast_experiment(
    experiment: Experiment, budget_s: float = DEFAULT_BUDGET_S, *, command: Sequence[str] = EXPLORE
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
    groups = explore_groups(experiment, progress, budget_s, command=command)
    explored = [group for group in groups if group.n_left and not group.reason]
    totals = {quantity: _total([group.left(quantity) for group in explored]) for quantity in fmt.QUANTITIES}
    limits = budget_limits(experiment.budget)
    over = {}
    for quantity, limit in limits.items():
        if (total := totals[quantity]) is not None:
            over[quantity] = total.probability_above(limit - progress.use.by_quantity[quantity])
    return ExperimentForecast(
        name=experiment.name,
        outputs=experiment.outputs,
        groups=groups,
        n_runs=len(progress.runs),
        n_finished=progress.n_finished,
        totals=totals,
        use=progress.use,
        limits=limits,
        over=over,
        start=_start_text(experiment, progress, groups),
        notes=(*progress.notes, *_not_counted(experiment, progress, explored)),
    )


def _total(parts: Sequence[Estimate | None]) -> Estimate | None:
    """Return the sum of estimates whose errors have the same sign; None where there is none, or one is not known."""
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    point, lower, upper = (math.fsum(getattr(part, end) for part in known) for end in ("point", "lower", "upper"))
    return replace(known[0], point=point, lower=lower, upper=upper)


def _not_counted(
    experiment: Experiment, progress: ExperimentProgress, explored: Sequence[GroupForecast]
) -> Iterator[str]:
    """Yield what the totals leave out, as sentences."""
    if not explored:
        return
    intensity = load_settings(progress.left[0].planned.settings).intensity
    if intensity:
        yield (
            f"CO2e uses the table's mean carbon intensity, not {intensity}: nobody can know yet what "
            "the grid will be at the time."
        )
    if intensity == _MOCK:
        yield "MOCK: the carbon intensity that decides the starts is invented."
    if experiment.start.start in ("best", "below"):
        yield "No total includes waits for a cleaner grid."
    startups_s = [group.startup_s for group in explored if group.startup_s is not None]
    if startups_s and (longest_s := max(startups_s)) >= _LEAST_STARTUP_S:
        yield (
            f"Each training first loads Python, its libraries and its data: up to {fmt.duration(longest_s)} here, "
            "which no total holds."
        )


def _start_text(experiment: Experiment, progress: ExperimentProgress, groups: Sequence[GroupForecast]) -> str:
    """Return when it would begin."""
    policy, left = experiment.start, progress.left
    if not left:
        return "nothing is left to do"
    each = "each training" if policy.each == "run" else "the first training"
    if policy.start == "below":
        latest = f", after {policy.max_wait or DEFAULT_MAX_WAIT} anyway"
        return f"{each} begins when the grid is at or below {policy.below_gco2e_per_kwh:g} gCO2e/kWh{latest}"
    planned = left[0].planned
    explored_s = {group.group: group.duration_s.point for group in groups if group.duration_s is not None}
    length = ExpectedLengths(experiment, explored_s).of(progress, planned)
    start = planned_start(experiment, planned, length, datetime.now(UTC))
    if start is None:
        return "now"
    again = "\nEach further training is planned again before it begins." if policy.each == "run" else ""
    return start.plan_text().replace("greenlove run  ", "") + again


# -- The processes --


def explore_groups(
    experiment: Experiment,
    progress: ExperimentProgress,
    budget_s: float = DEFAULT_BUDGET_S,
    *,
    command: Sequence[str] = EXPLORE,
) -> tuple[GroupForecast, ...]:
    """Explore each group of which a training is left, in a process of its own, one after another.

    Args:
        experiment: whose groups.
        progress: of it.
        budget_s: for all of them.
        command: that explores one.
    """
    by_group: dict[str, list[PlannedRunProgress]] = {}
    for run in progress.runs:
        by_group.setdefault(run.planned.group, []).append(run)
    n_open = sum(any(run.state is not PlannedRunState.FINISHED for run in runs) for runs in by_group.values())
    each_s = max(_LEAST_GROUP_S, budget_s / max(1, n_open))
    status, found = StatusLine(), list[GroupForecast]()
    try:
        for group, runs in by_group.items():
            left = [run for run in runs if run.state is not PlannedRunState.FINISHED]
            n_left = math.fsum(1 - run.done_share for run in left)
            forecast = GroupForecast(group, len(runs), len(runs) - len(left), n_left)
            if left:
                status.draw(f"greenlove  exploring {group}, {each_s:.0f} s ({len(found) + 1} of {len(by_group)})")
                forecast = _explored_group(forecast, left[0].planned, _stops_of(runs), each_s, command)
            found.append(forecast)
    finally:
        status.clear()
    return tuple(found)


def _stops_of(runs: Sequence[PlannedRunProgress]) -> list[int]:
    """Return the epochs after which the finished trainings of a group ended."""
    finished = [run.runs[-1] for run in runs if run.state is PlannedRunState.FINISHED]
    return [epochs for run in finished if (epochs := _epochs_of(run))]


def _epochs_of(run: Run) -> int:
    stopped = run.text("stopped_early_after")
    return int(stopped) if stopped.isdecimal() else run.first_epoch + run.summary.epochs_done


def _explored_group(
    group: GroupForecast, planned: PlannedRun, stops: Sequence[int], budget_s: float, command: Sequence[str]
) -> GroupForecast:
    """Explore one training in a process of its own; a crash or a hang is that group's alone."""
    with tempfile.TemporaryDirectory(prefix="greenlove-dry-run-") as directory:
        request = {
            "run": asdict(planned),
            "stops": list(stops),
            "budget_s": budget_s,
            "log_dir": directory,
            "spawned_s": time.time(),
        }
        answer = _answer(command, json.dumps(request), Path(directory), budget_s + _LOADING_S)
    if reason := answer.pop("reason", ""):
        return replace(group, reason=reason)
    estimates = {q: None if answer[q] is None else Estimate(**answer.pop(q)) for q in fmt.QUANTITIES}
    return replace(group, **{**answer, **estimates, "warnings": tuple(answer["warnings"])})


def _answer(command: Sequence[str], request: str, directory: Path, timeout_s: float) -> dict[str, Any]:
    """Have a process explore a training; of one that ends without an answer the reason, as far as it is known."""
    answer, printed = directory / "answer.json", directory / "printed.txt"
    with printed.open("wb") as output:
        child = subprocess.Popen(
            [*command, str(answer)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # with its workers it is one group, which can be ended
        )
        try:
            child.communicate(request.encode(), timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return {"reason": f"the exploration did not end within {timeout_s:.0f} s"}
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    if answer.exists():
        found: dict[str, Any] = json.loads(answer.read_text())
        return found
    tail = printed.read_bytes()[-_LAST_LINES_BYTES:].decode("utf-8", "replace").split("\n")
    last = next((line.strip() for line in reversed(tail) if line.strip()), "")
    how = f"ended by signal {-child.returncode}" if child.returncode < 0 else f"exit code {child.returncode}"
    return {"reason": f"the exploration crashed ({how}){f': {fmt.shortened(last, 200)}' if last else ''}"}


# -- Within such a process --


def main() -> None:
    """Explore the training that stdin describes, and write what was found."""
    answer, request = Path(sys.argv[1]), json.load(sys.stdin)
    planned = planned_run_from(request["run"])
    from greenlove_tracker.techniques.compare import reason_of

    try:
        found = _explored(planned, request["stops"], request["budget_s"], request["log_dir"], request["spawned_s"])
    except Exception as error:  # the reason is shown instead of a forecast
        found = {"reason": reason_of(error)}
    write_atomically(answer, json.dumps(found).encode())


def planned_run_from(values: Mapping[str, Any]) -> PlannedRun:
    """Return a training from its fields as JSON has them."""
    techniques = tuple(TechniqueChoice(**choice) for choice in values["techniques"])
    return PlannedRun(**{**values, "arguments": tuple(values["arguments"]), "techniques": techniques})


def _explored(
    planned: PlannedRun, stops: Sequence[int], budget_s: float, log_dir: str, spawned_s: float
) -> dict[str, Any]:
    """Explore a training with its techniques, and return its forecast as plain values.

    Raises:
        UsageError: where a technique cannot be used here, or the training cannot be explored.
    """
    from inspect import signature

    from greenlove_tracker.exploration.estimator import Estimator
    from greenlove_tracker.techniques.arm import arm_of

    arm = arm_of(_parts_of(planned), technique_of(planned.techniques))
    if (curriculum := arm.parts.get("curriculum")) is not None:
        curriculum.set_epoch(curriculum.epochs)  # behind the last one all samples are there; its phases say the rest
    takes = {*signature(Estimator).parameters, *setting_names()}
    given = {name: value for name, value in arm.parts.items() if name in takes} | dict(planned.settings)
    startup_s = time.time() - spawned_s
    own = {"budget_s": budget_s, "asks": False, "log_dir": log_dir, "verbose": 0, "export": "", "seed": planned.seed}
    own |= {"train_step": lambda model, batch, *_: arm.step(batch)}  # with what techniques make of it
    with arm.active():
        estimator = Estimator(**{**given, **own})
        estimation = estimator.estimate()
        forecast, stop = estimation.forecast, ""
        if (stopping := arm.parts.get("early_stopping")) is not None and estimator.plan.epochs is not None:
            expected = _expected_stop(stopping.rule, estimator.plan.epochs, stops)
            forecast = estimation.forecast_for(replace(estimator.plan, stop=expected))
            stop = fmt.expected_stop(stop_estimate(expected, LEVEL), expected.most_epochs)
    return {
        **{quantity: _values_of(getattr(forecast, quantity)) for quantity in fmt.QUANTITIES},
        "plan": fmt.plan(estimator.plan),
        "stop": stop,
        "startup_s": max(0.0, startup_s),
        # Without their advice, which names a budget for this group alone.
        "warnings": [f"{warning.name}: {warning.message}" for warning in forecast.warnings],
    }


def _parts_of(planned: PlannedRun) -> Parts:
    """Return the parts of a training, of the length and batch size that the file gives it."""
    from greenlove_tracker.exploration.task import load_task_function
    from greenlove_tracker.techniques.arm import parts_of
    from greenlove_tracker.techniques.full_training import with_length

    arguments = [expanded(argument, os.environ) for argument in planned.arguments]
    parts = parts_of(load_task_function(planned.task, arguments), planned.seed)
    parts = with_length(parts, planned.epochs, planned.steps, planned.batch_size)
    if parts.get("eval_fn") is not None and parts.get("total_steps") and not parts.get("eval_every"):
        parts["eval_every"] = parts["total_steps"]  # as it is trained: evaluated at its end alone
    return parts


def _expected_stop(rule: StoppingRule, epochs: int, stops: Sequence[int]) -> ExpectedStop:
    """Return where a rule ends a training: as earlier ones of its group ended, where there are any."""
    from greenlove_tracker.extrapolation.expected_stop import expected_stop_of_runs
    from greenlove_tracker.stopping import unknown_stop

    return expected_stop_of_runs(stops, epochs) if stops else unknown_stop(rule, epochs)


def _values_of(estimate: Estimate | None) -> dict[str, Any] | None:
    return None if estimate is None else asdict(estimate)


if __name__ == "__main__":
    main()
