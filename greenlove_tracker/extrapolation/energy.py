"""Energy from time: the mean power of the trials that measured it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from greenlove_tracker.forecasting import Estimate, Trial, Warn
from greenlove_tracker.units import kwh_from_w_s, w_from_kwh_s

# Energy counters refresh about every 100 ms: under 5 s in all a mean power is noise (CodeCarbon's notes, NVML).
_LEAST_S = 5.0


def forecast_energy(trials: Sequence[Trial], duration: Estimate) -> tuple[Estimate | None, list[Warn]]:
    """The energy of the forecast time at the trials' mean power.

    The interval multiplies that of the time with the scatter of power between trials (Student's t for a new run, on a
    relative scale), the two taken as independent.

    Returns:
        None where no trial measured energy, and what makes it doubtful.
    """
    measured = [t for t in trials if t.energy_kwh is not None]
    if not measured:
        return None, []
    total_s = math.fsum(t.total_s for t in measured)
    mean_w = w_from_kwh_s(math.fsum(t.energy_kwh or 0.0 for t in measured), total_s) or 0.0
    warnings = []
    if total_s < _LEAST_S:
        warnings.append(Warn("ENERGY", f"{total_s:.2g} s of measured energy is noise", "5 s and more would do"))
    powers_w = np.array([w_from_kwh_s(t.energy_kwh or 0.0, t.total_s) or 0.0 for t in measured])
    relative_power = 0.0
    if len(powers_w) > 1:
        spread = float(powers_w.std(ddof=1)) / mean_w
        quantile = float(stats.t.ppf((1 + duration.level) / 2, len(powers_w) - 1))
        relative_power = quantile * spread * math.sqrt(1 + 1 / len(powers_w))
    elif len(powers_w) == 1:
        warnings.append(Warn("ENERGY", "one trial measured energy: how power varies is not known", "measure more"))
    point = kwh_from_w_s(mean_w, duration.point)

    def end(bound_s: float, sign: int) -> float:
        relative_time = bound_s / duration.point - 1.0
        return point * (1.0 + sign * math.hypot(relative_time, relative_power))

    lower, upper = max(0.0, end(duration.lower, -1)), end(duration.upper, +1)
    return Estimate(point, lower, upper, duration.level, "kWh", duration.kind), warnings
