import errno
import os
import shutil
import socket
import sys
import tracemalloc
from dataclasses import replace

import pytest
from conftest import epoch_row
from hypothesis import given
from hypothesis import strategies as st

from greenlove_tracker.logs.aggregate import aggregate
from greenlove_tracker.logs.csvio import NOT_UTF_8, read_fields, read_records
from greenlove_tracker.logs.directory import Logs, read_logs
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.schema import EPOCHS, RUN_COLUMNS
from greenlove_tracker.logs.tables import FORECASTS, TRIALS
from greenlove_tracker.vocabulary.errors import LogError, UsageError
from greenlove_tracker.vocabulary.records import Flag, RowKind

ROWS = [epoch_row(n) for n in (1, 2, 3)]


def broken(run_dir, name, change):
    file = run_dir / name
    file.write_bytes(change(file.read_bytes()))
    return Run(run_dir)


def problems(run):
    return [f"{p.path.name}: {p.message}" for p in run.problems]


def dead(run_dir):
    """As if the run had been written long ago."""
    for file in run_dir.iterdir():
        os.utime(file, (1e9, 1e9))
    return Run(run_dir)


def test_a_run_reads_back(make_run):
    run_dir = make_run(rows=ROWS, fields={"project": "digits"})
    (run,) = read_logs(run_dir.parent).runs
    assert (run.run_id, run.text("project"), run.text("user")) == (run_dir.name, "digits", "")
    assert [e.epoch for e in run.epochs] == [1, 2, 3] and run.epochs_of(7) == []
    assert run.summary.energy_kwh == pytest.approx(0.003) and run.added_up() == run.summary
    assert (run.carbon_intensity.value, run.electricity_price, run.problems) == (400.0, None, [])
    assert len(run.to_frame()) == 3


def test_the_directory_of_one_run(make_run, monkeypatch):
    run_dir = make_run()
    assert [run.run_id for run in read_logs(run_dir).runs] == [run_dir.name]
    monkeypatch.chdir(run_dir)
    assert [run.run_id for run in read_logs(".").runs] == [run_dir.name]


def test_no_directory_is_told_with_what_to_do(tmp_path):
    with pytest.raises(UsageError, match=r"there is no .*gone: track a run first"):
        read_logs(tmp_path / "gone")
    assert list(read_logs(tmp_path).runs) == []


def test_a_last_line_that_was_cut_off(make_run):
    run = broken(make_run(rows=ROWS, is_closed=False), "epochs-0.csv", lambda data: data[:-9])
    assert list(run.rows[0]) == ROWS[:2]
    assert problems(run) == ["epochs-0.csv: last line was cut off, and is left out"]


@given(st.integers(0, 10**6))
def test_whatever_is_cut_off_the_lines_before_are_kept(tmp_path_factory, cut):
    file = tmp_path_factory.mktemp("cut") / "a.csv"
    whole = b'field,value,unit\na,1,s\nb,"two, ""quoted""",\nc,3,\n'
    file.write_bytes(whole[: cut % (len(whole) + 1)])
    told = []
    found = {field: value for _, (field, value, _) in read_records(file, RUN_COLUMNS, told.append)}
    expected = {"a": "1", "b": 'two, "quoted"', "c": "3"}
    assert found.items() <= expected.items() and list(found) == list(expected)[: len(found)]
    assert bool(told) or file.read_bytes() in {whole[: whole.index(mark)] for mark in (b"a,", b"b,", b"c,")} | {whole}


def test_a_field_is_read_as_it_was_written():
    data = b'field,value,unit\na,1,s\nb,"2,x",\nc,,\n'
    assert read_fields(data, pytest.fail) == {"a": ("1", "s"), "b": ("2,x", ""), "c": ("", "")}
    assert read_fields(b'field,value,unit\na,"x, ""y""",s\n', pytest.fail) == {"a": ('x, "y"', "s")}


def test_further_columns_and_a_signature_are_welcome(make_run):
    def spreadsheet(data):
        return b"\xef\xbb\xbf" + b"".join(line + b",x\r\n" for line in data.splitlines())

    run = broken(make_run(rows=ROWS), "epochs-0.csv", spreadsheet)
    assert list(run.rows[0]) == ROWS and run.problems == []


def test_a_newer_schema_is_refused_by_name(make_run):
    run_dir = make_run("newer", fields={"schema_version": "99"})
    make_run("ours")
    for ask in (lambda r: r.summary, lambda r: r.rows, lambda r: r.epochs, lambda r: r.lines):
        with pytest.raises(LogError, match=r"newer: written with log schema 99, newer than the 1 .*pip install -U"):
            ask(Run(run_dir))
    logs = read_logs(run_dir.parent)
    for _ in range(2):
        assert [run.run_id for run in logs.readable()] == ["ours"]
    assert [p.path for p in logs.problems] == [run_dir] and "schema 99" in str(logs.problems[0])


@pytest.mark.parametrize("garbage", [b'\x80\xff"\x00,\n', b'"', b'1,"2\n', b'a\nb"c,\n', bytes(range(256)) + b"\n"])
@pytest.mark.parametrize("name", ["epochs-0.csv", "run.csv"])
def test_binary_garbage_costs_no_more_than_its_line(make_run, garbage, name):
    def change(data):
        lines = data.splitlines(keepends=True)
        return b"".join([*lines[:2], garbage, *lines[2:]])

    run = broken(make_run(rows=ROWS, fields={"project": "p", "tags": 'q, "r"'}), name, change)
    assert len(run.rows[0]) >= 2 and list(run.rows[0])[-1] == ROWS[-1]
    assert (run.text("tags"), run.carbon_intensity.value) == ('q, "r"', 400.0)
    assert problems(run) and all(p.startswith((f"{name}: line ", f"{name}: {NOT_UTF_8}")) for p in problems(run))


@given(st.binary(max_size=300))
def test_no_bytes_at_all_are_too_odd_to_be_read(tmp_path_factory, data):
    run_dir = tmp_path_factory.mktemp("odd")
    for name in ("run.csv", "epochs-0.csv", "summary.csv"):
        (run_dir / name).write_bytes(data)
    logs = read_logs(run_dir)
    assert len(list(logs.readable())) == 1 and logs.problems


def test_what_is_not_a_run_is_told_by_name(make_run):
    logs_dir = make_run().parent
    (logs_dir / "notes.txt").write_text("mine")
    (logs_dir / "greenlove.prom").write_text("")  # an exporter of ours writes it here
    (logs_dir / "checkpoints").mkdir()
    (logs_dir / ".hidden").mkdir()
    logs = read_logs(logs_dir)
    assert [str(p) for p in logs.problems] == [
        f"{logs_dir / 'checkpoints'}: is not a run: no run.csv",
        f"{logs_dir / 'notes.txt'}: is not a run: a file",
    ]
    assert len(logs.runs) == 1


def test_a_directory_that_may_not_be_read_is_told_and_the_rest_is_kept(make_run, monkeypatch):
    logs_dir = make_run("ours").parent
    make_run("theirs")
    scandir = os.scandir

    def refuse(path):
        if str(path).endswith("theirs"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    logs = read_logs(logs_dir)
    assert [run.run_id for run in logs.readable()] == ["ours"]
    assert [str(p) for p in logs.problems] == [f"{logs_dir / 'theirs'}: cannot be read: Permission denied"]


def test_an_interrupted_run_is_added_up_from_its_rows(make_run):
    rows = [*ROWS, epoch_row(4, kind=RowKind.SEGMENT)]
    closed, cut = make_run("closed", rows), make_run("cut", rows, is_closed=False)
    summary = dead(cut).summary
    assert (summary.status, summary.ended_at, summary.epochs_done) == ("interrupted", "", 3)
    assert summary.energy_kwh == Run(closed).summary.energy_kwh == pytest.approx(0.004)
    assert Flag.UNFINISHED in Run(cut).epochs[-1].flags


def test_a_run_without_its_rows_keeps_its_summary(make_run):
    run_dir = make_run(rows=ROWS)
    (run_dir / "epochs-0.csv").unlink()
    assert Run(run_dir).summary.energy_kwh == pytest.approx(0.003)


def test_a_run_without_its_fields_keeps_its_rows(make_run):
    run_dir = make_run(rows=ROWS, is_closed=False)
    (run_dir / "run.csv").unlink()
    (run,) = read_logs(run_dir.parent).readable()
    assert run.summary.energy_kwh == pytest.approx(0.003)
    assert run.summary.emissions_kgco2e is None  # at which intensity is not known: not 0 kg
    assert run.started_at == run.summary.started_at == ROWS[0].started_at
    assert problems(run) == ["run.csv: cannot be read: No such file or directory"]


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.replace(b"duration_s,30.0", b"duration_s,long"),
        lambda d: d.replace(b"duration_s,30.0", b"duration_s,inf"),
        lambda d: d.replace(b"n_ranks,1,\n", b""),
        lambda d: d[:90],
        lambda _: b"",
    ],
)
def test_an_unreadable_summary_is_added_up_from_the_rows(make_run, change):
    run = broken(make_run(rows=ROWS), "summary.csv", change)
    assert (run.summary.duration_s, run.summary.energy_kwh) == (30.0, pytest.approx(0.003))
    assert problems(run)[-1].startswith("summary.csv: added up from the rows instead: ")


def test_ranks_and_nodes_of_one_run_are_added_up(make_run):
    run_dir = make_run(rows=ROWS, fields={"gpu_count": "4"})
    make_run(
        rows=[epoch_row(n, None, 11.0, RowKind.EPOCH, Flag.NO_METER) for n in (1, 2, 3)],
        rank=1,
        fields={"gpu_count": "0"},
        is_closed=False,
    )
    make_run(rows=ROWS, rank=10, fields={"gpu_count": "4", "project": "other"}, is_closed=False)
    run = Run(run_dir)
    assert list(run.rows) == [0, 1, 10] and run.text("project") == "other"
    summary = run.summary
    assert (summary.n_ranks, summary.n_nodes, summary.gpu_count, summary.status) == (3, 2, 8, "finished")
    assert (summary.energy_kwh, summary.duration_s, summary.epochs_done) == (pytest.approx(0.006), 33.0, 3)
    assert len(run.to_frame()) == 9 and run.problems == []


def test_a_command_holds_the_totals(make_run):
    run_dir = make_run(rows=[epoch_row(1, 0.05, 100.0)], rank="command", is_closed=False)
    make_run(rows=ROWS, rank=0, fields={"role": "joined"}, is_closed=False)
    summary = Run(run_dir).summary
    assert (summary.energy_kwh, summary.duration_s, summary.epochs_done, summary.gpu_count) == (0.05, 100.0, 3, 1)


def test_running_where_the_process_lives(make_run):
    ours = {"host": socket.gethostname(), "pid": str(os.getpid())}
    assert Run(make_run("ours", fields=ours, is_closed=False)).summary.status == "running"
    gone = {**ours, "pid": str(2**22 + 1)}
    assert Run(make_run("gone", fields=gone, is_closed=False)).summary.status == "interrupted"


def test_a_training_that_ended_is_finished_while_its_script_runs_or_dies_and_no_other_process_says_so(make_run):
    run_dir = make_run(fields={"training_status": "finished"}, is_closed=False)
    assert Run(run_dir).summary.status == dead(run_dir).summary.status == "finished"
    command = make_run("command", rank="command", is_closed=False)
    make_run("command", fields={"role": "joined", "training_status": "finished"}, is_closed=False)
    assert dead(command).summary.status == "interrupted"


def test_on_another_host_running_is_what_was_written_lately(make_run):
    run_dir = make_run(fields={"host": "elsewhere", "pid": "1"}, is_closed=False)
    assert Run(run_dir).summary.status == "running"
    assert dead(run_dir).summary.status == "interrupted"


HOSTILE = {
    "sparse": lambda p: os.truncate(p, 2 * 1024**3),
    "pipe": lambda p: (p.unlink(), os.mkfifo(p)),
    "endless": lambda p: (p.unlink(), p.symlink_to("/dev/zero")),
    "circle": lambda p: (p.unlink(), p.symlink_to(p)),
    "directory": lambda p: (p.unlink(), p.mkdir()),
}
TOLD = {
    "sparse": "larger than ",
    "pipe": "no plain file",
    "endless": "no plain file",
    "directory": "no plain file",
    "circle": os.strerror(errno.ELOOP),
}


@pytest.mark.slow_cases
@pytest.mark.skipif(sys.platform == "win32", reason="no named pipes, and links need a privilege there")
@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("name", ["run.csv", "epochs-0.csv", "summary.csv", "forecasts.csv", "trials.csv"])
def test_a_file_that_is_no_log_is_not_read_and_costs_no_other(make_run, name, kind):
    make_run("other", ROWS)
    run_dir = make_run(rows=ROWS)
    for added, columns in (("forecasts.csv", FORECASTS.columns), ("trials.csv", TRIALS.columns)):
        (run_dir / added).write_text(",".join(columns) + "\n")
    HOSTILE[kind](run_dir / name)
    tracemalloc.start()
    logs = read_logs(run_dir.parent)
    for run in logs.readable():
        assert (run.rows and run.forecasts, run.trials) == ((), ()) if run.run_id != "other" else run.rows[0] == ROWS
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [run.run_id for run in logs.readable()] == [run_dir.name, "other"] and peak_bytes < 8e6
    found = [f"{p.path.name}: {p.message}" for p in logs.problems]
    is_hole = kind == "sparse" and name not in ("run.csv", "summary.csv")  # behind what was written
    assert found[0].startswith(f"{name}: cannot be read: {'a line of over' if is_hole else TOLD[kind]}")
    assert found[1:] == (["summary.csv: added up from the rows instead: no line for run_id"] * (name == "summary.csv"))
    assert aggregate(run_dir.parent).total.duration_s == 60.0


@pytest.mark.slow
def test_a_long_file_of_noise_is_told_in_part_and_read_to_its_end(make_run):
    row = (make_run(rows=ROWS) / "epochs-0.csv").read_bytes().splitlines(keepends=True)[-1]
    run = broken(make_run(is_closed=False), "epochs-0.csv", lambda data: data + b"noise\n" * 100_000 + row)
    assert run.rows[0][-1] == ROWS[-1]
    assert len(problems(run)) == 21 and problems(run)[-1] == "epochs-0.csv: and more like these"


@pytest.mark.slow
def test_no_more_of_a_long_file_is_held_than_its_rows(tmp_path):
    file = tmp_path / "a.csv"
    file.write_bytes(b"a,b\n" + b'1,"unclosed\n' * 100_000 + b"2,3\n" * 100_000)
    told, found = set(), 0
    tracemalloc.start()
    for _ in read_records(file, ("a", "b"), lambda message: told.add(message[:4])):
        found += 1
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found >= 99_999 and told == {"line"} and peak_bytes < 5e6  # as a list of lines: 13 MB


def test_a_log_of_any_length_of_a_killed_run_is_read(make_run):
    run_dir = make_run(rows=ROWS, is_closed=False)
    row = replace(ROWS[0], carbon_intensity_source="s" * 10_000)
    header, line = EPOCHS.lines([row]).splitlines(keepends=True)
    n_rows = 66 * 1024**2 // len(line)
    (run_dir / "epochs-0.csv").write_bytes(header + line * n_rows)
    tracemalloc.start()
    assert sum(1 for _ in EPOCHS.read(str(run_dir / "epochs-0.csv"), pytest.fail)) == n_rows
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 4e6 and dead(run_dir).summary.duration_s == pytest.approx(n_rows * row.duration_s)


def test_frames(make_run):
    logs_dir = make_run("a", rows=ROWS).parent
    make_run("b", rows=[epoch_row(1, None)])
    frame = read_logs(logs_dir).to_frame()
    assert list(frame["run_id"]) == ["a", "b"] and frame["energy_kwh"].isna().tolist() == [False, True]
    epochs = Run(logs_dir / "b").to_frame()
    assert epochs["gpu_kwh"].isna().all() and epochs["duration_s"].tolist() == [10.0]
    assert {"gap_before_gpu_kwh", "steps", "flags"} <= set(epochs)
    assert list(Logs(logs_dir / "b").to_frame().columns) == list(frame.columns)


def test_a_copy_of_a_run_under_another_name_counts_once(make_run, tmp_path):
    name = "20261121T034044-7f30123abc"
    original = make_run(name, fields={"run_id": name})
    log_dir = original.parent
    for copied in ("0-backup", f"{name} (copy)", "final"):
        shutil.copytree(original, log_dir / copied)
    shutil.copytree(original, log_dir / "old" / "renamed")
    other = make_run("20261121T034045-7f30123abd", fields={"run_id": "20261121T034045-7f30123abd"})
    logs, added_up = read_logs(log_dir), aggregate(log_dir)
    assert [run.run_id for run in logs.runs] == [original.name, other.name]
    assert (added_up.total.n_runs, [run.run_id for run in added_up.runs]) == (2, [original.name, other.name])
    for problems in (logs.problems, added_up.problems):
        left_out = {problem.path.name for problem in problems if "left out: the same run as in" in problem.message}
        assert left_out == {"0-backup", f"{name} (copy)", "final", "renamed"}
    shutil.rmtree(original)
    shutil.rmtree(log_dir / "old")
    assert [run.run_id for run in read_logs(log_dir).runs] == ["0-backup", other.name]  # of three copies, one
    assert aggregate(log_dir).total.n_runs == 2 and len(aggregate(log_dir).problems) == 2
