"""The figures for services that plot curves, by name; each name ends with its unit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from greenlove_tracker.logs.tables import IssuedForecast, MetricRecord
from greenlove_tracker.logs.totals import LEAST_METERED_S
from greenlove_tracker.tracker.events import ExportEvent, RowWritten, RunEnded
from greenlove_tracker.vocabulary.records import EpochRecord, Row, RowKind, RunSummary, times
from greenlove_tracker.vocabulary.units import w_from_kwh_s

PREFIX = "greenlove/"
_TOTALS = ("duration_s", "energy_kwh", "emissions_kgco2e", "cost_usd")


Figures = dict[str, float | None]  # by name; None is not known


@dataclass(frozen=True, slots=True)
class Scalars:
    """The figures at one point of a curve.

    Attributes:
        position: the epoch, or the optimizer steps done if the run counts in steps.
        utc_s: the time of the figures, in seconds since the Unix epoch.
        values: by name, with ``greenlove/`` before it; only numbers.
    """

    position: int
    utc_s: float
    values: Mapping[str, float]


def scalars_of(events: Sequence[ExportEvent], *, is_in_steps: bool) -> Iterator[Scalars]:
    """Yield the figures of epochs (of rows if the run counts in steps), forecasts and metrics.

    Args:
        events: in order.
        is_in_steps: the run counts in optimizer steps.
    """
    for event in events:
        what = event.what
        values = Figures()
        if isinstance(what, RowWritten):
            if what.of_epoch is not None and (is_in_steps or what.row.kind is RowKind.EPOCH):
                part = what.row if is_in_steps else what.of_epoch
                values = _of_row(what, part, is_in_steps=is_in_steps)
        elif isinstance(what, IssuedForecast):
            values = _of_forecast(what)
        elif isinstance(what, MetricRecord):
            values = {f"metrics/{what.name}": what.value}
        known = _known(values)
        if known:
            yield Scalars(event.position, event.utc_s, known)


def _of_row(written: RowWritten, part: Row | EpochRecord, *, is_in_steps: bool) -> Figures:
    part_kwh = part.energy.total_kwh
    if part_kwh == 0 and part.duration_s < LEAST_METERED_S:  # not known, as in the totals of a run
        part_kwh = None
    values = {"power_w": None if part_kwh is None else w_from_kwh_s(part_kwh, part.duration_s)}
    values |= {name: getattr(written.of_run, name) for name in _TOTALS}
    if not is_in_steps:
        values["epoch_duration_s"] = part.duration_s
        values["epoch_energy_kwh"] = times(part_kwh, written.energy_factor)
    return values


def _of_forecast(forecast: IssuedForecast) -> Figures:
    values = Figures()
    for quantity, estimate in forecast.estimates.items():
        name, _, unit = quantity.rpartition("_")
        values[f"forecast_{quantity}"] = estimate.point
        if estimate.has_interval:
            values[f"forecast_{name}_lower_{unit}"] = estimate.lower
            values[f"forecast_{name}_upper_{unit}"] = estimate.upper
    return values


def final_scalars(summary: RunSummary | None) -> Mapping[str, float]:
    """Return the totals of the whole run, under the same names as during the run."""
    if summary is None:
        return {}
    return _known({name: getattr(summary, name) for name in _TOTALS})


def _known(values: Figures) -> Mapping[str, float]:
    return {f"{PREFIX}{n}": float(v) for n, v in values.items() if v is not None and not math.isinf(v)}


def report_html(ending: RunEnded) -> str:
    """Return the report of a closed run as one page of HTML.

    Raises:
        UsageError: where the log cannot be read.
    """
    from greenlove_tracker.rendering import html
    from greenlove_tracker.report.build import document

    return html.render(document(ending.run_dir))
