"""What others may have left on a disk, or typed, protects the user or is asked about: never hangs, never leaks."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeClock, make_tracker, train

from greenlove_tracker import read_logs
from greenlove_tracker.experiments.definition import read_experiment
from greenlove_tracker.projection.options import ProjectionOptions
from greenlove_tracker.settings.config import load_settings
from greenlove_tracker.vocabulary.errors import SettingError, UsageError


@pytest.fixture
def own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own file, beside a working directory."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "greenlove").mkdir(parents=True)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "config" / "greenlove" / "config.toml"


@pytest.mark.parametrize(
    ("name", "own", "local"),
    [
        ("private_logs", "true", "false"),
        ("log_user", "false", "true"),
        ("log_command", "false", "true"),
        ("intensity", '"mock"', '"live"'),
    ],
)
def test_what_protects_is_the_users_own(own_file: Path, name: str, own: str, local: str) -> None:
    own_file.write_text(f"{name} = {own}\n")
    Path("greenlove.toml").write_text(f"{name} = {local}\nproject = 'here'\n")
    settings = load_settings()
    assert str(getattr(settings, name)).lower() == own.strip('"') and settings.project == "here"
    assert settings.notes == (f"{name} of greenlove.toml counts for nothing, as {own_file} says it",)
    own_file.unlink()
    assert str(getattr(load_settings(), name)).lower() == local.strip('"')


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def directory(path: Path) -> None:
    path.mkdir()


def large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(100 * 1024**3)


def deep(path: Path) -> None:
    path.write_text(f"a = {'[' * 30_000}")


def noise(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 10)


DAMAGES = [pipe, device, directory, large, deep, noise]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["GREENLOVE_CONFIG", "GREENLOVE_INTENSITY", "GREENLOVE_ELECTRICITY_TARIFF"])
def test_a_setting_that_names_no_plain_file_is_one_warning(
    own_file: Path, damage: Any, name: str, monkeypatch: pytest.MonkeyPatch, caplog: Any, capsys: Any
) -> None:
    damage(Path("named.csv"))
    monkeypatch.setenv(name, str(Path("named.csv").absolute()))
    clock = FakeClock()
    with make_tracker(clock, Path("logs")) as tracker:
        train(tracker, clock, 1)
    warned = [*(record.getMessage() for record in caplog.records), *capsys.readouterr().err.splitlines()]
    assert sum("named.csv" in line for line in warned) == 1
    assert name == "GREENLOVE_CONFIG" or len(read_logs("logs").runs) == 1


@pytest.mark.parametrize("damage", DAMAGES)
def test_an_experiment_or_a_table_that_is_no_plain_file_is_refused(tmp_path: Path, damage: Any) -> None:
    from greenlove_tracker.tables.offers import read_offers

    damage(tmp_path / "named")
    for read in (read_experiment, read_offers):
        with pytest.raises(UsageError, match=r"named"):
            read(tmp_path / "named")


BOMB = "a: &a [1, 2, 3, 4, 5, 6, 7, 8, 9]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BOMB, "it stands for more than 20,000 values"),
        ("a: &a\n  - *a\n", "name: is missing"),
        ("[" * 100_000, "not YAML"),
        (
            "name: x\ntask: t.py:task\nepochs: 1\nmatrix: {"
            + ", ".join(f"--a{n}: [{', '.join(map(str, range(1000)))}]" for n in range(3))
            + "}\n",
            r"make 1,000,000,000 trainings; 10,000 are the most",
        ),
    ],
)
def test_an_experiment_of_more_than_anybody_trains_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "t.py").write_text("def task(): ...\n")
    (tmp_path / "e.yaml").write_text(text)
    with pytest.raises(UsageError, match=said):
        read_experiment(tmp_path / "e.yaml")


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ({"pue": 130}, r"did you mean 1\.30\?"),
        ({"pue": 112.5}, r"did you mean 1\.12\?"),
        ({"carbon_intensity_gco2e_per_kwh": 0.35}, r"are these kg\? Then it is 350"),
        ({"market_gco2e_per_kwh": 0.02}, r"are these kg\? Then it is 20"),
    ],
)
def test_a_figure_in_another_unit_is_asked_about(given: dict[str, float], asked: str) -> None:
    with pytest.raises(UsageError, match=asked):
        load_settings(given)
    name, value = next(iter(given.items()))
    with pytest.raises(SettingError, match=asked):
        load_settings(env={f"GREENLOVE_{name.upper()}": str(value)})
    options = {"carbon_intensity" if "carbon" in name else name: value}
    if "market" not in name:
        with pytest.raises(UsageError, match=asked):
            ProjectionOptions(**options)


def test_an_intensity_file_in_kg_is_asked_about(tmp_path: Path) -> None:
    from greenlove_tracker.grid.live.offline import CsvIntensity

    (tmp_path / "kg.csv").write_text("utc,gco2e_per_kwh\n2026-01-01T00:00,0.35\n2026-01-01T01:00,0.41\n")
    with pytest.raises(UsageError, match=r"kg\.csv.*are these kg\?"):
        CsvIntensity(tmp_path / "kg.csv", now=None)


@pytest.mark.parametrize(
    ("words", "secret"),
    [
        (["--password", "it's-S3CRET"], "S3CRET"),
        (["--auth", "user:S3CRET"], "S3CRET"),
        (["--auth=user:it's S3CRET"], "S3CRET"),
        (["-p", "S3CRET"], "S3CRET"),
        (["-u", "me:it's-S3CRET"], "S3CRET"),
        (["--api_key=a'b\"S3CRET"], "S3CRET"),
        (["KAGGLE_KEY=S3CRET"], "S3CRET"),
        (["--env", "SOME_VENDOR_KEY=it's S3CRET"], "S3CRET"),
        (["--notify", "https://discord.com/api/webhooks/1/S3CRET"], "S3CRET"),
        (["--notify", "https://hooks.zapier.com/hooks/catch/1/S3CRET/"], "S3CRET"),
        (["--notify", "https://acme.webhook.office.com/webhookb2/S3CRET"], "S3CRET"),
        (["--data", "https://host/x?access_token=S3CRET&b=1"], "S3CRET"),
        (["--db", "postgres://u:a/S3CRET@host/db"], "S3CRET"),
        (["-c", 'curl --token "it\'s S3CRET" -v'], "S3CRET"),
    ],
)
def test_a_secret_in_the_command_is_masked_whole(
    words: list[str], secret: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", "--lr", "3e-4", *words, "--last", "kept"])
    clock = FakeClock()
    with make_tracker(clock, tmp_path) as tracker:
        train(tracker, clock, 1)
    command = read_logs(tmp_path).runs[0].text("command")
    assert secret not in command and "MASKED" in command
    assert command.startswith("train.py --lr 3e-4") and command.endswith("--last kept")
