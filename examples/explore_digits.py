"""Forecast a training before it starts, from some seconds of trials that leave the model as it was.

``greenlove explore examples/explore_digits.py:task --country DE`` explores from the command line: ``task()`` returns
the pieces of the training. ``python examples/explore_digits.py`` does the same in Python.
"""

from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from greenlove_tracker import Estimator


def task() -> dict[str, Any]:
    """Return a training that is ready to begin, by the names of ``Estimator``'s arguments."""
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * 64, 10),
    )

    @torch.no_grad()
    def accuracy(model: nn.Module) -> float:
        return float((model(images[1440:]).argmax(1) == labels[1440:]).float().mean())

    return {
        "model": model,
        "optimizer": torch.optim.Adam(model.parameters()),
        "criterion": nn.CrossEntropyLoss(),
        "train_dataset": DataLoader(TensorDataset(images[:1440], labels[:1440]), batch_size=32, shuffle=True),
        "total_epochs": 300,
        "eval_fn": accuracy,  # it counts too: once an epoch
        "budget_s": 5,  # half a minute is usual
    }


if __name__ == "__main__":
    estimation = Estimator(**task(), country="DE").estimate()
    time = estimation.forecast.duration_s
    print(f"300 epochs take {time.point:.0f} s, with 95% probability {time.lower:.0f} to {time.upper:.0f} s")
