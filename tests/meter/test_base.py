from __future__ import annotations

import pytest
from fakes import FakeClock

from greenlove_tracker.meter import NullMeter, SimulatedMeter
from greenlove_tracker.vocabulary.records import UNKNOWN_ENERGY, Method


def test_nothing_is_unknown_not_zero():
    meter = NullMeter("because")
    assert {f.name: f.value for f in meter.start().fields} == {"meter": "none", "meter_note": "because"}
    assert meter.read() == UNKNOWN_ENERGY


def test_simulated_hardware_is_labelled_as_a_model():
    clock = FakeClock()
    meter = SimulatedMeter(clock, cpu_tdp_w=100.0, cpu_util=0.5, gpu_w=400.0, gpu_util=0.5, gpu_count=2, ram_w=36.0)
    info = meter.start()
    clock.pass_s(36.0)
    energy = meter.read()
    assert info.gpu_count == 2
    assert energy.cpu_kwh == pytest.approx(50 * 36 / 3.6e6)
    assert energy.gpu_kwh == pytest.approx(400 * 36 / 3.6e6)
    assert energy.ram_kwh == pytest.approx(36 * 36 / 3.6e6)
    assert (energy.cpu_method, energy.gpu_method, energy.ram_method) == (
        Method.TDP_MODEL,
        Method.TDP_MODEL,
        Method.CONSTANT,
    )


def test_what_is_not_simulated_is_unknown():
    meter = SimulatedMeter(FakeClock(), gpu_w=100.0)
    meter.start()
    assert meter.read().cpu_kwh is None
