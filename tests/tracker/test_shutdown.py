"""Real processes, really killed: what had finished must be in the directory afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fakes import only_run

from greenlove_tracker import read_logs
from greenlove_tracker.vocabulary.records import Flag

HEAD = """
import os, signal, sys, time
from greenlove_tracker import Tracker
from greenlove_tracker.meter import SimulatedMeter
from greenlove_tracker.tracker import background
from greenlove_tracker.vocabulary.records import SystemClock
from greenlove_tracker.tracker.session import open_run
background.SEGMENT_S, background.TICK_S = 0.3, 0.05
meter = SimulatedMeter(SystemClock(), gpu_w=360.0)
tracker = Tracker(epochs=5, meter=meter, verbose=0)
"""
LOOP = """
for epoch in range(5):
    tracker.epoch_start()
    if epoch == 3:
        print("in epoch 4", flush=True)
        time.sleep(600)
    time.sleep(0.05)
    tracker.epoch_end()
    time.sleep(0.02)
"""


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("GREENLOVE_"):
            monkeypatch.delenv(name)
    return tmp_path


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    Path("train.py").write_text(script)
    return subprocess.Popen(
        [sys.executable, *arguments, "train.py"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run_to_end(script: str, *arguments: str) -> tuple[int, str, str]:
    child = start(script, *arguments)
    out, err = child.communicate(timeout=180)
    return child.returncode, out, err


def wait_for_segments():
    """Until a part of the fourth epoch is on the disk: the first forecast loads SciPy, however long that takes."""
    until_s = time.monotonic() + 60
    while time.monotonic() < until_s:
        if any("segment,4," in path.read_text() for path in Path().glob("greenlove_logs/*/epochs-0.csv")):
            return
        time.sleep(0.1)


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGINT"])
@pytest.mark.parametrize("where", ["mid-epoch", "mid-segment"])
def test_a_killed_process_leaves_all_that_was_finished(here, name, where):
    child = start(HEAD + LOOP)
    assert child.stdout is not None and child.stdout.readline() == "in epoch 4\n"
    time.sleep(0.1 if where == "mid-epoch" else 1.0)
    if where == "mid-segment":
        wait_for_segments()
    child.send_signal(getattr(signal, name))
    child.communicate(timeout=180)
    assert child.returncode == -getattr(signal, name)  # it died of that signal, as without us

    run = only_run()
    assert run.problems == []
    assert [e.is_complete for e in run.epochs][:3] == [True] * 3
    assert all(e.energy.gpu_kwh is not None and e.energy.gpu_kwh > 0 for e in run.epochs)
    expected = {"SIGKILL": "interrupted", "SIGTERM": "terminated", "SIGINT": "interrupted"}[name]
    assert run.summary.status == expected
    assert run.has_summary == (name != "SIGKILL")
    assert run.summary.epochs_done == 3
    cut_off = [e for e in run.epochs if e.epoch == 4]
    if where == "mid-segment":
        assert cut_off[0].duration_s >= 0.3 and Flag.UNFINISHED in cut_off[0].flags
        assert cut_off[0].n_segments >= 1
    if name != "SIGKILL":
        assert cut_off[0].duration_s >= (0.05 if where == "mid-epoch" else 0.7)
        assert run.added_up() == run.summary


def test_a_foreign_sigterm_handler_still_runs(here):
    script = (
        "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *a: (print('checkpoint', flush=True), sys.exit(7)))\n"
    )
    child = start(script + HEAD + LOOP)
    assert child.stdout is not None and child.stdout.readline() == "in epoch 4\n"
    child.send_signal(signal.SIGTERM)
    out, _ = child.communicate(timeout=180)
    assert (child.returncode, out) == (7, "checkpoint\n")
    assert only_run().has_summary and only_run().summary.epochs_done == 3


@pytest.mark.slow_cases
@pytest.mark.parametrize(
    ("ending", "code", "status"),
    [
        ("sys.exit(3)", 3, "exited"),
        ("raise ValueError('x')", 1, "failed"),
        ("", 0, "exited"),
        ("tracker.stop()", 0, "finished"),
        ("raise KeyboardInterrupt", -signal.SIGINT, "interrupted"),
    ],
)
def test_whichever_way_a_script_ends_its_totals_are_written(here, ending, code, status):
    script = HEAD + "tracker.epoch_start()\ntime.sleep(0.05)\ntracker.epoch_end()\n" + ending
    returncode, _, err = run_to_end(script)
    assert returncode == code
    assert ("ValueError" in err) == ("ValueError" in ending)
    assert only_run().has_summary
    assert (only_run().summary.status, only_run().summary.epochs_done) == (status, 1)


def test_a_process_that_ends_without_stop_has_only_exited(here):
    script = HEAD + "for _ in range(5):\n    tracker.epoch_start()\n    tracker.epoch_end()\n"
    assert run_to_end(script)[0] == 0
    assert (only_run().summary.status, only_run().summary.epochs_done) == ("exited", 5)


def test_a_forked_child_writes_nothing_and_ends_as_it_would(here):
    script = HEAD + (
        "tracker.epoch_start()\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    tracker.epoch_end(); tracker.step(); tracker.stop(); sys.exit(5)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5\n"
        "time.sleep(0.05)\n"
        "tracker.epoch_end()\ntracker.stop()\n"
    )
    code, _, err = run_to_end(script)
    assert code == 0, err
    assert [e.epoch for e in only_run().epochs] == [1]


def can_unshare() -> bool:
    done = subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False)
    return done.returncode == 0


@pytest.mark.skipif(not can_unshare(), reason="NOT TESTED: this user may not make a network namespace (unshare -n)")
def test_without_any_network_it_is_the_same(here):
    Path("train.py").write_text(
        "import sys, time\nfrom greenlove_tracker import Tracker\n"
        "t = Tracker(2, country='DE')\nprint(t.wait_ready(60))\n"
        "for _ in range(2):\n    t.epoch_start(); time.sleep(0.3); t.epoch_end()\n"
        "t.stop()\nsys.exit(3)\n"
    )
    command = ["unshare", "-n", sys.executable, "-m", "greenlove_tracker", "--quiet", "train.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (3, "True\n"), done.stderr
    (run,) = read_logs("greenlove_logs").runs
    assert run.summary.energy_kwh is not None and run.summary.energy_kwh > 0
    assert [e.energy.is_known for e in run.epochs] == [True, True]
    assert (run.summary.status, run.summary.exit_code) == ("finished", 3)  # the training's, and the script's


def test_a_forked_child_with_a_tracker_of_its_own_leaves_the_parents_run_alone(here):
    script = HEAD + (
        "tracker.epoch_start(); time.sleep(0.05); tracker.epoch_end()\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    child = Tracker(1, meter=SimulatedMeter(SystemClock(), gpu_w=1.0), verbose=0)\n"
        "    child.epoch_start(); child.epoch_end(); child.stop(); os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
        "tracker.epoch_start(); time.sleep(0.05); tracker.epoch_end()\ntracker.stop()\n"
    )
    code, _, err = run_to_end(script)
    assert code == 0, err
    runs = read_logs("greenlove_logs").runs
    assert sorted(run.summary.epochs_done for run in runs) == [1, 2]
    assert {str(run.summary.status) for run in runs} == {"finished"}
    assert all(run.added_up() == run.summary for run in runs)


def test_fork_while_a_thread_is_in_the_tracker_does_not_hang_the_child(here):
    script = HEAD + (
        "import threading\n"
        "held, go = threading.Event(), threading.Event()\n"
        "def hold():\n"
        "    with open_run().tracked_call:\n        held.set(); go.wait(90)\n"
        "thread = threading.Thread(target=hold); thread.start(); held.wait()\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    Tracker(1, meter=SimulatedMeter(SystemClock(), gpu_w=1.0), verbose=0).stop(); os._exit(0)\n"
        "deadline = time.time() + 60\n"
        "done = (0, 0)\n"
        "while done[0] == 0 and time.time() < deadline:\n    done = os.waitpid(pid, os.WNOHANG); time.sleep(0.01)\n"
        "go.set(); thread.join(); print(done[0] == pid)\n"
    )
    code, out, err = run_to_end(script)
    assert (code, out) == (0, "True\n"), err


def test_ctrl_c_inside_a_call_leaves_a_whole_row(here):
    script = HEAD + (
        "read = meter.read\n"
        "def slow():\n    os.kill(os.getpid(), signal.SIGINT); time.sleep(0.02); return read()\n"
        "tracker.epoch_start()\n"
        "time.sleep(0.1)\n"
        "meter.read = slow\n"
        "try:\n    tracker.epoch_end()\nexcept KeyboardInterrupt:\n    print('interrupted')\n"
        "meter.read = read\n"
        "tracker.epoch_start(); time.sleep(0.05); tracker.epoch_end()\n"
        "tracker.stop()\n"
        "print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)\n"
    )
    code, out, err = run_to_end(script)
    assert (code, out) == (0, "interrupted\nTrue\n"), err
    assert [e.is_complete for e in only_run().epochs] == [True, True]
    assert only_run().epochs[0].duration_s >= 0.1


def test_a_handler_that_chains_to_the_one_before_keeps_its_signal(here):
    script = HEAD + (
        "before = signal.getsignal(signal.SIGTERM)\n"
        "def handler(number, frame):\n"
        "    if callable(before):\n        before(number, frame)\n"
        "    print('checkpoint saved', flush=True)\n    sys.exit(4)\n"
        "signal.signal(signal.SIGTERM, handler)\n"
        "os.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(5)\n"
    )
    code, out, _ = run_to_end(script)
    assert (code, out) == (4, "checkpoint saved\n")
    assert only_run().has_summary


def test_the_screen_is_shown_without_stop(here):
    script = "from greenlove_tracker import Tracker\nt = Tracker(1, sim_gpu_w=100)\nt.epoch_start(); t.epoch_end()\n"
    code, out, err = run_to_end(script)
    assert (code, out) == (0, "") and "1 of 1 epochs" in err


def test_ctrl_c_ends_a_script_with_an_open_tracker_by_sigint_even_with_the_screen(here):
    script = (
        "import time\nfrom greenlove_tracker import Tracker\n"
        "t = Tracker(3, sim_gpu_w=100)\nt.epoch_start()\nprint('up', flush=True)\ntime.sleep(30)\n"
    )
    child = start(script)
    assert child.stdout is not None and child.stdout.readline() == "up\n"
    time.sleep(0.2)  # until it sleeps: CPython acts on a signal that comes just before only after the sleep
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=180)
    assert child.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in err and "interrupted" in err and "shutdown.py" not in err
    assert only_run().summary.status == "interrupted"


def test_asyncio_handles_ctrl_c_as_without_us(here):
    script = HEAD + (
        "import asyncio\n"
        "async def main():\n"
        "    try:\n        print('up', flush=True); await asyncio.sleep(30)\n"
        "    except asyncio.CancelledError:\n        print('cancelled', flush=True); raise\n"
        "try:\n    asyncio.run(main())\nexcept KeyboardInterrupt:\n    print('interrupted')\n"
        "tracker.stop()\n"
    )
    child = start(script)
    assert child.stdout is not None and child.stdout.readline() == "up\n"
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=180)
    assert (child.returncode, out) == (0, "cancelled\ninterrupted\n"), err


def test_sigterm_in_the_middle_of_a_row_ends_the_process_once_it_is_made(here):
    script = HEAD + (
        "read = meter.read\n"
        "def slow():\n    os.kill(os.getpid(), signal.SIGTERM); time.sleep(0.02); return read()\n"
        "tracker.epoch_start()\ntime.sleep(0.1)\nmeter.read = slow\ntracker.epoch_end()\nprint('lives')\n"
    )
    code, out, err = run_to_end(script)
    assert (code, out) == (-signal.SIGTERM, ""), err
    run = only_run()
    assert (run.summary.status, run.summary.epochs_done, run.problems) == ("terminated", 1, [])


HANG = """
import ctypes
mutex, libc = ctypes.create_string_buffer(64), ctypes.CDLL(None)
libc.pthread_mutex_lock(mutex)
def hang():
    print("in C", flush=True)
    libc.pthread_mutex_lock(mutex)
tracker.epoch_start(); tracker.epoch_end(); tracker.epoch_start()
"""
SOON = "from greenlove_tracker.tracker import shutdown\nshutdown.C_CALL_S = shutdown.CLOSE_S = 0.2\n"


def terminate_in_c(script: str) -> tuple[float, subprocess.Popen[str]]:
    """Send SIGTERM to a script that hangs in C, and return how long it lived on."""
    child = start(script)
    assert child.stdout is not None and child.stdout.readline() == "in C\n"
    sent_s = time.monotonic()
    child.send_signal(signal.SIGTERM)
    child.wait(timeout=180)
    return time.monotonic() - sent_s, child


@pytest.mark.skipif(sys.platform != "linux", reason="NOT TESTED: elsewhere such a process waits for SIGKILL")
class TestInC:
    """The main thread is in C, where no handler of Python's is called."""

    def test_a_process_that_hangs_ends_within_5_s_and_its_run_is_closed(self, here):
        gpu_hangs = "from greenlove_tracker.machine import devices\ndevices.synchronise = hang\n"
        lived_s, child = terminate_in_c(HEAD + HANG + gpu_hangs + "hang()\n")
        assert child.returncode == -signal.SIGTERM
        assert lived_s < 5.0
        run = only_run()
        assert (run.summary.status, run.summary.epochs_done, run.problems) == ("terminated", 1, [])
        assert run.added_up() == run.summary

    def test_one_that_hangs_in_a_call_of_ours_ends_too_and_keeps_its_rows(self, here):
        _, child = terminate_in_c(HEAD + SOON + HANG + "with open_run().tracked_call:\n    hang()\n")
        assert child.returncode == -signal.SIGTERM
        assert (only_run().summary.epochs_done, only_run().problems) == (1, [])

    def test_what_is_to_be_undone_is_undone(self, here):
        undo = "with shutdown.guard.undoing(lambda: print('undone', flush=True)):\n    hang()\n"
        _, child = terminate_in_c(HEAD + SOON + HANG + undo)
        assert child.stdout is not None and child.stdout.read() == "undone\n"

    def test_whoever_takes_note_of_the_signal_has_all_the_time_he_wants(self, here):
        script = (
            "import threading\nthreading.Timer(1.5, lambda: libc.pthread_mutex_unlock(mutex)).start()\n"
            "shutdown.guard.receive(lambda number: not print('noted', flush=True))\n"
            "hang()\nprint('saved', flush=True)\n"
        )
        _, child = terminate_in_c(HEAD + SOON + HANG + script)
        assert child.stdout is not None and (child.returncode, child.stdout.read()) == (0, "noted\nsaved\n")

    def test_who_took_note_of_the_signal_and_is_done_lives_on(self, here):
        """The thread may hear of the signal when its receiver is gone already: the training went on, and is let."""
        script = (
            "take = lambda number: True\nshutdown.guard.receive(take)\nsignal.raise_signal(signal.SIGTERM)\n"
            "shutdown.guard.stop_handing_to(take)\ntime.sleep(shutdown.C_CALL_S + shutdown.CLOSE_S + 0.5)\n"
            "print('lives', flush=True)\n"
        )
        code, out, err = run_to_end(HEAD + SOON + script)
        assert (code, out) == (0, "lives\n"), err

    def test_a_signal_to_a_forked_child_does_not_end_its_parent(self, here):
        script = (
            HEAD
            + SOON
            + (
                "import ctypes\n"
                "pid = os.fork()\n"
                "if pid == 0:\n    os._exit(signal.set_wakeup_fd(-1) == -1)\n"
                "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
                "pid = ctypes.PyDLL(None).fork()\n"  # Python knows nothing of it, as in the first instant of any fork
                "if pid == 0:\n    os.kill(os.getpid(), signal.SIGTERM); os._exit(3)\n"
                "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
                "time.sleep(1)\nprint('lives')\n"
            )
        )
        code, out, err = run_to_end(script)
        assert (code, out) == (0, "1\n3\nlives\n"), err


def test_an_event_loop_hears_its_signals_whether_it_was_there_first_or_not(here):
    script = HEAD + (
        "import asyncio\n"
        "async def main():\n"
        "    came = asyncio.Event()\n"
        "    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, came.set)\n"
        "    for _ in range(2):\n"
        "        os.kill(os.getpid(), signal.SIGUSR1)\n"
        "        await asyncio.wait_for(came.wait(), 60)\n"
        "        came.clear()\n"
        "        print('came')\n"
        "        Tracker(1, meter=SimulatedMeter(SystemClock(), gpu_w=1.0), verbose=0).stop()\n"
        "asyncio.run(main())\n"
        "print(signal.set_wakeup_fd(-1))\n"
    )
    code, out, err = run_to_end(script)
    assert (code, out) == (0, "came\ncame\n-1\n"), err
