"""The position in the data: a resume goes on as an unbroken training, or it is said why not."""

from __future__ import annotations

import io
import itertools
import os
import random

import numpy as np
import pytest
import torch
from torch.utils import data

from greenlove_tracker.checkpointing import data_position
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


class OwnGenerator(Numbers):
    """A data set with a generator of its own, and a count."""

    def __init__(self) -> None:
        super().__init__(is_augmented=False)
        self.generator = np.random.default_rng(7)
        self.n_read = 0

    def __getitem__(self, index):
        self.n_read += 1
        return torch.tensor([float(index), self.generator.random() + self.n_read])


class CountingSampler(data.Sampler):
    """Another order in each pass, by a count of its own."""

    def __init__(self, n: int) -> None:
        self.n, self.n_passes = n, 0

    def __iter__(self):
        self.n_passes += 1
        yield from torch.randperm(self.n, generator=torch.Generator().manual_seed(self.n_passes)).tolist()

    def __len__(self) -> int:
        return self.n


class LazySampler(CountingSampler):
    """Draws each index when it is asked for it, from what is left."""

    def __init__(self, n: int, draw=random.randrange) -> None:
        super().__init__(n)
        self.draw = draw

    def __iter__(self):
        left = list(range(self.n))
        while left:
            yield left.pop(self.draw(len(left)))


def batches_of_any_size(n):
    for first in range(0, n, 5):
        yield list(range(first, min(first + 5, n)))


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
    "batch_sampler, a list": lambda: data.DataLoader(Numbers(), batch_sampler=list(batches_of_any_size(N_SAMPLES))),
    "no batches": lambda: data.DataLoader(Numbers(), batch_size=None, shuffle=True),
    "iterable": lambda: loader(Stream()),
    "generator of the data set, a count": lambda: loader(OwnGenerator(), shuffle=True),
    "a sampler that counts": lambda: loader(sampler=CountingSampler(N_SAMPLES)),
    "a list": lambda: [torch.tensor([float(n)]) for n in range(6)],
    "a tuple of dictionaries": lambda: tuple({"x": np.arange(3) + n, "name": f"n{n}"} for n in range(6)),
    "workers": lambda: loader(shuffle=True, num_workers=2),
    "workers, prefetch_factor": lambda: loader(shuffle=True, num_workers=1, prefetch_factor=4, pin_memory=True),
    "workers, weighted, NumPy": lambda: loader(
        sampler=data.WeightedRandomSampler(WEIGHTS, 40), num_workers=2, worker_init_fn=numpy_seed
    ),
    "workers, iterable": lambda: loader(Stream(noise=random.random), num_workers=2),
    "workers, generator": lambda: loader(shuffle=True, num_workers=2, generator=seeded(9)),
}


def through_a_file(values):
    file = io.BytesIO()
    torch.save(values, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def checkpointed(positioned, *, is_epoch_end=False):
    return through_a_file([positioned.state(is_epoch_end=is_epoch_end), random_state_values()])


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


def unbroken(make, epochs, train=trained):
    """Return what each step of each epoch saw, and what a checkpoint after it holds."""
    seed_all(1)
    batches = make()
    steps, saved = [], {}
    for epoch in range(epochs):
        before_epoch(batches, epoch)
        positioned = PositionedBatches(batches)
        steps.append([])
        for batch in positioned:
            steps[-1].append(train(batch))
            saved[epoch, positioned.n_done] = through_a_file(
                [positioned.state(is_epoch_end=False), random_state_values()]
            )
        saved[epoch, "end"] = through_a_file([positioned.state(is_epoch_end=False), random_state_values()])
        saved[epoch + 1, 0] = through_a_file([positioned.state(is_epoch_end=True), random_state_values()])
    return steps, saved


def resumed(make, epoch, epochs, checkpoint, train=trained):
    """Return what the steps see in another job, and its first pass."""
    state, random_states = checkpoint
    seed_all(1)
    batches = make()
    random.random(), torch.rand(3), np.random.rand(2)
    put_back_random_state_values(random_states)
    steps, first = [], None
    for later in range(epoch, epochs):
        before_epoch(batches, later)
        resume = state if first is None else None
        positioned = PositionedBatches(
            batches, resume=resume, after_replay=lambda: put_back_random_state_values(random_states)
        )
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
    positions = [(0, 1), (1, 2), (1, n), (1, "end"), (2, 0)]
    for epoch, batches in positions[1:4:2] if "workers" in kind else positions:
        checkpoint = saved[epoch, batches]
        assert checkpoint[0]["not_identical"] == []
        again, first = resumed(make, epoch, epochs, checkpoint)
        done = n if batches == "end" else batches
        assert again == [steps[epoch][done:], *steps[epoch + 1 :]], (epoch, batches)
        assert first.not_identical == () and not first.starts_epoch_anew
        assert first.replayed_batches == done and first.n_done == len(steps[epoch])


def test_the_replay_is_timed() -> None:
    _, saved = unbroken(EXACT["shuffled"], 1)
    ticks = itertools.count(10.0, 2.5)
    positioned = PositionedBatches(EXACT["shuffled"](), resume=saved[0, 3][0], perf_s=lambda: next(ticks))
    iter(positioned)
    assert positioned.replay_s == 2.5 and positioned.replayed_batches == positioned.n_done == 3


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_generator_that_the_training_seeds_in_each_epoch_is_left_alone_between_epochs(epoch) -> None:
    def run(first, resume):
        seed_all(1)
        generator = torch.Generator()
        batches, steps, states = loader(Numbers(is_augmented=False), shuffle=True, generator=generator), [], []
        for now in range(first, 3):
            generator.manual_seed(50 + now)
            positioned = PositionedBatches(batches, resume=resume if now == first else None)
            steps.append([trained(batch)[0] for batch in positioned])
            states.append(positioned.state(is_epoch_end=True))
        return steps, states

    steps, states = run(0, None)
    assert run(epoch, states[epoch - 1])[0] == steps[epoch:]


# -- what cannot be replayed --


def draw_from_torch(n):
    return int(torch.randint(n, ()))


def draw_from_numpy(n):
    return int(np.random.randint(n))


LAZY = {
    "sampler": (lambda: loader(sampler=LazySampler(N_SAMPLES)), "LazySampler", "Python's"),
    "sampler, torch": (lambda: loader(sampler=LazySampler(N_SAMPLES, draw_from_torch)), "LazySampler", "torch's"),
    "sampler, NumPy": (lambda: loader(sampler=LazySampler(N_SAMPLES, draw_from_numpy)), "LazySampler", "NumPy's"),
    "sampler with workers": (
        lambda: data.DataLoader(Numbers(), batch_size=1, sampler=LazySampler(N_SAMPLES), num_workers=1),
        "LazySampler",
        "Python's",
    ),
    "iterable": (lambda: loader(Stream(noise=lambda: float(torch.rand(())))), "Stream", "torch's"),
    "own loader": (lambda: OwnLoader(), "OwnLoader", "NumPy's"),
}


class OwnLoader:
    def __iter__(self):
        for _ in range(8):
            yield torch.from_numpy(np.random.rand(2))


@pytest.mark.slow_cases
@pytest.mark.parametrize("kind", LAZY)
def test_an_order_that_is_drawn_on_the_way_is_named_and_the_epoch_begun_anew(kind) -> None:
    make, owner, source = LAZY[kind]
    steps, saved = unbroken(make, 2)
    state = saved[0, 4][0]
    assert len(state["not_identical"]) == 1
    assert owner in state["not_identical"][0] and source in state["not_identical"][0]
    assert saved[1, 0][0]["not_identical"] == []  # between epochs nothing is half drawn
    again, first = resumed(make, 0, 2, saved[0, 4])
    assert first.starts_epoch_anew and first.not_identical == tuple(state["not_identical"])
    assert first.replayed_batches == 0 and len(again[0]) == len(steps[0]) == first.n_done
    assert resumed(make, 1, 2, saved[1, 0])[0] == steps[1:]


@pytest.mark.slow_cases
@pytest.mark.parametrize("kind", LAZY)
def test_an_order_that_is_drawn_on_the_way_is_replayed_where_the_training_draws_nothing(kind) -> None:
    make, _, _ = LAZY[kind]
    steps, saved = unbroken(make, 2, train=lambda batch: repr(batch))
    assert saved[0, 4][0]["not_identical"] == []
    again, first = resumed(make, 0, 2, saved[0, 4], train=lambda batch: repr(batch))
    assert again == [steps[0][4:], steps[1]] and first.not_identical == ()


def test_training_that_draws_where_nobody_looks_is_found_by_the_replay() -> None:
    seed_all(1)
    make = lambda: data.DataLoader(Numbers(is_augmented=False), batch_size=1, sampler=LazySampler(N_SAMPLES))  # noqa: E731
    positioned = PositionedBatches(make())
    for n, _ in enumerate(positioned):
        if n == 7:
            random.random()  # once, far from the first batches
        if n == 9:
            break
    state = through_a_file(positioned.state(is_epoch_end=False))
    again = PositionedBatches(make(), resume=state)
    iter(again)
    assert again.replayed_batches == 10
    assert again.not_identical == (data_position.OTHER_STATE.format(names="Python's random state"),)


def test_a_generator_of_the_loader_that_the_training_draws_from_too() -> None:
    generator = seeded(3)
    make = lambda: loader(sampler=data.RandomSampler(range(N_SAMPLES), True, 90, generator=generator))  # noqa: E731
    positioned = PositionedBatches(make())
    for _ in positioned:
        torch.rand(1, generator=generator)
    assert "random generator 1 of the data (Generator)" in positioned.not_identical[0]


def test_an_order_that_is_drawn_in_pieces_is_found() -> None:
    class InPieces(CountingSampler):
        def __iter__(self):
            for first in range(0, self.n, 8):
                yield from random.sample(range(first, first + 8), 8)

    positioned = PositionedBatches(data.DataLoader(range(48), batch_size=1, sampler=InPieces(48)))
    for _ in itertools.islice(positioned, 12):
        random.random()
    assert "InPieces" in positioned.not_identical[0]


def test_persistent_workers_are_exact_in_their_first_epoch_only() -> None:
    make = lambda: loader(shuffle=True, num_workers=1, persistent_workers=True)  # noqa: E731
    steps, saved = unbroken(make, 2)
    assert saved[0, 2][0]["not_identical"] == []
    assert saved[1, 0][0]["not_identical"] == saved[1, 2][0]["not_identical"] == [data_position.PERSISTENT]
    again, first = resumed(make, 0, 1, saved[0, 2])
    assert again == [steps[0][2:]] and first.not_identical == ()
    again, first = resumed(make, 1, 2, saved[1, 2])
    assert first.starts_epoch_anew and len(again[0]) == len(steps[1])


@pytest.mark.parametrize(
    "make", [lambda: (torch.ones(1) for _ in range(5)), lambda: zip(range(5), range(5), strict=True)]
)
def test_an_iterator_that_existed_already_is_named(make) -> None:
    _, saved = unbroken(make, 1)
    assert "an iterator that existed already" in saved[0, 2][0]["not_identical"][0]
    again, first = resumed(make, 0, 1, saved[0, 2])
    assert first.starts_epoch_anew and len(again[0]) == 5


class Changing(Numbers):
    """Changes what one asks for while it is read."""

    def __init__(self, change) -> None:
        super().__init__(is_augmented=False)
        self.order, self.table, self.array = list(range(N_SAMPLES)), {}, np.arange(N_SAMPLES)
        self.tensor, self.file, self.change = torch.zeros(3), None, change

    def __getitem__(self, index):
        self.change(self, index)
        return super().__getitem__(index)


CHANGES = {
    "order (list)": lambda d, i: d.order.append(i),
    "table (dict)": lambda d, i: d.table.update({i: d.table.get(i, 0) + 1}),
    "array (ndarray)": lambda d, i: d.array.__iadd__(1),
    "tensor (Tensor)": lambda d, i: d.tensor.add_(1),
}


@pytest.mark.parametrize("name", CHANGES)
def test_data_with_state_is_named(name) -> None:
    _, saved = unbroken(lambda: loader(Changing(CHANGES[name])), 1)
    expected = [data_position.STATEFUL.format(names=f"dataset.{name}")]
    assert saved[0, 2][0]["not_identical"] == saved[1, 0][0]["not_identical"] == expected
    assert PositionedBatches(loader(Changing(CHANGES[name])), resume=saved[0, 2][0]).not_identical == ()  # not yet
    _, first = resumed(lambda: loader(Changing(CHANGES[name])), 0, 1, saved[0, 2])
    assert first.starts_epoch_anew


HARMLESS = {
    "a cache": lambda d, i: d.table.setdefault(i, torch.ones(2)),
    "a file that is opened late": lambda d, i: setattr(d, "file", d.file or io.BytesIO()),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_caches_and_files_are_no_state(name) -> None:
    _, saved = unbroken(lambda: loader(Changing(HARMLESS[name])), 1)
    assert saved[0, 2][0]["not_identical"] == []


# -- another loader at the resume --


def test_another_number_of_workers_or_samples_begins_the_epoch_anew() -> None:
    _, saved = unbroken(lambda: loader(shuffle=True), 1)
    for other, words in (
        (loader(shuffle=True, num_workers=1), "workers 1 instead of 0"),
        (loader(shuffle=True, batch_size=2), "batch size 2 instead of 4"),
        (loader(data.Subset(Numbers(), range(9)), shuffle=True), "samples 9 instead of 22"),
        (loader(shuffle=True, generator=seeded(1)), "1 random generators instead of 0"),
    ):
        positioned = PositionedBatches(other, resume=saved[0, 2][0])
        iter(positioned)
        assert positioned.starts_epoch_anew and positioned.n_done == 0
        assert positioned.not_identical == (data_position.OTHER_LOADER.format(differences=words),)


def test_other_data_is_noticed() -> None:
    make = lambda offset: loader([torch.tensor([float(n + offset)]) for n in range(N_SAMPLES)])  # noqa: E731
    _, saved = unbroken(lambda: make(0), 1)
    positioned = PositionedBatches(make(1), resume=saved[0, 3][0])
    iter(positioned)
    assert positioned.not_identical == (data_position.OTHER_BATCH.format(n=3),) and positioned.n_done == 3
    assert positioned.state(is_epoch_end=False)["can_be_replayed"]  # the next resume need not begin anew for that


def test_fewer_batches_than_before_begin_anew() -> None:
    class Short:
        def __iter__(self):
            return iter([torch.ones(1)] * 2)

    state = PositionedBatches(Short()).state(is_epoch_end=False) | {"batches": 5}
    positioned = PositionedBatches(Short(), resume=state)
    assert len(list(positioned)) == 2 and positioned.starts_epoch_anew
    assert positioned.not_identical == (data_position.ENDED,)


# -- it does not disturb --


@pytest.mark.slow_cases
@pytest.mark.parametrize("kind", ["shuffled", "weighted", "iterable", "workers", "a sampler that counts"])
def test_a_training_draws_what_it_would_draw_without_us(kind) -> None:
    seed_all(1)
    plain = EXACT[kind]()
    expected = [[trained(batch) for batch in plain] for _ in range(2)]
    assert unbroken(EXACT[kind], 2)[0] == expected


def test_errors_of_a_loader_reach_the_training() -> None:
    class Failing(Numbers):
        def __getitem__(self, index):
            raise OSError("the disk is away")

    with pytest.raises(OSError, match="the disk is away"):
        list(PositionedBatches(loader(Failing())))


def test_the_worker_processes_end() -> None:
    positioned = PositionedBatches(loader(num_workers=1))
    next(iter(positioned))
    workers = [worker.pid for worker in positioned._iterator._workers]
    del positioned
    for pid in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_random_states_are_looked_at_in_few_batches(monkeypatch) -> None:
    looks = []
    states = data_position.RandomUse.states
    monkeypatch.setattr(data_position.RandomUse, "states", lambda use: looks.append(1) or states(use))
    assert len(list(PositionedBatches([torch.ones(1)] * 2000))) == 2000
    assert 30 < len(looks) < 100  # each takes some 0.1 ms


def test_the_kind_of_position_matters() -> None:
    positioned = PositionedBatches(loader(shuffle=True, num_workers=1, persistent_workers=True))
    next(iter(positioned))
    assert positioned.not_identical == positioned.why_not_identical(is_epoch_end=False) == ()
    assert positioned.why_not_identical(is_epoch_end=True) == (data_position.PERSISTENT,)


class ProgressBar:
    """As tqdm: an iterable around a loader."""

    def __init__(self, iterable) -> None:
        self.iterable, self.n = iterable, 0

    def __iter__(self):
        for batch in self.iterable:
            yield batch
            self.n += 1


@pytest.mark.parametrize("workers", [0, 1])
def test_a_progress_bar_around_a_loader_is_looked_through(workers) -> None:
    make = lambda: ProgressBar(loader(shuffle=True, num_workers=workers, generator=seeded(5)))  # noqa: E731
    steps, saved = unbroken(make, 2)
    assert saved[1, 2][0]["not_identical"] == []
    again, first = resumed(make, 1, 2, saved[1, 2])
    assert again == [steps[1][2:]] and first.not_identical == ()


@pytest.mark.skipif("in_order" not in data.DataLoader.__init__.__code__.co_varnames, reason="of torch 2.6")
def test_batches_in_no_order_are_named() -> None:
    make = lambda: loader(shuffle=True, num_workers=2, in_order=False)  # noqa: E731
    _, saved = unbroken(make, 1)
    assert saved[0, 2][0]["not_identical"] == saved[1, 0][0]["not_identical"] == [data_position.OUT_OF_ORDER]
    assert resumed(make, 0, 1, saved[0, 2])[1].starts_epoch_anew


def test_a_list_that_is_shuffled_in_place_at_the_start_of_each_pass_is_named() -> None:
    class Shuffled(Stream):
        def __init__(self) -> None:
            super().__init__()
            self.order = list(range(N_SAMPLES))

        def __iter__(self):
            random.shuffle(self.order)
            yield from self.order

    positioned = PositionedBatches(loader(Shuffled()))
    next(iter(positioned))
    assert positioned.not_identical == (data_position.STATEFUL.format(names="dataset.order (list)"),)


def test_an_order_that_is_made_anew_in_each_pass_is_no_state() -> None:
    class MadeAnew(Stream):
        order = None

        def __iter__(self):
            self.order = np.random.permutation(N_SAMPLES)
            yield from self.order

    make = lambda: loader(MadeAnew())  # noqa: E731
    steps, saved = unbroken(make, 3)
    assert saved[1, 2][0]["not_identical"] == []
    assert resumed(make, 1, 3, saved[1, 2])[0] == [steps[1][2:], steps[2]]
