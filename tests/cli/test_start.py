"""``greenlove run --start``, as processes of their own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cli.test_wait import can_unshare, here  # noqa: F401  # a fixture
from fakes import FakeClock, make_tracker, train

from greenlove_tracker import read_logs

RUN = [sys.executable, "-m", "greenlove_tracker", "run"]
SHOW = (
    "import json, os, sys\n"
    "print(json.dumps([sys.argv, 'greenlove_tracker.scheduling.wait_loop' in sys.modules, os.getpid()]))\n"
)


@pytest.fixture
def script(here):  # noqa: F811
    Path("train.py").write_text(SHOW)
    return here


def run(*arguments: str, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*before, *RUN, *arguments], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
def test_what_is_not_worth_waiting_for_runs_at_once_and_says_why(script):
    options = ["--start", "best", "--within", "2h", "--hours", "1.99", "--intensity", "mock"]
    done = run(*options, "train.py", "a b", "$x")
    assert done.returncode == 0, done.stderr
    argv, knows_waiting, _ = json.loads(done.stdout)
    assert argv == ["train.py", "a b", "$x"]
    assert not knows_waiting  # the process began anew: nothing of the wait is loaded
    assert "starting: Not worth waiting" in done.stderr and "MOCK" in done.stderr
    found = read_logs("greenlove_logs").runs[0]
    assert found.text("wait_reason") == "not worth waiting"
    assert found.amount("time_limit_s") is not None and found.amount("time_limit_s") < 2 * 3600


@pytest.mark.slow
def test_a_start_at_a_time_is_waited_for(script):
    start = datetime.now(UTC) + timedelta(seconds=3)
    done = run("--start", start.isoformat(), "--intensity", "mock", "train.py")
    assert done.returncode == 0, done.stderr
    found = read_logs("greenlove_logs").runs[0]
    began = datetime.fromisoformat(found.text("started_at")).timestamp()
    assert began >= start.timestamp()
    assert found.text("wait_reason") == "start time"


def test_the_length_of_an_earlier_run_is_taken_from_the_log(script):
    clock = FakeClock()
    train(tracker := make_tracker(clock, Path("greenlove_logs"), epochs=2), clock, 2, epoch_s=3600.0)
    tracker.stop()
    done = run("--start", "best", "--within", "30h", "--intensity", "mock", "--dry-run", "train.py", "--lr", "3")
    assert done.returncode == 0, done.stderr
    assert "as this run took" in done.stdout and "2 h" in done.stdout
    assert "nothing is started" in done.stdout and "train.py --lr 3" in done.stdout
    assert len(read_logs("greenlove_logs").runs) == 1


def test_ctrl_c_during_the_wait_runs_nothing(script):
    Path("train.py").write_text("open('started', 'w')\n")
    command = [*RUN, "--start", "+1h", "train.py"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None and "waiting for the time" in child.stderr.readline()
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=20)
    assert (child.returncode, out) == (130, "") and "nothing was started" in err
    assert not Path("started").exists() and not Path("greenlove_logs").exists()


@pytest.mark.slow_cases
@pytest.mark.parametrize(
    "arguments, says",
    [
        (["--start", "best", "train.py"], "needs --within"),
        (["--start", "best", "--within", "9h", "train.py"], "--hours"),
        (["--start", "best", "--within", "2020-01-01T08:00", "--hours", "1", "train.py"], "has passed"),
        (["--start", "soon", "train.py"], "'soon' is no time"),
        (["--start", "best", "--within", "9h", "--hours", "1", "none.py"], "no such script"),
        (["--start", "best", "--within", "9h", "--hours", "1", "--", "no-such-command"], "no such command"),
        (["--start", "+1h", "--max-wait", "6", "train.py"], "no length of time"),
        (["--dry-run", "train.py"], "give --start"),
        (["--within", "soon", "train.py"], "is a length of time"),
    ],
)
def test_what_cannot_be_meant_is_said_before_the_wait(script, arguments, says):
    done = run(*arguments)
    assert done.returncode == 1 and says in done.stderr and done.stdout == "", done.stderr
