"""What a user's own code does when a budget is about to be exceeded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from greenlove_tracker.config import Settings
from greenlove_tracker.errors import BudgetExceeded, UsageError
from greenlove_tracker.tracker.gates import Overrun


@dataclass(frozen=True, slots=True)
class Hooks:
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

    def under(self, settings: Settings) -> Hooks:
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
