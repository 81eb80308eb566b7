"""Tell what a training run costs in hours, kWh, dollars and CO2: before, during and after it.

The public names are loaded when they are first used: importing the package loads no torch, codecarbon, numpy,
pandas, statsmodels or rich.
"""

from __future__ import annotations

import sys
from importlib import import_module

from greenlove_tracker.vocabulary import worded
from greenlove_tracker.vocabulary.version import __version__

TYPE_CHECKING = False  # typing's own takes longer to import than all of this
if TYPE_CHECKING:
    from typing import Any

    from greenlove_tracker.checkpointing.checkpointer import Checkpointer
    from greenlove_tracker.exploration.callables import explore_callable
    from greenlove_tracker.exploration.estimator import Estimator
    from greenlove_tracker.exploration.exploration_run import Estimation
    from greenlove_tracker.extrapolation.extrapolate import extrapolate
    from greenlove_tracker.logs.aggregate import aggregate
    from greenlove_tracker.logs.directory import read_logs
    from greenlove_tracker.projection.options import ProjectionOptions
    from greenlove_tracker.projection.project import project
    from greenlove_tracker.projection.speedup import Speedup, speedup
    from greenlove_tracker.projection.spot import SpotAdvice, spot_advice
    from greenlove_tracker.projection.types import Projection
    from greenlove_tracker.report.build import write_html, write_pdf
    from greenlove_tracker.scheduling.start_windows import StartAdvice, best_start
    from greenlove_tracker.scheduling.wait_loop import WaitResult, wait_for_low_carbon
    from greenlove_tracker.techniques.compare import compare
    from greenlove_tracker.techniques.curriculum import Curriculum
    from greenlove_tracker.techniques.early_stopping import EarlyStopping
    from greenlove_tracker.techniques.lr_schedule import lr_schedule
    from greenlove_tracker.techniques.technique import Technique
    from greenlove_tracker.tracker import Tracker
    from greenlove_tracker.tracker.tracker import track
    from greenlove_tracker.vocabulary.comparisons import Comparison
    from greenlove_tracker.vocabulary.errors import BudgetExceeded, TrainingInterrupted
    from greenlove_tracker.vocabulary.forecasting import Estimate, Forecast, TrainingPlan, Trial
    from greenlove_tracker.vocabulary.phases import Phase
    from greenlove_tracker.vocabulary.records import Consumption

_HOMES = {
    "BudgetExceeded": "greenlove_tracker.vocabulary.errors",
    "Checkpointer": "greenlove_tracker.checkpointing.checkpointer",
    "Comparison": "greenlove_tracker.vocabulary.comparisons",
    "Consumption": "greenlove_tracker.vocabulary.records",
    "Curriculum": "greenlove_tracker.techniques.curriculum",
    "EarlyStopping": "greenlove_tracker.techniques.early_stopping",
    "Estimation": "greenlove_tracker.exploration.exploration_run",
    "Estimator": "greenlove_tracker.exploration.estimator",
    "Estimate": "greenlove_tracker.vocabulary.forecasting",
    "Forecast": "greenlove_tracker.vocabulary.forecasting",
    "Phase": "greenlove_tracker.vocabulary.phases",
    "Projection": "greenlove_tracker.projection.types",
    "ProjectionOptions": "greenlove_tracker.projection.options",
    "Speedup": "greenlove_tracker.projection.speedup",
    "SpotAdvice": "greenlove_tracker.projection.spot",
    "StartAdvice": "greenlove_tracker.scheduling.start_windows",
    "Technique": "greenlove_tracker.techniques.technique",
    "Tracker": "greenlove_tracker.tracker",
    "TrainingInterrupted": "greenlove_tracker.vocabulary.errors",
    "TrainingPlan": "greenlove_tracker.vocabulary.forecasting",
    "WaitResult": "greenlove_tracker.scheduling.wait_loop",
    "Trial": "greenlove_tracker.vocabulary.forecasting",
    "aggregate": "greenlove_tracker.logs.aggregate",
    "best_start": "greenlove_tracker.scheduling.start_windows",
    "compare": "greenlove_tracker.techniques.compare",
    "explore_callable": "greenlove_tracker.exploration.callables",
    "extrapolate": "greenlove_tracker.extrapolation.extrapolate",
    "lr_schedule": "greenlove_tracker.techniques.lr_schedule",
    "project": "greenlove_tracker.projection.project",
    "read_logs": "greenlove_tracker.logs.directory",
    "speedup": "greenlove_tracker.projection.speedup",
    "spot_advice": "greenlove_tracker.projection.spot",
    "wait_for_low_carbon": "greenlove_tracker.scheduling.wait_loop",
    "track": "greenlove_tracker.tracker.tracker",
    "write_html": "greenlove_tracker.report.build",
    "write_pdf": "greenlove_tracker.report.build",
}

__all__ = [
    "BudgetExceeded",
    "Checkpointer",
    "Comparison",
    "Consumption",
    "Curriculum",
    "EarlyStopping",
    "Estimate",
    "Estimation",
    "Estimator",
    "Forecast",
    "Phase",
    "Projection",
    "ProjectionOptions",
    "Speedup",
    "SpotAdvice",
    "StartAdvice",
    "Technique",
    "Tracker",
    "TrainingInterrupted",
    "TrainingPlan",
    "Trial",
    "WaitResult",
    "__version__",
    "aggregate",
    "best_start",
    "compare",
    "explore_callable",
    "extrapolate",
    "lr_schedule",
    "project",
    "read_logs",
    "speedup",
    "spot_advice",
    "track",
    "wait_for_low_carbon",
    "write_html",
    "write_pdf",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


def _in_words(result: object) -> str:
    from greenlove_tracker.report.notebook import in_words

    return in_words(result)


def _show_in_notebooks() -> None:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    formatters = getattr(getattr(shell, "display_formatter", None), "formatters", None)
    if formatters is not None:
        from greenlove_tracker.report.notebook import register

        register(formatters)


worded.in_words = _in_words
_show_in_notebooks()
