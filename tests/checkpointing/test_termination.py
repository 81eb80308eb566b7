"""Notices of the end: clouds' metadata servers as their documentation describes them, and real signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading

import pytest
from checkpointing.metadata_server import (
    AWS_TIME,
    EVENTS,
    INTERRUPTION,
    PREEMPTED,
    serving,
    until,
)

from greenlove_tracker.checkpointing import termination
from greenlove_tracker.checkpointing.termination import Notice, TerminationNotices
from greenlove_tracker.errors import UsageError


@pytest.fixture
def metadata(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # nobody: a proxy must not be asked
    monkeypatch.setattr(termination, "_POLL_S", 0.01)
    with serving() as server:
        monkeypatch.setattr(termination, "METADATA_URL", server.url)
        yield server


class Taken(TerminationNotices):
    """Sets an event where a notice comes, so that a test waits for nothing else."""

    def __init__(self, **arguments) -> None:
        super().__init__(**arguments)
        self.came = threading.Event()

    def _take(self, notice: Notice) -> None:
        super()._take(notice)
        self.came.set()


def listening(cloud):
    return Taken(clouds=[cloud], signals=())


def test_aws_interrupts_two_minutes_ahead(metadata):
    with listening("aws") as notices:
        until(lambda: metadata.n_tokens >= 3)
        assert notices.notice is None
        metadata.answers[INTERRUPTION] = json.dumps({"action": "terminate", "time": AWS_TIME})
        assert notices.came.wait(10)
        assert notices.notice == Notice("AWS instance-action")
        assert notices.grace_s == 120.0


def test_gcp_preempts(metadata):
    metadata.answers[PREEMPTED] = "FALSE"
    with listening("gcp") as notices:
        until(lambda: len(metadata.asked) >= 3)
        assert notices.notice is None
        metadata.answers[PREEMPTED] = "TRUE"
        assert notices.came.wait(10)
        assert notices.notice == Notice("GCP preempted")


@pytest.mark.parametrize(
    "kind, machines, is_ours",
    [
        ("Preempt", ["vm-1"], True),
        ("Terminate", ["vm-0", "vm-1"], True),
        ("Preempt", ["vm-2"], False),
        ("Reboot", ["vm-1"], False),
        ("Freeze", ["vm-1"], False),
    ],
)
def test_azure_schedules_events_of_which_those_of_this_machine_count(metadata, kind, machines, is_ours):
    event = {"EventId": "A1", "EventType": kind, "Resources": machines, "EventStatus": "Scheduled"}
    event |= {"ResourceType": "VirtualMachine", "NotBefore": "Sun, 22 Nov 2026 12:02:00 GMT"}
    metadata.answers[EVENTS] = json.dumps({"DocumentIncarnation": 1, "Events": [event]})
    metadata.answers["/metadata/instance/compute/name"] = "vm-1"
    with listening("azure") as notices:
        if is_ours:
            assert notices.came.wait(10)
            assert notices.notice == Notice(f"Azure {kind}")
        else:
            until(lambda: metadata.asked.count(EVENTS) >= 3)
            assert notices.notice is None


def test_a_server_that_answers_nonsense_is_warned_of_once_and_asked_on(metadata, caplog):
    metadata.answers[EVENTS] = "<html>"
    with listening("azure") as notices:
        until(lambda: metadata.asked.count(EVENTS) >= termination._FAILURES_UNTIL_WARNED + 3)
        metadata.answers[EVENTS] = json.dumps({"Events": [{"EventType": "Preempt", "Resources": []}]})
        assert notices.came.wait(10)
        assert notices.notice == Notice("Azure Preempt")
    assert sum("notices of termination cannot be read" in r.getMessage() for r in caplog.records) == 1


def test_no_network_is_asked_without_a_request(metadata):
    with TerminationNotices(signals=()):
        pass
    assert metadata.asked == []
    assert metadata.n_tokens == 0


@pytest.mark.parametrize(
    "arguments", [{"clouds": ["ibm"]}, {"signals": ["TERM"]}, {"grace_s": 0.0}, {"grace_s": float("nan")}]
)
def test_bad_arguments_are_said_at_once(arguments):
    with pytest.raises(UsageError):
        TerminationNotices(**arguments)


def test_a_signal_is_a_flag_and_handlers_come_back():
    before = [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGUSR1)]
    with TerminationNotices(grace_s=60.0) as notices:
        assert notices.notice is None
        signal.raise_signal(signal.SIGTERM)
        assert notices.notice == Notice("SIGTERM", signal.SIGTERM)
        assert notices.is_pending
        notices.saved()
        assert not notices.is_pending
    assert [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGUSR1)] == before
    with TerminationNotices() as notices:
        signal.raise_signal(signal.SIGUSR1)
        assert notices.notice == Notice("SIGUSR1", signal.SIGUSR1)


@pytest.mark.parametrize("is_answered", [False, True])
def test_sigterm_after_sigusr1_has_its_whole_grace(is_answered):
    with TerminationNotices(grace_s=60.0) as notices:
        signal.raise_signal(signal.SIGUSR1)
        assert not notices.is_pending  # no deadline
        if is_answered:
            notices.saved()
        signal.raise_signal(signal.SIGTERM)
        assert notices.notice == Notice("SIGTERM", signal.SIGTERM)
        assert notices.is_pending
        notices.saved()
        assert not notices.is_pending


def test_a_cloud_is_heard_after_an_answered_signal(metadata):
    with Taken(clouds=["gcp"]) as notices:
        signal.raise_signal(signal.SIGUSR1)
        notices.saved()
        notices.came.clear()
        metadata.answers[PREEMPTED] = "TRUE"
        assert notices.came.wait(10)
        assert notices.notice == Notice("GCP preempted")


def test_a_handler_of_the_users_own_still_runs():
    came = []
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        with TerminationNotices(grace_s=60.0) as notices:
            signal.raise_signal(signal.SIGTERM)
            assert came == [signal.SIGTERM]
            assert notices.notice is not None
            notices.saved()
        signal.raise_signal(signal.SIGTERM)
        assert len(came) == 2
    finally:
        signal.signal(signal.SIGTERM, before)


def test_sigusr1_behind_sigterm_leaves_its_deadline():
    with TerminationNotices(grace_s=60.0) as notices:
        for name in ("SIGUSR1", "SIGTERM", "SIGUSR1"):
            signal.raise_signal(getattr(signal, name))
        assert notices.notice.source == "SIGTERM"
        notices.saved()


def test_a_loop_that_another_thread_closes_leaves_signals_to_the_users_handler():
    came = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: came.append(number))
    try:
        notices = TerminationNotices(signals=("SIGUSR1",))
        notices.__enter__()
        thread = threading.Thread(target=notices.__exit__)
        thread.start()
        thread.join()
        signal.raise_signal(signal.SIGUSR1)
        assert came == [signal.SIGUSR1]
        assert notices.notice is None
    finally:
        signal.signal(signal.SIGUSR1, before)


# -- Processes that really end --

SCRIPT = """
import os, signal, sys, time
from greenlove_tracker.checkpointing import termination
from greenlove_tracker.checkpointing.termination import TerminationNotices
grace_s, does = float(sys.argv[1]), sys.argv[2]
with TerminationNotices(grace_s=grace_s) as notices:
    print("ready", flush=True)
    began = time.monotonic()
    while time.monotonic() - began < 30:
        time.sleep(0.01)
        if notices.notice is not None and does == "save":
            print("saving", flush=True)
            notices.saved()
            sys.exit(143)
        if notices.notice is not None:
            print("noticed", flush=True) if does == "print" else None
            if does == "break":
                break
            does = "wait"
print("after", flush=True)
time.sleep(30)
"""


def _child(tmp_path, grace_s, does):
    (tmp_path / "child.py").write_text(SCRIPT)
    child = subprocess.Popen(
        [sys.executable, "child.py", str(grace_s), does], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "ready\n"
    return child


def test_a_training_that_saves_in_time_goes_its_own_way(tmp_path):
    child = _child(tmp_path, 60.0, "save")
    child.send_signal(signal.SIGTERM)
    assert child.stdout.read() == "saving\n"
    assert child.wait(20) == 143


def test_at_the_deadline_the_process_ends_by_the_signal(tmp_path):
    child = _child(tmp_path, 0.2, "wait")
    child.send_signal(signal.SIGTERM)
    assert child.wait(20) == -signal.SIGTERM


def test_a_sigterm_that_no_saving_point_follows_is_not_lost(tmp_path):
    child = _child(tmp_path, 600.0, "break")
    child.send_signal(signal.SIGTERM)
    assert child.stdout.read() == ""
    assert child.wait(20) == -signal.SIGTERM


def test_a_second_sigterm_ends_it_at_once(tmp_path):
    child = _child(tmp_path, 600.0, "print")
    child.send_signal(signal.SIGTERM)
    assert child.stdout.readline() == "noticed\n"
    os.kill(child.pid, signal.SIGTERM)
    assert child.wait(20) == -signal.SIGTERM
