"""Shards of models and optimizers that lie on many ranks: torch.distributed.checkpoint writes and reads them.

What it would unpickle, ``plain_files`` reads instead: its index, and what is no tensor.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint import _fsspec_filesystem, filesystem, metadata
from torch.distributed.checkpoint import state_dict as states

from greenlove_tracker.checkpointing.checkpoint_files import Draft
from greenlove_tracker.checkpointing.distributed import RankAgreement, first_line
from greenlove_tracker.checkpointing.plain_files import read_plain
from greenlove_tracker.checkpointing.training_state import TrainingState
from greenlove_tracker.logs.storage import LogPath
from greenlove_tracker.vocabulary.checkpoints import CheckpointFile, is_file_name
from greenlove_tracker.vocabulary.errors import UsageError

_INDEX = "shards.pt"  # which tensors lie where
_TYPES_OF_INDEX = (
    metadata.Metadata,
    metadata.MetadataIndex,
    metadata.StorageMeta,
    metadata.TensorStorageMetadata,
    metadata.ChunkStorageMetadata,
    metadata.BytesStorageMetadata,
    metadata.TensorProperties,
    metadata._MEM_FORMAT_ENCODING,
    filesystem._StorageInfo,
)


def write_shards(training: TrainingState, draft: Draft, ranks: RankAgreement) -> list[CheckpointFile]:
    """Write this rank's part of models and optimizers; all ranks call it, between two steps.

    Raises:
        UsageError: where one of the ranks cannot write.
    """
    options = states.StateDictOptions(cpu_offload=True)
    writer = dcp.FileSystemWriter(draft.directory, single_file_per_rank=True, sync_files=False)  # Draft.add syncs
    planner = dcp.DefaultSavePlanner(dedup_save_to_lowest_rank=True)  # what all ranks hold is rank 0's
    held = {}
    with _torch_at_work("shards cannot be written"):
        for name, optimizer in training.optimizers.items():
            is_begun = bool(optimizer.state)
            held[name] = states.get_optimizer_state_dict(training.models, optimizer, options=options)
            if not is_begun:  # torch has taken a step to make a state, which would change the next steps
                optimizer.state.clear()
                held[name]["state"] = {}
        state = {"models": states.get_model_state_dict(training.models, options=options), "optimizers": held}
        index = dcp.save(state, storage_writer=writer, planner=planner, process_group=ranks.group)
    files = list(map(draft.add, draft.directory.glob(f"__{ranks.rank}_*")))  # torch's names; none where it had nothing
    if ranks.rank == 0:
        files.append(draft.write(_INDEX, partial(torch.save, index)))
    return files


def load_shards(training: TrainingState, directory: LogPath, ranks: RankAgreement) -> None:
    """Put back models and optimizers by any number of ranks, sharded in any way or not at all.

    Raises:
        UsageError: where the checkpoint is of other models or optimizers, or cannot be read.
    """
    reader = _Reader(directory)
    saved = reader.read_metadata().state_dict_metadata
    models = training.models
    optimizers = training.optimizers.items()
    with _torch_at_work("the checkpoint does not fit"):
        state = states.get_model_state_dict(models)
        missing = {f"models.{key}" for key in state} - saved.keys()
        if missing:
            raise UsageError(f"the checkpoint is not of these models: it lacks {min(missing)}")
        held = {name: states.get_optimizer_state_dict(models, one) for name, one in optimizers}
        for name, one in held.items():  # torch has made a state of parameters too that were never stepped
            one["state"] = {
                path: values
                for path, values in one["state"].items()
                if any(key.startswith(f"optimizers.{name}.state.{path}.") for key in saved)
            }
        dcp.load(
            {"models": state, "optimizers": held},
            storage_reader=reader,
            planner=_Planner(allow_partial_load=True),  # another torch has other settings
            process_group=ranks.group,
        )
        states.set_model_state_dict(models, state)
        options = states.StateDictOptions(strict=False)
        for name, one in optimizers:
            states.set_optimizer_state_dict(models, one, held[name], options=options)


@contextlib.contextmanager
def _torch_at_work(problem: str) -> Iterator[None]:
    """Pass over torch's warnings of itself, and raise what failed on a rank as an error that ends no training."""
    with warnings.catch_warnings(action="ignore"):
        try:
            yield
        except dcp.CheckpointException as error:
            rank, (cause, _) = next(iter(error.failures.items()))
            raise UsageError(f"{problem}: rank {rank}: {first_line(cause)}") from error


class _Reader(_fsspec_filesystem.FsspecReader):  # type: ignore[misc]
    def __init__(self, directory: LogPath) -> None:
        super().__init__(str(directory), **getattr(directory, "storage_options", {}))
        self._directory = directory

    def read_metadata(self, *_: Any, **__: Any) -> metadata.Metadata:
        found: metadata.Metadata = read_plain(self._directory / _INDEX, more=_TYPES_OF_INDEX)
        if not all(is_file_name(info.relative_path) for info in found.storage_data.values()):
            raise UsageError(f"{_INDEX} of a checkpoint names files that are none of the checkpoint's")
        return found


class _Planner(dcp.DefaultLoadPlanner):  # type: ignore[misc]
    def load_bytes(self, read_item: Any, value: io.BytesIO) -> None:
        """Put in what is no tensor, such as a learning rate, written anew: the planner unpickles it."""
        as_saved = io.BytesIO()
        torch.save(read_plain(value), as_saved)
        as_saved.seek(0)
        super().load_bytes(read_item, as_saved)
