"""The line on the terminal that shows how far a run is."""

from __future__ import annotations

import os

from greenlove_tracker import format as fmt
from greenlove_tracker.console import StatusLine, bar, say
from greenlove_tracker.forecasting import Estimate, Forecast
from greenlove_tracker.tracker.recorder import Recorder
from greenlove_tracker.tracker.state import RunState

_BAR_WIDTH = 10
_PLAIN_INTERVAL_S = 60.0  # without a terminal, a line at most this often,
_PLAIN_SHARE = 0.1  # and only where this share of the run has been done since the last


class StatusPrinter:
    """Shows the first rank's progress: one line drawn over itself on a terminal, a plain line now and then else.

    Args:
        state: of the run.
        recorder: of the run.

    Attributes:
        is_hidden: nothing is drawn: the terminal belongs to a question.
    """

    def __init__(self, state: RunState, recorder: Recorder) -> None:
        self._state, self._recorder = state, recorder
        self._line = StatusLine(even_beside_stdout=state.settings.verbose > 1)
        self._last_plain: tuple[float, float] | None = None  # when, and at which share of the run
        self.is_hidden = False

    def text(self) -> str:
        """Return the line: epochs, and time, energy, CO2e and cost, forecast where that is known, else so far."""
        state, forecast = self._state, self._state.forecast
        used = state.consumption(self._recorder.metered_kwh)
        elapsed_s = used["duration_s"] or 0.0
        parts = [fmt.duration(elapsed_s)]
        if forecast is not None:
            time = forecast.duration_s
            parts.append(f"forecast {fmt.interval(time, fmt.duration)}")
        for quantity in ("energy_kwh", "emissions_kgco2e", "cost_usd"):
            text, suffix = fmt.QUANTITIES[quantity][1], " CO2e" if quantity == "emissions_kgco2e" else ""
            expected: Estimate | None = getattr(forecast, quantity, None)
            if expected is not None:
                parts.append(text(expected.point) + suffix)
            elif used[quantity] is not None:
                parts.append(f"{text(used[quantity])}{suffix}{' so far' if forecast is not None else ''}")
        if forecast is not None:
            parts += self._ends(forecast, elapsed_s)
        return self._head() + " · ".join(parts)

    def _ends(self, forecast: Forecast, elapsed_s: float) -> list[str]:
        if elapsed_s > forecast.duration_s.upper:
            return ["overdue"]
        now_s = self._state.clock.utc_s()
        parts = [f"ends {fmt.clock_time(now_s + forecast.duration_s.point - elapsed_s, now_s)}"]
        if "SLURM_JOB_ID" in os.environ and forecast.duration_p99_s is not None:
            parts.append(f"--time={fmt.slurm_time(forecast.duration_p99_s)}")
        return parts

    def _head(self) -> str:
        plan, recorder = self._state.plan, self._recorder
        progress = bar(self._share(), _BAR_WIDTH) if self._line.is_seen else "·"
        if plan is not None and plan.epochs:
            planned = plan.epochs if recorder.epochs_done <= plan.epochs else f"{plan.epochs} planned"
            return f"epoch {recorder.epochs_done}/{planned} {progress} "
        if plan is not None and plan.total_steps:
            return f"step {recorder.steps_done:,}/{plan.total_steps:,} {progress} "
        return f"epoch {recorder.epochs_done} · " if recorder.epochs_begun else ""

    def _share(self) -> float:
        plan, recorder = self._state.plan, self._recorder
        if plan is not None and plan.epochs:
            return recorder.epochs_done / plan.epochs
        return recorder.steps_done / plan.total_steps if plan is not None and plan.total_steps else 0.0

    def show(self, text: str) -> None:
        """Draw the line; or where it would mix with what the script prints, or nobody reads it, print it seldom."""
        state = self._state
        if self.is_hidden or state.settings.verbose < 1 or not state.is_first_rank:
            return
        if self._line.is_seen:
            self._line.draw(text)
        elif state.forecast is not None and self._is_plain_line_due():
            say(f"greenlove  {text}")

    def _is_plain_line_due(self) -> bool:
        state, recorder = self._state, self._recorder
        if not recorder.steps_done + recorder.epochs_done:
            return False
        plan = state.plan
        is_in_epochs = plan is not None and plan.epochs is not None
        if is_in_epochs and recorder.epochs_done < state.settings.epochs_before_pred:
            return False
        now_s, share = state.clock.perf_s(), self._share()
        if self._last_plain is not None:
            last_s, last_share = self._last_plain
            if now_s < last_s + _PLAIN_INTERVAL_S or share < last_share + _PLAIN_SHARE:
                return False
        self._last_plain = now_s, share
        return True

    def clear(self) -> None:
        """Wipe the line."""
        self._line.clear()
