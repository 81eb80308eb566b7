"""The exploration scheduler: which sample sizes, how many epochs, in which order, within which budget.

Pure: it has no clock and runs nothing. The caller runs what it is asked to, and tells what that took:

1. A *probe*: one step, cold (it compiles, allocates, fills caches). Where that was quick, two more, warm.
2. A *stretch*: one epoch, as long as a share of the budget. Wherever the deadline ends it, its batches and its time
   say what a batch costs beside an epoch's start, which epochs of one batch cannot.
3. *Trials*: four sizes, the largest as large as the budget allows, each once, in random order; then the extremes
   again, in random order. Two blocks, so that an exploration that is cut short has seen every size.

Where the budget does not hold four sizes (about twenty steps), the trials are epochs of a single batch, as many as it
holds. With the stretch they make two sizes: on virtual loops of 2 s a step that errs by 1.5%, where single batches
alone err by 15% (``extrapolate`` allows for a fixed cost that they cannot show) or, where an epoch costs 1 s to start,
by 27%.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from greenlove_tracker.errors import UsageError
from greenlove_tracker.exploration.scheduler import Cost, Purpose, Scheduler, TrialRequest, TrialResult
from greenlove_tracker.forecasting import Trial
from greenlove_tracker.format import duration

_LEAST_TRIALS = 6  # before an early stop; fewer do not show how runs differ (docs/forecasting.md)
_ENERGY_S = 5.0  # energy measured for less is noise (extrapolation/energy.py): no early stop before

_KEPT_SHARE = 0.07  # of what is left is not planned with: the time of a trial is foreseen to some per cent
_STRETCH_SHARE = 0.08  # of what there is; so it is about as long as all epochs of the largest size are on average
_STRETCH_STEPS = 3  # at least, or one-batch epochs tell as much
_QUICK_SHARE = 0.125  # of the budget: a cold step that took less may be repeated to see it warm
_COLD_SHARE = 0.1  # of a slow cold step must be left to go on: less could hardly show anything but an overrun
_PATIENCE = 4.0  # a trial may take so many times what was foreseen before it is cut, or
_PATIENCE_SHARE = 0.25  # this share of what is left, whichever is longer: a hiccup must not cut a short one

# A short run is explored in proportion: long enough to be worth it, and for no more than a third of the run.
_SHARE_OF_RUN = 0.15
_MOST_OF_RUN = 1 / 3
_UNSURE = 0.25  # a relative width above which it goes on, to that third, while the budget lasts
_GO_ON_SHARE = 0.2  # of the budget: for less it does not
_USEFUL_S = 6.0  # five seconds of energy, and what lies between trials
_USEFUL_STEPS = 10  # an answer from ten steps, where they are slow
_FEW_BUDGETS = 3.0  # a run of less is better run than explored
_CALIBRATION = (Purpose.PROBE, Purpose.STRETCH)


class ExplorationScheduler(Scheduler):
    """Says which trial to run next, until the budget is spent or the forecast is narrow enough.

    Args:
        batches_per_epoch: of the whole training; with ``total_epochs=1`` its steps.
        total_epochs: of the whole training.
        budget_s: never overrun by more than one step, or one start of a loader.
        seed: of the order of trials.
        target_relative_width: of the forecast's interval, at which it stops early.
    """

    def __init__(
        self,
        batches_per_epoch: int,
        total_epochs: float,
        *,
        budget_s: float = 30.0,
        seed: int = 0,
        target_relative_width: float = 0.05,
    ) -> None:
        for name, count in (("batches_per_epoch", batches_per_epoch), ("total_epochs", total_epochs)):
            if count < 1:
                raise UsageError(
                    f"{{argument}} must be at least 1, not {count}: there is nothing to train", argument=name
                )
        if not (math.isfinite(budget_s) and budget_s > 0):
            raise UsageError(
                f"{{argument}} must be positive seconds, such as 30, not {budget_s!r}", argument="budget_s"
            )
        self.batches_per_epoch, self.total_epochs, self.budget_s = batches_per_epoch, total_epochs, budget_s
        super().__init__()
        self._target = target_relative_width
        self._random = random.Random(seed)  # noqa: S311  # an order, no secret
        self._asked_at_s = 0.0
        self._began_s: float | None = None  # when the cold probe was over
        self._between_s: list[float] = []  # per ask, what it took beside its epochs
        self._slots: list[PlannedTrial] | None = None  # what is still to run
        self._is_to_replicate = False
        self._is_unsure = False  # the forecast from the trials so far is wide

    def next(self, spent_s: float, *, relative_width: float | None = None) -> TrialRequest | None:
        """What to run next; None when the exploration is over.

        Args:
            spent_s: since the exploration began, everything counted.
            relative_width: of the forecast's interval from the trials so far, where one was made.
        """
        self._turn()
        self._note_overhead(spent_s)
        self._is_unsure = relative_width is not None and relative_width > _UNSURE
        left_s = self.budget_s - spent_s
        if left_s <= 0:
            return None
        ask = self._calibration(left_s)
        if ask is None and not self._is_enough(relative_width):
            ask = self._trial(left_s)
        self._asked, self._asked_at_s = ask, spent_s
        return ask

    @property
    def cost(self) -> Cost | None:
        """What an epoch takes, from what was told so far; None where only the cold probe was."""
        trials = [t.typical for t in self.told if t.ask.purpose not in _CALIBRATION]
        points = [p for p in trials if p is not None]
        is_settled = len({m for m, _ in points}) > 1
        for told in self.told[1:]:  # the cold probe says nothing of the next epoch
            is_probe = told.ask.purpose == Purpose.PROBE
            if told.ask.purpose in _CALIBRATION and told.typical and not (is_probe and is_settled):
                points.append(told.typical)
        return Cost.fit(points) if points else None

    @property
    def whole_s(self) -> float | None:
        """What the whole training takes, roughly: for planning; ``extrapolate`` forecasts it."""
        cost = self.cost
        return self.total_epochs * cost.of(self.batches_per_epoch) if cost else None

    @property
    def cold_start_s(self) -> float:
        """What the very first step took beyond a warm one (compilation, caches): no trial holds it."""
        cost = self.cost
        return max(0.0, self.told[0].timed_s - cost.of(1)) if cost else 0.0

    def trials(self, batch_size: int) -> tuple[Trial, ...]:
        """The trials for ``extrapolate``: whole epochs of what was asked for as a trial.

        Where they have fewer than three sizes and the data have more, everything counts: the warm probe, the stretch,
        and epochs that a deadline cut, as epochs of the batches that were done. That is what a trial's epoch is anyway:
        one that is ended after so many batches (the end of a whole epoch is in neither, and nothing here can tell it).
        They are left out where they can be, since their number of batches follows from their time, and since a single
        epoch does not show whether it was cold. The cold probe counts only where there is nothing else.

        Args:
            batch_size: of the training; sizes are whole multiples of it.
        """
        parts = [(t.ask.batches, t.epoch_durations_s, t.energy_kwh) for t in self._explored if t.epoch_durations_s]
        if len({m for m, _, _ in parts}) < min(3, self.batches_per_epoch):
            for told in self.told[1:]:
                if told.ask.purpose in _CALIBRATION and told.epoch_durations_s:
                    parts.append((told.ask.batches, told.epoch_durations_s, told.energy_kwh))
                elif not told.epoch_durations_s and told.typical:
                    parts.append((told.partial_batches, (told.partial_s,), None))
        if not parts and self.told and self.told[0].epoch_durations_s:
            parts = [(self.told[0].ask.batches, self.told[0].epoch_durations_s, self.told[0].energy_kwh)]
        return tuple(Trial(m * batch_size, batch_size, times_s, kwh) for m, times_s, kwh in parts)

    @property
    def _explored(self) -> list[TrialResult]:
        return [t for t in self.told if t.ask.purpose not in _CALIBRATION]

    def _note_overhead(self, spent_s: float) -> None:
        if len(self.told) == 1 and self._began_s is None:
            self._began_s = spent_s
        elif len(self.told) - 1 > len(self._between_s):
            self._between_s.append(max(0.0, spent_s - self._asked_at_s - self.told[-1].steady_s))

    def _available_s(self, left_s: float) -> float:
        """What may be planned with: a share of the run where it is short, and never all that is left of the budget."""
        planned_s = (1 - _KEPT_SHARE) * left_s
        cost, whole_s = self.cost, self.whole_s
        if cost is None or whole_s is None or self._began_s is None:
            return planned_s
        useful_s = min(max(_USEFUL_S, _USEFUL_STEPS * cost.of(1)), _MOST_OF_RUN * whole_s)
        allowance_s = max((_MOST_OF_RUN if self._is_unsure else _SHARE_OF_RUN) * whole_s, useful_s)
        return min(planned_s, allowance_s - (self.budget_s - left_s - self._began_s))

    def _calibration(self, left_s: float) -> TrialRequest | None:
        if not self.told:
            return TrialRequest(1, 1, left_s, None, Purpose.PROBE)
        cold_s = self.told[0].timed_s
        if len(self.told) == 1 and cold_s < _QUICK_SHARE * self.budget_s:
            return TrialRequest(1, 2, left_s, 2 * cold_s, Purpose.PROBE)
        if self.told[-1].ask.purpose != Purpose.PROBE:
            return None
        cost, available_s = self.cost, self._available_s(left_s)
        if cost is None:  # what was slow may have been a compilation or a step: a third of what is left will tell
            if left_s < _COLD_SHARE * cold_s:
                return None
            return TrialRequest(self.batches_per_epoch, 1, left_s / 3, left_s / 3, Purpose.STRETCH)
        least_s = _STRETCH_STEPS * cost.of(1)
        if available_s < least_s:
            return None
        deadline_s = min(available_s / 2, max(_STRETCH_SHARE * available_s, least_s))
        expected_s = min(deadline_s, cost.of(self.batches_per_epoch))
        return TrialRequest(self.batches_per_epoch, 1, deadline_s, expected_s, Purpose.STRETCH)

    def _is_enough(self, relative_width: float | None) -> bool:
        sizes = [t.ask.batches for t in self._explored]
        if relative_width is None or relative_width > self._target or len(sizes) < _LEAST_TRIALS:
            return False
        is_replicated = min(sizes.count(min(sizes)), sizes.count(max(sizes))) > 1
        return is_replicated and math.fsum(t.timed_s for t in self._explored) >= _ENERGY_S

    def _trial(self, left_s: float) -> TrialRequest | None:
        cost = self.cost
        if cost is None:
            return None
        seen = max((t.typical[0] for t in self.told if t.typical), default=1)
        between_s = statistics.median(self._between_s) if self._between_s else 0.0
        room = TrialBudget(self._available_s(left_s), cost, between_s, most_batches(self.batches_per_epoch, seen))
        if self._slots is None:
            self._slots, self._is_to_replicate = room.first_block(self._random)
        goes_on = self._is_unsure and room.available_s > _GO_ON_SHARE * self.budget_s
        has_more = self._is_to_replicate or goes_on
        while self._slots or has_more:
            if not self._slots:
                self._slots, self._is_to_replicate, has_more = self._again(room), False, False
                continue
            slot = room.fitted(self._slots.pop(0))
            if slot is not None:
                expected_s = room.expected_s(slot)
                deadline_s = min(left_s, max(_PATIENCE * expected_s, _PATIENCE_SHARE * left_s))
                return TrialRequest(slot.batches, slot.epochs, deadline_s, expected_s, slot.purpose)
        return None

    def _again(self, room: TrialBudget) -> list[PlannedTrial]:
        sizes = sorted({t.ask.batches for t in self._explored})
        return room.second_block(sizes, max((t.ask.epochs for t in self._explored), default=0), self._random)


def just_run_it(whole_s: float, budget_s: float) -> str | None:
    """What to do instead of exploring, where the whole training is hardly longer."""
    if whole_s > _FEW_BUDGETS * budget_s:
        return None
    about = f"{whole_s:.2g} s" if whole_s < 59.5 else duration(whole_s)
    return f"the whole training takes about {about}: just run it"


# -- Blocks of trials: which sizes, how many epochs, in which order, so that they fit into a time --

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
class PlannedTrial:
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
class TrialBudget:
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

    def first_block(self, order: random.Random) -> tuple[list[PlannedTrial], bool]:
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
        return [PlannedTrial(1, epochs, Purpose.SINGLE) for epochs in counts], False

    def _sizes_once(self, order: random.Random, *, is_replicated: bool) -> list[PlannedTrial]:
        def runs(largest: int) -> list[int]:
            return ladder(largest) + (replicates(ladder(largest)) if is_replicated else [])

        for epochs, least in _EPOCHS_FROM:
            largest = self._largest(epochs, runs)
            if largest >= min(least, self.most_batches):
                while epochs < _MOST_EPOCHS and self._runs_s(runs(largest), epochs + 1) <= self.available_s:
                    epochs += 1
                return _shuffled(ladder(largest), epochs, order)
        return []

    def second_block(self, sizes: Sequence[int], epochs: int, order: random.Random) -> list[PlannedTrial]:
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

    def fitted(self, slot: PlannedTrial) -> PlannedTrial | None:
        """With fewer epochs, or smaller, where the time does not hold it as meant; None where that is too small."""
        room_s = self.available_s - self.between_s
        epochs = min(slot.epochs, int(room_s / self.cost.of(slot.batches)))
        least = min(slot.epochs, _LEAST_EPOCHS)
        if epochs >= least:
            return replace(slot, epochs=epochs)
        batches = int((room_s / least - self.cost.start_s) / self.cost.batch_s) if self.cost.batch_s else 0
        is_worth_it = batches >= max(1, _DROPPED_BELOW * slot.batches)
        return replace(slot, batches=batches, epochs=least) if is_worth_it else None

    def expected_s(self, slot: PlannedTrial) -> float:
        """What it will take."""
        return self.between_s + slot.epochs * self.cost.of(slot.batches)


def most_batches(batches_per_epoch: int, seen: int) -> int:
    """What an epoch of a trial may have, where ``seen`` is the longest yet."""
    return min(batches_per_epoch, int(_GROWTH * max(seen, 4)))


def _shuffled(sizes: Sequence[int], epochs: int, order: random.Random) -> list[PlannedTrial]:
    """In random order, the first three never sorted (it may be cut short): size must not go with temperature."""
    sequence = list(sizes)
    order.shuffle(sequence)
    while len(set(sizes)) > 2 and sequence[:3] in (sorted(sequence[:3]), sorted(sequence[:3], reverse=True)):
        order.shuffle(sequence)
    purposes = {min(sequence): Purpose.SMALLEST, max(sequence): Purpose.LARGEST}
    return [PlannedTrial(m, epochs, purposes.get(m, Purpose.MIDDLE)) for m in sequence]
