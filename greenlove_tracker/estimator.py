"""``Estimator``: what a PyTorch training will take, before it starts."""

from __future__ import annotations

import logging
import os
import webbrowser
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from greenlove_tracker import devices
from greenlove_tracker.config import load_settings
from greenlove_tracker.console import StatusLine, confirm, say
from greenlove_tracker.errors import UsageError
from greenlove_tracker.exploration.explore import Outcome, Scheduler, Situation, explore
from greenlove_tracker.exploration.green_love import BOUND_S as GREEN_LOVE_BOUND_S
from greenlove_tracker.exploration.green_love import GreenLoveScheduler
from greenlove_tracker.exploration.plan import ExplorationScheduler
from greenlove_tracker.exploration.state import RestoreError, preserved
from greenlove_tracker.exploration.trial import default_step, source_of
from greenlove_tracker.extrapolation.from_trials import extrapolate
from greenlove_tracker.forecasting import Forecast, TrainingPlan, Trial, Warn
from greenlove_tracker.job import find_ranks
from greenlove_tracker.logs.trials import plan_fields, write_trials
from greenlove_tracker.meter import Meter
from greenlove_tracker.records import Clock, RunStatus
from greenlove_tracker.report.content_exploration import exploration_document
from greenlove_tracker.report.exploration import exploration_screen, progress_line
from greenlove_tracker.report.html import write_page
from greenlove_tracker.tracker.clock import SystemClock
from greenlove_tracker.tracker.plan import Plan
from greenlove_tracker.tracker.session import Session

_log = logging.getLogger("greenlove_tracker")

_EVAL_SHARE = 0.15  # of the budget, within which an evaluation is repeated; one is always run
_MOST_EVALUATIONS = 3


@dataclass(frozen=True, slots=True)
class Estimation:
    """What an exploration found.

    Attributes:
        forecast: of the whole training.
        trials: that it was made from.
        spent_s: what the exploration took, its preparations too.
        advice: what to do instead of exploring, where the training is short.
        run_dir: where the trials are written; ``greenlove forecast`` reads them again.
        continues: whether to train here now: as was answered on the terminal, or as ``on_no_terminal`` says.
    """

    forecast: Forecast
    trials: tuple[Trial, ...]
    spent_s: float
    advice: str | None
    run_dir: Path
    continues: bool


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
        budget_s: of the exploration; overrun by at most one step, or one start of a loader.
        auto_open_report: open the page in a browser, where there is one.
        asks: ask on a terminal whether to train on.
        on_no_terminal: ``continue`` or ``stop``: the answer where there is nobody to ask whether to train on.
        train_step: a function of (model, batch, optimizer, criterion, device) that makes one step and may return its
            loss; needed for anything beyond batches of (inputs, targets).
        device: of the model; default where its parameters are.
        eval_fn: an evaluation, a function of the model; one follows each epoch of the training.
        also_restore: what else training changes: learning-rate schedulers, gradient scalers, or what only you know, as
            objects with ``state_dict`` and ``load_state_dict`` or pairs of functions (save, restore).
        schedule: ``adaptive``, or ``green-love`` for the original's, with its formulas and its bound of 90 s.
        target_relative_width: of the forecast's interval, at which the exploration stops early.
        seed: of the order of trials.
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
        total_epochs: int,
        batch_size: int = 64,
        *,
        budget_s: float = 30.0,
        auto_open_report: bool = False,
        asks: bool = True,
        on_no_terminal: str = "continue",
        train_step: Callable[..., Any] | None = None,
        device: str | torch.device | None = None,
        eval_fn: Callable[[nn.Module], object] | None = None,
        also_restore: Sequence[Any] = (),
        schedule: str = "adaptive",
        target_relative_width: float = 0.05,
        seed: int = 0,
        clock: Clock | None = None,
        meter: Meter | None = None,
        **settings: Any,
    ) -> None:
        if on_no_terminal not in ("continue", "stop"):
            raise UsageError(f'on_no_terminal must be "continue" or "stop", not {on_no_terminal!r}')
        self._model, self._optimizer, self._criterion = model, optimizer, criterion
        self._train_step, self._device = train_step or default_step, _device_of(model, device)
        self._eval_fn, self._also_restore = eval_fn, tuple(also_restore)
        self._clock, self._meter, self._is_in_background = clock or SystemClock(), meter, clock is None
        self._settings = load_settings(settings)
        self._auto_open_report = auto_open_report
        self._asks = asks and self._settings.verbose > 0
        self._continues_unasked = on_no_terminal == "continue"
        self._budget_s, self._seed = budget_s, seed
        self._data, self._source = train_dataset, source_of(train_dataset, batch_size)
        batches = self._source.batches_per_epoch
        if batches is None:
            raise UsageError("the training data have no length: give a DataLoader of a data set that has one")
        self._adaptive = ExplorationScheduler(
            batches, total_epochs, budget_s=budget_s, seed=seed, target_relative_width=target_relative_width
        )
        self._scheduler: Scheduler = self._adaptive
        if schedule not in ("adaptive", "green-love"):
            raise UsageError(f'schedule must be "adaptive" or "green-love", not {schedule!r}')
        self._method = "wls" if schedule == "adaptive" else "green-love"
        if schedule == "green-love":
            self._scheduler = GreenLoveScheduler(batches * self._source.batch_size, self._source.batch_size)
            self._budget_s = GREEN_LOVE_BOUND_S
        self.plan = TrainingPlan(
            samples=batches * self._source.batch_size, batch_size=self._source.batch_size, epochs=total_epochs,
            eval_every=None if eval_fn is None else 1,
        )  # fmt: skip

    def estimate(self) -> Estimation:
        """Explore, forecast, tell, and ask whether to train on.

        Raises:
            UsageError: where the training step or the data cannot be explored, with what to do.
        """
        began_s = self._clock.perf_s()
        session = Session(
            self._settings, Plan(), find_ranks(os.environ), self._clock, self._meter,
            in_background=self._is_in_background, extra_fields=plan_fields(self.plan),
        )  # fmt: skip
        line = StatusLine(even_beside_stdout=True)
        try:
            outcome, evaluations_s = self._explored(session, began_s, line)
        except BaseException:
            session.finish(RunStatus.FAILED)
            raise
        finally:
            line.clear()
        write_trials(session.run_dir, outcome.trials)
        forecast = self._forecast(session, outcome, evaluations_s)
        page = write_page(exploration_document(forecast, outcome.trials), session.run_dir / "dashboard.html")
        if self._auto_open_report:
            webbrowser.open(page.as_uri())
        session.finish(RunStatus.FINISHED, 0)
        spent_s = self._clock.perf_s() - began_s
        if self._settings.verbose > 0:
            say(exploration_screen(forecast, outcome.trials, spent_s, self._budget_s, self._adaptive.advice,
                                   run_dir=session.shown_dir,
                                   now_utc_s=self._clock.utc_s()))  # fmt: skip
        answer = confirm("Continue training locally?", default=False) if self._asks else None
        continues = self._continues_unasked if answer is None else answer
        return Estimation(forecast, outcome.trials, spent_s, self._adaptive.advice, session.run_dir, continues)

    def _explored(self, session: Session, began_s: float, line: StatusLine) -> tuple[Outcome, list[float]]:
        models = [m for m in (self._model, self._criterion) if isinstance(m, nn.Module)]

        def watch(situation: Situation) -> None:
            line.draw(progress_line(situation.spent_s, self._budget_s, situation.ask.batches * self._source.batch_size,
                                    situation.relative_width))  # fmt: skip

        try:
            with preserved(models, self._optimizer, loaders=[self._data], others=self._also_restore):
                evaluations_s = self._evaluated()
                self._model.train()
                outcome = explore(
                    self._source, self._step, self._scheduler, perf_s=self._clock.perf_s,
                    synchronise=devices.synchronise, measuring=_Energy(session), width_of=self._width_of, watch=watch,
                    spent_before_s=self._clock.perf_s() - began_s,
                )  # fmt: skip
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
            raise UsageError(f"not one step was done in {self._budget_s:g} s: give a larger budget_s")
        return outcome, evaluations_s

    def _step(self, batch: Any) -> Any:
        return self._train_step(self._model, batch, self._optimizer, self._criterion, self._device)

    def _evaluated(self) -> list[float]:
        """Times of evaluations: one, and more while they take a small part of the budget."""
        times_s: list[float] = []
        while self._eval_fn is not None and len(times_s) < _MOST_EVALUATIONS:
            began_s = self._clock.perf_s()
            self._eval_fn(self._model)
            devices.synchronise()
            times_s.append(self._clock.perf_s() - began_s)
            if sum(times_s) + max(times_s) > _EVAL_SHARE * self._budget_s:
                break
        return times_s

    def _width_of(self, trials: tuple[Trial, ...]) -> float | None:
        return extrapolate(trials, replace(self.plan, eval_every=None)).duration_s.relative_width

    def _forecast(self, session: Session, outcome: Outcome, evaluations_s: Sequence[float]) -> Forecast:
        terms, gpus = session.terms, session.gpu_count
        price = terms.electricity_price
        per_hour = terms.price_usd_per_gpu_hour * gpus if terms.price_usd_per_gpu_hour and gpus else None
        forecast = extrapolate(
            outcome.trials, self.plan, carbon_intensity=terms.carbon_intensity.value * terms.pue,
            electricity_price=price.value * terms.pue if price else None, price_usd_per_hour=per_hour,
            eval_durations_s=evaluations_s, seed=self._seed, method=self._method,
        )  # fmt: skip
        once_s = self._adaptive.cold_start_s
        forecast = replace(
            forecast, duration_s=forecast.duration_s.plus(once_s), one_off_s=forecast.one_off_s.plus(once_s),
            duration_p99_s=None if forecast.duration_p99_s is None else forecast.duration_p99_s + once_s,
            energy_kwh=None if forecast.energy_kwh is None else forecast.energy_kwh.times(terms.pue, "kWh"),
        )  # fmt: skip
        if not outcome.is_finite:
            warning = Warn("NAN", "a loss was not a finite number", "look at the learning rate and the data", True)
            forecast = replace(forecast, warnings=(*forecast.warnings, warning))
        return forecast


class _Energy:
    """Energy of each trial, as an epoch of the exploration's own run."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def begin(self) -> None:
        """A trial begins."""
        with self._session.acting() as recorder:
            recorder.start_epoch()

    def end(self) -> float | None:
        """It is over; its energy, None where a part of it was not metered."""
        with self._session.acting() as recorder:
            number = recorder.epoch
            recorder.end_epoch()
        parts = [row.energy.total_kwh for row in self._session.rows if row.epoch == number]
        known = [kwh for kwh in parts if kwh is not None]
        return sum(known) if known and len(known) == len(parts) else None


def _device_of(model: nn.Module, device: str | torch.device | None) -> torch.device:
    """Where the model is.

    Raises:
        UsageError: where that is not where it is to train.
    """
    found = next((p.device for p in model.parameters()), torch.device("cpu"))
    if device is not None and torch.device(device).type != found.type:
        raise UsageError(f"the model is on {found}, and device={device!r}: move it first, model.to({str(device)!r})")
    return found
