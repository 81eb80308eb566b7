"""The real CodeCarbon, on whatever hardware the tests run on."""

from __future__ import annotations

import csv
import logging
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from greenlove_tracker import Tracker, aggregate, read_logs
from greenlove_tracker.machine.devices import Gpu, NvmlGpus, Share
from greenlove_tracker.meter import codecarbon as module
from greenlove_tracker.meter.codecarbon import CodeCarbonMeter
from greenlove_tracker.meter.gpus import GpuReaders
from greenlove_tracker.vocabulary.errors import MeterError
from greenlove_tracker.vocabulary.records import Method, sum_energies


def make(**arguments) -> CodeCarbonMeter:
    return CodeCarbonMeter(os.environ, carbon_intensity_gco2e_per_kwh=458.0, **arguments)


def burn(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        sum(range(1000))


def test_reads_add_up_to_codecarbons_own_total():
    meter = make()
    meter.start()
    begun_with = meter._tracker._total_energy.kWh
    reads = []
    for _ in range(5):
        burn(0.12)
        reads.append(meter.read())
    reads.append(meter.read())  # within 50 ms: zero, which rolls into the next
    total = meter._tracker._total_energy.kWh - begun_with
    meter.stop()
    assert reads[-1].total_kwh == 0.0
    assert all(r.total_kwh > 0 for r in reads[:-1])
    assert sum_energies(reads).total_kwh == pytest.approx(total, rel=1e-9)


def test_every_component_says_how_it_was_obtained():
    meter = make()
    fields = {f.name: f.value for f in meter.start().fields}
    burn(0.1)
    energy = meter.read()
    meter.stop()
    assert fields["meter"].startswith("codecarbon 3.3.")
    for component in ("cpu", "ram"):
        assert energy.component_method(component) == fields[f"{component}_method"]
    assert energy.ram_method == Method.CONSTANT
    assert float(fields["ram_w"]) > 0 and float(fields["ram_gb"]) > 0
    if energy.gpu_kwh is None:
        assert "gpu_method" not in fields and fields["gpu_count"] == "0"


SCRIPT = """
import os, sys
from greenlove_tracker.meter.codecarbon import CodeCarbonMeter
from greenlove_tracker.meter.gpus import GpuReaders
meter = CodeCarbonMeter(os.environ, carbon_intensity_gco2e_per_kwh=458.0)
info = meter.start()
import time; time.sleep(0.1)
assert meter.read().total_kwh > 0
tracker = meter._tracker
assert tracker._emissions_endpoint is None and tracker._tracking_mode == "machine" and tracker._pue == 1.0
assert tracker._output_methods == [] and tracker._electricitymaps_api_token == ""
meter.stop()
print(os.environ.get("SLURM_JOB_ID", "-"), "CODECARBON_LOG_LEVEL" in os.environ)
"""


def run_script(cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **env},
        timeout=180,
        check=False,
    )


@pytest.mark.slow
def test_it_is_silent_and_no_config_file_changes_it(tmp_path):
    (tmp_path / ".codecarbon.config").write_text(
        "[codecarbon]\nemissions_endpoint=http://127.0.0.1:9/\ntracking_mode=process\npue=3\n"
        "output_methods=csv,api\nelectricitymaps_api_token=secret\nlog_level=debug\n"
    )
    done = run_script(tmp_path, CODECARBON_EMISSIONS_ENDPOINT="http://127.0.0.1:9/", CODECARBON_PUE="2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "- False\n", "")
    assert [p.name for p in tmp_path.iterdir()] == [".codecarbon.config"]


@pytest.mark.slow
@pytest.mark.parametrize("has_scontrol", [False, True])
def test_a_slurm_job_is_measured_without_ever_calling_scontrol(tmp_path, has_scontrol):
    if has_scontrol:
        scontrol = tmp_path / "scontrol"
        scontrol.write_text("#!/bin/sh\ntouch called\necho NumCPUs=1 TRES=cpu=1,mem=1G\n")
        scontrol.chmod(scontrol.stat().st_mode | stat.S_IXUSR)
    done = run_script(tmp_path, SLURM_JOB_ID="123", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "123 False\n", "")
    assert not (tmp_path / "called").exists()


def test_a_slice_of_a_machine_is_charged_by_its_share(monkeypatch):
    monkeypatch.setattr(module, "machine_share", lambda env, ranks: Share(0.5, 0.25, "cgroup"))
    slice_ = make()
    fields = {f.name: f.value for f in slice_.start().fields}
    begun_with = slice_._tracker._total_ram_energy.kWh
    burn(0.12)
    ram_kwh = slice_.read().ram_kwh
    whole_kwh = slice_._tracker._total_ram_energy.kWh - begun_with
    slice_.stop()
    assert whole_kwh > 0 and ram_kwh == pytest.approx(whole_kwh / 4)
    assert (fields["cpu_share"], fields["ram_share"], fields["share_source"]) == ("0.5", "0.25", "cgroup")


@pytest.mark.parametrize(("busy_cpus", "watts"), [(4, 17.5), (2, 17.5 * (0.1 + 0.9 / 8)), (0, 1.75)])
def test_a_busy_share_of_a_large_node_is_charged_by_its_own_load(monkeypatch, busy_cpus, watts):
    """Four of the 64 cores of a CPU of 280 W: what the other 60 do is not ours."""
    started_s = time.perf_counter()
    share = Share(4 / 64, 1.0, "cgroup", lambda: busy_cpus * (time.perf_counter() - started_s), 4.0)
    monkeypatch.setattr(module, "machine_share", lambda env, ranks: share)
    meter = make(cpu_tdp_w=280.0)
    fields = {f.name: f.value for f in meter.start().fields}
    time.sleep(0.3)
    energy = meter.read()
    meter.stop()
    passed_s = energy.ram_kwh * 3.6e6 / float(fields["ram_w"])  # the memory's power is constant
    assert energy.cpu_kwh * 3.6e6 / passed_s == pytest.approx(watts, rel=0.1)
    assert fields["cpu_tdp_w"] == "17.5" and fields["cpu_method"] == Method.TDP_MODEL


@pytest.mark.parametrize(("country", "expected"), [("DE", "DEU"), ("", "")])
def test_codecarbons_file_names_the_runs_country_and_is_no_second_run(tmp_path, country, expected):
    options = {"output_methods": ["csv"], "output_dir": str(tmp_path)}
    with Tracker(2, log_dir=tmp_path, country=country, verbose=0, codecarbon_options=options) as tracker:
        assert tracker.wait_ready(60)
        for _ in range(2):
            tracker.epoch_start()
            time.sleep(0.15)
            tracker.epoch_end()
    rows = list(csv.DictReader((tmp_path / "emissions.csv").open()))
    assert {row["country_iso_code"] for row in rows} == {expected}
    assert float(rows[-1]["emissions"]) > 0
    (run,) = read_logs(tmp_path).runs
    assert run.path == tracker.run_dir and aggregate(tmp_path).total.n_runs == 1
    assert read_logs(tmp_path).problems == [] and aggregate(tmp_path).problems == []


def test_without_codecarbon_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "codecarbon", None)
    with pytest.raises(MeterError, match="pip install codecarbon"):
        make().start()


def test_no_hardware_is_a_failure_never_a_zero(monkeypatch):
    from codecarbon.core import resource_tracker

    monkeypatch.setattr(resource_tracker.ResourceTracker, "set_CPU_GPU_ram_tracking", lambda self: None)
    with pytest.raises(MeterError, match="found no hardware"):
        make().start()


def test_a_flush_that_fails_is_an_error(monkeypatch):
    meter = make()
    meter.start()
    monkeypatch.setattr(meter._tracker, "_prepare_emissions_data", lambda: 1 / 0)
    with pytest.raises(MeterError, match="flush failed"):
        meter.read()
    monkeypatch.undo()
    meter.stop()


def fake_tracker(meter: CodeCarbonMeter, hardware: list, deltas: list) -> None:
    """A tracker whose flushes give these (cpu, gpu, ram) in turn."""
    remaining = iter(deltas)

    def flush() -> float:
        cpu, gpu, ram = next(remaining)
        meter._deltas.append(SimpleNamespace(cpu_energy=cpu, gpu_energy=gpu, ram_energy=ram))
        return 0.0

    meter._tracker = SimpleNamespace(flush=flush, _hardware=hardware, stop=lambda: None)


def test_a_total_that_fell_is_unknown():
    meter = make()
    fake_tracker(meter, [SimpleNamespace(chip_part="GPU")], [(0, -0.1, 0)])
    assert meter.read().gpu_kwh is None


def test_hidden_gpus_are_not_charged(monkeypatch):
    monkeypatch.setattr(module, "nvml_gpus", lambda: NvmlGpus([Gpu(0, "GPU-0", "H200", 140.0, 700.0)]))
    meter = CodeCarbonMeter({"CUDA_VISIBLE_DEVICES": ""}, carbon_intensity_gco2e_per_kwh=458.0)
    fields = {f.name: f.value for f in meter.start().fields}
    assert meter.read().gpu_kwh is None
    meter.stop()
    assert fields["gpu_count"] == "0" and "gpu" not in fields.get("unmeasured", "")


def test_a_gpu_that_codecarbon_cannot_read_is_named_unmeasured(monkeypatch):
    monkeypatch.setattr(module, "nvml_gpus", lambda: NvmlGpus([Gpu(0, "GPU-0", "H200", 140.0, 700.0)]))
    meter = CodeCarbonMeter({}, carbon_intensity_gco2e_per_kwh=458.0)
    fields = {f.name: f.value for f in meter.start().fields}
    meter.stop()
    assert "gpu" in fields["unmeasured"] and fields["gpu_models"] == "1 × H200"
    assert fields["gpu_power_limit_w"] == "700"


@pytest.mark.parametrize(
    ("memories", "logged"), [((9.996,), "9.996"), ((80.0, 80.0), "80"), ((80.0, 40.0), None), ((None,), None)]
)
def test_the_memory_of_one_gpu_is_logged_where_all_have_the_same(monkeypatch, memories, logged):
    gpus = tuple(Gpu(i, f"GPU-{i}", "H200", memory_gb, 700.0) for i, memory_gb in enumerate(memories))
    monkeypatch.setattr(module, "nvml_gpus", lambda: NvmlGpus(gpus))
    meter = CodeCarbonMeter({}, carbon_intensity_gco2e_per_kwh=458.0)
    fields = {f.name: f for f in meter.start().fields}
    meter.stop()
    found = fields.get("gpu_memory_gb")
    assert (found and found.value) == logged


COUNT_CHILDREN = """
import os, sys
children = []
sys.addaudithook(lambda event, args: children.append(args[1]) if event == "subprocess.Popen" else None)
from greenlove_tracker.meter.codecarbon import CodeCarbonMeter
from greenlove_tracker.meter.gpus import GpuReaders
meter = CodeCarbonMeter(os.environ, carbon_intensity_gco2e_per_kwh=458.0)
fields = {f.name: f.value for f in meter.start().fields}
import time; time.sleep(0.1)
assert meter.read().total_kwh > 0
pythons = [command for command in children if "python" in str(command[0])]
assert not pythons, pythons
assert not {"pandas", "cpuinfo"} & set(sys.modules)
meter.stop()
print(fields["cpu_model"], fields.get("cpu_tdp_w"))
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/cpuinfo")
def test_it_starts_without_a_second_python_and_without_pandas_and_finds_the_same(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", COUNT_CHILDREN], capture_output=True, text=True, cwd=tmp_path, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    from codecarbon.core.cpu import TDP

    tdp = TDP()
    assert done.stdout.startswith(f"{tdp.model} ")
    if "None" not in done.stdout:
        assert float(done.stdout.split()[-1]) % tdp.tdp == 0  # times its sockets


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/cpuinfo")
def test_the_name_of_the_cpu_is_that_of_py_cpuinfo():
    import cpuinfo

    assert module._cpu_name() == cpuinfo.get_cpu_info()["brand_raw"]


@pytest.mark.slow
def test_rated_powers_are_those_that_codecarbon_finds_with_pandas():
    from codecarbon.core.cpu import TDP
    from codecarbon.input import DataSource

    tdp, names = TDP(), list(DataSource().get_cpu_power_data()["Name"])[::400]
    raw = [
        "AMD EPYC 7763 64-Core Processor",
        "Intel(R) Xeon(R) CPU @ 2.20GHz",
        "Intel(R) Core(TM) i7-8700K CPU @ 3.70GHz",
    ]
    models = [*names, *raw, "no such CPU"]
    expected = [tdp._get_cpu_power_from_registry(model) for model in models]
    with module._quick_detection(GpuReaders(())):
        assert [tdp._get_cpu_power_from_registry(model) for model in models] == expected


def test_nothing_of_codecarbons_own_is_changed_once_it_is_up():
    import codecarbon.core.util as util
    from codecarbon.core.cpu import TDP
    from codecarbon.input import DataSource

    owned = [
        (util, "detect_cpu_model"),
        (TDP, "_get_cpu_power_from_registry"),
        (DataSource, "get_global_energy_mix_data"),
    ]
    before = [getattr(owner, name) for owner, name in owned]
    meter = make()
    meter.start()
    meter.stop()
    assert [getattr(owner, name) for owner, name in owned] == before


def test_the_log_stays_silent_until_the_last_of_two_meters_is_stopped(monkeypatch):
    monkeypatch.setattr(CodeCarbonMeter, "_running", set())  # other tests leave meters that nobody stopped
    log = logging.getLogger("codecarbon")
    level = log.level
    first, second = make(), make()
    first.start()
    second.start()
    first.stop()
    first.stop()  # a run whose meter could not start does so twice
    assert log.disabled
    second.stop()
    assert not log.disabled and log.level == level
