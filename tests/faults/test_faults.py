"""Each fault of the matrix, with real processes; and that the matrix finds what does not hold."""

from __future__ import annotations

from dataclasses import replace

import pytest
from faults import matrix
from faults.matrix import FAULTS, Ending, Fault, UnavailableError, run_fault


@pytest.mark.slow_cases
@pytest.mark.parametrize("fault", [pytest.param(fault, id=fault.name.replace(" ", "-")) for fault in FAULTS])
def test_the_training_is_as_without_us_and_no_finished_epoch_is_lost(fault):
    try:
        outcome = run_fault(replace(fault, extra_s=fault.extra_s + 60.0))  # its own is for a machine at rest
    except UnavailableError as reason:
        pytest.skip(f"NOT TESTED: {reason}")
    assert not outcome.broken, "\n".join(outcome.broken)


GOOD = Ending(0, {1: "a", 2: "b"}, ("result b",), "b\n", "", 1.0)


def broken(ours: Ending, known: int = 2, **fault: object) -> str:
    return " · ".join(matrix.compare(Fault("f", "", **fault), GOOD, ours, known, frozenset()).broken)


@pytest.mark.parametrize(
    "change, says",
    [
        ({"digests": {1: "a", 2: "c"}}, "the training came to"),
        ({"notes": ()}, "the training came to"),
        ({"out": "b\nhello\n"}, "the training came to"),
        ({"exit_code": 1}, "exit code 1 instead of 0"),
        ({"took_s": 30.0}, "took 30.0 s"),
        ({"is_stuck": True}, "no end with us"),
    ],
)
def test_the_matrix_finds_a_training_that_is_not_the_same(change, says):
    assert broken(GOOD) == ""
    assert says in broken(replace(GOOD, **change))


def test_the_matrix_finds_a_lost_epoch_and_a_fault_that_nobody_speaks_of():
    assert "2 epochs were finished, 1 are known" in broken(GOOD, known=1)
    assert broken(replace(GOOD, notes=("result b", "summary 2")), known=0, where="memory") == ""
    assert "no flag clock_jump in the log" in broken(GOOD, flags=frozenset({"clock_jump"}))
    assert "'cannot be written' was not said" in broken(GOOD, says="cannot be written")
    assert "the fault was not met" in broken(GOOD, inject="raises a b 1")
