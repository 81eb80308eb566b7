"""The vocabulary of early stopping: the rule that ends a training, and the epoch at which it is expected to end.

It uses plain floats, since importing the package must not import NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from urllib.parse import quote, unquote

from greenlove_tracker.vocabulary.errors import UsageError, whole_number

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
        every: epochs (or steps, of a training in steps) from one value to the next.

    Raises:
        UsageError: where a field cannot be meant, or two contradict each other.
    """

    metric: str
    patience: int = 5
    min_delta: float = 0.0
    higher_is_better: bool = False
    every: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.metric, str) or not self.metric.strip():
            raise UsageError(f"{{argument}} must be the name of a metric, not {self.metric!r}", argument="metric")
        for name in ("patience", "every"):
            object.__setattr__(self, name, whole_number(name, getattr(self, name)))
        is_number = isinstance(self.min_delta, int | float) and not isinstance(self.min_delta, bool)
        if not is_number or not 0 <= self.min_delta < math.inf:
            message = f"{{argument}} must be 0 or more, in the unit of the metric, not {self.min_delta!r}"
            raise UsageError(message, argument="min_delta")
        if not isinstance(self.higher_is_better, bool):
            raise UsageError(
                f"{{argument}} must be True or False, not {self.higher_is_better!r}", argument="higher_is_better"
            )

    def gain(self, value: float, other: float) -> float:
        """Return by how much one value is better than another."""
        if self.higher_is_better:
            return value - other
        return other - value

    def first_stop(self, values: Iterable[float]) -> int | None:
        """Return the number of values after which the training ends; None if it goes on."""
        reference: float | None = None  # the last value that counted as an improvement
        n_without = 0  # values since
        for number, value in enumerate(values, 1):
            if math.isfinite(value) and (reference is None or self.gain(value, reference) > self.min_delta):
                reference = value
                n_without = 0
            else:
                n_without += 1
            if n_without >= self.patience:
                return number
        return None

    def __str__(self) -> str:
        """Write the rule without its defaults: ``val_loss, patience 5, min_delta 0.01``."""
        own = [f", {f.name} {getattr(self, f.name)}" for f in fields(self)[2:] if getattr(self, f.name) != f.default]
        return f"{self.metric}, patience {self.patience}{''.join(own)}"


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
        """Return the number of epochs that is not exceeded with this probability."""
        reached = 0.0
        for epochs, share in self.probabilities:
            reached += share
            if share and reached >= probability - _CLOSE:
                return epochs
        return self.most_epochs

    @property
    def text(self) -> str:
        """The distribution as ``run.csv`` has it: ``10:0.4 12:0.35 50:0.25 none=0.25 most=50 basis=…``."""
        shares = " ".join(f"{epochs}:{share!r}" for epochs, share in self.probabilities)
        return f"{shares} none={self.probability_of_none!r} most={self.most_epochs} basis={quote(self.basis)}"

    @classmethod
    def parse(cls, text: str) -> ExpectedStop:
        """Read the ``text`` of an expected stop.

        Raises:
            UsageError: if it has another form.
        """
        try:
            *shares, none, most, basis = text.split()
            pairs = [one.split(":") for one in shares]
            found = tuple(sorted((int(epochs), float(share)) for epochs, share in pairs))
            of_none = float(none.removeprefix("none="))
            probabilities = [share for _, share in found]
            if not all(0 <= probability <= 1 for probability in (of_none, *probabilities)):  # NaN neither
                raise ValueError("a probability is none")
            if abs(math.fsum(probabilities) - 1) > _CLOSE:
                raise ValueError("its probabilities do not add up to 1")
            return cls(found, int(most.removeprefix("most=")), of_none, unquote(basis.removeprefix("basis=")))
        except ValueError as error:
            raise UsageError(f"run.csv is damaged: {text[:60]!r} is no expected stop") from error


def unknown_stop(rule: StoppingRule, most_epochs: int) -> ExpectedStop:
    """Return the expected stop before any value is known: all possible epochs are equally likely.

    Args:
        rule: the rule, which takes a value every ``rule.every`` epochs.
        most_epochs: the epochs of the training without early stopping.
    """
    earlier = range((rule.patience + 1) * rule.every, most_epochs, rule.every)
    ends = (*earlier, most_epochs)
    share = 1 / len(ends)
    return ExpectedStop(tuple((end, share) for end in ends), most_epochs, share, "nothing yet: any epoch")
