"""Notices of the end: real signals, and clouds' metadata servers as their documentation describes them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from checkpointing.metadata_server import AWS_TIME, EVENTS, INTERRUPTION, PREEMPTED, serving, until

from greenlove_tracker.checkpointing.termination import TerminationNotices

SPOT_NOTICE = Path(__file__).parents[2] / "examples" / "spot_notice.sh"
EVENT = {"EventType": "Preempt", "Resources": ["vm-1"], "EventStatus": "Scheduled"}


@pytest.mark.parametrize(
    ("cloud", "path", "nothing", "notice"),
    [
        ("aws", INTERRUPTION, None, json.dumps({"action": "terminate", "time": AWS_TIME})),
        ("gcp", PREEMPTED, "FALSE", "TRUE"),
        ("azure", EVENTS, json.dumps({"Events": [{**EVENT, "EventType": "Reboot"}]}), json.dumps({"Events": [EVENT]})),
    ],
)
def test_a_clouds_notice_is_a_sigterm_by_the_script_of_the_examples(cloud, path, nothing, notice):
    with serving() as server:
        if nothing is not None:
            server.answers[path] = nothing
        env = os.environ | {"METADATA_URL": server.url, "EVERY_S": "0.05", "http_proxy": "http://127.0.0.1:9"}
        with subprocess.Popen(["sh", str(SPOT_NOTICE), cloud, "sleep", "100"], env=env) as training:
            until(lambda: server.asked.count(path) >= 3)
            assert training.poll() is None
            server.answers[path] = notice
            assert training.wait(20) == -signal.SIGTERM


def test_a_signal_is_a_flag_and_handlers_come_back():
    before = [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGUSR1)]
    with TerminationNotices(("SIGTERM", "SIGUSR1")) as notices:
        assert notices.notice is None
        signal.raise_signal(signal.SIGTERM)
        assert notices.notice is signal.SIGTERM
        notices.notice = None
    assert [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGUSR1)] == before
    with TerminationNotices(("SIGTERM", "SIGUSR1")) as notices:
        signal.raise_signal(signal.SIGUSR1)
        assert notices.notice is signal.SIGUSR1


def test_a_handler_of_the_users_own_still_runs():
    came = []
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        with TerminationNotices(("SIGTERM", "SIGUSR1")) as notices:
            signal.raise_signal(signal.SIGTERM)
            assert came == [signal.SIGTERM]
            assert notices.notice is not None
            notices.notice = None
        signal.raise_signal(signal.SIGTERM)
        assert len(came) == 2
    finally:
        signal.signal(signal.SIGTERM, before)


# -- Processes that really end --

SCRIPT = """
import os, signal, sys, time
from greenlove_tracker.checkpointing import termination
from greenlove_tracker.checkpointing.termination import TerminationNotices
does = sys.argv[1]
with TerminationNotices(("SIGTERM", "SIGUSR1")) as notices:
    print("ready", flush=True)
    began = time.monotonic()
    while time.monotonic() - began < 30:
        time.sleep(0.01)
        if notices.notice is not None:
            print("noticed", flush=True) if does == "print" else None
            if does == "break":
                break
            does = "wait"
print("after", flush=True)
time.sleep(30)
"""


def _child(tmp_path, does):
    (tmp_path / "child.py").write_text(SCRIPT)
    child = subprocess.Popen([sys.executable, "child.py", does], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "ready\n"
    return child


def test_a_sigterm_that_no_saving_point_follows_is_not_lost(tmp_path):
    child = _child(tmp_path, "break")
    child.send_signal(signal.SIGTERM)
    assert child.stdout.read() == ""
    assert child.wait(20) == -signal.SIGTERM


def test_a_second_sigterm_ends_it_at_once(tmp_path):
    child = _child(tmp_path, "print")
    child.send_signal(signal.SIGTERM)
    assert child.stdout.readline() == "noticed\n"
    os.kill(child.pid, signal.SIGTERM)
    assert child.wait(20) == -signal.SIGTERM
