"""The position in the data: a resume goes on as an unbroken training."""

from __future__ import annotations

import io
import random

import numpy as np
import pytest
import torch
from torch.utils import data

from greenlove_tracker.checkpointing.data_position import PositionedBatches
from greenlove_tracker.exploration.random_state import put_back_random_state_values, random_state_values

N_SAMPLES, BATCH = 22, 4


class Numbers(data.Dataset):
    """Samples that a transform changes at random, from all three global random states."""

    def __init__(self, *, is_augmented: bool = True) -> None:
        self.is_augmented = is_augmented

    def __len__(self) -> int:
        return N_SAMPLES

    def __getitem__(self, index):
        noise = float(torch.rand(())) + random.random() + np.random.rand() if self.is_augmented else 0.0
        return torch.tensor([float(index), noise])


class Stream(data.IterableDataset):
    """Samples in a row, each worker its own, with random noise where wanted."""

    def __init__(self, noise=None) -> None:
        self.noise = noise

    def __iter__(self):
        worker = data.get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker is not None else (0, 1)
        order = np.random.permutation(range(first, N_SAMPLES, step))  # drawn at the beginning of the pass
        for index in order:
            yield torch.tensor([float(index), self.noise() if self.noise else 0.0])


class CountingSampler(data.Sampler):
    """Another order in each pass, by a count of its own."""

    def __init__(self, n: int) -> None:
        self.n, self.n_passes = n, 0

    def __iter__(self):
        self.n_passes += 1
        yield from torch.randperm(self.n, generator=torch.Generator().manual_seed(self.n_passes)).tolist()

    def __len__(self) -> int:
        return self.n


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def numpy_seed(worker):
    np.random.seed(torch.initial_seed() % 2**31 + worker)


def stacked(samples):
    return {"x": torch.stack(samples), "noise": torch.rand(2)}


def loader(dataset=None, **arguments):
    return data.DataLoader(Numbers() if dataset is None else dataset, **{"batch_size": BATCH, **arguments})


WEIGHTS = [1.0 + index for index in range(N_SAMPLES)]
EXACT = {
    "in order": lambda: loader(),
    "shuffled": lambda: loader(shuffle=True),
    "loader's generator": lambda: loader(shuffle=True, generator=seeded(3)),
    "loader's generator, replacement": lambda: loader(
        sampler=data.RandomSampler(range(N_SAMPLES), replacement=True, num_samples=90, generator=seeded(3))
    ),
    "weighted": lambda: loader(sampler=data.WeightedRandomSampler(WEIGHTS, 30)),
    "weighted with a generator": lambda: loader(sampler=data.WeightedRandomSampler(WEIGHTS, 30, generator=seeded(1))),
    "replacement": lambda: loader(sampler=data.RandomSampler(range(N_SAMPLES), replacement=True, num_samples=40)),
    "subset": lambda: loader(sampler=data.SubsetRandomSampler(range(5, 21))),
    "distributed": lambda: loader(sampler=data.DistributedSampler(range(N_SAMPLES), num_replicas=2, rank=1)),
    "Subset, collate_fn, drop_last": lambda: loader(
        data.Subset(Numbers(), range(3, 20)), shuffle=True, collate_fn=stacked, drop_last=True
    ),
    "batch_sampler": lambda: data.DataLoader(
        Numbers(), batch_sampler=data.BatchSampler(data.RandomSampler(range(N_SAMPLES)), 3, drop_last=False)
    ),
    "no batches": lambda: data.DataLoader(Numbers(), batch_size=None, shuffle=True),
    "workers": lambda: loader(shuffle=True, num_workers=2),
    "workers, prefetch_factor": lambda: loader(shuffle=True, num_workers=1, prefetch_factor=4, pin_memory=True),
    "workers, weighted, NumPy": lambda: loader(
        sampler=data.WeightedRandomSampler(WEIGHTS, 40), num_workers=2, worker_init_fn=numpy_seed
    ),
    "workers, iterable": lambda: loader(Stream(noise=random.random), num_workers=2),
    "workers, generator": lambda: loader(shuffle=True, num_workers=2, generator=seeded(9)),
}


EXACT |= {
    "iterable": lambda: loader(Stream()),
    "a sampler that counts": lambda: loader(sampler=CountingSampler(N_SAMPLES)),
    "batch_sampler, a list": lambda: data.DataLoader(Numbers(), batch_sampler=[[0, 3], [1], [2, 4, 5], [6]]),
    "a list": lambda: [torch.tensor([float(n)]) for n in range(6)],
}


def through_a_file(values):
    file = io.BytesIO()
    torch.save(values, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def seed_all(seed):
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def trained(batch):
    """Return what a step sees: the batch, and random numbers of its own."""
    plain = repr([part.tolist() if hasattr(part, "tolist") else part for part in leaves(batch)])
    return plain, float(torch.rand(())), random.random(), np.random.rand()


def leaves(batch):
    return list(batch.values()) if isinstance(batch, dict) else [batch]


def before_epoch(batches, epoch):
    sampler = getattr(batches, "sampler", None)
    if isinstance(sampler, data.DistributedSampler):
        sampler.set_epoch(epoch)


def checkpointed(positioned, *, is_epoch_end=False):
    return through_a_file([positioned.state(is_epoch_end=is_epoch_end), random_state_values()])


def unbroken(make, epochs, train=trained):
    """Return what each step of each epoch saw, and what a checkpoint after it holds."""
    seed_all(1)
    batches, positioned = make(), None
    steps, saved = [], {}
    for epoch in range(epochs):
        before_epoch(batches, epoch)
        positioned = PositionedBatches(batches)
        positioned.begin({})
        steps.append([])
        for batch in positioned:
            steps[-1].append(train(batch))
            saved[epoch, positioned.n_done] = checkpointed(positioned)
        saved[epoch + 1, 0] = checkpointed(positioned, is_epoch_end=True)
    return steps, saved


def resumed(make, epoch, epochs, checkpoint, train=trained):
    """Return what the steps see in another job, and its first pass."""
    state, random_states = checkpoint
    seed_all(1)
    batches, first, positioned = make(), None, None
    random.random(), torch.rand(3), np.random.rand(2)
    put_back_random_state_values(random_states)
    steps = []
    for later in range(epoch, epochs):
        before_epoch(batches, later)
        positioned = PositionedBatches(batches)
        positioned.begin(state if first is None else {})
        if first is None and state["batches"]:
            put_back_random_state_values(random_states)
        first = first or positioned
        steps.append([train(batch) for batch in positioned])
    return steps, first


@pytest.mark.slow_cases
@pytest.mark.filterwarnings("ignore:.*pin_memory.*no accelerator")
@pytest.mark.parametrize("kind", EXACT)
def test_a_resume_goes_on_as_an_unbroken_training(kind) -> None:
    make, epochs = EXACT[kind], 3
    steps, saved = unbroken(make, epochs)
    assert len(steps[0]) > 2 and steps[0] != steps[1]
    n = len(steps[1])
    positions = [(0, 1), (1, 2), (1, n), (2, 0)]
    for epoch, done in positions[1:2] if "workers" in kind else positions:
        again, first = resumed(make, epoch, epochs, saved[epoch, done])
        if kind != "a sampler that counts":  # its count is its own, and is not saved
            assert again == [steps[epoch][done:], *steps[epoch + 1 :]], (epoch, done)
        assert first.n_done == len(steps[epoch])


# -- another loader at the resume --


def test_another_loader_is_noticed_by_its_first_batch() -> None:
    _, saved = unbroken(lambda: loader(shuffle=True), 1)
    for other in (
        loader(shuffle=True, num_workers=1),
        loader(shuffle=True, batch_size=2),
        loader(data.Subset(Numbers(), range(9)), shuffle=True),
        loader(shuffle=True, generator=seeded(1)),
    ):
        positioned = PositionedBatches(other)
        positioned.begin(saved[0, 2][0])
        assert positioned.n_done == 2  # as many batches are passed over
        assert positioned.differ


def test_other_data_is_noticed() -> None:
    make = lambda offset: loader([torch.tensor([float(n + offset)]) for n in range(N_SAMPLES)])  # noqa: E731
    _, saved = unbroken(lambda: make(0), 1)
    positioned = PositionedBatches(make(1))
    positioned.begin(saved[0, 3][0])
    assert positioned.differ and positioned.n_done == 3


def test_fewer_batches_than_before_are_noticed() -> None:
    class Short:
        def __iter__(self):
            return iter([torch.ones(1)] * 2)

    _, saved = unbroken(Short, 1)
    positioned = PositionedBatches(Short())
    positioned.begin(saved[0, 2][0] | {"batches": 5})
    assert list(positioned) == []
    assert positioned.differ


# -- it does not disturb --
