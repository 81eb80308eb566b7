"""Holds the training's signals for the length of a call of ours: their handlers run, and raise, once it is over.

A handler of the training's may raise: at a time-out, at a notice of preemption, at Ctrl-C. In the middle of a call of
ours the exception would tear a row, or would be taken for an error of the meter's, and be swallowed there.

Python runs handlers in the main thread only, whichever thread the system gives the signal to, so that a signal mask
would not help. During a call the handlers are swapped for one that takes note. Afterwards they are put back, wherever
ours is still in place, and the signals are raised again: Python runs the handlers then, one after the other, as it
would have without us.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

try:  # signal's own functions turn each handler into an enum and back: 10 µs instead of 0.03 and 0.4
    from _signal import getsignal as _handler_of  # type: ignore[import-not-found]
    from _signal import signal as _set_handler
except ImportError:  # another Python
    from signal import getsignal as _handler_of
    from signal import signal as _set_handler

_Handler = Callable[[int, FrameType | None], Any]

_MAX_HOLD_S = 5.0  # a signal that comes once more, this long after it was first held, is not held any longer
_UNCATCHABLE = {getattr(signal, name, None) for name in ("SIGKILL", "SIGSTOP")}
_NUMBERS = tuple(sorted(int(number) for number in signal.valid_signals() if number not in _UNCATCHABLE))


class _Taker:
    """Stands in the place of these handlers during a call; whoever keeps it, and calls it later, reaches them.

    Args:
        held: the handlers, by signal.
        hold: whether it is on, and what has come.
    """

    __slots__ = ("_hold", "held")

    def __init__(self, held: dict[int, _Handler], hold: _SignalHold) -> None:
        self.held, self._hold = held, hold

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Take note of the signal, or pass it on."""
        if self._hold.must_wait(number):
            return
        try:
            self.held[number](number, frame)
        finally:
            self._hold.forget(number)


class _SignalHold:
    """``with signal_hold:`` around what must not be interrupted; one within the other holds until the outer is left.

    In other threads than the main one it does nothing: no handler runs there.
    """

    def __init__(self) -> None:
        self._seen: tuple[Any, ...] = ()  # the handlers of all signals, when last looked
        self._taker = _Taker({}, self)  # for those of them that are held
        self._reset()

    def _reset(self) -> None:
        self._main_thread = threading.main_thread().ident
        self._depth = 0
        self._came_s: dict[int, float] = {}  # signals that wait, and when each came first

    def __enter__(self) -> None:
        self.hold()

    def __exit__(self, *error: object) -> None:
        self.release()

    def hold(self) -> None:
        """Hold the signals whose handlers are Python functions; those of C, and the defaults, stay as they are."""
        if threading.get_ident() != self._main_thread:
            return
        self._depth += 1
        if self._depth > 1:
            return
        try:
            handlers = tuple(map(_handler_of, _NUMBERS))
            if handlers != self._seen:
                self._note(handlers)
            taker = self._taker
            for number in taker.held:
                _set_handler(number, taker)
        except BaseException:  # raised by a handler that was not swapped yet
            self._depth = 0  # before anything is called: the next handler may raise there
            self.release()
            raise

    def release(self) -> None:
        """Put the handlers back, and raise the signals that came."""
        if threading.get_ident() != self._main_thread:
            return
        if self._depth > 1:
            self._depth -= 1
            return
        blocked = self._send_again(None) if self._came_s else None
        try:
            self._restore()
        finally:
            self._depth = 0
            if self._came_s:  # while handlers were put back
                blocked = self._send_again(blocked)
            if blocked is not None:
                signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def postpone(self, number: int) -> bool:
        """Return True where this signal must wait, because we are in a call; for a handler that began in the call."""
        return threading.get_ident() == self._main_thread and self.must_wait(number)

    def is_in_place(self, number: int, handler: object) -> bool:
        """Return True where this handler is the signal's, at the moment or once it is held no longer."""
        return bool(_behind(number, _handler_of(number)) == handler)

    def _note(self, handlers: tuple[Any, ...]) -> None:
        # asyncio's does nothing and is there for its wake-up file alone, and a swap would undo what it asked the
        # system for (siginterrupt)
        idle = getattr(sys.modules.get("asyncio.unix_events"), "_sighandler_noop", None)
        found = {n: _behind(n, h) for n, h in zip(_NUMBERS, handlers, strict=True)}
        held = {number: h for number, h in found.items() if callable(h) and h is not idle}
        self._taker = _Taker(held, self)  # a new one: the last may be called by a handler that came after it
        self._seen = handlers

    def must_wait(self, number: int) -> bool:
        """Take note of a signal that comes during a call; return False where it waits no longer, or there is none."""
        if not self._depth:
            return False
        now_s = time.monotonic()
        return now_s - self._came_s.setdefault(number, now_s) < _MAX_HOLD_S  # else the call hangs, and somebody insists

    def forget(self, number: int) -> None:
        """Let a signal whose handler has run wait no more."""
        self._came_s.pop(number, None)

    def _restore(self) -> None:
        try:
            for number, handler in self._taker.held.items():
                if _handler_of(number) is self._taker:
                    _set_handler(number, handler)
        except BaseException:  # raised by a handler that is back in place, before the next one is
            self._restore()
            raise

    def _send_again(self, blocked: set[int] | None) -> set[int] | None:
        """Send this thread the signals that came; it blocks them, so that they arrive at once when it does so no more.

        Python then runs one handler after the other, and the exception of the first leaves our frames before the
        second one's.

        Returns:
            What the thread is to block afterwards.
        """
        numbers, self._came_s = list(self._came_s), {}
        if not hasattr(signal, "pthread_kill"):  # Windows
            self._raise_in_turn(numbers)
            return None
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ()) if blocked is None else blocked
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
            for number in numbers:
                if number in before:  # the training has another thread receive it
                    os.kill(os.getpid(), number)
                else:
                    signal.pthread_kill(threading.get_ident(), number)
        except BaseException:  # raised by a handler that is back in place already
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            raise
        return before

    def _raise_in_turn(self, numbers: list[int]) -> None:
        try:
            signal.raise_signal(numbers[0])
        finally:
            if numbers[1:]:
                self._raise_in_turn(numbers[1:])

    def release_after_fork(self) -> None:
        """Put the handlers back in a forked child, which is in no call of ours; what waits is the parent's."""
        self._reset()
        self._restore()


def _behind(number: int, handler: Any) -> Any:
    """Return the handler of the training's that this one stands for; most stand for themselves."""
    while isinstance(handler, _Taker):
        handler = handler.held.get(number)
    return handler


signal_hold = _SignalHold()
"""The one of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=signal_hold.release_after_fork)
