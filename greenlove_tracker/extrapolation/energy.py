"""Energy: the line through the trials' energies where they are long enough, else their mean power times the time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from greenlove_tracker import forecasting
from greenlove_tracker.extrapolation.diagnostics import curvature
from greenlove_tracker.extrapolation.distributions import Mixture
from greenlove_tracker.extrapolation.draws import above_zero
from greenlove_tracker.extrapolation.preprocess import Observations
from greenlove_tracker.extrapolation.regression import fit_line, total_of
from greenlove_tracker.forecasting import Estimate, ForecastWarning, Kind, TrainingPlan, Trial, WarningCode
from greenlove_tracker.units import kwh_from_w_s, w_from_kwh_s

_LEAST_TRIALS = 3
# Scale of the prior of energy's run-to-run variation: an assumption, above that of time, since power varies as well.
_TAU_SCALE = 0.05
# An assumption: half the interval of a mean power that was measured for too short, or once; it may be a ramp's.
_UNKNOWN_POWER = 0.25


@dataclass(frozen=True, slots=True)
class DurationParts:
    """The forecast of time that energy follows, in s.

    Attributes:
        epochs: of all epochs.
        overhead: of all beside them: the one-off time, evaluations and checkpoints.
        total: of both.
        work: what a unit of the plan's phases costs on average, in one that was timed; None without phases.
    """

    epochs: Mixture
    overhead: Mixture
    total: Estimate
    work: Mixture | None = None


def forecast_energy(
    trials: Sequence[Trial], observations: Observations, plan: TrainingPlan, duration: DurationParts
) -> tuple[Estimate | None, list[ForecastWarning]]:
    """Return the energy of the whole plan: fitted where the trials allow it, else time at their mean power.

    Beside a fit, the overhead draws the mean power that is forecast for the epochs.

    Returns:
        None where no trial measured energy, and what makes it doubtful.
    """
    epochs_kwh, warnings = energy_of_epochs(trials, observations, plan, is_by_work=duration.work is not None)
    if epochs_kwh is None:
        return energy_at_mean_power(trials, duration.total)
    if duration.work is not None:
        epochs_kwh = epochs_kwh.scaled_by(duration.work)
    kwh_per_s = epochs_kwh.quantile(0.5) / duration.epochs.quantile(0.5)
    total_kwh = epochs_kwh.plus(duration.overhead.times(kwh_per_s))
    return total_kwh.estimate(duration.total.level, "kWh", Kind.PREDICTION), warnings


def energy_of_epochs(
    trials: Sequence[Trial], observations: Observations, plan: TrainingPlan, *, is_by_work: bool = False
) -> tuple[Mixture | None, list[ForecastWarning]]:
    """Return the energy in kWh of all the plan's epochs, by a line like the time's, through the energy of an epoch.

    A trial's energy is of all its epochs, the cold ones too: an epoch has the trial's mean power over the mean time of
    a steady one. That is the same as taking off the cold epochs' excess at mean power. Where power grows with the
    size, as where each epoch has an idle part, power times time is biased and this is not. The one energy of
    a trial does not show the noise within it: that is taken to be the time's, and power's own is run-to-run variation.

    Returns:
        None where fewer than three trials of 5 s, or only one size, measured energy; and what makes it doubtful.
    """
    rows = [i for i, t in enumerate(trials) if t.energy_kwh is not None and t.total_s >= forecasting.LEAST_ENERGY_S]
    m = observations.m[rows]
    if len(rows) < _LEAST_TRIALS or len(np.unique(m)) < 2:
        return None, []
    epoch_kwh = [(trials[i].energy_kwh or 0.0) / trials[i].total_s * observations.mean_s[i] for i in rows]
    per_epoch_kwh = np.array(epoch_kwh)
    line = fit_line(m, per_epoch_kwh, observations.variance_of_means[rows], _TAU_SCALE)
    bend = curvature(m, per_epoch_kwh)
    warnings = []
    if bend.is_curved:
        message = f"energy is not linear in size (p = {bend.p_value:.2g}); it goes about as n^{bend.exponent:.2f}"
        warnings.append(WarningCode.ENERGY.warning(message, "explore larger samples"))
    future_m = observations.epoch_of(plan) if is_by_work else observations.mean_epoch_of(plan)
    return total_of(line, observations.noise, plan, future_m), warnings


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
