"""Stand-ins for clocks, meters and trainings: exact, and without waiting."""

from __future__ import annotations

from pathlib import Path

from greenlove_tracker import Tracker, read_logs
from greenlove_tracker.logs.run import Run
from greenlove_tracker.meter import Meter, MeterInfo, SimulatedMeter
from greenlove_tracker.tracker.session import Session, open_run
from greenlove_tracker.tracker.status import StatusPrinter
from greenlove_tracker.vocabulary.errors import MeterError
from greenlove_tracker.vocabulary.records import Energy, Field, Method


class FakeClock:
    """Both clocks, moved by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.wall_offset_s = 1_790_000_000.0

    def perf_s(self) -> float:
        return self.now_s

    def utc_s(self) -> float:
        return self.now_s + self.wall_offset_s

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds


class ScriptedMeter:
    """Gives the readings of a list; an exception in it is raised."""

    starts_at_once = True
    resolution_s = 0.0

    def __init__(self, readings: list[Energy | Exception], start_error: Exception | None = None) -> None:
        self.readings = list(readings)
        self.start_error = start_error
        self.is_stopped = False

    def start(self) -> MeterInfo:
        if self.start_error is not None:
            raise self.start_error
        return MeterInfo((Field("meter", "scripted"), Field("gpu_count", "1")), 1)

    def read(self) -> Energy:
        if not self.readings:
            raise MeterError("no reading is left")
        reading = self.readings.pop(0)
        if isinstance(reading, Exception):
            raise reading
        return reading

    def stop(self) -> None:
        self.is_stopped = True


def make_tracker(clock: FakeClock | None, log_dir: Path, *, meter: Meter | None = None, **arguments: object) -> Tracker:
    """Return a silent tracker of 20 epochs on this clock, at 360 W."""
    if meter is None and clock is not None:
        meter = SimulatedMeter(clock, gpu_w=360.0)
    settings = {"epochs": 20, "log_dir": log_dir, "verbose": 0} | arguments
    return Tracker(clock=clock, meter=meter, **settings)  # type: ignore[arg-type]


def only_run(log_dir: str | Path = "greenlove_logs") -> Run:
    """Return the one run of a log directory, of which everything can be read."""
    (run,) = read_logs(log_dir).runs
    assert run.problems == []
    return run


def session() -> Session:
    """Return the open run of this process."""
    run = open_run()
    assert run is not None
    return run


def status_text(run: Session | None = None) -> str:
    """Return the status line of a run, by default of the open one, as it would be drawn now."""
    run = run or session()
    run.run_parts.tell_rows()
    return run.run_parts.get(StatusPrinter).text()


def tick() -> None:
    """Do the work of the tracker's own thread, which a run on a fake clock has none of; nothing once it is closed."""
    if (run := open_run()) is not None:
        run.tick()


def train(tracker: Tracker, clock: FakeClock, epochs: int, *, epoch_s: float = 10.0, gap_s: float = 0.0) -> None:
    """Train for some epochs, and tick after each."""
    for _ in range(epochs):
        clock.pass_s(gap_s)
        tracker.epoch_start()
        clock.pass_s(epoch_s)
        tracker.epoch_end()
        tick()


def gpu_energy(kwh: float | None, cpu_kwh: float | None = None) -> Energy:
    return Energy(
        cpu_kwh=cpu_kwh,
        gpu_kwh=kwh,
        cpu_method=None if cpu_kwh is None else Method.TDP_MODEL,
        gpu_method=None if kwh is None else Method.COUNTER,
    )
