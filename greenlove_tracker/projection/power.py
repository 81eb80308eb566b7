"""What GPUs draw of their power limit, and what a node draws besides."""

from __future__ import annotations

from dataclasses import dataclass

from greenlove_tracker.forecasting import Forecast
from greenlove_tracker.units import w_from_kwh_s

# 8 × H100 (700 W each) fine-tuning drew 6.74 kW as a node on average, measured: 6740 / 5600. It was measured on busy
# GPUs, so where they draw less the host is taken to draw less in proportion.
HOST_OVERHEAD = 1.2


@dataclass(frozen=True, slots=True)
class PowerDraw:
    """The share of their power limit that the GPUs draw, and how it is known."""

    share: float
    basis: str
    warning: str = ""


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
