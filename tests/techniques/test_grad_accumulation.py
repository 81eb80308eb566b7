"""Gradient accumulation: the gradients of the whole batch, and one optimizer step."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from techniques.task_samples import digits_task, transformer_task
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader

from greenlove_tracker.errors import UsageError
from greenlove_tracker.techniques.arm import build_arm
from greenlove_tracker.techniques.technique import NotApplicableError, technique_named

TASKS = [digits_task, transformer_task]


def gradients_after(arm, batch):
    loss = arm.step(batch)
    return float(loss.detach() if isinstance(loss, torch.Tensor) else loss["loss"]), [
        p.grad.clone() for p in arm.parts["model"].parameters()
    ]


def in_double(arm):
    """In float32 the order of additions alone makes differences of 1e-6 after Adam's first steps."""
    arm.parts["model"].double()
    arm.parts["criterion"].double()
    return arm


def check_equal(task, name="grad-accumulation=4", n_samples=64, n_steps=2, tolerance=1e-9):
    """The losses and gradients of steps on one batch agree with those of the plain training."""
    plain, arm = in_double(build_arm(task)), in_double(build_arm(task, technique_named(name)))
    images, targets = (part[:n_samples] for part in next(plain.source.first(1)))
    batch = (images.double() if images.is_floating_point() else images, targets)
    for _ in range(n_steps):
        (loss, expected), (other, found) = gradients_after(plain, batch), gradients_after(arm, batch)
        assert other == pytest.approx(loss, rel=1e-5)
        scale = max(float(gradient.abs().max()) for gradient in expected)
        for ours, theirs in zip(expected, found, strict=True):
            assert float((ours - theirs).abs().max()) <= tolerance * max(scale, 1.0)
    return arm


@pytest.mark.slow
@pytest.mark.parametrize("n_samples", [64, 10])  # 10 in 4: parts of 3, 3, 2 and 2
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("task", TASKS)
def test_gradients_are_those_of_the_whole_batch(task, reduction, n_samples):
    def with_reduction():
        parts = task(dropout=0.0)
        return {**parts, "criterion": nn.CrossEntropyLoss(reduction=reduction)}

    check_equal(with_reduction, n_samples=n_samples)


@pytest.mark.slow
def test_targets_that_do_not_count_and_weights_of_classes_share_the_mean():
    def task():
        parts = digits_task(0.0)
        images, labels = next(iter(parts["train_dataset"]))
        labels[:20] = -100  # the first part has none that counts
        weight = torch.linspace(0.1, 2.0, 10)
        return {**parts, "train_dataset": [(images, labels)], "criterion": nn.CrossEntropyLoss(weight)}

    check_equal(task)


def scheduled_step(model, batch, optimizer, criterion, device, scheduler):
    loss = criterion(model(batch[0]), batch[1])
    loss.backward()
    clip_grad_norm_(model.parameters(), 0.3)
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad(set_to_none=False)
    return {"loss": loss}


def own_task():
    """A step that clips, steps a schedule, and empties the gradients at its end."""
    parts = digits_task(0.0)
    parts["optimizer"] = torch.optim.SGD(parts["model"].parameters(), 0.5, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(parts["optimizer"], 1, 0.5)

    def step(model, batch, optimizer, criterion, device):
        return scheduled_step(model, batch, optimizer, criterion, device, scheduler)

    return {**parts, "train_step": step, "also_restore": [scheduler]}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["grad-accumulation=4", "grad-accumulation=3"])
def test_an_own_step_clips_and_schedules_once_a_batch(name):
    arms = [build_arm(own_task, t) for t in (None, technique_named(name))]
    batch = next(arms[0].source.first(1))
    for _ in range(3):
        losses = [float(arms[0].step(batch)["loss"].detach()), float(arms[1].step(batch))]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert arms[1].parts["optimizer"].param_groups[0]["lr"] == 0.5 / 8
    for ours, theirs in zip(*(arm.parts["model"].parameters() for arm in arms), strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("other", ["amp-bf16", "amp-fp16"])
@pytest.mark.parametrize("order", [1, -1])
def test_it_composes_with_mixed_precision_in_either_order(other, order):
    names = "+".join([other, "grad-accumulation=4"][::order])
    alone, both = (build_arm(partial(transformer_task, 0.0), technique_named(n)) for n in (other, names))
    batch = next(alone.source.first(1))
    for _ in range(3):
        losses = [float(arm.step(batch).detach()) for arm in (alone, both)]
    assert losses[1] == pytest.approx(losses[0], rel=0.03)
    for ours, theirs in zip(*(arm.parts["model"].parameters() for arm in (alone, both)), strict=True):
        assert float((ours.grad - theirs.grad).abs().max()) < 0.1 * float(ours.grad.abs().max()) + 1e-5


BATCHES = {
    "a tuple": (torch.zeros(6, 3), torch.arange(6)),
    "a dict": {"x": torch.zeros(6, 3), "kind": "digits", "y": torch.arange(6)},
    "lists of samples": ([torch.zeros(3, n) for n in range(6)], [{"box": n} for n in range(6)]),
    "nested": {"x": [torch.zeros(6, 3), torch.zeros(6, 2)], "names": list("abcdef"), "y": torch.arange(6)},
}


@pytest.mark.slow_cases
@pytest.mark.parametrize("kind", BATCHES)
def test_batches_are_split_in_their_own_structure(kind):
    seen = []

    def step(model, batch, optimizer, criterion, device):
        seen.append(batch)
        model(torch.zeros(1, 1)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    def task():
        model, data = nn.Linear(1, 1), [BATCHES[kind]]
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        loader = data if kind != "lists of samples" else DataLoader(range(12), 6)
        return {"model": model, "optimizer": optimizer, "criterion": None, "train_dataset": loader, "train_step": step}

    build_arm(task, technique_named("grad-accumulation=4")).step(BATCHES[kind])
    parts = list(seen[0].values()) if isinstance(seen[0], dict) else seen[0]
    assert type(seen[0]) is type(BATCHES[kind])
    assert len(seen) == 4
    last = [s["y"] if isinstance(s, dict) else s[1] for s in seen]
    assert [len(part) for part in last] == [2, 2, 1, 1]
    if kind == "nested":
        assert [s["names"] for s in seen] == [["a", "b"], ["c", "d"], ["e"], ["f"]]
        assert [len(x) for x in parts[0]] == [2, 2]
    if kind == "lists of samples":
        assert tuple(x.shape for x in seen[0][0]) == ((3, 0), (3, 1))


def emptying(model, batch, optimizer, criterion, device):
    for parameter in model.parameters():
        parameter.grad = None
    criterion(model(batch[0]), batch[1]).backward()
    optimizer.step()


def stepping_twice(model, batch, optimizer, criterion, device):
    for _ in range(2):
        criterion(model(batch[0]), batch[1]).backward()
        optimizer.step()


def with_closure(model, batch, optimizer, criterion, device):
    optimizer.step(lambda: criterion(model(batch[0]), batch[1]))


@pytest.mark.slow_cases
@pytest.mark.parametrize(
    ("step", "reason"),
    [(emptying, "empties gradients"), (stepping_twice, "makes 2 optimizer steps"), (with_closure, "given a closure")],
)
@pytest.mark.parametrize("n_parts", [2, 4])
def test_a_step_that_cannot_be_repeated_is_refused_in_the_first_batch(step, reason, n_parts):
    arm = build_arm(lambda: {**digits_task(), "train_step": step}, technique_named(f"grad-accumulation={n_parts}"))
    with pytest.raises(NotApplicableError, match=reason):
        arm.step(next(arm.source.first(1)))


@pytest.mark.slow_cases
@pytest.mark.parametrize("batch", [SimpleNamespace(x=1), (torch.zeros(6, 2), torch.zeros(3, 6)), {"x": 1}, "abc"])
def test_a_batch_that_cannot_be_split_is_refused(batch):
    arm = build_arm(lambda: digits_task(), technique_named("grad-accumulation=2"))
    with pytest.raises(NotApplicableError, match="cannot be split"):
        arm.step(batch)


def test_what_cannot_be_is_said_before_the_first_step():
    def two():
        parts = digits_task()
        return {**parts, "optimizer": [parts["optimizer"], parts["optimizer"]]}

    def second_order():
        parts = digits_task()
        return {**parts, "optimizer": torch.optim.LBFGS(parts["model"].parameters())}

    for task, name, reason in (
        (two, "grad-accumulation=2", "has 2 optimizers"),
        (second_order, "grad-accumulation=2", "LBFGS"),
        (digits_task, "grad-accumulation=65", "hold 64 samples, which cannot be split in 65"),
    ):
        with pytest.raises(NotApplicableError, match=reason):
            build_arm(task, technique_named(name))
    for name in ("grad-accumulation=1", "grad-accumulation=0", "grad-accumulation=two", "grad-accumulation=-4"):
        with pytest.raises(UsageError, match="2 micro-batches or more"):
            technique_named(name)
