"""What a meter tells at its start, and ``CUDA_VISIBLE_DEVICES`` that a script sets behind it."""

from __future__ import annotations

from fakes import FakeClock, ScriptedMeter, gpu_energy, make_tracker, train

from greenlove_tracker import read_logs
from greenlove_tracker.meter import MeterInfo
from greenlove_tracker.vocabulary.records import Field


def test_gpus_that_are_named_behind_the_start_leave_a_doubt(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for visible in ("", "2"):
        clock = FakeClock()
        with make_tracker(clock, tmp_path / f"log{visible}", meter=ScriptedMeter([gpu_energy(1.0)] * 9)) as tracker:
            if visible:
                monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
            train(tracker, clock, 2)
        (run,) = read_logs(tmp_path / f"log{visible}").runs
        assert ("GPUs of before were counted" in run.text("gpu_doubt")) == bool(visible)


class OwnMeter(ScriptedMeter):
    """A user's own meter, which tells of itself what no log has."""

    def start(self) -> MeterInfo:
        info = super().start()
        return MeterInfo((*info.fields, Field("firmware", "7")), info.gpu_count)


def test_a_users_own_meter_may_have_fields_of_its_own(tmp_path, caplog):
    clock = FakeClock()
    with make_tracker(clock, tmp_path, meter=OwnMeter([gpu_energy(1.0)] * 9)) as tracker:
        train(tracker, clock, 2)
    (run,) = read_logs(tmp_path).runs
    assert [epoch.energy.gpu_kwh for epoch in run.epochs] == [1.0, 1.0]
    assert run.text("meter") == "scripted" and "firmware" not in run.lines
    assert "they are left out" in caplog.text
