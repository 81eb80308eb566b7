"""Forecasts, summaries and projections as small tables in a notebook, registered with IPython by type."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from greenlove_tracker import format as fmt
from greenlove_tracker.forecasting import Estimate, Forecast
from greenlove_tracker.logs.aggregate import Aggregate
from greenlove_tracker.projection.types import Projection, Projections
from greenlove_tracker.records import RunSummary
from greenlove_tracker.rendering import terminal
from greenlove_tracker.rendering.document import Paragraph, Table
from greenlove_tracker.report.directory_report import summary_document
from greenlove_tracker.report.projection_report import projection_document


def register(formatter: Any) -> None:
    """Register our types with IPython's HTML formatter; they lie below this package, and know nothing of HTML.

    Args:
        formatter: ``get_ipython().display_formatter.formatters["text/html"]``.
    """
    formatter.for_type(Forecast, forecast_html)
    formatter.for_type(RunSummary, summary_html)
    formatter.for_type(Projection, lambda projection: projections_html([projection]))
    formatter.for_type(Projections, lambda projections: projections_html(projections) if projections else None)
    formatter.for_type(Aggregate, aggregate_html)
    formatter.for_type_by_name("greenlove_tracker.exploration.exploration_run", "Estimation", estimation_html)


def forecast_html(forecast: Forecast) -> str:
    """Return a row for each quantity, with its interval, and the warnings."""
    rows = [(name, *_estimate(getattr(forecast, field), text)) for field, (name, text) in fmt.QUANTITIES.items()]
    warnings = "".join(f"<p>{escape(str(warning))}</p>" for warning in forecast.warnings)
    return _table(("", "forecast", f"{forecast.duration_s.level:.0%} interval"), rows) + warnings


def _estimate(estimate: Estimate | None, text: fmt.Text) -> tuple[str, str]:
    return (fmt.UNKNOWN, "") if estimate is None else (text(estimate.point), fmt.bounds(estimate, text))


def summary_html(summary: RunSummary) -> str:
    """Return the totals of a run."""
    share = summary.measured_share
    measured = "" if share is None else f"{fmt.percent(share)} measured by hardware"
    if summary.node_assumed_kwh:
        measured += f", {fmt.energy(summary.node_assumed_kwh)} assumed for the rest of the node"
    rows = [
        (name, text(getattr(summary, field)), measured if field == "energy_kwh" else "")
        for field, (name, text) in fmt.QUANTITIES.items()
    ]
    return _table((summary.run_id, summary.status, ""), rows)


def projections_html(projections: Sequence[Projection]) -> str:
    """Return what to do, the machines to choose from, and the warnings."""
    document, parts = projection_document(projections), []
    for block in document.brief_blocks:
        if isinstance(block, Table):
            parts.append(_table([column.title for column in block.columns], block.rows))
        elif isinstance(block, Paragraph):
            parts.append(f"<p>{escape(block.text)}</p>")
    return f"<p>{escape(document.verdict)}</p>{''.join(parts)}"


def estimation_html(estimation: Any) -> str:
    """Return the forecast of an exploration, and the same training on other machines where that is known."""
    projected = projections_html(estimation.projections) if estimation.projections else ""
    return forecast_html(estimation.forecast) + projected


def aggregate_html(aggregate: Aggregate) -> str:
    """Return the sums by project."""
    return f"<pre>{escape(terminal.render(summary_document(aggregate, ('project',))))}</pre>"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
