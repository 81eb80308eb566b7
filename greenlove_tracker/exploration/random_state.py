"""Random states and the switches of torch that a training may turn; PyTorch, NumPy and Python alike."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils._pytree import tree_map, tree_map_only

from greenlove_tracker.exploration.object_tree import Values as Values
from greenlove_tracker.exploration.object_tree import objects_within
from greenlove_tracker.vocabulary.errors import UsageError

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
# The precision of products is wider than the switches above.
_FUNCTIONS = (
    ("get_float32_matmul_precision", "set_float32_matmul_precision"),
    ("get_deterministic_debug_mode", "set_deterministic_debug_mode"),
    ("is_anomaly_enabled", "autograd.set_detect_anomaly"),
    ("get_default_dtype", "set_default_dtype"),
    ("get_num_threads", "set_num_threads"),
    ("is_grad_enabled", "set_grad_enabled"),
    ("backends.cuda.flash_sdp_enabled", "backends.cuda.enable_flash_sdp"),
    ("backends.cuda.mem_efficient_sdp_enabled", "backends.cuda.enable_mem_efficient_sdp"),
    ("backends.cuda.math_sdp_enabled", "backends.cuda.enable_math_sdp"),
    ("backends.cuda.cudnn_sdp_enabled", "backends.cuda.enable_cudnn_sdp"),
)

Undo = Callable[[], object]


class SavedState(NamedTuple):
    """A state that a pair of functions saves and puts back, by name."""

    name: str
    save: Callable[[], Any]
    put_back: Callable[[Any], object]

    def undo(self) -> Undo:
        """Save the state, and return what puts it back, also more than once.

        Raises:
            UsageError: it cannot be saved.
        """
        try:
            return partial(self.put_back, self.save())
        except Exception as error:  # of the user's code too
            raise UsageError(f"{self.name} cannot be saved, so exploring would change it: {error!r}") from error


def is_pair(thing: Any) -> bool:
    """Return True of two functions (save, restore); a module can be called too, and is none."""
    is_two = isinstance(thing, tuple | list) and len(thing) == 2
    return is_two and all(callable(one) and not hasattr(one, "state_dict") for one in thing)


def own_state(name: str, thing: Any) -> SavedState:
    """Return the state of what the user names, which saves and restores itself.

    Raises:
        UsageError: it does not.
    """
    if is_pair(thing):
        return SavedState(name, *thing)
    if hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict"):
        return SavedState(name, thing.state_dict, thing.load_state_dict)
    raise UsageError(
        f"{name} is a {type(thing).__name__}: it must have state_dict() and load_state_dict(), or be a pair of "
        "functions (save, restore), the first of which returns what the second takes"
    )


def saved_process() -> Undo:
    """Save the switches of torch and the global random states, and return what puts them back."""
    undos = [state.undo() for state in (*switches(), *random_states())]

    def put_back() -> None:
        for undo in undos:
            undo()

    return put_back


def random_states() -> list[SavedState]:
    """Return the global random states of Python, NumPy and torch, of CUDA and Apple's GPU too."""
    states = [
        SavedState("Python's random state", random.getstate, random.setstate),
        SavedState("torch's random state", torch.get_rng_state, torch.set_rng_state),
        SavedState("NumPy's random state", np.random.get_state, np.random.set_state),
        SavedState(
            "cuda random states",
            lambda: torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
            lambda saved: torch.cuda.set_rng_state_all(saved or []),
        ),
    ]
    if torch.backends.mps.is_available():
        states.append(SavedState("mps random state", torch.mps.get_rng_state, torch.mps.set_rng_state))
    return states


def random_state_values() -> Values:
    """Return the values of all global random states by name, in plain types that a file can hold.

    ``torch.load(weights_only=True)`` reads them; what a state of NumPy has as an array is a list here.
    """
    return {state.name: plain_value(state.save()) for state in random_states()}


def put_back_random_state_values(values: Values) -> tuple[str, ...]:
    """Put back what ``random_state_values`` returned, here or in another process.

    Returns:
        The names of those that could not be put back, for a device is not here or there is another number of them, and
        of those that are here and were not saved.
    """
    here = {state.name: state for state in random_states()}
    left = []
    for name in {**values, **here}:
        try:
            here[name].put_back(values[name])
        except Exception:  # whatever the library makes of it
            left.append(name)
    return tuple(left)


def copied(value: Any) -> Any:
    """Return a copy of a value, its tensors on the CPU."""

    def copy_of(leaf: Any) -> Any:
        return leaf.detach().to("cpu", copy=True) if isinstance(leaf, torch.Tensor) else copy.deepcopy(leaf)

    return tree_map(copy_of, value)


def plain_value(value: Any) -> Any:
    """Return a random state in plain types, which all generators take back: arrays of NumPy become lists."""
    return tree_map_only(np.ndarray, np.ndarray.tolist, value)


def switches() -> list[SavedState]:
    """Return the process-wide switches of torch that choose kernels, and with them the last bits of a result."""
    return [*(_switch(*names) for names in _FUNCTIONS), *(_switch(name) for name in _SWITCHES)]


def _switch(name: str, name_of_setter: str | None = None) -> SavedState:
    """Return a switch of torch: an attribute, or what one function returns and another one sets."""
    owner, _, attribute = name.rpartition(".")

    def value() -> Any:  # None where this torch lacks the switch, or refuses it since its newer form was used
        with contextlib.suppress(AttributeError, RuntimeError):
            found = attrgetter(name)(torch)
            return found() if name_of_setter else found

    def put_back(was: Any) -> None:
        if was is None or value() == was:  # setting one of them may set others
            return
        if name_of_setter:
            attrgetter(name_of_setter)(torch)(was)
        else:
            setattr(attrgetter(owner)(torch), attribute, was)

    return SavedState(name, value, put_back)


def saved_generator(name: str, source: Any) -> SavedState | None:
    """Return the state of a generator of random numbers; None where the object is none."""
    if isinstance(source, np.random.Generator):
        source = source.bit_generator
    if isinstance(source, np.random.BitGenerator):
        return SavedState(name, partial(getattr, source, "state"), partial(setattr, source, "state"))
    if isinstance(source, torch.Generator | np.random.RandomState):
        return SavedState(name, source.get_state, source.set_state)
    if isinstance(source, random.Random) and not isinstance(source, random.SystemRandom):
        return SavedState(name, source.getstate, source.setstate)
    return None


def generators_within(source: Any) -> list[SavedState]:
    """Return the generators that hang on a source of batches: on a dataset's transforms, on a collate function."""
    states = [saved_generator(name, thing) for name, thing in objects_within([("the data", source)])]
    return [state for state in states if state is not None]
