import math
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.forecasting import Estimate, TimeFit

FINITE = st.floats(allow_nan=False, allow_infinity=False)
EVERY = (fmt.energy, fmt.mass, fmt.power, fmt.money, fmt.duration, fmt.brief_duration, fmt.percent, fmt.count)


@pytest.mark.parametrize(
    ("kwh", "text"),
    [
        (0.0002, "0.200 Wh"),
        (0.0826, "82.6 Wh"),
        (1.5, "1.50 kWh"),
        (0.0, "0 kWh"),
        (1234.5, "1.23 MWh"),
        (2.5e6, "2.50 GWh"),
        (4e-5, "40.0 mWh"),
        (3e-9, "3.00 µWh"),
        (-1.5, "-1.50 kWh"),
        (0.9996, "1.00 kWh"),
        (999.6, "1.00 MWh"),
        (0.0009996, "1.00 Wh"),
        (5e9, "5,000 GWh"),
    ],
)
def test_energy(kwh, text):
    assert fmt.energy(kwh) == text


@pytest.mark.parametrize(
    ("kg", "text"),
    [(0.0, "0 kg"), (1.5, "1.50 kg"), (0.02, "20.0 g"), (2e-4, "0.200 g"), (5e-6, "5.00 mg"), (1500.0, "1.50 t")],
)
def test_mass(kg, text):
    assert fmt.mass(kg) == text


@pytest.mark.parametrize(("w", "text"), [(0.0, "0 W"), (300.0, "300 W"), (1500.0, "1.50 kW"), (0.02, "20.0 mW")])
def test_power(w, text):
    assert fmt.power(w) == text


@pytest.mark.parametrize(
    ("usd", "text"),
    [
        (0.0, "$0"),
        (1.23, "$1.23"),
        (0.0034, "$0.0034"),
        (0.0999, "$0.10"),
        (999.999, "$1,000"),
        (12346, "$12,346"),
        (-2.5, "-$2.50"),
        (1e-9, "under $0.000001"),
    ],
)
def test_money(usd, text):
    assert fmt.money(usd) == text


@pytest.mark.parametrize(
    ("s", "text"),
    [
        (0.0, "0 s"),
        (0.0042, "4.20 ms"),
        (0.9996, "1.00 s"),
        (25.3, "25.3 s"),
        (59.94, "59.9 s"),
        (59.95, "1 min"),
        (59.96, "1 min"),
        (165.0, "2 min 45 s"),
        (180.4, "3 min"),
        (188.0, "3 min 8 s"),
        (3599.4, "59 min 59 s"),
        (3599.7, "1 h"),
        (3600.0, "1 h"),
        (3723.0, "1 h 2 min"),
        (7199.0, "2 h"),
        (31560.0, "8 h 46 min"),
        (86340.0, "23 h 59 min"),
        (86399.0, "1 d"),
        (87840.0, "1 d"),
        (105840.0, "1 d 5 h"),
        (172799.0, "2 d"),
        (442800.0, "5 d 3 h"),
        (443400.0, "5 d 3 h"),
        (2591940.0, "30 d"),
        (2591999.0, "30 d"),
        (35614800.0, "412 d 5 h"),
        (35679600.0, "412 d 23 h"),
        (35683000.0, "413 d"),
        (-165.0, "-2 min 45 s"),
    ],
)
def test_duration(s, text):
    assert fmt.duration(s) == text


@pytest.mark.parametrize(
    ("s", "text"),
    [
        (42.3, "42.3 s"),
        (188.0, "3 min 8 s"),
        (2451.0, "41 min"),
        (3599.0, "1 h"),
        (52_351.0, "14 h 33 min"),
        (86_380.0, "1 d"),
        (105_840.0, "1 d 5 h"),
        (-105_840.0, "-1 d 5 h"),
    ],
)
def test_a_brief_duration_leaves_out_what_is_small(s, text):
    assert fmt.brief_duration(s) == text


@pytest.mark.parametrize(
    ("quantity", "reference", "value", "unit", "text"),
    [
        ("duration_s", 8100.0, 7860.0, "min", "131"),
        ("duration_s", 36_000.0, 1800.0, "h", "0.500"),
        ("energy_kwh", 0.41, 0.398, "Wh", "398"),
        ("emissions_kgco2e", 1.5, 0.2, "kg", "0.20"),
        ("cost_usd", 0.13, 0.14, "$", "0.14"),
    ],
)
def test_a_column_is_of_one_unit(quantity, reference, value, unit, text):
    name, of = fmt.in_one_unit(quantity, reference)
    assert (name, of(value), of(None)) == (unit, text, "unknown")


@pytest.mark.parametrize("rule", EVERY)
def test_what_is_not_known_is_called_so(rule):
    assert rule(None) == rule(math.nan) == rule(math.inf) == "unknown"


@given(st.one_of(FINITE, st.none()))
def test_no_number_is_too_odd_to_be_written(value):
    for rule in EVERY:
        assert rule(value)


@given(FINITE, st.integers(1, 6))
@example(999.9999, 3)
@example(5e-324, 3)
def test_significant_is_within_rounding_of_the_value(value, digits):
    text = fmt.significant(value, digits)
    decimals = len(text.partition(".")[2])
    assert abs(Decimal(text.replace(",", "")) - Decimal(value)) <= Decimal(10) ** -decimals / 2
    assert decimals == 0 or len(text.translate({ord(c): None for c in "-.,"}).lstrip("0")) == digits


@given(st.floats(1e-9, 1e9))
def test_an_adapted_unit_shows_the_same_energy(kwh):
    factors = {"GWh": 1e6, "MWh": 1e3, "kWh": 1, "Wh": 1e-3, "mWh": 1e-6, "µWh": 1e-9}
    number, unit = fmt.energy(kwh).split()
    assert float(number.replace(",", "")) * factors[unit] == pytest.approx(kwh, rel=0.006)


@pytest.mark.parametrize(
    ("share", "digits", "text"),
    [
        (0.5, 0, "50%"),
        (1.0, 0, "100%"),
        (0.0, 0, "0%"),
        (0.9999, 0, ">99%"),
        (0.9999, 1, ">99.9%"),
        (0.0001, 0, "<1%"),
        (0.0001, 1, "<0.1%"),
        (0.994, 0, "99%"),
        (1.5, 0, "150%"),
    ],
)
def test_percent(share, digits, text):
    assert fmt.percent(share, digits) == text


@given(st.floats(0, 1, exclude_min=True, exclude_max=True), st.integers(0, 3))
def test_not_quite_all_or_nothing_is_never_rounded_to_it(share, digits):
    text = fmt.percent(share, digits)
    assert not text.startswith("100") and text.strip("0.%") != ""


def test_counts_and_plurals():
    assert fmt.count(1234567) == "1,234,567"
    assert fmt.count(12_345_678) == "12.3 M"
    assert [fmt.plural(n, "run") for n in (0, 1, 2000)] == ["0 runs", "1 run", "2,000 runs"]
    assert [fmt.plural(n, "batch") for n in (1, 2)] == ["1 batch", "2 batches"]
    assert fmt.plural(2, "epoch") == "2 epochs"


@given(st.text(), st.integers(-1, 60))
def test_shortened_never_exceeds_its_width_nor_holds_control_characters(text, width):
    short = fmt.shortened(text, width)
    assert len(short) <= max(0, width)
    assert short.isprintable()


def test_shortened_keeps_both_ends():
    assert fmt.shortened("python train.py --lr 0.1", 9) == "pyth… 0.1"
    assert fmt.shortened("a\x1b[31m\n\tb\u202ec", 40) == "a [31m b c"
    assert fmt.shortened("short", 5) == "short"
    assert fmt.shortened("abc", 1) == "…"


@pytest.mark.parametrize(
    ("n_held", "n", "text"),
    [  # the intervals are statsmodels' proportion_confint(method="wilson")
        (3, 8, "3 of 8, 38% (14% to 69%)"),
        (5, 5, "5 of 5, 100% (57% to 100%)"),
        (0, 7, "0 of 7, 0% (0% to 35%)"),
        (19, 20, "19 of 20, 95% (76% to 99%)"),
        (589, 620, "589 of 620, 95% (93% to 96%)"),
        (2, 4, "2 of 4"),
        (1234, 2000, "1,234 of 2,000, 62% (60% to 64%)"),
    ],
)
def test_how_often_something_held(n_held, n, text):
    assert fmt.held(n_held, n) == text


@pytest.mark.parametrize(
    ("share", "text"), [(-0.0004, "0.0%"), (0.0004, "0.0%"), (0.0, "0.0%"), (-0.012, "−1.2%"), (0.5, "+50.0%")]
)
def test_an_error_that_rounds_to_nothing_has_no_sign(share, text):
    assert fmt.error(share) == text


def test_an_estimate_is_written_with_its_interval():
    estimate = Estimate(2451.0, 2378.0, 2526.0, 0.95, "s")
    assert fmt.interval(estimate, fmt.duration) == "40 min 51 s [39 min 38 s – 42 min 6 s]"
    assert fmt.bounds(estimate, fmt.duration) == "39 min 38 s – 42 min 6 s"
    assert fmt.bounds(estimate, fmt.duration, " to ") == "39 min 38 s to 42 min 6 s"
    assert fmt.interval(Estimate(18.0, 12.0, 26.0, 0.95, "USD"), fmt.money) == "$18.00 [$12.00–$26.00]"


@pytest.mark.parametrize(
    ("probability", "text"),
    [(0.0, "under 1%"), (0.0099, "under 1%"), (0.18, "18%"), (0.989, "99%"), (0.996, "over 99%"), (1.0, "over 99%")],
)
def test_a_probability_is_never_told_to_be_certain(probability, text):
    assert fmt.chance(probability) == text


@pytest.mark.parametrize(
    ("fit", "text"),
    [
        (TimeFit(86400.0, 0.18, longest=57_000), "fits with 18%; 57,000 epochs fit with 95%"),
        (TimeFit(86400.0, 0.18, longest=1), "fits with 18%; 1 epoch fits with 95%"),
        (TimeFit(86400.0, 0.5, longest=41, unit="step", done=40), "fits with 50%; 41 steps fit with 95%"),
        (TimeFit(86400.0, 0.0, longest=0), "fits with under 1%; not one epoch fits with 95%"),
        (TimeFit(86400.0, 0.0, longest=3, unit="step", done=3), "fits with under 1%; no further step fits with 95%"),
        (TimeFit(86400.0, 1.0), "fits with over 99%"),
    ],
)
def test_how_a_training_fits_its_limit_is_said_in_words(fit, text):
    assert fmt.time_fit(fit) == text


@pytest.mark.parametrize("probability", [0.025, 0.3, 0.5, 0.8, 0.95, 0.975])
def test_a_quantile_is_exceeded_with_the_rest_of_the_probability(probability):
    estimate = Estimate(100.0, 99.0, 150.0, 0.95, "s")
    assert 1 - estimate.probability_above(estimate.quantile(probability)) == pytest.approx(probability)
    assert Estimate(100.0, 100.0, 100.0, 0.0, "s").quantile(probability) == 100.0


def test_where_early_stopping_is_expected_to_end_a_training():
    def stop(lower, point, upper):
        return fmt.expected_stop(Estimate(point, lower, upper, 0.9, "epochs"), 50)

    assert stop(9, 14, 22) == "stops after about 14 of 50 epochs (90%: 9 to 22)"
    assert stop(14, 14, 14) == "stops after 14 of 50 epochs"
    assert stop(20, 50, 50) == "may stop early, and more likely after all 50 epochs (90%: 20 to 50)"
