"""``forecasts.csv``: every forecast that was issued, and how it came out."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from greenlove_tracker.forecasting import Estimate, Forecast
from greenlove_tracker.logs.schema import cell, finite
from greenlove_tracker.records import RunStatus, RunSummary

FEW = "FEW"  # the warning of a forecast from a single epoch
# what is forecast, by column, with its unit
QUANTITIES = {"duration_s": "s", "energy_kwh": "kWh", "emissions_kgco2e": "kgCO2e", "cost_usd": "USD"}


def _bounds(quantity: str) -> tuple[str, str]:
    name, _, unit = quantity.rpartition("_")
    return f"{name}_lower_{unit}", f"{name}_upper_{unit}"


FORECAST_COLUMNS: tuple[str, ...] = (
    "issued_at", "elapsed_s", "epochs_done", "steps_done", "method", "level",
    *(column for quantity in QUANTITIES for column in (quantity, *_bounds(quantity))),
    "duration_p99_s", "warnings",
)  # fmt: skip


def forecasts_file(stream: int | str) -> str:
    """The name of the file; that of the first rank, or of the only one, has no number."""
    return f"forecasts-{stream}.csv" if isinstance(stream, int) and stream > 0 else "forecasts.csv"


@dataclass(frozen=True, slots=True)
class IssuedForecast:
    """A forecast of a run's totals, as it was issued.

    Attributes:
        issued_at: UTC, ISO 8601.
        elapsed_s: since the start of the run.
        epochs_done: epochs, and
        steps_done: optimizer steps, done by then.
        method: how it was made, as in ``Forecast``.
        estimates: by quantity, one of ``QUANTITIES``; what is unknown is not in it.
        duration_p99_s: the time that is exceeded with a probability of 1%.
        warnings: names of what makes it worse.
    """

    issued_at: str
    elapsed_s: float
    epochs_done: int
    steps_done: int
    method: str
    estimates: Mapping[str, Estimate]
    duration_p99_s: float | None = None
    warnings: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls, forecast: Forecast, *, issued_at: str, elapsed_s: float, epochs_done: int, steps_done: int
    ) -> IssuedForecast:
        """A forecast that is issued now."""
        estimates = {q: e for q in QUANTITIES if (e := getattr(forecast, q)) is not None}
        return cls(
            issued_at, elapsed_s, epochs_done, steps_done, forecast.method, estimates, forecast.duration_p99_s,
            frozenset(w.name for w in forecast.warnings),
        )  # fmt: skip


def forecast_cells(issued: IssuedForecast) -> list[str]:
    """The cells of a forecast in the order of FORECAST_COLUMNS."""
    levels = {e.level for e in issued.estimates.values()}
    values: list[object] = [
        issued.issued_at, issued.elapsed_s, issued.epochs_done, issued.steps_done, issued.method, max(levels),
    ]  # fmt: skip
    for quantity in QUANTITIES:
        e = issued.estimates.get(quantity)
        values += [None] * 3 if e is None else [e.point, e.lower, e.upper]
    return [cell(v) for v in (*values, issued.duration_p99_s, issued.warnings)]


def forecast_from_cells(cells: Mapping[str, str]) -> IssuedForecast:
    """The forecast that ``cells`` (by column) stand for.

    Raises:
        ValueError: where a cell is not what its column holds.
    """
    estimates = {}
    for quantity, unit in QUANTITIES.items():
        lower, upper = _bounds(quantity)
        if cells[quantity]:
            point, low, high, level = (finite(cells[c]) for c in (quantity, lower, upper, "level"))
            estimates[quantity] = Estimate(point, low, high, level, unit)
    if "duration_s" not in estimates:
        raise ValueError("a forecast without its duration")
    p99 = cells["duration_p99_s"]
    return IssuedForecast(
        cells["issued_at"], finite(cells["elapsed_s"]), int(cells["epochs_done"]), int(cells["steps_done"]),
        cells["method"], estimates, finite(p99) if p99 else None, frozenset(cells["warnings"].split()),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scored:
    """A forecast of one quantity, beside what it came to.

    Attributes:
        issued: the forecast.
        estimate: of the quantity.
        outcome: what it came to.
    """

    issued: IssuedForecast
    estimate: Estimate
    outcome: float

    @property
    def error(self) -> float:
        """(forecast - outcome) / outcome."""
        return self.estimate.point / self.outcome - 1.0 if self.outcome else 0.0

    @property
    def has_held(self) -> bool:
        """Whether the outcome lies in the interval, up to rounding."""
        slack = 1e-9 * abs(self.outcome)
        return self.estimate.lower - slack <= self.outcome <= self.estimate.upper + slack


def is_scorable(summary: RunSummary, steps_planned: int | None) -> bool:
    """Whether the run did what was forecast: it ended well, with all its epochs or steps."""
    has_ended = summary.status in (RunStatus.FINISHED, RunStatus.EXITED)
    if summary.epochs_planned is not None:
        return has_ended and summary.epochs_done == summary.epochs_planned
    return has_ended and steps_planned is not None and summary.counts.steps == steps_planned


def score(issued: Sequence[IssuedForecast], quantity: str, outcome: float | None) -> list[Scored]:
    """Each forecast of a quantity beside what it came to; none where that is not known."""
    if outcome is None:
        return []
    return [Scored(f, f.estimates[quantity], outcome) for f in issued if quantity in f.estimates]


def shown(scores: Sequence[Scored]) -> Scored | None:
    """The one to tell of: the first at a tenth of the run or later, of more than one epoch; or the last."""
    late = (s for s in scores if s.issued.elapsed_s >= 0.1 * s.outcome and FEW not in s.issued.warnings)
    return next(late, scores[-1] if scores else None)


def median_error(scores: Sequence[Scored]) -> float | None:
    """Median of the absolute relative errors."""
    return statistics.median(abs(s.error) for s in scores) if scores else None
