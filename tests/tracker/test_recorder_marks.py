"""Epochs that are known to have begun only later: marks of the recorder."""

from __future__ import annotations

import pytest

from greenlove_tracker.meter import SimulatedMeter
from tests.fakes import FakeClock
from tests.integrations.loop_log import RecorderLog


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def rows(log: RecorderLog) -> list[tuple[str, float, float]]:
    log.recorder.finish()
    return [(row.kind.value, row.gap_before_s, row.duration_s) for row in log.rows]


def test_an_epoch_begins_at_the_last_mark_and_marks_without_one_are_the_gap(clock):
    log = RecorderLog(clock)
    for gap_s in (2.0, 3.0):
        clock.pass_s(gap_s)
        log.mark()
    clock.pass_s(4.0)
    log.start_epoch_at_mark()
    clock.pass_s(1.0)
    log.end_epoch()
    log.mark()
    clock.pass_s(6.0)
    assert rows(log) == [("epoch", 5.0, 5.0), ("tail", 6.0, 0.0)]
    total_kwh = sum((row.energy.total_kwh or 0.0) + (row.gap_before.total_kwh or 0.0) for row in log.rows)
    assert total_kwh == pytest.approx(360.0 * 16.0 / 3_600_000)


def test_a_row_that_is_written_behind_a_mark_moves_it(clock):
    log = RecorderLog(clock)
    clock.pass_s(2.0)
    log.mark()
    clock.pass_s(70.0)
    log.recorder.write_segment()
    clock.pass_s(1.0)
    log.start_epoch_at_mark()
    log.end_epoch()
    assert rows(log) == [("gap", 72.0, 0.0), ("epoch", 0.0, 1.0), ("tail", 0.0, 0.0)]


def test_a_meter_that_comes_up_behind_a_mark_moves_it_so_that_a_row_is_wholly_metered(clock):
    log = RecorderLog(clock)
    clock.pass_s(2.0)
    log.mark()
    clock.pass_s(3.0)
    log.recorder.attach_meter(SimulatedMeter(clock, gpu_w=360.0))
    clock.pass_s(4.0)
    log.start_epoch_at_mark()
    log.end_epoch()
    assert rows(log) == [("gap", 5.0, 0.0), ("epoch", 0.0, 4.0), ("tail", 0.0, 0.0)]
