"""A budget of a run that is likely to be exceeded, and the user's own code for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from greenlove_tracker.report.status_line import over_budget
from greenlove_tracker.settings.config import TimeLimitSource
from greenlove_tracker.vocabulary.errors import BudgetExceeded, UsageError
from greenlove_tracker.vocabulary.forecasting import Estimate


@dataclass(frozen=True, slots=True)
class Overrun:
    """A budget, and how likely the run exceeds it.

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

    def __str__(self) -> str:
        used = self.used if self.is_certain else None
        return over_budget(self.quantity, self.limit, used, self.expected, self.probability, self.source)


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
