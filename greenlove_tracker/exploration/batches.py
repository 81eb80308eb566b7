"""Where the batches of a trial come from: the user's own loader, data set or stream, stopped early."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch.utils.data import DataLoader, IterableDataset

from greenlove_tracker.errors import UsageError


class BatchSource(Protocol):
    """Where batches come from."""

    batch_size: int
    batches_per_epoch: int | None  # None: endless, or unknown
    samples_per_epoch: int | None  # the last batch may hold fewer than the others

    def first(self, batches: int) -> Iterator[Any]:
        """A new epoch that ends after so many batches."""

    def close(self) -> None:
        """Let go of workers."""


class _FirstBatches:
    """A batch sampler that stops early: nothing is loaded that is not used, and the rest is as the user's own."""

    def __init__(self, batch_sampler: Iterable[Any], limit: int) -> None:
        self._batch_sampler, self.limit = batch_sampler, limit

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self._batch_sampler)
        for _ in range(self.limit):
            try:
                yield next(batches)
            except StopIteration:
                return

    def __len__(self) -> int:
        return self.limit


class LoaderSource:
    """A ``DataLoader`` of a data set with a length.

    The trials run on a copy of the loader that shares all but its workers: the data set, sampler, collating and
    pinning are the user's. Persistent workers persist over the trials, as they would over epochs; others end with each
    epoch, within its time, as they would.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        if loader.batch_sampler is None:
            raise UsageError("a DataLoader with batch_size=None gives single samples: give it a batch_size")
        batches = _length(loader)
        if batches is None:
            raise UsageError("the DataLoader's sampler has no length: give it __len__, or wrap the data as a stream")
        if batches == 0:
            raise UsageError("the DataLoader gives no batch: the data set is empty, or smaller than a dropped last one")
        self.batches_per_epoch: int | None = batches
        self.batch_size, samples = _sizes(loader, batches)
        self.samples_per_epoch: int | None = samples
        self._sampler = _FirstBatches(loader.batch_sampler, batches)
        newer = {name: getattr(loader, name) for name in ("in_order",) if hasattr(loader, name)}
        self._loader: DataLoader[Any] = DataLoader(
            loader.dataset,
            batch_sampler=self._sampler,
            num_workers=loader.num_workers,
            collate_fn=loader.collate_fn,
            pin_memory=loader.pin_memory,
            timeout=loader.timeout,
            worker_init_fn=loader.worker_init_fn,
            multiprocessing_context=loader.multiprocessing_context,
            generator=loader.generator,
            prefetch_factor=loader.prefetch_factor,
            persistent_workers=loader.persistent_workers,
            **newer,
        )

    def first(self, batches: int) -> Iterator[Any]:
        """A new epoch that ends after so many batches."""
        self._sampler.limit = batches
        return iter(self._loader)

    def close(self) -> None:
        """Let go of persistent workers."""
        workers = self._loader._iterator
        self._loader._iterator = None
        if workers is not None:
            workers._shutdown_workers()


class _TruncatedStream:
    """The first batches of a stream, which is let go of with this object, not at the last batch.

    A stream that ends earlier is begun anew where it has no length, as a training in steps does.
    """

    def __init__(self, stream: Iterable[Any], batches: int, *, is_repeated: bool) -> None:
        self._stream, self._left, self._is_repeated = stream, batches, is_repeated
        self._batches = iter(stream)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._left == 0:
            raise StopIteration
        self._left -= 1
        try:
            return next(self._batches)
        except StopIteration:
            if not self._is_repeated:
                raise
        self._batches = iter(self._stream)
        return next(self._batches)  # one that is empty now ends for good


class StreamSource:
    """Anything that can be iterated anew: a loader of an iterable data set, one of the user's own kind, a list.

    Args:
        stream: the user's.
        batch_size: of its batches, where it does not say.
        batches_per_epoch: None where it has no length.
    """

    def __init__(self, stream: Iterable[Any], batch_size: int, batches_per_epoch: int | None) -> None:
        if hasattr(stream, "__next__"):
            raise UsageError(
                "a generator or other one-shot iterator would be used up by the exploration: give what makes it anew, "
                "such as the DataLoader itself or a list"
            )
        if batches_per_epoch == 0:
            raise UsageError("the training data are empty: there is nothing to explore")
        self.batch_size, self.batches_per_epoch = batch_size, batches_per_epoch
        self.samples_per_epoch = None if batches_per_epoch is None else batches_per_epoch * batch_size
        self._stream = stream

    def first(self, batches: int) -> Iterator[Any]:
        """A new epoch that ends after so many batches."""
        return _TruncatedStream(self._stream, batches, is_repeated=self.batches_per_epoch is None)

    def close(self) -> None:
        """Its workers end with the iterator that each epoch drops."""


def source_of(data: Any, batch_size: int) -> BatchSource:
    """The batches of a loader, a data set, or anything that can be iterated anew.

    Args:
        data: a ``DataLoader`` is used as it is, one of a kind of the user's own through its own iteration; a data set
            is loaded with ``batch_size``, and shuffled where it can be. A list is one of batches, unless its first item
            is a single sample: tensors without a common first dimension.
        batch_size: for a data set, or where a stream does not say.

    Raises:
        UsageError: where there is nothing to train on, or where it could not be given back.
    """
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise UsageError(
            f"{{argument}} must be a whole number of at least 1, not {batch_size!r}", argument="batch_size"
        )
    if isinstance(data, IterableDataset):
        data = DataLoader(data, batch_size=batch_size)
    if isinstance(data, DataLoader):
        if isinstance(data.dataset, IterableDataset) or type(data) is not DataLoader:
            return StreamSource(data, int(data.batch_size or batch_size), _length(data))
        return LoaderSource(data)
    is_list = isinstance(data, list | tuple)
    if hasattr(data, "__getitem__") and _length(data) is not None and not (is_list and _holds_batches(data)):
        if _length(data) == 0:
            raise UsageError("the training data set is empty: there is nothing to explore")
        return LoaderSource(DataLoader(data, batch_size=batch_size, shuffle=True))
    if not isinstance(data, Iterable):
        raise UsageError(f"train_dataset must be a data set, a DataLoader or an iterable of batches, not {data!r}")
    return StreamSource(data, batch_size, _length(data))


def _holds_batches(data: Sequence[Any]) -> bool:
    if not data:
        return True
    item = data[0]
    parts = item.values() if isinstance(item, dict) else item if isinstance(item, list | tuple) else (item,)
    tensors = [part for part in parts if isinstance(part, torch.Tensor)]
    if any(tensor.ndim == 0 for tensor in tensors):
        return False
    return len({tensor.shape[0] for tensor in tensors}) <= 1


def _sizes(loader: DataLoader[Any], batches: int) -> tuple[int, int]:
    """Samples of a batch, and of an epoch: as its sampler says, where that agrees with the number of batches."""
    batch_size = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)
    samples = _length(loader.sampler) if loader.batch_size else _length(loader.dataset)
    if batch_size is None and samples is not None:  # a bucket sampler, whose batches differ: their mean
        batch_size = -(-samples // batches)
    if samples is not None and -(-samples // int(batch_size or 1)) == batches:
        return int(batch_size or 1), samples
    return int(batch_size or 1), batches * int(batch_size or 1)


def _length(data: Any) -> int | None:
    try:
        return len(data)
    except TypeError:
        return None
