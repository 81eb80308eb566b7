"""Two small trainings that the tests of techniques share: a convolution on digits, and a transformer on tokens.

Each call returns fresh parts, and trains on a CPU in seconds. Without dropout, two ways to train can give the same
gradients.
"""

from collections.abc import Callable
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

N_TOKENS = 48  # of the vocabulary
N_PLACES = 24  # of a sequence


def accuracy_on(inputs: torch.Tensor, targets: torch.Tensor) -> Callable[[nn.Module], float]:
    """Return the share that a model names rightly, as a function of the model."""

    @torch.no_grad()
    def accuracy(model: nn.Module) -> float:
        was_training = model.training
        model.eval()
        found = float((model(inputs).argmax(1) == targets).float().mean())
        model.train(was_training)
        return found

    return accuracy


def digits_task(dropout: float = 0.2, batch_size: int = 64, epochs: int = 3) -> dict[str, Any]:
    """Scikit-learn's digits, 8 × 8 pixels, and a convolution; 1,437 digits to train on, 360 held back."""
    digits = load_digits()
    images, labels = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16, torch.tensor(digits.target)
    model = nn.Sequential(
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

    return {
        "model": model,
        "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-3),
        "criterion": nn.CrossEntropyLoss(),
        "train_dataset": DataLoader(TensorDataset(images[:1437], labels[:1437]), batch_size, shuffle=True),
        "total_epochs": epochs,
        "eval_fn": accuracy_on(images[1437:], labels[1437:]),
    }


class TokenTransformer(nn.Module):
    """A transformer encoder that says the next token at each place; its logits are (batch, token, place)."""

    def __init__(self, width: int = 32, n_layers: int = 4, n_heads: int = 4, dropout: float = 0.1) -> None:
        super().__init__()
        self.embedding = nn.Embedding(N_TOKENS, width)
        self.places = nn.Parameter(torch.randn(N_PLACES, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, n_heads, 4 * width, dropout, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, n_layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, N_TOKENS)
        self.register_buffer("mask", torch.triu(torch.full((N_PLACES, N_PLACES), float("-inf")), 1))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        states = self.encoder(self.embedding(tokens) + self.places, mask=self.mask)
        return self.head(states).transpose(1, 2)


def transformer_task(dropout: float = 0.1, batch_size: int = 32, epochs: int = 2) -> dict[str, Any]:
    """Tokens that mostly follow from the one before, and a transformer that learns which."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(N_TOKENS, (512, N_PLACES + 1), generator=generator)
    for place in range(1, N_PLACES + 1):
        follows = torch.rand(512, generator=generator) < 0.9
        tokens[:, place] = torch.where(follows, (5 * tokens[:, place - 1] + 7) % N_TOKENS, tokens[:, place])
    model = TokenTransformer(dropout=dropout)

    return {
        "model": model,
        "optimizer": torch.optim.AdamW(model.parameters(), lr=3e-3),
        "criterion": nn.CrossEntropyLoss(),
        "train_dataset": DataLoader(TensorDataset(tokens[:, :-1], tokens[:, 1:]), batch_size, shuffle=True),
        "total_epochs": epochs,
        "eval_fn": accuracy_on(tokens[:64, :-1], tokens[:64, 1:]),
    }
