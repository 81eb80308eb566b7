"""Track a training: what each epoch takes in time, energy, CO2e and cost, and what the whole will take.

``python examples/track_digits.py`` trains a small network on handwritten digits. The screen at the end says what it
took, how each number was obtained, and how good the forecast was. ``greenlove_logs`` holds the run as CSV files.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from greenlove_tracker import Tracker

EPOCHS = 12

torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
labels = torch.tensor(digits.target)
loader = DataLoader(TensorDataset(images[:1440], labels[:1440]), batch_size=32, shuffle=True)

model = nn.Sequential(
    nn.Conv2d(1, 32, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(32, 64, 3, padding=1),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(64 * 64, 10),
)
optimizer = torch.optim.Adam(model.parameters())


def train_one_epoch() -> None:
    """Train on each digit once; the tracker needs no line in here."""
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


with Tracker(epochs=EPOCHS, country="DE", project="digits") as tracker:
    for _ in range(EPOCHS):
        tracker.epoch_start()
        train_one_epoch()
        tracker.epoch_end()

with torch.no_grad():
    accuracy = float((model(images[1440:]).argmax(1) == labels[1440:]).float().mean())
print(f"accuracy on 357 digits that were held back: {accuracy:.3f}")
