"""The part of a run that watches its budgets; the first rank does so for all."""

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

_READ_S = 5.0  # what is used is known this often where there is a budget to hold


class BudgetMonitor(RunPart):
    """Compares what is used, and the latest forecast, with the budgets of one run.

    Args:
        run: that it is a part of.
    """

    def __init__(self, run: RunParts) -> None:
        super().__init__(run)
        self._found = set[str]()  # quantities that are warned of
        self._to_act_on: list[Overrun] = []

    def tick(self) -> None:
        """Read the meter where that is long ago, and check."""
        state = self._state
        recorder = self._recorder
        with state.lock:
            if not state.limits or state.is_training_over:
                return
            if state.clock.perf_s() >= recorder.read_at_s + _READ_S:
                recorder.read_within_row()
            self._check()

    def row(self, row: Row) -> None:
        """Check, where an epoch is over or goes on."""
        if row.epoch is not None:
            self._check()

    def between_epochs(self) -> None:
        """Call the user's code for every overrun that was found.

        Raises:
            BudgetExceeded: where a budget is overrun and the training is to stop then.
        """
        state = self._state
        while self._to_act_on:
            state.budget_actions.act(self._to_act_on.pop(0), stops=state.settings.on_overrun == "stop")

    def ending(self) -> None:
        """Warn of the budgets that the run exceeded, where forecasts count no more, and of those that are unknown."""
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
    """Give each budget of a run of which anything is known, by what is used and by the latest forecast."""
    if not state.limits:
        return
    forecast = state.forecast
    elapsed_s = state.elapsed_s
    used = replace(state.consumption(metered_kwh), duration_s=elapsed_s + state.lost_s)
    if forecast is not None and any(warning.name == WarningCode.FEW for warning in forecast.warnings):
        forecast = None  # from so little that it may be a cold start
    if state.time_limit is None:
        source = TimeLimitSource.DEADLINE
    else:
        source = state.time_limit.source
    for quantity, limit in state.limits.items():
        expected: Estimate | None = getattr(forecast, quantity, None)
        if expected is not None and quantity == "duration_s":
            if elapsed_s <= expected.upper:  # beyond, the run is overdue, and nothing better is known
                expected = expected.given_more_than(elapsed_s)
            expected = expected.plus(state.lost_s)
        used_now = getattr(used, quantity)
        if used_now is not None and used_now > limit:
            yield Overrun(quantity, limit, used_now, expected, 1.0, source)
        elif expected is not None:
            yield Overrun(quantity, limit, used_now, expected, expected.probability_above(limit), source)
