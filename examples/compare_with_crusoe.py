"""Compare: what would this training take, cost and emit here, and what on the GPUs that Crusoe rents out?

``python examples/compare_with_crusoe.py`` explores a training for five seconds on the processor, trains nothing, and prints
a table. No network is asked: prices and specifications come with the package, with their dates.
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


def text(estimate: Estimate, per_unit: float = 1.0) -> str:
    """Return an estimate with its interval."""
    point, lower, upper = (f"{value / per_unit:.2f}" for value in (estimate.point, estimate.lower, estimate.upper))
    return f"{point} [{lower}–{upper}]"


# Whoever explores on a GPU says which one: local_gpu="RTX 3090".
rows = project(estimation.forecast, provider="crusoe", workload="vision", precision="fp32", country="DE")
print(f"{'':14} GPUs {'time, h':>17} {'cost, $':>17} {'kg CO2e':>17}")
for row in rows:
    if row.is_compared:  # it fits, and has a public price
        numbers = text(row.duration_s, 3600), text(row.cost_usd), text(row.emissions_kgco2e)
        print(f"{row.name:14} {row.billed_gpus:4} " + " ".join(f"{number:>17}" for number in numbers), row.obtained)
print("Ranges are at 90%. The cost here is that of the electricity. What else this rests on:")
print(*rows[0].warnings, sep="\n")
