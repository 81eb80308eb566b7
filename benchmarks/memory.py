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
from pathlib import Path

import torch

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]  # the trainings are those of the tests

from techniques.memory_samples import MODELS, profiled_peak_bytes  # noqa: E402

from greenlove_tracker.format import memory  # noqa: E402
from greenlove_tracker.techniques.memory import estimate_memory  # noqa: E402

BEGIN, END = "<!-- table of benchmarks/memory.py: begin -->", "<!-- end -->"
HEAD = ("training", "optimizer", "measured", "estimate", "error", "as on a GPU")
OPTIMIZERS = {
    "Adam": functools.partial(torch.optim.Adam, lr=1e-3),
    "SGD": functools.partial(torch.optim.SGD, lr=0.1),
}


def table() -> list[str]:
    """Return the table in Markdown."""
    rows = [HEAD, ("---", "---", "---:", "---:", "---:", "---:")]
    for model, task_with in MODELS.items():
        for name, optimizer in OPTIMIZERS.items():
            torch.manual_seed(0)
            task = task_with(optimizer)
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
