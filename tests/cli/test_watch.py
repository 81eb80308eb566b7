"""``greenlove watch``, in a pipe and on a real terminal."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from report_samples import HERE, demo_rows, demo_run, write_run

from greenlove_tracker.cli import cli

WATCH = [sys.executable, "-m", "greenlove_tracker", "watch"]
needs_pty = pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")


def call(*arguments: str):
    return CliRunner().invoke(cli, ["watch", *arguments])


def test_without_a_terminal_it_is_printed_once(tmp_path):
    write_run(tmp_path, demo_rows(3), "20261121T000001-a", status=None, fields={**HERE, "epochs_planned": "9"})
    result = call(str(tmp_path))
    assert result.exit_code == 0 and "\x1b" not in result.stdout
    assert "1 running" in result.stdout and "33%  3 of 9 epochs" in result.stdout
    assert re.sub(r"\d+:\d+:\d+|[\d.:]+ s", "", call(str(tmp_path), "--once").stdout) == re.sub(
        r"\d+:\d+:\d+|[\d.:]+ s", "", result.stdout
    )


def test_a_directory_is_needed_and_an_empty_one_is_said(tmp_path):
    result = call(str(tmp_path))
    assert result.exit_code == 0 and "There is no run in it yet" in result.stdout
    file = tmp_path / "x.csv"
    file.write_text("x")
    for path in (tmp_path / "nowhere", file):
        result = call(str(path), "--once")
        assert result.exit_code == 1 and result.output.count("\n") == 1
        assert "is not a directory of logs" in result.output


class Terminal:
    """A pseudo-terminal that a command draws on."""

    def __init__(self, command: list[str], *, columns: int, **environment: str) -> None:
        import fcntl
        import pty
        import struct
        import termios

        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
        kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**kept, "TERM": "xterm-256color", **environment},
            start_new_session=True,
        )
        os.close(theirs)
        self.seen = ""

    def until(self, holds: Callable[[str], bool], patience_s: float = 40.0) -> str:
        """Read until that holds of what was drawn last."""
        end_s = time.monotonic() + patience_s
        while time.monotonic() < end_s:
            if holds(self.seen):
                return self.seen
            poll = select.poll()  # unlike select(), it takes descriptors over 1,023
            poll.register(self._ours, select.POLLIN)
            if poll.poll(100):
                try:
                    data = os.read(self._ours, 65536)
                except OSError:  # it has ended
                    break
                self.seen = (self.seen + data.decode("utf-8", "replace"))[-200_000:]
        assert holds(self.seen), self.seen[-3000:]
        return self.seen

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)


@pytest.fixture
def terminal() -> Iterator[Callable[..., Terminal]]:
    opened = []

    def on(command: list[str], columns: int = 100, **environment: str) -> Terminal:
        opened.append(Terminal(command, columns=columns, **environment))
        return opened[-1]

    yield on
    for one in opened:
        one.close()


@needs_pty
def test_on_a_terminal_it_shows_what_begins_and_ends_until_ctrl_c(tmp_path: Path, terminal) -> None:
    logs = tmp_path / "logs"
    shown = terminal([*WATCH, str(logs)])
    shown.until(lambda text: "There is no directory" in text)
    logs.mkdir()
    shown.until(lambda text: "There is no run in it yet" in text)
    run = write_run(logs, demo_rows(3), "20261121T000001-a", status=None, fields={**HERE, "epochs_planned": "9"})
    drawn = shown.until(lambda text: "3 of 9 epochs" in text)
    assert "\x1b[32m" in drawn or "\x1b[1;32m" in drawn
    ended = demo_run(tmp_path / "aside")
    (ended.path / "summary.csv").replace(run.path / "summary.csv")
    shown.until(lambda text: "nothing is running" in text)
    shown.process.send_signal(signal.SIGINT)
    shown.until(lambda text: "\x1b[?1049l" in text and "nothing is running" in text.partition("\x1b[?1049l")[2])
    assert shown.process.wait(20) == 130
    assert "Traceback" not in shown.seen and "Aborted" not in shown.seen


@needs_pty
def test_a_terminal_that_cannot_be_drawn_over_gets_it_once(tmp_path: Path, terminal) -> None:
    demo_run(tmp_path)
    shown = terminal([*WATCH, str(tmp_path)], TERM="dumb")
    assert "\x1b" not in shown.until(lambda text: "nothing is running" in text)
    assert shown.process.wait(20) == 0
