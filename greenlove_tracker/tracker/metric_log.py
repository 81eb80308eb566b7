"""The part of a run that logs what the training says of itself, such as its accuracy."""

from __future__ import annotations

from greenlove_tracker.logs import metrics
from greenlove_tracker.logs.tables import METRICS, MetricRecord
from greenlove_tracker.logs.writer import timestamp
from greenlove_tracker.records import MetricSummary
from greenlove_tracker.tracker.part import RunPart, RunParts


class MetricLog(RunPart):
    """The metrics of one run.

    Args:
        run: that it is a part of.
    """

    def __init__(self, run: RunParts) -> None:
        super().__init__(run)
        self._totals = metrics.MetricTotals()

    def log(self, name: object, value: object, number: float | None, higher_is_better: bool | None) -> None:
        """Log a value; one that is no number, and one too many, is warned of and left out; the lock is held."""
        misuse, recorder = self._state.warn_once.misuse, self._recorder
        known_as = metrics.metric_name(name) if isinstance(name, str) else ""
        if not known_as or number is None:
            message = f"log_metric({str(name)[:60]!r}) wants a name and one number, not a {type(value).__name__}"
            misuse("log_metric", f"{message}; it is left out")
            return
        record = MetricRecord(
            timestamp(self._state.clock.utc_s()),
            recorder.epoch or recorder.last_epoch,
            recorder.steps_done,
            known_as,
            number,
            None if higher_is_better is None else bool(higher_is_better),  # NumPy's is none that the log knows
        )
        if self._totals.add(record):
            self._writer.write(METRICS, record)
            self._run.tell(RunPart.metric_logged, record)
        else:
            message = f"over {metrics.MAX_NAMES:,} names of metrics: {known_as} and further ones are left out"
            misuse("metric names", message)

    @property
    def summaries(self) -> tuple[MetricSummary, ...]:
        """The last and best value of each metric so far."""
        return self._totals.summaries
