from __future__ import annotations

from dataclasses import replace

import pytest

from greenlove_tracker.experiments.definition import (
    ArmSection,
    PlannedRun,
    TechniqueChoice,
    expanded,
    planned_runs,
    training_key,
)
from greenlove_tracker.vocabulary.errors import UsageError

COMMON = PlannedRun(
    task="/a/digits_task.py:task",
    arguments=("--width", "32"),
    techniques=(),
    epochs=20,
    steps=None,
    batch_size=None,
    settings={},
)
OPTIMISED = (TechniqueChoice("amp-bf16", {}), TechniqueChoice("early-stopping", {"patience": 5, "delta": 1e-3}))
ARMS = {"baseline": ArmSection(), "optimised": ArmSection.model_construct(techniques=OPTIMISED)}


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({}, "e7094f1c6c56"),
        ({"seed": 1}, "92fdda1eb60b"),
        ({"arguments": ("--name", "Zoë ${TOKEN}")}, "976ad32f735a"),
        ({"steps": 100, "epochs": None}, "cc393e1d65d1"),
        ({"batch_size": 64}, "1a3aa7f14e1d"),
        ({"task": "/a/digits_task.py:other"}, "4624b73db57b"),
    ],
)
def test_keys_stay_as_they_are(change, key):
    assert training_key(replace(COMMON, **change)) == key  # another one would train everything anew


@pytest.mark.parametrize(
    "change",
    [
        {"arm": "x", "group": "x", "name": "x, seed 0", "key": "a"},
        {"settings": {"pue": 1.5, "export": "mlflow"}},
        {"task": "/elsewhere/digits_task.py:task"},
        {"task_sha256": "f" * 64},
        {"values": {"batch_size": 3}},
    ],
)
def test_what_trains_nothing_anew(change):
    assert training_key(replace(COMMON, **change)) == training_key(COMMON)


def test_the_order_of_options_is_none_but_that_of_techniques_is_one():
    first, second = OPTIMISED
    turned = TechniqueChoice("early-stopping", {"delta": 1e-3, "patience": 5})
    one = replace(COMMON, techniques=(first, second))
    assert training_key(one) == training_key(replace(COMMON, techniques=(first, turned)))
    assert training_key(one) != training_key(replace(COMMON, techniques=(second, first)))


def test_all_arms_follow_one_another_and_take_turns_in_who_is_first():
    runs = planned_runs(COMMON, ARMS, {"batch_size": [32, 64]}, [0, 1])
    assert [(run.seed, run.batch_size, run.arm[0]) for run in runs] == [
        (0, 32, "b"),
        (0, 32, "o"),
        (0, 64, "o"),
        (0, 64, "b"),
        (1, 32, "o"),
        (1, 32, "b"),
        (1, 64, "b"),
        (1, 64, "o"),
    ]


def test_names_are_those_of_the_arm_and_the_values():
    (run,) = planned_runs(COMMON, {"a": ArmSection()}, {"batch_size": [32], "--lr": ["1e-3"], "-w": ["2"]}, [7])
    assert run.group == "a, batch_size=32, --lr=1e-3, -w=2" and run.name == f"{run.group}, seed 7"
    assert run.values == {"batch_size": 32, "--lr": "1e-3", "-w": "2"} and run.batch_size == 32
    assert run.arguments == ("--width", "32", "--lr=1e-3", "-w", "2")


def test_new_seeds_arms_and_values_leave_the_keys_of_the_others():
    matrix = {"batch_size": [32], "--lr": ["1e-3", "3e-3"]}
    before = {run.name: run.key for run in planned_runs(COMMON, ARMS, matrix, [0, 1])}
    more = {"first": ArmSection.model_construct(techniques=[TechniqueChoice("compile", {})]), **ARMS}
    turned = {"--lr": ["3e-3", "1e-3", "1"], "batch_size": [16, 32]}
    after = {run.key: run for run in planned_runs(COMMON, more, turned, [5, 1, 0])}
    assert set(before.values()) <= set(after) and len(after) == 3 * 6 * 3


@pytest.mark.parametrize(
    ("text", "value"), [("${A}", "1"), ("x${A}y${B}", "x1y$A"), ("5$", "5$"), ("[${EMPTY}]", "[]")]
)
def test_variables(monkeypatch, text, value):
    for name, held in {"A": "1", "B": "$A", "EMPTY": ""}.items():  # what a variable holds is not read again
        monkeypatch.setenv(name, held)
    assert expanded(text) == value


def test_a_variable_must_be_set(monkeypatch):
    monkeypatch.setenv("OTHER", "hunter2")
    with pytest.raises(UsageError, match="TOKEN} is not set") as caught:
        expanded("${OTHER} ${TOKEN}")
    assert "hunter2" not in str(caught.value)
