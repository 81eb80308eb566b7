"""Ranges of the energy of a finished run, and with it of its CO2e and its cost, by the errors of its meters.

Each method of metering has an error, with its source, in ``data/measurement_errors.csv``. The energies of one method
are off together, in all components' rows and in all runs: their deviations add up. Those of different methods are
independent: they are added in quadrature. Either side of an interval stands for itself, as a model's errors are not
symmetric. ``docs/uncertainty.md`` says how well this holds.

Not in it: the errors of the carbon intensity, of a price and of the PUE, which are taken as given.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from greenlove_tracker.forecasting import Estimate, Kind
from greenlove_tracker.records import COMPONENTS, RunSummary
from greenlove_tracker.tables.reading import rows

if TYPE_CHECKING:
    from greenlove_tracker.logs.run import Run

TABLE = "measurement_errors.csv"
LEVEL = 0.95
QUANTITIES = {"energy_kwh": "kWh", "emissions_kgco2e": "kgCO2e", "cost_usd": "USD"}

Deviation = tuple[float, float]  # of the truth from a figure, below and above it, in the figure's unit, both positive
Deviations = Mapping[str, Deviation]  # by the name of an error: those of one name add up, others in quadrature


@dataclass(frozen=True, slots=True)
class MeasurementError:
    """The error of a method.

    Attributes:
        component: that is metered; or ``unmetered``, ``node`` or ``host``.
        method: as a log calls it.
        gpus: parts of the names of the GPUs that it holds for; nothing: for all others.
        lower: the least that the true energy may be, in the figure, at ``LEVEL``.
        upper: likewise the most.
        after_1_s: half the width of an error besides that comes from reading now and then, for a run of one second;
            it falls with the square root of the time.
        basis: ``published``, ``computed`` or ``assumed``.
        source: of the figures.
    """

    component: str
    method: str
    gpus: tuple[str, ...]
    lower: float
    upper: float
    after_1_s: float
    basis: str
    source: str

    @property
    def name(self) -> str:
        """The name by which its deviations add up: the sensors of all GPUs are of one maker."""
        return f"{self.component} {self.method}"

    def deviation(self, energy_kwh: float, duration_s: float) -> Deviation:
        """Return how far an energy of so long a time may be off, in kWh."""
        sampling = self.after_1_s / math.sqrt(duration_s) if self.after_1_s and duration_s > 0 else 0.0
        below = min(1.0, math.hypot(1 - self.lower, sampling))
        return energy_kwh * below, energy_kwh * math.hypot(self.upper - 1, sampling)


@cache
def measurement_errors() -> tuple[MeasurementError, ...]:
    """Return the shipped table; an error of some GPUs stands before that of all."""
    found = [
        MeasurementError(
            component=row["component"],
            method=row["method"],
            gpus=tuple(filter(None, row["gpus"].lower().split("|"))),
            lower=float(row["lower"]),
            upper=float(row["upper"]),
            after_1_s=float(row["after_1_s"]),
            basis=row["basis"],
            source=row["source"],
        )
        for row in rows(TABLE)
    ]
    return tuple(sorted(found, key=lambda error: not error.gpus))


@lru_cache(maxsize=1024)
def error_of(component: str, methods: str, gpu_models: str = "") -> MeasurementError | None:
    """Return the error of a method; None where the table has none.

    Args:
        component: ``cpu``, ``gpu`` or ``ram``, or one of the others that the table has.
        methods: one, or several joined by ``+``, of which nobody knows how much each metered: the widest counts.
        gpu_models: the names of the GPUs, as a run logs them.
    """
    models, found = gpu_models.lower(), []
    for method in methods.split("+"):
        of_method = [error for error in measurement_errors() if (error.component, error.method) == (component, method)]
        fitting = [error for error in of_method if not error.gpus or any(part in models for part in error.gpus)]
        if not fitting:
            return None
        found.append(fitting[0])
    return max(found, key=lambda error: error.upper - error.lower)


def errors_of(run: Run) -> tuple[MeasurementError, ...] | None:
    """Return the errors that the energy of a run has; None where it is unknown, or an error is."""
    found = _parts(run, run.summary)
    return None if found is None else tuple(error for error, _ in found)


def energy_deviations(run: Run, summary: RunSummary) -> Deviations | None:
    """Return how far the energy of a run may be off, in kWh with PUE, by the name of each error.

    Args:
        run: whose hardware and calibration count.
        summary: its totals, or those of a part of it.

    Returns:
        None where the energy is unknown, or the error of one of its methods is.
    """
    if run.calibration is not None and summary.energy_kwh is not None:
        share = run.calibration.error_share
        return {f"calibration of {run.calibration.host}": (summary.energy_kwh * share, summary.energy_kwh * share)}
    parts, duration_s = _parts(run, summary), run.summary.duration_s
    return None if parts is None else {e.name: e.deviation(kwh * summary.pue, duration_s) for e, kwh in parts}


def _parts(run: Run, summary: RunSummary) -> list[tuple[MeasurementError, float]] | None:
    """Return each error with the energy, before PUE, that it is of; None where one is not known."""
    energy, gpu_models = summary.energy, run.text("gpu_models")
    found = [(error_of(c, energy.component_method(c) or "", gpu_models), energy.component_kwh(c)) for c in COMPONENTS]
    found.append((error_of("unmetered", "estimate"), summary.unmetered_estimate_kwh))
    found.append((error_of("node", "assumed"), summary.node_assumed_kwh))
    known = [(error, kwh) for error, kwh in found if error and kwh]
    is_known = summary.energy_kwh is not None and len(known) == sum(bool(kwh) for _, kwh in found)
    return known if is_known else None


def run_deviations(run: Run, summary: RunSummary) -> Mapping[str, tuple[float, ...]] | None:
    """Return the deviations of energy, CO2e and cost, below and above each, by the name of each error.

    CO2e and a cost of electricity follow the energy. The price of a machine hangs on its time, which is known.

    Args:
        run: whose hardware, factors and calibration count.
        summary: its totals, or those of a part of it.

    Returns:
        Twice as many numbers as ``QUANTITIES``, in their order; zeros for one that is unknown, or has no error. None
        where the energy is unknown, or an error of it is.
    """
    of_energy = energy_deviations(run, summary)
    if of_energy is None or not summary.energy_kwh:
        return None if of_energy is None else {}
    emissions = summary.emissions_kgco2e if run.knows_carbon_intensity else None
    cost_usd = summary.cost_usd if summary.cost_basis == "electricity" else None
    per_kwh = [(value or 0.0) / summary.energy_kwh for value in (summary.energy_kwh, emissions, cost_usd)]
    return {
        name: tuple(abs(factor) * kwh for factor in per_kwh for kwh in (sides if factor >= 0 else sides[::-1]))
        for name, sides in of_energy.items()
    }


def interval(point: float, unit: str, deviations: Iterable[Deviation]) -> Estimate:
    """Return a figure with its interval: deviations of different errors in quadrature, each side for itself."""
    below, above = zip(*deviations, strict=True)
    return Estimate(point, point - math.hypot(*below), point + math.hypot(*above), LEVEL, unit, Kind.MEASUREMENT)


def run_interval(run: Run, quantity: str = "energy_kwh") -> Estimate | None:
    """Return a total of a finished run with its interval.

    Args:
        run: the run.
        quantity: one of ``QUANTITIES``.

    Returns:
        None where it is not known, or its error is not; and for a cost of time, which has none.
    """
    at = 2 * list(QUANTITIES).index(quantity)
    sides = [(each[at], each[at + 1]) for each in (run_deviations(run, run.summary) or {}).values()]
    return interval(getattr(run.summary, quantity), QUANTITIES[quantity], sides) if any(map(any, sides)) else None
