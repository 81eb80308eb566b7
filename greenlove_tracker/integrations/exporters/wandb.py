"""Export to Weights & Biases: into the active run, on an axis of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from greenlove_tracker.integrations.exporters.scalars import PREFIX, final_scalars, report_html, scalars_of
from greenlove_tracker.tracker.events import ExportedRun, ExportEvent, RunEnded
from greenlove_tracker.vocabulary.errors import GreenloveError, require


class WandbExporter:
    """Log epochs under ``greenlove/`` over ``greenlove/epoch``, and the report as an artifact.

    The run's own step is never moved: figures ride in the row of its history that the script writes next
    (``commit=False``), so that ``wandb.log({…})`` and ``wandb.log({…}, step=n)`` go where they went before. Where the
    script logs less often than epochs end, each of its rows has the latest epoch.

    Raises:
        MissingExtraError: where wandb is not installed.
    """

    def __init__(self) -> None:
        require("wandb", "wandb")
        self._run: Any = None  # wandb's

    def start(self, run: ExportedRun) -> None:
        """Find the active run."""
        self._begun = run
        self._run = None
        self._axis = f"{PREFIX}{'step' if run.is_in_steps else 'epoch'}"
        self._latest = dict[str, float]()
        self._is_waiting = False
        self._rode_in: int | None = None  # the row of the history that has our latest figures
        self._find_run()

    def export(self, events: Sequence[ExportEvent]) -> None:
        """Log the figures of epochs, forecasts and metrics, once there is a run."""
        self._find_run()
        for point in scalars_of(events, is_in_steps=self._begun.is_in_steps):
            self._latest |= {**point.values, self._axis: point.position}
            self._is_waiting = True
        # A row that has figures of ours, and that the script has not written yet, would lose them to newer ones.
        if self._is_waiting and self._run is not None and self._run.step != self._rode_in:
            self._rode_in = self._run.step
            self._is_waiting = False
            self._run.log(self._latest, commit=False)

    def end(self, ending: RunEnded) -> None:
        """Log the totals and the report.

        Raises:
            GreenloveError: if there is no active run.
        """
        self._find_run()
        if self._run is None:
            raise GreenloveError("no run of W&B was active, so nothing was logged there: call wandb.init() before")
        self._run.log({**self._latest, **final_scalars(ending.summary)}, commit=False)
        self._run.summary[f"{PREFIX}status"] = str(ending.status)
        self._log_report(ending)

    def _find_run(self) -> None:
        import wandb

        if self._run is not None:
            if wandb.run is not self._run:
                raise GreenloveError("the script has finished its run of W&B before the tracker's")
        elif wandb.run is not None:
            self._run = wandb.run
            self._run.define_metric(self._axis)
            self._run.define_metric(f"{PREFIX}*", step_metric=self._axis)
            facts = {"run_id": self._begun.run_dir.name, **self._begun.facts}
            self._run.config.update({"greenlove": facts}, allow_val_change=True)

    def _log_report(self, ending: RunEnded) -> None:
        import wandb

        artifact = wandb.Artifact(f"greenlove-{ending.run_dir.name}", type="report")
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "report.html")
            path.write_text(report_html(ending), encoding="utf-8")
            artifact.add_file(str(path), name="report.html")  # it takes a copy
        self._run.log_artifact(artifact)
