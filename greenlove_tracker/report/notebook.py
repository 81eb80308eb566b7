"""Results in a notebook, registered with IPython by type, and in sentences, as ``print`` shows them.

Forecasts and summaries are small cards. What has a table is the screen of a terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from greenlove_tracker.logs.aggregate import Aggregate
from greenlove_tracker.projection.types import Projection, Projections
from greenlove_tracker.rendering import html, terminal
from greenlove_tracker.rendering.document import Document, KeyFigure
from greenlove_tracker.report import wording
from greenlove_tracker.report.directory_report import summary_document
from greenlove_tracker.report.exploration_report import forecast_figures, forecast_warnings
from greenlove_tracker.report.projection_report import projection_document
from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.forecasting import Forecast
from greenlove_tracker.vocabulary.records import Flag, RunSummary


def register(formatters: Any) -> None:
    """Register our types with IPython; they lie below this package, and know nothing of HTML.

    Args:
        formatters: ``get_ipython().display_formatter.formatters``.
    """
    as_html = formatters["text/html"]
    for kind in (Forecast, RunSummary):
        formatters["text/plain"].for_type(kind, lambda result, printer, _: printer.text(in_words(result)))
        as_html.for_type(kind, card)
    as_html.for_type(Projection, lambda projection: _table([projection]))
    as_html.for_type(Projections, lambda rows: _table(rows) or None)
    as_html.for_type(Aggregate, lambda aggregate: shown(summary_document(aggregate, ("project",))))
    as_html.for_type_by_name(
        "greenlove_tracker.exploration.exploration_run",
        "Estimation",
        lambda estimation: card(estimation.forecast) + _table(estimation.projections),
    )


def shown(document: Document) -> str:
    """Return the answer of a document as HTML."""
    return f'<pre style="font-family: monospace">{escape(terminal.render(document))}</pre>'


def _table(rows: Sequence[Projection]) -> str:
    return shown(projection_document(rows)) if rows else ""


def card(result: Forecast | RunSummary) -> str:
    """Return the key figures of a forecast or a summary as HTML, and what else it says."""
    return html.fill("card.html", told=_told(result))


def in_words(result: Any) -> str:
    """Return what a forecast or a summary says in sentences."""
    about, figures, said = _told(result)
    amounts = wording.joined([figure.brief_text for figure in figures])
    return fmt.printable(" ".join([f"{about} {amounts}.", *said]))


def _told(result: Forecast | RunSummary) -> tuple[str, Sequence[KeyFigure], Iterable[str]]:
    """Return what a forecast or a summary is about, its key figures, and what else is to be said, in sentences."""
    if isinstance(result, Forecast):
        training = fmt.plan(result.plan) or "this training"
        return f"Forecast of {training}:", forecast_figures(result), forecast_warnings(result)
    mark = ""
    if Flag.GPU_MISSING in result.flags:
        mark = wording.AT_LEAST
    if not result.measured_share:
        mark += wording.TILDE
    figures = [wording.tile(name, getattr(result, name), None, "", "", mark) for name in fmt.QUANTITIES]
    how = wording.badge(result.measured_share)
    return f"{result.run_id} ({result.status}) took", figures, [f"Its energy is {how}."] if how else []
