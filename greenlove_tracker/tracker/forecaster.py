"""Where a run is heading: forecasts while it runs, and the budgets it was given."""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from types import ModuleType
from typing import Protocol, runtime_checkable

from greenlove_tracker import format as fmt
from greenlove_tracker.config import Settings, deadline
from greenlove_tracker.errors import UsageError
from greenlove_tracker.forecasting import Block, Forecast, Progress, TrainingPlan, WarningCode
from greenlove_tracker.format import plural
from greenlove_tracker.logs.forecasts import IssuedForecast
from greenlove_tracker.logs.totals import RunFactors
from greenlove_tracker.logs.writer import timestamp
from greenlove_tracker.records import Clock, Energy, Flag, Row, RowKind
from greenlove_tracker.tracker.budgets import Overrun, find_overruns
from greenlove_tracker.tracker.recorder import Recorder, used_so_far
from greenlove_tracker.tracker.state import Plan
from greenlove_tracker.units import kwh_from_w_s, w_from_kwh_s

_MOST_OF_TIME = 0.02  # forecasting takes no larger share of the time than this

_FIRST_ENERGY_S = 5.0  # a training in steps has its power read this early; later each minute

_LEAST_STEP = 0.002  # nor is one made before this share of the forecast time has passed: some 500 in a run


@dataclass(frozen=True, slots=True)
class ProgressSnapshot:
    """What a forecast is made from, and when that was."""

    progress: Progress
    elapsed_s: float
    epochs_done: int
    steps_done: int


class RunForecaster:
    """Forecasts one run, and compares it with its budgets.

    The session holds its lock for ``take``, ``look``, ``keep`` and ``check_budgets``; ``forecast_of``, which takes
    longer, needs none. Looks and forecasts alternate: the worker sees to that.

    Args:
        settings: with the budgets.
        plan: None or without a number: nothing can be forecast.
        prior: of an exploration of this training.
        terms: what energy is multiplied with.
        clock: for the time it takes itself.
        begun: when the run began, by both clocks.
    """

    def __init__(
        self,
        settings: Settings,
        plan: Plan | None,
        prior: Forecast | None,
        terms: RunFactors,
        clock: Clock,
        begun: tuple[float, float],
    ) -> None:
        self.overruns: list[Overrun] = []  # found, and not acted on yet
        self._clock, self._begun = clock, begun
        self._log = ProgressLog(terms.pue)
        self._seen_units, self._due_s, self._free_s = 0, 0.0, 0.0
        self.adopt(settings, plan, prior, terms)

    def adopt(self, settings: Settings, plan: Plan | None, prior: Forecast | None, terms: RunFactors) -> None:
        """What the run is, or what a script's own tracker brings that joins it: it begins anew from there."""
        self.plan, self.terms, self._prior = plan, terms, prior
        self.latest: Forecast | None = prior
        self._log.pue = terms.pue
        self._limits = _limits(settings, self._begun[1])
        self._threshold = settings.overrun_probability
        self._found: set[str] = set()
        self._is_wanted = settings.epochs_before_pred > 0

    @property
    def has_budgets(self) -> bool:
        """Whether there is any to hold."""
        return bool(self._limits)

    def take(self, row: Row) -> None:
        """Add a finished row."""
        self._log.take(row)

    def lose(self, duration_s: float) -> None:
        """So much of the time since the last epoch was waiting for an answer."""
        self._log.lose(duration_s)

    def look(self, recorder: Recorder, gpu_count: int, *, at_once: bool = False) -> ProgressSnapshot | None:
        """What to forecast from, where more is done than at the last time; None where it is not yet time.

        Args:
            recorder: of the run.
            gpu_count: GPUs of this node.
            at_once: somebody asks: only our own share of the time is heeded.
        """
        plan, now_s = self.plan, self._clock.perf_s()
        total = None if plan is None else plan.epochs or plan.total_steps
        if plan is None or total is None or not self._is_wanted:
            return None
        done = recorder.epochs_done if plan.epochs else recorder.steps_done
        if done > total:
            self.latest = None  # it was of another training
        if done >= total or done <= self._seen_units or now_s < (self._free_s if at_once else self._due_s):
            return None
        progress = self._in_epochs(recorder, total, gpu_count) if plan.epochs else None
        progress = progress or self._in_steps(recorder, total, gpu_count)
        if progress is None or not progress.blocks:
            return None
        self._seen_units = done
        return ProgressSnapshot(progress, now_s - self._begun[0], recorder.epochs_done, recorder.steps_done)

    def _in_epochs(self, recorder: Recorder, total: int, gpu_count: int) -> Progress:
        open_gap_s = None if recorder.epoch is None else recorder.gap_before_open_s
        return self._log.in_epochs(total, open_gap_s, gpu_count)

    def _in_steps(self, recorder: Recorder, total: int, gpu_count: int) -> Progress | None:
        if recorder.first_step is None or recorder.stepped_at_s is None:
            return None
        if recorder.is_metering and not self._log.has_energy and recorder.open_for_s() > _FIRST_ENERGY_S:
            recorder.cut()  # or nothing would be known of its power for a minute
        steps, ended_s = recorder.first_step
        self._log.take_steps(steps, ended_s - self._begun[0], 0.0)
        self._log.take_steps(recorder.steps_done, recorder.stepped_at_s - self._begun[0], recorder.paused_s)
        return self._log.in_steps(total, gpu_count)

    def forecast_of(self, look: ProgressSnapshot) -> Forecast:
        """The forecast; it takes some 20 ms, and a moment more the first time, when SciPy is loaded."""
        live = _load_live()
        began_s = self._clock.perf_s()
        forecast: Forecast = live.forecast_run(
            look.progress, prior=self._prior, rates=self.terms.rates, passed_s=look.elapsed_s
        )
        now_s = self._clock.perf_s()
        self._free_s = now_s + (now_s - began_s) / _MOST_OF_TIME
        self._due_s = max(self._free_s, now_s + _LEAST_STEP * forecast.duration_s.point)
        return forecast

    def keep(self, forecast: Forecast, look: ProgressSnapshot) -> IssuedForecast:
        """Make it the latest one, and give it as it is to be logged."""
        self.latest = forecast
        return IssuedForecast.of(
            forecast,
            issued_at=timestamp(self._begun[1] + look.elapsed_s),
            elapsed_s=look.elapsed_s,
            epochs_done=look.epochs_done,
            steps_done=look.steps_done,
            planned=int(look.progress.total_units),
        )

    def check_budgets(self, metered_kwh: float | None, gpu_count: int) -> list[Overrun]:
        """The budgets that are newly found to be overrun; what is known from a possibly cold start does not count."""
        elapsed_s = self._clock.perf_s() - self._begun[0]
        used = used_so_far(self.terms, elapsed_s, metered_kwh, gpu_count)
        limits = {q: limit for q, limit in self._limits.items() if q not in self._found}
        is_early = self.latest is not None and any(w.name == WarningCode.FEW for w in self.latest.warnings)
        found = find_overruns(limits, None if is_early else self.latest, used, self._threshold)
        self._found |= {overrun.quantity for overrun in found}
        self.overruns += found
        return found

    def unchecked(self, metered_kwh: float | None, gpu_count: int, why_no_energy: str) -> Mapping[str, str]:
        """The budgets that nobody can tell whether they were held, each with a sentence that says why."""
        used = used_so_far(self.terms, 0.0, metered_kwh, gpu_count)
        why = dict.fromkeys(used, why_no_energy)
        if self.terms.electricity_price is None and self.terms.price_usd_per_gpu_hour is None:
            why["cost_usd"] = "no price is known, of electricity or of the machine"
        elif metered_kwh is not None:
            why["cost_usd"] = "the price is one of a GPU-hour, and no GPU was found"
        told = {}
        for quantity in (q for q in self._limits if used[q] is None):
            name, text = fmt.QUANTITIES[quantity]
            limit = text(self._limits[quantity])
            told[quantity] = f"{name} is unknown, so the limit of {limit} could not be checked: {why[quantity]}"
        return told


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


def _limits(settings: Settings, begun_utc_s: float) -> Mapping[str, float]:
    limits = {
        "energy_kwh": settings.max_energy_kwh,
        "cost_usd": settings.max_cost_usd,
        "emissions_kgco2e": settings.max_kgco2e,
        "duration_s": None,
    }
    deadline_utc_s = deadline(settings.deadline_utc, os.environ)
    if deadline_utc_s is not None:
        limits["duration_s"] = deadline_utc_s - begun_utc_s
    return {quantity: limit for quantity, limit in limits.items() if limit is not None}


# -- What is expected of a run before it says anything itself: an earlier exploration's forecast, of the same length --


@runtime_checkable
class ExplorationResult(Protocol):
    """An exploration, such as ``Estimator.estimate()`` gives: its forecast, and that of another length."""

    @property
    def forecast(self) -> Forecast:
        """Of what was explored for."""

    def forecast_for(self, plan: TrainingPlan) -> Forecast:
        """From the same trials for another plan."""


def prior_for(prior: Forecast | ExplorationResult | None, plan: Plan) -> Forecast | None:
    """The forecast of a run of this plan.

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


# -- What a run has done so far, from its rows: what a forecast of the whole starts from --


@dataclass(slots=True)
class _EpochProgress:
    active_s: float = 0.0
    paused_s: float = 0.0
    between_s: float = 0.0  # the gap behind it
    is_followed: bool = False  # by the next epoch, so that the gap behind it is known


class ProgressLog:
    """Puts rows together as they come.

    Args:
        pue: multiplies every energy.
    """

    def __init__(self, pue: float) -> None:
        self.pue = pue
        self._epochs: list[_EpochProgress] = []
        self._open: _EpochProgress | None = None
        self._startup_s = 0.0
        self._rows_s = 0.0  # all that rows hold
        self._settled_s = 0.0  # up to the last epoch's end, or the gap behind it where that is known
        self._lost_s = 0.0  # of the gap that is open: it took time, and will not come again
        self._metered: list[tuple[float, float]] = []
        self._metered_s, self._metered_kwh = 0.0, 0.0
        self._steps: list[Block] = []
        self._first_step: tuple[int, float] | None = None  # steps and time at the end of the first one
        self._stepped = (0, 0.0, 0.0)  # steps, active time and pauses up to the last block

    @property
    def has_energy(self) -> bool:
        """Whether anything was metered."""
        return self._metered_s > 0

    def take(self, row: Row) -> None:
        """Add a row."""
        self._meter(row.gap_before_s, row.gap_before)
        self._meter(row.duration_s, row.energy)
        self._rows_s += row.gap_before_s
        self._add_gap(row.gap_before_s)
        if row.epoch is not None:
            self._follow()
            self._open = self._open or _EpochProgress()
            self._open.active_s += row.duration_s
        self._rows_s += row.duration_s
        if Flag.UNFINISHED in row.flags:
            self._open = None  # it is done again: what it took is lost time
        elif row.kind is RowKind.EPOCH and self._open is not None:
            self._epochs.append(self._open)
            self._open, self._settled_s = None, self._rows_s

    def lose(self, duration_s: float) -> None:
        """So much of the gap that is open was waiting for somebody, and will not come again."""
        self._lost_s += duration_s

    def _add_gap(self, gap_s: float) -> None:
        lost_s = min(gap_s, self._lost_s)
        self._lost_s -= lost_s
        if self._open is not None:
            self._open.paused_s += gap_s - lost_s
        elif self._epochs:
            self._epochs[-1].between_s += gap_s - lost_s
        else:
            self._startup_s += gap_s

    def _follow(self) -> None:
        """The gap behind the last epoch is over."""
        if self._open is None and self._epochs and not self._epochs[-1].is_followed:
            self._epochs[-1].is_followed, self._settled_s = True, self._rows_s

    def _meter(self, duration_s: float, energy: Energy) -> None:
        energy_kwh = energy.total_kwh
        if energy_kwh is None or duration_s <= 0:
            return
        self._metered_s += duration_s
        self._metered_kwh += energy_kwh
        self._metered.append((duration_s, (w_from_kwh_s(energy_kwh, duration_s) or 0.0) * self.pue))

    def take_steps(self, steps: int, stepped_at_s: float, paused_s: float) -> None:
        """Where a training that counts in steps stands: steps, the time of the last one's end, and pauses till then.

        What came before the end of the first call's steps is start-up: loading, compiling.
        """
        active_s = stepped_at_s - paused_s
        if self._first_step is None:
            self._first_step, self._stepped = (steps, active_s), (steps, active_s, paused_s)
            return
        before, active_before_s, paused_before_s = self._stepped
        if steps > before and active_s > active_before_s:
            block = Block(steps - before, active_s - active_before_s, paused_s - paused_before_s, 0.0)
            self._steps.append(block)
            self._stepped = steps, active_s, paused_s

    def in_epochs(self, total: int, open_gap_s: float | None = None, gpu_count: int = 0) -> Progress:
        """A training of ``total`` epochs.

        Args:
            total: epochs of the whole training.
            open_gap_s: of the epoch that has begun, the gap before it that no row holds yet; None where none has.
            gpu_count: GPUs.
        """
        blocks = [Block(1, e.active_s, e.paused_s, e.between_s if e.is_followed else None) for e in self._epochs]
        settled_s = self._settled_s
        if open_gap_s is not None and blocks and blocks[-1].between_s is None:
            last = self._epochs[-1]
            between_s = last.between_s + max(0.0, open_gap_s - self._lost_s)
            blocks[-1] = Block(1, last.active_s, last.paused_s, between_s)
            settled_s = self._rows_s + open_gap_s
        return self._progress(total, len(blocks), blocks, settled_s, self._startup_s, gpu_count)

    def in_steps(self, total: int, gpu_count: int = 0) -> Progress:
        """A training of ``total`` steps."""
        first_s = self._first_step[1] if self._first_step else 0.0
        done, active_s, paused_s = self._stepped
        return self._progress(total, done, self._steps, active_s + paused_s, first_s, gpu_count)

    def _progress(
        self, total: int, done: int, blocks: list[Block], elapsed_s: float, startup_s: float, gpu_count: int
    ) -> Progress:
        used_kwh = None
        if self._metered_s > 0:
            mean_w = w_from_kwh_s(self._metered_kwh, self._metered_s) or 0.0
            unmetered_s = elapsed_s - self._metered_s  # negative: of an epoch that is open
            used_kwh = (self._metered_kwh + kwh_from_w_s(mean_w, unmetered_s)) * self.pue
        return Progress(total, done, tuple(blocks), startup_s, elapsed_s, tuple(self._metered), used_kwh, gpu_count)
