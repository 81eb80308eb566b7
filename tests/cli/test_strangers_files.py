"""Files that somebody else wrote are read and do nothing: no escape sequence on a terminal, no report taken away."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fakes import FakeClock, make_tracker, train

import greenlove_tracker.cli  # noqa: F401  # adds the verbs
from greenlove_tracker.cli.base import cli

ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil"


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    log_dir = tmp_path / "logs"
    clock = FakeClock()
    for name in ("first", "second"):
        with make_tracker(clock, log_dir, project=name, carbon_intensity_gco2e_per_kwh=400) as tracker:
            train(tracker, clock, 3, gap_s=1.0)
            tracker.log_metric("accuracy", 0.5)
    return log_dir


def said(*words: Any) -> tuple[int, str]:
    result = CliRunner().invoke(cli, [str(word) for word in words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


@pytest.mark.parametrize(
    "words",
    [
        ["watch", "--once"],
        ["report", "--text"],
        ["report", "--text", "-v"],
        ["report", "--format", "ledger"],
        ["report", "--format", "forecasts"],
        ["report", "--by", "project", "--csv"],
        ["report", "--by", "project"],
        ["export"],
        ["project"],
        ["compare"],
    ],
)
def test_no_escape_sequence_of_a_log_reaches_a_terminal(
    log_dir: Path, words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for number, path in enumerate(sorted(log_dir.glob("*/*.csv"))):
        text = path.read_text(encoding="utf-8")
        for word in ("first", "finished", "accuracy", "given by the user"):
            text = text.replace(word, f"{word}{ESCAPES}")
        if path.name == "run.csv":
            text += f'"host{ESCAPES}","a{ESCAPES}\nb",\n'
        if number % 2:
            text += f"row,{ESCAPES},1,2\n"
        path.write_text(text, encoding="utf-8")
    min(log_dir.iterdir()).rename(log_dir / f"20260101T000000-{ESCAPES}")
    _, output = said(words[0], log_dir, *words[1:])
    assert output and not {"\x1b", "\x07", "\x9b", "\u202e"} & set(output)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def lost(path: Path) -> None:
    path.unlink()


def turned_to_zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def turned_into_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def turned_into_a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def turned_into_a_loop_of_links(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def nested_deep(path: Path) -> None:
    path.write_text("[" * 100_000)


def without_values(path: Path) -> None:
    path.write_text(
        "field,value,unit\n" + "".join(f"{line.split(',')[0]},,\n" for line in path.read_text().splitlines()[1:])
    )


DAMAGES = [emptied, lost, turned_to_zeros, turned_into_a_pipe, turned_into_a_directory, turned_into_a_loop_of_links]
DAMAGES += [nested_deep, without_values]


@pytest.mark.slow_cases
@pytest.mark.parametrize("name", ["run.csv", "summary.csv", "epochs-0.csv", "metrics-0.csv"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_takes_no_report_away(log_dir: Path, damage: Any, name: str, tmp_path: Path) -> None:
    broken = sorted(log_dir.iterdir())[0]
    if name == "run.csv":
        (broken / "epochs-0.csv").write_text("")
        (broken / "summary.csv").unlink()
    damage(broken / name)
    for suffix in ("html", "pdf", "md"):
        for what in (log_dir, broken):
            page = tmp_path / f"{what.name}.{suffix}"
            code, output = said("report", what, "-o", page)
            assert code == 0 and page.stat().st_size > 1000, (what.name, output)
    for words in (
        ["report", "--text"],
        ["report", "--format", "ledger", "--include-simulated"],
        ["export", "-o", tmp_path / "e.csv"],
    ):
        code, output = said(words[0], log_dir, *words[1:])
        assert code == 0, (words, output)
    code, output = said("watch", log_dir, "--once")
    assert code == 0
