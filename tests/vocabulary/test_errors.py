from __future__ import annotations

import copy
import pickle

import pytest

from greenlove_tracker.vocabulary.errors import SettingError, UsageError

OPTIONS = {"budget_s": "--budget", "total_epochs": "--epochs", "total_steps": "--steps"}


@pytest.mark.parametrize(
    ("message", "argument", "in_python", "in_options"),
    [
        ("{argument} must be positive", "budget_s", "budget_s must be positive", "--budget must be positive"),
        ("give a larger {argument}", "budget_s", "give a larger budget_s", "give a larger --budget"),
        (
            "give {argument} or {argument}",
            ("total_epochs", "total_steps"),
            "give total_epochs or total_steps",
            "give --epochs or --steps",
        ),
        ("say with {argument=} how long", "total_steps", "say with total_steps= how long", "say with --steps how long"),
        ("{argument} is not positive", "seed", "seed is not positive", "seed is not positive"),
        ("no run in logs/budget_s", (), "no run in logs/budget_s", "no run in logs/budget_s"),
        ("{argument} is not '{argument}' {0}", "seed", "seed is not '{argument}' {0}", "seed is not '{argument}' {0}"),
    ],
)
def test_only_the_names_of_arguments_become_options(message, argument, in_python, in_options):
    error = UsageError(message, argument=argument)
    assert str(error) == in_python and error.in_options(OPTIONS) == in_options


@pytest.mark.parametrize("kind", [UsageError, SettingError])
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_an_error_that_dask_sends_keeps_its_argument(kind, copied):
    error = copied(kind("{argument} must be positive", argument="budget_s"))
    assert type(error) is kind and str(error) == "budget_s must be positive"
    assert error.in_options(OPTIONS) == "--budget must be positive" and error.is_of_value
