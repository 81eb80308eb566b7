"""Waiting before a training until the grid is clean enough."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from greenlove_tracker.errors import UsageError
from greenlove_tracker.grid.live.fallback import IntensityFallbacks
from greenlove_tracker.grid.live.intensity import IntensityProvider, PointKind
from greenlove_tracker.scheduling.intensity_source import opened_intensity
from greenlove_tracker.scheduling.times import parse_span_s
from greenlove_tracker.scheduling.wait_loop import (
    NextStart,
    Outlook,
    Wait,
    WaitClocks,
    WaitReason,
    WaitResult,
    latest_point,
)

UNKNOWN_INTENSITY = "the carbon intensity is not known"


def below_threshold(threshold_gco2e_per_kwh: float, opened: Callable[[], IntensityFallbacks]) -> NextStart:
    """Begin when the intensity is at or below a threshold.

    A table has one figure for all hours, and nothing is to be waited for where nobody else answers from the first. A
    service that has answered once is asked again and again.

    Args:
        threshold_gco2e_per_kwh: in gCO2e/kWh.
        opened: what answers, opened anew each time: a file may have grown.
    """

    def next_start(now: datetime, before: Outlook | None) -> Outlook:
        answer = opened().now()
        point, failures = answer.point, "; ".join(answer.failures)
        if before is not None and latest_point(before, answer) is not point:
            return replace(before, problem=failures)
        is_table = point.kind == PointKind.TABLE
        by = f"by {point.source}, a year's average" if is_table else f"by {point.source}"
        by += f" ({failures})" if is_table and failures else ""
        value, threshold = f"{point.gco2e_per_kwh:.0f} gCO2e/kWh {by}", f"the threshold of {threshold_gco2e_per_kwh:g}"
        if point.gco2e_per_kwh <= threshold_gco2e_per_kwh:
            reason, why = WaitReason.BELOW_THRESHOLD, f"{value}, is at or below {threshold}"
        elif is_table:
            why = f"{value}, is above {threshold} at all hours, so waiting would gain nothing"
            reason = WaitReason.NO_PROVIDER
        else:
            return Outlook(point, problem=failures)
        return Outlook(point, now=reason, explanation=why, problem=failures)

    return next_start


def checked_threshold(threshold_gco2e_per_kwh: float) -> float:
    """Return a threshold in gCO2e/kWh.

    Raises:
        UsageError: where it is none.
    """
    if not (isinstance(threshold_gco2e_per_kwh, int | float) and 0 < threshold_gco2e_per_kwh < math.inf):
        raise UsageError(
            f"{{argument}} is a carbon intensity in gCO2e/kWh, such as 200, not {threshold_gco2e_per_kwh!r}",
            argument="threshold_gco2e_per_kwh",
        )
    return float(threshold_gco2e_per_kwh)


def checked_span_s(span: str | timedelta, argument: str) -> float:
    """Return a length of time in s.

    Raises:
        UsageError: where it is none.
    """
    if isinstance(span, timedelta) and span >= timedelta(0):
        return span.total_seconds()
    try:
        return parse_span_s(str(span))
    except UsageError as error:
        raise UsageError(f"{{argument}}: {error}", argument=argument) from error


def wait_for_low_carbon(
    threshold_gco2e_per_kwh: float,
    max_wait: str | timedelta = "6h",
    *,
    intensity: str | Path | IntensityFallbacks | IntensityProvider = "live",
    country: str | None = None,
    quiet: bool = False,
    clocks: WaitClocks | None = None,
) -> WaitResult:
    """Wait until the grid's carbon intensity is at or below a threshold, or a maximum wait is over.

    It returns at once where no service tells the hours of this place apart: the offline tables have one figure for
    all hours. A service that fails later is asked again each five minutes. A run that begins within an hour of its
    end has the wait in its log.

    Args:
        threshold_gco2e_per_kwh: in gCO2e/kWh.
        max_wait: such as ``6h``, ``90m`` or a ``timedelta``; never exceeded, but by the time that the machine is
            suspended and up to 30 s after it.
        intensity: a name such as ``live`` (the services that know the place), ``eia``, ``neso`` or ``mock``, a CSV file
            (``utc,gco2e_per_kwh``), or a provider; an average one.
        country: where this runs; default: the setting ``country``.
        quiet: say nothing on standard error.
        clocks: of the machine; other ones in tests.

    Raises:
        UsageError: for an argument that cannot be meant.
    """
    threshold = checked_threshold(threshold_gco2e_per_kwh)
    max_wait_s = checked_span_s(max_wait, "max_wait")
    opened_intensity(intensity, country)  # what cannot be meant is said now
    return Wait(
        below_threshold(threshold, lambda: opened_intensity(intensity, country)),
        f"until the grid is at or below {threshold:g} gCO2e/kWh",
        (WaitReason.START_TIME, "the time has come"),
        unanswered=UNKNOWN_INTENSITY,
        max_wait_s=max_wait_s,
        clocks=clocks,
        quiet=quiet,
    ).hold()
