from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from fakes import FakeClock, make_tracker, train

from greenlove_tracker import Tracker
from greenlove_tracker.cli import cli
from greenlove_tracker.meter import SimulatedMeter


@pytest.fixture
def logs(tmp_path, monkeypatch):
    """Two runs of project a and one of b, in greenlove_logs."""
    for name in list(os.environ):
        if name.startswith(("GREENLOVE_", "SLURM_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    clock = FakeClock()
    for project, epochs in (("a", 2), ("a", 1), ("b", 3)):
        with Tracker(
            epochs, clock=clock, meter=SimulatedMeter(clock, gpu_w=3600.0), project=project, verbose=0, country="DE"
        ) as tracker:
            for _ in range(epochs):
                tracker.epoch_start()
                clock.pass_s(100.0)
                tracker.epoch_end()
        clock.pass_s(86400.0)
    return tmp_path / "greenlove_logs"


def call(*arguments: str):
    return CliRunner().invoke(cli, list(arguments))


@pytest.mark.slow_cases
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["summary", "nowhere"], "there is no nowhere: track a run first, or name the directory of its logs"),
        (["summary", "--by", "colour"], "cannot group by colour"),
        (["report", "nowhere"], "nowhere"),
        (["run", "--country", "Germny", "x.py"], "Germany"),
        (["run", "--pue", "0.5", "x.py"], "Error: --pue must be at least 1"),
        (["run", "--country", "Germny", "x.py"], "Error: --country 'Germny' is not"),
        (["run", "--carbon-intensity", "-1", "x.py"], "Error: --carbon-intensity must be"),
        (["run", "--electricity-price", "0", "x.py"], "Error: --electricity-price must be"),
        (["run", "--gpu-hour-price", "0", "x.py"], "Error: --gpu-hour-price must be"),
        (["run", "--max-energy-kwh", "-1", "x.py"], "Error: --max-energy-kwh must be"),
        (["run", "--deadline-utc", "soon", "x.py"], "Error: --deadline-utc must be"),
        (["run", "--max-hours", "nan", "x.py"], "Error: --max-hours must be a positive number"),
        (["forecast", "--hours", "0"], "Error: --hours must be a positive number"),
        (["forecast", "--hours", "inf"], "Error: --hours must be a positive number"),
        (["summary", "--since", "soon"], "Error: --since must be"),
        (["project", "--hours", "20", "--gpu", "RTX 4090", "--utilization", "2"], "Error: --utilization is a share"),
        (["project", "--hours", "20", "--gpu", "RTX 4090", "--scaling", "2"], "Error: --scaling is"),
        (["project", "--hours", "20", "--gpu", "RTX 4090", "--price", "0"], "Error: --price must be"),
        (
            ["project", "--hours", "20", "--gpu", "RTX 4090", "--tdp", "0"],
            "Error: --tdp must be a positive number, not",
        ),
        (["project", "--hours", "20", "--gpu", "RTX 4090", "--provider", "x"], "--prices"),
    ],
)
def test_a_users_mistake_is_one_line_that_says_what_to_do(logs, arguments, says):
    (logs.parent / "x.py").write_text("")
    result = call(*arguments)
    assert result.exit_code == 1
    assert says in result.output and result.output.count("\n") == 1, result.output


@pytest.mark.parametrize(
    "arguments",
    [
        "summary",
        "summary --csv",
        "summary --ledger",
        "summary --verify",
        "forecast",
        "forecast --csv",
        "forecast --runs 3",
        "forecast --epochs 3",
        "project",
        "import",
        "report",
        "report --format cite",
        "report --format model-card",
        "report --format sci",
    ],
)
def test_a_directory_without_a_run_is_an_error_for_every_verb(logs, arguments):
    (logs.parent / "empty").mkdir()
    damaged = logs.parent / "damaged" / "20260101T000000-aaaaaaaaaa"
    damaged.mkdir(parents=True)
    (damaged / "run.csv").write_text("field,value,unit\nschema_version,99,\n")
    for directory, says in (
        ("nowhere", "there is no nowhere"),
        ("empty", "empty holds no run"),
        ("damaged", "damaged"),
    ):
        result = call(*arguments.split(), directory)
        assert (result.exit_code, result.stdout) == (1, ""), result.output
        assert result.stderr.startswith("Error: ") and says in result.stderr, result.output


@pytest.mark.parametrize("arguments", ["summary --json", "forecast --json"])
def test_no_run_is_an_empty_list_for_a_program_but_no_directory_is_an_error(logs, arguments):
    (logs.parent / "empty").mkdir()
    result = call(*arguments.split(), "empty")
    assert result.exit_code == 0 and not any(json.loads(result.stdout).values())
    assert [] in json.loads(result.stdout).values()
    assert call(*arguments.split(), "nowhere").exit_code == 1


def test_a_mistake_in_a_file_or_a_variable_is_told_by_where_it_stands(logs, monkeypatch):
    Path("greenlove.toml").write_text("max_energy_kwh = -1")
    assert "Error: greenlove.toml: max_energy_kwh must be a positive number" in call("doctor").output
    Path("greenlove.toml").unlink()
    monkeypatch.setenv("GREENLOVE_PUE", "0.5")
    assert "Error: GREENLOVE_PUE: pue must be at least 1" in call("doctor").output


def test_an_unwritable_report_says_so(logs):
    (logs.parent / "file").write_text("")
    result = call("report", "-o", "file/r.pdf")
    assert result.exit_code == 1 and "file/r.pdf" in result.output and result.output.startswith("Error: ")


@pytest.mark.parametrize("arguments", ["report", "report --format cite", "demo", "project --hours 20 --gpu L40S"])
def test_a_mistyped_directory_is_not_made(logs, arguments):
    name = "reprots/x.md" if "--format" in arguments else "reprots/x.pdf"
    result = call(*arguments.split(), "-o", name)
    assert result.exit_code == 1 and "there is no directory reprots; make it first" in result.output, result.output
    assert not (logs.parent / "reprots").exists()


@pytest.mark.parametrize(
    "verb", ["run", "demo", "explore", "forecast", "project", "summary", "report", "export", "doctor"]
)
def test_every_verb_has_help(verb):
    result = call(verb, "--help")
    assert result.exit_code == 0 and result.stdout.startswith("Usage: ")


def test_the_reference_names_every_option_of_every_verb_and_no_other():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    sections = {part.split("\n")[0]: part for part in page.split("\n## ")[1:]}
    assert list(sections) == cli.list_commands(None)
    for name, verb in cli.commands.items():
        parts = verb.commands.values() if isinstance(verb, click.Group) else [verb]
        options = {o for part in parts for p in part.params if isinstance(p, click.Option) for o in p.opts}
        rows = [line.split(" | ")[0] for line in sections[name].splitlines() if line.startswith("| `-")]
        assert {o for row in rows for o in re.findall(r"`(--?[a-z][a-z0-9-]*)", row)} == options, name


def test_a_misspelt_verb_is_no_script_unless_there_is_one(logs):
    result = call("sumary", "--json")
    assert result.exit_code == 2 and "did you mean greenlove summary?" in result.output
    for arguments in (["frobnicate.py"], ["run", "frobnicate.py"]):
        result = call(*arguments)
        assert result.exit_code == 2 and "no such script: frobnicate.py" in result.output  # as Python's own
    Path("reprot").mkdir()
    assert "cannot find __main__.py in the directory reprot" in call("reprot").output


def test_run_without_anything_to_run_is_a_usage_error():
    for arguments in (["run"], ["run", "--"], ["run", "-m"], ["-m"]):
        result = call(*arguments)
        assert result.exit_code == 2 and "Missing argument" in result.output


def test_a_report_is_what_its_name_says(logs):
    assert ".pdf, .html and .md can be written" in call("report", "-o", "r.docx").output
    assert call("report", "-o", "r.html").exit_code == 0
    assert (logs.parent / "r.html").read_text().lower().startswith("<!doctype html")
    assert call("report", "--format", "cite", "-o", "cite.md").exit_code == 0
    assert "CO2e" in (logs.parent / "cite.md").read_text()
    assert "choose one" in call("summary", "--json", "--csv").output


# -- does it fit? -------------------------------------------------------------------------------------------------


def train_in_part(n_done: int) -> None:
    """A run of 20 epochs of 10 s in greenlove_logs that ended by an error, a month after the others."""
    clock = FakeClock()
    clock.pass_s(30 * 86400.0)
    with contextlib.suppress(ZeroDivisionError), make_tracker(clock, Path("greenlove_logs")) as tracker:
        train(tracker, clock, n_done)
        raise ZeroDivisionError


def test_hours_ask_whether_the_run_that_is_not_done_fits(logs):
    assert "nothing to fit" in call("forecast", "--hours", "1").output
    train_in_part(8)
    assert "fits" not in call("forecast").output  # it had no limit
    kept = call("forecast", "--hours", "1").output
    assert "time limit of 1 h: fits with over 99%; the whole takes about 3 min 20 s" in kept and "actual" in kept
    missed = " ".join(call("forecast", "--hours", "0.0333333").output.split())
    assert "fits with under 1%; 11 epochs fit with 95%" in missed and missed.count(" fits with ") == 1
    found = json.loads(call("forecast", "--hours", "0.0333333", "--json").stdout)["forecasts"]
    (row,) = (row for row in found if row["fits"] is not None)
    assert row["fits"] < 0.01 and row["fits_length"] == 11 and row["time_limit_s"] == pytest.approx(120.0, abs=0.01)


def test_summary_and_report_choose_runs_alike(logs):
    verbs = {verb: {o for p in cli.commands[verb].params for o in p.opts} for verb in ("summary", "report")}
    for option in ("--since", "--until", "--project", "--user", "--job", "--host"):
        assert all(option in options for options in verbs.values())
    assert "0 training runs" in call("summary", "--user", "nobody").stdout
    for arguments, said in (
        (["report", "--issued", "soon"], "--issued must be a date"),
        (["report", "--since", "2026-11", "--until", "2026-10"], "--until must be after --since"),
        (["report", "--format", "cite", "--jobs", "3"], "--jobs is of --format report"),
    ):
        done = call(*arguments)
        assert done.exit_code == 1 and said in done.output, done.output


@pytest.mark.parametrize(
    "words", ["summary --check", "report --sacct FILE", "calibrate --pdu FILE", "calibrate --valid-from 2026-11-01"]
)
def test_an_option_of_before_is_said_to_be_gone(words):
    done = call(*words.split())
    assert done.exit_code == 2 and "gone" in done.output


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("doctor",), ("summary",)])
def test_a_terminal_whose_encoding_lacks_signs_shows_question_marks(logs, arguments):
    """Windows prints in cp1252, which has neither the ticks nor the lines of tables."""
    env = {**os.environ, "PYTHONIOENCODING": "cp1252"}
    words = [sys.executable, "-m", "greenlove_tracker", *arguments]
    if arguments == ("summary",):
        words.append(str(logs))
    done = subprocess.run(words, env=env, capture_output=True, timeout=120)
    assert done.returncode in (0, 1) and b"Traceback" not in done.stderr and b"?" in done.stdout


def test_what_a_script_prints_fails_under_run_as_without_us(tmp_path):
    script = tmp_path / "train.py"
    script.write_text('print("\\u2717")\n')
    env = {**os.environ, "PYTHONIOENCODING": "cp1252", "GREENLOVE_LOG_DIR": str(tmp_path / "logs")}
    done = subprocess.run(
        [sys.executable, "-m", "greenlove_tracker", "run", str(script)], env=env, capture_output=True, timeout=120
    )
    assert done.returncode == 1 and b"UnicodeEncodeError" in done.stderr
