"""The progress of a run so far, from its rows and steps: the input of its forecasts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from greenlove_tracker.forecasting import Block, Progress
from greenlove_tracker.records import Energy, Flag, Row, RowKind
from greenlove_tracker.tracker.recorder import LOADING_SHARE, StepMark
from greenlove_tracker.units import kwh_from_w_s, w_from_kwh_s

_FEWEST_BLOCKS = 128  # epochs are joined until hardly more remain, so that a forecast costs the same at any length
_LEAST_POWER_S = 1.0  # a mean power is taken over this much: a single reading may hold 50 ms of what lay before
_LEAST_STEPPED_S = 10.0  # steps tell of an epoch that goes on once so much of it has passed behind the first one
# One epoch or two say little of how even a machine is, and the steps of the first much: it counts as so many parts.
# On recorded GPU runs the interval after one epoch is 2 to 9% wide so, and 67 to 97% else.
_PARTS, _MOST_EPOCHS_BESIDE_PARTS = 8, 2

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


def _joined_blocks(a: Block, b: Block) -> Block | None:
    if a.is_cold != b.is_cold or a.between_s is None or b.between_s is None:
        return None
    paused_s, between_s = a.paused_s + b.paused_s, a.between_s + b.between_s
    return Block(a.units + b.units, a.active_s + b.active_s, paused_s, between_s, a.is_cold)


@dataclass(slots=True)
class _EpochTimes:
    active_s: float = 0.0
    paused_s: float = 0.0
    between_s: float = 0.0  # the gap behind it
    loading_s: float = 0.0  # of its active time, what we slowed down
    began_s: float = 0.0  # since the run began

    def block(self, between_s: float | None) -> Block:
        is_cold = self.loading_s > LOADING_SHARE * self.active_s
        return Block(1, self.active_s, self.paused_s, between_s, is_cold)


class _StepBlocks:
    """The steps of a training that counts in steps, or of the first epoch.

    Attributes:
        first: the mark behind the first call, until which all is start-up; None before.
        last: the latest.
        blocks: in steps.
    """

    def __init__(self) -> None:
        self.first: StepMark | None = None
        self.last = StepMark(0, 0.0)
        self.blocks: list[Block] = []

    def add(self, mark: StepMark) -> None:
        """Add the steps since the last mark, unless there are none, or they took no time."""
        if self.first is None:
            self.first = self.last = mark
        last, taken_s = self.last, mark.active_s - self.last.active_s
        if mark.steps > last.steps and taken_s > 0:
            is_cold = mark.loading_s - last.loading_s > LOADING_SHARE * taken_s
            self.blocks.append(Block(mark.steps - last.steps, taken_s, mark.paused_s - last.paused_s, 0.0, is_cold))
            _joined(self.blocks, lambda block: block.units, _joined_blocks)
            self.last = mark

    def parts_of(self, epoch: _EpochTimes) -> tuple[Block, ...]:
        """Return the epoch in parts; none where there are too few blocks, or pauses in it.

        What follows its last step, such as a validation, is spread over all.
        """
        startup_s = 0.0 if self.first is None else self.first.at_s - epoch.began_s
        steps = math.fsum(block.units for block in self.blocks)
        is_coarse = not self.blocks or max(block.units for block in self.blocks) * _PARTS > steps
        if is_coarse or epoch.paused_s or startup_s >= epoch.active_s:
            return ()
        stretch = (epoch.active_s - startup_s) / math.fsum(block.active_s for block in self.blocks)
        parts = list[Block]()
        for block in self.blocks:
            is_full = not parts or parts[-1].units * _PARTS >= steps
            both = None if is_full else _joined_blocks(parts[-1], block)
            if both is None:
                parts.append(block)
            else:
                parts[-1] = both
        return tuple(
            replace(part, units=part.units / steps, active_s=part.active_s * stretch, between_s=None) for part in parts
        )


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
        self._powers: list[tuple[float, float]] = []  # durations in s and energies in kWh, each of a second at least
        self._pending_s, self._pending_kwh = 0.0, 0.0
        self._metered_s, self._metered_kwh = 0.0, 0.0
        self._steps = _StepBlocks()
        self._is_cut = False  # an epoch was cut off, and is done again: steps tell nothing of the first one
        self._parts: tuple[Block, ...] = ()  # of the first epoch; empty where its steps do not tell

    @property
    def _may_be_part(self) -> bool:
        """True where the last epoch is the first of a run that resumes: nobody can tell how much of one it is."""
        return self._n_epochs == 1 and self._is_resumed()

    @property
    def has_power(self) -> bool:
        """True once a mean power is known."""
        return bool(self._powers)

    def add_row(self, row: Row, marks: tuple[StepMark, StepMark] | None = None) -> None:
        """Add a finished row.

        Args:
            row: of the run.
            marks: the first and the last step of the run by then, of a training that counts in epochs; None where no
                step was counted.
        """
        self._rows_s += row.gap_before_s
        if Flag.WAITING in row.flags:  # it will not come again, and neither will the power of an idle machine
            return
        self._add_energy(row.gap_before_s, row.gap_before)
        self._add_energy(row.duration_s, row.energy)
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
            self._open.loading_s += row.duration_s if Flag.LOADING in row.flags else 0.0
        self._rows_s += row.duration_s
        if Flag.UNFINISHED in row.flags:
            self._open, self._is_cut = None, True  # what it took is lost time
        elif row.kind is RowKind.EPOCH and self._open is not None:
            if not self._n_epochs and not self._is_cut:
                self._parts = self._steps.parts_of(self._open)
            self._last, self._open, self._settled_s = self._open, None, self._rows_s
            self._n_epochs += 1

    def _add_gap(self, gap_s: float) -> None:
        if self._open is not None:
            self._open.paused_s += gap_s
        elif self._last is not None:
            self._last.between_s += gap_s
        elif self._epochs:  # behind one that was cut off
            before = self._epochs[-1]
            self._epochs[-1] = replace(before, between_s=(before.between_s or 0.0) + gap_s)
        else:
            self._startup_s += gap_s

    def _add_energy(self, duration_s: float, energy: Energy) -> None:
        energy_kwh = energy.total_kwh
        if energy_kwh is None or duration_s <= 0:
            return
        self._metered_s += duration_s
        self._metered_kwh += energy_kwh
        self._pending_s += duration_s
        self._pending_kwh += energy_kwh
        if self._pending_s >= _LEAST_POWER_S:
            self._powers.append((self._pending_s, self._pending_kwh))
            self._pending_s, self._pending_kwh = 0.0, 0.0
            _joined(self._powers, lambda power: power[0], lambda a, b: (a[0] + b[0], a[1] + b[1]))

    def add_steps(self, mark: StepMark) -> None:
        """Add the steps since the last mark, of a training that counts in steps.

        What came before the first mark is start-up: loading, compiling.
        """
        self._steps.add(mark)

    def add_epoch_steps(self, marks: tuple[StepMark, StepMark] | None) -> None:
        """Add the steps of the first epoch since the last call, of a training that counts in epochs.

        Args:
            marks: the first and the last one of the run; None before any.
        """
        if marks is not None and not self._n_epochs and not self._is_cut:
            for mark in marks if self._steps.first is None else marks[1:]:
                self._steps.add(mark)

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
            between_s = self._last.between_s + open_gap_s
            settled_s = self._rows_s + open_gap_s
        if self._last is not None and not self._may_be_part:
            blocks.append(self._last.block(between_s))
        are_parts_used = bool(self._parts) and len(blocks) == self._n_epochs <= _MOST_EPOCHS_BESIDE_PARTS
        if are_parts_used and self._steps.first is not None:
            startup_s = self._steps.first.active_s
            blocks[:1] = [*self._parts[:-1], replace(self._parts[-1], between_s=blocks[0].between_s)]
        progress = self._progress(total, self._n_epochs, blocks, settled_s, startup_s, energy_factor, gpu_count)
        return replace(progress, is_of_first_epoch=are_parts_used and self._n_epochs == 1)

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
        steps, first = self._steps, self._steps.first
        if self._n_epochs or self._is_cut or first is None or steps.last.active_s - first.active_s < _LEAST_STEPPED_S:
            return None
        blocks = [replace(b, units=b.units / steps_per_epoch, between_s=None) for b in steps.blocks]
        done = begun + steps.last.steps / steps_per_epoch
        progress = self._progress(total, done, blocks, steps.last.at_s, first.active_s, energy_factor, gpu_count)
        return replace(progress, is_of_first_epoch=True)

    def in_steps(self, total: int, *, energy_factor: float = 1.0, gpu_count: int = 0) -> Progress:
        """Return the progress of a training of ``total`` steps."""
        steps, last = self._steps, self._steps.last
        startup_s = 0.0 if steps.first is None else steps.first.active_s
        progress = self._progress(total, last.steps, steps.blocks, last.at_s, startup_s, energy_factor, gpu_count)
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
        used_kwh = None
        if self._powers:
            seconds, energies_kwh = map(math.fsum, zip(*self._powers, strict=True))
            mean_w = w_from_kwh_s(energies_kwh, seconds) or 0.0
            unmetered_s = elapsed_s - self._metered_s  # negative: of an epoch that is open
            used_kwh = (self._metered_kwh + kwh_from_w_s(mean_w, unmetered_s)) * energy_factor
        metered = tuple((s, (w_from_kwh_s(kwh, s) or 0.0) * energy_factor) for s, kwh in self._powers)
        return Progress(total, done, tuple(blocks), startup_s, elapsed_s, metered, used_kwh, gpu_count)
