"""Forks that wait while libraries are loaded on another thread."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from greenlove_tracker.machine import forks
from greenlove_tracker.machine.forks import _ForksWait

# A child that imports what the parent's thread is in the middle of importing; ``slow`` takes a moment.
SCRIPT = """
import os, threading
from greenlove_tracker.machine.forks import forks_wait

begun = threading.Event()

def load():
    with forks_wait:
        begun.set()
        import slow

thread = threading.Thread(target=load)
thread.start()
begun.wait()
if child := os.fork():
    assert os.waitpid(child, 0)[1] == 0
else:
    import slow
    os._exit(0 if slow.is_whole else 1)
thread.join()
"""


@pytest.fixture
def waits():
    return _ForksWait()


def load_and_fork(waits, order):
    """Return threads that load until the event is set, and that fork meanwhile."""
    begun, done = threading.Event(), threading.Event()

    def load():
        with waits, waits:
            begun.set()
            done.wait()
            order.append("loaded")

    def fork():
        waits.before_fork()
        order.append("forked")
        waits.after_fork_in_parent()

    loading, forking = threading.Thread(target=load), threading.Thread(target=fork)
    loading.start()
    begun.wait()
    forking.start()
    return loading, forking, done


def test_a_fork_waits_until_nothing_is_loaded(waits):
    order = []
    loading, forking, done = load_and_fork(waits, order)
    forking.join(0.05)
    assert forking.is_alive()
    done.set()
    loading.join()
    forking.join()
    assert order == ["loaded", "forked"]


def test_what_loads_for_too_long_is_waited_for_once(waits, monkeypatch):
    monkeypatch.setattr(forks, "LONGEST_WAIT_S", 0.01)
    order = []
    loading, forking, done = load_and_fork(waits, order)
    forking.join()
    monkeypatch.setattr(forks, "LONGEST_WAIT_S", 600.0)
    waits.before_fork()  # at once
    waits.after_fork_in_parent()
    done.set()
    loading.join()
    assert order == ["forked", "loaded"]


def test_what_forks_while_it_loads_does_not_wait_for_itself(waits):
    with waits:
        waits.before_fork()
        waits.after_fork_in_parent()
        waits.before_fork()
        waits.after_fork_in_child()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_imports_what_was_being_imported_when_it_was_forked(tmp_path):
    slow = "import time\ntime.sleep(0.3)\nimport concurrent.futures.thread\nis_whole = True\n"
    (tmp_path / "slow.py").write_text(slow)
    (tmp_path / "train.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, timeout=180, check=False)
    assert (done.returncode, done.stderr) == (0, b"")  # that pool asks for a lock to be let go behind a fork
