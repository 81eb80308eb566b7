from __future__ import annotations

import os
import sys

import pytest

from greenlove_tracker.tracker.switch_interval import short_switch_interval


@pytest.fixture(autouse=True)
def _as_before():
    before_s = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before_s)


@pytest.mark.parametrize("before_s", [0.005, 0.0071, 0.0001])
def test_the_last_to_leave_puts_back_what_was_there(before_s):
    sys.setswitchinterval(before_s)
    before_s = sys.getswitchinterval()  # in whole microseconds
    for _ in range(100):
        with short_switch_interval:
            with short_switch_interval:
                assert sys.getswitchinterval() == min(before_s, 0.0005)
            assert sys.getswitchinterval() == min(before_s, 0.0005)
        assert sys.getswitchinterval() == before_s


def test_what_the_training_sets_meanwhile_stays():
    with short_switch_interval:
        sys.setswitchinterval(0.02)
    assert sys.getswitchinterval() == pytest.approx(0.02)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_the_turns_of_before():
    sys.setswitchinterval(0.005)
    with short_switch_interval:
        child = os.fork()
        if child == 0:
            os._exit(0 if abs(sys.getswitchinterval() - 0.005) < 1e-6 else 1)
        assert sys.getswitchinterval() == pytest.approx(0.0005)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
