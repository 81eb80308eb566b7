"""The line that shows where a run stands."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from greenlove_tracker import format as fmt
from greenlove_tracker.config import Settings
from greenlove_tracker.console import StatusLine, bar, say
from greenlove_tracker.forecasting import Estimate, Forecast
from greenlove_tracker.logs.totals import RunFactors
from greenlove_tracker.records import Clock
from greenlove_tracker.tracker.recorder import Recorder, used_so_far
from greenlove_tracker.tracker.state import Plan

_BAR_WIDTH = 10
_PLAIN_EVERY_S = 60.0  # without a terminal, a line at most this often,
_PLAIN_SHARE = 0.1  # and only where this share of the run has been done since the last


class StatusPrinter:
    """Shows where the first rank stands: one line drawn over itself on a terminal, a plain line now and then else."""

    def __init__(self, settings: Settings, plan: Plan | None, rank: int, clock: Clock) -> None:
        self._rank, self._clock = rank, clock
        self._line = StatusLine(even_beside_stdout=settings.verbose > 1)
        self._told: tuple[float, float] | None = None  # when, and at which share of the run
        self.adopt(settings, plan)

    def adopt(self, settings: Settings, plan: Plan | None) -> None:
        """What the run is, or what a script's own tracker brings that joins it."""
        self._is_silent = settings.verbose < 1 or self._rank != 0
        self.plan, self._epochs_before_pred = plan, settings.epochs_before_pred

    def line(
        self, recorder: Recorder, elapsed_s: float, terms: RunFactors, gpu_count: int, forecast: Forecast | None
    ) -> str:
        """Epochs, and time, energy, CO2e and cost: forecast where that is known, else so far."""
        used = used_so_far(terms, elapsed_s, recorder.metered_kwh, gpu_count)
        parts = [fmt.duration(elapsed_s)]
        if forecast is not None:
            time = forecast.duration_s
            parts.append(f"forecast {fmt.interval(time.point, time.lower, time.upper, fmt.duration)}")
        for quantity in ("energy_kwh", "emissions_kgco2e", "cost_usd"):
            text, suffix = fmt.QUANTITIES[quantity][1], " CO2e" if quantity == "emissions_kgco2e" else ""
            expected: Estimate | None = getattr(forecast, quantity, None)
            if expected is not None:
                parts.append(text(expected.point) + suffix)
            elif used[quantity] is not None:
                parts.append(f"{text(used[quantity])}{suffix}{' so far' if forecast is not None else ''}")
        if forecast is not None:
            parts += self._ends(forecast, elapsed_s)
        return self._head(recorder) + " · ".join(parts)

    def _ends(self, forecast: Forecast, elapsed_s: float) -> list[str]:
        if elapsed_s > forecast.duration_s.upper:
            return ["overdue"]
        now_s = self._clock.utc_s()
        parts = [f"ends {fmt.clock_time(now_s + forecast.duration_s.point - elapsed_s, now_s)}"]
        if "SLURM_JOB_ID" in os.environ and forecast.duration_p99_s is not None:
            parts.append(f"--time={fmt.slurm_time(forecast.duration_p99_s)}")
        return parts

    def _head(self, recorder: Recorder) -> str:
        plan, done = self.plan, recorder.epochs_done
        progress = bar(self._share(recorder), _BAR_WIDTH) if self._line.is_seen else "·"
        if plan is not None and plan.epochs:
            return f"epoch {done}/{plan.epochs} {progress} "
        if plan is not None and plan.total_steps:
            return f"step {recorder.steps_done:,}/{plan.total_steps:,} {progress} "
        return f"epoch {done} · " if recorder.epochs_begun else ""

    def _share(self, recorder: Recorder) -> float:
        plan = self.plan
        if plan is not None and plan.epochs:
            return recorder.epochs_done / plan.epochs
        return recorder.steps_done / plan.total_steps if plan is not None and plan.total_steps else 0.0

    def show(self, line: str, recorder: Recorder, forecast: Forecast | None) -> None:
        """Draw it; or where it would mix with what the script prints, or nobody looks, print it now and then."""
        if self._is_silent:
            return
        if self._line.is_seen:
            self._line.draw(line)
        elif forecast is not None and self._is_news(recorder):
            say(f"greenlove  {line}")

    def _is_news(self, recorder: Recorder) -> bool:
        if not recorder.steps_done + recorder.epochs_done:
            return False
        plan = self.plan
        if plan is not None and plan.epochs is not None and recorder.epochs_done < self._epochs_before_pred:
            return False
        now_s, share = self._clock.perf_s(), self._share(recorder)
        if self._told and (now_s < self._told[0] + _PLAIN_EVERY_S or share < self._told[1] + _PLAIN_SHARE):
            return False
        self._told = now_s, share
        return True

    def clear(self) -> None:
        """Wipe it."""
        self._line.clear()


# -- What goes wrong on our side: told once, and the training goes on --

_log = logging.getLogger("greenlove_tracker")


class WarnOnce:
    """Tells each kind of trouble once."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def warn(self, kind: str, message: str) -> None:
        """Say it, where nothing of its kind was said before."""
        if kind not in self._told:
            self._told.add(kind)
            _log.warning("greenlove: %s", message)

    def is_ours(self, kind: str, error: Exception) -> None:
        """An error that should not have been."""
        self.warn(kind, f"an error of greenlove_tracker's own, training goes on: {error!r}")
        _log.debug("greenlove_tracker", exc_info=error)

    def meter_failed(self, error: Exception) -> None:
        """The meter gave up in the middle of the run."""
        self.warn("meter", f"the energy meter failed: {error}. Time is tracked on; energy is unknown where it fails")

    def log_failed(self, error: OSError) -> None:
        """A row did not reach the disk."""
        self.warn("log", f"the log cannot be written ({error}); tracking goes on in memory, writing is tried again")

    def log_is_incomplete(self, run_dir: Path, unwritten: Mapping[str, OSError]) -> None:
        """At the end of the run the disk still does not take all of it."""
        self.warn("unwritten", f"the log in {run_dir} is not complete: {unwritten_text(unwritten)}")


def unwritten_text(unwritten: Mapping[str, OSError]) -> str:
    """``epochs-0.csv, run.csv could not be written (No space left on device)``."""
    reasons = dict.fromkeys(error.strerror or str(error) for error in unwritten.values())
    return f"{', '.join(sorted(unwritten))} could not be written ({'; '.join(reasons)})"
