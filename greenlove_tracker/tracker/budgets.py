"""The part of a run that watches its budgets; the first rank does so for all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from greenlove_tracker import format as fmt
from greenlove_tracker.extrapolation.time_fit import time_fit
from greenlove_tracker.forecasting import Forecast, TimeFit
from greenlove_tracker.logs.tables import IssuedForecast
from greenlove_tracker.records import Row
from greenlove_tracker.tracker.overruns import BudgetVerdict, Overrun, find_overruns, is_of_cold_start
from greenlove_tracker.tracker.part import RunPart, RunParts
from greenlove_tracker.tracker.state import RunState

_READ_S = 5.0  # what is used is known this often where there is a budget to hold


class BudgetMonitor(RunPart):
    """Compares what is used, and the latest forecast, with the budgets of one run.

    Args:
        run: that it is a part of.
    """

    def __init__(self, run: RunParts) -> None:
        super().__init__(run)
        self._found = set[str]()  # quantities that are warned of
        self._to_act_on: list[Overrun] = []

    def tick(self) -> None:
        """Read the meter where that is long ago, and check."""
        state, recorder = self._state, self._recorder
        with state.lock:
            if not state.limits or state.is_training_over:
                return
            if state.clock.perf_s() >= recorder.read_at_s + _READ_S:
                recorder.read_within_row()
            self._check()

    def row(self, row: Row) -> None:
        """Check, where an epoch is over or goes on."""
        if row.epoch is not None:
            self._check()

    def forecast_issued(self, issued: IssuedForecast) -> None:
        """Check at once."""
        self._check()

    def between_epochs(self) -> None:
        """Call the user's code for every overrun that was found.

        Raises:
            BudgetExceeded: where a budget is overrun and the training is to stop then.
        """
        state = self._state
        while self._to_act_on:
            state.budget_actions.act(self._to_act_on.pop(0), stops=state.settings.on_overrun == "stop")

    def ending(self) -> None:
        """Warn of the budgets that the run exceeded, where forecasts count no more, and of those that are unknown."""
        state, recorder = self._state, self._recorder
        if not state.is_first_rank:
            return
        self._check(is_over=True)
        used = state.consumption(recorder.metered_kwh)
        for quantity in (q for q in state.limits if used[q] is None):
            name, text = fmt.QUANTITIES[quantity]
            lacking = "no price is known, or nothing" if quantity == "cost_usd" else "nothing"
            message = f"the limit of {text(state.limits[quantity])} could not be checked: {lacking} was metered"
            state.warn_once.warn(f"unchecked {quantity}", f"{name} is unknown, so {message}")

    def _check(self, *, is_over: bool = False) -> None:
        state = self._state
        limits = {q: limit for q, limit in state.limits.items() if q not in self._found}
        if not (limits and state.is_first_rank):
            return
        for overrun in find_overruns(
            limits, *_prospect(state, self._recorder.metered_kwh), state.settings.overrun_probability
        ):
            if is_over and not overrun.is_certain:
                continue
            self._found.add(overrun.quantity)
            if overrun.quantity == "duration_s" and state.time_limit is not None:
                overrun = replace(overrun, source=state.time_limit.source)
            self._to_act_on.append(overrun)
            state.warn_once.warn(f"budget {overrun.quantity}", f"{overrun}")


def budget_verdicts(state: RunState, metered_kwh: float | None) -> Mapping[str, BudgetVerdict]:
    """Return what the latest forecast says of each budget of which anything is known, by quantity."""
    threshold = state.settings.overrun_probability
    found = find_overruns(state.limits, *_prospect(state, metered_kwh), 0.0) if state.limits else ()
    return {overrun.quantity: overrun.verdict(threshold) for overrun in found}


def time_fit_of(state: RunState) -> TimeFit | None:
    """Return how the run fits its time limit, on the latest forecast; None without one that still tells."""
    forecast, limit_s, elapsed_s = _forecast(state), state.limits.get("duration_s"), state.elapsed_s
    if forecast is None or limit_s is None or elapsed_s > forecast.duration_s.upper:
        return None
    return time_fit(forecast, limit_s - _lost_s(state), passed_s=elapsed_s)


def _forecast(state: RunState) -> Forecast | None:
    """Return the latest forecast that says more than a cold start."""
    forecast = state.forecast
    return None if forecast is None or is_of_cold_start(forecast) else forecast


def _lost_s(state: RunState) -> float:
    """Return what has passed by the calendar and is not the run's: a deadline is a time of day.

    A suspended machine, or another run of this process, brings it nearer.
    """
    return state.clock.utc_s() - state.started_utc_s - state.elapsed_s


def _prospect(state: RunState, metered_kwh: float | None) -> tuple[Forecast | None, Mapping[str, float | None]]:
    """Return the forecast and the consumption that budgets are compared with."""
    forecast, elapsed_s, lost_s = _forecast(state), state.elapsed_s, _lost_s(state)
    if forecast is not None:
        duration = forecast.duration_s
        if elapsed_s <= duration.upper:  # beyond, the run is overdue, and nothing better is known
            duration = duration.given_more_than(elapsed_s)
        forecast = replace(forecast, duration_s=duration.plus(lost_s))
    return forecast, {**state.consumption(metered_kwh), "duration_s": elapsed_s + lost_s}
