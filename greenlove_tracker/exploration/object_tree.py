"""What hangs on a user's objects, by name, and whether it has changed: found without running code of theirs."""

from __future__ import annotations

import copyreg
import gc
import sys
import zlib
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import cache, partial
from itertools import islice
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

CONTAINERS = (dict, list, deque, set, tuple, frozenset)
GRAD_SCALER = torch.amp.GradScaler if hasattr(torch.amp, "GradScaler") else torch.cuda.amp.GradScaler  # torch < 2.3
TRAINS = (torch.Tensor, nn.Module, torch.optim.Optimizer, LRScheduler, GRAD_SCALER)
ATOMS = (str, bytes, int, float, complex, type(None))
_OF_TENSORS = ("data", "requires_grad", "grad", "_backward_hooks", "_post_accumulate_grad_hooks")
_LONGEST = 1000  # items of a container that are looked at one by one: a longer one is data
_MOST_OBJECTS = 200_000  # that are looked at
_MOST_BYTES = 64 * 1024**2  # of a tensor or an array whose content is compared
# What tells people of a training changes with each step, and changes no training.
_REPORTERS = {"greenlove_tracker", "mlflow", "rich", "tensorboard", "tensorboardX", "tqdm", "wandb"}
_NO_TRAINING = sys.stdlib_module_names | _REPORTERS

Named = Iterable[tuple[str, Any]]
Values = dict[str, Any]  # by name


def walk(roots: Named, parts: Callable[[Any], Named]) -> Named:
    """Yield what hangs on these by its name, the nearest first, each object once.

    Args:
        roots: names and objects.
        parts: of an object, with what comes behind its name; asked for after it was yielded.
    """
    queue = deque(roots)
    seen: dict[int, Any] = {}  # held, so that no other object gets an id meanwhile
    while queue:
        name, thing = queue.popleft()
        is_atom = issubclass(type(thing), ATOMS)  # isinstance would wake lazy objects
        if id(thing) in seen and not is_atom:
            continue
        yield name, thing
        if not is_atom:
            seen[id(thing)] = thing
            queue.extend((f"{name}{part}", value) for part, value in parts(thing))


def objects_of(*kinds: type) -> list[Any]:
    """Return all objects of these kinds in this process."""
    return [thing for thing in gc.get_objects() if issubclass(type(thing), kinds)]  # isinstance would wake lazy ones


def objects_within(roots: Named) -> Named:
    """Yield all that hangs on these by name, with what functions hold or name; of long containers nothing."""
    return islice(walk(roots, _parts_with_code), _MOST_OBJECTS)


def _parts_with_code(thing: Any) -> Named:
    kind = type(thing)
    if issubclass(kind, MethodType | partial):
        return [("", getattr(thing, name, None)) for name in ("__self__", "__func__", "func", "args", "keywords")]
    if issubclass(kind, FunctionType):
        return _attributes(_variables(thing))
    if issubclass(kind, type | ModuleType):
        names = vars(thing)
        is_users = _is_users(str(names.get("__module__", names.get("__name__"))))
        return [*(("", base) for base in getattr(thing, "__bases__", ())), *_attributes(names if is_users else {})]
    if issubclass(kind, CONTAINERS) and len(thing) > _LONGEST:
        return ()
    return [*parts_of(thing), ("", kind)]


def parts_of(thing: Any) -> Named:
    """Yield the items and the attributes of an object that may matter to a training."""
    kind = type(thing)
    if not is_of_training(kind):
        return
    if issubclass(kind, CONTAINERS):
        yield from (("[]", item) for item in _items(thing))
    attributes = {**getattr(thing, "__dict__", {}), **slots_of(thing)}
    attributes.pop("_iterator", None)  # workers of a loader
    if issubclass(kind, torch.Tensor):
        attributes.pop("data", None)
    for name in ("_parameters", "_buffers", "_modules") if issubclass(kind, nn.Module) else ():
        yield from _attributes(attributes.get(name, {}))
    yield from _attributes(attributes)


def _items(container: Any) -> list[Any]:
    if isinstance(container, dict):
        return [*dict.keys(container), *dict.values(container)]
    if isinstance(container, set | frozenset):
        return sorted(container, key=hash)  # their own order is another after they were put back
    return list(container)


def _attributes(values: Values) -> Named:
    return ((f".{name}", value) for name, value in values.items() if not name.startswith("__"))


def has_attributes(thing: Any) -> bool:
    """Return True of an object with attributes that may matter to a training."""
    return is_of_training(type(thing)) and (hasattr(thing, "__dict__") or bool(slots_of(thing)))


def slots_of(thing: Any) -> Values:
    """Return the attributes that an object has in slots, by name, and those of a tensor that training changes."""
    names = copyreg._slotnames(type(thing))  # type: ignore[attr-defined]
    if issubclass(type(thing), torch.Tensor):
        names = _OF_TENSORS if thing.is_leaf and not thing.is_inference() else ()
    return {name: getattr(thing, name) for name in names if hasattr(thing, name)}


def is_of_training(kind: type) -> bool:
    """Return True of a type whose attributes may matter to a training: most of Python's, and what reports, do not."""
    module = kind.__module__
    is_other = module.partition(".")[0] in _NO_TRAINING or module.startswith("torch._")
    return issubclass(kind, CONTAINERS + TRAINS) or module in ("types", "argparse") or not is_other


@cache
def _is_users(module: str) -> bool:
    """Return True of a module that is neither Python's nor an installed library's."""
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    is_library = "site-packages" in file or "dist-packages" in file
    return not is_library and module.partition(".")[0] not in _NO_TRAINING


def _names(code: CodeType) -> set[str]:
    inner = [_names(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*inner)


def _variables(function: FunctionType) -> Values:
    if not _is_users(str(function.__module__)):
        return {}
    code = function.__code__
    found = {name: function.__globals__[name] for name in _names(code) if name in function.__globals__}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # it is not filled yet
            found[name] = cell.cell_contents
    return {**found, **vars(function), "defaults": (function.__defaults__, function.__kwdefaults__)}


def values_within(roots: Named, kept: Collection[int]) -> Values:
    """Return what tells whether something that hangs on these has changed, by name; a container has all of its items.

    Args:
        roots: names and objects.
        kept: identities of those that are put back.
    """
    values = defaultdict[str, list[Any]](list)
    for name, thing in objects_within(roots):
        values[name.partition("[")[0]].append(None if id(thing) in kept else _value(thing))
    return values


def _value(thing: Any) -> Any:
    kind = type(thing)
    if issubclass(kind, float):
        return repr(thing)  # a NaN is no other one
    if issubclass(kind, ATOMS):
        return thing
    if issubclass(kind, torch.Tensor | np.ndarray | np.generic):
        return _digest(thing)
    if issubclass(kind, bytearray):
        return zlib.crc32(thing)
    if kind.__module__ == "itertools":
        return repr(thing)
    return len(thing) if issubclass(kind, CONTAINERS) else kind.__qualname__


def _digest(array: Any) -> Any:
    """Return shape and content of a tensor or an array; of a large tensor a count of its changes."""
    form = (tuple(array.shape), str(array.dtype))
    with suppress(Exception):  # sparse ones have no memory of their own, and those on meta none at all
        if array.nbytes > _MOST_BYTES:
            return (*form, getattr(array, "_version", None))
        if isinstance(array, torch.Tensor):
            array = array.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
        return (*form, zlib.crc32(array.tobytes()))
    return form


def changed_names(before: Values, now: Values) -> list[str]:
    """Return the names of what has changed, the nearest first."""
    return [name for name in {**before, **now} if before.get(name) != now.get(name)]
