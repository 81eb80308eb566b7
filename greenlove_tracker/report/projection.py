"""The terminal's screen of a projection, and its records for programs."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from greenlove_tracker import format as fmt
from greenlove_tracker.forecasting import Estimate
from greenlove_tracker.logs.csvtext import csv_text
from greenlove_tracker.projection.ranking import rank
from greenlove_tracker.projection.row import Projection
from greenlove_tracker.report.projection_words import COMPARED, Figure, Said, said

WIDTH = 100
_LEAST_NAME = 8
_LABEL = 10  # columns that the labels of the verdicts take


def projection_screen(projections: Sequence[Projection], about: Sequence[str], today: date) -> str:
    """The table, who leads, and what it all rests on, within 100 columns.

    Args:
        projections: this machine first.
        about: the training in words.
        today: against which the age of prices is counted.
    """
    told = said(projections, about, today)
    lines = [*_wrapped(told.head), "", *_table(told)]
    beside = " · ".join(told.beside)
    lines += _wrapped(f"{beside} (--all compares them)" if _has_more(projections) else beside)
    lines.append("")
    for label, text in told.verdicts:
        lines += textwrap.wrap(text, WIDTH, initial_indent=label.ljust(_LABEL), subsequent_indent=" " * _LABEL)
        if label == "settle":
            lines.append(f"{'':{_LABEL}}greenlove explore train.py:task there, then greenlove project --measured DIR")
    lines += [""] if told.verdicts else []
    for text in told.notes:
        lines += _wrapped(text)
    for text in told.warnings:
        lines += textwrap.wrap(text, WIDTH, initial_indent="! ", subsequent_indent="  ")
    return "\n".join(lines)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, break_on_hyphens=False)


def _has_more(projections: Sequence[Projection]) -> bool:
    """Whether ``--all`` would compare a machine that is set aside."""
    return any(r.aside and r.fits is not False and r.offer and r.offer.access != "withdrawn" for r in projections)


def _table(told: Said) -> list[str]:
    units = told.units
    times, costs = [line.time for line in told.lines], [line.cost for line in told.lines]
    columns = [
        ("rent as", "× $/h", [line.rent_as for line in told.lines]),
        (f"time {units.time.unit}", "90% range", _aligned(times)),
        (f"cost {units.cost.unit}", "90% range", _aligned(costs)),
        (units.energy.unit, "", [line.energy for line in told.lines]),
        (f"CO2e {units.mass.unit}", "location", [line.location for line in told.lines]),
        ("", "market", [line.market for line in told.lines]),
    ]
    widths = [max(map(len, (first, second, *cells))) for first, second, cells in columns]
    taken = sum(widths) + 2 * (len(widths) + 1)
    known_width = min(max(len(line.known_from) for line in told.lines), WIDTH - taken - _LEAST_NAME)
    name_width = min(max(len(line.name) for line in told.lines), WIDTH - taken - max(known_width, len("known from")))
    names = ["", "", *(line.name for line in told.lines)]
    known = ["speedup", "known from", *(fmt.shortened(line.known_from, known_width) for line in told.lines)]
    table = []
    for i, (name, source) in enumerate(zip(names, known, strict=True)):
        row = [(first, second, *column)[i] for first, second, column in columns]
        right = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        if len(name) > name_width:  # whole, in a line of its own: cut, two GPUs may read the same
            table.append(fmt.shortened(name, WIDTH))
            name = ""
        table.append("  ".join([name.ljust(name_width), *right, source]).rstrip())
    return table


def _aligned(figures: Sequence[Figure]) -> list[str]:
    """Points and ranges below each other."""
    points, ranges = max(len(f.point) for f in figures), max(len(f.range) for f in figures)
    return [f"{f.point:>{points}} {f.range:<{ranges}}" for f in figures]


# -- for programs --------------------------------------------------------------------------------------------------


def projection_record(projections: Sequence[Projection], about: Sequence[str]) -> dict[str, Any]:
    """All of it as one object for JSON."""
    told, ranking = said(projections, about), rank(projections)
    lists = [{"sources": row.sources, "assumptions": row.assumptions, "warnings": row.warnings} for row in projections]
    return {
        "about": told.head,
        "projections": [{**cells(row), **more} for row, more in zip(projections, lists, strict=True)],
        "verdicts": [{"by": label, "says": text} for label, text in told.verdicts if label != COMPARED],
        "savings": [saving.sentence for saving in ranking.savings],
        "notes": [*told.notes, *ranking.notes],
        "warnings": told.warnings,
    }


def projection_csv(projections: Sequence[Projection]) -> str:
    """One row a machine; what is not known is empty, not zero."""
    rows = [cells(row) for row in projections]
    return csv_text(list(rows[0]), rows)


def cells(row: Projection) -> Mapping[str, Any]:
    """A machine in plain values, None where something is not known."""
    offer, speedup, intensity = row.offer, row.speedup, row.intensity
    return {
        "gpu": row.name,
        "is_local": row.is_local,
        "aside": row.aside,
        "provider": offer.provider if offer else None,
        "region": row.region or None,
        "access": offer.access if offer else None,
        "gpus_wanted": row.n_gpus,
        "gpus_billed": row.billed_gpus,
        "usd_per_gpu_hour": offer.usd_per_gpu_hour if offer else None,
        "price_date": offer.price_date if offer else None,
        **_ends("speedup", "", speedup.estimate if speedup else None),
        "speedup_known_from": speedup.known_from if speedup else None,
        "gain_of_gpus": row.gain,
        **_ends("duration", "_s", row.duration_s),
        **_ends("energy", "_kwh", row.energy_kwh),
        **_ends("cost", "_usd", row.cost_usd),
        "cost_basis": row.cost_basis or None,
        **_ends("emissions", "_kgco2e", row.emissions_kgco2e),
        "carbon_intensity_gco2e_per_kwh": intensity.value if intensity else None,
        "carbon_intensity_basis": intensity.basis if intensity else None,
        "market_based_claim_kgco2e": row.market.kgco2e.point if row.market else None,
        "market_based_claim": row.market.text if row.market else None,
        **_ends("embodied", "_kgco2e", row.embodied_kgco2e),
        "scope": row.scope,
        "pue": row.pue,
        "fits": row.fits,
    }


def _ends(name: str, unit: str, estimate: Estimate | None) -> dict[str, float | None]:
    values = (None,) * 3 if estimate is None else (estimate.point, estimate.lower, estimate.upper)
    return dict(zip((f"{name}{unit}", f"{name}_lower{unit}", f"{name}_upper{unit}"), values, strict=True))
