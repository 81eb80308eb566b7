"""One call of the training's at a time: the lock, the signals that wait, and the errors that must not get through."""

from __future__ import annotations

import threading
from collections.abc import Callable

from greenlove_tracker.errors import TrackerStateError, UsageError
from greenlove_tracker.records import RunStatus
from greenlove_tracker.tracker.lifecycle import guard
from greenlove_tracker.tracker.recorder import Recorder
from greenlove_tracker.tracker.troubles import Troubles


class Acting:
    """``with acting as recorder``, as cheap as can be: it is in every call of the training's.

    Meanwhile a signal waits. An error of ours warns once and steps aside; one of the user's gets through.

    Args:
        lock: the session's.
        recorder: what is acted on.
        troubles: takes what goes wrong.
        finish: ends the run, with the lock held.
    """

    __slots__ = ("_deferred", "_finish", "_lock", "_n_acting", "_recorder", "_troubles")

    def __init__(
        self,
        lock: threading.RLock,
        recorder: Recorder,
        troubles: Troubles,
        finish: Callable[[RunStatus, int | None], None],
    ) -> None:
        self._lock, self._recorder, self._troubles, self._finish = lock, recorder, troubles, finish
        self._n_acting = 0
        self._deferred: tuple[RunStatus, int | None] | None = None

    def __enter__(self) -> Recorder:
        guard.enter()
        try:
            self._lock.acquire()
        except BaseException:
            guard.leave()
            raise
        self._n_acting += 1
        return self._recorder

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        try:
            self._n_acting -= 1
            if self._deferred is not None and self._n_acting == 0:
                self._finish(*self._deferred)
            if error is None or not isinstance(error, Exception) or isinstance(error, UsageError | TrackerStateError):
                return False
            self._troubles.is_ours("internal", error)
            return True
        finally:
            self._lock.release()
            guard.leave()

    def end(self, status: RunStatus, exit_code: int | None) -> None:
        """End the run; where a row is being made, as soon as it is."""
        guard.enter()
        try:
            with self._lock:
                if self._n_acting:
                    self._deferred = status, exit_code  # called from a signal handler, in the middle of a row
                else:
                    self._finish(status, exit_code)
        finally:
            guard.leave()
