from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greenlove_tracker import Estimate, TrainingPlan, Trial, extrapolate
from greenlove_tracker.extrapolation.regression import cold_epochs, curvature
from greenlove_tracker.vocabulary.errors import UsageError

BATCH = 64
SIZES = (6, 6, 12, 24, 24, 48, 62, 62, 62)
PLAN = TrainingPlan(samples=60_000, batch_size=BATCH, epochs=100)
EVALUATED = TrainingPlan(samples=60_000, batch_size=BATCH, epochs=100, eval_every=1)


def run(rng, batches, epochs, *, fixed_s=0.0, batch_s=1e-3, noise=0.01, run_noise=0.01, square_s=0.0):
    mean = (fixed_s + batch_s * batches + square_s * batches**2) * (1 + run_noise * rng.standard_normal())
    return mean * (1 + noise * rng.standard_normal(epochs))


def trials(rng, sizes=SIZES, epochs=8, **cost) -> list[Trial]:
    return [Trial(m * BATCH, BATCH, tuple(run(rng, m, epochs, **cost))) for m in sizes]


def exact(sizes=(8, 16, 32, 64), fixed_s=0.005, batch_s=0.001, **more) -> list[Trial]:
    return [Trial(m * BATCH, BATCH, (fixed_s + batch_s * m,) * 6, **more) for m in sizes]


def by_tokens() -> list[Trial]:
    return [Trial(BATCH * 8, BATCH, (1e-6 * n,) * 5, tokens_per_epoch=n) for n in (2000, 4000, 8000, 16_000)]


def test_without_noise_every_part_is_exact():
    forecast = extrapolate(exact(), PLAN)
    assert forecast.per_epoch_s.point == pytest.approx(0.005, rel=1e-6)
    assert forecast.per_batch_s.point == pytest.approx(0.001, rel=1e-6)
    assert forecast.duration_s.point == pytest.approx(100 * (0.005 + 0.001 * 938), rel=1e-6)
    assert forecast.duration_s.relative_width < 0.09  # 1% between trials is expected, and 1.5% for the run on top
    assert forecast.duration_s.upper < forecast.duration_p99_s < 1.1 * forecast.duration_s.point
    assert forecast.backtest_error == pytest.approx(0.0, abs=1e-9)
    assert forecast.is_reliable and forecast.one_off_s.point == 0.0


def test_a_cold_start_is_paid_once_and_not_scaled():
    cold = [Trial(t.sample_size, BATCH, (t.epoch_durations_s[0] + 2.0, *t.epoch_durations_s)) for t in exact()]
    forecast = extrapolate(cold, PLAN)
    assert forecast.one_off_s.point == pytest.approx(2.0, rel=1e-6)
    assert forecast.duration_s.point == pytest.approx(2.0 + 100 * 0.943, rel=1e-6)


def test_where_tokens_vary_the_fit_goes_by_tokens():
    forecast = extrapolate(by_tokens(), TrainingPlan(steps=1000, tokens_per_step=500))
    assert forecast.duration_s.point == pytest.approx(0.5, rel=1e-6)


def test_the_energy_of_a_second_is_noise_and_said():
    forecast = extrapolate(exact(energy_kwh=1e-6), PLAN)
    assert "ENERGY" in {w.name for w in forecast.warnings}


def test_one_size_gives_a_wide_and_named_forecast_instead_of_a_refusal():
    steps = [Trial(BATCH, BATCH, (2.1, 2.0, 2.2, 2.1, 2.1))]
    forecast = extrapolate(steps, TrainingPlan(samples=BATCH * 1000, batch_size=BATCH, epochs=3))
    assert {"FEW", "WIDE"} <= {w.name for w in forecast.warnings} and not forecast.is_reliable
    assert forecast.duration_s.lower < 0.75 * 6300 < 6300 < forecast.duration_s.upper
    assert forecast.backtest_error is None
    assert all(w.advice for w in forecast.warnings)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: extrapolate([], PLAN), "no trials"),
        (lambda: Trial(0, 64, (1.0,)), "sample_size must be"),
        (lambda: Trial(64, 64, ()), "at least one"),
        (lambda: Trial(64, 64, (-1.0,)), "between 1e-12 and 1e12 s"),
        (lambda: Trial(64, 64, (math.nan,)), "between 1e-12 and 1e12 s"),
        (lambda: Trial(64, 64, (1e300,)), "between 1e-12 and 1e12 s, not 1e\\+300"),
        (lambda: Trial(64, 64, (1.0, 1e-300)), "between 1e-12 and 1e12 s, not 1e-300"),
        (lambda: Trial(64, 64, (1.0,), energy_kwh=0.0), "None where it was not measured"),
        (lambda: TrainingPlan(samples=100, batch_size=10), "epochs=…"),
        (lambda: TrainingPlan(epochs=100, steps=10), "not in both"),
        (lambda: TrainingPlan(samples=100, steps=10), "with their batch_size"),
        (lambda: TrainingPlan(samples=100, batch_size=10, epochs=10**9), "cannot be meant"),
        (lambda: TrainingPlan(steps=0), "steps must be"),
        (lambda: extrapolate(exact(), TrainingPlan(samples=64, batch_size=64, epochs=1)), "less than a trial's"),
        (lambda: extrapolate(exact(), TrainingPlan(samples=6400, batch_size=32, epochs=1)), "batch size"),
        (lambda: extrapolate([*exact(), Trial(64, 32, (1.0,))], PLAN), "different batch sizes"),
        (lambda: extrapolate(exact(), PLAN, level=1.0), "level must"),
        (lambda: extrapolate(exact(), PLAN, cold_start_s=math.nan), "cold_start_s must"),
        (lambda: extrapolate(exact(), PLAN, cold_start_s=-1.0), "cold_start_s must"),
        (lambda: extrapolate(exact(), PLAN, cold_start_s=1e300), "cold_start_s must"),
        (lambda: extrapolate(exact(), EVALUATED, eval_durations_s=(1e300,)), "eval_durations_s must"),
        (lambda: extrapolate(exact(), EVALUATED, eval_durations_s=(1e-300,)), "eval_durations_s must"),
        (lambda: extrapolate(in_s((10, 11, 12), (1e-3, 1e3, 1.0)), PLAN, method="power"), "differ too much"),
        (lambda: extrapolate(by_tokens(), TrainingPlan(steps=1000, tokens_per_step=1)), "1,000 tokens an epoch, less"),
        (lambda: extrapolate(exact(), PLAN, method="magic"), "method must"),
        (lambda: extrapolate(exact(), TrainingPlan(steps=999), method="green-love"), "samples and epochs"),
    ],
)
def test_bad_input_says_what_to_do(make, says):
    with pytest.raises(UsageError, match=says):
        make()


@pytest.mark.slow
@pytest.mark.parametrize("cost", [{}, {"fixed_s": 0.005}, {"run_noise": 0.02, "noise": 0.02}])
def test_the_95_percent_interval_keeps_its_word(cost):
    rng = np.random.default_rng(7)
    replicates, hits = 120, 0
    for _ in range(replicates):
        duration = extrapolate(trials(rng, **cost), PLAN).duration_s
        truth = run(rng, PLAN.batches_per_epoch, 100, **cost).sum()
        hits += duration.lower <= truth <= duration.upper
    error = math.sqrt(0.95 * 0.05 / replicates)
    assert hits / replicates >= 0.95 - 3 * error


@pytest.mark.parametrize("share", [0.3, 0.6, 1.0])
def test_however_much_the_trials_differ_no_range_begins_near_nothing(share):
    for seed in range(8):
        rng = np.random.default_rng(seed)
        seen = []
        for m in SIZES:
            epochs_s = 1e-3 * m * np.exp(share * rng.standard_normal() + 0.1 * rng.standard_normal(8))
            seen.append(Trial(m * BATCH, BATCH, tuple(epochs_s), energy_kwh=float(epochs_s.sum() * rng.uniform(1, 3))))
        forecast = extrapolate(seen, EVALUATED, eval_durations_s=(0.1, 10.0))
        for e in (forecast.duration_s, forecast.energy_kwh):
            assert e.lower > 0.6 * e.point**2 / e.upper  # about as far below in proportion as above


def test_noise_within_trials_averages_out_over_a_run():
    rng = np.random.default_rng(20)
    widths = []
    for _ in range(20):
        widths.append(extrapolate(trials(rng, noise=0.02, run_noise=0.0), PLAN).duration_s.relative_width)
    assert np.mean(widths) < 0.05  # plain least squares: 0.034
    between = trials(rng, noise=0.0, run_noise=0.02)
    assert extrapolate(between, PLAN).duration_s.relative_width > 0.09


def test_a_spike_that_is_no_cold_start_is_expected_to_come_on():
    m, durations = 8, exact()[0].epoch_durations_s
    spiky = Trial(m * BATCH, BATCH, (durations[0], 1.3 * durations[1], *durations[2:]))
    forecast = extrapolate([spiky, *exact()[1:]], PLAN)
    assert forecast.one_off_s.point == 0.0
    assert forecast.duration_s.upper > extrapolate(exact(), PLAN).duration_s.upper * 1.01


def test_curvature_is_flagged_and_a_line_is_not():
    rng = np.random.default_rng(3)

    def is_curved(square_share: float) -> bool:
        square_s = square_share * 1e-3 * 62 / (1 - square_share) / 62**2
        seen = trials(rng, run_noise=0.005, noise=0.01, square_s=square_s)
        m, mean_s = zip(*((float(t.batches), np.mean(t.epoch_durations_s)) for t in seen), strict=True)
        return curvature(np.array(m), np.array(mean_s)) is not None

    assert sum(is_curved(0.2) for _ in range(100)) >= 95
    assert sum(is_curved(0.0) for _ in range(300)) <= 300 * 0.03 + 3 * math.sqrt(300 * 0.02 * 0.98)


def in_s(batches, durations_s) -> list[Trial]:
    """Trials that drew 50 W."""
    return [
        Trial(m * BATCH, BATCH, (s,) * 4, energy_kwh=50 * 4 * s / 3.6e6)
        for m, s in zip(batches, durations_s, strict=True)
    ]


@pytest.mark.parametrize(
    ("batches", "durations_s", "foreseen_s"),
    [
        ((10, 20, 40), (2.0, 1.0, 3.0), 1.2),
        ((10, 20, 30), (2.0, 1.0, 5.0), 1.2),
        ((4, 8, 80), (3.0, 1.0, 32.0), 1.2),
    ],
)
def test_where_larger_samples_took_less_the_largest_is_still_forecast_as_more_than_nothing(
    batches, durations_s, foreseen_s
):
    # a batch costs nothing there, and every epoch the mean of both, each weighed by its own variance
    forecast = extrapolate(in_s(batches, durations_s), PLAN, carbon_intensity=400.0, electricity_price=0.3)
    assert forecast.backtest_error == pytest.approx(foreseen_s / durations_s[-1] - 1)
    assert not forecast.is_reliable
    off = max(foreseen_s / durations_s[-1], durations_s[-1] / foreseen_s)
    for e in (forecast.duration_s, forecast.energy_kwh, forecast.emissions_kgco2e, forecast.cost_usd):
        assert 0 < e.lower <= e.point / off * (1 + 1e-9) and e.upper >= e.point * off * (1 - 1e-9)
    assert forecast.duration_p99_s >= forecast.duration_s.point * off * (1 - 1e-9)


AMOUNTS = ("duration_s", "energy_kwh", "emissions_kgco2e", "cost_usd")
BATCHES = st.one_of(st.integers(1, 12), st.integers(1, 200))
SECONDS = st.one_of(st.floats(1e-3, 1e3), st.sampled_from([1e-3, 0.5, 1.0, 2.0, 3.0, 1e3]))


@st.composite
def any_trials(draw) -> list[Trial]:
    sizes = draw(st.lists(BATCHES, min_size=2, max_size=6, unique=True))
    sizes += draw(st.lists(st.sampled_from(sizes), max_size=2))
    found = []
    for m in draw(st.permutations(sizes)):
        epochs = draw(st.one_of(SECONDS.map(lambda s: [s] * 4), st.lists(SECONDS, min_size=1, max_size=6)))
        found.append(Trial(m * BATCH, BATCH, tuple(epochs), draw(st.none() | st.floats(1e-9, 10.0))))
    return found


@pytest.mark.slow
@settings(max_examples=120)
@given(
    trials=any_trials(),
    times=st.sampled_from([1, 3, 100, 100_000]),
    epochs=st.sampled_from([1, 3, 1000]),
    method=st.sampled_from(["wls", "wls", "power"]),
)
def test_whatever_the_trials_no_estimate_is_nonsense(trials, times, epochs, method):
    plan = TrainingPlan(
        samples=max(t.sample_size for t in trials) * times, batch_size=BATCH, epochs=epochs, eval_every=1
    )
    rates = {"carbon_intensity": Estimate(400.0, 300.0, 500.0, 0.95, "gCO2e/kWh"), "electricity_price": 0.3}
    more = {"eval_durations_s": (1.0, 1.5), "cold_start_s": 2.0}
    try:
        forecast = extrapolate(trials, plan, method=method, **rates, **more)
    except UsageError as error:
        assert method == "power" and ("three sizes" in str(error) or "differ too much" in str(error))
        return
    for name in (*AMOUNTS, "one_off_s", "per_epoch_s", "per_batch_s", "between_s"):
        e = getattr(forecast, name)
        assert e is None or 0 <= e.lower <= e.point <= e.upper < math.inf, (name, e)
        assert e is None or name not in AMOUNTS or e.point > 0, (name, e)
    assert (forecast.energy_kwh is None) == all(t.energy_kwh is None for t in trials)
    assert forecast.duration_p99_s is None or forecast.duration_s.point <= forecast.duration_p99_s < math.inf
    if forecast.backtest_error is not None:
        assert -1 < forecast.backtest_error < math.inf
        if not 1 / 1.5 < 1 + forecast.backtest_error < 1.5:
            assert not forecast.is_reliable


def thrashing(factors) -> list[Trial]:
    """Trials on a machine whose threads hinder each other: each so many times as slow as it should be."""
    sizes = (10, 21, 46, 100, 10, 100)
    return [Trial(m * BATCH, BATCH, (1e-3 * m * f,) * 5) for m, f in zip(sizes, factors, strict=True)]


def test_a_largest_size_that_the_others_do_not_foresee_is_loud_and_widens_all():
    energetic = [
        Trial(t.sample_size, BATCH, t.epoch_durations_s, energy_kwh=1e-4 * t.total_s)
        for t in thrashing((7.0, 7.1, 6.9, 1.0, 7.0, 1.0))
    ]
    forecast = extrapolate(energetic, PLAN, carbon_intensity=100.0)
    (warning,) = [w for w in forecast.warnings if w.name == "BACKTEST"]
    assert forecast.backtest_error == pytest.approx(6.0, rel=0.1)
    assert warning.is_serious and "+597%" in warning.message and not forecast.is_reliable
    for estimate in (forecast.duration_s, forecast.energy_kwh, forecast.emissions_kgco2e):
        assert estimate.upper >= 6.9 * estimate.point and estimate.lower <= estimate.point / 6.9
    assert forecast.duration_p99_s >= forecast.duration_s.upper


def test_trials_of_one_size_that_differ_by_a_factor_of_two_are_not_relied_on():
    forecast = extrapolate(thrashing((1.0, 1.0, 1.0, 1.0, 2.5, 1.0)), PLAN)
    (warning,) = [w for w in forecast.warnings if w.name == "SCATTER"]
    assert "2.5 times" in warning.message and not forecast.is_reliable
    assert "SCATTER" not in {w.name for w in extrapolate(thrashing((1.0, 1.0, 1.0, 1.0, 1.5, 1.0)), PLAN).warnings}


def test_warm_up_is_found_not_assumed():
    rng = np.random.default_rng(0)
    warm = 1 + 0.01 * rng.standard_normal((400, 12))
    assert sum(cold_epochs(row) > 0 for row in warm) <= 400 * 0.03
    assert all(cold_epochs([2.0, *row]) == 1 for row in warm[:50])
    assert sum(cold_epochs([1.5, 1.3, *row]) == 2 for row in warm[:50]) >= 45
    assert cold_epochs([5.0, 1.0, 1.0]) == 0  # too few to tell
    # a spike after an epoch that was not slow is no cold start
    assert all(cold_epochs([row[0], 1.3, *row[1:]]) == 0 for row in warm[:50])
    assert all(cold_epochs([2.0, row[0], 1.3, *row[1:]]) <= 1 for row in warm[:50])


def test_the_originals_formulas_by_hand():
    """Of 10 of 100 samples: e₁ to e₃ are 40, 30 and 20 s, and the others 10 and 20 s, on average 15 ± 7.07."""
    trials = [Trial(10, 10, (4.0, 3.0, 2.0, 1.0)), Trial(10, 10, (4.0, 3.0, 2.0, 2.0))]
    forecast = extrapolate(trials, TrainingPlan(samples=100, batch_size=10, epochs=12), method="green-love")
    assert forecast.duration_s.point == pytest.approx(40 + 30 + 20 + 9 * 15)
    assert forecast.duration_s.upper == pytest.approx(225 + 1.959964 * 12**0.5 * 50**0.5)
    assert forecast.one_off_s.point == pytest.approx(45)
