"""Processes that multiprocessing starts import the script again: no run begins in them meanwhile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fakes import only_run

pytestmark = pytest.mark.usefixtures("no_settings")

TRACKED = """
import multiprocessing, sys
from greenlove_tracker import Tracker, track

tracker = Tracker(epochs=2, sim_gpu_w=360, log_dir="logs")
with track("at the top"):
    pass

def work(number):
    with tracker:
        tracker.epoch_start()
        tracker.step(number)
        tracker.log_metric("loss", 0.5)
        tracker.epoch_end()
    return tracker.run_dir, tracker.forecast, tracker.summary, tracker.wait_ready(0)

if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool, tracker:
        for epoch in range(2):
            tracker.epoch_start()
            assert pool.map(work, range(3)) == [(None, None, None, False)] * 3
            tracker.epoch_end()
"""

EXPLORED = """
import multiprocessing
from greenlove_tracker import explore_callable

if __name__ == "__main__":
    worker = multiprocessing.get_context("spawn").Process(target=print)
    worker.start()
    worker.join()
    raise SystemExit(worker.exitcode)
explore_callable(lambda n: sum(range(n)), [100, 200, 400], samples=1000, log_dir="logs")
"""


def run_script(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    Path("train.py").write_text(script)
    command = [sys.executable, "train.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=180)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_tracker_at_the_top_of_a_script_is_one_run_and_none_in_its_workers(method):
    done = run_script(TRACKED, method)
    assert done.returncode == 0, done.stderr
    assert only_run("logs").summary.epochs_done == 2
    assert done.stderr.count("finished") == 1 and "Training goes on" not in done.stderr  # no worker says a word


def test_an_exploration_at_the_top_of_a_script_is_refused_in_its_workers():
    done = run_script(EXPLORED)
    assert done.returncode == 1 and 'if __name__ == "__main__"' in done.stderr
    assert not Path("logs").exists()
