"""Prometheus: a text file for node_exporter's textfile collector, replaced as a whole, in base units.

Names follow https://prometheus.io/docs/practices/naming/: joules, seconds, grams, ``_total`` for what only grows. A
single textfile is of one run at a time. After the run it stays, with ``greenlove_run_active`` 0 and the totals of the
run, until the next run that writes to it; a run that was killed leaves 1, and ``greenlove_updated_timestamp_seconds``
stands still.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from greenlove_tracker import files
from greenlove_tracker.errors import UsageError
from greenlove_tracker.integrations.exporters.scalars import require
from greenlove_tracker.logs.tables import IssuedForecast
from greenlove_tracker.records import COMPONENTS, Counts, Energy, RunSummary
from greenlove_tracker.tracker.exporters import (
    ExportedRun,
    ExportEvent,
    ForecastIssued,
    MetricLogged,
    RowWritten,
    RunEnded,
)
from greenlove_tracker.units import GRAMS_PER_KG, JOULES_PER_KWH

_FILE = "greenlove.prom"
_FIRST_LINE = b"# HELP greenlove_run_info "  # of what collect() gives
# Of a forecast: the name of its metric, what it says, and the factor to base units.
_FORECASTS = {
    "duration_s": ("greenlove_forecast_duration_seconds", "Duration of the whole run, forecast.", 1.0),
    "energy_kwh": ("greenlove_forecast_energy_joules", "Energy of the whole run, forecast.", JOULES_PER_KWH),
    "emissions_kgco2e": ("greenlove_forecast_emissions_grams", "CO2e of the whole run, forecast.", GRAMS_PER_KG),
    "cost_usd": ("greenlove_forecast_cost_usd", "Cost of the whole run in US dollars, forecast.", 1.0),
}
_COUNTS = {
    "steps": "Optimizer steps done.",
    "batches": "Batches done.",
    "samples": "Samples done.",
    "tokens": "Tokens done.",
}


class PrometheusExporter:
    """Writes what the run consumed so far, its mean power, and the latest forecast with its interval.

    Args:
        path: the file, in the directory of ``--collector.textfile.directory``, with a name that ends with ``.prom``;
            default ``greenlove.prom`` in the log directory.

    Raises:
        MissingExtraError: where prometheus_client is not installed.
        UsageError: where the file's directory is not there, or the file is not one of ours.
    """

    def __init__(self, path: str | None = None) -> None:
        require("prometheus_client", "prometheus")
        self._given = None if path is None else files.target_of(path).absolute()
        if self._given is not None:
            _check_replaceable(self._given)
        self._path = Path(_FILE)
        self._run: ExportedRun | None = None
        self._status = ""
        self._row: RowWritten | None = None
        self._power_w: float | None = None
        self._forecast: IssuedForecast | None = None
        self._summary: RunSummary | None = None
        self._updated_utc_s = 0.0
        self._metrics: dict[str, float] = {}

    def start(self, run: ExportedRun) -> None:
        """Begin with a run; what the file had of the one before goes with the first row."""
        self._run, self._status = run, "running"
        self._path = self._given or run.log_dir / _FILE
        self._row = self._power_w = self._forecast = self._summary = None
        self._metrics = {}

    def export(self, events: Sequence[ExportEvent]) -> None:
        """Write the file with the latest of everything."""
        for event in events:
            self._updated_utc_s = event.utc_s
            if isinstance(event, RowWritten):
                self._row = event
                self._power_w = event.row.power_w if event.epoch is not None else self._power_w
            elif isinstance(event, ForecastIssued):
                self._forecast = event.forecast
            elif isinstance(event, MetricLogged):
                self._metrics[event.name] = event.value
        if events:
            self._write()

    def end(self, ending: RunEnded) -> None:
        """Write the totals; the file stays."""
        self._status, self._summary, self._updated_utc_s = str(ending.status), ending.summary, ending.utc_s
        self._power_w = None
        self._write()

    def _write(self) -> None:
        from prometheus_client import CollectorRegistry, generate_latest

        _check_replaceable(self._path)
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        files.write_atomically(self._path, generate_latest(registry))

    def collect(self) -> Iterator[Any]:
        """Give the metrics of the file; prometheus_client calls this."""
        run = self._run
        if run is None:
            return
        labels = {"run_id": run.run_id, "project": run.project}
        info = {"status": self._status, **run.facts}
        yield _gauge("greenlove_run_info", "What the run is and is counted with; always 1.", labels | info, 1.0)
        active = float(self._status == "running")
        yield _gauge("greenlove_run_active", "1 while the run goes on, 0 once it has ended.", labels, active)
        yield _gauge(
            "greenlove_start_timestamp_seconds", "When the run began, since the epoch.", labels, run.started_utc_s
        )
        updated = "When this file was last written, since the epoch."
        yield _gauge("greenlove_updated_timestamp_seconds", updated, labels, self._updated_utc_s)
        yield from self._consumption(labels)
        yield from self._forecasts(labels)
        if self._metrics:
            by_name = [({"name": name}, value) for name, value in self._metrics.items()]
            yield _family(False, "greenlove_metric", "The latest value that the training logged.", labels, by_name)

    def _consumption(self, labels: Mapping[str, str]) -> Iterator[Any]:
        row, summary = self._row, self._summary
        if summary is not None:
            grams = None if summary.emissions_kgco2e is None else summary.emissions_kgco2e * GRAMS_PER_KG
            yield from _totals(labels, summary.duration_s, summary.energy_kwh, grams, summary.cost_usd)
            yield from _work(labels, summary.energy, summary.counts, summary.epochs_done)
        elif row is not None:
            run = row.of_run
            yield from _totals(labels, run.duration_s, run.energy_kwh, run.emissions_gco2e, run.cost_usd)
            yield from _work(labels, run.components, run.counts, row.epochs_done)
        if self._power_w is not None:
            help_text = "Mean power of the metered components in the latest epoch or part of one, before PUE."
            yield _gauge("greenlove_power_watts", help_text, labels, self._power_w)

    def _forecasts(self, labels: Mapping[str, str]) -> Iterator[Any]:
        forecast = self._forecast
        if forecast is None:
            return
        for quantity, estimate in forecast.estimates.items():
            name, text, factor = _FORECASTS[quantity]
            bounds = {"point": estimate.point}
            if estimate.has_interval:
                bounds |= {"lower": estimate.lower, "upper": estimate.upper}
            level = f"{estimate.level:g}" if estimate.has_interval else ""
            samples = [({"bound": bound, "level": level}, value * factor) for bound, value in bounds.items()]
            yield _family(False, name, f"{text} The bounds are of an interval of this level.", labels, samples)


def _check_replaceable(path: Path) -> None:
    """Refuse to replace a file that no exporter wrote, or a link: a slip in the path must not cost somebody a file.

    Raises:
        UsageError: for such a file.
    """
    if not path.exists() and not path.is_symlink():
        return
    if path.is_symlink() or not path.is_file():
        raise UsageError(f"{path} is a link or no file, and is not replaced")
    with path.open("rb") as file:
        if file.read(len(_FIRST_LINE)) not in (b"", _FIRST_LINE):
            raise UsageError(f"{path} was not written by greenlove, and is not replaced")


def _totals(
    labels: Mapping[str, str],
    duration_s: float,
    energy_kwh: float | None,
    grams: float | None,
    cost_usd: float | None,
) -> Iterator[Any]:
    yield _gauge("greenlove_duration_seconds", "Time of the run so far.", labels, duration_s)
    for name, text, value in (
        ("greenlove_energy_joules", "Energy of the run so far, PUE included.", _joules(energy_kwh)),
        ("greenlove_emissions_grams", "CO2e of the run so far, in grams.", grams),
        ("greenlove_cost_usd", "Cost of the run so far, in US dollars.", cost_usd),
    ):
        if value is not None:
            yield _family(True, name, text, labels, [({}, value)])


def _work(labels: Mapping[str, str], energy: Energy, counts: Counts, epochs_done: int) -> Iterator[Any]:
    by_component = [
        ({"component": c, "method": energy.component_method(c) or ""}, joules)
        for c in COMPONENTS
        if (joules := _joules(energy.component_kwh(c))) is not None
    ]
    if by_component:
        text = "Metered energy by component, before PUE, and how it was obtained."
        yield _family(True, "greenlove_component_energy_joules", text, labels, by_component)
    yield _family(True, "greenlove_epochs", "Epochs done.", labels, [({}, float(epochs_done))])
    for unit, text in _COUNTS.items():
        if (count := getattr(counts, unit)) is not None:
            yield _family(True, f"greenlove_{unit}", text, labels, [({}, float(count))])


def _joules(energy_kwh: float | None) -> float | None:
    return None if energy_kwh is None else energy_kwh * JOULES_PER_KWH


def _gauge(name: str, text: str, labels: Mapping[str, str], value: float) -> Any:
    return _family(False, name, text, labels, [({}, value)])


def _family(
    is_counter: bool,
    name: str,
    text: str,
    labels: Mapping[str, str],
    samples: Sequence[tuple[Mapping[str, str], float]],
) -> Any:
    """Return a metric: of a counter, whose name ends with ``_total`` in the file, or a gauge."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    make = CounterMetricFamily if is_counter else GaugeMetricFamily
    family = make(name, text, labels=[*labels, *samples[0][0]])
    for own, value in samples:
        family.add_metric([*labels.values(), *own.values()], value)
    return family
