"""Budgets: the limits of a run, how likely they are exceeded, and the action when they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from greenlove_tracker import format as fmt
from greenlove_tracker.config import Settings, TimeLimit, TimeLimitSource
from greenlove_tracker.errors import BudgetExceeded, UsageError
from greenlove_tracker.extrapolation.time_fit import time_fit
from greenlove_tracker.forecasting import Estimate, Forecast, TimeFit, WarningCode
from greenlove_tracker.tracker.recorder import Recorder

if TYPE_CHECKING:
    from greenlove_tracker.tracker.state import RunState


class BudgetMonitor:
    """Compares what is used, and the latest forecast, with the budgets of one run; the first rank does so for all.

    Args:
        state: of the run.
        recorder: of the run.

    Attributes:
        overruns: found, and not acted on yet.
    """

    def __init__(self, state: RunState, recorder: Recorder) -> None:
        self._state, self._recorder = state, recorder
        self.overruns: list[Overrun] = []

    def check(self) -> None:
        """Warn of the budgets that are newly found to be overrun."""
        for overrun in self._find():
            self._state.warn_once.warn(f"budget {overrun.quantity}", f"{overrun}")

    def check_at_end(self, why_no_energy: str) -> None:
        """Warn of the budgets that the run exceeded, where forecasts count no more, and of those that are unknown."""
        for overrun in self._find():
            if overrun.is_certain:
                self._state.warn_once.warn(f"budget {overrun.quantity}", f"{overrun}")
        if self._state.is_first_rank:
            for quantity, message in self._unchecked(why_no_energy).items():
                self._state.warn_once.warn(f"unchecked {quantity}", message)

    def act(self) -> None:
        """Call the user's code for every overrun that was found, in the training's own thread.

        Raises:
            BudgetExceeded: where a budget is overrun and the training is to stop then.
        """
        while self.overruns:
            self._state.budget_actions.act(self.overruns.pop(0))

    def verdicts(self) -> Mapping[str, BudgetVerdict]:
        """Return what the latest forecast says of each budget of which anything is known, by quantity."""
        state = self._state
        if not state.limits:
            return {}
        with state.lock:
            return budget_verdicts(state.limits, *self._prospect(), state.settings.overrun_probability)

    def time_fit(self) -> TimeFit | None:
        """Return how the run fits its time limit, on the latest forecast; None without one that still tells."""
        state = self._state
        with state.lock:
            forecast, limit_s, elapsed_s = self._forecast(), state.limits.get("duration_s"), state.elapsed_s
            lost_s = self._lost_s()
        if forecast is None or limit_s is None or elapsed_s > forecast.duration_s.upper:
            return None
        return time_fit(forecast, limit_s - lost_s, passed_s=elapsed_s)

    def _forecast(self) -> Forecast | None:
        """Return the latest forecast that says more than a cold start."""
        forecast = self._state.forecast
        return None if forecast is None or is_of_cold_start(forecast) else forecast

    def _lost_s(self) -> float:
        """Return what has passed by the calendar and is not the run's: a deadline is a time of day.

        A suspended machine, or another run of this process, brings it nearer.
        """
        state = self._state
        return state.clock.utc_s() - state.started_utc_s - state.elapsed_s

    def _prospect(self) -> tuple[Forecast | None, Mapping[str, float | None]]:
        """Return the forecast and the consumption that budgets are compared with; the caller holds the lock."""
        state, forecast = self._state, self._forecast()
        elapsed_s, lost_s = state.elapsed_s, self._lost_s()
        used = {**state.consumption(self._recorder.metered_kwh), "duration_s": elapsed_s + lost_s}
        if forecast is not None:
            duration = forecast.duration_s
            if elapsed_s <= duration.upper:  # beyond, the run is overdue, and nothing better is known
                duration = duration.given_more_than(elapsed_s)
            forecast = replace(forecast, duration_s=duration.plus(lost_s))
        return forecast, used

    def _find(self) -> list[Overrun]:
        state = self._state
        if not (state.is_first_rank and state.limits):
            return []
        with state.lock:
            limits = {q: limit for q, limit in state.limits.items() if q not in state.overrun_quantities}
            forecast, used = self._prospect()
            found = find_overruns(limits, forecast, used, state.settings.overrun_probability)
            found = [self._of_time(o) if o.quantity == "duration_s" else o for o in found]
            state.overrun_quantities |= {overrun.quantity for overrun in found}
            self.overruns += found
        return found

    def _of_time(self, overrun: Overrun) -> Overrun:
        """Return an overrun of the time with the place that its limit comes from, and how far the run gets."""
        limit = self._state.time_limit
        return overrun if limit is None else replace(overrun, source=limit.source, time_fit=self.time_fit())

    def _unchecked(self, why_no_energy: str) -> Mapping[str, str]:
        """Return the budgets that could not be checked, each with a sentence that says why."""
        state, metered_kwh = self._state, self._recorder.metered_kwh
        used = state.consumption(metered_kwh)
        reasons = dict.fromkeys(used, why_no_energy)
        if state.factors.electricity_price is None and state.factors.price_usd_per_gpu_hour is None:
            reasons["cost_usd"] = "no price is known, of electricity or of the machine"
        elif metered_kwh is not None:
            reasons["cost_usd"] = "the price is one of a GPU-hour, and no GPU was found"
        messages = {}
        for quantity in (q for q in state.limits if used[q] is None):
            name, text = fmt.QUANTITIES[quantity]
            limit = text(state.limits[quantity])
            reason = reasons[quantity]
            messages[quantity] = f"{name} is unknown, so the limit of {limit} could not be checked: {reason}"
        return messages


def budget_limits(settings: Settings, limit: TimeLimit | None) -> Mapping[str, float]:
    """Return the budgets that the settings give, by quantity; that of time is a duration from the start."""
    limits = {
        "energy_kwh": settings.max_energy_kwh,
        "cost_usd": settings.max_cost_usd,
        "emissions_kgco2e": settings.max_kgco2e,
        "duration_s": None if limit is None else limit.limit_s,
    }
    return {quantity: limit for quantity, limit in limits.items() if limit is not None}


# A probability in words, from the least one on: M. D. Mastrandrea et al., Guidance Note for Lead Authors of the IPCC
# Fifth Assessment Report on Consistent Treatment of Uncertainties, 2010, table 1.
_WORDS = ((0.99, "will almost certainly"), (0.9, "will very likely"), (0.66, "will likely"), (0.0, "may"))
_MISSES = {
    TimeLimitSource.DEADLINE: "miss its deadline",
    TimeLimitSource.HOURS: "exceed its time limit",
    TimeLimitSource.SLURM: "exceed its Slurm time limit",
}


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
        time_fit: of a limit of the time: how the run fits it; None where nothing is forecast.
    """

    quantity: str
    limit: float
    used: float | None
    expected: Estimate | None
    probability: float
    source: TimeLimitSource = TimeLimitSource.DEADLINE
    time_fit: TimeFit | None = None

    @property
    def is_certain(self) -> bool:
        """True where it is exceeded already, by what is measured."""
        return self.used is not None and self.used > self.limit

    def __str__(self) -> str:
        name, text = fmt.QUANTITIES[self.quantity]
        is_time, e = self.quantity == "duration_s", self.expected
        if is_time and self.limit <= 0:
            return f"the {self.source} had passed before the run began"
        limit = f"the {self.source} after" if is_time and self.source is not TimeLimitSource.HOURS else "the limit of"
        if self.used is not None and self.is_certain:
            return f"{name} is at {text(self.used)}, over {limit} {text(self.limit)}"
        if is_time and e is not None:
            return self._miss(e)
        total = f"will reach {fmt.interval(e, text)}" if e is not None else ""
        return f"{name} {total}, over {limit} {text(self.limit)} with a probability of {fmt.chance(self.probability)}"

    def _miss(self, expected: Estimate) -> str:
        """Return in words that the run takes longer than it may."""
        how = next(words for least, words in _WORDS if self.probability >= least)
        needs = f"it needs about {fmt.interval(expected, fmt.duration)}, and has {fmt.duration(self.limit)}"
        fit = self.time_fit
        reach = "" if fit is None or fit.longest is None else f"; {fmt.longest_fit(fit)}"
        return f"this run {how} {_MISSES[self.source]} ({fmt.chance(self.probability)}): {needs}{reach}"


def find_overruns(
    limits: Mapping[str, float], forecast: Forecast | None, used: Mapping[str, float | None], threshold: float
) -> list[Overrun]:
    """Return the limits that are exceeded with a probability of ``threshold`` or more.

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


class BudgetVerdict(StrEnum):
    """The prospect of a budget, on the latest forecast."""

    EXCEEDED = "over its limit"
    LIKELY_EXCEEDED = "likely over its limit"
    OPEN = "may exceed its limit"
    LIKELY_KEPT = "within its limit"


def budget_verdicts(
    limits: Mapping[str, float], forecast: Forecast | None, used: Mapping[str, float | None], threshold: float
) -> Mapping[str, BudgetVerdict]:
    """Return the prospect of each limit of which anything is known, by quantity; see ``find_overruns``."""
    verdicts = {}
    for quantity, limit in limits.items():
        expected: Estimate | None = getattr(forecast, quantity) if forecast is not None else None
        if (used.get(quantity) or 0.0) > limit:
            verdicts[quantity] = BudgetVerdict.EXCEEDED
        elif expected is not None:
            probability = expected.probability_above(limit)
            is_likely, is_unlikely = probability >= threshold, probability <= 1 - threshold
            likely = BudgetVerdict.LIKELY_EXCEEDED if is_likely else BudgetVerdict.OPEN
            verdicts[quantity] = BudgetVerdict.LIKELY_KEPT if is_unlikely and not is_likely else likely
    return verdicts


def is_of_cold_start(forecast: Forecast) -> bool:
    """Return True for a forecast from so little that it may be a cold start."""
    return any(warning.name == WarningCode.FEW for warning in forecast.warnings)


@dataclass(frozen=True, slots=True)
class BudgetActions:
    """The user's own code when a budget is likely to be exceeded: called in the training's thread, between two epochs.

    Attributes:
        on_overrun: takes the overrun, and what it raises ends the training; None: ``stops`` decides.
        save_checkpoint: called before ``BudgetExceeded`` is raised.
        stops: ``BudgetExceeded`` is raised, as the settings say.
    """

    on_overrun: Callable[[Overrun], None] | None = None
    save_checkpoint: Callable[[], object] | None = None
    stops: bool = False

    def __post_init__(self) -> None:
        for name in ("on_overrun", "save_checkpoint"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise UsageError(f"{name} must be a function, not {value!r}")

    def with_settings(self, settings: Settings) -> BudgetActions:
        """Return the same code, with what the settings say of overruns."""
        return replace(self, stops=settings.on_overrun == "stop")

    def act(self, overrun: Overrun) -> None:
        """Call the function, or stop the training; a warning was given when the overrun was found.

        Raises:
            BudgetExceeded: where the training is to stop.
        """
        if self.on_overrun is not None:
            self.on_overrun(overrun)
        elif self.stops:
            if self.save_checkpoint is not None:
                self.save_checkpoint()
            raise BudgetExceeded(str(overrun))
