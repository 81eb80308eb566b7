"""A page of HTML that is rewritten while a run goes on, until it has ended."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from greenlove_tracker import files
from greenlove_tracker.errors import UsageError
from greenlove_tracker.logs.directory import FollowedDirectory, FollowedRun, Sighting
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.storage import LogPath
from greenlove_tracker.records import RunStatus
from greenlove_tracker.rendering.html import LiveState, render
from greenlove_tracker.report.run_progress import progress_of
from greenlove_tracker.report.run_report import run_document

_AT_LEAST_EVERY_S = 60.0  # the page is written though nothing happens, so that it can be told from one left behind
_STALE_AFTER_S = 180.0
_MOST_TIME_SHARE = 0.2  # of a core, which may be the training's, for pages


@dataclass(frozen=True, slots=True)
class WallClock:
    """The time, and waiting for it; a test has one of its own."""

    now_utc_s: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep


_REAL_CLOCK = WallClock()


class LiveReport:
    """The page of a run that goes on.

    Args:
        output: the file; it is replaced as a whole.
        every_s: seconds between two looks at the log, and between two loads of the page.
        say: takes a line for whoever waits.
        clock: the time.
    """

    def __init__(
        self,
        output: str | os.PathLike[str],
        *,
        every_s: float,
        say: Callable[[str], None],
        clock: WallClock = _REAL_CLOCK,
    ) -> None:
        self._output, self._every_s = files.target_of(output), every_s
        self._say, self._clock = say, clock

    def follow(self, path: LogPath) -> None:
        """Rewrite the page of a run as its rows come in, and return when it has ended.

        Args:
            path: the directory of a run, or of logs: then the run that begins next, or of those that go on the newest.

        Raises:
            UsageError: where the page cannot be written, or the run is gone.
        """
        followed = FollowedRun(path) if path.is_dir() and Run(path).is_run else self._awaited(path)
        run = followed.run()
        self._say(f"following {run.title()}: {self._output}")
        try:
            has_loaded = False
            while self._is_running(run):
                took_s = self._write(run, self._live_text(run), self._every_s)
                run = self._next(followed, run, took_s if has_loaded else 0.0)  # the first page loads libraries
                has_loaded = True
        except (KeyboardInterrupt, SystemExit):
            self._write(
                run, f"Not live any more: following was ended at {self._now_text()}, and the run went on.", None
            )
            raise
        self._write(run, self._final_text(run), None)
        self._say(f"wrote {self._output}: the run has ended ({progress_of(run, self._clock.now_utc_s()).status})")

    def _awaited(self, path: LogPath) -> FollowedRun:
        """Return the newest run of a directory that goes on, or begins; the directory may come with it."""
        if path.exists() and not path.is_dir():
            raise UsageError(f"{path} is not a directory of logs")
        directory = FollowedDirectory(path)
        seen = directory.look(1)
        begun_before = {run.run_id for run in (*seen.running, *seen.ended)}
        if not seen.running:
            self._say(f"no run of {path} is running: waiting for one")
        while not (found := self._begun(seen, begun_before)):
            self._clock.sleep(self._every_s)
            seen = directory.look(1)
        if len(seen.running) > 1:
            self._say(f"{len(seen.running):,} runs go on; to follow another one, name its directory")
        return FollowedRun(found.path)

    def _begun(self, seen: Sighting, begun_before: set[str]) -> Run | None:
        if seen.running:
            return seen.running[0]
        return next((run for run in seen.ended if run.run_id not in begun_before), None)  # ended between two looks

    def _next(self, followed: FollowedRun, shown: Run, took_s: float) -> Run:
        """Return the run when there is something new of it, or the page is due all the same."""
        shown_at_s, written_s = self._clock.now_utc_s(), shown.written_s
        pause_s = max(self._every_s, took_s / _MOST_TIME_SHARE)
        while True:
            self._clock.sleep(pause_s)
            begun_s, run = self._clock.now_utc_s(), followed.run()
            is_running, now_s = self._is_running(run), self._clock.now_utc_s()  # which reads a log that has grown
            if not is_running or run.written_s != written_s or now_s - shown_at_s >= _AT_LEAST_EVERY_S:
                return run
            pause_s = max(pause_s, (now_s - begun_s) / _MOST_TIME_SHARE)

    def _is_running(self, run: Run) -> bool:
        if not run.is_run:
            raise UsageError(f"{run.path} is gone: {self._output} shows how it was")
        return run.summary.status == RunStatus.RUNNING

    def _write(self, run: Run, text: str, refresh_s: float | None) -> float:
        """Write the page, and return the time that it took."""
        begun_s = self._clock.now_utc_s()
        written_at = datetime.fromtimestamp(begun_s, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        live = LiveState(text, written_at, refresh_s, max(_STALE_AFTER_S, 3 * self._every_s))
        files.write_report(self._output, render(run_document(run), live))
        return self._clock.now_utc_s() - begun_s

    def _live_text(self, run: Run) -> str:
        doubt = progress_of(run, self._clock.now_utc_s()).doubt
        state = f"Live, as of {self._now_text()}; it reloads every {self._every_s:g} s."
        return f"{state} {doubt[:1].upper()}{doubt[1:]}." if doubt else state

    def _final_text(self, run: Run) -> str:
        progress = progress_of(run, self._clock.now_utc_s())
        why = f"{progress.status}: {progress.doubt}" if progress.doubt else progress.status
        return f"Final: the run has ended ({why}). This page will not change."

    def _now_text(self) -> str:
        return f"{datetime.fromtimestamp(self._clock.now_utc_s()).astimezone():%H:%M:%S %Z}".strip()
