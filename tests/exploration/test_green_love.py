from __future__ import annotations

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from greenlove_tracker import TrainingPlan, extrapolate
from greenlove_tracker.errors import UsageError
from greenlove_tracker.exploration.green_love import GreenLoveScheduler
from greenlove_tracker.exploration.scheduler import TrialRequest, TrialResult


class Loop:
    """A training on virtual time, and its runner: the clock is looked at after an epoch's start and after each step."""

    def __init__(self, step_s: float, start_s: float = 0.0, cold_s: float = 0.0) -> None:
        self.step_s, self.start_s, self.cold_s = step_s, start_s, cold_s
        self.now_s = 0.0
        self.longest_s = step_s + cold_s + 1e-9
        self.longest_s = max(self.longest_s, start_s)

    def run(self, request: TrialRequest) -> TrialResult:
        deadline_s, durations_s = self.now_s + request.deadline_s, []
        for _ in range(request.epochs):
            if self.now_s >= deadline_s:
                break
            began_s = self.now_s
            self.now_s += self.start_s
            left_s = deadline_s - self.now_s
            done = min(request.batches, max(0, math.ceil((left_s - self.cold_s) / self.step_s), int(left_s > 0)))
            self.now_s += done * self.step_s + (self.cold_s if done else 0.0)
            self.cold_s = 0.0 if done else self.cold_s
            if done < request.batches:
                return TrialResult(request, tuple(durations_s), done, self.now_s - began_s)
            durations_s.append(self.now_s - began_s)
        return TrialResult(request, tuple(durations_s))


def explore(loop: Loop, scheduler: GreenLoveScheduler, bound_s: float = 90.0) -> list[tuple[int | None, str]]:
    while (request := scheduler.next(loop.now_s)) is not None:
        assert 0 < request.deadline_s <= bound_s - loop.now_s
        scheduler.record(loop.run(request))
    return [(t.request.samples, t.request.purpose) for t in scheduler.results]


def after_first(samples: int, epochs_s: tuple[float, ...], n: int = 10**6, **options) -> tuple[int | None, str]:
    """The second request, after a first one that came to these epochs."""
    scheduler = GreenLoveScheduler(n, 10, initial_sample_size=samples, **options)
    first = scheduler.next(0.0)
    assert (first.samples, first.epochs, first.deadline_s) == (min(samples, n), 30, 0.3)
    partial = () if len(epochs_s) == 30 else (1, 0.1)
    scheduler.record(TrialResult(first, epochs_s, *partial))
    second = scheduler.next(0.4)
    return second.samples, second.purpose


def test_an_epoch_that_is_not_done_in_time_leads_to_a_tenth():
    assert after_first(1000, ()) == (100, "search")


def test_some_epochs_done_end_the_search():
    assert after_first(1000, (0.28,)) == (1000, "run")
    assert after_first(1000, (0.03,) * 9) == (9000, "run")
    assert after_first(1000, (0.01,) * 29) == (29_000, "run")


def test_all_epochs_done_lead_to_the_size_that_should_take_the_target():
    assert after_first(1000, (0.001,) * 30) == (333_333, "search")
    assert after_first(1000, (0.001,) * 30, target_benchmark_time=1.0) == (33_333, "search")


def test_no_size_exceeds_the_data_or_falls_below_a_batch():
    assert after_first(1000, (0.001,) * 30, n=5000) == (5000, "search")
    assert after_first(1000, (0.01,) * 29, n=5000) == (5000, "run")
    assert after_first(1000, (0.001,) * 30, n=700) == (700, "run")
    assert after_first(60, ()) == (10, "search")
    assert after_first(10, ()) == (10, "run")


def test_the_sizes_of_a_known_cost():
    loop, scheduler = Loop(2.3e-5), GreenLoveScheduler(10**6, 1)  # 13 epochs of 1000 samples in 0.3 s
    runs = [13_000, 19_500, 29_250, 8666, 5777, 3851, 2567, 1711, 1141]
    assert explore(loop, scheduler) == [(1000, "search"), *((n, "run") for n in runs)]
    trials = scheduler.trials(1)
    assert [t.sample_size for t in trials] == runs
    assert trials[1].total_s < 20 < trials[2].total_s and trials[-1].total_s < 1 < trials[-2].total_s
    assert all(len(t.epoch_durations_s) == 30 for t in trials)
    forecast = extrapolate(trials, TrainingPlan(samples=10**6, batch_size=1, epochs=100), method="green-love")
    assert forecast.duration_s.point == pytest.approx(2300)


def test_its_bound_is_kept_where_the_original_exceeds_it():
    loop, scheduler = Loop(0.29), GreenLoveScheduler(10**6, 1, initial_sample_size=10)
    assert [purpose for _, purpose in explore(loop, scheduler)][-1] == "run"
    loop, scheduler = Loop(4.0), GreenLoveScheduler(10**6, 64)
    explore(loop, scheduler)
    assert 90 <= loop.now_s <= 94
    assert len(scheduler.trials(64)[0].epoch_durations_s) < 30  # cut at the bound, and kept


def test_where_no_run_has_a_whole_epoch_the_search_counts():
    scheduler = GreenLoveScheduler(10**6, 1)
    scheduler.record(TrialResult(scheduler.next(0.0), (0.1, 0.1), 900, 0.1))
    scheduler.record(TrialResult(scheduler.next(89.0), (), 5, 1.0))
    assert scheduler.next(90.0) is None
    assert [(t.sample_size, t.epoch_durations_s) for t in scheduler.trials(1)] == [(1000, (0.1, 0.1))]


def powers(low: float, high: float):
    return st.floats(math.log10(low), math.log10(high)).map(lambda x: 10**x)


@settings(max_examples=500)
@given(
    step_s=powers(1e-6, 40),
    start_s=st.just(0.0) | powers(1e-5, 20),
    cold_s=st.just(0.0) | st.floats(0, 40),
    samples=powers(1, 1e9).map(int),
    batch_size=st.sampled_from([1, 64]),
    bound_s=st.sampled_from([5.0, 90.0]),
)
@example(step_s=1e-6, start_s=0.0, cold_s=0.0, samples=1, batch_size=1, bound_s=90.0)
@example(step_s=40.0, start_s=20.0, cold_s=40.0, samples=10**9, batch_size=64, bound_s=90.0)
def test_its_bound_holds_whatever_the_loop(step_s, start_s, cold_s, samples, batch_size, bound_s):
    loop, scheduler = Loop(step_s, start_s, cold_s), GreenLoveScheduler(samples, batch_size, bound_s=bound_s)
    found = explore(loop, scheduler, bound_s)
    assert loop.now_s <= bound_s + loop.longest_s
    assert len(found) < 60
    assert all(1 <= size <= samples for size, _ in found)
    assert all(min(batch_size, samples) <= t.sample_size <= samples for t in scheduler.trials(batch_size))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: GreenLoveScheduler(0, 64), "samples must be above zero"),
        (lambda: GreenLoveScheduler(10, 64, single_epoch_budget=0.0), "single_epoch_budget must be above zero"),
        (lambda: GreenLoveScheduler(10, 64, exploration_epochs=3), "more than the 3"),
    ],
)
def test_misuse_is_said(wrong, says):
    with pytest.raises(UsageError, match=says):
        wrong()
