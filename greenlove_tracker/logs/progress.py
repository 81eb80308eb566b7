"""What a run has done so far, from its rows: what a forecast of the whole starts from."""

from __future__ import annotations

from dataclasses import dataclass

from greenlove_tracker.forecasting import Block, Progress
from greenlove_tracker.records import Energy, Flag, Row, RowKind
from greenlove_tracker.units import kwh_from_w_s, w_from_kwh_s


@dataclass(slots=True)
class _Epoch:
    active_s: float = 0.0
    between_s: float = 0.0  # pauses in it, and what followed it
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
        self._metered: list[tuple[float, float]] = []
        self._metered_s, self._metered_kwh = 0.0, 0.0
        self._steps: list[Block] = []
        self._stepped = (0, 0.0, 0.0)  # steps, active time and pauses up to the last block

    @property
    def n_epochs(self) -> int:
        """Epochs that are done."""
        return len(self._epochs)

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
        if row.kind is RowKind.EPOCH and self._open is not None:
            self._epochs.append(self._open)
            self._open, self._settled_s = None, self._rows_s
        elif Flag.UNFINISHED in row.flags and self._open is not None:  # what was cut off is lost time
            lost, self._open = self._open, None
            self._add_gap(lost.active_s + lost.between_s)

    def _add_gap(self, gap_s: float) -> None:
        if self._open is not None:
            self._open.between_s += gap_s
        elif self._epochs:
            self._epochs[-1].between_s += gap_s
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
        """Where a training that counts in steps stands: steps, the time of the last one's end, and pauses till then."""
        before, active_before_s, paused_before_s = self._stepped
        active_s = stepped_at_s - paused_s
        if steps > before and active_s > active_before_s:
            block = Block(steps - before, active_s - active_before_s, paused_s - paused_before_s)
            self._steps.append(block)
            self._stepped = steps, active_s, paused_s

    def in_epochs(self, total: int, open_gap_s: float | None = None, gpu_count: int = 0) -> Progress:
        """A training of ``total`` epochs.

        Args:
            total: epochs of the whole training.
            open_gap_s: of the epoch that has begun, the gap before it that no row holds yet; None where none has.
            gpu_count: GPUs.
        """
        epochs = [Block(1, e.active_s, e.between_s if e.is_followed else None) for e in self._epochs]
        settled_s = self._settled_s
        if open_gap_s is not None and epochs and epochs[-1].between_s is None:
            epochs[-1] = Block(1, epochs[-1].active_s, self._epochs[-1].between_s + open_gap_s)
            settled_s = self._rows_s + open_gap_s
        return self._progress(total, epochs, settled_s, self._startup_s, gpu_count)

    def in_steps(self, total: int, gpu_count: int = 0) -> Progress:
        """A training of ``total`` steps."""
        return self._progress(total, self._steps, self._stepped[1] + self._stepped[2], 0.0, gpu_count)

    def _progress(
        self, total: int, blocks: list[Block], elapsed_s: float, startup_s: float, gpu_count: int
    ) -> Progress:
        used_kwh = None
        if self._metered_s > 0:
            mean_w = w_from_kwh_s(self._metered_kwh, self._metered_s) or 0.0
            unmetered_s = elapsed_s - self._metered_s  # negative: of an epoch that is open
            used_kwh = (self._metered_kwh + kwh_from_w_s(mean_w, unmetered_s)) * self.pue
        return Progress(total, tuple(blocks), startup_s, elapsed_s, tuple(self._metered), used_kwh, gpu_count)
