"""The four trainings that explorations are compared on: ordinary PyTorch loops on synthetic data, built from a seed.

They are other models than those of record_runs.py, on which our own method was developed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from exploration_task import Task
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES = 10
WORDS = 1000
SIZING_BATCHES = 200
WARM_S, TIMED_S = 0.5, 2.5  # of the steps by which a loop is sized


@dataclass(frozen=True)
class Loop:
    """A model and the shape of its data; the number of batches is found by timing, the number of epochs is fixed."""

    make: Callable[[], nn.Module]
    inputs: Callable[[int], torch.Tensor]
    batch: int
    epochs: int


@dataclass(frozen=True)
class Training:
    """All that a training needs."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    criterion: nn.Module
    loader: DataLoader
    epochs: int
    device: torch.device


class LastStep(nn.Module):
    def forward(self, answer: tuple[torch.Tensor, object]) -> torch.Tensor:
        outputs, _ = answer  # an LSTM's
        return outputs[:, -1]


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(196, 384), nn.ReLU(), nn.Dropout(0.2), nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, CLASSES)
    )


def cnn() -> nn.Module:
    wide = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)]
    deep = [nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*wide, *deep, nn.Flatten(), nn.Linear(32 * 4 * 4, CLASSES))


def lstm() -> nn.Module:
    return nn.Sequential(nn.LSTM(20, 96, batch_first=True), LastStep(), nn.Linear(96, CLASSES))


def transformer() -> nn.Module:
    layer = nn.TransformerEncoderLayer(64, nhead=4, dim_feedforward=128, batch_first=True)
    encoder = nn.TransformerEncoder(layer, num_layers=2)
    return nn.Sequential(nn.Embedding(WORDS, 64), encoder, nn.Flatten(), nn.Linear(24 * 64, CLASSES))


LOOPS = {
    "MLP": Loop(mlp, lambda n: torch.randn(n, 196), batch=64, epochs=30),
    "CNN": Loop(cnn, lambda n: torch.randn(n, 3, 16, 16), batch=64, epochs=12),
    "LSTM": Loop(lstm, lambda n: torch.randn(n, 32, 20), batch=64, epochs=25),
    "transformer": Loop(transformer, lambda n: torch.randint(0, WORDS, (n, 24)), batch=32, epochs=10),
}


def build(task: Task) -> Training:
    """The training of a task: the same for every tool, from its seed."""
    torch.set_num_threads(task.threads)
    torch.manual_seed(task.seed)
    loop, device = LOOPS[task.loop], torch.device(task.device)
    samples = task.batches * loop.batch
    data = TensorDataset(loop.inputs(samples), torch.randint(0, CLASSES, (samples,)))
    model = loop.make().to(device)
    loader = DataLoader(data, loop.batch, shuffle=True)
    return Training(model, torch.optim.Adam(model.parameters()), nn.CrossEntropyLoss(), loader, loop.epochs, device)


def steps(training: Training) -> Iterator[torch.Tensor]:
    """One epoch: the loss of each step. It is the step that ours and green-love make where none is given."""
    for inputs, targets in training.loader:
        inputs, targets = inputs.to(training.device), targets.to(training.device)
        training.optimizer.zero_grad()
        loss = training.criterion(training.model(inputs), targets)
        loss.backward()
        training.optimizer.step()
        yield loss


def train_epoch(training: Training) -> float:
    """One epoch and its last loss, whose reading waits for the device."""
    training.model.train()
    for loss in steps(training):  # noqa: B007
        pass
    return loss.item()


def train_s(training: Training) -> float:
    """Wall time of the whole training, run plainly."""
    began_s = time.perf_counter()
    for _ in range(training.epochs):
        train_epoch(training)
    return time.perf_counter() - began_s


def batch_s(task: Task) -> float:
    """Wall time of a warm batch, its loading included."""
    training = build(task)
    began_s = time.perf_counter()
    while time.perf_counter() < began_s + WARM_S:
        train_epoch(training)
    began_s, batches = time.perf_counter(), 0
    while True:
        for loss in steps(training):
            batches += 1
            if time.perf_counter() > began_s + TIMED_S:
                loss.item()
                return (time.perf_counter() - began_s) / batches
