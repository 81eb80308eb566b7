"""The meter in a process of its own, which sees no change of the script's environment by itself."""

from __future__ import annotations

import os

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
