"""The state of a training: what a checkpoint holds of models, optimizers and what belongs to them.

Whole models and optimizers are torch.save's, which takes every optimizer and any objects of the user's. Of sharded ones
(FSDP, FSDP2, DTensor) each rank holds a part: torch.distributed.checkpoint writes and reads these, for any number of
ranks.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import distributed, nn
from torch.utils._pytree import tree_map

from greenlove_tracker.checkpointing.checkpoint_files import Draft
from greenlove_tracker.checkpointing.distributed import RankAgreement, first_line
from greenlove_tracker.vocabulary.checkpoints import CheckpointFile, NotIdentical
from greenlove_tracker.vocabulary.errors import UsageError

_FORMAT = 6  # of the state of a training
Pair = tuple[Callable[[], Any], Callable[[Any], object]]


class TrainingState:
    """Takes and puts back the state of what trains.

    Args:
        models: by name; of DistributedDataParallel or compiled ones what is inside is saved.
        optimizers: by name.
        beside: by name, what else changes: objects with ``state_dict`` and ``load_state_dict``, or pairs of functions
            (save, restore).
        has_others: some of them are the user's own, and may hold parameters of no model.

    Attributes:
        is_sharded: all ranks write and read models and optimizers together.

    Raises:
        UsageError: where something cannot be saved.
    """

    def __init__(
        self,
        models: Mapping[str, nn.Module],
        optimizers: Mapping[str, torch.optim.Optimizer],
        beside: Mapping[str, Any],
        *,
        has_others: bool = False,
    ) -> None:
        self.is_sharded = any(map(is_sharded, models.values()))
        if not has_others:
            _check_parameters(models, optimizers)
        self._models = models
        self._optimizers = optimizers
        self._inner = {name: _inner(model) for name, model in models.items()}
        self._parameters = [parameter for model in self._inner.values() for parameter in model.parameters()]
        whole = {} if self.is_sharded else optimizers
        self._pairs = {name: _pair(name, thing) for name, thing in {**whole, **beside}.items()}
        self._stepped = set(optimizers)  # in the newest batch
        for name, optimizer in optimizers.items():
            optimizer.register_step_post_hook(partial(self._on_step, name))

    def _on_step(self, name: str, *_: object) -> None:
        self._stepped.add(name)

    def batch_begins(self) -> None:
        """Tell that the steps of another batch follow."""
        self._stepped.clear()

    @property
    def has_stepped(self) -> bool:
        """True where an optimizer took a step in the newest batch, or nobody can see that."""
        return bool(self._stepped) or not self._optimizers

    @property
    def has_all_stepped(self) -> bool:
        """True where every optimizer took a step in the newest batch, which no gradients wait after."""
        return bool(self._stepped) and self._stepped == {*self._optimizers}

    @property
    def has_growing_gradients(self) -> bool:
        """True where gradients wait for the first step of an optimizer."""
        return not self.has_stepped and any(p.grad is not None for p in self._parameters)

    def capture(self) -> dict[str, Any]:
        """Return the state in plain values, with the training's own tensors in it."""
        return {
            "format": _FORMAT,
            "is_sharded": self.is_sharded,
            "models": {} if self.is_sharded else {name: _state_of(model) for name, model in self._inner.items()},
            "pairs": {name: save() for name, (save, _) in self._pairs.items()},
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Put back what ``capture`` returned, in place.

        Raises:
            UsageError: where it is of another training, such as of another model; some of it may be loaded then.
        """
        if state["format"] != _FORMAT:
            raise UsageError(
                "the checkpoint was written by another version of greenlove_tracker, and this one cannot read it: use "
                "that version, or give another directory to begin anew"
            )
        saved = {**state["models"], **state["pairs"]}
        restores: dict[str, Callable[[Any], object]] = {n: partial(_put_back, m) for n, m in self._inner.items()}
        restores |= {name: restore for name, (_, restore) in self._pairs.items()}
        for name in (*self._models, *self._optimizers) if state["is_sharded"] else ():
            restores.pop(name, None)
        if set(saved) != set(restores):
            raise UsageError(
                f"the checkpoint has {sorted(saved)}, and this training {sorted(restores)}: give the Checkpointer what "
                "it was given when it wrote that, or another directory to begin anew"
            )
        for name, restore in restores.items():
            try:
                restore(copied(saved[name]))  # it may be put back once more
            except Exception as error:  # of the user's objects
                raise UsageError(
                    f"the state of {name} in the checkpoint does not fit this one ({first_line(error)}). Was the code "
                    "changed? Give another directory to begin anew"
                ) from error

    # -- what is a rank's own: buffers, and which parameters have a gradient --

    def capture_of_rank(self) -> dict[str, Any]:
        """Return what each rank saves of its own: buffers, also those that ``state_dict`` leaves out.

        Gradients are used up by the step before. They come back as zeros: an optimizer skips a parameter without a
        gradient, and does not skip one whose gradient is zero.
        """
        whole = [] if self.is_sharded else self._parameters
        with_gradient = [number for number, parameter in enumerate(whole) if parameter.grad is not None]
        return {"gradients": with_gradient, "buffers": self._buffers()}

    def load_of_rank(self, saved: Mapping[str, Any], *, with_buffers: bool) -> None:
        """Put back what ``capture_of_rank`` returned."""
        for number, parameter in enumerate(self._parameters):
            parameter.grad = None
            if number in saved["gradients"]:
                parameter.grad = torch.zeros_like(parameter)
        for name, buffer in self._buffers().items():
            if with_buffers and name in saved["buffers"]:
                buffer.copy_(saved["buffers"][name])

    def why_not_identical(self, world_size: int) -> tuple[str, ...]:
        """Return why a resume from now, with as many ranks, may not be bit-identical; empty where it is."""
        # DDP puts gradients into other buckets after its first step, and a ring sums each place of a bucket in another
        # order of ranks (a sum of two is the same in any): torch/csrc/distributed/c10d/reducer.cpp, rebuild_buckets.
        parallel = [model for model in self._models.values() if _is_data_parallel(model)]
        if world_size > 2 and not all(model.find_unused_parameters for model in parallel):
            return (NotIdentical.DDP_BUCKETS,)
        return ()

    # -- shards: all ranks call these, between two steps --

    def write_shards(self, draft: Draft, ranks: RankAgreement) -> list[CheckpointFile]:
        """Write this rank's part of models and optimizers; nothing where they are not sharded.

        Raises:
            OSError: where one of the ranks cannot write.
        """
        if not self.is_sharded:
            return []
        from torch.distributed import checkpoint as dcp
        from torch.distributed.checkpoint import state_dict as states

        options = states.StateDictOptions(cpu_offload=True)
        together = nn.ModuleDict(self._models)
        optimizers = [*self._optimizers.values()]
        begun = [one for one in optimizers if one.state]
        with warnings.catch_warnings(action="ignore"):  # of torch's about itself: ShardedTensor, process groups
            models, held = states.get_state_dict(together, optimizers, options=options)
            for optimizer in optimizers:
                if optimizer not in begun:  # torch has taken a step to make a state, which would change the next steps
                    optimizer.state.clear()
            if len(begun) < len(optimizers):
                held["state"] = states.get_state_dict(together, begun, options=options)[1].get("state", {})
        writer = dcp.FileSystemWriter(draft.directory, single_file_per_rank=True, sync_files=False)  # Draft.add syncs
        planner = dcp.DefaultSavePlanner(dedup_save_to_lowest_rank=True)  # what all ranks hold is rank 0's
        try:
            dcp.save(
                {"models": models, "optimizers": held},
                storage_writer=writer,
                planner=planner,
                process_group=ranks.group,
            )
        except dcp.CheckpointException as error:  # no Exception, which would end the training
            raise OSError(_failures(error)) from error
        own = sorted(draft.directory.glob(f"__{ranks.rank}_*"))  # torch's names; none where it had nothing
        if ranks.rank == 0:
            own.append(draft.directory / ".metadata")
        return [draft.add(path) for path in own]

    def load_shards(self, directory: Path, ranks: RankAgreement) -> None:
        """Load models and optimizers from shards, in place, by any number of ranks, sharded in any way or not at all.

        Raises:
            UsageError: where the checkpoint is of other models or optimizers.
            OSError: where it cannot be read.
        """
        from torch.distributed import checkpoint as dcp
        from torch.distributed.checkpoint import state_dict as states

        from greenlove_tracker.checkpointing.shard_files import ShardPlanner, ShardReader

        together = nn.ModuleDict(self._models)
        optimizers = [*self._optimizers.values()]
        with warnings.catch_warnings(action="ignore"):
            reader = ShardReader(directory)
            saved = set(reader.read_metadata().state_dict_metadata)
            models, states_of = states.get_state_dict(together, optimizers)
            missing = {f"models.{key}" for key in models} - saved
            if missing:
                raise UsageError(f"the checkpoint is not of these models: it lacks {min(missing)}")
            state = {"models": models, "optimizers": states_of}
            try:
                dcp.load(state, storage_reader=reader, planner=ShardPlanner(), process_group=ranks.group)
            except dcp.CheckpointException as error:
                raise UsageError(f"the checkpoint does not fit: {_failures(error)}") from error
            states.set_state_dict(together, optimizers, model_state_dict=models, optim_state_dict=states_of)
        _forget_unsaved(optimizers, states_of.get("param_groups", []), saved)

    def _buffers(self) -> dict[str, torch.Tensor]:
        return {
            f"{name}.{path}": buffer.detach()
            for name, model in self._inner.items()
            for path, buffer in model.named_buffers()
            if not _is_dtensor(buffer)
        }


# -- values, and their files --


def copied(value: Any) -> Any:
    """Return a copy of a value, its tensors on the CPU."""

    def copy_of(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.detach().to("cpu", copy=True)
        return copy.deepcopy(leaf)

    return tree_map(copy_of, value)


def named(kind: str, things: Any) -> dict[str, Any]:
    """Return one thing or several by name: ``model``, or ``model-1``, ``model-2``, or as the user calls them."""
    if isinstance(things, list | tuple):
        things = dict(enumerate(things, 1))
    if isinstance(things, Mapping):
        return {f"{kind}-{name}": thing for name, thing in things.items()}
    return {} if things is None else {kind: things}


# -- models --


def _inner(model: nn.Module) -> nn.Module:
    """Return the model inside DDP and ``torch.compile``, so that it may be resumed without either."""
    while _is_data_parallel(model) or hasattr(model, "_orig_mod"):
        model = cast(nn.Module, model.module if _is_data_parallel(model) else model._orig_mod)
    return model


def _state_of(model: nn.Module) -> dict[str, Any]:
    """Return the state of a model with its flags, which ``state_dict`` leaves out."""
    return {
        "own": model.state_dict(),
        "is_training": [module.training for module in model.modules()],
        "requires_grad": [parameter.requires_grad for parameter in model.parameters()],
    }


def _put_back(model: nn.Module, saved: Mapping[str, Any]) -> None:
    model.load_state_dict(saved["own"])
    for module, is_training in zip(model.modules(), saved["is_training"], strict=True):
        module.training = is_training
    for parameter, is_trained in zip(model.parameters(), saved["requires_grad"], strict=True):
        parameter.requires_grad_(is_trained)


def _check_parameters(models: Mapping[str, nn.Module], optimizers: Mapping[str, Any]) -> None:
    """Check that all that optimizers train is saved.

    Raises:
        UsageError: where it is not.
    """
    known = {id(parameter) for model in models.values() for parameter in model.parameters()}
    for name, optimizer in optimizers.items():
        if any(id(parameter) not in known for group in optimizer.param_groups for parameter in group["params"]):
            raise UsageError(
                f"{name} trains parameters of none of the models that are given, so they would not be saved: give "
                "their model too, or others=(save, restore) for them, and make an optimizer after its model is sharded"
            )


def _pair(name: str, thing: Any) -> Pair:
    if isinstance(thing, tuple) and len(thing) == 2 and all(map(callable, thing)):
        return cast(Pair, thing)
    save = getattr(thing, "state_dict", None)
    restore = getattr(thing, "load_state_dict", None)
    if callable(save) and callable(restore):
        return save, restore
    raise UsageError(
        f"{name} is a {type(thing).__name__}: it must have state_dict() and load_state_dict(), or be a pair of "
        "functions (save, restore)"
    )


# -- shards --


def is_sharded(model: nn.Module) -> bool:
    """Return True where each rank holds only a part of a model: FSDP, FSDP2 (``fully_shard``) and other DTensors."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return False
    from torch.distributed.fsdp import FullyShardedDataParallel

    has_fsdp = any(isinstance(module, FullyShardedDataParallel) for module in model.modules())
    return has_fsdp or any(map(_is_dtensor, model.parameters()))


def _is_dtensor(tensor: torch.Tensor) -> bool:
    return hasattr(tensor, "device_mesh") and hasattr(tensor, "placements")  # its module moved between versions


def _is_data_parallel(model: nn.Module) -> bool:
    return distributed.is_available() and isinstance(model, nn.parallel.DistributedDataParallel)


def _failures(error: Any) -> str:
    """Return what failed on which rank, of an error of torch.distributed.checkpoint."""
    return "; ".join(f"rank {rank}: {first_line(cause)}" for rank, (cause, _) in sorted(error.failures.items()))


def _forget_unsaved(optimizers: list[torch.optim.Optimizer], groups: list[dict[str, Any]], saved: set[str]) -> None:
    """Take away the states that torch has made of parameters that had none when they were saved: no step yet."""
    names = [name for group in groups for name in group["params"]]
    parameters = [(one, p) for one in optimizers for group in one.param_groups for p in group["params"]]
    prefixes = [f"optimizers.state.{name}." for name in names]
    if len(names) != len(parameters):  # FSDP, the first, may have flat ones, and saves a state of each
        prefixes = ["optimizers.state."] * len(names)
    for prefix, (optimizer, parameter) in zip(prefixes, parameters, strict=False):
        if not any(key.startswith(prefix) for key in saved):
            optimizer.state.pop(parameter, None)
