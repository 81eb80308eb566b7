"""How well the memory of a training is estimated: beside what torch's allocator gave in real steps on a CPU.

    python benchmarks/memory.py [--write benchmarks/tables/memory.md]

Five small trainings, each with Adam and SGD. Measured is the running sum of the allocation events of torch's profiler
over two steps, beside the model itself: it knows nothing of tensors, and sees what kernels take and give back inside.
The estimate is of `greenlove project --memory`, by tensors without data: as on this CPU, and as on a GPU, where the
optimizer takes all parameters at once and memory comes in blocks of 512 bytes. ``--write`` puts the table between the
page's marks.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]  # it is measured as in the tests

from techniques.memory_samples import profiled_peak_bytes, with_optimizer  # noqa: E402
from techniques.task_samples import digits_task  # noqa: E402

from greenlove_tracker.techniques.memory import estimate_memory  # noqa: E402
from greenlove_tracker.text.format import memory  # noqa: E402

BEGIN, END = "<!-- table of benchmarks/memory.py: begin -->", "<!-- end -->"
HEAD = ("training", "optimizer", "measured", "estimate", "error", "as on a GPU")
OPTIMIZERS = {
    "Adam": functools.partial(torch.optim.Adam, lr=1e-3),
    "SGD": functools.partial(torch.optim.SGD, lr=0.1),
}


class LastState(nn.Module):
    """An LSTM of two layers that names the class of a sequence by its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.LSTM(32, 128, 2, batch_first=True)
        self.head = nn.Linear(128, 10)

    def forward(self, sequences: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(sequences)[0][:, -1])


class ResidualBlock(nn.Module):
    """Two convolutions with batch normalisation, and what goes around them."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(n_out),
            nn.ReLU(inplace=True),
            nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(n_out),
        )
        self.around = nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return nn.functional.relu(self.inner(images) + self.around(images))


def _mlp() -> tuple[nn.Module, torch.Tensor]:
    model = nn.Sequential(
        nn.Linear(256, 1024), nn.ReLU(), nn.Dropout(0.1), nn.Linear(1024, 512), nn.GELU(), nn.Linear(512, 10)
    )
    return model, torch.randn(256, 256)


def _transformer() -> tuple[nn.Module, torch.Tensor]:
    layer = nn.TransformerEncoderLayer(64, 4, 256, 0.1, batch_first=True)
    model = nn.Sequential(
        nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), nn.Flatten(), nn.Linear(32 * 64, 10)
    )
    return model, torch.randn(256, 32, 64)


def _resnet() -> tuple[nn.Module, torch.Tensor]:
    blocks = [ResidualBlock(16, 16, 1), ResidualBlock(16, 32, 2), ResidualBlock(32, 64, 2)]
    stem = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True))
    model = nn.Sequential(stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    return model, torch.randn(128, 3, 32, 32)


def _lstm() -> tuple[nn.Module, torch.Tensor]:
    return LastState(), torch.randn(256, 20, 32)


def _task_of(build: Callable[[], tuple[nn.Module, torch.Tensor]]) -> Callable[[], dict[str, Any]]:
    def parts() -> dict[str, Any]:
        model, inputs = build()
        return {
            "model": model,
            "criterion": nn.CrossEntropyLoss(),
            "train_dataset": TensorDataset(inputs, torch.arange(len(inputs)) % 10),
            "batch_size": 64,
        }

    return parts


MODELS: dict[str, Callable[[], dict[str, Any]]] = {
    "digits CNN": digits_task,
    "MLP": _task_of(_mlp),
    "transformer": _task_of(_transformer),
    "ResNet": _task_of(_resnet),
    "LSTM": _task_of(_lstm),
}


def table() -> list[str]:
    """Return the table in Markdown."""
    rows = [HEAD, ("---", "---", "---:", "---:", "---:", "---:")]
    for model, make in MODELS.items():
        for name, optimizer in OPTIMIZERS.items():
            torch.manual_seed(0)
            task = with_optimizer(make, optimizer)
            measured = profiled_peak_bytes(task)
            here = estimate_memory(task, as_on_gpu=False)[0].peak_bytes or 0
            there = estimate_memory(task)[0].peak_bytes
            rows.append((model, name, memory(measured), memory(here), f"{here / measured - 1:+.1%}", memory(there)))
    return [f"| {' | '.join(row)} |" for row in rows]


def main() -> None:
    """Print the table, or write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, metavar="PAGE")
    page = parser.parse_args().write
    lines = "\n".join(table())
    if page is None:
        print(lines)
        return
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{lines}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
