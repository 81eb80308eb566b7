from __future__ import annotations

import re
import shutil

import pytest
from click.testing import CliRunner
from conftest import epoch_row

from greenlove_tracker.cli import cli
from greenlove_tracker.logs.schema import SEAL_FILE

pytestmark = pytest.mark.usefixtures("no_settings")
A, B = "20261101T120000-aaaaaaaaaa", "20261102T120000-bbbbbbbbbb"


def call(*arguments):
    return CliRunner().invoke(cli, ["seal", *map(str, arguments)])


@pytest.fixture
def directory(make_run):
    make_run(A)
    return make_run(B, rows=[epoch_row(1)]).parent


def test_sealing_says_what_it_did_and_which_hash_to_keep(directory):
    result = call(directory)
    assert result.exit_code == 0
    said, head, keep = result.stdout.splitlines()
    assert said == "Sealing 1: 2 runs added, 2 sealed in all."
    assert re.fullmatch("head    [0-9a-f]{64}", head) and keep.startswith(
        "Keep this hash elsewhere: --verify --head HASH"
    )
    assert call(directory).stdout.splitlines() == ["Nothing is new: 2 runs sealed.", head, keep]
    assert call(directory, "--verify", "--head", head.split()[1].upper()).exit_code == 0


def test_verifying_says_that_all_is_well(directory):
    call(directory)
    result = call(directory, "--verify")
    first = result.stdout.splitlines()[0]
    assert result.exit_code == 0
    assert first == "Everything is as it was sealed. Verified: 2 runs with 6 files, 1 sealing."


def test_every_finding_is_a_line_and_the_exit_code_is_1(directory):
    call(directory)
    (directory / A / "run.csv").unlink()
    shutil.rmtree(directory / B)
    result = call(directory, "--verify", "--head", "0" * 64)
    lines = result.stdout.splitlines()
    assert result.exit_code == 1
    assert lines[:2] == [
        f"! {SEAL_FILE} holds no line {'0' * 64}: lines were deleted, or all of it was written anew.",
        f"! Run {A}: run.csv is missing.",
    ]
    assert lines[2].startswith(f"! Run {B} is missing: sealing 1 of 20")
    assert lines[3] == "3 findings: not all is as it was sealed. Verified: 1 run with 3 files, 1 sealing."


def test_a_changed_run_is_refused_and_sealed_with_a_reason(directory):
    call(directory)
    (directory / A / "run.csv").write_text("field,value,unit\n")
    result = call(directory)
    assert result.exit_code == 1 and result.stdout == ""
    assert "Error: nothing was sealed" in result.stderr and f"run {A}: run.csv was changed" in result.stderr
    assert "seal it as it is with --allow-changed, followed by why." in result.stderr
    shutil.rmtree(directory / B)
    result = call(directory, "--allow-changed", "the price was wrong")
    assert result.exit_code == 0 and "Sealing 2: 1 run added, 1 run dropped, 1 sealed in all." in result.stdout
    result = call(directory, "--verify")
    assert result.exit_code == 0
    assert f"Sealing 2 took run {A} as changed, run {B} as removed, because: the price was wrong" in result.stdout


def test_a_directory_that_was_never_sealed_is_not_verified(directory):
    result = call(directory, "--verify")
    assert result.exit_code == 1 and result.stdout.startswith(f"! There is no {SEAL_FILE}: nothing was sealed")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--key", "x"], "--key is a key of the program that --sign names"),
        (["--head", "0"], "say --verify too"),
        (["--allow-changed", " "], "--allow-changed takes the reason"),
        (["--allow-changed", "x", "--verify"], "goes without --verify"),
    ],
)
def test_options_that_do_not_go_together_are_refused(directory, arguments, says):
    result = call(directory, *arguments)
    assert result.exit_code == 1 and says in result.stderr and result.stdout == ""
    assert not (directory / SEAL_FILE).exists()


def test_without_a_directory_that_of_the_settings_counts(directory, monkeypatch):
    monkeypatch.setenv("GREENLOVE_LOG_DIR", str(directory))
    assert call().exit_code == 0 and (directory / SEAL_FILE).exists()
    assert call(directory / "nowhere").exit_code == 1
