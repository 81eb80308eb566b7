"""Forecasts, summaries and projections in a notebook: the screens of a terminal, registered with IPython by type."""

from __future__ import annotations

from html import escape
from typing import Any

from greenlove_tracker.logs.aggregate import Aggregate
from greenlove_tracker.projection.types import Projection, Projections
from greenlove_tracker.rendering import terminal
from greenlove_tracker.rendering.document import Document, Paragraph
from greenlove_tracker.report import wording
from greenlove_tracker.report.directory_report import summary_document
from greenlove_tracker.report.exploration_report import forecast_document
from greenlove_tracker.report.projection_report import projection_document
from greenlove_tracker.vocabulary.forecasting import Forecast
from greenlove_tracker.vocabulary.records import RunSummary


def register(formatter: Any) -> None:
    """Register our types with IPython's HTML formatter; they lie below this package, and know nothing of HTML.

    Args:
        formatter: ``get_ipython().display_formatter.formatters["text/html"]``.
    """
    formatter.for_type(Forecast, lambda forecast: shown(forecast_document(forecast)))
    formatter.for_type(RunSummary, lambda summary: shown(summary_screen(summary)))
    formatter.for_type(Projection, lambda projection: shown(projection_document([projection])))
    formatter.for_type(Projections, lambda rows: shown(projection_document(rows)) if rows else None)
    formatter.for_type(Aggregate, lambda aggregate: shown(summary_document(aggregate, ("project",))))
    formatter.for_type_by_name(
        "greenlove_tracker.exploration.exploration_run",
        "Estimation",
        lambda estimation: shown(forecast_document(estimation.forecast, estimation.projections)),
    )


def shown(document: Document) -> str:
    """Return the answer of a document as HTML."""
    return f"<pre>{escape(terminal.render(document))}</pre>"


def summary_screen(summary: RunSummary) -> Document:
    """Return the totals of a run."""
    took = wording.took(summary)
    measured = Paragraph(f"Its energy is {wording.badge(summary.measured_share) or 'unknown'}.")
    return Document("", "", "", (measured,), verdict=f"{summary.run_id} ({summary.status}) took {took}.")
