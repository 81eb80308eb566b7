"""Energy: the line through the trials' energies where they are long enough, else their mean power times the time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from greenlove_tracker import forecasting
from greenlove_tracker.extrapolation.diagnostics import curvature
from greenlove_tracker.extrapolation.draws import Array, above_zero, estimate_about
from greenlove_tracker.extrapolation.preprocess import Observations
from greenlove_tracker.extrapolation.regression import fit_line
from greenlove_tracker.forecasting import Estimate, ForecastWarning, TrainingPlan, Trial, WarningCode
from greenlove_tracker.units import kwh_from_w_s, w_from_kwh_s

_LEAST_TRIALS = 3
# Of the prior of energy's scatter: an assumption, above that of time, since power varies as well.
_SCATTER = 0.025
# An assumption: half the interval of a mean power that was measured for too short, or once; it may be a ramp's.
_UNKNOWN_POWER = 0.25


@dataclass(frozen=True, slots=True)
class DurationParts:
    """The forecast of time that energy follows, in s; arrays are draws behind their point.

    Attributes:
        epochs: of all epochs.
        overhead: of all beside them: the one-off time, evaluations and checkpoints.
        total: of both.
        work: what a unit of the plan's phases costs on average, in one that was timed.
        m: batches, or tokens, of an epoch.
    """

    epochs: Array
    overhead: Array
    total: Estimate
    work: Array
    m: float


def forecast_energy(
    trials: Sequence[Trial], observations: Observations, plan: TrainingPlan, duration: DurationParts
) -> tuple[Estimate | None, list[ForecastWarning]]:
    """Return the energy in kWh of the whole plan: by a line like the time's, else time at the trials' mean power.

    A trial's energy is of all its epochs, the cold ones too: an epoch has the trial's mean power over the mean time of
    a steady one. Where power grows with the size, as where each epoch has an idle part, power times time is biased and
    this is not. A line needs three trials of 5 s on two sizes. The overhead draws the mean power of the epochs.

    Returns:
        None where no trial measured energy, and what makes it doubtful.
    """
    rows = [i for i, t in enumerate(trials) if t.energy_kwh is not None and t.total_s >= forecasting.LEAST_ENERGY_S]
    m = observations.m[rows]
    if len(rows) < _LEAST_TRIALS or len(np.unique(m)) < 2:
        return energy_at_mean_power(trials, duration.total)
    each_kwh = [(trials[i].energy_kwh or 0.0) / trials[i].total_s * observations.mean_s[i] for i in rows]
    line = fit_line(m, np.array(each_kwh), observations.mean_variance, _SCATTER)
    warnings = []
    if bend := curvature(m, np.array(each_kwh)):
        message = f"energy is not linear in size (p = {bend[0]:.2g}); it goes about as n^{bend[1]:.2f}"
        warnings.append(WarningCode.ENERGY.warning(message, "explore larger samples"))
    epochs_kwh = line.total(plan, duration.m) * duration.work
    total_kwh = epochs_kwh + duration.overhead * epochs_kwh[0] / duration.epochs[0]
    return estimate_about(total_kwh, duration.total.level, "kWh"), warnings


def energy_at_mean_power(trials: Sequence[Trial], duration: Estimate) -> tuple[Estimate | None, list[ForecastWarning]]:
    """Return the energy of the forecast time at the trials' mean power.

    The interval multiplies that of the time with the scatter of power between trials (Student's t for a new run, on a
    relative scale), the two taken as independent. Where power was measured for under 5 s or in one trial only, its
    half-width is taken to be at least 25%.

    Returns:
        None where no trial measured energy, and what makes it doubtful.
    """
    measured = [t for t in trials if t.energy_kwh is not None]
    if not measured:
        return None, []
    total_s = math.fsum(t.total_s for t in measured)
    mean_w = w_from_kwh_s(math.fsum(t.energy_kwh or 0.0 for t in measured), total_s) or 0.0
    warnings = []
    powers_w = np.array([w_from_kwh_s(t.energy_kwh or 0.0, t.total_s) or 0.0 for t in measured])
    relative_power = 0.0
    if len(powers_w) > 1:
        spread = float(powers_w.std(ddof=1)) / mean_w
        quantile = float(stats.t.ppf((1 + duration.level) / 2, len(powers_w) - 1))
        relative_power = quantile * spread * math.sqrt(1 + 1 / len(powers_w))
    if len(powers_w) == 1 or total_s < forecasting.LEAST_ENERGY_S:
        relative_power = max(relative_power, _UNKNOWN_POWER)
        measured_for = f"{total_s:.2g} s in {len(powers_w)} trial{'s' * (len(powers_w) > 1)}"
        message = f"energy was measured for {measured_for}: ±{_UNKNOWN_POWER:.0%} of its power is assumed"
        warnings.append(WarningCode.ENERGY.warning(message, "several trials of 5 s in all would show it"))
    point = kwh_from_w_s(mean_w, duration.point)

    def end(bound_s: float, sign: int) -> float:
        relative_time = bound_s / duration.point - 1.0
        return point * (1.0 + sign * math.hypot(relative_time, relative_power))

    upper = end(duration.upper, +1)
    lower = above_zero(max(0.0, end(duration.lower, -1)), point, upper)
    return Estimate(point, lower, upper, duration.level, "kWh", duration.kind), warnings
