"""GPUs side by side: their speeds, their offers, and what a training takes of their memory; documents, and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from greenlove_tracker.projection.listings import KnownGpu
from greenlove_tracker.projection.speedup import Speedup
from greenlove_tracker.projection.uncertain import draws
from greenlove_tracker.rendering.document import Blocks, Column, Document, Heading, Note, Paragraph, Table, columns
from greenlove_tracker.report.decision_wording import figure
from greenlove_tracker.report.plain_values import columns_of, same, values_at
from greenlove_tracker.report.wording import sentence
from greenlove_tracker.tables.gpus import CUDA_CONTEXT_GB, ESTIMATE_ERROR, USABLE_MEMORY, GpuSpec, gpus
from greenlove_tracker.tables.offers import Offer
from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.comparisons import MEASURED_STEP, MemoryRow
from greenlove_tracker.vocabulary.units import BYTES_PER_GB

_N_DRAWS = 20_000  # the standard error of a probability is 0.35 points at most
_KNOWN_FROM = {
    "benchmarks": "benchmarks of both",
    "half specs": "benchmarks of one, the data sheet of the other",
    "specs only": "data sheets: no benchmark of either",
    "same GPU": "it is the same GPU",
}
_OF_PRICES = (
    "Prices as of the dates shown, from transcriptions of the providers' pages or from --prices: check them. "
    "--provider all shows every provider."
)
_NOT_IN = "Not counted: data loading, larger batches, several GPUs. --speedup takes what you measured."
_MOST_NAMED = 6
_PARTS = ("parameters", "gradients", "optimizer", "activations", "peak")
_OF_MEMORY = same(("name", "batch_size", *(f"{part}_bytes" for part in _PARTS), "method", "reason"))
_HOLD = {"fits_on": True, "may_fit_on": None, "too_large_for": False}

_RULE = (
    "Gradients count as far as they exist at the peak, which may come before them. Activations are all else: what "
    "backward needs, temporaries, the batch. It fits where the peak and "
    f"{ESTIMATE_ERROR:.0%} more take at most {USABLE_MEMORY:.0%} of a GPU's memory, less {CUDA_CONTEXT_GB} GiB for "
    "CUDA itself (an assumption). What cuDNN and cuBLAS take for themselves on a GPU is not known here."
)

_OF_SPEEDUP = {
    **columns_of("speedup", "estimate"),
    "level": "estimate.level",
    **same(("method", "known_from", "sources", "notes")),
}

Compared = Sequence[tuple[GpuSpec, Speedup]]


def speedup_document(local: GpuSpec, compared: Compared, workload: str | None, precision: str) -> Document:
    """Return each speedup, which is the fastest, and what that is known from.

    Args:
        local: the GPU that the others are set against.
        compared: the others, and how many times as fast they are.
        workload: class of what is trained; None for any.
        precision: that it computes in.
    """
    of = f"{workload or 'any workload'}, {precision}"
    gpu, first = max(compared, key=lambda pair: pair[1].ratio.point)
    verdict = f"{gpu.name} trains {_times(first)} as fast as {local.name}, {of}."
    pairs = _pairs(compared)
    if pairs:
        _, slower, probability = pairs[0]
        verdict += f" It is {fmt.chance(probability)} likely to be faster than {slower.name}."
    answer: Blocks = [Paragraph(f"Known from {_known_from(first)}.")]
    if len(compared) > 1:
        heads = [*columns({"": 2}, (f"as fast as {local.name}",), 2), Column("known from", 3)]
        answer = [Table(heads, [(gpu.name, _times(found), _known_from(found)) for gpu, found in compared])]
    notes = dict.fromkeys(sentence(note) for _, found in compared for note in found.notes)
    sources = dict.fromkeys(source for _, found in compared for source in found.sources)
    return Document(
        title="Speedups",
        subtitle=of,
        verdict=verdict,
        blocks=(*answer, *map(Paragraph, notes), Heading("How we know"), *map(Paragraph, (*sources, _NOT_IN))),
    )


def gpus_document(known: Sequence[KnownGpu]) -> Document:
    """Return the GPUs that can be compared, with what they cost to rent.

    Args:
        known: those to list, at least one.
    """
    rows = []
    for one in known:
        first, *others = map(_offer_text, one.offers) if one.offers else [""]
        rows.append((one.gpu.name, _amount(one.gpu.memory_gb), _amount(one.gpu.tdp_w), _speed_from(one), first))
        rows += [("", "", "", "", text) for text in others]
    heads = [*columns({"GPU": 1}, ("GiB", "W")), *columns({"speed from": 1, "to rent, $ per GPU and hour": 1})]
    blocks: Blocks = [Table(heads, rows, is_whole=True)]
    if any(one.offers for one in known):
        blocks.append(Paragraph(_OF_PRICES))
    return Document(f"{fmt.plural(len(known), 'GPU')} that can be compared", blocks=blocks)


def _amount(value: float | None) -> str:
    return fmt.UNKNOWN if value is None else f"{value:g}"


def _speed_from(known: KnownGpu) -> str:
    return "benchmarks" if known.is_measured else "data sheet"


def _offer_text(offer: Offer) -> str:
    if offer.usd_per_gpu_hour is None:
        return f"{offer.access if offer.access == 'withdrawn' else offer.status} ({offer.provider})"
    sizes = ", ".join(map(str, offer.gpus_per_instance))
    return f"{offer.usd_per_gpu_hour:.2f} {offer.access}, by {sizes} ({offer.provider}, {offer.price_date})"


def gpus_record(known: Sequence[KnownGpu]) -> list[dict[str, Any]]:
    """Return the same as plain values for JSON."""
    of_gpu = ("vendor", "year", "memory_gb", "tdp_w")
    of_offer = ("provider", "access", "usd_per_gpu_hour", "status", "gpus_per_instance", "regions", "price_date")
    return [
        {
            "gpu": one.gpu.name,
            **{name: getattr(one.gpu, name) for name in of_gpu},
            "speed_from": _speed_from(one),
            "source": one.gpu.source,
            "offers": [{name: getattr(of, name) for name in (*of_offer, "source")} for of in one.offers],
        }
        for one in known
    ]


def _known_from(found: Speedup) -> str:
    return _KNOWN_FROM.get(found.known_from, found.known_from)


def _times(found: Speedup) -> str:
    """Return ``2.1 × [1.7–2.6]``, without a range where the figure is exact."""
    point, _, ends = figure(found.estimate, 1.0).partition(" ")
    return f"{point} × {ends}".rstrip()


def _pairs(compared: Compared) -> list[tuple[GpuSpec, GpuSpec, float]]:
    """Return the faster and the slower of each two different GPUs, and the probability of that; the fastest first."""
    ordered = sorted(dict(compared).items(), key=lambda pair: -pair[1].ratio.point)
    drawn = draws([found.ratio for _, found in ordered], _N_DRAWS)
    of_each = [(gpu, times) for (gpu, _), times in zip(ordered, drawn, strict=True)]
    return [
        (faster, slower, float((its > others).mean())) for (faster, its), (slower, others) in combinations(of_each, 2)
    ]


def speedup_record(local: GpuSpec, compared: Compared, workload: str | None, precision: str) -> dict[str, Any]:
    """Return the same as one object for JSON."""
    return {
        "local": local.name,
        "workload": workload,
        "precision": precision,
        "speedups": [{"gpu": gpu.name, **values_at(found, _OF_SPEEDUP)} for gpu, found in compared],
        "pairs": [
            {"faster": faster.name, "slower": slower.name, "probability": probability}
            for faster, slower, probability in _pairs(compared)
        ],
    }


# -- Memory --


def memory_document(rows: Sequence[MemoryRow], about: str) -> Document:
    """Return what the training takes, the GPUs of each size that hold it, and what could not be told.

    Args:
        rows: the training as it is first.
        about: the training in words.
    """
    known = [row for row in rows if row.peak_bytes is not None]
    told = [*_gpus_text(known)]
    told += [f"{row.name}: {row.reason}." for row in rows if row.reason]
    stepped = ", ".join(row.name for row in known if row.method == MEASURED_STEP)
    if stepped:
        told.append(f"{stepped}: measured by a real step, since tensors without data could not be followed.")
    said = list(map(Paragraph, told))
    if not known:
        verdict = "What it takes of a GPU's memory is not known."
        return Document("GPU memory", about, verdict=verdict, blocks=said)
    table = Table(columns({"": 1}, (*_PARTS, "fits from")), list(map(_memory_cells, known)))
    peak_bytes = known[0].peak_bytes or 0.0
    size = _size_text(known[0])
    fits = "no GPU holds it" if size == "none" else f"a GPU of {size} holds it"
    peak = f"greenlove project --hours 20 --peak-memory {peak_bytes / BYTES_PER_GB:.3g}"
    return Document(
        title="GPU memory",
        subtitle=about,
        verdict=f"{about} takes {fmt.memory(peak_bytes)} of a GPU's memory: {fits}.",
        blocks=[table, *said, Heading("How we know"), Note(_RULE)],
        next_steps=[f"{peak}    which GPU to rent for it"],
    )


def _memory_cells(row: MemoryRow) -> list[str]:
    return [row.name, *(fmt.memory(getattr(row, f"{part}_bytes")) for part in _PARTS), _size_text(row)]


def _size_text(row: MemoryRow) -> str:
    size_gb = _least_memory_gb(row)
    return "none" if size_gb is None else f"{size_gb:g} GB"


def _gpus_text(known: Sequence[MemoryRow]) -> Iterator[str]:
    """Yield the data-centre GPUs that have the memory for each row, by the least memory that it needs."""
    sizes = {_least_memory_gb(row) for row in known}
    yield from (f"{size:g} GB or more: {_named(size)}." for size in sorted(filter(None, sizes)))
    if None in sizes:
        yield "none: more than any GPU in the table holds."


def _least_memory_gb(row: MemoryRow) -> float | None:
    """Return the memory of the smallest GPU that surely holds it; None where none does, or it is not known."""
    return min((gpu.memory_gb for gpu in _holding(row, True) if gpu.memory_gb is not None), default=None)


def _holding(row: MemoryRow, answer: bool | None) -> list[GpuSpec]:
    """Return the GPUs of which it is surely so, surely not so, or within the error of the estimate."""
    if row.peak_bytes is None:
        return []
    peak_gb = row.peak_bytes / BYTES_PER_GB
    return [gpu for gpu in _of_known_memory() if gpu.holds(peak_gb, ESTIMATE_ERROR) is answer]


def _of_known_memory(least_gb: float = 0.0) -> list[GpuSpec]:
    return [gpu for gpu in gpus().values() if gpu.memory_gb is not None and gpu.memory_gb >= least_gb]


def _named(least_gb: float) -> str:
    found = _of_known_memory(least_gb)
    found = [gpu for gpu in found if gpu.segment == "datacentre"] or found
    found.sort(key=lambda gpu: (gpu.memory_gb, -gpu.year))
    return ", ".join(f"{gpu.name} ({gpu.memory_gb:g} GB)" for gpu in found[:_MOST_NAMED])


def memory_record(rows: Sequence[MemoryRow], about: str) -> dict[str, Any]:
    """Return all of it as one object for JSON; what is not known is null."""
    return {
        "about": about,
        "rows": [
            {
                **memory_values(row),
                **{name: [gpu.name for gpu in _holding(row, answer)] for name, answer in _HOLD.items()},
            }
            for row in rows
        ],
        "assumptions": {
            "usable_share": USABLE_MEMORY,
            "cuda_context_gb": CUDA_CONTEXT_GB,
            "estimate_error": ESTIMATE_ERROR,
        },
    }


def memory_values(row: MemoryRow) -> dict[str, Any]:
    """Return one row a technique; what is not known is None, not zero."""
    peak_gb = None
    if row.peak_bytes is not None:
        peak_gb = round(row.peak_bytes / BYTES_PER_GB, 6)
    return {**values_at(row, _OF_MEMORY), "peak_gb": peak_gb, "fits_from_gb": _least_memory_gb(row)}
