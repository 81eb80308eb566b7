"""``plan``: when and where a training emits or costs least, as a screen, a page, JSON, or a file for a scheduler.

``plan --chain`` says in how many jobs a training fits a time limit, and prints the script that submits them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import click

from greenlove_tracker import console
from greenlove_tracker import format as fmt
from greenlove_tracker.cli.base import CommandVerb, cli, json_option, show, show_json, verbose_option
from greenlove_tracker.config import Settings, load_settings
from greenlove_tracker.errors import UsageError
from greenlove_tracker.forecasting import P99, Estimate, Forecast
from greenlove_tracker.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from greenlove_tracker.logs.run import Run
    from greenlove_tracker.scheduling.advice import StartAdvice
    from greenlove_tracker.scheduling.intensity_series import IntensitySource
    from greenlove_tracker.scheduling.windows import Price

# Of a service that is asked while somebody waits: without a network, and in one that drops everything, the table
# answers within 2 s; six weeks of history may take longer to come.
CONNECT_S, ANSWER_S = 0.9, 10.0


_OPTIONS = {
    "regions": "--regions",
    "country": "--regions",
    "intensity": "--intensity",
    "least_saving": "--least-saving",
    "kind": "--emit",
    "every": "--every",
    "image": "--image",
    "command": "the command after --",
    "deadline_utc": "--deadline",
    "limit_s": "--time",
    "training_s": "--hours",
}


@cli.command(cls=CommandVerb, options=_OPTIONS, short_help="Find when and where a training emits or costs least.")
@click.argument("log_dir", required=False)
@click.option("--hours", type=float, help="hours the training takes, instead of a log")
@click.option("--kwh", type=float, help="its energy; default: the log's")
@click.option("--deadline", metavar="TIME", help='when it must be done: "tomorrow 08:00", "monday 06:00", +12h, or ISO')
@click.option(
    "--regions",
    "--country",
    "regions",
    metavar="A,B",
    help="where it can run, here first: DE,GB,US-CA; default: the log's",
)
@click.option(
    "--intensity",
    metavar="NAME|FILE",
    help="carbon intensity by the hour: live, neso, eia, … ask the network; a CSV file; table; mock",
)
@click.option("--intensity-forecast", metavar="FILE", help="second CSV file with the forecast as issued")
@click.option("--by", type=click.Choice(["co2e", "cost"]), default="co2e", show_default=True, help="what to minimise")
@click.option("--tariff", metavar="TABLE|FILE", help="price of electricity by the hour: 'base 0.20; peak 0.32 17-21'")
@click.option("--electricity-price", type=float, help="USD per kWh, the same at all hours")
@click.option("--least-saving", metavar="SHARE", help="least expected saving that is worth waiting for; default 5%")
@click.option("-o", "--output", metavar="FILE", help="also write to this .html, .pdf or .md")
@click.option(
    "--emit",
    metavar="KIND",
    help="print a job file that starts COMMAND at that time: slurm, at or k8s",
)
@click.option("--every", metavar="day|week|DAY", help="with --emit k8s: repeat it")
@click.option("--image", help="with --emit k8s: container image")
@click.option("--chain", is_flag=True, help="print a script that starts COMMAND in a chain of Slurm jobs; needs --time")
@click.option("--time", "time_limit", metavar="LIMIT", help="with --chain: time limit of a job: 24:00:00, 1-00:00:00")
@click.option("--save", metavar="SPAN", help="with --chain: time to save a checkpoint; default: the log's, else 60s")
@click.option(
    "--restart", metavar="SPAN", help="with --chain: time until a job trains; default: 2m plus reading the log"
)
@click.option(
    "--replay", metavar="SPAN", help="with --chain: time to fetch an epoch's batches again; default: the log's, else 5m"
)
@click.option(
    "--checkpoints", metavar="DIR", help="with --chain: treat a job that leaves no newer checkpoint in DIR as failed"
)
@json_option
@verbose_option
def plan(
    log_dir: str | None,
    hours: float | None,
    kwh: float | None,
    deadline: str | None,
    by: Literal["co2e", "cost"],
    least_saving: str | None,
    output: str | None,
    emit: str | None,
    every: str | None,
    image: str | None,
    chain: bool,
    time_limit: str | None,
    save: str | None,
    restart: str | None,
    replay: str | None,
    checkpoints: str | None,
    as_json: bool,
    is_verbose: bool,
    **sources: Any,
) -> None:
    """Find when and where a training emits or costs least, what that saves, and whether waiting is worth it.

    It uses the log's last exploration, else its last run. Nothing is started or submitted. The network is used only
    if --intensity or the setting names a service.

    \b
    greenlove plan --hours 4 --kwh 3 --deadline "tomorrow 08:00" --regions DE,GB --intensity live
    greenlove plan greenlove_logs --deadline +24h --intensity grid.csv -o plan.html
    greenlove plan --hours 4 --deadline "monday 08:00" --by cost --tariff "base 0.20; peak 0.32 17-21"
    greenlove plan --deadline +24h --intensity live --emit slurm -- python train.py
    greenlove plan --chain --time 24:00:00 -- python train.py > chain.sh
    """  # noqa: D301  # click wants the backspace itself
    from greenlove_tracker.rendering import terminal
    from greenlove_tracker.report.build import checked_suffix, write_document
    from greenlove_tracker.report.plan_report import plan_document, plan_record
    from greenlove_tracker.scheduling.windows import LEAST_SAVING, best_start

    command = click.get_current_context().meta["command"]
    spans = {"--save": save, "--restart": restart, "--replay": replay}
    _check_chain(chain, {"--time": time_limit, "--checkpoints": checkpoints, **spans})
    if chain:
        _plan_chain(log_dir, hours, time_limit, spans, checkpoints, command, as_json=as_json)
        return
    _check_emit(emit, every, image, command, as_json=as_json)
    if output is not None:
        checked_suffix(output)
    now = _utc_now()
    settings = load_settings()
    job = _job(log_dir, hours, kwh, settings)
    asked = _Asked(settings, job, **sources)
    intensity, regions = asked.source(by)
    advice = best_start(
        job.duration,
        intensity=intensity,
        deadline=_deadline(deadline, settings, now),
        now=now,
        energy_kwh=job.energy_kwh,
        regions=regions,
        by=by,
        price_usd_per_kwh=asked.price(by),
        least_saving=LEAST_SAVING if least_saving is None else parse_share(least_saving),
    )
    document = plan_document(advice, job.about)
    if output is not None:
        click.echo(f"wrote {write_document(document, output)}", err=True)
    if as_json:
        show_json(plan_record(advice, job.about))
        return
    if emit is None:
        show(document, is_verbose=is_verbose)
        return
    file = _job_file(emit, every, image, command, advice, job, now)  # before the screen: a refusal comes alone
    console.say(terminal.render(document, brief=not is_verbose))
    click.echo(file, nl=not file.endswith("\n"))


def _utc_now() -> datetime:
    """Return the present; another one in tests."""
    return datetime.now(UTC)


def parse_share(text: str) -> float:
    """Return the share of ``5%`` or ``0.05``.

    Raises:
        UsageError: for anything else.
    """
    is_percent = text.strip().endswith("%")
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        value = -1.0
    share = value / 100 if is_percent else value
    if not 0 <= share < 1:
        raise UsageError(f"{{argument}} is a share such as 5% or 0.05, not {text!r}", argument="least_saving")
    return share


def _check_emit(
    emit: str | None, every: str | None, image: str | None, command: Sequence[str] | None, *, as_json: bool
) -> None:
    if emit is None:
        given = {"--every": every, "--image": image, "a command": command}
        alone = [name for name, value in given.items() if value is not None]
        if alone:
            raise UsageError(f"{alone[0]} is for a scheduler's file: say which with --emit, such as --emit slurm")
        return
    if as_json:
        raise UsageError("--emit and --json: choose one")
    if not command:
        raise UsageError(f"--emit {emit} needs the command after two dashes: greenlove plan … -- python train.py")


# Of a start, which is another question than that of how many jobs; and what --chain lacks.
_OF_A_START = frozenset(
    {"deadline", "regions", "intensity", "intensity_forecast", "tariff", "electricity_price", "least_saving"}
    | {"by", "output", "emit", "every", "image", "kwh"}
)


def _check_chain(chain: bool, given: Mapping[str, str | None]) -> None:
    context = click.get_current_context()
    if not chain:
        if alone := [name for name, value in given.items() if value is not None]:
            raise UsageError(f"{alone[0]} is for a chain of jobs: add --chain")
        return
    on_line = click.core.ParameterSource.COMMANDLINE
    if strange := sorted(name for name in _OF_A_START if context.get_parameter_source(name) is on_line):
        raise UsageError(f"--chain and --{strange[0].replace('_', '-')}: choose one; a chain starts at once")
    if given["--time"] is None:
        raise UsageError("--chain needs --time, what a job may take, such as --time 24:00:00")
    if not context.meta["command"]:
        raise UsageError("--chain needs the command after two dashes: greenlove plan --chain … -- python train.py")


def _plan_chain(
    log_dir: str | None,
    hours: float | None,
    time_limit: str | None,
    spans: Mapping[str, str | None],
    checkpoints: str | None,
    command: Sequence[str],
    *,
    as_json: bool,
) -> None:
    """Say how many jobs the training takes, and print the script that submits them."""
    from greenlove_tracker.rendering import terminal
    from greenlove_tracker.report.plan_report import chain_document, chain_record
    from greenlove_tracker.scheduling.job_chain import job_chain, job_times, parse_time_limit_s
    from greenlove_tracker.scheduling.times import parse_span_s

    limit_s = parse_time_limit_s(time_limit or "")
    save_s, restart_s, replay_s = (None if text is None else parse_span_s(text) for text in spans.values())
    job = _job(log_dir, hours, None, load_settings())
    training_s = job.longest_s
    if training_s is None:
        training_s = (
            job.duration.duration_s.point if isinstance(job.duration, Forecast) else job.duration * SECONDS_PER_HOUR
        )
    planned = job_chain(
        command,
        training_s=training_s,
        limit_s=limit_s,
        times=job_times(job.run, save_s=save_s, restart_s=restart_s, replay_s=replay_s),
        now=_utc_now(),
        checkpoints=checkpoints,
    )
    if as_json:
        show_json(chain_record(planned, job.about))
        return
    console.say(terminal.render(chain_document(planned, job.about, is_longest=job.longest_s is not None)))
    click.echo(planned.script(), nl=False)


@dataclass(frozen=True, slots=True)
class _PlannedRun:
    """The training that is planned.

    Attributes:
        duration: its forecast, or its hours.
        energy_kwh: None where it is not known, or in the forecast.
        about: it in words.
        run: of the log; None without one.
    """

    duration: Forecast | float
    energy_kwh: float | None
    about: str
    run: Run | None = None

    @property
    def longest_s(self) -> float | None:
        """The time that it exceeds with a probability of 1%; None where only its hours are given."""
        if not isinstance(self.duration, Forecast):
            return None
        estimate = self.duration.duration_s
        return self.duration.duration_p99_s or (estimate.quantile(P99) if estimate.has_interval else None)


def _job(log_dir: str | None, hours: float | None, kwh: float | None, settings: Settings) -> _PlannedRun:
    """Return the training of ``--hours``, or of the log.

    Raises:
        UsageError: where there is neither.
    """
    for name, value in (("--hours", hours), ("--kwh", kwh)):
        if value is not None and not 0 < value < float("inf"):
            raise UsageError(f"{name} must be a positive number, not {value!r}")
    if hours is not None:
        if log_dir is not None:
            raise UsageError(f"--hours is for a training without a log: leave it out, or {log_dir}")
        energy = "" if kwh is None else f", {fmt.energy(kwh)}"
        return _PlannedRun(hours, kwh, f"{fmt.significant(hours)} h{energy}, as given")
    from greenlove_tracker.projection.from_log import forecast_of, latest_run

    try:
        run = latest_run(log_dir or settings.log_dir)
    except UsageError as error:
        if log_dir is not None:
            raise
        raise UsageError(f"{error}; without a log give --hours, and --kwh") from error
    if run is None:
        raise UsageError(f"{log_dir or settings.log_dir} holds no run to go by: give --hours, and --kwh")
    forecast, basis = forecast_of(run)
    energy_kwh: Estimate | None = forecast.energy_kwh
    energy = fmt.energy(kwh) if kwh is not None else fmt.energy(energy_kwh.point if energy_kwh else None)
    about = f"{run.title(40)}: {_duration_text(forecast.duration_s)}, {energy}, {basis}"
    return _PlannedRun(forecast, kwh, about, run)


def _duration_text(estimate: Estimate) -> str:
    return fmt.interval(estimate, fmt.duration) if estimate.has_interval else fmt.duration(estimate.point)


def _deadline(text: str | None, settings: Settings, now: datetime) -> datetime:
    from greenlove_tracker.scheduling.times import WHEN_FORMS, parse_when

    if text is None and not settings.deadline_utc:
        raise UsageError(f"give --deadline, by when the training must be done: {WHEN_FORMS}")
    # As the setting has it everywhere, a time without a zone is in UTC; on the command line it is local.
    found = parse_when(settings.deadline_utc, now, UTC) if text is None else parse_when(text, now)
    if found <= now:
        raise UsageError(f"the deadline has passed: {text or settings.deadline_utc}")
    return found


@dataclass(frozen=True, slots=True)
class _Asked:
    """The origin of intensity and price: the command line, else the settings, else the log."""

    settings: Settings
    job: _PlannedRun
    regions: str | None
    intensity: str | None
    intensity_forecast: str | None
    tariff: str | None
    electricity_price: float | None

    def places(self, intensity: str) -> list[str]:
        """Return the regions; none where none is known.

        ``auto`` is looked up where the intensity is a service's; where nothing is found it is the world, as for a run.
        """
        from greenlove_tracker.scheduling.intensity_source import found_place

        if self.regions is not None:
            names = [name.strip() for name in self.regions.split(",") if name.strip()]
            if not names:
                raise UsageError('--regions names none: such as "DE" or "DE,GB"')
            return [place for name in names if (place := found_place(name, intensity))] or [""]
        logged = self.job.run.text("country") if self.job.run is not None else ""
        own = found_place(self.settings.country, intensity)  # of this machine; a log says of its own
        return [here] if (here := own or logged) or self.settings.country else []

    def source(self, by: str) -> tuple[IntensitySource | Mapping[str, IntensitySource], list[str] | None]:
        """Return the intensity, and the regions to compare; no network is asked yet.

        Raises:
            UsageError: where nothing is given, or the parts do not go together.
        """
        from pathlib import Path

        from greenlove_tracker.grid.live.fallback import NAMES
        from greenlove_tracker.grid.live.offline import CsvIntensity, MockIntensity, TableIntensity

        name = self.intensity or self.settings.intensity or (TableIntensity.name if by == "cost" else "")
        if not name:
            raise UsageError(
                "give --intensity: live asks the network, as do neso, eia and the other services; a CSV file holds "
                "utc,gco2e_per_kwh; mock is invented, to try it out"
            )
        places = self.places(name)
        if self.intensity_forecast is not None:
            if name in NAMES or "=" in name:
                raise UsageError(f"--intensity-forecast is beside one CSV file, not {name}")
            return CsvIntensity(name, self.intensity_forecast), places[:1] or None
        if name in NAMES and name != MockIntensity.name:
            if not places and name != TableIntensity.name:
                raise UsageError(f"{name} needs to know where: give --regions, such as DE or DE,GB")
            return {place: self._service(name, place) for place in places or [""]}, places or [""]
        if name == MockIntensity.name:
            return name, places or None
        if "=" in name and not Path(name).is_file():
            pairs = [part.partition("=") for part in name.split(",")]
            files = {region.strip(): Path(file.strip()) for region, _, file in pairs}
            return files, places if self.regions is not None else None
        if len(places) > 1:
            example = ",".join(f"{place}=FILE" for place in places)
            raise UsageError(f"one file is of one region: give --intensity {example}, or a service such as live")
        return name, places or None

    def _service(self, name: str, place: str) -> IntensitySource:
        from greenlove_tracker.grid.live.http_client import HttpClient, default_cache_dir
        from greenlove_tracker.scheduling.intensity_source import opened_intensity

        client = HttpClient(default_cache_dir(), timeout_s=ANSWER_S, connect_s=CONNECT_S)
        return opened_intensity(name, place, client=client)

    def price(self, by: str) -> Price | None:
        """Return the price of electricity: by the hour, or a number; None where none is known.

        Raises:
            UsageError: where the cost is to be least, and all hours cost the same.
        """
        if self.tariff is not None and self.electricity_price is not None:
            raise UsageError("--tariff and --electricity-price: choose one")
        text = self.tariff or ("" if self.electricity_price is not None else self.settings.electricity_tariff)
        if text:
            from greenlove_tracker.grid.tariff import parse_tariff

            return parse_tariff(text)
        if by == "cost":
            raise UsageError(
                "--by cost needs --tariff, the price of electricity by the hour: base 0.20; peak 0.32 17-21"
            )
        if self.electricity_price is not None:
            return self.electricity_price
        logged = self.job.run.electricity_price if self.job.run is not None else None
        own = self.settings.electricity_price_usd_per_kwh
        return logged.value if own is None and logged is not None else own


def _job_file(
    kind: str,
    every: str | None,
    image: str | None,
    command: Sequence[str] | None,
    advice: StartAdvice,
    job: _PlannedRun,
    now: datetime,
) -> str:
    """Return the file that starts the command when it is advised to."""
    from greenlove_tracker.report.plan_report import headline
    from greenlove_tracker.scheduling.job_files import job_file

    return job_file(
        kind,  # type: ignore[arg-type]  # it refuses what is none
        command or (),
        advice.start_utc if advice.is_worth_waiting else now,
        now=now,
        every=every,  # type: ignore[arg-type]
        duration_s=job.longest_s,
        image=image,
        reason=headline(advice),
    )
