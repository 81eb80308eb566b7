"""Signals while the main thread is in C, where Python calls no handler: a thread hears of them all the same."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
from collections.abc import Callable

from greenlove_tracker.machine.forks import start_thread


class SignalListener:
    """Hears, on a thread of its own, of each signal that has a handler of Python's.

    Python writes the number of a signal to the wake-up descriptor at once. Where somebody else uses that, as an event
    loop may, and outside Linux, nothing is heard. All methods are for the main thread.

    Args:
        heard: called on the thread, with the number.
    """

    def __init__(self, heard: Callable[[int], None]) -> None:
        self._heard = heard
        self._sockets: tuple[socket.socket, socket.socket] | None = None  # the thread's, and the one written to
        self._pid = 0

    def start(self) -> None:
        """Begin, where that is possible."""
        used = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(used)
        if used != -1 or not hasattr(socket, "SO_PASSCRED"):
            return
        try:
            reader, writer = socket.socketpair()
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        except OSError:  # no descriptor is left
            return
        writer.setblocking(False)
        self._pid = os.getpid()
        if start_thread("greenlove-signals", lambda: self._listen(reader)) is None:
            signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
            self._sockets = (reader, writer)

    def stop(self) -> None:
        """End, and give the descriptor back; in a forked child, too, where the thread is not."""
        if self._sockets is None:
            return
        reader, writer = self._sockets
        self._sockets = None
        used = signal.set_wakeup_fd(-1)
        if used != writer.fileno():
            signal.set_wakeup_fd(used)
        writer.close()
        if self._pid != os.getpid():
            reader.close()

    def _listen(self, reader: socket.socket) -> None:
        """Listen until the other end is closed.

        A child that was forked a moment ago has the descriptor still: a signal to it is none to this process.
        """
        sender = self._pid.to_bytes(4, sys.byteorder)
        with reader:
            while True:
                number, credentials, *_ = reader.recvmsg(1, socket.CMSG_SPACE(12))
                if not number:
                    return
                if any(data.startswith(sender) for _, _, data in credentials):
                    self._heard(number[0])


def end_process_by(number: int) -> None:
    """End the process by a signal's default, from any thread: Python lets only the main thread change handlers."""
    ctypes.pythonapi.PyOS_setsig(number, None)
    os.kill(os.getpid(), number)
