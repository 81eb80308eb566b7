"""What a signal handler of the training's raises in a call of ours reaches the training, and costs one row at most."""

from __future__ import annotations

import dis
import os
import signal
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from fakes import make_tracker

import greenlove_tracker
from greenlove_tracker import read_logs
from greenlove_tracker.meter import SimulatedMeter
from greenlove_tracker.tracker.shutdown import guard
from greenlove_tracker.vocabulary.records import RunStatus

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="NOT TESTED: no such signals here")
OURS = str(Path(greenlove_tracker.__file__).parent)
CHECKS = {"RESUME", "JUMP_BACKWARD", "CALL", "CALL_FUNCTION_EX"}  # behind these Python runs handlers


class PreemptionError(Exception):
    """What a training's handler raises."""


@pytest.fixture
def handled():
    """Have SIGUSR1 raise an error, which is set."""
    error = [PreemptionError]

    def handle(number, frame):
        raise error[0]

    before = signal.signal(signal.SIGUSR1, handle)
    yield error
    assert signal.getsignal(signal.SIGUSR1) is handle
    signal.signal(signal.SIGUSR1, before)
    if guard.current is not None:
        guard.current.finish(RunStatus.SUPERSEDED)


@cache
def instants(code) -> set[int]:
    """Return where in this code a handler may run: the offsets of the instructions behind those that look for one."""
    operations = list(dis.get_instructions(code))
    return {after.offset for op, after in pairwise(operations) if op.opname in CHECKS}


class Interruption:
    """Sends the signal at the n-th instant of ours at which Python runs handlers."""

    def __init__(self, n: int) -> None:
        self.left, self.last = n, ""

    def __enter__(self):
        sys.settrace(self.trace)

    def __exit__(self, *error):
        sys.settrace(None)

    def note_return(self, frame, event, arg):
        self.last = event
        return self.note_return

    def trace(self, frame, event, arg):
        name = frame.f_code.co_filename
        if not name.startswith(OURS) or "/meter/" in name or name.endswith("/units.py"):
            return self.note_return  # a meter of a training is read on a thread of its own
        frame.f_trace_opcodes = True
        is_behind_python = self.last == "return"  # which looks for none when it returns
        self.last = event
        if event == "opcode" and not is_behind_python and frame.f_lasti in instants(frame.f_code):
            self.left -= 1
            if self.left == 0:
                sys.settrace(None)
                os.kill(os.getpid(), signal.SIGUSR1)
        return self.trace


def train_interrupted(clock, log_dir, call, n, error) -> bool:
    """Train two epochs; return False where the call of the first has no n-th instant."""
    tracker = make_tracker(clock, log_dir, meter=SimulatedMeter(clock, gpu_w=360.0))
    began_s = clock.perf_s()
    clock.pass_s(5.0)
    tracker.epoch_start()
    clock.pass_s(10.0)
    interruption, raised = Interruption(n), 0
    try:
        with interruption:
            getattr(tracker, call)()
    except error:
        raised += 1
    if call == "step":
        tracker.epoch_end()
    if call != "stop":
        clock.pass_s(5.0)
        tracker.epoch_start()
        clock.pass_s(10.0)
        tracker.step()
        tracker.epoch_end()
    tracker.stop()
    is_over = interruption.left > 0
    assert raised == (not is_over)
    run = read_logs(log_dir).runs[-1]
    passed_s = clock.perf_s() - began_s
    assert run.problems == []
    if call == "stop":  # a run that is not closed is rebuilt from its rows
        return not is_over
    assert run.has_summary and run.added_up() == run.summary
    if call == "step" or is_over:
        assert run.summary.epochs_done == 2
        assert sum(row.gap_before_s + row.duration_s for row in run.rows[0]) == pytest.approx(passed_s)
        assert run.summary.energy_kwh == pytest.approx(0.36 * passed_s / 3600)
    else:  # the row that was being made may be lost
        assert run.summary.epochs_done in (1, 2) and run.epochs[-1].is_complete
    return not is_over


@pytest.mark.slow_cases
@pytest.mark.parametrize("error", [PreemptionError, TimeoutError, KeyboardInterrupt])
@pytest.mark.parametrize("call", ["epoch_end", "step", "stop"])
def test_an_exception_of_a_handler_at_any_instant_of_a_call(clock, tmp_path, handled, caplog, call, error):
    handled[0], n = error, 1
    while train_interrupted(clock, tmp_path / f"{n}", call, n, error):
        n += 1 if error is PreemptionError and call == "epoch_end" else 13
    assert n > 30 or call == "step"
    assert "own" not in caplog.text
