"""The savings of an experiment: what each arm takes and learns beside its baseline, as tables and as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from greenlove_tracker.extrapolation.run_comparison import difference_of_means
from greenlove_tracker.rendering.document import Table, Texts, columns
from greenlove_tracker.report import wording
from greenlove_tracker.report.comparison import change_text, has_model
from greenlove_tracker.report.comparison_sides import DASH, Side
from greenlove_tracker.report.metric_report import number_text
from greenlove_tracker.report.plain_values import values_at
from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.comparisons import Comparison
from greenlove_tracker.vocabulary.forecasting import Estimate
from greenlove_tracker.vocabulary.units import BYTES_PER_GB

_RATIOS = {
    "emissions_kgco2e": "co2e_ratio",
    "energy_kwh": "energy_ratio",
    "peak_memory_gb": "memory_ratio",
    "duration_s": "time_ratio",
    "cost_usd": "cost_ratio",
}
_TITLES: dict[str, tuple[str, fmt.Text]] = {
    **fmt.QUANTITIES,
    "peak_memory_gb": ("peak memory", lambda peak_gb: fmt.memory((peak_gb or 0.0) * BYTES_PER_GB)),
    "wait_s": ("waited", fmt.duration),
    "intensity_at_request_gco2e_per_kwh": ("grid before, gCO2e/kWh", fmt.count),
    "intensity_at_start_gco2e_per_kwh": ("grid at the start", fmt.count),
}
_CHANGE = {"change": "point", "change_lower": "lower", "change_upper": "upper"}
DATA_COLUMNS = ("combination", "arm", "quantity", "baseline", "value", *_CHANGE)

Sides = Mapping[str, Side]
"""The trainings by the name of their row in a comparison."""


def _changes(
    comparison: Comparison, sides: Sides, metrics: Texts
) -> Iterator[tuple[Side, Side, dict[str, Estimate | None]]]:
    """Yield the baseline, an arm, and its changes: of an amount the ratio, of a metric the difference."""
    before = sides[comparison.baseline.name]
    for row in comparison.rows:
        arm = sides[row.name]
        changes = dict.fromkeys(_TITLES) | {name: getattr(row, ratio) for name, ratio in _RATIOS.items()}
        for metric in metrics:
            changes[metric] = difference_of_means(arm.values(metric), before.values(metric))
        yield before, arm, changes


def savings_tables(comparison: Comparison, sides: Sides, metrics: Texts) -> list[Table]:
    """Return a table for each arm, beside the baseline, with each change and its range."""
    tables = []
    for before, arm, changes in _changes(comparison, sides, metrics):
        rows = [("trained", before.trained, arm.trained, "")]
        for name, change in changes.items():
            title, text = _TITLES.get(name, (f"final {fmt.shortened(name, 24)}", number_text))
            if name == "energy_kwh" and has_model(comparison):
                title += wording.STAR
            cells = (before.text(name, text), arm.text(name, text))
            if cells != (DASH, DASH):
                rows.append((title, *cells, _text_of(name, change)))
        tables.append(Table(columns({"": 1}, (before.title, arm.title, "change")), rows, is_whole=True))
    return tables


def _text_of(name: str, change: Estimate | None) -> str:
    """Write a change with its range: ``−31% [−35 – −27]``; of a metric ``−0.0018 [−0.011 – +0.0073]``."""
    if name in _RATIOS:
        return change_text(change)
    if change is None:
        return ""
    point = _signed(change.point)
    return f"{point} [{fmt.bounds(change, _signed)}]" if change.has_interval else point


def _signed(difference: float | None) -> str:
    return f"{difference or 0.0:+.2g}".replace("-", "−")


def savings_data(comparison: Comparison, sides: Sides, metrics: Texts) -> Iterator[dict[str, Any]]:
    """Yield a row of data for each quantity of each arm; a change without a range has its point as both ends."""
    for before, arm, changes in _changes(comparison, sides, metrics):
        for name, change in changes.items():
            yield {
                "arm": arm.arm,
                "quantity": name,
                "baseline": before.mean(name),
                "value": arm.mean(name),
                **values_at(change, _CHANGE),
            }
