"""The memory of a training by technique, as a document and as plain values for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from greenlove_tracker import format as fmt
from greenlove_tracker.comparisons import MEASURED_STEP, MemoryRow
from greenlove_tracker.rendering.document import Column, Document, Heading, Paragraph, Table
from greenlove_tracker.tables.gpus import CUDA_CONTEXT_GB, ESTIMATE_ERROR, USABLE_MEMORY, GpuSpec, gpus
from greenlove_tracker.units import BYTES_PER_GB

_MOST_NAMED = 6
_PARTS = ("parameters", "gradients", "optimizer", "activations", "peak")
_HEAD = ("", *_PARTS, "fits from")
_RULE = (
    "Gradients count as far as they exist at the peak, which may come before them. Activations are all else: what "
    "backward needs, temporaries, the batch. It fits where the peak and "
    f"{ESTIMATE_ERROR:.0%} more take at most {USABLE_MEMORY:.0%} of a GPU's memory, less {CUDA_CONTEXT_GB} GiB for "
    "CUDA itself (an assumption). What cuDNN and cuBLAS take for themselves on a GPU is not known here."
)


def memory_document(rows: Sequence[MemoryRow], about: str) -> Document:
    """Return what the training takes, the GPUs of each size that hold it, and what could not be told.

    Args:
        rows: the training as it is first.
        about: the training in words.
    """
    known = [row for row in rows if row.peak_bytes is not None]
    columns = tuple(Column(head, is_number=bool(head)) for head in _HEAD)
    cells = tuple((row.name, *_parts_text(row), _size_text(_least_memory_gb(row))) for row in known)
    stepped = ", ".join(row.name for row in known if row.method == MEASURED_STEP)
    told = [f"{row.name}: {row.reason}." for row in rows if row.reason]
    if stepped:
        told.append(f"{stepped}: measured by a real step, since tensors without data could not be followed.")
    verdict, next_steps = "What it takes of a GPU's memory is not known.", list[str]()
    if known and (peak_bytes := known[0].peak_bytes) is not None:
        size = _least_memory_gb(known[0])
        fits = "no GPU holds it" if size is None else f"a GPU of {size:g} GB holds it"
        verdict = f"{about} takes {fmt.memory(peak_bytes)} of a GPU's memory: {fits}."
        peak = f"greenlove project --hours 20 --peak-memory {peak_bytes / BYTES_PER_GB:.3g}"
        next_steps.append(f"{peak}    which GPU to rent for it")
    basis = (Heading("How we know"), Paragraph(_RULE, is_note=True)) if known else ()
    return Document(
        title="GPU memory",
        subtitle=about,
        footer="",
        verdict=verdict,
        blocks=(
            *([Table(columns, cells)] if known else []),
            *map(Paragraph, (*_gpus_text(known), *told)),
            *basis,
        ),
        next_steps=tuple(next_steps),
    )


def _gpus_text(known: Sequence[MemoryRow]) -> list[str]:
    """Return the GPUs of a data centre that hold the rows, by the memory from which on they do."""
    sizes = {_least_memory_gb(row) for row in known}
    lines = [f"{size:g} GB or more: {_named(size)}." for size in sorted(size for size in sizes if size is not None)]
    return [*lines, "none: more than any GPU in the table holds."] if None in sizes else lines


def _parts_text(row: MemoryRow) -> tuple[str, ...]:
    return tuple(fmt.memory(getattr(row, f"{part}_bytes")) for part in _PARTS)


def _size_text(size_gb: float | None) -> str:
    return "none" if size_gb is None else f"{size_gb:g} GB"


def _least_memory_gb(row: MemoryRow) -> float | None:
    """Return the memory of the smallest GPU that surely holds it; None where none does, or it is not known."""
    return min((gpu.memory_gb for gpu in _holding(row, True) if gpu.memory_gb is not None), default=None)


def _holding(row: MemoryRow, answer: bool | None) -> list[GpuSpec]:
    """Return the GPUs of which it is surely so, surely not so, or within the error of the estimate."""
    if row.peak_bytes is None:
        return []
    peak_gb = row.peak_bytes / BYTES_PER_GB
    known = [gpu for gpu in gpus().values() if gpu.memory_gb is not None]
    return [gpu for gpu in known if gpu.holds(peak_gb, ESTIMATE_ERROR) is answer]


def _named(least_gb: float) -> str:
    found = [gpu for gpu in gpus().values() if gpu.memory_gb is not None and gpu.memory_gb >= least_gb]
    found = [gpu for gpu in found if gpu.segment == "datacentre"] or found
    found.sort(key=lambda gpu: (gpu.memory_gb, -gpu.year))
    return ", ".join(f"{gpu.name} ({gpu.memory_gb:g} GB)" for gpu in found[:_MOST_NAMED])


def memory_record(rows: Sequence[MemoryRow], about: str) -> dict[str, Any]:
    """Return all of it as one object for JSON; what is not known is null."""
    lists = [
        {
            "fits_on": [gpu.name for gpu in _holding(row, True)],
            "may_fit_on": [gpu.name for gpu in _holding(row, None)],
            "too_large_for": [gpu.name for gpu in _holding(row, False)],
        }
        for row in rows
    ]
    return {
        "about": about,
        "rows": [{**memory_values(row), **more} for row, more in zip(rows, lists, strict=True)],
        "assumptions": {
            "usable_share": USABLE_MEMORY,
            "cuda_context_gb": CUDA_CONTEXT_GB,
            "estimate_error": ESTIMATE_ERROR,
        },
    }


def memory_values(row: MemoryRow) -> dict[str, Any]:
    """Return one row a technique; what is not known is None, not zero."""
    return {
        "name": row.name,
        "batch_size": row.batch_size,
        **{f"{part}_bytes": getattr(row, f"{part}_bytes") for part in _PARTS},
        "peak_gb": None if row.peak_bytes is None else round(row.peak_bytes / BYTES_PER_GB, 6),
        "fits_from_gb": _least_memory_gb(row),
        "method": row.method or None,
        "reason": row.reason or None,
    }
