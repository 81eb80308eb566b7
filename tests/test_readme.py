"""The front page says nothing that no test and no benchmark shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from greenlove_tracker.cli import cli

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
WORDS = " ".join(re.sub(r"\]\([^)]*\)|[\[\]*`]", "", TEXT).split())

SHOWN_BY = {
    "half a minute of exploration forecasts the whole training": "benchmarks/compare_explorations.py",
    "each epoch is measured, the rest is forecast, and a budget can stop it": (
        "tests/tracker/test_budgets.py::test_a_budget_that_will_be_overrun_is_warned_of_once"
    ),
    "from CSV files that survive a crash": (
        "tests/tracker/test_shutdown.py::test_a_killed_process_leaves_all_that_was_finished"
    ),
    "seven more providers, or from your price list": (
        "tests/cli/test_project.py::test_the_decision_keeps_the_limits_where_it_can"
    ),
    "Every forecast and energy has a range": (
        "tests/golden/expected/forecast-outcomes.json",
        "benchmarks/energy_errors.py",
    ),
    "It uses no network unless you ask": ("tests/tracker/test_shutdown.py::test_without_any_network_it_is_the_same"),
    "loop needs five lines, and no torch": "tests/test_public_names.py::test_importing_the_package_loads_nothing_heavy",
    "Your epochs are found in plain PyTorch, Hugging Face and Lightning": (
        "tests/test_runner_loops.py::test_a_plain_script_is_seen_and_does_what_it_does_without_us",
        "tests/integrations/test_automatic.py::test_a_hugging_face_trainer_is_tracked_unless_the_script_does_so",
        "tests/integrations/test_automatic.py::test_a_lightning_trainer_is_tracked_unless_the_script_does_so",
    ),
    "shows everything in a minute": ("tests/cli/test_demo.py::test_the_whole_story_is_on_one_screen_without_torch"),
    "Unknown is never zero": "tests/tracker/test_tracker.py::test_no_meter_is_unknown_energy_not_zero",
    "A model never looks like a measurement": (
        "tests/meter/test_codecarbon.py::test_every_component_says_how_it_was_obtained"
    ),
    "Its row is on the disk within a second": (
        "tests/tracker/test_tracker.py::test_rows_are_on_the_disk_with_the_next_tick"
    ),
    "kill -9 costs a minute at most": (
        "tests/tracker/test_shutdown.py::test_a_killed_process_leaves_all_that_was_finished"
    ),
    "The meter starts in the background": (
        "tests/test_public_names.py::test_making_a_tracker_loads_nothing_heavy_in_the_training_thread"
    ),
    "Exit codes, signals and output stay yours": (
        "tests/test_runner.py::test_exit_codes_and_signals_pass_through",
        "tests/test_runner.py::test_stdout_is_the_scripts_own_and_the_screen_goes_to_stderr",
    ),
    "An error of ours is one warning": (
        "tests/tracker/test_parts.py::test_a_part_that_fails_is_warned_of_once_and_dropped_and_the_run_goes_on"
    ),
    "An epoch costs about a millisecond": "benchmarks/overhead.py",
    "Forecasts are scored against what the run took": "tests/golden/expected/forecast-outcomes.json",
    "How often their ranges hold is measured": (
        "benchmarks/backtest.py",
        "benchmarks/backtest_gpu.py",
        "benchmarks/backtest_live.py",
    ),
    "Carbon-intensity services were not queried live": "docs/reference/intensity.md",
}


@pytest.mark.parametrize("claim", SHOWN_BY)
def test_a_claim_is_shown_by_a_test_or_a_benchmark(claim: str) -> None:
    assert claim in WORDS
    shown_by = SHOWN_BY[claim]
    for place in (shown_by,) if isinstance(shown_by, str) else shown_by:
        path, _, name = place.partition("::")
        assert (ROOT / path).is_file(), place
        assert not name or f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), place


def test_no_sentence_under_what_you_can_rely_on_is_without_one() -> None:
    part = TEXT.partition("## What you can rely on")[2].partition("## Where it ends")[0]
    for item in re.findall(r"^- (.*?)(?=^- |\Z)", part, re.MULTILINE | re.DOTALL):
        plain = " ".join(re.sub(r"\]\([^)]*\)|[\[\]*`]", "", item).split())
        assert any(claim in plain for claim in SHOWN_BY), plain


def test_it_opens_with_the_demo_and_the_tests_which_the_makefile_knows() -> None:
    first = re.findall(r"^```\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)[0]
    assert re.findall(r"^(make \w+)", first, re.MULTILINE) == ["make demo", "make test"]
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {"demo", "test"} <= set(targets)


def commands() -> list[str]:
    fenced = re.findall(r"^(greenlove [^\n#]*)", TEXT, re.MULTILINE)
    in_table = re.findall(r"\| `(greenlove [^`]*)`", TEXT)
    return [*fenced, *in_table]


@pytest.mark.parametrize("command", [c for c in commands() if not c.startswith("greenlove  ")])
def test_a_command_has_options_that_there_are(command: str) -> None:
    verb, *words = [word for word in shlex.split(command)[1:] if word != "…"]
    found = cli.commands[verb]
    while isinstance(found, click.Group):
        found = found.commands[words.pop(0)]
    found.make_context(verb, words)


def test_it_has_the_commands_that_the_test_reads() -> None:
    assert len(commands()) >= 9
