"""Budgets: what a run may take, and how likely it will take more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from greenlove_tracker import format as fmt
from greenlove_tracker.config import Settings
from greenlove_tracker.errors import BudgetExceeded, UsageError
from greenlove_tracker.forecasting import Estimate, Forecast


@dataclass(frozen=True, slots=True)
class Overrun:
    """A budget that is likely to be exceeded, or is already.

    Attributes:
        quantity: ``duration_s``, ``energy_kwh``, ``emissions_kgco2e`` or ``cost_usd``.
        limit: what was allowed.
        used: so far; None where it is not known.
        expected: the forecast; None where there is none.
        probability: that the run comes to more than the limit.
    """

    quantity: str
    limit: float
    used: float | None
    expected: Estimate | None
    probability: float

    @property
    def is_certain(self) -> bool:
        """Whether it is exceeded already, by what is measured."""
        return self.used is not None and self.used > self.limit

    def __str__(self) -> str:
        name, text = fmt.QUANTITIES[self.quantity]
        if self.limit <= 0:
            return "the deadline had passed before the run began"
        limit = "the deadline after" if self.quantity == "duration_s" else "the limit of"
        if self.used is not None and self.is_certain:
            return f"{name} is at {text(self.used)}, over {limit} {text(self.limit)}"
        e = self.expected
        come = f"will come to {fmt.interval(e.point, e.lower, e.upper, text)}" if e is not None else ""
        return f"{name} {come}, over {limit} {text(self.limit)} with a probability of {fmt.percent(self.probability)}"


def find_overruns(
    limits: Mapping[str, float], forecast: Forecast | None, used: Mapping[str, float | None], threshold: float
) -> list[Overrun]:
    """The limits that are exceeded with a probability of ``threshold`` or more.

    Args:
        limits: by quantity.
        forecast: the latest; None where there is none, so that only what is used already counts.
        used: by quantity, so far.
        threshold: probability in 0..1.
    """
    found = []
    for quantity, limit in limits.items():
        expected: Estimate | None = getattr(forecast, quantity) if forecast is not None else None
        so_far = used.get(quantity)
        if so_far is not None and so_far > limit:
            probability = 1.0
        elif expected is not None:
            probability = expected.probability_above(limit)
        else:
            continue
        if probability >= threshold:
            found.append(Overrun(quantity, limit, so_far, expected, probability))
    return found


# -- What a user's own code does when a budget is about to be exceeded --


@dataclass(frozen=True, slots=True)
class BudgetActions:
    """Called in the training's own thread, between two epochs.

    Attributes:
        on_overrun: takes the overrun, and what it raises ends the training; None: ``stops`` says what is done.
        save_checkpoint: called before ``BudgetExceeded`` is raised.
        stops: whether ``BudgetExceeded`` is raised; as the settings say.
    """

    on_overrun: Callable[[Overrun], None] | None = None
    save_checkpoint: Callable[[], object] | None = None
    stops: bool = False

    def __post_init__(self) -> None:
        for name in ("on_overrun", "save_checkpoint"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise UsageError(f"{name} must be a function, not {value!r}")

    def under(self, settings: Settings) -> BudgetActions:
        """The same code, with what the settings say of overruns."""
        return replace(self, stops=settings.on_overrun == "stop")

    def act(self, overrun: Overrun) -> None:
        """Do what is to be done; a warning was given when the overrun was found.

        Raises:
            BudgetExceeded: where the training is to stop.
        """
        if self.on_overrun is not None:
            self.on_overrun(overrun)
        elif self.stops:
            if self.save_checkpoint is not None:
                self.save_checkpoint()
            raise BudgetExceeded(str(overrun))
