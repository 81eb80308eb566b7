"""What tracking costs: import, construction, each epoch, and a short training as a whole, beside its peers.

    python benchmarks/overhead.py [--epochs 300] [--rounds 5] [--trainings 9] [--json FILE]
    python benchmarks/overhead.py --gpus 8 --epochs 100 --rounds 9

All is measured in one run, in interleaved rounds; the figures that count are the ratios and differences, since
machines are noisy. Imports and constructions are timed in fresh processes. An epoch here is empty: what is timed
is `epoch_start()` + `epoch_end()`, a pair of CodeCarbon's `flush()`, its `start_task()` + `stop_task()`, and
carbontracker's `epoch_start()` + `epoch_end()`. An epoch lasts 60 ms of waiting outside the clock, since CodeCarbon
takes no new sample within 50 ms of the last and an epoch that measures nothing would be too cheap.

``--only-epochs`` times nothing but epochs and CodeCarbon's flushes, with the GPUs that the machine has. ``--gpus 8``
does so with eight GPUs of the tests' stand-in of NVIDIA's driver, which gcc builds. Its calls take no time of their
own: what is left is what Python does for each GPU.

The training as a whole is a small LSTM in PyTorch, some seconds on all cores, in a process of its own, from start to
exit: what a tool loads, starts and leaves behind is in its wall time and in its CPU time, child processes included.
Each round runs the training plainly and with each tool, in turn; what a tool costs is the median of the differences
within a round. All code is compiled before, as pip does when it installs: a checkout where Python writes no bytecode
would compile our 70 modules at each start, which takes a tenth of a second.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

PAUSE_S = 0.06
MOST_MS, MOST_STEP_US = 0.35, 5.0  # that are asked, on a machine that does nothing else
MOST_TIMES_FLUSHES = 1.86  # an epoch with eight GPUs of the stand-in, beside CodeCarbon's own pair of flushes
TESTS = Path(__file__).parents[1] / "tests"
OURS = "greenlove_tracker epoch_start + epoch_end"
FLUSHES = "codecarbon flush + flush"

FRESH = {
    "greenlove_tracker": (
        "import greenlove_tracker",
        "from greenlove_tracker import Tracker",
        "t = Tracker(3, verbose=0, log_dir=sys.argv[1])",
    ),
    "codecarbon": (
        "import codecarbon",
        "from codecarbon import OfflineEmissionsTracker",
        "t = OfflineEmissionsTracker(country_iso_code='DEU', log_level='critical', output_methods=[]); t.start()",
    ),
    "carbontracker": (
        "import carbontracker.tracker",
        "from carbontracker.tracker import CarbonTracker",
        "t = CarbonTracker(epochs=3, verbose=0, log_dir=sys.argv[1])",
    ),
}
PROBE = """
import os, sys, time
os.environ["CODECARBON_LOG_LEVEL"] = "critical"
a = time.perf_counter()
{}
b = time.perf_counter()
{}
c = time.perf_counter()
{}
d = time.perf_counter()
sys.stdout = sys.stderr
print(b - a, c - a, d - c, file=sys.__stdout__, flush=True)
os._exit(0)
"""

PLAIN = "plainly"
# What a tool's user writes: at the beginning, around each epoch, and at the end.
TRACKED = {
    PLAIN: ("", "pass", "pass", ""),
    "greenlove_tracker": (
        "from greenlove_tracker import Tracker; t = Tracker(EPOCHS, verbose=0, log_dir=sys.argv[1])",
        "t.epoch_start()",
        "t.epoch_end()",
        "t.stop()",
    ),
    "codecarbon": (
        "from codecarbon import OfflineEmissionsTracker; t = OfflineEmissionsTracker(country_iso_code='DEU', "
        "log_level='critical', output_dir=sys.argv[1]); t.start()",
        "pass",
        "t.flush()",
        "t.stop()",
    ),
    "carbontracker": (
        "from carbontracker.tracker import CarbonTracker; t = CarbonTracker(EPOCHS, verbose=0, log_dir=sys.argv[1])",
        "t.epoch_start()",
        "t.epoch_end()",
        "t.stop()",
    ),
}
TRAINING = """
import os, sys
os.environ["CODECARBON_LOG_LEVEL"] = "critical"
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.LSTM(28, 64, batch_first=True), nn.Linear(64, 10)

    def forward(self, rows):
        return self.out(self.rnn(rows)[0][:, -1])

EPOCHS = 12
torch.manual_seed(0)
net, loss_of = Net(), nn.CrossEntropyLoss()
optimizer = torch.optim.Adadelta(net.parameters())
inputs, targets = torch.randn(2048, 28, 28), torch.randint(0, 10, (2048,))
{}
for epoch in range(EPOCHS):
    {}
    for at in range(0, len(inputs), 64):
        optimizer.zero_grad()
        loss_of(net(inputs[at : at + 64]), targets[at : at + 64]).backward()
        optimizer.step()
    {}
{}
"""

# What `greenlove run` adds to each step of a loop that it watches: passes of 100 steps of 1 ms, in turn without and
# with its hooks, then with and without (A-B-B-A), in CPU time of the training's own thread, so that what else the
# machine does is in neither but for the caches that it empties: on a busy machine all code takes several times as
# long, and a step that waits until its millisecond of CPU time is over does not, so that the share comes out too
# large there. An epoch's two boundaries cost what epoch_start() and epoch_end() do, and are not in it.
LOOPS = """
import sys, time
import torch
from torch.utils.data import DataLoader, RandomSampler, TensorDataset
from greenlove_tracker.settings.config import load_settings
from greenlove_tracker.integrations.pytorch import PyTorchHooks
from greenlove_tracker.integrations.training_loops import LoopDetector
from greenlove_tracker.machine.job import Ranks
from greenlove_tracker.tracker.session import Session
from greenlove_tracker.vocabulary.phases import Plan
from greenlove_tracker.tracker.state import RunMode

torch.set_num_threads(1)
session = Session(load_settings({"log_dir": sys.argv[1], "verbose": 0}), Plan(), Ranks(), mode=RunMode.RUNNER)
session.wait_ready(60)
detector, errors = LoopDetector(session), []
weight = torch.nn.Parameter(torch.zeros(8))
weight.grad = torch.ones(8)
optimizer = torch.optim.SGD([weight], lr=0.1)
data = TensorDataset(torch.zeros(4000, 8))
loader = DataLoader(data, batch_size=8, sampler=RandomSampler(data, replacement=True, num_samples=10**9))

def steps(batches):
    began = time.thread_time()
    for _ in range(100):
        next(batches)
        until = time.thread_time() + 0.0009
        optimizer.step()
        while time.thread_time() < until:
            pass
    return (time.thread_time() - began) / 100 * 1e6

plain = iter(loader)
with PyTorchHooks(detector, errors.append):
    watched = iter(loader)

def watched_steps():
    with PyTorchHooks(detector, errors.append):
        return steps(watched)

for _ in range(int(sys.argv[2])):
    first, then, again, last = steps(plain), watched_steps(), watched_steps(), steps(plain)
    print((first + last) / 2, (then + again) / 2)
detector.finish()
n_steps = 200 * int(sys.argv[2])
assert not errors and detector.n_steps == n_steps, (errors, detector.n_steps)
session.finish("finished")
"""


def watched_loops(directory: str, rounds: int) -> list[tuple[float, float]]:
    """Microseconds of a step, plainly and watched, of each A-B-B-A of passes."""
    done = subprocess.run(
        [sys.executable, "-c", LOOPS, directory, str(rounds)], capture_output=True, text=True, check=True
    )
    return [(float(a), float(b)) for a, b in (line.split() for line in done.stdout.splitlines())]


def loops_table(pairs: list[tuple[float, float]]) -> str:
    """What watching costs a step: the median of the differences within each A-B-B-A, and its standard error."""
    plain_us = statistics.median(plain for plain, _ in pairs)
    more = [watched - plain for plain, watched in pairs]
    middle = statistics.quantiles(more, n=4)
    more_us = middle[1]
    error_us = 1.253 * (middle[2] - middle[0]) / 1.349 / len(more) ** 0.5  # of a median; the quartiles give sigma
    return (
        f"a step of a loop that greenlove run watches: {plain_us:,.0f} µs plainly, {more_us:+.1f} ± {error_us:.1f} µs "
        f"watched ({more_us / plain_us:+.2%}; at most 0.5% is asked); the median of {len(pairs)} A-B-B-A, load "
        f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )


def step_us(directory: str, rounds: int = 30, n_steps: int = 2000) -> float:
    """Microseconds of CPU of a `step()`, the median of rounds."""
    from greenlove_tracker import Tracker

    with Tracker(1, verbose=0, log_dir=directory) as tracker:
        tracker.wait_ready(60)
        tracker.epoch_start()
        costs = []
        for _ in range(rounds):
            began_ns = time.thread_time_ns()
            for _ in range(n_steps):
                tracker.step()
            costs.append((time.thread_time_ns() - began_ns) / 1e3 / n_steps)
    return statistics.median(costs)


def consumption_us(directory: str, epochs: int = 300) -> float:
    """Microseconds of CPU of asking for ``consumption`` behind an epoch, the median."""
    from greenlove_tracker import Tracker

    costs = []
    with Tracker(epochs, verbose=0, log_dir=directory) as tracker:
        tracker.wait_ready(60)
        for _ in range(epochs):
            tracker.epoch_start()
            tracker.epoch_end()
            began_ns = time.thread_time_ns()
            _ = tracker.consumption
            costs.append((time.thread_time_ns() - began_ns) / 1e3)
    return statistics.median(costs)


def whole_process(code: str, directory: str) -> tuple[float, float]:
    """Wall and CPU seconds of a process that runs this, with all child processes that it waited for."""
    began_s = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", code, directory], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"a process ended with exit code {process.returncode}:\n{code}")
    return time.perf_counter() - began_s, usage.ru_utime + usage.ru_stime


def whole_trainings(directory: str, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Wall and CPU seconds of the training with each tool; in turn, so that what disturbs one disturbs all."""
    codes = {name: TRAINING.format(*parts) for name, parts in TRACKED.items()}
    costs: dict[str, list[tuple[float, float]]] = {name: [] for name in codes}
    for _ in range(rounds):
        for name, code in codes.items():
            costs[name].append(whole_process(code, directory))
    return costs


def compile_all(directory: str) -> None:
    """Run each process once, whose bytecode all others find."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(Path(directory, "bytecode"))
    whole_trainings(directory, 1)
    for name in FRESH:
        fresh_process(name, directory)


def added_costs(costs: dict[str, list[tuple[float, float]]]) -> dict[str, tuple[float, float]]:
    """What each tool adds to the plain training, in wall and CPU seconds: the median of each round's difference."""
    added = {}
    for name, rows in costs.items():
        pairs = [(wall - plain[0], cpu - plain[1]) for (wall, cpu), plain in zip(rows, costs[PLAIN], strict=True)]
        added[name] = (statistics.median(p[0] for p in pairs), statistics.median(p[1] for p in pairs))
    return added


def whole_table(costs: dict[str, list[tuple[float, float]]]) -> str:
    lines = [f"{'a short training as a whole':<32}{'wall':>10}{'CPU':>10}{'more wall':>14}{'more CPU':>12}"]
    for name, (more_wall_s, more_cpu_s) in added_costs(costs).items():
        wall_s, cpu_s = (statistics.median(column) for column in zip(*costs[name], strict=True))
        more = "" if name == PLAIN else f"{more_wall_s:>+12.2f} s{more_cpu_s:>+10.2f} s"
        lines.append(f"{name:<32}{wall_s:>8.2f} s{cpu_s:>8.2f} s{more}")
    return "\n".join(lines)


def fresh_process(name: str, directory: str) -> tuple[float, float, float]:
    """Seconds for the package's import, for its class, and for an object that tracks."""
    code = PROBE.format(*FRESH[name])
    done = subprocess.run([sys.executable, "-c", code, directory], capture_output=True, text=True, check=True)
    package_s, class_s, object_s = map(float, done.stdout.split()[-3:])
    return package_s, class_s, object_s


def timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def ours(directory: str) -> Callable[[], float]:
    from greenlove_tracker import Tracker

    tracker = Tracker(verbose=0, log_dir=directory)
    if not tracker.wait_ready(60):
        raise SystemExit("the meter did not come up: nothing to compare")

    def epoch() -> float:
        cost_s = timed(tracker.epoch_start)
        time.sleep(PAUSE_S)
        return cost_s + timed(tracker.epoch_end)

    return epoch


def codecarbon(*, with_tasks: bool) -> Callable[[], float]:
    from codecarbon import OfflineEmissionsTracker
    from codecarbon.output_methods.base_output import BaseOutput

    tracker = OfflineEmissionsTracker(
        country_iso_code="DEU",
        log_level="critical",
        output_methods=[],
        output_handlers=[BaseOutput()],
        api_call_interval=-1,
        electricitymaps_api_token="",
        allow_multiple_runs=True,
    )
    tracker.start()

    def flushes() -> float:
        cost_s = timed(tracker.flush)
        time.sleep(PAUSE_S)
        return cost_s + timed(tracker.flush)

    def task() -> float:
        cost_s = timed(tracker.start_task)
        time.sleep(PAUSE_S)
        return cost_s + timed(tracker.stop_task)

    return task if with_tasks else flushes


def carbontracker(directory: str, epochs: int) -> Callable[[], float]:
    from carbontracker.tracker import CarbonTracker

    tracker = CarbonTracker(epochs=epochs + 1, verbose=0, log_dir=directory)
    logging.getLogger("carbontracker").setLevel(logging.CRITICAL)

    def epoch() -> float:
        cost_s = timed(tracker.epoch_start)
        time.sleep(PAUSE_S)
        return cost_s + timed(tracker.epoch_end)

    return epoch


def interleaved(epochs: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each epoch; in turn, so that what disturbs one disturbs all."""
    costs: dict[str, list[float]] = {name: [] for name in epochs}
    for _ in range(rounds):
        for name, epoch in epochs.items():
            costs[name].append(epoch())
    return costs


def alternating_rounds(directory: str, epochs: int, rounds: int) -> list[tuple[float, float]]:
    """Return the median of an epoch of ours and of CodeCarbon's pair of flushes, in ms, of each round."""
    pair = {OURS: ours(directory), FLUSHES: codecarbon(with_tasks=False)}
    interleaved(pair, 10)  # the first ones load what is loaded late
    medians = []
    for _ in range(rounds):
        costs = interleaved(pair, epochs)
        medians.append((statistics.median(costs[OURS]) * 1e3, statistics.median(costs[FLUSHES]) * 1e3))
    return medians


def report_epochs(medians: list[tuple[float, float]], n_gpus: int, to: Path | None) -> bool:
    """Print and write what an epoch costs; return True where that is not more than is asked."""
    print(f"{'round':<8}{'an epoch':>12}{'two flushes':>14}{'÷ flushes':>12}")
    for number, (ours_ms, flushes_ms) in enumerate(medians, 1):
        print(f"{number:<8}{ours_ms:>9.3f} ms{flushes_ms:>11.3f} ms{ours_ms / flushes_ms:>12.2f}")
    figures = {
        "n_gpus": n_gpus,
        "epoch_ms": statistics.median(ours_ms for ours_ms, _ in medians),
        "flushes_ms": statistics.median(flushes_ms for _, flushes_ms in medians),
        "more_than_flushes_ms": statistics.median(ours_ms - flushes_ms for ours_ms, flushes_ms in medians),
        "times_flushes": statistics.median(ours_ms / flushes_ms for ours_ms, flushes_ms in medians),
    }
    print(
        f"with {n_gpus} GPUs an epoch costs {figures['epoch_ms']:.3f} ms, CodeCarbon's own pair of flushes "
        f"{figures['flushes_ms']:.3f} ms: {figures['more_than_flushes_ms']:+.3f} ms, or {figures['times_flushes']:.2f} "
        f"times as much (at most {MOST_TIMES_FLUSHES} is asked); medians of {len(medians)} rounds, load "
        f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    if to:
        to.write_text(json.dumps(figures, indent=2))
    return figures["times_flushes"] <= MOST_TIMES_FLUSHES


def stand_in_environment(directory: Path, n_gpus: int) -> dict[str, str]:
    """Build the tests' stand-in of NVIDIA's driver, and return the environment of a process that loads it."""
    sys.path.insert(0, str(TESTS))
    from nvml.driver import DRIVER, HERE, Gpu, Line

    library = directory / "libnvidia-ml.so.1"
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", library, HERE / "nvml_stub.c", "-lm"], check=True)
    scenario = directory / "scenario"
    lines = [Line("gpus", n_gpus, DRIVER)]
    for number in range(n_gpus):
        lines += Gpu().lines(number)
    scenario.write_text("".join(map(str, lines)), encoding="utf-8")
    smi = directory / "nvidia-smi"  # by which CodeCarbon looks for a driver
    smi.write_text("#!/bin/sh\n", encoding="utf-8")
    smi.chmod(0o755)
    environment = os.environ | {
        "LD_LIBRARY_PATH": str(directory),
        "NVML_SCENARIO": str(scenario),
        "PATH": f"{directory}:{os.environ['PATH']}",
    }
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    return environment


def over_stand_in(n_gpus: int) -> int:
    """Run this script again, for epochs alone, over the stand-in; return its exit code."""
    with tempfile.TemporaryDirectory() as directory:
        environment = stand_in_environment(Path(directory), n_gpus)
        return subprocess.run([sys.executable, *sys.argv, "--only-epochs"], env=environment).returncode


def n_nvidia_gpus() -> int:
    from greenlove_tracker.machine.devices import nvml_gpus

    return len(nvml_gpus())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--trainings", type=int, default=9, help="rounds of the short training as a whole; 0: none")
    parser.add_argument(
        "--loops", type=int, default=100, help="A-B-B-A of 100 steps of a loop that is watched; 0: none"
    )
    parser.add_argument("--only-loops", action="store_true", help="nothing else")
    parser.add_argument("--only-epochs", action="store_true", help="nothing else")
    parser.add_argument("--gpus", type=int, help="nothing but epochs, with so many GPUs of the tests' stand-in")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.gpus and not arguments.only_epochs:
        raise SystemExit(over_stand_in(arguments.gpus))
    if arguments.only_epochs:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
            medians = alternating_rounds(directory, arguments.epochs, arguments.rounds)
        is_cheap = report_epochs(medians, n_nvidia_gpus(), arguments.json)
        sys.stdout.flush()
        os._exit(0 if is_cheap else 1)  # the trackers are open still
    if find_spec("carbontracker") is None:
        del FRESH["carbontracker"], TRACKED["carbontracker"]
        print("carbontracker is not installed, and is left out\n")
    with tempfile.TemporaryDirectory() as directory:
        if arguments.loops:
            print(loops_table(watched_loops(directory, arguments.loops)), end="\n\n", flush=True)
        if arguments.only_loops:
            return
        compile_all(directory)
        trainings = whole_trainings(directory, arguments.trainings)  # before anything else runs in this process
        starts = {name: [fresh_process(name, directory) for _ in range(arguments.rounds)] for name in FRESH}
        cpu_us = {"step_us": step_us(directory), "consumption_us": consumption_us(directory)}
        costs = interleaved(
            {OURS: ours(directory), FLUSHES: codecarbon(with_tasks=False)}, arguments.epochs
        )  # before the others exist: their threads would disturb both
        peers = {"codecarbon start_task + stop_task": codecarbon(with_tasks=True)}
        if "carbontracker" in FRESH:
            peers["carbontracker epoch_start + epoch_end"] = carbontracker(directory, arguments.epochs)
        costs |= interleaved(peers, arguments.epochs)
        if arguments.trainings:
            print(whole_table(trainings), end="\n\n")
        report(starts, costs, cpu_us, trainings if arguments.trainings else None, arguments.json)


def report(
    starts: dict[str, list[tuple[float, float, float]]],
    costs: dict[str, list[float]],
    cpu_us: dict[str, float],
    trainings: dict[str, list[tuple[float, float]]] | None,
    to: Path | None,
) -> None:
    columns = {name: zip(*rows, strict=True) for name, rows in starts.items()}
    medians = {name: [statistics.median(c) * 1e3 for c in each] for name, each in columns.items()}
    print(f"{'median of fresh processes':<44}{'import':>12}{'class':>12}{'object':>12}")
    for name, (package_ms, class_ms, object_ms) in medians.items():
        print(f"{name:<44}{package_ms:>9.1f} ms{class_ms:>9.1f} ms{object_ms:>9.1f} ms")
    print(f"\n{'an epoch':<44}{'median':>12}{'95th pct':>12}{'÷ flushes':>12}")
    typical = {name: statistics.median(values) * 1e3 for name, values in costs.items()}
    base_ms = typical[FLUSHES]
    for name, values in costs.items():
        high_ms = statistics.quantiles(values, n=20)[-1] * 1e3
        print(f"{name:<44}{typical[name]:>9.3f} ms{high_ms:>9.3f} ms{typical[name] / base_ms:>12.2f}")
    more_ms = typical[OURS] - base_ms
    print(f"\nwe cost {more_ms:+.3f} ms an epoch over CodeCarbon's own pair of flushes (at most {MOST_MS} ms is asked)")
    a_step_us = cpu_us["step_us"]
    print(f"step() costs {a_step_us:.1f} µs of CPU (at most {MOST_STEP_US} µs are asked)")
    print(f"consumption costs {cpu_us['consumption_us']:.0f} µs of CPU behind an epoch")
    if to:
        figures = {"starts_ms": medians, "epoch_ms": typical, "more_than_flushes_ms": more_ms, **cpu_us}
        if trainings is not None:
            figures |= {"added_wall_and_cpu_s": added_costs(trainings)}
        to.write_text(json.dumps(figures, indent=2))
    sys.stdout.flush()
    os._exit(
        0 if more_ms <= MOST_MS and a_step_us <= MOST_STEP_US else 1
    )  # carbontracker's threads would hold the exit up


if __name__ == "__main__":
    main()
