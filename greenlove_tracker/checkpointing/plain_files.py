"""Reads the files of checkpoints, which somebody else may have written, without running any code that they name."""

from __future__ import annotations

import _codecs
import contextlib
import pickle
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePath
from typing import IO, Any

import numpy
import torch

from greenlove_tracker.checkpointing.distributed import first_line
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


def read_plain(file: Path | IO[bytes], device: str = "cpu", *, more: Iterable[type] = ()) -> Any:
    """Read plain values: tensors, arrays and numbers of NumPy's, and what Python has of its own.

    Args:
        file: of a checkpoint.
        device: that tensors are read to.
        more: types that it may hold.

    Raises:
        UsageError: where it holds more than these and what ``torch.serialization.add_safe_globals`` was given, or is
            damaged.
    """
    name = getattr(file, "name", "a value")
    safe_globals = getattr(torch.serialization, "safe_globals", lambda _: contextlib.nullcontext())  # since torch 2.5
    with safe_globals([*_PLAIN, *more]):
        try:
            return torch.load(file, map_location=device, weights_only=True)
        except pickle.UnpicklingError as error:
            found = str(error).partition("Unsupported global: GLOBAL ")[2].split(" ")[0] or "more than plain values"
            raise UsageError(
                f"{name} of a checkpoint holds pickles ({found}), which can run any code: give their types to "
                "torch.serialization.add_safe_globals() before, if they are your own"
            ) from error
        except Exception as error:  # torch's own have many types
            raise UsageError(f"{name} of a checkpoint cannot be read: {first_line(error)}") from error
