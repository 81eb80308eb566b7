from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from fakes import FakeClock
from pypdf import PdfReader

from greenlove_tracker import Tracker
from greenlove_tracker.cli import cli
from greenlove_tracker.cli.base import FIRST_PAGE, SECOND_PAGE
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
        (["report", "nowhere", "--text"], "there is no nowhere: track a run first, or name the directory of its logs"),
        (["report", "--by", "colour"], "cannot group by colour"),
        (["report", "nowhere"], "nowhere"),
        (["run", "--country", "Germny", "x.py"], "Germany"),
        (["run", "--pue", "0.5", "x.py"], "Error: --pue must be at least 1"),
        (["run", "--country", "Germny", "x.py"], "Error: --country 'Germny' is not"),
        (["run", "--carbon-intensity", "-1", "x.py"], "Error: --carbon-intensity must be"),
        (["run", "--electricity-price", "0", "x.py"], "Error: --electricity-price must be"),
        (["run", "--price", "0", "x.py"], "Error: --price must be"),
        (["run", "--max-energy", "-1", "x.py"], "Error: --max-energy must be"),
        (["run", "--within", "soon", "x.py"], "Error: --within is a length of time"),
        (["run", "--hours", "nan", "x.py"], "Error: --hours must be a positive number"),
        (["explore", "--within", "0h"], "has passed"),
        (["report", "--since", "soon"], "Error: --since must be"),
        (["report", "--since", "9999-12"], "Error: --since must be"),
        (["report", "--since", "0001-01"], "Error: --since must be"),
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
        "report --text",
        "report --csv",
        "report --runs 3",
        "report --format ledger",
        "report --format forecasts",
        "explore --epochs 3",
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


@pytest.mark.parametrize("arguments", ["report --json", "report --format forecasts --json"])
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


@pytest.mark.parametrize("arguments", ["report", "report --format cite", "demo", "project --hours 20 --gpu L40S"])
def test_a_mistyped_directory_is_not_made(logs, arguments):
    name = "reprots/x.md" if "--format" in arguments else "reprots/x.pdf"
    result = call(*arguments.split(), "-o", name)
    assert result.exit_code == 1 and "there is no directory reprots; make it first" in result.output, result.output
    assert not (logs.parent / "reprots").exists()


@pytest.mark.parametrize(
    ("arguments", "size_pt"),
    [
        ("project --hours 20 --gpu L40S", (612, 792)),
        ("report", (612, 792)),
        ("report --page-size A4", (595, 842)),
    ],
)
def test_the_pdf_of_any_verb_has_the_page_size_of_the_settings(logs, monkeypatch, arguments, size_pt):
    monkeypatch.setenv("GREENLOVE_PAGE_SIZE", "Letter")
    result = call(*arguments.split(), "-o", "x.pdf")
    assert result.exit_code == 0, result.output
    box = PdfReader("x.pdf").pages[0].mediabox
    assert (round(box.width), round(box.height)) == size_pt


@pytest.mark.parametrize("verb", [*FIRST_PAGE, *SECOND_PAGE])
def test_the_first_help_of_a_verb_has_at_most_ten_options(verb):
    first, every = (call(verb, option).stdout for option in ("--help", "--help-all"))
    assert first.startswith("Usage: ")
    assert len(re.findall(r"^  -", first, re.MULTILINE)) <= 10
    assert ("--help-all" in first) == (len(first) < len(every))


def test_the_first_page_has_eight_verbs_and_the_second_all():
    pages = [re.findall(r"^  ([a-z]+) {2,}", call(word).stdout, re.MULTILINE) for word in ("--help", "--help-all")]
    assert pages == [list(FIRST_PAGE), [*FIRST_PAGE, *SECOND_PAGE]]
    assert set(cli.commands) == {*FIRST_PAGE, *SECOND_PAGE}


def test_a_run_is_named_by_its_id_and_none_means_the_latest(logs):
    ids = sorted(path.name for path in logs.iterdir())
    for words, meant in (([], ids[-1]), (["last"], ids[-1]), ([ids[0]], ids[0])):
        assert meant in call("report", *words, "-o", "r.md").output + Path("r.md").read_text()
    month = ids[0][:4] + "-" + ids[0][4:6]
    assert json.loads(call("report", "--since", month, "--json").stdout)["groups"]


def test_the_reference_is_made_from_the_options():
    page = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
    path = page.parents[1] / "write_cli_reference.py"
    assert page.read_text(encoding="utf-8") == runpy.run_path(str(path))["cli_reference"]()


def test_a_misspelt_verb_is_no_script_unless_there_is_one(logs):
    result = call("reprt", "--json")
    assert result.exit_code == 2 and "did you mean greenlove report?" in result.output
    for arguments in (["frobnicate.py"], ["run", "frobnicate.py"]):
        result = call(*arguments)
        assert result.exit_code == 2 and "no such script: frobnicate.py" in result.output  # as Python's own
    Path("reprot").mkdir()
    assert "cannot read reprot: Is a directory" in call("reprot").output


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
    assert "choose one" in call("report", "--json", "--csv").output


def test_what_is_of_another_format_is_refused(logs):
    assert "0 training runs" in call("report", "--text", "--user", "nobody").stdout
    for arguments, said in (
        (["report", "--since", "2026-11", "--until", "2026-10"], "--until must be after --since"),
        (["report", "--format", "cite", "--page-size", "A4"], "--page-size is of --format page"),
    ):
        done = call(*arguments)
        assert done.exit_code == 1 and said in done.output, done.output


@pytest.mark.parametrize(
    "words, says",
    [
        ("summary --check", "report DIR --text"),
        ("wait --threshold 200", "plan --threshold"),
    ],
)
def test_what_is_gone_names_its_successor(words, says):
    done = call(*words.split())
    assert done.exit_code == 2 and says in done.output


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("doctor",), ("report", "--text")])
def test_a_terminal_whose_encoding_lacks_signs_shows_question_marks(logs, arguments):
    """Windows prints in cp1252, which has neither the ticks nor the lines of tables."""
    env = {**os.environ, "PYTHONIOENCODING": "cp1252"}
    words = [sys.executable, "-m", "greenlove_tracker", *arguments]
    if arguments[0] == "report":
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
