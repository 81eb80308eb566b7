"""Models and optimizers of which each rank holds a part (FSDP, FSDP2, DTensor).

Shards are written and read by torch.distributed.checkpoint, each rank its own; any number of ranks reads them again.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from itertools import chain
from typing import Any, cast

import torch
from torch import distributed

from greenlove_tracker.checkpointing.checkpoint_files import Checkpoint, Draft
from greenlove_tracker.checkpointing.distributed import RankAgreement, first_line
from greenlove_tracker.checkpoints import CheckpointFile, NotIdentical
from greenlove_tracker.errors import UsageError

Models = Mapping[str, torch.nn.Module]
Optimizers = Mapping[str, torch.optim.Optimizer]

_SHARDS_METADATA = ".metadata"  # what torch.distributed.checkpoint calls it; of a checkpoint with shards only


def unwrapped(model: torch.nn.Module) -> torch.nn.Module:
    """Return the model inside DistributedDataParallel, whose state is the same with and without it."""
    return cast(torch.nn.Module, model.module) if _is_data_parallel(model) else model


def is_sharded(model: torch.nn.Module) -> bool:
    """Return True where each rank holds only a part of a model: FSDP, FSDP2 (``fully_shard``) and other DTensors."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return False
    from torch.distributed.fsdp import FullyShardedDataParallel

    return any(isinstance(module, FullyShardedDataParallel) for module in model.modules()) or any(
        map(is_dtensor, model.parameters())
    )


def is_dtensor(tensor: torch.Tensor) -> bool:
    """Return True for a tensor of which each rank holds a part."""
    return hasattr(tensor, "device_mesh") and hasattr(tensor, "placements")  # its module moved between versions


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


def sharded_state(models: Models, optimizers: Optimizers) -> dict[str, Any]:
    """Return this rank's part of models and optimizers, on the CPU; all ranks call it, between two steps.

    Args:
        models: by name; some may not be sharded.
        optimizers: by name.
    """
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_optimizer_state_dict

    options = StateDictOptions(cpu_offload=True)
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
    return state


def write_sharded(draft: Draft, state: Mapping[str, Any], ranks: RankAgreement) -> list[CheckpointFile]:
    """Write this rank's part of models and optimizers; all ranks call it.

    Args:
        draft: of this rank.
        state: of ``sharded_state``.
        ranks: that write.

    Raises:
        OSError: where one of them cannot write.
    """
    from torch.distributed import checkpoint as dcp

    writer = dcp.FileSystemWriter(draft.directory, single_file_per_rank=True, sync_files=False)  # Draft.add syncs
    planner = dcp.DefaultSavePlanner(dedup_save_to_lowest_rank=True)  # what all ranks hold is rank 0's
    try:
        dcp.save(dict(state), storage_writer=writer, planner=planner, process_group=ranks.group)
    except dcp.CheckpointException as error:  # no Exception, which would end the training
        raise OSError(_failures(error)) from error
    own = sorted(draft.directory.glob(f"__{ranks.rank}_*"))  # torch's names; none where it had nothing
    return [draft.add(path) for path in (*own, *([] if ranks.rank else [draft.directory / _SHARDS_METADATA]))]


def load_sharded(checkpoint: Checkpoint, models: Models, optimizers: Optimizers, ranks: RankAgreement) -> None:
    """Load models and optimizers from shards, in place; by any number of ranks, sharded in any way or not at all.

    Args:
        checkpoint: that ``has_shards``.
        models: by the names that they were saved with.
        optimizers: by the names that they were saved with.
        ranks: all of which call this.

    Raises:
        UsageError: where the checkpoint is of other models or optimizers.
        OSError: where it cannot be read.
    """
    from torch.distributed import checkpoint as dcp
    from torch.distributed.checkpoint import state_dict as states

    with checkpoint.local_directory() as directory, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's about itself
        reader = dcp.FileSystemReader(directory)
        saved = set(reader.read_metadata().state_dict_metadata)
        owners = {name: _owner(models, name, optimizer) for name, optimizer in optimizers.items()}
        # A fresh optimizer gets a state by a step of torch's, which may change parameters: they are loaded after it.
        held = {name: states.get_optimizer_state_dict(owners[name], optimizers[name]) for name in optimizers}
        weights = {name: states.get_model_state_dict(model) for name, model in models.items()}
        if missing := {f"models.{name}.{key}" for name, own in weights.items() for key in own} - saved:
            raise UsageError(f"checkpoint {checkpoint.name} is not of these models: it lacks {min(missing)}")
        planner = dcp.DefaultLoadPlanner(allow_partial_load=True)  # of a parameter that was never used
        state = {"optimizers": held, "models": weights}
        try:
            dcp.load(state, storage_reader=reader, planner=planner, process_group=ranks.group)
        except dcp.CheckpointException as error:
            raise UsageError(f"checkpoint {checkpoint.name} does not fit: {_failures(error)}") from error
        for name, optimizer in optimizers.items():
            states.set_optimizer_state_dict(owners[name], optimizer, optim_state_dict=held[name])
            _forget_unsaved(optimizer, held[name]["param_groups"], f"optimizers.{name}.state.", saved)
        for name, model in models.items():
            states.set_model_state_dict(model, weights[name])


def _failures(error: BaseException) -> str:
    """Return what failed on which rank, of an error of torch.distributed.checkpoint."""
    failures: Mapping[int, tuple[BaseException, object]] = getattr(error, "failures", {})
    return "; ".join(f"rank {rank}: {first_line(cause)}" for rank, (cause, _) in sorted(failures.items()))


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


def _is_data_parallel(model: torch.nn.Module) -> bool:
    return distributed.is_available() and isinstance(model, torch.nn.parallel.DistributedDataParallel)
