from __future__ import annotations

import hashlib
import os

import pytest
from conftest import epoch_row

from greenlove_tracker.logs.aggregate import aggregate
from greenlove_tracker.logs.directory import read_logs
from greenlove_tracker.logs.file_hashes import FileHash, changes_since_end, difference, hash_file, hashes_from_lines
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.writer import RunWriter, write_summary
from greenlove_tracker.records import Field


def test_a_summary_holds_the_hash_of_every_other_file_as_any_program_computes_it(make_run):
    run_dir = make_run()
    hashes = Run(run_dir).file_hashes
    assert set(hashes) == {"run.csv", "epochs-0.csv"} == {p.name for p in run_dir.iterdir()} - {"summary.csv"}
    for name, found in hashes.items():
        data = (run_dir / name).read_bytes()
        assert found == FileHash(len(data), hashlib.sha256(data).hexdigest())
    assert changes_since_end(run_dir, hashes) == []


def test_a_run_without_an_end_has_none(make_run):
    run = Run(make_run(is_closed=False))
    assert run.file_hashes == {} and changes_since_end(run.path, run.file_hashes) == []


def test_a_process_that_has_not_closed_its_files_has_no_hashes_until_another_look(make_run):
    run_dir = make_run()
    open_one = RunWriter(run_dir, 1, [Field("role", "joined")], pytest.fail)
    make_run(rank=2, is_closed=False)  # closed without a summary, as by a rank that does not lead
    assert write_summary(run_dir, Run(run_dir).added_up())
    hashes = Run(run_dir).file_hashes
    assert {name for name, found in hashes.items() if found is None} == {"run-1.csv", "epochs-1.csv"}
    assert {"run-2.csv", "epochs-2.csv", "epochs-0.csv", "run.csv"} < set(hashes)
    open_one.write_row(epoch_row(1))
    assert changes_since_end(run_dir, hashes) == []  # it goes on: nobody tampered with it
    open_one.close(None)
    assert write_summary(run_dir, Run(run_dir).added_up())
    hashes = Run(run_dir).file_hashes
    assert hashes["epochs-1.csv"] == hash_file(run_dir / "epochs-1.csv") and None not in hashes.values()
    assert not write_summary(run_dir, Run(run_dir).added_up())


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"0123456789", ""),
        (b"0123456789+", "was added to: 1 byte more at its end"),
        (b"0123456780", "was changed: it is as long as before, but holds something else"),
        (b"01234", "was changed: it holds 5 bytes instead of 10"),
        (b"x0123456789", "was changed: it holds 11 bytes instead of 10"),
        (b"", "was changed: it holds 0 bytes instead of 10"),
    ],
)
def test_a_difference_is_told_by_what_was_done(tmp_path, data, says):
    (tmp_path / "file").write_bytes(b"0123456789")
    stated = hash_file(tmp_path / "file")
    (tmp_path / "file").write_bytes(data)
    assert difference(tmp_path / "file", stated) == says
    (tmp_path / "file").unlink()
    assert difference(tmp_path / "file", stated) == "is missing"


def test_an_empty_file_that_was_added_to_is_told_as_such(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    stated = hash_file(tmp_path / "file")
    (tmp_path / "file").write_bytes(b"ab")
    assert difference(tmp_path / "file", stated) == "was added to: 2 bytes more at its end"


def test_a_large_file_is_read_in_pieces(tmp_path):
    data = os.urandom(2_500_000)
    (tmp_path / "file").write_bytes(data[:1_500_000])
    stated = hash_file(tmp_path / "file")
    (tmp_path / "file").write_bytes(data)
    assert difference(tmp_path / "file", stated) == "was added to: 1,000,000 bytes more at its end"
    assert hash_file(tmp_path / "file").sha256 == hashlib.sha256(data).hexdigest()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "file")
    assert "no plain file" in difference(tmp_path / "file", FileHash(0, "0" * 64))


def test_a_damaged_hash_is_a_problem_by_name(make_run):
    problems = []
    lines = [["file.run.csv.bytes", "12"], ["file.run.csv.sha256", "abc"], ["file.a.csv.bytes", ""], ["run_id", "x"]]
    assert hashes_from_lines(lines, problems.append) == {"a.csv": None}
    assert problems == ["the hash of run.csv left out: 'abc' is no SHA-256"]


def test_verifying_a_summary_names_what_its_sums_do_not_show(make_run):
    run_dir = make_run()
    (run_dir / "run.csv").write_text((run_dir / "run.csv").read_text() + "project,other,\n")
    (run_dir / "spans-0.csv").write_text("name\n")
    found = aggregate(read_logs(run_dir.parent), verify=True)
    clauses = ["run.csv was added to: 15 bytes more at its end", "spans-0.csv was added"]
    assert [problem.message for problem in found.problems] == [f"since its end {clause}" for clause in clauses]
    assert found.verified.n_differing == 1
