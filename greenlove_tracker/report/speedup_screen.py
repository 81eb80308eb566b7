"""The speeds of GPUs in that of another, on the terminal and as plain values for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from greenlove_tracker import format as fmt
from greenlove_tracker.projection.listings import KnownGpu
from greenlove_tracker.projection.speedup import Speedup
from greenlove_tracker.projection.uncertain import draws
from greenlove_tracker.rendering import terminal
from greenlove_tracker.report.projection_report import interval_fields
from greenlove_tracker.report.projection_words import figure
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
_NOT_IN = "data loading, larger batches, several GPUs; to measure yours: greenlove project --measured DIR"


def speedup_screen(
    local: GpuSpec, compared: Sequence[tuple[GpuSpec, Speedup]], workload: str | None, precision: str
) -> str:
    """Return each speedup, who is faster than whom, and what that is known from.

    Args:
        local: the GPU that the others are set against.
        compared: the others, and how many times as fast they are.
        workload: class of what is trained; None for any.
        precision: that it computes in.
    """
    of = f"{workload or 'any workload'}, {precision}"
    if len(compared) == 1:
        ((gpu, found),) = compared
        times, ends = _times(found)
        sentence = " ".join(filter(None, (f"{gpu.name} trains {times} as fast as {local.name}", ends)))
        lines = [*terminal.wrap(f"{sentence}, {of}"), ""]
        lines += _labelled("known from", _known_from(found))
    else:
        cells = [(gpu.name, *_times(found), _known_from(found)) for gpu, found in compared]
        lines = [*terminal.wrap(_fastest(compared)), "", *terminal.wrap(f"Times as fast as {local.name} ({of}):"), ""]
        lines += [*(f"  {line}" for line in terminal.table(cells, "<><<")), ""]
    for note in dict.fromkeys(note for _, found in compared for note in found.notes):
        lines += _labelled("note", note)
    for i, source in enumerate(dict.fromkeys(source for _, found in compared for source in found.sources)):
        lines += _labelled("" if i else "sources", source)
    return "\n".join([*lines, *_labelled("left out", _NOT_IN)])


def gpus_screen(known: Sequence[KnownGpu]) -> str:
    """Return the GPUs that can be compared, with what they cost to rent.

    Args:
        known: those to list, at least one.
    """
    head = ("GPU", "GiB", "W", "speed from", "to rent, $ per GPU and hour")
    rows: list[tuple[str, ...]] = [head]
    for one in known:
        amounts = (fmt.UNKNOWN if value is None else f"{value:g}" for value in (one.gpu.memory_gb, one.gpu.tdp_w))
        offers = [_offer_text(listing.offer) for listing in one.listings] or [""]
        rows.append((one.gpu.name, *amounts, "benchmarks" if one.is_measured else "data sheet", offers[0]))
        rows += [("", "", "", "", text) for text in offers[1:]]
    lines = terminal.table(rows, "<>><<", rules_below=(0,))
    return "\n".join([*lines, "", *terminal.wrap(_OF_PRICES)] if any(one.listings for one in known) else lines)


def _offer_text(offer: Offer) -> str:
    if offer.usd_per_gpu_hour is None:
        return f"{'withdrawn' if offer.access == 'withdrawn' else offer.status} ({offer.provider})"
    sizes = ", ".join(map(str, offer.gpus_per_instance))
    return f"{offer.usd_per_gpu_hour:.2f} {offer.access}, by {sizes} ({offer.provider}, {offer.price_date})"


def gpus_record(known: Sequence[KnownGpu]) -> list[dict[str, Any]]:
    """Return the same as plain values for JSON."""
    return [
        {
            "gpu": one.gpu.name,
            "vendor": one.gpu.vendor,
            "year": one.gpu.year,
            "memory_gb": one.gpu.memory_gb,
            "tdp_w": one.gpu.tdp_w,
            "speed_from": "benchmarks" if one.is_measured else "data sheet",
            "source": one.gpu.source,
            "offers": [
                {
                    "provider": offer.provider,
                    "access": offer.access,
                    "usd_per_gpu_hour": offer.usd_per_gpu_hour,
                    "status": offer.status,
                    "gpus_per_instance": offer.gpus_per_instance,
                    "regions": offer.regions,
                    "price_date": offer.price_date,
                    "source": offer.source,
                }
                for offer in (listing.offer for listing in one.listings)
            ],
        }
        for one in known
    ]


def _fastest(compared: Sequence[tuple[GpuSpec, Speedup]]) -> str:
    """Return which is the fastest, and how likely it is to be faster than the next."""
    pairs = _pairs(compared)
    if not pairs:
        return f"Fastest: {compared[0][0].name}"
    first, second, probability = pairs[0]
    return f"Fastest: {first.name} ({fmt.chance(probability)} likely to be faster than {second.name})"


def _labelled(label: str, text: str) -> list[str]:
    return terminal.wrap(text, f"  {label:<12}", " " * 14, breaks_hyphens=False)


def _known_from(found: Speedup) -> str:
    return _KNOWN_FROM.get(found.known_from, found.known_from)


def _times(found: Speedup) -> tuple[str, str]:
    """Return ``2.1 ×`` and ``[1.7–2.6]``, which is empty where the figure is exact."""
    point, _, ends = figure(found.estimate, 1.0).partition(" ")
    return f"{point} ×", ends


def _pairs(compared: Sequence[tuple[GpuSpec, Speedup]]) -> list[tuple[GpuSpec, GpuSpec, float]]:
    """Return the faster and the slower of each two different GPUs, and the probability of that; the fastest first."""
    ordered = sorted(dict(compared).items(), key=lambda pair: -pair[1].ratio.point)
    drawn = draws([found.ratio for _, found in ordered], _N_DRAWS)
    return [
        (ordered[i][0], ordered[j][0], float((drawn[i] > drawn[j]).mean()))
        for i, j in combinations(range(len(ordered)), 2)
    ]


def speedup_record(
    local: GpuSpec, compared: Sequence[tuple[GpuSpec, Speedup]], workload: str | None, precision: str
) -> dict[str, Any]:
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
                "method": found.method,
                "known_from": found.known_from,
                "sources": found.sources,
                "notes": found.notes,
            }
            for gpu, found in compared
        ],
        "pairs": [
            {"faster": faster.name, "slower": slower.name, "probability": probability}
            for faster, slower, probability in _pairs(compared)
        ],
    }
