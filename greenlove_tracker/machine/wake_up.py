"""Notice signals while the main thread is in C code, where Python calls no handler."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
from collections.abc import Callable

from greenlove_tracker.machine.forks import start_thread


class SignalListener:
    """Notice, on a thread of its own, each signal that has a Python handler.

    Python writes the number of a signal to the wake-up descriptor at once. If an event loop uses the descriptor, or
    outside Linux, this does nothing. Call all methods on the main thread.

    Args:
        heard: called on the thread with the number of the signal.
    """

    def __init__(self, heard: Callable[[int], None]) -> None:
        self._heard = heard
        self._sockets: tuple[socket.socket, socket.socket] | None = None  # the thread's, and the one written to
        self._pid = 0

    def start(self) -> None:
        """Begin, if that is possible."""
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
        """End, and restore the descriptor; also in a forked child, which does not have the thread."""
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

        A child forked a moment ago still shares the descriptor; its signals are ignored here.
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
    """End the process by the default action of a signal, from any thread, though only the main thread sets handlers."""
    ctypes.pythonapi.PyOS_setsig(number, None)
    os.kill(os.getpid(), number)
