"""What a run has done so far, from its rows: what a forecast of the whole starts from."""

from __future__ import annotations

from dataclasses import dataclass

from greenlove_tracker.forecasting import Block, Progress
from greenlove_tracker.records import Energy, Flag, Row, RowKind
from greenlove_tracker.units import kwh_from_w_s, w_from_kwh_s


@dataclass(slots=True)
class _Epoch:
    active_s: float = 0.0
    paused_s: float = 0.0
    between_s: float = 0.0  # the gap behind it
    is_followed: bool = False  # by the next epoch, so that the gap behind it is known


class ProgressLog:
    """Puts rows together as they come.

    Args:
        pue: multiplies every energy.
    """

    def __init__(self, pue: float) -> None:
        self.pue = pue
        self._epochs: list[_Epoch] = []
        self._open: _Epoch | None = None
        self._startup_s = 0.0
        self._rows_s = 0.0  # all that rows hold
        self._settled_s = 0.0  # up to the last epoch's end, or the gap behind it where that is known
        self._lost_s = 0.0  # of the gap that is open: it took time, and will not come again
        self._metered: list[tuple[float, float]] = []
        self._metered_s, self._metered_kwh = 0.0, 0.0
        self._steps: list[Block] = []
        self._first_step: tuple[int, float] | None = None  # steps and time at the end of the first one
        self._stepped = (0, 0.0, 0.0)  # steps, active time and pauses up to the last block

    @property
    def has_energy(self) -> bool:
        """Whether anything was metered."""
        return self._metered_s > 0

    def take(self, row: Row) -> None:
        """Add a row."""
        self._meter(row.gap_before_s, row.gap_before)
        self._meter(row.duration_s, row.energy)
        self._rows_s += row.gap_before_s
        self._add_gap(row.gap_before_s)
        if row.epoch is not None:
            self._follow()
            self._open = self._open or _Epoch()
            self._open.active_s += row.duration_s
        self._rows_s += row.duration_s
        if Flag.UNFINISHED in row.flags:
            self._open = None  # it is done again: what it took is lost time
        elif row.kind is RowKind.EPOCH and self._open is not None:
            self._epochs.append(self._open)
            self._open, self._settled_s = None, self._rows_s

    def lose(self, duration_s: float) -> None:
        """So much of the gap that is open was waiting for somebody, and will not come again."""
        self._lost_s += duration_s

    def _add_gap(self, gap_s: float) -> None:
        lost_s = min(gap_s, self._lost_s)
        self._lost_s -= lost_s
        if self._open is not None:
            self._open.paused_s += gap_s - lost_s
        elif self._epochs:
            self._epochs[-1].between_s += gap_s - lost_s
        else:
            self._startup_s += gap_s

    def _follow(self) -> None:
        """The gap behind the last epoch is over."""
        if self._open is None and self._epochs and not self._epochs[-1].is_followed:
            self._epochs[-1].is_followed, self._settled_s = True, self._rows_s

    def _meter(self, duration_s: float, energy: Energy) -> None:
        energy_kwh = energy.total_kwh
        if energy_kwh is None or duration_s <= 0:
            return
        self._metered_s += duration_s
        self._metered_kwh += energy_kwh
        self._metered.append((duration_s, (w_from_kwh_s(energy_kwh, duration_s) or 0.0) * self.pue))

    def take_steps(self, steps: int, stepped_at_s: float, paused_s: float) -> None:
        """Where a training that counts in steps stands: steps, the time of the last one's end, and pauses till then.

        What came before the end of the first call's steps is start-up: loading, compiling.
        """
        active_s = stepped_at_s - paused_s
        if self._first_step is None:
            self._first_step, self._stepped = (steps, active_s), (steps, active_s, paused_s)
            return
        before, active_before_s, paused_before_s = self._stepped
        if steps > before and active_s > active_before_s:
            block = Block(steps - before, active_s - active_before_s, paused_s - paused_before_s, 0.0)
            self._steps.append(block)
            self._stepped = steps, active_s, paused_s

    def in_epochs(self, total: int, open_gap_s: float | None = None, gpu_count: int = 0) -> Progress:
        """A training of ``total`` epochs.

        Args:
            total: epochs of the whole training.
            open_gap_s: of the epoch that has begun, the gap before it that no row holds yet; None where none has.
            gpu_count: GPUs.
        """
        blocks = [Block(1, e.active_s, e.paused_s, e.between_s if e.is_followed else None) for e in self._epochs]
        settled_s = self._settled_s
        if open_gap_s is not None and blocks and blocks[-1].between_s is None:
            last = self._epochs[-1]
            between_s = last.between_s + max(0.0, open_gap_s - self._lost_s)
            blocks[-1] = Block(1, last.active_s, last.paused_s, between_s)
            settled_s = self._rows_s + open_gap_s
        return self._progress(total, len(blocks), blocks, settled_s, self._startup_s, gpu_count)

    def in_steps(self, total: int, gpu_count: int = 0) -> Progress:
        """A training of ``total`` steps."""
        first_s = self._first_step[1] if self._first_step else 0.0
        done, active_s, paused_s = self._stepped
        return self._progress(total, done, self._steps, active_s + paused_s, first_s, gpu_count)

    def _progress(
        self, total: int, done: int, blocks: list[Block], elapsed_s: float, startup_s: float, gpu_count: int
    ) -> Progress:
        used_kwh = None
        if self._metered_s > 0:
            mean_w = w_from_kwh_s(self._metered_kwh, self._metered_s) or 0.0
            unmetered_s = elapsed_s - self._metered_s  # negative: of an epoch that is open
            used_kwh = (self._metered_kwh + kwh_from_w_s(mean_w, unmetered_s)) * self.pue
        return Progress(total, done, tuple(blocks), startup_s, elapsed_s, tuple(self._metered), used_kwh, gpu_count)
