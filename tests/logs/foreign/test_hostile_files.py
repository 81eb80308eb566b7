"""Files that mean harm, or are broken: an error by name for each, the rest reported, and nothing executed."""

import os
import sys

import pytest
from foreign_samples import COLUMNS, END, FOUND, write_log, write_rows
from hypothesis import given
from hypothesis import strategies as st
from pypdf import PdfReader

from greenlove_tracker import read_logs, write_html, write_pdf

GOOD = "2026-01-01T00:00:01,good,good,1.0,0.1,0.1,0,0.1,0.2"


def names(logs):
    return [run.run_id.rpartition("-")[2] for run in logs.readable()]


def told(logs):
    list(logs.readable())
    return [f"{p.path.name}: {p.message}" for p in logs.problems]


@pytest.mark.slow_cases
@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "&xxe;<!DOCTYPE x [<!ENTITY xxe SYSTEM 'file:///etc/passwd'>]>",
        "=cmd|' /C calc'!A0",
    ],
)
def test_texts_that_would_run_elsewhere_are_shown_as_text(tmp_path, text):
    logs_dir = tmp_path / "logs"
    logs_dir.mkdir()
    write_rows(logs_dir, f'2026-01-01T00:00:01,"{text}","{text}",1.0,0.1,0.1,0,0.1,0.2')
    write_log(logs_dir, f"GPU with device(s) {text}.", [("0:00:10.00", "gpu: 36.0")], [f"{END[0]}at {text}"])
    logs = read_logs(logs_dir)
    assert len(list(logs.readable())) == 2 and logs.problems == []
    assert all(not text.startswith(tuple("=+-@")) for run in logs.runs for text, _ in run.lines.values())
    page = write_html(logs_dir, tmp_path / "report.html").read_text()
    assert "<script" not in page and "<!ENTITY" not in page and "root:" not in page
    assert len(PdfReader(write_pdf(logs_dir, tmp_path / "report.pdf")).pages) >= 1


def test_fields_of_a_megabyte(tmp_path):
    write_rows(
        tmp_path, GOOD, f"2026-01-01T00:00:01,{'x' * 2**20},bad,1.0,0.1,0.1,0,0.1,0.2", GOOD.replace("good", "last")
    )
    logs = read_logs(tmp_path)
    (problem,) = told(logs)
    assert names(logs) == ["good"] and "a line of over 1 MiB; it and what follows are left out" in problem
    write_rows(tmp_path, GOOD, f"2026-01-01T00:00:01,{'x' * 60000},{'y' * 4000},1.0,0.1,0.1,0,0.1,0.2")
    assert max(len(run.summary.project) + len(run.run_id) for run in read_logs(tmp_path).readable()) < 350


def test_nul_bytes(tmp_path):
    file = write_rows(tmp_path, GOOD, "2026\0-01-01T00:00:01,p,bad,1.0,0.1,0.1,0,0.1,0.2")
    assert told(read_logs(tmp_path)) == ["emissions.csv: 1 line left out: line 3: NUL bytes"]
    file.write_bytes(b"\0" * 5000 + b"\n")
    assert told(read_logs(tmp_path)) == ["emissions.csv: is not a run: it has no header of CodeCarbon's"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32-le", "utf-8-sig", "latin-1", "utf-7"])
def test_wrong_encodings(tmp_path, encoding):
    text = f"{COLUMNS}\n{GOOD.replace('good', 'Köln', 1)}\n"
    (tmp_path / "emissions.csv").write_bytes(text.encode(encoding))
    log = write_log(tmp_path, "CPU with device(s) Köln.", [("0:00:10.00", "cpu: 36.0")])
    log.write_bytes(log.read_text().encode(encoding))
    logs = read_logs(tmp_path)
    of_codecarbon = encoding not in ("utf-16-be", "utf-32-le")  # without a mark that says so
    of_carbontracker = not encoding.startswith(("utf-16", "utf-32"))
    assert len(list(logs.readable())) == of_codecarbon + of_carbontracker
    told_of = {p.path.name: p.message for p in logs.problems}
    if encoding == "latin-1":
        assert told_of == {
            "emissions.csv": "is not UTF-8: read as Windows-1252",
            log.name: "is not UTF-8: what could not be read is shown as \ufffd",
        }
    else:
        assert ("emissions.csv" in told_of, log.name in told_of) == (not of_codecarbon, not of_carbontracker)


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
def test_links_that_lead_round_in_a_circle(tmp_path):
    write_rows(tmp_path, GOOD)
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "up").symlink_to(tmp_path)
    (tmp_path / "itself").symlink_to(tmp_path / "itself")
    (tmp_path / "itself.csv").symlink_to(tmp_path / "itself.csv")
    (tmp_path / "gone_carbontracker.log").symlink_to(tmp_path / "nowhere")
    logs = read_logs(tmp_path)
    assert names(logs) == ["good"]
    found = "\n".join(told(logs))
    assert "up: left out: links to directories are not followed" in found
    assert "itself: is not a run: a file" in found and "itself.csv: cannot be read: Too many levels" in found
    assert "gone_carbontracker.log: cannot be read: No such file" in found


def test_a_file_of_2_gb_is_not_read(tmp_path):
    log = write_log(tmp_path, "CPU with device(s) cpu:0.", [("0:00:10.00", "cpu: 36.0")])
    for name in ("huge.csv", log.name.replace("7.1", "8.1")):
        with (tmp_path / name).open("wb") as file:
            file.truncate(2 * 1024**3)
    logs = read_logs(tmp_path)
    assert names(logs) == ["7.1"]
    unread = [line.partition(": cannot be read: a line of over 1 MiB")[0] for line in told(logs)]
    assert unread[0] == log.name.replace("7.1", "8.1")  # and no word on the table, which is not CodeCarbon's
    assert "huge.csv" not in "".join(unread)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes there")
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    assert told(read_logs(tmp_path)) == ["pipe.csv: cannot be read: no plain file"]


@pytest.mark.parametrize("number", ["1e400", "-5", "nan(1)", "9" * 5000, "0x10", "٣٣"])
def test_numbers_that_are_none(tmp_path, number):
    write_rows(tmp_path, f"2026-01-01T00:00:01,p,r,{number},0.1,0.1,0,0.1,0.2", GOOD)
    write_log(
        tmp_path, "CPU with device(s) cpu:0.", [(f"{number}:00:10.00", f"cpu: {number}"), ("0:00:10.00", "cpu: 36.0")]
    )
    logs = read_logs(tmp_path)
    assert {"good", "7.1"} <= set(names(logs))
    assert all(run.summary.energy_kwh < 1 for run in logs.readable() if run.run_id.endswith("good"))


def test_years_and_amounts_out_of_range_refuse_their_run_alone(tmp_path):
    write_rows(
        tmp_path,
        "0001-01-01T00:00:00,p,r,100.0,0.1,0.1,0,0.1,0.2",
        "2026-01-01,p,s,1e308,1e308,1e308,1e308,1e308,1e308",
        GOOD,
    )
    logs = read_logs(tmp_path)
    assert "good" in names(logs)
    for run in logs.readable():
        assert run.summary.duration_s >= 0


@given(st.binary(max_size=400), st.sampled_from(["emissions.csv", "1_carbontracker.log", "1_carbontracker_output.log"]))
def test_no_bytes_at_all_are_too_odd(tmp_path_factory, data, name):
    logs_dir = tmp_path_factory.mktemp("odd")
    (logs_dir / name).write_bytes(data)
    logs = read_logs(logs_dir)
    assert list(logs.readable()) == [] and logs.problems


LINES = (
    "Epoch 1:",
    "Epoch x:",
    "Duration: 0:00:01.00",
    "Duration: -",
    f"{FOUND}GPU with device(s) A.",
    "Average power usage (W) for gpu: [1.5",
    "Average power usage (W) for gpu: 2.5",
    "Average power usage (W) for gpu: [x]",
    "PUE coefficient of 0.1",
    "Only PUE coefficient of 1.2",
    *END,
    "Training was interrupted before all 0 epochs",
)


@pytest.mark.slow
@given(st.lists(st.sampled_from(LINES), max_size=12))
def test_lines_in_any_order(tmp_path_factory, lines):
    logs_dir = tmp_path_factory.mktemp("mixed")
    (logs_dir / "1_carbontracker.log").write_text("".join(f"2026-01-01 00:00:00 - {line}\n" for line in lines))
    logs = read_logs(logs_dir)
    runs = list(logs.readable())
    assert len(runs) + bool(logs.problems) >= 1
    for run in runs:
        assert run.summary.epochs_done <= lines.count("Duration: 0:00:01.00")
