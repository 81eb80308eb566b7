"""Ratios of arms: against computations by hand and by SciPy, and in simulation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from greenlove_tracker.extrapolation.ratios import (
    RatioFit,
    budget_needed_s,
    fit_ratios,
    verdict_of,
)
from greenlove_tracker.vocabulary.comparisons import BASELINE, ArmTrial, Verdict
from greenlove_tracker.vocabulary.forecasting import Estimate


def trials_of(arms: Sequence[str], values: Sequence[float | None], block_size: int | None = None) -> list[ArmTrial]:
    """Return trials whose energy is the value, each of 5 s."""
    size = block_size or len(arms)
    return [
        ArmTrial(arm, i // size, i, 5.0 * i, 5.0, 1, energy_kwh=value)
        for i, (arm, value) in enumerate(zip(arms, values, strict=True))
    ]


def fitted(trials: Sequence[ArmTrial], **arguments: object) -> RatioFit:
    fit = fit_ratios(trials, lambda trial: trial.energy_kwh, **arguments)  # type: ignore[arg-type]
    assert fit is not None
    return fit


def mirrored(n_arms: int, n_blocks: int) -> list[str]:
    """Return arms in blocks of one trial each, of which each second one mirrors the one before."""
    arms = [BASELINE, *(f"arm{i}" for i in range(1, n_arms + 1))]
    orders = []
    for pair in range(n_blocks):
        order = arms[pair // 2 % len(arms) :] + arms[: pair // 2 % len(arms)]
        orders += order[::-1] if pair % 2 else order
    return orders


def simulated(
    rng: np.random.Generator, effect: float, cv: float, n_arms: int, n_blocks: int, drift: float = 0.0
) -> list[ArmTrial]:
    arms = mirrored(n_arms, n_blocks)
    level = rng.normal(0, 0.05, n_blocks).repeat(n_arms + 1)
    logs = level + rng.normal(0, cv, len(arms)) + drift * np.linspace(0, 1, len(arms))
    logs += [effect if arm == "arm1" else 0.0 for arm in arms]
    return trials_of(arms, np.exp(logs).tolist(), n_arms + 1)


def test_two_runs_an_arm_give_students_interval() -> None:
    a, b = [279.398, 279.420, 279.948], [236.845, 236.858, 236.871]
    fit = fitted(trials_of([BASELINE] * 3 + ["b"] * 3, a + b))
    found = stats.ttest_ind(np.log(b), np.log(a)).confidence_interval(0.95)
    ratio = fit.ratios["b"]
    assert ratio.point == pytest.approx(math.exp(np.log(b).mean() - np.log(a).mean()), rel=1e-12)
    assert (ratio.lower, ratio.upper) == pytest.approx((math.exp(found.low), math.exp(found.high)), rel=1e-9)
    assert (ratio.level, ratio.unit, ratio.kind) == (0.95, "1", "confidence")
    assert fit.degrees_of_freedom == 4


def test_blocks_of_pairs_give_the_paired_interval() -> None:
    a, b = [1.00, 1.21, 0.94, 1.10], [0.93, 1.10, 0.90, 1.00]
    fit = fitted(trials_of([BASELINE, "b"] * 4, [x for pair in zip(a, b, strict=True) for x in pair], 2))
    logs = np.log(b) - np.log(a)
    half = stats.t.ppf(0.975, 3) * logs.std(ddof=1) / 2
    ends = math.exp(logs.mean() - half), math.exp(logs.mean() + half)
    assert (fit.ratios["b"].lower, fit.ratios["b"].upper) == pytest.approx(ends, rel=1e-9)
    assert fit.residual_cv == pytest.approx(logs.std(ddof=1) / math.sqrt(2))


def test_a_drift_falls_on_no_arm_of_mirrored_blocks() -> None:
    arms = mirrored(1, 6)
    values = [(0.8 if arm == "arm1" else 1.0) * math.exp(0.02 * i) for i, arm in enumerate(arms)]
    fit = fitted(trials_of(arms, values, 2))
    assert fit.ratios["arm1"].point == pytest.approx(0.8, rel=1e-9)
    assert fit.residual_cv < 1e-6
    assert fit.degrees_of_freedom == 12 - 6 - 1 - 1


def test_arms_one_after_the_other_are_no_drift() -> None:
    values = [1.0, 1.01, 0.99, 1.0, 0.8, 0.81, 0.79, 0.8]
    fit = fitted(trials_of([BASELINE] * 4 + ["b"] * 4, values, 8))
    assert fit.degrees_of_freedom == 8 - 2
    assert fit.ratios["b"].upper < 0.85


def test_what_cannot_be_fitted_is_not() -> None:
    def value(trial: ArmTrial) -> float | None:
        return trial.energy_kwh

    assert fit_ratios([], value) is None
    assert fit_ratios(trials_of(["b", "b", "c"], [1.0, 2.0, 3.0]), value) is None  # no baseline
    assert fit_ratios(trials_of([BASELINE] * 3, [1.0, 2.0, 3.0]), value) is None  # nothing else
    assert fit_ratios(trials_of([BASELINE, "b"], [1.0, 2.0]), value) is None  # no noise to be seen
    assert fit_ratios(trials_of([BASELINE, "b"] * 2, [1.0, None, 2.0, None]), value) is None
    assert fit_ratios(trials_of([BASELINE, "b"] * 2, [1.0, -1.0, 2.0, math.nan]), value) is None
    fit = fit_ratios(trials_of([BASELINE, "b", "b"], [1.0, 2.0, 2.1]), value)
    assert fit is not None
    assert fit.degrees_of_freedom == 1


def test_an_arm_that_shares_no_block_with_the_baseline_is_left_out() -> None:
    trials = trials_of([BASELINE, "b"] * 3 + ["c", "d"] * 3, [1.0, 0.8, 1.1, 0.9, 1.0, 0.8, *[2.0, 1.0] * 3], 2)
    assert set(fitted(trials).ratios) == {"b"}
    through_b = [*trials, ArmTrial("b", 6, 12, 60.0, 5.0, 1, energy_kwh=1.0), trials[6]]
    through_b[-1] = ArmTrial("c", 6, 13, 65.0, 5.0, 1, energy_kwh=2.0)
    assert set(fitted(through_b).ratios) == {"b", "c", "d"}


def test_identical_values_are_not_known_better_than_the_clock() -> None:
    fit = fitted(trials_of(mirrored(1, 4), [2.0] * 8, 2))
    ratio = fit.ratios["arm1"]
    assert ratio.point == pytest.approx(1.0)
    assert 1e-8 < ratio.upper - ratio.lower < 1e-5
    assert verdict_of(ratio) is Verdict.NO_DIFFERENCE


@pytest.mark.slow_cases
@pytest.mark.parametrize("n_arms", [1, 4])
@pytest.mark.parametrize("drift", [0.0, 0.3])
def test_intervals_of_equal_arms_contain_1_as_often_as_they_say(n_arms: int, drift: float) -> None:
    rng = np.random.default_rng(17)
    n = 500
    n_blocks = 10 if n_arms == 1 else 4
    fits = [fitted(simulated(rng, 0.0, 0.03, n_arms, n_blocks, drift)) for _ in range(n)]
    held = sum(fit.ratios["arm1"].lower <= 1 <= fit.ratios["arm1"].upper for fit in fits)
    assert stats.binom(n, 0.95).ppf(0.001) <= held <= stats.binom(n, 0.95).ppf(0.999)


def ratio(lower: float, upper: float) -> Estimate:
    return Estimate(math.sqrt(lower * upper), lower, upper, 0.95, "1", "confidence")


@pytest.mark.parametrize(
    ("lower", "upper", "verdict"),
    [
        (0.80, 0.90, Verdict.SAVES),
        (0.98, 0.99, Verdict.SAVES),
        (1.01, 1.30, Verdict.COSTS_MORE),
        (0.97, 1.03, Verdict.NO_DIFFERENCE),
        (0.90, 1.03, Verdict.TOO_SHORT),
        (0.97, 1.06, Verdict.TOO_SHORT),
    ],
)
def test_verdicts(lower: float, upper: float, verdict: Verdict) -> None:
    assert verdict_of(ratio(lower, upper)) is verdict


def test_the_advised_budget_finds_the_difference_in_nine_of_ten() -> None:
    fit = fitted(simulated(np.random.default_rng(8), -0.05, 0.06, 1, 4))
    assert verdict_of(fit.ratios["arm1"]) is Verdict.TOO_SHORT
    budget_s = budget_needed_s(fit, "arm1", 8, 60.0)
    effect = max(abs(math.log(fit.ratios["arm1"].point)), math.log(1.05))

    def power(budget_s: float) -> float:
        n_blocks = int(budget_s / 15.0)  # of two trials, 7.5 s each
        t, shift = stats.t.ppf(0.975, n_blocks - 2), effect / (fit.residual_cv * math.sqrt(2 / n_blocks))
        return float(stats.nct.sf(t, n_blocks - 2, shift))

    assert power(budget_s) >= 0.9
    assert power(budget_s / 2.5) < 0.9  # rounding up is a factor of 2 at most
