"""Leaving no trace: what training changes is copied before an exploration, and put back in place after it.

Copied are the parameters, buffers, gradients, flags, hooks and plain attributes of models; optimizers, their
learning-rate schedulers, gradient scalers and averaged models; a loader's generators, samplers and workers; random
states and torch's switches; and ``also_restore``. Every tensor stays the same object in the same memory, so that
whoever holds it still holds the right one. What else a step changes only the user knows: docs/guides/explore.md.
"""

from __future__ import annotations

import copy
import gc
import os
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import is_
from typing import Any

import psutil
import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.optim.swa_utils import AveragedModel

from greenlove_tracker.devices import machine_share
from greenlove_tracker.errors import GreenloveError, UsageError
from greenlove_tracker.exploration.random_state import (
    SavedState,
    generators_within,
    random_states,
    saved_generator,
    switches,
)
from greenlove_tracker.exploration.task import each_of
from greenlove_tracker.format import significant
from greenlove_tracker.units import BYTES_PER_GB

_HOST_SHARE = 0.8  # of the host's free memory, that copies may take
_FROZEN_RATIO = 2.0  # of frozen weights to what trains, up to which they are copied: a teacher is, LoRA's base is not
_CONTAINERS = (dict, OrderedDict, defaultdict, Counter, list, deque, set)
_GradScaler = torch.amp.GradScaler if hasattr(torch.amp, "GradScaler") else torch.cuda.amp.GradScaler  # torch < 2.3
_TRAINS = (torch.optim.Optimizer, LRScheduler, ReduceLROnPlateau, _GradScaler)
_WRAPPERS = ("torch.distributed", "torch.nn.parallel.distributed")  # they set themselves up where nobody sees it


class RestoreError(GreenloveError, RuntimeError):
    """Something could not be put back after an exploration; the message names it and says what to do."""


@contextmanager
def preserved(
    models: Any,
    optimizers: Any = (),
    *,
    loaders: Any = (),
    others: Sequence[Any] = (),
) -> Iterator[None]:
    """Leave no trace of the block inside, also where it fails or is interrupted; arguments as of ``Snapshot``.

    Raises:
        RestoreError: something could not be put back.
        UsageError: as ``Snapshot``, before anything runs.
    """
    snapshot = Snapshot(models, optimizers, loaders=loaders, others=others)
    try:
        yield
    finally:
        try:
            snapshot.restore()
        except KeyboardInterrupt:  # half of a model put back would be worse than none
            snapshot.restore()
            raise
        finally:
            snapshot.release()  # a traceback may hold the snapshot for long


class Snapshot:
    """The state of a training when the snapshot was taken; copies lie in the host's memory.

    Args:
        models: one module or several; the criterion too, where it is a module.
        optimizers: one or several.
        loaders: one or several sources of batches: a DataLoader, or the data set that it is made from.
        others: what the user names: modules, schedulers, scalers, random generators, objects with ``state_dict`` and
            ``load_state_dict``, or pairs of functions (save, restore).

    Attributes:
        size_bytes: of all copies together.

    Raises:
        UsageError: there is no memory for the copies, or something cannot be saved; nothing was changed.
    """

    def __init__(
        self,
        models: Any,
        optimizers: Any = (),
        *,
        loaders: Any = (),
        others: Sequence[Any] = (),
    ) -> None:
        of_process = [*switches(), *random_states()]  # put back last, for all else may draw
        for state in of_process:
            state.copy()
        self._storages: dict[int, torch.UntypedStorage] = {}  # memory of tensors to copy, by identity
        self._frozen: dict[int, torch.UntypedStorage] = {}  # and that of weights that do not train
        self._frozen_versions: list[tuple[torch.Tensor, int]] = []
        self._states: list[SavedState] = []
        self._undos: list[Callable[[], object]] = []
        self._seen: dict[int, Any] = {}  # held, so that no other object gets the id meanwhile
        for index, thing in enumerate(others):
            self._add_named(f"also_restore[{index}]", thing)
        for model in each_of(models):
            if not isinstance(model, nn.Module):
                raise UsageError(f"a model is a {type(model).__name__}, not a torch.nn.Module")
            self._add(model)
        for optimizer in each_of(optimizers):
            self._add_named("optimizer", optimizer)
        for loader in each_of(loaders):
            self._add_loader(loader)
        frozen_bytes, self.size_bytes = (sum(s.nbytes() for s in of.values()) for of in (self._frozen, self._storages))
        if frozen_bytes <= _FROZEN_RATIO * self.size_bytes:
            self._storages |= self._frozen
            self._frozen_versions.clear()
            self.size_bytes += frozen_bytes
        _check_memory(self.size_bytes)
        for state in self._states:
            try:
                state.copy()
            except Exception as error:
                raise UsageError(f"{state.name} cannot be saved, so exploring would change it: {error!r}") from error
        self._states += of_process
        self._copies = [(storage, _on_host(storage)) for storage in self._storages.values()]
        for loader in each_of(loaders):
            if getattr(loader, "_iterator", None) is not None:
                loader._iterator = None  # the user's workers are set aside: the exploration starts others

    def restore(self) -> None:
        """Put everything back; may be called again.

        Raises:
            RestoreError: something could not be put back; all else was.
        """
        failures: list[tuple[str, BaseException]] = []
        undos: list[Callable[[], object]] = [
            *reversed(self._undos),
            *(partial(_put_values_back, storage, of_it) for storage, of_it in self._copies),
        ]
        named = [("a part", undo) for undo in undos] + [(state.name, state.restore) for state in self._states]
        for name, put_back in named:
            try:
                put_back()
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # of the user's code too: whatever it raises, the rest is put back
                failures.append((name, error))
        torch.clear_autocast_cache()  # it may hold casts of the exploration's weights
        if any(tensor._version != version for tensor, version in self._frozen_versions):
            failures.append(("a frozen weight", RuntimeError("it was not copied, and yet it changed")))
        if failures:
            texts = "; ".join(f"{name}: {error!r}" for name, error in failures[:5])
            raise RestoreError(
                f"the exploration could not put back {texts}. "
                "Training on would differ from a run that never explored: build the model and what trains it anew"
            ) from failures[0][1]

    def release(self) -> None:
        """Let the copies go."""
        self.__dict__.clear()

    def _add(self, thing: Any, *, copies_frozen: bool = False) -> None:
        """Note how to put a thing back, and what it holds."""
        queue = deque([thing])
        while queue:
            thing = queue.popleft()
            if id(thing) not in self._seen:
                self._seen[id(thing)] = thing
                queue.extend(self._noted(thing, copies_frozen))

    def _noted(self, thing: Any, copies_frozen: bool) -> Iterable[Any]:
        """Note how to put a thing back, and return its parts."""
        generator = saved_generator(type(thing).__name__, thing)
        if generator is not None:
            self._states.append(generator)
        elif isinstance(thing, torch.Tensor):
            return self._tensor(thing, copies_frozen)
        elif type(thing) in _CONTAINERS:
            keys, values = _content(thing)
            self._undos.append(partial(_refill, thing, keys, values))
            return values
        elif isinstance(thing, tuple):
            return thing
        elif isinstance(thing, nn.Module):
            self._undos.append(partial(setattr, thing, "training", thing.training))
            parts = (*thing.parameters(recurse=False), *thing.buffers(recurse=False), *thing.children())
            return parts if type(thing).__module__.startswith(_WRAPPERS) else (*parts, vars(thing))
        elif isinstance(thing, _TRAINS):
            return (vars(thing),)
        return ()

    def _tensor(self, tensor: torch.Tensor, copies_frozen: bool) -> Iterable[Any]:
        if is_lazy(tensor):
            raise UsageError(
                "the model has parameters without a shape, which cannot be put back: call it on one batch first, as "
                "torch's documentation of lazy modules asks"
            )
        grad = tensor.grad if tensor.is_leaf else None
        is_frozen = isinstance(tensor, nn.Parameter) and not tensor.requires_grad and grad is None and not copies_frozen
        found = [storage for part in plain_parts(tensor) if (storage := storage_of(part)) is not None]
        copied = self._frozen if is_frozen else self._storages
        copied |= {s._cdata: s for s in found if s.device.type != "meta" and s._cdata not in self._storages}
        if not tensor.is_inference():
            if is_frozen:
                self._frozen_versions.append((tensor, tensor._version))
            was = (tensor.is_leaf, tensor.requires_grad, grad)
            self._undos.append(partial(_put_back, tensor, tensor.detach(), *was))
        return (grad,)

    def _add_named(self, name: str, thing: Any) -> None:
        """Add what the user names; of modules also what does not train.

        Raises:
            UsageError: it can neither be put back by us nor restores itself.
        """
        if isinstance(thing, tuple | list) and len(thing) == 2 and all(map(_is_function, thing)):
            self._states.append(SavedState(name, *thing))
        elif isinstance(thing, (nn.Module, torch.Tensor, *_TRAINS)) or saved_generator(name, thing) is not None:
            self._add(thing, copies_frozen=isinstance(thing, nn.Module | torch.Tensor))
        elif all(callable(getattr(thing, method, None)) for method in ("state_dict", "load_state_dict")):
            self._states.append(SavedState(name, partial(_state_dict, thing), partial(_load_state_dict, thing)))
        else:
            raise UsageError(
                f"{name} is a {type(thing).__name__}, which cannot be saved and restored: pass an object with "
                "state_dict() and load_state_dict(), or a pair of functions, the first of which returns what the "
                "second takes to restore it"
            )

    def _add_loader(self, loader: Any) -> None:
        """Add a loader's generators, the attributes of its samplers and its data set, and its workers; but no data."""
        parts = {**getattr(loader, "__dict__", {})}
        own = parts.pop("_iterator", None)
        for generator in generators_within([*parts.values()] or [loader]):
            self._add(generator)
        batch_sampler = parts.get("batch_sampler")
        samplers = (parts.get("sampler"), batch_sampler, getattr(batch_sampler, "sampler", None))
        for thing in (loader, parts.get("dataset"), *samplers):
            if hasattr(thing, "__dict__") and not isinstance(thing, type):
                self._undos.append(partial(_refill, vars(thing), *_content(vars(thing))))
        if hasattr(loader, "_iterator"):
            self._undos.append(partial(_end_workers, loader, own))


def _is_function(thing: Any) -> bool:
    return callable(thing) and not isinstance(thing, nn.Module)


def _state_dict(thing: Any) -> Any:  # copied in both directions: many a state_dict is the object's own state
    return copy.deepcopy(thing.state_dict())


def _load_state_dict(thing: Any, state: Any) -> None:
    thing.load_state_dict(copy.deepcopy(state))


def _on_host(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    return torch.UntypedStorage(storage.nbytes()).copy_(storage)


def _put_values_back(storage: torch.UntypedStorage, copied: torch.UntypedStorage) -> None:
    if storage.device.type != "cpu" or not torch.equal(_octets(storage), _octets(copied)):
        storage.copy_(copied)  # not where nothing changed: a file that is mapped into memory may be read-only


def _octets(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8).set_(storage)


def _put_back(tensor: torch.Tensor, alias: torch.Tensor, was_leaf: bool, required_grad: bool, grad: Any) -> None:
    """Let a tensor have the memory, the gradient and the flag that it had."""
    if is_plain(tensor) and _memory(tensor) != _memory(alias):
        tensor.data = alias
    if was_leaf:
        if not tensor.is_leaf:
            tensor.detach_()  # a step wrote its result into a buffer
        tensor.requires_grad_(required_grad)
        tensor.grad = grad


def _memory(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


def plain_parts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the tensors that hold a tensor's data: those of a quantized or sparse one, else the tensor itself."""
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is not None:
        for name in flatten()[0]:
            yield from plain_parts(getattr(tensor, name))
    elif tensor.layout is torch.sparse_coo:
        yield from (tensor._indices(), tensor._values())
    else:
        yield tensor


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """Return a tensor's memory; None of one that says of none, such as one in oneDNN's own layout."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None


def is_plain(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is a mere piece of memory: neither sparse, nor on the meta device, nor made of others."""
    return (
        tensor.layout is torch.strided
        and not tensor.is_meta
        and not tensor.is_quantized
        and type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
    )


def _content(container: Any) -> tuple[list[Any], list[Any]]:
    return (list(container), list(container.values())) if isinstance(container, dict) else ([], list(container))


def _refill(container: Any, keys: list[Any], values: list[Any]) -> None:
    """Put the items of a container back, unless they are what they were."""
    now = _content(container)
    if all(len(old) == len(new) and all(map(is_, old, new)) for old, new in zip((keys, values), now, strict=True)):
        return
    container.clear()
    if isinstance(container, dict):
        for key, value in zip(keys, values, strict=True):  # a Counter's update() would add
            container[key] = value
    elif isinstance(container, set):
        container.update(values)
    else:
        container.extend(values)


def _end_workers(loader: Any, own: Any) -> None:
    """End the workers that the exploration started, and put the loader's own back."""
    started, loader._iterator = loader._iterator, own
    if started is not own and hasattr(started, "_shutdown_workers"):
        started._shutdown_workers()


def find_lr_schedulers(optimizers: Any, known: Sequence[Any]) -> tuple[Any, ...]:
    """Find the schedulers of these optimizers that nobody named: a step that steps them would leave them changed.

    An optimizer does not know its schedulers, they know it: they are looked for among all objects, which takes some
    tens of ms. Not all leave a mark on the optimizer: ``ReduceLROnPlateau`` does not.

    Args:
        optimizers: one, or several in a sequence or mapping.
        known: that the user named already.
    """
    wanted = {id(optimizer) for optimizer in each_of(optimizers)}
    found = _objects_of(LRScheduler, ReduceLROnPlateau)
    return tuple(s for s in found if id(getattr(s, "optimizer", None)) in wanted and all(s is not k for k in known))


def find_scalers_and_averages() -> list[Any]:
    """Find the gradient scalers and averaged models of this process, which a step may hold where nobody sees it."""
    return _objects_of(_GradScaler, AveragedModel)


def _objects_of(*classes: type) -> list[Any]:
    return [thing for thing in gc.get_objects() if issubclass(type(thing), classes)]  # isinstance wakes lazy objects


def free_host_bytes() -> float:
    """Return the memory of the host that this process may still take, within the limits of its container or job."""
    memory = psutil.virtual_memory()
    limit_bytes = machine_share(os.environ).ram * memory.total
    return float(max(0.0, min(memory.available, limit_bytes - psutil.Process().memory_info().rss)))


def _check_memory(needed_bytes: int) -> None:
    limit_bytes = _HOST_SHARE * free_host_bytes()
    if needed_bytes > limit_bytes:
        needed, limit = (significant(size / BYTES_PER_GB) for size in (needed_bytes, limit_bytes))
        raise UsageError(
            f"exploring needs a copy of what training changes, to put it back: {needed} GB, and {limit} GB of the "
            "host's memory may be used for it. Free memory, freeze what does not train (requires_grad_(False)), or use "
            "greenlove explore, which puts nothing back and copies nothing"
        )
