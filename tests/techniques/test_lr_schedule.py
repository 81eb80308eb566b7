"""Schedules of the learning rate: torch's own in closed form, a warm-up, and the technique that steps them itself."""

import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.optim import SGD
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, ReduceLROnPlateau, StepLR
from torch.utils.data import DataLoader, TensorDataset

from greenlove_tracker.techniques.arm import build_arm
from greenlove_tracker.techniques.lr_schedule import lr_schedule, technique
from greenlove_tracker.techniques.technique import NotApplicableError, combined, technique_named
from greenlove_tracker.vocabulary.errors import UsageError

TOLERANCE = 1e-14  # of the peak, in 97 steps: torch computes each rate from the one before


def optimizer(*lrs):
    return SGD([{"params": [nn.Parameter(torch.zeros(1))], "lr": lr} for lr in lrs or (0.3,)])


def rates(scheduler, n_steps):
    """The rates that so many steps are made with."""
    found = []
    for _ in range(n_steps):
        found.append([group["lr"] for group in scheduler.optimizer.param_groups])
        scheduler.optimizer.step()
        scheduler.step()
    return found


def first_rates(scheduler, n_steps):
    return [lrs[0] for lrs in rates(scheduler, n_steps)]


TORCHS = {
    "cosine": (CosineAnnealingLR, {"T_max": 97, "eta_min": 0.0}, {}),
    "cosine to a tenth": (CosineAnnealingLR, {"T_max": 97, "eta_min": 0.03}, {"final": 0.1}),
    "linear": (LinearLR, {"start_factor": 1.0, "end_factor": 0.05, "total_iters": 97}, {"final": 0.05}),
    "linear to zero": (LinearLR, {"start_factor": 1.0, "end_factor": 0.0, "total_iters": 97}, {}),
    "step": (StepLR, {"step_size": 33, "gamma": 0.1}, {}),
}


@pytest.mark.parametrize("name", TORCHS)
def test_a_shape_is_torchs_own(name):
    kind, torchs, ours = TORCHS[name]
    expected = first_rates(kind(optimizer(), **torchs), 97)
    found = first_rates(lr_schedule(optimizer(), name.split()[0], total_steps=97, **ours), 97)
    assert found == pytest.approx(expected, rel=0, abs=TOLERANCE * 0.3)


@pytest.mark.parametrize(
    ("shape", "total", "options", "expected"),
    [
        ("cosine", 4, {}, [1, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2, 0, 0, 0]),
        ("linear", 4, {"final": 0.2}, [1, 0.8, 0.6, 0.4, 0.2, 0.2, 0.2]),
        ("step", 6, {}, [1, 1, 0.1, 0.1, 0.01, 0.01, 0.01, 0.01, 0.01]),
        ("step", 6, {"final": 0.3}, [1, 1, 0.3, 0.3, 0.3, 0.3, 0.3]),
        ("cosine", 1, {}, [1, 0, 0]),
        ("linear", 1, {}, [1, 0, 0]),
        ("step", 1, {}, [1, 1, 1]),
        ("cosine", 1, {"warmup": 1}, [0.5, 0, 0]),
        ("step", 3, {"warmup": 3}, [0.25, 0.5, 0.75, 1, 1]),  # all of it a warm-up
        ("linear", 3, {"warmup": 3, "final": 0.1}, [0.25, 0.5, 0.75, 0.1, 0.1]),
        ("linear", 4, {"warmup": 1}, [0.5, 1, 2 / 3, 1 / 3, 0, 0]),
        ("linear", 4, {"warmup": 0.1}, [1, 0.75, 0.5, 0.25, 0]),  # less than half a step is none
        ("cosine", 3, {"final": 1.0}, [1, 1, 1, 1]),
    ],
)
def test_every_boundary_and_what_lies_behind_the_end(shape, total, options, expected):
    found = first_rates(lr_schedule(optimizer(1.0), shape, total_steps=total, **options), len(expected))
    assert found == pytest.approx(expected, rel=1e-15, abs=1e-16)


def test_the_code_says_how_long_the_training_is_and_not_the_state_that_it_loads():
    first = lr_schedule(optimizer(1.0), "linear", total_steps=4)
    first_rates(first, 4)
    longer = lr_schedule(optimizer(1.0), "linear", total_steps=8)
    longer.load_state_dict(first.state_dict())
    longer.optimizer.load_state_dict(first.optimizer.state_dict())
    assert first_rates(longer, 3)[1:] == [0.375, 0.25]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"shape": "cosin"}, "shape must be one of cosine, linear, step"),
        ({"total_steps": 0}, "total_steps must be a whole number of at least 1"),
        ({"warmup": 11}, "warmup of 11 is longer than the whole training, which has 10"),
        ({"warmup": -1}, "warmup must be whole steps, or a share"),
        ({"warmup": 2.5}, "warmup must be whole steps, or a share"),
        ({"final": 2}, "final is a share of the learning rate"),
    ],
)
def test_what_cannot_be_is_refused(options, said):
    with pytest.raises(UsageError, match=said):
        lr_schedule(optimizer(), **{"total_steps": 10, **options})


# ---- the technique


def plain_task(**changes):
    """Two epochs of 3 batches."""
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    return {
        "model": model,
        "optimizer": SGD(model.parameters(), 0.1),
        "criterion": nn.CrossEntropyLoss(),
        "train_dataset": DataLoader(TensorDataset(torch.randn(24, 4), torch.arange(24) % 2), 8, shuffle=True),
        "total_epochs": 2,
        **changes,
    }


def rates_of_steps(arm, n_epochs=2):
    """The rate that each batch is trained with."""
    found = []
    for _ in range(n_epochs):
        for batch in arm.source.first(3):
            found.append(arm.parts["optimizer"].param_groups[0]["lr"])
            arm.step(batch)
    return found


def test_it_steps_after_each_optimizer_step_and_ends_with_the_training():
    arm = build_arm(plain_task, technique("lr-schedule", "linear"))
    assert rates_of_steps(arm) == pytest.approx([0.1 * (1 - n / 6) for n in range(6)])
    assert arm.parts["optimizer"].param_groups[0]["lr"] == 0
    assert [type(thing).__name__ for thing in arm.parts["also_restore"]] == ["LambdaLR"]


def test_a_training_in_steps_says_how_many():
    arm = build_arm(lambda: plain_task(total_epochs=None, total_steps=3), technique("lr-schedule", "linear"))
    assert rates_of_steps(arm) == pytest.approx([0.1, 0.2 / 3, 0.1 / 3, 0, 0, 0])


@pytest.mark.slow
@pytest.mark.filterwarnings("error:.*lr_scheduler.step:UserWarning")
@pytest.mark.parametrize("other", ["grad-accumulation=4", "fused-optimizer", "amp-fp16", "amp-bf16"])
@pytest.mark.parametrize("order", [1, -1])
def test_it_composes_in_either_order(other, order):
    def task():
        parts = plain_task()
        parts["optimizer"] = torch.optim.AdamW(parts["model"].parameters(), 0.1)
        return parts

    both = [technique("lr-schedule", "linear"), technique_named(other)][::order]
    arm = build_arm(task, combined(both))
    assert rates_of_steps(arm) == pytest.approx([0.1 * (1 - n / 6) for n in range(6)])


@pytest.mark.slow_cases
@pytest.mark.parametrize("is_named", [True, False])
@pytest.mark.parametrize("kind", [partial(CosineAnnealingLR, T_max=5), ReduceLROnPlateau])
def test_a_schedule_of_the_tasks_own_is_refused(kind, is_named):
    def task():
        parts = plain_task()
        kept.append(schedule := kind(parts["optimizer"]))
        return {**parts, **({"also_restore": [schedule]} if is_named else {})}

    kept = []
    with pytest.raises(NotApplicableError, match=r"LR\w* sets the learning rate already"):
        build_arm(task, technique("lr-schedule", "cosine"))


@pytest.mark.slow_cases
@pytest.mark.parametrize(
    ("changes", "options", "said"),
    [
        ({"total_epochs": None}, {}, "what is the whole training"),
        ({}, {"warmup": 7}, "warmup of 7 is longer than the whole training, which has 6"),
        ({"optimizer": object()}, {}, "the optimizer is a object, not"),
    ],
)
def test_where_it_cannot_be_used_it_says_why(changes, options, said):
    with pytest.raises(NotApplicableError, match=said):
        build_arm(lambda: plain_task(**changes), technique("lr-schedule", "cosine", **options))


@pytest.mark.parametrize(
    ("value", "options", "said"),
    [
        ("cosin", {}, "shape must be one of cosine, linear, step"),
        ("cosine", {"shape": "linear"}, "contradict each other"),
        (None, {"warmup": "long"}, "warmup must be whole steps"),
        (None, {"warmup": None}, "warmup must be whole steps"),
    ],
)
def test_bad_options_are_refused_before_anything_is_built(value, options, said):
    with pytest.raises(UsageError, match=said):
        technique("lr-schedule", value, **options)
