"""Write the git commit, the sources of the carbon intensity and the metrics, and sync rows to the disk."""

from __future__ import annotations

from greenlove_tracker.logs import metrics
from greenlove_tracker.logs.intensity_sources import sources_of, sources_text
from greenlove_tracker.logs.tables import METRICS, MetricRecord
from greenlove_tracker.logs.writer import timestamp
from greenlove_tracker.machine.job import git_commit
from greenlove_tracker.tracker.part import RunPart, RunParts

SEGMENT_S = 60.0  # kill -9 loses at most this much of an epoch
TICK_S = 1.0  # rows are brought to the disk this often


class LogKeeper(RunPart):
    """Write the script's git commit, write a long open epoch in segments, and sync rows to the disk."""

    def started(self) -> None:
        """Ask git for the commit on a thread of its own, since git can be slow."""
        if self._state.in_background:
            self._run.beside("greenlove-git", self._write_commit)

    def _write_commit(self) -> None:
        commit = git_commit()
        with self._state.lock:
            if not self._state.is_finished:
                self._run.note(git_commit=commit)

    def tick(self) -> None:
        """Write a segment of an epoch that has been open for a minute, and sync the rows."""
        recorder = self._recorder
        with self._state.lock:
            if recorder.open_for_s() >= SEGMENT_S and not self._state.is_finished:
                recorder.write_segment()
            unsynced = self._writer.unsynced()
        self._writer.wait_for_disk(unsynced)  # without the lock: a slow disk must not hold the training up


class IntensityWatch(RunPart):
    """Ask the carbon-intensity services from the start of a run to its end."""

    def started(self) -> None:
        """Ask the services for the first time."""
        self.tick()

    def tick(self) -> None:
        """Ask the services again where the last answer is old."""
        live = self._state.rates_in_force.intensity
        if live is not None:
            live.tick(self._run.beside)

    def ending(self) -> None:
        """Write which services answered."""
        if self._state.rates_in_force.intensity is not None:
            self._run.note(intensity_sources=sources_text(sources_of(self._state.row_totals.sources)))


class MetricLog(RunPart):
    """Log the metrics of one run.

    Args:
        run: the parts of the run.
    """

    def __init__(self, run: RunParts) -> None:
        super().__init__(run)
        self.totals = metrics.MetricTotals()

    def log(self, name: object, value: object, number: float | None, higher_is_better: bool | None) -> None:
        """Log a value, with the run's lock held.

        Leave out, with a warning, what is not a number and names beyond the maximum.
        """
        misuse = self._state.warn_once.misuse
        recorder = self._recorder
        known_as = metrics.metric_name(name) if isinstance(name, str) else ""
        if not known_as or number is None:
            message = f"log_metric({str(name)[:60]!r}) wants a name and one number, not a {type(value).__name__}"
            misuse("log_metric", f"{message}; it is left out")
            return
        record = MetricRecord(
            timestamp(self._state.clock.utc_s()),
            recorder.epoch or recorder.last_epoch,
            recorder.steps_done,
            known_as,
            number,
            None if higher_is_better is None else bool(higher_is_better),  # a NumPy bool is not written as ours is
        )
        if self.totals.add(record):
            self._writer.write(METRICS, record)
            self._run.tell(lambda part: part.metric_logged(record))
        else:
            message = f"over {metrics.MAX_NAMES:,} names of metrics: {known_as} and further ones are left out"
            misuse("metric names", message)
