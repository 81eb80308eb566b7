"""Where a run is heading: forecasts while it runs, and the budgets it was given."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from greenlove_tracker.config import Settings
from greenlove_tracker.errors import UsageError
from greenlove_tracker.forecasting import Forecast, Progress
from greenlove_tracker.logs.forecasts import IssuedForecast
from greenlove_tracker.logs.progress import ProgressLog
from greenlove_tracker.logs.totals import Terms
from greenlove_tracker.logs.writer import timestamp
from greenlove_tracker.records import Clock, Row
from greenlove_tracker.tracker.gates import Overrun, find_overruns
from greenlove_tracker.tracker.plan import Plan
from greenlove_tracker.tracker.recorder import Recorder
from greenlove_tracker.units import GRAMS_PER_KG, gco2e_from_kwh, h_from_s

if TYPE_CHECKING:
    from greenlove_tracker.extrapolation.live import Prices

_MOST_OF_TIME = 0.02  # forecasting takes no larger share of the time than this
_LEAST_STEP = 0.002  # nor is one made before this share of the forecast time has passed: some 500 in a run


class Outlook:
    """Forecasts one run, and compares it with its budgets.

    The session holds its lock for ``take``, ``look`` and ``keep``; ``forecast_of``, which takes longer, needs none.

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
        self.latest: Forecast | None = prior
        self.overruns: list[Overrun] = []  # found, and not acted on yet
        self.plan, self.terms = plan, terms
        self._prior, self._clock, self._begun = prior, clock, begun
        self._log = ProgressLog(terms.pue)
        self._limits = _limits(settings, begun[1])
        self._threshold = settings.overrun_probability
        self._found: set[str] = set()
        self._is_wanted = settings.epochs_before_pred > 0
        self._seen_units, self._due_s = 0.0, 0.0

    def adopt(self, settings: Settings, plan: Plan, prior: Forecast | None, terms: Terms) -> None:
        """What a script's own tracker brings, which joins a run that has begun."""
        self.plan, self.terms, self._prior = plan, terms, prior or self._prior
        self.latest = self.latest or prior
        self._log.pue = terms.pue
        self._limits = _limits(settings, self._begun[1])
        self._threshold = settings.overrun_probability
        self._is_wanted = settings.epochs_before_pred > 0

    def take(self, row: Row) -> None:
        """Add a finished row."""
        self._log.take(row)

    def look(self, recorder: Recorder, gpu_count: int, *, at_once: bool = False) -> Progress | None:
        """What to forecast from, where more is done than at the last time; None where it is not yet time.

        Args:
            recorder: of the run.
            gpu_count: GPUs of this node.
            at_once: however short a time ago the last forecast was made.
        """
        progress = self._progress(recorder, gpu_count)
        if progress is None or not progress.blocks or progress.done_units <= self._seen_units:
            return None
        if progress.done_units >= progress.total_units:
            return None  # there is nothing left to forecast
        if not at_once and self._clock.perf_s() < self._due_s:
            return None
        self._seen_units = progress.done_units
        return progress

    def _progress(self, recorder: Recorder, gpu_count: int) -> Progress | None:
        plan = self.plan
        if plan is None or not self._is_wanted:
            return None
        if plan.epochs is not None:
            open_gap_s = None if recorder.epoch is None else recorder.gap_before_open_s
            return self._log.in_epochs(plan.epochs, open_gap_s, gpu_count)
        if plan.total_steps is None or recorder.stepped_at_s is None:
            return None
        self._log.take_steps(recorder.steps_done, recorder.stepped_at_s - self._begun[0], recorder.paused_s)
        return self._log.in_steps(plan.total_steps, gpu_count)

    def forecast_of(self, progress: Progress) -> Forecast:
        """The forecast; it takes some 20 ms, and a moment more the first time, when SciPy is loaded."""
        from greenlove_tracker.extrapolation.live import forecast_run

        began_s = self._clock.perf_s()
        forecast = forecast_run(progress, prior=self._prior, prices=self._prices())
        now_s = self._clock.perf_s()
        pause_s = max((now_s - began_s) / _MOST_OF_TIME, _LEAST_STEP * forecast.duration_s.point)
        self._due_s = now_s + pause_s
        return forecast

    def _prices(self) -> Prices:
        from greenlove_tracker.extrapolation.live import Prices

        price = self.terms.electricity_price
        return Prices(
            self.terms.carbon_intensity.value, price.value if price else None, self.terms.price_usd_per_gpu_hour
        )

    def keep(self, forecast: Forecast, recorder: Recorder) -> IssuedForecast:
        """Make it the latest one, and give it as it is to be logged."""
        self.latest = forecast
        return IssuedForecast.of(
            forecast, issued_at=timestamp(self._clock.utc_s()), elapsed_s=self._clock.perf_s() - self._begun[0],
            epochs_done=recorder.epochs_done, steps_done=recorder.steps_done,
        )  # fmt: skip

    def check_budgets(self, metered_kwh: float | None, gpu_count: int) -> list[Overrun]:
        """The budgets that are newly found to be overrun."""
        if not self._limits:
            return []
        elapsed_s = self._clock.perf_s() - self._begun[0]
        used = used_so_far(self.terms, elapsed_s, metered_kwh, gpu_count)
        limits = {q: limit for q, limit in self._limits.items() if q not in self._found}
        found = find_overruns(limits, self.latest, used, self._threshold)
        self._found |= {overrun.quantity for overrun in found}
        self.overruns += found
        return found


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


def deadline(text: str, env: Mapping[str, str]) -> float | None:
    """Seconds since the Unix epoch of ``text``, or else of the end of the Slurm job; None where there is neither.

    Raises:
        UsageError: where ``text`` is no time.
    """
    if not text:
        slurm = env.get("SLURM_JOB_END_TIME", "")
        return float(slurm) if slurm.isdecimal() else None
    try:
        when = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"deadline_utc must be a time such as 2026-11-22T06:00, not {text!r}") from error
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
