"""``compare``: techniques against the baseline, in short interleaved trials of the user's own training."""

from __future__ import annotations

import gc
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from greenlove_tracker import devices
from greenlove_tracker.comparisons import BASELINE, ArmTrial, Comparison
from greenlove_tracker.config import load_settings, setting_names
from greenlove_tracker.errors import UsageError
from greenlove_tracker.exploration.estimator import check_single_process, plan_of
from greenlove_tracker.exploration.snapshot import preserved
from greenlove_tracker.exploration.trial_session import TrialSession
from greenlove_tracker.extrapolation.ratios import rounded_budget_s
from greenlove_tracker.forecasting import LEAST_ENERGY_S, TrainingPlan
from greenlove_tracker.format import duration, plural
from greenlove_tracker.logs.comparisons import comparison_field, write_comparison
from greenlove_tracker.meter import Meter
from greenlove_tracker.phases import phases_from
from greenlove_tracker.records import Clock, Method, RunStatus, SystemClock
from greenlove_tracker.techniques.arm import Arm, Task, arm_of, check_is_new, is_out_of_memory, parts_of
from greenlove_tracker.techniques.arm_training import ArmTraining, CutOffError, process_states
from greenlove_tracker.techniques.comparison_rows import Accounting, ArmRecord, Rows
from greenlove_tracker.techniques.technique import NotApplicableError, Parts, Technique, technique_named
from greenlove_tracker.techniques.trial_schedule import LEAST_BLOCKS, ArmCost, BlockPlan, TrialSchedule, budget_for

_WARM_SHARE = 0.25  # of the budget, that warming up may take; compiling may take longer, which no step can be told
_COOL_DOWN_S = 0.5  # between arms on a GPU: its clocks and its power answer within some tenths of a second
_JITTER_S = 0.1  # NVML's power is sampled each 20 to 100 ms (Yang et al., "Part-time Power Measurements", SC24)
_MOST_REASON = 300  # characters
_OF_WHOLE = "it changes how long a training is, which only whole trainings show: --full"


def compare(
    task: Task,
    techniques: str | Sequence[str | Technique],
    *,
    budget_s: float = 120.0,
    log_dir: str | os.PathLike[str] = "greenlove_logs",
    seed: int = 0,
    clock: Clock | None = None,
    meter: Meter | None = None,
    sleep: Callable[[float], object] = time.sleep,
    **settings: Any,
) -> Comparison:
    """Measure what techniques save on this very training, in short trials, and leave no trace.

    ::

        comparison = compare(task, ["amp-bf16", "grad-accumulation=4", "amp-bf16+compile"])
        comparison.rows[0].energy_ratio

    Each technique is an arm beside the baseline: the task, called anew with the same random state. The arms' trials are
    interleaved in blocks, as many as the budget holds.

    Args:
        task: returns ``(model, optimizer, criterion, train_dataset)``, or a dict of those and of more arguments of
            ``Estimator``.
        techniques: names, such as ``amp-bf16``, several joined by ``+``, or techniques of one's own.
        budget_s: for everything; overrun by at most one step, or one start of a loader.
        log_dir: where the comparison is logged, as a run of its own.
        seed: of the training's random state, and of the order of trials.
        clock: read for all times.
        meter: measures the energy; default CodeCarbon.
        sleep: waits so many seconds, between arms on a GPU.
        **settings: fields of ``greenlove_tracker.config.Settings``, such as ``country``; before those of the task.

    Raises:
        UsageError: for a technique that there is none of, or a bad argument, before anything runs.
    """
    named = techniques_of(techniques)
    if not isinstance(budget_s, int | float) or not 0 < budget_s < float("inf"):
        raise UsageError(f"{{argument}} must be positive seconds, such as 120, not {budget_s!r}", argument="budget_s")
    check_single_process()
    given = {**settings, "log_dir": os.fspath(log_dir)}
    load_settings(given)  # a bad one is refused now
    began_s = (clock or SystemClock()).perf_s()
    try:
        with preserved(()):
            parts = parts_of(task, seed)
            of_task = {name: parts[name] for name in setting_names() if name in parts}
            fields = [comparison_field([technique.name for technique in named])]
            run = _ComparisonRun(load_settings({**of_task, **given}), budget_s, clock, meter, fields, began_s)
            with run:
                run.train(task, named, parts, seed, sleep)
    except Exception as error:
        error.add_note("raised by the training that greenlove_tracker compared; everything is as it was before")
        raise
    with run:
        return run.concluded()


def techniques_of(given: str | Sequence[str | Technique]) -> list[Technique]:
    """Return the techniques that were asked for.

    Raises:
        UsageError: where there is none, one of them twice, or one that there is none of.
    """
    several = given.split(",") if isinstance(given, str) else list(given)
    named = [t if isinstance(t, Technique) else technique_named(t.strip()) for t in several]
    if not named:
        raise UsageError("no technique is named: there is nothing to compare the baseline with")
    names = [technique.name for technique in named]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise UsageError(f"{', '.join(twice)}: named twice")
    if BASELINE in names:
        raise UsageError(f"{BASELINE} is the training without any technique, and always compared: leave it out")
    return named


class _ComparisonRun(TrialSession):
    """The run of a comparison; its trials are those of all arms."""

    def train(
        self,
        task: Task,
        techniques: Sequence[Technique],
        first: Parts,
        seed: int,
        sleep: Callable[[float], object],
    ) -> None:
        """Build the arms, warm them up, and run blocks of trials while the budget holds them."""
        self._records = {BASELINE: ArmRecord()}
        self._records |= {t.name: ArmRecord(notes=tuple(filter(None, [t.note]))) for t in techniques}
        self._arms: dict[str, ArmTraining] = {}
        self._costs: list[ArmCost] = []
        self._trials: list[ArmTrial] = []
        self._plan: TrainingPlan | None = None
        self._method = ""
        self._prepared_s = 0.0
        self._is_metered = False  # trials have an energy, however short they are
        self._n_positions = 0
        self._sleep, self._random = sleep, random.Random(seed)  # noqa: S311  # pauses, no secret
        try:
            made = [first, parts_of(task, seed)]
            check_is_new(made[1], made[:1])
            common = process_states()
            warm_until_s = self.perf_s() + _WARM_SHARE * self.budget_s
            for number, technique in enumerate([None, *techniques]):
                for state in common:
                    state.restore()
                until_s = self.perf_s() + max(0.0, warm_until_s - self.perf_s()) / (1 + len(techniques) - number)
                self._add_arm(technique, made.pop(0) if made else None, lambda: parts_of(task, seed), until_s)
            for state in common:
                state.restore()
            self._prepared_s = self.spent_s
            self._run_blocks(TrialSchedule(seed))
        finally:
            for name, training in self._arms.items():
                record = self._records[name]
                record.notes += tuple(training.arm.counted())
                record.one_off_s, record.starts_s = training.one_off_s, training.starts_s
                record.n_starts = training.n_starts
                self._costs.append(training.cost)
                training.close()
            self._arms.clear()
            free_memory()

    def concluded(self) -> Comparison:
        """Return what was found, write it, and close the run.

        Raises:
            OSError: where it cannot be written.
        """
        advised_s = budget_for(self._costs, self._prepared_s) if self._costs else None
        state = self._session.state
        factors = state.factors.rates, state.energy_factor, state.gpu_count
        accounting = Accounting(*factors, self.spent_s, self._prepared_s, advised_s)
        rows = Rows(self._trials, self._records, self._plan, accounting)
        n_blocks = len({trial.block for trial in self._trials})
        notes = list(rows.notes)
        if n_blocks < LEAST_BLOCKS and len(self._costs) > 1:
            notes.insert(0, f"The budget held {plural(n_blocks, 'block')} of trials, and {LEAST_BLOCKS} are needed")
        if self._is_metered and advised_s is not None and all(t.energy_kwh is None for t in self._trials):
            notes.append(
                f"Energy needs trials of {LEAST_ENERGY_S:g} s or more: --budget {rounded_budget_s(advised_s):g} "
                "has room for enough of them"
            )
        comparison = Comparison(
            rows.baseline,
            rows.others,
            tuple(self._trials),
            spent_s=self.spent_s,
            budget_s=self.budget_s,
            residual_cv=rows.residual_cv,
            energy_method=self._method,
            run_dir=self._session.run_dir,
            notes=tuple(notes),
        )
        write_comparison(self._session.run_dir, comparison)
        self._session.finish(RunStatus.FINISHED, 0)
        return comparison

    def _add_arm(
        self, technique: Technique | None, made: Parts | None, make: Callable[[], Parts], until_s: float
    ) -> None:
        """Build an arm and warm it up; one that cannot be is noted, with its reason."""
        name = BASELINE if technique is None else technique.name
        self._draw(f"warming up · {name}")
        try:
            if technique is not None and technique.is_of_whole:
                raise NotApplicableError(_OF_WHOLE)
            arm = arm_of(make() if made is None else made, technique)
            if technique is None:
                self._plan = _plan_of(arm)
            self._arms[name] = training = ArmTraining(arm, self.perf_s)
            with training.running():
                training.warm_up(until_s)
        except Exception as error:
            self._drop(name, error)

    def _run_blocks(self, schedule: TrialSchedule) -> None:
        """Run blocks of trials while the budget holds them; Ctrl-C ends them."""
        while len(self._arms) > 1:
            left_s = self.budget_s - self.spent_s
            costs = [training.cost for training in self._arms.values()]
            if (plan := schedule.next_block(costs, left_s)) is None:
                return
            number, trials = schedule.n_blocks, list[ArmTrial]()
            for name in schedule.order(list(self._arms)):
                self._draw(f"block {number + 1} of some {number + max(1, int(left_s / plan.expected_s))} · {name}")
                try:
                    trials.append(self._trial(self._arms[name], number, plan))
                except CutOffError:  # nothing of the block counts
                    self.abandon_trial()
                    return
                except Exception as error:
                    self.abandon_trial()
                    self._drop(name, error)
            self._trials += [trial for trial in trials if trial.arm in self._arms]

    def _trial(self, training: ArmTraining, block: int, plan: BlockPlan) -> ArmTrial:
        deadline_s = self.perf_s() + self.budget_s - self.spent_s
        began_s = self.spent_s
        self._pause(training, is_metered=plan.is_metered)
        with training.running():
            trial = training.trial(
                plan.samples, deadline_s, block=block, position=self._n_positions, before_window=self.start_trial
            )
            energy = self.end_trial()
            ended_s = self.spent_s
        self._n_positions += 1
        self._is_metered |= bool(energy.kwh)
        untimed_s = max(0.0, ended_s - began_s - trial.duration_s)
        training.cost = ArmCost(trial.duration_s / trial.samples, training.cost.batch_size, untimed_s)
        # Of short trials only the slow ones last long enough: their energy would be compared with nothing.
        is_long = plan.is_metered and trial.duration_s >= LEAST_ENERGY_S and bool(energy.kwh)
        self._method = energy.method if is_long else self._method
        gpus = devices.select_gpus(devices.nvml_gpus(), os.environ).gpus if training.arm.device.type == "cuda" else ()
        temperature_c, clock_mhz = devices.hottest_and_slowest_gpu([gpu.index for gpu in gpus])
        return replace(
            trial,
            started_s=ended_s - trial.duration_s,
            energy_kwh=energy.kwh if is_long else None,
            energy_method=energy.method if is_long else "",
            temperature_c=temperature_c,
            clock_mhz=clock_mhz,
        )

    def _pause(self, training: ArmTraining, *, is_metered: bool) -> None:
        """Let a GPU cool down, and shift the phase of the trials to that of a meter that samples power."""
        pause_s = _COOL_DOWN_S if training.arm.device.type == "cuda" else 0.0
        if is_metered and (not self._method or Method.SAMPLED_POWER in self._method.split("+")):
            pause_s += self._random.uniform(0.0, _JITTER_S)
        if pause_s and self._n_positions:
            self._sleep(pause_s)

    def _drop(self, name: str, error: Exception) -> None:
        """Note why an arm cannot be run, and let go of what it holds; the baseline's failure is the comparison's."""
        if name == BASELINE:
            raise error
        self._records[name].reason = reason_of(error)
        self._trials = [trial for trial in self._trials if trial.arm != name]
        if (training := self._arms.pop(name, None)) is not None:
            training.close()
        error.__traceback__ = None  # its frames hold the arm's tensors
        del training
        free_memory()

    def _draw(self, what: str) -> None:
        self.draw_status(f"greenlove compare  {duration(self.spent_s)} of {duration(self.budget_s)} · {what}")


def free_memory() -> None:
    """Let go of what an arm that is over held."""
    gc.collect()  # a model and its hooks may hold each other
    if devices.has_cuda_started():
        torch.cuda.empty_cache()


def reason_of(error: BaseException) -> str:
    """Return why an arm did not run, in a sentence without a full stop."""
    if isinstance(error, NotApplicableError):
        return str(error)
    if is_out_of_memory(error):
        return "out of memory"
    text = " ".join(str(error).split())
    text = text if len(text) <= _MOST_REASON else f"{text[:_MOST_REASON]}…"
    return text if isinstance(error, UsageError) else f"{type(error).__name__}: {text}"


def _plan_of(arm: Arm) -> TrainingPlan | None:
    """Return the plan of the whole training; None where the task does not say how long it is."""
    parts = arm.parts
    epochs, steps, phases = parts.get("total_epochs"), parts.get("total_steps"), parts.get("phases") or ()
    if epochs is None and steps is None and not phases:
        return None
    return plan_of(arm.source, epochs, steps, None, phases_from(phases))
