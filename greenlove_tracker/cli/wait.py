"""``wait``: a command that starts when the grid is clean enough."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from greenlove_tracker import format as fmt
from greenlove_tracker.cli.base import cli
from greenlove_tracker.cli.processes import become, check_command, nothing_started_yet
from greenlove_tracker.config import load_settings

if TYPE_CHECKING:
    from greenlove_tracker.grid.live.fallback import IntensityFallbacks

_LOOK_AHEAD_H = 48.0


@cli.command(
    options={"threshold_gco2e_per_kwh": "--threshold"},
    short_help="Start a command when the grid is clean enough.",
    context_settings={"allow_interspersed_args": False},
)
@click.option(
    "--threshold",
    "threshold_gco2e_per_kwh",
    type=float,
    required=True,
    metavar="G",
    help="start when the carbon intensity is at or below it, in gCO2e/kWh",
)
@click.option(
    "--max-wait", default="6h", show_default=True, metavar="SPAN", help="start anyway after this long: 6h, 90m, 2d"
)
@click.option(
    "--intensity",
    metavar="FILE|NAME",
    help="CSV file (utc,gco2e_per_kwh) or service: neso, eia, energy_charts, mock, …; default: the setting, else live",
)
@click.option("--country", help="where this runs: DE, US-CA, a zone such as CISO; default: the setting")
@click.option("--quiet", is_flag=True, help="print only errors")
@click.option("--dry-run", is_flag=True, help="show what it would do now, and start nothing")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
def wait(
    threshold_gco2e_per_kwh: float,
    max_wait: str,
    intensity: str | None,
    country: str | None,
    quiet: bool,
    dry_run: bool,
    command: tuple[str, ...],
) -> None:
    """Start a command when the carbon intensity of the grid is at or below a threshold.

    \b
    greenlove wait --threshold 200 --max-wait 6h --country GB -- python train.py
    greenlove wait --threshold 200 --intensity hours.csv -- greenlove run train.py

    The command replaces this process, so its exit code and signals are its own. Without a command it only waits. It
    starts at once where no hourly intensity is known, as without a network.
    """  # noqa: D301  # click wants the backspace itself
    from greenlove_tracker.scheduling.waiting import (
        average_intensity,
        checked_span_s,
        checked_threshold,
        wait_for_low_carbon,
    )

    threshold = checked_threshold(threshold_gco2e_per_kwh)
    max_wait_s = checked_span_s(max_wait, "max_wait")
    check_command(command)
    intensity = intensity or load_settings().intensity or "live"
    source = average_intensity(intensity, country)
    if dry_run:
        click.echo(_dry_run_text(source, threshold, max_wait_s, command))
        return
    with nothing_started_yet(quiet=quiet):
        wait_for_low_carbon(threshold, max_wait, intensity=intensity, country=country, quiet=quiet)
    if command:
        become(command)


def _dry_run_text(
    source: IntensityFallbacks, threshold_gco2e_per_kwh: float, max_wait_s: float, command: Sequence[str]
) -> str:
    """Return what a wait would do that began now."""
    from greenlove_tracker.grid.live.intensity import IntensityUnavailable
    from greenlove_tracker.scheduling.wait_loop import KnownIntensity
    from greenlove_tracker.scheduling.waiting import UNKNOWN_INTENSITY, below_threshold

    now = datetime.now(UTC)
    now_s, latest_s = now.timestamp(), now.timestamp() + max_wait_s
    lines = [f"would ask {source.order}; nothing is started"]
    try:
        answer = source.now()
        lines.append(f"now       {KnownIntensity.of(answer.point, now)}, {answer.point.basis}")
        why_now = below_threshold(threshold_gco2e_per_kwh, lambda: source)(now, None).explanation
    except IntensityUnavailable as error:
        why_now = f"{UNKNOWN_INTENSITY}: {error}"
    what = f"would start {shlex.join(command)}" if command else "would end"
    if why_now:
        lines.append(f"start     {what} at once: {why_now}")
    else:
        when = f"when it is at or below {threshold_gco2e_per_kwh:g}, {fmt.clock_time(latest_s, now_s)} at the latest"
        lines.append(f"start     {what} {when}")
        lines.append(f"expected  {_expected_text(source, threshold_gco2e_per_kwh, now, latest_s)}")
    return "\n".join(lines)


def _expected_text(source: IntensityFallbacks, threshold: float, now: datetime, latest_s: float) -> str:
    """Return when the intensity falls to the threshold, by the forecast of the service, where it has one."""
    from greenlove_tracker.grid.live.intensity import IntensityUnavailable, PointKind

    try:
        points = source.forecast(_LOOK_AHEAD_H).points
    except IntensityUnavailable:
        return "not known: no forecast for this place"
    if points[0].kind == PointKind.TABLE:
        return "not known: no service has a forecast for this place"
    below = next((p for p in points if p.gco2e_per_kwh <= threshold and p.end_utc > now), None)
    if below is None:
        return f"it stays above {threshold:g} as far as is forecast, by {points[0].source}"
    when_s = max(below.start_utc.timestamp(), now.timestamp())
    when = f"{fmt.clock_time(when_s, now.timestamp())}, with {below.gco2e_per_kwh:.0f} gCO2e/kWh, by {below.source}"
    return when if when_s <= latest_s else f"{when}: after the maximum wait"
