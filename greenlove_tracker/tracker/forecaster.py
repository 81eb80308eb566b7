"""Forecasts a run while it goes on, from its rows and from an earlier exploration of the same training."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import Protocol, runtime_checkable

from greenlove_tracker.errors import UsageError
from greenlove_tracker.forecasting import Forecast, Progress, TrainingPlan, stop_within
from greenlove_tracker.forks import forks_wait
from greenlove_tracker.format import plural
from greenlove_tracker.logs.metrics import metric_name
from greenlove_tracker.logs.tables import FORECASTS, IssuedForecast, MetricRecord
from greenlove_tracker.logs.writer import timestamp
from greenlove_tracker.pricing import Rates
from greenlove_tracker.records import Field, Row
from greenlove_tracker.stopping import ExpectedStop, StoppingRule
from greenlove_tracker.tracker.part import RunPart, RunParts
from greenlove_tracker.tracker.progress_log import ProgressLog
from greenlove_tracker.tracker.state import Plan

_MAX_TIME_SHARE = 0.02  # forecasting takes no larger share of the time than this,
_MOST_REST_S = 5.0  # and rests no longer than this: budgets stand on forecasts
# Nor is one made before this share of the forecast time has passed, or this share more than has passed already: some
# 600 in a run. The second is for the beginning, when a forecast may be many times too long.
_MIN_PROGRESS_SHARE, _MIN_GROWTH = 0.002, 0.1
_FIRST_ENERGY_S = 5.0  # a training in steps has its power read this early; later each minute
_MOST_METER_START_S = 20.0  # a meter that takes longer hangs: forecasts wait for it no more


class RunForecaster(RunPart):
    """Forecasts one run; the first rank does so for all.

    Args:
        run: that it is a part of.
    """

    def __init__(self, run: RunParts) -> None:
        super().__init__(run)
        self._progress = ProgressLog(self._is_resumed)
        self._rule: StoppingRule | None = None  # that may end the training early
        self._stop_values: dict[int, float] = {}  # of its metric, by the number of the epoch that each belongs to
        self._lock = threading.Lock()  # one forecast after the other, in the order of what they are made from
        # Epochs that the last forecast was made from, or of a training in steps its steps; else those of the first one.
        self._position_forecast_at = (0, 0, 0)
        self._awaits_gap = False  # the last forecast assumes what comes at the end of an epoch, and another will know
        self._next_s = 0.0  # the next forecast is made then, unless somebody asks

    def _is_resumed(self) -> bool:
        plan = self._state.plan  # a tracker of the script brings it
        return bool(self._state.settings.continues) or (plan is not None and plan.is_resumed)

    def row(self, row: Row) -> None:
        """Add it to what forecasts are made from."""
        self._progress.add_row(row, self._run.marks if self._is_in_epochs and self._run.marks else ())

    @property
    def _is_in_epochs(self) -> bool:
        return self._state.plan is not None and self._state.plan.is_in_epochs

    def metric_logged(self, record: MetricRecord) -> None:
        """Note the value of the rule's metric; of several in an epoch the last one counts."""
        if self._rule is not None and record.epoch is not None and record.name == metric_name(self._rule.metric):
            self._stop_values[record.epoch] = record.value

    def tick(self) -> None:
        """Make a forecast where more is done than at the last one, and it is time."""
        self.update(is_asked=False)

    def expect_stop(self, rule: StoppingRule) -> None:
        """Forecast from now on with a rule that may end the training early; the lock is held."""
        self._rule = rule
        self._stop_values.clear()
        self._writer.write_fields([Field("stopping_rule", str(rule))])

    def update(self, *, is_asked: bool = True) -> None:
        """Make a forecast of what is done by now.

        Args:
            is_asked: it is made however short the last one is ago.
        """
        state, recorder = self._state, self._recorder
        with self._lock:
            is_meter_starting = recorder.awaits_meter and state.elapsed_s < _MOST_METER_START_S
            if not self._is_wanted() or is_meter_starting:
                return
            self._load()
            with state.lock:
                self._run.tell_rows()  # what is done is told of, and nothing beyond
                plan = state.plan
                progress = None if state.is_finished or plan is None else self._due_progress(plan, is_asked=is_asked)
                if progress is None or plan is None:
                    return
                elapsed_s, epochs_done, steps_done = state.elapsed_s, recorder.epochs_done, recorder.steps_done
                values, rates, gpu_count = dict(self._stop_values), state.rates, state.gpu_count
            progress = replace(
                progress,
                gpu_count=gpu_count,
                phases=plan.phases,
                stop=self._expected_stop(plan, values, epochs_done),
            )
            forecast = self._forecast(progress, rates, elapsed_s)  # without the run's lock: it takes a while
            with state.lock:
                if state.is_finished:
                    return
                state.forecast = forecast
                issued = IssuedForecast.of(
                    forecast,
                    issued_at=timestamp(state.started_utc_s + elapsed_s),
                    elapsed_s=elapsed_s,
                    epochs_done=epochs_done,
                    steps_done=steps_done,
                    planned=int(progress.total_units),
                    epochs_before=plan.first_epoch,
                )
                self._writer.write(FORECASTS, issued)
                self._run.tell(RunPart.forecast_issued, issued)

    def _is_wanted(self) -> bool:
        state, recorder = self._state, self._recorder
        if not state.is_first_rank or state.is_training_over or state.settings.epochs_before_pred <= 0:
            return False
        last = recorder.epoch or recorder.last_epoch or 0
        has_ended = state.stopped_early_after is not None and last <= state.stopped_early_after
        return state.plan is not None and bool(state.plan.length) and not has_ended

    def _load(self) -> None:
        """Load what forecasts need, before the first one is due; the rows that it slows down are flagged."""
        if _LIVE in sys.modules:
            return
        with self._run.loading(), forks_wait:
            import_module(_LIVE)
        with self._state.lock:
            self._add_marks()  # what follows is a block of its own

    def _due_progress(self, plan: Plan, *, is_asked: bool) -> Progress | None:
        """Return what a forecast is made from; None where none is due."""
        state, recorder = self._state, self._recorder
        total, done = plan.length or 0, recorder.epochs_done if plan.is_in_epochs else recorder.steps_done
        if done > total:
            state.forecast = None  # it was of another training
        self._add_marks()
        if plan.is_in_epochs and not done:
            position = (0, recorder.steps_done, 0)
        else:
            position = (done, int(self._awaits_gap and recorder.epoch is not None), len(self._stop_values))
        is_time = is_asked or state.clock.perf_s() >= self._next_s
        if done >= total or position <= self._position_forecast_at or not is_time:
            return None
        progress = self._progress_of(plan, total)
        if progress is None or not progress.blocks or not (progress.warm_blocks or is_asked):
            return None  # we slowed down all that is known: one epoch more, and there is a forecast that holds
        self._position_forecast_at, self._awaits_gap = position, progress.has_unseen_ends
        return progress

    def _add_marks(self) -> None:
        """Add the steps since the last call."""
        is_wanted = self._recorder.epoch is not None and self._progress.is_in_first_epoch
        if is_wanted or not self._is_in_epochs:
            self._progress.add_steps(self._recorder.step_marks or ())

    def _progress_of(self, plan: Plan, total: int) -> Progress | None:
        recorder, log, energy_factor = self._recorder, self._progress, self._state.energy_factor
        if plan.is_in_epochs and recorder.epochs_done:
            open_gap_s = None if recorder.epoch is None else recorder.gap_before_open_s
            return log.in_epochs(total, open_gap_s, energy_factor=energy_factor)
        steps = plan.steps_per_epoch
        if recorder.step_marks is None or (plan.is_in_epochs and not steps):
            return None
        if recorder.is_metering and not log.has_power and recorder.open_for_s() > _FIRST_ENERGY_S:
            recorder.write_segment()  # nothing would be known of its power for a minute
            self._run.tell_rows()
        if not plan.is_in_epochs or not steps:
            return log.in_steps(total, energy_factor=energy_factor)
        begun = max(0.0, plan.first_step / steps - plan.first_epoch)
        progress = log.in_first_epoch(total, steps, begun, energy_factor=energy_factor)
        if progress is None or progress.done_units >= (total if recorder.is_opened_by_step else 1.0):
            return None  # what was planned of it is done, and it goes on: its end will tell
        return progress

    def _forecast(self, progress: Progress, rates: Rates, elapsed_s: float) -> Forecast:
        """Return the forecast; it takes some 30 ms, and with early stopping some 100."""
        from greenlove_tracker.extrapolation.live import forecast_run

        state, prior, began_s = self._state, self._state.prior, self._state.clock.perf_s()
        if prior is not None:  # the speed is that of all epochs, whatever may end them
            prior = prior.without_stop or prior
        forecast = forecast_run(progress, prior=prior, rates=rates, passed_s=elapsed_s)
        if state.rates_in_force.is_by_time:
            gpu_count = progress.gpu_count
            forecast = state.rates_in_force.priced(forecast, rates, state.clock.utc_s(), elapsed_s, gpu_count)
        wait_s = min(_MIN_PROGRESS_SHARE * forecast.duration_s.point, _MIN_GROWTH * state.elapsed_s)
        now_s = state.clock.perf_s()
        self._next_s = now_s + max(min((now_s - began_s) / _MAX_TIME_SHARE, _MOST_REST_S), wait_s)
        return forecast

    def _expected_stop(self, plan: Plan, values: Mapping[int, float], epochs_done: int) -> ExpectedStop | None:
        """Return where the rule is expected to end the run, in its own epochs; None without a rule or such a plan."""
        from greenlove_tracker.extrapolation.expected_stop import expected_stop  # which live loads

        rule = self._rule
        if rule is None or not plan.is_in_epochs or not plan.epochs:
            return None
        why = ""
        if plan.first_epoch >= rule.every:
            why = f"{rule.metric} of the epochs before this run is not known: any epoch"
        known = [] if why else [values[epoch] for epoch in sorted(values)]
        whole, done = plan.first_epoch + plan.epochs, plan.first_epoch + epochs_done
        stop = expected_stop(known, rule, whole, least_epochs=done)
        return stop_within(replace(stop, basis=why or stop.basis), plan.epochs, after=plan.first_epoch)


_LIVE = "greenlove_tracker.extrapolation.live"


@runtime_checkable
class ExplorationResult(Protocol):
    """An exploration, such as ``Estimator.estimate()`` gives: its forecast, and that of another length."""

    @property
    def forecast(self) -> Forecast:
        """The forecast of what was explored for."""

    def forecast_for(self, plan: TrainingPlan) -> Forecast:
        """Return the forecast of another plan from the same trials."""


def prior_for(prior: Forecast | ExplorationResult | None, plan: Plan) -> Forecast | None:
    """Return the forecast of a run of this plan, from an exploration or an earlier forecast.

    An exploration for another number of epochs or steps is forecast again from its trials. A plan that is not known,
    on either side, is taken to be the other's.

    Raises:
        UsageError: where the prior is none, or a forecast alone is of another number.
    """
    if prior is None:
        return None
    if not isinstance(prior, Forecast | ExplorationResult):
        raise UsageError(f"prior must be what estimate() gives, or a Forecast, as of extrapolate(), not {prior!r}")
    forecast = prior if isinstance(prior, Forecast) else prior.forecast
    if forecast.without_stop is not None and (not plan.is_in_epochs or plan.is_resumed):
        forecast = forecast.without_stop  # of all epochs: an early end says nothing of steps, or of the rest alone
    if forecast.plan is None or not plan.length:
        return forecast
    is_in_epochs = plan.is_in_epochs
    wanted = forecast.plan.with_length(
        epochs=plan.length if is_in_epochs else None, steps=None if is_in_epochs else plan.length
    )
    if plan.phases and plan.phases != wanted.phases:
        wanted = replace(wanted, phases=plan.phases, eval_every=None, save_every=None)
    elif math.isclose(_all_batches(wanted), _all_batches(forecast.plan)):
        return replace(forecast, plan=wanted)  # in the unit of the run
    if isinstance(prior, Forecast) or forecast.method == "power":
        raise UsageError(
            f"prior is a forecast of {_length(forecast.plan)}, and this run has {_length(wanted)}"
            f"{' in other phases' if wanted.phases else ''}: give the whole exploration, prior=estimation, whose "
            "trials are then forecast again (none of whole fits, by method='power'), or a forecast of this plan"
        )
    return prior.forecast_for(wanted)


def _all_batches(plan: TrainingPlan) -> float:
    return plan.n_epochs * plan.batches_per_epoch


def _length(plan: TrainingPlan) -> str:
    return plural(plan.epochs, "epoch") if plan.epochs is not None else plural(plan.steps or 0, "step")
