"""The part of a run that sees what the training computes: its precision and its class of workload."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from greenlove_tracker.records import Field
from greenlove_tracker.tracker.part import RunPart, RunParts
from greenlove_tracker.tracker.state import RunMode
from greenlove_tracker.workloads import Seen

if TYPE_CHECKING:
    from greenlove_tracker.training_kind import StepWatch

_OPTIMIZERS = "torch.optim.optimizer"


class KindOfTraining(RunPart):
    """What one training computes, as a framework tells, or as the first steps of its optimizers show.

    Args:
        run: that it is a part of.
    """

    def __init__(self, run: RunParts) -> None:
        super().__init__(run)
        state = run.state
        is_given = bool(state.settings.precision and state.settings.workload)
        is_looked_for = state.mode in (RunMode.OWN, RunMode.RUNNER) and state.is_leading
        self._is_known = is_given or not is_looked_for
        self._watch: StepWatch | None = None

    def epoch_began(self) -> None:
        """Look at its next steps, where no framework told; torch is never loaded by us."""
        if self._is_known or _OPTIMIZERS not in sys.modules:
            return
        from greenlove_tracker.training_kind import StepWatch

        self._is_known = True
        warn_once = self._state.warn_once
        self._watch = StepWatch(self._write, lambda error: warn_once.internal_error("training kind", error))
        if self._state.has_tracker:  # else an observer listens, who calls ``stepped``
            self._watch.listen()

    def stepped(self, optimizer: Any) -> None:
        """Take notice of a step of one of torch's optimizers."""
        if self._watch is not None and not self._state.has_tracker:
            self._watch.stepped(optimizer)

    def note(self, precision: Seen, workload: Seen) -> None:
        """Note what it is; what the user gave stays."""
        self.ending()
        self._write(precision, workload)

    def ending(self) -> None:
        """Look no more."""
        self._is_known = True
        if self._watch is not None:
            self._watch.end()
            self._watch = None

    def _write(self, precision: Seen, workload: Seen) -> None:
        settings = self._state.settings
        seen = (("precision", settings.precision, precision), ("workload", settings.workload, workload))
        with self._state.lock:
            for name, given, found in seen:
                if found.value and not given and not self._state.is_finished:
                    self._writer.write_fields([Field(name, found.value), Field(f"{name}_basis", found.basis)])
