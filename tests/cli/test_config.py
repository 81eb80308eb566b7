"""Tests of ``greenlove config``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from greenlove_tracker.cli import cli


@pytest.fixture(autouse=True)
def _settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr("greenlove_tracker.settings.config_files.SITE_FILE", tmp_path / "etc.toml")
    Path("etc.toml").write_text('country = "DE"\npue = 1.2\n')
    monkeypatch.setenv("GREENLOVE_PROJECT", "thesis")


def call(*arguments):
    return CliRunner().invoke(cli, ["config", *arguments])


def test_show_says_where_each_setting_comes_from(tmp_path):
    lines = call("show").stdout.splitlines()
    assert [line.split() for line in lines[:3]] == [
        ["country", "DE", str(tmp_path / "etc.toml")],
        ["project", "thesis", "GREENLOVE_PROJECT"],
        ["pue", "1.2", str(tmp_path / "etc.toml")],
    ]
    text = " ".join(lines)
    assert "log_dir=greenlove_logs" in text and "strict=no" in text and "country=" not in text
    found = json.loads(call("show", "--json").stdout)["settings"]
    assert found["country"] == {"value": "DE", "from": str(tmp_path / "etc.toml")}
    assert found["verbose"] == {"value": 1, "from": "default"}


def test_check_ends_with_1_where_something_is_wrong_and_names_every_mistake():
    assert (call("check").exit_code, call("check").stdout) == (0, "No mistakes found.\n")
    Path("greenlove.toml").write_text('export = "mlflow"\n')
    result = call("check")
    assert result.exit_code == 1 and "counts for nothing" in result.stderr
    Path("greenlove.toml").write_text("pue = 'x'\ncontry = 'FR'\n")
    for verb in ("check", "show"):
        result = call(verb)
        problems = result.stderr
        assert result.exit_code == 1 and "greenlove.toml" in problems
        assert "pue must be a number, not 'x'" in problems and "did you mean country?" in problems
