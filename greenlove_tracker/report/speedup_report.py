"""The speeds of GPUs in that of another, and the GPUs that are known, as documents and as plain values for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from greenlove_tracker import format as fmt
from greenlove_tracker.projection.listings import KnownGpu
from greenlove_tracker.projection.speedup import Speedup
from greenlove_tracker.projection.uncertain import draws
from greenlove_tracker.rendering.document import Column, Document, Heading, Paragraph, Table
from greenlove_tracker.report.projection_report import interval_fields
from greenlove_tracker.report.projection_words import figure, sentence
from greenlove_tracker.tables.gpus import GpuSpec
from greenlove_tracker.tables.offers import Offer

_N_DRAWS = 20_000  # the standard error of a probability is 0.35 points at most
_KNOWN_FROM = {
    "benchmarks": "benchmarks of both",
    "half specs": "benchmarks of one, the data sheet of the other",
    "specs only": "data sheets: no benchmark of either",
    "same GPU": "it is the same GPU",
}
_OF_PRICES = "Prices as of the dates shown, from transcriptions of the providers' pages or from --prices: check them."
_NOT_IN = "Not counted: data loading, larger batches, several GPUs. --speedup takes what you measured."
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
    if pairs := _pairs(compared):
        verdict += f" It is {fmt.chance(pairs[0][2])} likely to be faster than {pairs[0][1].name}."
    rows = tuple((gpu.name, _times(found), _known_from(found)) for gpu, found in compared)
    table = Table((Column("", 2), Column(f"as fast as {local.name}", 2, True), Column("known from", 3)), rows)
    notes = dict.fromkeys(note for _, found in compared for note in found.notes)
    sources = dict.fromkeys(source for _, found in compared for source in found.sources)
    return Document(
        title="Speedups",
        subtitle=of,
        footer="",
        verdict=verdict,
        blocks=(
            *([table] if len(rows) > 1 else [Paragraph(f"Known from {_known_from(first)}.")]),
            *(Paragraph(sentence(note)) for note in notes),
            Heading("How we know"),
            *map(Paragraph, (*sources, _NOT_IN)),
        ),
    )


def gpus_document(known: Sequence[KnownGpu]) -> Document:
    """Return the GPUs that can be compared, with what they cost to rent.

    Args:
        known: those to list, at least one.
    """
    rows: list[tuple[str, ...]] = []
    for one in known:
        amounts = (fmt.UNKNOWN if value is None else f"{value:g}" for value in (one.gpu.memory_gb, one.gpu.tdp_w))
        offers = [_offer_text(offer) for offer in one.offers] or [""]
        rows.append((one.gpu.name, *amounts, "benchmarks" if one.is_measured else "data sheet", offers[0]))
        rows += [("", "", "", "", text) for text in offers[1:]]
    heads = ("GPU", "GiB", "W", "speed from", "to rent, $ per GPU and hour")
    columns = tuple(Column(head, is_number=head in ("GiB", "W")) for head in heads)
    has_offers = any(one.offers for one in known)
    return Document(
        title=f"{fmt.plural(len(known), 'GPU')} that can be compared",
        subtitle="",
        footer="",
        blocks=(Table(columns, tuple(rows)), *([Paragraph(_OF_PRICES)] if has_offers else [])),
    )


def _offer_text(offer: Offer) -> str:
    if offer.usd_per_gpu_hour is None:
        return f"{'withdrawn' if offer.access == 'withdrawn' else offer.status} ({offer.provider})"
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
            "speed_from": "benchmarks" if one.is_measured else "data sheet",
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
    return [
        (ordered[i][0], ordered[j][0], float((drawn[i] > drawn[j]).mean()))
        for i, j in combinations(range(len(ordered)), 2)
    ]


def speedup_record(local: GpuSpec, compared: Compared, workload: str | None, precision: str) -> dict[str, Any]:
    """Return the same as one object for JSON."""
    return {
        "local": local.name,
        "workload": workload,
        "precision": precision,
        "speedups": [
            {
                "gpu": gpu.name,
                **interval_fields("speedup", "", found.estimate),
                "level": found.estimate.level,
                **{name: getattr(found, name) for name in ("method", "known_from", "sources", "notes")},
            }
            for gpu, found in compared
        ],
        "pairs": [
            {"faster": faster.name, "slower": slower.name, "probability": probability}
            for faster, slower, probability in _pairs(compared)
        ],
    }
