"""Ratios between the arms of a comparison, with their intervals, and verdicts on them.

The model: the logarithm of a trial's value is the sum of its block, its arm, a drift in proportion to its position, and
noise with one variance for all arms. Only the drift within blocks can be told from the blocks, so one slope over the
position within a block is fitted. In mirrored blocks (A B B A) it is orthogonal to the arms. The fit is by least
squares; blocks as in Montgomery, Design and Analysis of Experiments, ch. 4; the ratio is exp of a difference of arms,
with Student's t interval. docs/method/comparisons.md shows how often the intervals hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import statsmodels.api as sm

from greenlove_tracker.extrapolation.draws import Array, student_quantile
from greenlove_tracker.vocabulary.comparisons import BASELINE, ArmTrial, Verdict
from greenlove_tracker.vocabulary.forecasting import LEVEL, Estimate, Kind

# The smallest effect worth having: less than 5% is soon outweighed by another machine, driver or grid hour.
WORTH_HAVING = 0.05
POWER = 0.90  # the probability with which a difference is to be found at the budget that is advised

_CLOCK_S = 1e-6  # steps of the times that are compared: no trial is known better than this
_LEAST_DRIFT_FREEDOM = 3  # degrees of freedom that a drift must leave: below, its one costs more than it removes
_MOST_INFLATION = 1.5  # of an arm's variance by the drift: more, and arms that ran one after the other are the drift
_ROUNDS = 40  # until the degrees of freedom and the trials that they need agree
_MOST_FACTOR = 1e4  # on the trials; more is no useful advice
_LEAST_LONGER = 1.5  # an advised budget relative to the one that was too short, at least


@dataclass(frozen=True, slots=True)
class RatioFit:
    """The fit to the trials of a comparison.

    Attributes:
        ratios: the ratio of each arm to the baseline, by name; each interval holds for itself, not for all arms at
            once.
        standard_errors: the standard error of the logarithm of each ratio.
        residual_cv: the coefficient of variation of one trial that is left after arm, block and drift.
        degrees_of_freedom: the degrees of freedom of the residuals.
        n_trials: the trials that had a value.
        n_blocks: their blocks.
        build_cv: as ``fit_ratios`` was given it; it is in the intervals, and not in ``standard_errors``.
    """

    ratios: Mapping[str, Estimate]
    standard_errors: Mapping[str, float]
    residual_cv: float
    degrees_of_freedom: int
    n_trials: int
    n_blocks: int
    build_cv: float


def fit_ratios(
    trials: Sequence[ArmTrial],
    value: Callable[[ArmTrial], float | None],
    *,
    baseline: str = BASELINE,
    build_cv: float = 0.0,
) -> RatioFit | None:
    """Fit the ratio of each arm to the baseline.

    Args:
        trials: the trials of all arms.
        value: a function that returns the value of a trial, above zero, such as its time per sample; a trial without
            one (None) is left out.
        baseline: the name of the arm that the others are divided by.
        build_cv: the coefficient of variation between ratios of arms that are built anew, which trials of one build do
            not show; it is added to the intervals in quadrature.

    Returns:
        The fit; None without a value of the baseline or of any other arm, or if too few are left to show any noise.
        It lacks arms that share no block with the baseline, nor with an arm that does.
    """
    known = [(trial, x) for trial in trials if (x := value(trial)) is not None and math.isfinite(x) and x > 0]
    compared = _connected([trial for trial, _ in known], baseline)
    known = [(trial, x) for trial, x in known if trial.arm in compared]
    timed = [trial for trial, _ in known]
    y = np.log([x for _, x in known])
    design, columns = _design_of(timed, baseline)
    if not columns or len(design) <= design.shape[1]:
        return None
    result = sm.OLS(y, design).fit()
    residuals = np.asarray(result.resid)
    freedom = int(result.df_resid)
    # Identical values are identical within the steps of the clock only. Each end of a time is off by up to half a step.
    least_cv = _CLOCK_S / min(trial.duration_s for trial in timed) / math.sqrt(6)
    residual_cv = max(math.sqrt(float(residuals @ residuals) / freedom), least_cv)
    errors = residual_cv * np.sqrt(np.diag(np.asarray(result.normalized_cov_params)))
    t = student_quantile((1 + LEVEL) / 2, freedom)
    between_builds = build_cv * student_quantile((1 + LEVEL) / 2, math.inf)
    ratios = {}
    standard_errors = {}
    for arm, column in columns.items():
        difference = float(result.params[column])
        error = float(errors[column])
        width = math.hypot(t * error, between_builds)
        lower, point, upper = (math.exp(difference + side * width) for side in (-1, 0, 1))
        ratios[arm] = Estimate(point, lower, upper, LEVEL, "1", Kind.CONFIDENCE)
        standard_errors[arm] = error
    return RatioFit(
        ratios, standard_errors, residual_cv, freedom, len(timed), len({trial.block for trial in timed}), build_cv
    )


def verdict_of(ratio: Estimate | None) -> Verdict:
    """Return the verdict on a ratio. "Too short to tell" is none yet; "no measurable difference" is one."""
    if ratio is None:
        return Verdict.TOO_SHORT
    if ratio.upper < 1:
        return Verdict.SAVES
    if ratio.lower > 1:
        return Verdict.COSTS_MORE
    most = 1 + WORTH_HAVING
    if 1 / most <= ratio.lower and ratio.upper <= most:
        return Verdict.NO_DIFFERENCE
    return Verdict.TOO_SHORT


def budget_needed_s(fit: RatioFit, arm: str, n_trials: int, spent_s: float, *, prepared_s: float = 0.0) -> float:
    """Return the budget at which a difference as large as the one found would be detected in 9 of 10 cases.

    Args:
        fit: the fit to the trials.
        arm: the name of the arm.
        n_trials: the number of trials of all arms.
        spent_s: the time of the trials and of all that goes with them.
        prepared_s: the part of it that is spent once, however many trials follow.

    Returns:
        Seconds, rounded up as a person would write them, such as 300 or 1200; infinite if no budget is advised.
    """
    factor = times_the_trials(fit, arm)
    if math.isinf(factor):
        return factor
    needed_s = prepared_s + (spent_s - prepared_s) / max(1, n_trials) * math.ceil(factor * n_trials)
    return rounded_budget_s(max(needed_s, _LEAST_LONGER * spent_s))


def times_the_trials(fit: RatioFit, arm: str) -> float:
    """Return the factor on the number of trials that would detect the difference found in 9 of 10 cases.

    An interval that excludes no difference in so many cases needs t and z standard errors. A difference below the
    smallest one of interest is not searched for: once that could be found, "no measurable difference" can be said.

    Returns:
        1 or more; infinite if it is more than anybody would run.
    """
    ratio = fit.ratios[arm]
    error = fit.standard_errors[arm]
    effect = max(abs(math.log(ratio.point)), math.log1p(WORTH_HAVING))
    factor = 1.0
    for_power = student_quantile(POWER, math.inf)
    for _ in range(_ROUNDS):
        freedom = fit.degrees_of_freedom + (factor - 1) * (fit.n_trials - fit.n_blocks)
        reach = student_quantile((1 + ratio.level) / 2, freedom) + for_power
        shown = effect**2 - (reach * fit.build_cv) ** 2  # more trials of the same build do not tell the rest
        if shown > 0:
            factor = (factor + max(1.0, (reach * error) ** 2 / shown)) / 2
        else:
            factor = math.inf
    return factor if factor <= _MOST_FACTOR else math.inf


def rounded_budget_s(seconds: float) -> float:
    """Round a budget up as a person writes it: 1, 2, 3, 5, 10, 20, 30 min, then 1, 2, 3, 5, 10, … h."""
    hours = [n * 10.0**power for power in range(15) for n in (1, 2, 3, 5)]
    nice_s = [60.0 * n for n in (1, 2, 3, 5, 10, 20, 30)]
    nice_s += [3600.0 * n for n in hours]
    return next(one_s for one_s in nice_s if one_s >= seconds * (1 - 1e-9))


def _design_of(trials: Sequence[ArmTrial], baseline: str) -> tuple[Array, dict[str, int]]:
    """Return the columns of blocks, arms and, with room for it, the drift; and the column of each arm."""
    arms = [arm for arm in dict.fromkeys(trial.arm for trial in trials) if arm != baseline]
    blocks = sorted({trial.block for trial in trials})
    rows = [[*(t.block == block for block in blocks), *(t.arm == arm for arm in arms)] for t in trials]
    design = np.array(rows, dtype=float)
    of_arms = {arm: len(blocks) + i for i, arm in enumerate(arms)}
    if not arms:
        return design, of_arms
    positions = np.array([float(trial.position) for trial in trials])
    drift = (positions - positions.mean()) / max(1.0, float(np.ptp(positions)))
    with_drift = np.column_stack([design, drift])
    if len(trials) - with_drift.shape[1] < _LEAST_DRIFT_FREEDOM or np.linalg.matrix_rank(with_drift) == design.shape[1]:
        return design, of_arms
    with_it, without = (
        np.diag(np.linalg.inv(x.T @ x))[list(of_arms.values())] for x in (with_drift, design)
    )  # variances of the arms, in those of the noise
    if (with_it / without).max() <= _MOST_INFLATION:
        design = with_drift
    return design, of_arms


def _connected(trials: Sequence[ArmTrial], baseline: str) -> set[str]:
    """Return the arms that share a block with the baseline, or with an arm that does, and so on."""
    by_block: dict[int, set[str]] = {}
    for trial in trials:
        by_block.setdefault(trial.block, set()).add(trial.arm)
    arms = set[str]()
    more = {baseline}
    while more - arms:
        arms |= more
        more = set[str]().union(*(together for together in by_block.values() if together & arms))
    return arms
