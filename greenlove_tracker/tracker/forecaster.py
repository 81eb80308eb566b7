"""Forecasts a run while it goes on, from its rows and from an earlier exploration of the same training."""

from __future__ import annotations

import math
import sys
import threading
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from types import ModuleType
from typing import Protocol, runtime_checkable

from greenlove_tracker.errors import UsageError
from greenlove_tracker.forecasting import Forecast, Progress, TrainingPlan, stop_within
from greenlove_tracker.forks import forks_wait
from greenlove_tracker.format import plural
from greenlove_tracker.logs.metrics import metric_name
from greenlove_tracker.logs.tables import FORECASTS, IssuedForecast, MetricRecord
from greenlove_tracker.logs.writer import timestamp
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


@dataclass(frozen=True, slots=True)
class _ProgressSnapshot:
    """The start of a forecast, when that was, and the values of the metric that a rule looks at, by epoch.

    Attributes:
        has_several_values: of one epoch, so that they do not say where the rule stands.
    """

    progress: Progress
    elapsed_s: float
    epochs_done: int
    steps_done: int
    stop_values: Mapping[int, float]
    has_several_values: bool = False


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
        self._has_several_values = False  # more than one was logged in an epoch, and they differ
        self._lock = threading.Lock()  # one forecast after the other, in the order of what they are made from
        # Epochs that the last forecast was made from, or of a training in steps its steps; else those of the first one.
        self._position_forecast_at = (0, 0, 0)
        self._stop: tuple[tuple[int, int], ExpectedStop] | None = None  # of so many values and epochs
        self._awaits_gap = False  # the last forecast assumes what comes at the end of an epoch, and another will know
        self._cannot_load = False
        self._next_s = 0.0  # the next forecast is made then, unless somebody asks

    def _is_resumed(self) -> bool:
        plan = self._state.plan  # a tracker of the script brings it
        return bool(self._state.settings.continues) or (plan is not None and plan.is_resumed)

    def row(self, row: Row) -> None:
        """Add it to what forecasts are made from."""
        plan = self._state.plan
        is_in_epochs = plan is not None and plan.is_in_epochs
        self._progress.add_row(row, self._run.marks if is_in_epochs else None)

    def metric_logged(self, record: MetricRecord) -> None:
        """Note a value of the rule's metric; the same one again, as where the loop logs it too, counts once."""
        if self._rule is not None and record.epoch is not None and record.name == metric_name(self._rule.metric):
            before = self._stop_values.get(record.epoch, record.value)
            is_same = before == record.value or (math.isnan(before) and math.isnan(record.value))
            self._has_several_values |= not is_same
            self._stop_values[record.epoch] = record.value

    def tick(self) -> None:
        """Make a forecast where more is done than at the last one, and it is time."""
        if self._state.is_first_rank:
            self._update()

    def latest(self, *, is_last: bool = False) -> Forecast | None:
        """Return a forecast of what is done by now; the time that it takes is ours, and no gap of the training's.

        Args:
            is_last: there will be no other: the meter is not waited for.
        """
        state = self._state
        began_s = state.clock.perf_s()
        if state.is_first_rank:
            self._update(is_asked=True, is_last=is_last)
        self.exclude_wait(state.clock.perf_s() - began_s)
        return state.forecast

    def exclude_wait(self, duration_s: float) -> None:
        """Leave a part of the gap that is open out of what is extrapolated: it was a wait for somebody, or for us."""
        with self._state.lock:
            if self._recorder.epoch is None:
                self._progress.exclude_wait(duration_s)

    def expect_stop(self, rule: StoppingRule) -> None:
        """Forecast from now on with a rule that may end the training early; the lock is held."""
        self._rule, self._has_several_values = rule, False
        self._stop_values.clear()
        self._writer.write_fields([Field("stopping_rule", str(rule))])

    def _update(self, *, is_asked: bool = False, is_last: bool = False) -> None:
        state = self._state
        with self._lock:
            with state.lock:
                is_early = (
                    state.is_training_over or not self._is_wanted() or (self._is_meter_starting() and not is_last)
                )
            if is_early:
                return
            self._load()
            with state.lock:
                is_over = state.is_finished or self._cannot_load
                self._run.tell_rows()  # what is done is told of, and nothing beyond
                snapshot = None if is_over else self._snapshot(is_asked=is_asked)
            if snapshot is None:
                return
            forecast = self._forecast(snapshot)  # without the run's lock: it takes a while
            with state.lock:
                if state.is_finished:
                    return
                state.expect(forecast)
                issued = self._issued(forecast, snapshot)
                self._writer.write(FORECASTS, issued)
                self._run.tell(RunPart.forecast_issued, issued)

    def _is_meter_starting(self) -> bool:
        return self._recorder.awaits_meter and self._state.elapsed_s < _MOST_METER_START_S

    def _is_wanted(self) -> bool:
        state, n_before = self._state, self._state.settings.epochs_before_pred
        now_in = self._recorder.epoch or self._recorder.last_epoch or 0
        has_ended = state.stopped_early_after is not None and now_in <= state.stopped_early_after
        has_length = state.plan is not None and bool(state.plan.length) and not has_ended
        return has_length and n_before > 0 and not (self._cannot_load or state.is_training_over)

    def _load(self) -> None:
        """Load what forecasts need, before the first one is due; the rows that it slows down are flagged."""
        if _LIVE in sys.modules:
            return
        with self._state.lock:
            self._recorder.begin_loading()
        try:
            _load_live()
        except ImportError as error:
            self._cannot_load = True
            self._state.warn_once.warn("forecast", f"nothing is forecast: {error}")
        finally:
            with self._state.lock:
                self._recorder.end_loading()
                self._add_marks()  # what follows is a block of its own

    def _snapshot(self, *, is_asked: bool) -> _ProgressSnapshot | None:
        state, recorder, plan, now_s = self._state, self._recorder, self._state.plan, self._state.clock.perf_s()
        total = None if plan is None else plan.length
        if plan is None or total is None:
            return None
        done = recorder.epochs_done if plan.is_in_epochs else recorder.steps_done
        if done > total:
            state.expect(None)  # it was of another training
        if plan.is_in_epochs:
            self._add_marks()  # at each tick: an epoch is told in parts by them
        is_in_first, is_gap_over = plan.is_in_epochs and not done, self._awaits_gap and recorder.epoch is not None
        values = dict(self._stop_values)
        position = (0, recorder.steps_done, 0) if is_in_first else (done, int(is_gap_over), len(values))
        is_time = is_asked or now_s >= self._next_s
        if done >= total or position <= self._position_forecast_at or not is_time:
            return None
        if is_in_first:
            progress = self._before_first_end(total)
        else:
            progress = self._in_epochs(total) if plan.is_in_epochs else self._in_steps(total)
        if progress is None or not progress.blocks:
            return None
        progress = replace(progress, phases=plan.phases)
        if not progress.warm_blocks and not is_asked:
            return None  # we slowed down all that is known: one epoch more, and there is a forecast that holds
        self._position_forecast_at = position
        self._awaits_gap = progress.has_unseen_ends
        elapsed_s = now_s - state.started_s
        has_several = self._has_several_values
        return _ProgressSnapshot(progress, elapsed_s, recorder.epochs_done, recorder.steps_done, values, has_several)

    def _add_marks(self) -> None:
        """Add the steps since the last call to the run's progress."""
        state, recorder, progress, marks = self._state, self._recorder, self._progress, self._recorder.step_marks
        if state.plan is not None and state.plan.is_in_epochs:
            if recorder.epoch is not None:
                progress.add_epoch_steps(marks, recorder.gap_before_open_s)
        elif marks is not None:
            for mark in marks if not progress.has_steps else marks[1:]:
                progress.add_steps(mark)

    def _in_epochs(self, total: int) -> Progress:
        state, recorder = self._state, self._recorder
        open_gap_s = None if recorder.epoch is None else recorder.gap_before_open_s
        return self._progress.in_epochs(total, open_gap_s, energy_factor=state.energy_factor, gpu_count=state.gpu_count)

    def _in_steps(self, total: int) -> Progress | None:
        state, recorder, progress = self._state, self._recorder, self._progress
        if recorder.first_step is None:
            return None
        self._read_first_power()
        self._add_marks()
        return progress.in_steps(total, energy_factor=state.energy_factor, gpu_count=state.gpu_count)

    def _read_first_power(self) -> None:
        """Have the power of an open epoch read early: nothing would be known of it for a minute."""
        recorder = self._recorder
        if recorder.is_metering and not self._progress.has_power and recorder.open_for_s() > _FIRST_ENERGY_S:
            recorder.write_segment()

    def _before_first_end(self, total: int) -> Progress | None:
        """Return the progress from the steps of the first epoch; None where they do not tell of it."""
        state, recorder, plan = self._state, self._recorder, self._state.plan
        steps = None if plan is None else plan.steps_per_epoch
        if plan is None or not steps:
            return None
        self._read_first_power()
        begun = max(0.0, plan.first_step / steps - plan.first_epoch) if plan.first_step else 0.0
        progress = self._progress.in_first_epoch(
            total, steps, begun, energy_factor=state.energy_factor, gpu_count=state.gpu_count
        )
        if progress is None or progress.done_units >= (total if recorder.is_opened_by_step else 1.0):
            return None  # what was planned of it is done, and it goes on: its end will tell
        return progress

    def _forecast(self, snapshot: _ProgressSnapshot) -> Forecast:
        """Return the forecast; it takes some 30 ms, and with early stopping some 100."""
        live = _load_live()
        state, began_s, began_cpu_s = self._state, self._state.clock.perf_s(), time.thread_time()
        with state.lock:  # the training adds rows meanwhile
            rates = state.rates
        forecast: Forecast = live.forecast_run(
            replace(snapshot.progress, stop=self._expected_stop(snapshot)),
            prior=self._prior,
            rates=rates,
            passed_s=snapshot.elapsed_s,
        )
        if state.rates_in_force is not None:
            forecast = state.rates_in_force.priced(
                forecast, rates, state.clock.utc_s(), snapshot.elapsed_s, snapshot.progress.gpu_count
            )
        now_s = state.clock.perf_s()
        worked_s = min(now_s - began_s, time.thread_time() - began_cpu_s)  # on a busy machine most of it is waiting
        rest_s = min(worked_s / _MAX_TIME_SHARE, _MOST_REST_S)
        wait_s = min(_MIN_PROGRESS_SHARE * forecast.duration_s.point, _MIN_GROWTH * state.elapsed_s)
        self._next_s = now_s + max(rest_s, wait_s)
        return forecast

    @property
    def _prior(self) -> Forecast | None:
        """The forecast that tells of the speed: of all epochs, whatever may end them."""
        prior = self._state.prior
        return prior.without_stop or prior if prior is not None else None

    def _expected_stop(self, snapshot: _ProgressSnapshot) -> ExpectedStop | None:
        """Return where the rule is expected to end the run, in its own epochs; None without a rule or such a plan."""
        rule, plan = self._rule, self._state.plan
        if rule is None or plan is None or not plan.is_in_epochs or not plan.epochs:
            return None
        made_from = (len(snapshot.stop_values), snapshot.epochs_done)
        if self._stop is not None and self._stop[0] == made_from:
            return self._stop[1]
        values, whole, why = snapshot.stop_values, plan.first_epoch + plan.epochs, ""
        if plan.first_epoch >= rule.every:
            why = f"{rule.metric} of the epochs before this run is not known: any epoch"
        elif snapshot.has_several_values:
            why = f"{rule.metric} comes more than once an epoch: any epoch"
        done = plan.first_epoch + snapshot.epochs_done
        known = [] if why else [values[epoch] for epoch in sorted(values)]
        stop = import_module(_STOP).expected_stop(known, rule, whole, least_epochs=done)
        stop = replace(stop, basis=why or stop.basis)
        own = stop_within(stop, plan.epochs, after=plan.first_epoch)
        self._stop = made_from, own
        return own

    def _issued(self, forecast: Forecast, snapshot: _ProgressSnapshot) -> IssuedForecast:
        return IssuedForecast.of(
            forecast,
            issued_at=timestamp(self._state.started_utc_s + snapshot.elapsed_s),
            elapsed_s=snapshot.elapsed_s,
            epochs_done=snapshot.epochs_done,
            steps_done=snapshot.steps_done,
            planned=int(snapshot.progress.total_units),
            epochs_before=0 if self._state.plan is None else self._state.plan.first_epoch,
        )


_LIVE = "greenlove_tracker.extrapolation.live"
_STOP = "greenlove_tracker.extrapolation.expected_stop"  # which live loads


def _load_live() -> ModuleType:
    if _LIVE not in sys.modules:
        warnings.filterwarnings("ignore", module="statsmodels")  # nothing that the training's user could mend
    with forks_wait:
        return import_module(_LIVE)


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
    forecast = _of_run(prior if isinstance(prior, Forecast) else prior.forecast, plan)
    prior = forecast if isinstance(prior, Forecast) else prior
    if forecast.plan is None or not plan.length:
        return forecast
    is_in_epochs = plan.is_in_epochs
    wanted = forecast.plan.with_length(
        epochs=plan.length if is_in_epochs else None, steps=None if is_in_epochs else plan.length
    )
    if plan.phases and plan.phases != wanted.phases:
        if isinstance(prior, Forecast):
            raise UsageError(
                "prior is a forecast without the phases of this run: give the whole exploration, prior=estimation, "
                "whose trials are then forecast again"
            )
        return prior.forecast_for(replace(wanted, phases=plan.phases, eval_every=None, save_every=None))
    if math.isclose(_all_batches(wanted), _all_batches(forecast.plan)):
        return forecast if wanted == forecast.plan else replace(forecast, plan=wanted)  # in the unit of the run
    differs = f"prior is a forecast of {_length(forecast.plan)}, and this run has {_length(wanted)}"
    if forecast.method == "power":
        raise UsageError(f"{differs}: an epoch of it is a whole fit, so make the fit one epoch, or leave prior= out")
    if isinstance(prior, Forecast):
        raise UsageError(
            f"{differs}: give the whole exploration, prior=estimation, whose trials are then forecast again, or a "
            "forecast of this plan"
        )
    return prior.forecast_for(wanted)


def _of_run(forecast: Forecast, plan: Plan) -> Forecast:
    """Return the forecast of all epochs where an early end says nothing of the run: in steps, or of the rest alone."""
    is_of_all = not plan.is_in_epochs or plan.is_resumed
    return forecast.without_stop if forecast.without_stop is not None and is_of_all else forecast


def _all_batches(plan: TrainingPlan) -> float:
    return plan.n_epochs * plan.batches_per_epoch


def _length(plan: TrainingPlan) -> str:
    return plural(plan.epochs, "epoch") if plan.epochs is not None else plural(plan.steps or 0, "step")
