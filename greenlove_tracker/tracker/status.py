"""The line that shows where a run stands."""

from __future__ import annotations

from greenlove_tracker import format as fmt
from greenlove_tracker.console import StatusLine, bar
from greenlove_tracker.logs.totals import Terms
from greenlove_tracker.tracker.recorder import Recorder
from greenlove_tracker.units import GRAMS_PER_KG, gco2e_from_kwh


class StatusPrinter:
    """Shows the line of the first rank, and only where somebody is looking."""

    def __init__(self, verbose: int, epochs: int | None, rank: int) -> None:
        self._is_silent = verbose < 1 or rank != 0
        self.epochs = epochs
        self._line = StatusLine(even_beside_stdout=verbose > 1)

    def line(self, recorder: Recorder, elapsed_s: float, terms: Terms) -> str:
        """Epochs, time, energy and CO2e so far."""
        done = recorder.epochs_done
        parts = [fmt.duration(elapsed_s)]
        if recorder.metered_kwh is not None:
            energy_kwh = recorder.metered_kwh * terms.pue
            grams = gco2e_from_kwh(energy_kwh, terms.carbon_intensity.value)
            parts += [fmt.energy(energy_kwh), f"{fmt.mass(grams / GRAMS_PER_KG)} CO2e"]
        if self.epochs:
            head = f"epoch {done}/{self.epochs} {bar(done / self.epochs)} "
        else:
            head = f"epoch {done} · " if recorder.epochs_begun else ""
        return head + " · ".join(parts)

    def draw(self, line: str) -> None:
        """Show it."""
        if not self._is_silent:
            self._line.draw(line)

    def clear(self) -> None:
        """Wipe it."""
        self._line.clear()
