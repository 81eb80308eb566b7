"""What lies between the batches of a training: evaluations and checkpoints, timed on their own."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from greenlove_tracker.errors import UsageError
from greenlove_tracker.extrapolation.distributions import Mixture
from greenlove_tracker.forecasting import ForecastWarning, TrainingPlan, WarningCode

# An assumption: how far one evaluation or checkpoint may be from the mean of all, relative, where only one was timed.
_ONE_TIMING = 0.3


def between_epochs(
    plan: TrainingPlan, eval_durations_s: Sequence[float], save_durations_s: Sequence[float]
) -> tuple[Mixture | None, list[ForecastWarning]]:
    """The time of all evaluations and checkpoints of the plan together.

    Args:
        plan: says how many there are.
        eval_durations_s: timed evaluations.
        save_durations_s: timed checkpoints.

    Returns:
        None where the plan has none or none was timed, and what is missing.

    Raises:
        UsageError: where a time cannot be one, or the plan does not say how often.
    """
    total, warnings = None, []
    for code, every, count, durations_s in (
        (WarningCode.EVALUATION, "eval_every", plan.n_evaluations, eval_durations_s),
        (WarningCode.CHECKPOINT, "save_every", plan.n_checkpoints, save_durations_s),
    ):
        argument = f"{every.removesuffix('_every')}_durations_s"
        if len(durations_s) and getattr(plan, every) is None:
            raise UsageError(
                f"{argument} without a number of {code.lower()}s: say how often with TrainingPlan({every}=…)"
            )
        for duration_s in durations_s:
            if not (math.isfinite(duration_s) and duration_s > 0):
                raise UsageError(f"{argument} must be positive and finite, not {duration_s!r}")
        if count == 0:
            continue
        warnings += _warnings(code, argument, count, len(durations_s))
        if len(durations_s):
            several = _sum_of(count, durations_s)
            total = several if total is None else total.plus(several)
    return total, warnings


def _sum_of(count: int, durations_s: Sequence[float]) -> Mixture:
    """The sum of ``count`` future ones after n were timed: Student's t with n - 1 degrees of freedom.

    Its variance is s²(count²/n + count): of what is not known of the mean, and of the scatter to come.
    """
    n, mean_s = len(durations_s), float(np.mean(durations_s))
    if n == 1:
        return Mixture.of([(1.0, count * mean_s, count * mean_s * _ONE_TIMING, math.inf)])
    of_mean_s = float(stats.sem(durations_s))
    return Mixture.of([(1.0, count * mean_s, of_mean_s * math.sqrt(count**2 + n * count), float(n - 1))])


def _warnings(code: WarningCode, argument: str, count: int, n_timed: int) -> list[ForecastWarning]:
    what = code.lower()
    if n_timed == 0:
        message = f"the plan's {count:,} {what}s were not timed: their time is not in this forecast"
        return [code.warning(message, f"time some: extrapolate(…, {argument}=[…])", True)]
    if n_timed == 1:
        message = f"one {what} was timed: how they vary is not known, ±{1.96 * _ONE_TIMING:.0%} is assumed"
        return [code.warning(message, "time two and more")]
    return []
