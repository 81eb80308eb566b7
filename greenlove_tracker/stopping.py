"""The vocabulary of early stopping: the rule that ends a training, and the epoch at which it is expected to.

Plain floats: a forecast of a running training simulates the rule, and importing the package loads no NumPy.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from itertools import accumulate, pairwise

from greenlove_tracker.errors import UsageError, whole_number

_REALS: dict[str, tuple[Callable[[float], bool], str]] = {
    "min_delta": (lambda number: 0 <= number < math.inf, "0 or more, in the unit of the metric"),
    "smoothing": (lambda number: 0 <= number < 1, "from 0, for none, to below 1"),
}
_CLOSE = 1e-9  # that probabilities may be off by, as sums of floats are


@dataclass(frozen=True, slots=True)
class StoppingRule:
    """The rule that ends a training that no longer improves.

    A value counts as an improvement where it is better by more than ``min_delta`` than the last that counted. The
    training ends after ``patience`` values in a row without one. NaN and infinities are never an improvement.

    Attributes:
        metric: its name in ``log_metric``.
        patience: values in a row without an improvement.
        min_delta: an improvement is more than this, in the metric's own unit.
        higher_is_better: which of two values is the better one.
        smoothing: weight of the past in an exponential moving average that the rule looks at instead of the values
            (with the bias corrected as in Adam, Kingma & Ba 2015, section 3); 0 for the values themselves.
        least_values: it never ends before so many.
        every: epochs (or steps, of a training in steps) from one value to the next.

    Raises:
        UsageError: where a field cannot be meant, or two contradict each other.
    """

    metric: str
    patience: int = 5
    min_delta: float = 0.0
    higher_is_better: bool = False
    smoothing: float = 0.0
    least_values: int = 1
    every: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.metric, str) or not self.metric.strip():
            raise UsageError(f"{{argument}} must be the name of a metric, not {self.metric!r}", argument="metric")
        for name in ("patience", "least_values", "every"):
            object.__setattr__(self, name, whole_number(name, getattr(self, name)))
        for name, (is_allowed, hint) in _REALS.items():
            value = _real(getattr(self, name))
            if not is_allowed(value):
                raise UsageError(f"{{argument}} must be {hint}, not {getattr(self, name)!r}", argument=name)
            object.__setattr__(self, name, value)
        if not isinstance(self.higher_is_better, bool):
            raise UsageError(
                f"{{argument}} must be True or False, not {self.higher_is_better!r}", argument="higher_is_better"
            )

    @property
    def least_stop(self) -> int:
        """The least number of values after which it can end a training whose metric is a number all along."""
        return max(self.least_values, self.patience + 1)

    def gain(self, value: float, other: float) -> float:
        """Return by how much a value is better than another."""
        return value - other if self.higher_is_better else other - value

    def first_stop(self, values: Iterable[float]) -> int | None:
        """Return after how many of the values the training ends; None where it goes on."""
        state = StoppingState(self)
        return next((number for number, value in enumerate(values, 1) if state.add(value)), None)

    def __str__(self) -> str:
        """Return it as a log has it, without what is as usual: ``val_loss, patience 5, min_delta 0.01``."""
        own = {"patience": self.patience}
        own |= {f.name: value for f in fields(self)[2:] if (value := getattr(self, f.name)) != f.default}
        return ", ".join((self.metric, *(f"{name} {value}" for name, value in own.items())))


class StoppingState:
    """The state of a rule in a training: it takes one value after another.

    Args:
        rule: that is followed.

    Attributes:
        n_values: that were added.
    """

    __slots__ = ("_average", "_n_averaged", "_n_without", "_reference", "_rule", "n_values")

    def __init__(self, rule: StoppingRule) -> None:
        self._rule = rule
        self.n_values = 0
        self._n_without = 0  # values since the last improvement
        self._reference: float | None = None  # the last value that counted as an improvement
        self._average, self._n_averaged = 0.0, 0

    def add(self, value: float) -> bool:
        """Take the next value; return True where the training ends with it."""
        self.n_values += 1
        return self._has_no_patience(value) and self.n_values >= self._rule.least_values

    def _has_no_patience(self, value: float) -> bool:
        rule = self._rule
        if math.isfinite(value):
            looked_at = self._smoothed(value) if rule.smoothing else value
            if self._reference is None or rule.gain(looked_at, self._reference) > rule.min_delta:
                self._reference, self._n_without = looked_at, 0
                return False
        self._n_without += 1
        return self._n_without >= rule.patience

    def _smoothed(self, value: float) -> float:
        past = self._rule.smoothing
        self._average = past * self._average + (1 - past) * value
        self._n_averaged += 1
        return self._average / (1 - past**self._n_averaged)


def _real(value: object) -> float:
    """Return a number as Python's own; NaN where it is none."""
    try:
        return math.nan if isinstance(value, bool | str) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return math.nan


@dataclass(frozen=True, slots=True)
class ExpectedStop:
    """The distribution of the number of epochs after which a training ends.

    Attributes:
        probabilities: (epochs, probability) in ascending order, which add up to 1. The last one may be the greatest
            number of epochs, which holds the probability that the rule never ends it.
        most_epochs: that the training has without the rule.
        probability_of_none: that the rule never ends it.
        basis: what it was found from, as a clause: "val_loss of 12 epochs", "5 earlier runs", "nothing yet: any epoch".

    Raises:
        UsageError: where that is no distribution.
    """

    probabilities: tuple[tuple[int, float], ...]
    most_epochs: int
    probability_of_none: float
    basis: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "most_epochs", whole_number("most_epochs", self.most_epochs))
        object.__setattr__(self, "probabilities", tuple((int(e), float(p)) for e, p in self.probabilities))
        epochs = [e for e, _ in self.probabilities]
        shares = [p for _, p in self.probabilities]
        if not epochs or epochs[0] < 1 or any(a >= b for a, b in pairwise(epochs)):
            raise UsageError(f"the epochs of an expected stop must ascend from 1 or more, not {epochs}")
        if epochs[-1] > self.most_epochs:
            raise UsageError(f"a training of {self.most_epochs} epochs cannot stop after {epochs[-1]}")
        if not all(0 <= p <= 1 + _CLOSE for p in shares) or abs(math.fsum(shares) - 1) > _CLOSE:
            raise UsageError(f"the probabilities of an expected stop must add up to 1, not {math.fsum(shares)}")
        of_whole = shares[-1] if epochs[-1] == self.most_epochs else 0.0
        if not 0 <= self.probability_of_none <= of_whole + _CLOSE:
            raise UsageError(
                f"the whole training has a probability of {of_whole}, and the rule never ends it with "
                f"{self.probability_of_none}: that cannot be more"
            )

    def quantile(self, probability: float) -> int:
        """Return the least number of epochs that is enough with this probability.

        Raises:
            UsageError: where it is no probability.
        """
        if not 0 <= probability <= 1:
            raise UsageError(f"a probability is from 0 to 1, not {probability!r}")
        ends = [(epochs, share) for epochs, share in self.probabilities if share]
        reached = list(accumulate(share for _, share in ends))
        return ends[min(bisect_left(reached, probability - _CLOSE), len(ends) - 1)][0]

    @property
    def mean(self) -> float:
        """The mean number of epochs."""
        return math.fsum(epochs * share for epochs, share in self.probabilities)


def unknown_stop(rule: StoppingRule, most_epochs: int) -> ExpectedStop:
    """Return what is known of the end before anything is: any epoch is as likely, from the least possible to the most.

    Args:
        rule: that may end the training, after one of the values that come every ``rule.every`` epochs.
        most_epochs: that the training has without it.

    Raises:
        UsageError: where that is no number of epochs.
    """
    most_epochs = whole_number("most_epochs", most_epochs)
    earlier = range(rule.least_stop * rule.every, most_epochs, rule.every)
    ends = (*earlier, most_epochs)
    share = 1 / len(ends)
    return ExpectedStop(tuple((end, share) for end in ends), most_epochs, share, "nothing yet: any epoch")
