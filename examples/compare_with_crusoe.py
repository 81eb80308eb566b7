"""Compare the time, cost and CO2e of a training here with the GPUs that Crusoe rents out.

``python examples/compare_with_crusoe.py`` explores a training for five seconds on the CPU and prints a table. Prices
and specifications come with the package; the network is not used. ``greenlove project --provider crusoe`` then says
more about the same training, and takes tracked runs too.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from greenlove_tracker import Estimate, Estimator, project

# What the images show does not matter for the time of a step: 50,000 of CIFAR-10's size, all of them the same one.
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
    values = (value * factor for value in (estimate.point, estimate.lower, estimate.upper))
    point, lower, upper = (f"{value:.0f}" if value >= 1000 else f"{value:.3g}" for value in values)
    return f"{f'{point} [{lower}–{upper}]':>24}"


# Convolutions compute in tf32 on these GPUs by default. Where the GPU here is explored on: local_gpu="RTX 3090".
rows = project(estimation.forecast, provider="crusoe", workload="vision", precision="tf32", country="DE")
here, *others = (row for row in rows if row.is_compared)  # the rest has no public price, or needs other software
others.sort(key=lambda row: row.cost_usd.point)
cheapest = next(row for row in others if row.is_for_rent_now)
print(f"Cheapest to rent now: {cheapest.billed_gpus} × {cheapest.name}, ${cheapest.cost_usd.point:.2f}")
print(f"{'':14} GPUs {'time, h':>24} {'cost, $':>24} {'CO2e, g':>24}")
for row in (here, *others):
    cells = cell(row.duration_s, 1 / 3600), cell(row.cost_usd), cell(row.emissions_kgco2e, 1000)
    print(f"{row.name:14} {row.billed_gpus if row.gpu else '–':>4}", *cells, f" {row.obtained}")
print("Ranges are at 90%. The cost here is the electricity; a reservation costs its minimum term of a week (assumed).")
print("Without a GPU here, speeds start from an assumed CPU and are rough, to a factor of five.")
print(*rows[0].warnings, sep="\n")
