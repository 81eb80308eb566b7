"""Watch the budgets of a run; the first rank watches them for all ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from greenlove_tracker.settings.config import TimeLimitSource
from greenlove_tracker.text import format as fmt
from greenlove_tracker.tracker.budgets import Overrun
from greenlove_tracker.tracker.part import RunPart, RunParts
from greenlove_tracker.tracker.state import RunState
from greenlove_tracker.vocabulary.forecasting import Estimate, WarningCode
from greenlove_tracker.vocabulary.records import Row

_READ_S = 5.0  # with a budget, the meter is read at least this often


class BudgetMonitor(RunPart):
    """Compare the budgets of one run with what it has used and with its latest forecast.

    Args:
        run: the parts of the run.
    """

    def __init__(self, run: RunParts) -> None:
        super().__init__(run)
        self._found = set[str]()  # quantities that a warning was given for
        self._to_act_on: list[Overrun] = []

    def tick(self) -> None:
        """Read the meter if its last reading is old, and check the budgets."""
        state = self._state
        recorder = self._recorder
        with state.lock:
            if not state.limits or state.is_training_over:
                return
            if state.clock.perf_s() >= recorder.read_at_s + _READ_S:
                recorder.read_within_row()
            self._check()

    def row(self, row: Row) -> None:
        """Check the budgets after each row of an epoch."""
        if row.epoch is not None:
            self._check()

    def between_epochs(self) -> None:
        """Call the user's code for every overrun that was found.

        Raises:
            BudgetExceeded: if a budget is overrun and the settings ask to stop.
        """
        state = self._state
        while self._to_act_on:
            state.budget_actions.act(self._to_act_on.pop(0), stops=state.settings.on_overrun == "stop")

    def ending(self) -> None:
        """Warn of budgets that the finished run exceeded, and of those whose quantity is unknown."""
        state = self._state
        if not state.is_first_rank:
            return
        self._check(is_over=True)
        used = state.consumption(self._recorder.metered_kwh)
        for quantity in (q for q in state.limits if getattr(used, q) is None):
            name, text = fmt.QUANTITIES[quantity]
            message = f"{name} is unknown, so the limit of {text(state.limits[quantity])} could not be checked"
            state.warn_once.warn(f"unchecked {quantity}", message)

    def _check(self, *, is_over: bool = False) -> None:
        state = self._state
        if not state.is_first_rank:
            return
        for outlook in budget_outlooks(state, self._recorder.metered_kwh):
            is_likely = outlook.probability >= state.settings.overrun_probability and not is_over
            if outlook.quantity not in self._found and (outlook.is_certain or is_likely):
                self._found.add(outlook.quantity)
                self._to_act_on.append(outlook)
                state.warn_once.warn(f"budget {outlook.quantity}", f"{outlook}")


def budget_outlooks(state: RunState, metered_kwh: float | None) -> Iterator[Overrun]:
    """Yield each budget whose use or forecast is known."""
    if not state.limits:
        return
    forecast = state.forecast
    elapsed_s = state.elapsed_s
    used = replace(state.consumption(metered_kwh), duration_s=elapsed_s + state.lost_s)
    if forecast is not None and any(warning.name == WarningCode.FEW for warning in forecast.warnings):
        forecast = None  # it stands on so few epochs that they may be a cold start
    source = TimeLimitSource.DEADLINE
    if state.time_limit is not None:
        source = state.time_limit.source
    for quantity, limit in state.limits.items():
        expected: Estimate | None = getattr(forecast, quantity, None)
        if expected is not None and quantity == "duration_s":
            if elapsed_s <= expected.upper:  # later than that the forecast has failed, and there is no better one
                expected = expected.given_more_than(elapsed_s)
            expected = expected.plus(state.lost_s)
        used_now = getattr(used, quantity)
        probability = None if expected is None else expected.probability_above(limit)
        if used_now is not None and used_now > limit:
            probability = 1.0
        if probability is not None:
            yield Overrun(quantity, limit, used_now, expected, probability, source)
