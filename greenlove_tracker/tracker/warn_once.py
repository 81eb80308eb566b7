"""Warnings of what goes wrong on our side: each kind once, and the training goes on."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

_log = logging.getLogger("greenlove_tracker")


class WarnOnce:
    """Logs one warning of each kind."""

    def __init__(self) -> None:
        self._kinds: set[str] = set()

    def warn(self, kind: str, message: str) -> None:
        """Log a warning, where none of its kind was logged before."""
        if kind not in self._kinds:
            self._kinds.add(kind)
            _log.warning("greenlove: %s", message)

    def internal_error(self, kind: str, error: Exception) -> None:
        """Warn of an error that should not have been."""
        self.warn(kind, f"an error of greenlove_tracker's own, training goes on: {error!r}")
        _log.debug("greenlove_tracker", exc_info=error)

    def meter_failed(self, error: Exception) -> None:
        """Warn of a meter that gave up in the middle of the run."""
        self.warn("meter", f"the energy meter failed: {error}. Time is tracked on; energy is unknown where it fails")

    def log_failed(self, error: OSError) -> None:
        """Warn of a row that did not reach the disk."""
        self.warn("log", f"the log cannot be written ({error}); tracking goes on in memory, writing is tried again")

    def log_incomplete(self, run_dir: Path, unwritten: Mapping[str, OSError]) -> None:
        """Warn at the end of the run that the disk still does not take all of it."""
        self.warn("unwritten", f"the log in {run_dir} is not complete: {unwritten_text(unwritten)}")


def unwritten_text(unwritten: Mapping[str, OSError]) -> str:
    """Return the reason as text: ``epochs-0.csv, run.csv could not be written (No space left on device)``."""
    reasons = dict.fromkeys(error.strerror or str(error) for error in unwritten.values())
    return f"{', '.join(sorted(unwritten))} could not be written ({'; '.join(reasons)})"
