"""The command line in ``run.csv``: without its secrets, or not at all."""

from __future__ import annotations

import logging
import sys

import pytest
from fakes import make_tracker

from greenlove_tracker import read_logs
from greenlove_tracker.logs.run import Run
from greenlove_tracker.report.build import document
from greenlove_tracker.vocabulary.errors import MeterError

SECRET = "Zq9secretX"
ARGV = ["train.py", "--api-key", SECRET, f"--hf_token={SECRET}", "--db", f"pg://me:{SECRET}@host/db", "--lr", "1e-3"]
MASKED = "train.py --api-key MASKED --hf_token=MASKED --db pg://me:MASKED@host/db --lr 1e-3"


class UnluckyMeter:
    starts_at_once = True
    resolution_s = 0.0

    def start(self):
        raise MeterError(f"no answer from https://me:{SECRET}@host/, api_key={SECRET}")

    def read(self):
        raise MeterError("not started")

    def stop(self):
        pass


@pytest.fixture(autouse=True)
def argv(monkeypatch, no_settings):
    monkeypatch.setattr(sys, "argv", ARGV)


def everything_written(log_dir) -> str:
    return "".join(path.read_text() for path in log_dir.rglob("*") if path.is_file())


def test_no_secret_of_the_command_line_gets_into_the_log_or_onto_the_screen(clock, logs, capsys, caplog):
    caplog.set_level(logging.DEBUG)
    with make_tracker(clock, logs, meter=UnluckyMeter(), verbose=1):
        clock.pass_s(1.0)
    (run,) = read_logs(logs).runs
    assert run.text("command") == MASKED
    assert run.text("meter_note") == "no answer from https://me:MASKED@host/, api_key=MASKED"
    assert "MASKED" in caplog.text  # the warning of the meter
    assert SECRET not in everything_written(logs) + caplog.text + "".join(capsys.readouterr())


def test_the_line_is_left_out_where_it_is_asked_for(clock, logs):
    with make_tracker(clock, logs, log_command=False) as tracker:
        clock.pass_s(1.0)
    assert "command" not in Run(tracker.run_dir).lines and "train.py" not in everything_written(logs)
    assert SECRET not in str(document(tracker.run_dir))
