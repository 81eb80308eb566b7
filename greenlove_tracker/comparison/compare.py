"""From what is asked to the machines side by side."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any

from greenlove_tracker.comparison.measured import given_speedups, measured_there, with_measured, with_rows_of
from greenlove_tracker.comparison.subject import Asked, Subject, given_subject, logged_subject
from greenlove_tracker.config import load_settings
from greenlove_tracker.errors import UsageError
from greenlove_tracker.forecasting import Forecast
from greenlove_tracker.projection.project import Projection, project


@dataclass(frozen=True, slots=True)
class Comparison:
    """The machines side by side, and what is said at their head."""

    about: tuple[str, ...]
    projections: tuple[Projection, ...]
    today: date


def compare(log_dir: str | None, asked: Asked, *, forecast: Forecast | None = None) -> Comparison:
    """The training of a log directory, or of ``asked.hours``, on this machine and on others.

    Args:
        log_dir: the directory; None for that of the settings.
        asked: what is wanted.
        forecast: of the log's exploration, where it is at hand; by default it is made again from the log.

    Raises:
        UsageError: where nothing is known to project from, or what is asked cannot be.
    """
    if asked.hours is not None and log_dir is not None:
        raise UsageError(f"--hours is for a training without a log: leave it out, or {log_dir}")
    if asked.hours is not None:
        return compare_subject(given_subject(asked), asked)
    return compare_subject(logged_subject(log_dir or load_settings().log_dir, asked, forecast), asked)


def compare_subject(subject: Subject, asked: Asked, today: date | None = None) -> Comparison:
    """A training on this machine and on others.

    Args:
        subject: the training.
        asked: what is wanted.
        today: against which the age of prices is counted; default today in UTC.

    Raises:
        UsageError: where nothing is known to project from, or what is asked cannot be.
    """
    custom = given_speedups(asked.speedups)
    found = None if asked.measured is None else measured_there(subject, asked.measured, asked.scaling)
    if found is not None:
        custom, asked = with_measured(custom, found), replace(asked, targets=(*asked.targets, found.gpu))
    today = today or datetime.now(UTC).date()
    options = {**_options(subject, asked), "custom_speedup": custom, "today": today}
    rows = project(subject.forecast, **options)
    if found is not None:
        point_s = subject.forecast.duration_s.point
        exactly = replace(subject.forecast.duration_s, lower=point_s, upper=point_s)
        rows = with_rows_of(rows, project(replace(subject.forecast, duration_s=exactly), **options), found)
    peak_gb = options["peak_memory_gb"]
    about = subject.about if peak_gb is None else (*subject.about, f"peak {peak_gb:.3g} GiB")
    return Comparison(about, tuple(rows), today)


def _options(subject: Subject, asked: Asked) -> dict[str, Any]:
    """The arguments of ``project``: what is asked, else what the log tells."""
    machine = subject.machine
    return {
        "local_gpu": machine.gpu,
        "n_gpus": machine.n_gpus,
        "local_memory_gb": machine.memory_gb,
        "gpus": asked.targets,
        "provider": asked.provider,
        "prices": asked.prices,
        "region": asked.region,
        "target_gpus": asked.gpus,
        "scaling": asked.scaling,
        "task": asked.task,
        "precision": asked.precision,
        "method": asked.method,
        "include_all": asked.include_all,
        "utilization": machine.draw if asked.utilization is None else None,
        "manual_gpu_utilization": asked.utilization,
        "manual_tdp_watts": machine.limit_w if asked.tdp is None else asked.tdp,
        "peak_memory_gb": machine.peak_memory_gb if asked.peak_memory is None else asked.peak_memory,
        "embodied_kgco2e_per_gpu_hour": asked.embodied,
        **subject.place,
    }
