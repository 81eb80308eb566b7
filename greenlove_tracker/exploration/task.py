"""``greenlove explore train.py:task``: the pieces of a training, from a function in a user's file."""

from __future__ import annotations

import difflib
import importlib.util
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from greenlove_tracker.errors import UsageError

_PIECES = ("model", "optimizer", "criterion", "train_dataset")
_MEANT = {
    "data": "train_dataset",
    "dataloader": "train_dataset",
    "dataset": "train_dataset",
    "loader": "train_dataset",
    "train_dataloader": "train_dataset",
    "train_loader": "train_dataset",
    "trainloader": "train_dataset",
    "loss": "criterion",
    "loss_fn": "criterion",
    "net": "model",
    "epochs": "total_epochs",
    "steps": "total_steps",
    "lr_scheduler": "also_restore",
    "scheduler": "also_restore",
}


def load_task(target: str, takes: Collection[str]) -> dict[str, Any]:
    """Call the function that ``file.py:name`` names, and give its pieces by name.

    It returns ``(model, optimizer, criterion, train_dataset)``, or a mapping of those and of what else ``Estimator``
    takes.

    Args:
        target: ``file.py:name``.
        takes: the names that a mapping may hold.

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
    return _pieces(function(), target, takes)


def _pieces(found: Any, target: str, takes: Collection[str]) -> dict[str, Any]:
    if isinstance(found, Mapping):
        if unknown := [str(name) for name in found if name not in takes]:
            raise UsageError(f"{target} gives {' '.join(_unknown(name, takes) for name in unknown)}")
        if missing := [piece for piece in _PIECES if piece not in found]:
            raise UsageError(f"{target} gives no {', '.join(missing)}")
        return dict(found)
    if isinstance(found, tuple) and len(found) == len(_PIECES):
        return dict(zip(_PIECES, found, strict=True))
    raise UsageError(
        f"{target} must return (model, optimizer, criterion, train_dataset), or a dict of those and of more arguments "
        f"of Estimator, not {type(found).__name__}"
    )


def _unknown(name: str, takes: Collection[str]) -> str:
    meant = _MEANT.get(name.lower()) or next(iter(difflib.get_close_matches(name, takes, n=1)), None)
    hint = f"did you mean {meant}?" if meant else "Estimator takes no such argument (help(greenlove_tracker.Estimator))"
    return f"{name}: {hint}"
