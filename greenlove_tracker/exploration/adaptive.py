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

import itertools
import math
import random
import statistics
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import optimize

from greenlove_tracker.vocabulary.errors import UsageError, whole_number
from greenlove_tracker.vocabulary.forecasting import LEAST_ENERGY_S, Trial

_LEAST_TRIALS = 6  # before an early stop; fewer do not show how runs differ (docs/method/forecasts.md)

_RESERVE_SHARE = 0.07  # of what remains is not planned with: the time of a trial is predicted to some per cent
_STRETCH_SHARE = 0.08  # of what there is; so it is about as long as all epochs of the largest size are on average
_STRETCH_STEPS = 3  # at least, or one-batch epochs tell as much
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


Block = list[tuple[int, int]]  # of trials: batches and epochs of each


@dataclass(frozen=True, slots=True)
class TrialLimits:
    """Limits of the trials, within those that the budget sets.

    Attributes:
        first_samples: of the first epoch that is longer than a step; larger samples are tried step by step.
        epoch_s: of each epoch, as far as its time is foreseen.
        epochs: of each trial; more than 8 are never run.
    """

    first_samples: float = math.inf
    epoch_s: float = math.inf
    epochs: int = _MOST_EPOCHS

    def __post_init__(self) -> None:
        if not all(isinstance(limit, int | float) and limit > 0 for limit in (self.first_samples, self.epoch_s)):
            raise UsageError(f"a limit of the trials is a positive number, not {self}")
        whole_number("epochs", self.epochs)


@dataclass(frozen=True, slots=True)
class TrialRequest:
    """A trial to run next.

    Attributes:
        batches: of each epoch.
        epochs: how many.
        deadline_s: from now; the step that passes it is the last.
        purpose: of the trial.
    """

    batches: int
    epochs: int
    deadline_s: float
    purpose: Literal["probe", "stretch", "trial"]


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The times of a requested trial.

    Attributes:
        request: that it answers.
        batches: of these epochs: as requested, or those that were done where the deadline cut the first epoch, 0 too.
        epoch_durations_s: of its whole epochs, or of the first that was cut; an epoch that was cut later is not in it.
        timed_s: time of all its epochs.
        is_cut: whether the deadline cut the last of them.
        energy_kwh: of the whole epochs together, where it was measured.
        is_finite: whether the last loss was a finite number, or there was none to check.
    """

    request: TrialRequest
    batches: int
    epoch_durations_s: tuple[float, ...]
    timed_s: float
    is_cut: bool
    energy_kwh: float | None = None
    is_finite: bool = True

    @property
    def typical_s(self) -> float:
        """The time of an epoch: the median without the first, which may be cold; 0 without any."""
        return statistics.median(self.epoch_durations_s[1:] or self.epoch_durations_s or [0.0])


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
        has_start = len(set(batches)) > 1
        design = np.column_stack([np.full_like(batches, has_start), batches / most]) / seconds[:, None]
        start_s, slope_s = optimize.nnls(design, np.ones_like(seconds))[0].tolist()
        return cls(start_s, slope_s / most)

    def epoch_s(self, batches: int) -> float:
        """Return the time of an epoch of so many batches."""
        return self.start_s + self.batch_s * batches


class ExplorationScheduler:
    """Chooses trials until the budget is spent or the forecast is narrow enough.

    Args:
        batches_per_epoch: of the whole training; with ``total_epochs=1`` its steps.
        total_epochs: of the whole training.
        budget_s: never overrun by more than one step, or one start of a loader. The first step has all of it,
            however long the preparations took: without a step there is nothing to say.
        seed: of the order of trials.
        batch_size: of the training.
        limits: of the trials.

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
        batch_size: int = 1,
        limits: TrialLimits = TrialLimits(),
    ) -> None:
        self.batches_per_epoch = batches_per_epoch
        most_first = min(batches_per_epoch, limits.first_samples / batch_size)
        self._first_batches = max(1, int(most_first))
        self._limits = limits
        self.total_epochs = total_epochs
        self.budget_s = budget_s
        self.results: list[TrialResult] = []
        self._random = random.Random(seed)  # noqa: S311  # an order, no secret
        self._spent_s = self._probed_at_s = 0.0  # now, and when the cold probe was over
        self._overheads_s: list[float] = []  # of each trial, the time beside its epochs
        self._requests = self._chosen()

    @property
    def cost(self) -> EpochCost | None:
        """The cost of an epoch, from the results so far; None where only the cold probe is known."""
        points = self._warm_epochs
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
        chosen = [r for r in self._trial_results if r.batches == r.request.batches]
        if len({r.batches for r in chosen}) < min(3, self.batches_per_epoch):
            chosen += [r for r in self.results[1:] if r.batches and r not in chosen]
        return tuple(
            Trial(r.batches * batch_size, batch_size, r.epoch_durations_s, r.energy_kwh)
            for r in chosen or self.results[:1]
            if r.batches
        )

    def next(self, spent_s: float, *, relative_width: float | None = None) -> TrialRequest | None:
        """Return the trial to run next; None when the exploration is over.

        Args:
            spent_s: since the exploration began, everything counted.
            relative_width: of the forecast's interval from the trials so far, where one was made.
        """
        if len(self.results) > 1:
            last = self.results[-1]
            cold_s = math.fsum(last.epoch_durations_s) - len(last.epoch_durations_s) * last.typical_s
            self._overheads_s.append(max(0.0, spent_s - self._spent_s - (last.timed_s - cold_s)))
        self._spent_s = spent_s
        is_spent = bool(self.results) and self._remaining_s <= 0
        if is_spent or self._is_enough(relative_width):
            return None
        return next(self._requests, None)

    @property
    def _warm_epochs(self) -> list[tuple[int, float]]:
        """Batches and time of an epoch of each result but the cold probe, and of probes until two sizes were tried."""
        warm = [r for r in self.results[1:] if r.batches]
        n_sizes = len({r.batches for r in warm if r.request.purpose == "trial"})
        return [(r.batches, r.typical_s) for r in warm if n_sizes < 2 or r.request.purpose != "probe"]

    @property
    def _trial_results(self) -> list[TrialResult]:
        return [r for r in self.results if r.request.purpose == "trial"]

    @property
    def _remaining_s(self) -> float:
        return self.budget_s - self._spent_s

    def _is_enough(self, relative_width: float | None) -> bool:
        """Return whether the forecast is narrow, from extremes that were replicated and energy for long enough."""
        sizes = sorted(r.request.batches for r in self._trial_results)
        if relative_width is None or relative_width > _NARROW or len(sizes) < _LEAST_TRIALS:
            return False
        is_replicated = sizes[0] == sizes[1] and sizes[-2] == sizes[-1]
        return is_replicated and math.fsum(r.timed_s for r in self._trial_results) >= LEAST_ENERGY_S

    def _chosen(self) -> Iterator[TrialRequest]:
        """Yield the trials, each chosen when it is asked for, by what those before it took."""
        yield TrialRequest(1, 1, self.budget_s, "probe")  # whatever was spent on preparations
        self._probed_at_s = self._spent_s
        cold_s = self.results[0].timed_s
        if cold_s < _QUICK_SHARE * self.budget_s:
            yield TrialRequest(1, 2, self._remaining_s, "probe")
        stretch_s = 0.0
        if self._warm_epochs:
            available_s = self._budget.available_s
            least_s = _STRETCH_STEPS * self._budget.cost.epoch_s(1)
            if available_s >= least_s:
                stretch_s = min(available_s / 2, max(_STRETCH_SHARE * available_s, least_s))
        elif self._remaining_s >= _COLD_SHARE * cold_s:
            stretch_s = self._remaining_s / 3  # what was slow may have been a compilation or a step: this will tell
        stretch_s = min(stretch_s, self._limits.epoch_s)
        if stretch_s:
            yield TrialRequest(self._first_batches, 1, stretch_s, "stretch")
        for batches, epochs in self._blocks():
            request = self._budget.fitted(batches, min(epochs, self._limits.epochs), self._remaining_s)
            if request:
                yield request

    def _blocks(self) -> Iterator[tuple[int, int]]:
        """Plan the sizes, then the extremes again; single batches are not run again where there are more to choose."""
        if self._warm_epochs:
            yield from self._budget.first_block()
        sizes = sorted({r.request.batches for r in self._trial_results})
        if len(sizes) >= min(2, self.batches_per_epoch):
            epochs = max(r.request.epochs for r in self._trial_results)
            yield from self._budget.next_block(sizes, epochs)

    @property
    def _budget(self) -> TrialBudget:
        """The time to plan with: a share of a short run, and never all that remains of the budget."""
        cost = EpochCost.fit(self._warm_epochs)
        whole_s = self.total_epochs * cost.epoch_s(self.batches_per_epoch)
        useful_s = min(max(_USEFUL_S, _USEFUL_STEPS * cost.epoch_s(1)), _MOST_OF_RUN * whole_s)
        allowance_s = max(_SHARE_OF_RUN * whole_s, useful_s) - (self._spent_s - self._probed_at_s)
        available_s = min((1 - _RESERVE_SHARE) * self._remaining_s, allowance_s)
        overhead_s = statistics.median(self._overheads_s or [0.0])
        longest = max(r.batches for r in self.results)
        most_batches = min(self.batches_per_epoch, _GROWTH * max(longest, 4), self._limits.epoch_s / cost.epoch_s(1))
        return TrialBudget(available_s, cost, overhead_s, max(1, int(most_batches)), self._random)


@dataclass(frozen=True, slots=True)
class TrialBudget:
    """The time for a block of trials: which sizes, how many epochs, in which order, so that they fit into it.

    Attributes:
        available_s: time for the block.
        cost: of an epoch.
        overhead_s: time beside the epochs of a trial.
        most_batches: that an epoch of a trial may have.
        order: of trials is drawn by it.
    """

    available_s: float
    cost: EpochCost
    overhead_s: float
    most_batches: int
    order: random.Random

    def first_block(self) -> Block:
        """Plan each size once, with time for replicates, as (batches, epochs); single batches where no four fit."""
        n_steps = max(0, int(self.available_s / self.cost.epoch_s(1)))
        designs = (_replicated_ladder, ladder) if n_steps >= _FEW_STEPS else (_replicated_ladder,)
        for runs, (epochs, least) in itertools.product(designs, _EPOCHS_FROM):
            largest = self._largest(epochs, runs)
            if largest >= min(least, self.most_batches):
                more = min(_MOST_EPOCHS, self._most_epochs(runs(largest)))
                return self._shuffled(ladder(largest), max(epochs, more))
        n_trials, rest = divmod(n_steps, _SINGLE_EPOCHS)
        return [(1, n) for n in [_SINGLE_EPOCHS] * min(n_trials, _MOST_SINGLE_TRIALS) + [rest] * (rest > 0)]

    def next_block(self, sizes: Sequence[int], epochs: int) -> Block:
        """Plan the extremes again: larger where the first block left more than expected, in fewer epochs where less.

        Args:
            sizes: of the first block, in order; at least one.
            epochs: of its trials.
        """
        largest = self._largest(epochs, lambda m: replicates([*sizes, m]))
        if largest >= _WORTH_MORE * sizes[-1]:
            sizes = [*sizes, largest]
        runs = replicates(sizes)
        return self._shuffled(runs, min(epochs, max(self._most_epochs(runs), _LEAST_EPOCHS)))

    def fitted(self, batches: int, epochs: int, remaining_s: float) -> TrialRequest | None:
        """Return the trial, of fewer epochs or smaller where the time is short; None where it would be too small.

        Args:
            batches: of its epochs, as planned.
            epochs: as planned.
            remaining_s: of the whole budget.
        """
        least = min(epochs, _LEAST_EPOCHS)
        allowed = self._most_epochs([batches])
        if allowed < least:
            smaller = self._largest(least, lambda m: [m])
            if smaller < max(1, _DROPPED_BELOW * batches):
                return None
            batches = smaller
        epochs = min(epochs, max(allowed, least))
        expected_s = self.overhead_s + epochs * self.cost.epoch_s(batches)
        patience_s = max(_PATIENCE * expected_s, _PATIENCE_SHARE * remaining_s)
        return TrialRequest(batches, epochs, min(remaining_s, patience_s), "trial")

    def _shuffled(self, sizes: Sequence[int], epochs: int) -> Block:
        """Order at random, the first three never sorted (it may be cut short): size must not go with temperature."""
        sequence = list(sizes)
        self.order.shuffle(sequence)
        while len(set(sizes)) > 2 and sorted(sequence[:3])[1] == sequence[1]:
            self.order.shuffle(sequence)
        return [(m, epochs) for m in sequence]

    def _largest(self, epochs: int, runs: Callable[[int], list[int]]) -> int:
        """Return the largest size whose block of trials fits, by bisection; 0 where none does."""
        sizes = range(1, self.most_batches + 1)
        return bisect_left(sizes, True, key=lambda m: self._most_epochs(runs(m)) < epochs)

    def _most_epochs(self, sizes: Sequence[int]) -> int:
        epochs_s = math.fsum(map(self.cost.epoch_s, sizes))
        return int((self.available_s - len(sizes) * self.overhead_s) / epochs_s)


def ladder(largest: int) -> list[int]:
    """Return the sizes up to the largest: four where it has four batches, else all there are."""
    return sorted({min(largest, max(place, round(largest * share))) for place, share in enumerate(_LADDER, 1)})


def _replicated_ladder(largest: int) -> list[int]:
    return ladder(largest) + replicates(ladder(largest))


def replicates(sizes: Sequence[int]) -> list[int]:
    """Return the sizes that are run once more: the extremes, the largest twice, and the middle."""
    return [sizes[0], sizes[-1], sizes[-1], sizes[len(sizes) // 2]]
