from __future__ import annotations

import pytest

from greenlove_tracker.errors import in_options

OPTIONS = {"budget": "--all", "budget_s": "--budget", "total_steps": "--steps", "a number, or None": "a number"}


@pytest.mark.parametrize(
    ("sentence", "shown"),
    [
        ("budget_s must be positive", "--budget must be positive"),
        ("give a larger budget_s", "give a larger --budget"),
        ("say with total_steps= how long it is; total_steps=3", "say with --steps how long it is; --steps=3"),
        ("budget_s: a number, or None, not 'x'.", "--budget: a number, not 'x'."),
        ("no run in logs/budget_s or budget_s/logs", "no run in logs/budget_s or budget_s/logs"),
        ("my_budget_s and --budget_s are others", "my_budget_s and --budget_s are others"),
    ],
)
def test_only_the_names_of_arguments_become_options(sentence, shown):
    assert in_options(sentence, OPTIONS) == shown


def test_without_options_a_sentence_stays():
    assert in_options("budget_s must be positive", {}) == "budget_s must be positive"
