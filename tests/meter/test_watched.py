"""A meter that hangs is waited for once; what it answers too late belongs to no row."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest
from fakes import ScriptedMeter, gpu_energy

from greenlove_tracker.meter import watched
from greenlove_tracker.meter.watched import WatchedMeter
from greenlove_tracker.vocabulary.errors import MeterError


class HangingMeter(ScriptedMeter):
    """Hangs in its first reading until it is let go."""

    def __init__(self) -> None:
        super().__init__([gpu_energy(9.0), gpu_energy(1.0)])
        self.go = threading.Event()
        self.is_read = threading.Event()
        self.threads: set[int] = set()

    def read(self):
        self.threads.add(threading.get_ident())
        self.is_read.set()
        self.go.wait(120)
        return super().read()


def test_readings_and_errors_come_through_from_the_readers_own_thread():
    meter = ScriptedMeter([gpu_energy(1.0), ValueError("odd"), gpu_energy(2.0)])
    reader = WatchedMeter(meter)
    assert reader.start().gpu_count == 1 and reader.resolution_s == 0.0 and not reader.starts_at_once
    assert reader.read() == gpu_energy(1.0)
    with pytest.raises(ValueError, match="odd"):
        reader.read()
    assert reader.read() == gpu_energy(2.0)
    reader.stop()
    assert meter.is_stopped


def test_a_reading_that_hangs_is_given_up_and_its_late_answer_discarded(monkeypatch):
    monkeypatch.setattr(watched, "TIMEOUT_S", 0.05)
    meter = HangingMeter()
    reader = WatchedMeter(meter)
    reader.start()
    with pytest.raises(MeterError, match="no answer in"):
        reader.read()
    for _ in range(100):
        with pytest.raises(MeterError, match="hangs"):
            reader.read()
    meter.go.set()
    monkeypatch.setattr(watched, "TIMEOUT_S", 60)
    found = []

    def answers() -> bool:
        with contextlib.suppress(MeterError):
            found.append(reader.read())
        return bool(found)

    wait_until(answers)
    assert found == [gpu_energy(1.0)]  # not the 9 kWh of the time before
    assert meter.threads.isdisjoint({threading.get_ident()}) and len(meter.threads) == 1


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_a_meter_that_ends_the_process_has_failed(error):
    meter = ScriptedMeter([])
    meter.read = lambda: (_ for _ in ()).throw(error)
    reader = WatchedMeter(meter)
    reader.start()
    with pytest.raises(MeterError, match="ended with"):
        reader.read()
    with pytest.raises(MeterError, match="ended with"):
        WatchedMeter(ScriptedMeter([], start_error=error)).start()


def reader_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "greenlove-meter-reader"]


def wait_until(is_so) -> None:
    until_s = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until_s
        time.sleep(0.01)


def test_the_readers_thread_ends_once_the_meter_is_stopped():
    before = reader_threads()
    meters = [ScriptedMeter([gpu_energy(1.0)]) for _ in range(12)]
    readers = [WatchedMeter(meter) for meter in meters]
    for reader in readers:
        reader.start()
        assert reader.read() == gpu_energy(1.0)
    assert len(set(reader_threads()) - set(before)) == 12
    for reader in readers:
        reader.stop()
        reader.stop()  # once is enough
        with pytest.raises(MeterError, match="was stopped"):
            reader.read()
    assert all(meter.is_stopped for meter in meters)
    wait_until(lambda: not set(reader_threads()) - set(before))


@pytest.mark.parametrize("hangs_in", ["read", "stop"])
def test_a_meter_that_hangs_when_it_is_stopped_is_released_as_soon_as_it_answers(monkeypatch, hangs_in):
    monkeypatch.setattr(watched, "TIMEOUT_S", 0.05)
    before, meter = reader_threads(), HangingMeter()
    meter.stop = lambda: setattr(meter, "is_stopped", meter.go.wait(120))
    reader = WatchedMeter(meter)
    reader.start()
    if hangs_in == "read":
        with pytest.raises(MeterError, match="no answer in"):
            reader.read()
    with pytest.raises(MeterError, match="hangs"):
        reader.stop()
    assert not meter.is_stopped and len(reader_threads()) == len(before) + 1
    meter.go.set()
    wait_until(lambda: not set(reader_threads()) - set(before))
    assert meter.is_stopped
