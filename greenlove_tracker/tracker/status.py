"""Print the status line of a run: after each epoch on a terminal or in a notebook, once a minute in a job's log."""

from __future__ import annotations

import shutil
import sys

from greenlove_tracker.report.status_line import about_length, status_line
from greenlove_tracker.text.console import fitting, is_terminal, say, say_above_bars, show_in_cell
from greenlove_tracker.tracker.part import RunPart, RunParts
from greenlove_tracker.tracker.state import RunMode

# The least time between two lines, on a terminal (each tick) and in a job's log.
_TERMINAL_INTERVAL_S = 0.5
_LOG_INTERVAL_S = 60.0
_SHARE = 50  # nor more often than this fraction of the elapsed time: 1/50
_NAME = "greenlove  "


class StatusPrinter(RunPart):
    """Print the progress of the first rank, each time as a new line: a redrawn line would mix with the script's output.

    A notebook has one line, in the cell that begins the run. The final screen takes its place.

    Args:
        run: the parts of the run.

    Attributes:
        show_end: prints the final screen.
    """

    def __init__(self, run: RunParts) -> None:
        super().__init__(run)
        in_cell = None
        if self._is_shown:  # now, since only the thread that runs a cell can put something new below it
            in_cell = show_in_cell(f"{_NAME}has begun to measure")
        self._in_cell = in_cell
        self._draw = in_cell or say_above_bars
        self.show_end = in_cell or say
        self._interval_s = _TERMINAL_INTERVAL_S if in_cell or is_terminal(sys.stderr) else _LOG_INTERVAL_S
        self._next_s = 0.0
        self._told: object = None

    @property
    def _is_shown(self) -> bool:
        state = self._state
        is_alone = state.mode is not RunMode.EXPLORATION  # which draws a line of its own
        return is_alone and state.settings.verbose >= 1 and state.is_first_rank

    def tick(self) -> None:
        """Print the line if it is due, and an epoch has ended or the forecast has changed."""
        state = self._state
        if not self._is_shown:
            return
        elapsed_s = state.elapsed_s
        with state.lock:
            news = self._news(elapsed_s)
            text = self.text()
        if self._told is None or self._in_cell:
            option = "Tracker(epochs=…)" if state.has_tracker else "greenlove run --epochs N"
            text += about_length(state.plan, state.plan_source, option)
        if state.is_training_over or news is None or news == self._told or elapsed_s < self._next_s:
            return  # no line stands over the final screen
        self._draw(f"{_NAME}{text}")
        self._told = news
        self._next_s = elapsed_s + max(self._interval_s, elapsed_s / _SHARE)

    def text(self) -> str:
        """Return the line. On a narrow terminal leave out cost, then CO2e."""
        state = self._state
        recorder = self._recorder
        limit_s = state.limits.get("duration_s")
        line = status_line(
            state.plan,
            state.forecast,
            state.consumption(recorder.metered_kwh),
            epochs_begun=recorder.epochs_begun,
            epochs_done=recorder.epochs_done,
            steps_done=recorder.steps_done,
            utc_s=state.clock.utc_s(),
            limit_s=None if limit_s is None else limit_s - state.lost_s,
            is_measured=bool(state.row_totals.node.measured_kwh),
        )
        if is_terminal(sys.stderr):
            return fitting(line, shutil.get_terminal_size().columns - len(_NAME))
        return line

    def _news(self, elapsed_s: float) -> object:
        """Return a value that changes when a new line is worth printing; None if there is nothing to print yet."""
        state = self._state
        n_epochs = self._recorder.epochs_done
        plan = state.plan
        forecast = state.forecast
        is_awaited = plan is not None and bool(plan.length) and elapsed_s < self._interval_s
        if forecast is None and (is_awaited or not n_epochs):
            return None
        is_by_epoch = n_epochs and plan is not None and plan.is_in_epochs
        prospect = forecast is not None if is_by_epoch else forecast
        return n_epochs, prospect, forecast is not None and elapsed_s > forecast.duration_s.upper
