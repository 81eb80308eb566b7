"""What is wrong outside the script keeps no training from running: one warning says it; ``strict`` stops before."""

from __future__ import annotations

from pathlib import Path

import pytest

from greenlove_tracker import Tracker
from greenlove_tracker.meter import SimulatedMeter
from greenlove_tracker.vocabulary.errors import UsageError


@pytest.fixture(autouse=True)
def _settings_files(bare_environment, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr("greenlove_tracker.settings.config_files.SITE_FILE", tmp_path / "etc.toml")


def here(text: str | bytes):
    return lambda monkeypatch: Path("greenlove.toml").write_bytes(text if isinstance(text, bytes) else text.encode())


def site(text: str):
    return lambda monkeypatch: Path("etc.toml").write_text(text)


def user(text: str):
    def write(monkeypatch):
        Path("xdg/greenlove").mkdir(parents=True)
        Path("xdg/greenlove/config.toml").write_text(text)

    return write


def variable(name: str, value: str):
    return lambda monkeypatch: monkeypatch.setenv(name, value)


def occupy_log_dir(monkeypatch):
    Path("greenlove_logs").write_text("a file")


def remove_working_directory(monkeypatch):
    Path("gone").mkdir()
    monkeypatch.chdir("gone")
    Path.cwd().rmdir()


UNTRACKED = [
    (variable("GREENLOVE_PUE", "abc"), {}, "GREENLOVE_PUE: pue must be a number"),
    (variable("GREENLOVE_PUE", "0.9"), {}, "pue must be at least 1"),
    (variable("GREENLOVE_COUNTRY", "Germny"), {}, "Germny"),
    (variable("GREENLOVE_COUNTRY", "US-XX"), {}, "no such state"),
    (variable("GREENLOVE_CONFIG", "nowhere.toml"), {}, "nowhere.toml: not a readable TOML file"),
    (variable("GREENLOVE_CONFIG", "."), {}, ".: not a readable TOML file"),
    (variable("GREENLOVE_PRECISION", "fp12"), {}, "GREENLOVE_PRECISION"),
    (variable("GREENLOVE_WORKLOAD", "cooking"), {}, "GREENLOVE_WORKLOAD"),
    (variable("GREENLOVE_MAX_HOURS", "1e99"), {}, "a thousand years at most"),
    (variable("GREENLOVE_DEADLINE_UTC", "tomorrow"), {}, "must be a time such as"),
    (variable("GREENLOVE_PHASES", "x y z"), {}, "GREENLOVE_PHASES"),
    (variable("GREENLOVE_NODE_OVERHEAD", "25"), {}, "node_overhead must be from 1 to 3"),
    (variable("GREENLOVE_LOG_USER", "perhaps"), {}, "log_user must be yes or no"),
    (here("pue = = 2"), {}, "greenlove.toml: not a readable TOML file"),
    (here(b"\xff\xfe"), {}, "greenlove.toml: not a readable TOML file"),
    (here("contry = 'DE'"), {}, "did you mean country"),
    (here("[country]\nname = 'DE'"), {}, "country must be a text"),
    (here("pue = 'a lot'"), {}, "greenlove.toml: pue must be a number"),
    (user("sim_gpu_count = 0"), {}, "sim_gpu_count must be at least 1"),
    (user("verbose = 1.5"), {}, "verbose must be a whole number"),
    (site("pue = true"), {}, "pue must be a number"),
    (site("locked = ['pue']\npue = 1.2"), {}, "no such setting: locked"),
    (occupy_log_dir, {}, "cannot write logs to"),
    (occupy_log_dir, {"log_dir": "greenlove_logs/mine"}, "cannot write logs to"),
    (variable("GREENLOVE_LOG_DIR", "/proc/logs"), {}, "cannot write logs to /proc/logs"),
    (
        variable("GREENLOVE_LOG_DIR", "s3://team/logs"),
        {},
        "log_dir is a directory of this machine, not s3://team/logs",
    ),
    (remove_working_directory, {}, "No such file or directory"),
]
TRACKED = [
    (variable("GREENLOVE_CONTRY", "DE"), {}, "GREENLOVE_CONTRY is no setting: did you mean GREENLOVE_COUNTRY?"),
    (here("on_overrun = 'stop'"), {}, "on_overrun of greenlove.toml counts for nothing"),
    (variable("GREENLOVE_INTENSITY", "weather"), {}, "without live intensity"),
    (variable("GREENLOVE_INTENSITY", "gone.csv"), {}, "without live intensity"),
    (variable("GREENLOVE_ELECTRICITY_TARIFF", "cheap"), {}, "the price of electricity is the same at all hours"),
    (variable("GREENLOVE_EXPORT", "fax"), {}, "nothing is exported"),
]


def tracked_epochs(clock, **arguments) -> Tracker:
    with Tracker(epochs=2, meter=SimulatedMeter(clock, gpu_w=360.0), clock=clock, verbose=0, **arguments) as tracker:
        for _ in range(3):
            tracker.epoch_start()
            clock.pass_s(10.0)
            tracker.epoch_end()
        tracker.epoch_end()
        tracker.step()
    tracker.stop()
    return tracker


@pytest.mark.parametrize(("break_it", "arguments", "reason"), UNTRACKED)
def test_the_training_runs_untracked_and_one_warning_says_why(clock, monkeypatch, caplog, break_it, arguments, reason):
    break_it(monkeypatch)
    tracker = tracked_epochs(clock, **arguments)
    assert (tracker.summary, tracker.run_dir, tracker.forecast) == (None, None, None)
    assert caplog.text.count("greenlove: ") == 1
    assert "this training is not tracked" in caplog.text and reason in caplog.text
    with pytest.raises(UsageError, match="electricity_price_usd_per_kwh"):  # the script's own are told all the same
        tracked_epochs(clock, electricity_price_usd_per_kwh=-1, **arguments)


@pytest.mark.parametrize(("break_it", "arguments", "reason"), TRACKED)
def test_the_training_is_tracked_and_one_warning_says_what_does_not_count(
    clock, monkeypatch, caplog, break_it, arguments, reason
):
    break_it(monkeypatch)
    tracker = tracked_epochs(clock, **arguments)
    assert tracker.summary.epochs_done == 3
    assert [line for line in caplog.text.splitlines() if reason in line]
    assert caplog.text.count(reason) == 1


@pytest.mark.parametrize(("break_it", "arguments", "reason"), UNTRACKED + TRACKED)
def test_strict_stops_before_the_training(clock, monkeypatch, break_it, arguments, reason):
    monkeypatch.setenv("GREENLOVE_STRICT", "yes")
    break_it(monkeypatch)
    began_s = clock.perf_s()
    with pytest.raises((UsageError, OSError)):
        tracked_epochs(clock, **arguments)
    assert clock.perf_s() == began_s  # no epoch passed
