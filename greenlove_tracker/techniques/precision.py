"""Fewer bits: automatic mixed precision in bf16 and fp16, and TF32 matrix products."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

import torch
from torch import nn

from greenlove_tracker.errors import UsageError
from greenlove_tracker.exploration.estimator import device_of
from greenlove_tracker.exploration.random_state import switches
from greenlove_tracker.exploration.task import each_of
from greenlove_tracker.techniques.arm import step_of
from greenlove_tracker.techniques.step_wrapping import backward_replaced, holds, intercept, map_tensors
from greenlove_tracker.techniques.technique import NotApplicableError, Parts, Stage, Technique
from greenlove_tracker.training_kind import uses_tf32

_AMPERE = (8, 0)  # compute capability from which tensor cores take bf16 and TF32: NVIDIA's A100 whitepaper, table 3
_SCALERS = (torch.cuda.amp.GradScaler, *((torch.amp.GradScaler,) if hasattr(torch.amp, "GradScaler") else ()))
_EIGHT_BITS = "most of the model computes in bf16, with 8 bits of precision; weights and optimizer keep 24"
_ELEVEN_BITS = "most of the model computes in fp16, with 11 bits of precision and a scaled loss; weights keep 24"
_TF32_BITS = "products of matrices take 11 bits of precision of each number, and add up in 24"


def technique(name: str, value: str | None) -> Technique:
    """Return ``amp-bf16``, ``amp-fp16`` or ``tf32``.

    Raises:
        UsageError: where a value is given.
    """
    if value is not None:
        raise UsageError(f"{name} takes no value, and {value!r} is given: write {name}")
    if name == "tf32":
        return Technique(name, _with_tf32, Stage.PROCESS, active=_tf32_switched_on, note=_TF32_BITS)
    if name == "amp-bf16":
        apply = partial(_autocast, name=name, dtype=torch.bfloat16)
        return Technique(name, apply, Stage.STEP, "precision", note=_EIGHT_BITS)
    return Technique(name, _with_scaled_loss, Stage.STEP, "precision", note=_ELEVEN_BITS)


def _autocast(parts: Parts, *, name: str, dtype: torch.dtype) -> Parts:
    """Run each call of the model under ``torch.autocast``, whichever step calls it, and return its outputs as floats.

    The criterion computes outside in float32, as with Hugging Face's Accelerate: autocast would do the same with
    nearly every loss, and refuses ``BCELoss``. One with weights of its own is a model, and runs under autocast.

    Raises:
        NotApplicableError: where the device or the model cannot.
    """
    model = parts["model"]
    device = device_of(model, parts.get("device"))
    notes = [*parts.get("technique_notes", ())]
    _check_model(model, name)
    if slow := _check_device(device, dtype):
        notes.append(lambda: slow)
    count = _call_under_autocast(model, device.type, dtype)
    unused = f"{name} changed nothing: the training step calls parts of the model, never the model itself"
    notes.append(lambda: "" if count() else unused)
    criterion = parts["criterion"]
    if isinstance(criterion, nn.Module) and any(True for _ in criterion.parameters()):
        criterion = copy.copy(criterion)  # with the same weights; tasks may share one criterion between them
        _call_under_autocast(criterion, device.type, dtype)
    return {**parts, "criterion": criterion, "technique_notes": notes}


def _call_under_autocast(model: nn.Module, device_type: str, dtype: torch.dtype) -> Callable[[], int]:
    """Change what calling the model does, and return a function that says how often it was called.

    The object gets a class of its own, of the same name, that differs in ``__call__``. Copies of the model, hooks,
    ``super()`` and ``model.compile()`` work as before; a method that is set on the object would not be copied well.
    """
    plain, n_calls = type(model), 0

    def call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        nonlocal n_calls
        n_calls += 1
        with torch.autocast(device_type, dtype=dtype):
            outputs = plain.__call__(self, *args, **kwargs)
        return map_tensors(outputs, lambda tensor: tensor.float() if tensor.dtype is dtype else tensor)

    same = {"__module__": plain.__module__, "__qualname__": plain.__qualname__, "__doc__": plain.__doc__}
    model.__class__ = type(plain.__name__, (plain,), {**same, "__call__": call})
    return lambda: n_calls


def _check_model(model: nn.Module, name: str) -> None:
    """Refuse models whose calls cannot be changed, or that have few bits already.

    Raises:
        NotApplicableError: with the reason.
    """
    if isinstance(model, torch.jit.ScriptModule):
        raise NotApplicableError("the model is TorchScript, whose types are fixed: give the model it was made from")
    if isinstance(model, nn.DataParallel) and len(model.device_ids) > 1:
        raise NotApplicableError("the threads of DataParallel do not take on the number format: use one GPU")
    halves = {p.dtype for p in model.parameters() if p.dtype in (torch.float16, torch.bfloat16)}
    if halves:
        kind = str(halves.pop()).removeprefix("torch.")
        raise NotApplicableError(f"weights of the model are {kind} already: {name} is for a model in float32")


def _check_device(device: torch.device, dtype: torch.dtype) -> str:
    """Return why it will be slow here, or nothing.

    Raises:
        NotApplicableError: where autocast does not work on the device, or gains nothing.
    """
    kind = "bf16" if dtype is torch.bfloat16 else "fp16"
    if device.type == "cuda" and kind == "bf16":
        _check_capability(device, kind)
    try:  # what counts is what it does: which versions support what has changed with each
        with torch.autocast(device.type, dtype=dtype):
            ones = torch.ones(2, 2, device=device)
            found = (ones @ ones).dtype
    except (RuntimeError, TypeError, ValueError) as error:
        raise NotApplicableError(
            f"torch {torch.__version__} has no {kind} autocast on {device.type}: {error}"
        ) from None
    if found is not dtype:
        raise NotApplicableError(f"torch {torch.__version__} has no {kind} autocast on {device.type}")
    if device.type != "cpu" or _cpu_computes_in(kind) is not False:
        return ""
    return f"this CPU has no {kind} instructions, so it is likely to be slower"


def _check_capability(device: torch.device, kind: str) -> None:
    """Refuse NVIDIA's GPUs from before Ampere; of AMD's, torch's own trial of autocast decides.

    Raises:
        NotApplicableError: with the GPU's name.
    """
    if torch.version.hip is None and (capability := torch.cuda.get_device_capability(device)) < _AMPERE:
        name, (major, minor) = torch.cuda.get_device_name(device), capability
        raise NotApplicableError(f"{name} computes no {kind}: it has compute capability {major}.{minor}, and not 8.0")


def _cpu_computes_in(kind: str) -> bool | None:
    """Return whether the CPU has instructions for it; None where torch cannot say."""
    names = {"bf16": ("_is_avx512_bf16_supported", "_is_amx_tile_supported"), "fp16": ("_is_amx_fp16_supported",)}
    asked = [getattr(torch.cpu, name) for name in names[kind] if hasattr(torch.cpu, name)]
    return any(ask() for ask in asked) if asked else None


def _with_scaled_loss(parts: Parts) -> Parts:
    """Run the model in fp16, with ``GradScaler`` around each ``backward()`` and optimizer step.

    Raises:
        NotApplicableError: where the device, the model, the optimizer or the step cannot.
    """
    name, optimizers, inner = "amp-fp16", each_of(parts["optimizer"]), step_of(parts)
    if holds(inner, _SCALERS) or any(isinstance(thing, _SCALERS) for thing in parts.get("also_restore", ())):
        raise NotApplicableError("the training scales its loss with a GradScaler already: leave amp-fp16 out")
    if any(isinstance(optimizer, torch.optim.LBFGS) for optimizer in optimizers):
        raise NotApplicableError("LBFGS calls the model from within its step, which GradScaler does not support")
    device = device_of(parts["model"], parts.get("device"))
    parts = _autocast(parts, name=name, dtype=torch.float16)
    scaling = _LossScaling(_scaler(device), parts["model"], optimizers)

    @wraps(inner)
    def step(*args: Any, **kwargs: Any) -> Any:
        return scaling.run(inner, *args, **kwargs)

    notes, others = [*parts["technique_notes"], scaling.note], [*parts.get("also_restore", ()), scaling]
    return {**parts, "train_step": step, "technique_notes": notes, "also_restore": others}


def _scaler(device: torch.device) -> Any:
    """Return a gradient scaler of the device.

    Raises:
        NotApplicableError: where torch has none.
    """
    if device.type == "cuda":
        return torch.amp.GradScaler("cuda") if hasattr(torch.amp, "GradScaler") else torch.cuda.amp.GradScaler()
    if not hasattr(torch.amp, "GradScaler"):
        raise NotApplicableError(f"scaling the loss on {device.type} needs torch 2.3, and this is {torch.__version__}")
    scaler = torch.amp.GradScaler(device.type)
    if not scaler.is_enabled():
        raise NotApplicableError(f"torch {torch.__version__} scales no loss on {device.type}")
    return scaler


class _LossScaling:
    """A ``GradScaler`` around a step that knows nothing of it.

    The loss is scaled as it enters ``backward()``, and the gradients are unscaled as soon as that returns: whatever the
    step does with them next, such as clipping, finds them as they are. What an earlier ``backward()`` left there is
    scaled with the new, which is exact: scales are powers of two.
    """

    def __init__(self, scaler: Any, model: nn.Module, optimizers: Sequence[Any]) -> None:
        self._scaler, self._model, self._optimizers = scaler, model, optimizers
        self._views: dict[int, _UnscaledOptimizer] = {}  # by the optimizer's id, those of the last backward()
        self._kept: list[_UnscaledOptimizer] = []  # the scaler knows them by their ids until it is updated
        self._n_steps = self._n_skipped = 0
        self._is_checked = self._has_stepped = False
        for optimizer in optimizers:
            intercept(optimizer, "step", partial(self._step, optimizer))

    def run(self, inner: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Make a training step."""
        with backward_replaced(self._backward):
            result = inner(*args, **kwargs)
        if self._has_stepped:  # a step that accumulates over several calls updates the scale at its end
            self._scaler.update()
            self._kept.clear()
            self._views.clear()
            self._has_stepped = False
        return result

    def note(self) -> str:
        """Return how many steps were skipped, as a sentence; nothing where none was."""
        if not self._n_skipped:
            return ""
        return f"{self._n_skipped} of {self._n_steps} optimizer steps were skipped, as their gradients were infinite"

    def state_dict(self) -> dict[str, Any]:
        """Return the scale and what was counted, between two steps."""
        return {"scaler": self._scaler.state_dict(), "n_steps": self._n_steps, "n_skipped": self._n_skipped}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` returned."""
        self._scaler.load_state_dict(state["scaler"])
        self._n_steps, self._n_skipped = state["n_steps"], state["n_skipped"]

    def _backward(self, plain: Callable[..., None], tensors: Any, *args: Any, **kwargs: Any) -> None:
        groups = self._parameter_groups()
        if not self._is_checked:
            _check_leaves(tensors, {id(p) for parameters in groups for p in parameters})
            self._is_checked = True
        with torch.no_grad():
            for grad in (p.grad for parameters in groups for p in parameters if p.grad is not None):
                grad.copy_(self._scaler.scale(grad))
        plain(self._scaler.scale(tensors), *args, **kwargs)
        for optimizer, parameters in zip(self._optimizers, groups, strict=True):
            if any(p.grad is not None for p in parameters):
                view = _UnscaledOptimizer(parameters)
                self._scaler.unscale_(view)
                self._views[id(optimizer)] = view
                self._kept.append(view)

    def _parameter_groups(self) -> list[list[torch.Tensor]]:
        """Return the parameters of each optimizer; the first has those of the model that none has."""
        groups = [[p for group in optimizer.param_groups for p in group["params"]] for optimizer in self._optimizers]
        owned = {id(p) for parameters in groups for p in parameters}
        groups[0] += [p for p in self._model.parameters() if id(p) not in owned]
        return groups

    def _step(self, optimizer: Any, plain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if args or any(argument is not None for argument in kwargs.values()):
            raise NotApplicableError("the optimizer's step is given a closure, which GradScaler does not support")
        view = self._views.pop(id(optimizer), None)
        if view is None:  # no new gradients
            return plain()
        view.take(plain)
        result = self._scaler.step(view)
        self._n_steps += 1
        self._n_skipped += not view.has_stepped
        self._has_stepped = True
        return result


class _UnscaledOptimizer:
    """The optimizer that ``GradScaler`` sees; one for each backward pass, as each is unscaled once."""

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        self.param_groups = [{"params": list(parameters)}]
        self.has_stepped = False

    def take(self, step: Callable[..., Any]) -> None:
        """Take the optimizer's own step."""
        self._step = step

    def step(self) -> Any:
        """Make the optimizer's own step, where the gradients are finite."""
        self.has_stepped = True
        return self._step()


def _check_leaves(tensors: Any, known: set[int]) -> None:
    """Refuse a step that takes gradients of what is no parameter, such as its inputs: they would stay scaled.

    Raises:
        NotApplicableError: with what to do.
    """
    roots = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
    nodes = [root.grad_fn for root in roots if getattr(root, "grad_fn", None) is not None]
    seen = set(nodes)
    while nodes:
        node = nodes.pop()
        if (leaf := getattr(node, "variable", None)) is not None and id(leaf) not in known:
            raise NotApplicableError(
                f"the training step takes gradients of a tensor of {tuple(leaf.shape)} that is no parameter of the "
                "model or the optimizer, and amp-fp16 would scale them: use amp-bf16"
            )
        following = {n for n, _ in node.next_functions if n is not None} - seen
        seen |= following
        nodes += following


def _with_tf32(parts: Parts) -> Parts:
    """Check the device: the switch itself is the process's.

    Raises:
        NotApplicableError: where it has no TF32, or uses it already.
    """
    device = device_of(parts["model"], parts.get("device"))
    if device.type != "cuda" or torch.version.hip is not None:
        raise NotApplicableError("TF32 is a number format of NVIDIA's GPUs, and the model is on none")
    _check_capability(device, "TF32")
    if uses_tf32("matmul"):
        raise NotApplicableError("the training uses TF32 already")
    return parts


@contextmanager
def _tf32_switched_on() -> Iterator[None]:
    """Let CUDA use TF32 for products of matrices and convolutions in the block."""
    states = [s for s in switches() if "precision" in s.name or "tf32" in s.name]  # one of them sets others
    for state in states:
        state.copy()
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    try:
        yield
    finally:
        for state in states:
            state.restore()
