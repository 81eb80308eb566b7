"""How a run ends when nobody calls ``stop()``: at the end of the process, by a signal, by the next run.

Foreign signal handlers are never replaced: only where SIGTERM would kill the process outright is ours put in, and
after the run is closed the signal is sent again, so that the process ends as it would have.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from types import FrameType
from typing import Protocol

from greenlove_tracker.records import RunStatus


class Closable(Protocol):
    """A run that can be closed from outside."""

    pid: int
    is_finished: bool

    def finish(self, status: RunStatus, exit_code: int | None = None) -> None:
        """Close the run."""


class _Guard:
    """Watches over the one open run of this process."""

    def __init__(self) -> None:
        self.current: Closable | None = None
        self._is_registered = False
        self._busy = 0
        self._pending: int | None = None
        self._signals: list[int] = []

    def watch(self, run: Closable) -> None:
        """Close this run if nobody else does."""
        self.current = run
        if not self._is_registered:
            atexit.register(self._at_exit)
            self._is_registered = True
        if not _is_main_thread():
            return  # Python lets only the main thread set handlers; the end of the process still closes the run
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._on_signal)
            self._signals.append(signal.SIGTERM)

    def release(self, run: Closable) -> None:
        """The run is closed; our signal handlers go."""
        if self.current is not run:
            return
        self.current = None
        if _is_main_thread():
            while self._signals:
                number = self._signals.pop()
                if signal.getsignal(number) == self._on_signal:
                    signal.signal(number, signal.SIG_DFL)

    def enter(self) -> None:
        """A signal that comes while a row is being made waits until the row is made."""
        if _is_main_thread():
            self._busy += 1

    def leave(self) -> None:
        """The row is made: a signal that waited is acted on."""
        if not _is_main_thread():
            return
        self._busy -= 1
        if self._pending is not None and self._busy == 0:
            number, self._pending = self._pending, None
            self._end_by(number)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._busy:
            self._pending = number
        else:
            self._end_by(number)

    def _end_by(self, number: int) -> None:
        run = self.current
        if run is not None and run.pid == os.getpid():
            run.finish(RunStatus.TERMINATED)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _at_exit(self) -> None:
        run = self.current
        if run is None or run.pid != os.getpid() or run.is_finished:
            return
        run.finish(exit_status())


def _is_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident


def exit_status() -> RunStatus:
    """How a process that is ending ends, as far as Python tells."""
    if is_interactive():
        return RunStatus.EXITED
    error = getattr(sys, "last_type", None)
    if error is None:
        return RunStatus.EXITED
    return RunStatus.INTERRUPTED if issubclass(error, KeyboardInterrupt) else RunStatus.FAILED


def is_interactive() -> bool:
    """Whether cells or lines are typed in by hand and may be interrupted and run again."""
    return hasattr(sys, "ps1") or "ipykernel" in sys.modules


def status_of(error: type[BaseException] | None, value: BaseException | None) -> tuple[RunStatus, int | None]:
    """Status and exit code of a run whose block or script ended with this exception."""
    if error is None:
        return RunStatus.FINISHED, 0
    if issubclass(error, SystemExit):
        code = getattr(value, "code", None)
        number = 0 if code is None else code if isinstance(code, int) else 1
        return (RunStatus.FAILED if number else RunStatus.FINISHED), number
    if issubclass(error, KeyboardInterrupt):
        return RunStatus.INTERRUPTED, None
    return RunStatus.FAILED, 1


guard = _Guard()
"""The one of this process."""
