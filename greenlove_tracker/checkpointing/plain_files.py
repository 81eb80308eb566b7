"""Reads the files of checkpoints, which somebody else may have written, without running any code that they name."""

from __future__ import annotations

import _codecs
import contextlib
import pickle
from argparse import Namespace
from collections import Counter
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePath
from types import SimpleNamespace
from typing import IO, Any, cast
from uuid import UUID

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
    *(Counter, Namespace, SimpleNamespace),
    *(date, datetime, time, timedelta, timezone, Decimal, Fraction, UUID),
    *(type(PurePath()), type(Path())),
]


def read_plain(path: Path, device: str = "cpu") -> dict[str, Any]:
    """Read a file of plain values: tensors, arrays and numbers of NumPy's, and what Python has of its own.

    Raises:
        UsageError: where it holds more than these and what ``torch.serialization.add_safe_globals`` was given, or is
            damaged.
    """
    with path.open("rb") as file:
        return cast("dict[str, Any]", plain_values(file, path.name, device))


def plain_values(file: IO[bytes], name: str, device: str = "cpu") -> Any:
    """Read plain values from a file, as ``read_plain``.

    Raises:
        UsageError: likewise.
    """
    safe_globals = getattr(torch.serialization, "safe_globals", lambda _: contextlib.nullcontext())  # since torch 2.5
    with safe_globals(_PLAIN):
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
