"""Each technique that has a name runs on both trainings, or says why not."""

import math

import pytest
import torch
from techniques.task_samples import digits_task, transformer_task

from greenlove_tracker.techniques.arm import build_arm
from greenlove_tracker.techniques.technique import TECHNIQUES, NotApplicableError, technique_named

GIVEN = {"batch-size": "batch-size=16", "grad-accumulation": "grad-accumulation=4", "power-limit": "power-limit=200"}
# Where this machine, without a GPU, cannot: on both trainings, or on the transformer alone.
NOT_ON_A_CPU = {
    "pin-memory": "only copies to a CUDA GPU",
    "tf32": "NVIDIA's GPUs",
    "power-limit": "GPU",
}
NOT_ON = {
    ("channels-last", transformer_task): "no 2-d convolution",
    ("activation-checkpointing", digits_task): "repeated blocks",
    ("curriculum", digits_task): "an attribute difficulty",
    ("curriculum", transformer_task): "an attribute difficulty",
}


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="says what a machine without a GPU cannot")
@pytest.mark.parametrize("task", [digits_task, transformer_task])
@pytest.mark.parametrize("name", TECHNIQUES)
def test_each_runs_or_says_why_not(name, task):
    technique = technique_named(GIVEN.get(name, name))
    reason = NOT_ON_A_CPU.get(name) or NOT_ON.get((name, task))
    if reason is not None:
        with pytest.raises(NotApplicableError, match=reason):
            build_arm(task, technique)
        return
    arm = build_arm(task, technique)
    before = [p.detach().clone() for p in arm.parts["model"].parameters()]
    with arm.active():
        losses = [float(arm.step(batch).detach()) for batch in arm.source.first(6)]
    arm.source.close()
    assert all(math.isfinite(loss) for loss in losses)
    assert min(losses[3:]) < losses[0]
    changed = [not torch.equal(a, b) for a, b in zip(before, arm.parts["model"].parameters(), strict=True)]
    assert all(changed)
    assert not any(note.endswith(".") for note in arm.counted())


def own_step(model, batch, optimizer, criterion, device):
    optimizer.zero_grad()
    loss = criterion(model(batch[0]), batch[1])
    loss.backward()
    optimizer.step()
    return loss


OF_A_STEP = [
    "amp-bf16",
    "amp-fp16",
    "grad-accumulation",
    "activation-checkpointing",
    "compile",
    "fused-optimizer",
    "adam-8bit",
    "lr-schedule",
]


@pytest.mark.parametrize("name", OF_A_STEP)
def test_a_step_that_is_the_tasks_own_is_left_alone(name):
    with pytest.raises(NotApplicableError, match="the task makes its steps itself"):
        build_arm(lambda: {**digits_task(), "train_step": own_step}, technique_named(name))


@pytest.mark.parametrize("name", ["batch-size=16", "num-workers=1", "channels-last"])
def test_what_needs_no_step_is_used_with_one_of_the_tasks_own(name):
    arm = build_arm(lambda: {**digits_task(), "train_step": own_step}, technique_named(name))
    assert math.isfinite(float(arm.step(next(arm.source.first(1))).detach()))
    arm.source.close()


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["amp-bf16", "amp-fp16"])
def test_precision_and_accumulation_compose_with_activation_checkpointing(precision):
    names = (precision, f"activation-checkpointing+grad-accumulation=4+{precision}")
    arms = [build_arm(lambda: transformer_task(0.0), technique_named(name)) for name in names]
    batch = next(arms[0].source.first(1))
    losses = [float(arm.step(batch)) for arm in arms]
    assert losses[1] == pytest.approx(losses[0], rel=0.03)
    for ours, theirs in zip(*(arm.parts["model"].parameters() for arm in arms), strict=True):
        assert float((ours.grad - theirs.grad).abs().max()) < 0.1 * float(ours.grad.abs().max()) + 1e-5
