"""Random states and the switches of torch that a training may turn; PyTorch, NumPy and Python alike."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from operator import attrgetter
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

from greenlove_tracker.exploration.object_tree import objects_within

_NUMPYS = "NumPy's random state"

# From the general to the particular: a precision that is not set is that of the wider one.
_SWITCHES = (
    "backends.cudnn.enabled",
    "backends.cudnn.benchmark",
    "backends.cudnn.benchmark_limit",
    "backends.cudnn.deterministic",
    "backends.cudnn.allow_tf32",
    "backends.cuda.matmul.allow_tf32",
    "backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
    "backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
    "backends.fp32_precision",
    "backends.cudnn.fp32_precision",
    "backends.cudnn.conv.fp32_precision",
    "backends.cudnn.rnn.fp32_precision",
    "backends.cuda.matmul.fp32_precision",
    "backends.mkldnn.matmul.fp32_precision",
    "backends.mkldnn.conv.fp32_precision",
    "backends.mkldnn.rnn.fp32_precision",
)
_FUNCTIONS = (
    ("matmul precision", "get_float32_matmul_precision", "set_float32_matmul_precision"),
    ("default dtype", "get_default_dtype", "set_default_dtype"),
    ("threads", "get_num_threads", "set_num_threads"),
    ("gradient mode", "is_grad_enabled", "set_grad_enabled"),
    ("flash attention", "backends.cuda.flash_sdp_enabled", "backends.cuda.enable_flash_sdp"),
    ("efficient attention", "backends.cuda.mem_efficient_sdp_enabled", "backends.cuda.enable_mem_efficient_sdp"),
    ("plain attention", "backends.cuda.math_sdp_enabled", "backends.cuda.enable_math_sdp"),
    ("cuDNN attention", "backends.cuda.cudnn_sdp_enabled", "backends.cuda.enable_cudnn_sdp"),
)


@dataclass(slots=True, eq=False)
class SavedState:
    """The state that a pair of functions saves and puts back, by name."""

    name: str
    save: Callable[[], Any]
    put_back: Callable[[Any], object]
    _state: Any = None

    def copy(self) -> None:
        """Call the function that saves."""
        self._state = self.save()

    def restore(self) -> None:
        """Call the function that puts back."""
        self.put_back(self._state)


def host_random_states() -> list[SavedState]:
    """Return the global random states of Python, of torch on the CPU, and of NumPy where it is loaded."""
    numpy = getattr(sys.modules.get("numpy"), "random", None)
    if numpy is not None:
        numpys = [SavedState(_NUMPYS, partial(numpy.get_state, legacy=False), numpy.set_state)]
    else:
        numpys = []
    return [
        SavedState("Python's random state", random.getstate, random.setstate),
        SavedState("torch's random state", torch.get_rng_state, torch.set_rng_state),
        *numpys,
    ]


def random_states() -> list[SavedState]:
    """Return the global random states of Python, NumPy (where it is loaded) and torch, of CUDA and Apple's GPU too."""
    cuda = SavedState(
        "cuda random states",
        lambda: torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None,
        lambda saved: None if saved is None else torch.cuda.set_rng_state_all(saved),
    )
    states = [*host_random_states(), cuda]
    if torch.backends.mps.is_available():
        states.append(SavedState("mps random state", torch.mps.get_rng_state, torch.mps.set_rng_state))
    return states


def random_state_values() -> dict[str, Any]:
    """Return the values of all global random states by name, in plain types that a file can hold.

    ``torch.load(weights_only=True)`` reads them; what a state of NumPy has as an array is a list here.
    """
    return {state.name: plain_value(state.save()) for state in random_states()}


def put_back_random_state_values(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Put back what ``random_state_values`` returned, here or in another process.

    Returns:
        The names of those that could not be put back, for a device is not here or there is another number of them, and
        of those that are here and were not saved.
    """
    if _NUMPYS in values:
        with contextlib.suppress(ImportError):
            import_module("numpy")  # the training may load it only later, and its state would be a new one
    here = {state.name: state for state in random_states()}
    left = []
    for name in {**values, **here}:
        try:
            here[name].put_back(values[name])
        except (AssertionError, AttributeError, RuntimeError, ValueError, TypeError, LookupError):
            if values.get(name, here) is not None:  # that no device was there, needs no device here
                left.append(name)
    return tuple(left)


def plain_value(value: Any) -> Any:
    """Return a random state in plain types, which all generators take back: arrays of NumPy become lists."""
    if isinstance(value, dict):
        return {name: plain_value(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(plain_value, value))
    if type(value).__module__ == "numpy":
        return value.tolist()
    if isinstance(value, torch.Tensor):
        return value.clone()
    return value


def is_same_state(one: Any, other: Any) -> bool:
    """Return whether two random states in plain types are equal."""
    parts, form = tree_flatten(one)
    others, other_form = tree_flatten(other)
    return form == other_form and all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in zip(parts, others, strict=True)
    )


def switches() -> list[SavedState]:
    """Return the process-wide switches of torch that choose kernels, and with them the last bits of a result."""

    def called(name: str, *value: Any) -> Any:
        return attrgetter(name)(torch)(*value)

    def set_attribute(name: str, value: Any) -> None:
        owner, _, attribute = name.rpartition(".")
        setattr(attrgetter(owner)(torch), attribute, value)

    # The precision of products is wider than the switches below.
    states = [_switch(name, partial(called, get), partial(called, put)) for name, get, put in _FUNCTIONS]
    states += [_switch(name, partial(attrgetter(name), torch), partial(set_attribute, name)) for name in _SWITCHES]
    anomaly = (torch.is_anomaly_enabled, torch.is_anomaly_check_nan_enabled)
    determinism = (torch.are_deterministic_algorithms_enabled, torch.is_deterministic_algorithms_warn_only_enabled)
    return [
        *states,
        _switch("anomaly mode", lambda: [ask() for ask in anomaly], lambda v: torch.autograd.set_detect_anomaly(*v)),
        _switch(
            "deterministic algorithms",
            lambda: [ask() for ask in determinism],
            lambda v: torch.use_deterministic_algorithms(v[0], warn_only=v[1]),
        ),
    ]


def _switch(name: str, get: Callable[[], Any], put: Callable[[Any], object]) -> SavedState:
    def value() -> Any:  # None where this torch lacks the switch, or refuses it since its newer form was used
        with contextlib.suppress(AttributeError, RuntimeError):
            return get()

    def put_back(was: Any) -> None:
        if was is not None and value() != was:  # setting one of them may set others
            put(was)

    return SavedState(name, value, put_back)


def saved_generator(name: str, source: Any) -> SavedState | None:
    """Return the state of a generator of random numbers; None where the object is none."""
    if isinstance(source, torch.Generator):
        return SavedState(name, source.get_state, source.set_state)
    if isinstance(source, random.Random):
        if isinstance(source, random.SystemRandom):
            return None
        return SavedState(name, source.getstate, source.setstate)
    numpy = getattr(sys.modules.get("numpy"), "random", None)
    if numpy is None:
        return None
    if isinstance(source, numpy.RandomState):
        return SavedState(name, partial(source.get_state, legacy=False), source.set_state)
    if isinstance(source, numpy.Generator):
        source = source.bit_generator
    if isinstance(source, numpy.BitGenerator):
        return SavedState(name, partial(getattr, source, "state"), partial(setattr, source, "state"))
    return None


def generators_within(roots: Iterable[Any]) -> list[Any]:
    """Return the generators that hang on these objects: on a dataset's transforms, on a collate function."""
    found = objects_within(("", root) for root in roots)
    return [thing for _, thing in found if saved_generator("", thing) is not None]
