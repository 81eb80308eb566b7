from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from greenlove_tracker import Estimate, TrainingPlan, extrapolate
from greenlove_tracker.exploration.adaptive import ExplorationScheduler, TrialLimits, TrialRequest, TrialResult
from greenlove_tracker.exploration.estimator import short_training_advice

BATCH = 64
MOST_TRIALS = 24


@dataclass
class Loop:
    """A training on virtual time, and its runner: the clock is looked at after a loader's start and after each step."""

    step_s: float
    start_s: float = 0.0  # of an epoch
    cold_s: float = 0.0
    run_noise: float = 0.0
    noise: float = 0.0
    seed: int = 0
    now_s: float = 0.0
    longest_s: float = 0.0  # indivisible call so far
    is_cold: bool = True
    rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def call(self, duration_s: float, times: int = 1) -> None:
        self.now_s += duration_s * times
        self.longest_s = max(self.longest_s, duration_s if times else 0.0)

    def factor(self, noise: float) -> float:
        return max(0.05, 1 + noise * self.rng.standard_normal())

    def run(self, request: TrialRequest) -> TrialResult:
        deadline_s = self.now_s + request.deadline_s
        run, durations_s = self.factor(self.run_noise), []
        for _ in range(request.epochs):
            if self.now_s >= deadline_s:
                break
            factor, began_s = run * self.factor(self.noise), self.now_s
            self.call(self.start_s * factor)
            done = self._steps(request.batches, self.step_s * factor, deadline_s)
            if done < request.batches:
                timed_s = math.fsum(durations_s) + self.now_s - began_s
                if not durations_s:
                    return TrialResult(request, done, (timed_s,) if done else (), timed_s, True)
                return TrialResult(request, request.batches, tuple(durations_s), timed_s, True)
            durations_s.append(self.now_s - began_s)
        return TrialResult(request, request.batches, tuple(durations_s), math.fsum(durations_s), False)

    def _steps(self, batches: int, step_s: float, deadline_s: float) -> int:
        done = 0
        if self.is_cold and self.now_s < deadline_s:
            self.call(self.cold_s + step_s)
            self.is_cold, done = False, 1
        further = max(0, min(batches - done, math.ceil((deadline_s - self.now_s) / step_s)))
        self.call(step_s, further)
        return done + further

    def whole_s(self, batches: int, epochs: int) -> float:
        within = 1 + self.noise * self.rng.standard_normal() / math.sqrt(epochs)
        return epochs * (self.start_s + self.step_s * batches) * self.factor(self.run_noise) * within


def explore(
    loop: Loop, batches: int, epochs: int, width: float | None = None, prepared_s: float = 0.0, **options
) -> ExplorationScheduler:
    scheduler = ExplorationScheduler(batches, epochs, **options)
    loop.now_s += prepared_s
    while (request := scheduler.next(loop.now_s, relative_width=width)) is not None:
        assert 1 <= request.batches <= batches and request.epochs >= 1
        assert 0 < request.deadline_s <= scheduler.budget_s - (loop.now_s if scheduler.results else 0.0)
        assert len(scheduler.results) < MOST_TRIALS
        scheduler.results.append(loop.run(request))
    return scheduler


def test_trials_keep_to_their_limits():
    """Of 0.1 s a batch, epochs of 1 s at most have ten; the first longer one has 500 // 100 of them."""
    limits = TrialLimits(first_samples=500, epoch_s=1.0, epochs=3)
    limited = explore(Loop(step_s=0.1), 10_000, 100, batch_size=100, limits=limits)
    free = explore(Loop(step_s=0.1), 10_000, 100, batch_size=100)
    stretch = next(t.request for t in limited.results if t.request.purpose == "stretch")
    assert stretch.batches == 5
    trials = [t.request for t in limited.results if t.request.purpose == "trial"]
    assert 9 <= max(t.batches for t in trials) <= 10 and max(t.epochs for t in trials) <= 3
    assert max(sizes(free)) > 10


def sizes(scheduler: ExplorationScheduler) -> list[int]:
    return [t.request.batches for t in scheduler.results if t.request.purpose not in ("probe", "stretch")]


def whole_s(scheduler: ExplorationScheduler) -> float:
    return scheduler.total_epochs * scheduler.cost.epoch_s(scheduler.batches_per_epoch)


def advice(whole_s: float, upper_s: float | None = None) -> str | None:
    return short_training_advice(Estimate(whole_s, whole_s, upper_s or whole_s, 0.95, "s"), 30.0)


def powers(low: float, high: float):
    return st.floats(math.log10(low), math.log10(high)).map(lambda x: 10**x)


loops = st.builds(
    Loop,
    step_s=powers(1e-6, 40),
    start_s=st.just(0.0) | powers(1e-5, 10),
    cold_s=st.just(0.0) | st.floats(0, 40),
    run_noise=st.sampled_from([0.0, 0.01, 0.3]),
    noise=st.sampled_from([0.0, 0.02, 0.5]),
    seed=st.integers(0, 1000),
)
data = {
    "samples": powers(1, 1e9).map(int),
    "batch_size": st.sampled_from([1, 64]),
    "epochs": st.sampled_from([1, 3, 100, 10_000]),
    "budget_s": st.sampled_from([0.5, 5.0, 30.0, 300.0]),
}


@pytest.mark.slow
@settings(max_examples=500)
@given(loop=loops, **data)
@example(loop=Loop(40.0), samples=10**6, batch_size=64, epochs=3, budget_s=30.0)
@example(loop=Loop(1e-6), samples=10**9, batch_size=1, epochs=10_000, budget_s=30.0)
@example(loop=Loop(0.01, cold_s=40.0), samples=10**6, batch_size=64, epochs=3, budget_s=30.0)
def test_the_budget_holds_whatever_the_loop(loop, samples, batch_size, epochs, budget_s):
    scheduler = explore(loop, -(-samples // batch_size), epochs, budget_s=budget_s)
    assert loop.now_s <= budget_s + loop.longest_s + 1e-9
    assert all(t.batches <= -(-samples // batch_size) for t in scheduler.trials(batch_size))


@pytest.mark.slow
@settings(max_examples=300)
@given(
    step_s=powers(1e-6, 0.3),
    start_s=st.just(0.0) | powers(1e-5, 10),
    cold_s=st.floats(0, 5),
    run_noise=st.sampled_from([0.0, 0.01]),
    noise=st.sampled_from([0.0, 0.02]),
    batches=powers(4, 1e9).map(int),
    seed=st.integers(0, 1000),
)
def test_four_sizes_in_no_order_of_size_whenever_the_budget_and_the_data_allow(
    step_s, start_s, cold_s, run_noise, noise, batches, seed
):
    loop = Loop(step_s, start_s, cold_s, run_noise, noise, seed)
    # Room for a probe, a third for the stretch, and sixty epochs of one batch.
    budget_s = 1.6 * (cold_s + 60 * (start_s + step_s))
    epochs = max(1, math.ceil(10 * budget_s / (start_s + step_s * batches)))
    scheduler = explore(loop, batches, epochs, budget_s=budget_s, seed=seed)
    found = sizes(scheduler)
    assert len(set(found)) >= 4 and found != sorted(found) and found != sorted(found, reverse=True)
    assert 6 <= len(found) <= 9
    assert sum(size <= 1.5 * min(found) for size in found) > 1  # a replicate may be cut back
    assert len({t.batches for t in scheduler.trials(BATCH)}) >= 4


def test_a_plain_loop_is_explored_by_eight_trials_that_fill_the_budget():
    loop = Loop(1e-3, 5e-3, cold_s=1.0)
    scheduler = explore(loop, 10_000, 100)
    assert [t.request.purpose for t in scheduler.results[:3]] == ["probe", "probe", "stretch"]
    assert 26 < loop.now_s <= 30
    found = sizes(scheduler)
    assert len(found) == 8 and found.count(min(found)) == 2 and found.count(max(found)) == 3
    assert max(found) == pytest.approx(10 * min(found), rel=0.02)
    assert {t.request.epochs for t in scheduler.results[3:]} == {6}
    assert scheduler.cost.start_s == pytest.approx(5e-3) and scheduler.cost.batch_s == pytest.approx(1e-3)
    assert scheduler.cold_start_s == pytest.approx(1.0) and advice(whole_s(scheduler)) is None


def test_a_narrow_interval_ends_it_after_six_trials_with_both_extremes_replicated():
    whole = sizes(explore(Loop(1e-3, 5e-3), 10_000, 100))
    found = sizes(explore(Loop(1e-3, 5e-3), 10_000, 100, width=0.09))
    assert 6 <= len(found) < len(whole) == 8
    assert found.count(min(found)) > 1 and found.count(max(found)) > 1
    assert sizes(explore(Loop(1e-3, 5e-3), 10_000, 100, width=0.11)) == whole
    brief = explore(Loop(1e-3, 5e-3), 10_000, 100, width=0.09, budget_s=4.0)
    assert len(sizes(brief)) == 8  # less than five seconds of energy are noise


def test_a_training_of_a_few_budgets_is_explored_in_proportion_and_the_advice_is_to_run_it():
    loop = Loop(1e-3, 5e-3)
    scheduler = explore(loop, 393, 100)
    assert advice(whole_s(scheduler)) == "the whole training takes about 40 s: just run it"
    assert 5 < loop.now_s < 6.5 and len(set(sizes(scheduler))) == 4
    loop = Loop(1e-3, 5e-3)
    assert advice(whole_s(explore(loop, 995, 75))) == "the whole training takes about 1 min 15 s: just run it"
    assert 9 < loop.now_s < 0.16 * 75
    loop = Loop(1e-3, 5e-3)
    explore(loop, 100, 10)
    assert loop.now_s < 0.4 * 1.05


def test_a_long_compilation_leaves_room_for_four_sizes():
    loop = Loop(0.006, cold_s=20.0)
    scheduler = explore(loop, 10_000, 100)
    assert loop.now_s < 30 and len(set(sizes(scheduler))) == 4
    assert scheduler.cold_start_s == pytest.approx(20.0)


@pytest.mark.parametrize("batches", [1, 2, 3, 4])
def test_few_batches_mean_few_sizes(batches):
    scheduler = explore(Loop(0.01), batches, 100_000)
    assert set(sizes(scheduler)) == set(range(1, batches + 1))
    plan = TrainingPlan(samples=batches * BATCH, batch_size=BATCH, epochs=100_000)
    point_s = extrapolate(scheduler.trials(BATCH), plan).duration_s.point
    assert point_s == pytest.approx(1000 * batches, rel=0.2 if batches == 1 else 1e-3)


def test_one_step_that_takes_longer_than_the_budget_is_all_there_is():
    scheduler = explore(Loop(40.0), 100, 3)
    assert [t.epoch_durations_s for t in scheduler.trials(BATCH)] == [(40.0,)]
    assert scheduler.cost is None and scheduler.cold_start_s == 0.0


def test_a_loader_that_does_not_start_within_the_budget_leaves_nothing():
    scheduler = explore(Loop(0.01, start_s=31.0), 100, 3)
    assert scheduler.trials(BATCH) == ()


def test_preparations_that_take_the_whole_budget_leave_the_first_step():
    scheduler = explore(Loop(0.5), 100, 3, prepared_s=31.0, budget_s=30.0)
    assert [t.epoch_durations_s for t in scheduler.trials(BATCH)] == [(0.5,)]


def test_a_loop_that_slows_down_is_cut_back_not_overrun():
    loop = Loop(1e-3, 5e-3)
    scheduler = ExplorationScheduler(10_000, 100)
    while (request := scheduler.next(loop.now_s)) is not None:
        scheduler.results.append(loop.run(request))
        if len(scheduler.results) == 5:
            loop.step_s *= 3  # a neighbour arrives
    assert loop.now_s <= 30 + loop.longest_s
    assert len(set(sizes(scheduler))) >= 4


@pytest.mark.slow
def test_on_virtual_loops_the_forecast_is_near_and_its_interval_honest():
    plan = TrainingPlan(samples=60_000, batch_size=BATCH, epochs=100)
    errors, covered = [], 0
    for seed in range(100):
        loop = Loop(1e-3, 5e-3, run_noise=0.01, seed=seed)
        scheduler = explore(loop, plan.batches_per_epoch, plan.n_epochs, seed=seed)
        assert loop.now_s < 15  # of a training of 94 s
        forecast = extrapolate(scheduler.trials(BATCH), plan).duration_s
        truth_s = loop.whole_s(plan.batches_per_epoch, plan.n_epochs)
        errors.append(abs(forecast.point / truth_s - 1))
        covered += forecast.lower <= truth_s <= forecast.upper
    assert np.median(errors) <= 0.015
    assert covered >= 90
