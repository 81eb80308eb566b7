"""A meter that is waited for only so long: hardware that hangs must not hold a training up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from greenlove_tracker.errors import MeterError
from greenlove_tracker.meter.base import Meter, MeterInfo
from greenlove_tracker.records import Energy, sum_energies

TIMEOUT_S = 5.0  # CodeCarbon's reading takes a millisecond; a driver that resets a GPU takes some seconds

_Action = Callable[[], Any]
_NOTHING_AROUND = nullcontext()


class WatchedMeter:
    """Reads and stops a meter on a thread of its own, and gives up on an answer that does not come.

    A call that hangs in a driver cannot be interrupted, only left behind. Until its answer has come at last, which
    belongs to no row any more, every further reading fails at once. The thread ends once the meter has been stopped.

    Args:
        meter: measures.
        around: the context that it is read and stopped in, on the thread that does so.
    """

    starts_at_once = False

    def __init__(self, meter: Meter, around: AbstractContextManager[object] = _NOTHING_AROUND) -> None:
        self._meter, self._around = meter, around
        self.resolution_s = meter.resolution_s
        self._asked: SimpleQueue[_Action | None] = SimpleQueue()  # None ends the thread
        self._answered: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._has_thread = self._is_waited_for = self._hangs = self._is_stopped = False
        self._left_behind: list[Energy] = []  # readings whose answers a handler of the training's kept us from taking

    @property
    def longest_hole_s(self) -> float:
        """The longest time without a reading of power behind the last ``read()``; 0 where power is not integrated."""
        hole_s: float = getattr(self._meter, "longest_hole_s", 0.0)
        return hole_s

    def start(self) -> MeterInfo:
        """Start the meter, on the caller's thread, for which nothing waits.

        Raises:
            MeterError: where nothing can be measured, with the reason.
        """
        try:
            info = self._meter.start()
        except (SystemExit, KeyboardInterrupt) as error:  # would end this thread without a word
            raise MeterError(f"the meter ended with {error!r}") from error
        try:
            threading.Thread(target=self._work, name="greenlove-meter-reader", daemon=True).start()
            self._has_thread = True
        except RuntimeError:  # there is none to be had: unwatched, then
            self._has_thread = False
        return info

    def read(self) -> Energy:
        """Return the energy since the last ``read()``, or since ``start()``.

        Raises:
            MeterError: where it could not be read, or not in time.
        """
        if self._is_stopped:
            raise MeterError("the meter was stopped")
        energy: Energy = self._ask(self._meter.read)
        left_behind, self._left_behind = self._left_behind, []
        return sum_energies([*left_behind, energy]) if left_behind else energy

    def reselect_gpus(self, env: Mapping[str, str]) -> MeterInfo | None:
        """Measure the GPUs that this environment names, where the meter can.

        Raises:
            MeterError: where it does not answer in time.
        """
        if self._is_stopped:
            return None
        info: MeterInfo | None = self._ask(partial(self._meter.reselect_gpus, env))
        return info

    def stop(self) -> None:
        """Release the hardware; where it hangs, as soon as it answers.

        Raises:
            MeterError: where that takes too long.
        """
        if self._is_stopped:
            return
        self._is_stopped = True
        try:
            self._ask(self._meter.stop)
        finally:
            self._asked.put(None)

    def _ask(self, action: _Action) -> Any:
        if not self._has_thread:
            with self._around:
                return action()
        if self._is_waited_for:
            try:
                late, _ = self._answered.get(timeout=0 if self._hangs else TIMEOUT_S)
                if isinstance(late, Energy) and not self._hangs:
                    self._left_behind.append(late)
            except Empty:
                self._hangs = True
                if self._is_stopped:
                    self._asked.put(action)
                raise MeterError("the meter still hangs") from None
        self._is_waited_for, self._hangs = True, False
        self._asked.put(action)
        try:
            answer, error = self._answered.get(timeout=TIMEOUT_S)
        except Empty:
            self._hangs = True
            raise MeterError(f"the meter hangs: no answer in {TIMEOUT_S:g} s") from None
        self._is_waited_for = False
        if error is not None:
            raise error if isinstance(error, Exception) else MeterError(f"the meter ended with {error!r}")
        return answer

    def _work(self) -> None:
        while (action := self._asked.get()) is not None:
            answer: Any = None
            error: BaseException | None = None
            try:
                with self._around:
                    answer = action()
            except BaseException as raised:  # sys.exit() of a foreign library too: it is the reader's thread, not ours
                error = raised
            self._answered.put((answer, error))
            del answer, error, action  # while it waits, it holds nothing
