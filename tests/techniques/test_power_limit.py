"""A lower power limit as a technique: what it is in W, and why it cannot be."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from fake_nvml import UUID, FakeNvml
from techniques.task_samples import digits_task

from greenlove_tracker.errors import UsageError
from greenlove_tracker.techniques import power_limit
from greenlove_tracker.techniques.technique import NotApplicableError, technique_named


@pytest.fixture
def gpu(tmp_path, monkeypatch):
    """A GPU of 600 W (by default 700 W) that the model lies on; there is none here."""
    fake = FakeNvml(tmp_path / "nvml")
    monkeypatch.syspath_prepend(str(fake.directory))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (fake.directory, Path(__file__).parents[2]))))
    monkeypatch.setattr(power_limit, "device_of", lambda model, device: torch.device("cuda:0"))
    found = SimpleNamespace(uuid=UUID.removeprefix("GPU-"))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: found)
    monkeypatch.setattr(power_limit, "_cuda_indices", lambda model: [0])
    return fake


def test_the_limit_is_put_back(gpu):
    technique = technique_named("power-limit=250")
    technique.apply(digits_task())
    assert gpu.limit_w == 600.0
    with technique.active():
        assert gpu.limit_w == 250.0
    assert gpu.limit_w == 600.0
    with pytest.raises(ValueError), technique.active():
        raise ValueError("training failed")
    assert gpu.limit_w == 600.0


def test_others_on_the_gpu_are_not_slowed_down(gpu, monkeypatch):
    shared = [SimpleNamespace(uuid=UUID, index=0, name="NVIDIA H100", n_other_processes=1)]
    monkeypatch.setattr(power_limit, "nvml_gpus", lambda: shared)
    with pytest.raises(NotApplicableError, match="others compute on the GPU"):
        technique_named("power-limit=300").apply(digits_task())


def test_a_part_of_a_gpu_is_refused(gpu, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid="9z"))
    with pytest.raises(NotApplicableError, match="MIG"):
        technique_named("power-limit=300").apply(digits_task())


@pytest.mark.parametrize("text", ["power-limit", "power-limit=0", "power-limit=80%", "power-limit=low"])
def test_a_value_that_cannot_be_is_refused_early(text):
    with pytest.raises(UsageError, match="such as power-limit=250"):
        technique_named(text)
