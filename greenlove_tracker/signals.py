"""Signals to ``greenlove run -- COMMAND``: each reaches the command once, whoever it was sent to.

``kill PID``, a container's runtime and systemd signal us alone; a terminal's Ctrl-C, ``timeout`` and ``scancel`` signal
every process of a group or step, so that the command has it already. The system does not tell the two apart. A
listener does: a small process of our group, which waits for nothing but signals. A signal that it gets too was sent to
all.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import struct
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

_NAMES = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2")
_RECORD = struct.Struct("=id")  # the signal, and when it came
_LISTENER_TIMEOUT_S = 0.1  # for the listener to report a signal; later than that counts as not received
_SAME_SIGNAL_S = 1.0  # a signal that reached us and the listener within this time is one

# Run by -c, so that nobody who looks for our processes by name finds it. It ends with its parent, within a second.
_WATCH = """
import os, signal, struct, sys, time
parent, awaited = int(sys.argv[1]), {signal.SIGALRM, *map(int, sys.argv[2:])}
signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
signal.setitimer(signal.ITIMER_REAL, 1.0, 1.0)
while os.getppid() == parent:
    number = signal.sigwait(awaited)
    if number != signal.SIGALRM:
        os.write(1, struct.pack("=id", number, time.monotonic()))
"""


class SignalForwarding:
    """Passes signals that are sent to us alone on to the command, which ends, and then so do we.

    Args:
        heard: called with each signal that comes, whoever it was sent to; in the handler.
    """

    def __init__(self, heard: Callable[[int], None] | None = None) -> None:
        self._heard = heard
        self._send: Callable[[int], None] | None = None
        self._waiting: list[int] = []
        self._before: dict[int, Any] = {}
        self._listener: _GroupListener | None = None

    def __enter__(self) -> Self:
        numbers = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
        # one that is ignored (nohup, a shell's background job) stays ignored, here and in the command
        handled = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
        if hasattr(signal, "sigwait"):
            with contextlib.suppress(OSError):  # no process to be had: then as where there are no groups
                self._listener = _GroupListener(handled)
        self._before = {number: signal.signal(number, self._forward) for number in handled}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._listener is not None:
            self._listener.end()

    def start(self, send: Callable[[int], None]) -> None:
        """Deliver the signals that came before the command was up, and from now on those that come.

        Args:
            send: signals the command.
        """
        self._send = send
        for number in self._waiting:
            send(number)

    def _forward(self, number: int, frame: types.FrameType | None) -> None:
        if self._heard is not None:
            self._heard(number)
        if self._send is None:
            self._waiting.append(number)
        elif not self._was_sent_to_all(number):
            self._send(number)

    def _was_sent_to_all(self, number: int) -> bool:
        if self._listener is not None:
            return self._listener.received(number)
        return number == signal.SIGINT and sys.stdin is not None and sys.stdin.isatty()


class _GroupListener:
    """A process of our group that reports the signals it gets."""

    def __init__(self, numbers: Sequence[int]) -> None:
        with _blocked(numbers):  # it inherits that, and loses none while it starts
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _WATCH, str(os.getpid()), *(str(int(n)) for n in numbers)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
            )
        if self._process.stdout is not None:
            os.set_blocking(self._process.stdout.fileno(), False)
        self._received_s: dict[int, float] = {}

    def received(self, number: int) -> bool:
        """Return True where this signal reached the listener just now, too."""
        until_s = time.monotonic() + _LISTENER_TIMEOUT_S
        while time.monotonic() - self._received_s.get(number, -_SAME_SIGNAL_S) >= _SAME_SIGNAL_S:
            if not self._read_record(until_s - time.monotonic()):
                return False
        return True

    def _read_record(self, timeout_s: float) -> bool:
        """Read the next record; return False where none comes in time, or the listener has ended."""
        out = self._process.stdout
        if out is None or timeout_s <= 0 or not select.select([out], [], [], timeout_s)[0]:
            return False
        record = out.read(_RECORD.size)
        if record:
            number, came_s = _RECORD.unpack(record)
            self._received_s[number] = came_s
        return record != b""  # None: the handler of another signal was quicker

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


@contextlib.contextmanager
def _blocked(numbers: Sequence[int]) -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
