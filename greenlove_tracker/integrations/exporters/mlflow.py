"""Export to MLflow: into the active run, else into a new one, at MLflow's own tracking URI."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import Any

from greenlove_tracker.integrations.exporters.scalars import PREFIX, Scalars, final_scalars, report_html, scalars_of
from greenlove_tracker.tracker.events import ExportedRun, ExportEvent, RunEnded
from greenlove_tracker.vocabulary.errors import require
from greenlove_tracker.vocabulary.records import RunStatus

_MOST_METRICS = 1000  # of one call of MLflow's REST interface, https://mlflow.org/docs/latest/rest-api.html#log-batch
_MOST_PARAM_CHARACTERS = 500  # older servers take no longer one
_NOT_IN_NAMES = re.compile(r"[^\w\-. :/]")
_STATUSES: dict[str, str] = {
    RunStatus.FINISHED: "FINISHED",
    RunStatus.STOPPED: "FINISHED",
    RunStatus.FAILED: "FAILED",
}


class MLflowExporter:
    """Log epochs and forecasts as metrics, the run's factors as parameters, and the report as an artifact.

    If a run is active in this process when the first row is written, use it, and never end it. Else make a run, and end
    it. The active run of the training's thread is never changed.

    Raises:
        MissingExtraError: where MLflow is not installed.
    """

    def __init__(self) -> None:
        require("mlflow", "mlflow")
        self._client: Any = None
        self._run_id = ""
        self._is_own = self._is_in_steps = False
        self._position = 0

    def start(self, run: ExportedRun) -> None:
        """Find the active run, or make one, and log the parameters."""
        import mlflow

        self._client = mlflow.MlflowClient()
        self._is_in_steps = run.is_in_steps
        self._position = 0
        active = self._active_run_id()
        self._is_own = active is None
        self._run_id = active or self._own_run_id(run)
        params = {f"{PREFIX}{name}": value[:_MOST_PARAM_CHARACTERS] for name, value in run.facts.items()}
        known = self._client.get_run(self._run_id).data.params
        new = [mlflow.entities.Param(n, v) for n, v in params.items() if n not in known]  # they cannot be changed
        tags = {f"{PREFIX}run_id": run.run_dir.name, f"{PREFIX}project": run.project}
        tagged = [mlflow.entities.RunTag(n, v) for n, v in tags.items() if v]
        self._client.log_batch(self._run_id, params=new, tags=tagged)

    def export(self, events: Sequence[ExportEvent]) -> None:
        """Log the figures of epochs, forecasts and metrics."""
        points = list(scalars_of(events, is_in_steps=self._is_in_steps))
        if points:
            self._position = points[-1].position
        self._log(points)

    def end(self, ending: RunEnded) -> None:
        """Log the totals and the report, and end a run of our own."""
        self._log([Scalars(self._position, ending.utc_s, final_scalars(ending.summary))])
        self._client.set_tag(self._run_id, f"{PREFIX}status", ending.status)
        try:
            self._client.log_text(self._run_id, report_html(ending), f"{PREFIX}report.html")
        finally:
            if self._is_own:
                self._client.set_terminated(self._run_id, _STATUSES.get(ending.status, "KILLED"))

    def _active_run_id(self) -> str | None:
        """Return the run that the script has made active, on any thread; None if there is none."""
        from mlflow.tracking import fluent

        # MLflow's public functions tell of the calling thread alone; this one, of all, is what its autologging uses.
        newest = fluent._get_latest_active_run()
        if newest is not None:
            return str(newest.info.run_id)
        return os.environ.get("MLFLOW_RUN_ID") or None  # of `mlflow run`, which the script has not begun yet

    def _own_run_id(self, run: ExportedRun) -> str:
        """Return a new run in MLflow's current experiment, without making it active."""
        from mlflow.tracking import fluent

        # what set_experiment() and the variables of MLflow say; no public function tells
        experiment_id = getattr(fluent, "_get_experiment_id", lambda: None)() or "0"
        return str(self._client.create_run(experiment_id, run_name=run.run_dir.name).info.run_id)

    def _log(self, points: Iterable[Scalars]) -> None:
        import mlflow

        metrics = [
            mlflow.entities.Metric(_metric_key(name), value, int(1000 * point.utc_s), point.position)
            for point in points
            for name, value in point.values.items()
        ]
        for begin in range(0, len(metrics), _MOST_METRICS):
            self._client.log_batch(self._run_id, metrics=metrics[begin : begin + _MOST_METRICS])


def _metric_key(name: str) -> str:
    """Return a name that MLflow accepts: MLflow treats it as a path without empty or relative parts."""
    parts = _NOT_IN_NAMES.sub("_", name).split("/")
    return "/".join("_" if part in ("", ".", "..") else part for part in parts)
