"""A small convolutional network learns scikit-learn's handwritten digits, under the tracker.

The lines marked with an arrow are all that the tracker needs. Run it with
`python -m greenlove_tracker.demo`; `greenlove demo` writes a report of it, too.
"""

from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from greenlove_tracker import Tracker  # <--

EPOCHS = 12
REPEATS = 20  # each epoch goes 20 times over the 1,437 digits, shifted anew each time: some 4 s on one CPU core


def main(**settings: Any) -> Tracker:
    """Train, and print the accuracy on digits that were held back."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # several wait for one another: on a machine that others use, ten times as long
    train, held_back = random_split(TensorDataset(*labelled_digits()), [0.8, 0.2])
    loader = DataLoader(train, batch_size=64, shuffle=True)
    model = digits_network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    accuracy = 0.0

    with Tracker(epochs=EPOCHS, **settings) as tracker:  # <--
        for _ in range(EPOCHS):
            tracker.epoch_start()  # <--
            train_epoch(model, loader, optimizer, tracker)
            tracker.epoch_end()  # <--
            accuracy = evaluate(model, held_back)

    print(f"accuracy on {len(held_back)} digits that were held back: {accuracy:.3f}")
    return tracker


def labelled_digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Return 1,797 images of 8 × 8 pixels, and the digit that each shows."""
    digits = load_digits()
    return torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16, torch.tensor(digits.target)


def digits_network(dropout: float = 0.2) -> nn.Sequential:
    """Return the network, not trained yet."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 16, 128),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(128, 10),
    )


def train_epoch(model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer, tracker: Tracker) -> None:
    """Go over the training digits, each time shifted by up to a pixel."""
    model.train()
    for _ in range(REPEATS):
        for images, labels in loader:
            shift = torch.randint(-1, 2, (2,)).tolist()
            loss = nn.functional.cross_entropy(model(images.roll(shift, dims=(2, 3))), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tracker.step(n_samples=len(labels))  # <-- counts samples; may be left out


@torch.no_grad()  # type: ignore[untyped-decorator]
def evaluate(model: nn.Module, held_back: TensorDataset) -> float:
    """Accuracy on the digits that were held back; its time counts as between epochs."""
    model.eval()
    images, labels = (torch.stack([pair[i] for pair in held_back]) for i in (0, 1))
    return float((model(images).argmax(1) == labels).float().mean())


if __name__ == "__main__":
    main()
