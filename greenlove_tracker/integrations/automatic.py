"""Gives trainers that have callbacks ours by itself, under ``greenlove run``: Lightning's, and Hugging Face's.

Lightning asks other packages for callbacks, by entry points that this package's installation names: it gives some only
under the runner. Hugging Face takes the callbacks of every trainer from a list, which ours is put into when the script
has imported it. Where the script gives our callback itself, or has a tracker around its training, ours does nothing.

It hears of an import from a watcher, right after the module was executed: nothing is imported for it.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, Self

from greenlove_tracker.integrations.import_watcher import ImportWatcher

_HUGGING_FACE = "transformers.trainer"
_active: AutomaticCallbacks | None = None


class AutomaticCallbacks:
    """``with``: the trainers that are made in this process get our callback.

    Args:
        on_error: called with an error of ours; the trainer goes without a callback.
    """

    def __init__(self, on_error: Callable[[Exception], None]) -> None:
        self._on_error = on_error
        self._watcher = ImportWatcher({_HUGGING_FACE: self._give_hugging_face})

    def __enter__(self) -> Self:
        global _active
        _active = self
        self._watcher.start()
        return self

    def __exit__(self, *error: object) -> None:
        global _active
        _active = None
        self._watcher.stop()

    def of_lightning(self) -> list[Any]:
        """Return the callback of a trainer of Lightning's that is being made."""
        try:
            from greenlove_tracker.integrations.lightning import AutomaticLightningCallback

            return [AutomaticLightningCallback()]
        except Exception as error:
            self._on_error(error)
            return []

    def _give_hugging_face(self, module: types.ModuleType) -> None:
        try:
            from greenlove_tracker.integrations.huggingface import AutomaticHuggingFaceCallback

            module.DEFAULT_CALLBACKS.append(AutomaticHuggingFaceCallback)
        except Exception as error:
            self._on_error(error)


def lightning_callbacks() -> list[Any]:
    """Return the callbacks that a new trainer of Lightning's gets; it asks by the entry point, and outside too."""
    return [] if _active is None else _active.of_lightning()
