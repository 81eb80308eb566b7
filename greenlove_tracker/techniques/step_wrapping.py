"""Wrappers of an unknown training step: its ``backward()``, methods of its objects, the tensors that it takes.

A technique cannot edit a user's own ``train_step``. It reaches in by what every step calls.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from types import MethodType
from typing import Any

import torch


@contextmanager
def backward_replaced(around: Callable[..., None]) -> Iterator[None]:
    """Let each ``backward()`` of the block run through a function, which is given the plain one and its arguments.

    ``Tensor.backward`` looks ``torch.autograd.backward`` up when it is called, so that both are caught. A call from
    within a backward pass, as reentrant activation checkpointing makes it, goes through: what enters the outermost one
    has been changed already.
    """
    plain = torch.autograd.backward
    is_inside = False

    @wraps(plain)
    def backward(*args: Any, **kwargs: Any) -> None:
        nonlocal is_inside
        if is_inside:  # on any thread: those of autograd run the inner ones
            plain(*args, **kwargs)
            return
        is_inside = True
        try:
            around(plain, *args, **kwargs)
        finally:
            is_inside = False

    torch.autograd.backward = backward
    try:
        yield
    finally:
        torch.autograd.backward = plain


def intercept(thing: Any, name: str, around: Callable[..., Any]) -> None:
    """Let a method of one object run through a function, which is given the plain one and its arguments.

    The object stays the same, so that whoever else holds it calls the function, too.
    """
    plain = getattr(thing, name)

    @wraps(plain)  # with its attributes, by which learning-rate schedulers know the step that they wrapped
    def intercepted(_: Any, *args: Any, **kwargs: Any) -> Any:
        return around(plain, *args, **kwargs)

    setattr(thing, name, MethodType(intercepted, thing))  # schedulers that are made later look into the method


def map_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return a value with the tensors in its tuples, lists and mappings changed, and all else as it was."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, Mapping):
        changed = {key: map_tensors(item, change) for key, item in value.items()}
        return _rebuilt(value, changed, lambda: type(value)(**changed))
    if isinstance(value, tuple) and hasattr(value, "_fields"):  # a named tuple
        return type(value)(*(map_tensors(item, change) for item in value))
    if isinstance(value, list | tuple):
        return type(value)([map_tensors(item, change) for item in value])
    return value


def _rebuilt(value: Any, changed: dict[Any, Any], by_name: Callable[[], Any]) -> Any:
    if type(value) is dict:
        return changed
    try:
        return type(value)(changed)
    except TypeError:  # Hugging Face's outputs of some versions take their items by name only
        return by_name()


def holds(function: Any, kind: type | tuple[type, ...]) -> list[Any]:
    """Return the objects of a kind that a function uses beside its arguments: of its closure or its module."""
    function = inspect.unwrap(function)
    function = getattr(function, "__func__", function)
    if not inspect.isfunction(function):
        return []
    found = inspect.getclosurevars(function)
    return [thing for thing in (*found.nonlocals.values(), *found.globals.values()) if isinstance(thing, kind)]
