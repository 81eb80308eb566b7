"""``compare``: techniques against the baseline, in short interleaved trials of the user's own training."""

from __future__ import annotations

import gc
import math
import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from greenlove_tracker.exploration.estimator import check_single_process
from greenlove_tracker.exploration.random_state import saved_process
from greenlove_tracker.exploration.snapshot import Snapshot
from greenlove_tracker.exploration.trial_session import TrialSession
from greenlove_tracker.extrapolation.draws import student_quantile
from greenlove_tracker.extrapolation.ratios import RatioFit, budget_needed_s, fit_ratios, rounded_budget_s, verdict_of
from greenlove_tracker.logs.comparisons import COMPARED, write_comparison
from greenlove_tracker.machine import devices
from greenlove_tracker.meter import Meter
from greenlove_tracker.settings.config import load_settings, setting_names
from greenlove_tracker.techniques.arm import Task, arm_of, check_is_new, parts_of, plan_of_parts
from greenlove_tracker.techniques.arm_training import ArmRecord, ArmTraining, CutOffError
from greenlove_tracker.techniques.technique import NotApplicableError, Parts, Technique, technique_named
from greenlove_tracker.techniques.trial_schedule import LEAST_BLOCKS, ArmCost, BlockPlan, TrialSchedule, budget_for
from greenlove_tracker.text.format import duration, plural, shortened
from greenlove_tracker.vocabulary.comparisons import (
    BASELINE,
    ArmTrial,
    Comparison,
    ComparisonRow,
    Verdict,
    WholeRun,
    is_modelled,
)
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.forecasting import LEAST_ENERGY_S, LEVEL, Estimate, Kind
from greenlove_tracker.vocabulary.records import (
    COMPONENTS,
    Clock,
    Field,
    Method,
    RunStatus,
    SystemClock,
    joined_methods,
)
from greenlove_tracker.vocabulary.units import BYTES_PER_GB

_WARM_SHARE = 0.25  # of a stage, that warming up may take; compiling may take longer, which no step can be told
_MOST_WARM_SHARE = 0.5  # of the budget: an arm that took more to start is why nothing was measured
_COOL_DOWN_S = 0.5  # between arms on a GPU: its clocks and its power answer within some tenths of a second
_JITTER_S = 0.1  # NVML's power is sampled each 20 to 100 ms (Yang et al., "Part-time Power Measurements", SC24)
# Between the ratios of one training to itself, built anew in 40 processes, beyond what their trials scatter by
# (benchmarks/compare_techniques.py, a transformer on two cores, 27 and 28 November 2026: 1.0%).
_BUILD_CV = 0.01
_MOST_REASON = 300  # characters
_NOT_FINITE = "its loss was not a finite number: look at the learning rate, or at a wider range of numbers"
_OF_WHOLE = (
    "it changes how long a training is or what it learns when, which only whole trainings show: add --full, or use "
    "greenlove experiment"
)


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
    """Measure what techniques save on this very training, in short trials.

    ::

        comparison = compare(task, ["amp-bf16", "grad-accumulation=4", "amp-bf16+compile"])
        comparison.rows[0].energy_ratio

    Each technique is an arm beside the baseline: the task, called anew with the same random state. The arms' trials are
    interleaved in blocks, as many as the budget holds. Those that are slow to start, as ``compile`` is, come last, one
    after another: the others have their trials by then, and go on beside them.
    Random states and torch's switches are put back; what else hangs on the task is compared, and named where it has
    changed.

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
        **settings: fields of ``greenlove_tracker.settings.config.Settings``, such as ``country``; before those of the
            task.

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
        with Snapshot((), watched={"task": task}) as around:
            parts = parts_of(task, seed)
            of_task = {name: parts[name] for name in setting_names() if name in parts}
            fields = [Field(COMPARED, ", ".join(technique.name for technique in named))]
            run = _ComparisonRun(load_settings({**of_task, **given}), budget_s, clock, meter, fields, began_s)
            with run:
                run.train(task, named, parts, seed, sleep)
    except UsageError:
        raise
    except Exception as error:
        error.add_note("raised by the training that greenlove_tracker compared; everything is as it was before")
        raise
    with run:
        return run.concluded(tuple(around.left_changed))


def techniques_of(given: str | Sequence[str | Technique]) -> list[Technique]:
    """Return the techniques that were asked for.

    Raises:
        UsageError: where there is none, one of them twice, or one that there is none of.
    """
    several = given.split(",") if isinstance(given, str) else given
    named = [t if isinstance(t, Technique) else technique_named(t.strip()) for t in several]
    if not named:
        raise UsageError("no technique is named: there is nothing to compare the baseline with")
    names = [technique.name for technique in named]
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise UsageError(f"{', '.join(twice)}: named twice")
    if BASELINE in names:
        raise UsageError(f"{BASELINE} is the training without any technique, and always compared: leave it out")
    return named


class _ComparisonRun(TrialSession):
    def train(
        self,
        task: Task,
        techniques: Sequence[Technique],
        first: Parts,
        seed: int,
        sleep: Callable[[float], object],
    ) -> None:
        """Build the arms, warm them up, and run blocks of trials while the budget holds them."""
        self._records = {BASELINE: ArmRecord()} | {t.name: ArmRecord([t.note] if t.note else []) for t in techniques}
        self._arms: dict[str, ArmTraining] = {}
        self._costs: list[ArmCost] = []
        self._trials: list[ArmTrial] = []
        has_length = any(first.get(name) for name in ("total_epochs", "total_steps", "phases"))
        self._plan = plan_of_parts(first) if has_length else None
        self._method = ""
        self._prepared_s = 0.0
        self._n_positions = 0
        self._n_blocks = 0
        self._sleep = sleep
        self._random = random.Random(seed)  # noqa: S311  # pauses, no secret
        self._make = partial(parts_of, task, seed)
        self._made = [first, self._make()]
        try:
            check_is_new(self._made[1], first)
            self._put_common_back = saved_process()
            stages: list[list[Technique | None]] = [[None, *(t for t in techniques if not t.is_slow_to_start)]]
            stages += [[t] for t in techniques if t.is_slow_to_start]
            for number, arms in enumerate(stages):
                stage_s = (self.budget_s - self.spent_s) / (len(stages) - number)
                self._run_stage(arms, stage_s, TrialSchedule(seed))
        finally:
            for training in self._arms.values():
                training.record.notes += training.arm.counted()
                self._costs.append(training.cost)
                training.close()
            self._arms.clear()
            free_memory()

    def concluded(self, left_changed: tuple[str, ...]) -> Comparison:
        """Return what was found, write it, and close the run.

        Args:
            left_changed: names of what the training changed outside of its parts.

        Raises:
            OSError: where it cannot be written.
        """
        trials = self._trials
        self._advised_s = rounded_budget_s(budget_for(self._costs, self._prepared_s))
        self._time = fit_ratios(trials, lambda t: t.duration_s / t.samples, build_cv=_BUILD_CV)
        self._energy = fit_ratios(
            trials, lambda t: None if t.energy_kwh is None else t.energy_kwh / t.samples, build_cv=_BUILD_CV
        )
        self._memory = fit_ratios(trials, lambda t: t.peak_memory_bytes)
        baseline, *rows = map(self._row, self._records)
        n_blocks = len({trial.block for trial in trials})
        notes = list[str]()
        if n_blocks < LEAST_BLOCKS and any(not record.reason for record in list(self._records.values())[1:]):
            slowest, record = max(self._records.items(), key=lambda item: item[1].warm_up_s)
            if record.warm_up_s >= _MOST_WARM_SHARE * self.budget_s:
                lasted = f"{duration(record.warm_up_s)} of {duration(self.budget_s)}"
                notes.append(f"{slowest} took the budget: its first steps lasted {lasted}")
            notes.append(f"the budget held {plural(n_blocks, 'block')} of trials, and {LEAST_BLOCKS} are needed")
        comparison = Comparison(
            baseline,
            tuple(sorted(rows, key=_order)),
            tuple(trials),
            spent_s=self.spent_s,
            budget_s=self.budget_s,
            residual_cv=self._time.residual_cv if self._time else None,
            energy_method=self._method,
            run_dir=self._session.run_dir,
            left_changed=left_changed,
            notes=tuple(notes),
        )
        write_comparison(self._session.run_dir, comparison)
        self._session.finish(RunStatus.FINISHED, 0)
        return comparison

    def _run_stage(self, techniques: Sequence[Technique | None], stage_s: float, schedule: TrialSchedule) -> None:
        """Add arms, and run blocks of trials of all arms while the time of the stage holds them; Ctrl-C ends them."""
        began_s = self.spent_s
        warm_until_s = self.perf_s() + _WARM_SHARE * max(0.0, stage_s)
        for number, technique in enumerate(techniques):
            left_s = max(0.0, warm_until_s - self.perf_s())
            n_left = len(techniques) - number
            self._add_arm(technique, self.perf_s() + left_s / n_left)
        self._put_common_back()
        self._prepared_s += self.spent_s - began_s
        while len(self._arms) > 1 and self._run_block(schedule, began_s + stage_s - self.spent_s):
            pass

    def _add_arm(self, technique: Technique | None, until_s: float) -> None:
        name = technique.name if technique else BASELINE
        record = self._records[name]
        is_of_whole = technique is not None and technique.is_of_whole
        if self._arms and not is_of_whole and self.spent_s >= self.budget_s:
            record.notes.append("The budget was over before its first step")
            return
        self._draw(f"warming up · {name}")
        self._put_common_back()
        began_s = self.spent_s
        try:
            if is_of_whole:
                raise NotApplicableError(_OF_WHOLE)
            parts = self._made.pop(0) if self._made else self._make()
            arm = arm_of(parts, technique)
            training = ArmTraining(arm, self.perf_s, record)
            self._arms[name] = training
            end_s = self.perf_s() + self.budget_s - self.spent_s
            with training.running():
                training.warm_up(until_s, end_s)
            record.warm_up_s = self.spent_s - began_s
        except Exception as error:
            self._drop(name, error)

    def _run_block(self, schedule: TrialSchedule, left_s: float) -> bool:
        """Run a block of trials; return False where the time that is left holds none."""
        costs = [training.cost for training in self._arms.values()]
        plan = schedule.next_block(costs, left_s)
        if not plan:
            return False
        trials = list[ArmTrial]()
        for name in schedule.order(list(self._arms)):
            n_left = max(1, int(left_s / plan.expected_s))
            self._draw(f"block {self._n_blocks + 1} of some {self._n_blocks + n_left} · {name}")
            try:
                trials.append(self._trial(self._arms[name], self._n_blocks, plan))
            except CutOffError:  # nothing of the block counts
                self.abandon_trial()
                return False
            except Exception as error:
                self.abandon_trial()
                self._drop(name, error)
        self._n_blocks += 1
        self._trials += [trial for trial in trials if trial.arm in self._arms]
        return True

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
        untimed_s = max(0.0, ended_s - began_s - trial.duration_s)
        training.cost = ArmCost(trial.duration_s / trial.samples, training.cost.batch_size, untimed_s)
        trial = replace(trial, started_s=ended_s - trial.duration_s)
        # Of short trials only the slow ones last long enough: their energy would be compared with nothing.
        if plan.is_metered and trial.duration_s >= LEAST_ENERGY_S and energy.total_kwh:
            self._method = joined_methods(energy.component_method(c) for c in COMPONENTS) or ""
            trial = replace(trial, energy_kwh=energy.total_kwh, energy_method=self._method)
        return trial

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
        training = self._arms.pop(name, None)
        if training:
            training.close()
        error.__traceback__ = None  # its frames hold the arm's tensors
        del training
        free_memory()

    def _draw(self, what: str) -> None:
        self.draw_status(f"greenlove compare  {duration(self.spent_s)} of {duration(self.budget_s)} · {what}")

    def _row(self, name: str) -> ComparisonRow:
        record = self._records[name]
        rates = self._session.state.factors.rates
        if record.reason:
            return ComparisonRow(name, Verdict.NOT_RUN, reason=record.reason, notes=tuple(record.notes))
        trials = [t for t in self._trials if t.arm == name]
        time_ratio = _ratio(self._time, name)
        energy_ratio = _ratio(self._energy, name)
        # Of energy where hardware counted any of it.
        fit = self._time if energy_ratio is None or is_modelled(self._method) else self._energy
        verdict = verdict_of(_ratio(fit, name)) if name != BASELINE else Verdict.NO_DIFFERENCE
        _, basis = rates.cost(1.0, 1.0, self._session.state.gpu_count)
        cost_ratio = None
        if basis == "machine":
            cost_ratio = time_ratio
        elif basis == "electricity":
            cost_ratio = energy_ratio
        times_s = [t.duration_s / t.samples for t in trials]
        peaks = [t.peak_memory_bytes for t in trials if t.peak_memory_bytes is not None]
        is_finite = all(t.loss is None or math.isfinite(t.loss) for t in trials)
        return ComparisonRow(
            name,
            verdict,
            time_ratio=time_ratio,
            energy_ratio=energy_ratio,
            co2e_ratio=energy_ratio,
            cost_ratio=cost_ratio,
            memory_ratio=_ratio(self._memory, name),
            n_trials=len(trials),
            duration_s_per_sample=statistics.geometric_mean(times_s) if times_s else None,
            peak_memory_gb=max(peaks) / BYTES_PER_GB if peaks else None,
            one_off_s=record.one_off_s,
            whole_run=self._whole_run(name, trials),
            notes=tuple(record.notes),
            budget_s=self._needed_s(name, fit) if verdict is Verdict.TOO_SHORT else None,
            learns_otherwise="" if is_finite else _NOT_FINITE,
        )

    def _needed_s(self, name: str, fit: RatioFit | None) -> float | None:
        """Return the budget that would tell an arm from the baseline; None where that is not known."""
        if fit is None or name not in fit.ratios:
            return self._advised_s
        found_s = budget_needed_s(fit, name, len(self._trials), self.spent_s, prepared_s=self._prepared_s)
        return found_s if math.isfinite(found_s) else None

    def _whole_run(self, name: str, trials: Sequence[ArmTrial]) -> WholeRun:
        """Project the whole training: what the baseline would take, times the ratio.

        The starts of epochs are added, less those that the trials held; and what is spent once.
        """
        plan = self._plan
        record = self._records[name]
        state = self._session.state
        if not plan or plan.phases or not trials:  # of phases the trials saw the first
            return WholeRun()
        if plan.epochs is not None:
            samples = float(plan.epochs * (plan.samples or 0))
        else:
            samples = float((plan.steps or 0) * (plan.batches_per_step or 1) * (plan.batch_size or 1))
        duration = self._total(name, self._time, lambda t: t.duration_s, samples, "s")
        if not duration:
            return WholeRun()
        starts_held = record.n_starts / sum(t.samples for t in trials) * samples
        start_s = statistics.median(record.starts_s) if record.starts_s else 0.0
        further_s = start_s * max(0.0, plan.n_starts - starts_held) + (record.one_off_s or 0.0)
        energy = self._total(name, self._energy, lambda t: t.energy_kwh, samples, "kWh")
        if energy:  # what is added draws what the rest does
            energy = energy.times((1 + further_s / duration.point) * state.energy_factor, "kWh")
        duration = duration.plus(further_s)
        cost, _ = state.factors.rates.cost(duration, energy, state.gpu_count)
        return WholeRun(duration, energy, state.factors.rates.emissions(energy), cost)

    def _total(
        self, name: str, fit: RatioFit | None, value: Callable[[ArmTrial], float | None], samples: float, unit: str
    ) -> Estimate | None:
        taken = [(value(trial), trial.samples) for trial in self._trials if trial.arm == BASELINE]
        logs = [math.log(amount / n) for amount, n in taken if amount]
        ratio = _ratio(fit, name)
        if len(logs) < 2 or (name != BASELINE and not ratio):
            return None
        width = student_quantile((1 + LEVEL) / 2, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
        mean = statistics.fmean(logs)
        if ratio:  # in logarithms the widths of a product add as those of independent numbers do
            mean += math.log(ratio.point)
            width = math.hypot(width, math.log(ratio.upper / ratio.lower) / 2)
        lower, point, upper = (samples * math.exp(mean + side * width) for side in (-1, 0, 1))
        return Estimate(point, lower, upper, LEVEL, unit, Kind.CONFIDENCE)


def free_memory() -> None:
    """Let go of what an arm that is over held."""
    gc.collect()  # a model and its hooks may hold each other
    if devices.has_cuda_started():
        torch.cuda.empty_cache()


def reason_of(error: BaseException) -> str:
    """Return why an arm did not run, in a sentence without a full stop."""
    if isinstance(error, torch.cuda.OutOfMemoryError | MemoryError):
        return "out of memory"
    text = shortened(str(error), _MOST_REASON).rstrip(".")
    if isinstance(error, UsageError):
        return text
    return f"{type(error).__name__}: {text}"


def _ratio(fit: RatioFit | None, name: str) -> Estimate | None:
    return fit.ratios.get(name) if fit else None


def _order(row: ComparisonRow) -> tuple[bool, bool, float]:
    ratio = row.energy_ratio or row.time_ratio
    return row.verdict is Verdict.NOT_RUN, not ratio, ratio.point if ratio else 0.0
