"""The step that is made here: the weights are those of a loop written by hand, whatever the task is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from techniques.task_samples import digits_task, transformer_task
from torch import nn

from greenlove_tracker.exploration.estimator import Estimator
from greenlove_tracker.techniques.arm import build_arm
from greenlove_tracker.vocabulary.errors import UsageError


def of_dicts() -> dict[str, Any]:
    """A loss of the task's own, of batches that are dicts."""
    parts = digits_task()
    batches = [{"images": images, "labels": labels} for images, labels in parts.pop("train_dataset")]
    del parts["criterion"]

    def loss(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return nn.functional.cross_entropy(model(batch["images"]), batch["labels"])

    return {**parts, "train_dataset": batches, "loss": loss}


def lightning_module() -> dict[str, Any]:
    """A LightningModule, whose training_step is the loss."""
    lightning = pytest.importorskip("lightning")
    plain = digits_task()

    class Digits(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = plain["model"]

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return self.network(images)

        def training_step(self, batch: Any, batch_index: int) -> torch.Tensor:
            return nn.functional.cross_entropy(self(batch[0]), batch[1])

    model = Digits()
    return {
        "model": model,
        "optimizer": torch.optim.AdamW(model.parameters(), 1e-3),
        "train_dataset": plain["train_dataset"],
        "loss": lambda model, batch: model.training_step(batch, 0),
    }


@pytest.mark.slow
@pytest.mark.parametrize("task", [digits_task, transformer_task, of_dicts, lightning_module])
def test_weights_are_those_of_a_loop_by_hand(task: Callable[[], dict[str, Any]]) -> None:
    arm, own = build_arm(task, seed=4), build_arm(task, seed=4).parts
    batches = list(arm.source.first(6))
    torch.manual_seed(1)
    losses = [arm.step(batch).item() for batch in batches]
    torch.manual_seed(1)
    for batch, seen in zip(batches, losses, strict=True):
        loss = own["loss"](own["model"], batch) if "loss" in own else own["criterion"](own["model"](batch[0]), batch[1])
        own["optimizer"].zero_grad()
        loss.backward()
        own["optimizer"].step()
        assert seen == loss.item()
    for ours, theirs in zip(arm.parts["model"].parameters(), own["model"].parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_an_exploration_takes_the_same_task(tmp_path) -> None:
    estimation = Estimator(criterion=None, **of_dicts(), budget_s=2, log_dir=tmp_path, verbose=0, asks=False).estimate()
    assert estimation.forecast.duration_s.point > 0


def test_what_a_loss_is_not_is_said() -> None:
    with pytest.raises(UsageError, match="name it criterion"):
        build_arm(lambda: {**digits_task(), "loss": nn.MSELoss()})
    with pytest.raises(UsageError, match="2 optimizers"):
        build_arm(lambda: {**digits_task(), "optimizer": [digits_task()["optimizer"]] * 2})
