"""The time that remains where steps differ in their work, on runs whose cost is known."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from greenlove_tracker import Phase, TrainingPlan, Trial, extrapolate
from greenlove_tracker.extrapolation.live import forecast_run
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.forecasting import Block, Progress, WarningCode
from greenlove_tracker.vocabulary.phases import phases_from, spans

PHASES = phases_from("500x100 500x200 500x300")
BLOCK = 25


def step_s(work, *, share=0.2, least=100.0):
    """A step of the least work takes 1 s, of which a share does not grow."""
    return share + (1 - share) * work / least


def times_of(phases, *, share=0.2, noise=0.003, seed=0, effects=()):
    rng = np.random.default_rng(seed)
    per_phase = [
        step_s(p.work, share=share) * (1 + e) for p, e in zip(phases, effects or [0.0] * len(phases), strict=True)
    ]
    each = np.concatenate([np.full(p.length, s) for p, s in zip(phases, per_phase, strict=True)])
    return each * rng.normal(1.0, noise, len(each))


def progress_at(times, done, phases=PHASES, block=BLOCK):
    """The progress after so many steps, in blocks; the first step is start-up."""
    edges = [*range(1, done, block), done]
    blocks = tuple(Block(b - a, float(times[a:b].sum()), 0.0, 0.0) for a, b in pairwise(edges))
    elapsed_s = float(times[:done].sum())
    return Progress(len(times), done, blocks, float(times[0]), elapsed_s, phases=phases, is_in_steps=True)


def codes(forecast):
    return {warning.name for warning in forecast.warnings}


def test_a_batch_that_grows_by_plan_is_foreseen_from_its_first_phase():
    times = times_of(PHASES)
    forecast = forecast_run(progress_at(times, 150))
    assert forecast.duration_s.point == pytest.approx(times.sum(), rel=0.05)
    assert forecast.duration_s.lower < times.sum() < forecast.duration_s.upper
    assert WarningCode.WORK in codes(forecast)  # the share that does not grow is assumed
    without = forecast_run(progress_at(times, 150, phases=()))
    assert without.duration_s.upper < times.sum()  # as nobody could foresee


# The prior of the share that does not grow is normal, 18% ± 11%. At 40% and more, intervals hold less often until the
# second level is seen (42% and 8% of those at 150 and 450 steps, below), and then the point errs by 2 to 4%, since an
# effect of the phase's own explains it as well. A wider prior (10% instead of 2% at ±35%) would mend that, and make the
# interval score of the 63 recorded trainings with phases 16% worse, in record directories of even number as of odd. A
# trend that the noise suggests adds up to 1%: before, trends were not weighed against phases.


def test_the_second_level_of_work_tells_the_share_that_does_not_grow():
    for share in (0.02, 0.2, 0.3):
        times = times_of(PHASES, share=share)
        first, second = (forecast_run(progress_at(times, done)) for done in (400, 800))
        assert second.duration_s.point == pytest.approx(times.sum(), rel=0.03)
        assert second.duration_s.lower < times.sum() < second.duration_s.upper
        assert second.duration_s.relative_width < first.duration_s.relative_width / 1.5
        assert WarningCode.WORK not in codes(second)


@pytest.mark.slow_cases
@pytest.mark.parametrize("share", [0.05, 0.2, 0.3])
def test_intervals_hold_where_each_phase_has_an_effect_of_its_own(share):
    held, rng = [], np.random.default_rng(3)
    for seed in range(12):
        times = times_of(PHASES, share=share, seed=seed, effects=rng.normal(0, 0.015, 3).tolist())
        for done in (150, 450, 700, 1000, 1300):
            duration = forecast_run(progress_at(times, done)).duration_s
            held.append(duration.lower <= times.sum() <= duration.upper)
    assert np.mean(held) >= 0.9


def test_each_phase_has_its_part_of_the_forecast():
    times = times_of(PHASES)
    parts = forecast_run(progress_at(times, 700)).phases
    truth = [float(times[a:b].sum()) for a, b in spans(PHASES)]
    assert [part.phase for part in parts] == list(PHASES)
    assert [part.duration_s.point for part in parts] == [pytest.approx(t, rel=0.03) for t in truth]
    assert parts[0].duration_s.upper - parts[0].duration_s.lower < 1e-6 * truth[0]  # it is over
    assert all(part.duration_s.lower <= t * 1.001 for part, t in zip(parts, truth, strict=True))
    total = math.fsum(part.duration_s.point for part in parts)
    assert total == pytest.approx(forecast_run(progress_at(times, 700)).duration_s.point, rel=0.01)


def test_a_block_that_lies_in_two_phases_is_split_by_their_cost():
    times = times_of(PHASES, noise=0.0)
    duration = forecast_run(progress_at(times, 961, block=120)).duration_s
    assert duration.point == pytest.approx(times.sum(), rel=0.01)  # in units of equal cost all blocks are alike


def test_an_earlier_run_tells_what_its_phases_cost():
    earlier, later = times_of(PHASES, seed=1), 1.01 * times_of(PHASES, seed=2)
    prior = forecast_run(progress_at(earlier, 1450))
    alone, told = forecast_run(progress_at(later, 150)), forecast_run(progress_at(later, 150), prior=prior)
    assert told.duration_s.point == pytest.approx(later.sum(), rel=0.012)  # it says one in a hundred less
    assert told.duration_s.lower < later.sum() < told.duration_s.upper
    assert told.duration_s.relative_width < alone.duration_s.relative_width / 3


def test_phases_without_work_are_levels_of_their_own():
    phases, plan = phases_from("500 500 500"), phases_from("500x100 500x130 500x130")
    times = times_of(plan)
    first, second = (forecast_run(progress_at(times, done, phases=phases)) for done in (400, 900))
    assert first.duration_s.lower < times.sum() < first.duration_s.upper  # ±39% a phase is assumed, and said
    assert any("without work" in w.message and "±39%" in w.message for w in first.warnings)
    assert second.duration_s.point == pytest.approx(times.sum(), rel=0.02)  # the last one as the one before it
    assert second.duration_s.lower < times.sum() < second.duration_s.upper


def test_larger_batches_over_the_same_data_take_fewer_steps_and_less_time():
    phases = phases_from("10epochsx64samples 10epochsx128samples")
    epochs = [10.0 * (0.2 + 0.8)] * 10 + [10.0 * (0.2 / 2 + 0.8)] * 10
    blocks = tuple(Block(1, s, 0.0, 0.0) for s in epochs[:4])
    forecast = forecast_run(Progress(20, 4, blocks, 0.0, 40.0, phases=phases))
    assert forecast.duration_s.point == pytest.approx(sum(epochs), rel=0.03)
    assert forecast.duration_s.lower < sum(epochs) < forecast.duration_s.upper


# -- before the run: trials of one batch size --


def trials(batch_size, cost_s):
    return [Trial(batch_size * m, batch_size, (0.01 + cost_s * m,) * 4) for m in (4, 4, 8, 16, 16)]


def test_an_exploration_forecasts_phases_of_other_batch_sizes():
    phases = phases_from("500x64samples 500x128samples")
    plan = TrainingPlan(samples=64_000, batch_size=64, phases=phases)
    alike = extrapolate(trials(64, 1.0), replace(plan, phases=(), steps=1000))
    forecast = extrapolate(trials(64, 1.0), plan)
    truth = 500 * 1.0 + 500 * step_s(200)
    assert forecast.duration_s.lower < truth < forecast.duration_s.upper
    assert forecast.duration_s.point == pytest.approx(truth, rel=0.03)
    assert alike.duration_s.upper < truth
    shares = [part.duration_s.point for part in forecast.phases]
    assert shares == [pytest.approx(500, rel=0.02), pytest.approx(900, rel=0.05)]
    assert WarningCode.WORK in codes(forecast)


def test_other_methods_say_that_they_know_no_phases():
    plan = TrainingPlan(samples=64_000, batch_size=64, phases=phases_from("5epochsx64samples 5epochsx128samples"))
    with pytest.raises(UsageError, match='phases of different work need method="wls"'):
        extrapolate(trials(64, 1.0), plan, method="power")


def curriculum_s(shares, batches=100, per_epoch_s=0.5, per_batch_s=0.1):
    """The time of a curriculum, epoch by epoch: a constant, and each batch of its share."""
    return math.fsum(n * (per_epoch_s + per_batch_s * math.ceil(share * batches)) for n, share in shares)


def test_a_running_curriculum_learns_its_line_from_the_second_share():
    shares = [(5, 0.25), (5, 0.5), (40, 1.0)]
    phases = tuple(Phase(epochs=n, data_share=share) for n, share in shares)
    each = [curriculum_s([(1, share)]) for n, share in shares for _ in range(n)]
    for done, error in ((4, 0.25), (8, 0.05), (20, 0.01)):
        blocks = tuple(Block(1, s, 0.0, 0.0) for s in each[:done])
        progress = Progress(50, done, blocks, 0.0, math.fsum(each[:done]), phases=phases)
        duration = forecast_run(progress).duration_s
        assert duration.lower <= sum(each) <= duration.upper
        assert duration.point == pytest.approx(sum(each), rel=error)
