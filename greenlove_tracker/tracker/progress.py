"""The progress of a run, put together from its rows: the start of every forecast."""

from __future__ import annotations

from dataclasses import dataclass

from greenlove_tracker.forecasting import Block, Progress
from greenlove_tracker.records import Energy, Flag, Row, RowKind
from greenlove_tracker.units import kwh_from_w_s, w_from_kwh_s


@dataclass(slots=True)
class _EpochTimes:
    active_s: float = 0.0
    paused_s: float = 0.0
    between_s: float = 0.0  # the gap behind it
    is_followed: bool = False  # by the next epoch, so that the gap behind it is known


class ProgressLog:
    """Adds up epochs or steps, and the gaps between them, as rows are finished."""

    def __init__(self) -> None:
        self._epochs: list[_EpochTimes] = []
        self._open: _EpochTimes | None = None
        self._startup_s = 0.0
        self._rows_s = 0.0  # all that rows hold
        self._settled_s = 0.0  # up to the last epoch's end, or the gap behind it where that is known
        self._wait_s = 0.0  # of the gap that is open: it took time, and will not come again
        self._metered: list[tuple[float, float]] = []  # durations, and mean powers without PUE
        self._metered_s, self._metered_kwh = 0.0, 0.0
        self._steps: list[Block] = []
        self._first_step: tuple[int, float] | None = None  # steps and time at the end of the first one
        self._last_step = (0, 0.0, 0.0)  # steps, active time and pauses up to the last block

    @property
    def has_energy(self) -> bool:
        """True once anything was metered."""
        return self._metered_s > 0

    def add_row(self, row: Row) -> None:
        """Add a finished row."""
        self._add_energy(row.gap_before_s, row.gap_before)
        self._add_energy(row.duration_s, row.energy)
        self._rows_s += row.gap_before_s
        self._add_gap(row.gap_before_s)
        if row.epoch is not None:
            if self._open is None and self._epochs and not self._epochs[-1].is_followed:
                self._epochs[-1].is_followed, self._settled_s = True, self._rows_s  # the gap behind it is over
            self._open = self._open or _EpochTimes()
            self._open.active_s += row.duration_s
        self._rows_s += row.duration_s
        if Flag.UNFINISHED in row.flags:
            self._open = None  # it is done again: what it took is lost time
        elif row.kind is RowKind.EPOCH and self._open is not None:
            self._epochs.append(self._open)
            self._open, self._settled_s = None, self._rows_s

    def _add_gap(self, gap_s: float) -> None:
        wait_s = min(gap_s, self._wait_s)
        self._wait_s -= wait_s
        if self._open is not None:
            self._open.paused_s += gap_s - wait_s
        elif self._epochs:
            self._epochs[-1].between_s += gap_s - wait_s
        else:
            self._startup_s += gap_s

    def _add_energy(self, duration_s: float, energy: Energy) -> None:
        energy_kwh = energy.total_kwh
        if energy_kwh is None or duration_s <= 0:
            return
        self._metered_s += duration_s
        self._metered_kwh += energy_kwh
        self._metered.append((duration_s, w_from_kwh_s(energy_kwh, duration_s) or 0.0))

    def add_steps(self, steps: int, stepped_at_s: float, paused_s: float) -> None:
        """Add the steps since the last call, of a training that counts in steps.

        What came before the end of the first call's steps is start-up: loading, compiling.

        Args:
            steps: all that are done.
            stepped_at_s: the end of the last one, since the run began.
            paused_s: pauses until then.
        """
        active_s = stepped_at_s - paused_s
        if self._first_step is None:
            self._first_step, self._last_step = (steps, active_s), (steps, active_s, paused_s)
            return
        steps_before, active_before_s, paused_before_s = self._last_step
        if steps > steps_before and active_s > active_before_s:
            block = Block(steps - steps_before, active_s - active_before_s, paused_s - paused_before_s, 0.0)
            self._steps.append(block)
            self._last_step = steps, active_s, paused_s

    def exclude_wait(self, duration_s: float) -> None:
        """Leave a part of the open gap out of what is extrapolated: it was a wait for somebody, or for us."""
        self._wait_s += duration_s

    def in_epochs(
        self, total: int, open_gap_s: float | None = None, *, pue: float = 1.0, gpu_count: int = 0
    ) -> Progress:
        """Return the progress of a training of ``total`` epochs.

        Args:
            total: epochs of the whole training.
            open_gap_s: of the epoch that has begun, the gap before it that no row holds yet; None where none has.
            pue: multiplies every energy.
            gpu_count: GPUs.
        """
        blocks = [Block(1, e.active_s, e.paused_s, e.between_s if e.is_followed else None) for e in self._epochs]
        settled_s = self._settled_s
        if open_gap_s is not None and blocks and blocks[-1].between_s is None:
            last = self._epochs[-1]
            between_s = last.between_s + max(0.0, open_gap_s - self._wait_s)
            blocks[-1] = Block(1, last.active_s, last.paused_s, between_s)
            settled_s = self._rows_s + open_gap_s
        return self._progress(total, len(blocks), blocks, settled_s, self._startup_s, pue, gpu_count)

    def in_steps(self, total: int, *, pue: float = 1.0, gpu_count: int = 0) -> Progress:
        """Return the progress of a training of ``total`` steps."""
        first_s = self._first_step[1] if self._first_step else 0.0
        done, active_s, paused_s = self._last_step
        return self._progress(total, done, self._steps, active_s + paused_s, first_s, pue, gpu_count)

    def _progress(
        self, total: int, done: int, blocks: list[Block], elapsed_s: float, startup_s: float, pue: float, gpu_count: int
    ) -> Progress:
        used_kwh = None
        if self._metered_s > 0:
            mean_w = w_from_kwh_s(self._metered_kwh, self._metered_s) or 0.0
            unmetered_s = elapsed_s - self._metered_s  # negative: of an epoch that is open
            used_kwh = (self._metered_kwh + kwh_from_w_s(mean_w, unmetered_s)) * pue
        metered = tuple((duration_s, power_w * pue) for duration_s, power_w in self._metered)
        return Progress(total, done, tuple(blocks), startup_s, elapsed_s, metered, used_kwh, gpu_count)
