"""Reads the files of checkpoints, which somebody else may have written, without running any code that they name."""

from __future__ import annotations

import _codecs
import contextlib
import io
import pickle
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePath
from typing import Any

import numpy
import torch
from torch.utils._pytree import tree_map

from greenlove_tracker.checkpointing.distributed import first_line
from greenlove_tracker.exploration.random_state import Values
from greenlove_tracker.logs.storage import LogPath, open_binary
from greenlove_tracker.vocabulary.errors import UsageError

# The types of plain values: NumPy's arrays and numbers, which hold no objects, and some of Python's own types.
_MULTIARRAY = getattr(numpy, "_core", None) or numpy.core
_PLAIN = [
    _codecs.encode,
    bytes,
    numpy.ndarray,
    numpy.dtype,
    _MULTIARRAY.multiarray._reconstruct,
    _MULTIARRAY.multiarray.scalar,
    *{type(numpy.dtype(code)) for code in "?bhilqBHILQefdFDSUmM"},
    *(Counter, Namespace, date, datetime, time, timedelta, timezone, Decimal),
    *(type(PurePath()), type(Path())),
]


def read_plain(source: LogPath | io.BytesIO, *, more: Iterable[type] = ()) -> Any:
    """Read plain values: tensors, arrays and numbers of NumPy's, and what Python has of its own.

    Args:
        source: a file of a checkpoint, or what it holds.
        more: types that it may hold.

    Raises:
        OSError: where it cannot be opened.
        UsageError: where it holds more than these and what ``torch.serialization.add_safe_globals`` was given, or is
            damaged.
    """
    name = getattr(source, "name", "a value")
    safe_globals = getattr(torch.serialization, "safe_globals", lambda _: contextlib.nullcontext())  # since torch 2.5
    opened = source if isinstance(source, io.BytesIO) else open_binary(source)
    with opened as content, safe_globals([*_PLAIN, *more]):
        try:
            return torch.load(content, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            found = str(error).partition("Unsupported global: GLOBAL ")[2].split(" ")[0] or "more than plain values"
            raise UsageError(
                f"{name} of a checkpoint holds pickles ({found}), which can run any code: give their types to "
                "torch.serialization.add_safe_globals() before, if they are your own"
            ) from error
        except Exception as error:  # torch's own have many types
            raise UsageError(f"{name} of a checkpoint cannot be read: {first_line(error)}") from error


def check_readable(content: Values) -> None:
    """Save and read back each value, but for plain tensors, which can always be read.

    Raises:
        UsageError: where one cannot be saved or read; it names the value.
    """
    for name, value in content.items():
        file = io.BytesIO()
        try:
            torch.save(tree_map(lambda leaf: None if type(leaf) is torch.Tensor else leaf, value), file)
            file.seek(0)
            read_plain(file)
        except Exception as error:  # of pickle, torch, or a user's object
            raise UsageError(
                f"{name} ({type(value).__name__}) cannot be saved and read back: keep plain values instead, or give "
                "its type to torch.serialization.add_safe_globals()"
            ) from error
