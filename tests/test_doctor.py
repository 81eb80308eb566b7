from __future__ import annotations

import json
import socket
from datetime import UTC, datetime, timedelta

import pytest
from intensity_server import Reply, serving

from greenlove_tracker import doctor
from greenlove_tracker.config import Settings
from greenlove_tracker.devices import CounterState, Gpu
from greenlove_tracker.doctor import Diagnosis, examine
from greenlove_tracker.errors import UsageError
from greenlove_tracker.grid.live.http_client import HttpClient
from greenlove_tracker.grid.place import grid_place


def test_the_doctor_says_what_a_run_would_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    diagnosis = examine(Settings(log_dir=str(tmp_path / "logs")))
    text = diagnosis.as_text()
    assert max(map(len, text.splitlines())) <= 100
    subjects = [f.subject for f in diagnosis.findings]
    assert subjects[-6:] == ["cpu", "ram", "country", "share", "logs", "cost"]
    assert diagnosis.can_measure
    assert "458 g/kWh instead of yours" in text and "GREENLOVE_COUNTRY=DE" in text
    assert list(tmp_path.iterdir()) == []  # it left nothing behind
    json.dumps(diagnosis.as_dict())


def test_a_gpu_that_nvml_shows_but_codecarbon_does_not_measure_comes_with_its_fix(monkeypatch):
    monkeypatch.setattr(doctor, "nvml_gpus", lambda: (Gpu(0, "GPU-0", "NVIDIA H200", 140.0, 700.0, True),))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (broken,) = doctor._gpu_findings({})
    assert (broken.mark, broken.method) == ("✗", "unmeasured") and "nvidia-smi" in broken.fix
    (good,) = doctor._gpu_findings({"gpu_method": "counter"})
    assert (good.mark, good.method, good.fix) == ("✓", "counter", "")
    assert "limit 700 W" in good.note
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    (hidden,) = doctor._gpu_findings({})
    assert hidden.method == "left out"


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


# The carbon intensity by the hour

SIMULATED = ("gpu", "cpu", "ram")  # lines that say at length why nothing is measured
KEYS = ("EIA_API_KEY", "ELECTRICITY_MAPS_API_KEY")


@pytest.fixture
def server(monkeypatch, tmp_path):
    """A service on this machine; no key is set, and nothing is on the disk."""
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(doctor, "HttpClient", lambda **options: HttpClient(**options | {"timeout_s": 60.0}))
    with serving() as found:
        yield found


def half_hour(value):
    """What NESO answers of now; its documented form, as tests/grid/live/test_services.py has it."""
    start = datetime.now(UTC).replace(second=0, microsecond=0)
    start = start.replace(minute=start.minute // 30 * 30)
    end = start + timedelta(minutes=30)
    intensity = {"forecast": value, "actual": value, "index": "high"}
    return {"data": [{"from": f"{start:%Y-%m-%dT%H:%MZ}", "to": f"{end:%Y-%m-%dT%H:%MZ}", "intensity": intensity}]}


def at(address, country, *names):
    return Settings(country=country, sim_gpu_w=100, intensity_urls=",".join(f"{name}={address}" for name in names))


def lines(findings):
    return {f.value: (f.method, f.mark, f.note) for f in findings}


def test_unasked_it_says_who_would_be_asked_and_asks_nobody(server, monkeypatch):
    def refuse(*_args, **_options):
        raise AssertionError("the network was asked")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)
    diagnosis = examine(Settings(country="us-east-1", sim_gpu_w=100))
    text = " ".join(diagnosis.as_text().split())
    assert "no network used" in text and not diagnosis.uses_network
    found = lines(f for f in diagnosis.findings if f.subject == "live")
    assert found == {
        "eia": ("not asked", "–", "set EIA_API_KEY"),
        "electricity_maps": ("not asked", "–", "set ELECTRICITY_MAPS_API_KEY"),
    }
    assert "To ask: greenlove doctor --intensity live." in text
    assert max(len(line) for line in diagnosis.as_text().splitlines() if line[2:5] not in SIMULATED) <= 100
    json.dumps(diagnosis.as_dict())


def test_asked_it_says_what_each_answers_and_how_each_fails(server, monkeypatch):
    monkeypatch.setenv("ELECTRICITY_MAPS_API_KEY", "token-that-is-secret")
    server.by_path({"/intensity": half_hour(263), "/v3/carbon-intensity/latest": Reply({"error": "no"}, status=401)})
    diagnosis = examine(at(server.url, "GB", "neso", "electricity_maps"), "live")
    found = lines(f for f in diagnosis.findings if f.subject == "live")
    assert found["neso"] == ("263 g/kWh", "✓", "measured, now, average, direct")
    assert found["electricity_maps"] == ("no answer", "✗", "see below")
    assert found["table"][1:] == ("–", "table, average, lifecycle")
    text = " ".join(diagnosis.as_text().split())
    assert "the network was asked" in text and "401" in text
    assert "takes the first that answers of neso, electricity_maps, table." in text
    assert "token-that-is-secret" not in text + json.dumps(diagnosis.as_dict())
    assert {asked.path.split("/")[1] for asked in server.asked} == {"intensity", "v3"}
    assert max(len(line) for line in diagnosis.as_text().splitlines() if line[2:5] not in SIMULATED) <= 100


@pytest.mark.slow_cases
@pytest.mark.parametrize("reply", [Reply(half_hour(1), delay_s=60.0), Reply(half_hour(1), trickle_s=0.2)])
def test_services_that_are_slow_are_given_up(server, monkeypatch, reply):
    monkeypatch.setenv("ELECTRICITY_MAPS_API_KEY", "secret")
    server.always(reply)
    monkeypatch.setattr(doctor, "HttpClient", HttpClient)
    findings, said = doctor._asked(grid_place("GB"), "live", at(server.url, "GB", "neso", "electricity_maps"))
    assert [f.method for f in findings[:2]] == ["no answer", "no answer"] and "did not answer in time" in said[0]
    assert findings[2].value == "table" and findings[2].mark == "–"


def test_without_a_network_it_says_so(server):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
        findings, said = doctor._asked(grid_place("GB"), "live", at(address, "GB", "neso"))
    assert (findings[0].value, findings[0].method) == ("neso", "no answer")
    assert "neso: 127.0.0.1 cannot be reached" in said[0]


@pytest.mark.parametrize(
    ("country", "name", "message"),
    [
        ("DE", "nobody", "no such source of carbon intensity: 'nobody'"),
        ("DE", "neso", "neso knows no zone for DE"),
        ("DE", "electricity_maps", "set the environment variable ELECTRICITY_MAPS_API_KEY"),
    ],
)
def test_a_service_that_cannot_be_asked_is_the_users_mistake(server, country, name, message):
    with pytest.raises(UsageError, match=message):
        examine(Settings(country=country), name)


@pytest.mark.parametrize("name", ["mock", "live"])  # without a country the table alone is asked
def test_what_needs_no_network_is_said_to_use_none(name):
    diagnosis = examine(Settings(sim_gpu_w=100), name)
    assert not diagnosis.uses_network and "no network used" in diagnosis.as_text()
