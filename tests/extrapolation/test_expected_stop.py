"""Where early stopping is expected to end a training, on simulated curves."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from greenlove_tracker import Phase, TrainingPlan, Trial, extrapolate
from greenlove_tracker.extrapolation.expected_stop import expected_stop
from greenlove_tracker.extrapolation.live import forecast_run
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.forecasting import Block, Estimate, Progress, WarningCode, stop_estimate, stop_within
from greenlove_tracker.vocabulary.stopping import ExpectedStop, StoppingRule

RULE = StoppingRule("val_loss", patience=5)
TRIALS = [Trial(64 * m, 64, (0.05 + 0.1 * m,) * 5, energy_kwh=1e-4 * m) for m in (5, 10, 20, 40)]
PLAN = TrainingPlan(samples=6400, batch_size=64, epochs=50)  # an epoch takes 10.05 s


def curve(seed, epochs=60, noise=0.01):
    """A loss that falls as a power of the epoch, and may rise again in a straight line."""
    rng = np.random.default_rng(seed)
    t = np.arange(1, epochs + 1)
    rise = rng.uniform(0, 0.01) if seed % 3 else 0.0
    return (t ** -rng.uniform(0.4, 1.5) + rise * t + rng.normal(0, noise, epochs)).tolist()


def certain(epochs, most=50):
    return ExpectedStop(((epochs, 1.0),), most, float(epochs == most), "a test")


def total(stop):
    return math.fsum(share for _, share in stop.probabilities)


@pytest.mark.parametrize("share", [0.4, 0.7])
def test_the_interval_holds_the_stop_of_simulated_curves_about_as_often_as_it_says(share):
    held, n = 0, 60
    for seed in range(n):
        values = curve(seed)
        end = RULE.first_stop(values) or 60
        stop = expected_stop(values[: max(1, min(end - 1, round(share * end)))], RULE, 60)
        held += stop.quantile(0.05) <= end <= stop.quantile(0.95)
    assert held >= stats.binom.ppf(0.001, n, 0.9)


def test_a_curve_that_turned_upward_ends_soon_and_one_that_falls_goes_on():
    rng = np.random.default_rng(0)
    turned = np.r_[np.linspace(1, 0.2, 10), np.linspace(0.22, 0.28, 3)] + rng.normal(0, 0.003, 13)
    falling = np.linspace(1, 0.2, 13) + rng.normal(0, 0.003, 13)
    soon, late = (expected_stop(list(values), RULE, 100) for values in (turned, falling))
    assert soon.quantile(0.5) == 15  # two more without an improvement
    assert late.quantile(0.5) > 30
    assert soon.basis == "val_loss of 13 epochs" and total(soon) == pytest.approx(1.0)


def test_a_metric_that_is_better_where_it_is_higher_is_the_same_curve_upside_down():
    upward = replace(RULE, higher_is_better=True)
    values = curve(3)[:12]
    down = expected_stop(values, RULE, 60)
    up = expected_stop([-value for value in values], upward, 60)
    assert up.probabilities == down.probabilities


def test_values_that_are_no_numbers_are_no_improvement_and_no_part_of_the_curve():
    values = curve(5)[:9]
    stop = expected_stop([*values, math.nan, math.inf], RULE, 50)
    assert stop.quantile(0.05) >= 12 and total(stop) == pytest.approx(1.0)
    constant = expected_stop([0.5] * 3, RULE, 50)
    assert constant.quantile(0.5) >= 4


def test_evaluations_every_few_epochs_are_counted_in_epochs():
    rule = replace(RULE, every=4)
    stop = expected_stop(curve(6)[:8], rule, 200)
    assert stop.quantile(0.01) >= 36 and all(epochs % 4 == 0 for epochs, _ in stop.probabilities)


def test_nothing_is_expected_past_a_rule_that_has_ended_it_nor_before_what_is_done():
    values = [1.0, 0.5, *[0.6] * 5]
    assert expected_stop(values, RULE, 50).probabilities == ((7, 1.0),)
    for ignored in (expected_stop([*values, 0.6], RULE, 50), expected_stop(values, RULE, 50, least_epochs=8)):
        assert ignored.probabilities == ((8, 1.0),) and ignored.probability_of_none == 0.0


def test_a_stop_of_a_longer_or_a_resumed_training():
    stop = ExpectedStop(((10, 0.25), (20, 0.25), (50, 0.5)), 50, 0.5, "a test")
    assert stop_within(stop, 15).probabilities == ((10, 0.25), (15, 0.75))
    assert stop_within(stop, 15).probability_of_none == pytest.approx(0.75)
    assert stop_within(stop, 80).probabilities == ((10, 0.25), (20, 0.25), (80, 0.5))
    rest = stop_within(stop, 38, after=12)
    assert rest.probabilities == ((8, pytest.approx(1 / 3)), (38, pytest.approx(2 / 3)))
    assert stop_estimate(rest, 0.9, before=12) == Estimate(50, 20, 50, 0.9, "epochs")


# -- the forecast of a training that may end early ------------------------------------------------------------------


def test_a_certain_stop_is_the_forecast_of_a_shorter_training():
    forecast = extrapolate(TRIALS, replace(PLAN, stop=certain(20)), carbon_intensity=300.0, electricity_price=0.3)
    short = extrapolate(TRIALS, replace(PLAN, epochs=20), carbon_intensity=300.0, electricity_price=0.3)
    for name in ("duration_s", "energy_kwh", "emissions_kgco2e", "cost_usd"):
        ours, theirs = getattr(forecast, name), getattr(short, name)
        assert (ours.point, ours.lower, ours.upper) == pytest.approx(
            (theirs.point, theirs.lower, theirs.upper), rel=1e-5
        )
    assert forecast.duration_p99_s == pytest.approx(short.duration_p99_s)
    assert forecast.without_stop.duration_s.point == pytest.approx(50 * 10.05, rel=1e-3)
    assert forecast.plan.epochs == 50 and forecast.expected_stop == certain(20)
    assert forecast.seconds_per_unit(50) == pytest.approx(10.05, rel=1e-3)


def test_an_uncertain_stop_is_a_mixture_of_totals():
    stop = ExpectedStop(((10, 0.3), (20, 0.3), (50, 0.4)), 50, 0.4, "a test")
    forecast = extrapolate(TRIALS, replace(PLAN, stop=stop), level=0.9)
    seconds = forecast.duration_s
    width = extrapolate(TRIALS, PLAN, level=0.9).duration_s.relative_width  # of one length
    assert (seconds.lower, seconds.point, seconds.upper) == pytest.approx((100.5, 201.0, 502.5), rel=width / 2)
    assert forecast.energy_kwh.point == pytest.approx(20 * 2e-4 * 10, rel=0.05)
    assert forecast.duration_p99_s == pytest.approx(502.5, rel=width)
    assert [w.message for w in forecast.warnings if w.name is WarningCode.WIDE] == [
        "early stopping may end it sooner or later: the interval is ±101% (a test)"
    ]


def test_the_phases_of_a_curriculum_are_cut_at_the_stop():
    phases = (Phase(epochs=10, data_share=0.5), Phase(epochs=40, data_share=1.0))
    plan = replace(PLAN, phases=phases, stop=certain(20))
    forecast = extrapolate(TRIALS, plan)
    shares = [50.5, 100.5]  # what half an epoch costs is assumed
    assert [part.duration_s.point for part in forecast.phases] == pytest.approx(shares, rel=0.1)
    assert forecast.duration_s.point == pytest.approx(sum(shares), rel=0.05)
    first = extrapolate(TRIALS, replace(plan, stop=certain(6)))
    assert first.duration_s.point == pytest.approx(6 * 5.05, rel=0.1) and first.phases[1].duration_s.point == 0


def test_what_a_stop_cannot_be_is_refused():
    with pytest.raises(UsageError, match="counts epochs: give the plan in epochs"):
        TrainingPlan(steps=1000, stop=certain(20))
    with pytest.raises(UsageError, match="of 50 epochs, and the plan has 40: make it with most_epochs=40"):
        replace(PLAN, epochs=40, stop=certain(20))
    longer = replace(PLAN, stop=certain(20)).with_length(epochs=80)
    assert (longer.epochs, longer.stop.most_epochs, longer.stop.quantile(0.5)) == (80, 80, 20)
    with pytest.raises(UsageError, match="counts epochs: give the plan in epochs"):
        longer.with_length(steps=100)


def running(done=10, stop=None, **more):
    blocks = tuple(Block(1, 10.0 + 0.1 * (i % 3), 0.0, None if i == done - 1 else 0.5) for i in range(done))
    elapsed_s = math.fsum(block.active_s for block in blocks) + 0.5 * (done - 1)
    return Progress(50, done, blocks, 0.0, elapsed_s, stop=stop, **more)


def test_a_running_training_is_forecast_until_its_stop():
    progress = running(stop=certain(20))
    forecast, short = forecast_run(progress), forecast_run(replace(progress, total_units=20, stop=None))
    assert forecast.duration_s.point == pytest.approx(short.duration_s.point)
    assert forecast.duration_s.upper == pytest.approx(short.duration_s.upper, rel=1e-5)
    assert forecast.without_stop == forecast_run(replace(progress, stop=None))
    passed = forecast_run(running(stop=certain(8)))
    assert passed.duration_s.point == pytest.approx(running().elapsed_s, rel=0.01)  # it is over, or about to be
