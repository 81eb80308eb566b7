"""``plan``: when and where a training emits or costs least; a job file; a command on a clean grid."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Literal

import click
from click import Choice

from greenlove_tracker.cli.base import CommandVerb, answer, become, check_command, cli, names_in, wait_first, wrote
from greenlove_tracker.cli.options import (
    HOURS,
    json_option,
    option,
    page_option,
    verbose_option,
    within_option,
    within_time,
)
from greenlove_tracker.settings.config import Settings, load_settings
from greenlove_tracker.text import console
from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.forecasting import P99, Forecast

if TYPE_CHECKING:
    from greenlove_tracker.logs.run import Run
    from greenlove_tracker.scheduling.start_windows import Price, StartAdvice

_OF_JOBS = ("name", "hours", "kwh")
_OPTIONS = {
    "regions": "--country",
    "command": "the command after --",
    "deadline_utc": "--within",
    "threshold_gco2e_per_kwh": "--threshold",
}


@cli.command(cls=CommandVerb, options=_OPTIONS, short_help="Find when and where a training emits or costs least.")
@click.argument("log_dir", required=False)
@option("--jobs FILE", "several trainings: a CSV file with name,hours,kwh and, where they have their own, within")
@option("--hours", "hours the training takes, instead of a log", type=HOURS)
@option("--kwh", "its energy; default: the log's", type=HOURS)
@within_option
@option("--country A,B", "where it can run, here first: DE,GB,US-CA; default: the log's")
@option(
    "--intensity NAME|FILE",
    "carbon intensity by the hour: live, neso, eia, … ask the network; a CSV file, also of hours to come; table; mock",
)
@option("--by", "what to minimise", type=Choice(["co2e", "cost"]), default="co2e", show_default=True)
@option("--tariff TABLE|FILE", "price of electricity by the hour: 'base 0.20; peak 0.32 17-21'")
@option("--emit", "print a job file that starts COMMAND then", type=Choice(["slurm", "cronjob"]))
@option("--image NAME", "with --emit cronjob: the container that COMMAND runs in")
@page_option
@option("--electricity-price", "USD per kWh, the same at all hours", type=float)
@option("--threshold G", "start COMMAND when the grid is at or below G gCO2e/kWh", type=float)
@option("--max-wait SPAN", "with --threshold: start anyway after this; default 6h", default="6h")
@json_option
@verbose_option
def plan(
    log_dir: str | None,
    jobs: str | None,
    hours: float | None,
    kwh: float | None,
    within: str | None,
    by: Literal["co2e", "cost"],
    emit: str | None,
    image: str | None,
    page: str | None,
    threshold: float | None,
    max_wait: str,
    as_json: bool,
    is_verbose: bool,
    country: str | None,
    intensity: str | None,
    tariff: str | None,
    electricity_price: float | None,
) -> None:
    """Find when and where a training emits or costs least, what that saves, and whether waiting is worth it.

    It uses the log's last exploration, else its last run. Nothing is started or submitted, but with --threshold. The
    network is used only if --intensity or the setting names a service.

    \b
    greenlove plan --hours 4 --kwh 3 --within "tomorrow 08:00" --country DE,GB --intensity live
    greenlove plan greenlove_logs --within 24h --intensity grid.csv -o plan.html
    greenlove plan --jobs jobs.csv --within 24h --country DE,GB --intensity live
    greenlove plan --hours 4 --within "monday 08:00" --by cost --tariff "base 0.20; peak 0.32 17-21"
    greenlove plan --within 24h --intensity live --emit slurm -- python train.py
    greenlove plan --within 24h --intensity live --emit cronjob --image me/train -- python train.py
    greenlove plan --threshold 200 --max-wait 6h --country GB -- python train.py
    """  # noqa: D301  # click wants the backspace itself
    from greenlove_tracker.report import plan_report
    from greenlove_tracker.scheduling.start_windows import best_start

    command = click.get_current_context().meta["command"]
    if threshold is not None:
        from greenlove_tracker.scheduling.wait_loop import wait_for_low_carbon

        check_command(command or ())
        asked = intensity or load_settings().intensity or "live"
        wait_first(lambda: wait_for_low_carbon(threshold, max_wait, intensity=asked, country=country))
        if command:
            become(command)
        return
    if (emit is None) != (not command) or (emit and as_json):
        raise UsageError(
            "a command goes with --emit, and without --json: greenlove plan … --emit slurm -- python train.py"
        )
    if (emit == "cronjob") != (image is not None):
        raise UsageError("--emit cronjob and --image, what its command runs in, go together")
    now = _utc_now()
    settings = load_settings()
    run = None
    if jobs is None:
        duration, about, run = _job(log_dir, hours, kwh, settings)
    elif log_dir or hours or kwh or emit:
        raise UsageError("--jobs is for trainings of its own: leave out the log, --hours, --kwh and --emit")
    intensity = intensity or settings.intensity or ("table" if by == "cost" else "")
    if not intensity:
        raise UsageError(
            "give --intensity: live asks the network, as do neso, eia and the other services; a CSV file holds "
            "utc,gco2e_per_kwh; mock is invented, to try it out"
        )
    start_of = partial(
        best_start,
        intensity=intensity,
        now=now,
        regions=_regions(country, settings, run),
        by=by,
        price_usd_per_kwh=_price(tariff, electricity_price, by, settings, run),
    )
    if jobs is not None:
        from greenlove_tracker.grid.time_series import read_rows

        def start_of_job(row: Mapping[str, str]) -> tuple[str, StartAdvice]:
            deadline = _deadline(row.get("within") or within, settings, now)
            lacking = [name for name in _OF_JOBS if not row[name]]
            if lacking:
                raise ValueError(f"{lacking[0]} is empty")
            return row["name"], start_of(float(row["hours"]), energy_kwh=float(row["kwh"]), deadline=deadline)

        found = list(read_rows(jobs, _OF_JOBS, start_of_job))
        if not found:
            raise UsageError(f"{jobs} holds no job")
        answer(plan_report.jobs_document(found), plan_report.jobs_record(found))
        return
    advice = start_of(duration, energy_kwh=kwh, deadline=_deadline(within, settings, now))
    document = plan_report.plan_document(advice, about)
    if emit is None:
        answer(document, plan_report.plan_record(advice, about))
        return
    from greenlove_tracker.rendering import terminal
    from greenlove_tracker.report.build import write_document
    from greenlove_tracker.scheduling.job_files import job_file

    file = job_file(
        command or (),
        advice.start_utc if advice.is_worth_waiting else now,
        now=now,
        image=image,
        duration_s=_longest_s(duration),
        reason=plan_report.headline(advice),
    )
    if page is not None:
        wrote(write_document(document, page))
    console.say(terminal.render(document, brief=not is_verbose))
    click.echo(file, nl=False)


def _utc_now() -> datetime:
    """Return the present; another one in tests."""
    return datetime.now(UTC)


def _job(
    log_dir: str | None, hours: float | None, kwh: float | None, settings: Settings
) -> tuple[Forecast | float, str, Run | None]:
    """Return the length of the training of ``--hours``, or of the log; it in words; and the run that it is like.

    Raises:
        UsageError: where there is neither.
    """
    if hours is not None:
        if log_dir is not None:
            raise UsageError(f"--hours is for a training without a log: leave it out, or {log_dir}")
        energy = "" if kwh is None else f", {fmt.energy(kwh)}"
        return hours, f"{fmt.significant(hours)} h{energy}, as given", None
    from greenlove_tracker.scheduling.run_start import logged_length

    run, forecast, basis = logged_length(log_dir or settings.log_dir)
    energy_kwh = kwh
    if kwh is None and forecast.energy_kwh:
        energy_kwh = forecast.energy_kwh.point
    takes = forecast.duration_s
    duration = fmt.interval(takes, fmt.duration) if takes.has_interval else fmt.duration(takes.point)
    return forecast, f"{run.title(40)}: {duration}, {fmt.energy(energy_kwh)}, {basis}", run


def _longest_s(duration: Forecast | float) -> float | None:
    """Return the time that is exceeded with a probability of 1%; None where only hours are given."""
    if not isinstance(duration, Forecast):
        return None
    estimate = duration.duration_s
    return duration.duration_p99_s or (estimate.quantile(P99) if estimate.has_interval else None)


def _deadline(text: str | None, settings: Settings, now: datetime) -> datetime:
    from greenlove_tracker.scheduling.times import WHEN_FORMS, parse_when

    if text is not None:
        return within_time(text, now)
    if not settings.deadline_utc:
        raise UsageError(f"give --within, how soon the training must be done: 24h, {WHEN_FORMS}")
    # As the setting has it everywhere, a time without a zone is in UTC; on the command line it is local.
    found = parse_when(settings.deadline_utc, now, UTC)
    if found <= now:
        raise UsageError(f"the deadline has passed: {settings.deadline_utc}")
    return found


def _regions(asked: str | None, settings: Settings, run: Run | None) -> list[str] | None:
    """Return the places of the command line, else of the settings or the log; None where none is known."""
    names = names_in(asked)
    if names:
        return names
    here = settings.country or (run.text("country") if run is not None else "")
    return [here] if here else None


def _price(tariff: str | None, usd_per_kwh: float | None, by: str, settings: Settings, run: Run | None) -> Price | None:
    """Return the price of electricity: by the hour, or a number; None where none is known.

    Raises:
        UsageError: where the cost is to be least, and all hours cost the same.
    """
    if tariff is not None and usd_per_kwh is not None:
        raise UsageError("--tariff and --electricity-price: choose one")
    text = tariff or (settings.electricity_tariff if usd_per_kwh is None else "")
    if text:
        from greenlove_tracker.grid.tariff import parse_tariff

        return parse_tariff(text)
    if by == "cost":
        raise UsageError("--by cost needs --tariff, the price of electricity by the hour: base 0.20; peak 0.32 17-21")
    logged = run.electricity_price if run is not None else None
    known = (usd_per_kwh, settings.electricity_price_usd_per_kwh, logged.value if logged else None)
    return next((price for price in known if price is not None), None)
