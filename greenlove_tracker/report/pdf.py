"""Writes a report as PDF. The same logs give the same bytes: nothing in it is of the time of writing."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

from reportlab.lib.pagesizes import A4, LETTER
from reportlab.lib.units import mm
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import Flowable, SimpleDocTemplate

from greenlove_tracker.errors import UsageError
from greenlove_tracker.format import shortened
from greenlove_tracker.report import fonts
from greenlove_tracker.report import typography as look
from greenlove_tracker.report.content import document
from greenlove_tracker.report.document import Document
from greenlove_tracker.report.pdf_blocks import HeadingText, Pages, story
from greenlove_tracker.report.writing import write_report

PAGE_SIZES = {"A4": A4, "Letter": LETTER}
_MARGIN_PT = 20 * mm
_FOOTER_PT = 7.0
_FRAME_PT = 6.0  # what reportlab's frame pads by itself


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


def write_pages(content: Document, path: str | os.PathLike[str], *, page_size: str = "A4") -> Path:
    """Write any document as a PDF.

    Raises:
        UsageError: where the page size is unknown, or the file cannot be written.
    """
    if page_size not in PAGE_SIZES:
        raise UsageError(f"no page size {page_size!r}: choose from {', '.join(PAGE_SIZES)}")
    return write_report(path, render_pdf(content, page_size=page_size))


def render_pdf(content: Document, *, page_size: str = "A4") -> bytes:
    """The PDF of a document; it is laid out until every page number that it names is right, at most three times."""
    pages = Pages()
    for _ in range(3):
        before = pages
        data, pages = _laid_out(content, PAGE_SIZES[page_size], before)
        if pages == before:
            break
    return data


class _Template(SimpleDocTemplate):
    """Notes the page of each heading, and puts it into the outline that viewers show beside the pages."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.pages_of_headings: list[int] = []

    def afterFlowable(self, flowable: Flowable) -> None:  # noqa: N802  # reportlab's name
        """Called by reportlab for each that was drawn."""
        if isinstance(flowable, HeadingText):
            self.canv.bookmarkPage(flowable.anchor)
            self.canv.addOutlineEntry(flowable.title, flowable.anchor)
            self.pages_of_headings.append(self.page)


def _laid_out(content: Document, size: tuple[float, float], pages: Pages) -> tuple[bytes, Pages]:
    fonts.register_fonts()
    buffer = io.BytesIO()
    template = _Template(
        buffer,
        pagesize=size,
        invariant=1,
        title=content.title,
        author="greenlove_tracker",
        leftMargin=_MARGIN_PT - _FRAME_PT,
        rightMargin=_MARGIN_PT - _FRAME_PT,
        topMargin=_MARGIN_PT,
        bottomMargin=22 * mm,
    )

    def frame(canvas: Canvas, _template: object) -> None:
        _draw_frame(canvas, content, size, pages.count)

    template.build(story(content, size[0] - 2 * _MARGIN_PT, pages), onFirstPage=frame, onLaterPages=frame)
    return buffer.getvalue(), Pages(template.page, tuple(template.pages_of_headings))


def _draw_frame(canvas: Canvas, content: Document, size: tuple[float, float], n_pages: int) -> None:
    """The footer, and from the second page on the title above."""
    right, y_pt, number = size[0] - _MARGIN_PT, 13 * mm, canvas.getPageNumber()
    canvas.setFillColor(look.GREY)
    canvas.setStrokeColor(look.RULE)
    canvas.setLineWidth(0.5)
    canvas.line(_MARGIN_PT, y_pt + 10, right, y_pt + 10)
    _draw_line(canvas, content.footer, y_pt, right - _MARGIN_PT - 80)
    canvas.setFont(fonts.REGULAR, _FOOTER_PT)
    canvas.drawRightString(right, y_pt, f"Page {number} of {n_pages}")
    if number > 1:
        _draw_line(canvas, content.title, size[1] - 12 * mm, right - _MARGIN_PT)


def _draw_line(canvas: Canvas, text: str, y_pt: float, width_pt: float) -> None:
    """``text`` from the left margin on, shortened until it fits."""
    length, line = len(text), text
    while fonts.text_width_pt(line := shortened(text, length), fonts.REGULAR, _FOOTER_PT) > width_pt:
        length = min(length, len(line)) - 1
    x_pt = _MARGIN_PT
    for part, font in fonts.spans(line):
        canvas.setFont(font or fonts.REGULAR, _FOOTER_PT)
        canvas.drawString(x_pt, y_pt, part)
        x_pt += canvas.stringWidth(part)
