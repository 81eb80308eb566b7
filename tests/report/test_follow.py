"""The page that is rewritten while a run goes on: what it says, with a clock of the test's own, and in a browser."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from report_samples import HERE, cpu_energy, demo_rows, demo_run, epoch_row, write_run

from greenlove_tracker.cli import cli
from greenlove_tracker.errors import UsageError
from greenlove_tracker.logs.csvio import log_lines
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.schema import EPOCHS
from greenlove_tracker.report.follow import LiveReport, WallClock


class Story:
    """A clock whose sleeps are where things happen: one event each, and nothing after the last."""

    def __init__(self, output: Path, *events: Callable[[], object]) -> None:
        self.output, self.events = output, list(events)
        self.now_s = time.time()
        self.pages: list[str] = []
        self.slept_s: list[float] = []
        self.said: list[str] = []

    def sleep(self, pause_s: float) -> None:
        self.slept_s.append(pause_s)
        self.now_s += pause_s
        if self.output.exists() and (not self.pages or self.output.read_text() != self.pages[-1]):
            self.pages.append(self.output.read_text())
        assert self.events, "it goes on and on"
        self.events.pop(0)()

    def follow(self, path: Path, every_s: float = 5.0) -> str:
        clock = WallClock(lambda: self.now_s, self.sleep)
        LiveReport(self.output, every_s=every_s, say=self.said.append, clock=clock).follow(path)
        assert self.events == []
        return self.output.read_text()


def begin(logs: Path, run_id: str = "20261121T000001-a", n_epochs: int = 2) -> Run:
    fields = {**HERE, "epochs_planned": "5"}
    return write_run(logs, demo_rows(n_epochs), run_id, status=None, fields=fields)


def add_epoch(run_dir: Path, number: int) -> None:
    with (run_dir / "epochs-0.csv").open("ab") as file:
        file.write(
            log_lines(
                [
                    EPOCHS.cells(epoch_row(number, 1.86, cpu_energy(1.86), gap_s=0.15, gap=cpu_energy(0.15)))[
                        : len(EPOCHS.least)
                    ]
                ]
            )
        )


def end(run_dir: Path, aside: Path) -> None:
    ended = write_run(aside, demo_rows(5), run_dir.name, fields={"epochs_planned": "5"})
    (ended.path / "summary.csv").replace(run_dir / "summary.csv")


def nothing() -> None:
    pass


def test_it_is_rewritten_as_rows_come_in_until_the_run_has_ended(tmp_path):
    run_dir = begin(tmp_path / "logs").path
    story = Story(
        tmp_path / "live.html",
        lambda: add_epoch(run_dir, 3),
        nothing,
        nothing,
        lambda: add_epoch(run_dir, 4),
        lambda: end(run_dir, tmp_path),
    )
    last = story.follow(run_dir)
    assert len(story.pages) == 3  # nothing happened: nothing was written
    for page, done in zip(story.pages, (2, 3, 4), strict=True):
        assert f"{done} of 5 epochs" in page and "Live, as of" in page and 'data-refresh="5.0"' in page
        assert '<noscript><meta http-equiv="refresh" content="5"></noscript>' in page
        assert "No summary was written" not in page
    assert "Final: the run has ended (finished)." in last and "5 of 5 epochs" in last
    assert 'data-refresh=""' in last and 'http-equiv="refresh"' not in last and "Live, as of" not in last
    assert set(story.slept_s) == {5.0}
    assert story.said[-1] == f"wrote {tmp_path / 'live.html'}: the run has ended (finished)"
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["live.html"]


def test_of_a_directory_the_newest_that_runs_is_followed_or_the_next_that_begins(tmp_path):
    logs, output = tmp_path / "logs", tmp_path / "live.html"
    begin(logs, "20261121T000001-old")
    newest = begin(logs, "20261121T000002-new").path
    story = Story(output, lambda: end(newest, tmp_path))
    assert newest.name in story.follow(logs)
    assert story.said[0] == "2 runs go on; to follow another one, name its directory"
    empty = tmp_path / "empty"
    waiting = Story(output, nothing, lambda: demo_run(empty))
    demo_run(empty)
    (empty / "20261121T034044-7f3a").rename(empty / "20261120T034044-before")
    text = waiting.follow(empty)
    assert waiting.said[0] == f"no run of {empty} is running: waiting for one"
    assert "20261121T034044-7f3a" in text  # began and ended between two looks


def test_a_run_that_dies_is_said_to_seem_dead(tmp_path, monkeypatch):
    run_dir = begin(tmp_path / "logs").path
    alive = {"is": True}
    monkeypatch.setattr("greenlove_tracker.logs.run._is_running", lambda *of_run: alive["is"])
    story = Story(tmp_path / "live.html", lambda: alive.update({"is": False}))
    last = story.follow(run_dir)
    assert f"Final: the run has ended (seems dead: no end was written, and process {HERE['pid']} is gone)" in last


def test_what_is_gone_is_said(tmp_path):
    run_dir = begin(tmp_path / "logs").path
    story = Story(tmp_path / "live.html", lambda: run_dir.rename(tmp_path / "moved"))
    with pytest.raises(UsageError, match="is gone"):
        story.follow(run_dir)


@pytest.mark.parametrize("ends", [KeyboardInterrupt, SystemExit])
def test_an_end_leaves_a_page_that_says_it_is_not_live(tmp_path, ends):
    def interrupt() -> None:
        raise ends

    run_dir = begin(tmp_path / "logs").path
    story = Story(tmp_path / "live.html", interrupt)
    with pytest.raises(ends):
        story.follow(run_dir)
    page = story.output.read_text()
    assert "Not live any more: following was ended at" in page and 'data-refresh=""' in page
    assert "2 of 5 epochs" in page


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--follow", "-o", "x.pdf"], "name x.pdf .html"),
        (["--follow", "--format", "cite"], "leave --format out"),
        (["--follow", "--since", "2026-01-01", "--jobs", "3"], "leave --since and --jobs out"),
        (["--every", "3"], "--every is of --follow"),
        (["--follow", "-o", "nowhere/x.html"], "there is no directory nowhere"),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    demo_run(tmp_path / "greenlove_logs")
    result = CliRunner().invoke(cli, ["report", *arguments])
    assert result.exit_code == 1 and says in result.output and result.output.count("\n") == 1


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_ends_the_command_quietly(tmp_path, number, code):
    begin(tmp_path / "logs")
    page = tmp_path / "live.html"
    command = [sys.executable, "-m", "greenlove_tracker", "report", "--follow", "--every", "0.2", "-o", str(page)]
    process = subprocess.Popen([*command, str(tmp_path / "logs")], stderr=subprocess.PIPE, text=True)
    for _ in range(400):
        if page.exists():
            break
        time.sleep(0.1)
    time.sleep(0.5)
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert process.returncode == code and "Traceback" not in said and "Aborted" not in said
    assert "Not live any more" in page.read_text()
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["live.html"]


TRAINING = """
import time
from greenlove_tracker import Tracker
with Tracker(16, log_dir={logs!r}, project="real", verbose=0) as tracker:
    for _ in range(16):
        tracker.epoch_start()
        time.sleep(0.5)
        tracker.epoch_end()
"""


@pytest.mark.slow
def test_a_real_training_is_followed_from_before_it_begins(tmp_path):
    logs, page = tmp_path / "logs", tmp_path / "live.html"
    command = [sys.executable, "-m", "greenlove_tracker", "report", str(logs), "--follow", "--every", "0.3"]
    follower = subprocess.Popen([*command, "-o", str(page)], stderr=subprocess.PIPE, text=True)
    assert "waiting for one" in follower.stderr.readline()
    training = subprocess.Popen([sys.executable, "-c", TRAINING.format(logs=str(logs))])
    pages = set()
    while follower.poll() is None:
        if page.exists():
            pages.add(page.read_text())
        time.sleep(0.05)
    assert training.wait(30) == 0 and follower.wait(30) == 0
    assert "the run has ended (finished)" in follower.stderr.read()
    live = [text for text in pages if "Live, as of" in text]
    seen = {found[0] for text in live if (found := re.search(r"\d+ of 16 epochs", text))}  # none before the first
    assert len(seen) > 1
    assert all(text.endswith(("</html>\n", "</html>")) for text in pages)  # whole, always
    assert "16 of 16 epochs" in page.read_text() and "Final:" in page.read_text()
