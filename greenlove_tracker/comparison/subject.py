"""What is compared: a training, and what is known of the machine that it was forecast on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from greenlove_tracker import format as fmt
from greenlove_tracker.comparison.machine import Machine, given_machine, logged_machine
from greenlove_tracker.config import load_settings
from greenlove_tracker.errors import UsageError
from greenlove_tracker.forecasting import Estimate, Forecast, Kind, TrainingPlan
from greenlove_tracker.logs.explored import has_trials, latest_exploration
from greenlove_tracker.logs.judged import is_whole, title
from greenlove_tracker.logs.parser import Run, read_logs
from greenlove_tracker.records import Factor
from greenlove_tracker.units import SECONDS_PER_HOUR

_LEVEL = 0.95  # of a time that is known: its interval has no width


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line asks; None and empty: not given. ``projection.project.project`` says what most of it is.

    Attributes:
        gpu: the local GPU, as a table or a driver calls it; as many as the log says, or ``4 × L40S``.
        gpu_memory: of one local GPU in GiB, which tells cards of one name apart.
        hours: of the training here, where there is no log.
        gpus: GPUs wanted elsewhere.
        targets: further GPUs to look at.
        speedups: ``1.8``, ``1.8,1.5,2.1`` with its range, or either behind ``GPU=``.
        measured: log directory of the same exploration, made on another GPU.
        embodied: embodied emissions in kgCO2e per GPU-hour.
    """

    gpu: str | None = None
    gpu_memory: float | None = None
    hours: float | None = None
    country: str | None = None
    provider: str | None = None
    gpus: int | None = None
    targets: tuple[str, ...] = ()
    task: str | None = None
    precision: str = "fp16"
    method: str | None = None
    speedups: tuple[str, ...] = ()
    measured: str | None = None
    prices: str | None = None
    region: str | None = None
    scaling: float = 0.85
    electricity_price: float | None = None
    carbon_intensity: float | None = None
    pue: float | None = None
    price: float | None = None
    utilization: float | None = None
    tdp: float | None = None
    peak_memory: float | None = None
    embodied: float | None = None
    include_all: bool = False


@dataclass(frozen=True, slots=True)
class Subject:
    """A training, and the machine that it was forecast on.

    Attributes:
        forecast: of the whole training.
        about: what is trained, and how the time is known.
        machine: its GPUs.
        place: country, carbon intensity and prices, as ``project`` takes them.
        exploration: the run of it, where it was one.
    """

    forecast: Forecast
    about: tuple[str, ...]
    machine: Machine
    place: Mapping[str, Any]
    exploration: Run | None = None


def given_subject(asked: Asked) -> Subject:
    """A training of so many hours, without a log.

    Raises:
        UsageError: where the hours or a setting cannot be.
    """
    hours = asked.hours or 0.0
    if not (math.isfinite(hours) and hours > 0):
        raise UsageError(f"--hours must be positive, such as 20, not {hours:g}")
    machine = given_machine(asked.gpu, asked.gpu_memory)
    settings = load_settings(
        {
            "country": asked.country,
            "carbon_intensity_gco2e_per_kwh": asked.carbon_intensity,
            "electricity_price_usd_per_kwh": asked.electricity_price,
            "price_usd_per_gpu_hour": asked.price,
            "pue": asked.pue,
        }
    )
    place = {
        "country": settings.country or None,
        "carbon_intensity": settings.carbon_intensity_gco2e_per_kwh,
        "electricity_price": settings.electricity_price_usd_per_kwh,
        "price_usd_per_gpu_hour": settings.price_usd_per_gpu_hour if machine.has_price else asked.price,
        "pue": settings.pue,
    }
    forecast = _known(replace(_exact(hours * SECONDS_PER_HOUR, "s"), kind=Kind.ASSUMPTION), None)
    return Subject(forecast, ("", "time as given"), machine, place)


def logged_subject(log_dir: str, asked: Asked, forecast: Forecast | None = None) -> Subject:
    """The latest exploration of a log directory, else its latest run.

    Args:
        log_dir: the directory.
        asked: what is wanted.
        forecast: of the exploration, where it is at hand.

    Raises:
        UsageError: where there is none, or it tells too little.
    """
    logs = read_logs(log_dir)
    run = latest_exploration(logs) or next(iter(reversed(list(logs.readable()))), None)
    if run is None:
        raise UsageError(f"{log_dir} holds no run to go by: explore or track one, or give --gpu and --hours")
    return subject_of(run, asked, forecast)


def subject_of(run: Run, asked: Asked, forecast: Forecast | None = None) -> Subject:
    """One run: what an exploration forecast, or what a tracked one took.

    Args:
        run: that can be read.
        asked: what is wanted.
        forecast: of the exploration, where it is at hand.

    Raises:
        UsageError: where it tells too little.
    """
    exploration = run if has_trials(run) else None
    machine = logged_machine(run, asked.gpu, asked.gpu_memory)
    if exploration is not None:
        forecast, how = forecast or _forecast_again(run), "forecast from an exploration"
    else:
        forecast, how = _of_tracked(run)
        _check_steps(run, forecast, asked, machine)
    if asked.pue is not None and forecast.energy_kwh is not None:  # it holds the PUE of the run
        energy = forecast.energy_kwh
        forecast = replace(forecast, energy_kwh=energy.times(asked.pue / run.terms.pue, energy.unit))
    if machine.idle:
        forecast = replace(forecast, energy_kwh=None)
    name = title(run) if exploration is None else fmt.plan(forecast.plan)
    about = (name, how, machine.idle)
    return Subject(forecast, about, machine, _place(run, asked, machine), exploration)


def _forecast_again(run: Run) -> Forecast:
    from greenlove_tracker.extrapolation.again import forecast_again  # statsmodels: over a second

    return forecast_again(run)


def _of_tracked(run: Run) -> tuple[Forecast, str]:
    """What a finished run took, else what it forecast last."""
    summary = run.summary
    if is_whole(run) and summary.duration_s > 0:
        energy = None if summary.energy_kwh is None else _exact(summary.energy_kwh, "kWh")
        took_s = _exact(summary.duration_s, "s")
        return _known(took_s, energy, _steps_within(run, took_s)), "as this run took"
    if not run.forecasts:
        raise UsageError(
            f"{run.path} neither finished nor forecast anything: let it run to its end, or say Tracker(epochs=…), "
            "or give --gpu and --hours"
        )
    estimates = run.forecasts[-1].estimates
    duration_s = estimates["duration_s"]
    plan = _steps_within(run, duration_s)
    return _known(duration_s, estimates.get("energy_kwh"), plan), "as this run forecast last"


def _steps_within(run: Run, duration_s: Estimate) -> TrainingPlan | None:
    """The batches that a rank goes through in this time, in proportion to those so far; else its optimizer steps.

    None where the training counted neither.
    """
    summary, counts = run.summary, run.summary.counts
    done = counts.batches / summary.n_ranks if counts.batches else counts.steps
    if not done or summary.duration_s <= 0:
        return None
    return TrainingPlan(steps=max(1, round(done * duration_s.point / summary.duration_s)))


def _check_steps(run: Run, forecast: Forecast, asked: Asked, machine: Machine) -> None:
    """From a CPU only the steps tell how much faster a GPU may be: many small ones leave it waiting for its orders.

    Raises:
        UsageError: where none were counted, and no speedup is given.
    """
    if machine.gpu is None and forecast.plan is None and not asked.speedups:
        raise UsageError(
            f"{run.path} used no GPU and counted no steps, without which nobody knows how fast one would be: call "
            "tracker.step() after each step of the training, or explore it, or give --speedup"
        )


def _known(duration_s: Estimate, energy_kwh: Estimate | None, plan: TrainingPlan | None = None) -> Forecast:
    nothing = _exact(0.0, "s")
    return Forecast(duration_s, energy_kwh, None, None, nothing, None, None, (), None, "live", 0, plan)


def _exact(value: float, unit: str) -> Estimate:
    return Estimate(value, value, value, _LEVEL, unit, Kind.CONFIDENCE)


def _place(run: Run, asked: Asked, machine: Machine) -> dict[str, Any]:
    """Where it ran, as its log says, unless something else is asked."""
    terms, is_elsewhere = run.terms, asked.country is not None
    price = None if is_elsewhere else terms.electricity_price
    per_gpu_hour = terms.price_usd_per_gpu_hour if machine.has_price else None
    intensity: float | Factor | None = asked.carbon_intensity
    if intensity is None and not is_elsewhere and run.knows_carbon_intensity:
        intensity = terms.carbon_intensity
    return {
        "country": asked.country or run.text("country") or None,
        "carbon_intensity": intensity,
        "electricity_price": price if asked.electricity_price is None else asked.electricity_price,
        "price_usd_per_gpu_hour": per_gpu_hour if asked.price is None else asked.price,
        "pue": terms.pue if asked.pue is None else asked.pue,
    }
