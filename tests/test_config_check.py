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
        "GREENLOVE_CONFIG names gone.toml",
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
        ("LOG_DIR", "/proc/logs", "log_dir: nothing can be written to /proc/logs"),
    ],
)
def test_values_of_the_right_kind_may_be_wrong(env, variable, value, says):
    (problem,) = setting_problems({**env, f"GREENLOVE_{variable}": value})
    assert problem.startswith(says)


def test_a_lock_that_is_not_heeded_is_a_problem(env):
    Path("etc.toml").write_text('locked = ["country"]\ncountry = "DE"\n')
    Path("greenlove.toml").write_text('country = "FR"\n')
    (problem,) = setting_problems(env)
    assert problem.startswith("country stays 'DE': ") and problem.endswith("etc.toml locks it")


def test_a_bad_lock_hides_no_other_mistake(env):
    Path("etc.toml").write_text('locked = ["pu"]\npue = 0.5\ncontry = "DE"\n')
    found = setting_problems(env)
    assert len(found) == 3
    for text in ("no such setting: pu; did you mean pue?", "pue must be at least 1", "did you mean country?"):
        assert any(text in problem for problem in found)


def test_every_mistake_in_the_budgets_is_named(env):
    Path("etc.toml").write_text(
        '[budgets]\nwebhok = "http://x"\n[budgets.project.a]\nkwh = -3\nkw = 3\n[budgets.team.a]\nkwh = 3\n'
    )
    found = [problem.partition("etc.toml: ")[2] for problem in setting_problems(env)]
    assert [text.split(":")[0] for text in found] == [
        "budgets.webhok",
        "[budgets.project.a] kwh must be a positive number, not -3",
        "[budgets.project.a] kw",
        "budgets.team",
    ]


def test_budgets_of_users_need_the_user_in_the_logs(env):
    Path("etc.toml").write_text('[budgets.user."*"]\nkwh = 3\n')
    (problem,) = setting_problems(env)
    assert "need log_user = true" in problem
    Path("etc.toml").write_text('log_user = true\n[budgets.user."*"]\nkwh = 3\n')
    assert setting_problems(env) == []


def test_budgets_in_a_users_file_are_sent_to_the_sites(env):
    Path("greenlove.toml").write_text("[budgets.project.a]\nkwh = 3\n")
    (problem,) = setting_problems(env)
    assert "greenlove.toml: budgets belong in the site's file" in problem
