"""Directories of any size: read in parts, anywhere, always to the same answer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from report_samples import (
    GERMANY,
    GPU_FIELDS,
    PRICE,
    WORLD,
    cpu_energy,
    demo_rows,
    epoch_row,
    gpu_rows,
    issued,
    write_run,
)

from greenlove_tracker.logs import run_rows
from greenlove_tracker.logs.aggregate import Totals, aggregate, flat_totals
from greenlove_tracker.logs.directory import read_logs
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.tables import FORECASTS
from greenlove_tracker.logs.writer import write_summary
from greenlove_tracker.rendering import terminal
from greenlove_tracker.rendering.document import Table
from greenlove_tracker.report.build import document
from greenlove_tracker.report.directory_report import summary_document
from greenlove_tracker.report.wording import sum_cells
from greenlove_tracker.vocabulary.errors import MissingExtraError, UsageError

CUTS = (("project",), ("month", "status"), ("training",))


def summary_table(found) -> str:
    return terminal.render(summary_document(found, ["project"]))


def write_forecasts(run: Run, *forecasts) -> None:
    (run.path / "forecasts.csv").write_bytes(FORECASTS.lines(forecasts))
    write_summary(run.path, run.summary)  # with its hash


@pytest.fixture(scope="module")
def logs(tmp_path_factory) -> Path:
    """Runs of all kinds: measured, modelled, unknown, failed, interrupted, continued, forecast, damaged, none."""
    directory = tmp_path_factory.mktemp("any") / "logs"
    for i in range(9):
        month = {"started_at": f"2026-{1 + i % 3:02d}-03T10:00:00Z", "account": f"lab{i % 2}"}
        fields = {**GPU_FIELDS, "project": f"project {i % 4}", **month, "continues": f"run-{i - 1}" if i % 2 else ""}
        status = ("finished", "failed", None)[i % 3]
        write_run(directory, gpu_rows(2 + i), f"run-{i}", fields=fields, intensity=GERMANY, price=PRICE, status=status)
    write_run(directory, [epoch_row(1, 2.0)], "unknown", intensity=None)
    write_forecasts(write_run(directory, demo_rows(20), "forecast"), *(issued(t, 41.0) for t in (1.0, 5.0, 9.0)))
    broken = write_run(directory, demo_rows(3), "broken")
    (broken.path / "epochs-0.csv").write_bytes((broken.path / "epochs-0.csv").read_bytes().replace(b"1.86", b"3.86"))
    write_run(directory, demo_rows(3), "newer", fields={"schema_version": "99"})
    (directory / "junk").mkdir()
    return directory


def test_runs_are_read_anew_and_belong_to_their_groups(logs):
    found = aggregate(logs, since="2026-02-01", until="2026-03-01")
    assert [run.run_id for run in found.runs] == ["run-1", "run-4", "run-7"]
    assert found.runs[1].run_id == "run-4" and [r.run_id for r in found.runs[:2]] == ["run-1", "run-4"]
    assert found.runs[0] is not found.runs[0]
    by_training = aggregate(logs).by("training")
    assert [row.run for row in by_training["run-2",].rows] == ["run-2", "run-3"]


@pytest.mark.slow
def test_the_recorded_runs_are_what_their_epochs_add_up_to(tmp_path):
    shutil.unpack_archive(Path(__file__).parents[1] / "recorded" / "cpu-trainings.zip", tmp_path)
    runs = list(read_logs(tmp_path).readable())
    assert len(runs) == 132
    for run in runs:
        stated, added_up = run.metered_summary, run.added_up()
        assert added_up.duration_s == pytest.approx(stated.duration_s, rel=1e-9)
        assert added_up.energy_kwh == pytest.approx(stated.energy_kwh, rel=1e-9)
        assert added_up.emissions_kgco2e == pytest.approx(stated.emissions_kgco2e, rel=1e-9)


@pytest.mark.slow
def test_a_run_of_many_takes_a_few_kilobytes_of_memory(tmp_path):
    source = write_run(tmp_path / "one", [epoch_row(n, 2.0, cpu_energy(2.0)) for n in range(1, 101)])
    peaks = {}
    for n_runs in (100, 500):
        for i in range(n_runs):
            shutil.copytree(source.path, tmp_path / "logs" / f"run-{i:04d}", dirs_exist_ok=True)
        aggregate(tmp_path / "logs").by("project")  # what is imported and cached on the way
        tracemalloc.start()
        aggregate(tmp_path / "logs").by("project")
        peaks[n_runs] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert (peaks[500] - peaks[100]) / 400 < 4096  # bytes; its log has 16 KB


@pytest.fixture
def copied(make_run):
    """Two runs, copies of the first further down, and another run that was given the name of the second."""
    logs_dir = make_run("a").parent
    make_run("b")
    for place in ("0-before/deep", "copies", "copies/again"):
        shutil.copytree(logs_dir / "a", logs_dir / place / "a")
    fields = logs_dir / "copies" / "b" / "run.csv"
    shutil.copytree(logs_dir / "b", fields.parent)
    fields.write_text(fields.read_text().replace("T12:00:00.000Z", "T13:00:00.000Z"))
    (logs_dir / "0-link").symlink_to(logs_dir / "copies" / "a", target_is_directory=True)
    return logs_dir


def check_copies(logs_dir, found):
    assert (found.total.n_runs, found.total.duration_s) == (3, 60.0)
    assert sorted(run.path for run in found.runs) == [logs_dir / "a", logs_dir / "b", logs_dir / "copies" / "b"]
    copies = ("0-before/deep/a", "copies/a", "copies/again/a")
    assert {p.path.relative_to(logs_dir).as_posix(): p.message for p in found.problems} == {
        **dict.fromkeys(copies, f"left out: the same run as in {logs_dir / 'a'}"),
        "0-link": "left out: links to directories are not followed",
    }


def test_a_copy_of_a_run_counts_once_and_is_told(copied):
    check_copies(copied, aggregate(copied))
    assert aggregate(copied / "copies").total.n_runs == 2  # each directory by itself


def test_forecasts_are_scored_over_all_runs(tmp_path):
    for i in range(8):
        run = write_run(tmp_path / "logs", demo_rows(20), f"run-{i}")
        write_forecasts(run, issued(5.0, point=41.36 * (1 + i / 100), half=1.0))
    text = str(document(tmp_path / "logs").blocks)
    assert "held in 3 of 8, 38% (14% to 69%) of the runs (nominal 95%); median |error| 3.5%" in text


@pytest.mark.slow
def test_the_report_of_many_runs_tells_of_those_that_matter(tmp_path):
    source = write_run(tmp_path / "one", gpu_rows(2), "x", fields={**GPU_FIELDS, "account": "lab"}, intensity=WORLD)
    failed = write_run(tmp_path / "one", gpu_rows(2), "y", status="failed", exit_code=1)
    for i in range(300):
        shutil.copytree(source.path, tmp_path / "logs" / f"run-{i:04d}")
        shutil.copytree(failed.path, tmp_path / "logs" / f"failed-{i:04d}")
    found = document(tmp_path / "logs")
    tables = [block for block in found.blocks if isinstance(block, Table)]
    assert max(len(table.rows) for table in tables) == 12  # ten runs, the further ones and the total
    text = str(found.blocks)
    assert "590 further runs" in text and "300 runs did not finish" in found.verdict
    top = next(table for table in tables if table.columns[0].title == "run")
    further, total = top.rows[-2], top.rows[-1]
    every = aggregate(tmp_path / "logs")
    rest = Totals(sorted(every.total.rows, key=lambda row: (-row.emissions_kgco2e, row.run))[10:])
    assert further[4:7] == sum_cells(rest)[2:] and total[4:7] == sum_cells(every.total)[2:]


@pytest.fixture
def store(logs):
    """The same logs in fsspec's store in memory."""
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.put(str(logs), "/any/logs", recursive=True)
    yield "memory://any/logs"
    memory.rm("/any", recursive=True)


def test_a_store_is_read_as_a_directory_is(logs, store):
    here, there = aggregate(logs), aggregate(store)
    assert there.rows("project", "month") == here.rows("project", "month")
    assert flat_totals(there.total) == flat_totals(here.total)
    assert [p.path.name for p in there.problems] == [p.path.name for p in here.problems]
    runs = list(read_logs(store).readable())
    assert [run.summary for run in runs] == [run.summary for run in read_logs(logs).readable()]
    assert Run(runs[0].path).epochs == Run(logs / runs[0].run_id).epochs
    assert str(runs[0].path) == "memory://any/logs/broken"
    assert read_logs(f"{store}/run-0").runs[0].run_id == "run-0"
    assert document(store).title == "Training runs in logs"


def test_a_file_of_a_store_that_is_too_large_is_not_fetched(logs, store, monkeypatch):
    from fsspec.implementations.memory import MemoryFileSystem

    MemoryFileSystem().pipe_file("/any/logs/run-0/summary.csv", b"x" * (4 * 1024**2 + 1))
    fetched: list[str] = []
    cat = MemoryFileSystem.cat_file
    monkeypatch.setattr(
        MemoryFileSystem, "cat_file", lambda fs, path, **how: fetched.append(path) or cat(fs, path, **how)
    )
    found = aggregate(store)
    messages = [p.message for p in found.problems if p.path.name == "summary.csv"]
    assert messages[0] == "cannot be read: larger than 4 MiB" and "added up from the rows" in messages[1]
    assert found.total.duration_s == aggregate(logs).total.duration_s
    assert "/any/logs/run-0/summary.csv" not in fetched and "/any/logs/run-0/run.csv" in fetched


def test_a_store_that_is_not_there_is_told(store):
    with pytest.raises(UsageError, match="there is no memory://gone: track a run first"):
        read_logs("memory://gone")
    with pytest.raises(UsageError, match="nostore://x: Unsupported filesystem: 'nostore'"):
        read_logs("nostore://x")


def test_dask_that_is_not_installed_is_told_with_how_to_get_it(logs, monkeypatch):
    monkeypatch.setattr("greenlove_tracker.vocabulary.errors.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r'pip install "greenlove-tracker\[dask\]"'):
        _ = aggregate(logs, scheduler="tcp://127.0.0.1:9").total


def check_same_answer(here, there):
    for keys in CUTS:
        assert there.rows(*keys) == here.rows(*keys)
    assert [str(p) for p in there.problems] == [str(p) for p in here.problems]


@pytest.mark.slow
def test_several_processes_give_the_same_answer(logs, monkeypatch):
    monkeypatch.setattr(run_rows, "_PART", 3)
    monkeypatch.chdir(logs.parent)
    check_same_answer(aggregate("logs"), aggregate("logs", processes=2))
    script = """
import os
from greenlove_tracker import aggregate
from greenlove_tracker.logs import run_rows
run_rows._PART, run_rows._RUNS_OF_A_PROCESS, os.sched_getaffinity, read = 3, 1, lambda _: {0, 1}, run_rows._read_part
def reading(*asked):
    print(os.getpid() != parent, flush=True)
    return read(*asked)
parent, run_rows._read_part = os.getpid(), reading
print(aggregate("logs").rows("run") == aggregate("logs", processes=1).rows("run"))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    # Forked on Linux, without being asked for.
    assert done.stdout.endswith("True\n") and (done.stdout.count("True") > 2) == (sys.platform == "linux")


@pytest.mark.slow
def test_dask_gives_the_same_answer_from_several_processes(logs, monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(run_rows, "_PART", 3)
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None)
    with cluster, distributed.Client(cluster) as client:
        assert len(set(client.run(os.getpid).values()) - {os.getpid()}) == 2
        there = aggregate(logs, scheduler=cluster.scheduler_address)
        check_same_answer(aggregate(logs), there)
    assert not (logs.parent / "dask-worker-space").exists()


def test_a_scheduler_that_does_not_answer_is_told(logs, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(run_rows, "_CONNECT_S", 0.3)
    with pytest.raises(UsageError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        _ = aggregate(logs, scheduler="tcp://127.0.0.1:9").total
