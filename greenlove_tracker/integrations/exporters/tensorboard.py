"""Export to TensorBoard: event files by TensorBoard's own writer, which needs neither torch nor TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from greenlove_tracker.integrations.exporters.scalars import Scalars, final_scalars, scalars_of
from greenlove_tracker.tracker.events import ExportedRun, ExportEvent, RunEnded
from greenlove_tracker.vocabulary.errors import require

_DIRECTORY = "runs"  # where torch's SummaryWriter writes too, so that `tensorboard --logdir runs` shows both


class TensorBoardExporter:
    """Write epochs and forecasts as scalars.

    Each run has its own directory, ``greenlove_<run id>``. TensorBoard cannot show the report.

    Args:
        log_dir: the parent directory; default ``runs`` in the working directory.

    Raises:
        MissingExtraError: where TensorBoard is not installed.
    """

    def __init__(self, log_dir: str = _DIRECTORY) -> None:
        require("tensorboard", "tensorboard")
        self._log_dir = Path(log_dir).absolute()
        self._writer: Any = None
        self._is_in_steps = False
        self._position = 0

    def start(self, run: ExportedRun) -> None:
        """Begin an event file."""
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._writer = EventFileWriter(str(self._log_dir / f"greenlove_{run.run_dir.name}"))
        self._is_in_steps = run.is_in_steps
        self._position = 0

    def export(self, events: Sequence[ExportEvent]) -> None:
        """Write the figures of epochs, forecasts and metrics."""
        for point in scalars_of(events, is_in_steps=self._is_in_steps):
            self._add(point)
        if events:
            self._writer.flush()  # kill -9 loses what is not on the disk

    def end(self, ending: RunEnded) -> None:
        """Write the totals, and close the file."""
        try:
            self._add(Scalars(self._position, ending.utc_s, final_scalars(ending.summary)))
        finally:
            self._writer.close()

    def _add(self, point: Scalars) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        self._position = point.position
        values = [Summary.Value(tag=name, simple_value=value) for name, value in point.values.items()]
        self._writer.add_event(Event(wall_time=point.utc_s, step=point.position, summary=Summary(value=values)))
