"""``CUDA_VISIBLE_DEVICES`` that a script sets behind the meter's start."""

from __future__ import annotations

from fakes import FakeClock, ScriptedMeter, gpu_energy, make_tracker, train

from greenlove_tracker import read_logs


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
