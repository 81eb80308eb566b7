"""Evaluations and checkpoints that a plan names, before and after the first of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenlove_tracker.extrapolation.live import forecast_run
from greenlove_tracker.vocabulary.forecasting import Block, Progress, WarningCode
from greenlove_tracker.vocabulary.phases import phases_from

EPOCHS, FIRST, EVAL_S = 100, 50, 1.8
LATE = phases_from(f"{EPOCHS}epochs,eval_every=1,eval_from={FIRST}")


def run_of(done, phases=LATE, *, seed=0, first_s=2.6, eval_s=EVAL_S, is_open=False):
    """Epochs of 6 s whose evaluations begin late, the first one cold: as UNet3D of MLPerf. And the true total."""
    rng = np.random.default_rng(seed)
    epochs = rng.normal(6.0, 0.03, EPOCHS)
    gaps = np.array([0.0 if i < FIRST else first_s if i == FIRST else eval_s for i in range(1, EPOCHS + 1)])
    gaps *= rng.normal(1.0, 0.01, EPOCHS)
    blocks = [Block(1, float(e), 0.0, float(g)) for e, g in zip(epochs[:done], gaps[:done], strict=True)]
    elapsed_s = float(epochs[:done].sum() + gaps[:done].sum())
    if is_open:
        elapsed_s -= float(gaps[done - 1])
        blocks[-1] = replace(blocks[-1], between_s=None)
    return Progress(EPOCHS, done, tuple(blocks), 0.0, elapsed_s, phases=phases), float(epochs.sum() + gaps.sum())


def codes(forecast):
    return {warning.name: warning.message for warning in forecast.warnings}


@pytest.mark.parametrize("done", [10, 20, 30, 40, 49])
def test_evaluations_of_unknown_length_are_in_the_interval_and_are_named(done):
    progress, truth = run_of(done)
    forecast = forecast_run(progress)
    assert forecast.duration_s.lower < truth < forecast.duration_s.upper
    assert "51 evaluations to come, from epoch 50 on, and none was seen" in codes(forecast)[WarningCode.EVALUATION]
    unplanned = forecast_run(replace(progress, phases=()))
    assert unplanned.duration_s.upper < truth  # as nobody could foresee
    assert forecast.phases[0].eval_s is None and forecast.phases[0].n_evaluations == 51


@pytest.mark.parametrize("done", [10, 30, 49])
def test_evaluations_of_told_length_are_forecast_before_the_first(done):
    progress, truth = run_of(done, phases_from(f"100epochs,eval_from={FIRST},eval_s=1.8"))
    forecast = forecast_run(progress)
    assert forecast.duration_s.point == pytest.approx(truth, rel=0.01)
    assert forecast.duration_s.lower < truth < forecast.duration_s.upper
    assert WarningCode.EVALUATION not in codes(forecast)


def test_an_earlier_run_tells_the_length_of_an_evaluation():
    prior = forecast_run(run_of(95, seed=1)[0])
    assert prior.phases[0].eval_s.point == pytest.approx(EVAL_S, rel=0.02)
    progress, truth = run_of(10)
    forecast = forecast_run(progress, prior=prior)
    assert forecast.duration_s.point == pytest.approx(truth, rel=0.02)
    assert WarningCode.EVALUATION not in codes(forecast)


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("done", [52, 60, 80, 99])
def test_from_the_second_evaluation_on_they_are_known(done, is_open):
    progress, truth = run_of(done, is_open=is_open)
    forecast = forecast_run(progress)
    assert forecast.duration_s.point == pytest.approx(truth, rel=0.015)
    assert forecast.duration_s.lower < truth < forecast.duration_s.upper
    assert WarningCode.EVALUATION not in codes(forecast)


def steps(done, *, eval_at, eval_s, total=1000, is_paused=False, phases, block=10):
    """Steps of 0.1 s; an evaluation follows each of ``eval_at``, in a pause or in the time of the next step."""
    blocks, edges = [], [*range(1, done, block), done]
    for a, b in pairwise(edges):
        pause_s = eval_s * sum(a <= at < b for at in eval_at)
        active_s = 0.1 * (b - a) + (0.0 if is_paused else pause_s)
        blocks.append(Block(b - a, active_s, pause_s if is_paused else 0.0, 0.0))
    elapsed_s = 0.1 * done + eval_s * sum(at < done for at in eval_at)
    return Progress(total, done, tuple(blocks), 0.1, elapsed_s, phases=phases, is_in_steps=True)


@pytest.mark.parametrize("is_paused", [True, False])
def test_steps_whose_loop_pauses_for_evaluations_or_does_not(is_paused):
    at = range(100, 1001, 100)
    progress = steps(450, eval_at=at, eval_s=5.0, is_paused=is_paused, phases=phases_from("1000,eval_every=100"))
    forecast = forecast_run(progress)
    assert forecast.duration_s.point == pytest.approx(100 + 50, rel=0.01 if is_paused else 0.1)
    assert forecast.duration_s.lower <= 150 <= forecast.duration_s.upper
    assert not is_paused or forecast.phases[0].eval_s.point == pytest.approx(5.0, rel=0.02)


def test_phases_are_evaluated_as_often_and_as_long_as_each_says():
    phases = phases_from("50epochsx1work,eval_every=10,eval_s=1 50epochsx1work,eval_every=5,eval_s=4")
    gaps = [(1.0 if i <= 50 else 4.0) if i % (10 if i <= 50 else 5) == 0 else 0.0 for i in range(1, 101)]
    blocks = tuple(Block(1, 10.0, 0.0, gap) for gap in gaps)
    for done in (5, 40, 70):
        forecast = forecast_run(Progress(100, done, blocks[:done], 0.0, 10 * done + sum(gaps[:done]), phases=phases))
        assert forecast.duration_s.point == pytest.approx(1000 + sum(gaps), rel=0.01), done


def unplanned(done, *, every=5, first=None, eval_s=8.0, is_inside=False, noise=0.01, seed=0):
    """Epochs of 10 s, evaluated at an interval that no plan names. And the true total."""
    rng = np.random.default_rng(seed)
    epochs, gaps = rng.normal(10.0, 10.0 * noise, EPOCHS), rng.normal(0.1, 0.01, EPOCHS)
    (epochs if is_inside else gaps)[(first or every) - 1 :: every] += eval_s
    blocks = tuple(Block(1, float(e), 0.0, float(g)) for e, g in zip(epochs[:done], gaps[:done], strict=True))
    elapsed_s = float(epochs[:done].sum() + gaps[:done].sum())
    return Progress(EPOCHS, done, blocks, 0.0, elapsed_s), float(epochs.sum() + gaps.sum())


@pytest.mark.slow_cases
@pytest.mark.parametrize("is_inside", [False, True])
@pytest.mark.parametrize(("every", "first", "done"), [(5, 5, 11), (5, 1, 7), (10, 10, 22), (2, 2, 5), (15, 30, 46)])
def test_what_came_twice_at_one_interval_goes_on_so(every, first, done, is_inside):
    progress, truth = unplanned(done, every=every, first=first, is_inside=is_inside)
    forecast = forecast_run(progress)
    assert forecast.duration_s.point == pytest.approx(truth, rel=0.02)
    assert forecast.duration_s.lower < truth < forecast.duration_s.upper
    assert forecast.phases == ()  # no plan was given
    assert f"every {every} epochs from epoch {first} on" in codes(forecast)[WarningCode.EVALUATION]
    often = forecast_run(unplanned(min(EPOCHS - 1, first + 4 * every), every=every, first=first)[0])
    assert WarningCode.EVALUATION not in codes(often)  # that is known by then


@pytest.mark.parametrize("noise", [0.01, 0.05])
def test_noise_shows_no_interval(noise):
    for seed in range(8):
        for done in (6, 10, 30):
            progress, _ = unplanned(done, eval_s=0.0, noise=noise, seed=seed)
            assert WarningCode.EVALUATION not in codes(forecast_run(progress))


@given(
    st.lists(
        st.tuples(st.integers(1, 40), st.floats(0.01, 100.0), st.just(0.0) | st.floats(0.001, 50.0)),
        min_size=1,
        max_size=40,
    ),
    st.integers(1, 200),
    st.booleans(),
)
def test_whatever_the_blocks_are_there_is_a_forecast_of_what_is_done_at_least(found, to_come, is_in_steps):
    blocks = tuple(Block(n, n * unit_s, 0.0, 0.0 if is_in_steps else gap_s) for n, unit_s, gap_s in found)
    done = sum(n for n, *_ in found)
    elapsed_s = sum(block.active_s + (block.between_s or 0.0) for block in blocks)
    progress = Progress(done + to_come, done, blocks, 0.0, elapsed_s, is_in_steps=is_in_steps)
    duration = forecast_run(progress).duration_s
    assert elapsed_s <= duration.lower <= duration.point <= duration.upper
