"""The parts of a run do all that is not timing rows. Each is told what happens in the run, and knows no other part.

Their list stands in ``session.py``.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from greenlove_tracker.logs.schema import cell
from greenlove_tracker.logs.tables import IssuedForecast, MetricRecord
from greenlove_tracker.logs.writer import RunWriter
from greenlove_tracker.machine.forks import start_thread
from greenlove_tracker.tracker.events import RunEnded
from greenlove_tracker.tracker.recorder import Recorder
from greenlove_tracker.tracker.state import RunState
from greenlove_tracker.vocabulary.records import Field, Row

_Kind = TypeVar("_Kind", bound="RunPart")


class RunPart:
    """A part of one run. A subclass overrides the methods for the events that it needs.

    Methods marked "locked" are called with the run's lock held, mostly on the training's thread, and must return at
    once.

    Args:
        run: the parts of the run, with its state, its recorder and its writer.
    """

    def __init__(self, run: RunParts) -> None:
        self._run = run
        self._state = run.state
        self._recorder = run.recorder
        self._writer = run.writer

    def started(self) -> None:
        """Begin, since the run has begun."""

    def row(self, row: Row) -> None:
        """Take a row that is in the log already, at the next tick or when somebody asks about the run; locked."""

    def metric_logged(self, record: MetricRecord) -> None:
        """Take a metric that the training logged; locked."""

    def forecast_issued(self, issued: IssuedForecast) -> None:
        """Take a new forecast of the whole run; locked."""

    def tick(self) -> None:
        """Do what is due. Called each second on the run's own thread, and may take its time."""

    def between_epochs(self) -> None:
        """Stop the training if need be: called on its thread, and what this raises reaches it."""

    def ending(self) -> None:
        """Write what is left: the last row is made, and the log is still open; locked."""

    def ended(self, ending: RunEnded) -> None:
        """End, since the log is closed; locked."""

    def wait(self, limit_s: float) -> None:
        """Finish background work after the end of the run, within the limit."""


class RunParts:
    """The parts of one run. Each event goes to all of them in the order of their list.

    Args:
        kinds: the classes of the parts, each called with this object.
        state: the state of the run.
        recorder: the recorder of the run.
        writer: the writer of the run.

    Attributes:
        rows: rows that the parts were not told of yet. The training's thread adds them without waiting.
        n_rows: rows that were made, in the log or about to be.
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
        self.n_rows = 0

    def tell_rows(self) -> None:
        """Pass on the rows so far: at each tick, and whenever somebody asks about the run."""
        with self.state.lock:
            while self.rows:
                self._tell_row(self.rows.popleft())

    def _tell_row(self, row: Row) -> None:
        self.state.row_totals.add(row)
        self.tell(lambda part: part.row(row))

    def note(self, **values: object) -> None:
        """Append fields to ``run.csv``, but for those that are None or empty."""
        known = {name: value for name, value in values.items() if value not in (None, "")}
        self.writer.write_fields(Field(name, cell(value)) for name, value in known.items())

    def get(self, kind: type[_Kind]) -> _Kind:
        """Return the part of this class."""
        return next(part for part in self._parts if isinstance(part, kind))

    def pass_between_epochs(self) -> None:
        """Let the parts stop the training: what they raise reaches it."""
        for part in self._parts:
            part.between_epochs()

    def beside(self, name: str, work: Callable[[], None]) -> None:
        """Do slow work on a thread of its own; do it at once if there are no threads, or none can be started."""
        if not self.state.in_background or start_thread(name, work) is not None:
            work()

    @contextmanager
    def loading(self) -> Iterator[None]:
        """``with run.loading():`` around imports beside the training flags the rows that they slow down."""
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
