"""A small convolutional network on handwritten digits, as a task: what would make its training cheaper?

    greenlove compare examples/compare_digits.py:task --techniques fused-optimizer,amp-bf16 --country DE

tells the cost of a sample with each technique, with its interval, in two minutes, whatever the length of the training.
What a technique does to the accuracy, whole trainings tell: examples/experiments/digits.yaml.
"""

from __future__ import annotations

from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 15
N_TRAINED_ON = 1440  # the other 357 digits are held back


def task() -> dict[str, Any]:
    """Return a fresh training: everything that it changes is made in here, so that no arm begins with another's."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(64 * 16, 10),
    )
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=EPOCHS)

    @torch.no_grad()
    def evaluate(model: nn.Module) -> dict[str, float]:
        model.eval()
        scores = model(images[N_TRAINED_ON:])
        return {
            "accuracy": float((scores.argmax(1) == labels[N_TRAINED_ON:]).float().mean()),
            "val_loss": float(nn.functional.cross_entropy(scores, labels[N_TRAINED_ON:])),
        }

    return {
        "model": model,
        "optimizer": optimizer,
        "criterion": nn.CrossEntropyLoss(),
        "train_dataset": DataLoader(
            TensorDataset(images[:N_TRAINED_ON], labels[:N_TRAINED_ON]), batch_size=32, shuffle=True
        ),
        "eval_fn": evaluate,
        "also_restore": [schedule],  # nobody steps it here: an experiment steps it once an epoch
        "total_epochs": EPOCHS,
    }
