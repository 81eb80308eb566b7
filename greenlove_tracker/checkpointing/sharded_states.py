"""Models and optimizers of which each rank holds a part (FSDP, FSDP2, DTensor), and what else differs between ranks.

Shards are written and read by torch.distributed.checkpoint, each rank its own; any number of ranks reads them again.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator, Mapping
from io import BytesIO
from itertools import chain
from typing import Any, cast

import torch
from torch import distributed
from torch.utils._pytree import tree_map

from greenlove_tracker.checkpointing.checkpoint_files import Checkpoint, Draft
from greenlove_tracker.checkpointing.distributed import RankAgreement, first_line
from greenlove_tracker.checkpoints import CheckpointFile, NotIdentical
from greenlove_tracker.errors import UsageError

Models = Mapping[str, torch.nn.Module]
Optimizers = Mapping[str, torch.optim.Optimizer]

_SHARDS_METADATA = ".metadata"  # what torch.distributed.checkpoint calls it; of a checkpoint with shards only
# What the description of shards may hold beside types of numbers; nothing else is unpickled.
_METADATA_NAMES = {
    *(
        ("torch.distributed.checkpoint.metadata", name)
        for name in (
            "BytesStorageMetadata",
            "ChunkStorageMetadata",
            "Metadata",
            "MetadataIndex",
            "StorageMeta",
            "TensorProperties",
            "TensorStorageMetadata",
            "_MEM_FORMAT_ENCODING",
        )
    ),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch", "Size"),
    ("torch.serialization", "_get_layout"),
    *((module, name) for module in ("pathlib", "pathlib._local") for name in ("PosixPath", "WindowsPath")),
}


def unwrapped(model: torch.nn.Module) -> torch.nn.Module:
    """Return the model inside DistributedDataParallel, whose state is the same with and without it."""
    return cast(torch.nn.Module, model.module) if _is_data_parallel(model) else model


def is_sharded(model: torch.nn.Module) -> bool:
    """Return True where each rank holds only a part of a model: FSDP, FSDP2 (``fully_shard``) and other DTensors."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return False
    from torch.distributed.fsdp import FullyShardedDataParallel

    return any(isinstance(module, FullyShardedDataParallel) for module in model.modules()) or any(
        map(_is_dtensor, model.parameters())
    )


def has_shards(checkpoint: Checkpoint) -> bool:
    """Return True where ``load_sharded`` reads the models and optimizers of a checkpoint."""
    return any(file.name == _SHARDS_METADATA for file in checkpoint.manifest.files)


def why_not_identical(models: Models, world_size: int) -> tuple[str, ...]:
    """Return why a resume with as many ranks is not bit-identical to a training that was not interrupted."""
    if world_size <= 2:  # a sum of two is the same in any order
        return ()
    # DDP puts gradients into other buckets after its first step, and a ring sums each place of a bucket in another
    # order of ranks: torch/csrc/distributed/c10d/reducer.cpp, Reducer::rebuild_buckets.
    is_rebuilt = any(_is_data_parallel(model) and not model.find_unused_parameters for model in models.values())
    return (NotIdentical.DDP_BUCKETS,) if is_rebuilt else ()


def rank_buffers(models: Models) -> dict[str, torch.Tensor]:
    """Return the buffers that may differ from rank to rank, such as the means of a BatchNorm under FSDP.

    They belong into the rank's own file; ``put_back_rank_buffers`` takes them where the number of ranks is the same.
    """
    return dict(_buffers_of_rank(models))


def put_back_rank_buffers(models: Models, saved: Mapping[str, torch.Tensor]) -> None:
    """Put back what ``rank_buffers`` returned."""
    for name, buffer in _buffers_of_rank(models):
        if name in saved:
            buffer.copy_(saved[name])


def sharded_state(models: Models, optimizers: Optimizers) -> dict[str, Any]:
    """Return this rank's part of models and optimizers, in copies on the CPU; all ranks call it, between two steps.

    Args:
        models: by name; some may not be sharded.
        optimizers: by name.
    """
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_optimizer_state_dict

    options = StateDictOptions(cpu_offload=True)
    is_on_cpu = any(parameter.device.type == "cpu" for model in models.values() for parameter in model.parameters())
    state: dict[str, Any] = {"models": {}, "optimizers": {}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's about itself: ShardedTensor, process groups
        for name, model in models.items():
            state["models"][name] = get_model_state_dict(model, options=options)
        for name, optimizer in optimizers.items():
            has_state = bool(optimizer.state)
            held = get_optimizer_state_dict(_owner(models, name, optimizer), optimizer, options=options)
            if not has_state:  # torch has taken a step to make one, which would change the next steps
                optimizer.state.clear()
                held["state"] = {}
            state["optimizers"][name] = held

    def copied(leaf: Any) -> Any:  # what was on an accelerator is a copy already, but for Adam's number of steps
        is_live = isinstance(leaf, torch.Tensor) and (is_on_cpu or not leaf.dim())
        return leaf.detach().clone() if is_live else leaf

    return cast("dict[str, Any]", tree_map(copied, state))


def write_sharded(draft: Draft, state: Mapping[str, Any], ranks: RankAgreement) -> list[CheckpointFile]:
    """Write this rank's part of models and optimizers; all ranks call it, on a thread of its own or not.

    Args:
        draft: of this rank.
        state: of ``sharded_state``.
        ranks: of the thread that calls.

    Raises:
        OSError: where it cannot be written.
        RanksLostError: where another rank failed or is gone.
    """
    from torch.distributed import checkpoint as dcp

    writer = dcp.FileSystemWriter(draft.directory, single_file_per_rank=True, sync_files=False)  # Draft.add syncs
    planner = dcp.DefaultSavePlanner(dedup_save_to_lowest_rank=True)  # what all ranks hold is rank 0's
    try:
        with ranks.together():
            dcp.save(dict(state), storage_writer=writer, planner=planner, process_group=ranks.group)
    except dcp.CheckpointException as error:
        raise OSError(_failures(error)) from error
    own = sorted(draft.directory.glob(f"__{ranks.rank}_*"))  # torch's names; none where it had nothing
    return [draft.add(path) for path in (*own, *([] if ranks.rank else [draft.directory / _SHARDS_METADATA]))]


def load_sharded(
    checkpoint: Checkpoint,
    models: Models,
    optimizers: Optimizers,
    ranks: RankAgreement,
    *,
    trust_pickles: bool = False,
) -> None:
    """Load models and optimizers from shards, in place; by any number of ranks, sharded in any way or not at all.

    Args:
        checkpoint: that ``has_shards``.
        models: by the names that they were saved with.
        optimizers: by the names that they were saved with.
        ranks: all of which call this.
        trust_pickles: unpickle whatever an optimizer's settings hold: only for files of your own.

    Raises:
        UsageError: where the checkpoint is of other models or optimizers, or holds pickles that are not trusted.
        OSError: where it cannot be read.
        RanksLostError: where another rank failed or is gone.
    """
    from torch.distributed import checkpoint as dcp
    from torch.distributed.checkpoint import state_dict as states

    with checkpoint.local_directory() as directory, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's about itself
        if not trust_pickles:
            _check_metadata((directory / _SHARDS_METADATA).read_bytes())
        reader = dcp.FileSystemReader(directory)
        saved = set(reader.read_metadata().state_dict_metadata)
        owners = {name: _owner(models, name, optimizer) for name, optimizer in optimizers.items()}
        # A fresh optimizer gets a state by a step of torch's, which may change parameters: they are loaded after it.
        held = {name: states.get_optimizer_state_dict(owners[name], optimizers[name]) for name in optimizers}
        state = {
            "optimizers": held,
            "models": {name: states.get_model_state_dict(model) for name, model in models.items()},
        }
        if missing := {f"models.{name}.{key}" for name in models for key in state["models"][name]} - saved:
            raise UsageError(f"checkpoint {checkpoint.name} is not of these models: it lacks {min(missing)}")
        planner = _planner(trust_pickles=trust_pickles)
        try:
            with ranks.together():
                dcp.load(state, storage_reader=reader, planner=planner, process_group=ranks.group)
        except dcp.CheckpointException as error:
            raise UsageError(
                f"checkpoint {checkpoint.name} cannot be read into these models and optimizers: {_failures(error)}. "
                f"{_TRUST}"
            ) from error
        for name, optimizer in optimizers.items():
            states.set_optimizer_state_dict(owners[name], optimizer, optim_state_dict=held[name])
            _forget_unsaved(optimizer, held[name]["param_groups"], f"optimizers.{name}.state.", saved)
        for name, model in models.items():
            states.set_model_state_dict(model, state["models"][name])


def _forget_unsaved(
    optimizer: torch.optim.Optimizer, groups: list[dict[str, Any]], prefix: str, saved: set[str]
) -> None:
    """Take away the states that torch has made of parameters that had none when they were saved: no step yet."""
    if not any(key.startswith(prefix) for key in saved):
        optimizer.state.clear()
    names = [*chain(*(group["params"] for group in groups))]
    parameters = [*chain(*(group["params"] for group in optimizer.param_groups))]
    if len(names) == len(parameters):  # FSDP, the first, may have flat ones, and saves a state of each
        for name, parameter in zip(names, parameters, strict=True):
            if not any(key.startswith(f"{prefix}{name}.") for key in saved):
                optimizer.state.pop(parameter, None)


def _planner(*, trust_pickles: bool) -> Any:
    """Return torch's planner of a load, which takes plain values only, and leaves what was not saved."""
    from torch.distributed.checkpoint import DefaultLoadPlanner

    class Planner(DefaultLoadPlanner):  # type: ignore[misc]  # torch is not followed
        def load_bytes(self, read_item: Any, value: BytesIO) -> None:
            if not trust_pickles:
                torch.load(value, weights_only=True)  # raises where there is more; torch's own unpickles anything
                value.seek(0)
            super().load_bytes(read_item, value)

    return Planner(allow_partial_load=True)


class _MetadataUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        is_dtype = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if is_dtype or (module, name) in _METADATA_NAMES:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name}")


def _check_metadata(content: bytes) -> None:
    """Check that the description of shards holds nothing but that: torch unpickles all of it.

    Raises:
        UsageError: where it does.
    """
    try:
        _MetadataUnpickler(BytesIO(content)).load()
    except pickle.UnpicklingError as error:
        raise UsageError(f"the description of the checkpoint's shards holds {error}. {_TRUST}") from error


_TRUST = "Pickles can run any code: they are read with trust_pickles=True, which is for checkpoints of your own"


def _failures(error: BaseException) -> str:
    """Return what failed on which rank, of an error of torch.distributed.checkpoint."""
    failures: Mapping[int, tuple[BaseException, object]] = getattr(error, "failures", {})
    return "; ".join(f"rank {rank}: {first_line(cause)}" for rank, (cause, _) in sorted(failures.items()))


def _owner(models: Models, name: str, optimizer: torch.optim.Optimizer) -> torch.nn.Module:
    """Return the model whose parameters an optimizer holds."""
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    for model in models.values():
        if held <= {id(parameter) for parameter in model.parameters()}:
            return model
    raise UsageError(
        f"optimizer {name} holds parameters that are in no single model: make it of a model's parameters after that "
        "is sharded, and put models that share an optimizer into one torch.nn.Module"
    )


def _buffers_of_rank(models: Models) -> Iterator[tuple[str, torch.Tensor]]:
    for name, model in models.items():
        if not model.broadcast_buffers if _is_data_parallel(model) else is_sharded(model):
            for buffer_name, buffer in model.named_buffers():
                if not _is_dtensor(buffer):
                    yield f"{name}.{buffer_name.replace('_fsdp_wrapped_module.', '')}", buffer.detach()


def _is_data_parallel(model: torch.nn.Module) -> bool:
    return distributed.is_available() and isinstance(model, torch.nn.parallel.DistributedDataParallel)


def _is_dtensor(tensor: torch.Tensor) -> bool:
    return hasattr(tensor, "device_mesh") and hasattr(tensor, "placements")  # its module moved between versions
