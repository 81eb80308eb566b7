"""The progress of a run so far, from its rows and steps: the input of its forecasts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from greenlove_tracker.forecasting import Block, Progress
from greenlove_tracker.records import Counts, Energy, Flag, Row, RowKind
from greenlove_tracker.tracker.recorder import LOADING_SHARE, StepMark
from greenlove_tracker.units import kwh_from_w_s, w_from_kwh_s

_FEWEST_BLOCKS = 128  # epochs are joined until hardly more remain, so that a forecast costs the same at any length
_LEAST_POWER_S = 1.0  # a mean power is taken over this much: a single reading may hold 50 ms of what lay before
_ENOUGH_POWER_S = 60.0  # a power that was metered for so long counts, however long the epoch was
_LEAST_STEPPED_S = 10.0  # steps tell of an epoch that goes on once so much of it has passed behind the first one
# Two epochs say little of how even a machine is, and their steps much: they count as so many parts, an eighth each,
# which is exact in binary. On recorded GPU runs the interval after one epoch is 2 to 9% wide so, and 67 to 97% else.
_EPOCHS_IN_PARTS, _PARTS = 2, 8

_Item = TypeVar("_Item")


def _joined(items: list[_Item], size: Callable[[_Item], float], join: Callable[[_Item, _Item], _Item | None]) -> None:
    """Join neighbours in place, once there are four times as many as need be, to twice as many at most."""
    if len(items) < 4 * _FEWEST_BLOCKS:
        return
    most = math.fsum(map(size, items)) / _FEWEST_BLOCKS
    result: list[_Item] = []
    for item in items:
        fits = bool(result) and size(result[-1]) + size(item) <= most
        both = join(result[-1], item) if fits else None
        if both is None:
            result.append(item)
        else:
            result[-1] = both
    items[:] = result


def _block_between(before: StepMark, mark: StepMark) -> Block | None:
    """Return the steps from one mark to a later one; None where there are none, or they took no time."""
    taken_s = mark.active_s - before.active_s
    if mark.steps <= before.steps or taken_s <= 0:
        return None
    is_cold = mark.loading_s - before.loading_s > LOADING_SHARE * taken_s
    return Block(mark.steps - before.steps, taken_s, mark.paused_s - before.paused_s, 0.0, is_cold)


def _joined_blocks(a: Block, b: Block) -> Block | None:
    if a.is_cold != b.is_cold or a.between_s is None or b.between_s is None:
        return None
    paused_s, between_s = a.paused_s + b.paused_s, a.between_s + b.between_s
    return Block(a.units + b.units, a.active_s + b.active_s, paused_s, between_s, a.is_cold)


class _PowerLog:
    """The mean powers of what was metered, each over a second at least."""

    def __init__(self) -> None:
        self._stretches: list[tuple[float, float]] = []  # durations in s, and energies in kWh
        self._of_epoch: list[tuple[float, float]] = []  # those since the last epoch's end
        self._pending_s, self._pending_kwh = 0.0, 0.0

    def add(self, duration_s: float, energy_kwh: float) -> None:
        self._pending_s += duration_s
        self._pending_kwh += energy_kwh
        if self._pending_s >= _LEAST_POWER_S:
            self._of_epoch.append((self._pending_s, self._pending_kwh))
            self._pending_s, self._pending_kwh = 0.0, 0.0

    def end_epoch(self, *, is_partly_metered: bool) -> None:
        """Keep the powers of the epoch; or leave them out: they are those of its end, not of an epoch."""
        if is_partly_metered:
            self._pending_s, self._pending_kwh = 0.0, 0.0
        else:
            self._stretches += self._of_epoch
            _joined(self._stretches, lambda s: s[0], lambda a, b: (a[0] + b[0], a[1] + b[1]))
        self._of_epoch = []

    def stretches(self) -> list[tuple[float, float]]:
        """Return durations in s and energies in kWh, in order."""
        return self._stretches + self._of_epoch


@dataclass(slots=True)
class _EpochTimes:
    active_s: float = 0.0
    paused_s: float = 0.0
    between_s: float = 0.0  # the gap behind it
    loading_s: float = 0.0  # of its active time, what we slowed down
    metered_s: float = 0.0  # of its active time, what the meter saw
    counts: Counts = field(default_factory=Counts)
    began_s: float = 0.0  # since the run began
    ended_s: float = 0.0

    def block(self, between_s: float | None) -> Block:
        is_cold = self.loading_s > LOADING_SHARE * self.active_s
        return Block(1, self.active_s, self.paused_s, between_s, is_cold)

    @property
    def is_partly_metered(self) -> bool:
        return self.metered_s < min(self.active_s / 2, _ENOUGH_POWER_S)


class _EpochSteps:
    """The steps of the first epochs, which tell of the others before there are enough of them.

    Attributes:
        first: the mark behind the loop's first call, until which all is start-up; None before.
        last: the latest.
        blocks: of the open epoch, in steps.
        is_over: nothing is added any more, for an epoch was cut off, and is done again.
    """

    def __init__(self) -> None:
        self.first: StepMark | None = None
        self.last = StepMark(0, 0.0)
        self.blocks: list[Block] = []
        self.is_over = False
        self._is_first = self._is_open = True
        self._paused_s = 0.0  # in the epochs that are done

    def add(self, first: StepMark, mark: StepMark, began_s: float) -> None:
        """Add the steps of the open epoch, which began then, up to a mark."""
        if self.is_over:
            return
        if self.first is None:
            self.first = self.last = first
        elif not self._is_open and mark.steps > self.last.steps:
            self.last = replace(self.last, at_s=began_s, paused_s=self._paused_s)
            self._is_open = True
        if (block := _block_between(self.last, mark)) is not None:
            self.blocks.append(block)
            _joined(self.blocks, lambda block: block.units, _joined_blocks)
            self.last = mark

    def end_epoch(self, epoch: _EpochTimes) -> tuple[Block, ...]:
        """End the open epoch, and return it in equal parts; none where there are too few blocks, or pauses in them.

        What follows its last step, such as a validation, is spread over all.
        """
        blocks, self.blocks = self.blocks, []
        startup_s = self.first.at_s - epoch.began_s if self._is_first and self.first is not None else 0.0
        self._is_first = self._is_open = False
        self._paused_s += epoch.paused_s
        steps = math.fsum(block.units for block in blocks)
        is_coarse = not blocks or max(block.units for block in blocks) * _PARTS > steps
        if self.is_over or is_coarse or epoch.paused_s or startup_s >= epoch.active_s:
            return ()
        stretch = (epoch.active_s - startup_s) / math.fsum(block.active_s for block in blocks)
        return tuple(replace(part, active_s=part.active_s * stretch) for part in _equal_parts(blocks, steps))


def _equal_parts(blocks: Sequence[Block], steps: float) -> list[Block]:
    """Return an epoch's blocks of steps as parts of it, of equally many steps each."""
    parts, rest = list[Block](), list(reversed(blocks))
    for _ in range(_PARTS):
        missing, taken = steps / _PARTS, list[Block]()
        while rest and missing > 1e-9 * steps:
            block = rest.pop()
            share = min(1.0, missing / block.units)
            taken.append(_share_of(block, share))
            missing -= taken[-1].units
            if share < 1.0:
                rest.append(_share_of(block, 1.0 - share))
        active_s = math.fsum(block.active_s for block in taken)
        parts.append(Block(1 / _PARTS, active_s, 0.0, None, any(block.is_cold for block in taken)))
    return parts


def _share_of(block: Block, share: float) -> Block:
    return replace(block, units=block.units * share, active_s=block.active_s * share)


class ProgressLog:
    """Adds up epochs or steps, and the gaps between them, as rows are finished.

    Args:
        is_resumed: tells whether an earlier run did a part of the training, and maybe of the first epoch here: it is
            no measure of the others.
    """

    def __init__(self, is_resumed: Callable[[], bool] = lambda: False) -> None:
        self._is_resumed = is_resumed
        self._epochs: list[Block] = []  # those that were followed by another, so that the gap behind them is known
        self._n_epochs = 0  # all that are done
        self._last: _EpochTimes | None = None  # done, and not followed yet
        self._open: _EpochTimes | None = None
        self._startup_s = 0.0
        self._rows_s = 0.0  # all that rows hold
        self._settled_s = 0.0  # up to the last epoch's end, or the gap behind it where that is known
        self._wait_s = 0.0  # of the gap that is open: it took time, and will not come again
        self._power = _PowerLog()
        self._metered_s, self._metered_kwh = 0.0, 0.0
        self._steps: list[Block] = []
        self._first_step: StepMark | None = None
        self._last_step: StepMark | None = None  # at the end of the last block
        self._epoch_steps = _EpochSteps()
        self._parts: list[tuple[Block, ...]] = []  # of each of the first epochs; empty where its steps do not tell

    @property
    def _may_be_part(self) -> bool:
        """True where the last epoch is the first of a run that resumes: nobody can tell how much of one it is."""
        return self._n_epochs == 1 and self._is_resumed()

    @property
    def has_power(self) -> bool:
        """True once a mean power is known."""
        return bool(self._power.stretches())

    def add_row(self, row: Row, marks: tuple[StepMark, StepMark] | None = None) -> None:
        """Add a finished row.

        Args:
            row: of the run.
            marks: the first and the last step of the run by then, of a training that counts in epochs; None where no
                step was counted.
        """
        if Flag.WAITING in row.flags:  # it will not come again, and neither will the power of an idle machine
            self._rows_s += row.gap_before_s
            return
        self._add_energy(row.gap_before_s, row.gap_before)
        is_metered = self._add_energy(row.duration_s, row.energy)
        self._rows_s += row.gap_before_s
        self._add_gap(row.gap_before_s)
        if row.epoch is not None:
            if self._open is None and self._last is not None:  # the gap behind the last one is over
                if not self._may_be_part:
                    self._epochs.append(self._last.block(self._last.between_s))
                    _joined(self._epochs, lambda block: block.units, _joined_blocks)
                self._last, self._settled_s = None, self._rows_s
            self._open = self._open or _EpochTimes(began_s=self._rows_s)
            self.add_epoch_steps(marks)
            self._open.active_s += row.duration_s
            self._open.counts += row.counts
            self._open.loading_s += row.duration_s if Flag.LOADING in row.flags else 0.0
            self._open.metered_s += row.duration_s if is_metered else 0.0
        self._rows_s += row.duration_s
        if Flag.UNFINISHED in row.flags:
            self._open = None  # it is done again: what it took is lost time
            self._epoch_steps.is_over = True
        elif row.kind is RowKind.EPOCH and self._open is not None:
            self._power.end_epoch(is_partly_metered=self._open.is_partly_metered)
            self._end_epoch(self._open)

    def _end_epoch(self, epoch: _EpochTimes) -> None:
        self._last, self._open, self._settled_s = epoch, None, self._rows_s
        epoch.ended_s = self._rows_s
        if self._n_epochs < _EPOCHS_IN_PARTS:
            self._parts.append(self._epoch_steps.end_epoch(epoch))
        self._n_epochs += 1

    def _add_gap(self, gap_s: float) -> None:
        wait_s = min(gap_s, self._wait_s)
        self._wait_s -= wait_s
        if self._open is not None:
            self._open.paused_s += gap_s - wait_s
        elif self._last is not None:
            self._last.between_s += gap_s - wait_s
        elif self._epochs:  # behind one that was cut off
            before = self._epochs[-1]
            self._epochs[-1] = replace(before, between_s=(before.between_s or 0.0) + gap_s - wait_s)
        else:
            self._startup_s += gap_s

    def _add_energy(self, duration_s: float, energy: Energy) -> bool:
        """Add a stretch of time and its energy; return False where that is not known."""
        energy_kwh = energy.total_kwh
        if energy_kwh is None or duration_s <= 0:
            return False
        self._metered_s += duration_s
        self._metered_kwh += energy_kwh
        self._power.add(duration_s, energy_kwh)
        return True

    @property
    def has_steps(self) -> bool:
        """True once a step was added of a training that counts in steps."""
        return self._first_step is not None

    def add_steps(self, mark: StepMark) -> None:
        """Add the steps since the last mark, of a training that counts in steps.

        What came before the first mark is start-up: loading, compiling.
        """
        if self._first_step is None or self._last_step is None:
            self._first_step = self._last_step = mark
        elif (block := _block_between(self._last_step, mark)) is not None:
            self._steps.append(block)
            _joined(self._steps, lambda block: block.units, _joined_blocks)
            self._last_step = mark

    def add_epoch_steps(self, marks: tuple[StepMark, StepMark] | None, open_gap_s: float = 0.0) -> None:
        """Add the steps of the open epoch since the last call, of a training that counts in epochs.

        Args:
            marks: the first and the last one of the run; None before any.
            open_gap_s: the gap before the epoch that no row holds yet.
        """
        if marks is not None and self._n_epochs < _EPOCHS_IN_PARTS:
            began_s = self._rows_s + open_gap_s if self._open is None else self._open.began_s
            self._epoch_steps.add(*marks, began_s)

    def exclude_wait(self, duration_s: float) -> None:
        """Leave a part of the open gap out of what is extrapolated: it was a wait for somebody, or for us."""
        self._wait_s += duration_s

    def in_epochs(
        self,
        total: int,
        open_gap_s: float | None = None,
        *,
        energy_factor: float = 1.0,
        gpu_count: int = 0,
    ) -> Progress:
        """Return the progress of a training of ``total`` epochs.

        Args:
            total: epochs of the whole training.
            open_gap_s: of the epoch that has begun, the gap before it that no row holds yet; None where none has.
            energy_factor: multiplies every energy: PUE, and what is assumed of the node.
            gpu_count: GPUs.
        """
        blocks, settled_s, startup_s = list(self._epochs), self._settled_s, self._startup_s
        between_s = None
        if self._last is not None and open_gap_s is not None:
            between_s = self._last.between_s + max(0.0, open_gap_s - self._wait_s)
            settled_s = self._rows_s + open_gap_s
        if self._last is not None and not self._may_be_part:
            blocks.append(self._last.block(between_s))
        in_parts = self._in_parts(blocks)
        if in_parts is not blocks and self._parts[0] and self._epoch_steps.first is not None:
            startup_s = self._epoch_steps.first.active_s
        progress = self._progress(total, self._n_epochs, in_parts, settled_s, startup_s, energy_factor, gpu_count)
        if in_parts is not blocks and self._n_epochs == 1:
            progress = replace(progress, is_of_first_epoch=True)
        return progress

    def _in_parts(self, epochs: list[Block]) -> list[Block]:
        """Return the blocks, the first epochs in parts while there are no others, where their steps tell."""
        if not any(self._parts) or self._is_resumed() or not len(epochs) == self._n_epochs == len(self._parts):
            return epochs
        result: list[Block] = []
        for epoch, parts in zip(epochs, self._parts, strict=True):
            result += [*parts[:-1], replace(parts[-1], between_s=epoch.between_s)] if parts else [epoch]
        return result

    def in_first_epoch(
        self, total: int, steps_per_epoch: float, begun: float = 0.0, *, energy_factor: float = 1.0, gpu_count: int = 0
    ) -> Progress | None:
        """Return the progress of a training of ``total`` epochs before the first one has ended, from its steps.

        None where they say nothing yet, or are those of an epoch already that did not end.

        Args:
            total: epochs of the whole training.
            steps_per_epoch: as planned.
            begun: the share of the first epoch that an earlier run did.
            energy_factor: as for ``in_epochs``.
            gpu_count: likewise.
        """
        stepped, first = self._epoch_steps, self._epoch_steps.first
        if self._n_epochs or stepped.is_over or first is None or not stepped.blocks:
            return None
        blocks = [replace(b, units=b.units / steps_per_epoch, between_s=None) for b in stepped.blocks]
        done = begun + stepped.last.steps / steps_per_epoch
        if stepped.last.active_s - first.active_s < _LEAST_STEPPED_S:
            return None
        progress = self._progress(total, done, blocks, stepped.last.at_s, first.active_s, energy_factor, gpu_count)
        return replace(progress, is_of_first_epoch=True)

    def in_steps(self, total: int, *, energy_factor: float = 1.0, gpu_count: int = 0) -> Progress:
        """Return the progress of a training of ``total`` steps."""
        first, last = self._first_step or StepMark(0, 0.0), self._last_step or StepMark(0, 0.0)
        progress = self._progress(total, last.steps, self._steps, last.at_s, first.active_s, energy_factor, gpu_count)
        return replace(progress, is_in_steps=True)

    def _progress(
        self,
        total: int,
        done: float,
        blocks: list[Block],
        elapsed_s: float,
        startup_s: float,
        energy_factor: float,
        gpu_count: int,
    ) -> Progress:
        used_kwh, stretches = None, self._power.stretches()
        if stretches:
            seconds, energies_kwh = map(math.fsum, zip(*stretches, strict=True))
            mean_w = w_from_kwh_s(energies_kwh, seconds) or 0.0
            unmetered_s = elapsed_s - self._metered_s  # negative: of an epoch that is open
            used_kwh = (self._metered_kwh + kwh_from_w_s(mean_w, unmetered_s)) * energy_factor
        metered = tuple((s, (w_from_kwh_s(kwh, s) or 0.0) * energy_factor) for s, kwh in stretches)
        return Progress(total, done, tuple(blocks), startup_s, elapsed_s, metered, used_kwh, gpu_count)
