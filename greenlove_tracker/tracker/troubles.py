"""What goes wrong on our side: told once, and the training goes on."""

from __future__ import annotations

import logging

_log = logging.getLogger("greenlove_tracker")


class Troubles:
    """Tells each kind of trouble once."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def warn(self, kind: str, message: str) -> None:
        """Say it, where nothing of its kind was said before."""
        if kind not in self._told:
            self._told.add(kind)
            _log.warning("greenlove: %s", message)

    def is_ours(self, kind: str, error: Exception) -> None:
        """An error that should not have been."""
        self.warn(kind, f"an error of greenlove_tracker's own, training goes on: {error!r}")
        _log.debug("greenlove_tracker", exc_info=error)

    def meter_failed(self, error: Exception) -> None:
        """The meter gave up in the middle of the run."""
        self.warn("meter", f"the energy meter failed: {error}. Time is tracked on; energy is unknown where it fails")

    def log_failed(self, error: OSError) -> None:
        """A row did not reach the disk."""
        self.warn("log", f"the log cannot be written ({error}); tracking goes on in memory, writing is tried again")
