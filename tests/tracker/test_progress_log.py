from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from conftest import epoch_row
from fakes import FakeClock

from greenlove_tracker.extrapolation.live import forecast_run
from greenlove_tracker.meter import SimulatedMeter
from greenlove_tracker.records import Counts, Flag, RowKind
from greenlove_tracker.tracker.progress_log import ProgressLog, StepMark, step_marks
from greenlove_tracker.tracker.recorder import Recorder


class Bench:
    """A recorder on a fake clock at 360 W, and the log that takes its rows."""

    def __init__(self) -> None:
        self.clock, self.log = FakeClock(), ProgressLog()
        self.recorder = Recorder(
            self.clock,
            lambda row: self.log.add_row(row, step_marks(self.recorder, 0.0)),
            before_reading=lambda: None,
            grams_per_kwh=1.0,
            on_meter_failure=lambda error: None,
            on_bad_count=lambda message: None,
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
    log.add_steps(StepMark(first[0], first[1], 0.0, 0.0))
    log.add_steps(StepMark(recorder.steps_done, recorder.stepped_at_s, recorder.paused_s, 0.0))
    clock.pass_s(0.1)
    recorder.count(Counts(1, 1, None, None))
    recorder.pause_epoch()
    clock.pass_s(30.0)
    log.add_steps(
        StepMark(recorder.steps_done, recorder.stepped_at_s, recorder.paused_s, 0.0)
    )  # in the middle of an evaluation
    recorder.resume_epoch()
    steps(2)
    log.add_steps(StepMark(recorder.steps_done, recorder.stepped_at_s, recorder.paused_s, 0.0))
    progress = log.in_steps(100)
    assert blocks(progress) == [(2, 4.0, 0.0), (1, 2.0, 0.0), (2, 4.0, 0.0)] and pauses(progress) == [0.0, 0.0, 30.0]
    assert (progress.startup_s, progress.done_units, progress.elapsed_s) == (30.0, 6, clock.now_s)


def test_energy_so_far_is_estimated_where_it_was_not_metered_and_has_the_pue():
    log = ProgressLog()
    log.add_row(epoch_row(1, kwh=None))
    assert log.in_epochs(4, energy_factor=1.5).used_kwh is None
    log.add_row(epoch_row(2, kwh=0.001))
    progress = log.in_epochs(4, energy_factor=1.5)
    assert progress.used_kwh == pytest.approx(2 * 0.0015)
    assert progress.metered == ((10.0, pytest.approx(0.0015 * 3.6e6 / 10)),)


def test_energy_of_an_open_epoch_is_not_counted_twice():
    log = ProgressLog()
    log.add_row(epoch_row(1, kwh=0.001))
    log.add_row(epoch_row(2, 0.001, 10.0, RowKind.SEGMENT))
    assert log.in_epochs(4).used_kwh == pytest.approx(0.001)


def test_what_was_metered_for_a_small_part_of_an_epoch_sets_no_power():
    for w in (0.0, 121.0):  # the meter came up just before the end; its first reading is nothing, or far too much
        log = ProgressLog()
        log.add_row(epoch_row(1, None, 9.94, RowKind.SEGMENT, Flag.METER_STARTING))
        log.add_row(epoch_row(1, w * 0.06 / 3.6e6, 0.06))
        assert not log.has_power
        assert (log.in_epochs(4).metered, log.in_epochs(4).used_kwh) == ((), None)
        log.add_row(epoch_row(2, 28.0 * 10.0 / 3.6e6, 10.0))
        progress = log.in_epochs(4)
        assert progress.metered == ((10.0, pytest.approx(28.0)),)
        assert progress.used_kwh == pytest.approx(28.0 * 20.0 / 3.6e6, rel=0.02)
    log = ProgressLog()
    log.add_row(epoch_row(1, None, 50.0, RowKind.SEGMENT, Flag.METER_STARTING))
    log.add_row(epoch_row(1, 90.0 * 10.0 / 3.6e6, 10.0))  # an evaluation at its end
    assert not log.has_power
    log = ProgressLog()
    log.add_row(epoch_row(1, None, 3000.0, RowKind.SEGMENT, Flag.METER_STARTING))
    log.add_row(epoch_row(1, 90.0 * 60.0 / 3.6e6, 60.0))  # but a minute of it is enough
    assert log.in_epochs(4).metered == ((60.0, pytest.approx(90.0)),)


def test_a_power_is_a_mean_over_a_second_at_least():
    log = ProgressLog()
    for n in range(1, 40):  # readings within 50 ms of the last give nothing, which is in the next one
        log.add_row(epoch_row(n, 28.0 * 0.06 / 3.6e6 if n % 2 else 0.0, 0.03))
    assert [power for _, power in log.in_epochs(100).metered] == [pytest.approx(28.0, rel=0.07)]
    assert log.in_epochs(100).used_kwh == pytest.approx(28.0 * 39 * 0.03 / 3.6e6, rel=0.07)


def test_a_row_beside_which_we_were_loading_makes_its_epoch_cold_where_it_is_more_than_a_tenth():
    log = ProgressLog()
    log.add_row(epoch_row(1, None, 0.9, RowKind.SEGMENT, Flag.LOADING, Flag.METER_STARTING))
    log.add_row(epoch_row(1, 0.001, 9.1))
    log.add_row(epoch_row(2, 0.001, 2.0, RowKind.SEGMENT, Flag.LOADING))
    log.add_row(epoch_row(2, 0.001, 9.0))
    log.add_row(epoch_row(3, 0.001, 9.0))
    progress = log.in_epochs(9)
    assert [block.is_cold for block in progress.blocks] == [False, True, False]
    assert [block.active_s for block in progress.warm_blocks] == [10.0, 9.0]
    assert progress.elapsed_s == 30.0


def test_steps_beside_which_we_were_loading_are_cold():
    log = ProgressLog()
    log.add_steps(StepMark(1, 5.0, 0.0, 5.0))  # loaded before the first step ended: start-up
    log.add_steps(StepMark(11, 6.0, 0.0, 5.0))
    log.add_steps(StepMark(21, 8.0, 0.0, 6.0))
    log.add_steps(StepMark(31, 9.0, 0.0, 6.0))
    assert [block.is_cold for block in log.in_steps(100).blocks] == [False, True, False]


@pytest.mark.slow
def test_a_forecast_costs_the_same_after_80_000_epochs_as_after_80():
    rng = np.random.default_rng(5)
    seconds = {}
    for n in (80, 80_000):
        log = ProgressLog()
        log.add_row(replace(epoch_row(1, None, 0.5, RowKind.EPOCH, Flag.LOADING), gap_before_s=3.0))
        for duration_s in rng.normal(0.01, 0.0005, n - 1):
            log.add_row(replace(epoch_row(2, 0.1 * duration_s / 3600, float(duration_s)), gap_before_s=0.001))
        progress = log.in_epochs(2 * n)
        assert (progress.done_units, sum(b.units for b in progress.blocks)) == (n, n)
        assert progress.blocks[0].is_cold and not any(b.is_cold for b in progress.blocks[1:])
        assert len(progress.blocks) <= 513 and len(progress.metered) <= 513
        assert progress.elapsed_s == pytest.approx(log._rows_s)
        forecast_run(progress)
        began_s = time.process_time()
        for _ in range(5):
            forecast = forecast_run(log.in_epochs(2 * n))
        seconds[n] = time.process_time() - began_s
    truth_s = progress.elapsed_s + 80_000 * 0.011
    assert forecast.duration_s.point == pytest.approx(truth_s, rel=0.005)
    assert forecast.energy_kwh.point == pytest.approx(truth_s * 0.1 / 3600, rel=0.01)
    assert seconds[80_000] < 4 * seconds[80]


def stepped(bench: Bench, step_s, tail_s: float = 0.0, n: int = 64) -> None:
    """An epoch of so many steps, marked at each, and a validation behind the last."""
    bench.recorder.start_epoch()
    for i in range(n):
        bench.clock.pass_s(step_s(i))
        bench.recorder.count(Counts(1, 1, 32, None))
        bench.log.add_epoch_steps(step_marks(bench.recorder, 0.0), bench.recorder.gap_before_open_s)
    bench.clock.pass_s(tail_s)
    bench.recorder.end_epoch()


def test_the_first_epochs_are_eighths_whose_times_are_those_of_their_steps():
    bench = Bench()
    stepped(bench, lambda i: 5.0 if i == 0 else 1.0, n=65)
    bench.clock.pass_s(3.0)
    stepped(bench, lambda i: 1.0 if i < 32 else 2.0)
    progress = bench.progress()
    first, second = progress.blocks[:8], progress.blocks[8:]
    assert [b.units for b in progress.blocks] == [0.125] * 16 and progress.done_units == 2
    assert [b.active_s for b in first] == pytest.approx([8.0] * 8) and progress.startup_s == 5.0
    assert [b.active_s for b in second] == pytest.approx([8.0] * 4 + [16.0] * 4)
    assert [b.between_s for b in progress.blocks] == [None] * 7 + [3.0] + [None] * 8
    assert [b.work for b in second] == pytest.approx([8 * 32.0] * 8)
    assert progress.elapsed_s == 5.0 + 64.0 + 3.0 + 96.0 and not progress.has_unseen_ends
    stepped(bench, lambda i: 1.0)
    assert [b.units for b in bench.progress().blocks] == [1, 1, 1]


def test_what_follows_the_last_step_of_an_epoch_is_spread_over_its_parts():
    bench = Bench()
    stepped(bench, lambda i: 1.0, tail_s=16.0, n=65)
    progress = bench.progress()
    assert [b.active_s for b in progress.blocks] == pytest.approx([10.0] * 8) and progress.has_unseen_ends


def begin_epoch_of_steps(bench, n):
    bench.recorder.start_epoch()
    for _ in range(n):
        bench.clock.pass_s(1.0)
        bench.recorder.count(Counts(1, 1, None, None))
        bench.log.add_epoch_steps(step_marks(bench.recorder, 0.0), 0.0)


def test_an_epoch_with_a_pause_or_with_few_marks_is_a_block():
    bench = Bench()
    begin_epoch_of_steps(bench, 40)
    bench.recorder.pause_epoch()
    bench.clock.pass_s(5.0)
    bench.recorder.end_epoch()
    stepped(bench, lambda i: 1.0, n=6)
    assert blocks(bench.progress()) == [(1, 40.0, 0.0), (1, 6.0, None)]
    assert pauses(bench.progress()) == [5.0, 0.0]


def test_the_steps_of_the_first_epoch_are_parts_of_it_before_it_ends():
    bench = Bench()
    begin_epoch_of_steps(bench, 30)
    progress = bench.log.in_first_epoch(4, 120.0, begun=0.5)
    assert progress is not None and progress.done_units == pytest.approx(0.75) and progress.total_units == 4
    assert sum(b.units for b in progress.blocks) == pytest.approx(29 / 120)
    assert (progress.startup_s, progress.elapsed_s, progress.has_unseen_ends) == (1.0, 30.0, True)
    bench.recorder.end_epoch()
    assert bench.log.in_first_epoch(4, 120.0) is None
