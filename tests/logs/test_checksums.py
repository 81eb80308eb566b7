"""``SHA256SUMS`` of a run, as the real ``sha256sum`` and ``greenlove report --verify`` compare it."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from click.testing import CliRunner
from conftest import epoch_row

from greenlove_tracker import Tracker
from greenlove_tracker.cli import cli
from greenlove_tracker.logs.aggregate import aggregate
from greenlove_tracker.logs.checksums import SUMS_FILE, verify, write_sums
from greenlove_tracker.logs.run import Run
from greenlove_tracker.meter import SimulatedMeter
from greenlove_tracker.records import SystemClock


@pytest.fixture
def run_dir(tmp_path):
    """A run that has ended."""
    meter = SimulatedMeter(SystemClock(), cpu_tdp_w=50.0)
    with Tracker(epochs=2, log_dir=str(tmp_path / "logs"), meter=meter, verbose=0) as tracker:
        for _ in range(2):
            tracker.epoch_start()
            tracker.epoch_end()
    return tracker.run_dir


def by_coreutils(run_dir):
    return subprocess.run(["sha256sum", "--strict", "-c", SUMS_FILE], cwd=run_dir, capture_output=True, text=True)


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="no coreutils")
def test_sha256sum_accepts_a_finished_run_and_finds_a_changed_file(run_dir):
    done = by_coreutils(run_dir)
    assert done.returncode == 0, done.stderr
    names = {path.name for path in run_dir.iterdir()} - {SUMS_FILE}
    assert {line.removesuffix(": OK") for line in done.stdout.splitlines()} == names
    assert {"run.csv", "epochs-0.csv", "summary.csv"} <= names
    (run_dir / "epochs-0.csv").write_bytes((run_dir / "epochs-0.csv").read_bytes().replace(b"1", b"2", 1))
    assert by_coreutils(run_dir).returncode == 1


CHANGES = {
    "epochs-0.csv was changed": lambda d: (d / "epochs-0.csv").write_bytes((d / "epochs-0.csv").read_bytes() + b"\n"),
    "summary.csv is missing": lambda d: (d / "summary.csv").unlink(),
    "epochs-7.csv was added": lambda d: shutil.copy(d / "epochs-0.csv", d / "epochs-7.csv"),
    "run.csv was changed": lambda d: (d / "run.csv").unlink() or (d / "run.csv").mkdir(),
    f"{SUMS_FILE} was changed: it holds what is no checksum": lambda d: (d / SUMS_FILE).write_bytes(
        b"0" * 64 + b"  ../x.csv\n" + (d / SUMS_FILE).read_bytes()
    ),
}


@pytest.mark.parametrize("clause", CHANGES)
def test_what_was_changed_added_or_removed_is_named(run_dir, clause):
    assert verify(run_dir).findings == [] and verify(run_dir).n_verified == 1
    CHANGES[clause](run_dir)
    for place in (run_dir, run_dir.parent):
        assert verify(place).findings == [f"run {run_dir.name}: {clause}"]


def test_emptied_checksums_vouch_for_nothing(run_dir):
    (run_dir / SUMS_FILE).write_text("")
    assert "run.csv was added" in " ".join(verify(run_dir).findings)


def test_pages_and_hidden_files_in_a_run_are_not_its_log(run_dir):
    (run_dir / "report.html").write_text("a page")
    (run_dir / ".hidden.csv").write_text("a draft")
    assert verify(run_dir).findings == []


def test_a_run_without_checksums_is_told_and_does_not_fail(run_dir, make_run):
    old = make_run(rows=[epoch_row(1)])
    assert old.parent == run_dir.parent
    page = run_dir.parent / "report.md"
    done = CliRunner().invoke(cli, ["report", str(run_dir.parent), "--verify", "-o", str(page)])
    assert done.exit_code == 0, done.stderr
    assert "1 run without SHA256SUMS" in done.stderr and old.name in done.stderr
    assert "1 run compared with SHA256SUMS: all files as at their end; 1 run without SHA256SUMS." in page.read_text()


@pytest.mark.parametrize("is_directory", [True, False])
def test_a_report_that_verifies_names_every_file_and_ends_with_code_1(run_dir, is_directory, tmp_path):
    (run_dir / "run.csv").write_bytes((run_dir / "run.csv").read_bytes() + b"project,other,\n")
    page = tmp_path / "report.md"
    logs = run_dir.parent if is_directory else run_dir
    done = CliRunner().invoke(cli, ["report", str(logs), "--verify", "-o", str(page)])
    assert done.exit_code == 1 and f"! run {run_dir.name}: run.csv was changed" in done.stderr
    assert f"run {run_dir.name}: run.csv was changed" in page.read_text() and "see Integrity" in page.read_text()
    assert aggregate(run_dir.parent, verify=True).verified.n_differing == 1  # as summary --verify has it


def test_a_process_that_ends_later_writes_the_checksums_anew(run_dir):
    (run_dir / "epochs-1.csv").write_bytes((run_dir / "epochs-0.csv").read_bytes())
    write_sums(run_dir)
    assert verify(run_dir).findings == []


def test_hashes_that_versions_before_wrote_into_a_summary_are_passed_over(run_dir):
    before = Run(run_dir).summary
    with (run_dir / "summary.csv").open("a") as file:
        file.write(f"file.run.csv.bytes,12,B\nfile.run.csv.sha256,{'0' * 64},\n")
    (run_dir.parent / "greenlove_seal.jsonl").write_text("{}\n")
    (run_dir / SUMS_FILE).unlink()
    found = aggregate(run_dir.parent, verify=True)
    assert Run(run_dir).summary == before and found.problems == [] and found.verified.n_agreeing == 1
