"""``compare``: techniques against the baseline, in short interleaved trials of the user's own training."""

from __future__ import annotations

import gc
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
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
from greenlove_tracker.techniques.comparison_rows import Accounting, ArmRecord, rows_of
from greenlove_tracker.techniques.technique import NotApplicableError, Parts, Technique, technique_named
from greenlove_tracker.techniques.trial_schedule import LEAST_BLOCKS, ArmCost, BlockPlan, TrialSchedule, budget_for

_WARM_SHARE = 0.25  # of the budget, that warming up may take; compiling may take longer, which no step can be told
_ALIGNING_SHARE = 0.1  # of the budget, that arms may train on to have seen as many samples as the others
_COOL_DOWN_S = 0.5  # between arms on a GPU: its clocks and its power answer within some tenths of a second
_JITTER_S = 0.1  # NVML's power is sampled each 20 to 100 ms (Yang et al., "Part-time Power Measurements", SC24)
_MOST_REASON = 300  # characters
_OF_WHOLE = "it changes how long a training is, which only whole trainings show: --full"


class ComparisonRun(TrialSession):
    """The run of a comparison; its trials are those of all arms."""

    def conclude(self, comparison: Comparison) -> None:
        """Write what was found, and close the run.

        Raises:
            OSError: where it cannot be written.
        """
        write_comparison(self._session.run_dir, comparison)
        self._session.finish(RunStatus.FINISHED, 0)

    @property
    def run_dir(self) -> Any:
        """The directory that it is written to."""
        return self._session.run_dir

    def accounting(self, prepared_s: float, advised_s: float | None) -> Accounting:
        """Return the accounting of its energy and time."""
        state = self._session.state
        factors = state.factors.rates, state.energy_factor, state.gpu_count
        return Accounting(*factors, self.spent_s, prepared_s, advised_s)


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
    load_settings({**settings, "log_dir": os.fspath(log_dir)})  # a bad one is refused now
    given = {**settings, "log_dir": os.fspath(log_dir)}
    return _Comparing(
        task, named, float(budget_s), given, seed=seed, clock=clock, meter=meter, sleep=sleep
    ).comparison()


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


class _Comparing:
    """One comparison under way."""

    def __init__(
        self,
        task: Task,
        techniques: Sequence[Technique],
        budget_s: float,
        settings: Mapping[str, Any],
        *,
        seed: int,
        clock: Clock | None,
        meter: Meter | None,
        sleep: Callable[[float], object],
    ) -> None:
        self._task, self._techniques, self._budget_s, self._settings = task, techniques, budget_s, settings
        self._seed, self._clock, self._meter, self._sleep = seed, clock, meter, sleep
        self._began_s = (clock or SystemClock()).perf_s()
        self._random = random.Random(seed)  # noqa: S311  # pauses, no secret
        self._records = {BASELINE: ArmRecord(), **{t.name: ArmRecord(note=t.note) for t in techniques}}
        self._arms: dict[str, ArmTraining] = {}
        self._costs: dict[str, ArmCost] = {}
        self._step_peaks: dict[str, int | None] = {}
        self._trials: list[ArmTrial] = []
        self._plan: TrainingPlan | None = None
        self._left_changed: tuple[str, ...] = ()
        self._gpus: tuple[int, ...] = ()
        self._method = ""
        self._prepared_s = 0.0
        self._is_metered = False  # trials have an energy, however short they are
        self._n_positions = 0
        self._run: ComparisonRun

    def comparison(self) -> Comparison:
        """Run it, put everything back, and write what was found."""
        try:
            with preserved((), code=[self._task], apart=(self._clock, self._meter)) as snapshot:
                self._left_changed = snapshot.left_changed
                first = parts_of(self._task, self._seed)
                run = self._run = self._open_run(first)
                with run:
                    self._run_all(first)
        except Exception as error:
            left = "; ".join(self._left_changed)
            error.add_note(
                "raised by the training that greenlove_tracker compared; "
                + (f"left changed: {left}" if left else "everything is as it was before")
            )
            raise
        with run:
            comparison = self._found(run)
            run.conclude(comparison)
        return comparison

    def _found(self, run: ComparisonRun) -> Comparison:
        costs = list(self._costs.values())
        advised_s = budget_for(costs, self._prepared_s) if costs else None
        accounting = run.accounting(self._prepared_s, advised_s)
        rows = rows_of(self._trials, self._records, self._plan, accounting)
        n_blocks = len({trial.block for trial in self._trials})
        notes = list(rows.notes)
        if n_blocks < LEAST_BLOCKS and set(self._costs) - {BASELINE}:
            notes.insert(0, f"The budget held {plural(n_blocks, 'block')} of trials, and {LEAST_BLOCKS} are needed")
        if self._is_metered and advised_s is not None and all(t.energy_kwh is None for t in self._trials):
            notes.append(
                f"Energy needs trials of {LEAST_ENERGY_S:g} s or more: --budget {rounded_budget_s(advised_s):g} "
                "has room for enough of them"
            )
        return Comparison(
            rows.baseline,
            rows.others,
            tuple(self._trials),
            spent_s=run.spent_s,
            budget_s=run.budget_s,
            residual_cv=rows.residual_cv,
            energy_method=self._method,
            run_dir=run.run_dir,
            notes=tuple(notes),
            left_changed=self._left_changed,
        )

    def _open_run(self, parts: Parts) -> ComparisonRun:
        """Open the run, with the settings that the task gives, before those of the call."""
        of_task = {name: parts[name] for name in setting_names() if name in parts}
        fields = [comparison_field([technique.name for technique in self._techniques])]
        settings = load_settings({**of_task, **self._settings})
        return ComparisonRun(settings, self._budget_s, self._clock, self._meter, fields, self._began_s)

    def _run_all(self, first: Parts) -> None:
        """Build the arms, warm them up, and run blocks of trials while the budget holds them."""
        try:
            second = parts_of(self._task, self._seed)
            check_is_new(second, [first])
            self._run_arms([first, second])
        finally:
            self._let_go()

    def _run_arms(self, made: list[Parts]) -> None:
        """Build the arms and run their trials."""
        common = process_states()
        warm_until_s = self._run.perf_s() + _WARM_SHARE * self._run.budget_s
        for number, technique in enumerate([None, *self._techniques]):
            for state in common:
                state.restore()
            left = 1 + len(self._techniques) - number
            self._add_arm(technique, made, warm_until_s, left)
        for state in common:
            state.restore()
        if len(self._arms) > 1:
            self._run_blocks()

    def _add_arm(self, technique: Technique | None, made: list[Parts], warm_until_s: float, left: int) -> None:
        """Build an arm and warm it up; one that cannot be is noted, with its reason."""
        run, name = self._run, BASELINE if technique is None else technique.name
        run.draw_status(self._status_line(f"warming up · {name}"))
        try:
            if technique is not None and technique.is_of_whole:
                raise NotApplicableError(_OF_WHOLE)
            parts = made.pop(0) if made else parts_of(self._task, self._seed)
            arm = arm_of(parts, technique)
            if technique is None:
                self._plan = _plan_of(arm)
            training = ArmTraining(arm, perf_s=run.perf_s, synchronise=devices.synchronise)
            self._arms[name] = training
            self._warm_up(name, training, warm_until_s, left)
        except Exception as error:
            self._drop(name, error)

    def _warm_up(self, name: str, training: ArmTraining, warm_until_s: float, left: int) -> None:
        run = self._run
        now_s = run.perf_s()
        with training.running():
            until_s = now_s + max(0.0, warm_until_s - now_s) / left
            warmth = training.warm_up(until_s)
            if run.perf_s() < until_s:  # where a step takes minutes, its memory is not worth one
                self._step_peaks[name] = training.peak_of_a_step()
        self._records[name].one_off_s = warmth.one_off_s
        batch_size = training.arm.source.batch_size
        untimed_s = warmth.start_s + training.settle_batches * batch_size * warmth.s_per_sample
        self._costs[name] = ArmCost(warmth.s_per_sample, batch_size, untimed_s + _cool_down_s(training) + _JITTER_S)

    def _run_blocks(self) -> None:
        """Run blocks of trials while the budget holds them; Ctrl-C ends them."""
        run = self._run
        if any(training.arm.device.type == "cuda" for training in self._arms.values()):
            self._gpus = tuple(g.index for g in devices.select_gpus(devices.nvml_gpus(), os.environ).gpus)
        self._prepared_s = run.spent_s
        schedule = TrialSchedule(self._seed)
        from_samples = self._common_samples()
        while len(self._arms) > 1:
            costs = [self._costs[name] for name in self._arms]
            left_s = run.budget_s - run.spent_s
            if (plan := schedule.next_block(costs, left_s)) is None:
                return
            n_planned = schedule.planned_blocks(plan, left_s)
            number = schedule.n_blocks
            order = schedule.order(list(self._arms))
            settle = max(t.settle_batches * t.arm.source.batch_size for t in self._arms.values())
            from_samples += settle
            heading = f"block {number + 1} of {max(n_planned, number + 1)}"
            if not self._run_block(number, order, plan, from_samples, heading):
                return
            alike = [t.samples for name, t in self._arms.items() if self._records[name].is_alike]
            from_samples = max([from_samples, *alike])

    def _common_samples(self) -> int:
        """Return the samples that all arms are to have trained on before the first block.

        An arm that would take too long for it goes on without: nothing is said of its loss.
        """
        most = max(t.samples for t in self._arms.values())
        allowed_s = _ALIGNING_SHARE * self._run.budget_s / len(self._arms)
        for name, training in self._arms.items():
            lacking_s = (most - training.samples) * self._costs[name].s_per_sample
            self._records[name].is_alike = lacking_s <= allowed_s
        return most

    def _run_block(self, number: int, order: Sequence[str], plan: BlockPlan, from_samples: int, heading: str) -> bool:
        """Run a trial of each arm; return False where the budget was over before, and nothing of the block counts."""
        trials: list[ArmTrial] = []
        for name in order:
            if name not in self._arms:
                continue
            self._run.draw_status(self._status_line(f"{heading} · {name}"))
            try:
                trial = self._trial(name, number, plan, from_samples if self._records[name].is_alike else 0)
            except CutOffError:
                self._run.abandon_trial()
                return False
            except Exception as error:
                self._run.abandon_trial()
                self._drop(name, error)
                continue
            trials.append(trial)
        self._trials += [trial for trial in trials if trial.arm in self._arms]
        return True

    def _trial(self, name: str, block: int, plan: BlockPlan, from_samples: int) -> ArmTrial:
        run, training, record = self._run, self._arms[name], self._records[name]
        deadline_s = run.perf_s() + run.budget_s - run.spent_s
        self._pause(training, is_metered=plan.is_metered)
        began_s = run.spent_s
        with training.running():
            window = training.trial(plan.samples, from_samples, deadline_s, before_window=run.start_trial)
            energy = run.end_trial()
            ended_s = run.spent_s
        record.start_s.append(window.start_s)
        record.n_starts += window.n_starts
        record.losses = window.losses
        # Of short trials only the slow ones last long enough: their energy would be compared with nothing.
        is_long = plan.is_metered and window.duration_s >= LEAST_ENERGY_S
        kwh = energy.kwh or None if is_long else None
        self._is_metered |= bool(energy.kwh)
        self._method = energy.method if kwh is not None else self._method
        pause_s = _cool_down_s(training) + (_JITTER_S if plan.is_metered else 0.0)
        untimed_s = max(0.0, ended_s - began_s - window.duration_s) + pause_s
        samples = max(1, window.samples)
        self._costs[name] = ArmCost(window.duration_s / samples, training.arm.source.batch_size, untimed_s)
        temperature_c, clock_mhz = devices.hottest_and_slowest_gpu(self._gpus)
        on_gpu = window.peak_memory_bytes
        self._n_positions += 1
        return ArmTrial(
            name,
            block,
            self._n_positions - 1,
            started_s=ended_s - window.duration_s,
            duration_s=window.duration_s,
            samples=window.samples,
            start_s=window.start_s,
            energy_kwh=kwh,
            energy_method=energy.method if kwh is not None else "",
            peak_memory_bytes=self._step_peaks.get(name) if on_gpu is None else on_gpu,
            loss=window.loss,
            temperature_c=temperature_c,
            clock_mhz=clock_mhz,
        )

    def _pause(self, training: ArmTraining, *, is_metered: bool) -> None:
        """Let a GPU cool down, and shift the phase of the trials to that of a meter that samples power."""
        pause_s = _cool_down_s(training)
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
        self._costs.pop(name, None)
        if training is not None:
            training.close()
        error.__traceback__ = None  # its frames hold the arm's tensors
        del training
        free_memory()

    def _let_go(self) -> None:
        for name, training in self._arms.items():
            self._records[name].said = tuple(training.arm.counted())
            training.close()
        self._arms.clear()
        free_memory()

    def _status_line(self, what: str) -> str:
        return f"greenlove compare  {duration(self._run.spent_s)} of {duration(self._run.budget_s)} · {what}"


def _cool_down_s(training: ArmTraining) -> float:
    return _COOL_DOWN_S if training.arm.device.type == "cuda" else 0.0


def free_memory() -> None:
    """Let go of what an arm that is over held."""
    gc.collect()  # a model and its hooks may hold each other
    if devices.has_cuda_started():
        torch.cuda.empty_cache()


def reason_of(error: Exception) -> str:
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
