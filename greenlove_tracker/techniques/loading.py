"""``batch-size=128``, ``num-workers=4`` and ``pin-memory``: how batches are made, loaded and copied to the GPU."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from greenlove_tracker.exploration.trials import DEFAULT_BATCH_SIZE, LoaderSource, copied_loader, source_of
from greenlove_tracker.techniques.arm import batches_of, device_of_parts
from greenlove_tracker.techniques.technique import NotApplicableError, Parts, Stage, Technique, whole_value

_OTHER_SIZE = "another batch size is another training: other steps an epoch, and a learning rate that is to be set anew"
_USUAL_WORKERS = "4"  # more seldom load faster, and each holds a copy of what the data set has in memory


def technique(name: str, value: str | None) -> Technique:
    """Return ``batch-size=N``, ``num-workers=N``, or ``pin-memory``.

    Raises:
        UsageError: where the value is no such number.
    """
    if name == "batch-size":
        batch_size = whole_value(name, value, "a number of samples")
        return Technique(name, partial(_resized, batch_size), Stage.DATA, note=_OTHER_SIZE)
    if name == "pin-memory":
        return Technique(name, _pinned, Stage.DATA)
    n_workers = whole_value(name, value or _USUAL_WORKERS, "a whole number of workers", 0)
    note = "augmentations by chance draw other random numbers in workers" if n_workers else ""
    return Technique(name, partial(_with_workers, n_workers=n_workers), Stage.DATA, note=note)


def _with_workers(parts: Parts, *, n_workers: int) -> Parts:
    """Load in other processes; they persist over the epochs, as starting them anew for each would cost what they gain.

    Raises:
        NotApplicableError: where the data are no data set that workers can share.
    """
    loader = loader_of(parts)
    changes: dict[str, Any] = {"num_workers": n_workers, "persistent_workers": n_workers > 0}
    if not (n_workers and loader.num_workers):
        changes |= {"prefetch_factor": None, "timeout": 0, "multiprocessing_context": None}
    return {**parts, "train_dataset": copied_loader(loader, **changes)}


def _pinned(parts: Parts) -> Parts:
    """Load into memory that the GPU reads by itself, so that our step copies without waiting.

    Raises:
        NotApplicableError: where the model is on no CUDA device, or the data are a stream.
    """
    device = device_of_parts(parts)
    if device.type != "cuda":
        raise NotApplicableError(f"the model is on the {device.type}: only copies to a CUDA GPU gain by pinned memory")
    return {**parts, "train_dataset": copied_loader(loader_of(parts), pin_memory=True)}


def loader_of(parts: Parts) -> DataLoader[Any]:
    """Return the training's loader; a data set becomes one as an exploration makes it.

    Raises:
        NotApplicableError: where the data are a stream.
    """
    data = parts["train_dataset"]
    if not isinstance(batches_of(parts), LoaderSource):
        kind = type(data.dataset if type(data) is DataLoader else data).__name__
        raise NotApplicableError(
            f"the data are a stream ({kind}), and only the loader of a data set with a length can be rebuilt: make it "
            "so where you make it"
        )
    if isinstance(data, DataLoader):
        return data
    return DataLoader(data, batch_size=parts.get("batch_size") or DEFAULT_BATCH_SIZE, shuffle=True)


def _resized(batch_size: int, parts: Parts) -> Parts:
    resized = with_batch_size(parts, batch_size)
    n_samples = batches_of(parts).samples_per_epoch
    if n_samples is not None and batch_size > n_samples:
        raise NotApplicableError(f"a batch of {batch_size:,} is more than the {n_samples:,} samples of an epoch")
    return resized


def with_batch_size(parts: Parts, batch_size: int) -> Parts:
    """Return the parts with batches of another size: sampler, order, workers and a dropped last batch stay.

    Raises:
        NotApplicableError: where the batches are made by something of the user's own.
    """
    data = parts["train_dataset"]
    if not isinstance(data, DataLoader):
        if not isinstance(data, IterableDataset) and not isinstance(source_of(data, batch_size), LoaderSource):
            raise NotApplicableError("the data are ready-made batches: give the data set or a DataLoader")
        return {**parts, "batch_size": batch_size}
    is_own_sampler = type(getattr(data, "batch_sampler", None)) not in (BatchSampler, type(None))
    if type(data) is not DataLoader or is_own_sampler or not data.batch_size:
        raise NotApplicableError(
            "the batches are made by a loader or a sampler of your own: their size cannot be set from outside"
        )
    is_stream = isinstance(data.dataset, IterableDataset)
    order: dict[str, Any] = {"sampler": None} if is_stream else {}  # a stream has none of its own
    return {**parts, "train_dataset": copied_loader(data, batch_size=batch_size, **order)}
