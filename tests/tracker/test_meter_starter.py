"""``CUDA_VISIBLE_DEVICES`` that a script sets after its imports: followed until CUDA starts, for a minute at most."""

from __future__ import annotations

import pytest
from fakes import FakeClock, make_tracker, tick, train

from greenlove_tracker import Tracker, devices, read_logs
from greenlove_tracker.config import load_settings
from greenlove_tracker.job import find_ranks
from greenlove_tracker.meter import MeterInfo
from greenlove_tracker.records import Energy, Field, Method, RunStatus
from greenlove_tracker.tracker.session import Session
from greenlove_tracker.tracker.state import Plan, RunMode

WATTS = 100.0  # of one GPU


class MeterOfGpus:
    """Eight GPUs of 100 W, of which it measures those that the environment names."""

    starts_at_once = True
    resolution_s = 0.0

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.read_s, self.n, self.n_asked = clock, clock.now_s, 8, 0
        self.error: Exception | None = None

    def start(self) -> MeterInfo:
        self.read_s = self.clock.now_s
        return self.info()

    def info(self) -> MeterInfo:
        fields = [Field("meter", "of GPUs"), Field("gpu_count", str(self.n))]
        if self.n:
            fields.append(Field("gpu_models", f"{self.n} × H100"))
        return MeterInfo(tuple(fields), self.n)

    def read(self) -> Energy:
        passed_s, self.read_s = self.clock.now_s - self.read_s, self.clock.now_s
        return Energy(gpu_kwh=self.n * WATTS * passed_s / 3.6e6, gpu_method=Method.COUNTER)

    def reselect_gpus(self, env) -> MeterInfo:
        self.n_asked += 1
        if self.error:
            raise self.error
        visible = env.get("CUDA_VISIBLE_DEVICES")
        self.n = 8 if visible is None else len([v for v in visible.split(",") if v])
        return self.info()

    def stop(self) -> None:
        pass


@pytest.fixture(autouse=True)
def _no_gpus_named(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(devices, "has_cuda_started", lambda: False)


@pytest.fixture
def meter(clock):
    return MeterOfGpus(clock)


def test_gpus_that_are_named_before_the_first_row_are_all_that_is_counted(clock, tmp_path, monkeypatch, meter):
    with make_tracker(clock, tmp_path, meter=meter, price_usd_per_gpu_hour=3.6) as tracker:
        clock.pass_s(5.0)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
        tick()
        train(tracker, clock, 20, epoch_s=10.0)
    (run,) = read_logs(tmp_path).runs
    assert run.summary.energy_kwh == pytest.approx(2 * WATTS * 205 / 3.6e6)
    assert (run.summary.gpu_count, run.text("gpu_count"), run.text("gpu_models")) == (2, "2", "2 × H100")
    assert run.summary.cost_usd == pytest.approx(2 * 3.6 * 205 / 3600)
    assert run.text("gpu_doubt") == "" and run.problems == []


def test_gpus_that_are_named_while_the_meter_comes_up_are_seen_when_it_is(clock, tmp_path, monkeypatch, meter):
    start = meter.start

    def start_slowly() -> MeterInfo:
        info = start()
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
        return info

    meter.start = start_slowly
    with make_tracker(clock, tmp_path, meter=meter) as tracker:
        train(tracker, clock, 1)
    assert read_logs(tmp_path).runs[0].summary.energy_kwh == pytest.approx(WATTS * 10 / 3.6e6)


def test_all_gpus_can_be_hidden_and_no_field_of_theirs_is_left(clock, tmp_path, monkeypatch, meter):
    with make_tracker(clock, tmp_path, meter=meter) as tracker:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        tick()
        train(tracker, clock, 2)
    (run,) = read_logs(tmp_path).runs
    assert (run.summary.gpu_count, run.text("gpu_models")) == (0, "")


def test_energy_that_was_logged_of_other_gpus_is_in_doubt(clock, tmp_path, monkeypatch, meter):
    with make_tracker(clock, tmp_path, meter=meter) as tracker:
        train(tracker, clock, 1, epoch_s=20.0)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
        train(tracker, clock, 1, epoch_s=10.0)
        tick()
        train(tracker, clock, 1, epoch_s=10.0)
    (run,) = read_logs(tmp_path).runs
    assert run.epochs[-1].energy.gpu_kwh == pytest.approx(WATTS * 10 / 3.6e6)
    assert run.text("gpu_doubt") == "CUDA_VISIBLE_DEVICES changed after 30 s: GPUs of before may be counted or used"


def test_once_cuda_has_started_it_is_looked_at_once_more_and_in_doubt(clock, tmp_path, monkeypatch, meter):
    with make_tracker(clock, tmp_path, meter=meter) as tracker:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
        monkeypatch.setattr(devices, "has_cuda_started", lambda: True)
        tick()
        assert meter.n == 1
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
        n_asked = meter.n_asked
        train(tracker, clock, 3)
        assert (meter.n, meter.n_asked) == (1, n_asked)
    assert "counted or used" in read_logs(tmp_path).runs[0].text("gpu_doubt")


def test_a_tracker_under_the_runner_counts_the_gpus_that_its_script_named_before_it(
    clock, tmp_path, monkeypatch, meter
):
    """The usual script: the runner's meter is up before the first line of it."""
    settings = load_settings({"log_dir": str(tmp_path)})
    job = Session(settings, Plan(), find_ranks({}), clock, meter, mode=RunMode.RUNNER)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    with Tracker(2, log_dir=tmp_path, verbose=0) as tracker:
        train(tracker, clock, 2)
    tick()  # the script goes on
    clock.pass_s(10.0)
    job.finish(RunStatus.FINISHED)
    (run,) = read_logs(tmp_path).runs
    assert run.summary.energy_kwh == pytest.approx(WATTS * 30.0 / 3.6e6)
    assert (run.text("gpu_count"), run.text("gpu_models"), run.text("gpu_doubt")) == ("1", "1 × H100", "")
