"""The tracker's own thread beside the training, and what is kept up to date on it: rows on the disk, the intensity."""

from __future__ import annotations

from greenlove_tracker.job import git_commit
from greenlove_tracker.logs.intensity_sources import sources_of, sources_text
from greenlove_tracker.records import Field
from greenlove_tracker.tracker.part import RunPart

SEGMENT_S = 60.0  # kill -9 loses at most this much of an epoch
TICK_S = 1.0  # rows are brought to the disk this often


class LogKeeper(RunPart):
    """Writes the commit that the script is at and what has been open for a minute, and brings rows to the disk."""

    def started(self) -> None:
        """Ask git, on a thread: it may take its time to tell."""
        if self._state.in_background:
            self._run.beside("greenlove-git", self._write_commit)

    def _write_commit(self) -> None:
        commit = git_commit()
        with self._state.lock:
            if commit and not self._state.is_finished:
                self._writer.write_fields([Field("git_commit", commit)])

    def tick(self) -> None:
        """Do so."""
        recorder = self._recorder
        with self._state.lock:
            if recorder.open_for_s() >= SEGMENT_S and not self._state.is_finished:
                recorder.write_segment()
            unsynced = self._writer.unsynced()
        self._writer.wait_for_disk(unsynced)  # without the lock: a slow disk must not hold the training up


class IntensityWatch(RunPart):
    """The services of one run are asked from its start to its end."""

    def started(self) -> None:
        """Ask now, and from time to time."""
        self.tick()

    def tick(self) -> None:
        """Ask where it is time to."""
        if (live := self._state.rates_in_force.intensity) is not None:
            live.tick(self._run.beside)

    def ending(self) -> None:
        """Write who answered."""
        if self._state.rates_in_force.intensity is not None:
            sources = sources_text(sources_of(self._state.row_totals.sources))
            self._writer.write_fields([Field("intensity_sources", sources)])
