"""An arm of a comparison: the training of a task with a technique applied, ready to make steps."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from greenlove_tracker.exploration.estimator import ARGUMENT_NAMES, device_of, plan_of
from greenlove_tracker.exploration.peak_memory import TrainingStep
from greenlove_tracker.exploration.task import each_of, pieces_of
from greenlove_tracker.exploration.trials import DEFAULT_BATCH_SIZE, BatchSource, Step, loss_of, samples_of, source_of
from greenlove_tracker.techniques.step import OwnStep
from greenlove_tracker.techniques.technique import Parts, Technique
from greenlove_tracker.vocabulary.comparisons import BASELINE
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.forecasting import TrainingPlan
from greenlove_tracker.vocabulary.phases import phases_from

Task = Callable[[], Any]  # returns (model, optimizer, criterion, train_dataset), or a mapping of them and of more


@dataclass(frozen=True, slots=True)
class Arm:
    """A training with a technique applied.

    Attributes:
        name: of the technique; ``baseline`` without one.
        parts: by name, after the technique.
        source: of the batches.
        device: of the model.
        step: makes one optimizer step on a batch, and returns its loss; one of the task's own may return none.
        active: a context in which everything of the arm runs.
        note: what the technique changes in what is learnt.
    """

    name: str
    parts: Parts
    source: BatchSource
    device: torch.device
    step: Step
    active: Callable[[], AbstractContextManager[Any]] = nullcontext
    note: str = ""

    def training_step(self) -> TrainingStep:
        """Return its step and what it trains, as they are now, for what measures its memory."""
        model = self.step.model if isinstance(self.step, OwnStep) else self.parts["model"]
        modules = tuple(m for m in (model, self.parts["criterion"]) if isinstance(m, nn.Module))
        return TrainingStep(modules, tuple(each_of(self.parts["optimizer"])), self.step, self.device)

    def train_on(self, batch: Any) -> tuple[int, Any]:
        """Make a step; return the samples of the batch, by its first tensor or the size of batches, and the loss."""
        loss = loss_of(self.step(batch))
        if isinstance(loss, torch.Tensor):
            loss = loss.detach().float().mean()
        return next(iter(samples_of(batch)), self.source.batch_size), loss

    def counted(self) -> list[str]:
        """Return what the technique and the step counted while they ran, in sentences."""
        asked = [*self.parts.get("technique_notes", ())]
        if isinstance(self.step, OwnStep):
            asked.append(self.step.note)
        return [text for text in [ask() for ask in asked] if text]


def parts_of(task: Task, seed: int) -> Parts:
    """Call a task with the random states of a seed, so that each arm starts from the same weights.

    Raises:
        UsageError: where it returns something else than a task does.
    """
    seed_all(seed)
    return pieces_of(task(), getattr(task, "__name__", "the task"), ARGUMENT_NAMES)


def build_arm(task: Task, technique: Technique | None = None, *, seed: int = 0) -> Arm:
    """Build the training of a task with a technique applied.

    Args:
        task: called anew for each arm.
        technique: None for the baseline.
        seed: of all random states, before the task is called.

    Raises:
        NotApplicableError: where the technique cannot be used here.
        UsageError: where the task returns something else than a task does.
    """
    return arm_of(parts_of(task, seed), technique)


def arm_of(parts: Parts, technique: Technique | None = None) -> Arm:
    """Return the training of some parts with a technique applied; arguments and errors as of ``build_arm``."""
    if technique:
        parts = technique.apply(parts)
    if not isinstance(parts["model"], nn.Module):
        raise UsageError(f"the model is a {type(parts['model']).__name__}, and must be a torch.nn.Module")
    source = batches_of(parts)
    device = device_of_parts(parts)
    step = _step_of(parts, device)
    if not technique:
        return Arm(BASELINE, parts, source, device, step)
    return Arm(technique.name, parts, source, device, step, technique.active, technique.note)


def _step_of(parts: Parts, device: torch.device) -> Step:
    own = parts.get("train_step")
    if own is None:
        return OwnStep(parts, device)
    model, optimizer, criterion = (parts[name] for name in ("model", "optimizer", "criterion"))
    return lambda batch: own(model, batch, optimizer, criterion, device)


def check_is_new(parts: Parts, first: Parts) -> None:
    """Refuse a task that returns a model or optimizer again: trained in one arm, it has learnt already in the next.

    Raises:
        UsageError: with what to do.
    """
    if not set(map(id, _changing(first))).isdisjoint(map(id, _changing(parts))):
        raise UsageError(
            "the task returns the same model or optimizer each time: make both inside the function, so that each way "
            "to train begins with a model of its own"
        )


def _changing(parts: Parts) -> list[Any]:
    modules = [m for m in (parts["model"], parts["criterion"]) if isinstance(m, nn.Module)]
    parameters = [parameter for module in modules for parameter in module.parameters()]
    return [parts["model"], *each_of(parts["optimizer"]), *parameters]


def plan_of_parts(parts: Parts) -> TrainingPlan:
    """Return the plan of the whole training, evaluations left out.

    Raises:
        UsageError: where the task does not say how long it is.
    """
    phases = phases_from(parts.get("phases"))
    return plan_of(batches_of(parts), parts.get("total_epochs"), parts.get("total_steps"), None, phases)


def device_of_parts(parts: Parts) -> torch.device:
    return device_of(parts["model"], parts.get("device"))


def batches_of(parts: Parts) -> BatchSource:
    """Return the batches of the parts.

    Raises:
        UsageError: where there is nothing to train on.
    """
    return source_of(parts["train_dataset"], parts.get("batch_size") or DEFAULT_BATCH_SIZE)


def seed_all(seed: int) -> None:
    """Set all random states: Python's, torch's, and NumPy's where it is loaded."""
    random.seed(seed)
    torch.manual_seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
