"""The parts of a run, in the order in which they are told of things. A new one is a module, and a line here."""

from __future__ import annotations

from collections.abc import Callable

from greenlove_tracker.tracker.background import IntensityWatch, LogKeeper
from greenlove_tracker.tracker.budgets import BudgetMonitor
from greenlove_tracker.tracker.exporter_threads import RunExporters
from greenlove_tracker.tracker.forecaster import RunForecaster
from greenlove_tracker.tracker.meter_starter import MeterStarter
from greenlove_tracker.tracker.metric_log import MetricLog
from greenlove_tracker.tracker.part import RunPart, RunParts
from greenlove_tracker.tracker.span_recorder import SpanRecorder
from greenlove_tracker.tracker.status import StatusPrinter

PARTS: tuple[Callable[[RunParts], RunPart], ...] = (
    IntensityWatch,
    MeterStarter,
    LogKeeper,
    SpanRecorder,
    MetricLog,
    RunForecaster,
    BudgetMonitor,
    StatusPrinter,
    RunExporters,
)
