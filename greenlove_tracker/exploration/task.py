"""``greenlove explore train.py:task``: the pieces of a training, from a function in a user's file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from symtable import symtable
from types import ModuleType
from typing import Any

from greenlove_tracker.files.reading import read_bytes
from greenlove_tracker.vocabulary.errors import UsageError

_RETURNS = "The function returns model, optimizer, criterion and train_dataset: docs/guides/explore.md"
_PIECES = ("model", "optimizer", "criterion", "train_dataset")


def load_task_function(target: str, arguments: Sequence[str] = ()) -> Callable[[], Any]:
    """Return the function that ``file.py:name`` names; each call of it finds the file's own arguments.

    Args:
        target: ``file.py:name``.
        arguments: of the file, which finds them in ``sys.argv``.

    Raises:
        UsageError: where there is no such file or function.
    """
    file, separator, name = target.rpartition(":")
    if not separator or not name.isidentifier():
        raise UsageError(f"{target} must name a file and a function in it, such as train.py:task. {_RETURNS}")
    path = Path(file)
    if not path.is_file():
        raise UsageError(f"no such file: {file}")
    unnamed = UsageError(f"{file} has no function {name}(). {_RETURNS}")
    content = read_bytes(path)
    names = symtable(content, file, "exec").get_identifiers()  # type: ignore[arg-type]
    if name not in names and b"import *" not in content:  # asked before it is run: a plain script would train
        raise unnamed
    is_taken = path.stem in sys.modules or ("." not in path.stem and find_spec(path.stem) is not None)
    module_name = f"greenlove_task_{path.stem}" if is_taken else path.stem  # a library must stay what it is
    module = ModuleType(module_name)
    module.__file__ = str(path.absolute())
    sys.path.insert(0, str(path.absolute().parent))  # the file's own imports, as when it is run
    sys.modules[module_name] = module  # pickles of loader workers look it up
    with _argv(file, arguments):
        SourceFileLoader(module_name, module.__file__).exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise unnamed
    called: Callable[[], Any] = _argv(file, arguments)(function)
    return called


@contextmanager
def _argv(file: str, arguments: Sequence[str]) -> Iterator[None]:
    argv = sys.argv
    sys.argv = [file, *arguments]
    try:
        yield
    finally:
        sys.argv = argv


def pieces_of(found: Any, target: str, takes: Collection[str]) -> dict[str, Any]:
    """Return the pieces of a training by name.

    Args:
        found: what a task returned: ``(model, optimizer, criterion, train_dataset)``, or a mapping of those and of what
            else ``Estimator`` takes; with a ``loss`` no criterion is needed.
        target: that returned it, for messages.
        takes: the names that a mapping may hold.

    Raises:
        UsageError: where it returned something else, a piece is missing, or a name is unknown.
    """
    if isinstance(found, tuple) and len(found) == len(_PIECES):
        return dict(zip(_PIECES, found, strict=True))
    if not isinstance(found, Mapping):
        raise UsageError(
            f"{target} must return (model, optimizer, criterion, train_dataset), or a dict of those and of more "
            f"arguments of Estimator, not {type(found).__name__}"
        )
    unknown = [str(name) for name in found if name not in takes]
    if unknown:
        raise UsageError(
            f"{target} gives {', '.join(unknown)}: Estimator takes no such argument (help(greenlove_tracker.Estimator))"
        )
    if hasattr(found.get("loss"), "forward"):
        raise UsageError(f"{target} gives a loss that is a module: name it criterion; loss is of (model, batch)")
    given = {"criterion": None, **found} if "loss" in found else dict(found)
    missing = [piece for piece in _PIECES if piece not in given]
    if missing:
        raise UsageError(f"{target} gives no {', '.join(missing)}")
    return given


def each_of(things: Any) -> list[Any]:
    """Return one optimizer or model, or several in a sequence or mapping, as a list."""
    if isinstance(things, Mapping):
        return list(things.values())
    if isinstance(things, list | tuple):
        return list(things)
    return [things]
