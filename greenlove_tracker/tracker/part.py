"""What a run does beside timing rows is done by parts: each hears what happens in the run, and knows no other one.

Their list stands in ``session.py``.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from greenlove_tracker.logs.tables import IssuedForecast, MetricRecord
from greenlove_tracker.logs.writer import RunWriter
from greenlove_tracker.machine.forks import start_thread
from greenlove_tracker.tracker.events import RunEnded
from greenlove_tracker.tracker.recorder import Recorder
from greenlove_tracker.tracker.state import RunState
from greenlove_tracker.vocabulary.records import Row

_Kind = TypeVar("_Kind", bound="RunPart")


class RunPart:
    """A part of one run. It overrides what it wants to hear of.

    What is called "locked" comes with the run's lock held, mostly on the training's own thread, and returns at once.

    Args:
        run: the parts of the run, itself among them; they have its state, its recorder and its writer.
    """

    def __init__(self, run: RunParts) -> None:
        self._run = run
        self._state = run.state
        self._recorder = run.recorder
        self._writer = run.writer

    def started(self) -> None:
        """Begin: the run has."""

    def row(self, row: Row) -> None:
        """Take a row, which is in the log already: at the next tick, or before anybody asks about the run; locked."""

    def metric_logged(self, record: MetricRecord) -> None:
        """Take a metric that the training has logged; locked."""

    def forecast_issued(self, issued: IssuedForecast) -> None:
        """Take a new forecast of the whole run; locked."""

    def tick(self) -> None:
        """Do what is due, each second, on a thread of the run's own, which has time."""

    def between_epochs(self) -> None:
        """Stop the training if need be, on its own thread: what this raises goes through to it."""

    def ending(self) -> None:
        """Write what is left: the last row is made, and the log is open still; locked."""

    def ended(self, ending: RunEnded) -> None:
        """End: the log is closed; locked."""

    def wait(self, limit_s: float) -> None:
        """Finish what goes on in the background, behind the end; the process waits so long."""


class RunParts:
    """The parts of one run, which are told of everything in the order of their list.

    Args:
        kinds: of parts: each is called with this object.
        state: of the run.
        recorder: of the run.
        writer: of the run.

    Attributes:
        rows: that nobody was told of yet: the training's thread adds them, and waits for nobody.
    """

    def __init__(
        self, kinds: Sequence[Callable[[RunParts], RunPart]], state: RunState, recorder: Recorder, writer: RunWriter
    ) -> None:
        self.state = state
        self.recorder = recorder
        self.writer = writer
        self._parts = [kind(self) for kind in kinds]
        self._dropped: set[RunPart] = set()
        self.rows: deque[Row] = deque()

    def tell_rows(self) -> None:
        """Tell of the rows so far: at each tick, and wherever somebody asks what is known of the run."""
        with self.state.lock:
            while self.rows:
                self._tell_row(self.rows.popleft())

    def _tell_row(self, row: Row) -> None:
        self.state.row_totals.add(row)
        self.tell(lambda part: part.row(row))

    def get(self, kind: type[_Kind]) -> _Kind:
        """Return the part of this kind, for a question to it."""
        return next(part for part in self._parts if isinstance(part, kind))

    def pass_between_epochs(self) -> None:
        """Let parts stop the training: what they raise goes through to it."""
        for part in self._parts:
            part.between_epochs()

    def beside(self, name: str, work: Callable[[], None]) -> None:
        """Do what takes its time on a thread of its own; at once without a background, or where there is no thread."""
        if not self.state.in_background or start_thread(name, work) is not None:
            work()

    @contextmanager
    def loading(self) -> Iterator[None]:
        """``with run.loading():`` around what is loaded beside the training: rows that it slows down say so."""
        with self.state.lock:
            self.recorder.begin_loading()
        try:
            yield
        finally:
            with self.state.lock:
                self.recorder.end_loading()

    def tell(self, call: Callable[[RunPart], None]) -> None:
        """Call this with each part: one that raises is warned of and left out from now on, and the run goes on."""
        for part in self._parts:
            try:
                if part not in self._dropped:
                    call(part)
            except Exception as error:
                self._dropped.add(part)
                if threading.main_thread().is_alive():  # else the process ends, and nothing can be loaded any more
                    self.state.warn_once.internal_error(type(part).__name__, error)
