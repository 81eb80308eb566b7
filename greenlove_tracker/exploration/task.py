"""``greenlove explore train.py:task``: the pieces of a training, from a function in a user's file."""

from __future__ import annotations

import difflib
import importlib.util
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from greenlove_tracker.errors import UsageError

_RETURNS = "The function returns model, optimizer, criterion and train_dataset: docs/guides/explore.md"
_PIECES = ("model", "optimizer", "criterion", "train_dataset")
_MEANT = {
    "data": "train_dataset",
    "dataloader": "train_dataset",
    "dataset": "train_dataset",
    "loader": "train_dataset",
    "train_dataloader": "train_dataset",
    "train_loader": "train_dataset",
    "trainloader": "train_dataset",
    "loss_fn": "criterion",
    "net": "model",
    "epochs": "total_epochs",
    "steps": "total_steps",
    "lr_scheduler": "also_restore",
    "scheduler": "also_restore",
}


def load_task(target: str, takes: Collection[str], arguments: Sequence[str] = ()) -> dict[str, Any]:
    """Call the function that ``file.py:name`` names, and give its pieces by name.

    Args:
        target: ``file.py:name``.
        takes: the names that a mapping may hold.
        arguments: of the file, which finds them in ``sys.argv``.

    Raises:
        UsageError: as ``load_task_function`` and ``pieces_of``.
    """
    return pieces_of(load_task_function(target, arguments)(), target, takes)


def load_task_function(target: str, arguments: Sequence[str] = ()) -> Callable[[], Any]:
    """Return the function that ``file.py:name`` names; each call of it finds the file's own arguments.

    Args:
        target: ``file.py:name``.
        arguments: of the file, which finds them in ``sys.argv``.

    Raises:
        UsageError: where there is no such file or function, or the file trains when it is imported.
    """
    file, separator, name = target.rpartition(":")
    if not separator or not name.isidentifier():
        raise UsageError(f"{target} must name a file and a function in it, such as train.py:task. {_RETURNS}")
    path = Path(file)
    if not path.is_file():
        raise UsageError(f"no such file: {file}")
    spec = importlib.util.spec_from_file_location(_module_name(path), path.absolute())
    if spec is None or spec.loader is None:
        raise UsageError(f"{file} is not a Python file")
    sys.path.insert(0, str(path.absolute().parent))  # the file's own imports, as when it is run
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # pickles of loader workers look it up
    with _argv(file, arguments), _without_training(file):
        spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise UsageError(f"{file} has no function {name}(). {_RETURNS}")

    def call() -> Any:
        with _argv(file, arguments):
            return function()

    return call


@contextmanager
def _argv(file: str, arguments: Sequence[str]) -> Iterator[None]:
    argv, sys.argv = sys.argv, [file, *arguments]
    try:
        yield
    finally:
        sys.argv = argv


def _module_name(path: Path) -> str:
    """Return the file's own name, unless a library is imported by it: that one must stay what it is."""
    is_taken = path.stem in sys.modules or path.stem in sys.stdlib_module_names
    if not is_taken:
        with suppress(ImportError, ValueError):
            is_taken = importlib.util.find_spec(path.stem) is not None
    return f"greenlove_task_{path.stem}" if is_taken else path.stem


@contextmanager
def _without_training(file: str) -> Iterator[None]:
    """Refuse a file that trains when it is imported: that would take hours, and leave nothing to explore.

    Raises:
        UsageError: at the first step of any optimizer.
    """
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    reason = UsageError(
        f"{file} trains when it is imported (an optimizer stepped), so nothing could be explored first: put the "
        'training under if __name__ == "__main__":'
    )
    has_stepped = False

    def refuse(*_: Any) -> None:
        nonlocal has_stepped
        has_stepped = True
        raise reason

    handle = register_optimizer_step_pre_hook(refuse)
    try:
        yield
    except BaseException:
        if has_stepped:
            raise reason from None
        raise
    finally:
        handle.remove()
    if has_stepped:  # the file caught what it was told
        raise reason


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
        if unknown := [str(name) for name in found if name not in takes]:
            raise UsageError(f"{target} gives {' '.join(_unknown(name, takes) for name in unknown)}")
        if hasattr(found.get("loss"), "forward"):
            raise UsageError(f"{target} gives a loss that is a module: name it criterion; loss is of (model, batch)")
        given = {"criterion": None, **found} if "loss" in found else dict(found)
        if missing := [piece for piece in _PIECES if piece not in given]:
            raise UsageError(f"{target} gives no {', '.join(missing)}")
        return given
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


def each_of(things: Any) -> list[Any]:
    """Return one optimizer or model, or several in a sequence or mapping, as a list."""
    if isinstance(things, Mapping):
        return list(things.values())
    return list(things) if isinstance(things, list | tuple) else [things]
