"""What hangs on a user's objects, by name: found without running code of theirs."""

from __future__ import annotations

import copyreg
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache, partial
from types import FunctionType, MethodType, ModuleType
from typing import Any

from torch import nn

CONTAINERS = (dict, list, deque, set, tuple, frozenset)
LONGEST = 1000  # items of a container that are looked at one by one: a longer one is data
_MOST_OBJECTS = 200_000  # that are looked at
_ATOMS = (type, ModuleType, str, bytes, bytearray, int, float, complex, type(None))
_LIBRARIES = ("site-packages", "dist-packages")
# What tells people of a training changes with each step, and changes no training.
_REPORTERS = {"greenlove_tracker", "mlflow", "rich", "tensorboard", "tensorboardX", "tqdm", "wandb"}
_INNER = ("torch._", "torch.utils.tensorboard")
_OF_MODULES = ("_parameters", "_buffers", "_modules")


def objects_within(roots: Iterable[tuple[str, Any]], *, with_code: bool = True) -> Iterator[tuple[str, Any]]:
    """Yield what hangs on these by its name, the nearest first, each object once, and not without end.

    Args:
        roots: names and objects.
        with_code: also what functions hold or name, and the attributes of the user's classes.
    """
    queue = deque(roots)
    seen: dict[int, Any] = {}  # held, so that no other object gets an id meanwhile
    while queue and len(seen) < _MOST_OBJECTS:
        name, thing = queue.popleft()
        if issubclass(type(thing), _ATOMS):  # isinstance would wake lazy objects
            yield name, thing
        elif id(thing) not in seen:
            seen[id(thing)] = thing
            yield name, thing
            queue.extend((f"{name}{part}", value) for part, value in _parts(thing, with_code=with_code))


def _parts(thing: Any, *, with_code: bool) -> Iterator[tuple[str, Any]]:
    kind = type(thing)
    if issubclass(kind, MethodType | partial):
        held = [getattr(thing, name, None) for name in ("__self__", "__func__", "func", "args", "keywords")]
        yield from (("", part) for part in held if part is not None)
    elif issubclass(kind, FunctionType):
        if with_code:
            yield from _named(_variables(thing))
    elif is_of_training(kind):
        if issubclass(kind, dict | list | tuple | deque) and len(thing) <= LONGEST:
            items = dict.items(thing) if issubclass(kind, dict) else enumerate(thing)
            for number, (key, value) in enumerate([*items]):
                yield f"[{key!r}]" if isinstance(key, str | int) else f"[{number}]", value
        if with_code:
            for base in kind.__mro__:
                if _is_users(base.__module__):
                    yield from _named({name: part for name, part in vars(base).items() if not name.startswith("__")})
        attributes = dict(getattr(thing, "__dict__", {}))
        for name in _OF_MODULES if issubclass(kind, nn.Module) else ():
            attributes |= attributes.pop(name, {})
        attributes.pop("_iterator", None)  # workers of a loader
        yield from _named({**attributes, **slots_of(thing)})


def _named(values: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((f".{name}", value) for name, value in values.items())


def slots_of(thing: Any) -> dict[str, Any]:
    """Return the attributes that an object has in slots, by name."""
    names = copyreg._slotnames(type(thing))  # type: ignore[attr-defined]
    return {name: getattr(thing, name) for name in names if hasattr(thing, name)}


def is_of_training(kind: type) -> bool:
    """Return True of a type whose attributes may matter to a training: most of Python's, and what reports, do not."""
    if issubclass(kind, CONTAINERS) or kind.__module__ in ("types", "argparse"):
        return True
    top = kind.__module__.partition(".")[0]
    return top not in sys.stdlib_module_names | _REPORTERS and not kind.__module__.startswith(_INNER)


@cache
def _is_users(module: str) -> bool:
    """Return True of a module that is neither Python's nor an installed library's."""
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    is_library = any(library in file for library in _LIBRARIES)
    return not is_library and module.partition(".")[0] not in sys.stdlib_module_names | _REPORTERS


def _variables(function: FunctionType) -> dict[str, Any]:
    """Return the variables that a user's function holds, and those of its module that it names."""
    if not _is_users(str(function.__module__)):
        return {}
    code = function.__code__
    found = {name: function.__globals__[name] for name in code.co_names if name in function.__globals__}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # it is not filled yet
            found[name] = cell.cell_contents
    found |= vars(function)
    return {**found, "__defaults__": function.__defaults__, "__kwdefaults__": function.__kwdefaults__}
