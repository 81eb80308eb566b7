"""The progress of a run so far, from its rows and steps: the input of its forecasts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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


def _joined(items: list[_Item], join: Callable[[_Item, _Item], _Item | None]) -> list[_Item]:
    """Join each item to the one before where ``join`` gives what both are."""
    result = items[:1]
    for item in items[1:]:
        both = join(result[-1], item)
        result[-1:] = [result[-1], item] if both is None else [both]
    return result


def _keep_few(items: list[_Item], size: Callable[[_Item], float], join: Callable[[_Item, _Item], _Item | None]) -> None:
    """Join neighbours in place, once there are four times as many as need be, to twice as many at most."""
    if len(items) >= 4 * _FEWEST_BLOCKS:
        most = math.fsum(map(size, items)) / _FEWEST_BLOCKS
        items[:] = _joined(items, lambda a, b: join(a, b) if size(a) + size(b) <= most else None)


def _joined_blocks(a: Block, b: Block) -> Block | None:
    if a.is_cold != b.is_cold or a.between_s is None or b.between_s is None:
        return None
    paused_s, between_s = a.paused_s + b.paused_s, a.between_s + b.between_s
    return Block(a.units + b.units, a.active_s + b.active_s, paused_s, between_s, a.is_cold)


@dataclass(slots=True)
class _OpenEpoch:
    began_s: float  # since the run began
    active_s: float = 0.0
    paused_s: float = 0.0
    loading_s: float = 0.0  # of its active time, what we slowed down


class ProgressLog:
    """Adds up epochs or steps, and the gaps between them, as rows are finished.

    Args:
        is_resumed: tells whether an earlier run did a part of the training, and maybe of the first epoch here: it is
            no measure of the others.
    """

    def __init__(self, is_resumed: Callable[[], bool] = lambda: False) -> None:
        self._is_resumed = is_resumed
        self._epochs: list[Block] = []  # of the last one the gap behind it is not known before another begins
        self._n_epochs = 0  # all that are done
        self._open: _OpenEpoch | None = None
        self._startup_s = self._between_s = 0.0  # the gap before the first epoch, and that behind the last one
        self._rows_s = 0.0  # all that rows hold
        self._settled_s = 0.0  # up to the last epoch's end, or the gap behind it where that is known
        # Durations in s and energies in kWh; what is metered last may be less than ``_LEAST_POWER_S``.
        self._metered: list[tuple[float, float]] = []
        # Steps of a training that counts in steps, or of the first epoch: the mark behind the first call, until which
        # all is start-up; the latest; and what lies between, in steps.
        self._first_step: StepMark | None = None
        self._last_step = StepMark(0, 0.0)
        self._steps: list[Block] = []
        self._is_cut = False  # an epoch was cut off, and is done again: steps tell nothing of the first one
        self._parts: list[Block] = []  # of the first epoch; empty where its steps do not tell

    @property
    def has_power(self) -> bool:
        """True once a mean power is known."""
        return bool(self._metered) and self._metered[0][0] >= _LEAST_POWER_S

    @property
    def is_in_first_epoch(self) -> bool:
        """True until an epoch has ended, or was cut off."""
        return not self._n_epochs and not self._is_cut

    def add_row(self, row: Row, marks: Sequence[StepMark] = ()) -> None:
        """Add a finished row.

        Args:
            row: of the run.
            marks: the first and the last step of the run by then, of a training that counts in epochs.
        """
        self._rows_s += row.gap_before_s
        if Flag.WAITING in row.flags:  # it will not come again, and neither will the power of an idle machine
            return
        self._add_energy(row.gap_before_s, row.gap_before)
        self._add_energy(row.duration_s, row.energy)
        if self._open is not None:
            self._open.paused_s += row.gap_before_s
        elif self._n_epochs:
            self._between_s += row.gap_before_s
        else:
            self._startup_s += row.gap_before_s
        if row.epoch is not None:
            if self._open is None:
                self._settle_gap()
            epoch = self._open = self._open or _OpenEpoch(self._rows_s)
            if self.is_in_first_epoch:
                self.add_steps(marks)
            epoch.active_s += row.duration_s
            epoch.loading_s += row.duration_s if Flag.LOADING in row.flags else 0.0
        self._rows_s += row.duration_s
        if Flag.UNFINISHED in row.flags:
            self._open, self._is_cut = None, True  # what it took is lost time
        elif row.kind is RowKind.EPOCH and self._open is not None:
            self._end_epoch(self._open)

    def _settle_gap(self) -> None:
        """Add the gap to the epoch before it, which is over with that."""
        if self._n_epochs:
            self._settled_s = self._rows_s
        if self._epochs:
            last = self._epochs[-1]
            self._epochs[-1] = replace(last, between_s=(last.between_s or 0.0) + self._between_s)
            _keep_few(self._epochs, lambda block: block.units, _joined_blocks)
        self._between_s = 0.0

    def _end_epoch(self, epoch: _OpenEpoch) -> None:
        if self.is_in_first_epoch:
            self._parts = self._parts_of(epoch)
        if self._n_epochs or not self._is_resumed():
            is_cold = epoch.loading_s > LOADING_SHARE * epoch.active_s
            self._epochs.append(Block(1, epoch.active_s, epoch.paused_s, None, is_cold))
        self._open, self._settled_s, self._n_epochs = None, self._rows_s, self._n_epochs + 1

    def _parts_of(self, epoch: _OpenEpoch) -> list[Block]:
        """Return the epoch in parts; none where there are too few steps, or pauses in it.

        What follows its last step, such as a validation, is spread over all.
        """
        startup_s = 0.0 if self._first_step is None else self._first_step.at_s - epoch.began_s
        steps = math.fsum(block.units for block in self._steps)
        is_coarse = not self._steps or max(block.units for block in self._steps) * _PARTS > steps
        if is_coarse or epoch.paused_s or startup_s >= epoch.active_s:
            return []
        stretch = (epoch.active_s - startup_s) / math.fsum(block.active_s for block in self._steps)
        parts = _joined(self._steps, lambda a, b: None if a.units * _PARTS >= steps else _joined_blocks(a, b))
        return [replace(p, units=p.units / steps, active_s=p.active_s * stretch, between_s=None) for p in parts]

    def _add_energy(self, duration_s: float, energy: Energy) -> None:
        energy_kwh = energy.total_kwh
        if energy_kwh is None or duration_s <= 0:
            return
        if self._metered and self._metered[-1][0] < _LEAST_POWER_S:
            before_s, before_kwh = self._metered.pop()
            duration_s, energy_kwh = before_s + duration_s, before_kwh + energy_kwh
        self._metered.append((duration_s, energy_kwh))
        _keep_few(self._metered, lambda power: power[0], lambda a, b: (a[0] + b[0], a[1] + b[1]))

    def add_steps(self, marks: Sequence[StepMark]) -> None:
        """Add the steps since the last call, of a training that counts in steps, or of the first epoch.

        What came before the first mark is start-up: loading, compiling. Steps that took no time count with the next.

        Args:
            marks: the first and the last step of the run; empty before any.
        """
        for mark in marks:
            if self._first_step is None:
                self._first_step = self._last_step = mark
            last, taken_s = self._last_step, mark.active_s - self._last_step.active_s
            if mark.steps > last.steps and taken_s > 0:
                is_cold = mark.loading_s - last.loading_s > LOADING_SHARE * taken_s
                self._steps.append(Block(mark.steps - last.steps, taken_s, mark.paused_s - last.paused_s, 0.0, is_cold))
                _keep_few(self._steps, lambda block: block.units, _joined_blocks)
                self._last_step = mark

    def in_epochs(self, total: int, open_gap_s: float | None = None, *, energy_factor: float = 1.0) -> Progress:
        """Return the progress of a training of ``total`` epochs.

        Args:
            total: epochs of the whole training.
            open_gap_s: of the epoch that has begun, the gap before it that no row holds yet; None where none has.
            energy_factor: multiplies every energy: PUE, and what is assumed of the node.
        """
        blocks, settled_s, startup_s = list(self._epochs), self._settled_s, self._startup_s
        if open_gap_s is not None and self._open is None:
            settled_s = self._rows_s + open_gap_s
            if blocks:
                gap_s = (blocks[-1].between_s or 0.0) + self._between_s + open_gap_s
                blocks[-1] = replace(blocks[-1], between_s=gap_s)
        are_parts_used = bool(self._parts) and len(blocks) == self._n_epochs <= _MOST_EPOCHS_BESIDE_PARTS
        if are_parts_used and self._first_step is not None:
            startup_s = self._first_step.at_s
            blocks[:1] = [*self._parts[:-1], replace(self._parts[-1], between_s=blocks[0].between_s)]
        is_of_first_epoch = are_parts_used and self._n_epochs == 1
        return self._progress(
            total, self._n_epochs, blocks, settled_s, startup_s, energy_factor, is_of_first_epoch=is_of_first_epoch
        )

    def in_first_epoch(
        self, total: int, steps_per_epoch: float, begun: float = 0.0, *, energy_factor: float = 1.0
    ) -> Progress | None:
        """Return the progress of a training of ``total`` epochs before the first one has ended, from its steps.

        None where they say nothing yet, or are those of an epoch already that did not end.

        Args:
            total: epochs of the whole training.
            steps_per_epoch: as planned.
            begun: the share of the first epoch that an earlier run did.
            energy_factor: as for ``in_epochs``.
        """
        first, last = self._first_step, self._last_step
        if not self.is_in_first_epoch or first is None or last.active_s - first.active_s < _LEAST_STEPPED_S:
            return None
        blocks = [replace(block, units=block.units / steps_per_epoch, between_s=None) for block in self._steps]
        done = begun + last.steps / steps_per_epoch
        return self._progress(total, done, blocks, last.at_s, first.at_s, energy_factor, is_of_first_epoch=True)

    def in_steps(self, total: int, *, energy_factor: float = 1.0) -> Progress:
        """Return the progress of a training of ``total`` steps."""
        last, startup_s = self._last_step, 0.0 if self._first_step is None else self._first_step.at_s
        return self._progress(total, last.steps, self._steps, last.at_s, startup_s, energy_factor, is_in_steps=True)

    def _progress(
        self,
        total: int,
        done: float,
        blocks: Sequence[Block],
        elapsed_s: float,
        startup_s: float,
        energy_factor: float,
        *,
        is_in_steps: bool = False,
        is_of_first_epoch: bool = False,
    ) -> Progress:
        powers, used_kwh = [power for power in self._metered if power[0] >= _LEAST_POWER_S], None
        if powers:
            mean_w = w_from_kwh_s(math.fsum(kwh for _, kwh in powers), math.fsum(s for s, _ in powers)) or 0.0
            metered_s, metered_kwh = map(math.fsum, zip(*self._metered, strict=True))
            unmetered_s = elapsed_s - metered_s  # negative: of an epoch that is open
            used_kwh = (metered_kwh + kwh_from_w_s(mean_w, unmetered_s)) * energy_factor
        return Progress(
            total,
            done,
            tuple(blocks),
            startup_s,
            elapsed_s,
            tuple((s, (w_from_kwh_s(kwh, s) or 0.0) * energy_factor) for s, kwh in powers),
            used_kwh,
            is_in_steps=is_in_steps,
            is_of_first_epoch=is_of_first_epoch,
        )
