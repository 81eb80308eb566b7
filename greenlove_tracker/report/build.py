"""Builds a report from a log directory, and writes it as the name of its file says: PDF, HTML or Markdown."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path
from typing import Unpack

from greenlove_tracker import files
from greenlove_tracker.errors import LogError, UsageError
from greenlove_tracker.logs.aggregate import aggregate
from greenlove_tracker.logs.directory import Logs
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.run_rows import run_row
from greenlove_tracker.logs.selection import Chosen, Period, Selection
from greenlove_tracker.logs.storage import LogPath, place
from greenlove_tracker.rendering.document import Document
from greenlove_tracker.report.directory_report import NEEDS, directory_document
from greenlove_tracker.report.run_report import run_document

_SUFFIXES = (".pdf", ".html", ".md")


def write_pdf(
    log_dir: str | os.PathLike[str],
    path: str | os.PathLike[str] = "report.pdf",
    *,
    page_size: str = "A4",
    n_jobs: int | None = None,
    issued: str | None = None,
    **chosen: Unpack[Chosen],
) -> Path:
    """Write the report of a run, or of all runs of a log directory.

    Args:
        log_dir: a log directory, or the directory of one run.
        path: the file to write; it is replaced as a whole or not at all.
        page_size: "A4" or "Letter".
        n_jobs: jobs that ran, as the scheduler counted them; the report says how many were not tracked.
        issued: the date of issue that the report bears, ``2026-12-02``; none unless given, so that the file is the same
            whenever it is made.
        **chosen: which runs, and what of them: ``since``, ``until``, ``project``, ``user``, ``job``, ``host``, as
            ``aggregate`` takes them.

    Returns:
        The path of the file.

    Raises:
        UsageError: where there is no run, where the page size or the number cannot be, or where the file
            cannot be written.
    """
    from greenlove_tracker.rendering import pdf  # reportlab takes a while to load

    content = document(log_dir, n_jobs=n_jobs, issued=issued, **chosen)
    return files.write_report(path, pdf.render(content, page_size=page_size))


def write_html(
    log_dir: str | os.PathLike[str],
    path: str | os.PathLike[str] = "report.html",
    *,
    n_jobs: int | None = None,
    issued: str | None = None,
    **chosen: Unpack[Chosen],
) -> Path:
    """Write the report of a run, or of all runs of a log directory, as one page of HTML.

    Args:
        log_dir: a log directory, or the directory of one run.
        path: the file to write; it is replaced as a whole or not at all.
        n_jobs: jobs that ran, as the scheduler counted them.
        issued: the date of issue.
        **chosen: which runs, and what of them.

    Returns:
        The path of the file.

    Raises:
        UsageError: where there is no run, where the number cannot be, or where the file cannot be
            written.
    """
    from greenlove_tracker.rendering import html  # no page needs reportlab, and no PDF Jinja2

    content = document(log_dir, n_jobs=n_jobs, issued=issued, **chosen)
    return files.write_report(path, html.render(content))


def write_document(content: Document, path: str | os.PathLike[str], *, page_size: str = "A4") -> Path:
    """Write any document in the format that the file's name says; the file is replaced as a whole or not at all.

    Args:
        content: the document.
        path: a name that ends with .pdf, .html or .md.
        page_size: of a PDF: "A4" or "Letter".

    Raises:
        UsageError: for any other name, an unknown page size, or where the file cannot be written.
    """
    data: bytes | str
    match checked_suffix(path):
        case ".pdf":
            from greenlove_tracker.rendering import pdf

            data = pdf.render(content, page_size=page_size)
        case ".html":
            from greenlove_tracker.rendering import html

            data = html.render(content)
        case _:
            from greenlove_tracker.rendering import markdown

            data = markdown.render(content)
    return files.write_report(path, data)


def checked_suffix(path: str | os.PathLike[str]) -> str:
    """Return the suffix of a file's name, which says the format.

    Raises:
        UsageError: where no format has that suffix.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in _SUFFIXES:
        raise UsageError(f"{path}: {', '.join(_SUFFIXES[:-1])} and {_SUFFIXES[-1]} can be written")
    return suffix


def document(
    log_dir: str | os.PathLike[str] | Logs,
    *,
    n_jobs: int | None = None,
    issued: str | None = None,
    **chosen: Unpack[Chosen],
) -> Document:
    """Return the report of one run, or of a log directory; one with a single run is reported as that run.

    Args:
        log_dir: the directory, or what ``read_logs`` gave for it.
        n_jobs: jobs that ran then, as the scheduler counted them: the report says how many of them were not tracked.
        issued: the date of issue that the report bears, ``2026-12-02``; none unless given, so that the file is the same
            whenever it is made.
        **chosen: which runs, and what of them: ``since``, ``until``, ``project``, ``user``, ``job``, ``host``, as
            ``aggregate`` takes them.

    Raises:
        UsageError: where there is no such directory, no run in it, or where the number cannot be.
    """
    path = log_dir.path if isinstance(log_dir, Logs) else place(log_dir)
    selection = Selection.of(**chosen)
    issued = None if issued is None else _date(issued, selection.period)
    is_of_all = selection.is_everything and n_jobs is None
    if is_of_all and (run := _own_run(path)):
        return run_document(run, issued)
    runs = aggregate(log_dir, **chosen)
    total = runs.prepare(*NEEDS)  # at once: each run is read once
    if not total.n_runs and not runs.problems:
        if selection.is_everything:
            raise UsageError(f"{runs.path} holds no run; a run writes to greenlove_logs unless told otherwise")
        when = "" if selection.period.is_everything else f" in the period {selection.period.text}"
        raise UsageError(f"{runs.path} holds no run{f' of {selection.text}' if selection.text else ''}{when}")
    if is_of_all and total.n_runs == 1:
        (run,) = runs.runs
        own = (str(run.path), f"{run.path}/", f"{run.path}\\")
        if all(str(problem.path).startswith(own[1:]) or str(problem.path) == own[0] for problem in runs.problems):
            return run_document(run, issued)
    return directory_document(runs, n_jobs, issued)


def _date(text: str, period: Period) -> str:
    """Return the date of issue as it is written on a report.

    Raises:
        UsageError: where it is no date, or lies before the period begins.
    """
    try:
        issued = date.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{{argument}} must be a date such as 2026-12-02, not {text!r}", argument="issued") from error
    if period.since is not None and issued < period.since.date():
        raise UsageError(
            f"{{argument}} {issued} lies before the period of the report, {period.text}", argument="issued"
        )
    return issued.isoformat()


def _own_run(path: LogPath) -> Run | None:
    """Return the run whose directory it is; None where it is none, or cannot be read."""
    run = Run(path)
    try:
        if not path.is_dir() or not run.is_run:
            return None
        run_row(run)
    except (LogError, OSError, ValueError, ArithmeticError):
        return None
    return run
