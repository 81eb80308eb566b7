"""Workers and pinned memory: the same batches, loaded otherwise."""

import pytest
import torch
from techniques.task_samples import digits_task
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from greenlove_tracker.techniques import loading
from greenlove_tracker.techniques.arm import build_arm
from greenlove_tracker.techniques.technique import NotApplicableError, technique_named
from greenlove_tracker.vocabulary.errors import UsageError

DATA = TensorDataset(torch.arange(40.0).reshape(20, 2), torch.arange(20))


def stacked(samples):
    return torch.stack([x for x, _ in samples]) + 100, torch.stack([y for _, y in samples])


def with_data(data, **more):
    return lambda: {**digits_task(), "train_dataset": data, **more}


def test_workers_give_the_same_batches_and_are_closed():
    loader = DataLoader(DATA, 6, shuffle=True, collate_fn=stacked, generator=torch.Generator(), drop_last=True)
    arm = build_arm(with_data(loader), technique_named("num-workers=2"))
    found = {}
    for name, begin in (("plain", lambda: iter(loader)), ("workers", lambda: arm.source.first(3))):
        loader.generator.manual_seed(7)  # before: workers load ahead
        found[name] = [labels.tolist() for _, labels in begin()]
    assert found["workers"] == found["plain"]
    assert len(found["plain"]) == 3
    images, _ = next(arm.source.first(1))
    assert float(images.min()) >= 100
    workers = arm.source._loader._iterator._workers
    assert len(workers) == 2
    arm.source.close()
    assert not any(worker.is_alive() for worker in workers)


def test_a_data_set_becomes_a_loader_of_its_batch_size():
    loader = technique_named("num-workers=2").apply(with_data(DATA, batch_size=8)())["train_dataset"]
    assert (loader.batch_size, loader.num_workers, loader.persistent_workers) == (8, 2, True)
    assert technique_named("num-workers=1").apply(with_data(DATA)())["train_dataset"].batch_size == 64


def test_workers_can_be_left_out():
    loader = DataLoader(DATA, 4, num_workers=2, prefetch_factor=3, persistent_workers=True, timeout=5)
    changed = technique_named("num-workers=0").apply(with_data(loader)())["train_dataset"]
    assert (changed.num_workers, changed.prefetch_factor, changed.timeout) == (0, None, 0)
    assert technique_named("num-workers=3").apply(with_data(loader)())["train_dataset"].prefetch_factor == 3


class Stream(IterableDataset):
    def __iter__(self):
        return iter(DATA)


@pytest.mark.parametrize("data", [Stream(), DataLoader(Stream(), 4), [next(iter(DataLoader(DATA, 4)))]])
def test_streams_are_refused(data):
    with pytest.raises(NotApplicableError, match="are a stream"):
        build_arm(with_data(data), technique_named("num-workers=2"))


def test_what_cannot_be_is_said():
    for name in ("num-workers=-1", "num-workers=many", "pin-memory=2"):
        with pytest.raises(UsageError):
            technique_named(name)


def test_batches_are_pinned(monkeypatch):
    monkeypatch.setattr(loading, "device_of_parts", lambda *_: torch.device("cuda", 0))
    assert technique_named("pin-memory").apply(with_data(DATA)())["train_dataset"].pin_memory
