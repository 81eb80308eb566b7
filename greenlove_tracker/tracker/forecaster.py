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
from greenlove_tracker.forecasting import Block, Forecast, Progress, TrainingPlan
from greenlove_tracker.format import plural
from greenlove_tracker.logs.forecasts import IssuedForecast
from greenlove_tracker.logs.writer import RunWriter, timestamp
from greenlove_tracker.records import Energy, Flag, Row, RowKind
from greenlove_tracker.tracker.foreign_warnings import without_foreign_warnings
from greenlove_tracker.tracker.recorder import Recorder
from greenlove_tracker.tracker.state import Plan, RunState
from greenlove_tracker.tracker.switch_interval import short_switch_interval
from greenlove_tracker.units import kwh_from_w_s, w_from_kwh_s

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

    def update(self, *, at_once: bool = False, is_last: bool = False) -> None:
        """Make a forecast where more is done than at the last one, and it is time.

        Args:
            at_once: somebody asks: it is time as soon as forecasting takes no undue share of it.
            is_last: there will be no other: it is time.
        """
        state = self._state
        with self._lock:
            with state.lock:
                snapshot = None if state.is_finished else self._snapshot(at_once=at_once, is_last=is_last)
            if snapshot is None:
                return
            with short_switch_interval, without_foreign_warnings(state.settings.verbose):
                forecast = self._forecast(snapshot)  # without the run's lock: it takes a while
            with state.lock:
                if not state.is_finished:
                    state.forecast = forecast
                    self._writer.write_forecast(self._issued(forecast, snapshot))

    def _snapshot(self, *, at_once: bool, is_last: bool) -> _ProgressSnapshot | None:
        state, recorder, plan, now_s = self._state, self._recorder, self._state.plan, self._state.clock.perf_s()
        total = None if plan is None else plan.epochs or plan.total_steps
        if plan is None or total is None or state.settings.epochs_before_pred <= 0:
            return None
        done = recorder.epochs_done if plan.epochs else recorder.steps_done
        if done > total:
            state.forecast = None  # it was of another training
        earliest_s = self._earliest_s if at_once else self._next_s
        if done >= total or done <= self._units_forecast_at or (now_s < earliest_s and not is_last):
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


@dataclass(slots=True)
class _EpochTimes:
    active_s: float = 0.0
    paused_s: float = 0.0
    between_s: float = 0.0  # the gap behind it
    is_followed: bool = False  # by the next epoch, so that the gap behind it is known


class ProgressLog:
    """Adds up epochs or steps, and the gaps between them, as rows are finished."""

    def __init__(self) -> None:
        self._epochs: list[_EpochTimes] = []
        self._open: _EpochTimes | None = None
        self._startup_s = 0.0
        self._rows_s = 0.0  # all that rows hold
        self._settled_s = 0.0  # up to the last epoch's end, or the gap behind it where that is known
        self._wait_s = 0.0  # of the gap that is open: it took time, and will not come again
        self._metered: list[tuple[float, float]] = []  # durations, and mean powers without PUE
        self._metered_s, self._metered_kwh = 0.0, 0.0
        self._steps: list[Block] = []
        self._first_step: tuple[int, float] | None = None  # steps and time at the end of the first one
        self._last_step = (0, 0.0, 0.0)  # steps, active time and pauses up to the last block

    @property
    def has_energy(self) -> bool:
        """True once anything was metered."""
        return self._metered_s > 0

    def add_row(self, row: Row) -> None:
        """Add a finished row."""
        if Flag.WAITING in row.flags:  # it will not come again, and neither will the power of an idle machine
            self._rows_s += row.gap_before_s
            return
        self._add_energy(row.gap_before_s, row.gap_before)
        self._add_energy(row.duration_s, row.energy)
        self._rows_s += row.gap_before_s
        self._add_gap(row.gap_before_s)
        if row.epoch is not None:
            if self._open is None and self._epochs and not self._epochs[-1].is_followed:
                self._epochs[-1].is_followed, self._settled_s = True, self._rows_s  # the gap behind it is over
            self._open = self._open or _EpochTimes()
            self._open.active_s += row.duration_s
        self._rows_s += row.duration_s
        if Flag.UNFINISHED in row.flags:
            self._open = None  # it is done again: what it took is lost time
        elif row.kind is RowKind.EPOCH and self._open is not None:
            self._epochs.append(self._open)
            self._open, self._settled_s = None, self._rows_s

    def _add_gap(self, gap_s: float) -> None:
        wait_s = min(gap_s, self._wait_s)
        self._wait_s -= wait_s
        if self._open is not None:
            self._open.paused_s += gap_s - wait_s
        elif self._epochs:
            self._epochs[-1].between_s += gap_s - wait_s
        else:
            self._startup_s += gap_s

    def _add_energy(self, duration_s: float, energy: Energy) -> None:
        energy_kwh = energy.total_kwh
        if energy_kwh is None or duration_s <= 0:
            return
        self._metered_s += duration_s
        self._metered_kwh += energy_kwh
        self._metered.append((duration_s, w_from_kwh_s(energy_kwh, duration_s) or 0.0))

    def add_steps(self, steps: int, stepped_at_s: float, paused_s: float) -> None:
        """Add the steps since the last call, of a training that counts in steps.

        What came before the end of the first call's steps is start-up: loading, compiling.

        Args:
            steps: all that are done.
            stepped_at_s: the end of the last one, since the run began.
            paused_s: pauses until then.
        """
        active_s = stepped_at_s - paused_s
        if self._first_step is None:
            self._first_step, self._last_step = (steps, active_s), (steps, active_s, paused_s)
            return
        steps_before, active_before_s, paused_before_s = self._last_step
        if steps > steps_before and active_s > active_before_s:
            block = Block(steps - steps_before, active_s - active_before_s, paused_s - paused_before_s, 0.0)
            self._steps.append(block)
            self._last_step = steps, active_s, paused_s

    def exclude_wait(self, duration_s: float) -> None:
        """Leave a part of the open gap out of what is extrapolated: it was a wait for somebody, or for us."""
        self._wait_s += duration_s

    def in_epochs(
        self, total: int, open_gap_s: float | None = None, *, pue: float = 1.0, gpu_count: int = 0
    ) -> Progress:
        """Return the progress of a training of ``total`` epochs.

        Args:
            total: epochs of the whole training.
            open_gap_s: of the epoch that has begun, the gap before it that no row holds yet; None where none has.
            pue: multiplies every energy.
            gpu_count: GPUs.
        """
        blocks = [Block(1, e.active_s, e.paused_s, e.between_s if e.is_followed else None) for e in self._epochs]
        settled_s = self._settled_s
        if open_gap_s is not None and blocks and blocks[-1].between_s is None:
            last = self._epochs[-1]
            between_s = last.between_s + max(0.0, open_gap_s - self._wait_s)
            blocks[-1] = Block(1, last.active_s, last.paused_s, between_s)
            settled_s = self._rows_s + open_gap_s
        return self._progress(total, len(blocks), blocks, settled_s, self._startup_s, pue, gpu_count)

    def in_steps(self, total: int, *, pue: float = 1.0, gpu_count: int = 0) -> Progress:
        """Return the progress of a training of ``total`` steps."""
        first_s = self._first_step[1] if self._first_step else 0.0
        done, active_s, paused_s = self._last_step
        return self._progress(total, done, self._steps, active_s + paused_s, first_s, pue, gpu_count)

    def _progress(
        self, total: int, done: int, blocks: list[Block], elapsed_s: float, startup_s: float, pue: float, gpu_count: int
    ) -> Progress:
        used_kwh = None
        if self._metered_s > 0:
            mean_w = w_from_kwh_s(self._metered_kwh, self._metered_s) or 0.0
            unmetered_s = elapsed_s - self._metered_s  # negative: of an epoch that is open
            used_kwh = (self._metered_kwh + kwh_from_w_s(mean_w, unmetered_s)) * pue
        metered = tuple((duration_s, power_w * pue) for duration_s, power_w in self._metered)
        return Progress(total, done, tuple(blocks), startup_s, elapsed_s, metered, used_kwh, gpu_count)
