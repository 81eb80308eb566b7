"""From what is asked to the machines side by side."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from greenlove_tracker.comparison.measured import given_speedups, measured_there, with_measured, with_rows_of
from greenlove_tracker.comparison.options import rows_in_options
from greenlove_tracker.comparison.subject import Asked, Subject, given_subject, logged_subject
from greenlove_tracker.config import load_settings
from greenlove_tracker.errors import UsageError
from greenlove_tracker.forecasting import Forecast
from greenlove_tracker.projection.project import Projection, project
from greenlove_tracker.report.content_projection import projection_document
from greenlove_tracker.report.document import Document
from greenlove_tracker.report.projection import projection_record, projection_screen, projection_table


@dataclass(frozen=True, slots=True)
class Comparison:
    """The machines side by side, and what is said at their head."""

    about: tuple[str, ...]
    projections: tuple[Projection, ...]
    today: date

    def text(self, style: str = "text") -> str:
        """As ``text``, ``json`` or ``csv``; the screen names the options of the command line."""
        if style == "json":
            return json.dumps(projection_record(self.projections, self.about), indent=2)
        if style == "csv":
            return projection_table(self.projections).to_csv(index=False).rstrip("\n")
        return projection_screen(rows_in_options(self.projections), self.about, self.today)

    def write(self, path: str | Path) -> Path:
        """As a page of HTML or a PDF, as the name says.

        Raises:
            UsageError: for any other name, or where it cannot be written.
        """
        write = writer_for(path)
        return write(projection_document(self.projections, self.about), path)


def writer_for(path: str | Path) -> Callable[[Document, str | Path], Path]:
    """What writes a document under this name.

    Raises:
        UsageError: for a name that is neither .pdf nor .html.
    """
    match Path(path).suffix.lower():
        case ".html":
            from greenlove_tracker.report.html import write_page

            return write_page
        case ".pdf":
            from greenlove_tracker.report.pdf import write_pages

            return write_pages
    raise UsageError(f"{path}: .pdf and .html can be written; --json and --csv go to stdout")


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
    is_given = asked.hours is not None
    subject = given_subject(asked) if is_given else logged_subject(log_dir or load_settings().log_dir, asked, forecast)
    custom = given_speedups(asked.speedups)
    found = None if asked.measured is None else measured_there(subject, asked.measured, asked.scaling)
    if found is not None:
        custom, asked = with_measured(custom, found), replace(asked, targets=(*asked.targets, found.gpu))
    today = datetime.now(UTC).date()
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
        "local_gpu": machine.gpu, "n_gpus": machine.n_gpus, "local_memory_gb": machine.memory_gb,
        "gpus": asked.targets, "provider": asked.provider, "prices": asked.prices, "region": asked.region,
        "target_gpus": asked.gpus, "scaling": asked.scaling, "task": asked.task, "precision": asked.precision,
        "method": asked.method, "include_all": asked.include_all,
        "utilization": machine.draw if asked.utilization is None else None,
        "manual_gpu_utilization": asked.utilization,
        "manual_tdp_watts": machine.limit_w if asked.tdp is None else asked.tdp,
        "peak_memory_gb": machine.peak_memory_gb if asked.peak_memory is None else asked.peak_memory,
        "embodied_kgco2e_per_gpu_hour": asked.embodied,
        **subject.place,
    }  # fmt: skip
