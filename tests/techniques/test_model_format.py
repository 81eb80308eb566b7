"""Channels last and compiled models: the same numbers, otherwise laid out or computed."""

from functools import partial

import pytest
import torch
from techniques.task_samples import digits_task
from torch import nn

from greenlove_tracker.techniques.arm import build_arm
from greenlove_tracker.techniques.technique import NotApplicableError, technique_named
from greenlove_tracker.vocabulary.errors import UsageError


def test_channels_last_gives_the_same_training():
    arms = [build_arm(partial(digits_task, 0.0), t) for t in (None, technique_named("channels-last"))]
    seen = []
    model = arms[1].parts["model"]
    model[0].register_forward_hook(lambda _m, inputs, output: seen.extend((inputs[0], output)))
    for batch in arms[0].source.first(3):
        losses = [float(arm.step(batch).detach()) for arm in arms]
        assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    assert all(tensor.is_contiguous(memory_format=torch.channels_last) for tensor in seen)
    assert model[2].weight.is_contiguous(memory_format=torch.channels_last)
    assert not arms[0].parts["model"][2].weight.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.slow
def test_a_compiled_model_gives_the_same_training_with_the_last_batch_smaller():
    def task():
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
        return {**digits_task(), "model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.1)}

    arms = [build_arm(task, name and technique_named(name)) for name in (None, "compile")]
    images, labels = next(arms[0].source.first(1))
    for n_samples in (64, 64, 29):
        losses = [float(arm.step((images[:n_samples], labels[:n_samples])).detach()) for arm in arms]
        assert losses[1] == pytest.approx(losses[0], rel=1e-3)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0  # of an nn.Sequential too
    assert set(arms[1].parts["model"].state_dict()) == set(arms[0].parts["model"].state_dict())


def test_what_cannot_be_compiled_is_said():
    with pytest.raises(UsageError, match="are default, reduce-overhead"):
        technique_named("compile=fast")
    with pytest.raises(UsageError, match="takes no value"):
        technique_named("channels-last=3")

    def compiled():
        parts = digits_task()
        parts["model"].compile()
        return parts

    with pytest.raises(NotApplicableError, match="compiles its model already"):
        build_arm(compiled, technique_named("compile"))


def test_a_step_of_which_nothing_is_compiled_is_no_compiled_one():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    task = lambda: {**digits_task(), "loss": lambda model, batch: next(model.parameters()).sum()}  # noqa: E731
    arm = build_arm(task, technique_named("compile"))
    with pytest.raises(NotApplicableError, match="compiled nothing"):
        arm.step(next(arm.source.first(1)))
