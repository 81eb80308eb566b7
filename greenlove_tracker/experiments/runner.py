"""Runs the trainings of an experiment one after another, each in a process of its own, and goes on where it stopped.

A crash, a leak or a full GPU ends one training and not the experiment. What is done is read from the logs: the same
command does the rest.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from greenlove_tracker.experiments import one_run
from greenlove_tracker.experiments.definition import Experiment, PlannedRun, expanded
from greenlove_tracker.experiments.progress import ExperimentProgress, PlannedRunProgress, PlannedRunState, outputs_lock
from greenlove_tracker.grid.live.fallback import opened_intensity
from greenlove_tracker.machine.job import outer_run_dir
from greenlove_tracker.machine.signals import wait_and_forward
from greenlove_tracker.report.wording import energy_mark
from greenlove_tracker.scheduling.wait_loop import wait_for_low_carbon
from greenlove_tracker.settings.config import load_settings
from greenlove_tracker.text import format as fmt
from greenlove_tracker.text.console import say
from greenlove_tracker.vocabulary.errors import UsageError, require
from greenlove_tracker.vocabulary.records import RunStatus
from greenlove_tracker.vocabulary.units import SECONDS_PER_HOUR
from greenlove_tracker.vocabulary.waits import WAIT_VARIABLE

_LIVE = "live"  # who is asked for the intensity where no setting says it: a wait needs a network
# The settings by which a training stops itself, by what is limited.
_LIMITS = {
    "duration_s": "max_hours",
    "energy_kwh": "max_energy_kwh",
    "emissions_kgco2e": "max_kgco2e",
    "cost_usd": "max_cost_usd",
}


@dataclass(frozen=True, slots=True)
class ExperimentOutcome:
    """The outcome of a call of ``run_experiment``.

    Attributes:
        progress: how far the experiment is now, from the logs.
        not_run: trainings that did not come to their end, by name, with the reason.
        left_out: names of those that the budget left no room for; the one that it stopped is the first.
        signal: that ended it; None where none did.
    """

    progress: ExperimentProgress
    not_run: tuple[tuple[str, str], ...]
    left_out: tuple[str, ...]
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
    quiet: bool = False,
    command: Sequence[str] = one_run.COMMAND,
) -> ExperimentOutcome:
    """Train what has not finished of an experiment, one training after another; from the main thread.

    Each training is a process of its own. Ctrl-C, SIGTERM and SIGHUP are passed on to it and waited for; at a second
    one it ends without saving. After a failure the other trainings are run all the same, and the next call tries again.

    Args:
        experiment: what is trained.
        quiet: say nothing but errors.
        command: that trains one of them: its file, its key, a file for the answer and ``--outputs DIR`` follow.

    Raises:
        UsageError: where it cannot be run, before anything is trained.
    """
    check_runnable(experiment)
    with outputs_lock(experiment.outputs):
        return _Call(experiment, command, quiet).run()


def check_runnable(experiment: Experiment) -> None:
    """Check all that can be checked before the first training, which others may follow hours later.

    Raises:
        UsageError: where a variable, a setting or the start is not as it should be.
        MissingExtraError: without torch.
    """
    if os.name == "nt":
        raise UsageError("experiments run on Linux and macOS: Windows has not the signals that save a training")
    if outer_run_dir() is not None:
        raise UsageError("each training is a run of its own, and greenlove run makes one of all: start it without")
    require("torch", "torch", "an experiment needs torch")
    for run in {run.group: run for run in experiment.runs}.values():
        for argument in run.arguments:
            expanded(argument)
        settings = load_settings(run.settings)
        if settings.intensity or experiment.start_of(run).below_gco2e_per_kwh is not None:
            opened_intensity(settings.intensity or _LIVE, settings.country or None)  # what cannot be asked is refused


@dataclass(slots=True)
class _Call:
    """One call of ``run_experiment``.

    Attributes:
        experiment: what is trained.
        command: that trains one of them.
        is_quiet: nothing is said, and waits are not shown.
        not_run: by name, the reason of those that did not come to their end.
        limit: that was reached, as a clause.
        signal: that ended it.
    """

    experiment: Experiment
    command: Sequence[str]
    is_quiet: bool
    not_run: dict[str, str] = field(default_factory=dict)
    limit: str = ""
    signal: int | None = None

    def run(self) -> ExperimentOutcome:
        """Train what has not finished, and say how it ended."""
        progress = ExperimentProgress.of(self.experiment)
        trainings = fmt.plural(len(progress.runs), "training")
        before = f", {progress.n_finished} of them finished before" if progress.n_finished else ""
        self._tell(f"{self.experiment.name}: {trainings}{before}")
        for note in progress.notes:
            self._tell(note)
        for number, run in enumerate(progress.runs):
            if run.state is PlannedRunState.FINISHED:
                continue
            self._check_budget(progress.use)
            if self.limit:
                break
            wait_to_start(self.experiment, run.planned, quiet=self.is_quiet)
            answer = self._train(run.planned, progress.use)
            progress = ExperimentProgress.of(self.experiment)
            self._tell_end(f"{number + 1} of {len(progress.runs)}  {run.planned.name}", progress.runs[number], answer)
            if self.signal is not None or self.limit:
                break
        left = [run.planned.name for run in progress.left if run.planned.name not in self.not_run]
        done = f"{progress.n_finished} of {trainings} done"
        if self.signal is not None:
            self._tell(f"ended by {signal.Signals(self.signal).name}: {done}. The same command goes on")
        elif self.limit:
            self._tell(f"{self.limit}: {done}, and left out are {fmt.shortened('; '.join(left), 200)}")
            self._tell("With a larger budget in the file the same command goes on")
        elif self.not_run:
            self._tell(f"{done}. The same command tries the others again")
        return ExperimentOutcome(progress, tuple(self.not_run.items()), tuple(left if self.limit else ()), self.signal)

    def _tell(self, text: str) -> None:
        if not self.is_quiet:
            say(f"greenlove  {text}")

    def _check_budget(self, use: Mapping[str, float]) -> None:
        """Take note of a limit that is reached."""
        for quantity, limit in self.experiment.budget.limits.items():
            if use[quantity] >= limit:
                name, text = fmt.QUANTITIES[quantity]
                self.limit = f"the budget is used: {name} is at {text(use[quantity])} of {text(limit)}"
                return

    def _tell_end(self, place: str, run: PlannedRunProgress, answer: Mapping[str, str]) -> None:
        """Take note of how a training ended."""
        if run.state is PlannedRunState.FINISHED:
            energies = [one.summary.energy_kwh for one in run.runs]
            energy_kwh = None if None in energies else math.fsum(filter(None, energies))
            mark = energy_mark(run.runs[-1]) if run.runs else ""
            self._tell(f"{place}: {fmt.duration(run.duration_s)} · {mark}{fmt.energy(energy_kwh)}")
            return
        reason = answer["reason"] or run.reason or "it trained to its end, and its log could not be written"
        is_stopped = bool(run.runs) and run.runs[-1].summary.status == RunStatus.STOPPED
        if self.signal is not None or (answer["outcome"] == "interrupted" and not is_stopped):
            self.signal = self.signal or int(signal.SIGTERM)  # that reached the training alone
        elif is_stopped and self.experiment.budget.limits:
            self.limit = f"{run.planned.name} was stopped by the budget and saved ({reason})"
        else:
            self.not_run[run.planned.name] = reason
            self._tell(f"{place} did not finish: {reason}")

    def _train(self, planned: PlannedRun, use: Mapping[str, float]) -> Mapping[str, str]:
        """Run the process of one training to its end, pass signals on to it, and return what it answered."""
        environment = dict(os.environ) | limit_variables(self.experiment, planned, use)
        os.environ.pop(WAIT_VARIABLE, None)  # it is of this training alone
        if self.is_quiet:
            environment.setdefault("GREENLOVE_VERBOSE", "0")
        with tempfile.TemporaryDirectory() as directory:
            answer = Path(directory, "answer.json")
            words = [*self.command, str(self.experiment.path), planned.key, str(answer)]
            words += ["--outputs", str(self.experiment.outputs)]  # the file may name others by now
            code, came = wait_and_forward(subprocess.Popen(words, env=environment))
            found, ended_by = one_run.read_answer(answer, code)
        ours = [int(number) for number in came if number in one_run.ENDING]
        self.signal = next(iter(ours), ended_by if found["outcome"] == "interrupted" else None)
        return found


def limit_variables(experiment: Experiment, planned: PlannedRun, use: Mapping[str, float]) -> dict[str, str]:
    """Return the settings by which a training stops itself where the rest of the budget is used."""
    own = load_settings(planned.settings)
    variables = {}
    for quantity, limit in experiment.budget.limits.items():
        rest = limit - use[quantity]
        if quantity == "duration_s":
            rest /= SECONDS_PER_HOUR
        name = _LIMITS[quantity]
        variables["GREENLOVE_ON_OVERRUN"] = "stop"
        variables[f"GREENLOVE_{name.upper()}"] = repr(min(rest, getattr(own, name) or math.inf))
    return variables


def wait_to_start(experiment: Experiment, planned: PlannedRun, *, quiet: bool) -> None:
    """Wait until a training is to begin, and hand the wait over to its run."""
    policy = experiment.start_of(planned)
    if policy.below_gco2e_per_kwh is not None:
        settings = load_settings(planned.settings)
        wait_for_low_carbon(
            policy.below_gco2e_per_kwh,
            policy.max_wait,
            intensity=settings.intensity or _LIVE,
            country=settings.country or None,
            quiet=quiet,
        )
