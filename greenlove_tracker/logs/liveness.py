"""Whether a run whose end was not written is still going on."""

from __future__ import annotations

import socket
import time

_RUNNING_WITHIN_S = 150.0  # a living run writes a row at least every 60 s
_CLOCK_SLACK_S = 60.0  # between the clocks of this machine and of a file server


def is_running(host: str, pid: str, written_s: float) -> bool:
    """Whether it lives: on this machine by its process, elsewhere by when it was last written.

    Args:
        host: the machine that it was started on.
        pid: of its process there.
        written_s: when its log was last written, in seconds since the Unix epoch.
    """
    if host == socket.gethostname() and pid.isdecimal():
        return _was_alive(int(pid), written_s)
    return time.time() - written_s < _RUNNING_WITHIN_S


def _was_alive(pid: int, written_s: float) -> bool:
    """Whether the process lives, and did when the log was written: a number is given to another process later."""
    import psutil  # os.kill(pid, 0) would end the process on Windows

    try:
        return bool(psutil.Process(pid).create_time() <= written_s + _CLOCK_SLACK_S)
    except psutil.AccessDenied:
        return True
    except (psutil.Error, OverflowError):
        return False
