"""A document as the name of its file says: PDF, HTML or Markdown."""

from __future__ import annotations

import os
from pathlib import Path

from greenlove_tracker.errors import UsageError
from greenlove_tracker.report.document import Document

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
            from greenlove_tracker.report.pdf import write_pages

            return write_pages(content, path, page_size=page_size)
        case ".html":
            from greenlove_tracker.report.html import write_page

            return write_page(content, path)
        case _:
            from greenlove_tracker.report.markdown import write_text

            return write_text(content, path)
