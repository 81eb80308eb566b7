"""Weights & Biases: into the run that is active, on an axis of its own, beside what the script logs."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from greenlove_tracker.errors import GreenloveError
from greenlove_tracker.integrations.exporters.scalars import PREFIX, Scalars, final_scalars, require, scalars_of
from greenlove_tracker.records import RunStatus
from greenlove_tracker.tracker.exporters import ExportedRun, ExportEvent, RunEnded

_MOST_POINTS = 100_000  # that wait for a run, or for one that logs nothing itself; and rows of the table


class WandbExporter:
    """Logs the figures of each epoch under ``greenlove/``, over ``greenlove/epoch``, and the report as an artifact.

    The run's own step is never moved: figures ride in the row of its history that the script writes next
    (``commit=False``), so that ``wandb.log({…})`` and ``wandb.log({…}, step=n)`` go where they went before. Where the
    script logs less often than epochs end, each of its rows has the latest epoch; the table ``greenlove/epochs``,
    logged at the end, has the last 100,000 of them. In a run of our own each epoch is a row.

    Args:
        project: make a run of its own in this project, where none is active; default: none is made.

    Raises:
        MissingExtraError: where wandb is not installed.
    """

    def __init__(self, project: str | None = None) -> None:
        require("wandb", "wandb")
        self._project = project
        self._run: Any = None  # wandb's
        self._is_own = self._is_in_steps = False
        self._axis = f"{PREFIX}epoch"
        self._rode_in: int | None = None  # the row of the history that has our latest figures, and may not be written
        self._begun: ExportedRun | None = None
        self._latest: dict[str, float] = {}
        self._waiting: deque[Scalars] = deque(maxlen=_MOST_POINTS)
        self._of_epochs: dict[int, dict[str, float]] = {}

    def start(self, run: ExportedRun) -> None:
        """Find the active run, or make one where that was asked for."""
        self._begun, self._run, self._rode_in, self._latest = run, None, None, {}
        self._is_in_steps, self._axis = run.is_in_steps, f"{PREFIX}{'step' if run.is_in_steps else 'epoch'}"
        self._waiting.clear()
        self._of_epochs.clear()
        self._find_run()

    def export(self, events: Sequence[ExportEvent]) -> None:
        """Log the figures of epochs, forecasts and metrics, as soon as there is a run."""
        for point in scalars_of(events, is_in_steps=self._is_in_steps):
            self._of_epochs.setdefault(point.position, {}).update(point.values)
            if len(self._of_epochs) > _MOST_POINTS:
                del self._of_epochs[next(iter(self._of_epochs))]
            self._waiting.append(point)
        self._find_run()
        if self._run is not None:
            self._log_waiting()

    def end(self, ending: RunEnded) -> None:
        """Log the totals, the table of all epochs and the report, and end a run of our own.

        Raises:
            GreenloveError: where there was no run, or is none any more.
        """
        self._find_run()
        if self._run is None:
            raise GreenloveError(
                "no run of W&B was active, so nothing was logged there: call wandb.init(), or name a project for a run "
                "of its own, --export wandb=PROJECT or WandbExporter(project=…)"
            )
        import wandb

        try:
            if self._is_own:
                self._log_waiting()
            elif self._waiting:
                self._latest = _merged(self._latest, self._waiting, self._axis)
                self._waiting.clear()
            names = sorted({name for values in self._of_epochs.values() for name in values})
            rows = [[at, *(values.get(name) for name in names)] for at, values in self._of_epochs.items()]
            table = wandb.Table(columns=[self._axis, *names], data=rows)
            self._run.log(
                {**self._latest, **final_scalars(ending.summary), f"{PREFIX}epochs": table}, commit=self._is_own
            )
            self._run.summary[f"{PREFIX}status"] = str(ending.status)
            self._log_report(ending)
        finally:
            if self._is_own:
                self._run.finish(exit_code=1 if ending.status == RunStatus.FAILED else 0)

    def _find_run(self) -> None:
        import wandb

        if self._run is not None and not self._is_own and wandb.run is not self._run:
            raise GreenloveError("the script has finished its run of W&B before the tracker's")
        if self._run is not None or self._begun is None:
            return
        if wandb.run is not None:
            self._run, self._is_own = wandb.run, False
        elif self._project is not None:
            # "create_new" leaves wandb.run, and so what the script's own wandb.log() means, as it is
            quiet = wandb.Settings(console="off", silent=True)
            self._run = wandb.init(
                project=self._project, name=self._begun.run_id, reinit="create_new", settings=quiet, save_code=False
            )
            self._is_own = True
        else:
            return
        self._run.define_metric(self._axis)
        self._run.define_metric(f"{PREFIX}*", step_metric=self._axis)
        facts = {"run_id": self._begun.run_id, **self._begun.facts}
        self._run.config.update({"greenlove": facts}, allow_val_change=True)

    def _log_waiting(self) -> None:
        """Log each point as a row of a run of our own; else put what has come into the row that the script writes next.

        A row that has figures of ours, and that the script has not written yet, would lose them to newer ones.
        """
        if self._is_own:
            for _, points in groupby(self._waiting, lambda point: point.position):
                self._run.log(_merged({}, points, self._axis))
            self._waiting.clear()
            return
        step = self._run.step
        is_free = self._rode_in is None or step > self._rode_in
        if is_free and self._waiting:
            self._latest = _merged(self._latest, self._waiting, self._axis)
            self._waiting.clear()
            self._run.log(self._latest, commit=False)
            self._rode_in = step

    def _log_report(self, ending: RunEnded) -> None:
        import wandb

        artifact = wandb.Artifact(f"greenlove-{ending.run_dir.name}", type="report")
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "report.html")
            path.write_text(ending.report_html(), encoding="utf-8")
            artifact.add_file(str(path), name="report.html")  # it takes a copy
        self._run.log_artifact(artifact)


def _merged(before: Mapping[str, float], points: Iterable[Scalars], axis: str) -> dict[str, float]:
    """Return the latest of each figure."""
    values = dict(before)
    for point in points:
        values |= point.values
        values[axis] = point.position
    return values
