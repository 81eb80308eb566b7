"""The vocabulary of workloads: the class of a workload, and its precision."""

from __future__ import annotations

from dataclasses import dataclass

from greenlove_tracker.vocabulary.errors import UsageError

WORKLOADS = ("language", "vision", "speech", "recommendation", "graph", "other")
# fp32: 32 bits on CUDA cores. tf32: 32-bit data that tensor cores round to 19 bits. bf16: mixed precision by autocast,
# fp16 too, or all of it in 16 bits. fp8: products of matrices in 8 bits (Transformer Engine, torchao).
PRECISIONS = ("fp32", "tf32", "bf16", "fp8")
_PRECISION_OF = {
    "fp16": "bf16",
    "float16": "bf16",
    "half": "bf16",
    "amp": "bf16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float8": "fp8",
} | {name: name for name in PRECISIONS}


@dataclass(frozen=True, slots=True)
class Seen:
    """A precision or a class of workload, and how it is known.

    Attributes:
        value: one of ``PRECISIONS`` or ``WORKLOADS``; empty if unknown.
        basis: how it is known, such as ``autocast`` or ``attention in 12 layers``; ``given`` by the user.
    """

    value: str = ""
    basis: str = ""


GIVEN = "given"


def precision_named(text: str) -> str:
    """Return the precision of a name; ``fp16``, ``amp`` and ``bfloat16`` count as ``bf16``.

    Raises:
        UsageError: for any other name.
    """
    found = _PRECISION_OF.get(text.strip().lower())
    if found is None:
        raise UsageError(
            f"{{argument}} must be {', '.join(PRECISIONS[:-1])} or {PRECISIONS[-1]}, not {text!r}",
            argument="precision",
        )
    return found


def workload_named(text: str) -> str:
    """Return the class of workload with this name.

    Raises:
        UsageError: for any other name.
    """
    found = text.strip().lower()
    if found not in WORKLOADS:
        raise UsageError(
            f"{{argument}} must be {', '.join(WORKLOADS[:-1])} or {WORKLOADS[-1]}, not {text!r}", argument="workload"
        )
    return found
