"""Ratios of what arms of a comparison take, with their intervals, and what these say.

The model: the logarithm of a trial's value is the sum of its block, of its arm, of a drift in proportion to its
position, and of noise with one variance for all arms. Beside the blocks only the drift within them can be told from
them, so that is what is fitted: one slope over the position within a block. In mirrored blocks (A B B A) it is
orthogonal to the arms. Least squares; blocks as in Montgomery, Design and Analysis of Experiments, ch. 4; the ratio is
exp of a difference of arms, and its interval that of Student's t. docs/comparison.md shows how often intervals hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import statsmodels.api as sm
from scipy import special

from greenlove_tracker.comparisons import BASELINE, ArmTrial, Verdict
from greenlove_tracker.extrapolation.distributions import student_quantile
from greenlove_tracker.extrapolation.draws import Array
from greenlove_tracker.forecasting import LEVEL, Estimate, Kind
from greenlove_tracker.format import percent

# The smallest effect worth having: less than 5% is soon outweighed by another machine, driver or grid hour.
WORTH_HAVING = 0.05
POWER = 0.90  # the probability with which a difference is to be found at the budget that is advised

_CLOCK_S = 1e-6  # steps of the times that are compared: no trial is known better than this
_LEAST_DRIFT_FREEDOM = 3  # degrees of freedom that a drift must leave: below, its one costs more than it removes
_MOST_INFLATION = 1.5  # of an arm's variance by the drift: more, and arms that ran one after the other are the drift
_STALL_PROBABILITY = 0.01  # that any trial of an undisturbed comparison is taken for a stall
_LEAST_STALL = math.log(1.1)  # above what is fitted; less is noise, whatever its probability
_MOST_OF_ARM = 0.25  # of an arm's trials
_STALL_BEYOND_OWN = 6.0  # times the largest other residual of its arm: a technique that scatters is no stall
_MOST_STALLS = 0.1  # of the trials: where there are more, they belong to the training
_LEAST_STALL_FREEDOM = 3  # below, no residual stands out
_UNEQUAL_PROBABILITY = 0.01  # that arms of equal noise are said to be of unequal noise
_MOST_FACTOR = 1e4  # of a budget: a longer one is no advice
_LEAST_LONGER = 1.5  # times what was spent: it was too short, even where by the point it was long enough
_NICE = (1.0, 2.0, 3.0, 5.0, 10.0)  # times a power of ten, in minutes or hours: what a person writes


@dataclass(frozen=True, slots=True)
class RatioFit:
    """The fit to the trials of a comparison.

    Attributes:
        ratios: of each arm to the baseline, by name; each interval holds for itself, not for all arms at once.
        standard_errors: of the logarithm of each ratio.
        residual_cv: coefficient of variation of one trial that is left after arm, block and drift.
        degrees_of_freedom: of that.
        n_trials: that had a value.
        n_blocks: of them.
        stalls: positions of trials that lie far from what all others of their arm and block allow, as where the
            machine was busy with something else. Each has a term of its own in the model, so that it counts for no arm.
        notes: on stalls, and on arms whose noise is not the same: whole sentences without a full stop.
    """

    ratios: Mapping[str, Estimate]
    standard_errors: Mapping[str, float]
    residual_cv: float
    degrees_of_freedom: int
    n_trials: int
    n_blocks: int
    stalls: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Design:
    """The columns of the model: blocks, then arms, then drift, then one for each stall."""

    matrix: Array  # shape (n, p), of full rank
    arm_columns: Mapping[str, int]

    @property
    def degrees_of_freedom(self) -> int:
        return len(self.matrix) - len(self.matrix.T)

    def variances_of_arms(self) -> Array:
        """Return the variances of the arms' coefficients, in units of that of the noise."""
        columns = list(self.arm_columns.values())
        return np.asarray(np.diag(np.linalg.inv(self.matrix.T @ self.matrix))[columns])

    def with_column(self, column: Array) -> _Design | None:
        """Return the design with one more column; None where it can be told from the others by nothing."""
        matrix = np.column_stack([self.matrix, column])
        return _Design(matrix, self.arm_columns) if np.linalg.matrix_rank(matrix) == matrix.shape[1] else None


def fit_ratios(
    trials: Sequence[ArmTrial],
    value: Callable[[ArmTrial], float | None],
    *,
    baseline: str = BASELINE,
    level: float = LEVEL,
    may_stall: bool = True,
) -> RatioFit | None:
    """Fit the ratio of each arm to the baseline.

    Args:
        trials: of all arms.
        value: of a trial, above zero, as its time a sample; one without a value (None) is left out.
        baseline: name of the arm that the others are divided by.
        level: of the intervals.
        may_stall: a machine that is busy with something else changes the value, as it does a time or an energy but no
            peak of memory.

    Returns:
        The fit; None without a value of the baseline or of any other arm, or where too few are left to show any noise.
        An arm is missing in it that was in no block with the baseline, nor with an arm that was.
    """
    known = [(trial, x) for trial in trials if (x := value(trial)) is not None and math.isfinite(x) and x > 0]
    compared = _connected([trial for trial, _ in known], baseline)
    known = [(trial, x) for trial, x in known if trial.arm in compared]
    timed = [trial for trial, _ in known]
    design = _design_of(timed, baseline)
    if design is None or design.degrees_of_freedom < 1:
        return None
    y = np.log([x for _, x in known])
    design, stalls = _with_stalls(design, timed, y) if may_stall else (design, list[int]())
    result = sm.OLS(y, design.matrix).fit()
    freedom = design.degrees_of_freedom
    residuals = np.asarray(result.resid)
    # Identical values are identical within the steps of the clock only. Each end of a time is off by up to half a step.
    least_cv = _CLOCK_S / min(trial.duration_s for trial in timed) / math.sqrt(6)
    residual_cv = max(math.sqrt(float(residuals @ residuals) / freedom), least_cv)
    errors = residual_cv * np.sqrt(np.diag(np.asarray(result.normalized_cov_params)))
    t = student_quantile((1 + level) / 2, freedom)
    ratios, standard_errors = {}, {}
    for arm, column in design.arm_columns.items():
        difference, error = float(result.params[column]), float(errors[column])
        lower, point, upper = (math.exp(difference + side * t * error) for side in (-1, 0, 1))
        ratios[arm] = Estimate(point, lower, upper, level, "1", Kind.CONFIDENCE)
        standard_errors[arm] = error
    stall_notes = _stall_notes([timed[at] for at in stalls], result.params[-len(stalls) :])
    return RatioFit(
        ratios,
        standard_errors,
        residual_cv,
        freedom,
        len(timed),
        len({trial.block for trial in timed}),
        tuple(timed[at].position for at in stalls),
        (*stall_notes, *_noise_notes(timed, y, design)),
    )


def verdict_of(ratio: Estimate | None, worth_having: float = WORTH_HAVING) -> Verdict:
    """Return what a ratio says; "no measurable difference" is an answer, "too short to tell" is none yet.

    Args:
        ratio: to the baseline; None where nothing could be fitted.
        worth_having: the smallest effect of interest, as a share.
    """
    if ratio is None:
        return Verdict.TOO_SHORT
    if ratio.upper < 1:
        return Verdict.SAVES
    if ratio.lower > 1:
        return Verdict.COSTS_MORE
    if 1 / (1 + worth_having) <= ratio.lower and ratio.upper <= 1 + worth_having:
        return Verdict.NO_DIFFERENCE
    return Verdict.TOO_SHORT


def budget_needed_s(fit: RatioFit, arm: str, n_trials: int, spent_s: float, *, prepared_s: float = 0.0) -> float:
    """Return the budget at which a difference as large as the one found would be told from none in 9 of 10 cases.

    Args:
        fit: of the trials.
        arm: its name.
        n_trials: of all arms together.
        spent_s: on them and on all that goes with them.
        prepared_s: the part of it that is spent once, however many trials follow.

    Returns:
        Seconds, rounded up to what a person would write, as 300 or 1200; infinite where no budget is advised.
    """
    factor = times_the_trials(fit, arm)
    if math.isinf(factor):
        return factor
    per_trial_s = (spent_s - prepared_s) / max(1, n_trials)
    needed_s = prepared_s + per_trial_s * math.ceil(factor * n_trials)
    return rounded_budget_s(max(needed_s, _LEAST_LONGER * spent_s))


def times_the_trials(fit: RatioFit, arm: str) -> float:
    """Return how many times the trials would tell a difference as large as the one found, in 9 of 10 cases.

    By the noncentral t distribution (Johnson, Kotz and Balakrishnan, Continuous Univariate Distributions 2, ch. 31)
    with the noise that was found. A difference smaller than the smallest one of interest is not looked for: where
    that could be found, "no measurable difference" can be said.

    Returns:
        1 or more; infinite where it is more than anybody would run.
    """
    ratio, error = fit.ratios[arm], fit.standard_errors[arm]
    effect = max(abs(math.log(ratio.point)), math.log1p(WORTH_HAVING))

    def power(factor: float) -> float:
        """Return the probability that the effect is found with so many times the trials."""
        freedom = fit.degrees_of_freedom + (factor - 1) * (fit.n_trials - fit.n_blocks)
        return power_of(effect, error / math.sqrt(factor), freedom, ratio.level)

    low, high = 1.0, 1.0
    while power(high) < POWER:
        low, high = high, high * 2
        if high > _MOST_FACTOR:
            return math.inf
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if power(middle) < POWER else (low, middle)
    return high


def power_of(effect: float, error: float, freedom: float, level: float = LEVEL) -> float:
    """Return the probability that an interval excludes 0, by the noncentral t distribution.

    Args:
        effect: true difference of logarithms.
        error: its standard error.
        freedom: degrees of freedom of that.
        level: of the interval.
    """
    t, shift = student_quantile((1 + level) / 2, freedom), abs(effect) / error
    if shift > 30:  # beyond what the function computes, and beyond doubt unless t itself is as large
        return float(special.ndtr(shift - t))
    return float(1.0 - special.nctdtr(freedom, shift, t) + special.nctdtr(freedom, shift, -t))


def rounded_budget_s(seconds: float) -> float:
    """Return a budget no shorter, as a person writes it: 1, 2, 3, 5, 10, 20, 30 minutes, 1, 2, 3, 5, 10 hours …."""
    minutes = seconds / 60
    if minutes <= 30:
        return 60 * _rounded_up(max(1.0, minutes))
    return 3600 * _rounded_up(max(1.0, minutes / 60))


def _rounded_up(number: float) -> float:
    power = 10.0 ** math.floor(math.log10(number))
    return next(nice * power for nice in _NICE if nice * power >= number * (1 - 1e-9))


def _design_of(trials: Sequence[ArmTrial], baseline: str) -> _Design | None:
    """Return blocks, arms, and the drift if there is room for it; None where there is no arm beside the baseline."""
    arms = [arm for arm in dict.fromkeys(trial.arm for trial in trials) if arm != baseline]
    if not arms:
        return None
    blocks = sorted({trial.block for trial in trials})
    columns = [[float(trial.block == block) for trial in trials] for block in blocks]
    columns += [[float(trial.arm == arm) for trial in trials] for arm in arms]
    design = _Design(np.array(columns).T, {arm: len(blocks) + i for i, arm in enumerate(arms)})
    positions = np.array([float(trial.position) for trial in trials])
    drift = (positions - positions.mean()) / max(1.0, float(np.ptp(positions)))
    with_drift = design.with_column(drift)
    if with_drift is None or with_drift.degrees_of_freedom < _LEAST_DRIFT_FREEDOM:
        return design
    inflation = with_drift.variances_of_arms() / design.variances_of_arms()
    return with_drift if inflation.max() <= _MOST_INFLATION else design


def _connected(trials: Sequence[ArmTrial], baseline: str) -> set[str]:
    """Return the arms that share a block with the baseline, or with an arm that does, and so on."""
    by_block: dict[int, set[str]] = {}
    for trial in trials:
        by_block.setdefault(trial.block, set()).add(trial.arm)
    arms, more = set[str](), {baseline}
    while more - arms:
        arms |= more
        more = set[str]().union(*(together for together in by_block.values() if together & arms))
    return arms


def _with_stalls(design: _Design, timed: Sequence[ArmTrial], y: Array) -> tuple[_Design, list[int]]:
    """Return the design with a column for each trial that lies far from all others, and the indices of these.

    The outlier test of the mean-shift model: externally studentised residuals with Bonferroni's bound (Cook and
    Weisberg, Residuals and Influence in Regression, 1982, §2.2.2). As many as the last test that is passed says, since
    one stall may hide another (Rosner, Technometrics 25, 1983).
    """
    found: tuple[_Design, list[int]] = design, []
    stalls: list[int] = []
    while len(stalls) < max(1, int(_MOST_STALLS * len(y))) and design.degrees_of_freedom > _LEAST_STALL_FREEDOM:
        residuals, left = _residuals(design, y)
        freedom = design.degrees_of_freedom - 1
        free = left > 1e-9  # a trial that the model can only repeat has no residual
        shifts = np.where(free, residuals / np.where(free, left, 1.0), 0.0)
        size = np.abs(shifts) * np.sqrt(left)
        # In a block of two both are of one size: it is the slower one that something has held up.
        at = int(np.argmax(np.where(shifts > 0, size * (1 + 1e-6), size)))
        others = max((float(residuals @ residuals) - shifts[at] * residuals[at]) / freedom, 1e-18)
        wider = design.with_column(np.eye(len(y))[at])
        if wider is None:
            break
        design = wider
        stalls.append(at)
        studentised = abs(shifts[at]) * math.sqrt(left[at] / others)
        if 2 * special.stdtr(freedom, -studentised) * (len(y) - len(stalls) + 1) >= _STALL_PROBABILITY:
            continue
        if _stand_out(design, stalls, timed, y):
            found = design, list(stalls)
    return found


def _stand_out(design: _Design, stalls: Sequence[int], timed: Sequence[ArmTrial], y: Array) -> bool:
    """Return True where each stall is large, and far from the other trials of its own arm, of which it is one of few.

    An arm that scatters by itself keeps all of its trials.
    """
    shifts = np.abs(np.linalg.lstsq(design.matrix, y, rcond=None)[0][-len(stalls) :])
    residuals = np.abs(_residuals(design, y)[0])
    for at, shift in zip(stalls, shifts, strict=True):
        own = [i for i, trial in enumerate(timed) if trial.arm == timed[at].arm]
        n_stalls = len(set(own) & set(stalls))
        if n_stalls > _MOST_OF_ARM * len(own) or shift < max(_LEAST_STALL, _STALL_BEYOND_OWN * residuals[own].max()):
            return False
    return True


def _residuals(design: _Design, y: Array) -> tuple[Array, Array]:
    """Return the residuals, and the share of its noise that is left in each (1 - leverage)."""
    q, _ = np.linalg.qr(design.matrix)
    return y - q @ (q.T @ y), np.maximum(0.0, 1.0 - (q**2).sum(axis=1))


def _stall_notes(stalled: Sequence[ArmTrial], shifts: Sequence[float]) -> list[str]:
    """Say which trials were taken for stalls of the machine."""
    more = "took far more than the others beside it: the machine was busy with something else, and it is not counted"
    less = "took far less than the others beside it, and is not counted"
    return [
        f"Trial {trial.position + 1} ({trial.arm}) {more if shift > 0 else less}"
        for trial, shift in zip(stalled, shifts, strict=False)
    ]


def _noise_notes(trials: Sequence[ArmTrial], y: Array, design: _Design) -> list[str]:
    """Say of which arm the trials scatter more than those of the others, by an F test of the residuals.

    With two arms of equally many trials the pooled noise is right whichever of them is noisier.
    """
    arms = sorted({trial.arm for trial in trials})
    if len(arms) < 3:
        return []
    residuals, left = _residuals(design, y)
    notes = []
    for arm in arms:
        of_arm = np.array([trial.arm == arm for trial in trials])
        freedom, others = float(left[of_arm].sum()), float(left[~of_arm].sum())
        variance = float((residuals[of_arm] ** 2).sum()) / max(freedom, 1e-9)
        variance_others = float((residuals[~of_arm] ** 2).sum()) / max(others, 1e-9)
        ratio = variance / max(variance_others, 1e-300)
        if freedom > 0 and others > 0 and special.fdtrc(freedom, others, ratio) < _UNEQUAL_PROBABILITY / len(arms):
            notes.append(
                f"The trials of {arm} scatter more than those of the others "
                f"({percent(math.sqrt(variance), 1)} against {percent(math.sqrt(variance_others), 1)}): what is said "
                "of it is less certain than its interval, and the others are more certain than theirs"
            )
    return notes
