"""Tests of ``greenlove config``."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest
from click.testing import CliRunner
from conftest import epoch_row
from report_samples import write_run

from greenlove_tracker.cli import cli


@pytest.fixture(autouse=True)
def _settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr("greenlove_tracker.config_files.SITE_FILE", tmp_path / "etc.toml")
    Path("etc.toml").write_text('locked = ["country"]\ncountry = "DE"\npue = 1.2\n')
    monkeypatch.setenv("GREENLOVE_PROJECT", "thesis")


def call(*arguments):
    return CliRunner().invoke(cli, ["config", *arguments])


def test_show_says_where_each_setting_comes_from(tmp_path):
    lines = call("show").stdout.splitlines()
    assert [line.split() for line in lines[:3]] == [
        ["country", "DE", str(tmp_path / "etc.toml"), "(locked)"],
        ["project", "thesis", "GREENLOVE_PROJECT"],
        ["pue", "1.2", str(tmp_path / "etc.toml")],
    ]
    text = " ".join(lines)
    assert "log_dir=greenlove_logs" in text and "strict=no" in text and "country=" not in text
    found = json.loads(call("show", "--json").stdout)["settings"]
    assert found["country"] == {"value": "DE", "from": str(tmp_path / "etc.toml"), "is_locked": True}
    assert found["verbose"] == {"value": 1, "from": "default", "is_locked": False}


def test_check_ends_with_1_where_something_is_wrong():
    assert (call("check").exit_code, call("check").stdout) == (0, "No mistakes found.\n")
    Path("greenlove.toml").write_text('country = "FR"\n')
    result = call("check", "--json")
    assert result.exit_code == 1 and "locks it" in json.loads(result.stdout)["problems"][0]


def test_show_of_bad_settings_says_which():
    Path("greenlove.toml").write_text("pue = 'x'\ncontry = 'FR'\n")
    result = call("show")
    assert result.exit_code == 1 and "! greenlove.toml: pue must be a number, not 'x'\n" in result.stdout
    assert "did you mean country?" in result.stdout
    assert ["pue", "x", "greenlove.toml"] in [line.split() for line in result.stdout.splitlines()]
    assert "no such setting: contry" in call("show", "--json").stderr


def test_summary_checks_the_budgets_of_a_team(tmp_path):
    rows = [epoch_row(1), epoch_row(2)]
    run = write_run(tmp_path / "logs", rows, fields={"project": "thesis"})
    month = run.summary.ended_at[:7]
    assert CliRunner().invoke(cli, ["summary", "logs", "--check"]).exit_code == 1  # there are none
    for limit, code in ((1e-9, 3), (1e9, 0)):
        Path("etc.toml").write_text(f"[budgets.project.thesis]\nkwh = {limit}\n")
        with pytest.MonkeyPatch.context() as patch:
            moment = datetime.fromisoformat(f"{month}-15T00:00:00+00:00").timestamp()
            patch.setattr("greenlove_tracker.cli.report.time.time", lambda moment=moment: moment)
            result = CliRunner().invoke(cli, ["summary", "logs", "--check"])
            (use,) = json.loads(CliRunner().invoke(cli, ["summary", "logs", "--check", "--json"]).stdout)
        assert result.exit_code == code and result.stdout.startswith("OVER" if code else "      project thesis used")
        assert use["is_exceeded"] == bool(code) and use["name"] == "thesis"
