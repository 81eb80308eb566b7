"""Forecasts a run while it goes on, from its rows and from an earlier exploration of the same training."""

from __future__ import annotations

import logging
import math
import os
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field, replace
from importlib import import_module
from numbers import Real
from pathlib import Path
from types import ModuleType
from typing import Protocol, TypeVar, runtime_checkable

from greenlove_tracker.errors import GreenloveError, UsageError
from greenlove_tracker.forecasting import Block, Estimate, Forecast, Progress, TrainingPlan
from greenlove_tracker.format import plural
from greenlove_tracker.logs.forecasts import IssuedForecast
from greenlove_tracker.logs.writer import RunWriter, timestamp
from greenlove_tracker.records import Counts, Energy, Field, Flag, Row, RowKind
from greenlove_tracker.shadowing import only_libraries
from greenlove_tracker.tracker.foreign_warnings import without_foreign_warnings
from greenlove_tracker.tracker.recorder import LOADING_SHARE, Recorder
from greenlove_tracker.tracker.state import Plan, RunState
from greenlove_tracker.tracker.switch_interval import short_switch_interval
from greenlove_tracker.units import kwh_from_w_s, w_from_kwh_s

_log = logging.getLogger("greenlove_tracker")

_MAX_TIME_SHARE = 0.02  # forecasting takes no larger share of the time than this
# Nor is one made before this share of the forecast time has passed, or this share more than has passed already: some
# 600 in a run. The second is for the beginning, when a forecast may be many times too long.
_MIN_PROGRESS_SHARE, _MIN_GROWTH = 0.002, 0.1
_FIRST_ENERGY_S = 5.0  # a training in steps has its power read this early; later each minute
_MOST_METER_START_S = 20.0  # a meter that takes longer hangs: forecasts wait for it no more
_FEWEST_BLOCKS = 128  # epochs are joined until hardly more remain, so that a forecast costs the same at any length
_LEAST_POWER_S = 1.0  # a mean power is taken over this much: a single reading may hold 50 ms of what lay before
_ENOUGH_POWER_S = 60.0  # a power that was metered for so long counts, however long the epoch was
_ALIKE = 0.1  # epochs that differ by less in time
_WHOLE_EPOCH = 0.99  # of an epoch's batches: the last one may be smaller, or missing


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
        self._earlier: Forecast | None = None  # of the run that this one continues
        self._has_read_earlier = False
        self._units_forecast_at = 0  # epochs or steps that the last forecast was made from
        self._cannot_load = False
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
                is_early = state.is_finished or not self._is_wanted() or (self._is_meter_starting() and not is_last)
            if is_early:
                return
            self._load()
            with state.lock:
                is_over = state.is_finished or self._cannot_load
                snapshot = None if is_over else self._snapshot(at_once=at_once, is_last=is_last)
            if snapshot is None:
                return
            with short_switch_interval, without_foreign_warnings(state.settings.verbose):
                forecast = self._forecast(snapshot)  # without the run's lock: it takes a while
            with state.lock:
                if not state.is_finished:
                    state.forecast = forecast
                    self._writer.write_forecast(self._issued(forecast, snapshot))

    def _is_meter_starting(self) -> bool:
        return self._state.is_meter_starting and self._state.elapsed_s < _MOST_METER_START_S

    def _is_wanted(self) -> bool:
        plan = self._state.plan
        has_length = plan is not None and bool(plan.length)
        return has_length and self._state.settings.epochs_before_pred > 0 and not self._cannot_load

    def _load(self) -> None:
        """Load what forecasts need, before the first one is due; the rows that it slows down are flagged."""
        if _is_live_loaded():
            return
        with self._state.lock:
            self._recorder.begin_loading()
        try:
            with short_switch_interval, without_foreign_warnings(self._state.settings.verbose):
                _load_live()
        except ImportError as error:
            self._cannot_load = True
            self._state.warn_once.warn("forecast", f"nothing is forecast: {error}")
        finally:
            with self._state.lock:
                self._recorder.end_loading()
                self._add_steps()  # what follows is a block of its own

    def _snapshot(self, *, at_once: bool, is_last: bool) -> _ProgressSnapshot | None:
        state, recorder, plan, now_s = self._state, self._recorder, self._state.plan, self._state.clock.perf_s()
        total = None if plan is None else plan.length
        if plan is None or total is None:
            return None
        done = recorder.epochs_done if plan.is_in_epochs else recorder.steps_done
        if done > total:
            state.forecast = None  # it was of another training
        earliest_s = self._earliest_s if at_once else self._next_s
        if done >= total or done <= self._units_forecast_at or (now_s < earliest_s and not is_last):
            return None
        progress = self._in_epochs(total) if plan.is_in_epochs else self._in_steps(total)
        if progress is None or not progress.blocks:
            return None
        progress = replace(progress, phases=plan.phases)
        if not progress.warm_blocks and not at_once and not is_last:
            return None  # we slowed down all that is known: one epoch more, and there is a forecast that holds
        self._units_forecast_at = done
        return _ProgressSnapshot(progress, now_s - state.started_s, recorder.epochs_done, recorder.steps_done)

    def _in_epochs(self, total: int) -> Progress:
        state, recorder = self._state, self._recorder
        open_gap_s = None if recorder.epoch is None else recorder.gap_before_open_s
        if recorder.first_step is not None:
            steps, ended_s, _ = recorder.first_step
            self._progress.first_step = steps, ended_s - state.started_s
        return self._progress.in_epochs(total, open_gap_s, pue=state.overhead, gpu_count=state.gpu_count)

    def _in_steps(self, total: int) -> Progress | None:
        state, recorder, progress = self._state, self._recorder, self._progress
        if recorder.first_step is None or recorder.stepped_at_s is None:
            return None
        if recorder.is_metering and not progress.has_power and recorder.open_for_s() > _FIRST_ENERGY_S:
            recorder.write_segment()  # or nothing would be known of its power for a minute
        self._add_steps()
        return progress.in_steps(total, pue=state.overhead, gpu_count=state.gpu_count)

    def _add_steps(self) -> None:
        recorder, progress, started_s = self._recorder, self._progress, self._state.started_s
        if recorder.first_step is not None and recorder.stepped_at_s is not None:
            steps, ended_s, loading_s = recorder.first_step
            progress.add_steps(steps, ended_s - started_s, 0.0, loading_s, work_in(recorder.first_counts))
            ended_s, work = recorder.stepped_at_s - started_s, work_in(recorder.counts_done)
            progress.add_steps(recorder.steps_done, ended_s, recorder.paused_s, recorder.loading_s, work)

    def _forecast(self, snapshot: _ProgressSnapshot) -> Forecast:
        """Return the forecast; it takes some 30 ms."""
        live = _load_live()
        state, began_s = self._state, self._state.clock.perf_s()
        forecast: Forecast = live.forecast_run(
            snapshot.progress,
            prior=state.prior or self._earlier_run(live),
            rates=state.factors.rates,
            passed_s=snapshot.elapsed_s,
        )
        now_s = state.clock.perf_s()
        self._earliest_s = now_s + (now_s - began_s) / _MAX_TIME_SHARE
        wait_s = min(_MIN_PROGRESS_SHARE * forecast.duration_s.point, _MIN_GROWTH * state.elapsed_s)
        self._next_s = max(self._earliest_s, now_s + wait_s)
        return forecast

    def _earlier_run(self, live: ModuleType) -> Forecast | None:
        """Return what the run that this one continues would have expected of the rest; None where it says nothing."""
        state, plan = self._state, self._state.plan
        if not self._has_read_earlier and plan is not None:
            self._has_read_earlier = True
            try:
                progress = _earlier_progress(state.run_dir.parent, state.settings.continues, plan, self._writer.fields)
                if progress is not None:
                    self._earlier = live.forecast_run(progress)
            except (OSError, GreenloveError, ValueError) as error:  # somebody's log, and we do without it
                _log.debug("greenlove_tracker: no speed from run %s: %r", state.settings.continues, error)
        return self._earlier

    def _issued(self, forecast: Forecast, snapshot: _ProgressSnapshot) -> IssuedForecast:
        return IssuedForecast.of(
            forecast,
            issued_at=timestamp(self._state.started_utc_s + snapshot.elapsed_s),
            elapsed_s=snapshot.elapsed_s,
            epochs_done=snapshot.epochs_done,
            steps_done=snapshot.steps_done,
            planned=int(snapshot.progress.total_units),
        )


# What a run and the one that it continues have in common where the speed of the one tells of the other's.
_SAME_MACHINE = ("gpu_models", "gpu_count", "gpu_power_limit_w", "cpu_model", "cpu_threads", "world_size")
_MOST_EARLIER_BYTES = 1_000_000  # of rows that are read beside a training: months of segments, and some 50 ms


def _earlier_progress(log_dir: Path, run_id: str, plan: Plan, fields: Mapping[str, Field]) -> Progress | None:
    """Return the progress of an earlier run, with as much to come as this one does; None where it tells nothing.

    That is where it is not there, trained on another machine, counted in the other unit, or had phases: its steps were
    not all alike.
    """
    if not run_id or plan.phases or plan.length is None or not (log_dir / run_id).is_dir():
        return None
    from greenlove_tracker.logs.run import Run
    from greenlove_tracker.logs.schema import epochs_file

    if (log_dir / run_id / epochs_file(0)).stat().st_size > _MOST_EARLIER_BYTES:
        return None
    run = Run(log_dir / run_id)
    was_in_epochs = bool(run.text("epochs_planned"))
    known = [(run.text(name), fields[name].value) for name in _SAME_MACHINE if name in fields and run.text(name)]
    if was_in_epochs != plan.is_in_epochs or run.text("phases") or any(a != b for a, b in known):
        return None
    log = ProgressLog(is_resumed=bool(run.text("first_epoch") or run.text("first_step") or run.text("continues")))
    steps, passed_s, paused_s = 0, 0.0, 0.0
    for row in run.rows.get(0, ()):
        log.add_row(row)
        passed_s += row.gap_before_s + row.duration_s
        if row.epoch is not None and row.counts.steps:
            paused_s += row.gap_before_s if steps else 0.0
            steps += row.counts.steps
            log.add_steps(steps, passed_s, paused_s, 0.0)
    progress = log.in_epochs(log.epochs_done + plan.length) if was_in_epochs else log.in_steps(steps + plan.length)
    return progress if progress.warm_blocks else None


_loading = threading.Lock()

if hasattr(os, "register_at_fork"):
    # A child that is forked in the middle of an import would wait for it for ever.
    os.register_at_fork(before=_loading.acquire, after_in_parent=_loading.release, after_in_child=_loading.release)


_LIVE = "greenlove_tracker.extrapolation.live"


def _is_live_loaded() -> bool:
    return _LIVE in sys.modules and not _loading.locked()


def _load_live() -> ModuleType:
    if _is_live_loaded():
        return sys.modules[_LIVE]
    with _loading, only_libraries():
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
    on either side, is taken to be the other's. A run that resumes takes the rest of a forecast of the whole training.

    Raises:
        UsageError: where the prior is none, or a forecast alone is of another number.
    """
    if prior is None:
        return None
    if not isinstance(prior, Forecast | ExplorationResult):
        raise UsageError(f"prior must be what estimate() gives, or a Forecast, as of extrapolate(), not {prior!r}")
    forecast = prior if isinstance(prior, Forecast) else prior.forecast
    if forecast.plan is None or not plan.length:
        return forecast
    if isinstance(prior, Forecast) and (rest := _rest_of(prior, plan)) is not None:
        return rest
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


def _rest_of(forecast: Forecast, plan: Plan) -> Forecast | None:
    """Return the part of a forecast of the whole training that a run which resumes has before it, with a start.

    The error is taken to be that of the speed, so that it shrinks with the time. None where the forecast is of another
    length, or of phases.
    """
    if not plan.is_resumed or plan.length is None or forecast.plan is None or plan.phases or forecast.plan.phases:
        return None
    unit, done = ("epochs", plan.first_epoch) if plan.is_in_epochs else ("steps", plan.first_step)
    whole = forecast.plan.with_length(**{unit: done + plan.length})
    if not math.isclose(_all_batches(whole), _all_batches(forecast.plan)):
        return None
    share, one_off_s = plan.length / (done + plan.length), forecast.one_off_s.point

    def part(estimate: Estimate | None) -> Estimate | None:
        return None if estimate is None else estimate.times(share, estimate.unit)

    p99_s = forecast.duration_p99_s
    return replace(
        forecast,
        duration_s=forecast.duration_s.plus(-one_off_s).times(share, "s").plus(one_off_s),
        energy_kwh=part(forecast.energy_kwh),
        emissions_kgco2e=part(forecast.emissions_kgco2e),
        cost_usd=part(forecast.cost_usd),
        between_s=part(forecast.between_s),
        duration_p99_s=None if p99_s is None else one_off_s + (p99_s - one_off_s) * share,
        plan=whole.with_length(**{unit: plan.length}),
    )


def _all_batches(plan: TrainingPlan) -> float:
    return plan.n_epochs * plan.batches_per_epoch


def _length(plan: TrainingPlan) -> str:
    return plural(plan.epochs, "epoch") if plan.epochs is not None else plural(plan.steps or 0, "step")


_Item = TypeVar("_Item")


def _joined(items: list[_Item], size: Callable[[_Item], float], join: Callable[[_Item, _Item], _Item | None]) -> None:
    """Join neighbours in place, once there are four times as many as need be, to twice as many at most.

    Args:
        items: in order.
        size: of an item; none becomes larger than a 128th of all.
        join: two neighbours; None where they are not to be joined.
    """
    if len(items) < 4 * _FEWEST_BLOCKS:
        return
    most = math.fsum(map(size, items)) / _FEWEST_BLOCKS
    result: list[_Item] = []
    for item in items:
        fits = bool(result) and size(result[-1]) + size(item) <= most
        both = join(result[-1], item) if fits else None
        if both is None:
            result.append(item)
        else:
            result[-1] = both
    items[:] = result


def _joined_blocks(a: Block, b: Block) -> Block | None:
    if a.is_cold != b.is_cold or a.between_s is None or b.between_s is None:
        return None
    paused_s, between_s = a.paused_s + b.paused_s, a.between_s + b.between_s
    work = None if a.work is None or b.work is None else a.work + b.work
    return Block(a.units + b.units, a.active_s + b.active_s, paused_s, between_s, a.is_cold, work)


def work_in(counts: Counts) -> float | None:
    """Return the tokens that a loop told of, else its samples; None where it told of neither, or in a tensor.

    To read a tensor would wait for the device.
    """
    for count in (counts.tokens, counts.samples):
        if isinstance(count, int | float | Real) and 0 < count < math.inf:
            return float(count)
    return None


class _PowerLog:
    """The mean powers of what was metered, each over a second at least."""

    def __init__(self) -> None:
        self._stretches: list[tuple[float, float]] = []  # durations in s, and energies in kWh
        self._of_epoch: list[tuple[float, float]] = []  # those since the last epoch's end
        self._pending_s, self._pending_kwh = 0.0, 0.0

    def add(self, duration_s: float, energy_kwh: float) -> None:
        self._pending_s += duration_s
        self._pending_kwh += energy_kwh
        if self._pending_s >= _LEAST_POWER_S:
            self._of_epoch.append((self._pending_s, self._pending_kwh))
            self._pending_s, self._pending_kwh = 0.0, 0.0

    def end_epoch(self, *, is_partly_metered: bool) -> None:
        """Keep the powers of the epoch; or leave them out: they are those of its end, not of an epoch."""
        if is_partly_metered:
            self._pending_s, self._pending_kwh = 0.0, 0.0
        else:
            self._stretches += self._of_epoch
            _joined(self._stretches, lambda s: s[0], lambda a, b: (a[0] + b[0], a[1] + b[1]))
        self._of_epoch = []

    def stretches(self) -> list[tuple[float, float]]:
        """Return durations in s and energies in kWh, in order."""
        return self._stretches + self._of_epoch


@dataclass(slots=True)
class _EpochTimes:
    active_s: float = 0.0
    paused_s: float = 0.0
    between_s: float = 0.0  # the gap behind it
    loading_s: float = 0.0  # of its active time, what we slowed down
    metered_s: float = 0.0  # of its active time, what the meter saw
    counts: Counts = field(default_factory=Counts)
    ended_s: float = 0.0  # since the run began

    def block(self, between_s: float | None) -> Block:
        is_cold = self.loading_s > LOADING_SHARE * self.active_s
        return Block(1, self.active_s, self.paused_s, between_s, is_cold, work_in(self.counts))

    @property
    def is_partly_metered(self) -> bool:
        return self.metered_s < min(self.active_s / 2, _ENOUGH_POWER_S)


class ProgressLog:
    """Adds up epochs or steps, and the gaps between them, as rows are finished.

    Args:
        is_resumed: an earlier run did a part of the training, and maybe of the first epoch here, whose batches the
            loop then skips: they count as no work, and the time until the first step is start-up.
        steps_per_epoch: of a whole epoch; None where that is not known.

    Attributes:
        first_step: the steps that the loop's first call counted, and when that was since the run began; None before.
    """

    def __init__(self, *, is_resumed: bool = False, steps_per_epoch: float | None = None) -> None:
        self._is_resumed, self._steps_per_epoch = is_resumed, steps_per_epoch
        self.first_step: tuple[int, float] | None = None
        self._resumed: _EpochTimes | None = None  # the first epoch of a run that resumes, which may be a part of one
        self._after_resumed: _EpochTimes | None = None  # the epoch behind it
        self._epochs: list[Block] = []  # those that were followed by another, so that the gap behind them is known
        self._n_epochs = 0  # all that are done
        self._last: _EpochTimes | None = None  # done, and not followed yet
        self._open: _EpochTimes | None = None
        self._startup_s = 0.0
        self._rows_s = 0.0  # all that rows hold
        self._settled_s = 0.0  # up to the last epoch's end, or the gap behind it where that is known
        self._wait_s = 0.0  # of the gap that is open: it took time, and will not come again
        self._power = _PowerLog()
        self._metered_s, self._metered_kwh = 0.0, 0.0
        self._steps: list[Block] = []
        self._first_step: tuple[int, float] | None = None  # steps and time at the end of the first one
        # steps, active time, pauses, our loading and the work that the loop told of, up to the last block
        self._last_step: tuple[int, float, float, float, float | None] = (0, 0.0, 0.0, 0.0, None)

    @property
    def epochs_done(self) -> int:
        """Epochs that ran to their end."""
        return self._n_epochs

    @property
    def has_power(self) -> bool:
        """True once a mean power is known."""
        return bool(self._power.stretches())

    def add_row(self, row: Row) -> None:
        """Add a finished row."""
        if Flag.WAITING in row.flags:  # it will not come again, and neither will the power of an idle machine
            self._rows_s += row.gap_before_s
            return
        self._add_energy(row.gap_before_s, row.gap_before)
        is_metered = self._add_energy(row.duration_s, row.energy)
        self._rows_s += row.gap_before_s
        self._add_gap(row.gap_before_s)
        if row.epoch is not None:
            if self._open is None and self._last is not None:  # the gap behind the last one is over
                if self._last is not self._resumed:
                    self._epochs.append(self._last.block(self._last.between_s))
                    _joined(self._epochs, lambda block: block.units, _joined_blocks)
                self._last, self._settled_s = None, self._rows_s
            self._open = self._open or _EpochTimes()
            self._open.active_s += row.duration_s
            self._open.counts += row.counts
            self._open.loading_s += row.duration_s if Flag.LOADING in row.flags else 0.0
            self._open.metered_s += row.duration_s if is_metered else 0.0
        self._rows_s += row.duration_s
        if Flag.UNFINISHED in row.flags:
            self._open = None  # it is done again: what it took is lost time
        elif row.kind is RowKind.EPOCH and self._open is not None:
            self._power.end_epoch(is_partly_metered=self._open.is_partly_metered)
            self._last, self._open, self._settled_s = self._open, None, self._rows_s
            self._last.ended_s = self._rows_s
            if self._is_resumed and self._n_epochs == 0:
                self._resumed = self._last
            elif self._is_resumed and self._n_epochs == 1:
                self._after_resumed = self._last
            self._n_epochs += 1

    def _add_gap(self, gap_s: float) -> None:
        wait_s = min(gap_s, self._wait_s)
        self._wait_s -= wait_s
        if self._open is not None:
            self._open.paused_s += gap_s - wait_s
        elif self._last is not None:
            self._last.between_s += gap_s - wait_s
        elif self._epochs:  # behind one that was cut off
            before = self._epochs[-1]
            self._epochs[-1] = replace(before, between_s=(before.between_s or 0.0) + gap_s - wait_s)
        elif self._resumed is not None:
            self._resumed.between_s += gap_s - wait_s
        else:
            self._startup_s += gap_s

    def _add_energy(self, duration_s: float, energy: Energy) -> bool:
        """Add a stretch of time and its energy; return False where that is not known."""
        energy_kwh = energy.total_kwh
        if energy_kwh is None or duration_s <= 0:
            return False
        self._metered_s += duration_s
        self._metered_kwh += energy_kwh
        self._power.add(duration_s, energy_kwh)
        return True

    def add_steps(
        self, steps: int, stepped_at_s: float, paused_s: float, loading_s: float, work: float | None = None
    ) -> None:
        """Add the steps since the last call, of a training that counts in steps.

        What came before the end of the first call's steps is start-up: loading, compiling.

        Args:
            steps: all that are done.
            stepped_at_s: the end of the last one, since the run began.
            paused_s: pauses until then.
            loading_s: for how long we have been loading beside them.
            work: tokens or samples of all of them; None where that is not known.
        """
        active_s = stepped_at_s - paused_s
        if self._first_step is None:
            self._first_step, self._last_step = (steps, active_s), (steps, active_s, paused_s, loading_s, work)
            return
        steps_before, active_before_s, paused_before_s, loading_before_s, work_before = self._last_step
        if steps > steps_before and active_s > active_before_s:
            taken_s, pause_s = active_s - active_before_s, paused_s - paused_before_s
            is_cold = loading_s - loading_before_s > LOADING_SHARE * taken_s
            new_work = None if work is None or work_before is None else work - work_before
            self._steps.append(Block(steps - steps_before, taken_s, pause_s, 0.0, is_cold, new_work))
            _joined(self._steps, lambda block: block.units, _joined_blocks)
            self._last_step = steps, active_s, paused_s, loading_s, work

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
            pue: multiplies every energy, and what is assumed of the node with it.
            gpu_count: GPUs.
        """
        blocks, settled_s, startup_s = list(self._epochs), self._settled_s, self._startup_s
        between_s = None
        if self._last is not None and open_gap_s is not None:
            between_s = self._last.between_s + max(0.0, open_gap_s - self._wait_s)
            settled_s = self._rows_s + open_gap_s
        if self._resumed is not None:
            first = self._resumed_block(self._resumed, between_s if self._last is self._resumed else None)
            startup_s += self._resumed.active_s - first.active_s
            blocks.insert(0, first)
        if self._last is not None and self._last is not self._resumed:
            blocks.append(self._last.block(between_s))
        progress = self._progress(total, self._n_epochs, blocks, settled_s, startup_s, pue, gpu_count)
        is_unclear = self._resumed is not None and self._share_of_resumed(self._resumed.counts) is None
        return replace(progress, may_be_part=is_unclear and self._n_epochs == 1)

    def _resumed_block(self, first: _EpochTimes, between_s: float | None) -> Block:
        """Return the first epoch of a run that resumes: so much of an epoch as its batches are of those of a whole one.

        Where the loop does not count its steps, nobody can tell, and unless it took about as long as the next one it is
        no measure of the others. Until that one has ended it is taken for a whole one.
        """
        whole = first.block(first.between_s if self._last is not first else between_s)
        share = self._share_of_resumed(first.counts)
        if share is None and self._after_resumed is not None:
            is_alike = abs(first.active_s - self._after_resumed.active_s) <= _ALIKE * self._after_resumed.active_s
            return whole if is_alike else replace(whole, is_cold=True)
        if share is not None and share >= _WHOLE_EPOCH:
            return whole
        counted = 0.0  # of its steps, those behind the first one, before which batches were skipped
        if self.first_step is not None and first.counts.steps:
            counted = 1.0 - self.first_step[0] / first.counts.steps
            active_s = first.ended_s - self.first_step[1] - first.paused_s
        if counted <= 0.0 or active_s <= 0.0:
            return whole if share is None else replace(whole, units=share, is_cold=True)
        work = None if whole.work is None else whole.work * counted
        return replace(whole, units=(share or 1.0) * counted, active_s=active_s, work=work)

    def _share_of_resumed(self, counts: Counts) -> float | None:
        """Return how much of an epoch the first one is, by what was counted in it and in a whole one; None: unknown.

        Of steps, batches, samples and tokens it is the largest share: batches that were skipped are in none of them.
        """
        if self._n_epochs < 2:
            steps = self._steps_per_epoch
            return min(1.0, counts.steps / steps) if steps and counts.steps else None
        mine, whole = astuple(counts), astuple(self._after_resumed.counts if self._after_resumed else Counts())
        shares = [a / b for a, b in zip(mine, whole, strict=True) if a and b]
        return min(1.0, max(shares)) if shares else None

    def in_steps(self, total: int, *, pue: float = 1.0, gpu_count: int = 0) -> Progress:
        """Return the progress of a training of ``total`` steps."""
        first_s = self._first_step[1] if self._first_step else 0.0
        done, active_s, paused_s, *_ = self._last_step
        progress = self._progress(total, done, self._steps, active_s + paused_s, first_s, pue, gpu_count)
        return replace(progress, is_in_steps=True)

    def _progress(
        self, total: int, done: int, blocks: list[Block], elapsed_s: float, startup_s: float, pue: float, gpu_count: int
    ) -> Progress:
        used_kwh, stretches = None, self._power.stretches()
        if stretches:
            seconds, energies_kwh = map(math.fsum, zip(*stretches, strict=True))
            mean_w = w_from_kwh_s(energies_kwh, seconds) or 0.0
            unmetered_s = elapsed_s - self._metered_s  # negative: of an epoch that is open
            used_kwh = (self._metered_kwh + kwh_from_w_s(mean_w, unmetered_s)) * pue
        metered = tuple((s, (w_from_kwh_s(kwh, s) or 0.0) * pue) for s, kwh in stretches)
        return Progress(total, done, tuple(blocks), startup_s, elapsed_s, metered, used_kwh, gpu_count)
