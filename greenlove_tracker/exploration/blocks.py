"""Blocks of trials: which sizes, how many epochs, in which order, so that they fit into a time."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from greenlove_tracker.exploration.asks import Purpose
from greenlove_tracker.exploration.cost import Cost

# Sizes as shares of the largest: geometric steps over a factor of ten, as in the design that docs/forecasting.md
# backtests. A wider range would tell more of an epoch's fixed cost, but short epochs are lost in the noise of timing.
_LADDER = (0.1, 0.215, 0.464, 1.0)
# Epochs of a trial, and the fewest batches of the largest size that are worth so many. Cold epochs are found from four
# epochs on (extrapolation/warmup.py), and of six three may be cold; below that, four sizes are worth more than epochs.
_EPOCHS_FROM = ((6, 20), (5, 12), (4, 8), (3, 6), (2, 4), (1, 4))
_MOST_EPOCHS = 8  # more only lessen the noise within a run, and leave what differs from run to run
_SINGLE_EPOCHS = 5  # of one trial of single batches: two trials of five show how runs differ, one of ten does not
_MOST_SINGLE_TRIALS = 6
_FEW_STEPS = 20  # of fewer, four sizes are not worth having without their replicates
_LEAST_EPOCHS = 2  # of a trial that is cut back to fit: one that may be cold, and one that is not
_GROWTH = 4.0  # a size is planned up to so many times what was seen in one epoch
_WORTH_MORE = 1.25  # times as large: less is not worth another size
_DROPPED_BELOW = 0.5  # of the size that was meant: a trial that would have to be smaller is dropped


@dataclass(frozen=True, slots=True)
class Slot:
    """A trial that is planned, before its cost is known."""

    batches: int
    epochs: int
    purpose: Purpose


def ladder(largest: int) -> list[int]:
    """The sizes below and up to the largest: four where it has four batches, else all there are."""
    sizes: list[int] = []
    for share in _LADDER:
        least = sizes[-1] + 1 if sizes else 1
        sizes.append(min(largest, max(least, round(largest * share))))
    return sorted(set(sizes))


def replicates(sizes: Sequence[int]) -> list[int]:
    """What is run once more: the extremes, the largest twice, and the middle."""
    return [sizes[0], sizes[-1], sizes[-1], sizes[len(sizes) // 2]]


@dataclass(frozen=True, slots=True)
class Room:
    """What there is to plan a block of trials with.

    Attributes:
        available_s: time for it.
        cost: of an epoch.
        between_s: time beside the epochs of a trial.
        most_batches: that an epoch of a trial may have.
    """

    available_s: float
    cost: Cost
    between_s: float
    most_batches: int

    def first_block(self, order: random.Random) -> tuple[list[Slot], bool]:
        """Each size once, with room for replicates if there can be; single batches where no four sizes fit.

        Returns:
            The trials, and whether a second block is to follow.
        """
        slots = self._sizes_once(order, is_replicated=True)
        if not slots and self.available_s >= _FEW_STEPS * self.cost.of(1):  # what is between trials is long
            slots = self._sizes_once(order, is_replicated=False)
        if slots:
            return slots, True
        trials, rest = divmod(max(0, int(self.available_s / self.cost.of(1))), _SINGLE_EPOCHS)
        counts = [_SINGLE_EPOCHS] * min(trials, _MOST_SINGLE_TRIALS) + [rest] * (rest > 0)
        return [Slot(1, epochs, Purpose.SINGLE) for epochs in counts], False

    def _sizes_once(self, order: random.Random, *, is_replicated: bool) -> list[Slot]:
        def runs(largest: int) -> list[int]:
            return ladder(largest) + (replicates(ladder(largest)) if is_replicated else [])

        for epochs, least in _EPOCHS_FROM:
            largest = self._largest(epochs, runs)
            if largest >= min(least, self.most_batches):
                while epochs < _MOST_EPOCHS and self._runs_s(runs(largest), epochs + 1) <= self.available_s:
                    epochs += 1
                return _shuffled(ladder(largest), epochs, order)
        return []

    def second_block(self, sizes: Sequence[int], epochs: int, order: random.Random) -> list[Slot]:
        """The extremes again: larger where the first block left more than was thought, in fewer epochs where less.

        Args:
            sizes: of the first block, in order.
            epochs: of its trials.
            order: of the trials.
        """
        if not sizes:
            return []
        largest = self._largest(epochs, lambda m: replicates([*sizes, m]))
        if largest >= _WORTH_MORE * sizes[-1]:
            sizes = [*sizes, largest]
        while epochs > _LEAST_EPOCHS and self._runs_s(replicates(sizes), epochs) > self.available_s:
            epochs -= 1
        return _shuffled(replicates(sizes), epochs, order)

    def _largest(self, epochs: int, runs: Callable[[int], list[int]]) -> int:
        """The largest size whose block of trials fits, by bisection; 0 where none does."""
        low, high = 0, self.most_batches
        while low < high:
            middle = (low + high + 1) // 2
            if self._runs_s(runs(middle), epochs) <= self.available_s:
                low = middle
            else:
                high = middle - 1
        return low

    def _runs_s(self, sizes: Sequence[int], epochs: int) -> float:
        return math.fsum(self.between_s + epochs * self.cost.of(m) for m in sizes)

    def fitted(self, slot: Slot) -> Slot | None:
        """With fewer epochs, or smaller, where the time does not hold it as meant; None where that is too small."""
        room_s = self.available_s - self.between_s
        epochs = min(slot.epochs, int(room_s / self.cost.of(slot.batches)))
        least = min(slot.epochs, _LEAST_EPOCHS)
        if epochs >= least:
            return replace(slot, epochs=epochs)
        batches = int((room_s / least - self.cost.start_s) / self.cost.batch_s) if self.cost.batch_s else 0
        is_worth_it = batches >= max(1, _DROPPED_BELOW * slot.batches)
        return replace(slot, batches=batches, epochs=least) if is_worth_it else None

    def expected_s(self, slot: Slot) -> float:
        """What it will take."""
        return self.between_s + slot.epochs * self.cost.of(slot.batches)


def most_batches(batches_per_epoch: int, seen: int) -> int:
    """What an epoch of a trial may have, where ``seen`` is the longest yet."""
    return min(batches_per_epoch, int(_GROWTH * max(seen, 4)))


def _shuffled(sizes: Sequence[int], epochs: int, order: random.Random) -> list[Slot]:
    """In random order, the first three never sorted (it may be cut short): size must not go with temperature."""
    sequence = list(sizes)
    order.shuffle(sequence)
    while len(set(sizes)) > 2 and sequence[:3] in (sorted(sequence[:3]), sorted(sequence[:3], reverse=True)):
        order.shuffle(sequence)
    purposes = {min(sequence): Purpose.SMALLEST, max(sequence): Purpose.LARGEST}
    return [Slot(m, epochs, purposes.get(m, Purpose.MIDDLE)) for m in sequence]
