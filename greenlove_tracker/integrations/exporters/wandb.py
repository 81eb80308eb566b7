"""Weights & Biases: into the run that is active, on an axis of its own, beside what the script logs."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from greenlove_tracker.errors import GreenloveError
from greenlove_tracker.integrations.exporters.scalars import PREFIX, final_scalars, require, scalars_of
from greenlove_tracker.records import RunStatus
from greenlove_tracker.tracker.exporters import ExportedRun, ExportEvent, RunEnded


class WandbExporter:
    """Logs the figures of each epoch under ``greenlove/``, over ``greenlove/epoch``, and the report as an artifact.

    The run's own step is never moved: figures ride in the row of its history that the script writes next
    (``commit=False``), so that ``wandb.log({…})`` and ``wandb.log({…}, step=n)`` go where they went before. Where the
    script logs less often than epochs end, each of its rows has the latest epoch. In a run of our own each is a row.

    Args:
        project: make a run of its own in this project, where none is active; default: none is made.

    Raises:
        MissingExtraError: where wandb is not installed.
    """

    def __init__(self, project: str | None = None) -> None:
        require("wandb", "wandb")
        self._project = project
        self._run: Any = None  # wandb's
        self._is_own = self._is_waiting = False
        self._begun: ExportedRun | None = None
        self._rode_in: int | None = None  # the row of the history that has our latest figures
        self._latest: dict[str, float] = {}

    def start(self, run: ExportedRun) -> None:
        """Find the active run, or make one where that was asked for."""
        self._begun, self._run, self._rode_in, self._latest = run, None, None, {}
        self._find_run(run)

    def export(self, events: Sequence[ExportEvent]) -> None:
        """Log the figures of epochs, forecasts and metrics, once there is a run."""
        begun = self._begun
        if begun is None:
            return
        self._find_run(begun)
        for point in scalars_of(events, is_in_steps=begun.is_in_steps):
            figures = {**point.values, self._axis: point.position}
            self._latest |= figures
            self._is_waiting = True
            if self._is_own:
                self._run.log(figures)
        # A row that has figures of ours, and that the script has not written yet, would lose them to newer ones.
        if self._is_waiting and self._run is not None and not self._is_own and self._run.step != self._rode_in:
            self._rode_in, self._is_waiting = self._run.step, False
            self._run.log(self._latest, commit=False)

    def end(self, ending: RunEnded) -> None:
        """Log the totals and the report, and end a run of our own.

        Raises:
            GreenloveError: where there was no run, or is none any more.
        """
        if self._begun is not None:
            self._find_run(self._begun)
        if self._run is None:
            raise GreenloveError(
                "no run of W&B was active, so nothing was logged there: call wandb.init(), or name a project for a run "
                "of its own, --export wandb=PROJECT or WandbExporter(project=…)"
            )
        try:
            latest = {} if self._is_own else self._latest
            self._run.log({**latest, **final_scalars(ending.summary)}, commit=self._is_own)
            self._run.summary[f"{PREFIX}status"] = str(ending.status)
            self._log_report(ending)
        finally:
            if self._is_own:
                self._run.finish(exit_code=1 if ending.status == RunStatus.FAILED else 0)

    @property
    def _axis(self) -> str:
        return f"{PREFIX}{'step' if self._begun is not None and self._begun.is_in_steps else 'epoch'}"

    def _find_run(self, begun: ExportedRun) -> None:
        import wandb

        if self._run is not None:
            if not self._is_own and wandb.run is not self._run:
                raise GreenloveError("the script has finished its run of W&B before the tracker's")
            return
        if wandb.run is not None:
            self._run, self._is_own = wandb.run, False
        elif self._project is not None:
            # "create_new" leaves wandb.run, and so what the script's own wandb.log() means, as it is
            quiet = wandb.Settings(console="off", silent=True)
            self._run = wandb.init(
                project=self._project, name=begun.run_id, reinit="create_new", settings=quiet, save_code=False
            )
            self._is_own = True
        else:
            return
        self._run.define_metric(self._axis)
        self._run.define_metric(f"{PREFIX}*", step_metric=self._axis)
        facts = {"run_id": begun.run_id, **begun.facts}
        self._run.config.update({"greenlove": facts}, allow_val_change=True)

    def _log_report(self, ending: RunEnded) -> None:
        import wandb

        artifact = wandb.Artifact(f"greenlove-{ending.run_dir.name}", type="report")
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "report.html")
            path.write_text(ending.report_html(), encoding="utf-8")
            artifact.add_file(str(path), name="report.html")  # it takes a copy
        self._run.log_artifact(artifact)
