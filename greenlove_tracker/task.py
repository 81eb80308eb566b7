"""``greenlove explore train.py:task``: the pieces of a training, from a function in a user's file."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from greenlove_tracker.errors import UsageError

_PIECES = ("model", "optimizer", "criterion", "train_dataset")


def load_task(target: str) -> dict[str, Any]:
    """Call the function that ``file.py:name`` names, and give its pieces by name.

    It returns ``(model, optimizer, criterion, train_dataset)``, or a mapping of those and of what else ``Estimator``
    takes.

    Raises:
        UsageError: where there is no such file or function, or it returns something else.
    """
    file, separator, name = target.rpartition(":")
    if not separator or not name.isidentifier():
        raise UsageError(f"{target} must name a file and a function in it, such as train.py:task")
    path = Path(file)
    if not path.is_file():
        raise UsageError(f"no such file: {file}")
    spec = importlib.util.spec_from_file_location(path.stem, path.absolute())
    if spec is None or spec.loader is None:
        raise UsageError(f"{file} is not a Python file")
    sys.path.insert(0, str(path.absolute().parent))  # the file's own imports, as when it is run
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # pickles of loader workers look it up
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise UsageError(f"{file} has no function {name}()")
    return _pieces(function(), target)


def _pieces(found: Any, target: str) -> dict[str, Any]:
    if isinstance(found, Mapping):
        missing = [piece for piece in _PIECES if piece not in found]
        if not missing:
            return dict(found)
        raise UsageError(f"{target} gives no {', '.join(missing)}")
    if isinstance(found, tuple) and len(found) == len(_PIECES):
        return dict(zip(_PIECES, found, strict=True))
    raise UsageError(
        f"{target} must return (model, optimizer, criterion, train_dataset), or a dict of those and of more arguments "
        f"of Estimator, not {type(found).__name__}"
    )
