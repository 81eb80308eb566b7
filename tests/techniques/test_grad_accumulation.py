"""Gradient accumulation: the gradients of the whole batch, and one optimizer step."""

import pytest
import torch
from techniques.task_samples import digits_task, transformer_task
from torch import nn

from greenlove_tracker.techniques.arm import build_arm
from greenlove_tracker.techniques.technique import NotApplicableError, technique_named
from greenlove_tracker.vocabulary.errors import UsageError


def gradients_after(arm, batch):
    return float(arm.step(batch)), [p.grad.clone() for p in arm.parts["model"].parameters()]


def in_double(arm):
    """In float32 the order of additions alone makes differences of 1e-6 after Adam's first steps."""
    arm.parts["model"].double()
    arm.parts["criterion"].double()
    return arm


@pytest.mark.slow
@pytest.mark.parametrize("n_samples", [64, 10])  # 10 in 4: parts of 3, 3, 2 and 2
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("task", [digits_task, transformer_task])
def test_losses_and_gradients_are_those_of_the_whole_batch(task, reduction, n_samples):
    def with_reduction():
        return {**task(dropout=0.0), "criterion": nn.CrossEntropyLoss(reduction=reduction)}

    techniques = (None, technique_named("grad-accumulation=4"))
    plain, arm = (in_double(build_arm(with_reduction, technique)) for technique in techniques)
    images, targets = (part[:n_samples] for part in next(plain.source.first(1)))
    batch = (images.double() if images.is_floating_point() else images, targets)
    for _ in range(2):
        (loss, expected), (other, found) = gradients_after(plain, batch), gradients_after(arm, batch)
        assert other == pytest.approx(loss, rel=1e-5)
        scale = max(float(gradient.abs().max()) for gradient in expected)
        for ours, theirs in zip(expected, found, strict=True):
            assert float((ours - theirs).abs().max()) <= 1e-9 * max(scale, 1.0)


@pytest.mark.slow
def test_gradients_are_clipped_once_a_batch():
    def task():
        parts = digits_task(0.0)
        return {**parts, "optimizer": torch.optim.SGD(parts["model"].parameters(), 0.5), "max_grad_norm": 0.3}

    arms = [build_arm(task, t) for t in (None, technique_named("grad-accumulation=4"))]
    batch = next(arms[0].source.first(1))
    losses = [[float(arm.step(batch)) for _ in range(3)] for arm in arms]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    for ours, theirs in zip(*(arm.parts["model"].parameters() for arm in arms), strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-6)


BATCHES = {
    "a tensor": torch.arange(6.0)[:, None],
    "a dict": {"x": torch.zeros(6, 3), "kind": "digits", "y": torch.arange(6)},
    "nested": {"x": [torch.zeros(6, 3), torch.zeros(6, 2)], "scale": torch.tensor(2.0), "y": torch.arange(6)},
}


@pytest.mark.slow_cases
@pytest.mark.parametrize("kind", BATCHES)
def test_batches_are_split_in_their_own_structure(kind):
    seen = []

    def loss(model, batch):
        seen.append(batch)
        return model(torch.zeros(1, 1)).sum()

    def task():
        model = nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        return {"model": model, "optimizer": optimizer, "loss": loss, "train_dataset": [BATCHES[kind]], "batch_size": 6}

    build_arm(task, technique_named("grad-accumulation=4")).step(BATCHES[kind])
    assert [type(part) for part in seen] == [type(BATCHES[kind])] * 4
    assert [len(part["y"] if isinstance(part, dict) else part) for part in seen] == [1, 2, 1, 2]
    if kind == "nested":
        assert [len(x) for x in seen[1]["x"]] == [2, 2] and seen[1]["scale"] == 2


@pytest.mark.slow_cases
@pytest.mark.parametrize("batch", [(torch.zeros(6, 2), torch.zeros(3, 6)), {"x": 1}, "abc"])
def test_a_batch_that_cannot_be_split_is_refused(batch):
    arm = build_arm(lambda: digits_task(), technique_named("grad-accumulation=2"))
    with pytest.raises(NotApplicableError, match="cannot be split"):
        arm.step(batch)


def test_what_cannot_be_is_said_before_the_first_step():
    def second_order():
        parts = digits_task()
        return {**parts, "optimizer": torch.optim.LBFGS(parts["model"].parameters())}

    with pytest.raises(UsageError, match="LBFGS"):
        build_arm(second_order, technique_named("grad-accumulation=2"))
    for name in ("grad-accumulation=1", "grad-accumulation=0", "grad-accumulation=two", "grad-accumulation=-4"):
        with pytest.raises(UsageError, match="2 micro-batches or more"):
            technique_named(name)
