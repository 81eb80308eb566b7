"""Pauses between two epochs while the grid is dirty, where the user asked for them.

The training's thread stands still in ``epoch_start()``; the meter goes on, and what is drawn meanwhile is a gap of the
log. No network is asked here: ``LiveIntensity`` does so on its own thread, and its last figure is looked at. Where only
the table counts nothing is known of the hour, and nobody is held up by that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from greenlove_tracker import format as fmt
from greenlove_tracker.console import say
from greenlove_tracker.forecasting import FITS, Forecast
from greenlove_tracker.records import Clock
from greenlove_tracker.tracker.state import RunState
from greenlove_tracker.units import SECONDS_PER_HOUR

_LOOKED_EVERY_S = 5.0
_LEAST_PAUSE_S = 60.0  # a shorter one gains nothing: figures are of half-hours and hours


class IntensityNow(Protocol):
    """A source of the carbon intensity in force.

    Attributes:
        known_gco2e_per_kwh: as a service says; None where only the table counts.
    """

    @property
    def known_gco2e_per_kwh(self) -> float | None: ...


class GridPauses:
    """The pauses of one run.

    Args:
        state: of the run.
        intensity: in force.
        threshold_gco2e_per_kwh: above it the training pauses.
        begin: called where a pause begins, on the training's thread.
        end: called where it ends.
        sleep: sleeps so many seconds.

    Attributes:
        n_pauses: so far, with one that goes on.
    """

    def __init__(
        self,
        state: RunState,
        intensity: IntensityNow,
        threshold_gco2e_per_kwh: float,
        begin: Callable[[], None],
        end: Callable[[], None],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._state, self._intensity, self._threshold = state, intensity, threshold_gco2e_per_kwh
        self._begin, self._end, self._sleep = begin, end, sleep
        self.n_pauses = 0
        self._past_s = 0.0
        self._passed_s: Callable[[], float] | None = None  # of the pause that goes on
        self._forecast: Forecast | None = None  # the latest at the end of the last pause,
        self._unforeseen_s = 0.0  # and the time of the pauses that it knows nothing of

    @property
    def paused_s(self) -> float:
        """The time of all pauses so far, with one that goes on."""
        return self._past_s + (0.0 if self._passed_s is None else self._passed_s())

    def pause_while_dirty(self) -> None:
        """Save a checkpoint and stand still until the grid is clean enough, or no more pause is allowed.

        Ctrl-C is the user's: it ends the pause and goes on to the training. What the checkpoint hook raises does, too.
        """
        before = self._dirty_gco2e_per_kwh()
        if before is None:
            return
        longest_s, why = self._longest_s()
        if longest_s < _LEAST_PAUSE_S:
            self._state.warn_once.warn(
                "pause", f"the grid is at {before:.0f} gCO2e/kWh, and the training goes on: {why}"
            )
            return
        save_checkpoint = self._state.budget_actions.save_checkpoint
        if save_checkpoint is not None:
            save_checkpoint()
        if self._state.is_finished:  # by the hook
            return
        began_at_s = self._state.elapsed_s
        self.n_pauses += 1
        self._passed_s = passed_s = _stopwatch(self._state.clock)
        try:
            self._begin()
            self._say(
                f"paused: the grid is at {before:.0f} gCO2e/kWh, above {self._threshold:g}; "
                f"for {fmt.duration(round(longest_s))} at most"
            )
            while (left_s := longest_s - passed_s()) > 0 and self._dirty_gco2e_per_kwh() is not None:
                self._sleep(min(_LOOKED_EVERY_S, left_s))
        finally:
            paused_s = passed_s()
            self._past_s, self._passed_s = self._past_s + paused_s, None
            if self._state.forecast is not self._forecast:
                self._forecast, self._unforeseen_s = self._state.forecast, 0.0
            self._unforeseen_s += self._state.elapsed_s - began_at_s
            self._end()
        if not self._state.is_finished:
            self._say(f"goes on after {fmt.duration(round(paused_s))}: {self._why_over(left_s, why)}")

    def _dirty_gco2e_per_kwh(self) -> float | None:
        """Return the intensity where it is known to be above the threshold, and the run goes on; else None."""
        known = self._intensity.known_gco2e_per_kwh
        return None if known is None or known <= self._threshold or self._state.is_finished else known

    def _longest_s(self) -> tuple[float, str]:
        """Return how long a pause may be, and what allows no more."""
        state = self._state
        most_h = state.settings.max_pause_hours
        longest_s = most_h * SECONDS_PER_HOUR - self.paused_s
        why = f"it has paused for {most_h:g} h in all, and may not for longer"
        if state.time_limit is not None:
            with state.lock:
                forecast, elapsed_s = state.forecast, state.elapsed_s
            passed_s = state.clock.utc_s() - state.started_utc_s
            if forecast is None:
                return 0.0, f"it has a {state.time_limit.source}, and how much is left is not forecast yet"
            if forecast is self._forecast:
                elapsed_s -= self._unforeseen_s
            rest_s = max(0.0, forecast.duration_s.quantile(FITS) - elapsed_s)
            spare_s = state.time_limit.limit_s - passed_s - rest_s
            if spare_s < longest_s:
                longest_s, why = spare_s, f"its {state.time_limit.source} allows no longer pause"
        return longest_s, why

    def _why_over(self, left_s: float, why: str) -> str:
        known = self._intensity.known_gco2e_per_kwh
        if known is None:
            return "what the grid is at is not known any more"
        return why if left_s <= 0 else f"the grid is at {known:.0f} gCO2e/kWh"

    def _say(self, text: str) -> None:
        if self._state.settings.verbose > 0:
            say(f"greenlove: {text}")


def _stopwatch(clock: Clock) -> Callable[[], float]:
    """Return what tells the time since now: of two clocks the longer one.

    A steady clock stops while the machine is suspended, and the other one may be set back.
    """
    began_s, began_utc_s = clock.perf_s(), clock.utc_s()
    return lambda: max(clock.perf_s() - began_s, clock.utc_s() - began_utc_s)
