"""Intervals across machines, the gain of several GPUs, and the share of their power that GPUs draw."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from greenlove_tracker.forecasting import Estimate, Forecast, Kind
from greenlove_tracker.units import w_from_kwh_s

LEVEL = 0.90  # of every interval of a projection
# 8 × H100 (700 W each) fine-tuning drew 6.74 kW as a node on average, measured: 6740 / 5600. It was measured on busy
# GPUs, so where they draw less the host is taken to draw less in proportion.
HOST_OVERHEAD = 1.2
_STATED_GPUS = 8  # the number of GPUs that the scaling efficiency is stated for
# An assumption: forward, backward and optimizer of a small model are some tens to hundreds of kernels, each of which
# PyTorch takes a few µs to launch, however fast the GPU is.
LAUNCH_S = 0.3e-3


@dataclass(frozen=True, slots=True)
class PowerDraw:
    """The share of their power limit that the GPUs draw, and how it is known."""

    share: float
    basis: str
    warning: str = ""


def at_level(estimate: Estimate, level: float = LEVEL) -> Estimate:
    """Return the same at another level: each side of the interval is read as half a normal distribution."""
    if estimate.level == level:
        return estimate
    normal = NormalDist()
    ratio = normal.inv_cdf((1 + level) / 2) / normal.inv_cdf((1 + estimate.level) / 2)
    lower = max(0.0, estimate.point - (estimate.point - estimate.lower) * ratio)
    upper = estimate.point + (estimate.upper - estimate.point) * ratio
    return Estimate(estimate.point, lower, upper, level, estimate.unit, estimate.kind)


def projected_duration(duration_s: Estimate, speedup: Estimate, gain: float) -> Estimate:
    """Return the time on another machine: the local time / (speedup of one GPU × gain of their number).

    The 90% range adds the relative errors of the forecast and of the speedup in quadrature on the log scale, side by
    side (a small speedup makes a long time): as of independent log-normal errors. It is an assumption, since the
    speedup's is. ``gain`` has no error of its own.
    """
    local, speed = at_level(duration_s), at_level(speedup)
    point = local.point / (speed.point * gain)
    longer = math.hypot(_log_ratio(local.upper, local.point), _log_ratio(speed.point, speed.lower))
    shorter = math.hypot(_log_ratio(local.point, local.lower), _log_ratio(speed.upper, speed.point))
    ends = (point * math.exp(-shorter), point * math.exp(longer))
    return Estimate(point, *ends, LEVEL, duration_s.unit, Kind.ASSUMPTION)


def at_least(duration_s: Estimate, least_s: float) -> Estimate:
    """Return the same, nowhere under ``least_s``; a raised point takes the upper end along, and is no surer for it."""
    point, longer = max(duration_s.point, least_s), duration_s.upper / duration_s.point
    lower = max(duration_s.lower, least_s)
    return Estimate(point, lower, point * longer, duration_s.level, duration_s.unit, duration_s.kind)


def _log_ratio(high: float, low: float) -> float:
    return math.log(high / low) if low > 0 else math.inf


def scaling_gain(n_from: int, n_to: int, scaling: float) -> float:
    """Return how much faster ``n_to`` GPUs are than ``n_from`` of the same kind.

    The power law of the numbers at which eight GPUs do 8 × ``scaling`` times what one does: (to / from) ** (1 + log₈
    scaling). So as many GPUs as here gain nothing and lose nothing, two are 95% efficient at the default of 85%.
    """
    return float((n_to / n_from) ** (1 + math.log(scaling, _STATED_GPUS)))


def power_draw(
    forecast: Forecast, tdp_w: float | None, n_gpus: int, measured: float | None, manual: float | None, pue: float
) -> PowerDraw | None:
    """Return the draw of the local GPUs, which others are assumed to have as well; None where nothing tells it.

    Args:
        forecast: its energy tells the draw where nothing else does.
        tdp_w: power limit of one local GPU.
        n_gpus: local GPUs.
        measured: draw against the enforced limit.
        manual: the same by the user's word.
        pue: of the local site, which the forecast's energy includes.
    """
    if measured is not None:
        return PowerDraw(measured, "draw seen here")
    if manual is not None:
        return PowerDraw(manual, "draw given by the user")
    energy = forecast.energy_kwh
    if energy is None or tdp_w is None:
        return None
    power_w = w_from_kwh_s(energy.point, forecast.duration_s.point)
    if not power_w:
        return None
    share = power_w / (n_gpus * tdp_w * HOST_OVERHEAD * pue)
    model = f"{n_gpus} × {tdp_w:.0f} W × {HOST_OVERHEAD} host × PUE {pue}"
    basis = f"draw, from this machine's {power_w:.0f} W over {model}"
    if share <= 1:
        return PowerDraw(share, basis)
    return PowerDraw(1.0, basis, f"this machine draws {share:.1f} times what its GPUs may: counted as their full power")
