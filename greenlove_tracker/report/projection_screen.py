"""The projection of a training onto other machines: on the terminal, and as plain values for JSON and CSV."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import date
from typing import Any

from greenlove_tracker.forecasting import Estimate
from greenlove_tracker.format import shortened
from greenlove_tracker.logs.csvio import csv_text
from greenlove_tracker.projection.decision import Decision, decide
from greenlove_tracker.projection.ranking import Chance, RankingVerdict, Saving
from greenlove_tracker.projection.types import OPTION_NAMES, Projection
from greenlove_tracker.rendering import terminal
from greenlove_tracker.report.projection_text import DASH, Figure, ProjectionText, projection_text

_MOST_NAME = 26  # columns that a name may keep from the last columns of the table
_LEAST = 3  # columns that stay: a name that they leave no room for has a line of its own
_LABEL = 10  # columns of the labels before sentences
_MOST_NOTES = 10  # lines
_MORE = "What else this rests on: -o report.html"
_INDENT, _GAP = "  ", "  "  # of the machines of a group; between columns
Cells = tuple[str, str, list[str]]  # both lines of a column's head, and its cells


def projection_screen(
    projections: Sequence[Projection],
    about: Sequence[str],
    today: date,
    decision: Decision | None = None,
    width: int = terminal.WIDTH,
) -> str:
    """Return what to do, why, the table, and what all of it rests on.

    Args:
        projections: this machine first.
        about: the training in words.
        today: against which the age of prices is counted.
        decision: between them; None for the cheapest without limits.
        width: columns of the terminal.
    """
    text = projection_text(projections, about, today, OPTION_NAMES, decision)
    lines = [*_decision(text, width), "", *_wrap(text.head, width), "", *_table(text, width)]
    beside = " · ".join(text.beside)
    lines += _wrap(f"{beside} (--all compares them)" if _has_more(projections) else beside, width)
    lines.append("")
    for name, sentence in text.verdicts:
        lines += _labelled(name, sentence, width)
    lines += [""] if text.verdicts else []
    return "\n".join([*lines, *_grounds(text, width)])


def _wrap(text: str, width: int, first: str = "", further: str = "") -> list[str]:
    """Break a text into lines, but none between a number, its × and the machine."""
    whole = text.replace(" × ", "\xa0×\xa0")
    lines = terminal.wrap(whole, first, further, breaks_hyphens=False, width=width)
    return [line.replace("\xa0", " ") for line in lines]


def _labelled(label: str, text: str, width: int) -> list[str]:
    return _wrap(text, width, label.ljust(_LABEL), " " * _LABEL)


def _decision(text: ProjectionText, width: int) -> list[str]:
    """Return what to do, and below it what to know before, and what else may be the one to choose."""
    lines = _wrap(text.decision, width)
    for i, reason in enumerate(text.reasons):
        lines += _labelled("" if i else "  note", reason, width)
    if text.alternatives:
        lines += _labelled("  or", " · ".join(f"{name}: {chance}" for name, chance in text.alternatives), width)
    return lines


def _grounds(text: ProjectionText, width: int) -> list[str]:
    """Return warnings and notes, no more lines than are read; the report has them all."""
    paragraphs = [_wrap(warning, width, "! ", "  ") for warning in text.warnings]
    paragraphs += [_wrap(note, width) for note in text.notes]
    lines: list[str] = []
    for paragraph in paragraphs:
        if len(lines) + len(paragraph) >= _MOST_NOTES:
            break
        lines += paragraph
    return [*lines, _MORE]


def _has_more(projections: Sequence[Projection]) -> bool:
    """Return True where ``--all`` would compare a machine that is set aside."""
    return any(r.aside and r.fits is not False and r.offer and r.offer.access != "withdrawn" for r in projections)


def _table(text: ProjectionText, width: int) -> list[str]:
    """Lay out the machines by group; a name too long for its column stands in a line of its own, and none is cut."""
    names = [_INDENT * bool(line.group) + line.name for line in text.lines]
    columns = _fitting(text, names, width)
    left = width - sum(len(_GAP) + _width(column) for column in columns)
    own_lines = [name if terminal.display_width(name) > left else "" for name in names]
    shown = [("", "", ["" if own else name for name, own in zip(names, own_lines, strict=True)]), *columns]
    rows = zip(*([first, second, *cells] for first, second, cells in shown), strict=True)
    head_1, head_2, *body = terminal.table(list(rows), "<" + ">" * len(columns))
    lines, group = [head_1, head_2], ""
    for line, own, cells in zip(text.lines, own_lines, body, strict=True):
        if line.group != group:
            lines.append(line.group)
            group = line.group
        lines += [own if terminal.display_width(own) <= width else shortened(own, width)] if own else []
        lines.append(cells)
    return lines


def _fitting(text: ProjectionText, names: Sequence[str], width: int) -> list[Cells]:
    """Return the columns that say something, as many as fit beside a name: the last ones are the first to go."""
    units, machines = text.units, text.lines
    columns: list[Cells] = [
        ("GPUs", "× $/h", [line.rent_as for line in machines]),
        (f"time, {units.time.unit}", "90% range", _aligned(line.time for line in machines)),
        (f"cost, {units.cost.unit}", "90% range", _aligned(line.cost for line in machines)),
        ("cheapest", "to rent", [line.cheapest for line in machines]),
        ("energy", units.energy.unit, [line.energy for line in machines]),
        ("CO2e", units.mass.unit, [line.location for line in machines]),
        ("speedup", "one GPU", [line.speedup for line in machines]),
        ("known from", "", _left([line.known_from for line in machines])),
    ]
    columns = [column for column in columns if any(cell.strip(f" {DASH}") for cell in column[2])]
    name_width = min(_MOST_NAME, max(map(terminal.display_width, names)))
    while len(columns) > _LEAST and name_width + sum(len(_GAP) + _width(column) for column in columns) > width:
        columns.pop()
    return columns


def _left(cells: Sequence[str]) -> list[str]:
    width = max(map(terminal.display_width, cells))
    return [cell + " " * (width - terminal.display_width(cell)) for cell in cells]


def _width(column: Cells) -> int:
    first, second, cells = column
    return max(map(terminal.display_width, (first, second, *cells)))


def _aligned(figures: Iterable[Figure]) -> list[str]:
    """Write the figures so that points and ranges stand below each other."""
    figures = list(figures)
    points, ranges = max(len(f.point) for f in figures), max(len(f.range) for f in figures)
    return [f"{f.point:>{points}} {f.range:<{ranges}}" for f in figures]


def projection_record(
    projections: Sequence[Projection], about: Sequence[str], decision: Decision | None = None
) -> dict[str, Any]:
    """Return all of it as one object for JSON."""
    decision = decision or decide(projections)
    text, ranking = projection_text(projections, about, decision=decision), decision.ranking
    lists = [{"sources": row.sources, "assumptions": row.assumptions, "warnings": row.warnings} for row in projections]
    verdicts = (ranking.cheapest, ranking.cheapest_rented, ranking.fastest, ranking.greenest)
    return {
        "about": text.head,
        "decision": {**_decision_values(decision), "sentence": text.decision, "reasons": text.reasons},
        "projections": [{**projection_values(row), **more} for row, more in zip(projections, lists, strict=True)],
        "verdicts": [_verdict(verdict) for verdict in verdicts if verdict is not None],
        "savings": [_saving(saving) for saving in ranking.savings],
        "notes": text.notes,
        "warnings": [*text.warnings, *text.of_machines],
    }


def _decision_values(decision: Decision) -> dict[str, Any]:
    faster, part = decision.faster, decision.part
    return {
        "verdict": decision.verdict,
        **asdict(decision.limits),
        "recommended": _machine(decision.recommended) or None,
        "probability": decision.probability,
        "meets_limits": decision.meets,
        "alternatives": _chances(decision.alternatives),
        "faster": faster and {**_machine(faster.machine), "saved_s": faster.saved_s, "more_usd": faster.more_usd},
        "spot": _machine(decision.spot) or None,
        "left_out": [
            {**_machine(one.machine), "why": one.why, "probability": one.probability} for one in decision.left_out
        ],
        "part_of_work": part and asdict(part),
    }


def _machine(row: Projection | None) -> dict[str, Any]:
    if row is None:
        return {}
    provider = row.offer.provider if row.offer else None
    return {"gpu": row.name, "gpus": row.billed_gpus, "provider": provider, "obtained": row.obtained}


def _chances(chances: Iterable[Chance]) -> list[dict[str, Any]]:
    return [{**_machine(chance.machine), "probability": chance.probability} for chance in chances]


def _verdict(verdict: RankingVerdict) -> dict[str, Any]:
    return {
        "by": verdict.criterion,
        "among": verdict.among,
        "chances": _chances(verdict.chances),
        "pairs": [
            {"rather": _machine(pair.first), "than": _machine(pair.second), "probability": pair.probability}
            for pair in verdict.pairs
        ],
    }


def _saving(saving: Saving) -> dict[str, Any]:
    amount = asdict(saving.amount)
    return {"by": saving.criterion, **_machine(saving.machine), **amount, "probability": saving.probability}


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
        "obtained": row.obtained,
        "gpus_wanted": row.n_gpus,
        "gpus_billed": row.billed_gpus,
        "usd_per_gpu_hour": offer.usd_per_gpu_hour if offer else None,
        "price_date": offer.price_date if offer else None,
        "price_date_is_of_file": offer.is_file_date if offer else None,
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
