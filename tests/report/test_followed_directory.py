from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from report_samples import HERE, cpu_energy, demo_rows, epoch_row, write_run

from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.schema import EPOCHS, log_lines
from greenlove_tracker.report.watch import MOST_ENDED, watch_document


def age(run_dir: Path, by_s: float) -> None:
    for path in run_dir.iterdir():
        stat = path.stat()
        os.utime(path, (stat.st_atime, stat.st_mtime - by_s))


def lines(rows) -> bytes:
    return log_lines([EPOCHS.cells(row)[: len(EPOCHS.least)] for row in rows])


def counted(path: Path) -> str:
    """What the first line says: ``1 running · 1 seems dead · 2 ended``."""
    return watch_document(path, time.time()).verdict.split("  ")[-1].rpartition(" · ")[0]


def test_runs_that_begin_and_end_while_it_looks(tmp_path):
    logs = tmp_path / "later"
    assert counted(logs) == "0 running"
    logs.mkdir()
    assert counted(logs) == "0 running"
    write_run(logs, demo_rows(2), "20261121T000001-a", status=None, fields=HERE)
    assert counted(logs) == "1 running"
    finished = write_run(tmp_path / "aside", demo_rows(2), "20261121T000001-a", fields=HERE)
    (finished.path / "summary.csv").replace(logs / "20261121T000001-a" / "summary.csv")
    assert counted(logs) == "0 running · 1 ended"
    (logs / "20261121T000001-a").rename(tmp_path / "moved")
    assert counted(logs) == "0 running"


def test_a_run_elsewhere_is_dead_when_it_writes_nothing_and_lives_when_it_writes_again(tmp_path):
    run = write_run(tmp_path, demo_rows(2), "20261121T000001-a", status=None)
    assert counted(tmp_path) == "1 running"
    age(run.path, 200.0)
    assert counted(tmp_path) == "0 running · 1 seems dead"
    with (run.path / "epochs-0.csv").open("ab") as file:
        file.write(lines([epoch_row(3, 2.0, cpu_energy(2.0))]))
    assert counted(tmp_path) == "1 running"


@pytest.mark.slow
def test_of_many_runs_only_the_newest_that_ended_are_read(tmp_path, monkeypatch):
    for i in range(30):
        write_run(tmp_path, demo_rows(1), f"20261121T0000{i:02d}-a", fields=HERE)
    write_run(tmp_path, demo_rows(1), "20261120T000000-a", status=None, fields=HERE)  # the oldest goes on
    read = []
    original = Run._read_fields
    monkeypatch.setattr(Run, "_read_fields", lambda run, name: read.append(run.run_id) or original(run, name))
    assert counted(tmp_path) == "1 running · 30 ended"
    assert len(set(read)) == MOST_ENDED + 1


def test_one_run_can_be_followed_and_what_cannot_be_read_is_named(tmp_path):
    run = write_run(tmp_path, demo_rows(1), "20261121T000001-a", status=None, fields=HERE)
    assert counted(run.path) == "1 running"
    write_run(tmp_path, demo_rows(1), "20261121T000002-a", fields={"schema_version": "99"})
    (tmp_path / "junk").mkdir()
    shown = watch_document(tmp_path, time.time())
    assert " 1 running" in shown.verdict and any(getattr(block, "text", "").startswith("! ") for block in shown.blocks)
