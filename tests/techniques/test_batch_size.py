"""Batches of another size."""

import pytest
import torch
from techniques.task_samples import digits_task
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler, TensorDataset

from greenlove_tracker.techniques.arm import build_arm
from greenlove_tracker.techniques.loading import with_batch_size
from greenlove_tracker.techniques.technique import NotApplicableError, technique_named
from greenlove_tracker.vocabulary.errors import UsageError


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
        (DataLoader(DATA, batch_sampler=Buckets(SequentialSampler(DATA), 2, False)), "sampler of your own"),
        (DataLoader(DATA, batch_sampler=[[0, 1], [2, 3]]), "sampler of your own"),
        (DataLoader(DATA, batch_size=None), "of your own"),
        (OwnLoader(DATA, 2), "made by a loader"),
        ([torch.ones(2, 3), torch.ones(2, 3)], "ready-made batches"),
    ],
)
def test_batches_of_the_users_own_are_refused_with_the_reason(data, reason):
    with pytest.raises(NotApplicableError, match=reason):
        technique_named("batch-size=4").apply(digits_task() | {"train_dataset": data})


@pytest.mark.parametrize("value", ["=0", "", "=max", "=1.5"])
def test_a_size_that_cannot_be_is_refused_early(value):
    with pytest.raises(UsageError, match="needs a number of samples"):
        technique_named(f"batch-size{value}")


def test_a_batch_of_more_than_all_samples_is_refused():
    with pytest.raises(NotApplicableError, match="2,000 is more than the 1,437 samples"):
        build_arm(digits_task, technique_named("batch-size=2000"))
