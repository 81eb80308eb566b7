"""Forecasts a run while it goes on, from its rows and from an earlier exploration of the same training."""

from __future__ import annotations

import math
import os
import sys
import threading
from dataclasses import dataclass, replace
from importlib import import_module
from types import ModuleType
from typing import Protocol, runtime_checkable

from greenlove_tracker.errors import UsageError
from greenlove_tracker.forecasting import Forecast, Progress, TrainingPlan
from greenlove_tracker.format import plural
from greenlove_tracker.logs.forecasts import IssuedForecast
from greenlove_tracker.logs.writer import RunWriter, timestamp
from greenlove_tracker.tracker.progress import ProgressLog
from greenlove_tracker.tracker.recorder import Recorder
from greenlove_tracker.tracker.state import Plan, RunState
from greenlove_tracker.tracker.threads import short_switch_interval

_MAX_TIME_SHARE = 0.02  # forecasting takes no larger share of the time than this
_MIN_PROGRESS_SHARE = 0.002  # nor is one made before this share of the forecast time has passed: some 500 in a run
_FIRST_ENERGY_S = 5.0  # a training in steps has its power read this early; later each minute


@dataclass(frozen=True, slots=True)
class _ProgressSnapshot:
    """The start of a forecast, and when that was."""

    progress: Progress
    elapsed_s: float
    epochs_done: int
    steps_done: int


class RunForecaster:
    """Forecasts one run.

    Args:
        state: of the run; it keeps the latest forecast.
        recorder: of the run.
        progress: of the run, from its rows.
        writer: takes every forecast that is issued.
    """

    def __init__(self, state: RunState, recorder: Recorder, progress: ProgressLog, writer: RunWriter) -> None:
        self._state, self._recorder, self._progress, self._writer = state, recorder, progress, writer
        self._lock = threading.Lock()  # one forecast after the other, in the order of what they are made from
        self._units_forecast_at = 0  # epochs or steps that the last forecast was made from
        self._next_s = 0.0  # the next forecast is made then,
        self._earliest_s = 0.0  # or as early as this where it is asked for

    def update(self, *, at_once: bool = False) -> None:
        """Make a forecast where more is done than at the last one, and it is time.

        Args:
            at_once: somebody asks: it is time as soon as forecasting takes no undue share of it.
        """
        state = self._state
        with self._lock:
            with state.lock:
                snapshot = None if state.is_finished else self._snapshot(at_once=at_once)
            if snapshot is None:
                return
            with short_switch_interval:
                forecast = self._forecast(snapshot)  # without the run's lock: it takes a while
            with state.lock:
                if not state.is_finished:
                    state.forecast = forecast
                    self._writer.write_forecast(self._issued(forecast, snapshot))

    def _snapshot(self, *, at_once: bool) -> _ProgressSnapshot | None:
        state, recorder, plan, now_s = self._state, self._recorder, self._state.plan, self._state.clock.perf_s()
        total = None if plan is None else plan.epochs or plan.total_steps
        if plan is None or total is None or state.settings.epochs_before_pred <= 0:
            return None
        done = recorder.epochs_done if plan.epochs else recorder.steps_done
        if done > total:
            state.forecast = None  # it was of another training
        earliest_s = self._earliest_s if at_once else self._next_s
        if done >= total or done <= self._units_forecast_at or now_s < earliest_s:
            return None
        progress = self._in_epochs(total) if plan.epochs else self._in_steps(total)
        if progress is None or not progress.blocks:
            return None
        self._units_forecast_at = done
        return _ProgressSnapshot(progress, now_s - state.started_s, recorder.epochs_done, recorder.steps_done)

    def _in_epochs(self, total: int) -> Progress:
        state, recorder = self._state, self._recorder
        open_gap_s = None if recorder.epoch is None else recorder.gap_before_open_s
        return self._progress.in_epochs(total, open_gap_s, pue=state.factors.pue, gpu_count=state.gpu_count)

    def _in_steps(self, total: int) -> Progress | None:
        state, recorder, progress = self._state, self._recorder, self._progress
        if recorder.first_step is None or recorder.stepped_at_s is None:
            return None
        if recorder.is_metering and not progress.has_energy and recorder.open_for_s() > _FIRST_ENERGY_S:
            recorder.write_segment()  # or nothing would be known of its power for a minute
        steps, ended_s = recorder.first_step
        progress.add_steps(steps, ended_s - state.started_s, 0.0)
        progress.add_steps(recorder.steps_done, recorder.stepped_at_s - state.started_s, recorder.paused_s)
        return progress.in_steps(total, pue=state.factors.pue, gpu_count=state.gpu_count)

    def _forecast(self, snapshot: _ProgressSnapshot) -> Forecast:
        """Return the forecast; it takes some 20 ms, and a moment more the first time, when SciPy is loaded."""
        live = _load_live()
        state, began_s = self._state, self._state.clock.perf_s()
        forecast: Forecast = live.forecast_run(
            snapshot.progress, prior=state.prior, rates=state.factors.rates, passed_s=snapshot.elapsed_s
        )
        now_s = state.clock.perf_s()
        self._earliest_s = now_s + (now_s - began_s) / _MAX_TIME_SHARE
        self._next_s = max(self._earliest_s, now_s + _MIN_PROGRESS_SHARE * forecast.duration_s.point)
        return forecast

    def _issued(self, forecast: Forecast, snapshot: _ProgressSnapshot) -> IssuedForecast:
        return IssuedForecast.of(
            forecast,
            issued_at=timestamp(self._state.started_utc_s + snapshot.elapsed_s),
            elapsed_s=snapshot.elapsed_s,
            epochs_done=snapshot.epochs_done,
            steps_done=snapshot.steps_done,
            planned=int(snapshot.progress.total_units),
        )


_loading = threading.Lock()

if hasattr(os, "register_at_fork"):
    # A child that is forked in the middle of an import would wait for it for ever.
    os.register_at_fork(before=_loading.acquire, after_in_parent=_loading.release, after_in_child=_loading.release)


def _load_live() -> ModuleType:
    name = "greenlove_tracker.extrapolation.live"
    if name in sys.modules and not _loading.locked():
        return sys.modules[name]
    with _loading:
        return import_module(name)


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
    if forecast.plan is None or not (plan.epochs or plan.total_steps):
        return forecast
    wanted = forecast.plan.with_length(epochs=plan.epochs, steps=None if plan.epochs else plan.total_steps)
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


def _all_batches(plan: TrainingPlan) -> float:
    return plan.n_epochs * plan.batches_per_epoch


def _length(plan: TrainingPlan) -> str:
    return plural(plan.epochs, "epoch") if plan.epochs is not None else plural(plan.steps or 0, "step")
