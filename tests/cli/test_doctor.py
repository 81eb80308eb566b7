from __future__ import annotations

import json

from greenlove_tracker.cli import diagnosis as doctor
from greenlove_tracker.cli.diagnosis import Diagnosis, examine
from greenlove_tracker.machine.devices import CounterState
from greenlove_tracker.settings.config import Settings


def test_the_doctor_says_what_a_run_would_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    diagnosis = examine(Settings(log_dir=str(tmp_path / "logs")))
    text = diagnosis.as_text()
    assert max(map(len, text.splitlines())) <= 100
    subjects = [f.subject for f in diagnosis.findings]
    assert subjects[-5:] == ["cpu", "ram", "country", "share", "logs"]
    assert diagnosis.can_measure
    assert "458 g/kWh instead of yours" in text and "GREENLOVE_COUNTRY=DE" in text
    assert list(tmp_path.iterdir()) == []  # it left nothing behind
    json.dumps(diagnosis.as_dict())
    (tmp_path / "file").touch()
    assert examine(Settings(log_dir=str(tmp_path / "file"), sim_gpu_w=100.0)).findings[-1].mark == "✗"


def test_what_the_counters_of_gpus_leave_out_is_said_where_there_are_gpus(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    here = {"log_dir": str(tmp_path / "logs"), "sim_gpu_w": 700.0}
    text = " ".join(examine(Settings(**here)).as_text().split())
    assert "sees the GPU alone. The rest of the node is in no" in text
    assert "20 to 30% more at the wall" in text
    text = " ".join(examine(Settings(**here, ram_w=20.0, node_overhead=1.25)).as_text().split())
    assert "is assumed: 1.25 times the GPUs' energy for the whole node" in text


def test_a_counter_that_only_root_may_read_comes_with_its_fix(monkeypatch):
    monkeypatch.setattr(doctor, "cpu_counter_state", lambda: CounterState.LOCKED)
    finding = doctor._cpu_finding({"cpu_method": "tdp_model", "cpu_model": "i7", "meter_note": "locked"})
    assert finding.mark == "✗" and "locked" in finding.note
    assert "sudo chmod a+r" in finding.fix and "--print-udev" in finding.fix
    monkeypatch.setattr(doctor, "cpu_counter_state", lambda: CounterState.VIRTUAL)
    finding = doctor._cpu_finding({"cpu_method": "tdp_model", "cpu_model": "i7"})
    assert (finding.mark, finding.fix) == ("–", "")


def test_how_much_will_be_measured_at_full_load():
    found = {
        "gpu_power_limit_w": "115",
        "gpu_method": "counter",
        "cpu_tdp_w": "45",
        "cpu_method": "tdp_model",
        "ram_w": "10",
        "ram_method": "constant",
    }
    assert doctor._full_load(found) == (115.0, 170.0)
    assert "115 of 170 W (68%)" in Diagnosis((), True, 115.0, 170.0).as_text()
    assert doctor._full_load({}) == (None, None)
    assert "unknown" in Diagnosis((), True, None, None).as_text()
