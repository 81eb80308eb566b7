"""Batches of another size, and of the largest that fits."""

import random
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from techniques.task_samples import digits_task, transformer_task
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler, TensorDataset

from greenlove_tracker.errors import UsageError
from greenlove_tracker.techniques import batch_size
from greenlove_tracker.techniques.arm import build_arm
from greenlove_tracker.techniques.batch_size import largest_that_fits, with_batch_size
from greenlove_tracker.techniques.technique import NotApplicableError, technique_named


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Look on the CPU as on a GPU; no search ends early because the machine is slow."""
    monkeypatch.setattr(batch_size, "largest_that_fits", partial(largest_that_fits, perf_s=lambda: 0.0))
    monkeypatch.setattr(batch_size, "device_of", lambda *_: torch.device("cuda", 0))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)


def test_batches_are_of_the_size_and_all_else_stays():
    arm = build_arm(digits_task, technique_named("batch-size=100"))
    sizes = [len(inputs) for inputs, _ in arm.source.first(arm.source.batches_per_epoch)]
    assert sizes == [100] * 14 + [37] and arm.source.batch_size == 100
    assert "learning rate" in arm.note


def test_sampler_order_collating_and_a_dropped_last_batch_are_the_users():
    data = TensorDataset(torch.arange(50))
    generator = torch.Generator().manual_seed(4)
    sampler = torch.utils.data.SubsetRandomSampler(range(10, 40), generator=generator)
    loader = DataLoader(data, 4, sampler=sampler, drop_last=True, collate_fn=lambda items: len(items))
    resized = with_batch_size({"train_dataset": loader}, 8)["train_dataset"]
    assert resized.sampler is sampler and resized.drop_last and list(resized) == [8, 8, 8]
    assert loader.batch_size == 4


def test_a_data_set_and_a_stream_are_resized_too():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(range(10))

    data = TensorDataset(torch.arange(50))
    assert with_batch_size({"train_dataset": data}, 8) == {"train_dataset": data, "batch_size": 8}
    assert with_batch_size({"train_dataset": Stream()}, 8)["batch_size"] == 8
    resized = with_batch_size({"train_dataset": DataLoader(Stream(), 2)}, 5)["train_dataset"]
    assert [len(batch) for batch in resized] == [5, 5]


class OwnLoader(DataLoader):
    pass


class Buckets(BatchSampler):
    pass


DATA = TensorDataset(torch.arange(8.0))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (DataLoader(DATA, batch_sampler=Buckets(SequentialSampler(DATA), 2, False)), "made by Buckets"),
        (DataLoader(DATA, batch_sampler=[[0, 1], [2, 3]]), "made by list"),
        (DataLoader(DATA, batch_size=None), "batch_size=None"),
        (OwnLoader(DATA, 2), "OwnLoader is a loader of your own kind"),
        ([torch.ones(2, 3), torch.ones(2, 3)], "ready-made batches"),
    ],
)
@pytest.mark.parametrize("name", ["batch-size=4", "batch-size=max"])
def test_batches_of_the_users_own_are_refused_with_the_reason(as_on_a_gpu, data, reason, name):
    with pytest.raises(NotApplicableError, match=reason):
        technique_named(name).apply(digits_task() | {"train_dataset": data})


@pytest.mark.parametrize("value", ["=0", "", "=most", "=1.5"])
def test_a_size_that_cannot_be_is_refused_early(value):
    with pytest.raises(UsageError, match="needs a number of samples"):
        technique_named(f"batch-size{value}")


def test_a_batch_of_more_than_all_samples_is_refused():
    with pytest.raises(NotApplicableError, match="2,000 is more than the 1,437 samples"):
        build_arm(digits_task, technique_named("batch-size=2000"))


@given(st.integers(0, 3000), st.integers(1, 3000), st.integers(1, 3000))
def test_the_true_largest_is_found(limit, most, begin):
    tried = []
    found = largest_that_fits(lambda n: tried.append(n) or n <= limit, most, begin=begin)
    assert found == (min(limit, most), True)
    assert all(1 <= n <= most for n in tried) and len(set(tried)) == len(tried) <= 30


@pytest.mark.slow
def test_the_whole_data_set_is_the_most(as_on_a_gpu):
    arm = build_arm(transformer_task, technique_named("batch-size=max"))
    assert arm.source.batch_size == 512 and arm.source.batches_per_epoch == 1


def test_the_largest_is_not_looked_for_on_a_cpu():
    with pytest.raises(NotApplicableError, match="the model is on the cpu"):
        build_arm(transformer_task, technique_named("batch-size=max"))


def out_of_memory_above(limit, error):
    def task():
        def step(model, batch, optimizer, criterion, device):
            if len(batch[0]) > limit:
                held = [torch.ones(10), batch]
                held.append(held)  # a circle, as a traceback makes it
                raise error
            optimizer.zero_grad()
            loss = criterion(model(batch[0]), batch[1])
            loss.backward()
            optimizer.step()
            random.random()
            return loss

        return digits_task() | {"train_step": step}

    return task


@pytest.mark.slow
@pytest.mark.parametrize(
    "error", [torch.cuda.OutOfMemoryError("CUDA out of memory"), RuntimeError("CUBLAS_STATUS_ALLOC_FAILED")]
)
def test_what_a_gpu_refuses_is_larger_than_the_largest_and_leaves_no_trace(as_on_a_gpu, error):
    task = out_of_memory_above(333, error)
    arm = build_arm(task, technique_named("batch-size=max"))
    state = random.getstate(), torch.get_rng_state()
    assert arm.source.batch_size == 333
    plain = build_arm(task)
    assert all(
        torch.equal(ours, theirs)
        for ours, theirs in zip(
            arm.parts["model"].state_dict().values(), plain.parts["model"].state_dict().values(), strict=True
        )
    )
    assert not arm.parts["optimizer"].state and state[0] == random.getstate()
    assert torch.equal(state[1], torch.get_rng_state())


@pytest.mark.slow
def test_no_sample_that_fits_is_said(as_on_a_gpu):
    with pytest.raises(NotApplicableError, match="not even a batch of one sample"):
        build_arm(out_of_memory_above(0, torch.cuda.OutOfMemoryError("no")), technique_named("batch-size=max"))
