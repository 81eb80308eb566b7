"""Each fault of a wait; and that the table finds what does not hold."""

from __future__ import annotations

from dataclasses import replace

import pytest
from faults.matrix import UnavailableError
from faults.waits import FAULTS, MOST_LATE_S, WaitFault, WaitOutcome, report

from greenlove_tracker.waits import WAIT_VARIABLE


@pytest.fixture(autouse=True)
def _no_wait_is_handed_on(monkeypatch):
    monkeypatch.setenv(WAIT_VARIABLE, "")


@pytest.mark.slow_cases
@pytest.mark.parametrize("fault", [pytest.param(f, id=f.name) for f in FAULTS])
def test_the_start_is_neither_early_nor_late(fault):
    try:
        outcome = replace(fault.meet(), most_late_s=MOST_LATE_S)  # its own is for a machine at rest
    except UnavailableError as reason:
        pytest.skip(f"NOT TESTED: {reason}")
    assert not outcome.problems, "\n".join(outcome.problems)


@pytest.mark.parametrize(
    "outcome, says",
    [
        (WaitOutcome("x", 61.0), "61.0 s late"),
        (WaitOutcome("x", -2.0), "-2.0 s late"),
        (WaitOutcome("x", 3.0, 2.0), "2 s are allowed"),
        (WaitOutcome("x", 0.0, broken=("the command was started",)), "the command was started"),
    ],
)
def test_the_table_finds_what_does_not_hold(outcome, says):
    said = []
    table = report([WaitFault("f", "a fault", lambda: outcome)], said.append)
    assert says in said[0] and "1 broken" in table and "BROKEN" in table
    assert "0 broken" in report([WaitFault("f", "a fault", lambda: WaitOutcome("x", 1.0))], said.append)


def test_each_fault_has_a_name_of_its_own():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
