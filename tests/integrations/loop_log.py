"""A recorder that is told of epochs as a session is, and keeps what its rows say; on any clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from greenlove_tracker.meter import SimulatedMeter
from greenlove_tracker.tracker.rates_in_force import RatesInForce
from greenlove_tracker.tracker.recorder import Recorder
from greenlove_tracker.vocabulary.records import Clock, Counts, Factor, Flag, Row, RowKind


@dataclass
class Epoch:
    """One epoch as its rows have it, summed over its segments."""

    steps: int = 0
    batches: int = 0
    samples: int | None = 0
    duration_s: float = 0.0
    gap_s: float = 0.0  # before it, and the pauses within it
    is_done: bool = False


class RecorderLog:
    """What a ``LoopDetector`` tells, in rows; a call out of order raises."""

    def __init__(self, clock: Clock) -> None:
        self.rows: list[Row] = []
        self.n_marks = self.n_pauses = 0
        self.is_elsewhere = False
        self.overrun: Callable[[], None] = lambda: None
        self.recorder = Recorder(
            clock,
            self.rows.append,
            before_reading=lambda: None,
            rates=RatesInForce(Factor("carbon_intensity", 0.0, "gCO2e/kWh", "none"), 1.0),
            on_meter_failure=self._raise,
            on_bad_count=self._refuse,
        )
        self.recorder.attach_meter(SimulatedMeter(clock, gpu_w=360.0))

    def _raise(self, error: Exception) -> None:
        raise error

    def _refuse(self, message: str) -> None:
        raise AssertionError(message)

    def mark(self) -> None:
        assert self.recorder.epoch is None
        self.n_marks += 1
        self.recorder.mark()

    def start_epoch_at_mark(self) -> None:
        assert self.recorder.epoch is None
        self.recorder.start_epoch_at_mark()

    def end_epoch(self) -> None:
        self.recorder.end_epoch()

    def abandon_epoch(self) -> None:
        assert self.recorder.epoch is not None
        self.recorder.abandon_epoch()

    def pause(self) -> None:
        assert not self.recorder.is_paused
        self.n_pauses += 1
        self.recorder.pause()

    def resume(self) -> None:
        self.recorder.resume()

    def step(self, done: Counts) -> None:
        assert (done.steps or 0) + (done.batches or 0) > 0
        self.recorder.count(done)

    def act_on_overruns(self) -> None:
        self.overrun()

    def epochs(self) -> list[Epoch]:
        """Close the recorder, and return what it wrote by epoch."""
        self.recorder.finish()
        found: dict[int, Epoch] = {}
        for row in self.rows:
            if row.epoch is None:
                continue
            epoch = found.setdefault(row.epoch, Epoch())
            epoch.steps += row.counts.steps or 0
            epoch.batches += row.counts.batches or 0
            if epoch.samples is not None and row.counts.batches:
                epoch.samples = None if row.counts.samples is None else epoch.samples + row.counts.samples
            epoch.duration_s += row.duration_s
            epoch.gap_s += row.gap_before_s
            epoch.is_done = row.kind is RowKind.EPOCH and Flag.UNFINISHED not in row.flags
        return list(found.values())

    def done(self) -> list[tuple[int, int, int | None]]:
        """Return steps, batches and samples of each epoch that was ended."""
        return [(e.steps, e.batches, e.samples) for e in self.epochs() if e.is_done]

    def total(self) -> tuple[int, int, int]:
        """Return epochs that were ended, steps and batches of all."""
        epochs = self.epochs()
        return sum(e.is_done for e in epochs), sum(e.steps for e in epochs), sum(e.batches for e in epochs)
