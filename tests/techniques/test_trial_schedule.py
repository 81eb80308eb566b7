"""The order and the length of a comparison's trials, and what fits of them find, all in virtual time."""

from __future__ import annotations

import math
import random

import pytest

from greenlove_tracker.extrapolation.ratios import fit_ratios
from greenlove_tracker.techniques.trial_schedule import ArmCost, TrialSchedule, budget_for
from greenlove_tracker.vocabulary.comparisons import BASELINE, ArmTrial


def simulated(budget_s, arms, *, seed, noise=0.03, drift=0.0, hiccup=0.02, untimed_s=0.15):
    """The trials of a comparison whose arms take the given times a sample, and the time that it took."""
    dice = random.Random(seed)
    schedule, now_s, trials = TrialSchedule(seed), 0.0, []
    costs = {name: ArmCost(s * math.exp(dice.gauss(0, 0.1)), 64, untimed_s) for name, s in arms.items()}
    while (plan := schedule.next_block(list(costs.values()), budget_s - now_s)) is not None:
        block, machine = schedule.n_blocks, dice.gauss(0, hiccup)
        for name in schedule.order(list(arms)):
            samples = -(-plan.samples // 64) * 64
            steady_s = samples * arms[name] * math.exp(drift * now_s / budget_s + machine)
            duration_s = steady_s * math.exp(dice.gauss(0, noise * math.sqrt(5 / max(steady_s, 0.1))))
            trials.append(ArmTrial(name, block, len(trials), now_s, duration_s, samples))
            now_s += untimed_s + duration_s
            costs[name] = ArmCost(duration_s / samples, 64, untimed_s)
    return trials, now_s


def s_per_sample(trial):
    return trial.duration_s / trial.samples


def test_each_block_has_every_arm_once_and_pairs_of_blocks_mirror_each_other():
    schedule = TrialSchedule(3)
    orders = [schedule.order(["a", "b", "c", "d"]) for _ in range(8)]
    assert all(sorted(order) == ["a", "b", "c", "d"] for order in orders)
    assert all(orders[i + 1] == orders[i][::-1] for i in (0, 2, 4, 6))
    assert len({orders[i] for i in (0, 2, 4, 6)}) > 1
    assert {TrialSchedule(seed).order(["a", "b"]) for seed in range(20)} == {("a", "b"), ("b", "a")}


def test_an_arm_that_fails_leaves_the_mirrored_order_of_the_others():
    schedule = TrialSchedule(0)
    first = schedule.order(["a", "b", "c"])
    assert schedule.order(["a", "c"]) == tuple(name for name in reversed(first) if name != "b")


def test_trials_of_the_fastest_arm_take_over_five_seconds_and_all_have_as_many_samples():
    trials, _ = simulated(120, {BASELINE: 1e-3, "a": 0.8e-3}, seed=1)
    fastest = [t.duration_s for t in trials if t.arm == "a"]
    assert min(fastest) > 5.0 and max(fastest[1:]) < 6.0
    by_block = {}
    for trial in trials:
        by_block.setdefault(trial.block, set()).add(trial.samples)
    assert len(by_block) >= 8 and all(len(samples) == 1 for samples in by_block.values())


def test_a_small_budget_gets_short_trials_in_many_blocks_and_a_tiny_one_none():
    trials, spent_s = simulated(15, {BASELINE: 1e-3, "a": 1e-3}, seed=1, untimed_s=0.02)
    assert max(t.block for t in trials) == 9 and 13 <= spent_s <= 15
    assert all(0.5 <= t.duration_s < 1.2 for t in trials)
    costs = [ArmCost(1.0, 64), ArmCost(1.0, 64)]
    assert TrialSchedule(0).next_block(costs, 100.0) is None
    assert TrialSchedule(0).next_block(costs, budget_for(costs, 0.0)) is not None


@pytest.mark.parametrize("budget_s", [30.0, 49.0, 60.0])
def test_a_budget_too_small_for_energy_is_used_up(budget_s):
    arms = {BASELINE: 1e-3, "faster": 0.85e-3, "slower": 1.6e-3}  # as examples/compare_digits.py
    for seed in range(20):
        trials, spent_s = simulated(budget_s, arms, seed=seed, untimed_s=0.05)
        assert max(t.block for t in trials) >= 7 or min(t.duration_s for t in trials) > 5
        assert spent_s > 0.85 * budget_s


@pytest.mark.parametrize("budget_s", [1.0, 7.0, 30.0, 120.0, 600.0])
@pytest.mark.parametrize("sample_s", [1e-5, 1e-3, 0.05])
@pytest.mark.parametrize("n_arms", [1, 4])
def test_the_budget_is_kept_up_to_one_block_of_noise(budget_s, sample_s, n_arms):
    arms = {BASELINE: sample_s, **{f"a{i}": sample_s * (1 + 0.2 * i) for i in range(n_arms)}}
    trials, spent_s = simulated(budget_s, arms, seed=5)
    longest_s = max((t.duration_s for t in trials), default=0.0)
    assert spent_s <= budget_s + longest_s
    blocks = [t.block for t in trials]
    assert all(blocks.count(block) == n_arms + 1 for block in set(blocks))


@pytest.mark.slow
def test_intervals_of_equal_arms_contain_one_as_often_as_they_say():
    n, held = 2000, 0
    for seed in range(n):
        trials, _ = simulated(60, {BASELINE: 1e-3, "same": 1e-3}, seed=seed, drift=0.1)
        fit = fit_ratios(trials, s_per_sample)
        assert fit is not None
        held += fit.ratios["same"].lower <= 1 <= fit.ratios["same"].upper
    assert 0.93 <= held / n <= 0.97
