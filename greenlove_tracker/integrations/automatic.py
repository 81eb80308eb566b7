"""Add our callback to trainers of Lightning and Hugging Face under ``greenlove run``.

Lightning asks other packages for callbacks, by entry points that this package's installation names: it gives some only
under the runner. Hugging Face takes the callbacks of every trainer from a list, which ours is put into when the script
has imported it. Where the script gives our callback itself, or has a tracker around its training, ours does nothing.

It hears of an import from a watcher, right after the module was executed: nothing is imported for it.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any, Self

_HUGGING_FACE = "transformers.trainer"
_active: AutomaticCallbacks | None = None


class ImportWatcher(MetaPathFinder):
    """Call a function with a module right after that has been imported.

    Args:
        targets: the function of each module, by its full name.
    """

    def __init__(self, targets: dict[str, Callable[[types.ModuleType], None]]) -> None:
        self._targets = targets

    def start(self) -> None:
        """Call the functions of modules that are imported already, and wait for the others."""
        for name in [name for name in self._targets if name in sys.modules]:
            self._targets.pop(name)(sys.modules[name])
        sys.meta_path.insert(0, self)

    def stop(self) -> None:
        """Stop waiting for modules."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Find a module that is waited for; leave all others to the other finders."""
        act = self._targets.pop(fullname, None)
        if act is None:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return None
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            execute(module)
            act(module)

        loader.exec_module = exec_module
        return spec


class AutomaticCallbacks:
    """Add our callback to each trainer that is made within the ``with`` block.

    Args:
        on_error: called with an error of ours; the trainer then gets no callback.
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
        """Return the callback for a Lightning trainer that is being made."""
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
    """Return the callbacks for a new Lightning trainer, which calls this; none outside ``greenlove run``."""
    return [] if _active is None else _active.of_lightning()
