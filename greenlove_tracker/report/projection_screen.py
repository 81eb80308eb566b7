"""The projection of a training onto other machines: on the terminal, and as plain values for JSON and CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from greenlove_tracker.forecasting import Estimate
from greenlove_tracker.format import shortened
from greenlove_tracker.logs.csvio import csv_text
from greenlove_tracker.projection.ranking import rank
from greenlove_tracker.projection.types import OPTION_NAMES, Projection
from greenlove_tracker.rendering import terminal
from greenlove_tracker.report.projection_text import COMPARED, Figure, ProjectionText, projection_text

_LEAST_NAME = 8  # columns that stay for the machine's name
_KNOWN_FROM = "known from"
_LABEL = 10  # columns of the verdicts' labels


def projection_screen(projections: Sequence[Projection], about: Sequence[str], today: date) -> str:
    """Return the table, the best machines, and what all of it rests on, within 100 columns.

    Args:
        projections: this machine first.
        about: the training in words.
        today: against which the age of prices is counted.
    """
    text = projection_text(projections, about, today, OPTION_NAMES)
    lines = [*_paragraph(text.head), "", *_table(text)]
    beside = " · ".join(text.beside)
    lines += _paragraph(f"{beside} (--all compares them)" if _has_more(projections) else beside)
    lines.append("")
    for label, sentence in text.verdicts:
        lines += terminal.wrap(sentence, label.ljust(_LABEL), " " * _LABEL)
        if label == "settle":
            lines.append(f"{'':{_LABEL}}greenlove explore train.py:task there, then greenlove project --measured DIR")
    lines += [""] if text.verdicts else []
    for note in text.notes:
        lines += _paragraph(note)
    for warning in text.warnings:
        lines += terminal.wrap(warning, "! ", "  ")
    return "\n".join(lines)


def _paragraph(text: str) -> list[str]:
    return terminal.wrap(text, breaks_hyphens=False)


def _has_more(projections: Sequence[Projection]) -> bool:
    """Return True where ``--all`` would compare a machine that is set aside."""
    return any(r.aside and r.fits is not False and r.offer and r.offer.access != "withdrawn" for r in projections)


def _table(text: ProjectionText) -> list[str]:
    """Lay out the machines; a text too long for its column stands in a line of its own: cut, two may read the same."""
    units = text.units
    numbers = [
        ("rent as", "× $/h", *(line.rent_as for line in text.lines)),
        (f"time {units.time.unit}", "90% range", *_aligned([line.time for line in text.lines])),
        (f"cost {units.cost.unit}", "90% range", *_aligned([line.cost for line in text.lines])),
        (units.energy.unit, "", *(line.energy for line in text.lines)),
        (f"CO2e {units.mass.unit}", "location", *(line.location for line in text.lines)),
        ("", "market", *(line.market for line in text.lines)),
    ]
    left = terminal.WIDTH - sum(max(map(len, column)) for column in numbers) - 2 * (len(numbers) + 1)
    head = ("speedup", _KNOWN_FROM) if left >= len(_KNOWN_FROM) else ("", "")
    known_width = min(max(len(line.known_from) for line in text.lines), max(len(head[1]), left - _LEAST_NAME))
    name_width = max(0, left - max(known_width, len(head[1])))
    own_lines, cells = [], []
    for line in text.lines:
        is_known_shown = len(line.known_from) <= known_width
        if terminal.display_width(line.name) <= name_width and is_known_shown:
            own_lines.append("")
            cells.append((line.name, line.known_from))
        else:
            own_lines.append(line.name if is_known_shown else f"{line.name} ({line.known_from})")
            cells.append(("", line.known_from if is_known_shown else ""))
    names, known_from = zip(*cells, strict=True)
    columns = [("", "", *names), *numbers, (*head, *known_from)]
    lines = terminal.table(list(zip(*columns, strict=True)), "<" + ">" * len(numbers) + "<")
    for i, own_line in reversed(list(enumerate(own_lines, 2))):
        if own_line:
            lines.insert(i, shortened(own_line, terminal.WIDTH))
    return lines


def _aligned(figures: Sequence[Figure]) -> list[str]:
    """Write the figures so that points and ranges stand below each other."""
    points, ranges = max(len(f.point) for f in figures), max(len(f.range) for f in figures)
    return [f"{f.point:>{points}} {f.range:<{ranges}}" for f in figures]


def projection_record(projections: Sequence[Projection], about: Sequence[str]) -> dict[str, Any]:
    """Return all of it as one object for JSON."""
    text, ranking = projection_text(projections, about), rank(projections)
    lists = [{"sources": row.sources, "assumptions": row.assumptions, "warnings": row.warnings} for row in projections]
    return {
        "about": text.head,
        "projections": [{**projection_values(row), **more} for row, more in zip(projections, lists, strict=True)],
        "verdicts": [{"by": label, "says": sentence} for label, sentence in text.verdicts if label != COMPARED],
        "savings": [saving.sentence for saving in ranking.savings],
        "notes": [*text.notes, *ranking.notes],
        "warnings": text.warnings,
    }


def projection_csv(projections: Sequence[Projection]) -> str:
    """Return one row a machine; what is not known is empty, not zero."""
    rows = [projection_values(row) for row in projections]
    return csv_text(list(rows[0]), rows)


def projection_values(row: Projection) -> Mapping[str, Any]:
    """Return a machine in plain values, None where something is not known."""
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
        **interval_fields("speedup", "", speedup.estimate if speedup else None),
        "speedup_known_from": speedup.known_from if speedup else None,
        "gain_of_gpus": row.gain,
        **interval_fields("duration", "_s", row.duration_s),
        **interval_fields("energy", "_kwh", row.energy_kwh),
        **interval_fields("cost", "_usd", row.cost_usd),
        "cost_basis": row.cost_basis or None,
        **interval_fields("emissions", "_kgco2e", row.emissions_kgco2e),
        "carbon_intensity_gco2e_per_kwh": intensity.value if intensity else None,
        "carbon_intensity_basis": intensity.basis if intensity else None,
        "market_based_claim_kgco2e": row.market.kgco2e.point if row.market else None,
        "market_based_claim": row.market.text if row.market else None,
        **interval_fields("embodied", "_kgco2e", row.embodied_kgco2e),
        "scope": row.scope,
        "pue": row.pue,
        "fits": row.fits,
    }


def interval_fields(name: str, unit: str, estimate: Estimate | None) -> dict[str, float | None]:
    """Return the point and both ends of an estimate as fields of a row; None where it is not known."""
    values = (None,) * 3 if estimate is None else (estimate.point, estimate.lower, estimate.upper)
    return dict(zip((f"{name}{unit}", f"{name}_lower{unit}", f"{name}_upper{unit}"), values, strict=True))
