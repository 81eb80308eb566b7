"""The trainings that tests of techniques share do learn."""

import pytest
import torch
from techniques.task_samples import digits_task, transformer_task

from greenlove_tracker.techniques.arm import build_arm


@pytest.mark.slow
@pytest.mark.parametrize("task", [digits_task, transformer_task])
def test_each_task_learns_and_begins_anew_with_the_same_weights(task):
    arm, other = build_arm(task), build_arm(task)
    weights = arm.parts["model"].state_dict()
    assert all(torch.equal(weights[name], value) for name, value in other.parts["model"].state_dict().items())
    before = arm.parts["eval_fn"](arm.parts["model"])
    batches = [b for _ in range(2) for b in arm.source.first(arm.source.batches_per_epoch)]
    losses = [float(arm.step(batch).detach()) for batch in batches]
    assert sum(losses[-4:]) < 0.8 * sum(losses[:4])
    assert arm.parts["eval_fn"](arm.parts["model"]) > before + 0.2
