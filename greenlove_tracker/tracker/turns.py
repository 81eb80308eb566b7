"""Short turns at Python's lock while a thread of ours has much to do beside a training in pure Python.

A thread gives the lock back at every file that it reads, and then waits until the training's turn ends: 5 ms, unless
told otherwise. Loading SciPy, a second by itself, took 15 s so; with turns of half a millisecond it takes 3 s. The
training gives up the same time in all, and waits less for the lock itself.
"""

from __future__ import annotations

import os
import sys
import threading
from types import TracebackType

_TURN_S = 0.0005
_CUT_OFF_S = 5e-7  # Python cuts what it is given off to whole microseconds, and half of one makes up for that


class _ShortTurns:
    """``with short_turns:`` on any thread; the last to leave puts back what was there."""

    def __init__(self) -> None:
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._lock, self._n_inside = threading.Lock(), 0
        self._before_s: float | None = None  # None: the turns are as they were

    def __enter__(self) -> None:
        with self._lock:
            self._n_inside += 1
            before_s = sys.getswitchinterval()
            if self._n_inside == 1 and before_s > _TURN_S:
                self._before_s = before_s
                sys.setswitchinterval(_TURN_S)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._n_inside -= 1
            if self._n_inside == 0:
                self._put_back()

    def _put_back(self) -> None:
        before_s, self._before_s = self._before_s, None
        if before_s is not None and sys.getswitchinterval() <= _TURN_S:  # else the training has set its own meanwhile
            sys.setswitchinterval(before_s + _CUT_OFF_S)

    def forget(self) -> None:
        """In a forked child: the threads that were inside are not there."""
        self._put_back()
        self._begin_anew()


short_turns = _ShortTurns()
"""The one of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=short_turns.forget)
