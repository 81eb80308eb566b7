"""Techniques by name, and several as one."""

import pytest

from greenlove_tracker.techniques.technique import (
    Stage,
    Technique,
    combined,
    technique_named,
    technique_with,
)
from greenlove_tracker.vocabulary.errors import UsageError


def _adds(word, **fields):
    return Technique(word, lambda parts: {**parts, "said": [*parts.get("said", []), word]}, **fields)


def test_several_are_applied_in_the_order_of_their_stages():
    both = combined([_adds("step", stage=Stage.STEP), _adds("model", stage=Stage.MODEL), _adds("own")])
    assert both.name == "step+model+own"
    assert both.apply({})["said"] == ["own", "model", "step"]


def test_two_of_one_kind_exclude_each_other():
    with pytest.raises(UsageError, match="first and second exclude each other"):
        combined([_adds("first", kind="optimizer"), _adds("second", kind="optimizer")])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("amp-bf61", "did you mean amp-bf16"),
        ("", "no technique is called"),
        ("grad-accumulation=", "no value stands after the ="),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(text, message):
    with pytest.raises(UsageError, match=message):
        technique_named(text)


def test_options_stand_in_the_name_and_that_of_one_makes_all_of_the_whole():
    scheduled = technique_with("lr-schedule=linear", {"warmup": 0.1, "final": 0.5})
    assert scheduled.name == "lr-schedule=linear (warmup=0.1, final=0.5)"
    names = ("lr-schedule", "early-stopping=5+tf32", "grad-accumulation=2")
    assert [technique_with(name, {}).name for name in names] == list(names)
    assert [technique_with(name, {}).is_of_whole for name in names] == [True, True, False]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("early-stopping", {"patiance": 2}, "early-stopping has no option 'patiance': did you mean patience?"),
        ("lr-schedule", {"value": 4}, "no option 'value': there are shape, warmup, final"),
        ("lr-schedule", {3: 4}, "no option 3: there are shape, warmup, final"),
        ("grad-accumulation=2", {"parts": 2}, "grad-accumulation has no option 'parts': there are none"),
        ("lr-schedule+grad-accumulation=2", {"warmup": 3}, "give options to each by itself"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest(name, options, message):
    with pytest.raises(UsageError, match=message):
        technique_with(name, options)
