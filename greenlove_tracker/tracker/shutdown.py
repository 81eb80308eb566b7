"""Closes a run when nobody calls ``stop()``: at the end of the process, by a signal, by the next run.

Foreign signal handlers are never replaced. Where SIGTERM would kill the process outright, ours closes the run and sends
the signal again, so that the process ends as it would have. Where Ctrl-C would raise KeyboardInterrupt, ours stands in
for the length of a call into the tracker only, and raises it once the row is made; asyncio looks for Python's own.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from types import FrameType
from typing import Protocol

from greenlove_tracker.errors import BudgetExceeded
from greenlove_tracker.records import RunStatus


class Closable(Protocol):
    """A run that can be closed from outside."""

    pid: int

    @property
    def is_finished(self) -> bool:
        """True once it is closed."""

    def finish(self, status: RunStatus, exit_code: int | None = None) -> None:
        """Close the run."""


class _ShutdownGuard:
    """Closes the one open run of this process when the process ends, and holds signals while a row is made."""

    def __init__(self) -> None:
        self.current: Closable | None = None
        self._is_registered = False
        self._n_calls = 0  # of the training's into the tracker, one within the other
        self._holds_ctrl_c = False  # in such a call; asking Python each time costs more than the rest of this class
        self._pending: list[int] = []

    def watch(self, run: Closable) -> None:
        """Close this run if nobody else does."""
        self.current = run
        if not self._is_registered:
            atexit.register(self._at_exit)
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=self._forget)
            self._is_registered = True
        if not _is_main_thread():
            return  # Python lets only the main thread set handlers; the end of the process still closes the run
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._on_signal)

    def release(self, run: Closable) -> None:
        """Restore the signal handlers: the run is closed."""
        if self.current is not run:
            return
        self.current = None
        if _is_main_thread():
            self._restore_handlers()

    def _restore_handlers(self) -> None:
        if signal.getsignal(signal.SIGTERM) == self._on_signal:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._restore_ctrl_c()

    def _restore_ctrl_c(self) -> None:
        if self._holds_ctrl_c:
            self._holds_ctrl_c = False
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def hold_signals(self) -> None:
        """Let signals wait that come while a row is being made."""
        if _is_main_thread():
            if self._n_calls == 0:
                self._holds_ctrl_c = signal.getsignal(signal.SIGINT) is signal.default_int_handler
                if self._holds_ctrl_c:
                    signal.signal(signal.SIGINT, self._on_signal)
            self._n_calls += 1

    def deliver_signals(self) -> None:
        """Act on a signal that waited: the row is made."""
        if not _is_main_thread():
            return
        self._n_calls = max(0, self._n_calls - 1)
        if self._n_calls == 0:
            self._restore_ctrl_c()
        if self._pending and self._n_calls == 0:
            number = self._pending[-1]
            self._pending.clear()
            self._act_on(number, None)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._n_calls and signal.getsignal(number) == self._on_signal:
            self._pending.append(number)
        else:
            self._act_on(number, frame)

    def _act_on(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            self._restore_ctrl_c()
            signal.default_int_handler(number, frame)
        if signal.getsignal(number) != self._on_signal:
            return  # called by a handler that came after us and chains to the one before: the signal is its own
        run = self.current
        if run is not None and run.pid == os.getpid():
            run.finish(RunStatus.TERMINATED)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _at_exit(self) -> None:
        run = self.current
        if run is None or run.pid != os.getpid() or run.is_finished:
            return
        status = exit_status()
        run.finish(status)
        if status is RunStatus.INTERRUPTED:
            # CPython forgets that Ctrl-C ended it whenever a text is executed, as the imports of the final screen do;
            # without this the process would exit with 1 and not by SIGINT.
            with contextlib.suppress(KeyboardInterrupt):
                exec("raise KeyboardInterrupt")  # noqa: S102

    def _forget(self) -> None:
        """Forget the run in a forked child: it is the parent's, and so is whatever it was doing at the moment."""
        self.current, self._n_calls = None, 0
        self._pending.clear()
        self._restore_handlers()


def _is_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident


def exit_status() -> RunStatus:
    """Return the status of a process that is ending, as far as Python tells."""
    error = None if is_interactive() else getattr(sys, "last_type", None)
    if error is None:
        return RunStatus.EXITED
    return status_of(error, getattr(sys, "last_value", None))[0]


def is_interactive() -> bool:
    """Return True where cells or lines are typed in by hand and may be interrupted and run again."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(sys, "ps1") or shell is not None


def status_of(error: type[BaseException] | None, value: BaseException | None) -> tuple[RunStatus, int | None]:
    """Return status and exit code of a run whose block or script ended with this exception."""
    if error is None:
        return RunStatus.FINISHED, 0
    if issubclass(error, SystemExit):
        code = getattr(value, "code", None)
        number = 0 if code is None else code if isinstance(code, int) else 1
        return (RunStatus.FAILED if number else RunStatus.FINISHED), number
    if issubclass(error, KeyboardInterrupt) or error.__name__ == "CancelledError":  # asyncio's Ctrl-C
        return RunStatus.INTERRUPTED, None
    return (RunStatus.STOPPED if issubclass(error, BudgetExceeded) else RunStatus.FAILED), 1


guard = _ShutdownGuard()
"""The one of this process."""
