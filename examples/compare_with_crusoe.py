"""Compare: what would this training take, cost and emit here, and what on the GPUs that Crusoe rents out?

``python examples/compare_with_crusoe.py`` explores a training for five seconds on the CPU, and prints a table. Prices
and specifications come with the package; no network is asked. ``greenlove project --provider crusoe`` then says more
about the same, and takes tracked runs too.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from greenlove_tracker import Estimate, Estimator, project

# The time of a step does not hang on what the images show: 50,000 of CIFAR-10's size, all of them the same one.
images = torch.rand(1, 3, 32, 32).expand(50_000, -1, -1, -1)
labels = torch.zeros(50_000, dtype=torch.long)
model = nn.Sequential(
    *(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Conv2d(64, 128, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Conv2d(128, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Flatten(), nn.Linear(256 * 16, 10)),
)

estimation = Estimator(
    model,
    torch.optim.SGD(model.parameters(), lr=0.1),
    nn.CrossEntropyLoss(),
    DataLoader(TensorDataset(images, labels), batch_size=32),
    total_epochs=90,
    budget_s=5,
    country="DE",
    verbose=0,
).estimate()


def cell(estimate: Estimate, factor: float = 1.0) -> str:
    """Return an estimate with its interval, in the width of the table."""
    point, lower, upper = (f"{value * factor:.3g}" for value in (estimate.point, estimate.lower, estimate.upper))
    return f"{f'{point} [{lower}–{upper}]':>22}"


# Convolutions compute in tf32 on these GPUs by default. Where the GPU here is explored on: local_gpu="RTX 3090".
rows = project(estimation.forecast, provider="crusoe", workload="vision", precision="tf32", country="DE")
print(f"{'':14} GPUs {'time, h':>22} {'cost, $':>22} {'CO2e, g':>22}")
for row in rows:
    if row.is_compared:  # the others have no public price, or need other software
        cells = cell(row.duration_s, 1 / 3600), cell(row.cost_usd), cell(row.emissions_kgco2e, 1000)
        print(f"{row.name:14} {row.billed_gpus:4}", *cells, f" {row.obtained}")
print("Ranges are at 90%. The cost here is that of the electricity. What else this rests on:")
print(*rows[0].warnings, sep="\n")
