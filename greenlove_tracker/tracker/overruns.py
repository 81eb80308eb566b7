"""Budgets and what they come to: limits, the probability that a run exceeds one, and the user's code for that case."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from greenlove_tracker import format as fmt
from greenlove_tracker.config import Settings, TimeLimit, TimeLimitSource
from greenlove_tracker.errors import BudgetExceeded, UsageError
from greenlove_tracker.forecasting import Estimate, Forecast, WarningCode


def budget_limits(settings: Settings, limit: TimeLimit | None) -> Mapping[str, float]:
    """Return the budgets that the settings give, by quantity; that of time is a duration from the start."""
    limits = {
        "energy_kwh": settings.max_energy_kwh,
        "cost_usd": settings.max_cost_usd,
        "emissions_kgco2e": settings.max_kgco2e,
        "duration_s": None if limit is None else limit.limit_s,
    }
    return {quantity: limit for quantity, limit in limits.items() if limit is not None}


@dataclass(frozen=True, slots=True)
class Overrun:
    """A budget that is likely to be exceeded, or is already.

    Attributes:
        quantity: ``duration_s``, ``energy_kwh``, ``emissions_kgco2e`` or ``cost_usd``.
        limit: what was allowed.
        used: so far; None where it is not known.
        expected: the forecast; None where there is none.
        probability: that the run comes to more than the limit.
        source: of a limit of the time.
    """

    quantity: str
    limit: float
    used: float | None
    expected: Estimate | None
    probability: float
    source: TimeLimitSource = TimeLimitSource.DEADLINE

    @property
    def is_certain(self) -> bool:
        """True where it is exceeded already, by what is measured."""
        return self.used is not None and self.used > self.limit

    def verdict(self, threshold: float) -> BudgetVerdict:
        """Return what it comes to; from this probability on an overrun is likely."""
        if self.is_certain:
            return BudgetVerdict.EXCEEDED
        if self.probability >= threshold:
            return BudgetVerdict.LIKELY_EXCEEDED
        return BudgetVerdict.LIKELY_KEPT if self.probability <= 1 - threshold else BudgetVerdict.OPEN

    def __str__(self) -> str:
        name, text = fmt.QUANTITIES[self.quantity]
        is_time = self.quantity == "duration_s"
        if is_time and self.limit <= 0:
            return f"the {self.source} had passed before the run began"
        limit = f"over the {f'{self.source} after' if is_time else 'limit of'} {text(self.limit)}"
        if self.used is not None and self.is_certain:
            return f"{name} is at {text(self.used)}, {limit}"
        total = "" if self.expected is None else f"will reach {fmt.interval(self.expected, text)}"
        return f"{name} {total}, {limit} with a probability of {fmt.chance(self.probability)}"


class BudgetVerdict(StrEnum):
    """The prospect of a budget, on the latest forecast."""

    EXCEEDED = "over its limit"
    LIKELY_EXCEEDED = "likely over its limit"
    OPEN = "may exceed its limit"
    LIKELY_KEPT = "within its limit"


def find_overruns(
    limits: Mapping[str, float], forecast: Forecast | None, used: Mapping[str, float | None], threshold: float
) -> list[Overrun]:
    """Return the limits that are exceeded with a probability of ``threshold`` or more; 0: all that can be told of.

    Args:
        limits: by quantity.
        forecast: the latest; None where there is none, so that only what is used already counts.
        used: by quantity, so far.
        threshold: probability in 0..1.
    """
    found = []
    for quantity, limit in limits.items():
        expected: Estimate | None = getattr(forecast, quantity) if forecast is not None else None
        used_now = used.get(quantity)
        if used_now is not None and used_now > limit:
            probability = 1.0
        elif expected is not None:
            probability = expected.probability_above(limit)
        else:
            continue
        if probability >= threshold:
            found.append(Overrun(quantity, limit, used_now, expected, probability))
    return found


def is_of_cold_start(forecast: Forecast) -> bool:
    """Return True for a forecast from so little that it may be a cold start."""
    return any(warning.name == WarningCode.FEW for warning in forecast.warnings)


@dataclass(frozen=True, slots=True)
class BudgetActions:
    """The user's own code when a budget is likely to be exceeded: called in the training's thread, between two epochs.

    Attributes:
        on_overrun: takes the overrun, and what it raises ends the training; None: the settings decide.
        save_checkpoint: called before ``BudgetExceeded`` is raised.
    """

    on_overrun: Callable[[Overrun], None] | None = None
    save_checkpoint: Callable[[], object] | None = None

    def __post_init__(self) -> None:
        if self.save_checkpoint is not None and not callable(self.save_checkpoint):
            raise UsageError(f"save_checkpoint must be a function, not {self.save_checkpoint!r}")

    def act(self, overrun: Overrun, *, stops: bool) -> None:
        """Call the function, or stop the training; a warning was given when the overrun was found.

        Args:
            overrun: that is likely.
            stops: the settings say so.

        Raises:
            BudgetExceeded: where the training is to stop.
        """
        if self.on_overrun is not None:
            self.on_overrun(overrun)
        elif stops:
            if self.save_checkpoint is not None:
                self.save_checkpoint()
            raise BudgetExceeded(str(overrun))
