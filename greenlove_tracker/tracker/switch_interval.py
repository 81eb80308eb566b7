"""Short turns at Python's lock, while a thread of ours works beside a training."""

from __future__ import annotations

import os
import sys
import threading
from types import TracebackType

# A thread gives Python's lock back at every file that it reads, and then waits until the training's turn ends: 5 ms,
# unless set otherwise. Loading SciPy, a second by itself, took 15 s so beside a training in pure Python; with turns of
# half a millisecond it takes 3 s. The training gives up the same time in all, and waits less for the lock itself.
_SHORT_INTERVAL_S = 0.0005
_ROUNDING_S = 5e-7  # Python cuts the interval to whole microseconds; half of one makes up for that


class _ShortSwitchInterval:
    """``with short_switch_interval:`` on any thread; the last to leave restores the interval of before."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._lock, self._n_inside = threading.Lock(), 0
        self._before_s: float | None = None  # None: the interval is unchanged

    def __enter__(self) -> None:
        with self._lock:
            self._n_inside += 1
            before_s = sys.getswitchinterval()
            if self._n_inside == 1 and before_s > _SHORT_INTERVAL_S:
                self._before_s = before_s
                sys.setswitchinterval(_SHORT_INTERVAL_S)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._n_inside -= 1
            if self._n_inside == 0:
                self._restore()

    def _restore(self) -> None:
        before_s, self._before_s = self._before_s, None
        if before_s is not None and sys.getswitchinterval() <= _SHORT_INTERVAL_S:  # else the training set its own
            sys.setswitchinterval(before_s + _ROUNDING_S)

    def restore_after_fork(self) -> None:
        """Restore the interval in a forked child, where the threads that were inside do not exist."""
        self._restore()
        self._reset()


short_switch_interval = _ShortSwitchInterval()
"""The one of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=short_switch_interval.restore_after_fork)
