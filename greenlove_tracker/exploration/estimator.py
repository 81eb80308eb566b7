"""``Estimator``: what a PyTorch training will take, before it starts."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from greenlove_tracker import devices
from greenlove_tracker.config import load_settings
from greenlove_tracker.console import StatusLine
from greenlove_tracker.errors import UsageError
from greenlove_tracker.exploration.batches import BatchSource, source_of
from greenlove_tracker.exploration.budget_advice import Schedule, advised, choose_schedule
from greenlove_tracker.exploration.exploration_run import EstimateOptions, Estimation, ExplorationRun
from greenlove_tracker.exploration.snapshot import RestoreError, preserved, rate_schedulers_of
from greenlove_tracker.exploration.trials import ExplorationOutcome, Situation, default_step, explore
from greenlove_tracker.extrapolation.extrapolate import extrapolate
from greenlove_tracker.forecasting import Forecast, TrainingPlan, Trial, WarningCode
from greenlove_tracker.job import find_ranks
from greenlove_tracker.logs.trials import ExplorationMetadata
from greenlove_tracker.meter import Meter
from greenlove_tracker.projection.types import ProjectionOptions
from greenlove_tracker.records import Clock
from greenlove_tracker.report.screens import progress_line

_EVAL_SHARE = 0.15  # of the budget, that trials leave to evaluations; one is always run
_MOST_EVALUATIONS = 3


class Estimator:
    """Explores a training on small samples, forecasts the whole of it, and leaves no trace.

    ::

        estimator = Estimator(model, optimizer, nn.CrossEntropyLoss(), train_dataset, total_epochs=100)
        estimation = estimator.estimate()
        estimation.forecast.duration_s

    Args:
        model: on the device that it trains on.
        optimizer: one, or several for a ``train_step`` that takes them.
        criterion: the loss.
        train_dataset: a data set, or the ``DataLoader`` that the training uses.
        total_epochs: of the whole training.
        batch_size: for a data set; a ``DataLoader`` has its own.
        total_steps: of the whole training, instead of its epochs; needed where the data have no length.
        budget_s: of the exploration; overrun by at most one step, or one start of a loader.
        auto_open_report: open the page in a browser, where there is one.
        asks: ask on a terminal whether to train on.
        on_no_terminal: ``continue`` or ``stop``: the answer where there is nobody to ask whether to train on.
        train_step: a function of (model, batch, optimizer, criterion, device) that makes one step and may return its
            loss; needed for anything beyond batches of (inputs, targets).
        device: of the model; default where its parameters are.
        eval_fn: an evaluation, a function of the model.
        eval_every: an evaluation follows every so many epochs, or steps of a training in steps; default each epoch.
        also_restore: what else training changes: learning-rate schedulers, gradient scalers, or what only you know, as
            objects with ``state_dict`` and ``load_state_dict`` or pairs of functions (save, restore).
        schedule: ``adaptive``, or ``green-love`` for the original's, with its formulas and its bound of 90 s.
        schedule_options: of the original's schedule, see ``GreenLoveScheduler``.
        target_relative_width: of the forecast's interval, at which the exploration stops early.
        seed: of the order of trials.
        comparison: options of the comparison with other GPUs.
        clock: read for all times.
        meter: measures the energy; default CodeCarbon.
        **settings: fields of ``greenlove_tracker.config.Settings``, such as ``country``, ``log_dir``, ``project``.

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
        batch_size: int = 64,
        *,
        total_steps: int | None = None,
        budget_s: float = 30.0,
        auto_open_report: bool = False,
        asks: bool = True,
        on_no_terminal: str = "continue",
        train_step: Callable[..., Any] | None = None,
        device: str | torch.device | None = None,
        eval_fn: Callable[[nn.Module], object] | None = None,
        eval_every: int | None = None,
        also_restore: Sequence[Any] = (),
        schedule: str = "adaptive",
        schedule_options: Mapping[str, Any] | None = None,
        target_relative_width: float = 0.05,
        seed: int = 0,
        comparison: ProjectionOptions | None = None,
        clock: Clock | None = None,
        meter: Meter | None = None,
        **settings: Any,
    ) -> None:
        self._model, self._optimizer, self._criterion = model, optimizer, criterion
        self._train_step, self._device = train_step or default_step, _device_of(model, device)
        self._eval_fn, self._also_restore = eval_fn, tuple(also_restore)
        self._clock, self._meter, self._seed = clock, meter, seed
        self._settings = load_settings(settings)
        self._telling = EstimateOptions(
            auto_open_report, asks, on_no_terminal, comparison or ProjectionOptions(), undoes=True
        )
        self._data, self._source = train_dataset, source_of(train_dataset, batch_size)
        if eval_fn is not None and eval_every is None:
            if total_steps is not None:
                raise UsageError("eval_fn in a training in steps: say how often it is run, with eval_every=")
            eval_every = 1
        self.plan = _plan_of(self._source, total_epochs, total_steps, None if eval_fn is None else eval_every)
        self._schedule: Schedule = choose_schedule(
            schedule,
            self.plan,
            self._source.batch_size,
            budget_s=budget_s,
            seed=seed,
            kept_share=0.0 if eval_fn is None else _EVAL_SHARE,
            target_relative_width=target_relative_width,
            options=schedule_options or {},
        )

    def estimate(self) -> Estimation:
        """Explore, forecast, tell, and ask whether to train on.

        Raises:
            UsageError: where the training step or the data cannot be explored, with what to do.
        """
        _check_alone()
        schedule = self._schedule.anew()
        run = ExplorationRun(self._settings, self.plan, schedule.budget_s, self._clock, self._meter)
        line = StatusLine(even_beside_stdout=True)
        try:
            outcome, seen = self._explored(run, schedule, line)
            forecast = run.forecast(outcome.trials, seen, seed=self._seed)
        except BaseException as error:
            line.clear()
            run.break_off(
                error, schedule.scheduler.trials(self._source.batch_size), self._seen(schedule), self._telling
            )
            raise
        finally:
            line.clear()
        forecast = advised(forecast, schedule, outcome.trials, self._width_of)
        advice = schedule.advice(forecast)
        return run.conclude(_with_nan(forecast, outcome), outcome.trials, seen, advice, self._telling)

    def _explored(
        self, run: ExplorationRun, schedule: Schedule, line: StatusLine
    ) -> tuple[ExplorationOutcome, ExplorationMetadata]:
        def watch(situation: Situation) -> None:
            samples = situation.ask.batches * self._source.batch_size
            line.draw(progress_line(situation.spent_s, schedule.budget_s, samples, situation.relative_width))

        try:
            others = (*self._also_restore, *rate_schedulers_of(self._optimizer, self._also_restore))
            with preserved(self._modules, self._optimizer, loaders=[self._data], others=others) as snapshot:
                devices.reset_peak_gpu_memory()
                self._model.train()
                outcome = explore(
                    self._source,
                    self._step,
                    schedule.scheduler,
                    perf_s=run.perf_s,
                    synchronise=devices.synchronise,
                    measuring=run,
                    width_of=self._width_of,
                    watch=watch,
                    spent_before_s=run.spent_s,
                )
                seen = replace(
                    self._seen(schedule),
                    eval_durations_s=tuple(self._evaluated(run, schedule.budget_s)),
                    peak_memory_gb=devices.peak_memory_gb(snapshot.device_bytes),
                )
        except torch.cuda.OutOfMemoryError as error:
            raise UsageError(
                f"out of memory at batch size {self._source.batch_size}, as the training itself would be: {error}. A "
                "smaller batch is another training, and not tried in silence"
            ) from error
        except RestoreError:
            raise
        except Exception as error:
            error.add_note("raised by the training that greenlove_tracker explored; all is as it was before")
            raise
        finally:
            self._source.close()
        if not outcome.trials:
            raise UsageError(
                f"not one step was done in {schedule.budget_s:g} s: give a larger {{argument}}", argument="budget_s"
            )
        return outcome, seen

    @property
    def _modules(self) -> list[nn.Module]:
        return [m for m in (self._model, self._criterion) if isinstance(m, nn.Module)]

    def _seen(self, schedule: Schedule) -> ExplorationMetadata:
        """What there is beside the trials, whether it came to its end or not."""
        return ExplorationMetadata(
            schedule.cold_start_s,
            used_gpus=_gpus_of(self._modules),
            method=schedule.method,
            warmup_epochs=schedule.warmup_epochs,
        )

    def _step(self, batch: Any) -> Any:
        return self._train_step(self._model, batch, self._optimizer, self._criterion, self._device)

    def _evaluated(self, run: ExplorationRun, budget_s: float) -> list[float]:
        """Times of evaluations: one, which may overrun the budget, and more while what is left of it holds them."""
        times_s: list[float] = []
        while self._eval_fn is not None and len(times_s) < _MOST_EVALUATIONS:
            began_s = run.perf_s()
            self._eval_fn(self._model)
            devices.synchronise()
            times_s.append(run.perf_s() - began_s)
            if run.spent_s + max(times_s) > budget_s:
                break
        return times_s

    def _width_of(self, trials: tuple[Trial, ...]) -> float | None:
        return extrapolate(trials, replace(self.plan, eval_every=None)).duration_s.relative_width


def _plan_of(source: BatchSource, epochs: int | None, steps: int | None, eval_every: int | None) -> TrainingPlan:
    """The whole training.

    Raises:
        UsageError: where it does not follow from what was given.
    """
    if (epochs is None) == (steps is None):
        raise UsageError(
            "give {argument} or {argument}: what is the whole training?", argument=("total_epochs", "total_steps")
        )
    for name, count in (("total_epochs", epochs), ("total_steps", steps)):
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
            raise UsageError(
                f"{{argument}} must be a whole number of at least 1, not {count!r}: there is nothing to train",
                argument=name,
            )
    batches = source.batches_per_epoch
    if batches is None and epochs is not None:
        raise UsageError(
            "the training data have no length: say with {argument=} how long the training is", argument="total_steps"
        )
    return TrainingPlan(source.samples_per_epoch, source.batch_size, epochs, steps, eval_every=eval_every)


def _check_alone() -> None:
    """Ranks of one training wait for each other in every step; each exploring by its own clock would hang for ever.

    Raises:
        UsageError: where this process is one of several that train together.
    """
    distributed = torch.distributed
    is_initialised = distributed.is_available() and distributed.is_initialized()
    n_ranks = distributed.get_world_size() if is_initialised else find_ranks(os.environ).world_size
    if n_ranks > 1:
        raise UsageError(
            f"{n_ranks} processes train together, and would wait for each other's steps for ever: explore in a process "
            "of its own on one GPU, and say greenlove project --gpus N"
        )


def _gpus_of(models: Sequence[nn.Module]) -> int:
    """GPUs that parameters are on, or that a ``DataParallel`` copies them to."""
    copies = [len(m.device_ids) for model in models for m in model.modules() if isinstance(m, nn.DataParallel)]
    return max([len({p.device for m in models for p in m.parameters() if p.device.type == "cuda"}), *copies])


def _with_nan(forecast: Forecast, outcome: ExplorationOutcome) -> Forecast:
    if outcome.is_finite:
        return forecast
    warning = WarningCode.NAN.warning("a loss was not a finite number", "look at the learning rate and the data", True)
    return replace(forecast, warnings=(*forecast.warnings, warning))


def _device_of(model: nn.Module, device: str | torch.device | None) -> torch.device:
    """Where the model is.

    Raises:
        UsageError: where that is not where it is to train.
    """
    found = next((p.device for p in model.parameters()), torch.device("cpu"))
    if device is not None and torch.device(device).type != found.type:
        raise UsageError(f"the model is on {found}, and device={device!r}: move it first, model.to({str(device)!r})")
    return found
