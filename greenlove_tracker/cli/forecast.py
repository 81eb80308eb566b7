"""``greenlove forecast``: what runs forecast of themselves and what came of it, and what a sweep will take."""

from __future__ import annotations

import json
import time
from dataclasses import asdict

from greenlove_tracker.errors import UsageError
from greenlove_tracker.extrapolation.extrapolate import forecast_from_log
from greenlove_tracker.extrapolation.live import forecast_sweep, sweep_warnings
from greenlove_tracker.logs.csvio import csv_text
from greenlove_tracker.logs.directory import Logs
from greenlove_tracker.logs.forecasts import QUANTITIES
from greenlove_tracker.report.screens import forecast_screen, forecast_table, sweep_screen
from greenlove_tracker.report.wording import ForecastOutcome, outcome_of

_QUANTITIES = {"time": "duration_s", "energy": "energy_kwh", "co2e": "emissions_kgco2e", "cost": "cost_usd"}


def record(logs: Logs, of: str, style: str) -> str:
    """Every run's forecast beside its outcome.

    Args:
        logs: of a directory, or of one run.
        of: ``time``, ``energy``, ``co2e`` or ``cost``.
        style: ``text``, ``json`` or ``csv``.
    """
    quantity = _QUANTITIES[of]
    n_explored, found = 0, []
    for run in logs.readable():
        if run.is_exploration:
            n_explored += 1
        else:
            found.append(outcome_of(run, quantity))
    lines = [line for line in found if line is not None]
    if style == "json":
        problems = [str(problem) for problem in logs.problems]
        return json.dumps({"forecasts": [line.as_dict() for line in lines], "problems": problems}, indent=2)
    if style == "csv":
        return _as_csv(lines)
    return forecast_table(lines, quantity, len(found) - len(lines), n_explored)


def _as_csv(lines: list[ForecastOutcome]) -> str:
    rows = [line.as_dict() for line in lines]
    return csv_text(list(rows[0]), rows).rstrip("\n") if rows else ""


def again(logs: Logs, epochs: int | None, samples: int | None, steps: int | None) -> str:
    """Forecast from an exploration's trials once more, for other numbers of epochs, samples or steps; nothing is run.

    Raises:
        UsageError: where the directory holds no exploration, or the plan cannot be.
    """
    run = logs.latest_exploration()
    if run is None:
        raise UsageError(f"{logs.path} holds no exploration: greenlove explore writes one")
    plan = run.explored_plan.with_length(epochs=epochs, samples=samples, steps=steps)
    return forecast_screen(forecast_from_log(run, plan), run.trials, time.time())


def sweep(logs: Logs, n_runs: int, *, as_json: bool) -> str:
    """What ``n_runs`` runs like the finished ones of a log directory will take.

    Raises:
        UsageError: where none is finished.
    """
    runs = (run for run in logs.readable() if run.is_complete)
    seen = [[getattr(run.summary, quantity) for quantity in QUANTITIES] for run in runs]
    if not seen:
        raise UsageError(f"{logs.path} has no finished run to go by: let one run to its end, then ask again")
    outcomes = dict(zip(QUANTITIES, zip(*seen, strict=True), strict=True))
    n_unknown = {quantity: values.count(None) for quantity, values in outcomes.items()}
    totals = {  # those that are known may be of another kind than those that are not
        quantity: None if n_unknown[quantity] else forecast_sweep(values, n_runs, QUANTITIES[quantity])
        for quantity, values in outcomes.items()
    }
    warnings = [str(warning) for warning in sweep_warnings(len(seen))]
    if as_json:
        shown = {quantity: estimate and asdict(estimate) for quantity, estimate in totals.items()}
        found = {"runs": n_runs, "seen": len(seen), "totals": shown, "unknown": n_unknown, "warnings": warnings}
        return json.dumps(found, indent=2)
    return sweep_screen(n_runs, totals, n_unknown, len(seen), warnings)
