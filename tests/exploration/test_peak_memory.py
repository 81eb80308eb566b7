"""The peak memory of a training on a CPU, against what torch's allocator says; and whose memory of a GPU is whose."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from greenlove_tracker.exploration.peak_memory import (  # noqa: E402
    started_cuda_peak,
    storage_bytes,
)

CPU = torch.device("cpu")


def test_without_a_gpu_no_peak_is_made_up():
    assert started_cuda_peak([], CPU)() is None


def test_memory_is_counted_on_one_of_several_gpus():
    with FakeTensorMode():  # has the devices that it is told of
        spread = [torch.empty(n, device=f"cuda:{i}") for i, n in enumerate((10, 200, 3000))]
        spread += [spread[1].view(20, 10), torch.empty(40_000)]
    found = [storage_bytes(spread, torch.device(name)) for name in ("cuda:0", "cuda:1", "cuda:2", "cuda:3", "cpu")]
    assert found == [40, 800, 12_000, 0, 160_000]


def test_what_others_hold_on_the_gpu_is_not_the_trainings(monkeypatch):
    """Others hold 500 bytes of this GPU; the training has tensors of 40 and 800 bytes on two."""
    allocated = {torch.device("cuda", 0): 540, torch.device("cuda", 1): 800}
    monkeypatch.setattr(torch.cuda, "memory_allocated", allocated.__getitem__)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: None)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 1540)
    with FakeTensorMode():
        own = [torch.empty(10, device="cuda:0"), torch.empty(200, device="cuda:1")]
    assert started_cuda_peak(own, torch.device("cuda", 0))() == 1040
