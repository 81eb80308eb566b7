"""Files that somebody else wrote do nothing but be read: no escape sequence reaches a terminal, no damage hides a run."""

from __future__ import annotations

import os
import shutil
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
    os.rename(sorted(log_dir.iterdir())[0], log_dir / f"20260101T000000-{ESCAPES}")
    code, output = said(words[0], log_dir, *words[1:])
    assert output and not {"\x1b", "\x07", "\x9b", "\u202e"} & set(output)
