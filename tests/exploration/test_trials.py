"""Where batches come from: loaders, streams, lists, and what is neither."""

from __future__ import annotations

from collections import defaultdict, namedtuple

import pytest

torch = pytest.importorskip("torch")

from fakes import FakeClock  # noqa: E402
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, TensorDataset  # noqa: E402

from greenlove_tracker.exploration.adaptive import TrialRequest  # noqa: E402
from greenlove_tracker.exploration.trials import BatchSource, LoaderSource, map_tensors, run_trial, source_of  # noqa: E402
from greenlove_tracker.vocabulary.errors import UsageError  # noqa: E402


class Stream(IterableDataset):
    def __init__(self, n, length=None):
        self.n, self.length = n, length

    def __iter__(self):
        return (torch.tensor([float(i)]) for i in range(self.n))


class Sized(Stream):
    def __len__(self):
        return self.n


DATA = TensorDataset(torch.arange(640.0)[:, None], torch.arange(640))


def test_a_bare_iterable_data_set_is_batched_as_asked():
    source = source_of(Stream(100), 8)
    assert type(source) is BatchSource and source.batches_per_epoch is None
    assert [len(batch) for batch in source.first(3)] == [8, 8, 8]
    assert source_of(Sized(100), 8).batches_per_epoch == 13  # and torch's own complaint about shuffling is not raised


def test_a_list_is_one_of_batches_unless_its_items_are_samples():
    batches = [(torch.zeros(4, 3), torch.zeros(4))] * 10
    assert (source_of(batches, 64).batches_per_epoch, source_of([None] * 7, 64).batches_per_epoch) == (10, 7)
    samples = [(torch.zeros(3), torch.tensor(1))] * 640
    source = source_of(samples, 64)
    assert (source.batches_per_epoch, source.samples_per_epoch) == (10, 640)
    assert next(source.first(1))[0].shape == (64, 3)
    assert source_of([{"x": torch.zeros(4, 2), "y": torch.zeros(4)}] * 3, 64).batches_per_epoch == 3


def test_a_stream_without_length_is_begun_anew_where_it_ends_and_one_with_length_is_not():
    assert [b.item() for b in source_of(DataLoader(Stream(3), 1), 1).first(7)] == [0, 1, 2, 0, 1, 2, 0]
    assert len(list(source_of(DataLoader(Sized(3), 1), 1).first(7))) == 3
    assert list(source_of(DataLoader(Stream(0), 1), 1).first(2)) == []


def test_a_loader_of_the_users_own_kind_is_iterated_as_it_is():
    class Dicts(DataLoader):
        def __iter__(self):
            return ({"x": x, "y": y} for x, y in super().__iter__())

    source = source_of(Dicts(DATA, 64), 8)
    assert type(source) is BatchSource and source.batches_per_epoch == 10
    assert set(next(source.first(1))) == {"x", "y"}


def test_a_bucket_sampler_counts_the_samples_of_the_data():
    class Buckets(Sampler):
        def __iter__(self):
            return iter([list(range(i, i + 32)) for i in range(0, 640, 32)])

        def __len__(self):
            return 20

    source = source_of(DataLoader(DATA, batch_sampler=Buckets()), 64)
    assert isinstance(source, LoaderSource)
    assert (source.batches_per_epoch, source.batch_size, source.samples_per_epoch) == (20, 32, 640)


class Endless(Sampler):
    def __iter__(self):
        return iter(range(10**9))


class Empty(Dataset):
    def __len__(self):
        return 0

    def __getitem__(self, i):
        raise IndexError


@pytest.mark.parametrize(
    "data, batch_size, says",
    [
        (DATA, 0, "batch_size must be"),
        (DATA, 2.5, "batch_size must be"),
        (DataLoader(DATA, batch_size=None), 8, "batch_size=None"),
        (DataLoader(DATA, 8, sampler=Endless()), 8, "sampler has no length"),
        (Empty(), 8, "empty"),
        ([], 8, "empty"),
        (DataLoader(DATA, 1000, drop_last=True), 8, "gives no batch"),
        ((b for b in [1]), 8, "one-shot"),
        (5, 8, "must be a data set"),
    ],
)
def test_what_cannot_be_explored_is_refused(data, batch_size, says):
    with pytest.raises(UsageError, match=says):
        source_of(data, batch_size)


def test_what_a_stream_loaded_ahead_is_thrown_away_outside_the_clock():
    clock = FakeClock()

    class Slow:
        """Closing its iterator takes a second, as draining workers does."""

        def __iter__(self):
            try:
                while True:
                    clock.pass_s(0.1)
                    yield 1
            finally:
                clock.pass_s(1.0)

    timed = run_trial(
        BatchSource(Slow(), 1, 100),
        lambda batch: None,
        TrialRequest(5, 2, 1e9, "trial"),
        clock.perf_s,
    )
    assert timed.epoch_durations_s == pytest.approx((0.5, 0.5)) and clock.now_s > 2.9


@pytest.mark.parametrize(
    "loss, is_finite",
    [
        (float("nan"), False),
        (torch.tensor(float("inf")), False),
        ({"loss": torch.tensor(float("nan"))}, False),
        (type("Output", (), {"loss": float("nan")})(), False),
        ({"loss": 1.0}, True),
        (None, True),
        ({}, True),
    ],
)
def test_a_loss_is_looked_at_wherever_it_is(loss, is_finite):
    clock = FakeClock()

    def step(batch):
        clock.pass_s(0.1)
        return loss

    timed = run_trial(
        BatchSource([0] * 9, 1, 9),
        step,
        TrialRequest(2, 1, 1e9, "trial"),
        clock.perf_s,
    )
    assert timed.is_finite is is_finite


def test_tensors_are_changed_in_whatever_holds_them():
    pair = namedtuple("Pair", "inputs name")
    batch = [pair({"ids": (torch.tensor(1), 2)}, "a"), defaultdict(list, mask=torch.tensor(3)), None]
    changed = map_tensors(batch, lambda tensor: tensor + 1)
    assert changed == [pair({"ids": (torch.tensor(2), 2)}, "a"), {"mask": torch.tensor(4)}, None]
    assert changed[1]["other"] == [] and batch[1] == {"mask": torch.tensor(3)}
