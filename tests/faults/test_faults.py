"""Each fault of the matrix, with real processes; and that the matrix finds what does not hold."""

from __future__ import annotations

from dataclasses import replace

import pytest
from faults import matrix
from faults.matrix import FAULTS, Ending, Fault, UnavailableError, run_fault


def rows():
    for fault in FAULTS:
        marks = [pytest.mark.xfail(reason=fault.xfail, strict=True)] if fault.xfail else []
        yield pytest.param(fault, id=fault.name.replace(" ", "-"), marks=marks)


@pytest.mark.slow_cases
@pytest.mark.parametrize("fault", list(rows()))
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
    jump = matrix.compare(Fault("f", "", flags=frozenset({"clock_jump"})), GOOD, GOOD, 2, frozenset({"short"}))
    assert "no flag clock_jump in the log, but short" in jump.broken
    assert "'cannot be written' was not said" in broken(GOOD, says="cannot be written")
    assert "the fault was not met" in broken(GOOD, inject="raises a b 1")


def test_two_trainings_that_stand_still_are_not_the_same():
    stuck = replace(GOOD, is_stuck=True)
    outcome = matrix.compare(Fault("f", ""), stuck, stuck, 2, frozenset())
    assert any("no end without us" in text for text in outcome.broken)


def test_there_are_more_faults_than_were_asked_for_and_each_has_a_name_of_its_own():
    assert len(FAULTS) >= 25 and len({fault.name for fault in FAULTS}) == len(FAULTS)
