from __future__ import annotations

import pytest
from conftest import epoch_row
from fakes import FakeClock

from greenlove_tracker.meter import SimulatedMeter
from greenlove_tracker.records import Counts, RowKind
from greenlove_tracker.tracker.forecaster import ProgressLog
from greenlove_tracker.tracker.recorder import Recorder


class Bench:
    """A recorder on a fake clock at 360 W, and the log that takes its rows."""

    def __init__(self) -> None:
        self.clock, self.log = FakeClock(), ProgressLog()
        self.recorder = Recorder(
            self.clock,
            self.log.add_row,
            before_reading=lambda: None,
            grams_per_kwh=1.0,
            on_meter_failure=lambda error: None,
        )
        self.recorder.attach_meter(SimulatedMeter(self.clock, gpu_w=360.0))

    def epoch(self, duration_s: float, gap_s: float = 0.0) -> None:
        self.clock.pass_s(gap_s)
        self.recorder.start_epoch()
        self.clock.pass_s(duration_s)
        self.recorder.end_epoch()

    def progress(self, total: int = 10):
        open_gap_s = None if self.recorder.epoch is None else self.recorder.gap_before_open_s
        return self.log.in_epochs(total, open_gap_s)


def blocks(progress) -> list[tuple[float, float, float | None]]:
    return [(b.units, b.active_s, b.between_s) for b in progress.blocks]


def pauses(progress) -> list[float]:
    return [b.paused_s for b in progress.blocks]


def test_epochs_and_the_gaps_that_follow_them():
    bench = Bench()
    bench.epoch(10.0, gap_s=3.0)
    bench.epoch(11.0, gap_s=2.0)
    progress = bench.progress()
    assert blocks(progress) == [(1, 10.0, 2.0), (1, 11.0, None)]
    assert (progress.startup_s, progress.elapsed_s, progress.done_units) == (3.0, 26.0, 2)


def test_the_gap_before_an_open_epoch_is_known_and_the_epoch_itself_not():
    bench = Bench()
    bench.epoch(10.0)
    bench.clock.pass_s(4.0)
    bench.recorder.start_epoch()
    bench.clock.pass_s(7.0)
    assert blocks(bench.progress()) == [(1, 10.0, 4.0)]
    assert bench.progress().elapsed_s == 14.0
    bench.recorder.write_segment()  # a segment of it: the same is known
    assert blocks(bench.progress()) == [(1, 10.0, 4.0)]
    assert bench.progress().elapsed_s == 14.0


def test_a_pause_is_not_the_epochs_own_time_but_remains_part_of_the_total():
    bench = Bench()
    bench.recorder.start_epoch()
    bench.clock.pass_s(5.0)
    bench.recorder.pause_epoch()
    bench.clock.pass_s(60.0)
    bench.recorder.write_segment()
    bench.clock.pass_s(1.0)
    bench.recorder.resume_epoch()
    bench.clock.pass_s(6.0)
    bench.recorder.end_epoch()
    bench.epoch(11.0, gap_s=2.0)
    assert blocks(bench.progress()) == [(1, 11.0, 2.0), (1, 11.0, None)]
    assert pauses(bench.progress()) == [61.0, 0.0]
    assert bench.progress().elapsed_s == bench.clock.now_s


def test_an_epoch_that_was_cut_off_and_done_again_is_lost_time():
    bench = Bench()
    bench.epoch(10.0)
    bench.recorder.start_epoch()
    bench.clock.pass_s(4.0)
    bench.recorder.abandon_epoch()
    bench.epoch(10.0, gap_s=1.0)
    assert blocks(bench.progress()) == [(1, 10.0, 1.0), (1, 10.0, None)]
    assert bench.progress().elapsed_s == 25.0


def test_waiting_for_an_answer_is_lost_time_and_no_gap():
    bench = Bench()
    bench.epoch(10.0)
    bench.clock.pass_s(600.0)
    bench.log.exclude_wait(600.0)
    bench.clock.pass_s(2.0)
    bench.recorder.start_epoch()
    assert blocks(bench.progress()) == [(1, 10.0, 2.0)] and bench.progress().elapsed_s == 612.0
    bench.clock.pass_s(10.0)
    bench.recorder.end_epoch()
    assert blocks(bench.progress()) == [(1, 10.0, 2.0), (1, 10.0, None)]


def test_steps_are_timed_to_their_ends_and_without_pauses():
    bench = Bench()
    log, recorder, clock = bench.log, bench.recorder, bench.clock
    recorder.open_epoch_from_last_row()

    def steps(n: int) -> None:
        for _ in range(n):
            clock.pass_s(2.0)
            recorder.count(Counts(1, 1, None, None))

    clock.pass_s(28.0)  # loading, compiling
    steps(1)
    first = recorder.first_step
    steps(2)
    clock.pass_s(1.9)  # a step is under way when the thread looks
    log.add_steps(*first, 0.0)
    log.add_steps(recorder.steps_done, recorder.stepped_at_s, recorder.paused_s)
    clock.pass_s(0.1)
    recorder.count(Counts(1, 1, None, None))
    recorder.pause_epoch()
    clock.pass_s(30.0)
    log.add_steps(recorder.steps_done, recorder.stepped_at_s, recorder.paused_s)  # in the middle of an evaluation
    recorder.resume_epoch()
    steps(2)
    log.add_steps(recorder.steps_done, recorder.stepped_at_s, recorder.paused_s)
    progress = log.in_steps(100)
    assert blocks(progress) == [(2, 4.0, 0.0), (1, 2.0, 0.0), (2, 4.0, 0.0)] and pauses(progress) == [0.0, 0.0, 30.0]
    assert (progress.startup_s, progress.done_units, progress.elapsed_s) == (30.0, 6, clock.now_s)


def test_energy_so_far_is_estimated_where_it_was_not_metered_and_has_the_pue():
    log = ProgressLog()
    log.add_row(epoch_row(1, kwh=None))
    assert log.in_epochs(4, pue=1.5).used_kwh is None
    log.add_row(epoch_row(2, kwh=0.001))
    progress = log.in_epochs(4, pue=1.5)
    assert progress.used_kwh == pytest.approx(2 * 0.0015)
    assert progress.metered == ((10.0, pytest.approx(0.0015 * 3.6e6 / 10)),)


def test_energy_of_an_open_epoch_is_not_counted_twice():
    log = ProgressLog()
    log.add_row(epoch_row(1, kwh=0.001))
    log.add_row(epoch_row(2, 0.001, 10.0, RowKind.SEGMENT))
    assert log.in_epochs(4).used_kwh == pytest.approx(0.001)
