"""Forecasts and rows that several tests of projections start from."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

from report_samples import GERMANY, GPU_FIELDS, PRICE, gpu_rows, write_run

from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.trials import plan_fields, write_trials
from greenlove_tracker.projection.from_log import MachineComparison, compare_log
from greenlove_tracker.projection.options import ProjectionOptions
from greenlove_tracker.projection.project import Projection, project
from greenlove_tracker.vocabulary.forecasting import Estimate, Forecast, TrainingPlan, Trial

PLAN = TrainingPlan(samples=50_000, batch_size=128, epochs=100)
LAPTOP = "GeForce RTX 3060 Laptop GPU"
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


def compared(logs: Path, **options: Any) -> MachineComparison:
    """The training of a log directory on this machine and on others, with these options."""
    return compare_log(str(logs), ProjectionOptions(**options))


def row_of(comparison: MachineComparison, name: str) -> Projection:
    """The row of a GPU elsewhere."""
    return next(row for row in comparison.projections if row.name == name and not row.is_local)


def explored(
    logs: Path, *, faster: float = 1.0, run_id: str = "20261121T120000-aaaa", trials_kwh: str = "", **fields: str
) -> Run:
    """An exploration on the laptop's GPU: 92 of 115 W, 4.1 GiB."""
    plan = {field.name: field.value for field in plan_fields(PLAN)}
    machine = {**GPU_FIELDS, "gpu_method": "counter", "gpu_power_w": "92"}
    written = {**machine, **plan, **fields}
    run = write_run(logs, gpu_rows(3), run_id, fields=written, intensity=GERMANY, price=PRICE)
    trials = [
        Trial(
            128 * b,
            128,
            tuple((0.4 + 0.06 * b * (1 + 0.02 * ((i * 7 + b) % 5 - 2))) / faster for i in range(4)),
            float(trials_kwh) * b if trials_kwh else None,
        )
        for b in (10, 20, 40, 80, 40)
    ]
    write_trials(run.path, trials)
    return Run(run.path)
