"""What happens between two epochs, in the training's own thread: budgets, the question, the end of monitoring."""

from __future__ import annotations

from collections.abc import Callable

from greenlove_tracker.console import can_ask, confirm, say
from greenlove_tracker.records import RunStatus
from greenlove_tracker.tracker.particulars import Particulars
from greenlove_tracker.tracker.worker import Parts, Worker


class BetweenEpochs:
    """Acts on overruns, asks whether to go on, and closes a run that was monitored for long enough.

    Args:
        parts: of the session.
        worker: looks ahead for it.
        particulars: of the run.
        asks: whether this process asks: the first rank does so for all.
        finish: ends the run.
    """

    def __init__(
        self,
        parts: Parts,
        worker: Worker,
        particulars: Particulars,
        *,
        asks: bool,
        finish: Callable[[RunStatus, int | None], None],
    ) -> None:
        self._parts, self._worker, self._asks, self._finish = parts, worker, asks, finish
        self.is_monitored_out = False  # closed after monitor_epochs, while the training goes on
        self.adopt(particulars)

    def adopt(self, particulars: Particulars) -> None:
        """What the run is, or what a script's own tracker brings that joins it."""
        self._settings, self._hooks = particulars.settings, particulars.hooks

    def act_on_overruns(self) -> None:
        """Call the user's code, or stop.

        Raises:
            BudgetExceeded: where a budget is overrun and the training is to stop then.
        """
        self._worker.check_budgets()
        overruns = self._parts.outlook.overruns
        while overruns:
            self._hooks.act(overruns.pop(0))

    def after_epoch(self) -> None:
        """Ask whether to go on after the epochs before the first forecast, and close after the last monitored one.

        Raises:
            SystemExit: where the answer is no.
        """
        self._worker.nudge()
        done, settings = self._parts.recorder.epochs_done, self._settings
        if settings.stop_and_confirm and done == settings.epochs_before_pred and self._asks:
            self._confirm()
        if done == settings.monitor_epochs:
            self.is_monitored_out = True
            self._finish(RunStatus.FINISHED, None)

    def _confirm(self) -> None:
        parts = self._parts
        if not can_ask():
            parts.troubles.warn("confirm", "stop_and_confirm: there is no terminal to ask on; training goes on")
            return
        self._worker.forecast()
        self._worker.is_asking = True
        parts.status.clear()
        asked_s = parts.clock.perf_s()
        try:
            say(f"greenlove  {self._worker.line()}")
            answer = confirm("Continue training?")
        finally:
            self._worker.is_asking = False
        with parts.lock:
            parts.outlook.lose(parts.clock.perf_s() - asked_s)
        if answer is False:
            self._finish(RunStatus.STOPPED, 0)
            raise SystemExit(0)
