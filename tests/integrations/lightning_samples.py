"""A Lightning module of five weights whose work takes its time on a clock that is moved by hand."""

from __future__ import annotations

import functools
from typing import Any

import torch
from fakes import FakeClock
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

LOAD_S, TRAIN_S, VALIDATE_S, SAVE_S = 0.25, 1.0, 10.0, 100.0
N_SAMPLES, BATCH = 22, 4  # five batches and a half one


def loss(net: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    inputs, targets = batch
    return ((net(inputs) - targets) ** 2).mean()


def _collate(clock: FakeClock, samples: list[Any]) -> list[torch.Tensor]:
    clock.pass_s(LOAD_S)
    return [torch.stack(column) for column in zip(*samples, strict=True)]


def make_loaders(clock: FakeClock) -> tuple[DataLoader, DataLoader]:
    """Return loaders of training and validation: the first takes its time, the second has two batches."""
    generator = torch.Generator().manual_seed(3)
    data = TensorDataset(torch.randn(N_SAMPLES, 4, generator=generator), torch.randn(N_SAMPLES, 1, generator=generator))
    return DataLoader(data, BATCH, collate_fn=functools.partial(_collate, clock)), DataLoader(data, N_SAMPLES // 2)


class Work:
    """The base of a ``LightningModule``, of whichever library.

    Args:
        clock: that its work takes its time on.
        breaks_at: batch in whose training it raises, counted from 1.
    """

    def __init__(self, clock: FakeClock, breaks_at: int = 0) -> None:
        super().__init__()
        self.net, self.clock, self.breaks_at, self.n_batches = nn.Linear(4, 1), clock, breaks_at, 0

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.clock.pass_s(TRAIN_S)
        self.n_batches += 1
        if self.n_batches == self.breaks_at:
            raise RuntimeError("out of luck")
        return loss(self.net, batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.clock.pass_s(VALIDATE_S)
        self.log("val_loss", loss(self.net, batch))

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.clock.pass_s(SAVE_S)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.01)
