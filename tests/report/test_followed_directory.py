from __future__ import annotations

import os
from pathlib import Path

import pytest
from report_samples import HERE, cpu_energy, demo_rows, epoch_row, write_run

from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.schema import EPOCHS, log_lines
from greenlove_tracker.report.watch import look
from greenlove_tracker.vocabulary.records import RunStatus


def age(run_dir: Path, by_s: float) -> None:
    for path in run_dir.iterdir():
        stat = path.stat()
        os.utime(path, (stat.st_atime, stat.st_mtime - by_s))


def lines(rows) -> bytes:
    return log_lines([EPOCHS.cells(row)[: len(EPOCHS.least)] for row in rows])


def n_dead(seen) -> int:
    return sum(not run.has_summary for run in seen.ended)


def test_runs_that_begin_and_end_while_it_looks(tmp_path):
    logs = tmp_path / "later"
    where = logs
    assert not look(where, 3).is_there
    logs.mkdir()
    assert look(where, 3).is_there and look(where, 3).running == []
    write_run(logs, demo_rows(2), "20261121T000001-a", status=None, fields=HERE)
    assert [run.run_id for run in look(where, 3).running] == ["20261121T000001-a"]
    finished = write_run(tmp_path / "aside", demo_rows(2), "20261121T000001-a", fields=HERE)
    (finished.path / "summary.csv").replace(logs / "20261121T000001-a" / "summary.csv")
    seen = look(where, 3)
    assert (len(seen.running), len(seen.ended), n_dead(seen)) == (0, 1, 0)
    assert seen.ended[0].summary.status == RunStatus.FINISHED
    (logs / "20261121T000001-a").rename(tmp_path / "moved")
    assert look(where, 3).running == []


def test_a_run_elsewhere_is_dead_when_it_writes_nothing_and_lives_when_it_writes_again(tmp_path):
    run = write_run(tmp_path, demo_rows(2), "20261121T000001-a", status=None)
    where = tmp_path
    assert len(look(where, 3).running) == 1
    age(run.path, 200.0)
    seen = look(where, 3)
    assert (len(seen.running), n_dead(seen), [r.run_id for r in seen.ended]) == (0, 1, [run.run_id])
    with (run.path / "epochs-0.csv").open("ab") as file:
        file.write(lines([epoch_row(3, 2.0, cpu_energy(2.0))]))
    seen = look(where, 3)
    assert (len(seen.running), n_dead(seen)) == (1, 0)


@pytest.mark.slow
@pytest.mark.parametrize("n_shown", [0, 3])
def test_of_many_runs_only_the_newest_that_ended_are_read(tmp_path, monkeypatch, n_shown):
    for i in range(30):
        write_run(tmp_path, demo_rows(1), f"20261121T0000{i:02d}-a", fields=HERE)
    write_run(tmp_path, demo_rows(1), "20261120T000000-a", status=None, fields=HERE)  # the oldest goes on
    read = []
    original = Run._read_fields
    monkeypatch.setattr(Run, "_read_fields", lambda run, name: read.append(run.run_id) or original(run, name))
    where = tmp_path
    seen = look(where, n_shown)
    assert (len(seen.running), len(seen.ended), n_dead(seen)) == (1, 30, 0)
    assert [run.run_id[13:15] for run in seen.ended[:n_shown]] == ["29", "28", "27"][:n_shown]
    assert len(set(read)) == n_shown + 1


def test_one_run_can_be_followed_and_what_cannot_be_read_is_named(tmp_path):
    run = write_run(tmp_path, demo_rows(1), "20261121T000001-a", status=None, fields=HERE)
    assert [r.path for r in look(run.path, 3).running] == [run.path]
    write_run(tmp_path, demo_rows(1), "20261121T000002-a", fields={"schema_version": "99"})
    (tmp_path / "junk").mkdir()
    seen = look(tmp_path, 3)
    assert len(seen.running) == 1 and "newer than" in str(seen.problems[0])
