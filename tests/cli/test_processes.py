"""The block in which nothing was started yet, and the signals that end it."""

from __future__ import annotations

import signal

import pytest

from greenlove_tracker.cli import processes
from greenlove_tracker.cli.processes import BY_CTRL_C, nothing_started_yet
from greenlove_tracker.errors import UsageError

HANDLED = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture(autouse=True)
def handlers():
    before = {number: signal.getsignal(number) for number in HANDLED}
    yield before
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("error", [None, UsageError, KeyboardInterrupt])
def test_after_the_block_the_handlers_are_those_of_before(handlers, error):
    try:
        with nothing_started_yet(quiet=True):
            assert signal.getsignal(signal.SIGTERM) is not handlers[signal.SIGTERM]
            if error:
                raise error("x")
    except (UsageError, KeyboardInterrupt) as raised:
        assert type(raised) is error
    assert {number: signal.getsignal(number) for number in HANDLED} == handlers


def test_a_handler_that_python_did_not_install_is_left_alone(monkeypatch):
    known = signal.getsignal
    monkeypatch.setattr(processes.signal, "getsignal", lambda n: None if n == signal.SIGTERM else known(n))
    before = known(signal.SIGTERM)
    with nothing_started_yet(quiet=True):
        assert known(signal.SIGTERM) is before


def test_a_signal_in_the_block_ends_it(capsys):
    with pytest.raises(SystemExit) as ended, nothing_started_yet(quiet=False):
        signal.raise_signal(signal.SIGINT)
    assert ended.value.code == BY_CTRL_C
    assert capsys.readouterr().err == "greenlove: the wait was ended, nothing was started\n"
