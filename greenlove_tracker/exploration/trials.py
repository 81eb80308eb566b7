"""A timed trial of a torch training: the user's own loader and step, on the first batches of an epoch."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader, IterableDataset

from greenlove_tracker.exploration.adaptive import TrialRequest, TrialResult
from greenlove_tracker.machine import devices
from greenlove_tracker.text.format import plural
from greenlove_tracker.vocabulary.errors import UsageError, is_whole

Step = Callable[[Any], Any]  # takes a batch, may return its loss
Batches = Iterator[Any]
_SYNCHRONISE_EVERY_S = 0.5  # a GPU runs behind: without this a deadline would be noticed too late

DEFAULT_BATCH_SIZE = 64  # of a data set that comes without a loader

_SHARED = (  # of a loader with its copy
    "num_workers",
    "collate_fn",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
    "prefetch_factor",
    "persistent_workers",
    "in_order",  # since torch 2.6
)


def run_trial(
    source: BatchSource,
    step: Step,
    request: TrialRequest,
    perf_s: Callable[[], float],
) -> TrialResult:
    """Time the requested epochs; the deadline is checked after each step.

    Args:
        source: of the batches.
        step: the training's.
        request: of so many epochs of so many batches.
        perf_s: a steady clock.

    Raises:
        UsageError: where the data end before an epoch does.
    """
    deadline = Deadline(perf_s() + request.deadline_s, perf_s)
    durations_s = list[float]()
    timed_s = 0.0
    loss = None
    is_late = False
    while len(durations_s) < request.epochs and not is_late:
        devices.synchronise()
        began_s = perf_s()
        done = 0
        first = source.first(request.batches)
        for batch in first:
            if deadline.has_passed():  # a loader's start may have taken it all
                break
            loss = step(batch)
            done += 1
            if deadline.has_passed():
                break
        is_late = deadline.has_passed()
        devices.synchronise()
        duration_s = perf_s() - began_s
        timed_s += duration_s
        del first  # only now: what a stream loaded ahead is thrown away outside the clock
        if done == request.batches:
            durations_s.append(duration_s)
        elif not is_late:
            raise UsageError(
                f"the training data ended after {plural(done, 'batch')} where {request.batches} were asked for: "
                "give it a length that is true, or fewer batches"
            )
    is_cut = 0 < done < request.batches
    batches = request.batches
    if not durations_s:
        batches = done
        if done:
            durations_s.append(duration_s)
    return TrialResult(request, batches, tuple(durations_s), timed_s, is_cut, is_finite=_is_finite(loss))


@dataclass(slots=True)
class Deadline:
    """The end of the time for steps, which a GPU that runs behind would hide: it is brought to rest now and then.

    Attributes:
        at_s: by the clock.
        perf_s: a steady clock.
        rested_s: when the GPU was at rest last, by the clock.
    """

    at_s: float
    perf_s: Callable[[], float]
    rested_s: float = -math.inf

    def has_passed(self) -> bool:
        """Return True where the time is over."""
        if self.perf_s() > self.rested_s + _SYNCHRONISE_EVERY_S:
            devices.synchronise()
            self.rested_s = self.perf_s()
        return self.perf_s() >= self.at_s


def loss_of(returned: Any) -> Any:
    """Return the loss in what a step returned: itself, or that of a dict or of a model's output; None without one."""
    if isinstance(returned, dict):
        return returned.get("loss")
    return getattr(returned, "loss", returned)


def _is_finite(loss: Any) -> bool:
    loss = loss_of(loss)
    is_number = isinstance(loss, torch.Tensor | float)
    return not is_number or bool(torch.as_tensor(loss).isfinite().all())


def clip_gradients(optimizer: Any, max_norm: float) -> None:
    """Clip the gradients of all that an optimizer trains to a norm."""
    torch.nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], max_norm)


def step_of(loss: Callable[[Any, Any], Any], max_grad_norm: float | None = None) -> Callable[..., Any]:
    """Return a training step that makes a ``loss(model, batch)`` smaller, by gradients that are clipped to a norm."""

    def step(model: Any, batch: Any, optimizer: Any, _: Any, device: Any) -> Any:
        batch = map_tensors(batch, lambda tensor: tensor.to(device, non_blocking=True))
        optimizer.zero_grad()
        found = loss(model, batch)
        found.backward()
        if max_grad_norm is not None:
            clip_gradients(optimizer, max_grad_norm)
        optimizer.step()
        return found

    return step


def loss_of_pair(model: Any, batch: Any, criterion: Any) -> Any:
    """Return the loss of a batch of (inputs, targets).

    Raises:
        UsageError: where the batch is something else.
    """
    if not isinstance(batch, list | tuple) or len(batch) != 2:
        kind = type(batch).__name__ + (f" of {len(batch)}" if isinstance(batch, list | tuple | dict) else "")
        raise UsageError(
            f"a batch is a {kind}, not (inputs, targets): give loss=, a function of (model, batch) that returns the "
            "loss, or train_step=, a function of (model, batch, optimizer, criterion, device) that makes one step"
        )
    inputs, targets = batch
    return criterion(model(inputs), targets)


def map_tensors(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """Return a value with the tensors in its tuples, lists and mappings changed, and all else as it was.

    It is in every step, and within its time: torch's ``tree_map`` takes 25 µs for a pair of tensors, and this one 2.
    """
    if isinstance(value, list | tuple):
        parts = [map_tensors(part, change) for part in value]
        # a named tuple, or not
        if hasattr(value, "_fields"):
            return type(value)(*parts)
        return type(value)(parts)
    if isinstance(value, Mapping):
        changed = {key: map_tensors(part, change) for key, part in value.items()}
        if not isinstance(value, MutableMapping):
            return type(value)(changed)  # type: ignore[call-arg]  # as of all mappings that are built of one
        other = copy(value)  # what it is of: a defaultdict, or a batch of a tokenizer
        other.update(changed)
        return other
    if isinstance(value, torch.Tensor):
        return change(value)
    return value


def samples_of(batch: Any) -> list[int]:
    """Return the samples in each tensor of a batch: its first dimension, of those that have one."""
    sizes: list[int] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        sizes.extend(tensor.shape[:1])
        return tensor

    map_tensors(batch, note)
    return sizes


def _repeated(stream: Iterable[Any]) -> Batches:
    """Yield the batches of a stream over and over, as a training in steps does; nothing of an empty one."""
    is_empty = False
    while not is_empty:
        is_empty = True
        for batch in stream:
            is_empty = False
            yield batch


class BatchSource:
    """The batches of a trial: the user's own, of anything that can be iterated anew, stopped early.

    Args:
        stream: the user's: a loader of an iterable data set, one of the user's own kind, a list.
        batch_size: of its batches, where it does not say.
        batches_per_epoch: None where it has no length.

    Attributes:
        batch_size: of the training.
        batches_per_epoch: None where endless, or unknown.
        samples_per_epoch: the last batch may hold fewer than the others.
    """

    def __init__(self, stream: Iterable[Any], batch_size: int, batches_per_epoch: int | None) -> None:
        if hasattr(stream, "__next__"):
            raise UsageError(
                "a generator or other one-shot iterator would be used up by the exploration: give what makes it anew, "
                "such as the DataLoader itself or a list"
            )
        if batches_per_epoch == 0:
            raise UsageError("the training data are empty: there is nothing to explore")
        self.batch_size = batch_size
        self.batches_per_epoch = batches_per_epoch
        self.samples_per_epoch = None if batches_per_epoch is None else batches_per_epoch * batch_size
        self._stream = stream

    def first(self, batches: int) -> Batches:
        """Begin a new epoch that ends after so many batches; the stream is let go of with what is returned."""
        stream = _repeated(self._stream) if self.batches_per_epoch is None else self._stream
        return map(lambda _, batch: batch, range(batches), stream)  # holds its stream after the last batch, too

    def __iter__(self) -> Batches:
        """Begin a new epoch, of all its batches; it has no end where nobody knows how many there are."""
        return self.first(self.batches_per_epoch or sys.maxsize)

    def close(self) -> None:
        """Let go of workers."""


@dataclass(slots=True)
class _FirstBatches:
    """A batch sampler that stops early: nothing is loaded that is not used, and the rest is as the user's own."""

    batch_sampler: Iterable[Any]
    limit: int

    def __iter__(self) -> Batches:
        return islice(self.batch_sampler, self.limit)


def copied_loader(loader: DataLoader[Any], **changes: Any) -> DataLoader[Any]:
    """Return a loader that shares all but its workers with another: data set, sampler, collating, generator.

    Args:
        loader: to copy.
        **changes: arguments of ``DataLoader`` that differ; a ``batch_sampler`` replaces batch size and sampler.
    """
    if "batch_sampler" in changes or loader.batch_size is None:
        names = ["batch_sampler"]
    else:
        names = ["batch_size", "sampler", "drop_last"]
    shared = {name: getattr(loader, name) for name in (*names, *_SHARED) if hasattr(loader, name)}
    return DataLoader(loader.dataset, **(shared | changes))


class LoaderSource(BatchSource):
    """A ``DataLoader`` of a data set with a length.

    The trials run on a copy of the loader that shares all but its workers: the data set, sampler, collating and
    pinning are the user's. Persistent workers persist over the trials, as they would over epochs; others end with each
    epoch, within its time, as they would.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        if loader.batch_sampler is None:
            raise UsageError("a DataLoader with batch_size=None gives single samples: give it a batch_size")
        batches = _length(loader)
        if not batches:
            raise UsageError(
                "the DataLoader's sampler has no length: give it __len__, or wrap the data as a stream"
                if batches is None
                else "the DataLoader gives no batch: the data set is empty, or smaller than a dropped last one"
            )
        samples = _length(loader.sampler if loader.batch_size else loader.dataset)
        mean = -(-(samples or batches) // batches)  # of a bucket sampler, whose batches differ
        batch_size = int(loader.batch_size or getattr(loader.batch_sampler, "batch_size", None) or mean)
        self._sampler = _FirstBatches(loader.batch_sampler, batches)
        self._loader = copied_loader(loader, batch_sampler=self._sampler)
        super().__init__(self._loader, batch_size, batches)
        if samples is not None and -(-samples // batch_size) == batches:  # else the sampler repeats or skips some
            self.samples_per_epoch = samples

    def first(self, batches: int) -> Batches:
        self._sampler.limit = batches
        return iter(self._loader)

    def close(self) -> None:
        self._loader._iterator = None


def source_of(data: Any, batch_size: int = DEFAULT_BATCH_SIZE) -> BatchSource:
    """Return the batches of a loader, a data set, or anything that can be iterated anew.

    Args:
        data: a ``DataLoader`` is used as it is, one of a kind of the user's own through its own iteration; a data set
            is loaded with ``batch_size``, and shuffled where it can be. A list is one of batches, unless its first item
            is a single sample: tensors without a common first dimension.
        batch_size: for a data set, or where a stream does not say.

    Raises:
        UsageError: where there is nothing to train on, or where it could not be given back.
    """
    if not is_whole(batch_size):
        raise UsageError(
            f"{{argument}} must be a whole number of at least 1, not {batch_size!r}", argument="batch_size"
        )
    batch_size = int(batch_size)
    length = _length(data)
    if isinstance(data, IterableDataset):
        data = DataLoader(data, batch_size=batch_size)
    if isinstance(data, DataLoader):
        if isinstance(data.dataset, IterableDataset) or type(data) is not DataLoader:
            return BatchSource(data, int(data.batch_size or batch_size), _length(data))
        return LoaderSource(data)
    if (
        hasattr(data, "__getitem__")
        and length is not None
        and not (isinstance(data, list | tuple) and _holds_batches(data))
    ):
        return LoaderSource(DataLoader(data, batch_size=batch_size, shuffle=length > 0))
    if not isinstance(data, Iterable):
        raise UsageError(f"train_dataset must be a data set, a DataLoader or an iterable of batches, not {data!r}")
    return BatchSource(data, batch_size, length)


def _holds_batches(data: Sequence[Any]) -> bool:
    sizes = {part.shape[:1] for part in tree_leaves(data[:1]) if isinstance(part, torch.Tensor)}
    return len(sizes) <= 1 and () not in sizes


def _length(data: Any) -> int | None:
    try:
        return len(data)
    except TypeError:
        return None
