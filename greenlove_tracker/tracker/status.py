"""The line on the terminal that shows how far a run is, and the lines in a job's log that do so now and then."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping

from greenlove_tracker import format as fmt
from greenlove_tracker.console import StatusLine, bar, say
from greenlove_tracker.forecasting import FITS, Estimate, Forecast, stop_estimate
from greenlove_tracker.phases import phase_at
from greenlove_tracker.tracker.budgets import BudgetMonitor, BudgetVerdict, is_of_cold_start
from greenlove_tracker.tracker.recorder import Recorder
from greenlove_tracker.tracker.state import RunState

_BAR_WIDTH = 10
_PLAIN_AT_S = (60.0, 180.0, 600.0)  # without a terminal, lines about then, and later where there is something new,
_PLAIN_INTERVAL_S = 60.0  # at most this often,
_MOST_PLAIN = 50  # and at most so many in a run


class StatusPrinter:
    """Shows the first rank's progress: one line drawn over itself on a terminal, a plain line now and then else.

    Args:
        state: of the run.
        recorder: of the run.
        budgets: whose prospects it tells.

    Attributes:
        is_hidden: nothing is drawn: the terminal belongs to a question.
    """

    def __init__(self, state: RunState, recorder: Recorder, budgets: BudgetMonitor) -> None:
        self._state, self._recorder, self._budgets = state, recorder, budgets
        self._line = StatusLine(even_beside_stdout=state.settings.verbose > 1)
        self._log = _PlainLines()
        self.is_hidden = False

    def text(self) -> str:
        """Return the line: epochs, and time, energy, CO2e and cost, forecast where that is known, else so far."""
        state, forecast = self._state, self._state.forecast
        used = state.consumption(self._recorder.metered_kwh)
        elapsed_s = used["duration_s"] or 0.0
        parts = [fmt.brief_duration(elapsed_s), *self._time_parts(elapsed_s)]
        if forecast is not None and elapsed_s > forecast.duration_s.upper:
            forecast = None  # what it said is over, and nothing is known instead
        fit, verdicts = self._budgets.time_fit(), dict(self._budgets.verdicts())
        if fit is not None and not fit.is_over:
            verdicts.pop("duration_s", None)
            if fit.probability < FITS:  # news, which a narrow terminal is not to cut off
                parts.append(fmt.time_fit(fit))
        for quantity in ("energy_kwh", "emissions_kgco2e", "cost_usd"):
            text, suffix = fmt.QUANTITIES[quantity][1], " CO2e" if quantity == "emissions_kgco2e" else ""
            expected: Estimate | None = getattr(forecast, quantity, None)
            if expected is not None:
                parts.append(text(expected.total(used[quantity])) + suffix)
            elif used[quantity] is not None:
                parts.append(f"{text(used[quantity])}{suffix}{' so far' if state.forecast is not None else ''}")
        if forecast is not None:
            parts += self._ends(forecast, elapsed_s)
        if fit is not None and fit.probability >= FITS:
            parts.append(fmt.time_fit(fit))
        parts += [f"{fmt.QUANTITIES[quantity][0]} {verdict}" for quantity, verdict in verdicts.items()]
        return self._head() + " · ".join(parts)

    def _time_parts(self, elapsed_s: float) -> list[str]:
        forecast, next_epoch_s = self._state.forecast, self._state.next_epoch_s
        if forecast is not None and elapsed_s > forecast.duration_s.upper:
            return ["overdue"]
        if forecast is not None:
            return [f"forecast {fmt.interval(forecast.duration_s.given_more_than(elapsed_s), fmt.brief_duration)}"]
        return [] if next_epoch_s is None else [f"next epoch {fmt.interval(next_epoch_s, fmt.brief_duration)}"]

    def _ends(self, forecast: Forecast, elapsed_s: float) -> list[str]:
        now_s, total_s = self._state.clock.utc_s(), forecast.duration_s.given_more_than(elapsed_s).point
        parts = [f"ends {fmt.clock_time(now_s + total_s - elapsed_s, now_s)}"]
        p99_s = forecast.duration_p99_s if forecast.is_reliable and not is_of_cold_start(forecast) else None
        plan, stop = self._state.plan, forecast.expected_stop
        if stop is not None and plan is not None and plan.epochs:
            expected = stop_estimate(stop, forecast.duration_s.level, before=plan.first_epoch)
            parts.append(fmt.expected_stop(expected, plan.first_epoch + plan.epochs))
        if "SLURM_JOB_ID" in os.environ and p99_s is not None:
            parts.append(f"--time={fmt.slurm_time(max(p99_s, elapsed_s))}")
        return parts

    def _head(self) -> str:
        plan, recorder = self._state.plan, self._recorder
        progress = self._phase() + (bar(self._share(), _BAR_WIDTH) if self._line.is_seen else "·")
        if plan is not None and plan.is_in_epochs and plan.epochs:
            whole = plan.first_epoch + plan.epochs
            planned = whole if recorder.epochs_done <= plan.epochs else f"{whole} planned"
            return f"epoch {plan.first_epoch + recorder.epochs_done}/{planned} {progress} "
        if plan is not None and plan.total_steps:
            done, whole = plan.first_step + recorder.steps_done, plan.first_step + plan.total_steps
            return f"step {done:,}/{whole:,} {progress} "
        done = recorder.epochs_done + (plan.first_epoch if plan is not None else 0)
        return f"epoch {done} · " if recorder.epochs_begun else ""

    def _phase(self) -> str:
        """Return in which phase of the plan the run is: ``phase 2/3 (262,144 tokens) ``; empty where it has one."""
        plan = self._state.plan
        if plan is None or len(plan.phases) < 2:
            return ""
        done = self._recorder.epochs_done if plan.is_in_epochs else self._recorder.steps_done
        number = phase_at(plan.phases, done)
        name = fmt.phase_name(plan.phases[number])
        return f"phase {number + 1}/{len(plan.phases)}{f' ({name})' if name else ''} "

    def _share(self) -> float:
        plan, recorder = self._state.plan, self._recorder
        if plan is not None and plan.is_in_epochs and plan.epochs:
            done: float = recorder.epochs_done
            steps_per_epoch = plan.steps_per_epoch
            if steps_per_epoch:  # of an epoch of an hour there is something to see
                done = min(max(done, recorder.steps_done / steps_per_epoch), done + 1, plan.epochs)
            return (plan.first_epoch + done) / (plan.first_epoch + plan.epochs)
        if plan is None or not plan.total_steps:
            return 0.0
        return (plan.first_step + recorder.steps_done) / (plan.first_step + plan.total_steps)

    def wants_forecast(self) -> bool:
        """Return True where a plain line is to come whose forecast should be of now, not of a while ago."""
        return self._is_telling() and not self._line.is_seen and self._log.is_scheduled(self._state.elapsed_s)

    def show(self, text: str) -> None:
        """Draw the line; or where it would mix with what the script prints, or nobody reads it, print it seldom."""
        if not self._is_telling():
            return
        if self._line.is_seen:
            self._line.draw(text)
        elif self._is_plain_line_due():
            say(f"greenlove  {text}")

    def _is_telling(self) -> bool:
        state = self._state
        return not self.is_hidden and state.settings.verbose >= 1 and state.is_first_rank

    def _is_plain_line_due(self) -> bool:
        state, recorder = self._state, self._recorder
        if state.forecast is None and state.next_epoch_s is not None:
            return self._log.is_due_without_forecast(state.elapsed_s)
        if state.forecast is None or not recorder.steps_done + recorder.epochs_done:
            return False
        is_in_epochs, n_before = state.plan is not None and state.plan.is_in_epochs, state.settings.epochs_before_pred
        is_by_steps = n_before == 1 and state.forecast.position is not None  # and so by the first epoch's steps
        if is_in_epochs and recorder.epochs_done < n_before and not is_by_steps:
            return False
        return self._log.is_due(state.elapsed_s, state.forecast, self._budgets.verdicts())

    def clear(self) -> None:
        """Wipe the line."""
        self._line.clear()


class _PlainLines:
    """Decides when a job's log gets a line: about after 1, 3 and 10 minutes, then where there is something new.

    That is where the interval of the forecast has halved, where the forecast has left the interval that the log tells,
    where the run is overdue, or where the verdict on a deadline or budget is another.
    """

    def __init__(self) -> None:
        self._n_told = self._n_scheduled = 0
        self._told_at_s = -math.inf
        self._told: Forecast | None = None
        self._told_verdicts: tuple[bool, Mapping[str, BudgetVerdict]] = (False, {})

    def is_scheduled(self, elapsed_s: float) -> bool:
        """Return True where one of the first lines is due."""
        if self._n_scheduled >= len(_PLAIN_AT_S):
            return False
        return elapsed_s >= max(_PLAIN_AT_S[self._n_scheduled], self._told_at_s + _PLAIN_INTERVAL_S)

    def is_due(self, elapsed_s: float, forecast: Forecast, verdicts: Mapping[str, BudgetVerdict]) -> bool:
        """Return True where a line is to be printed now, and count it."""
        is_first = self._told is None and elapsed_s >= _PLAIN_AT_S[0]
        has_new = self._told is not None and forecast is not self._told
        told_verdicts = elapsed_s > forecast.duration_s.upper, verdicts
        is_due = is_first or (has_new and (self.is_scheduled(elapsed_s) or self._says_more(forecast)))
        is_due = is_due or (self._told is not None and told_verdicts != self._told_verdicts)
        if not is_due or self._n_told >= _MOST_PLAIN or elapsed_s < self._told_at_s + _PLAIN_INTERVAL_S:
            return False
        self._told, self._told_verdicts = forecast, told_verdicts
        self._count(elapsed_s)
        return True

    def is_due_without_forecast(self, elapsed_s: float) -> bool:
        """Return True where one of the first lines is due, which tells of the next epoch only, and count it."""
        is_due = self.is_scheduled(elapsed_s)
        if is_due:
            self._count(elapsed_s)
        return is_due

    def _count(self, elapsed_s: float) -> None:
        self._n_told += 1
        self._n_scheduled = sum(elapsed_s >= at_s for at_s in _PLAIN_AT_S)
        self._told_at_s = elapsed_s

    def _says_more(self, forecast: Forecast) -> bool:
        """Return True where, after the first lines, a forecast is twice as sharp as the one told, or contradicts it."""
        if self._told is None or self._n_scheduled < len(_PLAIN_AT_S):
            return False
        told, now = self._told.duration_s, forecast.duration_s
        is_sharper = 0 < 2 * (now.upper - now.lower) <= told.upper - told.lower
        return is_sharper or not told.lower <= now.point <= told.upper
