"""Forecasts and rows that several tests of projections start from."""

from __future__ import annotations

from datetime import date
from typing import Any

from greenlove_tracker.forecasting import Estimate, Forecast
from greenlove_tracker.projection.project import Projection, project

TODAY = date(2026, 11, 21)
HERE: dict[str, Any] = {"local_gpu": "NVIDIA GeForce RTX 4090", "country": "DE", "utilization": 0.82, "today": TODAY}


def forecast(hours: float = 20.0, kwh: float | None = 9.1, half_width: float = 0.03) -> Forecast:
    def around(point: float, unit: str) -> Estimate:
        return Estimate(point, point * (1 - half_width), point * (1 + half_width), 0.95, unit)

    small = Estimate(1.0, 0.5, 1.5, 0.95, "s")
    energy = None if kwh is None else around(kwh, "kWh")
    return Forecast(around(hours * 3600, "s"), energy, None, None, small, small, None, (), None, "wls", 10, None)


def projected(made: Forecast | None = None, **options: Any) -> list[Projection]:
    """A 4090 in Germany against Crusoe's GPUs, unless something else is said."""
    return project(made or forecast(), **{**HERE, **options})


def projected_by_name(made: Forecast | None = None, **options: Any) -> dict[str, Projection]:
    """The rows by name; the local one is ``here``."""
    return {"here" if row.is_local else row.name: row for row in projected(made, **options)}
