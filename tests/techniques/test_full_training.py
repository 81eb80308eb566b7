"""Trainings to their end, on a fake clock and a simulated meter: evaluations, metrics, steps, schedulers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from greenlove_tracker.logs.run import Run
from greenlove_tracker.meter import SimulatedMeter
from greenlove_tracker.techniques.full_training import train_one
from tests.fakes import FakeClock

STEP_S, EVAL_S = 1.0, 30.0


class Training:
    """A tiny training whose steps and evaluations take time on a clock; its tasks say what was done."""

    def __init__(self, **more: Any) -> None:
        self.clock = FakeClock()
        self.more = more
        self.first_weights: list[float] = []
        self.batches: list[list[float]] = []
        self.step_s = STEP_S

    def task(self) -> dict[str, Any]:
        x = torch.arange(24, dtype=torch.float32).unsqueeze(1)
        model = nn.Linear(1, 1)
        self.first_weights.append(model.weight.item())
        self.batches.append([])
        own = {key: make(model) if key == "also_restore" else make for key, make in self.more.items()}
        return {
            "model": model,
            "optimizer": torch.optim.SGD(model.parameters(), lr=1e-4),
            "criterion": nn.MSELoss(),
            "train_dataset": DataLoader(TensorDataset(x, 2 * x), 8, shuffle=True),
            "train_step": self.step,
            "eval_fn": self.evaluate,
            "total_epochs": 4,
            **own,
        }

    def step(self, model: Any, batch: Any, optimizer: Any, criterion: Any, device: Any) -> Any:
        self.batches[-1] += batch[0].flatten().tolist()
        optimizer.zero_grad()
        loss = criterion(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        self.clock.pass_s(self.step_s)
        return loss

    def evaluate(self, model: nn.Module) -> Any:
        model.eval()
        self.clock.pass_s(EVAL_S)
        return 0.9

    def trained(self, log_dir: Path) -> Run:
        """Train to the end, as it is."""
        meter = SimulatedMeter(self.clock, gpu_w=360.0)
        saved = log_dir / "saved"
        settings = {"verbose": 0}
        return train_one(
            self.task, None, log_dir=log_dir, checkpoint_dir=saved, clock=self.clock, meter=meter, settings=settings
        )


@pytest.mark.slow
def test_evaluation_lies_outside_the_epochs(tmp_path) -> None:
    training = Training()
    run = training.trained(tmp_path)
    assert [epoch.duration_s for epoch in run.epochs] == pytest.approx([3 * STEP_S] * 4)
    assert run.summary.duration_s == pytest.approx(4 * (3 * STEP_S + EVAL_S))
    assert run.summary.energy_kwh == pytest.approx(360 * run.summary.duration_s / 3.6e6)


@pytest.mark.slow
def test_metrics_are_logged_for_each_epoch(tmp_path) -> None:
    training = Training(eval_fn=lambda model: {"f1": torch.tensor(0.5), "train_loss": 3.0})
    run = training.trained(tmp_path)
    values = run.metric_values[0]
    losses = [v.value for v in values if v.name == "train_loss"]
    assert [v.epoch for v in values if v.name == "train_loss"] == [1, 2, 3, 4]
    assert losses[0] > losses[-1] > 0
    assert run.metrics["f1"].best == 0.5
    assert run.metrics["eval_train_loss"].last == 3.0


@pytest.mark.slow
def test_evaluations_come_as_often_as_asked_and_at_the_end(tmp_path) -> None:
    training = Training(eval_every=3)
    run = training.trained(tmp_path)
    assert [v.epoch for v in run.metric_values[0] if v.name == "accuracy"] == [3, 4]


@pytest.mark.slow
def test_a_training_in_steps_ends_after_them(tmp_path) -> None:
    training = Training(total_epochs=None, total_steps=10, eval_every=4)
    run = training.trained(tmp_path)
    assert run.summary.counts.steps == 10
    assert run.summary.counts.samples == 80
    assert run.is_complete
    assert [v.steps_done for v in run.metric_values[0] if v.name == "accuracy"] == [4, 8, 10]
    assert run.summary.epochs_duration_s == pytest.approx(10 * STEP_S)
    assert run.summary.duration_s == pytest.approx(10 * STEP_S + 3 * EVAL_S)


@pytest.mark.slow
def test_steps_that_accumulate_are_counted_by_the_optimizer(tmp_path) -> None:
    calls = 0

    def step(model: Any, batch: Any, optimizer: Any, *_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls % 2 == 0:
            optimizer.step()

    training = Training(total_epochs=None, total_steps=5, train_step=step, eval_fn=None)
    run = training.trained(tmp_path)
    assert calls == 10
    assert run.summary.counts.steps == 5
    assert run.summary.counts.batches == 10


@pytest.mark.slow
def test_a_scheduler_that_nobody_steps_is_stepped_each_epoch(tmp_path) -> None:
    found: list[Any] = []

    def schedulers(model: nn.Module) -> list[Any]:
        return found

    training = Training(also_restore=schedulers)
    own = training.task

    def task() -> dict[str, Any]:
        parts = own()
        found[:] = [torch.optim.lr_scheduler.StepLR(parts["optimizer"], 1, gamma=0.5)]
        return parts

    training.task = task  # type: ignore[method-assign]
    run = training.trained(tmp_path)
    assert found[0].last_epoch == 4
    assert found[0].get_last_lr() == [pytest.approx(1e-4 / 16)]
    assert run.text("technique_note") == ""


@pytest.mark.slow
def test_a_scheduler_that_the_step_steps_is_left_alone(tmp_path) -> None:
    kept: list[Any] = []

    def task() -> dict[str, Any]:
        parts = Training().task()
        scheduler = torch.optim.lr_scheduler.StepLR(parts["optimizer"], 100)
        kept[:] = [scheduler]

        def step(model: Any, batch: Any, optimizer: Any, *_: Any) -> None:
            optimizer.step()
            scheduler.step()

        return {**parts, "train_step": step, "also_restore": [scheduler], "eval_fn": None}

    training = Training()
    training.task = task  # type: ignore[method-assign]
    run = training.trained(tmp_path)
    assert kept[0].last_epoch == 12
    assert run.text("technique_note") == ""
