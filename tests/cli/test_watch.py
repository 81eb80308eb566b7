"""``greenlove watch``, in a pipe and on a real terminal."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from chromium import chromium_browser
from click.testing import CliRunner
from playwright.sync_api import Browser
from report_samples import (
    GERMANY,
    GPU_FIELDS,
    HERE,
    PRICE,
    STARTED_AT,
    demo_rows,
    demo_run,
    gpu_rows,
    issued,
    write_forecasts,
    write_run,
)

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


# -- The page --


def begun(logs: Path, n_epochs: int) -> None:
    """A run of this process that has done so many of 12 epochs, with a forecast."""
    fields = {**GPU_FIELDS, **HERE, "epochs_planned": "12", "started_at": STARTED_AT}
    run = write_run(
        logs, gpu_rows(n_epochs), "20261121T000001-a", status=None, fields=fields, intensity=GERMANY, price=PRICE
    )
    write_forecasts(run, issued(100, point=1e10, half=1e8))  # the run began long ago


class Served:
    """``greenlove watch DIR --serve`` at its address."""

    def __init__(self, logs: Path, port: str = "0") -> None:
        command = [*WATCH, str(logs), "--serve", port]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
        assert self.process.stderr is not None
        self.first = self.process.stderr.readline()
        self.url = self.first.split()[2]

    def status(self, **headers: str) -> int:
        """Return the status code of an answer."""
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url, headers=headers)) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("no_proxy", "*")
    begun(tmp_path / "logs", 5)
    served = Served(tmp_path / "logs")
    yield served
    served.process.kill()
    served.process.communicate()


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C cannot be sent to one process there")
def test_the_page_is_for_this_machine_alone_and_ends_with_ctrl_c(served: Served, tmp_path: Path) -> None:
    assert re.fullmatch(r"greenlove watch  http://127\.0\.0\.1:\d+/  \(Ctrl-C ends it\)\n", served.first)
    with urllib.request.urlopen(served.url) as answer:
        page = answer.read().decode()
        assert answer.headers["Refresh"] == "3" and answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["Content-Security-Policy"] == "frame-ancestors 'none'"
    assert "default-src 'none'" in page and "<script" not in page
    assert "5 of 12 epochs" in page and "381 g/kWh" in page.replace("\N{NO-BREAK SPACE}", " ")
    port = served.url.rpartition(":")[2].strip("/")
    assert served.status(Host=f"localhost:{port}") == 200
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "0.0.0.0", ""):
        assert served.status(Host=host) == 403, host
    second = call(str(tmp_path), "--serve", port)
    assert second.exit_code == 1 and f"port {port}: " in second.output and "--serve 0" in second.output
    served.process.send_signal(signal.SIGINT)
    assert served.process.wait(20) == 130
    assert served.process.stderr.read() == ""


def test_a_page_for_others_is_refused(tmp_path: Path) -> None:
    for arguments in ((str(tmp_path), "--serve", "0.0.0.0:8765"), ("--serve", str(tmp_path)), ("--serve", "65536")):
        result = call(*arguments)
        assert result.exit_code == 2 and "Invalid value for '--serve'" in result.output


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    yield from chromium_browser()


@pytest.mark.slow
def test_a_browser_sees_what_a_run_does_next(served: Served, tmp_path: Path, browser: Browser) -> None:
    page = browser.new_page()
    asked: list[str] = []
    said: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.goto(served.url)
    seen = page.inner_text("body").replace("\N{NO-BREAK SPACE}", " ")
    for text in ("1 running", "42% 5 of 12 epochs", "111 W", "381 g/kWh", "Forecast of the whole run", "Power, before"):
        assert text in seen, text
    shutil.rmtree(tmp_path / "logs")
    begun(tmp_path / "logs", 6)
    page.get_by_text("6 of 12 epochs").first.wait_for(timeout=20_000)
    page.close()
    assert set(asked) == {served.url} and len(asked) >= 2 and said == []
