"""Tests of the check of all settings at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from greenlove_tracker.config_check import setting_problems


@pytest.fixture
def env(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("greenlove_tracker.config_files.SITE_FILE", tmp_path / "etc.toml")
    return {"XDG_CONFIG_HOME": str(tmp_path / "xdg")}


def test_sound_settings_have_no_problem_and_nothing_is_left_behind(env, tmp_path):
    Path("greenlove.toml").write_text('country = "DE"\nlog_dir = "logs/mine"\nelectricity_tariff = "base 0.2"\n')
    assert setting_problems(env) == []
    assert {path.name for path in tmp_path.iterdir()} == {"greenlove.toml"}


def test_every_mistake_is_named_with_its_place(env):
    Path("etc.toml").write_text("pue = = 1")
    Path("greenlove.toml").write_text('pue = "abc"\ncontry = "DE"\nverbose = 1\n')
    env |= {"GREENLOVE_CONFIG": "gone.toml", "GREENLOVE_MAX_HOURS": "-1", "GREENLOVE_PEU": "1"}
    found = setting_problems(env)
    expected = (
        "not a readable TOML file",
        "gone.toml: not a readable TOML file",
        "greenlove.toml: pue must be a number",
        "greenlove.toml: no such setting: contry; did you mean country?",
        "GREENLOVE_MAX_HOURS: max_hours must be a positive number",
        "GREENLOVE_PEU is no setting: did you mean GREENLOVE_PUE?",
    )
    assert len(found) == len(expected) and all(text in line for text, line in zip(expected, found, strict=True))


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("COUNTRY", "Germny", "country: "),
        ("ELECTRICITY_TARIFF", "cheap", "electricity_tariff: "),
    ],
)
def test_values_of_the_right_kind_may_be_wrong(env, variable, value, says):
    (problem,) = setting_problems({**env, f"GREENLOVE_{variable}": value})
    assert problem.startswith(says)
