"""A lower power limit as a technique: what it is in W, and why it cannot be."""

import sys
from types import SimpleNamespace

import pytest
import torch
from techniques.task_samples import digits_task

from greenlove_tracker.techniques import power_limit
from greenlove_tracker.techniques.technique import NotApplicableError, technique_named
from greenlove_tracker.vocabulary.errors import UsageError


@pytest.fixture
def gpu(monkeypatch):
    """A GPU of 600 W that the model lies on, alone; there is none here."""
    found = SimpleNamespace(uuid="GPU-1a2b", n_other_processes=0, limit_mw=600_000)
    nvml = SimpleNamespace(
        NVMLError=OSError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: found,
        nvmlDeviceGetPowerManagementLimit=lambda gpu: gpu.limit_mw,
        nvmlDeviceGetPowerManagementLimitConstraints=lambda gpu: (100_000, 700_000),
        nvmlDeviceSetPowerManagementLimit=lambda gpu, limit_mw: setattr(gpu, "limit_mw", limit_mw),
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(power_limit, "device_of_parts", lambda parts: torch.device("cuda:0"))
    monkeypatch.setattr(power_limit, "nvml_gpus", lambda: [found])
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid="1a2b"))
    monkeypatch.setattr(power_limit, "_cuda_indices", lambda model: [0])
    return found


def test_the_limit_is_put_back(gpu):
    technique = technique_named("power-limit=250")
    technique.apply(digits_task())
    assert gpu.limit_mw == 600_000
    with pytest.raises(ValueError), technique.active():
        assert gpu.limit_mw == 250_000
        raise ValueError("training failed")
    assert gpu.limit_mw == 600_000


@pytest.mark.parametrize(
    ("other", "message"),
    [({"n_other_processes": 1}, "others compute on the GPU"), ({"uuid": "GPU-9z"}, "NVML does not show .*MIG")],
)
def test_where_it_cannot_be_used_it_says_why(gpu, other, message):
    vars(gpu).update(other)
    with pytest.raises(NotApplicableError, match=message):
        technique_named("power-limit=300").apply(digits_task())


@pytest.mark.parametrize("text", ["power-limit", "power-limit=0", "power-limit=80%", "power-limit=low"])
def test_a_value_that_cannot_be_is_refused_early(text):
    with pytest.raises(UsageError, match="such as power-limit=250"):
        technique_named(text)
