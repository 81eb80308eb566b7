"""Activation checkpointing: the same gradients, running statistics and random numbers, with fewer activations kept."""

import pytest
import torch
from techniques.task_samples import digits_task, transformer_task
from torch import nn

from greenlove_tracker.techniques.arm import build_arm
from greenlove_tracker.techniques.technique import technique_named


def with_statistics():
    """Three equal blocks whose layers keep running statistics."""
    blocks = [nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()) for _ in range(3)]
    model = nn.Sequential(nn.Conv2d(1, 8, 3), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return {**digits_task(), "model": model, "optimizer": optimizer}


def arm_after(task, name, steps=4):
    """Return the arm after some steps, its gradients at each, and its losses; both begin with the same random state."""
    arm = build_arm(task, technique_named(name) if name else None, seed=3)
    arm.parts["model"].train()
    torch.manual_seed(11)
    gradients, losses = [], []
    for batch in arm.source.first(steps):
        losses.append(arm.step(batch).item())
        gradients.append([p.grad.clone() for p in arm.parts["model"].parameters()])
    return arm, gradients, losses


@pytest.mark.slow
@pytest.mark.parametrize("task", [with_statistics, transformer_task])
def test_a_training_stays_the_same(task):
    plain, plain_gradients, plain_losses = arm_after(task, "")
    arm, gradients, losses = arm_after(task, "activation-checkpointing")
    for ours, theirs in zip(gradients, plain_gradients, strict=True):
        for own, plain_one in zip(ours, theirs, strict=True):
            torch.testing.assert_close(own, plain_one, rtol=1e-6, atol=1e-9)
    assert losses == pytest.approx(plain_losses, rel=1e-6)
    state, plain_state = arm.parts["model"].state_dict(), plain.parts["model"].state_dict()
    assert list(state) == list(plain_state)
    for key in plain_state:
        if "running" not in key and "tracked" not in key:
            torch.testing.assert_close(state[key], plain_state[key], rtol=1e-6, atol=1e-7)
    says = "move twice a step" in " ".join(arm.counted())
    assert says == any("running" in key for key in state)
