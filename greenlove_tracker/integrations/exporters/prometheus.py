"""Export to Prometheus: a text file for node_exporter's textfile collector, replaced as a whole, in base units.

Names follow https://prometheus.io/docs/practices/naming/: joules, seconds, grams, ``_total`` for what only grows. A
single textfile is of one run at a time. After the run it stays, with ``greenlove_run_active`` 0 and the totals of the
run, until the next run that writes to it; a run that was killed leaves 1, and ``greenlove_updated_timestamp_seconds``
stands still.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from greenlove_tracker.files import writing
from greenlove_tracker.logs.tables import IssuedForecast, MetricRecord
from greenlove_tracker.tracker.events import ExportedRun, ExportEvent, RowWritten, RunEnded
from greenlove_tracker.vocabulary.errors import UsageError, require
from greenlove_tracker.vocabulary.records import COMPONENTS, RunSummary, times
from greenlove_tracker.vocabulary.units import GRAMS_PER_KG, JOULES_PER_KWH

_FILE = "greenlove.prom"
# Of a forecast: the name of its metric, what it says, and the factor to base units.
_FORECASTS = {
    "duration_s": ("greenlove_forecast_duration_seconds", "Duration of the whole run, forecast.", 1.0),
    "energy_kwh": ("greenlove_forecast_energy_joules", "Energy of the whole run, forecast.", JOULES_PER_KWH),
    "emissions_kgco2e": ("greenlove_forecast_emissions_grams", "CO2e of the whole run, forecast.", GRAMS_PER_KG),
    "cost_usd": ("greenlove_forecast_cost_usd", "Cost of the whole run in US dollars, forecast.", 1.0),
}

# Name, help text, and the values by the labels that tell them apart; None is not known.
Metric = tuple[str, str, Sequence[tuple[Mapping[str, str], float | None]]]


class PrometheusExporter:
    """Write the run's consumption so far, and the latest forecast with its interval.

    Args:
        path: the file, in the directory of ``--collector.textfile.directory``, with a name that ends with ``.prom``;
            default ``greenlove.prom`` in the log directory. What was there is replaced.

    Raises:
        MissingExtraError: where prometheus_client is not installed.
        UsageError: where the file's directory is not there, or its name is another.
    """

    def __init__(self, path: str | None = None) -> None:
        require("prometheus_client", "prometheus")
        self._given: Path | None = None
        if path is not None:
            self._given = writing.target_of(path).absolute()
            if self._given.suffix != ".prom":
                raise UsageError(f"{path}: the collector reads files that end with .prom")

    def start(self, run: ExportedRun) -> None:
        """Begin with a run. The first row replaces the figures of an earlier run."""
        self._run = run
        self._path = self._given or run.run_dir.parent / _FILE
        self._totals = list[Metric]()
        self._forecasts = list[Metric]()
        self._logged = dict[str, float]()

    def export(self, events: Sequence[ExportEvent]) -> None:
        """Write the file with the latest figures."""
        for event in events:
            match event.what:
                case RowWritten(of_run=run):
                    self._totals = list(_totals(run))
                case IssuedForecast() as forecast:
                    self._forecasts = list(_forecasts(forecast))
                case MetricRecord() as metric:
                    self._logged[metric.name] = metric.value
        if events:
            self._write("running", events[-1].utc_s)

    def end(self, ending: RunEnded) -> None:
        """Write the totals; the file stays."""
        if ending.summary is not None:
            self._totals = list(_totals(ending.summary))
        self._write(ending.status, ending.utc_s)

    def _write(self, status: str, updated_utc_s: float) -> None:
        from prometheus_client import generate_latest
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        run = self._run
        families = []
        info = {"status": status, **run.facts}
        active = float(status == "running")
        about: list[Metric] = [
            ("greenlove_run_info", "What the run is and is counted with; always 1.", [(info, 1.0)]),
            ("greenlove_run_active", "1 while the run goes on, 0 once it has ended.", [({}, active)]),
            ("greenlove_start_timestamp_seconds", "When the run began, since the epoch.", [({}, run.started_utc_s)]),
            ("greenlove_updated_timestamp_seconds", "When this was written, since the epoch.", [({}, updated_utc_s)]),
        ]
        logged = [({"name": name}, value) for name, value in self._logged.items()]
        metric: Metric = "greenlove_metric", "The latest value that the training logged.", logged
        labels = {"run_id": run.run_dir.name, "project": run.project}
        for name, text, values in (*about, *self._totals, *self._forecasts, metric):
            known = [(own, value) for own, value in values if value is not None]
            if known:
                make = GaugeMetricFamily
                if name.endswith("_total"):
                    make = CounterMetricFamily
                family = make(name, text, labels=[*labels, *known[0][0]])
                for own, value in known:
                    family.add_metric([*labels.values(), *own.values()], value)
                families.append(family)
        registry: Any = SimpleNamespace(collect=lambda: families)
        writing.write_atomically(self._path, generate_latest(registry))


def _forecasts(forecast: IssuedForecast) -> Iterator[Metric]:
    for quantity, estimate in forecast.estimates.items():
        name, text, factor = _FORECASTS[quantity]
        bounds = {"point": estimate.point}
        if estimate.has_interval:
            bounds |= {"lower": estimate.lower, "upper": estimate.upper}
        level = f"{estimate.level:g}" if estimate.has_interval else ""
        samples = [({"bound": bound, "level": level}, value * factor) for bound, value in bounds.items()]
        yield name, f"{text} The bounds are of an interval of this level.", samples


def _totals(run: RunSummary) -> Iterator[Metric]:
    energy = run.energy
    joules = times(run.energy_kwh, JOULES_PER_KWH)
    grams = times(run.emissions_kgco2e, GRAMS_PER_KG)
    yield "greenlove_duration_seconds", "Time of the run so far.", [({}, run.duration_s)]
    yield "greenlove_energy_joules_total", "Energy of the run so far, PUE included.", [({}, joules)]
    yield "greenlove_emissions_grams_total", "CO2e of the run so far, in grams.", [({}, grams)]
    yield "greenlove_cost_usd_total", "Cost of the run so far, in US dollars.", [({}, run.cost_usd)]
    by_component = [
        ({"component": c, "method": energy.component_method(c) or ""}, times(energy.component_kwh(c), JOULES_PER_KWH))
        for c in COMPONENTS
    ]
    text = "Metered energy by component, before PUE, and how it was obtained."
    yield "greenlove_component_energy_joules_total", text, by_component
    yield "greenlove_epochs_total", "Epochs done.", [({}, run.epochs_done)]
    for unit in ("steps", "batches", "samples", "tokens"):
        yield f"greenlove_{unit}_total", f"{unit.capitalize()} done.", [({}, getattr(run.counts, unit))]
