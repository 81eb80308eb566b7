"""Where a run is heading: forecasts while it runs, and the budgets it was given."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from greenlove_tracker import format as fmt
from greenlove_tracker.config import Settings, deadline
from greenlove_tracker.forecasting import Forecast, Progress
from greenlove_tracker.logs.forecasts import FEW, IssuedForecast
from greenlove_tracker.logs.progress import ProgressLog
from greenlove_tracker.logs.totals import Terms
from greenlove_tracker.logs.writer import timestamp
from greenlove_tracker.records import Clock, Row
from greenlove_tracker.tracker.gates import Overrun, find_overruns
from greenlove_tracker.tracker.plan import Plan
from greenlove_tracker.tracker.recorder import Recorder
from greenlove_tracker.units import GRAMS_PER_KG, gco2e_from_kwh, h_from_s

_MOST_OF_TIME = 0.02  # forecasting takes no larger share of the time than this
_FIRST_ENERGY_S = 5.0  # a training in steps has its power read this early; later each minute
_LEAST_STEP = 0.002  # nor is one made before this share of the forecast time has passed: some 500 in a run


@dataclass(frozen=True, slots=True)
class Look:
    """What a forecast is made from, and when that was."""

    progress: Progress
    elapsed_s: float
    epochs_done: int
    steps_done: int


class Outlook:
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
        terms: Terms,
        clock: Clock,
        begun: tuple[float, float],
    ) -> None:
        self.overruns: list[Overrun] = []  # found, and not acted on yet
        self._clock, self._begun = clock, begun
        self._log = ProgressLog(terms.pue)
        self._seen_units, self._due_s, self._free_s = 0, 0.0, 0.0
        self.adopt(settings, plan, prior, terms)

    def adopt(self, settings: Settings, plan: Plan | None, prior: Forecast | None, terms: Terms) -> None:
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

    def look(self, recorder: Recorder, gpu_count: int, *, at_once: bool = False) -> Look | None:
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
        return Look(progress, now_s - self._begun[0], recorder.epochs_done, recorder.steps_done)

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

    def forecast_of(self, look: Look) -> Forecast:
        """The forecast; it takes some 20 ms, and a moment more the first time, when SciPy is loaded."""
        live = _load_live()
        began_s = self._clock.perf_s()
        forecast: Forecast = live.forecast_run(
            look.progress, prior=self._prior, prices=self._prices(live), passed_s=look.elapsed_s
        )
        now_s = self._clock.perf_s()
        self._free_s = now_s + (now_s - began_s) / _MOST_OF_TIME
        self._due_s = max(self._free_s, now_s + _LEAST_STEP * forecast.duration_s.point)
        return forecast

    def _prices(self, live: ModuleType) -> Any:
        price = self.terms.electricity_price
        return live.Prices(
            self.terms.carbon_intensity.value, price.value if price else None, self.terms.price_usd_per_gpu_hour
        )

    def keep(self, forecast: Forecast, look: Look) -> IssuedForecast:
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
        is_early = self.latest is not None and any(w.name == FEW for w in self.latest.warnings)
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


def used_so_far(
    terms: Terms, elapsed_s: float, metered_kwh: float | None, gpu_count: int
) -> Mapping[str, float | None]:
    """What a run has taken, by quantity; None where it is not known."""
    energy_kwh = None if metered_kwh is None else metered_kwh * terms.pue
    cost_usd = None
    if terms.price_usd_per_gpu_hour is not None and gpu_count > 0:
        cost_usd = terms.price_usd_per_gpu_hour * gpu_count * h_from_s(elapsed_s)
    elif terms.electricity_price is not None and energy_kwh is not None:
        cost_usd = terms.electricity_price.value * energy_kwh
    grams = None if energy_kwh is None else gco2e_from_kwh(energy_kwh, terms.carbon_intensity.value)
    return {
        "duration_s": elapsed_s,
        "energy_kwh": energy_kwh,
        "emissions_kgco2e": None if grams is None else grams / GRAMS_PER_KG,
        "cost_usd": cost_usd,
    }


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
