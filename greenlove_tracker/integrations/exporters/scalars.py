"""The figures that services which plot curves are given, by name; the unit stands at the end of each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from greenlove_tracker.errors import MissingExtraError
from greenlove_tracker.records import RowKind, RunSummary
from greenlove_tracker.tracker.exporters import ExportEvent, ForecastIssued, MetricLogged, RowWritten
from greenlove_tracker.units import GRAMS_PER_KG

PREFIX = "greenlove/"


@dataclass(frozen=True, slots=True)
class Scalars:
    """Figures at one place of a curve.

    Attributes:
        position: the epoch; in a run that counts in steps the optimizer steps that were done.
        utc_s: when they were known.
        values: by name, with ``greenlove/`` before it; only numbers.
    """

    position: int
    utc_s: float
    values: Mapping[str, float]


def scalars_of(events: Sequence[ExportEvent], *, is_in_steps: bool) -> Iterator[Scalars]:
    """Give the figures of each finished epoch, or in a run that counts in steps of each row, of forecasts and metrics.

    Args:
        events: in order.
        is_in_steps: the run counts in optimizer steps.
    """
    position = 0
    for event in events:
        values = dict[str, float | None]()
        if isinstance(event, RowWritten):
            position = event.position
            if event.epoch is not None and (is_in_steps or event.kind is RowKind.EPOCH):
                values = _of_row(event, is_in_steps=is_in_steps)
        elif isinstance(event, ForecastIssued):
            position, values = event.position, _of_forecast(event)
        elif isinstance(event, MetricLogged):
            at = event.step if is_in_steps else event.epoch
            position, values = position if at is None else at, {f"metrics/{event.name}": event.value}
        known = _known(values)
        if known:
            yield Scalars(position, event.utc_s, known)


def _of_row(event: RowWritten, *, is_in_steps: bool) -> dict[str, float | None]:
    run, part = event.of_run, event.row if is_in_steps or event.of_epoch is None else event.of_epoch
    values: dict[str, float | None] = {
        "power_w": part.power_w,
        "duration_s": run.duration_s,
        "energy_kwh": run.energy_kwh,
        "emissions_kgco2e": None if run.emissions_gco2e is None else run.emissions_gco2e / GRAMS_PER_KG,
        "cost_usd": run.cost_usd,
    }
    if not is_in_steps:
        values |= {
            "epoch_duration_s": part.duration_s,
            "epoch_energy_kwh": part.energy_kwh,
        }
    return values


def _of_forecast(event: ForecastIssued) -> dict[str, float | None]:
    values = dict[str, float | None]()
    for quantity, estimate in event.forecast.estimates.items():
        name, _, unit = quantity.rpartition("_")
        values[f"forecast_{quantity}"] = estimate.point
        if estimate.has_interval:
            values[f"forecast_{name}_lower_{unit}"] = estimate.lower
            values[f"forecast_{name}_upper_{unit}"] = estimate.upper
    return values


def final_scalars(summary: RunSummary | None) -> Mapping[str, float]:
    """Return the totals of the whole run, by the names that they had while it ran: unmetered time is estimated here."""
    if summary is None:
        return {}
    totals = {
        "duration_s": summary.duration_s,
        "energy_kwh": summary.energy_kwh,
        "emissions_kgco2e": summary.emissions_kgco2e,
        "cost_usd": summary.cost_usd,
    }
    return _known(totals)


def _known(values: Mapping[str, float | None]) -> Mapping[str, float]:
    return {f"{PREFIX}{n}": float(v) for n, v in values.items() if v is not None and not math.isinf(v)}


def require(package: str, extra: str) -> None:
    """Check that a package is there, without loading it.

    Raises:
        MissingExtraError: where it is not.
    """
    if find_spec(package) is None:
        raise MissingExtraError(f'{package} is not installed: pip install "greenlove-tracker[{extra}]"')
