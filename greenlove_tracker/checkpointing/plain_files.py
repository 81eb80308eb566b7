"""Reads the files of checkpoints, which somebody else may have written, without running any code that they name."""

from __future__ import annotations

import _codecs
import contextlib
import pickle
from pathlib import Path
from typing import IO, Any, cast

import numpy
import torch

from greenlove_tracker.checkpointing.distributed import first_line
from greenlove_tracker.vocabulary.errors import UsageError

# What arrays and numbers of NumPy's, which hold no objects, are made of.
_MULTIARRAY = getattr(numpy, "_core", None) or numpy.core
_OF_NUMPY = [
    _codecs.encode,
    bytes,
    numpy.ndarray,
    numpy.dtype,
    _MULTIARRAY.multiarray._reconstruct,
    _MULTIARRAY.multiarray.scalar,
    *{type(numpy.dtype(code)) for code in "?bhilqBHILQefdFDSUmM"},
]


def read_plain(path: Path) -> dict[str, Any]:
    """Read a file of plain values: tensors, arrays and numbers of NumPy's, and what Python has of its own.

    Raises:
        UsageError: where it holds more than these and what ``torch.serialization.add_safe_globals`` was given, or is
            damaged.
    """
    with path.open("rb") as file:
        return cast("dict[str, Any]", plain_values(file, path.name))


def plain_values(file: IO[bytes], name: str) -> Any:
    """Read plain values from a file, as ``read_plain``.

    Raises:
        UsageError: likewise.
    """
    safe_globals = getattr(torch.serialization, "safe_globals", lambda _: contextlib.nullcontext())  # since torch 2.5
    with safe_globals(_OF_NUMPY):
        try:
            return torch.load(file, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            found = str(error).partition("Unsupported global: GLOBAL ")[2].split(" ")[0] or "more than plain values"
            raise UsageError(
                f"{name} of a checkpoint holds pickles ({found}), which can run any code: give their types to "
                "torch.serialization.add_safe_globals() before, if they are your own"
            ) from error
        except Exception as error:  # torch's own have many types
            raise UsageError(f"{name} of a checkpoint cannot be read: {first_line(error)}") from error
