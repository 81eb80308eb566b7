"""Builds a report from a log directory, and writes it as the name of its file says: PDF, HTML or Markdown."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Unpack

from greenlove_tracker.files import writing
from greenlove_tracker.logs.aggregate import aggregate
from greenlove_tracker.logs.directory import Logs, is_readable, read_logs
from greenlove_tracker.logs.selection import Chosen
from greenlove_tracker.rendering.document import Document
from greenlove_tracker.report.directory_report import NEEDS, directory_document
from greenlove_tracker.report.run_report import run_document
from greenlove_tracker.settings.config import load_settings
from greenlove_tracker.vocabulary.errors import UsageError

_SUFFIXES = (".pdf", ".html", ".md")


def write_pdf(
    log_dir: str | os.PathLike[str],
    path: str | os.PathLike[str] = "report.pdf",
    *,
    page_size: str | None = None,
    **chosen: Unpack[Chosen],
) -> Path:
    """Write the report of a run, or of all runs of a log directory. The same logs and page size give the same bytes.

    Args:
        log_dir: a log directory, or the directory of one run.
        path: the file to write; it is replaced as a whole or not at all.
        page_size: "A4" or "Letter"; default: the setting of that name, which is A4 where nothing sets it.
        **chosen: which runs, and what of them: ``since``, ``until``, ``project``, ``user``, ``job``, ``host``, as
            ``aggregate`` takes them.

    Returns:
        The path of the file.

    Raises:
        UsageError: where there is no run, where the page size cannot be, or where the file cannot be written.
    """
    return writing.write_report(path, _rendered(document(log_dir, **chosen), ".pdf", page_size))


def write_html(
    log_dir: str | os.PathLike[str],
    path: str | os.PathLike[str] = "report.html",
    **chosen: Unpack[Chosen],
) -> Path:
    """Write the report of a run, or of all runs of a log directory, as one page of HTML.

    Args:
        log_dir: a log directory, or the directory of one run.
        path: the file to write; it is replaced as a whole or not at all.
        **chosen: which runs, and what of them.

    Returns:
        The path of the file.

    Raises:
        UsageError: where there is no run, or where the file cannot be written.
    """
    return writing.write_report(path, _rendered(document(log_dir, **chosen), ".html"))


def write_document(content: Document, path: str | os.PathLike[str], *, page_size: str | None = None) -> Path:
    """Write any document in the format that the file's name says; the file is replaced as a whole or not at all.

    Args:
        content: the document.
        path: a name that ends with .pdf, .html or .md.
        page_size: of a PDF: "A4" or "Letter"; default: the setting of that name.

    Raises:
        UsageError: for any other name, an unknown page size, or where the file cannot be written.
    """
    return writing.write_report(path, _rendered(content, checked_suffix(path), page_size))


def _rendered(content: Document, suffix: str, page_size: str | None = None) -> bytes | str:
    """Return a document in a format; what that needs is loaded for it alone: no page needs reportlab, no PDF Jinja2."""
    match suffix:
        case ".pdf":
            from greenlove_tracker.rendering import pdf

            return pdf.render(content, page_size=load_settings({"page_size": page_size}).page_size)
        case ".html":
            from greenlove_tracker.rendering import html

            return html.render(content)
        case _:
            from greenlove_tracker.rendering import markdown

            return markdown.render(content)


def checked_suffix(path: str | os.PathLike[str]) -> str:
    """Return the suffix of a file's name, which says the format.

    Raises:
        UsageError: where no format has that suffix.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in _SUFFIXES:
        raise UsageError(f"{path}: {', '.join(_SUFFIXES[:-1])} and {_SUFFIXES[-1]} can be written")
    return suffix


def document(log_dir: str | os.PathLike[str] | Logs, **chosen: Unpack[Chosen]) -> Document:
    """Return the report of one run, or of a log directory; one with a single run is reported as that run.

    Args:
        log_dir: the directory, or what ``read_logs`` gave for it.
        **chosen: which runs, and what of them: ``since``, ``until``, ``project``, ``user``, ``job``, ``host``, as
            ``aggregate`` takes them.

    Raises:
        UsageError: where there is no such directory, or no run in it.
    """
    logs = log_dir if isinstance(log_dir, Logs) else read_logs(log_dir)
    is_of_all = not any(value for name, value in chosen.items() if name != "simulated")
    if is_of_all and len(logs.runs) == 1 and not logs.own_problems and is_readable(logs.runs[0]):
        return run_document(logs.runs[0])
    runs = aggregate(logs, **chosen)
    total = runs.prepare(*NEEDS)  # all needs at once, so that each run is read once
    selection = runs.selection
    if not total.n_runs and not runs.problems:
        if is_of_all:
            raise UsageError(f"{runs.path} holds no run; by default, a run writes to greenlove_logs")
        of = f" of {selection.text}" if selection.text else ""
        when = "" if selection.period.is_everything else f" in the period {selection.period.text}"
        raise UsageError(f"{runs.path} holds no run{of}{when}")
    return directory_document(runs)
