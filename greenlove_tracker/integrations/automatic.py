"""Add our callback to trainers of Lightning and Hugging Face under ``greenlove run``.

Lightning asks other packages for callbacks, by entry points that this package's installation names: it gives some only
under the runner. Hugging Face takes the callbacks of every trainer from a list, which ours is put into when the script
has imported it. Where the script gives our callback itself, or has a tracker around its training, ours does nothing.

It hears of an import from a watcher, right after the module was executed: nothing is imported for it.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Iterator
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

_HUGGING_FACE = "transformers.trainer"
_on_error: Callable[[Exception], None] | None = None  # of the ``with`` block that is open


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


@contextlib.contextmanager
def automatic_callbacks(on_error: Callable[[Exception], None]) -> Iterator[None]:
    """Add our callback to each trainer that is made within the ``with`` block.

    Args:
        on_error: called with an error of ours; the trainer then gets no callback.
    """
    global _on_error
    watcher = ImportWatcher({_HUGGING_FACE: partial(_give_hugging_face, on_error)})
    _on_error = on_error
    watcher.start()
    try:
        yield
    finally:
        _on_error = None
        watcher.stop()


def _give_hugging_face(on_error: Callable[[Exception], None], module: types.ModuleType) -> None:
    try:
        from greenlove_tracker.integrations.huggingface import AutomaticHuggingFaceCallback

        module.DEFAULT_CALLBACKS.append(AutomaticHuggingFaceCallback)
    except Exception as error:
        on_error(error)


def lightning_callbacks() -> list[Any]:
    """Return the callbacks for a new Lightning trainer, which calls this; none outside ``greenlove run``."""
    if _on_error is None:
        return []
    try:
        from greenlove_tracker.integrations.lightning import AutomaticLightningCallback

        return [AutomaticLightningCallback()]
    except Exception as error:
        _on_error(error)
        return []
