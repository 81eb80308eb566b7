"""What is compared: a training, and what is known of the machine that it was forecast on."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from greenlove_tracker import format as fmt
from greenlove_tracker.config import load_settings
from greenlove_tracker.errors import UsageError
from greenlove_tracker.forecasting import Estimate, Forecast, Kind, TrainingPlan
from greenlove_tracker.format import plural
from greenlove_tracker.logs.directory import read_logs
from greenlove_tracker.logs.run import Run
from greenlove_tracker.records import MEASURED_METHODS, Factor
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
    run = logs.latest_exploration() or next(iter(reversed(list(logs.readable()))), None)
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
    exploration = run if run.has_trials else None
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
    name = run.title() if exploration is None else fmt.plan(forecast.plan)
    about = (name, how, machine.idle)
    return Subject(forecast, about, machine, _place(run, asked, machine), exploration)


def _forecast_again(run: Run) -> Forecast:
    from greenlove_tracker.extrapolation.extrapolate import forecast_from_log  # statsmodels: over a second

    return forecast_from_log(run)


def _of_tracked(run: Run) -> tuple[Forecast, str]:
    """What a finished run took, else what it forecast last."""
    summary = run.summary
    if run.is_complete and summary.duration_s > 0:
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


# -- The GPUs that a training ran on: those that its model was on, of all that were metered beside it --

_COUNTED = re.compile(r"\s*([1-9][0-9]{0,4}) ?[×x] ?(.+)", re.DOTALL)
_SIMULATED = "simulated"  # the meter whose GPUs are the user's word for those of the training


@dataclass(frozen=True, slots=True)
class Machine:
    """The GPUs of a training; None is not known.

    Attributes:
        gpu: as its driver or the user calls it; None where there is none.
        n_gpus: that the training is on; 1 where there is none.
        has_price: whether a price per GPU-hour is one of this machine.
        memory_gb: of one, as its driver shows it.
        draw: share of their enforced power limit that they were measured to draw.
        limit_w: that limit, of one.
        peak_memory_gb: of one GPU.
        idle: the GPUs that were metered beside it in vain, in words; the measured energy is then not the training's.
    """

    gpu: str | None
    n_gpus: int = 1
    has_price: bool = False
    memory_gb: float | None = None
    draw: float | None = None
    limit_w: float | None = None
    peak_memory_gb: float | None = None
    idle: str = ""


def given_machine(gpu: str | None, memory_gb: float | None) -> Machine:
    """A machine without a log."""
    if gpu is None:
        return Machine(None)
    n_gpus, name = _counted(gpu)
    return Machine(name, n_gpus or 1, has_price=True, memory_gb=memory_gb)


def logged_machine(run: Run, gpu: str | None = None, memory_gb: float | None = None) -> Machine:
    """The machine of a run.

    Args:
        run: whose log tells it.
        gpu: the user's name for its GPU, with or without their number.
        memory_gb: that the user gives of one.

    Raises:
        UsageError: where its log names no GPU, or several, or where one is given for a run that used none.
    """
    n_metered, n_logged = run.summary.gpu_count, _used_gpus(run)
    if gpu and _is_on_cpu(run, n_logged):
        raise UsageError(
            f"{run.path} was made on a CPU, and its time is not that of {gpu}: give --hours without a log, or leave "
            "--gpu out"
        )
    n_used = n_metered if n_logged is None or (n_logged == 0 and _is_simulated(run)) else n_logged
    logged_name = None if n_logged == 0 or gpu else _named_gpu(run, n_used)
    typed, name = _counted(gpu) if gpu else (None, logged_name)
    n_gpus = typed or n_used or (n_metered if gpu else 0) or 1
    limit_w = _number(run, "gpu_power_limit_w") if n_gpus == n_used and run.summary.n_nodes == 1 else None
    is_as_logged = n_gpus == n_used == n_metered
    return Machine(
        gpu=name,
        n_gpus=n_gpus,
        has_price=name is not None or n_used > 0,
        memory_gb=memory_gb or (_number(run, "gpu_memory_gb") if gpu is None else None),
        draw=_draw(run, limit_w) if is_as_logged and limit_w else None,
        limit_w=limit_w / n_metered if limit_w and n_metered else None,
        peak_memory_gb=None if n_logged == 0 else _peak_memory_gb(run, is_on_gpu=name is not None),
        idle=_idle(n_metered, n_used, is_called_gpu=name is not None, is_logged=n_logged is not None),
    )


def _used_gpus(run: Run) -> int | None:
    """GPUs that the model was on; None where the log does not say."""
    text = run.text("used_gpus")
    return int(text) if text.isdecimal() else None


def _is_on_cpu(run: Run, n_logged: int | None) -> bool:
    """Whether the log says so: its model was on no GPU, or the meter found none."""
    return run.text("gpu_count") == "0" if n_logged is None else n_logged == 0 and not _is_simulated(run)


def _is_simulated(run: Run) -> bool:
    return run.text("meter") == _SIMULATED


def _idle(n_metered: int, n_used: int, *, is_called_gpu: bool, is_logged: bool) -> str:
    """What the energy holds that is not the training's, or does not hold that is; empty where neither is so."""
    if n_metered > n_used:
        return f"{plural(n_metered - n_used, 'metered GPU')} idle, so the energy is not compared"
    if n_metered < n_used or (is_called_gpu and is_logged and not n_metered):
        return "not all its GPUs were metered, so the energy is not compared"
    return ""


def _named_gpu(run: Run, n_used: int) -> str | None:
    """Its name, as the meter found it; None where there is none.

    Raises:
        UsageError: where it has none, or several.
    """
    models = run.text("gpu_models")
    if not n_used:
        return None
    if not models:
        raise UsageError(f"{run.path} does not name its GPU: give --gpu, such as {_example('RTX 4090', n_used)}")
    first = models.partition(", ")[0]
    if len(models.split(" × ")) > 2:
        example = _example(_counted(first)[1], n_used)
        raise UsageError(f"{run.path} ran on different GPUs ({models}): say which to go by, such as {example}")
    return _counted(models)[1]


def _example(name: str, n_gpus: int) -> str:
    """What to type for one GPU, or for the GPUs of the log and for another number of them."""
    if n_gpus == 1:
        return f"--gpu {name!r}"
    return f"--gpu {name!r} for all {n_gpus}, or --gpu '{n_gpus - 1} × {name}' for fewer"


def _counted(text: str) -> tuple[int | None, str]:
    """``4 × L40S`` as number and name; None where no number is typed."""
    found = _COUNTED.fullmatch(text)
    return (int(found[1]), found[2].strip()) if found else (None, text.strip())


def _number(run: Run, name: str) -> float | None:
    """A positive number of ``run.csv``; None where there is none."""
    try:
        value = float(run.text(name))
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None


def _draw(run: Run, limit_w: float) -> float | None:
    """The share of their limit that all GPUs drew; None where it was not measured."""
    if not set(run.text("gpu_method").split("+")) <= MEASURED_METHODS:
        return None
    power_w = run.exploration_metadata.gpu_power_w if run.trials else run.gpu_mean_w
    return min(1.0, power_w / limit_w) if power_w else None


def _peak_memory_gb(run: Run, *, is_on_gpu: bool) -> float | None:
    """Of one GPU; the peak of an exploration without one is that of the process."""
    return _number(run, "peak_gpu_memory_gb") or (_number(run, "peak_memory_gb") if is_on_gpu else None)
