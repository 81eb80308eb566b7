"""``Estimator``: the forecast of a PyTorch training before it starts."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from inspect import signature
from itertools import repeat
from typing import Any

import torch
from torch import nn

from greenlove_tracker.exploration.adaptive import ExplorationScheduler, TrialLimits
from greenlove_tracker.exploration.exploration_run import EstimateOptions, Estimation, ExplorationRun
from greenlove_tracker.exploration.object_tree import Values
from greenlove_tracker.exploration.peak_memory import TrainingStep, counted_updates, peak_of_steps
from greenlove_tracker.exploration.snapshot import Snapshot, find_lr_schedulers, find_scalers_and_averages, is_plain
from greenlove_tracker.exploration.task import each_of, pieces_of
from greenlove_tracker.exploration.trials import (
    DEFAULT_BATCH_SIZE,
    BatchSource,
    loss_of_pair,
    run_trial,
    source_of,
    step_of,
)
from greenlove_tracker.extrapolation.extrapolate import extrapolate
from greenlove_tracker.logs.trials import ExplorationRecord
from greenlove_tracker.machine import devices
from greenlove_tracker.machine.job import ranks_of_process
from greenlove_tracker.machine.training_kind import autocast_logged, is_mostly_under_autocast, precision_of, workload_of
from greenlove_tracker.meter import Meter
from greenlove_tracker.projection.options import ProjectionOptions
from greenlove_tracker.settings.config import load_settings, setting_names
from greenlove_tracker.text.format import duration
from greenlove_tracker.vocabulary.errors import UsageError, is_whole
from greenlove_tracker.vocabulary.forecasting import Estimate, TrainingPlan, WarningCode
from greenlove_tracker.vocabulary.phases import Phase
from greenlove_tracker.vocabulary.records import Clock
from greenlove_tracker.vocabulary.stopping import StoppingRule, unknown_stop
from greenlove_tracker.vocabulary.units import BYTES_PER_GB

_MEMORY_S = 3.0  # that the estimate of GPU memory may take, within what trials leave of the budget
_MEMORY_SHARE = 0.1  # of the budget on a CPU, that trials leave to that estimate
_EVAL_SHARE = 0.15  # of the budget, that trials leave to evaluations; one is always run
_MOST_EVALUATIONS = 3
_SHORT_BUDGETS = 3.0  # a run of fewer budgets is better run than explored
_LEAST_SIZES = 3  # below it a forecast is wide by rule, and its width no reason to stop


class Estimator:
    """Explores a training on small samples, and forecasts the whole of it.

    ::

        estimator = Estimator(model, optimizer, nn.CrossEntropyLoss(), train_dataset, total_epochs=100)
        estimation = estimator.estimate()
        estimation.forecast.duration_s

    Put back afterwards are the model, the criterion, what trains them, the loader and the random states, with their
    plain helper objects. What else hangs on the data and the functions that are given is compared, and a warning names
    what has changed.

    Args:
        model: on the device that it trains on.
        optimizer: one, or several for a ``train_step`` that takes them.
        criterion: the loss of (outputs, targets); None where ``loss`` or ``train_step`` says it.
        train_dataset: a data set, or the ``DataLoader`` that the training uses.
        total_epochs: of the whole training.
        batch_size: for a data set; a ``DataLoader`` has its own.
        total_steps: optimizer steps of the whole training, instead of its epochs; needed where the data have no
            length. The exploration sees how many batches a ``train_step`` accumulates.
        budget_s: of the exploration; overrun by at most one step, or one start of a loader.
        auto_open_report: open the page in a browser, where there is one.
        asks: ask on a terminal whether to train on.
        on_no_terminal: ``continue`` or ``stop``: the answer where there is nobody to ask whether to train on.
        loss: a function of (model, batch) that returns the loss; the batch is on the device already. Needed for
            anything beyond batches of (inputs, targets).
        train_step: instead, a function of (model, batch, optimizer, criterion, device) that makes one step and may
            return its loss.
        max_grad_norm: that gradients are clipped to; without a ``train_step``, which clips them itself.
        device: of the model; default where its parameters are.
        eval_fn: an evaluation, a function of the model.
        eval_every: an evaluation follows every so many epochs, or steps of a training in steps; default each epoch.
        also_restore: what else training changes: plain objects, objects with ``state_dict`` and ``load_state_dict``, or
            pairs of functions (save, restore).
        stopping: the rule of early stopping, where the training has one: trials do not show where it will end the
            training, and the forecast says for how long that may be; the run itself then narrows it.
        seed: of the order of trials.
        trial_limits: a ``greenlove_tracker.exploration.adaptive.TrialLimits``: the first sample of the trials, their
            longest epoch and the most epochs of each.
        comparison: options of the comparison with other GPUs.
        clock: read for all times.
        meter: measures the energy; default CodeCarbon.
        **settings: fields of ``greenlove_tracker.settings.config.Settings``, such as ``country``, ``log_dir``,
            ``project``; ``phases``, as in ``Tracker``; or ``precision`` and ``workload`` for the comparison with other
            GPUs, else guessed from the model and its first step.

    Raises:
        UsageError: on a bad argument, with what to do.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Any,
        criterion: Any,
        train_dataset: Any,
        total_epochs: int | None = None,
        batch_size: int = DEFAULT_BATCH_SIZE,
        *,
        total_steps: int | None = None,
        budget_s: float = 30.0,
        auto_open_report: bool = False,
        asks: bool = True,
        on_no_terminal: str = "continue",
        loss: Callable[[Any, Any], Any] | None = None,
        train_step: Callable[..., Any] | None = None,
        max_grad_norm: float | None = None,
        device: str | torch.device | None = None,
        eval_fn: Callable[[nn.Module], object] | None = None,
        eval_every: int | None = None,
        also_restore: Sequence[Any] = (),
        stopping: StoppingRule | None = None,
        seed: int = 0,
        trial_limits: TrialLimits | None = None,
        comparison: ProjectionOptions | None = None,
        clock: Clock | None = None,
        meter: Meter | None = None,
        **settings: Any,
    ) -> None:
        self._model = model
        self._criterion = criterion
        own_device = device_of(model, device)
        make_step = train_step or step_of(loss or partial(loss_of_pair, criterion=criterion), max_grad_norm)
        self._training = TrainingStep(
            tuple(m for m in (model, criterion) if isinstance(m, nn.Module)),
            tuple(each_of(optimizer)),
            lambda batch: make_step(model, batch, optimizer, criterion, own_device),
            own_device,
        )
        self._eval_fn = eval_fn
        self._also_restore = tuple(also_restore)
        self._watched = {
            "model": model,
            "criterion": criterion,
            "optimizer": optimizer,
            "loss": loss,
            "train_step": train_step,
            "eval_fn": eval_fn,
            "train_dataset": train_dataset,
        }
        options = EstimateOptions(budget_s, auto_open_report, asks, on_no_terminal, clock, meter, comparison)
        given = load_settings(settings)
        self._open_run = partial(ExplorationRun, given, options=options)
        self._source = source_of(train_dataset, batch_size)
        if eval_fn is None:
            eval_every = None
        elif eval_every is None and all(phase.eval_every is None for phase in given.phases):
            if total_steps is not None:
                raise UsageError("eval_fn in a training in steps: say how often it is run, with eval_every=")
            eval_every = 1
        self.plan = plan_of(self._source, total_epochs, total_steps, eval_every, given.phases)
        if stopping:
            if self.plan.epochs is None:
                raise UsageError("stopping= counts epochs: give {argument}, not steps", argument="total_epochs")
            self.plan = replace(self.plan, stop=unknown_stop(stopping, self.plan.epochs))
        self._seed = seed
        self._trial_limits = trial_limits or TrialLimits()

    def estimate(self, *, restores: bool = True) -> Estimation:
        """Explore, forecast, report, and ask whether to train on.

        Args:
            restores: put everything back. False where the process ends with the exploration: then nothing is copied.

        Raises:
            UsageError: where the training step or the data cannot be explored, with what to do.
        """
        check_single_process()
        with self._open_run(self.plan) as run:
            run.record = ExplorationRecord(used_gpus=_gpus_of(self._training.modules))
            try:
                with self._preserved() if restores else nullcontext():
                    self._explore(run)
            except torch.cuda.OutOfMemoryError as error:
                raise UsageError(
                    f"out of memory at batch size {self._source.batch_size}, as the training itself would be: {error}. "
                    "A smaller batch is another training, and not tried in silence"
                ) from error
            finally:
                self._source.close()
            forecast = run.forecast()
        notes = []
        if self._eval_fn is None and not self.plan.has_pauses("eval"):
            notes.append(
                WarningCode.EVALUATION.warning(
                    "no evaluation was timed, so this forecast leaves evaluations out",
                    "where the training has some, give eval_fn",
                )
            )
        if not run.record.is_finite:
            notes.append(WarningCode.NAN.warning("a loss was not finite", "check the learning rate and the data", True))
        forecast = replace(forecast, warnings=(*forecast.warnings, *notes))
        return run.conclude(forecast, short_training_advice(forecast.duration_s, run.budget_s))

    def _explore(self, run: ExplorationRun) -> None:
        """Run the trials and the evaluations.

        Raises:
            UsageError: where not one step was done.
        """
        self._n_batches = 0
        self._last_batch: Any = None
        self._autocast_calls: list[bool] = []
        devices.reset_peak_gpu_memory()
        self._model.train()
        with counted_updates(self._training.optimizers) as n_updates:
            try:
                self._run_trials(run)
            finally:
                with suppress(Exception):  # modules that are not as torch's are; a guess is worth no training
                    run.workload = workload_of(self._model)
                    is_under_autocast = is_mostly_under_autocast(self._autocast_calls)
                    run.precision = precision_of(self._model, is_under_autocast=is_under_autocast)
            per_step = round(self._n_batches / (n_updates() or self._n_batches or 1))
        if not run.record.trials:
            raise UsageError(
                f"not one step was done in {run.budget_s:g} s: give a larger {{argument}}", argument="budget_s"
            )
        run.record = replace(
            run.record,
            eval_durations_s=self._time_evaluations(run),
            peak_memory_gb=devices.peak_memory_gb(),
            gpu_memory_estimate_gb=self._gpu_memory_estimate_gb(run),
        )
        if self.plan.steps is not None and per_step > 1:  # it is of optimizer steps, of so many batches each
            self.plan = run.plan = replace(self.plan, batches_per_step=per_step)

    def _preserved(self) -> AbstractContextManager[Any]:
        """Put back what the exploration changes, and warn of what it changes beside."""
        criterion = getattr(self._criterion, "__self__", self._criterion)  # of a method its object
        models = [self._model]
        if isinstance(criterion, nn.Module) or is_plain(criterion):
            models.append(criterion)
        schedulers = find_lr_schedulers(self._training.optimizers)
        others = (*self._also_restore, *schedulers, *find_scalers_and_averages())
        data = self._watched["train_dataset"]
        return Snapshot(models, self._training.optimizers, data=data, others=others, watched=self._watched)

    def _run_trials(self, run: ExplorationRun) -> None:
        batch_size = self._source.batch_size
        reserved_share = _EVAL_SHARE if self._eval_fn is not None else 0.0
        if self._training.device.type == "cpu":
            reserved_share += _MEMORY_SHARE
        scheduler = ExplorationScheduler(
            self.plan.batches_per_epoch,
            self.plan.n_epochs,
            budget_s=(1 - reserved_share) * run.budget_s,
            seed=self._seed,
            batch_size=batch_size,
            limits=self._trial_limits,
        )
        plan = replace(self.plan, eval_every=None, phases=(), stop=None)
        width = None
        while (request := scheduler.next(run.spent_s, relative_width=width)) is not None:
            run.show_progress(request.batches * batch_size, width)
            run.start_trial()
            timed = run_trial(self._source, self._step, request, run.perf_s)
            energy_kwh = run.end_trial().total_kwh or None
            scheduler.results.append(replace(timed, energy_kwh=None if timed.is_cut else energy_kwh))
            trials = scheduler.trials(batch_size)
            run.record = replace(
                run.record,
                trials=trials,
                cold_start_s=scheduler.cold_start_s,
                is_finite=run.record.is_finite and timed.is_finite,
            )
            if len({t.sample_size for t in trials}) >= _LEAST_SIZES:
                width = extrapolate(trials, plan).duration_s.relative_width

    def _step(self, batch: Any) -> Any:
        self._n_batches += 1
        self._last_batch = batch
        if self._n_batches > 1:
            return self._training.step(batch)
        with autocast_logged(self._model) as self._autocast_calls:  # the first step is not timed as the others are
            return self._training.step(batch)

    def _gpu_memory_estimate_gb(self, run: ExplorationRun) -> float | None:
        """Estimate the peak that a training on a CPU would have on a GPU; None where it is not soon found."""
        batch = self._last_batch
        self._last_batch = None
        if self._training.device.type != "cpu" or self._training.is_compiled or batch is None:
            return None
        deadline_s = run.perf_s() + min(_MEMORY_S, run.budget_s - run.spent_s)
        with warnings.catch_warnings(), suppress(Exception):  # the training went well: nobody asked for these steps
            warnings.simplefilter("ignore")
            found = peak_of_steps(self._training, repeat(batch), is_late=lambda: run.perf_s() >= deadline_s)
            return found.peak_bytes / BYTES_PER_GB if found.peak_bytes else None
        return None

    def _time_evaluations(self, run: ExplorationRun) -> tuple[float, ...]:
        """Time one evaluation, which may overrun the budget, and more while what is left of it holds them."""
        times_s: list[float] = []
        while self._eval_fn is not None and len(times_s) < _MOST_EVALUATIONS:
            if times_s and run.spent_s + max(times_s) > run.budget_s:
                break
            began_s = run.perf_s()
            self._eval_fn(self._model)
            devices.synchronise()
            times_s.append(run.perf_s() - began_s)
        return tuple(times_s)


def short_training_advice(whole: Estimate, budget_s: float) -> str | None:
    """Return the advice to train instead of exploring, where the whole training surely takes hardly longer."""
    if whole.upper > _SHORT_BUDGETS * budget_s:
        return None
    about = f"{whole.point:.2g} s" if whole.point < 59.5 else duration(whole.point)
    return f"the whole training takes about {about}: just run it"


def plan_of(
    source: BatchSource,
    epochs: int | None,
    steps: int | None,
    eval_every: int | None,
    phases: tuple[Phase, ...] = (),
) -> TrainingPlan:
    """Return the plan of the whole training.

    Args:
        source: of its batches.
        epochs: of the whole, or
        steps: optimizer steps.
        eval_every: epochs or steps; None where nothing is evaluated.
        phases: stretches of it.

    Raises:
        UsageError: where it does not follow from what was given.
    """
    unit = phases[0].unit if phases else ""  # the length follows from them
    if not unit and (epochs is None) == (steps is None):
        raise UsageError(
            "give {argument} or {argument}: what is the whole training?", argument=("total_epochs", "total_steps")
        )
    for name, count in (("total_epochs", epochs), ("total_steps", steps)):
        if count is not None and not is_whole(count):
            raise UsageError(f"{{argument}} must be a whole number of at least 1, not {count!r}", argument=name)
    if source.batches_per_epoch is None and steps is None and unit != "steps":
        raise UsageError(
            "the training data have no length: say with {argument=} how long the training is", argument="total_steps"
        )
    return TrainingPlan(
        source.samples_per_epoch, source.batch_size, epochs, steps, eval_every=eval_every, phases=phases
    )


def check_single_process() -> None:
    """Refuse the ranks of one training: they wait for each other in every step, and would hang for ever.

    Raises:
        UsageError: where this process is one of several that train together.
    """
    n_ranks = ranks_of_process(os.environ).world_size
    if n_ranks > 1:
        raise UsageError(
            f"{n_ranks} processes train together, and would wait for each other's steps for ever: explore in a process "
            "of its own on one GPU, and say greenlove project --gpus N"
        )


def _gpus_of(models: Sequence[nn.Module]) -> int:
    copies = [len(m.device_ids) for model in models for m in model.modules() if isinstance(m, nn.DataParallel)]
    return max([len({p.device for m in models for p in m.parameters() if p.device.type == "cuda"}), *copies])


def device_of(model: nn.Module, device: str | torch.device | None) -> torch.device:
    """Return the device of the model.

    Raises:
        UsageError: where it is not the one to train on.
    """
    found = next((p.device for p in model.parameters()), torch.device("cpu"))
    if device is not None and torch.device(device).type != found.type:
        raise UsageError(f"the model is on {found}, and device={device!r}: move it first, model.to({str(device)!r})")
    return found


ARGUMENT_NAMES = {*signature(Estimator).parameters, *setting_names()}  # of an Estimator


def changed_task(
    function: Callable[[], Any], target: str, epochs: int | None = None, batch_size: int | None = None
) -> Callable[[], Values]:
    """Return a task with another length and another batch size, where they are given.

    Args:
        function: the task: it returns the arguments of an ``Estimator``.
        target: its name, for messages.
        epochs: of the whole training.
        batch_size: in samples.
    """

    def task() -> Values:
        pieces = pieces_of(function(), target, ARGUMENT_NAMES)
        if epochs is not None:
            pieces |= {"total_epochs": epochs, "total_steps": None, "phases": ()}
        if batch_size is not None:
            pieces["batch_size"] = batch_size
        return pieces

    task.__name__ = target
    return task
