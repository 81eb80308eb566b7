from __future__ import annotations

import math

import pytest
from fakes import FakeClock, ScriptedMeter, gpu_energy
from hypothesis import given
from hypothesis import strategies as st

from greenlove_tracker.meter import SimulatedMeter
from greenlove_tracker.tracker.rates_in_force import RatesInForce
from greenlove_tracker.tracker.recorder import Recorder
from greenlove_tracker.vocabulary.errors import MeterError, TrackerStateError
from greenlove_tracker.vocabulary.records import Counts, Factor, Flag, Row, RowKind, sum_energies


class Bench:
    """A recorder on a fake clock, its rows and the meter's failures."""

    def __init__(self, meter=None, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        self.rows: list[Row] = []
        self.failures: list[MeterError] = []
        self.synchronised_at_s: list[float] = []
        self.recorder = Recorder(
            self.clock,
            self.rows.append,
            before_reading=lambda: self.synchronised_at_s.append(self.clock.now_s),
            rates=RatesInForce(Factor("carbon_intensity", 500.0, "gCO2e/kWh", "a test"), 1.0),
            on_meter_failure=self.failures.append,
            on_bad_count=lambda message: None,
        )
        if meter is not None:
            meter.start()
            self.recorder.attach_meter(meter)

    def epoch(self, duration_s: float, gap_s: float = 0.0) -> None:
        self.clock.pass_s(gap_s)
        self.recorder.start_epoch()
        self.clock.pass_s(duration_s)
        self.recorder.end_epoch()


def test_ten_seconds_at_360_w_are_one_wh_exactly():
    clock = FakeClock()
    bench = Bench(SimulatedMeter(clock, gpu_w=360.0), clock)
    bench.epoch(10.0)
    assert bench.rows[0].energy.total_kwh == 0.001
    assert bench.rows[0].emissions_gco2e == 0.5


def test_what_lies_between_epochs_is_the_next_rows_gap_and_never_an_epochs():
    clock = FakeClock()
    bench = Bench(SimulatedMeter(clock, cpu_tdp_w=100.0, cpu_util=1.0), clock)
    bench.epoch(10.0, gap_s=5.0)
    bench.epoch(10.0, gap_s=2.0)
    clock.pass_s(1.0)
    bench.recorder.finish()
    assert [r.kind for r in bench.rows] == [RowKind.EPOCH, RowKind.EPOCH, RowKind.TAIL]
    assert [r.gap_before_s for r in bench.rows] == [5.0, 2.0, 1.0]
    assert [r.duration_s for r in bench.rows] == [10.0, 10.0, 0.0]
    assert bench.rows[1].gap_before.cpu_kwh == pytest.approx(100 * 2 / 3.6e6)


@given(
    st.lists(st.tuples(st.floats(0, 1e3), st.floats(1e-3, 1e4), st.integers(0, 3)), min_size=1, max_size=30),
    st.floats(1, 2000),
)
def test_rows_add_up_to_the_meter_and_to_the_clock(epochs, watts):
    clock = FakeClock()
    bench = Bench(SimulatedMeter(clock, cpu_tdp_w=watts, cpu_util=1.0, gpu_w=2 * watts), clock)
    for gap_s, duration_s, cuts in epochs:
        clock.pass_s(gap_s)
        bench.recorder.start_epoch()
        for _ in range(cuts):
            clock.pass_s(duration_s / (cuts + 1))
            bench.recorder.write_segment()
        clock.pass_s(duration_s / (cuts + 1))
        bench.recorder.end_epoch()
    clock.pass_s(3.0)
    bench.recorder.write_segment()
    clock.pass_s(4.0)
    bench.recorder.finish()
    total = sum_energies([r.gap_before for r in bench.rows] + [r.energy for r in bench.rows])
    assert total.total_kwh == pytest.approx(3 * watts * clock.now_s / 3.6e6, rel=1e-9)
    assert total.total_kwh == pytest.approx(bench.recorder.metered_kwh, rel=1e-9)
    assert math.fsum(r.gap_before_s + r.duration_s for r in bench.rows) == pytest.approx(clock.now_s, rel=1e-9)


def test_epochs_before_the_attach_meter_have_no_energy_and_say_so():
    clock = FakeClock()
    bench = Bench(clock=clock)
    bench.epoch(1.0)
    clock.pass_s(0.5)
    bench.recorder.start_epoch()
    clock.pass_s(0.25)
    bench.recorder.attach_meter(SimulatedMeter(clock, gpu_w=360.0))
    clock.pass_s(10.0)
    bench.recorder.end_epoch()
    first, cut, rest = bench.rows
    assert first.flags == cut.flags == {Flag.METER_STARTING}
    assert first.energy.total_kwh is None and cut.energy.total_kwh is None
    assert (cut.kind, cut.gap_before_s, cut.duration_s) == (RowKind.SEGMENT, 0.5, 0.25)
    assert (rest.kind, rest.gap_before_s, rest.duration_s, rest.flags) == (RowKind.EPOCH, 0.0, 10.0, frozenset())
    assert rest.epoch == cut.epoch == 2


def test_a_meter_that_keeps_failing_spoils_the_rest():
    bench = Bench(ScriptedMeter([gpu_energy(0.1), gpu_energy(0.2), gpu_energy(0.1), OSError("NVML is gone")]))
    for _ in range(4):
        bench.epoch(1.0)
    assert [r.energy.gpu_kwh for r in bench.rows] == [0.2, None, None, None]
    assert [Flag.METER_FAILED in r.flags for r in bench.rows] == [False, True, True, True]
    assert "NVML is gone" in str(bench.failures[0])


def test_after_a_failed_reading_the_next_one_holds_two_stretches_and_is_left_out():
    readings = [gpu_energy(0.1), OSError("x"), gpu_energy(0.3), gpu_energy(0.2), gpu_energy(0.1)]
    bench = Bench(ScriptedMeter(readings))
    bench.epoch(1.0)
    bench.epoch(1.0)
    assert [(r.gap_before.gpu_kwh, r.energy.gpu_kwh) for r in bench.rows] == [(0.1, None), (None, 0.2)]
    assert [Flag.METER_FAILED in r.flags for r in bench.rows] == [True, True]


def test_a_gpu_that_falls_silent_is_flagged_while_the_cpu_goes_on():
    readings = [gpu_energy(0.1, 0.01), gpu_energy(0.2, 0.02), gpu_energy(None, 0.01), gpu_energy(None, 0.02)]
    bench = Bench(ScriptedMeter(readings))
    bench.epoch(1.0)
    bench.epoch(1.0)
    assert bench.rows[0].flags == frozenset()
    assert bench.rows[1].flags == {Flag.GPU_UNREAD}
    assert bench.rows[1].energy.cpu_kwh == 0.02 and bench.rows[1].energy.gpu_kwh is None


def test_a_jump_of_the_wall_clock_moves_no_duration():
    bench = Bench()
    bench.recorder.start_epoch()
    bench.clock.pass_s(10.0)
    bench.clock.wall_offset_s += 3600.0
    bench.recorder.end_epoch()
    assert bench.rows[0].duration_s == 10.0
    assert Flag.CLOCK_JUMP in bench.rows[0].flags
    bench.epoch(10.0)
    assert Flag.CLOCK_JUMP not in bench.rows[1].flags


def test_a_short_epoch_is_flagged_but_a_short_gap_does_not_spoil_its_epoch():
    meter = ScriptedMeter([gpu_energy(0.0), gpu_energy(0.1), gpu_energy(0.1), gpu_energy(0.0)])
    meter.resolution_s = 0.1
    bench = Bench(meter)
    bench.epoch(1.0, gap_s=0.01)
    bench.epoch(0.05, gap_s=1.0)
    assert [r.flags for r in bench.rows] == [frozenset(), {Flag.SHORT}]


def test_counts_belong_to_the_row_they_were_made_in():
    bench = Bench()
    bench.recorder.start_epoch()
    bench.recorder.count(Counts(1, 2, 64, 1000))
    bench.recorder.write_segment()
    bench.recorder.count(Counts(1, 2, 32, 500))
    bench.recorder.end_epoch()
    assert [r.counts for r in bench.rows] == [Counts(1, 2, 64, 1000), Counts(1, 2, 32, 500)]


def test_an_epoch_that_never_said_steps_has_none_not_zero():
    bench = Bench()
    bench.epoch(1.0)
    assert bench.rows[0].counts == Counts(None, None, None, None)


def test_misuse_says_what_to_do():
    bench = Bench()
    with pytest.raises(TrackerStateError, match=r"epoch_end\(\) without epoch_start"):
        bench.recorder.end_epoch()
    with pytest.raises(TrackerStateError, match=r"step\(\) outside an epoch"):
        bench.recorder.count(Counts(1))


def test_finishing_in_mid_epoch_keeps_what_ran_as_unfinished():
    bench = Bench()
    bench.epoch(5.0)
    bench.recorder.start_epoch()
    bench.clock.pass_s(3.0)
    bench.recorder.finish()
    assert [(r.kind, r.epoch, r.duration_s) for r in bench.rows] == [
        (RowKind.EPOCH, 1, 5.0),
        (RowKind.SEGMENT, 2, 3.0),
        (RowKind.TAIL, None, 0.0),
    ]
    assert Flag.UNFINISHED in bench.rows[1].flags
    assert bench.recorder.epochs_done == 1


def test_the_device_is_at_rest_before_every_boundary_of_an_epoch():
    bench = Bench()
    bench.epoch(5.0, gap_s=1.0)
    assert bench.synchronised_at_s == [1.0, 6.0]


def test_an_evaluation_within_an_epoch_is_a_gap_and_not_the_epochs_time():
    clock = FakeClock()
    bench = Bench(SimulatedMeter(clock, cpu_tdp_w=100.0, cpu_util=1.0), clock)
    bench.recorder.start_epoch()
    clock.pass_s(10.0)
    bench.recorder.count(Counts(5, 5, 40, None))
    bench.recorder.pause()
    clock.pass_s(3.0)
    bench.recorder.pause()  # a checkpoint right after it
    clock.pass_s(1.0)
    bench.recorder.resume()
    clock.pass_s(20.0)
    bench.recorder.end_epoch()
    assert [(r.kind, r.gap_before_s, r.duration_s) for r in bench.rows] == [
        (RowKind.SEGMENT, 0.0, 10.0),
        (RowKind.EPOCH, 4.0, 20.0),
    ]
    assert bench.rows[1].gap_before.cpu_kwh == pytest.approx(100 * 4 / 3.6e6)
    assert sum(r.gap_before_s + r.duration_s for r in bench.rows) == clock.now_s


def test_nothing_read_of_an_instant_is_not_known_to_be_nothing():
    meter = ScriptedMeter([gpu_energy(0.0), gpu_energy(0.0), gpu_energy(0.0)])
    meter.resolution_s = 0.1
    bench = Bench(meter)
    bench.epoch(0.05, gap_s=0.001)
    assert bench.recorder.metered_kwh is None
    bench.clock.pass_s(0.1)
    bench.recorder.write_segment()
    assert bench.recorder.metered_kwh == 0.0


def test_a_long_evaluation_is_cut_into_gap_rows_and_a_step_ends_it():
    bench = Bench()
    bench.recorder.start_epoch()
    bench.clock.pass_s(10.0)
    bench.recorder.pause()
    bench.clock.pass_s(60.0)
    bench.recorder.write_segment()
    bench.clock.pass_s(5.0)
    bench.recorder.count(Counts(1, 1, None, None))
    bench.clock.pass_s(7.0)
    bench.recorder.end_epoch()
    kinds = [(r.kind, r.gap_before_s, r.duration_s) for r in bench.rows]
    assert kinds == [(RowKind.SEGMENT, 0.0, 10.0), (RowKind.GAP, 60.0, 0.0), (RowKind.EPOCH, 5.0, 7.0)]


def test_what_is_open_while_paused_is_closed_as_a_gap():
    bench = Bench()
    bench.recorder.start_epoch()
    bench.clock.pass_s(10.0)
    bench.recorder.pause()
    bench.clock.pass_s(5.0)
    bench.recorder.abandon_epoch()
    assert [(r.gap_before_s, r.duration_s) for r in bench.rows] == [(0.0, 10.0), (5.0, 0.0)]
    assert Flag.UNFINISHED in bench.rows[-1].flags
    with pytest.raises(TrackerStateError, match="outside an epoch"):
        bench.recorder.pause()


def test_a_row_beside_which_we_were_loading_says_so_and_its_time_stays_as_it_was():
    bench = Bench(SimulatedMeter(clock := FakeClock(), gpu_w=360.0), clock)
    recorder = bench.recorder
    recorder.begin_loading()
    clock.pass_s(3.0)  # a gap is not slowed down
    recorder.start_epoch()
    clock.pass_s(0.4)
    recorder.begin_loading()  # another thread, beside the first
    clock.pass_s(0.1)
    recorder.end_loading()
    clock.pass_s(7.5)
    recorder.end_loading()
    clock.pass_s(2.0)
    recorder.end_epoch()
    recorder.begin_loading()
    clock.pass_s(4.0)
    recorder.end_loading()
    bench.epoch(10.0)
    recorder.start_epoch()
    recorder.begin_loading()
    clock.pass_s(0.9)
    recorder.end_loading()
    clock.pass_s(9.1)  # under a tenth is hardly felt
    recorder.end_epoch()
    assert [r.duration_s for r in bench.rows] == [10.0, 10.0, 10.0]
    assert [r.flags for r in bench.rows] == [{Flag.LOADING}, frozenset(), frozenset()]


def test_a_reading_that_cannot_be_one_costs_its_row_its_energy():
    bench = Bench(ScriptedMeter([gpu_energy(0.0), gpu_energy(-9.0), gpu_energy(0.1)]))
    bench.epoch(30.0)
    assert bench.rows[-1].energy.gpu_kwh is None and Flag.METER_FAILED in bench.rows[-1].flags
