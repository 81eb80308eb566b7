"""Train a small network on handwritten digits. It knows nothing of any tracker.

``greenlove run --country DE examples/plain_pytorch.py --epochs 12`` finds its epochs, and forecasts the whole.
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=12)
arguments = parser.parse_args()

torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
labels = torch.tensor(digits.target)
train_loader = DataLoader(TensorDataset(images[:1440], labels[:1440]), batch_size=32, shuffle=True)
test_loader = DataLoader(TensorDataset(images[1440:], labels[1440:]), batch_size=119)

model = nn.Sequential(
    nn.Conv2d(1, 96, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(96, 192, 3, padding=1),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(192 * 64, 10),
)
optimizer = torch.optim.Adam(model.parameters())

for epoch in range(1, arguments.epochs + 1):
    for x, y in train_loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    with torch.no_grad():
        n_right = sum(int((model(x).argmax(1) == y).sum()) for x, y in test_loader)
    print(f"epoch {epoch}: accuracy {n_right / 357:.3f}")
