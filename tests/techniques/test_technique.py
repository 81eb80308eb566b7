"""Techniques by name, and several as one."""

from contextlib import contextmanager

import pytest

from greenlove_tracker.errors import UsageError
from greenlove_tracker.techniques.technique import TECHNIQUES, Stage, Technique, combined, technique_named


def _adds(word, **fields):
    return Technique(word, lambda parts: {**parts, "said": [*parts.get("said", []), word]}, **fields)


def test_several_are_applied_in_the_order_of_their_stages():
    both = combined([_adds("step", stage=Stage.STEP), _adds("model", stage=Stage.MODEL), _adds("own")])
    assert both.name == "step+model+own"
    assert both.apply({})["said"] == ["own", "model", "step"]


def test_two_of_one_kind_exclude_each_other():
    with pytest.raises(UsageError, match="first and second exclude each other"):
        combined([_adds("first", kind="optimizer"), _adds("second", kind="optimizer")])


def test_a_context_that_fails_leaves_the_one_before_it():
    seen = []

    @contextmanager
    def noted():
        seen.append("in")
        try:
            yield
        finally:
            seen.append("out")

    @contextmanager
    def failing():
        raise RuntimeError("no")
        yield

    both = combined([_adds("a", active=noted), _adds("b", active=failing)])
    with pytest.raises(RuntimeError), both.active():
        pass
    assert seen == ["in", "out"]


def test_notes_are_joined_once():
    both = combined([_adds("a", note="the batch is another"), _adds("b", note="the batch is another"), _adds("c")])
    assert both.note == "the batch is another"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("amp-bf61", "did you mean amp-bf16"),
        ("", "no technique is called"),
        ("grad-accumulation=", "no value stands behind the ="),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(text, message):
    with pytest.raises(UsageError, match=message):
        technique_named(text)


@pytest.mark.parametrize("name", [name for name in TECHNIQUES if name not in ("batch-size", "power-limit")])
def test_no_name_of_a_technique_stands_in_its_note_which_the_screen_puts_behind_it(name):
    assert name not in technique_named(name).note
