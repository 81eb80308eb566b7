"""The line that tells how far a run is: after each epoch on a terminal, and once a minute in a job's log."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping

from greenlove_tracker import format as fmt
from greenlove_tracker.console import fitting, is_terminal, say_above_bars
from greenlove_tracker.forecasting import Estimate, Forecast
from greenlove_tracker.tracker.part import RunPart, RunParts
from greenlove_tracker.tracker.state import RunMode

_TERMINAL_INTERVAL_S, _LOG_INTERVAL_S = 0.5, 60.0  # at most a line so often on a terminal (each tick), in a job's log,
_SHARE = 50  # nor more often than this part of the time so far
_NAME = "greenlove  "


class StatusPrinter(RunPart):
    """Tells the first rank's progress in whole lines: a line drawn over itself would mix with what the script prints.

    Args:
        run: that it is a part of.
    """

    def __init__(self, run: RunParts) -> None:
        super().__init__(run)
        self._interval_s = _TERMINAL_INTERVAL_S if is_terminal(sys.stderr) else _LOG_INTERVAL_S
        self._next_s = 0.0
        self._told: object = None

    def tick(self) -> None:
        """Tell the line where it is time, and an epoch has ended since the last one, or the prospect is another."""
        state = self._state
        is_shown = state.settings.verbose >= 1 and state.is_first_rank and not state.is_training_over
        if not is_shown or state.mode is RunMode.EXPLORATION:  # which draws a line of its own
            return
        with state.lock:
            news, text = self._news(), self.text()
        if state.is_finished or news is None or news == self._told or state.elapsed_s < self._next_s:
            return
        say_above_bars(f"{_NAME}{text}{self._about_length() if self._told is None else ''}")
        elapsed_s = state.elapsed_s
        self._told, self._next_s = news, elapsed_s + max(self._interval_s, elapsed_s / _SHARE)

    def text(self) -> str:
        """Return the line: epochs, and time, energy, CO2e and cost, forecast where that is known, else so far."""
        state, forecast = self._state, self._state.forecast
        used = state.consumption(self._recorder.metered_kwh)
        elapsed_s = used["duration_s"] or 0.0
        parts = [fmt.brief_duration(elapsed_s)]
        if self._is_overdue(elapsed_s):
            parts, forecast = [*parts, "overdue"], None  # what it said is over, and nothing is known instead
        elif forecast is not None:
            left_s = forecast.duration_s.given_more_than(elapsed_s).plus(-elapsed_s)
            parts.append(f"ends {fmt.end_time(left_s, state.clock.utc_s())}")
        line = self._head() + " · ".join([*parts, *self._quantities(forecast, used)])
        if is_terminal(sys.stderr):  # a narrow one shows no cost, and then no CO2e
            line = fitting(line, shutil.get_terminal_size().columns - len(_NAME))
        return line

    def _quantities(self, forecast: Forecast | None, used: Mapping[str, float | None]) -> list[str]:
        """Return energy, CO2e and cost as they are forecast, or what is used so far; the dispensable last.

        A tilde stands before what no hardware measured, as on the final screen.
        """
        found, tilde = list[str](), "" if self._state.row_totals.node.measured_kwh else "~"
        is_so_far = False
        for quantity in ("energy_kwh", "emissions_kgco2e", "cost_usd"):
            text, suffix = fmt.QUANTITIES[quantity][1], " CO2e" if quantity == "emissions_kgco2e" else ""
            expected: Estimate | None = getattr(forecast, quantity, None)
            value = used[quantity] if expected is None else expected.total(used[quantity])
            if value is not None:
                before = "so far " if expected is None and not is_so_far else ""
                is_so_far = expected is None  # said once for those that follow
                found.append(f"{before}{'' if quantity == 'cost_usd' else tilde}{text(value)}{suffix}")
        return found

    def _is_overdue(self, elapsed_s: float) -> bool:
        forecast = self._state.forecast
        return forecast is not None and elapsed_s > forecast.duration_s.upper

    def _head(self) -> str:
        plan, recorder = self._state.plan, self._recorder
        if plan is not None and plan.is_in_epochs and plan.epochs:
            whole = plan.first_epoch + plan.epochs
            planned = whole if recorder.epochs_done <= plan.epochs else f"{whole} planned"
            return f"epoch {plan.first_epoch + recorder.epochs_done}/{planned} · "
        if plan is not None and plan.total_steps:
            done, whole = plan.first_step + recorder.steps_done, plan.first_step + plan.total_steps
            return f"step {done:,}/{whole:,} · "
        done = recorder.epochs_done + (plan.first_epoch if plan is not None else 0)
        return f"epoch {done} · " if recorder.epochs_begun else ""

    def _news(self) -> object:
        """Return what is worth another line where it is another; None: nothing is to be told yet."""
        state, n_epochs = self._state, self._recorder.epochs_done
        plan, forecast, elapsed_s = state.plan, state.forecast, state.elapsed_s
        is_awaited = plan is not None and bool(plan.length) and elapsed_s < self._interval_s
        if forecast is None and (is_awaited or not n_epochs):
            return None
        is_by_epoch = n_epochs and plan is not None and plan.is_in_epochs
        prospect = forecast is not None if is_by_epoch else forecast
        return n_epochs, prospect, self._is_overdue(elapsed_s)

    def _about_length(self) -> str:
        """Return where the number of epochs is from that the user did not give, or how to give it."""
        state = self._state
        if state.plan_source:
            return f" · length from {state.plan_source}"
        if state.plan is not None and state.plan.length:
            return ""
        return f" · without the number of epochs no forecast of the end: {state.length_option}"
