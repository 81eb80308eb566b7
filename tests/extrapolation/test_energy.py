from __future__ import annotations

import math

import numpy as np
import pytest

from greenlove_tracker import TrainingPlan, Trial, extrapolate
from greenlove_tracker.extrapolation.extrapolate import energy_at_mean_power
from greenlove_tracker.vocabulary.units import JOULES_PER_KWH

BATCH = 64
SIZES = (6, 6, 12, 24, 24, 48, 62, 62, 62)
PLAN = TrainingPlan(samples=60_000, batch_size=BATCH, epochs=100)
IDLE_W, BUSY_W = 60.0, 300.0
FIXED_S, BATCH_S = 1.0, 0.1


def run(rng, m, epochs, *, noise=0.01, run_noise=0.01, power_noise=0.01) -> tuple[np.ndarray, float]:
    """Epoch times, and the energy of a run that idles through the fixed part: small epochs draw less power."""
    relative = (1 + run_noise * rng.standard_normal()) * (1 + noise * rng.standard_normal(epochs))
    joules = (IDLE_W * FIXED_S + BUSY_W * BATCH_S * m) * relative.sum() * (1 + power_noise * rng.standard_normal())
    return (FIXED_S + BATCH_S * m) * relative, float(joules) / JOULES_PER_KWH


def trials(rng, sizes=SIZES, **noises) -> list[Trial]:
    seen = ((m, *run(rng, m, 8, **noises)) for m in sizes)
    return [Trial(m * BATCH, BATCH, tuple(times), energy_kwh=kwh) for m, times, kwh in seen]


def exact(sizes=SIZES, **more) -> list[Trial]:
    return trials(np.random.default_rng(0), sizes, noise=0.0, run_noise=0.0, power_noise=0.0, **more)


EXACT_KWH = 100 * (IDLE_W * FIXED_S + BUSY_W * BATCH_S * 938) / JOULES_PER_KWH


def test_where_power_rises_with_size_the_fit_is_right_and_mean_power_is_not():
    forecast = extrapolate(exact(), PLAN)
    assert forecast.energy_kwh.point == pytest.approx(EXACT_KWH, rel=1e-6)
    at_mean_power, _ = energy_at_mean_power(exact(), forecast.duration_s)
    assert at_mean_power.point < 0.85 * EXACT_KWH


@pytest.mark.slow
def test_the_energys_95_percent_interval_keeps_its_word():
    rng = np.random.default_rng(11)
    replicates, hits = 120, 0
    for _ in range(replicates):
        energy = extrapolate(trials(rng), PLAN).energy_kwh
        hits += energy.lower <= run(rng, 938, 100)[1] <= energy.upper
    assert hits / replicates >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / replicates)
    assert energy.relative_width < 0.2  # 1% from run to run, and a run that comes later by 1.5 times that


def test_cold_epochs_are_in_a_trials_energy_but_not_in_its_steady_epochs():
    def cold(trial: Trial) -> Trial:
        energy_kwh = trial.energy_kwh * (trial.total_s + 5.0) / trial.total_s  # 5 s more, at the same mean power
        first, *rest = trial.epoch_durations_s
        return Trial(trial.sample_size, BATCH, (first + 5.0, *rest), energy_kwh=energy_kwh)

    forecast = extrapolate([cold(t) for t in exact()], PLAN)
    epochs_w = EXACT_KWH * JOULES_PER_KWH / (100 * (FIXED_S + BATCH_S * 938))
    assert forecast.one_off_s.point == pytest.approx(5.0)
    assert forecast.energy_kwh.point == pytest.approx(EXACT_KWH + 5.0 * epochs_w / JOULES_PER_KWH, rel=1e-6)


@pytest.mark.parametrize(
    "measured",
    [
        exact((6, 62)),  # two trials
        exact((62, 62, 62)),  # one size
        [Trial(t.sample_size, BATCH, t.epoch_durations_s[:1], t.energy_kwh / 8) for t in exact((6, 12, 20, 30))],
    ],
)
def test_few_or_short_or_equal_trials_give_mean_power_times_time(measured):
    forecast = extrapolate(measured, PLAN)
    mean_w = sum(t.energy_kwh for t in measured) / sum(t.total_s for t in measured)
    assert forecast.energy_kwh.point == pytest.approx(mean_w * forecast.duration_s.point)


def test_trials_without_energy_are_left_out_of_the_fit():
    unmetered = [Trial(t.sample_size, BATCH, t.epoch_durations_s) for t in exact()]
    assert extrapolate([*exact((6, 24, 62)), *unmetered], PLAN).energy_kwh.point == pytest.approx(EXACT_KWH, rel=1e-6)
    assert extrapolate(unmetered, PLAN).energy_kwh is None
