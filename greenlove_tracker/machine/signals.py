"""Signals to a command that we run: they reach it too, and our own end is the command's.

Ctrl-C on a terminal signals every process there, and is left to it. The system does not tell whether another signal was
sent to us alone (``kill PID``, a container's runtime, systemd) or to a whole group (``timeout``, ``scancel``): it is
passed on, and a command that was sent it as well gets it twice.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import types

_NAMES = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2")


def wait_and_forward(command: subprocess.Popen[bytes]) -> tuple[int, list[int]]:
    """Wait until a command has ended, and pass on to it the signals that come.

    Returns:
        Its exit code, negative where a signal ended it; and the signals that came.
    """
    came = list[int]()

    def forward(number: int, frame: types.FrameType | None) -> None:
        came.append(number)
        has_terminal = sys.stdin is not None and sys.stdin.isatty()
        if not (number == signal.SIGINT and has_terminal):
            command.send_signal(number)

    numbers = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
    # one that is ignored (nohup, a shell's background job) stays ignored, here and in the command
    handled = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, forward) for number in handled}
    try:
        return command.wait(), came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
