"""The part of a run that keeps its carbon intensity up to date, where it asked for one by time."""

from __future__ import annotations

from greenlove_tracker.logs.intensity_sources import sources_of, sources_text
from greenlove_tracker.records import Field
from greenlove_tracker.tracker.exporters import RunEnded
from greenlove_tracker.tracker.part import RunPart, RunParts


class IntensityWatch(RunPart):
    """The services of one run are asked from its start to its end.

    Args:
        run: that it is a part of.
    """

    def __init__(self, run: RunParts) -> None:
        super().__init__(run)
        rates = run.state.rates_in_force
        self._live = None if rates is None else rates.intensity

    def started(self) -> None:
        """Ask now, and from time to time."""
        if self._live is not None:
            self._live.start(in_background=self._state.in_background)

    def tick(self) -> None:
        """Ask where it is time to, and no thread does."""
        if self._live is not None and not self._state.in_background:
            self._live.tick()

    def ending(self) -> None:
        """Write who answered."""
        if self._live is not None:
            sources = sources_text(sources_of(self._state.row_totals.sources))
            self._writer.write_fields([Field("intensity_sources", sources)])

    def ended(self, ending: RunEnded) -> None:
        """Ask no more."""
        if self._live is not None:
            self._live.close()
