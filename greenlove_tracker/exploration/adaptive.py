"""The adaptive exploration scheduler: which sample sizes, how many epochs, in which order, within which budget.

It has no clock and runs nothing. The caller runs the trials that it requests, and records what they took:

1. A *probe*: one step, cold (it compiles, allocates, fills caches). Where that was quick, two more, warm.
2. A *stretch*: one epoch, as long as a share of the budget. Wherever the deadline ends it, its batches and its time
   say what a batch costs beside an epoch's start, which epochs of one batch cannot.
3. *Trials*: four sizes, the largest as large as the budget allows, each once, in random order; then the extremes
   again, in random order. Two blocks, so that an exploration that is cut short has run every size.

Where the budget does not hold four sizes (about twenty steps), the trials are epochs of a single batch, as many as it
holds. With the stretch they make two sizes: on virtual loops of 2 s a step that errs by 1.5%, where single batches
alone err by 15% (``extrapolate`` allows for a fixed cost that they cannot show) or, where an epoch costs 1 s to start,
by 27%.
"""

from __future__ import annotations

import math
import random
import statistics
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import optimize

from greenlove_tracker.vocabulary.forecasting import LEAST_ENERGY_S, Trial

_LEAST_TRIALS = 6  # before an early stop; fewer do not show how runs differ (docs/method/forecasts.md)

_RESERVE_SHARE = 0.07  # of what remains is not planned with: the time of a trial is predicted to some per cent
_STRETCH_SHARE = 0.08  # of what there is; so it is about as long as all epochs of the largest size are on average
_STRETCH_STEPS = 3  # at least, or one-batch epochs tell as much
_BLOCKS = 2
_QUICK_SHARE = 0.125  # of the budget: a cold step that took less may be repeated to time it warm
_COLD_SHARE = 0.1  # of a slow cold step must remain to go on: less could hardly show anything but an overrun
_PATIENCE = 4.0  # a trial may take so many times what was expected before it is cut, or
_PATIENCE_SHARE = 0.25  # this share of what remains, whichever is longer: a hiccup must not cut a short one

# A short run is explored in proportion: long enough to be worth it, and for no more than a third of the run.
_SHARE_OF_RUN = 0.15
_MOST_OF_RUN = 1 / 3
_NARROW = 0.1  # a relative width of the forecast at which it stops early
_USEFUL_S = 6.0  # five seconds of energy, and what lies between trials
_USEFUL_STEPS = 10  # an answer from ten steps, where they are slow

# Sizes as shares of the largest: geometric steps over a factor of ten, as in the design that docs/method/forecasts.md
# backtests. A wider range would tell more of an epoch's fixed cost, but short epochs are lost in the noise of timing.
_LADDER = (0.1, 0.215, 0.464, 1.0)
# Epochs of a trial, and the fewest batches of the largest size that are worth so many. Cold epochs are found from four
# epochs on (extrapolation/regression.py), and of six three may be cold; below that, four sizes are worth more than
# epochs.
_EPOCHS_FROM = ((6, 20), (5, 12), (4, 8), (3, 6), (2, 4), (1, 4))
_MOST_EPOCHS = 8  # more only lessen the noise within a run, and leave what differs from run to run
_SINGLE_EPOCHS = 5  # of one trial of single batches: two trials of five show how runs differ, one of ten does not
_MOST_SINGLE_TRIALS = 6
_FEW_STEPS = 20  # of fewer, four sizes are not worth having without their replicates
_LEAST_EPOCHS = 2  # of a trial that is cut back to fit: one that may be cold, and one that is not
_DROPPED_BELOW = 0.5  # of the planned size: a trial that would have to be smaller is dropped
_GROWTH = 4.0  # a size is planned up to so many times the longest epoch so far
_WORTH_MORE = 1.25  # times as large: less is not worth another size


class Purpose(StrEnum):
    """The purpose of a requested trial."""

    PROBE = "probe"
    STRETCH = "stretch"
    TRIAL = "trial"


@dataclass(frozen=True, slots=True)
class TrialRequest:
    """A trial to run next.

    Attributes:
        batches: of each epoch.
        epochs: how many.
        deadline_s: from now; the step that passes it is the last.
        expected_s: how long it should take; None where nothing is known yet.
        purpose: of the trial.
    """

    batches: int
    epochs: int
    deadline_s: float
    expected_s: float | None
    purpose: Purpose


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The times of a requested trial.

    Attributes:
        request: that it answers.
        epoch_durations_s: of its whole epochs.
        partial_batches: of the epoch that the deadline cut; 0 where none was.
        partial_s: time of that epoch.
        energy_kwh: of the whole epochs together, where it was measured.
        is_finite: whether the last loss was a finite number, or there was none to check.
    """

    request: TrialRequest
    epoch_durations_s: tuple[float, ...]
    partial_batches: int = 0
    partial_s: float = 0.0
    energy_kwh: float | None = None
    is_finite: bool = True

    @property
    def timed_s(self) -> float:
        """The time of all its epochs, the partial one too."""
        return math.fsum(self.epoch_durations_s) + self.partial_s

    @property
    def steady_s(self) -> float:
        """The time that its epochs would have taken had none been cold."""
        return len(self.epoch_durations_s) * (self.typical or (0, 0.0))[1] + self.partial_s

    @property
    def typical(self) -> tuple[int, float] | None:
        """Batches of an epoch and its time: the median without the first, which may be cold; else the partial one."""
        if self.epoch_durations_s:
            return self.request.batches, statistics.median(self.epoch_durations_s[1:] or self.epoch_durations_s)
        if self.partial_batches and self.partial_s:
            return (self.partial_batches, self.partial_s)
        return None


@dataclass(frozen=True, slots=True)
class EpochCost:
    """The time of an epoch, for planning: a start, and so much a batch. ``extrapolate`` makes the forecast."""

    start_s: float
    batch_s: float

    @classmethod
    def fit(cls, points: Sequence[tuple[int, float]]) -> EpochCost:
        """Fit by least squares of relative residuals, neither part below zero; one size alone has no start.

        Args:
            points: batches of an epoch and its time in s; at least one.
        """
        batches, seconds = np.array(points, dtype=float).T
        most = batches.max()
        design = np.column_stack([np.ones_like(batches), batches / most]) / seconds[:, None]
        if len(set(batches)) == 1:
            design[:, 0] = 0.0
        start_s, slope_s = optimize.nnls(design, np.ones_like(seconds))[0].tolist()
        return cls(start_s, slope_s / most)

    def epoch_s(self, batches: int) -> float:
        """Return the time of an epoch of so many batches."""
        return self.start_s + self.batch_s * batches


_CALIBRATION = (Purpose.PROBE, Purpose.STRETCH)


class ExplorationScheduler:
    """Chooses trials until the budget is spent or the forecast is narrow enough.

    Args:
        batches_per_epoch: of the whole training; with ``total_epochs=1`` its steps.
        total_epochs: of the whole training.
        budget_s: never overrun by more than one step, or one start of a loader. The first step has all of it,
            however long the preparations took: without a step there is nothing to say.
        seed: of the order of trials.

    Attributes:
        results: of the trials so far; whoever runs them adds each.
    """

    def __init__(
        self,
        batches_per_epoch: int,
        total_epochs: float,
        *,
        budget_s: float = 30.0,
        seed: int = 0,
    ) -> None:
        self.batches_per_epoch = batches_per_epoch
        self.total_epochs = total_epochs
        self.budget_s = budget_s
        self.results: list[TrialResult] = []
        self._random = random.Random(seed)  # noqa: S311  # an order, no secret
        self._probed_at_s = self._requested_at_s = 0.0  # when the cold probe was over, and a trial was asked for
        self._overheads_s: list[float] = []  # of each trial, the time beside its epochs
        self._planned: list[tuple[int, int]] = []  # batches and epochs of trials that are still to run
        self._n_blocks = 0

    @property
    def cost(self) -> EpochCost | None:
        """The cost of an epoch, from the results so far; None where only the cold probe is known."""
        points = [r.typical for r in self._trial_results if r.typical]
        is_settled = len({m for m, _ in points}) > 1
        for result in self.results[1:]:  # the cold probe says nothing of the next epoch
            kinds = (Purpose.STRETCH,) if is_settled else _CALIBRATION
            if result.request.purpose in kinds and result.typical:
                points.append(result.typical)
        return EpochCost.fit(points) if points else None

    @property
    def cold_start_s(self) -> float:
        """The time that the very first step took beyond a warm one (compilation, caches): no trial holds it."""
        cost = self.cost
        if cost:
            return max(0.0, self.results[0].timed_s - cost.epoch_s(1))
        return 0.0

    def trials(self, batch_size: int) -> tuple[Trial, ...]:
        """Return the trials for ``extrapolate``: whole epochs of all but probes and stretch.

        Where they have fewer than three sizes and the data have more, everything counts: the warm probe, the stretch,
        and epochs that a deadline cut, as epochs of the batches that were done. That is what a trial's epoch is anyway:
        one that is ended after so many batches (the end of a whole epoch is in neither, and nothing here can tell it).
        They are left out where they can be, since their number of batches follows from their time, and since a single
        epoch does not show whether it was cold. The cold probe counts only where there is nothing else.

        Args:
            batch_size: of the training; sizes are whole multiples of it.
        """
        chosen = [r for r in self._trial_results if r.epoch_durations_s]
        if len({r.request.batches for r in chosen}) < min(3, self.batches_per_epoch):
            whole = [r for r in self.results[1:] if r.request.purpose in _CALIBRATION and r.epoch_durations_s]
            chosen += [*whole, *(r for r in self.results[1:] if r.typical and not r.epoch_durations_s)]
        trials = []
        for r in chosen or self.results[:1]:
            if r.epoch_durations_s:
                trials.append(Trial(r.request.batches * batch_size, batch_size, r.epoch_durations_s, r.energy_kwh))
            elif r.typical:
                trials.append(Trial(r.partial_batches * batch_size, batch_size, (r.partial_s,)))
        return tuple(trials)

    def next(self, spent_s: float, *, relative_width: float | None = None) -> TrialRequest | None:
        """Return the trial to run next; None when the exploration is over.

        Args:
            spent_s: since the exploration began, everything counted.
            relative_width: of the forecast's interval from the trials so far, where one was made.
        """
        if len(self.results) == 1:
            self._probed_at_s = spent_s
        elif self.results:
            self._overheads_s.append(max(0.0, spent_s - self._requested_at_s - self.results[-1].steady_s))
        self._requested_at_s = spent_s
        remaining_s = self.budget_s - spent_s
        if remaining_s <= 0 and self.results:
            return None
        request = self._calibration(remaining_s)
        if request is None and not self._is_enough(relative_width):
            request = self._trial(remaining_s)
        return request

    @property
    def _trial_results(self) -> list[TrialResult]:
        """All but those of the calibration."""
        return [r for r in self.results if r.request.purpose not in _CALIBRATION]

    def _available_s(self, remaining_s: float) -> float:
        """Return the time to plan with: a share of a short run, and never all that remains of the budget."""
        planned_s = (1 - _RESERVE_SHARE) * remaining_s
        cost = self.cost
        if cost is None:
            return planned_s
        whole_s = self.total_epochs * cost.epoch_s(self.batches_per_epoch)
        useful_s = min(max(_USEFUL_S, _USEFUL_STEPS * cost.epoch_s(1)), _MOST_OF_RUN * whole_s)
        allowance_s = max(_SHARE_OF_RUN * whole_s, useful_s)
        return min(planned_s, allowance_s - (self.budget_s - remaining_s - self._probed_at_s))

    def _calibration(self, remaining_s: float) -> TrialRequest | None:
        """Return the probe or stretch that is still to run; None where none is."""
        if not self.results:
            return TrialRequest(1, 1, self.budget_s, None, Purpose.PROBE)  # whatever was spent on preparations
        cold_s = self.results[0].timed_s
        if len(self.results) == 1 and cold_s < _QUICK_SHARE * self.budget_s:
            return TrialRequest(1, 2, remaining_s, 2 * cold_s, Purpose.PROBE)
        if self.results[-1].request.purpose != Purpose.PROBE:
            return None
        cost = self.cost
        available_s = self._available_s(remaining_s)
        if cost is None:  # what was slow may have been a compilation or a step: a third of what remains will tell
            if remaining_s < _COLD_SHARE * cold_s:
                return None
            return TrialRequest(self.batches_per_epoch, 1, remaining_s / 3, remaining_s / 3, Purpose.STRETCH)
        least_s = _STRETCH_STEPS * cost.epoch_s(1)
        if available_s < least_s:
            return None
        deadline_s = min(available_s / 2, max(_STRETCH_SHARE * available_s, least_s))
        expected_s = min(deadline_s, cost.epoch_s(self.batches_per_epoch))
        return TrialRequest(self.batches_per_epoch, 1, deadline_s, expected_s, Purpose.STRETCH)

    def _is_enough(self, relative_width: float | None) -> bool:
        """Return whether the forecast is narrow, from extremes that were replicated and energy for long enough."""
        sizes = [r.request.batches for r in self._trial_results]
        if relative_width is None or relative_width > _NARROW or len(sizes) < _LEAST_TRIALS:
            return False
        is_replicated = min(sizes.count(min(sizes)), sizes.count(max(sizes))) > 1
        return is_replicated and math.fsum(r.timed_s for r in self._trial_results) >= LEAST_ENERGY_S

    def _trial(self, remaining_s: float) -> TrialRequest | None:
        """Return the next planned trial that fits; the extremes again follow the sizes that ran once."""
        cost = self.cost
        if cost is None:
            return None
        longest = max((r.typical[0] for r in self.results if r.typical), default=1)
        most_batches = min(self.batches_per_epoch, int(_GROWTH * max(longest, 4)))
        if self._overheads_s:
            overhead_s = statistics.median(self._overheads_s)
        else:
            overhead_s = 0.0
        budget = TrialBudget(self._available_s(remaining_s), cost, overhead_s, most_batches)
        while self._n_blocks < _BLOCKS or self._planned:
            if not self._planned:
                self._planned = self._next_block(budget)
                self._n_blocks += 1
            while self._planned:
                batches, epochs = budget.fitted(*self._planned.pop(0))
                if batches:
                    expected_s = budget.block_s([batches], epochs)
                    deadline_s = min(remaining_s, max(_PATIENCE * expected_s, _PATIENCE_SHARE * remaining_s))
                    return TrialRequest(batches, epochs, deadline_s, expected_s, Purpose.TRIAL)
        return None

    def _next_block(self, budget: TrialBudget) -> list[tuple[int, int]]:
        """Plan the sizes, then the extremes again; single batches are not run again where there are more to choose."""
        if self._n_blocks == 0:
            return budget.first_block(self._random)
        sizes = sorted({r.request.batches for r in self._trial_results})
        if not sizes or (len(sizes) == 1 and self.batches_per_epoch > 1):
            return []
        return budget.next_block(sizes, max(r.request.epochs for r in self._trial_results), self._random)


@dataclass(frozen=True, slots=True)
class TrialBudget:
    """The time for a block of trials: which sizes, how many epochs, in which order, so that they fit into it.

    Attributes:
        available_s: time for the block.
        cost: of an epoch.
        overhead_s: time beside the epochs of a trial.
        most_batches: that an epoch of a trial may have.
    """

    available_s: float
    cost: EpochCost
    overhead_s: float
    most_batches: int

    def first_block(self, order: random.Random) -> list[tuple[int, int]]:
        """Plan each size once, with time for replicates, as (batches, epochs); single batches where no four fit."""
        has_steps = self.available_s >= _FEW_STEPS * self.cost.epoch_s(1)
        for runs in (_replicated_ladder, ladder) if has_steps else (_replicated_ladder,):
            for epochs, least in _EPOCHS_FROM:
                largest = self._largest(epochs, runs)
                if largest >= min(least, self.most_batches):
                    while epochs < _MOST_EPOCHS and self.block_s(runs(largest), epochs + 1) <= self.available_s:
                        epochs += 1
                    return _shuffled(ladder(largest), epochs, order)
        n_trials, rest = divmod(max(0, int(self.available_s / self.cost.epoch_s(1))), _SINGLE_EPOCHS)
        return [(1, n) for n in [_SINGLE_EPOCHS] * min(n_trials, _MOST_SINGLE_TRIALS) + [rest] * (rest > 0)]

    def next_block(self, sizes: Sequence[int], epochs: int, order: random.Random) -> list[tuple[int, int]]:
        """Plan the extremes again: larger where the first block left more than expected, in fewer epochs where less.

        Args:
            sizes: of the first block, in order; at least one.
            epochs: of its trials.
            order: of the trials.
        """
        largest = self._largest(epochs, lambda m: replicates([*sizes, m]))
        if largest >= _WORTH_MORE * sizes[-1]:
            sizes = [*sizes, largest]
        runs = replicates(sizes)
        beside_s = self.block_s(runs, 0)
        most = int((self.available_s - beside_s) / (self.block_s(runs, 1) - beside_s))
        return _shuffled(runs, min(epochs, max(most, _LEAST_EPOCHS)), order)

    def _largest(self, epochs: int, runs: Callable[[int], list[int]]) -> int:
        """Return the largest size whose block of trials fits, by bisection; 0 where none does."""
        return bisect_right(
            range(1, self.most_batches + 1), self.available_s, key=lambda m: self.block_s(runs(m), epochs)
        )

    def block_s(self, sizes: Sequence[int], epochs: int) -> float:
        """Return the time of trials of these sizes."""
        return math.fsum(self.overhead_s + epochs * self.cost.epoch_s(m) for m in sizes)

    def fitted(self, batches: int, epochs: int) -> tuple[int, int]:
        """Return the trial with fewer epochs, or smaller, where the time is short; no batches where too small."""
        available_s = self.available_s - self.overhead_s
        least = min(epochs, _LEAST_EPOCHS)
        allowed = int(available_s / self.cost.epoch_s(batches))
        if allowed >= least:
            return batches, min(epochs, allowed)
        if self.cost.batch_s:
            fitting = int((available_s / least - self.cost.start_s) / self.cost.batch_s)
        else:
            fitting = 0
        return (fitting if fitting >= max(1, _DROPPED_BELOW * batches) else 0), least


def ladder(largest: int) -> list[int]:
    """Return the sizes up to the largest: four where it has four batches, else all there are."""
    sizes: list[int] = []
    for share in _LADDER:
        least = sizes[-1] + 1 if sizes else 1
        sizes.append(min(largest, max(least, round(largest * share))))
    return sorted(set(sizes))


def _replicated_ladder(largest: int) -> list[int]:
    return ladder(largest) + replicates(ladder(largest))


def replicates(sizes: Sequence[int]) -> list[int]:
    """Return the sizes that are run once more: the extremes, the largest twice, and the middle."""
    return [sizes[0], sizes[-1], sizes[-1], sizes[len(sizes) // 2]]


def _shuffled(sizes: Sequence[int], epochs: int, order: random.Random) -> list[tuple[int, int]]:
    """Order at random, the first three never sorted (it may be cut short): size must not go with temperature."""
    sequence = list(sizes)
    order.shuffle(sequence)
    while len(set(sizes)) > 2 and sequence[:3] in (sorted(sequence[:3]), sorted(sequence[:3], reverse=True)):
        order.shuffle(sequence)
    return [(m, epochs) for m in sequence]
