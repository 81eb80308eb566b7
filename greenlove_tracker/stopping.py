"""The vocabulary of early stopping: the rule that ends a training, and the epoch at which it is expected to.

Plain floats: a forecast of a running training simulates the rule, and importing the package loads no NumPy.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class StoppingRule:
    """When a training that no longer improves ends.

    A value counts as an improvement where it is better than the best so far by more than ``min_delta``. The training
    ends after ``patience`` values in a row without one.

    Attributes:
        metric: its name in ``log_metric``.
        patience: values in a row without an improvement.
        min_delta: an improvement is more than this, in the metric's own unit.
        higher_is_better: which of two values is the better one.
        smoothing: weight of the past in an exponential moving average that the rule looks at instead of the values;
            0 for the values themselves.
        test: ``patience`` as above; ``trend``: it ends once the data no longer admit, at ``confidence``, a further
            improvement of ``min_delta`` within the next ``patience`` values.
        confidence: of the test ``trend``.
        least_values: it never ends before so many.
        every: epochs from one value to the next.
    """

    metric: str
    patience: int = 5
    min_delta: float = 0.0
    higher_is_better: bool = False
    smoothing: float = 0.0
    test: Literal["patience", "trend"] = "patience"
    confidence: float = 0.9
    least_values: int = 1
    every: int = 1

    def __post_init__(self) -> None:
        raise NotImplementedError

    def first_stop(self, values: Iterable[float]) -> int | None:
        """Return after how many of the values the training ends; None where it goes on."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class ExpectedStop:
    """The distribution of the number of epochs after which a training ends.

    Attributes:
        probabilities: (epochs, probability) in ascending order, which add up to 1. The last one may be the greatest
            number of epochs, which holds the probability that the rule never ends it.
        most_epochs: that the training has without the rule.
        probability_of_none: that the rule never ends it.
        basis: what it was found from, as a clause: "val_loss of 12 epochs", "5 earlier runs", "nothing yet: any epoch".
    """

    probabilities: tuple[tuple[int, float], ...]
    most_epochs: int
    probability_of_none: float
    basis: str

    def quantile(self, probability: float) -> int:
        """Return the least number of epochs that is enough with this probability."""
        raise NotImplementedError
