"""Train a small network on handwritten digits; interrupt it at will, and start it again: the result is the same.

``python examples/checkpointed_digits.py`` trains 12 epochs. Kill it (``kill -9``), end it (``kill``, Ctrl-C) or let a
job's time run out, and start the same command again: it goes on from the newest checkpoint. The last line, a checksum
of the weights, is the same whatever came between. With ``--from-scratch`` a new directory of checkpoints is begun.
"""

import argparse
import hashlib
import tempfile

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from greenlove_tracker import Checkpointer

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=12)
parser.add_argument("--checkpoints", default="digits-checkpoints")
parser.add_argument("--from-scratch", action="store_true")
arguments = parser.parse_args()

torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
labels = torch.tensor(digits.target)
train_loader = DataLoader(TensorDataset(images[:1440], labels[:1440]), batch_size=32, shuffle=True)
test_loader = DataLoader(TensorDataset(images[1440:], labels[1440:]), batch_size=119)

model = nn.Sequential(
    nn.Conv2d(1, 48, 3, padding=1),
    nn.ReLU(),
    nn.Dropout(0.2),
    nn.Flatten(),
    nn.Linear(48 * 64, 10),
)
optimizer = torch.optim.Adam(model.parameters())
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, arguments.epochs)

checkpointer = Checkpointer(
    tempfile.mkdtemp() if arguments.from_scratch else arguments.checkpoints,
    model=model,
    optimizer=optimizer,
    scheduler=scheduler,
    every_s=2,  # minutes are usual; this training takes seconds
    best="accuracy",
)
for epoch in checkpointer.epochs(arguments.epochs):
    for x, y in checkpointer.batches(train_loader):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    scheduler.step()
    model.eval()
    with torch.no_grad():
        n_right = sum(int((model(x).argmax(1) == y).sum()) for x, y in test_loader)
    model.train()
    checkpointer.log_metric("accuracy", n_right / 357)
    print(f"epoch {epoch + 1}: accuracy {n_right / 357:.3f}", flush=True)

weights = b"".join(value.cpu().numpy().tobytes() for value in model.state_dict().values())
print(f"weights: {hashlib.sha256(weights).hexdigest()[:16]}")
