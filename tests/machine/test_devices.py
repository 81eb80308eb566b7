from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import psutil
import pytest

from greenlove_tracker.machine import devices
from greenlove_tracker.machine.devices import Gpu, ShareLoad, machine_share, select_gpus

GPUS = [Gpu(i, f"GPU-{i}a{i}a-1111", "NVIDIA H200", 140.0, 700.0) for i in range(4)]


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, [0, 1, 2, 3]),
        ("2", [2]),
        ("3,1", [3, 1]),
        ("", []),
        ("-1", []),
        ("0,-1,2", [0]),
        ("1,9,2", [1]),
        ("GPU-2a2a", [2]),
        ("GPU-2a2a-1111,0", [2, 0]),
        ("MIG-GPU-3a3a-1111/7/0", [3]),
        ("1,1", [1]),
    ],
)
def test_cuda_visible_devices(visible, expected):
    env = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert [g.index for g in select_gpus(GPUS, env).gpus] == expected


def test_an_unknown_name_is_said_to_be_unknown():
    assert "GPU-zzz" in select_gpus(GPUS, {"CUDA_VISIBLE_DEVICES": "GPU-zzz"}).doubt


def test_one_gpu_a_rank_counts_the_jobs_gpus():
    env = {"CUDA_VISIBLE_DEVICES": "0", "SLURM_STEP_GPUS": "0,1"}
    assert [g.index for g in select_gpus(GPUS, env, local_world_size=2).gpus] == [0, 1]
    guessed = select_gpus(GPUS, {"CUDA_VISIBLE_DEVICES": "0"}, local_world_size=2)
    assert len(guessed.gpus) == 4 and "all GPUs of the node" in guessed.doubt


def _machine(monkeypatch, cpus: int = 64, gb: int = 1024) -> None:
    monkeypatch.setattr(psutil, "cpu_count", lambda: cpus)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=gb * 1024**3))
    monkeypatch.setattr(devices.os, "sched_getaffinity", lambda pid: set(range(cpus)), raising=False)


def _write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_machine_without_limits_is_ours(monkeypatch, tmp_path):
    _machine(monkeypatch)
    assert machine_share({}, root=tmp_path).is_whole_machine


def test_cgroup_v2_takes_the_tightest_of_the_groups_above(monkeypatch, tmp_path):
    _machine(monkeypatch)
    root = _write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/slice/pod\n",
            "sys/fs/cgroup/slice/pod/cpu.max": "max 100000",
            "sys/fs/cgroup/slice/cpu.max": "800000 100000",
            "sys/fs/cgroup/slice/pod/memory.max": str(64 * 1024**3),
            "sys/fs/cgroup/slice/memory.max": "max",
        },
    )
    share = machine_share({}, root=root)
    assert (share.cpu, share.ram, share.source) == (8 / 64, 64 / 1024, "cgroup")


def test_slurm_tells_the_share_where_no_cgroup_does(monkeypatch, tmp_path):
    _machine(monkeypatch)
    share = machine_share({"SLURM_CPUS_ON_NODE": "16", "SLURM_MEM_PER_NODE": "262144"}, root=tmp_path)
    assert (share.cpu, share.ram, share.source) == (0.25, 0.25, "Slurm")
    share = machine_share({"SLURM_CPUS_ON_NODE": "16", "SLURM_MEM_PER_CPU": "4096"}, root=tmp_path)
    assert share.ram == 64 / 1024
    assert machine_share({"SLURM_MEM_PER_NODE": "0"}, root=tmp_path).ram == 1.0  # 0 means all of it


def test_ranks_bound_to_cpus_of_their_own_share_the_node(monkeypatch, tmp_path):
    _machine(monkeypatch)
    monkeypatch.setattr(devices.os, "sched_getaffinity", lambda pid: set(range(8)))
    assert machine_share({}, root=tmp_path).cpu == 8 / 64
    assert machine_share({}, 8, root=tmp_path).cpu == 1.0
    env = {"SLURM_CPUS_ON_NODE": "64", "SLURM_MEM_PER_CPU": "4096"}
    assert machine_share(env, 8, root=tmp_path).ram == 256 / 1024


@pytest.fixture
def seconds(monkeypatch):
    """The steady clock, as a list of one number."""
    now = [100.0]
    monkeypatch.setattr(devices.time, "perf_counter", lambda: now[0])
    return now


def _busy(monkeypatch, seconds_by_cpu: dict[int, float]) -> None:
    """Let psutil tell so many busy seconds of each CPU, 900 of them idle."""
    times = [_Times(seconds_by_cpu[n], 900.0) for n in sorted(seconds_by_cpu)]
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: times)


class _Times(NamedTuple):
    user: float
    idle: float


def test_the_load_of_bound_cpus_is_theirs_alone(monkeypatch, tmp_path, seconds):
    _machine(monkeypatch)
    monkeypatch.setattr(devices.os, "sched_getaffinity", lambda pid: {4, 5, 6, 7})
    _busy(monkeypatch, dict.fromkeys(range(64), 0.0))
    load = ShareLoad(machine_share({}, root=tmp_path))
    seconds[0] += 10.0
    _busy(monkeypatch, {n: 10.0 if n in (4, 5, 6, 7) else 0.0 for n in range(64)})
    assert load.percent() == pytest.approx(100.0)  # of the machine it would be 6%
    seconds[0] += 10.0
    _busy(monkeypatch, {n: 10.0 if n in (4, 5, 6, 7) else 9.0 for n in range(64)})
    assert load.percent() == 0.0  # all the others are busy, which is no work of ours


def test_the_load_of_a_limited_cgroup_is_that_of_its_processes(monkeypatch, tmp_path, seconds):
    _machine(monkeypatch)
    pod = "sys/fs/cgroup/pod"
    files = {"proc/self/cgroup": "0::/pod\n", f"{pod}/cpu.max": "400000 100000"}
    root = _write(tmp_path, {**files, f"{pod}/cpu.stat": "usage_usec 50000000\nuser_usec 1\n"})
    share = machine_share({}, root=root)
    load = ShareLoad(share)
    seconds[0] += 10.0
    _write(root, {f"{pod}/cpu.stat": "usage_usec 70000000\nuser_usec 1\n"})
    assert (share.cpu, load.percent()) == (4 / 64, pytest.approx(50.0))
    (root / pod / "cpu.stat").unlink()
    seconds[0] += 10.0
    assert load.percent() == pytest.approx(50.0)  # not readable any more: the last load stays


def test_synchronise_waits_only_for_a_cuda_that_is_in_use(monkeypatch):
    calls = []
    cuda = SimpleNamespace(is_initialized=lambda: True, synchronize=lambda: calls.append(1))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    devices.synchronise()
    assert calls == [1]
    cuda.is_initialized = lambda: False
    devices.synchronise()
    assert calls == [1]
    monkeypatch.delitem(sys.modules, "torch")
    devices.synchronise()


def test_peak_memory_is_the_fullest_gpus(monkeypatch):
    cuda = SimpleNamespace(
        is_initialized=lambda: True, device_count=lambda: 2, max_memory_allocated=lambda i: (i + 1) * 1024**3
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert devices.peak_gpu_memory_gb() == 2.0


def _fake_nvml(monkeypatch, fail_with: str | None = None, pids: Sequence[int] = ()):
    class NVMLError(Exception):
        value = 9  # NVML_ERROR_DRIVER_NOT_LOADED

    def initialise():
        if fail_with:
            raise NVMLError(fail_with)

    def no_counter(handle):
        raise NVMLError("Not Supported")

    nvml = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=initialise,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda i: i,
        nvmlDeviceGetEnforcedPowerLimit=lambda h: 115_000,
        nvmlDeviceGetMemoryInfo=lambda h: SimpleNamespace(total=6 * 1024**3),
        nvmlDeviceGetUUID=lambda h: "GPU-1",
        nvmlDeviceGetName=lambda h: "NVIDIA GeForce RTX 3060 Laptop GPU",
        nvmlDeviceGetTotalEnergyConsumption=no_counter,
        nvmlDeviceGetComputeRunningProcesses=lambda h: [SimpleNamespace(pid=pid) for pid in pids],
        nvmlDeviceGetMigMode=no_counter,
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)


def test_nvml_gpus_and_what_a_board_does_not_answer(monkeypatch):
    _fake_nvml(monkeypatch)
    assert devices.nvml_gpus() == (Gpu(0, "GPU-1", "NVIDIA GeForce RTX 3060 Laptop GPU", 6.0, 115.0),)


def test_processes_of_other_jobs_on_a_gpu_are_told_of_and_our_own_ranks_are_not(monkeypatch):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        _fake_nvml(monkeypatch, pids=[os.getpid(), os.getppid(), child.pid, 2**30])  # the last is nobody's here
        (alone,) = devices.nvml_gpus()
        _fake_nvml(monkeypatch, pids=[os.getpid(), 1])
        (shared,) = devices.nvml_gpus()
        child.communicate(b"\n")
    assert (alone.n_other_processes, devices.select_gpus([alone], {}).doubt) == (0, "")
    assert shared.n_other_processes == 1 and "1 on GPU 0" in devices.select_gpus([shared], {}).doubt


def test_no_driver_is_no_gpu(monkeypatch):
    _fake_nvml(monkeypatch, fail_with="Driver Not Loaded")
    assert devices.nvml_gpus() == ()


def test_why_the_cpus_counter_is_not_read(tmp_path, monkeypatch):
    state = lambda: devices.cpu_counter_state(rapl_dir=tmp_path / "powercap", root=tmp_path)  # noqa: E731
    monkeypatch.setattr(devices.sys, "platform", "linux")
    assert state() is devices.CounterState.ABSENT
    _write(tmp_path, {"proc/cpuinfo": "flags : fpu hypervisor lahf_lm"})
    assert state() is devices.CounterState.VIRTUAL
    _write(tmp_path, {"powercap/intel-rapl:0/energy_uj": "1"})
    assert state() is devices.CounterState.READABLE
    monkeypatch.setattr(devices.os, "access", lambda path, mode: False)
    assert state() is devices.CounterState.LOCKED
