"""Numbers over epochs and over time, for charts: from the rows of one node, thinned to what a page can show."""

from __future__ import annotations

from collections.abc import Sequence

from greenlove_tracker.logs.judged import mean_w, metered_rows, stretches
from greenlove_tracker.logs.parser import Run
from greenlove_tracker.records import COMPONENTS
from greenlove_tracker.units import gco2e_from_kwh, kwh_from_w_s, w_from_kwh_s

MAX_POINTS = 500
Points = tuple[tuple[float, float], ...]


def thinned(points: Sequence[tuple[float, float]], limit: int = MAX_POINTS) -> Points:
    """At most ``limit`` points: of each stretch its lowest and its highest, so that no spike is lost."""
    if len(points) <= limit:
        return tuple(points)
    inner = points[1:-1]
    n_buckets = (limit - 2) // 2
    kept = [points[0]]
    for i in range(n_buckets):
        bucket = inner[i * len(inner) // n_buckets : (i + 1) * len(inner) // n_buckets]
        kept += sorted({min(bucket, key=lambda p: p[1]), max(bucket, key=lambda p: p[1])})
    return (*kept, points[-1])


def duration_by_epoch_s(run: Run) -> Points:
    """(epoch, duration in s) of the finished epochs of the first rank."""
    return tuple((float(e.epoch), e.duration_s) for e in run.epochs if e.is_complete)


def energy_by_epoch_kwh(run: Run) -> Points:
    """(epoch, energy in kWh before PUE) of the finished epochs that were metered throughout."""
    energies = ((epoch.epoch, epoch.energy.total_kwh) for epoch in run.epochs if epoch.is_complete)
    return tuple((float(number), kwh) for number, kwh in energies if kwh is not None)


def power_by_epoch_w(run: Run) -> Points:
    """(epoch, mean power in W before PUE) of the finished epochs that were metered throughout."""
    durations_s = {float(epoch.epoch): epoch.duration_s for epoch in run.epochs}
    powers = ((number, w_from_kwh_s(kwh, durations_s[number])) for number, kwh in energy_by_epoch_kwh(run))
    return tuple((number, power_w) for number, power_w in powers if power_w is not None)


def cumulative_emissions_gco2e(run: Run) -> Points:
    """(elapsed s, gCO2e so far, PUE included); what was not metered counts at the mean power, as in the total."""
    rows = metered_rows(run)
    means_w = {c: power_w for c in COMPONENTS if (power_w := mean_w(rows, c)) is not None}
    if not means_w or not run.carbon_intensity.unit:
        return ()
    elapsed_s, so_far_kwh = 0.0, 0.0
    points = [(0.0, 0.0)]
    for duration_s, energy in stretches(rows):
        if duration_s <= 0:
            continue
        elapsed_s += duration_s
        for component, power_w in means_w.items():
            known_kwh = energy.component_kwh(component)
            so_far_kwh += kwh_from_w_s(power_w, duration_s) if known_kwh is None else known_kwh
        points.append((elapsed_s, gco2e_from_kwh(so_far_kwh * run.summary.pue, run.carbon_intensity.value)))
    return tuple(points)
