"""How forecasts, summaries and projections look in a notebook: small tables, registered with IPython by name."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from greenlove_tracker import format as fmt
from greenlove_tracker.forecasting import Estimate, Forecast
from greenlove_tracker.logs.aggregate import Aggregate
from greenlove_tracker.projection.types import Projection
from greenlove_tracker.records import RunSummary
from greenlove_tracker.report.projection_report import comparison_table
from greenlove_tracker.report.projection_text import projection_text
from greenlove_tracker.report.screens import summary_table


def forecast_html(forecast: Forecast) -> str:
    """A line for each quantity, with its interval, and what speaks against it."""
    rows = [(name, *_estimate(getattr(forecast, field), text)) for field, (name, text) in fmt.QUANTITIES.items()]
    notes = "".join(f"<p>{escape(str(warning))}</p>" for warning in forecast.warnings)
    return _table(("", "forecast", f"{forecast.duration_s.level:.0%} interval"), rows) + notes


def summary_html(summary: RunSummary) -> str:
    """The totals of a run."""
    share = summary.measured_share
    measured = "" if share is None else f"{fmt.percent(share)} measured by hardware"
    rows = [
        (name, text(getattr(summary, field)), measured if field == "energy_kwh" else "")
        for field, (name, text) in fmt.QUANTITIES.items()
    ]
    return _table((summary.run_id, summary.status, ""), rows)


def projections_html(projections: Sequence[Projection]) -> str:
    """The table of every other face, who leads, and what makes it worse."""
    told = projection_text(projections)
    table = comparison_table(told)
    verdicts = (f"{label}: {text}" for label, text in told.verdicts)
    notes = "".join(f"<p>{escape(text)}</p>" for text in (*told.beside, *verdicts, *told.warnings))
    return _table([column.title for column in table.columns], table.rows) + notes


def estimation_html(estimation: Any) -> str:
    """The forecast of an exploration, and the same training on other machines where that can be told."""
    elsewhere = projections_html(estimation.projections) if estimation.projections else ""
    return forecast_html(estimation.forecast) + elsewhere


def aggregate_html(aggregate: Aggregate) -> str:
    """The sums by project."""
    return f"<pre>{escape(summary_table(aggregate, ('project',)))}</pre>"


def _estimate(estimate: Estimate | None, text: fmt.Text) -> tuple[str, str]:
    if estimate is None:
        return fmt.UNKNOWN, ""
    return text(estimate.point), f"{text(estimate.lower)} – {text(estimate.upper)}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _is_projections(value: object) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(p, Projection) for p in value)


def _sequence_html(value: Any) -> str | None:
    return projections_html(value) if _is_projections(value) else None  # None: IPython shows it as it would


def register(formatter: Any) -> None:
    """Tell IPython's HTML formatter of our types.

    Args:
        formatter: ``get_ipython().display_formatter.formatters["text/html"]``.
    """
    formatter.for_type(Forecast, forecast_html)
    formatter.for_type(RunSummary, summary_html)
    formatter.for_type(Projection, lambda p: projections_html([p]))
    formatter.for_type(Aggregate, aggregate_html)
    formatter.for_type_by_name("greenlove_tracker.exploration.exploration_run", "Estimation", estimation_html)
    for kind in (list, tuple):
        if kind not in formatter.type_printers:  # or it would take another library's place
            formatter.for_type(kind, _sequence_html)
