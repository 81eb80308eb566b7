"""The schedule of a comparison: blocks in which each arm has one trial, as many as the budget holds.

Pairs of blocks mirror each other (A B C, C B A), so that what drifts evenly over a pair falls on all arms alike; the
first order of each pair is random. All trials of a block train on as many samples. The fastest arm's takes 5 s or more,
below which energy is not counted. Where the budget would hold too few blocks of such, trials are far shorter and more:
of the same time, many short blocks tell more than few long ones, most of all where the machine is busy with something
else for seconds at a time (docs/method/comparisons.md). Each block is planned anew from what the trials before it took.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from greenlove_tracker.vocabulary.forecasting import LEAST_ENERGY_S

LEAST_BLOCKS = 2  # below it nothing tells the arms from what passes
_ENERGY_BLOCKS = 3  # with so many the trials stay long enough for their energy
_WANTED_BLOCKS = 4  # three degrees of freedom for each arm: t(0.975) is 3.2 with three, and 12.7 with one
_SHORT_BLOCKS = (10, 8, 6, 4, 3, 2)  # of trials without energy: as many as keep them worth their start
_LEAST_SHORT_S = 0.5  # of such a trial; steps of a few milliseconds are then a hundred
_MOST_UNTIMED_SHARE = 0.2  # of a block of such
_MARGIN = 1.08  # of the length: noise of 3% then ends one trial in 250 below 5 s
_FIRST_MARGIN = 1.25  # in the first block, whose times are known from a few steps of the warm-up only
_SLACK = 1.05  # a block is begun where so many times its expected time is left
_LARGEST_UNIT_SHARE = 0.2  # of a trial: batches of different sizes end together where that costs no more


@dataclass(frozen=True, slots=True)
class ArmCost:
    """The time of an arm's trials, as known so far.

    Attributes:
        s_per_sample: in the timed part.
        batch_size: of the arm.
        untimed_s: start, settling and pauses of a trial.
    """

    s_per_sample: float
    batch_size: int
    untimed_s: float = 0.0

    def trial_s(self, samples: int) -> float:
        """Return the time of a trial of so many samples, which ends with a whole batch."""
        return self.untimed_s + math.ceil(samples / self.batch_size) * self.batch_size * self.s_per_sample


Costs = Sequence[ArmCost]


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """The next block.

    Attributes:
        samples: of each trial.
        expected_s: of the whole block.
        is_metered: the trials are long enough for their energy.
    """

    samples: int
    expected_s: float
    is_metered: bool


class TrialSchedule:
    """Chooses the order of the arms in each block, and how many samples its trials have.

    Args:
        seed: of the orders.

    Attributes:
        n_blocks: that were begun.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311  # an order, no secret
        self.n_blocks = 0
        self._last: tuple[str, ...] = ()
        self._is_metered = True
        self._n_short = 0  # blocks that there are to be, where they are short

    def order(self, arms: Sequence[str]) -> tuple[str, ...]:
        """Begin the next block, and return its arms in order: each second one mirrors the one before."""
        self.n_blocks += 1
        if self.n_blocks % 2 == 0:
            return tuple(name for name in reversed(self._last) if name in arms)
        self._last = tuple(self._random.sample(list(arms), len(arms)))
        return self._last

    def next_block(self, costs: Costs, left_s: float) -> BlockPlan | None:
        """Return what the next block is to be; None where the time that is left holds none.

        Args:
            costs: of the arms, as known so far.
            left_s: of the budget.
        """
        usable_s = left_s / _SLACK
        done = self.n_blocks
        long = _long(costs)
        if done < LEAST_BLOCKS and self._is_metered:
            first_s = _long(costs, _MARGIN if done else _FIRST_MARGIN).expected_s
            self._is_metered = first_s + long.expected_s * max(0, _ENERGY_BLOCKS - done - 1) <= usable_s
        if not self._is_metered:
            return self._short(costs, usable_s)
        if not done:
            return _long(costs, _FIRST_MARGIN)
        return long if long.expected_s <= usable_s else None

    def _short(self, costs: Costs, usable_s: float) -> BlockPlan | None:
        """Return a block of trials so short that enough of them fit; at least the largest batch each."""
        untimed_s = sum(cost.untimed_s for cost in costs)
        per_sample_s = sum(cost.s_per_sample for cost in costs)
        for wanted in (self._n_short,) if self._n_short else _SHORT_BLOCKS:
            if wanted <= self.n_blocks:
                return None
            allowed_s = usable_s / (wanted - self.n_blocks)
            samples = max(math.floor((allowed_s - untimed_s) / per_sample_s), *(cost.batch_size for cost in costs))
            unit = _unit(costs, samples)
            plan = _plan(costs, samples // unit * unit)
            is_worth_it = (
                untimed_s <= _MOST_UNTIMED_SHARE * plan.expected_s
                and plan.samples * min(cost.s_per_sample for cost in costs) >= _LEAST_SHORT_S
            )
            if plan.expected_s <= allowed_s and (is_worth_it or wanted <= _WANTED_BLOCKS or self._n_short):
                self._n_short = wanted
                return plan
        return None


def budget_for(costs: Costs, spent_s: float) -> float:
    """Return the budget in s that holds enough blocks of long trials, after what was spent before them."""
    first_s = _long(costs, _FIRST_MARGIN).expected_s
    return spent_s + _SLACK * (first_s + (_WANTED_BLOCKS - 1) * _long(costs).expected_s)


def _long(costs: Costs, margin: float = _MARGIN) -> BlockPlan:
    """Return a block whose trials are long enough for their energy."""
    samples = math.ceil(margin * LEAST_ENERGY_S / min(cost.s_per_sample for cost in costs))
    unit = _unit(costs, samples)
    return _plan(costs, -(-samples // unit) * unit, is_metered=True)


def _plan(costs: Costs, samples: int, *, is_metered: bool = False) -> BlockPlan:
    return BlockPlan(samples, sum(cost.trial_s(samples) for cost in costs), is_metered)


def _unit(costs: Costs, samples: int) -> int:
    """Return a number of samples that all arms have in whole batches, where that is a small part of a trial."""
    common = math.lcm(*(cost.batch_size for cost in costs))
    if common <= _LARGEST_UNIT_SHARE * samples:
        return common
    return max(cost.batch_size for cost in costs)
