"""What the handlers of a training raise reaches the training, whenever the signal comes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from fakes import make_tracker

from greenlove_tracker.records import RunStatus
from greenlove_tracker.tracker import signal_hold as module
from greenlove_tracker.tracker.shutdown import guard
from greenlove_tracker.tracker.signal_hold import signal_hold

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="NOT TESTED: no such signals here")


class PreemptionError(Exception):
    """What a training's handler raises."""


def raise_preempted(number, frame):
    raise PreemptionError(number)


@pytest.fixture(autouse=True)
def _handlers():
    before = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGUSR2)}
    for number in before:
        signal.signal(number, raise_preempted)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    if guard.current is not None:
        guard.current.finish(RunStatus.SUPERSEDED)


# TimeoutError is an OSError, which the writer of the log takes for one of the disk; CodeCarbon takes every Exception.
STRESS = """
import logging, os, random, signal, sys, threading, time
from greenlove_tracker import Tracker

logging.disable(logging.WARNING)
n_signals, random_of = int(sys.argv[1]), random.Random(7)
n_raised = n_caught = n_lost = 0
has_begun, is_over = False, False

class PreemptionError(Exception):
    pass

def handle(number, frame):
    global n_raised
    n_raised += 1
    raise (PreemptionError if number == signal.SIGUSR1 else TimeoutError)

def send():
    global is_over, n_lost
    while not has_begun:
        time.sleep(0.01)
    for n_sent in range(1, n_signals + 1):
        time.sleep(random_of.uniform(0, 0.004))
        os.kill(os.getpid(), random_of.choice([signal.SIGUSR1, signal.SIGALRM]))
        until_s = time.monotonic() + 60
        while n_caught + n_lost < n_sent and time.monotonic() < until_s:
            time.sleep(0.0002)
        n_lost += n_caught + n_lost < n_sent
    is_over = True

for number in (signal.SIGUSR1, signal.SIGALRM):
    signal.signal(number, handle)
tracker = Tracker(verbose=0)
assert tracker.wait_ready(60)
threading.Thread(target=send).start()

def train():
    global has_begun
    while not is_over:
        has_begun = True
        tracker.epoch_start()
        for _ in range(20):
            tracker.step(n_samples=8)
        tracker.epoch_end()

while not is_over:
    try:
        train()
    except (PreemptionError, TimeoutError):
        n_caught += 1
tracker.stop()
print(n_raised, n_caught, n_lost, all(signal.getsignal(n) is handle for n in (signal.SIGUSR1, signal.SIGALRM)))
"""


@pytest.mark.slow
def test_no_exception_of_a_handler_is_lost_at_any_instant(no_settings, tmp_path):
    Path("train.py").write_text(STRESS)
    done = subprocess.run([sys.executable, "train.py", "300"], capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["300", "300", "0", "True"]), done.stderr


@pytest.mark.parametrize("error", [PreemptionError, TimeoutError, OSError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("call", ["Tracker()", "epoch_start", "step", "pause", "epoch_end", "forecast", "stop"])
def test_what_a_handler_raises_in_a_call_is_raised_after_it(clock, tmp_path, monkeypatch, caplog, call, error):
    """The signal comes where our code catches exceptions: while the clock is read."""

    def handle(number, frame):
        raise error

    signal.signal(signal.SIGUSR1, handle)
    perf_s, sends = clock.perf_s, True

    def perf_and_signal():
        if sends:
            os.kill(os.getpid(), signal.SIGUSR1)
        return perf_s()

    if call == "Tracker()":
        monkeypatch.setattr(clock, "perf_s", perf_and_signal)
        with pytest.raises(error):
            make_tracker(clock, tmp_path)
        sends = False
        return
    tracker = make_tracker(clock, tmp_path)
    if call != "epoch_start":
        tracker.epoch_start()
        clock.pass_s(10.0)
    if call == "forecast":
        tracker.epoch_end()
    with monkeypatch.context() as patch:
        patch.setattr(clock, "perf_s", perf_and_signal)
        with pytest.raises(error):
            tracker.forecast if call == "forecast" else getattr(tracker, call)()
        sends = False
    assert signal.getsignal(signal.SIGUSR1) is handle
    tracker.stop()
    done = {"epoch_start": 0, "step": 0, "pause": 0, "epoch_end": 1, "forecast": 1, "stop": 0}[call]
    assert tracker.summary.epochs_done == done
    assert "own" not in caplog.text


def test_who_insists_is_not_held_for_ever(monkeypatch):
    monkeypatch.setattr(module, "_MAX_HOLD_S", 0.05)
    passed = []
    with pytest.raises(PreemptionError), signal_hold:  # a call that hangs
        for _ in range(100):
            os.kill(os.getpid(), signal.SIGUSR1)
            passed.append(threading.Event().wait(0.01))
    assert 1 <= len(passed) < 100


def test_a_child_forked_in_a_call_has_the_handlers_of_the_training():
    with signal_hold:
        pid = os.fork()
        if pid == 0:
            is_back = signal.getsignal(signal.SIGUSR1) is raise_preempted
            os._exit(0 if is_back else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert signal.getsignal(signal.SIGUSR1) is raise_preempted
