"""Whole trainings on a fake clock: saved and gone on with, stopped early; their metrics, steps and schedulers."""

from __future__ import annotations

import random
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from greenlove_tracker import Tracker
from greenlove_tracker.checkpointing.checkpointer import Checkpointer
from greenlove_tracker.logs.directory import Logs
from greenlove_tracker.logs.run import Run
from greenlove_tracker.meter import SimulatedMeter
from greenlove_tracker.techniques import full_training
from greenlove_tracker.techniques.full_training import train_one
from greenlove_tracker.techniques.technique import NotApplicableError, Parts, Technique, technique_named
from greenlove_tracker.vocabulary.errors import UsageError
from tests.fakes import FakeClock

N_SAMPLES, BATCH = 24, 8
STEP_S, EVAL_S = 1.0, 30.0
pytestmark = pytest.mark.filterwarnings("error:Detected call of:UserWarning")  # of a scheduler, before its optimizer


class KilledError(Exception):
    """Stands for a kill: nothing is saved at this moment."""


class Training:
    """A training that draws random numbers wherever it can; ``model`` is that of the last call of its task."""

    def __init__(self, **more: Any) -> None:
        self.clock, self.more = FakeClock(), more
        self.n_steps, self.dies_at = 0, 0
        self.model: nn.Module = nn.Identity()

    def task(self) -> dict[str, Any]:
        x = torch.linspace(-1, 1, N_SAMPLES).unsqueeze(1).repeat(1, 4)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 1))
        optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
        return {
            "model": self.model,
            "optimizer": optimizer,
            "train_dataset": DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), BATCH, shuffle=True),
            "loss": self.loss,
            "eval_fn": self.evaluate,
            "also_restore": [scheduler],
            "total_epochs": 5,
            **self.more,
        }

    def loss(self, model: Any, batch: Any) -> Any:
        self.n_steps += 1
        if self.n_steps == self.dies_at:
            raise KilledError
        self.clock.pass_s(STEP_S)
        return nn.functional.mse_loss(model(batch[0] + 0.1 * torch.rand(1) * random.random()), batch[1])

    def evaluate(self, model: nn.Module) -> Any:
        model.eval()
        self.clock.pass_s(EVAL_S)
        return {"checksum": checksum(model), "val_loss": float(torch.rand(1))}

    def trained(self, log_dir: Path, technique: Technique | None = None, *, dies_at: int = 0, **more: Any) -> Run:
        """Train; with ``dies_at`` until that step of this call."""
        self.n_steps, self.dies_at = 0, dies_at
        more = {"settings": {"verbose": 0}, "meter": SimulatedMeter(self.clock, gpu_w=36.0), **more}
        more.setdefault("checkpoint_dir", log_dir / "saved")
        return train_one(self.task, technique, log_dir=log_dir, clock=self.clock, **more)


def checksum(model: nn.Module) -> float:
    return float(sum(tensor.double().sum() for tensor in model.state_dict().values()))


def values(runs: list[Run]) -> dict[tuple[int | None, str], set[float]]:
    """Return all that a chain of runs logged, by epoch or steps, and name; what is done again has to be alike."""
    found: dict[tuple[int | None, str], set[float]] = {}
    for run in runs:
        in_steps, before = not run.text("epochs_planned"), int(run.text("first_step") or 0)
        for v in run.metric_values.get(0, ()):
            found.setdefault((before + v.steps_done if in_steps else v.epoch, v.name), set()).add(v.value)
    return found


@pytest.fixture(autouse=True)
def stops(monkeypatch) -> list[Any]:
    """What trackers are told of early stopping."""
    told: list[Any] = []
    monkeypatch.setattr(Tracker, "expect_stop", lambda tracker, rule: told.append(rule.metric), raising=False)
    monkeypatch.setattr(Tracker, "log_early_stop", lambda tracker, best: told.append(best), raising=False)
    return told


@pytest.fixture
def often(monkeypatch) -> None:
    """Save every two batches."""
    monkeypatch.setattr(full_training, "Checkpointer", partial(Checkpointer, every_steps=2))


def broken(training: Training, tmp_path: Path, technique: Technique | None = None, **more: Any) -> list[Run]:
    """Train with kills at several places, and go on until it is done; return all of its runs."""
    for dies_at in (6, 5, 4):
        with pytest.raises(KilledError):
            training.trained(tmp_path, technique, dies_at=dies_at, checkpoint_dir=tmp_path / "saved", **more)
    training.trained(tmp_path, technique, checkpoint_dir=tmp_path / "saved", **more)
    return sorted(Logs(tmp_path).runs, key=lambda run: run.started_at)


def assert_same(training: Training, runs: list[Run], whole: Run, model: nn.Module) -> None:
    """The last of a chain of runs has learnt what an unbroken training has, and all of them have logged the same."""
    assert [run.text("continues") for run in runs] == ["", *(run.run_id for run in runs[:-1])]
    assert [run.summary.status for run in runs] == ["failed"] * (len(runs) - 1) + ["finished"]
    for ours, theirs in zip(training.model.state_dict().values(), model.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)
    assert values(runs) == values([whole])


@pytest.mark.slow
@pytest.mark.parametrize("technique", [None, technique_named("early-stopping=2")])
@pytest.mark.parametrize("length", [{}, {"total_epochs": None, "total_steps": 20, "eval_every": 3}])
def test_a_training_that_was_killed_goes_on_bit_for_bit(tmp_path, often, technique, length) -> None:
    training = Training(**length)
    whole = training.trained(tmp_path / "whole", technique, seed=3)
    model = training.model
    runs = broken(training, tmp_path / "broken", technique, seed=3)
    assert_same(training, runs, whole, model)
    assert not (tmp_path / "broken" / "saved").exists()


@pytest.mark.slow
def test_techniques_together_go_on_and_steps_skipped_at_first_are_none_of_the_schedule(tmp_path, often) -> None:
    class Unscheduled(Training):
        def task(self) -> dict[str, Any]:
            parts = super().task()
            optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
            return {**parts, "optimizer": optimizer, "also_restore": []}

    technique = technique_named("early-stopping=4+lr-schedule=cosine+amp-fp16")
    training = Unscheduled(total_epochs=8)
    whole = training.trained(tmp_path / "whole", technique)
    model, note = training.model, whole.text("technique_note")
    counted = re.search(r"(\d+) of (\d+) optimizer steps were skipped", note)
    assert counted is not None
    assert int(counted[1]) > 3  # all of the first epoch
    assert_same(training, broken(training, tmp_path / "broken", technique), whole, model)


@pytest.mark.slow
def test_a_training_that_is_done_is_only_closed(tmp_path, often, monkeypatch, stops) -> None:
    """As if it had been killed behind its last checkpoint, before its run was closed."""
    training = Training()
    with monkeypatch.context() as patch:
        patch.setattr(full_training.shutil, "rmtree", lambda directory, **_: None)
        whole = training.trained(
            tmp_path / "runs", technique_named("early-stopping=1"), checkpoint_dir=tmp_path / "saved"
        )
    model, told = training.model, stops[:]
    stops.clear()
    again = training.trained(tmp_path / "runs", technique_named("early-stopping=1"), checkpoint_dir=tmp_path / "saved")
    assert training.n_steps == 0
    assert stops == told
    assert again.summary.status == "finished"
    assert again.text("continues") == whole.run_id
    assert checksum(training.model) == checksum(model)
    assert not (tmp_path / "saved").exists()


# -- stopping early --


@pytest.mark.slow
def test_early_stopping_ends_it_and_puts_the_best_weights_back(tmp_path, stops) -> None:
    losses = iter([9.0, 3.0, 1.0, 2.0, 2.5, 9.0])  # the first tells what there is to follow
    kept = []

    def evaluate(model: nn.Module) -> Any:
        kept.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
        return {"val_loss": next(losses)}

    training = Training(eval_fn=evaluate)
    run = training.trained(tmp_path, technique_named("early-stopping=2"), weights=tmp_path / "weights" / "a.pt")
    assert run.summary.epochs_done == 4
    of_file = torch.load(tmp_path / "weights" / "a.pt")
    assert run.summary.status == "finished"
    assert stops == ["val_loss", 2]
    for name, tensor in training.model.state_dict().items():
        assert torch.equal(tensor, kept[2][name]) and torch.equal(tensor, of_file[name])
    assert [v.value for v in run.metric_values[0] if v.name == "val_loss"] == [3.0, 1.0, 2.0, 2.5]


# -- lengths --


@pytest.mark.slow
def test_techniques_see_the_length_and_the_batch_size_that_are_asked_for(tmp_path) -> None:
    seen: list[Any] = []

    def look(parts: Parts) -> Parts:
        seen.append((parts["total_epochs"], parts["total_steps"], parts["train_dataset"].batch_size))
        return parts

    training, look_on = Training(eval_every=2), Technique("look", look)
    run = training.trained(tmp_path / "a", look_on, epochs=2, batch_size=12)
    assert run.summary.epochs_done == 2
    assert run.summary.counts.steps == 4
    assert run.text("batch_size") == "12"
    run = training.trained(tmp_path / "b", look_on, steps=7)
    assert run.summary.counts.steps == 7
    assert [v.steps_done for v in run.metric_values[0] if v.name == "val_loss"] == [7]  # 2 was a number of epochs
    assert seen == [(2, None, 12), (None, 7, 8)]
    with pytest.raises(UsageError, match="epochs and steps"):
        training.trained(tmp_path / "c", epochs=2, steps=7)
    with pytest.raises(NotApplicableError, match="ready-made batches"):
        Training(train_dataset=[(torch.ones(8, 4), torch.ones(8, 1))] * 3).trained(tmp_path / "d", batch_size=4)


# -- metrics, steps and schedulers --


@pytest.mark.slow
def test_evaluation_lies_outside_the_epochs_and_metrics_are_of_each(tmp_path) -> None:
    training = Training(eval_every=3)
    plain = training.evaluate
    training.more["eval_fn"] = lambda model: plain(model) | {"f1": torch.tensor(0.5), "train_loss": 3.0}
    run = training.trained(tmp_path)
    assert [epoch.duration_s for epoch in run.epochs] == pytest.approx([3 * STEP_S] * 5)
    assert run.summary.duration_s == pytest.approx(5 * 3 * STEP_S + 2 * EVAL_S)
    assert run.summary.energy_kwh == pytest.approx(36 * run.summary.duration_s / 3.6e6)
    found = {name: [v.epoch for v in run.metric_values[0] if v.name == name] for name in ("train_loss", "f1")}
    assert found == {"train_loss": [1, 2, 3, 4, 5], "f1": [3, 5]}
    assert run.metrics["f1"].best == 0.5 and run.metrics["eval_train_loss"].last == 3.0


@pytest.mark.slow
def test_steps_that_accumulate_are_counted_by_the_optimizer_and_evaluated_by_steps(tmp_path) -> None:
    calls = []

    def step(model: Any, batch: Any, optimizer: Any, *_: Any) -> None:
        calls.append(batch)
        training.clock.pass_s(STEP_S)
        if len(calls) % 2 == 0:
            optimizer.step()

    training = Training(total_epochs=None, total_steps=10, eval_every=4, criterion=None, train_step=step)
    run = training.trained(tmp_path)
    counts = run.summary.counts
    assert (len(calls), counts.steps, counts.batches, counts.samples) == (20, 10, 20, 160) and run.is_complete
    assert [v.steps_done for v in run.metric_values[0] if v.name == "val_loss"] == [4, 8, 10]
    assert run.summary.epochs_duration_s == pytest.approx(20 * STEP_S)
    assert run.summary.duration_s == pytest.approx(20 * STEP_S + 3 * EVAL_S)


@pytest.mark.slow
@pytest.mark.parametrize(("is_stepped", "position"), [(False, 5), (True, 15)])
def test_a_scheduler_is_stepped_each_epoch_unless_the_step_steps_it(tmp_path, is_stepped, position) -> None:
    training, kept = Training(), list[Any]()
    plain = training.task

    def task() -> dict[str, Any]:
        parts = plain()
        kept[:] = parts["also_restore"]

        def step(model: Any, batch: Any, optimizer: Any, *_: Any) -> None:
            optimizer.step()
            kept[0].step()

        return {**parts, "criterion": None, "train_step": step} if is_stepped else parts

    training.task = task  # type: ignore[method-assign]
    training.trained(tmp_path)
    assert kept[0].last_epoch == position
