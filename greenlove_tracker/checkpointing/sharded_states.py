"""Models and optimizers of which each rank holds a part (FSDP, FSDP2, DTensor), and what else differs between ranks.

Shards are written and read by torch.distributed.checkpoint, each rank its own; any number of ranks reads them again.
"""

from __future__ import annotations

import inspect
import pickle
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import distributed

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
    return cast(torch.nn.Module, model.module) if isinstance(model, _data_parallel()) else model


def is_sharded(model: torch.nn.Module) -> bool:
    """Return True where each rank holds only a part of a model: FSDP, FSDP2 (``fully_shard``) and other DTensors."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return False
    from torch.distributed.fsdp import FullyShardedDataParallel

    return any(isinstance(module, FullyShardedDataParallel) for module in model.modules()) or any(
        _is_dtensor(parameter) for parameter in model.parameters()
    )


def has_shards(checkpoint: Checkpoint) -> bool:
    """Return True where ``load_sharded`` reads the models and optimizers of a checkpoint."""
    return any(file.name == _SHARDS_METADATA for file in checkpoint.manifest.files)


def check_supported(models: Models, optimizers: Optimizers) -> None:
    """Check that models and optimizers can be saved by all ranks together.

    Raises:
        UsageError: where they cannot.
    """
    for name, optimizer in optimizers.items():
        if type(optimizer).__name__ == "ZeroRedundancyOptimizer":
            raise UsageError(
                f"optimizer {name} is a ZeroRedundancyOptimizer, each rank of which holds another part: use FSDP, "
                "whose parts are saved by all ranks"
            )
        if any(map(is_sharded, models.values())):
            _owner(models, name, optimizer)
    if any(map(_is_hybrid_without_mesh, models.values())):
        raise UsageError(
            "FullyShardedDataParallel with HYBRID_SHARD needs device_mesh=init_device_mesh(...): without one, torch "
            "cannot tell the copies of a shard apart"
        )


def why_not_identical(models: Models, world_size: int) -> tuple[str, ...]:
    """Return why a resume with as many ranks is not bit-identical to a training that was not interrupted."""
    if world_size <= 2:  # a sum of two is the same in any order
        return ()
    kinds = _data_parallel()
    if any(isinstance(model, kinds) and not model.find_unused_parameters for model in models.values()):
        # DDP puts gradients into other buckets after its first step, and a ring sums each place of a bucket in another
        # order of ranks: torch/csrc/distributed/c10d/reducer.cpp, Reducer::rebuild_buckets.
        return (NotIdentical.DDP_BUCKETS,)
    return ()


def rank_buffers(models: Models) -> dict[str, torch.Tensor]:
    """Return copies of the buffers that may differ from rank to rank, such as the means of a BatchNorm under FSDP.

    They belong into the rank's own file; ``put_back_rank_buffers`` takes them where the number of ranks is the same.
    """
    return {
        name: buffer.detach().to("cpu", copy=True)
        for name, buffer in _buffers_of_rank(models)
        if not _is_dtensor(buffer)
    }


def put_back_rank_buffers(models: Models, saved: Mapping[str, torch.Tensor]) -> None:
    """Put back what ``rank_buffers`` returned."""
    with torch.no_grad():
        for name, buffer in _buffers_of_rank(models):
            if name in saved:
                buffer.copy_(saved[name])


# -- Shards, by torch.distributed.checkpoint --


def sharded_state(models: Models, optimizers: Optimizers) -> dict[str, Any]:
    """Return this rank's part of models and optimizers, in copies on the CPU; all ranks call it, between two steps.

    Args:
        models: by name; some may not be sharded.
        optimizers: by name.
    """
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_optimizer_state_dict

    options = StateDictOptions(cpu_offload=True)
    state: dict[str, Any] = {"models": {}, "optimizers": {}, "stateless": {}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's about itself: ShardedTensor, process groups
        for name, model in models.items():
            state["models"][name] = get_model_state_dict(model, options=options)
        for name, optimizer in optimizers.items():
            if optimizer.state:
                owner = _owner(models, name, optimizer)
                state["optimizers"][name] = get_optimizer_state_dict(owner, optimizer, options=options)
            else:  # torch would take a step to make a state, which changes the next steps
                state["stateless"][name] = _packed([_without_parameters(group) for group in optimizer.param_groups])
        return cast("dict[str, Any]", _copied(state, _is_live(models, optimizers)))


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
    try:
        with ranks.together():
            alone = _alone(dcp.save, ranks)
            dcp.save(dict(state), storage_writer=writer, planner=_save_planner(), process_group=ranks.group, **alone)
    except dcp.CheckpointException as error:
        raise OSError(_failures(error)) from error
    own = sorted(draft.directory.glob(f"__{ranks.rank}_*"))  # torch's names; none where it had nothing
    if ranks.rank == 0:
        own.append(draft.directory / _SHARDS_METADATA)
    return [draft.add(path) for path in own]


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
    from torch.distributed.checkpoint.state_dict import (
        get_model_state_dict,
        get_optimizer_state_dict,
        set_model_state_dict,
        set_optimizer_state_dict,
    )

    with checkpoint.local_directory() as directory, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's about itself
        reader = _reader(directory, trust_pickles=trust_pickles)
        saved = _saved_names(reader)
        state: dict[str, Any] = {"models": {}, "optimizers": {}, "stateless": {}}
        unsaved: dict[str, list[_Unsaved]] = {}
        for name, optimizer in optimizers.items():
            if f"stateless.{name}" in saved:
                state["stateless"][name] = b""
            else:  # a fresh one gets a state by a step of torch's, which may change parameters: they are loaded after
                wanted = get_optimizer_state_dict(_owner(models, name, optimizer), optimizer)
                unsaved[name] = _without_unsaved(wanted, optimizer, f"optimizers.{name}.state.", saved)
                state["optimizers"][name] = wanted
        for name, model in models.items():
            state["models"][name] = get_model_state_dict(model)
        try:
            with ranks.together():
                planner = _planner(trust_pickles=trust_pickles)
                alone = _alone(dcp.load, ranks)
                dcp.load(state, storage_reader=reader, planner=planner, process_group=ranks.group, **alone)
        except dcp.CheckpointException as error:
            raise _load_error(error, checkpoint.name) from error
        for name, optimizer in optimizers.items():
            if name in state["stateless"]:
                _put_back_groups(optimizer, name, _unpacked(state["stateless"][name], trust_pickles=trust_pickles))
            else:
                loaded = state["optimizers"][name]
                loaded["state"].update({fresh.name: fresh.state for fresh in unsaved[name]})  # torch wants all of them
                set_optimizer_state_dict(_owner(models, name, optimizer), optimizer, optim_state_dict=loaded)
                for fresh in unsaved[name]:
                    optimizer.state.pop(fresh.parameter, None)
        for name, model in models.items():
            set_model_state_dict(model, state["models"][name])


class _Unsaved(NamedTuple):
    """The state that torch gave a parameter that had none when it was saved, as an unused one: no step yet."""

    name: str
    parameter: torch.Tensor
    state: Any


def _without_unsaved(
    wanted: dict[str, Any], optimizer: torch.optim.Optimizer, prefix: str, saved: Collection[str]
) -> list[_Unsaved]:
    """Take out of a fresh optimizer's state what a checkpoint does not hold, and return it.

    Nothing is taken out where the checkpoint holds no state at all for it: then it is another optimizer, which the
    load says. Nor under FSDP, the first, which saves a state of every parameter.
    """
    names = [[*group["params"]] for group in wanted["param_groups"]]
    parameters = [group["params"] for group in optimizer.param_groups]
    if list(map(len, names)) != list(map(len, parameters)):
        return []
    unsaved = [
        _Unsaved(name, parameter, wanted["state"][name])
        for name, parameter in zip(chain(*names), chain(*parameters), strict=True)
        if wanted["state"].get(name) and all(f"{prefix}{name}.{key}" not in saved for key in wanted["state"][name])
    ]
    if len(unsaved) == len(wanted["state"]):
        return []
    for fresh in unsaved:
        del wanted["state"][fresh.name]
    return unsaved


def _alone(function: Callable[..., Any], ranks: RankAgreement) -> dict[str, bool]:
    """Return what tells torch that there are no ranks; some versions only see it by themselves."""
    is_told = ranks.group is None and "no_dist" in inspect.signature(function).parameters
    return {"no_dist": True} if is_told else {}


def _save_planner() -> Any:
    """Return torch's planner of a save; what all ranks hold is rank 0's: else each buffer came from another rank."""
    from torch.distributed.checkpoint import DefaultSavePlanner

    try:
        return DefaultSavePlanner(dedup_save_to_lowest_rank=True)
    except TypeError:  # the first versions have no choice, and do so
        return DefaultSavePlanner()


def _reader(directory: Path, *, trust_pickles: bool) -> Any:
    """Return torch's reader of shards, which unpickles their description only where it holds nothing but that."""
    from torch.distributed.checkpoint import FileSystemReader

    class Reader(FileSystemReader):  # type: ignore[misc]  # torch is not followed
        def read_metadata(self, *args: Any, **kwargs: Any) -> Any:
            if not trust_pickles:
                with (directory / _SHARDS_METADATA).open("rb") as file:
                    _MetadataUnpickler(file).load()
            return super().read_metadata(*args, **kwargs)

    return Reader(directory)


def _planner(*, trust_pickles: bool) -> Any:
    """Return torch's planner of a load, which takes plain values only."""
    from torch.distributed.checkpoint import DefaultLoadPlanner

    class Planner(DefaultLoadPlanner):  # type: ignore[misc]
        def load_bytes(self, read_item: Any, value: BytesIO) -> None:
            if not trust_pickles:
                torch.load(value, weights_only=True)  # raises where there is more; torch's own unpickles anything
                value.seek(0)
            super().load_bytes(read_item, value)

    return Planner()


class _MetadataUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        is_dtype = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if is_dtype or (module, name) in _METADATA_NAMES:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name}")


def _saved_names(reader: Any) -> set[str]:
    try:
        return set(reader.read_metadata().state_dict_metadata)
    except pickle.UnpicklingError as error:
        raise UsageError(_untrusted(str(error))) from error


def _load_error(error: BaseException, name: str) -> Exception:
    """Return what a failed load is to whoever called it."""
    causes = [cause for cause, _ in getattr(error, "failures", {}).values()]
    if any(isinstance(cause, pickle.UnpicklingError) for cause in causes):
        return UsageError(_untrusted(_failures(error)))
    if any(isinstance(cause, OSError) for cause in causes):
        return OSError(_failures(error))
    return UsageError(f"checkpoint {name} is not of these models and optimizers: {_failures(error)}")


def _untrusted(what: str) -> str:
    return f"the checkpoint holds pickles ({what}), which can run any code: pass trust_pickles=True if it is your own"


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


def _is_live(models: Models, optimizers: Optimizers) -> Callable[[torch.Tensor], bool]:
    """Return what says whether a tensor of a state on the CPU is the training's own, and not a copy yet."""
    if any(parameter.device.type == "cpu" for model in models.values() for parameter in model.parameters()):
        return lambda tensor: True
    states = (state for optimizer in optimizers.values() for state in optimizer.state.values())
    storages = {  # of an accelerator's optimizers, such as Adam's number of steps
        value.untyped_storage().data_ptr()
        for state in states
        for value in _values(state)
        if isinstance(value, torch.Tensor) and not _is_dtensor(value) and value.device.type == "cpu"
    }
    return lambda tensor: type(tensor) is torch.Tensor and tensor.untyped_storage().data_ptr() in storages


def _values(state: Any) -> Iterable[Any]:
    return state.values() if isinstance(state, Mapping) else ()


def _copied(value: Any, is_live: Callable[[torch.Tensor], bool]) -> Any:
    """Return a state with copies of all tensors that the training still changes."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone() if is_live(value) else value
    if isinstance(value, Mapping):
        return {key: _copied(held, is_live) for key, held in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_copied(held, is_live) for held in value)
    return value


def _is_hybrid_without_mesh(model: torch.nn.Module) -> bool:
    """Return True for shards in a group of ranks and copies of them in others, of which torch knows one group only."""
    strategies = (getattr(module, "sharding_strategy", None) for module in model.modules())
    is_hybrid = any(getattr(strategy, "name", "").lstrip("_").startswith("HYBRID_SHARD") for strategy in strategies)
    return is_hybrid and all(getattr(module, "_device_mesh", None) is None for module in model.modules())


def _buffers_of_rank(models: Models) -> Iterator[tuple[str, torch.Tensor]]:
    kinds = _data_parallel()
    for name, model in models.items():
        is_own = not model.broadcast_buffers if isinstance(model, kinds) else is_sharded(model)
        if is_own:
            for buffer_name, buffer in model.named_buffers():
                if not _is_dtensor(buffer):
                    yield f"{name}.{buffer_name.replace('_fsdp_wrapped_module.', '')}", buffer


def _data_parallel() -> tuple[type[Any], ...]:
    """Return DistributedDataParallel, where this torch has it."""
    return (torch.nn.parallel.DistributedDataParallel,) if distributed.is_available() else ()


def _is_dtensor(tensor: torch.Tensor) -> bool:
    return hasattr(tensor, "device_mesh") and hasattr(tensor, "placements")  # its module moved between versions


def _without_parameters(group: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name != "params"}


def _put_back_groups(optimizer: torch.optim.Optimizer, name: str, groups: list[dict[str, Any]]) -> None:
    """Put back the settings of an optimizer that had no state when it was saved."""
    if len(groups) != len(optimizer.param_groups):
        raise UsageError(f"optimizer {name} has {len(optimizer.param_groups)} groups, and {len(groups)} were saved")
    optimizer.state.clear()
    for group, saved in zip(optimizer.param_groups, groups, strict=True):
        group.update(saved)


def _packed(value: Any) -> bytes:
    file = BytesIO()
    torch.save(value, file)
    return file.getvalue()


def _unpacked(packed: bytes, *, trust_pickles: bool) -> Any:
    try:
        return torch.load(BytesIO(packed), map_location="cpu", weights_only=not trust_pickles)
    except pickle.UnpicklingError as error:
        raise UsageError(_untrusted(first_line(error))) from error
