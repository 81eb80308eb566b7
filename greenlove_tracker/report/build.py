"""What a report says, from a log directory: one run in full, or all runs of a directory."""

from __future__ import annotations

import os
from pathlib import Path

from greenlove_tracker.errors import UsageError
from greenlove_tracker.logs.aggregate import Aggregate, aggregate
from greenlove_tracker.logs.directory import Logs
from greenlove_tracker.logs.run import Run
from greenlove_tracker.rendering.document import Document
from greenlove_tracker.rendering.html import write_page
from greenlove_tracker.rendering.pdf import write_pages
from greenlove_tracker.report.directory_report import CUTS, directory_document
from greenlove_tracker.report.run_report import run_document


def document(
    log_dir: str | os.PathLike[str] | Logs,
    *,
    factors: str | os.PathLike[str] | None = None,
    n_jobs: int | None = None,
    since: str | None = None,
    until: str | None = None,
) -> Document:
    """The report of a run's directory, or of a log directory; one with a single run is reported as that run.

    Args:
        log_dir: the directory, or what ``read_logs`` gave for it.
        factors: a file of other carbon intensities, to restate the runs with; both figures are shown.
        since: only runs that began on or after this UTC date (``2026-11-01``) or time.
        until: only runs that began before this UTC date or time.
        n_jobs: jobs that ran then, as the scheduler counted them: the report says how many of them were not tracked.

    Raises:
        UsageError: where there is no such directory, no run in it, or where the factors or the number cannot be.
    """
    added_up = aggregate(log_dir, since=since, until=until)
    added_up.prepare(*CUTS)
    if not added_up.total.n_runs and not added_up.problems:
        then = " of that time" if since or until else ""
        raise UsageError(f"{added_up.path} holds no run{then}; a run writes to greenlove_logs unless told otherwise")
    only = _only_run(added_up) if n_jobs is None else None
    return directory_document(added_up, factors, n_jobs) if only is None else run_document(only, factors)


def _only_run(added_up: Aggregate) -> Run | None:
    """The one run there is, where there is nothing beside it that could not be read."""
    if added_up.total.n_runs != 1:
        return None
    (run,) = added_up.runs
    its_own = str(run.path)
    told = (str(problem.path) for problem in added_up.problems)
    return run if all(path == its_own or path.startswith((f"{its_own}/", f"{its_own}\\")) for path in told) else None


# -- A document as the name of its file says: PDF, HTML or Markdown --

_SUFFIXES = (".pdf", ".html", ".md")


def check_name(path: str | os.PathLike[str]) -> str:
    """The suffix of a file that can be written.

    Raises:
        UsageError: for any other name.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in _SUFFIXES:
        raise UsageError(f"{path}: {', '.join(_SUFFIXES[:-1])} and {_SUFFIXES[-1]} can be written")
    return suffix


def write_document(content: Document, path: str | os.PathLike[str], *, page_size: str = "A4") -> Path:
    """Write it, replacing the file as a whole or not at all.

    Args:
        content: any document.
        path: a name that ends with .pdf, .html or .md.
        page_size: of a PDF: "A4" or "Letter".

    Raises:
        UsageError: for any other name, an unknown page size, or where the file cannot be written.
    """
    match check_name(path):
        case ".pdf":
            from greenlove_tracker.rendering.pdf import write_pages

            return write_pages(content, path, page_size=page_size)
        case ".html":
            from greenlove_tracker.rendering.html import write_page

            return write_page(content, path)
        case _:
            from greenlove_tracker.rendering.markdown import write_text

            return write_text(content, path)


def write_html(
    log_dir: str | os.PathLike[str],
    path: str | os.PathLike[str] = "report.html",
    *,
    factors: str | os.PathLike[str] | None = None,
    n_jobs: int | None = None,
    since: str | None = None,
    until: str | None = None,
) -> Path:
    """Write the report of a run, or of all runs of a log directory, as one page of HTML.

    Args:
        log_dir: a log directory, or the directory of one run.
        path: the file to write; it is replaced as a whole or not at all.
        factors: a CSV of other carbon intensities, ``country,from,until,gco2e_per_kwh,basis,source``, to restate with.
        n_jobs: jobs that ran, as the scheduler counted them; the report says how many were not tracked.
        since: only runs that began on or after this UTC date (``2026-11-01``) or time.
        until: only runs that began before this UTC date or time.

    Returns:
        The path of the file.

    Raises:
        UsageError: where there is no run, where the factors or the number cannot be, or where the file cannot be
            written.
    """
    return write_page(document(log_dir, factors=factors, n_jobs=n_jobs, since=since, until=until), path)


def write_pdf(
    log_dir: str | os.PathLike[str],
    path: str | os.PathLike[str] = "report.pdf",
    *,
    page_size: str = "A4",
    factors: str | os.PathLike[str] | None = None,
    n_jobs: int | None = None,
    since: str | None = None,
    until: str | None = None,
) -> Path:
    """Write the report of a run, or of all runs of a log directory.

    Args:
        log_dir: a log directory, or the directory of one run.
        path: the file to write; it is replaced as a whole or not at all.
        page_size: "A4" or "Letter".
        factors: a CSV of other carbon intensities, ``country,from,until,gco2e_per_kwh,basis,source``, to restate with.
        n_jobs: jobs that ran, as the scheduler counted them; the report says how many were not tracked.
        since: only runs that began on or after this UTC date (``2026-11-01``) or time.
        until: only runs that began before this UTC date or time.

    Returns:
        The path of the file.

    Raises:
        UsageError: where there is no run, where the page size, the factors or the number cannot be, or where the file
            cannot be written.
    """
    content = document(log_dir, factors=factors, n_jobs=n_jobs, since=since, until=until)
    return write_pages(content, path, page_size=page_size)
