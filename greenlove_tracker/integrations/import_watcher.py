"""Tells that the script has imported a module, right after that was executed: nothing is imported for it."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any


class ImportWatcher(MetaPathFinder):
    """Calls a function with a module right after that has been executed for the first time.

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
        """Find a module that is waited for as all other finders would, and leave every other one to them."""
        act = self._targets.get(fullname)
        if act is None:
            return None
        for finder in [finder for finder in sys.meta_path if finder is not self]:
            find = getattr(finder, "find_spec", None)  # Python itself leaves out finders without it
            spec: ModuleSpec | None = find(fullname, path, target) if find is not None else None
            if spec is not None:
                break
        else:
            return None
        loader: Any = spec.loader
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return spec

        def exec_module(module: types.ModuleType) -> None:
            if module.__name__ == fullname:
                del loader.exec_module
            execute(module)
            if module.__name__ != fullname:  # an archive has one loader for all of its modules
                return
            self._targets.pop(fullname, None)
            act(module)

        with contextlib.suppress(AttributeError, TypeError):  # a loader that takes none: nothing is heard of the module
            loader.exec_module = exec_module
        return spec
