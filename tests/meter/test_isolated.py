"""The meter in a process of its own: it sees no change of the script's environment, and ends with the training."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from greenlove_tracker.meter import isolated
from greenlove_tracker.meter.isolated import IsolatedMeter

pytestmark = pytest.mark.real

FOUR_GPUS = (
    "import greenlove_tracker.meter.codecarbon as m\n"
    "from greenlove_tracker.devices import Gpu\n"
    "m.nvml_gpus = lambda: tuple(Gpu(i, f'GPU-{i}', 'H200', 140.0, 700.0, True) for i in range(4))\n"
)


@pytest.mark.parametrize("has_gpus", [True, False])
def test_the_gpus_that_the_script_names_later_are_handed_over(monkeypatch, has_gpus):
    if has_gpus:
        monkeypatch.setattr(isolated, "_CHILD", isolated._CHILD.replace("serve(given", FOUR_GPUS + "serve(given"))
    env = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    meter = IsolatedMeter({"requests": "requests.py"}, env, {"carbon_intensity_gco2e_per_kwh": 1.0})
    try:
        before = meter.start()
        found = meter.reselect_gpus({**env, "CUDA_VISIBLE_DEVICES": "1,2"})
        assert meter.read().ram_kwh is not None  # questions and answers are still in step
        assert meter.reselect_gpus({**env, "CUDA_VISIBLE_DEVICES": "1,2"}) == found
    finally:
        meter.stop()
    if has_gpus:
        fields = {f.name: f.value for f in found.fields}
        assert (before.gpu_count, found.gpu_count, fields["gpu_models"]) == (4, 2, "2 × H200")
        assert fields["meter_isolated_from"] == "requests.py"
    else:
        assert found is None or found.gpu_count <= 2  # a machine with GPUs of its own


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="NOT TESTED: no forks here")

SCRIPT = """
import os, time
from greenlove_tracker.meter.isolated import IsolatedMeter
meter = IsolatedMeter({"requests": "requests.py"}, os.environ, {"carbon_intensity_gco2e_per_kwh": 458.0})
meter.start()
child = os.fork()
if child == 0:
    time.sleep(120)
    os._exit(0)
print(meter._child.pid, child, flush=True)
time.sleep(120)
"""


def has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:  # no Linux, or this very moment
        return False
    return stat.rpartition(")")[2].split()[0] == "Z"  # nobody here waits for orphans


@needs_fork
def test_the_process_ends_with_a_killed_training_though_a_forked_child_lives():
    training = subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True)
    assert training.stdout is not None
    meter, child = (int(pid) for pid in training.stdout.readline().split())
    try:
        training.kill()
        training.wait()
        until_s = time.monotonic() + 20
        while not has_ended(meter):
            assert time.monotonic() < until_s, "the meter outlives its training"
            time.sleep(0.05)
        assert not has_ended(child)
    finally:
        os.kill(child, signal.SIGKILL)


@needs_fork
def test_a_stopped_meter_leaves_no_process_and_no_zombie():
    meter = IsolatedMeter({"requests": "requests.py"}, os.environ, {"carbon_intensity_gco2e_per_kwh": 458.0})
    meter.start()
    child = meter._child
    assert child is not None and meter.read().is_known
    meter.stop()
    meter.stop()
    assert child.returncode == 0
    with pytest.raises(ChildProcessError):
        os.waitpid(child.pid, 0)
