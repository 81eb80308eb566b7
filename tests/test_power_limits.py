"""A lower power limit of a GPU is put back however the process ends that lowered it: with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner
from fake_nvml import UUID, FakeNvml

from greenlove_tracker import doctor, power_limits
from greenlove_tracker.cli import cli
from greenlove_tracker.devices import PowerLimitError
from greenlove_tracker.power_limits import lowered, restore, written_down

ROOT = Path(__file__).parents[1]
TRAINING = """
import os, sys, time
from pathlib import Path
from greenlove_tracker.power_limits import lowered
with lowered("GPU-1a2b", 300.0, directory=Path(sys.argv[1])):
    worker = os.fork() if "fork" in sys.argv else None
    if worker == 0:  # it outlives its parent, and holds all that it had open
        time.sleep(600)
        os._exit(0)
    print("lowered", flush=True)
    print(worker, flush=True)
    sys.stdin.readline()
    if "raise" in sys.argv:
        raise ValueError("training failed")
print("ended", flush=True)
"""


@pytest.fixture
def gpu(tmp_path, monkeypatch):
    """A GPU of 600 W, for this process and those that it starts."""
    fake = FakeNvml(tmp_path / "nvml")
    monkeypatch.syspath_prepend(str(fake.directory))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(fake.directory), str(ROOT))))
    return fake


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


@pytest.fixture
def start(state):
    """Start trainings that lower the limit, and end what is left of them."""
    started = []

    def start(*words):
        training = subprocess.Popen(
            [sys.executable, "-c", TRAINING, str(state), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(training)
        return training

    yield start
    for training in started:
        if training.poll() is None:
            training.kill()
        training.communicate()


def eventually(is_so, timeout_s=60.0):
    ends_s = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > ends_s:
            return False
        time.sleep(0.02)
    return True


def lowered_by(training):
    """Wait until a training has lowered the limit, and return its watchdog and its other children."""
    while (line := training.stdout.readline()) != "lowered\n":
        assert line, training.stderr.read()
    children = psutil.Process(training.pid).children()
    (watchdog,) = [child for child in children if "greenlove_tracker.power_limits" in child.cmdline()]
    return watchdog


def test_the_limit_is_lowered_within_the_block_and_written_down_before(gpu, state):
    with lowered(UUID, 300.0, directory=state):
        assert gpu.limit_w == 300.0
        (written,) = written_down([state])
        assert written.is_in_use and written.state.before_w == 600.0 and written.state.pid == os.getpid()
    assert gpu.limit_w == 600.0 and written_down([state]) == []
    with pytest.raises(ZeroDivisionError), lowered(UUID, 300.0, directory=state):
        1 / 0  # noqa: B018
    assert gpu.limit_w == 600.0


@pytest.mark.slow_cases
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGABRT, "raise", "end"])
def test_however_the_training_ends_the_limit_is_put_back(gpu, state, start, how):
    training = start(*(["raise"] if how == "raise" else []))
    watchdog = lowered_by(training)
    assert gpu.limit_w == 300.0
    if isinstance(how, int):
        training.send_signal(how)
    else:
        training.stdin.write("\n")
        training.stdin.flush()
    training.wait(60)
    assert eventually(lambda: gpu.limit_w == 600.0)
    assert eventually(lambda: not watchdog.is_running())
    assert written_down([state]) == []


def test_ctrl_c_reaches_the_training_and_not_its_watchdog(gpu, state, start):
    training = start()
    watchdog = lowered_by(training)
    os.killpg(training.pid, signal.SIGINT)
    watchdog.send_signal(signal.SIGINT)  # not even if it is told
    assert training.wait(60) != 0
    assert eventually(lambda: gpu.limit_w == 600.0) and written_down([state]) == []


def test_a_fork_that_outlives_the_training_does_not_keep_the_limit_low(gpu, state, start):
    training = start("fork")
    lowered_by(training)
    fork = psutil.Process(int(training.stdout.readline()))
    training.kill()
    try:
        assert eventually(lambda: gpu.limit_w == 600.0)
        assert fork.is_running()
    finally:
        fork.kill()


def test_a_watchdog_that_is_killed_is_stood_in_for_at_the_end(gpu, state, start):
    training = start()
    lowered_by(training).kill()
    assert gpu.limit_w == 300.0
    training.communicate("\n", timeout=180)
    assert training.returncode == 0 and gpu.limit_w == 600.0 and written_down([state]) == []


def killed_with_its_watchdog(start):
    training = start()
    watchdog = lowered_by(training)
    watchdog.suspend()
    training.kill()
    training.wait(60)
    watchdog.kill()
    assert eventually(lambda: not watchdog.is_running())


def test_what_both_leave_behind_is_found_and_put_back(gpu, state, start, monkeypatch):
    killed_with_its_watchdog(start)
    assert gpu.limit_w == 300.0
    (left,) = written_down([state])
    assert not left.is_in_use
    monkeypatch.setattr(power_limits, "DIRECTORIES", (state,))
    (finding,) = doctor._power_limit_findings([state])
    assert (finding.value, finding.mark) == (UUID, doctor.BAD)
    assert finding.note == "300 W; it was 600 W before" and "doctor --restore-power-limits" in finding.fix
    result = CliRunner().invoke(cli, ["doctor", "--restore-power-limits"])
    assert (result.exit_code, result.output) == (0, f"{UUID}: The power limit is 600 W again.\n")
    assert gpu.limit_w == 600.0 and written_down([state]) == []
    result = CliRunner().invoke(cli, ["doctor", "--restore-power-limits"])
    assert (result.exit_code, result.output) == (0, "No power limit was left lowered.\n")


def test_the_second_on_one_gpu_is_refused_and_changes_nothing(gpu, state, start):
    training = start()
    lowered_by(training)
    with (
        pytest.raises(PowerLimitError, match=f"changed by process {training.pid}"),
        lowered(UUID, 250.0, directory=state),
    ):
        pass
    with pytest.raises(PowerLimitError, match=f"changed by process {training.pid}"):
        restore(UUID, state)
    assert gpu.limit_w == 300.0
    (finding,) = doctor._power_limit_findings([state])
    assert finding.mark == doctor.NEUTRAL and f"process {training.pid}" in finding.note and not finding.fix


def test_a_limit_that_somebody_else_set_meanwhile_is_left(gpu, state):
    with lowered(UUID, 300.0, directory=state):
        gpu.limit_w = 450.0
    assert gpu.limit_w == 450.0 and written_down([state]) == []


@pytest.mark.parametrize(
    ("what", "reason", "said"),
    [
        ("no_set", "permission", "needs root"),
        ("no_set", "support", "no power limit to set"),
        ("no_set", "Invalid Argument", "NVML says of the power limit: Invalid Argument"),
        ("no_driver", "Driver Not Loaded", "Driver Not Loaded"),
        ("deaf", "", "the driver set 600 W where it was told 300 W"),
    ],
)
def test_what_is_refused_is_said_and_leaves_nothing(gpu, state, what, reason, said):
    gpu.refuse(what, reason)
    with pytest.raises(PowerLimitError, match=said), lowered(UUID, 300.0, directory=state):
        pytest.fail("the block ran")
    assert gpu.limit_w == 600.0 and written_down([state]) == []


def test_a_directory_that_cannot_be_written_refuses_before_the_limit_changes(gpu, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(PowerLimitError, match="cannot be written"), lowered(UUID, 300.0, directory=tmp_path / "file"):
        pytest.fail("the block ran")
    assert not (gpu.directory / "sets").exists()


@pytest.mark.slow
def test_a_limit_that_cannot_be_put_back_stays_written_down_and_is_said(gpu, state, monkeypatch):
    monkeypatch.setattr(power_limits, "_RETRY_S", 0.0)
    with pytest.raises(PowerLimitError, match="needs root"), lowered(UUID, 300.0, directory=state):
        gpu.refuse("no_set", "permission")
    (left,) = written_down([state])
    assert left.state.before_w == 600.0
    gpu.allow("no_set")
    assert restore(UUID, state) == "The power limit is 600 W again."
    assert restore(UUID, state) == "Nothing was left lowered."


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_not_followed(gpu, state):
    path = state / "GPU-1.json"
    state.mkdir(exist_ok=True)
    path.write_text("{}")
    os.chown(path, 12345, 12345)
    with pytest.raises(power_limits.PowerLimitError, match="neither root's nor yours"):
        power_limits.restore("GPU-1", state)
    assert [written.state for written in power_limits.written_down([state])] == [None]
