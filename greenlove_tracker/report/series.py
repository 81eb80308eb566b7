"""Numbers over epochs and over time, for charts: from the rows of one node, thinned to what a page can show."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from greenlove_tracker.logs.parser import Run
from greenlove_tracker.records import COMPONENTS, Energy, Flag, Row
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
    """(epoch, energy in kWh before PUE) of the epochs that were metered throughout."""
    energies = ((epoch.epoch, epoch.energy.total_kwh) for epoch in run.epochs)
    return tuple((float(number), kwh) for number, kwh in energies if kwh is not None)


def power_by_epoch_w(run: Run) -> Points:
    """(epoch, mean power in W before PUE) of the epochs that were metered throughout."""
    durations_s = {float(epoch.epoch): epoch.duration_s for epoch in run.epochs}
    powers = ((number, w_from_kwh_s(kwh, durations_s[number])) for number, kwh in energy_by_epoch_kwh(run))
    return tuple((number, power_w) for number, power_w in powers if power_w is not None)


def metered_rows(run: Run) -> Sequence[Row]:
    """The rows of the first stream that carries a meter: the command's, or of the first rank that has one."""
    if run.command_rows is not None:
        return run.command_rows
    return next((rows for rows in run.rows.values() if not all(Flag.NO_METER in row.flags for row in rows)), ())


def _stretches(rows: Sequence[Row]) -> Iterator[tuple[float, Energy]]:
    for row in rows:
        yield row.gap_before_s, row.gap_before
        yield row.duration_s, row.energy


def _mean_w(rows: Sequence[Row], component: str) -> float | None:
    known = [(s, kwh) for s, energy in _stretches(rows) if (kwh := energy.component_kwh(component)) is not None]
    return w_from_kwh_s(math.fsum(kwh for _, kwh in known), math.fsum(s for s, _ in known))


def gpu_mean_w(run: Run) -> float | None:
    """The mean power of all GPUs together while they were metered; None where they were not."""
    streams = [run.command_rows] if run.command_rows is not None else run.rows.values()
    means = [mean_w for rows in streams if (mean_w := _mean_w(rows, "gpu")) is not None]
    return math.fsum(means) if means else None


def cumulative_emissions_gco2e(run: Run) -> Points:
    """(elapsed s, gCO2e so far, PUE included); what was not metered counts at the mean power, as in the total."""
    rows = metered_rows(run)
    means_w = {c: mean_w for c in COMPONENTS if (mean_w := _mean_w(rows, c)) is not None}
    if not means_w or not run.carbon_intensity.unit:
        return ()
    elapsed_s, so_far_kwh = 0.0, 0.0
    points = [(0.0, 0.0)]
    for duration_s, energy in _stretches(rows):
        if duration_s <= 0:
            continue
        elapsed_s += duration_s
        for component, mean_w in means_w.items():
            known_kwh = energy.component_kwh(component)
            so_far_kwh += kwh_from_w_s(mean_w, duration_s) if known_kwh is None else known_kwh
        points.append((elapsed_s, gco2e_from_kwh(so_far_kwh * run.summary.pue, run.carbon_intensity.value)))
    return tuple(points)
