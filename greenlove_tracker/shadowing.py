"""Files beside the user's script that hide libraries: they are the script's, and not ours to execute.

Python looks beside the script first. A ``requests.py`` or ``statistics.py`` there would be executed by whatever library
of ours imports that name, long after the script has begun, and break it. So the meter, the forecasts and the last
screen do without.

What ``import greenlove_tracker`` itself loads of Python's own modules is loaded as any library loads it: a ``csv.py``
beside the script is executed there, and may make that import fail. Loading Python's in its place would take the
script's own away from it. Under ``greenlove run`` both have their own.
"""

from __future__ import annotations

import importlib.metadata as metadata
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import BuiltinImporter, FrozenImporter, ModuleSpec, PathFinder, all_suffixes
from types import ModuleType

_ROOTS = ("codecarbon", "psutil", "scipy", "statsmodels", "rich", "nvidia-ml-py")  # what we load beside a training
_NEVER_LOADED = frozenset({"test", "idlelib", "turtledemo", "antigravity", "this"})  # of the standard library
_LIBRARY_DIRS = ("site-packages", "dist-packages")
_KEPT = frozenset({"__main__", "greenlove_tracker", "encodings", "site", "sitecustomize", "usercustomize"})


class HiddenLibraryError(ImportError):
    """A library was not loaded, because a file beside the script would have been executed in its place."""


def script_directories() -> frozenset[str]:
    """Return the entries of Python's path, absolute, where files of the script's own are.

    They are the first entry, the script's own directory, which is further behind after ``sys.path.insert(0, …)``, and
    the working directory, which is that of ``python -m``.
    """
    main = sys.modules.get("__main__")
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    candidates = {*map(_absolute, sys.path[:1]), _absolute(""), _STARTED_IN}
    if file and (spec is None or spec.name == "__main__"):  # else a module of some package, whose directory is no entry
        candidates |= {os.path.dirname(find(file)) for find in (_absolute, os.path.realpath)}  # noqa: PTH120
    python = os.path.dirname(os.__file__)  # noqa: PTH120
    entries = candidates.intersection(map(_absolute, sys.path))
    return frozenset(e for e in entries if e != python and os.path.basename(e) not in _LIBRARY_DIRS)  # noqa: PTH119


def _absolute(path: str) -> str:
    try:
        return os.path.abspath(path)  # noqa: PTH100  # an empty one: the working directory
    except OSError:  # which is gone
        return path


_STARTED_IN = _absolute("")  # a script may change its working directory; in the path the first one stays


def hidden_libraries() -> Mapping[str, str]:
    """Return the files beside the script that hide a library of Python or ours, by the library's name.

    What was loaded already from where it belongs is not hidden any more.
    """
    path, scripts = list(dict.fromkeys(map(_absolute, sys.path))), script_directories()
    found: dict[str, str] = {}
    for n, directory in enumerate(path):
        if directory not in scripts:
            continue
        behind = tuple(entry for entry in path[n + 1 :] if entry not in scripts)
        for name in sorted(_module_names(directory) & _names_in(behind) - found.keys()):
            file = _file_of(name, directory)
            if file is not None and _is_loaded_by_us(name) and not _is_loaded_from_elsewhere(name, file):
                found[name] = file
    return found


@contextmanager
def only_libraries() -> Iterator[None]:
    """Refuse, on this thread, to load what a file beside the script hides.

    Raises:
        HiddenLibraryError: from the import in the block.
    """
    hidden = hidden_libraries()
    if not hidden:
        yield
        return
    finder = _Refusing(hidden)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def give_way() -> Mapping[str, ModuleType]:
    """Take from Python's loaded modules those whose names belong to files beside the script, which is about to run.

    Without us nobody would have loaded them, and the script's own would be found.

    Returns:
        What was taken, by name.
    """
    beside = _absolute(sys.path[0])
    files = {name: _file_of(name, beside) for name in _module_names(beside) if name in sys.modules}
    own = {name for name, file in files.items() if file is not None and _is_loaded_from_elsewhere(name, file)}
    hidden = {name for name in own if not _is_always_loaded(name)}
    return {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in hidden}


class _Refusing(MetaPathFinder):
    def __init__(self, hidden: Mapping[str, str]) -> None:
        self._hidden, self._thread = hidden, threading.get_ident()

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        """Refuse what is hidden; leave everything else to the finders behind this one."""
        if fullname in self._hidden and threading.get_ident() == self._thread:
            file = self._hidden[fullname]
            raise HiddenLibraryError(f"{file} hides the library {fullname}; rename the file", name=fullname)
        return None


def _module_names(directory: str) -> frozenset[str]:
    try:
        entries = os.listdir(directory)  # noqa: PTH208  # names alone, of thousands
    except OSError:  # no directory, such as an archive
        return frozenset()
    suffixes = tuple(all_suffixes())
    return frozenset(name.split(".")[0] for name in entries if name.endswith(suffixes) or name.isidentifier())


@cache
def _names_in(directories: tuple[str, ...]) -> frozenset[str]:
    return frozenset().union(*map(_module_names, directories))


def _file_of(name: str, directory: str) -> str | None:
    """Return the file of a module or package there; None of a directory without code, which hides nothing."""
    spec = PathFinder.find_spec(name, [directory])
    return spec.origin if spec is not None and spec.loader is not None else None


def _is_loaded_from_elsewhere(name: str, file: str) -> bool:
    origin = getattr(getattr(sys.modules.get(name), "__spec__", None), "origin", None)
    return origin is not None and os.path.realpath(origin) != os.path.realpath(file)


def _is_always_loaded(name: str) -> bool:
    """Return True of what Python itself loads before any script."""
    loader = getattr(getattr(sys.modules.get(name), "__spec__", None), "loader", None)
    return name in _KEPT or loader in (BuiltinImporter, FrozenImporter)


def _is_loaded_by_us(name: str) -> bool:
    """Return True of a module of Python's, or of a distribution that ours need."""
    if name in sys.stdlib_module_names:
        return name not in _NEVER_LOADED
    return any(_normalised(owner) in _requirements() for owner in _owners().get(name, ()))


@cache
def _owners() -> Mapping[str, Sequence[str]]:
    return metadata.packages_distributions()  # reads what every installed distribution consists of


@cache
def _requirements() -> frozenset[str]:
    found: set[str] = set()
    waiting = list(_ROOTS)
    while waiting:
        name = _normalised(waiting.pop())
        if name in found:
            continue
        try:
            needed = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        found.add(name)
        waiting += [re.split(r"[^\w.-]", text, maxsplit=1)[0] for text in needed if "extra ==" not in text]
    return frozenset(found)


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
