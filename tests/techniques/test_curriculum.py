"""Curricula: pacing, an order that follows from seed and epoch, and what a resume replays."""

import math

import numpy
import pytest
import torch
from techniques.task_samples import digits_task
from torch import distributed, nn
from torch.utils.data import DataLoader, TensorDataset

from greenlove_tracker.checkpointing.checkpointer import Checkpointer
from greenlove_tracker.meter import NullMeter
from greenlove_tracker.techniques.arm import build_arm
from greenlove_tracker.techniques.curriculum import Curriculum
from greenlove_tracker.techniques.full_training import train_one
from greenlove_tracker.techniques.technique import NotApplicableError, technique_named, technique_with
from greenlove_tracker.vocabulary.errors import UsageError

QUIET = {"verbose": 0}


def hundred(epochs=10, **options):
    """A hundred samples, of which the last is the easiest."""
    return Curriculum(list(range(100))[::-1], epochs, **options)


def indices(curriculum, epoch):
    """The samples of an epoch, in their order."""
    curriculum.set_epoch(epoch)
    return list(curriculum)


# ---- pacing


@pytest.mark.parametrize(
    ("pacing", "expected"),
    [
        # start 0.25 until epoch 8 of 10, in tenths: the least that hold 0.25 + 0.75 * e/8
        ("linear", [0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0, 1.0]),
        # 0.25^(1 - e/8): 0.25, 0.297, 0.354, 0.42, 0.5, 0.595, 0.707, 0.841
        ("exponential", [0.3, 0.3, 0.4, 0.5, 0.5, 0.6, 0.8, 0.9, 1.0, 1.0]),
        ("step", [0.3] * 8 + [1.0] * 2),
    ],
)
def test_the_share_grows_as_the_pacing_functions_of_the_literature(pacing, expected):
    curriculum = hundred(pacing=pacing)
    assert [curriculum.share(epoch) for epoch in range(10)] == expected
    assert curriculum.share(10**6) == 1
    assert [phase.data_share for phase in curriculum.phases() for _ in range(phase.epochs)] == expected  # as forecast


def test_shares_are_tenths_and_rounding_opens_none_too_many():
    thirty = Curriculum(range(30), 30, start=0.1, full_after=1.0)
    assert [thirty.n_samples(epoch) for epoch in (0, 10, 20, 29)] == [3, 12, 21, 30]
    assert hundred(start=0.3, pacing="step").n_samples(0) == 30
    assert hundred(30, full_after=0.1).share(3) == 1  # 0.1 * 30 is a little more than 3


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"stairs": 4}, [0.25] * 3 + [0.5] * 3 + [0.75] * 2 + [1.0] * 2),
        ({"stairs": 2}, [0.25] * 8 + [1.0] * 2),
        ({"stairs": 4, "pacing": "step"}, [0.25] * 3 + [0.5] * 3 + [0.75] * 2 + [1.0] * 2),
        ({"stairs": 3, "pacing": "exponential"}, [0.25] * 4 + [0.5] * 4 + [1.0] * 2),
    ],
)
def test_it_is_paced_in_so_many_stairs(options, expected):
    curriculum = hundred(**options)
    assert [curriculum.share(epoch) for epoch in range(10)] == expected
    assert [phase.data_share for phase in curriculum.phases()] == sorted(set(expected))


@pytest.mark.parametrize("name, options", [("curriculum=2", {}), ("curriculum", {"stairs": 2})])
def test_as_a_technique_it_paces_a_whole_training(name, options, tmp_path):
    seen = []

    def task():
        data = TensorDataset(torch.arange(100.0).unsqueeze(1), torch.zeros(100, 1))
        data.difficulty = list(range(100))
        model = nn.Linear(1, 1)

        def loss(model, batch):
            seen.append(batch[0].flatten().int().tolist())
            return nn.functional.mse_loss(model(batch[0] / 100), batch[1])

        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        return {"model": model, "optimizer": optimizer, "loss": loss, "train_dataset": data, "total_epochs": 5}

    technique = technique_with(name, {"full_after": 0.4, "start": 0.5, **options})
    run = train_one(
        task, technique, log_dir=tmp_path / "runs", checkpoint_dir=tmp_path / "saved", settings=QUIET, meter=NullMeter()
    )
    sizes = [sum(map(len, batches)) for batches in (seen[:1], seen[1:2], seen[2:4])]
    assert sizes == [50, 50, 100] and max(seen[0] + seen[1]) == 49 and run.summary.counts.samples == 400


def test_where_nobody_says_how_difficult_it_is_the_technique_says_what_to_do():
    with pytest.raises(NotApplicableError, match="an attribute difficulty"):
        build_arm(digits_task, technique_named("curriculum=4"))
    with pytest.raises(UsageError, match="pacing"):
        technique_with("curriculum", {"pacing": "slow"})
    with pytest.raises(UsageError, match="stairs must be a whole number of at least 2"):
        technique_with("curriculum", {"stairs": 1})


# ---- difficulty


def test_the_easiest_come_first_and_all_of_them_in_the_end():
    curriculum = hundred()
    assert sorted(indices(curriculum, 0)) == list(range(70, 100))
    assert sorted(indices(curriculum, 9)) == list(range(100))


@pytest.mark.parametrize("kind", [list, numpy.array, torch.tensor, lambda v: torch.tensor(v, dtype=torch.bfloat16)])
def test_difficulty_of_any_kind(kind):
    assert sorted(Curriculum(kind([3.0, 1.0, 2.0, math.inf]), 4, start=0.5)) == [1, 2]


@pytest.mark.parametrize(
    ("difficulty", "options", "said"),
    [
        ([1.0, math.nan, 2.0, math.nan], {}, "none of them NaN"),
        ([], {}, "difficulty must be one number a sample"),
        ([[1.0], [2.0]], {}, "difficulty must be one number a sample"),
        ([1, 2], {"epochs": 0}, "epochs must be a whole number"),
        ([1, 2], {"start": 0}, "start must be a share above 0"),
        ([1, 2], {"full_after": 1.1}, "full_after must be a share above 0"),
        ([1, 2], {"pacing": "slow"}, "pacing must be one of linear, exponential, step"),
    ],
)
def test_what_cannot_be_is_refused(difficulty, options, said):
    with pytest.raises(UsageError, match=said):
        Curriculum(difficulty, **{"epochs": 4, **options})


# ---- the order, and the sampler


def test_the_order_follows_from_seed_and_epoch_alone():
    first, second, other = hundred(), hundred(), hundred(seed=1)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    orders = [indices(first, epoch) for epoch in (8, 9, 8)]
    assert orders[0] == orders[2] == indices(second, 8)
    assert orders[0] != orders[1]
    assert indices(other, 8) != orders[0]
    assert indices(other, 8) != indices(first, 9)  # seeds and epochs are not just added
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("is_set", [True, False])
@pytest.mark.parametrize("drop_last", [True, False])
def test_a_loader_takes_an_epoch_after_the_other(is_set, drop_last):
    curriculum, alike = hundred(4), hundred(4)
    data = TensorDataset(torch.arange(len(curriculum)))
    loader = DataLoader(data, batch_size=16, sampler=curriculum, drop_last=drop_last)
    for epoch in range(6):
        if is_set:
            curriculum.set_epoch(epoch)
        taken, expected = [int(i) for (batch,) in loader for i in batch], indices(alike, epoch)
        assert taken == (expected[: len(expected) // 16 * 16] if drop_last else expected)


@pytest.mark.slow
@pytest.mark.parametrize("stop_at", [0, 3, 9, 12, 13])  # batches of 3, 6, 10 and 10: begin, end and middle of epochs
def test_a_resume_takes_the_samples_of_an_unbroken_training(tmp_path, stop_at):
    def train(directory, until=None):
        model, curriculum = nn.Linear(1, 1), hundred(4, full_after=0.5)
        loader = DataLoader(TensorDataset(torch.arange(len(curriculum))), batch_size=10, sampler=curriculum)
        often = {"every_steps": 1, "signals": ()}
        checkpointer = Checkpointer(directory, model=model, **often)
        seen = {}
        for epoch in checkpointer.epochs(4, tracker=False):
            curriculum.set_epoch(epoch)
            for (batch,) in checkpointer.batches(loader):
                if checkpointer.position.steps == until:
                    return seen
                seen[checkpointer.position.steps] = batch.tolist()
        return seen

    unbroken = train(tmp_path / "a")
    assert len(unbroken) == 3 + 7 + 10 + 10
    first = train(tmp_path / "b", stop_at)
    rest = train(tmp_path / "b")
    assert min(rest) == stop_at
    assert {**first, **rest} == unbroken


def ranks(monkeypatch, rank, n_ranks):
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_rank", lambda: rank)
    monkeypatch.setattr(distributed, "get_world_size", lambda: n_ranks)


@pytest.mark.parametrize("n_ranks", [2, 3, 7])
def test_ranks_share_an_epoch_out(monkeypatch, n_ranks):
    curriculum = hundred(4)  # 30 samples
    taken = []
    for rank in range(n_ranks):
        ranks(monkeypatch, rank, n_ranks)
        curriculum.set_epoch(0)
        taken.append(list(curriculum))
        assert len(curriculum) == math.ceil(100 / n_ranks)
    assert {len(own) for own in taken} == {math.ceil(30 / n_ranks)}
    monkeypatch.undo()
    assert set().union(*taken) == set(indices(curriculum, 0))
    assert sum(map(len, taken)) - 30 < n_ranks  # no more twice than makes them even
