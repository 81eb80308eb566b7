"""Warn of each kind of trouble once, and let the training go on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from greenlove_tracker.settings.config import Settings
from greenlove_tracker.settings.secret_masking import mask_secrets
from greenlove_tracker.text import console
from greenlove_tracker.text.format import printable
from greenlove_tracker.vocabulary.errors import UsageError, pass_on_from_handler

_log = logging.getLogger("greenlove_tracker")
_Made = TypeVar("_Made")


class WarnOnce:
    """Logs one warning of each kind."""

    def __init__(self) -> None:
        self._kinds: set[str] = set()

    def warn(self, kind: str, message: str, error: Exception | None = None) -> None:
        """Log a warning, unless one of its kind was logged before.

        Args:
            kind: the kind of warning.
            message: the message.
            error: the error behind it. An error of the training's own signal handler is raised again.
        """
        if error is not None:
            pass_on_from_handler(error)
        if kind not in self._kinds:
            self._kinds.add(kind)
            message = printable(mask_secrets(message))
            try:
                _log.warning("greenlove: %s", message)
            except Exception as error:  # of a handler of the user's, who did not call it
                console.say(f"greenlove: {message} (a logging handler failed: {error!r})")

    def internal_error(self, kind: str, error: Exception) -> None:
        """Warn of an error of ours."""
        self.warn(kind, f"an error of greenlove_tracker's own, training goes on: {error!r}", error)
        _log.debug("greenlove_tracker", exc_info=error)

    def misuse(self, kind: str, message: str) -> None:
        """Warn of a call out of order, which must not end the training."""
        self.warn(f"misuse {kind}", f"{message}. Training goes on")

    def of_setting(self, settings: Settings, name: str, instead: str, make: Callable[[], _Made]) -> _Made | None:
        """Return what a setting names; None, with a warning, if the setting is bad.

        Raises:
            UsageError: if an argument of the script gave the bad setting.
        """
        try:
            return make()
        except UsageError as error:
            if error.is_of_value:
                named = error
            else:
                named = UsageError(f"{{argument}}: {error}", argument=name)
            if settings.stop_for(named):
                raise named from error
            self.warn(name, f"{instead}: {named}")
            return None
