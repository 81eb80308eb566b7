"""Each technique that has a name runs on both trainings, or says why not."""

import math
from importlib.util import find_spec

import pytest
import torch
from techniques.task_samples import digits_task, transformer_task

from greenlove_tracker.techniques.arm import build_arm
from greenlove_tracker.techniques.technique import TECHNIQUES, NotApplicableError, technique_named

GIVEN = {"batch-size": "batch-size=16", "grad-accumulation": "grad-accumulation=4", "power-limit": "power-limit=200"}
# Where this machine, without a GPU, cannot: on both trainings, or on the transformer alone.
NOT_ON_A_CPU = {"pin-memory": "only copies to a CUDA GPU", "tf32": "NVIDIA's GPUs", "power-limit": "GPU"}
NOT_ON = {
    ("channels-last", transformer_task): "no 2-d convolution",
    ("activation-checkpointing", digits_task): "repeated blocks",
    ("curriculum", digits_task): "let the task give difficulty",
    ("curriculum", transformer_task): "let the task give difficulty",
}


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="says what a machine without a GPU cannot")
@pytest.mark.parametrize("task", [digits_task, transformer_task])
@pytest.mark.parametrize("name", TECHNIQUES)
def test_each_runs_or_says_why_not(name, task):
    if find_spec(f"greenlove_tracker.techniques.{TECHNIQUES[name].module}") is None:
        pytest.skip("not in this version")
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
    for note in arm.parts.get("technique_notes", ()):
        assert not note().endswith(".")


@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("greenlove_tracker.techniques.activation_checkpointing") is None, reason="not in this version"
)
@pytest.mark.parametrize("precision", ["amp-bf16", "amp-fp16"])
def test_precision_and_accumulation_compose_with_activation_checkpointing(precision):
    names = f"grad-accumulation=2+{precision}"
    arms = [
        build_arm(lambda: transformer_task(0.0), technique_named(n))
        for n in (names, f"activation-checkpointing+{names}")
    ]
    batch = next(arms[0].source.first(1))
    for arm in arms:
        arm.step(batch)
    for ours, theirs in zip(*(arm.parts["model"].parameters() for arm in arms), strict=True):
        assert torch.allclose(ours.grad, theirs.grad, rtol=1e-3, atol=1e-6)
