"""Find the epochs of a script that marks none, in its own loops and its trainers', and how many will follow."""

from __future__ import annotations

import contextlib
import math
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise

from greenlove_tracker.integrations.automatic import automatic_callbacks
from greenlove_tracker.integrations.pytorch import PyTorchHooks
from greenlove_tracker.integrations.training_loops import LoopDetector
from greenlove_tracker.tracker.loop_length import LoopLength, loop_length
from greenlove_tracker.tracker.session import Session
from greenlove_tracker.vocabulary.errors import BudgetExceeded
from greenlove_tracker.vocabulary.phases import Plan
from greenlove_tracker.vocabulary.records import Field

_ARGUMENT = re.compile(r"--(?:n|num|max|num[_-]train)?[_-]?(?:epochs?|niter)(?:=(?P<number>\d+))?")


@contextlib.contextmanager
def watched_loops(session: Session, epochs: int | None) -> Iterator[None]:
    """Find epochs of the script's own loops and trainers, and log whether there were any."""
    warn_once = session.state.warn_once
    detector = LoopDetector(session)
    detector.on_epoch = _LoopPlans(session, epochs).plan
    hooks = PyTorchHooks(detector, lambda error: warn_once.internal_error("loops", error))
    callbacks = automatic_callbacks(lambda error: warn_once.internal_error("callbacks", error))
    try:
        with hooks, callbacks:
            yield
    finally:
        try:
            with contextlib.suppress(BudgetExceeded, SystemExit):  # the script has ended already
                detector.finish()
            if detector.takes_turns:
                warn_once.warn(
                    "turns", "the script's data loaders take turns: steps are counted, and its epochs are unknown"
                )
            if not session.state.has_tracker and not session.state.is_finished:
                seen = "no torch"
                if detector.n_epochs and not detector.takes_turns:
                    seen = "epochs"
                elif detector.n_steps:
                    seen = "steps"
                elif hooks.has_torch:
                    seen = "no steps"
                session.write_fields([Field("loops_seen", seen)])
        except Exception as problem:
            warn_once.internal_error("loops", problem)


class _LoopPlans:
    """The planned lengths of the trainings of a script, one after the other."""

    def __init__(self, session: Session, epochs: int | None) -> None:
        self._session = session
        self._epochs = epochs
        self._planned_to = 0.0  # epochs of all trainings so far; infinite where no more is known

    def plan(self, loader: object) -> None:
        """Set the length of a training before its first epoch: by ``--epochs``, its loop, or the script's arguments.

        If more epochs follow than were planned, another training has begun. Only its loop tells its length.
        """
        session = self._session
        done = session.recorder.epochs_done
        if loader is None or done < self._planned_to:
            return
        is_first = not self._planned_to
        try:
            if is_first and self._epochs is not None:
                planned: LoopLength | None = LoopLength(self._epochs, "--epochs")
            else:
                planned = loop_length(sys._getframe(1), loader)
                if planned is None and is_first:
                    planned = length_by_arguments(sys.argv[1:])
            self._planned_to = math.inf
            if planned is not None:
                self._planned_to = done + planned.epochs
                source = planned.source
                if not is_first:
                    source = f"{source}, after {done} of another training"
                session.plan_job(Plan(done + planned.epochs), source)
            elif not is_first:
                session.plan_job(None, "")
        except Exception as error:  # epochs are seen without it
            session.state.warn_once.internal_error("plan", error)


def length_by_arguments(arguments: Sequence[str]) -> LoopLength | None:
    """Return the number of epochs in the script's own arguments, such as ``--epochs 2``; None if there is none."""
    for word, following in pairwise([*arguments, ""]):
        found = _ARGUMENT.fullmatch(word)
        if found:
            number = found["number"] or following
            source = f"the script's {word.partition('=')[0]}"
            if number.isdecimal() and int(number):
                return LoopLength(int(number), source)
            return None
    return None
