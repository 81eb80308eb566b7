"""Runs the trainings of an experiment one after another, each in a process of its own, and goes on where it stopped.

A crash, a leak or a full GPU ends one training and not the experiment. What is done is read from the logs: the same
command does the rest.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path

from greenlove_tracker import format as fmt
from greenlove_tracker.config import load_settings
from greenlove_tracker.console import say
from greenlove_tracker.errors import LogDirError, MissingExtraError, UsageError
from greenlove_tracker.experiments.definition import Experiment, PlannedRun, expanded
from greenlove_tracker.experiments.progress import (
    RUNS_DIR,
    ExperimentProgress,
    ExperimentUse,
    PlannedRunProgress,
    PlannedRunState,
    budget_limits,
    outputs_lock,
)
from greenlove_tracker.experiments.start_policy import ExpectedLengths, check_start, wait_to_start, with_fixed_deadline
from greenlove_tracker.files import write_atomically
from greenlove_tracker.records import RunStatus
from greenlove_tracker.signals import SignalForwarding
from greenlove_tracker.tracker.metadata import WAIT_VARIABLE
from greenlove_tracker.tracker.session import outer_run_dir
from greenlove_tracker.units import SECONDS_PER_HOUR

ONE_RUN = (
    sys.executable,
    "-P",
    "-m",
    "greenlove_tracker.experiments.one_run",
)  # the file, a key, --result-fd N, --outputs DIR follow
COPY_NAME = "experiment.yaml"  # of the file, as it was written, in the outputs
_MOST_RESULT_BYTES = 65536  # what a pipe holds
_TRAINED_METRICS = ("learning_rate", "train_loss")  # that every training logs; an evaluation's tell more
_ENDING_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
# The settings by which a training stops itself, by what is limited.
_LIMIT_VARIABLES = {
    "duration_s": "GREENLOVE_MAX_HOURS",
    "energy_kwh": "GREENLOVE_MAX_ENERGY_KWH",
    "emissions_kgco2e": "GREENLOVE_MAX_KGCO2E",
    "cost_usd": "GREENLOVE_MAX_COST_USD",
}


class ChildOutcome(StrEnum):
    """The ways in which the process of one training ends."""

    FINISHED = "finished"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    NOT_RUN = "not-run"  # it cannot be run here, and was not begun


@dataclass(frozen=True, slots=True)
class ChildResult:
    """The outcome of the process of one training.

    Attributes:
        outcome: of it.
        reason: in words; empty where it finished.
        signal: by which we were told to end meanwhile, or else the training alone; None without one.
    """

    outcome: ChildOutcome
    reason: str = ""
    signal: int | None = None


@dataclass(frozen=True, slots=True)
class ExperimentOutcome:
    """The outcome of a call of ``run_experiment``.

    Attributes:
        progress: how far the experiment is now, from the logs.
        not_run: trainings that did not come to their end, by name, with the reason.
        left_out: names of those that the budget left no room for; the one that it stopped is the first.
        limit: the limit that it was, as a clause; empty where none was reached.
        signal: that ended it; None where none did.
    """

    progress: ExperimentProgress
    not_run: tuple[tuple[str, str], ...]
    left_out: tuple[str, ...]
    limit: str
    signal: int | None

    @property
    def exit_code(self) -> int:
        """0: all is done; 1: a training failed; 3: the budget is used; 128 and a signal's number: it ended it."""
        if self.signal is not None:
            return 128 + self.signal
        if self.left_out:
            return 3
        return 1 if self.not_run else 0


def run_experiment(
    experiment: Experiment,
    *,
    is_fresh: bool = False,
    quiet: bool = False,
    command: Sequence[str] = ONE_RUN,
    child_output: int | None = None,
) -> ExperimentOutcome:
    """Train what has not finished of an experiment, one training after another; from the main thread.

    Each training is a process of its own: ``command`` with the file, a key, ``--result-fd N`` and ``--outputs DIR``
    behind it. Ctrl-C, SIGTERM and SIGHUP are passed on to it and waited for; at a second one it ends without saving.

    After a failure the other trainings are run all the same, and the next call tries again. Where a technique cannot be
    used here, or memory runs out, further seeds of that group would end alike: they are left out of this call.

    Args:
        experiment: what is trained.
        is_fresh: begin anew: what is in the outputs is moved aside, and nothing is deleted.
        quiet: say nothing but errors.
        command: that trains one of them.
        child_output: a file descriptor for what trainings print; None: our stdout.

    Raises:
        UsageError: where it cannot be run, before anything is trained.
    """
    check_runnable(experiment)
    tell: Callable[[str], None] = (lambda text: None) if quiet else say
    experiment = with_fixed_deadline(experiment, datetime.now(UTC))
    if is_fresh and experiment.outputs.exists():
        with outputs_lock(experiment.outputs):
            moved = _move_aside(experiment)
        tell(f"greenlove  what was in {experiment.outputs} is in {moved.name} now")
    with outputs_lock(experiment.outputs) as lock:
        progress = ExperimentProgress.of(experiment)
        _write_copy(experiment)
        call = _Call(experiment, lock, command, child_output, tell, quiet=quiet)
        with _raised_signals():
            try:
                call.run(progress)
            except SignalRaised as ended:
                call.signal = ended.number
        return call.outcome()


def check_runnable(experiment: Experiment) -> None:
    """Check all that can be checked before the first training, which others may follow hours later.

    Raises:
        UsageError: where the task, a variable or a setting is not as it should be.
        MissingExtraError: without torch.
    """
    if os.name == "nt":
        raise UsageError("experiments run on Linux and macOS: Windows hands no open files to another process")
    if outer_run_dir() is not None:
        raise UsageError("each training is a run of its own, and greenlove run makes one of all: start it without")
    if find_spec("torch") is None:
        raise MissingExtraError('an experiment needs torch: pip install "greenlove-tracker[torch]"')
    for run in {run.group: run for run in experiment.runs}.values():
        _check_training(experiment, run)


def _check_training(experiment: Experiment, planned: PlannedRun) -> None:
    """Check a training of a group: its task, its variables, its settings and its start.

    Raises:
        UsageError: where one of them is not as it should be.
    """
    file, _, function = planned.task.rpartition(":")
    if not function.isidentifier() or not Path(file).is_file():
        raise UsageError(f"task: there is no file {file or planned.task}, or no function is named after it")
    for argument in planned.arguments:
        expanded(argument, os.environ)
    check_start(experiment, planned)


# -- The trainings, one after another --


class _Call:
    """One call of ``run_experiment``.

    Args:
        experiment: what is trained.
        lock: the right to train into its outputs, as an open file.
        command: that trains one of them.
        child_output: for what trainings print.
        tell: takes sentences for the screen.
        quiet: waits are not shown.

    Attributes:
        signal: that ended it; None where none did.
    """

    def __init__(
        self,
        experiment: Experiment,
        lock: int,
        command: Sequence[str],
        child_output: int | None,
        tell: Callable[[str], None],
        *,
        quiet: bool,
    ) -> None:
        self._experiment, self._lock, self._tell, self._is_quiet = experiment, lock, tell, quiet
        self._command, self._child_output = command, child_output
        self._not_run: dict[str, str] = {}
        self._given_up: dict[str, str] = {}  # groups, with the reason
        self._left_out: tuple[str, ...] = ()
        self._limit = ""
        self._lengths = ExpectedLengths(experiment)
        self.signal: int | None = None

    def run(self, progress: ExperimentProgress) -> None:
        """Train what has not finished.

        Raises:
            SignalRaised: where a signal comes between two trainings.
        """
        self._tell_beginning(progress)
        begun = any(run.state is not PlannedRunState.NOT_BEGUN for run in progress.runs)
        for number, run in enumerate(progress.runs, 1):
            planned = run.planned
            if run.state is PlannedRunState.FINISHED:
                continue
            if planned.group in self._given_up:
                self._not_run[planned.name] = f"left out: {self._given_up[planned.group]}"
                continue
            rest, self._limit = self._budget_rest(progress.use)
            if self._limit:
                self._leave_out(number - 1)
                return
            if self._experiment.start.each == "run" or not begun:
                wait_to_start(self._experiment, planned, self._lengths.of(progress, planned), quiet=self._is_quiet)
            begun = True
            result = self._train(planned, rest)
            progress = ExperimentProgress.of(self._experiment)
            self.signal = result.signal
            if self._has_ended(number, progress.of_key(planned.key), result, is_limited=bool(rest)):
                return

    def outcome(self) -> ExperimentOutcome:
        """Return what it left, from the logs; and say how it ended."""
        progress = ExperimentProgress.of(self._experiment)
        done = f"{progress.n_finished} of {fmt.plural(len(progress.runs), 'training')} done"
        if self.signal is not None:
            self._tell(f"greenlove  ended by {signal.Signals(self.signal).name}: {done}. The same command goes on")
        elif self._left_out:
            names = fmt.shortened("; ".join(self._left_out), 200)
            self._tell(f"greenlove  {self._limit}: {done}, and left out are {names}")
            self._tell("greenlove  With a larger budget in the file the same command goes on")
        elif self._not_run:
            self._tell(f"greenlove  {done}. The same command tries the others again")
        return ExperimentOutcome(progress, tuple(self._not_run.items()), self._left_out, self._limit, self.signal)

    def _tell_beginning(self, progress: ExperimentProgress) -> None:
        n, n_done = len(progress.runs), progress.n_finished
        before = f", {n_done} of them finished before" if n_done else ""
        self._tell(f"greenlove  {self._experiment.name}: {fmt.plural(n, 'training')}{before}")
        for note in progress.notes:
            self._tell(f"greenlove  {note}")
        for quantity in budget_limits(self._experiment.budget):
            if n_unknown := progress.use.n_unknown[quantity]:
                name = fmt.QUANTITIES[quantity][0]
                runs = fmt.plural(n_unknown, "run")
                self._tell(f"greenlove  {name} of {runs} is not known: the budget counts the others alone")

    def _budget_rest(self, use: ExperimentUse) -> tuple[dict[str, float], str]:
        """Return what is left of each limit by its quantity, and the limit that is reached, as a clause."""
        rest = {}
        for quantity, limit in budget_limits(self._experiment.budget).items():
            used = use.by_quantity[quantity]
            rest[quantity] = limit - used
            if used >= limit:
                name, text = fmt.QUANTITIES[quantity]
                return {}, f"the budget is used: {name} is at {text(used)} of {text(limit)}"
        return rest, ""

    def _leave_out(self, first: int) -> None:
        """Leave out the trainings from one on that have not finished."""
        progress = ExperimentProgress.of(self._experiment)
        states = progress.runs[first:]
        self._left_out = tuple(run.planned.name for run in states if run.state is not PlannedRunState.FINISHED)

    def _has_ended(self, number: int, run: PlannedRunProgress, result: ChildResult, *, is_limited: bool) -> bool:
        """Take note of how a training ended; return True where no other is to begin."""
        name, is_finished = run.planned.name, run.state is PlannedRunState.FINISHED
        if is_finished:
            self._tell(f"greenlove  {number} of {len(self._experiment.runs)}  {_line(run)}")
        if self.signal is not None or is_finished:
            return self.signal is not None
        is_stopped = bool(run.runs) and run.runs[-1].summary.status == RunStatus.STOPPED
        if is_limited and is_stopped:
            self._limit = f"{name} was stopped by the budget and saved" + (
                f" ({result.reason})" if result.reason else ""
            )
            self._leave_out(number - 1)
            return True
        if result.outcome is ChildOutcome.INTERRUPTED and not is_stopped:  # by a limit of the user's own
            self.signal = int(signal.SIGTERM)  # a cloud's notice: the machine is about to end
            return True
        reason = result.reason or run.reason or "no reason is known"
        if result.outcome is ChildOutcome.FINISHED:
            reason = "it trained to its end, and its log could not be written"
        self._not_run[name] = reason
        self._tell(f"greenlove  {number} of {len(self._experiment.runs)}  {name} did not finish: {reason}")
        if result.outcome is ChildOutcome.NOT_RUN or "out of memory" in reason.lower():
            self._given_up[run.planned.group] = reason
        return False

    def _train(self, planned: PlannedRun, rest: Mapping[str, float]) -> ChildResult:
        """Run the process of one training to its end, and pass signals on to it."""
        environment = dict(os.environ) | limit_variables(planned, rest)
        os.environ.pop(WAIT_VARIABLE, None)  # it is of this training alone
        if self._is_quiet:
            environment.setdefault("GREENLOVE_VERBOSE", "0")
        reading, writing = os.pipe()
        heard = list[int]()
        with ExitStack() as closing:
            closing.callback(os.close, reading)
            with ExitStack() as of_child:
                of_child.callback(os.close, writing)
                forwarding = closing.enter_context(SignalForwarding(heard.append))
                words = [*self._command, str(self._experiment.path), planned.key, "--result-fd", str(writing)]
                words += ["--outputs", str(self._experiment.outputs)]  # the file may name others by now
                try:
                    child = subprocess.Popen(
                        words, env=environment, pass_fds=(writing, self._lock), stdout=self._child_output
                    )
                except OSError as error:  # no memory for a process
                    return ChildResult(ChildOutcome.FAILED, f"its process cannot start: {error.strerror}")
            forwarding.start(child.send_signal)
            code = child.wait()
            os.set_blocking(reading, False)
            try:
                written = os.read(reading, _MOST_RESULT_BYTES)
            except BlockingIOError:  # a process that it left behind holds the pipe open
                written = b""
        result = _result_of(written, code)
        ending = next((number for number in heard if number in _ending_numbers()), None)
        return result if ending is None else replace(result, signal=int(ending))


def limit_variables(planned: PlannedRun, rest: Mapping[str, float]) -> dict[str, str]:
    """Return the settings by which a training stops itself where the rest of the budget, by quantity, is used."""
    if not rest:
        return {}
    own = load_settings(planned.settings)
    limits = {
        "duration_s": own.max_hours,
        "energy_kwh": own.max_energy_kwh,
        "emissions_kgco2e": own.max_kgco2e,
        "cost_usd": own.max_cost_usd,
    }
    variables = {"GREENLOVE_ON_OVERRUN": "stop"}
    for quantity, amount in rest.items():
        limit = amount / SECONDS_PER_HOUR if quantity == "duration_s" else amount
        variables[_LIMIT_VARIABLES[quantity]] = repr(min(limit, limits[quantity] or math.inf))
    return variables


def _result_of(written: bytes, code: int) -> ChildResult:
    """Return what a training's process wrote; of one that wrote nothing that can be read, how it ended."""
    number = -code if code < 0 else code - 128
    by_signal = number if number in _ending_numbers() else None
    try:
        found = json.loads(written)
        outcome, reason = ChildOutcome(found["outcome"]), str(found.get("reason") or "")
        return ChildResult(outcome, reason, by_signal if outcome is ChildOutcome.INTERRUPTED else None)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass  # a crash: the exit code tells
    if code >= 0:
        return ChildResult(ChildOutcome.FAILED, f"its process ended without a word, with exit code {code}")
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    if by_signal is not None:
        return ChildResult(ChildOutcome.INTERRUPTED, f"ended by {name}", by_signal)
    hint = ", as the system ends what takes too much memory" if name == "SIGKILL" else ""
    return ChildResult(ChildOutcome.FAILED, f"its process was ended by {name}{hint}")


def _ending_numbers() -> list[int]:
    return [getattr(signal, name) for name in _ENDING_SIGNALS]


class SignalRaised(BaseException):
    """A signal came while no training ran.

    Attributes:
        number: of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def _raised_signals() -> Iterator[None]:
    """Raise ``SignalRaised`` in the block at Ctrl-C, SIGTERM and SIGHUP."""

    def end(number: int, frame: types.FrameType | None) -> None:
        raise SignalRaised(number)

    # One that is ignored (nohup, a shell's background job) stays ignored; one that C installed is None, and not ours.
    before = {n: handler for n in _ending_numbers() if (handler := signal.getsignal(n)) not in (signal.SIG_IGN, None)}
    try:
        for number in before:
            signal.signal(number, end)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _line(run: PlannedRunProgress) -> str:
    """Return one training in a line, said as soon as it has finished."""
    use = ExperimentUse.of(run.runs)
    energy_kwh = None if use.n_unknown["energy_kwh"] else use.by_quantity["energy_kwh"]
    figures = [fmt.duration(use.by_quantity["duration_s"]), fmt.energy(energy_kwh)]
    metrics = run.runs[-1].summary.metrics
    evaluated = [m for m in metrics if m.name not in _TRAINED_METRICS] or metrics[:1]
    figures += [f"{m.name} {fmt.significant(m.last)}" for m in evaluated[:2]]
    return f"{run.planned.name}: {' · '.join(figures)}"


# -- The outputs --


def _write_copy(experiment: Experiment) -> None:
    """Write the file, as it was read, beside the runs.

    Raises:
        LogDirError: where that cannot be written.
    """
    target = experiment.outputs / COPY_NAME
    try:
        (experiment.outputs / RUNS_DIR).mkdir(exist_ok=True)
        if not (target.exists() and experiment.path.exists() and target.samefile(experiment.path)):
            write_atomically(target, experiment.text.encode("utf-8"))
    except OSError as error:
        raise LogDirError(f"{experiment.outputs} cannot be written: {error.strerror}") from error


def _move_aside(experiment: Experiment) -> Path:
    """Move the outputs aside, and return where they are now.

    Raises:
        UsageError: where that would move more than outputs, or cannot be done.
    """
    outputs = experiment.outputs.resolve()
    own = [experiment.path, Path.cwd(), *(Path(run.task.rpartition(":")[0]) for run in experiment.runs)]
    if inside := next((path for path in own if path.resolve().is_relative_to(outputs)), None):
        raise UsageError(f"--fresh moves {outputs} aside, and {inside} is in it: name another outputs directory")
    moved = outputs.with_name(f"{outputs.name}.before-{datetime.now(UTC):%Y%m%dT%H%M%S}")
    try:
        outputs.rename(moved)
    except OSError as error:
        raise UsageError(f"{outputs} cannot be moved to {moved}: {error.strerror}") from error
    return moved
