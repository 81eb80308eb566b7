"""``forecasts.csv``: every forecast that was issued, and its score against the outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from greenlove_tracker.forecasting import Estimate, Forecast, WarningCode, stop_estimate
from greenlove_tracker.logs.schema import amount, cell, count, finite
from greenlove_tracker.records import RunStatus, RunSummary

# the quantities of a forecast, by column, with their units
QUANTITIES = {"duration_s": "s", "energy_kwh": "kWh", "emissions_kgco2e": "kgCO2e", "cost_usd": "USD"}


def _bounds(quantity: str) -> tuple[str, str]:
    name, _, unit = quantity.rpartition("_")
    return f"{name}_lower_{unit}", f"{name}_upper_{unit}"


# where early stopping is expected to end the run; empty without a rule, and in older logs there are none
STOP_COLUMNS = ("stop_epochs", "stop_lower_epochs", "stop_upper_epochs")
LEAST_COLUMNS: tuple[str, ...] = (
    "issued_at",
    "elapsed_s",
    "epochs_done",
    "steps_done",
    "planned",
    "method",
    "level",
    *(column for quantity in QUANTITIES for column in (quantity, *_bounds(quantity))),
    "duration_p99_s",
    "warnings",
)
FORECAST_COLUMNS = (*LEAST_COLUMNS, *STOP_COLUMNS)


def forecasts_file(stream: int | str) -> str:
    """Return the name of the file; that of the first rank, or of the only one, has no number."""
    return f"forecasts-{stream}.csv" if isinstance(stream, int) and stream > 0 else "forecasts.csv"


@dataclass(frozen=True, slots=True)
class IssuedForecast:
    """A forecast of a run's totals, as it was issued.

    Attributes:
        issued_at: UTC, ISO 8601.
        elapsed_s: since the start of the run.
        epochs_done: epochs, and
        steps_done: optimizer steps, done by then.
        planned: epochs, or steps, of the training that was forecast.
        method: how it was made, as in ``Forecast``.
        estimates: by quantity, one of ``QUANTITIES``; what is unknown is not in it.
        duration_p99_s: the time that is exceeded with a probability of 1%.
        warnings: names of what makes it worse.
        stop_epochs: the number of the epoch with which early stopping is expected to end it; None without a rule.
    """

    issued_at: str
    elapsed_s: float
    epochs_done: int
    steps_done: int
    planned: int
    method: str
    estimates: Mapping[str, Estimate]
    duration_p99_s: float | None = None
    warnings: frozenset[str] = frozenset()
    stop_epochs: Estimate | None = None

    @classmethod
    def of(
        cls,
        forecast: Forecast,
        *,
        issued_at: str,
        elapsed_s: float,
        epochs_done: int,
        steps_done: int,
        planned: int,
        epochs_before: int = 0,
    ) -> IssuedForecast:
        """Return the record of a forecast that is issued now, by a run that does its first epoch after so many."""
        stop, level = forecast.expected_stop, forecast.duration_s.level
        estimates = {q: e for q in QUANTITIES if (e := getattr(forecast, q)) is not None}
        return cls(
            issued_at,
            elapsed_s,
            epochs_done,
            steps_done,
            planned,
            forecast.method,
            estimates,
            forecast.duration_p99_s,
            frozenset(w.name for w in forecast.warnings),
            None if stop is None else stop_estimate(stop, level, before=epochs_before),
        )


def forecast_cells(issued: IssuedForecast) -> list[str]:
    """Return the cells of a forecast in the order of FORECAST_COLUMNS."""
    levels = {e.level for e in issued.estimates.values()}
    values: list[object] = [
        issued.issued_at,
        issued.elapsed_s,
        issued.epochs_done,
        issued.steps_done,
        issued.planned,
        issued.method,
        max(levels),
    ]
    for quantity in QUANTITIES:
        e = issued.estimates.get(quantity)
        values += [None] * 3 if e is None else [e.point, e.lower, e.upper]
    stop = issued.stop_epochs
    ends = [None] * 3 if stop is None else [stop.point, stop.lower, stop.upper]
    return [cell(v) for v in (*values, issued.duration_p99_s, issued.warnings, *ends)]


def forecast_from_cells(cells: Mapping[str, str]) -> IssuedForecast:
    """Return the forecast that ``cells`` (by column) stand for.

    Raises:
        ValueError: where a cell is not what its column holds.
    """
    estimates = {}
    for quantity, unit in QUANTITIES.items():
        lower, upper = _bounds(quantity)
        if cells[quantity]:
            number = finite if quantity == "cost_usd" else amount  # at prices of an exchange it may be negative
            point, low, high = (number(cells[c]) for c in (quantity, lower, upper))
            level = amount(cells["level"])
            if not low <= high:
                raise ValueError(f"an interval of {quantity} that ends before it begins")
            estimates[quantity] = Estimate(point, low, high, level, unit)
        elif cells[lower] or cells[upper]:
            raise ValueError(f"an interval of {quantity} without its point")
    if "duration_s" not in estimates:
        raise ValueError("a forecast without its duration")
    p99 = cells["duration_p99_s"]
    return IssuedForecast(
        cells["issued_at"],
        amount(cells["elapsed_s"]),
        count(cells["epochs_done"]),
        count(cells["steps_done"]),
        count(cells["planned"]),
        cells["method"],
        estimates,
        amount(p99) if p99 else None,
        frozenset(cells["warnings"].split()),
        _stop_from_cells(cells),
    )


def _stop_from_cells(cells: Mapping[str, str]) -> Estimate | None:
    if not any(cells.get(column) for column in STOP_COLUMNS):
        return None
    point, lower, upper = (amount(cells[column]) for column in STOP_COLUMNS)
    return Estimate(point, lower, upper, amount(cells["level"]), "epochs")


@dataclass(frozen=True, slots=True)
class Scored:
    """A forecast of one quantity beside its outcome.

    Attributes:
        issued: the forecast.
        estimate: of the quantity.
        outcome: what it came to.
        run_s: what the run took.
    """

    issued: IssuedForecast
    estimate: Estimate
    outcome: float
    run_s: float

    @property
    def error(self) -> float:
        """(forecast - outcome) / outcome."""
        return self.estimate.point / self.outcome - 1.0 if self.outcome else 0.0

    @property
    def has_held(self) -> bool:
        """True where the outcome lies in the interval, up to rounding."""
        slack = 1e-9 * abs(self.outcome)
        return self.estimate.lower - slack <= self.outcome <= self.estimate.upper + slack


GOOD_ENDINGS = (RunStatus.FINISHED, RunStatus.EXITED)


def units_done(summary: RunSummary, steps_planned: int | None, stopped_after: int | None = None) -> int | None:
    """Return the planned epochs, or steps, of a run that ended well with all that it was to do; None of any other.

    Args:
        summary: of the run.
        steps_planned: where it counts in steps.
        stopped_after: its own epochs after which early stopping ended it, as was to be; None where nothing did.
    """
    if summary.status not in GOOD_ENDINGS:
        return None
    planned = steps_planned if summary.epochs_planned is None else summary.epochs_planned
    done = summary.counts.steps if summary.epochs_planned is None else summary.epochs_done
    if planned is not None and stopped_after is not None and summary.epochs_done == stopped_after <= planned:
        return planned
    return done if planned is not None and done == planned else None


def score(
    issued: Sequence[IssuedForecast], quantity: str, outcome: float | None, *, units: int, run_s: float
) -> list[Scored]:
    """Return each forecast of a quantity beside its outcome; none where that is not known.

    Args:
        issued: the forecasts; those of another number of units were of something else.
        quantity: one of ``QUANTITIES``.
        outcome: what it came to.
        units: epochs, or steps, that were to be done.
        run_s: what the run took.
    """
    if outcome is None:
        return []
    same_plan = [f for f in issued if f.planned == units and quantity in f.estimates]
    return [Scored(f, f.estimates[quantity], outcome, run_s) for f in same_plan]


def headline(scores: Sequence[Scored]) -> Scored | None:
    """Return the one that stands for its run: the first at a tenth of it or later, of several epochs; or the last."""
    late = (s for s in scores if s.issued.elapsed_s >= 0.1 * s.run_s and WarningCode.FEW not in s.issued.warnings)
    return next(late, scores[-1] if scores else None)
