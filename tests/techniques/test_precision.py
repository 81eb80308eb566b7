"""Mixed precision and TF32: what computes in how many bits, and what the gradients are."""

import pytest
import torch
from techniques.task_samples import digits_task, transformer_task
from torch import nn

from greenlove_tracker.techniques.arm import build_arm
from greenlove_tracker.techniques.technique import NotApplicableError, technique_named
from greenlove_tracker.vocabulary.errors import UsageError

TASKS = [digits_task, transformer_task]


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", ["amp-bf16", "amp-fp16"])
def test_a_model_computes_in_fewer_bits_with_weights_as_before_and_is_saved_as_it_is(task, name, tmp_path):
    arm = build_arm(task, technique_named(name))
    model, seen = arm.parts["model"], set()
    leaf = [m for m in model.modules() if isinstance(m, nn.Linear)][-1]
    leaf.register_forward_hook(lambda _module, _inputs, output: seen.add(output.dtype))
    arm.step(next(arm.source.first(1)))
    assert seen == {torch.bfloat16 if name == "amp-bf16" else torch.float16}
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    torch.save(model.state_dict(), tmp_path / "model.pt")
    assert type(model) is type(task()["model"])


@pytest.mark.slow
@pytest.mark.parametrize("name", [None, "amp-fp16"])
def test_true_gradients_are_clipped(name):
    arm = build_arm(lambda: {**digits_task(0.0), "max_grad_norm": 0.01}, name and technique_named(name))
    for batch in arm.source.first(4):
        arm.step(batch)
    gradients = torch.cat([p.grad.flatten() for p in arm.parts["model"].parameters()])
    assert float(gradients.norm()) == pytest.approx(0.01, rel=1e-3)


@pytest.mark.slow
def test_a_step_with_infinite_gradients_is_skipped_and_counted():
    def task():
        parts = digits_task(0.0)
        plain = parts["criterion"]
        calls = iter((1.0, 1.0, float("inf"), 1.0, 1.0))
        return {**parts, "criterion": lambda outputs, targets: plain(outputs, targets) * next(calls)}

    arm = build_arm(task, technique_named("amp-fp16"))
    batch = next(arm.source.first(1))
    weights = []
    for _ in range(5):
        arm.step(batch)
        weights.append(next(arm.parts["model"].parameters()).detach().clone())
    assert torch.equal(weights[1], weights[2])
    assert not torch.equal(weights[2], weights[3])
    assert "1 of 5 optimizer steps were skipped, as their gradients were infinite" in arm.counted()


def test_what_cannot_be_is_said():
    def half():
        parts = digits_task()
        return {**parts, "model": parts["model"].bfloat16()}

    with pytest.raises(NotApplicableError, match="have 16 bits already"):
        build_arm(half, technique_named("amp-bf16"))
    with pytest.raises(UsageError, match="takes no value"):
        technique_named("amp-bf16=2")
    with pytest.raises(UsageError, match="exclude each other"):
        technique_named("amp-bf16+amp-fp16")


def test_tf32_is_put_back():
    technique, before = technique_named("tf32"), torch.get_float32_matmul_precision()
    with pytest.raises(KeyError), technique.active():
        assert torch.get_float32_matmul_precision() == "high"
        raise KeyError
    assert torch.get_float32_matmul_precision() == before
