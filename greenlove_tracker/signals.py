"""Signals to ``greenlove run -- COMMAND``: they reach the command too, and our own end is the command's.

Ctrl-C on a terminal signals every process there, and is left to it. The system does not tell whether another signal was
sent to us alone (``kill PID``, a container's runtime, systemd) or to a whole group (``timeout``, ``scancel``): it is
passed on, and a command that was sent it as well gets it twice.
"""

from __future__ import annotations

import signal
import sys
import types
from collections.abc import Callable
from typing import Any, Self

_NAMES = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2")


class SignalForwarding:
    """Passes signals on to the command, which ends, and then so do we.

    Args:
        heard: called with each signal that comes; in the handler.
    """

    def __init__(self, heard: Callable[[int], None] | None = None) -> None:
        self._heard = heard
        self._send: Callable[[int], None] | None = None
        self._waiting: list[int] = []
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        numbers = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
        # one that is ignored (nohup, a shell's background job) stays ignored, here and in the command
        handled = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._forward) for number in handled}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

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
        elif not (number == signal.SIGINT and _has_terminal()):
            self._send(number)


def _has_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()
