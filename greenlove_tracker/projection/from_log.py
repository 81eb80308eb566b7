"""A training, known from its log, its run or its hours, compared on this machine and on others."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from greenlove_tracker.extrapolation.explorations import exploration_of, has_trials, latest_exploration
from greenlove_tracker.logs.directory import read_logs
from greenlove_tracker.logs.run import Run
from greenlove_tracker.projection.catalogue import counted
from greenlove_tracker.projection.decision import Decision, decide
from greenlove_tracker.projection.options import ProjectionOptions
from greenlove_tracker.projection.project import project_forecast
from greenlove_tracker.projection.types import Projection
from greenlove_tracker.settings.config import load_settings
from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.forecasting import Estimate, Forecast, Kind, TrainingPlan
from greenlove_tracker.vocabulary.records import MEASURED_METHODS
from greenlove_tracker.vocabulary.units import BYTES_PER_GB, SECONDS_PER_HOUR
from greenlove_tracker.vocabulary.workloads import GIVEN, PRECISIONS, WORKLOADS

_LEVEL = 0.95  # of a time that is known: its interval has no width
_MORE_GPUS = (2, 4, 8)  # of one machine


@dataclass(frozen=True, slots=True)
class MachineComparison:
    """The machines side by side, and a description of the training.

    Attributes:
        about: the name of the training or empty, then how its time is known.
        projections: the machines, this one first.
        options: the options used: the user's, completed from the log.
        forecast: the forecast of the whole training on this machine.
    """

    about: tuple[str, ...]
    projections: tuple[Projection, ...]
    options: ProjectionOptions
    forecast: Forecast


def decided(
    compare: Callable[[ProjectionOptions], MachineComparison], options: ProjectionOptions
) -> tuple[MachineComparison, Decision]:
    """Return the machines and where to train; with a time limit, with as many GPUs as it needs.

    If nobody gives a number of GPUs, take as many as here, or the fewest of 2, 4 and 8 with which a machine that is
    rented by the hour keeps the limits.

    Args:
        compare: a function from options to a comparison, such as ``compare_log`` of a directory.
        options: the options, with the limits.

    Raises:
        UsageError: as ``compare``.
    """
    found = compare(options)
    made = decide(found.projections, found.options)
    if options.within_s is not None and options.target_gpus is None and not _is_settled(made):
        n_here = found.projections[0].n_gpus
        for n_gpus in _MORE_GPUS:
            if n_gpus <= n_here:
                continue
            larger = compare(replace(options, target_gpus=n_gpus))
            decision = decide(larger.projections, larger.options)
            if _is_settled(decision):
                return larger, decision
            if (decision.meets or 0.0) > (made.meets or 0.0):
                found = larger
                made = decision
    return found, made


def _is_settled(decision: Decision) -> bool:
    row = decision.recommended
    return decision.verdict != "best chance" and row is not None and (row.is_local or row.is_for_rent_now)


def compare_hours(hours: float, options: ProjectionOptions) -> MachineComparison:
    """Return a training that takes so many hours here, without a log, on this machine and on others.

    Raises:
        UsageError: if the hours or a setting are impossible, or the options contradict each other.
    """
    if not (math.isfinite(hours) and hours > 0):
        raise UsageError(f"--hours must be positive, such as 20, not {hours:g}")
    if options.local_gpu is None and options.manual_tdp_watts is not None:
        raise UsageError("--tdp is the power limit of a GPU here: name it with --gpu")
    settings = load_settings({"country": options.country})
    price = None
    if options.local_gpu is not None:
        n_gpus, name = counted(options.local_gpu)
        options = replace(options, local_gpu=name, n_gpus=n_gpus or options.n_gpus or 1)
        price = settings.price_usd_per_gpu_hour
    options = _completed(
        replace(options, country=settings.country or None),
        carbon_intensity=settings.carbon_intensity_gco2e_per_kwh,
        electricity_price=settings.electricity_price_usd_per_kwh,
        price_usd_per_gpu_hour=price,
        pue=settings.pue,
        workload=settings.workload or None,
        precision=settings.precision or None,
    )
    duration_s = replace(_exact(hours * SECONDS_PER_HOUR, "s"), kind=Kind.ASSUMPTION)
    return _compared(("", "time as given"), _forecast(duration_s, None), options)


def compare_log(log_dir: str | None, options: ProjectionOptions) -> MachineComparison:
    """Return the latest exploration of a log directory, else its latest run, on this machine and on others.

    Args:
        log_dir: the directory; None for that of the settings.
        options: the options of the projection; the log gives what they leave open.

    Raises:
        UsageError: if there is nothing to project from, or the options contradict each other.
    """
    log_dir = log_dir or load_settings().log_dir
    run = latest_run(log_dir)
    if run is None:
        raise UsageError(f"{log_dir} holds no run to go by: explore or track one, or give --gpu and --hours")
    return compare_run(run, options)


def latest_run(log_dir: str) -> Run | None:
    """Return the latest exploration of a log directory, else its latest run; None if it has none."""
    logs = read_logs(log_dir)
    return latest_exploration(logs) or next(iter(reversed(list(logs.readable()))), None)


def forecast_of(run: Run, forecast: Forecast | None = None) -> tuple[Forecast, str]:
    """Return what a run takes, and how that is known: an exploration's forecast, or a tracked run's own time.

    Args:
        run: a readable run.
        forecast: the forecast of the exploration, if at hand.

    Raises:
        UsageError: if the run neither finished nor forecast anything.
    """
    if has_trials(run):
        from greenlove_tracker.extrapolation.extrapolate import forecast_from_log  # statsmodels: over a second

        return forecast or forecast_from_log(run), "forecast from an exploration"
    return _forecast_of_tracked(run)


def compare_run(run: Run, options: ProjectionOptions, *, forecast: Forecast | None = None) -> MachineComparison:
    """Return the training of a run on this machine and on others, as an exploration forecast it or as it took.

    Args:
        run: a readable run.
        options: the options of the projection; the run gives what they leave open.
        forecast: the forecast of the run's exploration, if at hand; else it is made again from the log.

    Raises:
        UsageError: if there is nothing to project from, or the options contradict each other.
    """
    options, problem = logged_gpus(run, options)
    forecast, basis = forecast_of(run, forecast)
    knows_work = has_trials(run) or forecast.plan is not None
    if options.local_gpu is None and not knows_work and options.custom_speedup is None:
        # From a CPU only the steps tell how much faster a GPU may be: many small ones leave it waiting for work.
        raise UsageError(
            f"{run.path} used no GPU and counted no steps, without which nobody knows how fast one would be: call "
            "tracker.step() after each step of the training, or explore it, or give --speedup"
        )
    if options.pue is not None and forecast.energy_kwh:  # it holds the PUE of the run
        energy = forecast.energy_kwh
        forecast = replace(forecast, energy_kwh=energy.times(options.pue / run.terms.pue, energy.unit))
    if problem:  # nor is what was made of it
        forecast = replace(forecast, energy_kwh=None, emissions_kgco2e=None, cost_usd=None)
    if has_trials(run):
        name = f"{run.run_id}: {fmt.plan(forecast.plan)}"
    else:
        name = run.title()
    options, kind = _with_kind_of(run, _with_place_of(run, options))
    return _compared((name, *filter(None, (basis, problem, kind))), forecast, options)


def _compared(about: tuple[str, ...], forecast: Forecast, options: ProjectionOptions) -> MachineComparison:
    rows = project_forecast(forecast, options)
    if options.peak_memory_gb:
        about = (*about, f"peak {options.peak_memory_gb:.3g} GiB")
    elif options.memory_estimate_gb:
        about = (*about, f"estimated peak {fmt.memory(options.memory_estimate_gb * BYTES_PER_GB)}")
    return MachineComparison(about, tuple(rows), options, forecast)


def _with_place_of(run: Run, options: ProjectionOptions) -> ProjectionOptions:
    """Return the options with the place that the log of a run names, unless another country is given."""
    rates = run.terms
    if options.local_gpu is not None:
        options = _completed(options, price_usd_per_gpu_hour=rates.price_usd_per_gpu_hour)
    if options.country is None:
        if run.knows_carbon_intensity:
            options = _completed(options, carbon_intensity=run.carbon_intensity)
        options = _completed(options, country=run.text("country") or None, electricity_price=run.electricity_price)
    return _completed(options, pue=rates.pue)


def _with_kind_of(run: Run, options: ProjectionOptions) -> tuple[ProjectionOptions, str]:
    """Return the options with the log's precision and workload if none are given, and how the log knows them.

    If the log has several precisions, joined by ``+``, take the slowest: how much is computed in each is unknown.
    """
    workload = run.text("workload")
    precisions = run.text("precision").split("+")
    told = []
    if options.precision is None and set(precisions) <= set(PRECISIONS):
        slowest, *faster = sorted(set(precisions), key=PRECISIONS.index)
        options = replace(options, precision=slowest)
        how = "the slowest of several" if faster else run.text("precision_basis")
        told.append(f"in {slowest} ({how})")
    if options.workload is None and workload in WORKLOADS:
        basis = run.text("workload_basis")
        if basis != GIVEN:
            basis = f"guessed from {basis}"
        options = replace(options, workload=workload)
        told.append(f"as {workload} ({basis})")
    if not told:
        return options, ""
    return options, f"counted {' and '.join(told)}"


def _completed(options: ProjectionOptions, **known: Any) -> ProjectionOptions:
    return replace(options, **{name: value for name, value in known.items() if getattr(options, name) is None})


def _forecast_of_tracked(run: Run) -> tuple[Forecast, str]:
    """Return what a finished run took, else its last forecast."""
    summary = run.summary
    if run.is_complete and summary.duration_s > 0:
        energy = _exact(summary.energy_kwh, "kWh") if summary.energy_kwh is not None else None
        duration_s = _exact(summary.duration_s, "s")
        basis = "as this run took"
    elif run.forecasts:
        estimates = run.forecasts[-1].estimates
        duration_s = estimates["duration_s"]
        energy = estimates.get("energy_kwh")
        basis = "as this run forecast last"
    else:
        raise UsageError(
            f"{run.path} neither finished nor forecast anything: let it run to its end, or say Tracker(epochs=…), "
            "or give --hours"
        )
    # The batches that a rank goes through in this time, in proportion to those so far; else its optimizer steps.
    done: float | None = summary.counts.steps
    if summary.counts.batches:
        done = summary.counts.batches / summary.n_ranks
    plan = None
    if done and summary.duration_s > 0:
        plan = TrainingPlan(steps=max(1, round(done * duration_s.point / summary.duration_s)))
    if run.first_epoch or run.first_step:
        basis += ", without what earlier runs of the training did (--hours is for the whole training)"
    return _forecast(duration_s, energy, plan), basis


def _forecast(duration_s: Estimate, energy_kwh: Estimate | None, plan: TrainingPlan | None = None) -> Forecast:
    nothing = _exact(0.0, "s")
    return Forecast(duration_s, energy_kwh, None, None, nothing, None, None, (), None, "live", 0, plan)


def _exact(value: float, unit: str) -> Estimate:
    return Estimate(value, value, value, _LEVEL, unit, Kind.CONFIDENCE)


def logged_gpus(run: Run, options: ProjectionOptions) -> tuple[ProjectionOptions, str]:
    """Return the options with the GPUs that the run's model used, which may be fewer than were metered.

    What the user gives comes first.

    Args:
        run: the run whose log names them.
        options: the options, with the user's name for the GPU, with or without their number, and the memory of one.

    Returns:
        The options, and why the measured energy is not the training's; empty if it is.

    Raises:
        UsageError: if the log names no GPU, or several, or if one is given for a run that used none.
    """
    given = options.local_gpu
    n_metered = run.summary.gpu_count
    text = run.text("used_gpus")
    n_logged = int(text) if text.isdecimal() else n_metered
    # The GPUs of a simulated meter are the user's word for those of the training.
    is_simulated = bool(text) and run.text("meter") == "simulated"
    n_used = n_metered if is_simulated and not n_logged else n_logged
    if given and not n_used and not is_simulated and (text or run.text("gpu_count")):
        raise UsageError(
            f"{run.path} was made on a CPU, and its time is not that of {given}: give --hours without a log, or leave "
            "--gpu out"
        )
    name: str | None
    if given:
        typed, name = counted(given)
        n_gpus = typed or options.n_gpus or n_used or n_metered or 1
    else:
        name = _logged_name(run, n_logged)
        n_gpus = options.n_gpus or n_used or 1
    problem = ""
    if run.lacks_gpus:
        problem = "its GPUs could not be metered, so the energy is not compared"
    elif n_metered != n_used:
        problem = f"{fmt.plural(n_metered, 'GPU')} metered, {n_used} used, so the energy is not compared"
    limit_w = None
    if n_gpus == n_used and run.summary.n_nodes == 1:
        limit_w = run.amount("gpu_power_limit_w")
    options = replace(options, local_gpu=name, n_gpus=n_gpus)
    if limit_w and n_metered:
        options = _completed(options, manual_tdp_watts=limit_w / n_metered)
    if limit_w and n_used == n_metered:
        options = _completed(options, utilization=_draw(run, limit_w))
    if given is None:
        options = _completed(options, local_memory_gb=run.amount("gpu_memory_gb") or None)
    if n_logged or not text:  # else the log says that it used none
        peak_gb = run.amount("peak_gpu_memory_gb")
        if not peak_gb and name is not None:  # the peak of an exploration without a GPU is that of the process
            peak_gb = run.amount("peak_memory_gb")
        options = _completed(options, peak_memory_gb=peak_gb or None)
    return _completed(options, memory_estimate_gb=run.amount("gpu_memory_estimate_gb") or None), problem


def _logged_name(run: Run, n_used: int) -> str | None:
    """Return the name of the run's GPU, as the meter found it; None if there is none.

    Raises:
        UsageError: if the log has no name, or several.
    """
    models = run.text("gpu_models")
    if not n_used:
        return None
    if not models:
        raise UsageError(f"{run.path} does not name its GPU: give --gpu, such as --gpu 'RTX 4090'")
    if len(models.split(" × ")) > 2:
        first = counted(models.partition(", ")[0])[1]
        raise UsageError(f"{run.path} ran on different GPUs ({models}): say which to go by, such as --gpu '{first}'")
    return counted(models)[1]


def _draw(run: Run, limit_w: float) -> float | None:
    """Return the share of their limit that all GPUs drew; None if it was not measured."""
    if not set(run.text("gpu_method").split("+")) <= MEASURED_METHODS:
        return None
    if run.trials:
        power_w = exploration_of(run).gpu_power_w
    else:
        power_w = run.gpu_mean_w
    if not power_w:
        return None
    return min(1.0, power_w / limit_w)
