"""``grad-accumulation=4``: each batch in four parts, one after the other, and one optimizer step for all."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.utils import clip_grad

from greenlove_tracker.errors import UsageError
from greenlove_tracker.exploration.snapshot import find_lr_schedulers
from greenlove_tracker.exploration.task import each_of
from greenlove_tracker.exploration.trials import LoaderSource
from greenlove_tracker.format import plural
from greenlove_tracker.techniques.arm import batches_of, step_of
from greenlove_tracker.techniques.step_wrapping import backward_replaced, intercept
from greenlove_tracker.techniques.technique import NotApplicableError, Parts, Stage, Technique

_DEFAULT_PARTS = 2


def technique(name: str, value: str | None) -> Technique:
    """Return ``grad-accumulation=N``; without a number, of 2 micro-batches.

    Raises:
        UsageError: where the value is no whole number of at least 2.
    """
    n_parts = _DEFAULT_PARTS if value is None else int(value) if value.isdecimal() else 0
    if n_parts < 2:
        raise UsageError(f"{name}={value}: a batch is split in 2 micro-batches or more, such as {name}=4")
    full_name = name if value is None else f"{name}={value}"
    return Technique(full_name, partial(_accumulate, n_parts=n_parts), Stage.MICRO_BATCHES, name)


def _accumulate(parts: Parts, *, n_parts: int) -> Parts:
    """Split each batch before the step takes it, whichever step that is.

    Raises:
        NotApplicableError: where the batches, the step or the optimizer cannot.
    """
    optimizers = each_of(parts["optimizer"])
    if len(optimizers) > 1:
        raise NotApplicableError(
            f"the training has {len(optimizers)} optimizers: gradients that one leaves would enter the steps of another"
        )
    if isinstance(optimizers[0], torch.optim.LBFGS):
        raise NotApplicableError("LBFGS calls the model from within its step, so no gradients can be collected")
    batch_size = _batch_size(parts)
    if batch_size is not None and batch_size < n_parts:
        raise NotApplicableError(f"its batches hold {plural(batch_size, 'sample')}, which cannot be split in {n_parts}")
    schedulers = find_lr_schedulers(optimizers[0], ())
    step = _AccumulatedStep(step_of(parts), n_parts, batch_size, parts["model"], optimizers[0], schedulers)
    notes = list(parts.get("technique_notes", ()))
    if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in parts["model"].modules()):
        notes.append(lambda: "BatchNorm takes its statistics of micro-batches, so it learns differently")
    return {**parts, "train_step": step, "technique_notes": notes}


def _batch_size(parts: Parts) -> int | None:
    """Return the samples of a batch; None for a stream that does not say."""
    source, data = batches_of(parts), parts["train_dataset"]
    is_known = isinstance(source, LoaderSource) or parts.get("batch_size") or getattr(data, "batch_size", None)
    return source.batch_size if is_known else None


class _AccumulatedStep:
    """A training step made of several calls of another, with the gradients of the whole batch.

    The mean over a batch of n samples is the mean over its parts, each weighted by its share of n: so weighted is what
    enters ``backward()``. Gradients are emptied before the first part only; in the last part only they are clipped,
    and the optimizer and the schedulers step.
    """

    def __init__(
        self,
        inner: Callable[..., Any],
        n_parts: int,
        batch_size: int | None,
        model: nn.Module,
        optimizer: Any,
        schedulers: Sequence[Any],
    ) -> None:
        self._inner, self._n_parts, self._batch_size = inner, n_parts, batch_size
        self._model = model
        self._weight, self._n_steps = 1.0, 0
        self._is_last, self._is_checked = True, False
        self._has_gradients = False  # of this batch, that no step has used yet
        self._gradients: dict[int, torch.Tensor] = {}  # by parameter, after the part before, in the first batch
        intercept(optimizer, "step", self._step)
        for thing in (optimizer, model):
            intercept(thing, "zero_grad", self._zero_grad)
        for scheduler in schedulers:
            intercept(scheduler, "step", self._in_last)

    def __call__(self, model: nn.Module, batch: Any, optimizer: Any, criterion: Any, device: Any) -> Any:
        """Make one optimizer step on a batch, and return its loss, or what the last part returned.

        Raises:
            NotApplicableError: where the batch cannot be split, or the step is not one that can be repeated.
        """
        chunks = _split(batch, self._n_parts, self._batch_size)
        weights = _weights(chunks, criterion)
        weighted = [(chunk, weight) for (chunk, _), weight in zip(chunks, weights, strict=True) if weight]
        results = []
        try:
            with backward_replaced(self._backward), self._clipped_once():
                for index, (chunk, self._weight) in enumerate(weighted):
                    self._is_last = index == len(weighted) - 1
                    self._n_steps = 0
                    results.append(self._inner(model, chunk, optimizer, criterion, device))
                    if self._n_steps != 1:
                        raise NotApplicableError(
                            f"the training step makes {self._n_steps} optimizer steps a batch, and only with one do "
                            "the gradients of micro-batches belong together"
                        )
        finally:
            self._weight, self._is_last, self._is_checked, self._has_gradients = 1.0, True, True, False
            self._gradients = {}
        return _combined_loss(results, [weight for _, weight in weighted])

    def _backward(self, plain: Callable[..., None], tensors: Any, *args: Any, **kwargs: Any) -> None:
        weight, self._has_gradients = self._weight, True
        if weight == 1.0:
            plain(tensors, *args, **kwargs)
            return
        roots = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        plain([root * weight for root in roots], *_as_sequences(args), **kwargs)

    def _zero_grad(self, plain: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        if not self._has_gradients:
            plain(*args, **kwargs)

    def _step(self, plain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if args or any(argument is not None for argument in kwargs.values()):
            raise NotApplicableError("the optimizer's step is given a closure, so no gradients can be collected")
        self._n_steps += 1
        if not self._is_checked:
            self._check_gradients()
        if not self._is_last:
            return None
        self._has_gradients = False
        return plain()

    def _in_last(self, plain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return plain(*args, **kwargs) if self._is_last else None

    def _check_gradients(self) -> None:
        """Check in the first batch that gradients were added to those of the part before.

        Raises:
            NotApplicableError: where the step empties them by itself.
        """
        after = {id(p): p.grad for p in self._model.parameters() if p.grad is not None}
        if any(after.get(parameter) is not grad for parameter, grad in self._gradients.items()):
            raise NotApplicableError(
                "the training step empties gradients without the optimizer's zero_grad(): let it call that"
            )
        self._gradients = {} if self._is_last else after

    @contextmanager
    def _clipped_once(self) -> Iterator[None]:
        """Let gradients be clipped in the last part only, where they are whole."""
        spaces = [vars(torch.nn.utils), vars(clip_grad), getattr(inspect.unwrap(self._inner), "__globals__", {})]
        plain = {name: vars(clip_grad)[name] for name in ("clip_grad_norm_", "clip_grad_value_")}
        changed = []
        for space in spaces:
            for name, function in [(n, f) for n, f in space.items() if any(f is p for p in plain.values())]:
                space[name] = partial(self._clip, function)
                changed.append((space, name, function))
        try:
            yield
        finally:
            for space, name, function in changed:
                space[name] = function

    def _clip(self, plain: Callable[..., Any], parameters: Any, *args: Any, **kwargs: Any) -> Any:
        if self._is_last:
            return plain(parameters, *args, **kwargs)
        if plain.__name__ == "clip_grad_norm_":
            return torch.zeros(())  # the norm of gradients that are not whole yet: nobody can use it
        return None


def _as_sequences(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of ``backward`` behind the tensors, with the gradients as a list as the tensors are."""
    if args and isinstance(args[0], torch.Tensor):
        return ([args[0]], *args[1:])
    return args


def _split(batch: Any, n_parts: int, batch_size: int | None) -> list[tuple[Any, int]]:
    """Return the parts of a batch with their numbers of samples, which differ by one at most.

    Raises:
        NotApplicableError: where it is nothing that can be split.
    """
    n_samples = _n_samples(batch, batch_size)
    n_parts = min(n_parts, n_samples)
    least, more = divmod(n_samples, n_parts)
    sizes = [least + (index < more) for index in range(n_parts)]
    starts = [sum(sizes[:index]) for index in range(n_parts)]
    return [(_slice(batch, slice(a, a + n), n_samples), n) for a, n in zip(starts, sizes, strict=True)]


def _n_samples(batch: Any, batch_size: int | None) -> int:
    """Return the samples of a batch: the first dimension of its tensors, or the length of its lists of samples.

    Raises:
        NotApplicableError: where it has neither.
    """
    if isinstance(batch, torch.Tensor):
        found = len(batch) if batch.ndim else 0
    else:
        items = list(batch.values()) if isinstance(batch, Mapping) else batch if _is_sequence(batch) else []
        lengths = [len(i) for i in items if isinstance(i, torch.Tensor) and i.ndim]
        lists = {len(i) for i in items if _is_sequence(i)}
        if not lengths and items and len(lists) == 1 and all(_is_sequence(i) for i in items) and lists == {batch_size}:
            lengths = list(lists)  # images of many sizes with their boxes, as torchvision's detection has them
        if not lengths:
            lengths = [n for i in items if isinstance(i, Mapping | list | tuple) and (n := _n_samples(i, batch_size))]
        found = lengths[0] if lengths else 0
    if not found:
        raise NotApplicableError(
            f"a batch is a {type(batch).__name__}, and cannot be split: it must be a tensor, or a tuple, list or "
            "mapping of tensors with a sample at each place of the first dimension"
        )
    return found


def _slice(value: Any, place: slice, n_samples: int) -> Any:
    """Return some samples of a batch, in its own structure.

    Raises:
        NotApplicableError: where a tensor has another number of samples than the rest.
    """
    if isinstance(value, torch.Tensor):
        if value.ndim and len(value) != n_samples:
            raise NotApplicableError(
                f"a tensor of {tuple(value.shape)} in a batch of {n_samples} samples cannot be split: its first "
                "dimension is another"
            )
        return value[place] if value.ndim else value
    if isinstance(value, Mapping):
        sliced = {key: _slice(item, place, n_samples) for key, item in value.items()}
        return sliced if type(value) is dict else type(value)(sliced)  # type: ignore[call-arg]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_slice(item, place, n_samples) for item in value))
    if _is_sequence(value):
        are_batches = any(isinstance(item, torch.Tensor) and item.shape[:1] == (n_samples,) for item in value)
        if len(value) == n_samples and not are_batches:
            return value[place]  # samples
        return type(value)([_slice(item, place, n_samples) for item in value])
    if value is None or isinstance(value, str | int | float | bool | torch.device):
        return value
    raise NotApplicableError(f"a batch holds a {type(value).__name__}, which cannot be split")


def _is_sequence(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _weights(chunks: Sequence[tuple[Any, int]], criterion: Any) -> list[float]:
    """Return what the loss of each part counts in that of the batch: its share of a mean, or 1 in a sum."""
    if getattr(criterion, "reduction", "mean") == "sum":
        return [1.0] * len(chunks)
    terms = [_n_terms(chunk, criterion) for chunk, _ in chunks]
    counts = [float(n) for _, n in chunks] if None in terms else [float(term or 0.0) for term in terms]
    whole = sum(counts)
    return [count / whole for count in counts] if whole else [1 / len(counts)] * len(counts)


def _n_terms(chunk: Any, criterion: Any) -> float | None:
    """Return the terms of a mean that leaves out targets or weights classes; None where it is of samples.

    Source: the formula of ``reduction="mean"`` in the documentation of ``torch.nn.CrossEntropyLoss``.
    """
    if not isinstance(criterion, nn.CrossEntropyLoss | nn.NLLLoss) or not _is_sequence(chunk) or len(chunk) != 2:
        return None
    targets = chunk[1]
    if not isinstance(targets, torch.Tensor) or targets.is_floating_point():
        return None
    counted = targets[targets != criterion.ignore_index]
    if criterion.weight is None:
        return float(counted.numel())
    return float(criterion.weight.to(counted.device)[counted].sum())


def _combined_loss(results: Sequence[Any], weights: Sequence[float]) -> Any:
    """Return the loss of the whole batch, without its graph; what the last part returned, where that is no loss."""
    losses = [_loss_in(result) for result in results]
    if any(loss is None for loss in losses):
        return results[-1]
    return sum(loss * weight for loss, weight in zip(losses, weights, strict=True))


def _loss_in(result: Any) -> Any:
    loss = result.get("loss") if isinstance(result, Mapping) else getattr(result, "loss", result)
    if isinstance(loss, torch.Tensor) and loss.numel() == 1:
        return loss.detach()
    return loss if isinstance(loss, float) else None
