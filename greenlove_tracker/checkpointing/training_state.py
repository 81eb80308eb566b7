"""The state of a training: what a checkpoint holds of models, optimizers and what belongs to them.

Whole models and optimizers are torch.save's, which takes every optimizer and any objects of the user's. Of sharded ones
(FSDP, FSDP2, DTensor) each rank holds a part: torch.distributed.checkpoint writes and reads these, for any number of
ranks.
"""

from __future__ import annotations

import copy
import gc
import itertools
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import distributed, nn
from torch.nn.parameter import is_lazy
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel
from torch.utils._pytree import tree_map

from greenlove_tracker.checkpointing.checkpoint_files import Draft
from greenlove_tracker.checkpointing.distributed import RankAgreement, first_line
from greenlove_tracker.checkpointing.plain_files import read_plain
from greenlove_tracker.vocabulary.checkpoints import CheckpointFile
from greenlove_tracker.vocabulary.errors import UsageError

_FORMAT = 8  # of the state of a training
# What a training may have beside what it passed, and the argument that it is passed by.
_ARGUMENTS = {
    lr_scheduler.LRScheduler: "scheduler",
    torch.amp.GradScaler: "scaler",
    torch.optim.Optimizer: "optimizer",
    nn.Module: "model",
}
ALL_KINDS = tuple(_ARGUMENTS)  # that a rehearsal looks at
_NAMED_KINDS = (lr_scheduler.LRScheduler, torch.amp.GradScaler, AveragedModel)  # which a checkpoint names

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
        self._beside = beside
        self._inner = {name: _inner(model) for name, model in models.items()}
        self._whole: dict[str, Pair] = {}  # that are saved in one piece, beside those of the user's
        if not self.is_sharded:
            self._whole = {n: (partial(_state_of, m), partial(_put_back, m)) for n, m in self._inner.items()}
            for name, one in optimizers.items():
                self._whole[name] = (partial(self._state_of_optimizer, one), partial(self._put_back_optimizer, one))
        self._pairs = {name: _pair(name, thing) for name, thing in beside.items()}
        self._numbers_before = {name: _numbers(model) for name, model in self._inner.items()}
        self._stepped = set(optimizers)  # in the newest batch
        for name, optimizer in optimizers.items():
            optimizer.register_step_post_hook(partial(self._on_step, name))

    def _on_step(self, name: str, *_: object) -> None:
        self._stepped.add(name)

    def batch_begins(self) -> None:
        """Tell that the steps of another batch follow."""
        self._stepped.clear()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all that is held."""
        return (*self._models, *self._optimizers, *self._beside)

    @property
    def has_stepped(self) -> bool:
        """True where an optimizer took a step in the newest batch, or nobody can see that."""
        return bool(self._stepped) or not self._optimizers

    @property
    def has_growing_gradients(self) -> bool:
        """True where gradients wait for the first step of an optimizer."""
        return not self.has_stepped and any(p.grad is not None for p in self._parameters().values())

    def capture(self) -> dict[str, Any]:
        """Return the state in plain values, with the training's own tensors in it."""
        return {
            "format": _FORMAT,
            "is_sharded": self.is_sharded,
            "parts": {name: save() for name, (save, _) in (self._whole | self._pairs).items()},
        }

    def capture_of_rank(self) -> dict[str, Any]:
        """Return what each rank saves of its own, by model: buffers, and plain numbers of modules that have changed."""
        numbers = {
            name: dict(_numbers(model).items() - self._numbers_before[name].items())
            for name, model in self._inner.items()
        }
        return {"buffers": {name: _buffers(model) for name, model in self._inner.items()}, "numbers": numbers}

    def load(self, state: Mapping[str, Any], of_rank: Mapping[str, Any], *, is_in_loop: bool) -> None:
        """Put back what ``capture`` and ``capture_of_rank`` returned, in place.

        Args:
            state: of all ranks.
            of_rank: of this one, or of the first.
            is_in_loop: the loop's body adds no more groups to the optimizers, so those that they lack are added.

        Raises:
            UsageError: where it is of another training, such as of another model; some of it may be loaded then.
        """
        if state["format"] != _FORMAT:
            raise UsageError(
                "the checkpoint was written by another version of greenlove_tracker, and this one cannot read it: use "
                "that version, or give another directory to begin anew"
            )
        pairs = self._pairs if state["is_sharded"] else self._whole | self._pairs
        saved = state["parts"]
        if set(saved) != set(pairs):
            raise UsageError(
                f"the checkpoint has {sorted(saved)}, and this training {sorted(pairs)}: give the Checkpointer what "
                "it was given when it wrote that, or another directory to begin anew"
            )
        self._adds_groups = is_in_loop
        if not state["is_sharded"]:
            for name, model in self._inner.items():
                _make_buffers(model, of_rank["buffers"][name], saved[name]["own"])
        for name, (_, restore) in pairs.items():
            try:
                restore(copied(saved[name]))  # it may be put back once more
            except Exception as error:  # of the user's objects
                raise UsageError(
                    f"the state of {name} in the checkpoint does not fit this one ({first_line(error)}). Was the code "
                    "changed? Give another directory to begin anew"
                ) from error
        for name, model in self._inner.items():
            for path, buffer in _buffers(model).items():
                if path in of_rank["buffers"][name]:
                    buffer.copy_(of_rank["buffers"][name][path])
            modules = dict(model.named_modules())
            for place, number in of_rank["numbers"][name].items():
                path, _, attribute = place.rpartition(".")
                if path in modules:
                    setattr(modules[path], attribute, number)

    def _parameters(self) -> dict[str, nn.Parameter]:
        named = [(name, *one) for name, model in self._inner.items() for one in model.named_parameters()]
        return {f"{name}.{path}": parameter for name, path, parameter in named}

    def not_passed(self, kinds: tuple[type, ...] = _NAMED_KINDS) -> dict[str, Any]:
        """Return what is alive in this process and was not passed, nor holds what was, by the name of its type."""
        passed = (*self._models.values(), *self._inner.values(), *self._optimizers.values(), *self._beside.values())
        known = {id(part) for one in passed for part in _parts(one)}
        things = [thing for thing in gc.get_objects() if issubclass(type(thing), kinds)]
        others = [thing for thing in things if known.isdisjoint(map(id, _parts(thing)))]
        inner = {id(part) for thing in others for part in _parts(thing) if part is not thing}
        outer = [thing for thing in others if id(thing) not in inner and thing.state_dict()]
        found = dict[str, Any]()
        for thing in outer:
            argument = next(name for kind, name in _ARGUMENTS.items() if isinstance(thing, kind))
            number = sum(type(one) is type(thing) for one in found.values())
            name = f"{type(thing).__name__} {number + 1}" if number else type(thing).__name__
            found[f"{name}: pass {argument}="] = thing
        return found

    def shards(self) -> dict[str, Any]:
        """Return this rank's part of models and optimizers that are sharded."""
        if not self.is_sharded:
            return {}
        return self._parameters() | {name: list(one.state.values()) for name, one in self._optimizers.items()}

    # -- optimizers: by the names of their parameters, whose order may be another --

    def _groups(self, optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
        """Return the parameters of each group by name; of one that no model has, the number."""
        names = {id(parameter): name for name, parameter in self._parameters().items()}
        numbers = itertools.count(1)
        groups = [group["params"] for group in optimizer.param_groups]
        return [{names.get(id(p)) or f"parameter {next(numbers)}": p for p in group} for group in groups]

    def _state_of_optimizer(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        return {"own": optimizer.state_dict(), "parameters": [list(group) for group in self._groups(optimizer)]}

    def _put_back_optimizer(self, optimizer: torch.optim.Optimizer, saved: Mapping[str, Any]) -> None:
        """Load the state after the optimizer has its groups, and these their parameters, in the order of the saved."""
        here = {frozenset(group): at for at, group in enumerate(self._groups(optimizer))}
        missing = [names for names in saved["parameters"] if frozenset(names) not in here]
        if missing and not self._adds_groups:
            return
        parameters = self._parameters()
        for names in missing:  # add_param_group() was called while it trained
            here[frozenset(names)] = len(optimizer.param_groups)
            optimizer.add_param_group({"params": [parameters[name] for name in names]})
        if len(saved["parameters"]) != len(optimizer.param_groups):
            raise ValueError("it has another number of parameter groups")
        groups = self._groups(optimizer)
        ordered = []
        for names in saved["parameters"]:
            at = here[frozenset(names)]
            group = optimizer.param_groups[at]
            group["params"][:] = [groups[at][name] for name in names]
            ordered.append(group)
        optimizer.param_groups[:] = ordered
        optimizer.load_state_dict(saved["own"])

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


# -- values, and their files --


def copied(value: Any) -> Any:
    """Return a copy of a value, its tensors on the CPU."""

    def copy_of(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.detach().to("cpu", copy=True)
        return copy.deepcopy(leaf)

    return tree_map(copy_of, value)


def unreadable(content: Mapping[str, Any]) -> str:
    """Return the name and type of the value that cannot be saved and read back."""
    found = "something"
    for name, value in {**content, **content.get("values", {})}.items():
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory, name)
            try:
                torch.save(value, file)
                read_plain(file, "meta")
            except Exception:  # whatever it is, it is named
                found = f"{name} ({type(value).__name__})"
    return found


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
        "gradients": [parameter.grad for parameter in model.parameters()],  # of a GAN's other loss, or accumulated
    }


def _put_back(model: nn.Module, saved: Mapping[str, Any]) -> None:
    model.load_state_dict(saved["own"])
    for module, is_training in zip(model.modules(), saved["is_training"], strict=True):
        module.training = is_training
    flags = zip(model.parameters(), saved["requires_grad"], saved["gradients"], strict=True)
    for parameter, is_trained, gradient in flags:
        parameter.requires_grad_(is_trained)
        parameter.grad = None if gradient is None else gradient.to(parameter.device)


def _numbers(model: nn.Module) -> dict[str, float]:
    """Return the plain numbers that modules have as attributes, such as counters and rates, by name."""
    return {
        f"{path}.{attribute}": value
        for path, module in model.named_modules()
        for attribute, value in vars(module).items()
        if type(value) in (bool, int, float) and attribute != "training"
    }


def _parts(thing: Any) -> Iterator[Any]:
    """Yield a thing, and the modules or schedulers in it."""
    if isinstance(thing, nn.Module):
        yield from thing.modules()
    else:
        yield thing
        yield from getattr(thing, "_schedulers", ())  # of a scheduler of several


def state_beside(thing: Any) -> dict[str, Any]:
    """Return the state of what was not passed."""
    numbers = _numbers(thing) if isinstance(thing, nn.Module) else {}
    return {**numbers, **thing.state_dict()}


def _buffers(model: nn.Module) -> dict[str, torch.Tensor]:
    whole = [(path, b) for path, b in model.named_buffers() if not (_is_dtensor(b) or is_lazy(b))]
    return {path: buffer.detach() for path, buffer in whole}


def _make_buffers(model: nn.Module, saved: Mapping[str, torch.Tensor], own: Mapping[str, Any]) -> None:
    """Make the buffers that the first forward would make, or would make anew in another shape."""
    here = _buffers(model)
    modules = dict(model.named_modules())
    device = next((parameter.device for parameter in model.parameters()), "cpu")
    for name, buffer in saved.items():
        path, _, attribute = name.rpartition(".")
        if path in modules and (name not in here or here[name].shape != buffer.shape):
            modules[path].register_buffer(attribute, buffer.to(device, copy=True), persistent=name in own)


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
