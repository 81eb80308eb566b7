"""Techniques by name, and several as one."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from greenlove_tracker.errors import UsageError
from greenlove_tracker.techniques import technique as registry
from greenlove_tracker.techniques.technique import (
    ListedTechnique,
    Stage,
    Technique,
    combined,
    technique_named,
    technique_with,
)


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


def test_of_several_all_is_of_the_whole_where_one_is():
    assert not combined([_adds("a"), _adds("b")]).is_of_whole
    assert combined([_adds("a"), _adds("b", is_of_whole=True)]).is_of_whole
    assert combined([_adds("a", is_of_whole=True)]).is_of_whole


@pytest.fixture
def paced(monkeypatch):
    """A technique with two options, which returns what it was made with."""

    def make(name, value, *, pace="even", share=1.0):
        return Technique(name if value is None else f"{name}={value}", lambda parts: {"made": (value, pace, share)})

    monkeypatch.setitem(registry.TECHNIQUES, "paced", ListedTechnique("paced", "for a test"))
    plain = registry.import_module
    monkeypatch.setattr(
        registry,
        "import_module",
        lambda name: SimpleNamespace(technique=make) if name.endswith(".paced") else plain(name),
    )


def test_options_are_arguments_by_name_and_stand_in_the_name(paced):
    technique = technique_with("paced=4", {"pace": "fast", "share": 0.5})
    assert technique.apply({}) == {"made": ("4", "fast", 0.5)}
    assert technique.name == "paced=4 (pace=fast, share=0.5)"
    assert technique_with("paced", {}).name == "paced"
    assert technique_with("paced+grad-accumulation=2", {}).name == "paced+grad-accumulation=2"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("paced", {"pase": "fast"}, "paced has no option 'pase': did you mean pace?"),
        ("paced", {"value": 4}, "no option 'value': it has pace, share"),
        ("paced", {3: 4}, "no option 3: it has pace, share"),
        ("grad-accumulation=2", {"parts": 2}, "grad-accumulation has no option 'parts': it has none"),
        ("paced+grad-accumulation=2", {"pace": "fast"}, "give options to each by itself"),
        ("pased", {"pace": "fast"}, "did you mean paced?"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest(paced, name, options, message):
    with pytest.raises(UsageError, match=message):
        technique_with(name, options)
