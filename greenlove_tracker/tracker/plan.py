"""What a training is going to be."""

from __future__ import annotations

import operator
from dataclasses import dataclass

from greenlove_tracker.errors import UsageError


@dataclass(frozen=True, slots=True)
class Plan:
    """What the training is going to be, as far as it is known."""

    epochs: int | None = None
    total_steps: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("epochs", self.epochs), ("total_steps", self.total_steps)):
            if value is None:
                continue
            try:
                number = operator.index(value)
            except TypeError:
                number = None
            if number is None or isinstance(value, bool):
                raise UsageError(f"{name} must be a whole number, not {value!r}")
            object.__setattr__(self, name, number)
            if number <= 0:
                raise UsageError(f"{name} must be at least 1, not {value}; leave it out where it is not known")

    def and_then(self, other: Plan) -> Plan:
        """This plan, and another training behind it in the same run."""
        return Plan(_sum(self.epochs, other.epochs), _sum(self.total_steps, other.total_steps))


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b
