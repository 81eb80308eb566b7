"""The demo: the first thing that anybody runs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner
from pypdf import PdfReader

pytest.importorskip("sklearn")

from greenlove_tracker import read_logs
from greenlove_tracker.cli import cli

STORY = """
import sys
from greenlove_tracker import demo
from greenlove_tracker.cli import main
demo.EPOCHS, demo.SAMPLES, demo.BUDGET_S = 3, 3200, 8.0
sys.argv = ["greenlove", "demo", "--country", "FR"]
try:
    main()
finally:
    print("torch" in sys.modules)
"""


def test_the_whole_story_is_on_one_screen_without_torch(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", STORY],
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "100"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
    explored, trained = sorted(read_logs(tmp_path / "greenlove_logs").runs, key=lambda run: run.started_at)
    assert explored.is_exploration and len({trial.sample_size for trial in explored.trials}) >= 3
    assert (trained.summary.epochs_done, trained.summary.status, trained.text("country")) == (3, "finished", "FR")
    assert len(done.stderr.splitlines()) <= 24
    for shown in ("FR:", "explore", "expected", "train", "finished", "RTX 4090", "demo.pdf   demo.html", "next"):
        assert shown in done.stderr
    pages = [page.extract_text() for page in PdfReader(tmp_path / "demo.pdf").pages]
    assert "This training took" in pages[0] and trained.run_id in pages[0]
    assert len(pages) <= 3
    html = (tmp_path / "demo.html").read_text(encoding="utf-8")
    for section in ("What was expected before", "Another training, elsewhere", "A100 PCIe"):
        assert section in html


def test_a_demo_that_could_not_be_tracked_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GREENLOVE_PUE", "0.1")
    outcome = CliRunner().invoke(cli, ["demo"])
    assert outcome.exit_code == 1 and not (tmp_path / "demo.pdf").exists()
