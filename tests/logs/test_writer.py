import errno
import multiprocessing
import os
import re
import shutil
import time
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import pytest
from conftest import epoch_row

from greenlove_tracker.files.writing import write_atomically
from greenlove_tracker.logs import schema, tables
from greenlove_tracker.logs import writer as writer_module
from greenlove_tracker.logs.directory import read_logs
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.schema import LogTable
from greenlove_tracker.logs.writer import (
    RunWriter,
    claim_run_id,
    claims_dir_name,
    create_run_dir,
    new_run_id,
)
from greenlove_tracker.vocabulary.errors import LogDirError, UsageError
from greenlove_tracker.vocabulary.records import Field, Row

UTC_S = 1_793_534_400.0  # 2026-11-01 12:00
FIELDS = [Field("schema_version", "1"), Field("project", "digits"), Field("carbon_intensity", "400.0", "gCO2e/kWh")]
ROWS = [epoch_row(n) for n in range(1, 6)]


@pytest.fixture
def errors():
    return []


@pytest.fixture
def run_dir(tmp_path):
    return create_run_dir(tmp_path / "logs", "20261101T120000-aaaaaaaa")


@pytest.fixture
def writer(run_dir, errors):
    return RunWriter(run_dir, 0, FIELDS, errors.append)


class Disk:
    """Takes ``room`` bytes from every open log, and then is full."""

    def __init__(self, monkeypatch):
        self.room = 10**9
        self._write, self._write_atomically = os.write, writer_module.write_atomically
        monkeypatch.setattr(os, "write", self.write)
        monkeypatch.setattr(writer_module, "write_atomically", self.write_whole)

    def write(self, handle, data):
        if self.room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = self._write(handle, data[: self.room])
        self.room -= taken
        return taken

    def write_whole(self, path, data):
        if self.room < len(data):
            raise OSError(errno.ENOSPC, "No space left on device")
        self._write_atomically(path, data)


@pytest.fixture
def disk(monkeypatch):
    return Disk(monkeypatch)


def summary_of(run_dir):
    return Run(run_dir).added_up()


@pytest.mark.parametrize("room", [0, 1, 37, 200])
def test_a_full_disk_loses_nothing(writer, run_dir, errors, disk, room):
    writer.write_row(ROWS[0])
    disk.room = room
    for row in ROWS[1:4]:
        writer.write_row(row)
    writer.write_fields([Field("gpu_count", "8")])
    writer.sync()
    assert {e.errno for e in errors} == {errno.ENOSPC}
    assert next(iter(Run(run_dir).rows[0])) == ROWS[0]
    disk.room = 10**9
    writer.sync()
    assert list(Run(run_dir).rows[0]) == ROWS[:4]
    writer.write_row(ROWS[4])
    assert writer.close(summary_of(run_dir))
    run = Run(run_dir)
    assert (list(run.rows[0]), run.text("gpu_count"), run.problems) == (ROWS, "8", [])


def test_a_disk_that_is_full_from_the_start_gets_everything_later(run_dir, errors, disk):
    disk.room = 0
    writer = RunWriter(run_dir, 0, FIELDS, errors.append)
    writer.write_row(ROWS[0])
    writer.write_fields([Field("gpu_count", "8")])
    writer.sync()
    assert {e.errno for e in errors} == {errno.ENOSPC}
    disk.room = 10**9
    writer.sync()
    run = Run(run_dir)
    assert (list(run.rows[0]), run.text("project"), run.text("gpu_count")) == (ROWS[:1], "digits", "8")
    assert writer.close(None) and run.problems == []


def test_a_disk_that_stays_full_is_told_at_the_end(writer, run_dir, errors, disk):
    disk.room = 0
    writer.write_row(ROWS[0])
    assert not writer.close(summary_of(run_dir))
    assert sorted(writer.unwritten) == ["epochs-0.csv", "summary.csv"]
    run = Run(run_dir, writer.held())
    assert (list(run.rows[0]), run.has_summary, run.problems) == (ROWS[:1], True, [])


@pytest.mark.parametrize("is_noticed_before", [True, False])
def test_a_removed_directory_is_written_again(writer, run_dir, errors, is_noticed_before):
    writer.write_fields([Field("gpu_count", "8")])
    writer.write_row(ROWS[0])
    summary = summary_of(run_dir)
    shutil.rmtree(run_dir.parent)
    writer.write_row(ROWS[1])
    assert list(Run(run_dir).rows[0]) == ROWS[:2]
    if is_noticed_before:
        writer.sync()
        assert Run(run_dir).text("project") == "digits"
        shutil.rmtree(run_dir.parent)
    assert writer.close(summary)
    run = Run(run_dir)
    assert errors == run.problems == [] and run.summary == summary
    assert (list(run.rows[0]), run.text("project"), run.text("gpu_count")) == (ROWS[:2], "digits", "8")


def test_a_directory_that_cannot_be_made_again_is_told_and_loses_nothing(writer, run_dir, errors, monkeypatch):
    writer.write_row(ROWS[0])
    monkeypatch.setattr(writer_module, "MOST_PENDING_BYTES", (run_dir / "epochs-0.csv").stat().st_size)
    shutil.rmtree(run_dir)
    run_dir.write_text("")
    writer.write_row(ROWS[1])
    writer.write_row(ROWS[2])
    assert {e.errno for e in errors} == {errno.EEXIST}
    run_dir.unlink()
    assert (writer.close(None), list(Run(run_dir).rows[0]), Run(run_dir).text("project")) == (True, ROWS[:3], "digits")


def test_what_is_kept_while_the_disk_is_full_is_bounded_and_the_rest_is_told(
    writer, run_dir, errors, disk, monkeypatch
):
    monkeypatch.setattr(writer_module, "MOST_PENDING_BYTES", 1000)
    writer.write_row(ROWS[0])
    disk.room = 0
    for _ in range(100):
        writer.write_row(replace(ROWS[1]))
    disk.room = 10**9
    assert not writer.close(summary_of(run_dir)) and errors
    assert list(writer.unwritten) == ["epochs-0.csv"] and "are lost" in str(writer.unwritten["epochs-0.csv"])
    kept = Run(run_dir).rows[0]
    assert list(kept) == writer.rows() == [ROWS[0], *[ROWS[1]] * (len(kept) - 1)] and 5 < len(kept) < 20


def test_a_row_that_a_handler_of_the_trainings_broke_off_is_there_once(writer, run_dir, errors, monkeypatch):
    def written_and_then(handle, data):
        raise_at.pop()
        write(handle, data)
        raise OfHandlerError

    class OfHandlerError(Exception): ...

    write, raise_at = os.write, [None]
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", written_and_then)
        with pytest.raises(OfHandlerError):
            writer.write_row(ROWS[0])
    writer.write_row(ROWS[0])
    writer.write_row(ROWS[1])
    assert list(Run(run_dir).rows[0]) == ROWS[:2]


def test_trackers_of_one_command_do_not_write_over_one_another(run_dir, errors):
    command = RunWriter(run_dir, "command", FIELDS, errors.append)
    for n in range(2):
        tracker = RunWriter(run_dir, 0, [Field("project", "inner"), Field("epochs_planned", "7")], errors.append)
        tracker.write_row(ROWS[n])
        assert tracker.close(None)
    command.write_fields([Field("gpu_count", "2")])
    assert command.close(None) and errors == []
    run = Run(run_dir)
    assert (run.text("project"), run.text("epochs_planned"), run.text("gpu_count")) == ("digits", "7", "2")
    assert {rank: list(rows) for rank, rows in run.rows.items()} == {0: ROWS[:1], 1: ROWS[1:2]}
    assert run.problems == []


@dataclass(frozen=True, slots=True)
class WarmRow(Row):
    """A row with one column more: one line."""

    gpu_temperature_c: Annotated[float | None, "of the hottest GPU", "finite"] = None


@pytest.mark.parametrize("has_rates", [False, True])
def test_a_further_column_is_written_without_further_ado_and_older_logs_are_read_as_before(
    run_dir, errors, monkeypatch, has_rates
):
    RunWriter(run_dir, 0, FIELDS, errors.append, has_rates=has_rates).write_row(ROWS[0])
    monkeypatch.setattr(schema, "EPOCHS", LogTable(WarmRow, "epochs-{}.csv", last_of_first="flags"))
    values = {field.name: getattr(ROWS[1], field.name) for field in fields(Row)}
    warm = WarmRow(**values, gpu_temperature_c=71.5)
    RunWriter(run_dir, 1, [], errors.append, has_rates=has_rates).write_row(warm)
    run = Run(run_dir)
    (old,) = run.rows[0]
    assert (old.duration_s, old.energy, old.gpu_temperature_c) == (ROWS[0].duration_s, ROWS[0].energy, None)
    assert run.rows[1] == [warm] and run.problems == [] and errors == []


def test_columns_that_older_logs_lack_may_be_empty():
    declared = [*vars(schema).values(), *vars(tables).values()]
    for table in filter(lambda one: isinstance(one, LogTable), declared):
        for column in table.described[len(table.least) :]:
            assert column.may_be_empty or not column.read(""), f"{table.title}: {column.name}"


def test_texts_of_a_run_come_back_on_one_line(run_dir, errors):
    odd = 'a, "b"\nc\r\nd\re\u2028f\x0bg\x85h\x1ci é漢🙂'
    writer = RunWriter(run_dir, 0, [*FIELDS, Field("command", odd)], errors.append)
    writer.write_fields([Field("tags", "\udcff and \x00")])
    writer.close(None)
    run = Run(run_dir)
    on_one_line = odd.replace("\n", " ").replace("\r", " ")
    assert (run.text("command"), run.text("tags"), run.problems) == (on_one_line, "? and ", [])


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    write_atomically(path, b"old")
    assert path.stat().st_mode & 0o777 == 0o644

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_a_log_directory_that_cannot_be_made_is_told_with_what_to_do(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot write logs to .*file: .*log_dir= or GREENLOVE_LOG_DIR"):
        create_run_dir(tmp_path / "file", "a")
    with pytest.raises(UsageError, match="cannot write logs to"):
        claim_run_id(tmp_path / "file", "key", 0, UTC_S)


def _create(log_dir):
    run_dir = create_run_dir(Path(log_dir), new_run_id(UTC_S))
    RunWriter(run_dir, 0, FIELDS, pytest.fail).write_row(ROWS[0])


def _claim(log_dir, rank, answers):
    answers.put((rank, claim_run_id(Path(log_dir), "key", rank, UTC_S)))


def _at_once(target, arguments):
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=target, args=a) for a in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [p.exitcode for p in processes] == [0] * len(processes)


@pytest.mark.slow
def test_runs_that_begin_at_once_never_collide(tmp_path):
    _at_once(_create, [(str(tmp_path / "logs"),)] * 30)
    runs = read_logs(tmp_path / "logs").runs
    assert len({run.run_id for run in runs}) == len(runs) == 30
    assert all(list(run.rows[0]) == ROWS[:1] for run in runs)


@pytest.mark.slow
def test_all_ranks_of_a_launch_agree_and_the_next_launch_is_another_run(tmp_path):
    context = multiprocessing.get_context("fork")
    launches = []
    for _ in range(2):
        answers = context.SimpleQueue()
        _at_once(_claim, [(str(tmp_path), rank, answers) for rank in range(16)])
        found = dict(answers.get() for _ in range(16))
        assert len(set(found.values())) == 1 and len(found) == 16
        launches.append(found[0])
        run_dir = tmp_path / found[0]
        run_dir.mkdir()
        for rank in range(16):
            RunWriter(run_dir, rank, FIELDS, pytest.fail).close(None)
    assert len(set(launches)) == 2
    assert sorted(p.name for p in (tmp_path / claims_dir_name()).iterdir()) == ["key-0", "key-1"]


def test_a_claim_that_was_never_written_is_passed_over(tmp_path, monkeypatch):
    monkeypatch.setattr(writer_module.time, "monotonic", iter(range(99)).__next__)
    (tmp_path / claims_dir_name()).mkdir()
    (tmp_path / claims_dir_name() / "key-0").touch()  # by a process that was killed at that
    assert len({claim_run_id(tmp_path, "key", rank, UTC_S) for rank in range(3)}) == 1


def test_a_link_in_place_of_the_claims_is_not_followed(tmp_path):
    """Anybody may leave one in a shared directory."""
    (tmp_path / "home").mkdir()
    (tmp_path / claims_dir_name()).symlink_to(tmp_path / "home")
    with pytest.raises(LogDirError, match="not ours"):
        claim_run_id(tmp_path, "key", 0, 0.0)
    assert list((tmp_path / "home").iterdir()) == []


def test_claims_of_somebody_else_are_not_taken_for_ours(tmp_path, monkeypatch):
    (tmp_path / f".ranks-{os.getuid() + 1}").mkdir()
    monkeypatch.setattr(os, "getuid", partial(int, os.getuid() + 1))
    with pytest.raises(LogDirError, match="not ours"):
        claim_run_id(tmp_path, "key", 0, 0.0)


def test_an_old_claim_is_another_launchs_but_never_who_made_it(tmp_path, monkeypatch):
    first = {claim_run_id(tmp_path, "key", rank, UTC_S) for rank in range(3)}
    os.utime(tmp_path / claims_dir_name() / "key-0", (UTC_S - 1e9, UTC_S - 1e9))
    second = {claim_run_id(tmp_path, "key", rank, UTC_S) for rank in range(3)}
    assert len(first) == len(second) == 1 and first != second
    monkeypatch.setattr(writer_module.time, "time", partial(float, time.time() + 3600))  # a server's clock is behind
    assert claim_run_id(tmp_path, "key", 0, UTC_S) not in first | second


@pytest.mark.slow_cases
@pytest.mark.parametrize(
    "written", ["../../elsewhere", "/etc", "", ".", "a run", "20261101T120000-aa/../../x", "\xff" * 99]
)
def test_what_is_no_run_id_in_a_claim_is_never_used_as_a_path(tmp_path, written):
    (tmp_path / claims_dir_name()).mkdir()
    (tmp_path / claims_dir_name() / "key-0").write_bytes(written.encode("latin-1"))
    answers = {claim_run_id(tmp_path, "key", rank, UTC_S) for rank in range(3)}
    assert len(answers) == 1 and re.fullmatch(r"20261101T120000-[0-9a-f]{10}", answers.pop())


def test_a_file_that_was_closed_to_others_stays_so(tmp_path):
    (tmp_path / "report.pdf").write_bytes(b"old")
    (tmp_path / "report.pdf").chmod(0o600)
    write_atomically(tmp_path / "report.pdf", b"new")
    assert (tmp_path / "report.pdf").stat().st_mode & 0o777 == 0o600
    write_atomically(tmp_path / f"{'long' * 60}.html", b"new")
