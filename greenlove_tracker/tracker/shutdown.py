"""Closes a run when nobody calls ``stop()``: at the end of the process, by a signal, by the next run.

Foreign signal handlers are never replaced for longer than a call of ours (``signal_hold``). Where SIGTERM would kill
the process outright, ours closes the run and sends the signal again, so that the process ends as it would have. Python
calls a handler once the main thread comes back from C: where that hangs (a dead collective, a kernel without end), a
thread of ours is woken by the signal itself, and ends the process.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Protocol

from greenlove_tracker.errors import BudgetExceeded
from greenlove_tracker.records import RunStatus
from greenlove_tracker.tracker.background import start_thread
from greenlove_tracker.tracker.signal_hold import signal_hold

_log = logging.getLogger("greenlove_tracker")

HANG_S = 5.0  # SIGTERM's handler begins within this time, and is done within the same again, or the process hangs
_CLOSE_S = 2.0  # for the log of a process that hangs
_NAP_S = 0.05  # a thread that signals wake, wakes no more often
_CREDENTIALS = struct.Struct("iII")  # who sent a message on a socket of this machine: process, user, group


class Closable(Protocol):
    """A run that can be closed from outside."""

    pid: int

    @property
    def is_finished(self) -> bool:
        """True once it is closed."""

    def finish(self, status: RunStatus, exit_code: int | None = None) -> None:
        """Close the run."""

    def finish_hung(self, status: RunStatus) -> None:
        """Close the run from another thread than the main one, which hangs."""


class NoticeReceiver(Protocol):
    """Takes SIGTERM as a notice of the end, and has until a deadline to save what is to be saved."""

    @property
    def grace_left_s(self) -> float:
        """Seconds that a main thread which has not heard the signal yet is given; 0 from the deadline on."""

    def received(self, number: int) -> bool:
        """Take note of the signal; return False where the process is to end by it now."""


class _ShutdownGuard:
    """Closes the open runs of this process when the process ends."""

    def __init__(self) -> None:
        self._open: list[Closable] = []  # each inside the one before: a training, in the job of ``greenlove run``
        self._is_registered = False
        self._is_terminating = False
        self._hang_watcher = _HangWatcher(self._end_if_hung)
        self._receiver: NoticeReceiver | None = None
        self._is_handed_on = False  # the last SIGTERM is a notice, which its receiver answers

    @property
    def current(self) -> Closable | None:
        """The innermost open run."""
        return self._open[-1] if self._open else None

    @property
    def outermost(self) -> Closable | None:
        """The open run that is closed last; it closes those inside it."""
        return self._open[0] if self._open else None

    def watch(self, run: Closable, *, in_background: bool = True) -> None:
        """Close this run if nobody else does."""
        self._open.append(run)
        if not self._is_registered:
            atexit.register(self._at_exit)
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=self._forget)
            self._is_registered = True
        if not _is_main_thread():
            return  # Python lets only the main thread set handlers; the end of the process still closes the run
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._on_sigterm)
            if in_background:
                self._hang_watcher.start()

    def receive(self, receiver: NoticeReceiver | None) -> bool:
        """Hand SIGTERM to somebody first, or to nobody any more.

        Returns:
            False where the training has a handler of its own, which this one stays out of.
        """
        if receiver is not None and not (self._is_ours() or signal.getsignal(signal.SIGTERM) is signal.SIG_DFL):
            return False
        self._receiver = receiver
        if not _is_main_thread():
            return True
        if receiver is not None and not self._is_ours():
            signal.signal(signal.SIGTERM, self._on_sigterm)
            self._hang_watcher.start()
        elif receiver is None and not self._open:
            self._restore_handler()
        return True

    def stop_handing_to(self, receiver: NoticeReceiver) -> None:
        """Hand SIGTERM to this receiver no more; to a later one still, where a loop that was left is closed late."""
        if self._receiver is receiver:
            self.receive(None)

    def release(self, run: Closable) -> None:
        """Restore the signal handler: the run is closed."""
        if run not in self._open:
            return
        self._open.remove(run)
        if not self._open and self._receiver is None and _is_main_thread():
            self._restore_handler()

    def _restore_handler(self) -> None:
        if self._is_ours():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._hang_watcher.stop()

    def _is_ours(self) -> bool:
        return signal_hold.is_in_place(signal.SIGTERM, self._on_sigterm)

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        if not self._is_ours():
            return  # called by a handler that came after us and chains to the one before: the signal is its own
        if signal_hold.postpone(number):
            return
        if self._receiver is not None and self._receiver.received(number):
            self._is_handed_on = True
            return
        self._is_terminating = True
        run = self.outermost
        try:
            if run is not None and run.pid == os.getpid():
                run.finish(RunStatus.TERMINATED)
        finally:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _end_if_hung(self) -> None:
        """End the process where SIGTERM's handler does not: the main thread hangs; on the watcher's thread."""
        if not self._is_ours():
            return  # the training has set a handler of its own
        time.sleep(HANG_S)
        if self._receiver is not None and not self._is_handed_on:  # a long step in C, or it hangs
            time.sleep(max(0.0, self._receiver.grace_left_s - HANG_S))
        if self._is_handed_on:
            self._is_handed_on = False
            return  # its receiver has until a deadline, when the signal comes again
        if self._is_terminating:
            time.sleep(HANG_S)  # it is closing the run
        if not self._is_ours():
            return  # the training has set a handler of its own
        is_closed = threading.Event()
        start_thread("greenlove-close", lambda: self._close_hung(is_closed))
        is_closed.wait(_CLOSE_S)
        start_thread("greenlove-kill", lambda: _die_of(signal.SIGTERM))
        time.sleep(_CLOSE_S)
        os._exit(128 + signal.SIGTERM)  # not even the dynamic linker answers

    def _close_hung(self, is_closed: threading.Event) -> None:
        try:
            for run in reversed(self._open):
                if run.pid == os.getpid():
                    run.finish_hung(RunStatus.TERMINATED)
            _log.warning("greenlove: the main thread has not answered SIGTERM for %g s: ending the process", HANG_S)
        finally:
            is_closed.set()

    def _at_exit(self) -> None:
        run = self.outermost
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
        self._open, self._receiver = [], None
        self._is_terminating = self._is_handed_on = False
        self._restore_handler()
        self._hang_watcher.forget()


class _HangWatcher:
    """Calls a function on a thread of its own when SIGTERM reaches this process, whatever the main thread is doing.

    Python's own handler in C writes the number of each signal to the wake-up file. Ours is a socket that tells who
    wrote: a child that was forked, and is signalled before it has forgotten us, writes to it too. There is none where
    the system does not tell, as outside Linux, nor where the training has a wake-up file of its own.

    Args:
        act: called once for each SIGTERM.
    """

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act
        self._sockets: tuple[socket.socket, socket.socket] | None = None  # to read from, to write to

    def start(self) -> None:
        """Begin, where the main thread asks."""
        if self._sockets is None and not self._open():
            return
        if self._sockets is not None:
            self._exchange_wakeup_fd(self._sockets[1].fileno(), {-1})

    def stop(self) -> None:
        """Leave signals alone; the thread waits on for the next run of the process."""
        if self._sockets is not None:
            self._exchange_wakeup_fd(-1, {self._sockets[1].fileno()})

    def forget(self) -> None:
        """Leave the sockets to the parent, in a forked child, which has no such thread."""
        if self._sockets is not None:
            for end in self._sockets:
                end.close()
            self._sockets = None

    def _exchange_wakeup_fd(self, new: int, replaceable: set[int]) -> None:
        before = signal.set_wakeup_fd(new, warn_on_full_buffer=False)
        if before not in replaceable:  # the training's own
            signal.set_wakeup_fd(before, warn_on_full_buffer=False)

    def _open(self) -> bool:
        if not hasattr(socket, "SO_PASSCRED"):
            return False
        try:
            reading, writing = socket.socketpair()
        except OSError:  # no file is to be had
            return False
        writing.setblocking(False)
        reading.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        if start_thread("greenlove-sigterm", lambda: self._watch(reading)) is not None:
            reading.close()
            writing.close()
            return False
        self._sockets = reading, writing
        return True

    def _watch(self, reading: socket.socket) -> None:
        space = socket.CMSG_SPACE(_CREDENTIALS.size)
        while True:
            try:
                numbers, notes, _, _ = reading.recvmsg(4096, space)
            except OSError:  # a program that becomes a daemon closes all files
                return
            senders = {_CREDENTIALS.unpack(note)[0] for _, kind, note in notes if kind == socket.SCM_CREDENTIALS}
            if signal.SIGTERM in numbers and senders == {os.getpid()}:
                self._act()
                _drain(reading)  # what came meanwhile had the same answer
            time.sleep(_NAP_S)


def _drain(reading: socket.socket) -> None:
    with contextlib.suppress(OSError):  # nothing to be read, or no socket any more
        while reading.recv(4096, socket.MSG_DONTWAIT):
            pass


def _die_of(number: int) -> None:
    """Kill this process by a signal, from any thread; through Python only the main one could restore the default."""
    import ctypes  # only here, at the end of a process

    libc = ctypes.CDLL(None)
    libc.signal.argtypes, libc.signal.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    libc.signal(number, None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)


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


class TerminatedExit(SystemExit):
    """An exit because the job or the machine is about to end: the run was terminated, and has not failed."""


def status_of(error: type[BaseException] | None, value: BaseException | None) -> tuple[RunStatus, int | None]:
    """Return status and exit code of a run whose block or script ended with this exception."""
    if error is None or issubclass(error, GeneratorExit):  # a generator that its caller left with break
        return RunStatus.FINISHED, 0
    if issubclass(error, SystemExit):
        code = getattr(value, "code", None)
        number = 0 if code is None else code if isinstance(code, int) else 1
        if issubclass(error, TerminatedExit):
            return RunStatus.TERMINATED, number
        return (RunStatus.FAILED if number else RunStatus.FINISHED), number
    if issubclass(error, KeyboardInterrupt) or error.__name__ == "CancelledError":  # asyncio's Ctrl-C
        return RunStatus.INTERRUPTED, None
    return (RunStatus.STOPPED if issubclass(error, BudgetExceeded) else RunStatus.FAILED), 1


guard = _ShutdownGuard()
"""The one of this process."""
