"""The state of a training: what a checkpoint holds of models, optimizers and what belongs to them.

Whole models and optimizers are torch.save's, which takes every optimizer and any objects of the user's. Of sharded ones
(FSDP, FSDP2, DTensor) each rank holds a part: torch.distributed.checkpoint writes and reads these, for any number of
ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel

from greenlove_tracker.checkpointing.distributed import first_line
from greenlove_tracker.exploration.object_tree import GRAD_SCALER, objects_of
from greenlove_tracker.exploration.random_state import SavedState, Values, copied, is_pair, own_state
from greenlove_tracker.machine.job import torch_group
from greenlove_tracker.vocabulary.errors import UsageError

_FORMAT = 8  # of the state of a training
# What a training may have beside what it passed, and the argument that it is passed by.
_ARGUMENTS = {
    lr_scheduler.LRScheduler: "scheduler",
    GRAD_SCALER: "scaler",
    torch.optim.Optimizer: "optimizer",
    nn.Module: "model",
}
ALL_KINDS = tuple(_ARGUMENTS)  # that a rehearsal looks at
_NAMED_KINDS = (lr_scheduler.LRScheduler, GRAD_SCALER, AveragedModel)  # which a checkpoint names


class TrainingState:
    """Takes and puts back the state of what trains.

    Args:
        models: by name; of DistributedDataParallel or compiled ones what is inside is saved.
        optimizers: by name.
        beside: by name, what else changes: objects with ``state_dict`` and ``load_state_dict``, or pairs of functions
            (save, restore).
        others: likewise, the user's own, which may hold parameters of no model.

    Attributes:
        names: of all that is held.
        models: as one module.
        optimizers: by name.
        is_sharded: all ranks write and read models and optimizers together.
        has_stepped: an optimizer took a step in the newest batch, or nobody can see that.

    Raises:
        UsageError: where something cannot be saved.
    """

    def __init__(
        self,
        models: Mapping[str, nn.Module],
        optimizers: Mapping[str, torch.optim.Optimizer],
        beside: Values,
        others: Values,
    ) -> None:
        beside = {**beside, **others}
        self.names = (*models, *optimizers, *beside)
        self.has_stepped = True
        self.models = nn.ModuleDict({name: _inner(model) for name, model in models.items()})
        self.is_sharded = is_sharded(self.models)
        self.optimizers = optimizers
        self._passed = (self.models, *optimizers.values(), *beside.values())
        self._beside = {name: own_state(name, thing) for name, thing in beside.items()}
        self._whole = {"model": SavedState("model", partial(_state_of, self.models), partial(_put_back, self.models))}
        known = set(self.models.parameters())
        for name, optimizer in optimizers.items():
            if not (others or known.issuperset(self._trained(optimizer).values())):
                raise UsageError(
                    f"{name} trains parameters of none of the models that are given, so they would not be saved: give "
                    "their model too, or others=(save, restore) for them, and make an optimizer after its model is "
                    "sharded"
                )
            optimizer.register_step_post_hook(self._on_step)
            save = partial(self._state_of_optimizer, optimizer)
            self._whole[name] = SavedState(name, save, partial(self._put_back_optimizer, optimizer))
        self._whole |= self._beside
        attributes = _attributes(self.models).items()
        self._unchanged = {(place, value) for place, value in attributes if not place.endswith(".training")}

    def _on_step(self, *_: object) -> None:
        self.has_stepped = True

    def batch_begins(self) -> None:
        """Tell that the steps of another batch follow."""
        self.has_stepped = not self.optimizers

    @property
    def has_growing_gradients(self) -> bool:
        """True where gradients wait for the first step of an optimizer."""
        return not self.has_stepped and any(one.grad is not None for one in self.models.parameters())

    def capture(self) -> Values:
        """Return the state in plain values, with the training's own tensors in it."""
        parts = self._beside if self.is_sharded else self._whole
        return {
            "format": _FORMAT,
            "is_sharded": self.is_sharded,
            "names": self.names,
            "parts": {name: part.save() for name, part in parts.items()},
        }

    def held(self) -> Values:
        """Return the state of all, of sharded models and optimizers what lies on this rank."""
        return {name: part.save() for name, part in self._whole.items()}

    def capture_of_rank(self) -> Values:
        """Return what each rank saves of its own: buffers, modes, and plain numbers of modules that have changed."""
        return {"modules": dict(_attributes(self.models).items() - self._unchanged)}

    def load(self, state: Values, of_rank: Values, *, is_in_loop: bool) -> None:
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
        if set(state["names"]) != set(self.names):
            raise UsageError(
                f"the checkpoint has {sorted(state['names'])}, and this training {sorted(self.names)}: give the "
                "Checkpointer what it was given when it wrote that, or another directory to begin anew"
            )
        self._is_in_loop = is_in_loop
        self._put_back_modules(state["parts"], of_rank["modules"])
        for name, saved in state["parts"].items():
            try:
                self._whole[name].put_back(copied(saved))  # it may be put back once more
            except Exception as error:  # of the user's objects
                raise UsageError(
                    f"the state of {name} in the checkpoint does not fit this one ({first_line(error)}). Was the code "
                    "changed? Give another directory to begin anew"
                ) from error
        self._put_back_modules(state["parts"], of_rank["modules"])  # with models came the buffers of the first rank

    def _put_back_modules(self, parts: Values, of_rank: Values) -> None:
        """Put back what is a rank's own; buffers that the first forward makes, or makes in another shape, are made."""
        modules = dict(self.models.named_modules())
        here = _attributes(self.models)
        persistent = parts["model"]["own"] if "model" in parts else {}
        for place, value in of_rank.items():
            path, _, attribute = place.rpartition(".")
            if path not in modules:
                continue
            if not isinstance(value, torch.Tensor):
                setattr(modules[path], attribute, value)
            elif place in here and here[place].shape == value.shape:
                here[place].copy_(value)
            else:
                made = value.to(next(self.models.parameters()).device, copy=True)
                modules[path].register_buffer(attribute, made, persistent=place in persistent)

    def not_passed(self, kinds: tuple[type, ...] = _NAMED_KINDS) -> Values:
        """Return what is alive here and was not passed, nor holds what was, by the name of its type: one of each."""
        known = {id(part) for one in self._passed for part in _parts(one)}
        alive = sorted(objects_of(*kinds), key=lambda one: len(_parts(one)), reverse=True)
        found = Values()
        for thing in alive:  # its parts are named with it
            parts = set(map(id, _parts(thing)))
            if known.isdisjoint(parts) and thing.state_dict():
                known |= parts
                argument = next(name for kind, name in _ARGUMENTS.items() if isinstance(thing, kind))
                found.setdefault(f"{type(thing).__name__}: pass {argument}=", thing)
        return found

    # -- optimizers: by the names of their parameters, whose order may be another --

    def _trained(self, optimizer: torch.optim.Optimizer) -> dict[str, nn.Parameter]:
        """Return the parameters of an optimizer by name; those that no model has by number."""
        names = {parameter: name for name, parameter in self.models.named_parameters()}
        numbered = enumerate(parameter for group in optimizer.param_groups for parameter in group["params"])
        return {names.get(parameter, f"parameter {number}"): parameter for number, parameter in numbered}

    def _state_of_optimizer(self, optimizer: torch.optim.Optimizer) -> Values:
        return {"own": optimizer.state_dict(), "parameters": list(self._trained(optimizer))}

    def _put_back_optimizer(self, optimizer: torch.optim.Optimizer, saved: Values) -> None:
        """Load the state after the optimizer has the groups of the saved, and these their parameters, in its order."""
        names = saved["parameters"]
        here = self._trained(optimizer)
        if not here.keys() <= set(names):
            raise ValueError("it has other parameters")
        if len(here) == len(names) or self._is_in_loop:  # add_param_group() may have been called while it trained
            parameters = {**dict(self.models.named_parameters()), **here}
            groups = saved["own"]["param_groups"]
            del optimizer.param_groups[len(groups) :]
            for number, group in enumerate(groups):
                trained = [parameters[names[at]] for at in group["params"]]
                if number < len(optimizer.param_groups):
                    optimizer.param_groups[number]["params"][:] = trained  # in place: LBFGS holds the list
                else:
                    optimizer.add_param_group(group | {"params": trained})
            optimizer.load_state_dict(saved["own"])


# -- values, and their files --


def named(kind: str, things: Any) -> Values:
    """Return one thing or several by name: ``model``, or ``model-1``, ``model-2``, or as the user calls them."""
    if isinstance(things, list | tuple) and not is_pair(things):
        things = dict(enumerate(things, 1))
    if isinstance(things, Mapping):
        return {f"{kind}-{name}": thing for name, thing in things.items()}
    return {} if things is None else {kind: things}


# -- models --


def _inner(model: nn.Module) -> nn.Module:
    """Return the model inside DDP and ``torch.compile``, so that it may be resumed without either."""
    is_ddp = isinstance(model, nn.parallel.DistributedDataParallel)
    inner = model.module if is_ddp else getattr(model, "_orig_mod", None)
    return model if inner is None else _inner(inner)


def _state_of(model: nn.Module) -> Values:
    """Return the state of a model, and what ``state_dict`` leaves out of parameters: flags and gradients.

    Gradients at hand are those of a GAN's other loss, or those that a sparse optimizer adds to.
    """
    return {"own": model.state_dict(), "gradients": [(one.requires_grad, one.grad) for one in model.parameters()]}


def _put_back(model: nn.Module, saved: Values) -> None:
    model.load_state_dict(saved["own"])
    for parameter, (is_trained, gradient) in zip(model.parameters(), saved["gradients"], strict=True):
        parameter.requires_grad_(is_trained)
        parameter.grad = None if gradient is None else gradient.to(parameter.device)


def _attributes(model: nn.Module) -> Values:
    """Return the buffers of modules that are whole, and plain numbers such as counters, rates and modes, by name."""
    buffers = {place: buffer.detach() for place, buffer in model.named_buffers() if type(buffer) is torch.Tensor}
    numbers = {
        f"{path}.{attribute}": value
        for path, module in model.named_modules()
        for attribute, value in vars(module).items()
        if type(value) in (bool, int, float)
    }
    return {**buffers, **numbers}


def _parts(thing: Any) -> list[Any]:
    if isinstance(thing, nn.Module):
        return list(thing.modules())
    return [thing, *getattr(thing, "_schedulers", ())]  # of a scheduler of several


def is_sharded(model: nn.Module) -> bool:
    """Return True where each rank holds only a part of a model: FSDP, FSDP2 (``fully_shard``) and other DTensors."""
    if not torch_group()[1]:
        return False
    from torch.distributed.fsdp import FullyShardedDataParallel

    has_dtensors = any(hasattr(one, "device_mesh") for one in model.parameters())  # DTensor moved between versions
    return has_dtensors or bool(FullyShardedDataParallel.fsdp_modules(model))
