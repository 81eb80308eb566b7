from __future__ import annotations

import itertools
import math
import random

import pytest

from greenlove_tracker import TrainingPlan, Trial, extrapolate
from greenlove_tracker.extrapolation.live import forecast_run
from greenlove_tracker.extrapolation.time_fit import run_time_fit, time_fit
from greenlove_tracker.vocabulary.forecasting import Block, Estimate, Position, Progress

_UNITS = {"epoch": "epochs", "step": "steps", "sample": "samples"}


def trials(seed: int = 1) -> list[Trial]:
    """Trials of 0.1 s an epoch and 10 ms a batch, ±1%."""
    noise = random.Random(seed)
    sizes = (10, 20, 40, 80, 10, 40, 80)
    return [Trial(m * 64, 64, tuple((0.1 + 0.01 * m) * noise.gauss(1, 0.01) for _ in range(3))) for m in sizes]


IN_EPOCHS = TrainingPlan(50_000, 64, epochs=100)  # 13 min 13 s [12 min 53 s – 13 min 33 s]
EVALUATED = TrainingPlan(50_000, 64, epochs=100, eval_every=10)
IN_STEPS = TrainingPlan(steps=100_000)


@pytest.mark.slow_cases
@pytest.mark.parametrize("limit_h", [0.02, 0.1, 0.22, 0.23, 5.0, 1000.0])
@pytest.mark.parametrize("plan", [IN_EPOCHS, EVALUATED, IN_STEPS], ids=["epochs", "eval", "steps"])
def test_the_longest_that_fits_is_the_greatest_length_whose_forecast_does(plan, limit_h):
    def forecast_of(other: TrainingPlan):
        seconds = (10.0, 10.5, 9.8) if plan is EVALUATED else ()
        return extrapolate(trials(), other, eval_durations_s=seconds)

    forecast, limit_s = forecast_of(plan), limit_h * 3600
    fit = time_fit(forecast, limit_s)
    assert fit.probability == 1 - forecast.duration_s.probability_above(limit_s) and not fit.is_over
    assert (fit.longest >= (plan.steps or plan.epochs)) == (fit.probability >= 0.95)
    longest = plan.with_length(**{_UNITS[fit.unit]: fit.longest})
    # one length more or less, and one evaluation
    step_s = limit_s / fit.longest + (10.0 if plan is EVALUATED else 4.0)
    assert forecast_of(longest).duration_s.quantile(0.95) == pytest.approx(limit_s, rel=0.02, abs=step_s)


def test_where_not_one_epoch_fits_and_where_any_number_does():
    forecast = extrapolate(trials(), IN_EPOCHS)
    assert time_fit(forecast, 3.0).longest == 0
    endless = time_fit(forecast, 1e11)
    assert endless.longest is None and endless.probability > 0.99


def test_a_limit_that_is_over_is_certain_and_no_other():
    forecast = extrapolate(trials(), IN_EPOCHS)
    assert time_fit(forecast, 0.0).is_over and time_fit(forecast, -5.0).is_over
    assert time_fit(forecast, 100.0, passed_s=100.0).is_over
    never = time_fit(forecast, 100.0, passed_s=50.0)
    assert never.probability == pytest.approx(0.0, abs=1e-6) and not never.is_over


# -- a running training -------------------------------------------------------------------------------------------


def run_forecast(seconds, done, total, **progress):
    blocks = tuple(Block(1, s, 0.0, 0.0) for s in seconds[:done])
    return forecast_run(Progress(total, done, blocks, 0.0, math.fsum(seconds[:done]), **progress))


def noisy(kind: str, noise: random.Random) -> list[float]:
    level, seconds = 1.0, []
    for i in range(100):
        level *= math.exp(noise.gauss(0, 0.01)) if kind == "walk" else 1.0
        rise = 1 + 0.3 * i / 100 if kind == "rise" else 1.0
        seconds.append(level * rise * max(0.3, noise.gauss(1, {"iid 10%": 0.1, "iid 2%": 0.02}.get(kind, 0.01))))
    return seconds


@pytest.mark.parametrize(("kind", "least"), [("iid 2%", 0.9), ("iid 10%", 0.75), ("walk", 0.85), ("rise", 0.85)])
def test_so_many_epochs_as_are_said_to_fit_do(kind, least):
    held, shares = [], []
    for seed in range(15):
        seconds = noisy(kind, random.Random(f"{kind} {seed}"))
        ends_s, done = list(itertools.accumulate(seconds)), 30
        forecast = run_forecast(seconds, done, 100)
        for share in (0.2, 0.5, 0.8):
            limit_s = ends_s[done - 1] + share * (ends_s[-1] - ends_s[done - 1])
            fit = time_fit(forecast, limit_s, passed_s=ends_s[done - 1])
            truth = sum(s <= limit_s for s in ends_s)
            held.append(fit.longest <= truth)
            shares.append((fit.longest - done) / (truth - done))
    assert sum(held) / len(held) >= 0.93
    assert sorted(shares)[len(shares) // 2] >= least  # and it is not said by saying little


def test_a_run_that_fits_needs_no_length_and_one_that_cannot_go_on_says_so():
    forecast = run_forecast([10.0] * 100, 30, 100)
    kept = time_fit(forecast, 2000.0, passed_s=305.0)
    assert kept.probability > 0.99 and kept.longest is None
    stuck = time_fit(forecast, 306.0, passed_s=305.0)
    assert (stuck.longest, stuck.done, stuck.is_over) == (30, 30, False)
    assert time_fit(forecast, 300.0, passed_s=305.0).is_over


def test_steps_are_counted_in_steps_and_told_to_three_digits():
    position = Position(1e6, 12_345, 1000.0, is_in_steps=True)
    fit = run_time_fit(Estimate(80_000.0, 79_000.0, 81_000.0, 0.95, "s"), 50_000.0, position)
    assert (fit.unit, fit.longest) == ("step", 618_000)  # 618,508
