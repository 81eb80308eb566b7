from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from greenlove_tracker import TrainingPlan, Trial, extrapolate
from greenlove_tracker.extrapolation.live import forecast_run
from greenlove_tracker.vocabulary.forecasting import Block, Progress
from greenlove_tracker.vocabulary.pricing import Rates


def progress(durations, total, gaps=None, startup_s=2.0, **more) -> Progress:
    gaps = gaps if gaps is not None else [0.0] * (len(durations) - 1)
    padded = [*gaps, None][: len(durations)]
    blocks = tuple(Block(1, d, 0.0, g) for d, g in zip(durations, padded, strict=True))
    elapsed_s = startup_s + sum(durations) + sum(gaps)
    return Progress(total, len(blocks), blocks, startup_s, elapsed_s, **more)


def noisy(n, mean=10.0, share=0.01, seed=0):
    return list(np.random.default_rng(seed).normal(mean, share * mean, n))


def test_done_and_remaining_add_up_with_startup_and_gaps():
    forecast = forecast_run(progress([10.0] * 10, 40, [1.0] * 9))
    # nine gaps are seen, 31 remain: the last epoch is followed by one too
    assert forecast.duration_s.point == pytest.approx(2 + 400 + 40, rel=2e-3)
    assert forecast.duration_s.lower <= 442 <= forecast.duration_s.upper
    assert forecast.method == "live" and forecast.one_off_s.point == 2.0
    assert forecast.per_epoch_s.point == pytest.approx(10.0, rel=2e-3)
    assert forecast.duration_p99_s > forecast.duration_s.upper > forecast.duration_s.point


@pytest.mark.parametrize("n", [2, 5, 10])
def test_however_much_epochs_differ_what_is_left_takes_more_than_nothing(n):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        seconds = np.exp(0.6 * rng.standard_normal(n)).tolist()
        watts = (100 * np.exp(rng.standard_normal(n))).tolist()
        used_kwh = float(np.dot(seconds, watts)) / 3.6e6
        metered = tuple(zip(seconds, watts, strict=True))
        forecast = forecast_run(progress(seconds, 100, startup_s=0.0, metered=metered, used_kwh=used_kwh))
        for e, used in ((forecast.duration_s, sum(seconds)), (forecast.energy_kwh, used_kwh)):
            assert e.lower - used > 0.05 * (e.point - used)


def test_a_run_of_a_second_is_forecast_with_what_lies_outside_its_epochs():
    """Four epochs of 0.15 s behind a start of 4.8 s; saving the model takes 50 ms more."""
    short = progress([0.151, 0.150, 0.150], 4, [0.002, 0.002], startup_s=4.84, metered=((5.0, 72.0),), used_kwh=1e-4)
    forecast = forecast_run(short)
    assert forecast.duration_s.lower < 5.44 < 5.49 < forecast.duration_s.upper < 5.7
    assert forecast.duration_s.lower >= short.elapsed_s and forecast.duration_p99_s >= forecast.duration_s.upper
    assert forecast.energy_kwh.upper > forecast.energy_kwh.point + 0.1 * 72.0 / 3.6e6
    long = forecast_run(progress([150.0] * 30, 40, startup_s=4.84)).duration_s
    assert long.upper - long.point > 1.0  # there it is nothing beside the rest


def test_what_has_passed_since_the_last_epoch_is_no_part_of_the_next():
    """Loading what forecasts need took 0.3 s behind the third epoch, and the fourth is still to come."""
    short = progress([0.15] * 3, 4, [0.0, 0.0], startup_s=0.0)
    late = forecast_run(short, passed_s=short.elapsed_s + 0.3).duration_s
    assert late.lower < 0.6 + 0.3 < late.upper and late.point == pytest.approx(0.9, rel=0.01)
    begun = progress([0.15] * 3, 4, [0.0, 0.0], startup_s=0.0)
    begun = replace(begun, blocks=(*begun.blocks[:-1], replace(begun.blocks[-1], between_s=0.0)))
    assert forecast_run(begun, passed_s=begun.elapsed_s + 0.1).duration_s.point == pytest.approx(0.6, rel=0.02)


def test_rare_checkpoints_are_part_of_it():
    gaps = [30.0 if i % 5 == 4 else 0.0 for i in range(29)]
    forecast = forecast_run(progress(noisy(30), 60, gaps))
    truth = 2 + sum(noisy(30)) + 300 + 12 * 30
    assert forecast.duration_s.lower < truth < forecast.duration_s.upper
    assert forecast.duration_s.point == pytest.approx(truth, rel=0.06)


def test_thousands_of_epochs_are_joined_and_say_the_same():
    few = forecast_run(progress(noisy(96), 20_000))
    many = forecast_run(progress(noisy(10_000), 20_000))
    assert many.duration_s.point == pytest.approx(200_000, rel=2e-3)
    assert many.duration_s.relative_width < few.duration_s.relative_width


def test_energy_is_what_was_used_and_the_rest_at_the_power_seen():
    metered = tuple((10.0, 360.0) for _ in range(10))
    forecast = forecast_run(progress([10.0] * 10, 40, metered=metered, used_kwh=0.0102, startup_s=2.0))
    assert forecast.energy_kwh.point == pytest.approx(0.0402, rel=3e-3)  # both time and power are more likely to grow
    assert forecast.energy_kwh.lower < 0.0402 < forecast.energy_kwh.upper


def test_energy_that_is_not_metered_is_unknown_and_so_is_what_follows_from_it():
    forecast = forecast_run(progress([10.0] * 10, 40), rates=Rates(400.0, 0.3, None))
    assert (forecast.energy_kwh, forecast.emissions_kgco2e, forecast.cost_usd) == (None, None, None)


def test_co2e_and_cost_go_with_energy_and_a_machines_price_with_time():
    known = progress([10.0] * 10, 40, metered=((100.0, 360.0),), used_kwh=0.0102, gpu_count=2)
    electricity = forecast_run(known, rates=Rates(400.0, 0.3, None))
    assert electricity.emissions_kgco2e.point == pytest.approx(electricity.energy_kwh.point * 0.4)
    assert electricity.cost_usd.point == pytest.approx(electricity.energy_kwh.point * 0.3)
    machine = forecast_run(known, rates=Rates(400.0, 0.3, 2.0))
    assert machine.cost_usd.point == pytest.approx(machine.duration_s.point / 3600 * 2.0 * 2)


def exploration(per_batch_s=1e-3, noise=0.01):
    rng = np.random.default_rng(8)
    trials = [Trial(64 * m, 64, tuple(per_batch_s * m * rng.normal(1, noise, 6))) for m in (10, 10, 20, 40, 60, 60, 60)]
    return extrapolate(trials, TrainingPlan(samples=64 * 1000, batch_size=64, epochs=40))


def test_an_exploration_narrows_the_first_forecast_and_is_forgotten_where_the_run_disagrees():
    prior = exploration()
    first = progress([1.01], 40)
    alone, together = forecast_run(first), forecast_run(first, prior=prior)
    assert together.duration_s.relative_width < 0.5 * alone.duration_s.relative_width
    assert together.duration_s.lower < 42 < together.duration_s.upper
    other_machine = progress(noisy(4, mean=3.0), 40)
    assert forecast_run(other_machine, prior=prior).duration_s.point == pytest.approx(122, rel=0.05)


def test_what_is_not_known_yet_is_named():
    names = {w.name for w in forecast_run(progress([10.0], 40)).warnings}
    assert {"FEW", "GAPS", "WIDE"} <= names
    late = forecast_run(progress(noisy(20), 40))
    assert late.warnings == () and late.is_reliable


def test_what_is_known_to_be_cold_took_its_time_and_sets_no_pace():
    cold, warm = Block(1, 20.0, 0.0, 0.0, is_cold=True), [Block(1, d, 0.0, 0.0) for d in noisy(3)]
    forecast = forecast_run(Progress(40, 5, (cold, cold, *warm), 2.0, 42.0 + sum(noisy(3))))
    assert forecast.duration_s.point == pytest.approx(42 + 380, rel=0.01)
    assert forecast.duration_s.upper < 500 and forecast.degrees_of_freedom == 2
    assert not [w for w in forecast.warnings if w.name == "FEW"]


def test_where_all_is_cold_that_is_all_there_is_and_is_said():
    cold = tuple(Block(1, 20.0, 0.0, 0.0, is_cold=True) for _ in range(4))
    forecast = forecast_run(Progress(40, 4, cold, 2.0, 82.0))
    assert forecast.duration_s.lower < 800 and "FEW" in {w.name for w in forecast.warnings}


def within_the_first_epoch(share=0.3, n=10, epoch_s=100.0):
    blocks = tuple(Block(share / n, epoch_s * share / n * t, 0.0, None) for t in noisy(n, mean=1.0))
    return Progress(5, share, blocks, 0.0, sum(b.active_s for b in blocks), is_of_first_epoch=True)


def test_what_comes_at_the_ends_of_epochs_is_assumed_above_and_hardly_moves_the_point():
    early = within_the_first_epoch()
    seen = forecast_run(replace(early, is_of_first_epoch=False)).duration_s
    unseen = forecast_run(early)
    assert unseen.duration_s.point == pytest.approx(seen.point, rel=0.015)
    assert 0.8 * 500 < unseen.duration_s.lower < seen.lower
    assert 1.1 * 500 < unseen.duration_s.upper < 1.35 * 500
    (warning,) = [w for w in unseen.warnings if w.name == "GAPS"]
    assert warning.advice.startswith("wait for the next epoch, or say it")


def test_an_earlier_run_tells_what_comes_at_the_ends_of_epochs():
    epochs = tuple(Block(1, 100.0 * t, 0.0, 10.0) for t in noisy(4, mean=1.0))
    prior = forecast_run(Progress(400, 4, epochs, 0.0, 440.0))
    forecast = forecast_run(within_the_first_epoch(), prior=prior)
    assert forecast.duration_s.point == pytest.approx(550.0, rel=0.04)
    assert forecast.duration_s.lower < 550.0 < forecast.duration_s.upper
    assert "GAPS" not in {w.name for w in forecast.warnings}
