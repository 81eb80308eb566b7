"""Optimizers that take the place of the training's own."""

import sys
from functools import partial

import pytest
import torch
from techniques.task_samples import digits_task

from greenlove_tracker.techniques.arm import build_arm
from greenlove_tracker.techniques.technique import NotApplicableError, technique_named
from greenlove_tracker.vocabulary.errors import UsageError


def task_with(make, schedule=None, **more):
    def task():
        parts = digits_task(0.0)
        parts["optimizer"] = make(parts["model"].parameters())
        if schedule is not None:
            parts["also_restore"] = [schedule(parts["optimizer"])]
        return {**parts, **more}

    return task


MAKERS = {
    "AdamW": partial(torch.optim.AdamW, lr=0.003, betas=(0.8, 0.99), weight_decay=0.2, amsgrad=True),
    "Adam": partial(torch.optim.Adam, lr=0.003, weight_decay=0.1),
    "SGD": partial(torch.optim.SGD, lr=0.05, momentum=0.8, nesterov=True),
    "Adagrad": partial(torch.optim.Adagrad, lr=0.02),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", MAKERS)
def test_fused_is_the_same_optimizer(kind):
    torch.manual_seed(3)
    plain, fused = (
        build_arm(task_with(MAKERS[kind])),
        build_arm(task_with(MAKERS[kind]), technique_named("fused-optimizer")),
    )
    assert fused.parts["optimizer"].param_groups[0]["fused"]
    batch = next(plain.source.first(1))
    for _ in range(4):
        plain.step(batch)
        fused.step(batch)
    for ours, theirs in zip(*(arm.parts["model"].parameters() for arm in (plain, fused)), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)


def test_schedules_go_on_with_the_new_optimizer():
    schedule = partial(torch.optim.lr_scheduler.StepLR, step_size=1, gamma=0.5)
    arm = build_arm(task_with(MAKERS["AdamW"], schedule), technique_named("fused-optimizer"))
    arm.step(next(arm.source.first(1)))
    for _ in range(2):
        arm.parts["also_restore"][0].step()
    assert arm.parts["optimizer"].param_groups[0]["lr"] == pytest.approx(0.003 / 4)


def test_what_cannot_be_is_said(monkeypatch):
    for name, reason in (("fused-optimizer", "no fused RMSprop"), ("adam-8bit", "only Adam and AdamW")):
        with pytest.raises(NotApplicableError, match=reason):
            build_arm(task_with(torch.optim.RMSprop), technique_named(name))
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(NotApplicableError, match=r"greenlove-tracker\[adam-8bit\]"):
        build_arm(digits_task, technique_named("adam-8bit"))
    with pytest.raises(UsageError, match="takes no value"):
        technique_named("fused-optimizer=1")
    with pytest.raises(UsageError, match="exclude each other"):
        technique_named("adam-8bit+fused-optimizer")


def test_states_have_8_bits():
    arm = build_arm(task_with(MAKERS["AdamW"]), technique_named("adam-8bit"))
    arm.step(next(arm.source.first(1)))
    states = [value for state in arm.parts["optimizer"].state.values() for value in state.values()]
    assert torch.uint8 in {value.dtype for value in states if hasattr(value, "dtype")}
    assert arm.parts["optimizer"].param_groups[0]["lr"] == 0.003
