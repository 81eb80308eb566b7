"""Notices that a job or its machine is about to end: signals. The training saves at its next saving point."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Sequence
from functools import partial
from types import FrameType
from typing import Any, Self

from greenlove_tracker.tracker.shutdown import guard
from greenlove_tracker.vocabulary.errors import UsageError

_OF_LOADERS = "torch.utils.data._utils.signal_handling"


class TerminationNotices:
    """Listens for signals while the block runs; ``notice`` says whether one came.

    Args:
        names: of the signals; those that this system lacks are passed over.

    Attributes:
        notice: the newest that came; None once it was answered.

    Raises:
        UsageError: for what is no name of a signal.
    """

    def __init__(self, names: Sequence[str]) -> None:
        for name in names:
            if not re.fullmatch("SIG[A-Z0-9]+", name):
                raise UsageError(f"signals are named as SIGTERM is, not {name!r}")
        self._numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
        self._put_back = contextlib.ExitStack()
        self.notice: signal.Signals | None = None

    def __enter__(self) -> Self:
        for number in self._numbers:
            before = signal.getsignal(number)
            if before in (signal.SIG_IGN, None):
                continue  # nohup, or a shell's background job; None: a handler in C, which could not be put back
            if number == signal.SIGTERM and guard.receive(self.received):
                continue
            with contextlib.suppress(ValueError):  # Python lets the main thread alone set handlers
                signal.signal(number, partial(self._on_signal, before))
                self._put_back.callback(signal.signal, number, before)
        return self

    def __exit__(self, *error: object) -> None:
        guard.stop_handing_to(self.received)
        with contextlib.suppress(ValueError):
            self._put_back.close()
        if self.notice == signal.SIGTERM:
            os.kill(os.getpid(), signal.SIGTERM)  # no saving point comes any more: it ends the process after all

    def received(self, number: int) -> bool:
        """Take note of a signal; return False where the process is to end by it now: it came for the second time."""
        if self.notice == number:
            return False
        self.notice = signal.Signals(number)
        child = getattr(signal, "SIGCHLD", number)
        if getattr(signal.getsignal(child), "__module__", "") == _OF_LOADERS:
            # A job's signal goes to all of its processes, and ends the workers of a DataLoader: torch would raise in
            # the step before the training is saved.
            signal.signal(child, signal.SIG_DFL)
        return True

    def _on_signal(self, before: Any, number: int, frame: FrameType | None) -> None:
        self.received(number)
        if callable(before):
            before(number, frame)
