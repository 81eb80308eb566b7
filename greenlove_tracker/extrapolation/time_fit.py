"""How likely a training is to fit a time limit, and the greatest length that fits with 95% probability.

A running tracker asks this each second, so it imports nothing for it and makes no new forecast.
"""

from __future__ import annotations

import math
from dataclasses import replace

from greenlove_tracker.vocabulary.forecasting import FITS, Estimate, Forecast, Position, TimeFit

_MOST_TIMES = 1e6  # times the planned length; a greater length is not reported


def time_fit(
    forecast: Forecast,
    limit_s: float,
    *,
    passed_s: float = 0.0,
) -> TimeFit:
    """Return the prospect of a training under a time limit; one that has not begun is scaled in proportion.

    Args:
        forecast: the forecast of the whole training.
        limit_s: the limit, from its start.
        passed_s: the time since its start, a lower bound of its duration.
    """
    duration = forecast.duration_s
    position = forecast.position
    plan = forecast.plan
    probability = _probability(duration, limit_s, passed_s)
    if forecast.without_stop is not None:  # the greatest length is one of a training that no rule ends
        fit = time_fit(forecast.without_stop, limit_s, passed_s=passed_s)
        if fit.is_over:
            return fit
        return replace(fit, probability=probability)
    if position is not None:
        fit = run_time_fit(duration, limit_s, position, passed_s=passed_s)
        if len(forecast.phases) > 1:  # units that are not alike
            return replace(fit, longest=None)
        return fit
    if limit_s <= passed_s:
        return TimeFit(limit_s, 0.0, is_over=True)
    if plan is None:
        return TimeFit(limit_s, probability)
    if plan.steps is not None:
        unit = "step"
        planned = plan.steps
    else:
        unit = "epoch"
        planned = plan.epochs or 1
    if (plan.batch_size, plan.epochs) == (1, 1):  # a call over so many items has items alone
        unit = "sample"
        planned = plan.samples or 1
    once_s = forecast.one_off_s.point
    needed_s = duration.quantile(FITS)
    share = math.inf
    if needed_s > once_s:
        share = max(0.0, limit_s - once_s) / (needed_s - once_s)
    longest = None
    if share <= _MOST_TIMES:
        longest = _rounded(math.floor(planned * share), planned)
    return TimeFit(limit_s, probability, longest=longest, unit=unit)


def run_time_fit(
    duration: Estimate,
    limit_s: float,
    position: Position,
    *,
    passed_s: float = 0.0,
) -> TimeFit:
    """Return the prospect of a running training under a time limit, and how far it gets by then.

    Args:
        duration: the forecast of the whole run.
        limit_s: the limit, from its start.
        position: the position of the run when that was forecast.
        passed_s: the time since its start.
    """
    unit = "step" if position.is_in_steps else "epoch"
    done = math.floor(position.done_units)
    if limit_s <= passed_s:
        return TimeFit(limit_s, 0.0, is_over=True, unit=unit, done=done)
    probability = _probability(duration, limit_s, passed_s)
    longest = None
    if probability < FITS:
        left_s = duration.given_more_than(passed_s).quantile(FITS) - position.done_s
        share = 0.0
        if left_s > 0:
            share = min(1.0, max(0.0, limit_s - position.done_s) / left_s)
        reached = position.done_units * (1 - share) + share * position.total_units
        longest = _rounded(math.floor(reached + 1e-9), done)
    return TimeFit(limit_s, probability, longest=longest, unit=unit, done=done)


def _probability(duration: Estimate, limit_s: float, passed_s: float) -> float:
    return 1.0 - duration.given_more_than(passed_s).probability_above(limit_s)


def _rounded(length: int, least: int) -> int:
    """Return a length without meaningless digits, but not below ``least``."""
    unit = 10 ** max(0, len(str(length)) - 3)
    down: int = length // unit * unit
    if down < least <= length:
        return length
    return down
