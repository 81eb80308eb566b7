from dataclasses import replace
from pathlib import Path

import pytest

from greenlove_tracker.logs.directory import read_logs
from greenlove_tracker.settings.config import Settings, is_strict, load_settings
from greenlove_tracker.tracker import Tracker
from greenlove_tracker.vocabulary.errors import SettingError, UsageError


@pytest.fixture
def env(tmp_path, monkeypatch):
    """An environment without anybody's own files, in a working directory of its own."""
    (tmp_path / "work").mkdir()
    (tmp_path / "xdg" / "greenlove").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    return {"XDG_CONFIG_HOME": str(tmp_path / "xdg")}


def user_file(env):
    return Path(env["XDG_CONFIG_HOME"]) / "greenlove" / "config.toml"


def test_from_the_weakest_to_the_strongest(env):
    user_file(env).write_text('project = "user"\n')
    assert load_settings(env=env).project == "user"
    Path("greenlove.toml").write_text('project = "here"\npue = 1.2\n')
    assert load_settings(env=env).project == "here"
    env["GREENLOVE_PROJECT"] = "variable"
    assert load_settings(env=env).project == "variable"
    settings = load_settings({"project": "argument", "pue": None}, env)
    assert (settings.project, settings.pue) == ("argument", 1.2)


def test_a_sites_files_are_below_the_users(env, tmp_path, monkeypatch):
    site, cluster = tmp_path / "etc.toml", tmp_path / "cluster.toml"
    monkeypatch.setattr("greenlove_tracker.settings.config_files.SITE_FILE", site)
    site.write_text('country = "DE"\nproject = "site"\npue = 1.1\n')
    cluster.write_text('project = "cluster"\npue = 1.2\n')
    user_file(env).write_text("pue = 1.3\n")
    settings = load_settings(env={**env, "GREENLOVE_CONFIG": str(cluster)})
    assert (settings.country, settings.project, settings.pue) == ("DE", "cluster", 1.3)
    assert {name: origin.where for name, origin in settings.origins.items()} == {
        "country": str(site),
        "project": str(cluster),
        "pue": str(user_file(env)),
    }
    assert not settings.notes


HELD_BACK = {
    "log_dir": '"/tmp/elsewhere"',
    "intensity_urls": '"electricity_maps=https://example.org"',
    "export": '"prometheus=/home/ada/.bashrc"',
    "on_overrun": '"stop"',
    "strict": "true",
}


@pytest.mark.parametrize("log_dir", ['"../logs"', '"~/logs"', '"link/logs"'])
def test_a_file_of_the_working_directory_neither_sends_nor_writes_elsewhere_nor_stops(env, log_dir):
    """It came with a directory that was cloned."""
    Path("link").symlink_to("..")
    lines = [f"{name} = {value}" for name, value in {**HELD_BACK, "log_dir": log_dir}.items()]
    Path("greenlove.toml").write_text("\n".join(["pue = 1.2", *lines]))
    settings = load_settings(env=env)
    assert settings == replace(Settings(), pue=1.2, notes=settings.notes)
    assert [note.split()[0] for note in settings.notes] == [line.split()[0] for line in lines]
    assert all(str(user_file(env)) in note for note in settings.notes)
    assert not is_strict(env=env)
    Path("greenlove.toml").rename(user_file(env))
    settings = load_settings(env=env)
    assert settings.strict and settings.export and not settings.notes


def test_a_file_of_the_working_directory_names_a_log_directory_within_it(env):
    for name in ("logs/mine", str(Path.cwd() / "logs")):
        Path("greenlove.toml").write_text(f'log_dir = "{name}"')
        assert (load_settings(env=env).log_dir, load_settings(env=env).notes) == (name, ())


def test_an_empty_variable_sets_no_number(env):
    """As a cluster's module file leaves it."""
    names = ("MARKET_GCO2E_PER_KWH", "PUE", "MAX_HOURS", "VERBOSE")
    settings = load_settings(env={**env, **{f"GREENLOVE_{name}": "" for name in names}})
    assert (settings.market_gco2e_per_kwh, settings.pue, settings.max_hours) == (None, 1.0, None)


def test_a_variable_that_is_no_setting_is_said_with_the_nearest(env):
    env |= {"GREENLOVE_CONTRY": "DE", "GREENLOVE_QQQQ": "1", "GREENLOVE_JOB_ID": "7", "GREENLOVE_RUN_DIR": "/x"}
    assert load_settings(env=env).notes == (
        "GREENLOVE_CONTRY is no setting: did you mean GREENLOVE_COUNTRY?",
        "GREENLOVE_QQQQ is no setting, and counts for nothing",
    )
    with pytest.raises(SettingError, match="GREENLOVE_CONTRY is no setting"):
        load_settings(env={**env, "GREENLOVE_STRICT": "1"})


def test_strict_is_found_beside_what_cannot_be_read(env):
    assert not is_strict(env=env)
    user_file(env).write_text("strict = true\n")
    Path("greenlove.toml").write_text("pue = = 1")
    assert is_strict(env=env) and not is_strict({"strict": False}, env)
    assert not is_strict(env={**env, "GREENLOVE_STRICT": "no"})


def test_an_unknown_name_is_told_with_those_there_are(env):
    with pytest.raises(UsageError, match=r"no such setting: contry; did you mean country"):
        load_settings({"contry": "DE"}, env)
    Path("greenlove.toml").write_text("[country]\nname = 1\n[x]\n")
    with pytest.raises(UsageError, match=r"greenlove.toml: no such setting: x"):
        load_settings(env=env)


@pytest.mark.parametrize("text", ["pue = ", "\xff", 'pue = "a\nb"'])
def test_a_broken_file_is_told_by_name(env, text):
    Path("greenlove.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError, match=r"greenlove.toml: not a readable TOML file"):
        load_settings(env=env)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pue": "big"}, "pue must be a number, not 'big'"),
        ({"pue": True}, "pue must be a number"),
        ({"pue": [1.1]}, "pue must be a number"),
        ({"verbose": 1.5}, "verbose must be a whole number"),
        ({"verbose": float("inf")}, "verbose must be a whole number"),
        ({"verbose": "loud"}, "verbose must be a whole number"),
        ({"log_user": "perhaps"}, "log_user must be yes or no"),
        ({"project": {"name": "x"}}, "project must be a text"),
        ({"country": True}, "country must be a text"),
        ({"pue": 0.9}, "pue must be at least 1"),
        ({"pue": "nan"}, "pue must be at least 1"),
        ({"price_usd_per_gpu_hour": 0}, "price_usd_per_gpu_hour must be a positive number"),
        ({"carbon_intensity_gco2e_per_kwh": float("inf")}, "must be a positive number"),
        ({"sim_gpu_util": 1.1}, "a share from 0 to 1"),
        ({"sim_gpu_count": 0}, "sim_gpu_count must be at least 1"),
        ({"precision": "int4"}, "precision must be fp32, tf32, bf16 or fp8, not 'int4'"),
        ({"workload": "physics"}, "workload must be language, .* or other, not 'physics'"),
    ],
)
def test_a_value_that_does_not_fit_is_told_with_what_would(env, arguments, message):
    with pytest.raises(UsageError, match=message):
        load_settings(arguments, env)


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", True), ("Yes", True), ("TRUE", True), ("on", True), ("0", False), ("no", False), ("", False)],
)
def test_yes_and_no(env, text, value):
    assert load_settings(env={**env, "GREENLOVE_LOG_USER": text}).log_user is value


def test_what_variables_and_files_hold_becomes_what_the_settings_hold(env):
    Path("greenlove.toml").write_text('tags = ["a", "b"]\nlog_user = true\nproject = 7\n')
    settings = load_settings({"verbose": False}, {**env, "GREENLOVE_PUE": "1.1", "GREENLOVE_SIM_GPU_COUNT": "4"})
    assert (settings.tags, settings.log_user, settings.project) == ("a,b", True, "7")
    assert (settings.pue, settings.sim_gpu_count, settings.verbose) == (1.1, 4, 0)


def test_a_home_in_the_log_directory_is_not_a_directory_called_tilde(env, monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    assert load_settings(env={**env, "GREENLOVE_LOG_DIR": "~/logs"}).log_dir == "/home/ada/logs"


def test_precision_and_workload_get_the_names_that_the_log_has(env):
    Path("greenlove.toml").write_text('precision = "AMP"\nworkload = "Vision"\n')
    settings = load_settings(env=env)
    assert (settings.precision, settings.workload) == ("bf16", "vision")
    assert load_settings({"precision": "float32"}, {**env, "GREENLOVE_PRECISION": "fp8"}).precision == "fp32"


def test_a_run_says_which_factors_the_site_gave_and_which_the_user(env, tmp_path, monkeypatch):
    site = tmp_path / "site.toml"
    site.write_text("pue = 1.3\nmarket_gco2e_per_kwh = 12\ncarbon_intensity_gco2e_per_kwh = 300\n")
    monkeypatch.setenv("GREENLOVE_CONFIG", str(site))
    with Tracker(log_dir=tmp_path / "logs", carbon_intensity_gco2e_per_kwh=200, verbose=0) as tracker:
        tracker.epoch_start()
    (run,) = read_logs(tmp_path / "logs").runs
    assert run.text("pue.source") == run.market_intensity.source == f"given by the site, {site}"
    assert (run.carbon_intensity.value, run.carbon_intensity.source) == (200, "given by the user")
