"""Tells of an import right after the module was executed, so that nothing has to be imported for our sake."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any


class ImportWatcher(MetaPathFinder):
    """Calls a function with a module, of a package on ``sys.path``, right after that has been executed.

    Args:
        targets: the function of each module, by its full name.
    """

    def __init__(self, targets: dict[str, Callable[[types.ModuleType], None]]) -> None:
        self._targets = targets

    def start(self) -> None:
        """Call the functions of modules that are there already, and wait for the others."""
        for name in [name for name in self._targets if name in sys.modules]:
            self._targets.pop(name)(sys.modules[name])
        sys.meta_path.insert(0, self)

    def stop(self) -> None:
        """Wait for no module any more."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Find a module that is waited for, and leave every other one to the other finders."""
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
