"""Close a run for which nobody calls ``stop()``: at the end of the process, after a signal, or when another run begins.

If nothing handles SIGTERM, a handler of ours closes the run and sends the signal again, so that the process ends as it
would have. The training's own handlers stay as they are.

Python calls a handler only after the main thread has returned from C code. A thread of ours is told of the signal at
once, and ends a process that hangs in C code.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Protocol

from greenlove_tracker.machine.forks import start_thread
from greenlove_tracker.machine.wake_up import SignalListener, end_process_by
from greenlove_tracker.text.console import is_interactive
from greenlove_tracker.vocabulary.records import RunStatus, status_of

C_CALL_S = 2.0  # after SIGTERM, wait this long for a main thread in C code,
CLOSE_S = 2.5  # and this long for the process to end: together less than the 5 s that some schedulers allow


Receiver = Callable[[int], bool]  # is called with the number of a signal; False: the process ends


class ClosableRun(Protocol):
    """An open run of this process that can be closed."""

    def finish(self, status: RunStatus) -> None:
        """Close it."""


class _ShutdownGuard:
    """Close the open run of this process when the process ends, and undo what must not outlive it.

    Attributes:
        current: the open run.
        one_begins: a lock, held while a new run closes the one before and begins.
        is_terminating: True once SIGTERM is ending the process.
    """

    def __init__(self) -> None:
        self.current: ClosableRun | None = None
        self.one_begins = threading.RLock()
        self._receiver: Receiver | None = None
        self._undoing: set[Callable[[], None]] = set()
        self._listener = SignalListener(self._on_signal_in_c)
        self._n_heard = self._n_handled = 0  # SIGTERMs seen by the listener's thread; by Python's handler
        self.is_terminating = False

    def watch(self, run: ClosableRun) -> None:
        """Close this run if nobody else does."""
        self.current = run
        self._handle_signal()

    def receive(self, receiver: Receiver) -> bool:
        """Hand SIGTERM to a receiver first. If it returns False, the process ends.

        Returns:
            False if the training has its own handler, which stays in place.
        """
        is_ours = self._handle_signal()
        if is_ours:
            self._receiver = receiver
        return is_ours

    def stop_handing_to(self, receiver: Receiver) -> None:
        """Stop handing SIGTERM to this receiver. A later receiver stays, if an abandoned loop is closed late."""
        if self._receiver == receiver:
            self._receiver = None
            self._give_signal_back()

    @contextlib.contextmanager
    def undoing(self, undo: Callable[[], None]) -> Iterator[None]:
        """Call ``undo`` before SIGTERM ends the process within the block, where no ``finally`` would run.

        Args:
            undo: may be called at any moment, on any thread, and more than once.
        """
        self._undoing.add(undo)
        self._handle_signal()
        try:
            yield
        finally:
            self._undoing.discard(undo)
            self._give_signal_back()

    def release(self, run: ClosableRun) -> None:
        """Forget a closed run, and give SIGTERM back."""
        if self.current is run:
            self.current = None
            self._give_signal_back()

    def _handle_signal(self) -> bool:
        """Handle SIGTERM if nobody does, and return whether we do. Only the main thread may set handlers."""
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._on_sigterm)
            self._listener.start()
        return self._is_ours()

    def _give_signal_back(self) -> None:
        is_main_thread = threading.current_thread() is threading.main_thread()
        if self.current is not None or self._receiver is not None or self._undoing or not is_main_thread:
            return
        if self._is_ours():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._listener.stop()

    def _is_ours(self) -> bool:
        return signal.getsignal(signal.SIGTERM) == self._on_sigterm

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        self._n_handled += 1
        if not self._is_ours():
            return  # a later handler called ours too: the signal is its own
        if self._receiver is None or not self._receiver(number):
            self._terminate()

    def _terminate(self) -> None:
        """Close the run and end the process. If a row is being made, it is finished first."""
        if self.is_terminating:
            return  # some launchers send it twice
        self.is_terminating = True
        for undo in [*self._undoing]:
            with contextlib.suppress(Exception):
                undo()
        try:
            if self.current is not None:
                self.current.finish(RunStatus.TERMINATED)
        finally:
            self.end_if_terminated()

    def end_if_terminated(self) -> None:
        """End the process by SIGTERM, if one came and the run is closed."""
        if self.is_terminating and self.current is None:
            end_process_by(signal.SIGTERM)

    def _on_signal_in_c(self, number: int) -> None:
        """End the process some seconds after a SIGTERM that the main thread did not handle or did not end by.

        A training that noted the signal, such as one with emergency checkpoints, goes on.
        """
        if number != signal.SIGTERM:
            return
        self._n_heard += 1
        time.sleep(C_CALL_S)
        is_in_c = self._n_handled < self._n_heard
        if self.is_terminating or (is_in_c and self._receiver is None and self._is_ours()):
            start_thread("greenlove-end", self._terminate)  # another thread may hold the run's lock for ever
            time.sleep(CLOSE_S)
            end_process_by(number)

    def at_exit(self) -> None:
        run = self.current
        if run is None:
            return
        status = exit_status()
        if self.is_terminating:
            status = RunStatus.TERMINATED
        run.finish(status)
        self.end_if_terminated()
        if status is RunStatus.INTERRUPTED:
            # Imports, such as those of the final screen, make CPython forget that Ctrl-C ended the process. Raising
            # KeyboardInterrupt again makes it end by SIGINT instead of with exit code 1.
            with contextlib.suppress(KeyboardInterrupt):
                exec("raise KeyboardInterrupt")  # noqa: S102

    def forget(self) -> None:
        """Forget the run in a forked child, since it is the parent's."""
        self.current = None
        self.one_begins = threading.RLock()
        self._receiver = None
        self._undoing.clear()
        self.is_terminating = False
        self._n_heard = self._n_handled = 0
        self._give_signal_back()


def exit_status() -> RunStatus:
    """Return the status of the ending process, as far as Python tells it."""
    error = None if is_interactive() else getattr(sys, "last_type", None)
    if error is None:
        return RunStatus.EXITED
    return status_of(error, getattr(sys, "last_value", None))[0]


guard = _ShutdownGuard()
"""The shutdown guard of this process."""

atexit.register(guard.at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=guard.forget)
