from __future__ import annotations

import math

import pytest

from greenlove_tracker import TrainingPlan, Trial, extrapolate
from greenlove_tracker.extrapolation.draws import estimate_about
from greenlove_tracker.extrapolation.extrapolate import time_between_epochs
from greenlove_tracker.vocabulary.errors import UsageError

BATCH = 64


def trials(watts: float | None = None) -> list[Trial]:
    durations = {m: (1.0 + 0.1 * m,) * 6 for m in (8, 16, 32, 64)}
    kwh = {m: None if watts is None else watts * sum(d) / 3.6e6 for m, d in durations.items()}
    return [Trial(m * BATCH, BATCH, d, energy_kwh=kwh[m]) for m, d in durations.items()]


def plan(**every) -> TrainingPlan:
    return TrainingPlan(samples=640 * BATCH, batch_size=BATCH, epochs=10, **every)


def names(forecast) -> list[str]:
    return [w.name for w in forecast.warnings]


def test_their_time_and_energy_are_part_of_the_total():
    bare = extrapolate(trials(200.0), plan())
    full = extrapolate(
        trials(200.0), plan(eval_every=2, save_every=5), eval_durations_s=[20.0, 20.0], save_durations_s=[4.0, 6.0]
    )
    assert bare.between_s is None
    assert full.between_s.point == pytest.approx(5 * 20.0 + 2 * 5.0)
    assert full.duration_s.point == pytest.approx(bare.duration_s.point + 110.0, rel=1e-6)
    assert full.energy_kwh.point == pytest.approx(bare.energy_kwh.point + 200 * 110 / 3.6e6, rel=1e-4)
    assert full.duration_s.upper - full.duration_s.lower > bare.duration_s.upper - bare.duration_s.lower
    assert not {"EVALUATION", "CHECKPOINT"} & set(names(full))


def test_the_interval_by_hand():
    # three degrees of freedom: t(0.975) = 3.182446; variance 10² / 4 of the mean and 10 of the scatter to come
    total, _ = time_between_epochs(plan(eval_every=1), [9.0, 10.0, 10.0, 11.0], ())
    s = math.sqrt(2 / 3)
    # of 4,096 draws, so to some 1e-5
    assert estimate_about(total, 0.95, "s").upper == pytest.approx(100 + 3.182446 * s * math.sqrt(35), rel=1e-4)


def test_one_timing_is_wide_and_named():
    forecast = extrapolate(trials(), plan(eval_every=1), eval_durations_s=[20.0])
    assert "EVALUATION" in names(forecast)
    assert forecast.between_s.point == pytest.approx(200.0) and forecast.between_s.relative_width > 0.9


def test_what_was_not_timed_is_unknown_and_named():
    forecast = extrapolate(trials(), plan(eval_every=2, save_every=5))
    assert forecast.between_s is None and not forecast.is_reliable
    assert {"EVALUATION", "CHECKPOINT"} <= set(names(forecast))
    assert forecast.duration_s == extrapolate(trials(), plan()).duration_s
    seldom = extrapolate(trials(), plan(eval_every=100))
    assert "EVALUATION" not in names(seldom) and seldom.between_s is None


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: plan(eval_every=0), "eval_every must be"),
        (lambda: TrainingPlan(steps=10, save_every=1.5), "save_every must be"),
        (lambda: extrapolate(trials(), plan(), eval_durations_s=[1.0]), r"eval_every=…"),
        (lambda: extrapolate(trials(), plan(save_every=1), save_durations_s=[0.0]), "positive and finite"),
    ],
)
def test_bad_input_says_what_to_do(make, says):
    with pytest.raises(UsageError, match=says):
        make()
