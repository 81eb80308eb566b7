"""What this package says of NVIDIA GPUs, beside what their driver and CUDA say themselves; it takes some six minutes.

    python benchmarks/on_a_gpu.py [--only counter,sums] [--into benchmarks/tables] [--without-cuda]

Let nothing else use the GPUs meanwhile. Each check stands for itself: where one fails, its line says why, and the next
one runs. A line has a figure, its bound, and ``ok`` or by how much it is off. The table at the end is also written into
``on_a_gpu_<name of the GPU>.csv``. Energies are compared with NVML's own counters, which are read just outside the same
stretch of time. That goes without CUDA too: the GPUs are idle then.

Exits with 0 where all is within its bound, with 1 where it is not or could not be checked, and with 2 without a GPU.
"""

from __future__ import annotations

import argparse
import csv
import gc
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pynvml
import torch
from overhead import MOST_TIMES_FLUSHES
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from greenlove_tracker import Estimator, Technique, Tracker, __version__, compare
from greenlove_tracker.logs.run import Run
from greenlove_tracker.machine.devices import Gpu, nvml_gpus, select_gpus
from greenlove_tracker.techniques.memory import estimate_memory
from greenlove_tracker.vocabulary.units import BYTES_PER_GB, JOULES_PER_KWH

HERE = Path(__file__).parent
EPOCH_S = 15.0  # a counter that moves each 0.1 s is then known to 0.7%
EVENTS_S = 2.0  # of an epoch that is timed by CUDA's events
AFTER_READY_S = 0.1  # CodeCarbon takes no new sample within 50 ms of the last
MOST_ENERGY_ERROR = 0.01
MOST_TIME_ERROR = 0.01
MOST_MEMORY_ERROR = 0.1  # of an estimate, as in the tests
MOST_LOGGED_ERROR_GIB = 0.01  # the log has two places
MOST_LEFT_GIB = 0.001


class Result(NamedTuple):
    check: str
    figure: str
    bound: str
    result: str


@dataclass(frozen=True)
class Machine:
    """The GPUs that a training uses here, torch's device for it, and a directory for what is written."""

    gpus: tuple[Gpu, ...]
    device: str
    directory: Path

    @property
    def settings(self) -> dict[str, Any]:
        return {"log_dir": self.directory, "country": "DE", "verbose": 0}


def judged(check: str, figure: str, error: float, most: float, form: str = ".2%") -> Result:
    """Return the line of a figure whose error is known."""
    result = "ok" if abs(error) <= most else f"off by {error:+{form}}"
    return Result(check, figure, f"within {most:{form}}", result)


@contextmanager
def tracked(machine: Machine, epochs: int) -> Iterator[Tracker]:
    """Track a training whose meter is up."""
    with Tracker(epochs, **machine.settings) as tracker:
        if not tracker.wait_ready(60):
            raise RuntimeError("the meter did not come up in 60 s")
        yield tracker


# -- energy


def counters_j(machine: Machine) -> dict[int, float]:
    """Read the energy counter of each GPU."""
    handles = {gpu.index: pynvml.nvmlDeviceGetHandleByIndex(gpu.index) for gpu in machine.gpus}
    return {index: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000 for index, handle in handles.items()}


def work(machine: Machine, duration_s: float) -> None:
    """Keep all GPUs busy for so long; without CUDA, wait."""
    if machine.device == "cpu":
        time.sleep(duration_s)
        return
    until_s = time.perf_counter() + duration_s
    matrices = [torch.randn(4096, 4096, device=f"cuda:{number}") for number in range(torch.cuda.device_count())]
    while time.perf_counter() < until_s:
        for matrix in matrices:
            torch.mm(matrix, matrix)
        for matrix in matrices:
            torch.cuda.synchronize(matrix.device)


def check_counter(machine: Machine) -> Iterator[Result]:
    """Compare the energy of epochs with the counters around each."""
    truths_j = []
    with tracked(machine, 3) as tracker:
        time.sleep(AFTER_READY_S)
        for _ in range(3):
            before_j = counters_j(machine)
            tracker.epoch_start()
            work(machine, EPOCH_S)
            tracker.epoch_end()
            truths_j.append(sum(counters_j(machine).values()) - sum(before_j.values()))
    for epoch, truth_j in zip(Run(tracker.run_dir).epochs, truths_j, strict=True):
        if epoch.energy.gpu_kwh is None:
            raise RuntimeError(f"the log has no energy of epoch {epoch.epoch}: {' '.join(epoch.flags)}")
        energy_j = epoch.energy.gpu_kwh * JOULES_PER_KWH
        figure = f"{energy_j:.1f} J by {epoch.energy.gpu_method}, {truth_j:.1f} J by NVML's counters"
        yield judged(f"energy of epoch {epoch.epoch}", figure, energy_j / truth_j - 1, MOST_ENERGY_ERROR)


def energies_by_gpu_j(run: Run) -> dict[int, float]:
    """Return the energy of each GPU; ``run.csv`` has it as ``0=0.0123 1=0.0117+ 2=``, of which the last is unknown."""
    entries = [entry.split("=") for entry in run.text("gpu_energies_kwh").split()]
    return {int(index): float(kwh.rstrip("+")) * JOULES_PER_KWH for index, kwh in entries if kwh}


def check_sums(machine: Machine) -> Iterator[Result]:
    """Compare the energy of each GPU with its counter, and their sum with the run's."""
    with tracked(machine, 1) as tracker:
        before_j = counters_j(machine)
        tracker.epoch_start()
        work(machine, 2 * EPOCH_S)
        tracker.epoch_end()
    after_j = counters_j(machine)
    run = Run(tracker.run_dir)
    energies_j = energies_by_gpu_j(run)
    for index in before_j:
        if index in energies_j:
            truth_j = after_j[index] - before_j[index]
            figure = f"{energies_j[index]:.1f} J, {truth_j:.1f} J by its counter"
            yield judged(f"energy of GPU {index}", figure, energies_j[index] / truth_j - 1, MOST_ENERGY_ERROR)
        else:
            yield Result(f"energy of GPU {index}", "", "", f"failed: {run.text('gpu_note') or 'run.csv has none'}")
    sum_j = sum(energies_j.values())
    total_j = (run.summary.energy.gpu_kwh or 0.0) * JOULES_PER_KWH
    figure = f"{sum_j:.1f} J of {len(energies_j)} GPUs, {total_j:.1f} J of the run"
    yield judged("sum over GPUs", figure, sum_j / total_j - 1, MOST_ENERGY_ERROR)


# -- what needs CUDA


def task(device: str) -> tuple[Any, ...]:
    """Return a training with dropout and shuffled data that takes about 1 GiB."""
    width = 4096
    layers = [part for _ in range(4) for part in (nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Dropout(0.2)).to(device)
    data = TensorDataset(torch.randn(4096, width), torch.randint(0, width, (4096,)))
    return model, torch.optim.Adam(model.parameters()), nn.CrossEntropyLoss(), DataLoader(data, 256, shuffle=True)


def train(parts: tuple[Any, ...], device: str) -> list[float]:
    """Train for an epoch, and return the loss of each step."""
    model, optimizer, criterion, batches = parts
    losses = []
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss = criterion(model(inputs.to(device)), targets.to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def check_timing(machine: Machine) -> Iterator[Result]:
    """Compare epochs that only give CUDA its work, some seconds of it, with CUDA's events around that work."""
    matrix = torch.randn(8192, 8192, device=machine.device)
    for _ in range(2):  # the first one also loads CUDA's libraries
        began_s = time.perf_counter()
        torch.mm(matrix, matrix)
        torch.cuda.synchronize()
    n_products = round(EVENTS_S / (time.perf_counter() - began_s)) + 1
    truths_s = []
    with tracked(machine, 5) as tracker:
        for _ in range(5):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            tracker.epoch_start()
            start.record()
            for _ in range(n_products):
                torch.mm(matrix, matrix)
            end.record()
            tracker.epoch_end()
            end.synchronize()
            truths_s.append(start.elapsed_time(end) / 1000)
    for epoch, truth_s in zip(Run(tracker.run_dir).epochs, truths_s, strict=True):
        figure = f"{epoch.duration_s:.4f} s, {truth_s:.4f} s by CUDA's events"
        yield judged(f"time of epoch {epoch.epoch}", figure, epoch.duration_s / truth_s - 1, MOST_TIME_ERROR)


def check_comparison(machine: Machine) -> Iterator[Result]:
    """Compare two techniques, and the training with itself."""
    itself = Technique("itself", lambda parts: parts)
    found = compare(partial(task, machine.device), ["amp-bf16", "tf32", itself], budget_s=150, **machine.settings)
    for row in found.rows:
        check = f"comparison with {row.name}"
        if row.time_ratio is None:
            yield Result(check, "", "", f"failed: {row.reason or row.verdict}")
            continue
        lower, upper = row.time_ratio.lower, row.time_ratio.upper
        figure = f"{lower:.3f} to {upper:.3f} of the time, {row.verdict}"
        if row.name == itself.name:
            yield judged(check, f"{figure}; 1 is to be in it", max(lower - 1, 0) + min(upper - 1, 0), 0, ".1%")
        elif row.energy_ratio is None:
            yield Result(check, figure, "energy is measured", "off: its energy is unknown")
        else:
            yield Result(check, f"{figure}; {row.energy_ratio.point:.3f} of the energy", "energy is measured", "ok")


def check_exploration(machine: Machine) -> Iterator[Result]:
    """Train on after an exploration as without one: each loss and each weight is to be the same."""
    outcomes = []
    for is_explored in (False, False, True):
        torch.manual_seed(0)
        parts = task(machine.device)
        train(parts, machine.device)  # the optimizer has states now
        gc.collect()
        before_bytes = torch.cuda.memory_allocated()
        if is_explored:
            estimation = Estimator(*parts, total_epochs=50, budget_s=30, asks=False, **machine.settings).estimate()
        gc.collect()
        left_gib = (torch.cuda.memory_allocated() - before_bytes) / BYTES_PER_GB
        losses = torch.tensor(train(parts, machine.device))
        outcomes.append([losses, *(weight.cpu() for weight in parts[0].state_dict().values())])
    plain, again, explored = outcomes
    if not all(map(torch.equal, plain, again)):
        raise RuntimeError("two trainings without an exploration differ: nothing can be said of one with it")
    n_differ = sum(not torch.equal(one, other) for one, other in zip(plain, explored, strict=True))
    figure = f"{n_differ} of {len(plain)} tensors differ after {len(estimation.trials)} trials"
    yield judged("trace of an exploration", figure, n_differ, 0, ".0f")
    yield judged("GPU memory that it holds", f"{left_gib:+.4f} GiB", left_gib, MOST_LEFT_GIB, ".3f")


def check_memory(machine: Machine) -> Iterator[Result]:
    """Compare the peak of memory that is estimated on the CPU, and the log's, with that of CUDA's allocator."""
    (row,) = estimate_memory(partial(task, "cpu"))
    torch.mm(*torch.randn(2, 64, 64, device=machine.device))  # CUDA's libraries take memory once, for themselves
    gc.collect()
    others_bytes = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    with tracked(machine, 1) as tracker:
        tracker.epoch_start()
        train(task(machine.device), machine.device)
        tracker.epoch_end()
    peak_gib = torch.cuda.max_memory_allocated() / BYTES_PER_GB
    own_gib = peak_gib - others_bytes / BYTES_PER_GB
    estimate_gib = row.peak_bytes / BYTES_PER_GB
    figure = f"{estimate_gib:.3f} GiB, {own_gib:.3f} GiB by the allocator"
    yield judged("peak memory, estimated", figure, estimate_gib / own_gib - 1, MOST_MEMORY_ERROR)
    logged_gib = Run(tracker.run_dir).amount("peak_gpu_memory_gb")
    figure = f"{logged_gib:.2f} GiB, {peak_gib:.3f} GiB by the allocator"
    yield judged("peak memory, logged", figure, logged_gib - peak_gib, MOST_LOGGED_ERROR_GIB, ".2f")


def check_overhead(machine: Machine) -> Iterator[Result]:
    """Time epochs beside CodeCarbon's own flushes, in a process of their own."""
    path = machine.directory / "overhead.json"
    options = ["--only-epochs", "--epochs", "80", "--rounds", "3", "--json", str(path)]
    done = subprocess.run([sys.executable, HERE / "overhead.py", *options], capture_output=True, text=True, timeout=180)
    if not path.exists():
        raise RuntimeError(f"overhead.py ended without a result: {done.stderr[-300:]}")
    found = json.loads(path.read_text(encoding="utf-8"))
    figure = f"{found['epoch_ms']:.2f} ms an epoch, {found['more_than_flushes_ms']:+.2f} ms over CodeCarbon's flushes"
    times = found["times_flushes"]
    result = "ok" if times <= MOST_TIMES_FLUSHES else f"off by {times - MOST_TIMES_FLUSHES:+.2f}"
    yield Result("overhead", f"{figure}, {times:.2f} times", f"at most {MOST_TIMES_FLUSHES} times", result)


CHECKS: dict[str, Callable[[Machine], Iterator[Result]]] = {
    "counter": check_counter,
    "sums": check_sums,
    "timing": check_timing,
    "comparison": check_comparison,
    "exploration": check_exploration,
    "memory": check_memory,
    "overhead": check_overhead,
}
NEED_CUDA = ("timing", "comparison", "exploration", "memory")


def results_of(name: str, machine: Machine, without_cuda: str) -> Iterator[Result]:
    """Run a check; where it cannot, say why."""
    if name in NEED_CUDA and without_cuda:
        yield Result(name, "", "", f"not run, it needs CUDA: {without_cuda}")
        return
    try:
        yield from CHECKS[name](machine)
    except Exception as error:  # of the driver, of torch or of ours: the next check runs
        yield Result(name, "", "", f"failed: {type(error).__name__}: {error}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(CHECKS), help="some of these, joined by commas: %(default)s")
    parser.add_argument("--into", type=Path, default=HERE / "tables", help="the folder that the table is written into")
    parser.add_argument("--without-cuda", action="store_true", help="leave out what needs CUDA")
    arguments = parser.parse_args()
    present = nvml_gpus()
    gpus = select_gpus(present, os.environ).gpus
    if not gpus:
        print(f"There is no NVIDIA GPU to check: {present.problem or 'no driver shows one'}.")
        return 2
    pynvml.nvmlInit()
    without_cuda = "--without-cuda" if arguments.without_cuda else ""
    if not torch.cuda.is_available():
        without_cuda = f"torch {torch.__version__} sees none"
    software = f"driver {pynvml.nvmlSystemGetDriverVersion()}, greenlove_tracker {__version__}"
    machine_row = Result("machine", f"{len(gpus)} GPUs, {gpus[0].name}, {software}", "", time.strftime("%Y-%m-%d"))
    rows = [Result._fields, machine_row]
    with tempfile.TemporaryDirectory() as directory:
        machine = Machine(gpus, "cpu" if without_cuda else "cuda", Path(directory))
        for name in arguments.only.split(","):
            for result in results_of(name, machine, without_cuda):
                rows.append(result)
                print(*filter(None, result), sep=" | ", flush=True)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    print()
    for row in rows:
        print(*map(str.ljust, row, widths), sep="  ")
    path = arguments.into / f"on_a_gpu_{re.sub('[^A-Za-z0-9]+', '-', gpus[0].name)}.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    print(f"\nwritten to {path}")
    return 0 if all(row[-1] == "ok" for row in rows[2:]) else 1


if __name__ == "__main__":
    sys.exit(main())
