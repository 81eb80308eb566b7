"""Warnings of libraries that we load beside a training: nothing that its user could mend, so not on the terminal."""

from __future__ import annotations

import logging
import os
import threading
import warnings
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import TextIO

_log = logging.getLogger("greenlove_tracker")
_MOST_SILENT_VERBOSE = 1  # above it, foreign warnings are shown
_SHOW_AT_IMPORT = warnings.showwarning


class _HiddenWarnings:
    """Hides the warnings of the thread that is inside; the warnings of other threads are shown as before.

    The filters of ``warnings`` hold for all threads, and ``catch_warnings()`` in the training puts back those that a
    library of ours has set: what is shown is decided by the thread instead.
    """

    def __init__(self) -> None:
        self._show_before = warnings.showwarning
        self.reset()

    def reset(self) -> None:
        """Begin anew, as in a forked child, where the threads that were inside do not exist."""
        self._lock, self._n_inside = threading.Lock(), 0
        self._of_thread = threading.local()

    def __enter__(self) -> None:
        self._of_thread.depth = getattr(self._of_thread, "depth", 0) + 1
        with self._lock:
            self._n_inside += 1
            if warnings.showwarning != self._show:
                self._show_before = warnings.showwarning
                warnings.showwarning = self._show

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._of_thread.depth -= 1
        with self._lock:
            self._n_inside -= 1
            if self._n_inside == 0 and warnings.showwarning == self._show:  # else somebody else has put in theirs
                warnings.showwarning = self._show_before

    def _show(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        """Take the place of ``warnings.showwarning``; whoever keeps it longer than we do has all warnings shown."""
        of_thread = self._of_thread
        if getattr(of_thread, "depth", 0):
            _log.debug("%s:%s: %s: %s", filename, lineno, category.__name__, message)
            return
        is_circle = getattr(of_thread, "is_showing", False)  # whoever came after us may call us, and we them
        of_thread.is_showing = True
        try:
            show = _SHOW_AT_IMPORT if is_circle else self._show_before
            show(message, category, filename, lineno, file, line)
        finally:
            of_thread.is_showing = is_circle


_hidden_warnings = _HiddenWarnings()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_hidden_warnings.reset)


def without_foreign_warnings(verbose: int) -> AbstractContextManager[None]:
    """Return the context that other people's code is called in by us: its warnings go to the log alone.

    Args:
        verbose: of the settings; from 2 on, warnings are shown as ever.
    """
    return _hidden_warnings if verbose <= _MOST_SILENT_VERBOSE else nullcontext()
