"""The training step as it is made here: number format, micro-batches, clipping and compiling are settings of it.

Nothing of the user's is changed for it: it calls ``loss(model, batch)``, or ``criterion(model(inputs), targets)``. A
task with a ``train_step`` of its own keeps that, and the techniques that are settings of a step are not run with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, cast

import torch

from greenlove_tracker.exploration.task import each_of
from greenlove_tracker.exploration.trials import clip_gradients, loss_of, loss_of_pair, map_tensors, samples_of
from greenlove_tracker.techniques.technique import NotApplicableError, Parts
from greenlove_tracker.vocabulary.errors import UsageError

_OPAQUE = (
    "the task makes its steps itself (train_step), and nobody else can change them: let it give loss, a function of "
    "(model, batch), instead"
)


@dataclass(frozen=True, slots=True)
class StepSettings:
    """The settings of a step, which techniques change.

    Attributes:
        dtype: of ``torch.autocast``; None: the loss is computed in the model's own.
        micro_batches: that each batch is split in, with one optimizer step for all.
        compile_mode: of ``torch.compile``; None: the model is not compiled.
        schedulers: of the learning rate, that are stepped after each step of the optimizer.
    """

    dtype: torch.dtype | None = None
    micro_batches: int = 1
    compile_mode: str | None = None
    schedulers: tuple[Any, ...] = ()


def check_own_step(parts: Parts) -> None:
    """Refuse a training whose step is not made here.

    Raises:
        NotApplicableError: for a task with a ``train_step``.
    """
    if parts.get("train_step") is not None:
        raise NotApplicableError(_OPAQUE)


def own_optimizer(parts: Parts) -> torch.optim.Optimizer:
    """Return the optimizer of a training whose step is made here.

    Raises:
        NotApplicableError: where the step is the task's own, or the optimizer is none of torch's kind.
    """
    check_own_step(parts)
    optimizer = each_of(parts["optimizer"])[0]
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise NotApplicableError(f"the optimizer is a {type(optimizer).__name__}, not one of torch.optim's kind")
    return optimizer


def settings_of(parts: Parts) -> StepSettings:
    """Return the settings of the step of a training."""
    found: StepSettings = parts.get("step_settings", StepSettings())
    return found


def with_step(parts: Parts, **changes: Any) -> Parts:
    """Return the parts with some settings of the step changed.

    Raises:
        NotApplicableError: for a task with a ``train_step``.
    """
    check_own_step(parts)
    return {**parts, "step_settings": replace(settings_of(parts), **changes)}


class OwnStep:
    """Makes steps on batches.

    Args:
        parts: of the training.
        device: of the model.

    Attributes:
        model: that the loss calls: compiled, where that is a setting.
        n_skipped: steps of the optimizer that were left out, as their gradients were infinite.

    Raises:
        UsageError: where there are several optimizers, or one that calls the model itself.
    """

    def __init__(self, parts: Parts, device: torch.device) -> None:
        self._settings = settings_of(parts)
        self._device = device
        self.model = parts["model"]
        optimizers = each_of(parts["optimizer"])
        if len(optimizers) > 1:
            raise UsageError(f"{len(optimizers)} optimizers: only a train_step of the task knows which steps when")
        (self._optimizer,) = optimizers
        if isinstance(self._optimizer, torch.optim.LBFGS):
            raise UsageError("LBFGS calls the model from within its step: only a train_step of the task does that")
        self._loss: Callable[[Any, Any], Any]
        self._loss = parts.get("loss") or partial(loss_of_pair, criterion=parts["criterion"])
        self._is_sum = getattr(parts["criterion"], "reduction", "mean") == "sum"
        self._max_grad_norm = parts.get("max_grad_norm")
        self._scaler = torch.amp.GradScaler(device.type) if self._settings.dtype is torch.float16 else None
        self._n_steps = self.n_skipped = 0
        if self._settings.compile_mode is not None:
            self.model = torch.compile(self.model, mode=self._settings.compile_mode)

    def __call__(self, batch: Any) -> Any:
        """Make one step of the optimizer, and return the loss of the batch; no step where that has no gradient.

        Raises:
            NotApplicableError: where the batch cannot be split, or nothing was compiled.
            UsageError: where the loss is not one number.
        """
        batch = map_tensors(batch, lambda tensor: tensor.to(self._device, non_blocking=True))
        self._optimizer.zero_grad()
        total: Any = 0.0
        has_gradient = False
        for part, share in self._parts_of(batch):
            with self._autocast():
                loss = _checked_loss(loss_of(self._loss(self.model, part)))
            if share != 1:
                loss = loss * share
            if loss.requires_grad:
                scaled = self._scaler.scale(loss) if self._scaler else loss
                scaled.backward()
                has_gradient = True
            total = total + loss.detach()
        if has_gradient:
            self._update()
        elif not self._n_steps:
            raise UsageError(
                "the loss has no gradient, so nothing would be learnt: is a detach() or a no_grad() in it?"
            )
        is_first_compiled = self._n_steps == 1 and self._settings.compile_mode is not None
        if is_first_compiled and not torch._dynamo.utils.counters["stats"].get("unique_graphs"):
            raise NotApplicableError("torch.compile compiled nothing of what the loss calls")
        return total

    def note(self) -> str:
        """Return how many steps were skipped, as a sentence; nothing where none was."""
        if not self.n_skipped:
            return ""
        return f"{self.n_skipped} of {self._n_steps} optimizer steps were skipped, as their gradients were infinite"

    def state_dict(self) -> dict[str, Any]:
        """Return the scale of the loss, and what was counted."""
        scaler = self._scaler.state_dict() if self._scaler else None
        return {"scaler": scaler, "n_steps": self._n_steps, "n_skipped": self.n_skipped}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self._scaler:
            self._scaler.load_state_dict(state["scaler"])
        self._n_steps = state["n_steps"]
        self.n_skipped = state["n_skipped"]

    def _autocast(self) -> AbstractContextManager[Any]:
        dtype = self._settings.dtype
        device = self._device.type
        if dtype is None:
            return nullcontext()
        computed_on = "cpu" if device == "meta" else device  # meta has no autocast of its own
        return cast("AbstractContextManager[Any]", torch.autocast(computed_on, dtype=dtype))

    def _parts_of(self, batch: Any) -> Iterator[tuple[Any, float]]:
        """Yield the micro-batches, each with the share that its loss has in that of the batch."""
        if self._settings.micro_batches == 1:
            yield batch, 1
            return
        size = _size_of(batch)
        n_parts = min(self._settings.micro_batches, size)
        ends = [size * n // n_parts for n in range(n_parts + 1)]
        for begin, end in pairwise(ends):
            share = 1 if self._is_sum else (end - begin) / size
            yield map_tensors(batch, partial(_rows, begin, end)), share

    def _update(self) -> None:
        self._n_steps += 1
        scaler = self._scaler
        if self._max_grad_norm is not None:
            if scaler:
                scaler.unscale_(self._optimizer)
            clip_gradients(self._optimizer, self._max_grad_norm)
        if scaler is None:
            self._optimizer.step()
        else:
            scale = scaler.get_scale()
            scaler.step(self._optimizer)
            scaler.update()
            if scaler.get_scale() < scale:  # its only sign of gradients that were infinite
                self.n_skipped += 1
                return
        for scheduler in self._settings.schedulers:
            scheduler.step()


def _checked_loss(loss: Any) -> torch.Tensor:
    """Return a loss that a step can be made on.

    Raises:
        UsageError: where it is none.
    """
    kind = type(loss).__name__
    if isinstance(loss, torch.Tensor):
        if loss.numel() == 1:
            return loss
        kind = f"tensor of {loss.numel():,} numbers"
    raise UsageError(f"the loss is a {kind}: let the criterion, or loss(model, batch), return a tensor of one number")


def _rows(begin: int, end: int, tensor: torch.Tensor) -> torch.Tensor:
    return tensor[begin:end] if tensor.ndim else tensor


def _size_of(batch: Any) -> int:
    """Return the samples of a batch, which all of its tensors have at their first dimension.

    Raises:
        NotApplicableError: where they have not.
    """
    sizes = set(samples_of(batch))
    if len(sizes) != 1:
        shown = f"first dimensions of {sizes}" if sizes else "no tensor"
        raise NotApplicableError(
            f"a batch is a {type(batch).__name__} with {shown}, and cannot be split: it must be a tensor, or a tuple, "
            "list or mapping of tensors with a sample at each place of the first dimension"
        )
    return sizes.pop()
