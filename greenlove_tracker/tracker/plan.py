"""What a training is going to be."""

from __future__ import annotations

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
            if isinstance(value, bool) or not isinstance(value, int):
                raise UsageError(f"{name} must be a whole number, not {value!r}")
            if value <= 0:
                raise UsageError(f"{name} must be at least 1, not {value}; leave it out where it is not known")
