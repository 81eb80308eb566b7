"""The peak memory of a training on a CPU, against what torch's allocator says; and whose memory of a GPU is whose."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from greenlove_tracker.exploration.peak_memory import (  # noqa: E402
    TrainingStep,
    cuda_peak,
    peak_of_steps,
    storage_bytes,
)

CPU = torch.device("cpu")


def allocated_peak_bytes(step):
    """The peak of what a step allocates beyond what there was, by torch's profiler."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns() if hasattr(e, "start_ns") else e.start_us()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 400)), (128, 400)),
    "cnn": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(2048, 10)
        ),
        (128, 1, 8, 8),
    ),
    "transformer": (lambda: nn.TransformerEncoderLayer(64, 4, 256, batch_first=True), (16, 64, 64)),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_peak_of_a_step_is_the_allocators(name):
    make, shape = MODELS[name]
    model, inputs = make(), torch.randn(shape)
    optimizer = torch.optim.Adam(model.parameters())

    def step(inputs):
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    step(inputs)
    training = TrainingStep((model,), (optimizer,), step, CPU)
    found = peak_of_steps(training, iter([inputs]), as_on_gpu=False, most_batches=1)
    optimizer.zero_grad()  # the profiler does not see what was there before go
    kept = storage_bytes([*training.kept_tensors(), inputs], CPU)
    assert found.peak_bytes == pytest.approx(kept + allocated_peak_bytes(lambda: step(inputs)), rel=0.05)


def test_without_a_gpu_no_peak_is_made_up():
    with cuda_peak(list, CPU) as peak:
        assert peak() is None


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
    with cuda_peak(lambda: own, torch.device("cuda", 0)) as peak:
        assert peak() == 1040
