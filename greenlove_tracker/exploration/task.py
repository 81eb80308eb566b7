"""``greenlove explore train.py:task``: the pieces of a training, from a function in a user's file."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from greenlove_tracker.files.reading import parsed, read_bytes
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
    if not _names(path, name):  # before it is run: a plain script would train
        raise UsageError(f"{file} has no function {name}(). {_RETURNS}")
    spec = importlib.util.spec_from_file_location(_module_name(path), path.absolute())
    if spec is None or spec.loader is None:
        raise UsageError(f"{file} is not a Python file")
    sys.path.insert(0, str(path.absolute().parent))  # the file's own imports, as when it is run
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # pickles of loader workers look it up
    with _argv(file, arguments):
        spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise UsageError(f"{file} has no function {name}(). {_RETURNS}")

    def call() -> Any:
        with _argv(file, arguments):
            return function()

    return call


def _names(path: Path, name: str) -> bool:
    """Return True where a file names something so at all; where it cannot be parsed, running it says why."""
    try:
        nodes = list(ast.walk(parsed(read_bytes(path), ast.parse)))
    except (SyntaxError, ValueError):
        return True
    found = {getattr(node, attribute, None) for node in nodes for attribute in ("name", "asname", "id")}
    return name in found or "*" in found


@contextmanager
def _argv(file: str, arguments: Sequence[str]) -> Iterator[None]:
    argv = sys.argv
    sys.argv = [file, *arguments]
    try:
        yield
    finally:
        sys.argv = argv


def _module_name(path: Path) -> str:
    """Return the file's own name, unless a library is imported by it: that one must stay what it is."""
    is_taken = path.stem in sys.modules or ("." not in path.stem and importlib.util.find_spec(path.stem) is not None)
    if is_taken:
        return f"greenlove_task_{path.stem}"
    return path.stem


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
    if isinstance(found, Mapping):
        unknown = [str(name) for name in found if name not in takes]
        if unknown:
            known = "Estimator takes no such argument (help(greenlove_tracker.Estimator))"
            raise UsageError(f"{target} gives {', '.join(unknown)}: {known}")
        if hasattr(found.get("loss"), "forward"):
            raise UsageError(f"{target} gives a loss that is a module: name it criterion; loss is of (model, batch)")
        if "loss" in found:
            given = {"criterion": None, **found}
        else:
            given = dict(found)
        missing = [piece for piece in _PIECES if piece not in given]
        if missing:
            raise UsageError(f"{target} gives no {', '.join(missing)}")
        return given
    if isinstance(found, tuple) and len(found) == len(_PIECES):
        return dict(zip(_PIECES, found, strict=True))
    raise UsageError(
        f"{target} must return (model, optimizer, criterion, train_dataset), or a dict of those and of more arguments "
        f"of Estimator, not {type(found).__name__}"
    )


def each_of(things: Any) -> list[Any]:
    """Return one optimizer or model, or several in a sequence or mapping, as a list."""
    if isinstance(things, Mapping):
        return list(things.values())
    if isinstance(things, list | tuple):
        return list(things)
    return [things]
