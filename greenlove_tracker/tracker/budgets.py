"""An overrun budget, and the user's own code that reacts to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from greenlove_tracker.report.status_line import over_budget
from greenlove_tracker.settings.config import TimeLimitSource
from greenlove_tracker.vocabulary.errors import BudgetExceeded, UsageError
from greenlove_tracker.vocabulary.forecasting import Estimate


@dataclass(frozen=True, slots=True)
class Overrun:
    """A budget, and the probability that the run exceeds it.

    Attributes:
        quantity: ``duration_s``, ``energy_kwh``, ``emissions_kgco2e`` or ``cost_usd``.
        limit: the budget, in the unit of the quantity.
        used: what was used so far; None if unknown.
        expected: the forecast of the whole run; None if there is none.
        probability: the probability that the whole run takes more than the limit.
        source: where a time limit comes from, such as Slurm; empty for other budgets.
    """

    quantity: str
    limit: float
    used: float | None
    expected: Estimate | None
    probability: float
    source: TimeLimitSource = TimeLimitSource.DEADLINE

    @property
    def is_certain(self) -> bool:
        """True if the measured use exceeds the limit already."""
        return self.used is not None and self.used > self.limit

    def __str__(self) -> str:
        used = self.used if self.is_certain else None
        return over_budget(self.quantity, self.limit, used, self.expected, self.probability, self.source)


@dataclass(frozen=True, slots=True)
class BudgetActions:
    """The user's own code for an overrun, called on the training's thread between two epochs.

    Attributes:
        on_overrun: called with the overrun; what it raises ends the training. None: the settings decide.
        save_checkpoint: called before ``BudgetExceeded`` is raised.
    """

    on_overrun: Callable[[Overrun], None] | None = None
    save_checkpoint: Callable[[], object] | None = None

    def __post_init__(self) -> None:
        if self.save_checkpoint is not None and not callable(self.save_checkpoint):
            raise UsageError(f"save_checkpoint must be a function, not {self.save_checkpoint!r}")

    def act(self, overrun: Overrun, *, stops: bool) -> None:
        """Call the user's function, or stop the training.

        A warning was given when the overrun was found.

        Args:
            overrun: the overrun.
            stops: True if the settings ask to stop.

        Raises:
            BudgetExceeded: if the training is to stop.
        """
        if self.on_overrun is not None:
            self.on_overrun(overrun)
        elif stops:
            if self.save_checkpoint is not None:
                self.save_checkpoint()
            raise BudgetExceeded(str(overrun))
