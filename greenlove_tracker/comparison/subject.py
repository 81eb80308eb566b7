"""What is compared: a training, and what is known of the machine that it was forecast on."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from greenlove_tracker.config import load_settings
from greenlove_tracker.errors import UsageError
from greenlove_tracker.extrapolation.again import forecast_again, latest_exploration, seen_beside
from greenlove_tracker.forecasting import Estimate, Forecast, Kind
from greenlove_tracker.logs.parser import Run, read_logs
from greenlove_tracker.records import MEASURED_METHODS, Factor
from greenlove_tracker.report import wording
from greenlove_tracker.report.forecasts import is_whole
from greenlove_tracker.report.series import gpu_mean_w
from greenlove_tracker.units import SECONDS_PER_HOUR

_COUNTED = re.compile(r"\s*([1-9][0-9]{0,4}) ?[×x] ?(.+)", re.DOTALL)
_LEVEL = 0.95  # of a time that is known: its interval has no width


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line asks; None and empty: not given. ``projection.project.project`` says what most of it is.

    Attributes:
        gpu: the local GPU, as a table or a driver calls it; ``4 × L40S`` for several.
        hours: of the training here, where there is no log.
        gpus: GPUs wanted elsewhere.
        targets: further GPUs to look at.
        speedups: ``1.8``, ``1.8,1.5,2.1`` with its range, or either behind ``GPU=``.
        measured: log directory of the same exploration, made on another GPU.
    """

    gpu: str | None = None
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
    include_all: bool = False


@dataclass(frozen=True, slots=True)
class Subject:
    """A training, and the machine that it was forecast on.

    Attributes:
        forecast: of the whole training.
        about: what is trained, and how the time is known.
        gpu: as its driver calls it; None where there is none.
        n_gpus: GPUs of the machine.
        draw: share of their enforced power limit that they were measured to draw.
        limit_w: that limit, of one.
        peak_memory_gb: of one GPU.
        place: country, carbon intensity and prices, as ``project`` takes them.
        exploration: the run of it, where it was one.
    """

    forecast: Forecast
    about: tuple[str, ...]
    gpu: str | None
    n_gpus: int
    draw: float | None
    limit_w: float | None
    peak_memory_gb: float | None
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
    n_gpus, gpu = _counted(asked.gpu) if asked.gpu else (1, None)
    settings = load_settings({
        "country": asked.country, "carbon_intensity_gco2e_per_kwh": asked.carbon_intensity,
        "electricity_price_usd_per_kwh": asked.electricity_price, "price_usd_per_gpu_hour": asked.price,
        "pue": asked.pue,
    })  # fmt: skip
    place = {
        "country": settings.country or None, "carbon_intensity": settings.carbon_intensity_gco2e_per_kwh,
        "electricity_price": settings.electricity_price_usd_per_kwh,
        "price_usd_per_gpu_hour": settings.price_usd_per_gpu_hour, "pue": settings.pue,
    }  # fmt: skip
    forecast = _known(replace(_exact(hours * SECONDS_PER_HOUR, "s"), kind=Kind.ASSUMPTION), None)
    return Subject(forecast, ("", "time as given"), gpu, n_gpus, None, None, None, place)


def logged_subject(log_dir: str, asked: Asked) -> Subject:
    """The latest exploration of a log directory, else its latest run.

    Raises:
        UsageError: where there is none, or it tells no time.
    """
    logs = read_logs(log_dir)
    exploration = latest_exploration(logs)
    run = exploration or next(iter(reversed(list(logs.readable()))), None)
    if run is None:
        raise UsageError(f"{log_dir} holds no run to go by: explore or track one, or give --gpu and --hours")
    if exploration is not None:
        forecast, how = forecast_again(run), "forecast from an exploration"
    else:
        forecast, how = _of_tracked(run)
    if asked.pue is not None and forecast.energy_kwh is not None:  # it holds the PUE of the run
        energy = forecast.energy_kwh
        forecast = replace(forecast, energy_kwh=energy.times(asked.pue / run.terms.pue, energy.unit))
    n_gpus, gpu = _counted(asked.gpu) if asked.gpu else gpus_of(run)
    is_as_logged = n_gpus == run.summary.gpu_count
    limit_w = _number(run, "gpu_power_limit_w") if is_as_logged and run.summary.n_nodes == 1 else None
    peak_gb = _number(run, "peak_gpu_memory_gb") or (_number(run, "peak_memory_gb") if n_gpus and gpu else None)
    about = (wording.plan_text(forecast.plan) or wording.title(run), how)
    return Subject(
        forecast, about, gpu, n_gpus, _draw(run, limit_w), limit_w / n_gpus if limit_w else None, peak_gb,
        _place(run, asked), exploration,
    )  # fmt: skip


def _of_tracked(run: Run) -> tuple[Forecast, str]:
    """What a finished run took, else what it forecast last."""
    summary = run.summary
    if is_whole(run) and summary.duration_s > 0:
        energy = None if summary.energy_kwh is None else _exact(summary.energy_kwh, "kWh")
        return _known(_exact(summary.duration_s, "s"), energy), "as this run took"
    if not run.forecasts:
        raise UsageError(
            f"{run.path} neither finished nor forecast anything: let it run to its end, or say Tracker(epochs=…), "
            "or give --gpu and --hours"
        )
    estimates = run.forecasts[-1].estimates
    return _known(estimates["duration_s"], estimates.get("energy_kwh")), "as this run forecast last"


def _known(duration_s: Estimate, energy_kwh: Estimate | None) -> Forecast:
    nothing = _exact(0.0, "s")
    return Forecast(duration_s, energy_kwh, None, None, nothing, None, None, (), None, "live", 0, None)


def _exact(value: float, unit: str) -> Estimate:
    return Estimate(value, value, value, _LEVEL, unit, Kind.CONFIDENCE)


def _place(run: Run, asked: Asked) -> dict[str, Any]:
    """Where it ran, as its log says, unless something else is asked."""
    terms, is_elsewhere = run.terms, asked.country is not None
    price = None if is_elsewhere or terms.electricity_price is None else terms.electricity_price.value
    intensity: float | Factor | None = asked.carbon_intensity
    if intensity is None and not is_elsewhere and wording.intensity_is_known(run):
        intensity = terms.carbon_intensity
    return {
        "country": asked.country or run.text("country") or None, "carbon_intensity": intensity,
        "electricity_price": price if asked.electricity_price is None else asked.electricity_price,
        "price_usd_per_gpu_hour": terms.price_usd_per_gpu_hour if asked.price is None else asked.price,
        "pue": terms.pue if asked.pue is None else asked.pue,
    }  # fmt: skip


def _number(run: Run, name: str) -> float | None:
    """A positive number of ``run.csv``; None where there is none."""
    try:
        value = float(run.text(name))
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None


def _draw(run: Run, limit_w: float | None) -> float | None:
    """The share of their limit that the GPUs drew; None where it was not measured."""
    if limit_w is None or not set(run.text("gpu_method").split("+")) <= MEASURED_METHODS:
        return None
    power_w = seen_beside(run).gpu_power_w if run.trials else gpu_mean_w(run)
    return min(1.0, power_w / limit_w) if power_w else None


def gpus_of(run: Run) -> tuple[int, str | None]:
    """Number and name of a run's GPUs, as its meter found them."""
    models = run.text("gpu_models")
    if not models or not run.summary.gpu_count:
        if run.summary.gpu_count:
            raise UsageError(f"{run.path} does not name its GPU: give --gpu, such as --gpu 'RTX 4090'")
        return 1, None
    if len(models.split(" × ")) > 2:
        raise UsageError(f"{run.path} ran on different GPUs ({models}): say which to go by, such as --gpu 'RTX 4090'")
    return run.summary.gpu_count, _counted(models)[1]


def _counted(text: str) -> tuple[int, str]:
    """``4 × L40S`` as number and name."""
    found = _COUNTED.fullmatch(text)
    return (int(found[1]), found[2].strip()) if found else (1, text.strip())
