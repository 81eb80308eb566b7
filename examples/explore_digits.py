"""Forecast a training before it starts, from some seconds of trials that leave the model and its random state untouched.

``greenlove explore examples/explore_digits.py:task --epochs 200 --budget 10 --country DE`` explores from the command
line: ``task()`` hands over the pieces of the training. ``python examples/explore_digits.py`` does the same in Python.
"""

from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from greenlove_tracker import Estimator


def task() -> dict[str, Any]:
    """Return a training that is ready to begin. The names are those of ``Estimator``'s arguments."""
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    model = nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 64, 10))
    return {
        "model": model,
        "optimizer": torch.optim.Adam(model.parameters()),
        "criterion": nn.CrossEntropyLoss(),
        "train_dataset": DataLoader(TensorDataset(images, torch.tensor(digits.target)), batch_size=32, shuffle=True),
    }


if __name__ == "__main__":
    estimation = Estimator(**task(), total_epochs=200, budget_s=10, country="DE").estimate()
    time = estimation.forecast.duration_s
    print(f"200 epochs take {time.point:.0f} s, with 95% probability {time.lower:.0f} to {time.upper:.0f} s")
