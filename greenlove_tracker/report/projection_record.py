"""A comparison of machines in plain values, for JSON and CSV."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from greenlove_tracker.projection.decision import Decision, decide
from greenlove_tracker.projection.types import Projection
from greenlove_tracker.report.decision_wording import Rows, advice, advice_reasons, head_text
from greenlove_tracker.report.plain_values import QUANTITY_COLUMNS, columns_of, same, values_at


def projection_record(projections: Rows, about: Sequence[str], decision: Decision | None = None) -> dict[str, Any]:
    """Return all of it as one object for JSON."""
    made = decision or decide(projections)
    decided = values_at(made, _OF_DECISION)
    decided["sentence"] = advice(made, projections)
    decided["reasons"] = list(advice_reasons(made, projections))
    rows = [values_at(row, _COLUMNS | _TEXTS) for row in projections]
    return {"about": head_text(projections[0], about), "decision": decided, "projections": rows}


def projection_values(row: Projection) -> dict[str, Any]:
    """Return a machine in plain values, None where something is not known."""
    return values_at(row, _COLUMNS)


_COLUMNS = {
    "gpu": "name",
    "is_local": "is_local",
    "aside": "aside",
    "provider": "offer.provider",
    "region": "region",
    "access": "offer.access",
    "obtained": "obtained",
    "gpus_wanted": "n_gpus",
    "gpus_billed": "billed_gpus",
    "machines": "n_machines",
    "usd_per_gpu_hour": "offer.usd_per_gpu_hour",
    "price_date": "offer.price_date",
    **columns_of("speedup", "speedup.estimate"),
    "speedup_known_from": "speedup.known_from",
    "gain_of_gpus": "gain",
    **QUANTITY_COLUMNS,
    "cost_basis": "cost_basis",
    "carbon_intensity_gco2e_per_kwh": "intensity.value",
    "carbon_intensity_basis": "intensity.basis",
    "market_based_claim_kgco2e": "market.kgco2e.point",
    "market_based_claim": "market.text",
    "scope": "scope",
    "pue": "pue",
    "fits": "fits",
}
_TEXTS = same(("kgco2e_by_place", "sources", "assumptions", "warnings"))
_OF_MACHINE = {"gpu": "name", "gpus": "billed_gpus", "provider": "offer.provider", "obtained": "obtained"}
_OF_CHANCE = {column: f"machine.{path}" for column, path in _OF_MACHINE.items()} | {"probability": "probability"}
_OF_DECISION = {
    "verdict": "verdict",
    "within_s": "limits.within_s",
    "max_cost_usd": "limits.max_cost_usd",
    "probability": "probability",
    "meets_limits": "meets",
    **dict.fromkeys(("recommended", "if_it_fits", "spot"), _OF_MACHINE),
    "faster": _OF_CHANCE | same(("saved_s", "more_usd")),
    "alternatives": _OF_CHANCE,
    "left_out": _OF_CHANCE | {"why": "why"},
}
