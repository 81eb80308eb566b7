"""An arm of a comparison: the training of a task with a technique applied, ready to make steps."""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from inspect import signature
from types import CellType, FunctionType
from typing import Any

import torch
from torch import nn

from greenlove_tracker.comparisons import BASELINE
from greenlove_tracker.config import setting_names
from greenlove_tracker.exploration.estimator import Estimator, device_of
from greenlove_tracker.exploration.peak_memory import TrainingStep
from greenlove_tracker.exploration.snapshot import find_lr_schedulers
from greenlove_tracker.exploration.task import each_of, pieces_of
from greenlove_tracker.exploration.trials import DEFAULT_BATCH_SIZE, BatchSource, default_step, source_of
from greenlove_tracker.techniques.technique import Parts, Technique

Task = Callable[[], Any]  # returns (model, optimizer, criterion, train_dataset), or a mapping of them and of more
FOR_TECHNIQUES = ("difficulty", "difficulty_groups")  # names that a task may give for them alone


@dataclass(frozen=True, slots=True)
class Arm:
    """A training with a technique applied.

    Attributes:
        name: of the technique; ``baseline`` without one.
        parts: by name, after the technique.
        source: of the batches.
        device: of the model.
        active: a context in which everything of the arm runs.
        note: what the technique changes in what is learnt.
    """

    name: str
    parts: Parts
    source: BatchSource
    device: torch.device
    active: Callable[[], AbstractContextManager[Any]] = nullcontext
    note: str = ""

    def step(self, batch: Any) -> Any:
        """Make one optimizer step on a batch, and return what the step returns: its loss, or None."""
        parts = self.parts
        return step_of(parts)(parts["model"], batch, parts["optimizer"], parts["criterion"], self.device)

    def training_step(self) -> TrainingStep:
        """Return its step and what it trains, as they are now, for what measures its memory."""
        modules = tuple(m for m in (self.parts["model"], self.parts["criterion"]) if isinstance(m, nn.Module))
        return TrainingStep(modules, tuple(each_of(self.parts["optimizer"])), self.step, self.device)


def parts_of(task: Task, seed: int) -> Parts:
    """Call a task with the random states of a seed, so that each arm starts from the same weights.

    Raises:
        UsageError: where it returns something else than a task does.
    """
    seed_all(seed)
    takes = {*signature(Estimator).parameters, *setting_names(), *FOR_TECHNIQUES}
    return pieces_of(task(), getattr(task, "__name__", "the task"), takes)


def build_arm(
    task: Task, technique: Technique | None = None, *, seed: int = 0, others: Sequence[Mapping[str, Any]] = ()
) -> Arm:
    """Build the training of a task with a technique applied.

    Args:
        task: called anew for each arm.
        technique: None for the baseline.
        seed: of all random states, before the task is called.
        others: parts that the task returned before, as they came from it: where it returns an object of theirs again,
            the arm gets a copy.

    Raises:
        NotApplicableError: where the technique cannot be used here.
        UsageError: where the task returns something else than a task does.
    """
    return arm_of(own_parts(parts_of(task, seed), others), technique)


def arm_of(parts: Parts, technique: Technique | None = None) -> Arm:
    """Return the training of some parts with a technique applied; arguments and errors as of ``build_arm``."""
    if technique is not None:
        parts = technique.apply(parts)
    source = batches_of(parts)
    device = device_of(parts["model"], parts.get("device"))
    if technique is None:
        return Arm(BASELINE, parts, source, device)
    return Arm(technique.name, parts, source, device, technique.active, technique.note)


_SHARED = ("train_dataset",)  # data are read, not changed


def lives_on(parts: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> bool:
    """Return True where a task returned its model, a part of it or an optimizer again: the user's, which live on."""
    kept = {id(thing) for other in others for thing in _changing(other)}
    return any(id(thing) in kept for thing in _changing(parts))


def _changing(parts: Mapping[str, Any]) -> list[Any]:
    """Return what training changes: models and optimizers, and the parameters and buffers of the models."""
    models = [m for name in ("model", "criterion") for m in each_of(parts[name]) if isinstance(m, nn.Module)]
    within = [thing for model in models for thing in (*model.parameters(), *model.buffers())]
    return [*each_of(parts["model"]), *each_of(parts["optimizer"]), *within]


def own_parts(parts: Parts, others: Sequence[Mapping[str, Any]]) -> Parts:
    """Return the parts of a training, copied all together where others hold its model or optimizer already.

    The data are shared, and so are objects of the user's that a ``train_step`` is a method of. A function whose closure
    holds what is copied gets the copy there.

    Args:
        parts: as a task returned them.
        others: that it returned before.
    """
    if not lives_on(parts, others):
        return parts
    memo: dict[int, Any] = {id(parts[name]): parts[name] for name in _SHARED if name in parts}
    stateful = [thing for thing in parts.get("also_restore", ()) if hasattr(thing, "state_dict")]
    criterion = parts["criterion"] if isinstance(parts["criterion"], nn.Module) else None
    lr_schedulers = find_lr_schedulers(parts["optimizer"], stateful)
    copy.deepcopy((parts["model"], parts["optimizer"], criterion, stateful, lr_schedulers), memo)
    own = {name: _copy_in(memo, thing) for name, thing in parts.items() if name not in _SHARED}
    return {**parts, **own}


def _copy_in(memo: Mapping[int, Any], thing: Any) -> Any:
    """Return what a thing was copied to; one that was not is itself, and its closure or items are looked into."""
    if id(thing) in memo:
        return memo[id(thing)]
    if isinstance(thing, FunctionType):
        return _with_copies(thing, memo)
    if type(thing) in (list, tuple):
        return type(thing)(_copy_in(memo, part) for part in thing)
    return thing


def _with_copies(function: FunctionType, memo: Mapping[int, Any]) -> FunctionType:
    """Return a function whose closure holds the copies of what was copied."""
    cells = function.__closure__ or ()
    held = [_content(cell) for cell in cells]
    if not any(id(thing) in memo for thing in held):
        return function
    closure = tuple(CellType(memo[id(t)]) if id(t) in memo else cell for t, cell in zip(held, cells, strict=True))
    code, names = function.__code__, function.__globals__
    made = FunctionType(code, names, function.__name__, function.__defaults__, closure)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a variable that is not set yet
        return None


def batches_of(parts: Mapping[str, Any]) -> BatchSource:
    """Return the batches of the parts.

    Raises:
        UsageError: where there is nothing to train on.
    """
    return source_of(parts["train_dataset"], parts.get("batch_size") or DEFAULT_BATCH_SIZE)


def step_of(parts: Mapping[str, Any]) -> Callable[..., Any]:
    """Return the training step of the parts, for a technique that wraps it."""
    found: Callable[..., Any] = parts.get("train_step") or default_step
    return found


def seed_all(seed: int) -> None:
    """Set all random states: Python's, torch's, and NumPy's where it is loaded."""
    random.seed(seed)
    torch.manual_seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)


def is_out_of_memory(error: BaseException) -> bool:
    """Return True where there was too little memory; torch's allocator of the CPU, cuBLAS and cuDNN only say so."""
    if isinstance(error, torch.cuda.OutOfMemoryError | MemoryError):
        return True
    said = ("out of memory", "ALLOC_FAILED", "can't allocate memory")
    return isinstance(error, RuntimeError) and any(words in str(error) for words in said)
