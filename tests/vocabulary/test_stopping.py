"""The rule that ends a training, and the distribution of the end."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.stopping import ExpectedStop, StoppingRule, unknown_stop

LOSS = "val_loss"

numbers = st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf, -math.inf])
some_values = st.lists(numbers, max_size=60)
rules = st.builds(
    StoppingRule,
    metric=st.text(min_size=1).filter(str.strip),
    patience=st.integers(1, 12),
    min_delta=st.floats(1e-6, 1e3),
    higher_is_better=st.booleans(),
    every=st.integers(1, 5),
).flatmap(lambda rule: st.sampled_from([rule, _with(rule, min_delta=0.0)]))


def _with(rule, **changes):
    fields = {name: getattr(rule, name) for name in StoppingRule.__slots__}
    return StoppingRule(**{**fields, **changes})


# -- patience --


@pytest.mark.parametrize(
    ("fields", "values", "end"),
    [
        ({"patience": 2}, [3, 2, 2, 2, 1], 4),
        ({"patience": 2}, [3, 2, 2.5, 1.9, 2, 2], 6),
        ({"patience": 1}, [3, 2, 1, 0], None),
        ({"patience": 2, "min_delta": 0.5}, [3, 2.8, 2.6, 2.4], 3),
        ({"patience": 3, "min_delta": 0.5}, [3, 2.8, 2.6, 2.4, 2.4], None),  # 2.4 is better than 3 by more than 0.5
        ({"patience": 1, "min_delta": 1.0}, [3, 2], 2),  # by more than that, not by that
        ({"patience": 2, "higher_is_better": True}, [0.1, 0.2, 0.2, 0.1], 4),
        ({"patience": 2}, [math.nan, math.nan], 2),
        ({"patience": 2}, [1, -math.inf, math.nan], 3),
        ({"patience": 2, "higher_is_better": True}, [1, math.inf, math.inf], 3),
        ({"patience": 2}, [math.nan, 1, 0.5, 0.4], None),
    ],
)
def test_it_ends_after_so_many_values_without_an_improvement(fields, values, end):
    assert StoppingRule(LOSS, **fields).first_stop(values) == end


# -- what holds of every rule --


@given(rules, some_values)
def test_the_sign_turned_round_is_the_other_direction(rule, values):
    turned = _with(rule, higher_is_better=not rule.higher_is_better)
    assert turned.first_stop([-value for value in values]) == rule.first_stop(values)


@given(rules, st.lists(st.floats(-1e6, 1e6), max_size=60))
def test_it_never_ends_before_its_least_stop(rule, values):
    assert (rule.first_stop(values) or math.inf) >= rule.patience + 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"metric": ""}, "metric must be the name of a metric"),
        ({"patience": 0}, "patience must be a whole number of at least 1"),
        ({"patience": 2.5}, "patience must be a whole number"),
        ({"patience": True}, "patience must be a whole number"),
        ({"every": 0}, "every must be"),
        ({"min_delta": -0.1}, "min_delta must be 0 or more"),
        ({"min_delta": math.inf}, "min_delta must be 0 or more"),
        ({"min_delta": "0.1"}, "min_delta must be 0 or more"),
        ({"higher_is_better": None}, "higher_is_better must be True or False"),
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused(fields, message):
    with pytest.raises(UsageError, match=message):
        StoppingRule(**{"metric": LOSS, **fields})


# -- the distribution of the end --

STOP = ExpectedStop(((9, 0.2), (12, 0.5), (50, 0.3)), 50, 0.25, "val_loss of 8 epochs")


def test_quantiles():
    assert [STOP.quantile(p) for p in (0.0, 0.2, 0.21, 0.7, 0.71, 1.0)] == [9, 9, 12, 12, 50, 50]


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=40))
def test_the_quantile_is_the_least_number_that_is_enough(weights):
    shares = tuple((n, weight / sum(weights)) for n, weight in enumerate(weights, 1))
    stop = ExpectedStop(shares, 50, 0.0, "a test")
    for probability in (0.0, 0.05, 0.5, 0.95, 1.0):
        end = stop.quantile(probability)
        assert math.fsum(p for n, p in shares if n <= end) >= probability - 1e-9
        assert math.fsum(p for n, p in shares if n < end) < max(probability, 1e-12)


def test_a_share_of_nothing_is_no_quantile():
    stop = ExpectedStop(((1, 0.0), (5, 1.0), (9, 0.0)), 9, 0.0, "a test")
    assert stop.quantile(0.0) == stop.quantile(1.0) == 5


def test_an_unknown_stop_is_any_epoch_from_the_least_possible_on():
    stop = unknown_stop(StoppingRule(LOSS, patience=5, every=2), 20)
    assert [epochs for epochs, _ in stop.probabilities] == [12, 14, 16, 18, 20]
    assert {share for _, share in stop.probabilities} == {0.2}
    assert (stop.most_epochs, stop.probability_of_none) == (20, 0.2)


def test_a_rule_that_cannot_end_so_short_a_training_does_not():
    stop = unknown_stop(StoppingRule(LOSS, patience=5), 3)
    assert stop.probabilities == ((3, 1.0),) and stop.probability_of_none == 1.0
