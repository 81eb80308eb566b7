"""The error of each method of metering, with its source, as ``data/measurement_errors.csv`` has it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, lru_cache

from greenlove_tracker.tables.reading import record, rows

TABLE = "measurement_errors.csv"
LEVEL = 0.95

Deviation = tuple[float, float]  # of the truth from a figure, below and above it, in the figure's unit, both positive


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
        if self.after_1_s and duration_s > 0:
            sampling = self.after_1_s / math.sqrt(duration_s)
        else:
            sampling = 0.0
        least = 1 / (1 + math.hypot(1 / self.lower - 1, sampling))
        return energy_kwh * (1 - least), energy_kwh * math.hypot(self.upper - 1, sampling)


@cache
def measurement_errors() -> tuple[MeasurementError, ...]:
    """Return the shipped table; an error of some GPUs stands before that of all."""
    return tuple(sorted((record(MeasurementError, row) for row in rows(TABLE)), key=lambda error: not error.gpus))


@lru_cache(maxsize=1024)
def error_of(component: str, methods: str, gpu_models: str = "") -> MeasurementError | None:
    """Return the error of a method; None where the table has none.

    Args:
        component: ``cpu``, ``gpu`` or ``ram``, or one of the others that the table has.
        methods: one, or several joined by ``+``, of which nobody knows how much each metered: the widest counts.
        gpu_models: the names of the GPUs, as a run logs them.
    """
    models = gpu_models.lower()
    found = []
    for method in methods.split("+"):
        of_method = [error for error in measurement_errors() if error.name == f"{component} {method}"]
        fitting = [error for error in of_method if not error.gpus or any(part.lower() in models for part in error.gpus)]
        if not fitting:
            return None
        found.append(fitting[0])
    return max(found, key=lambda error: error.upper - error.lower)
