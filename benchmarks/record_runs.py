"""Record real CPU trainings as small logs, to be replayed where forecasts are judged.

    python benchmarks/record_runs.py [--into greenlove_logs] [--first 1] [--sittings 2] [--threads 1] [--only cnn]
    python benchmarks/record_runs.py --disturbed --first 4

A sitting trains each family on each size of data set, in random order. The disturbed kinds, at full size, have gaps
between epochs or busy neighbours on the machine. Each training is a fresh process: its start is cold. What names the
machine is taken out. See tests/recorded/README.md; packed there as cpu-trainings.zip.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from greenlove_tracker import Tracker

EPOCHS = 40
DIVISORS = (16, 8, 4, 2, 1)  # of the full number of samples
CLASSES = 10
CHECKPOINT_EVERY = 5
VALIDATION_DIVISOR = 4
NEIGHBOURS = 2  # as many as there are cores
BUSY_EPOCHS = {"neighbour": range(21, EPOCHS + 1), "brief-neighbour": range(15, 23)}
DISTURBED_KINDS = ("validation", *BUSY_EPOCHS)
PRIVATE_FIELDS = {"host", "pid", "command", "git_commit"}


def labelled(*shape: int) -> TensorDataset:
    """Random-normal inputs with random classes; the first of `shape` is the number of samples."""
    return TensorDataset(torch.randn(*shape), torch.randint(0, CLASSES, shape[:1]))


def mlp(samples: int) -> tuple[nn.Module, TensorDataset]:
    hidden = [nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(512, CLASSES)), labelled(samples, 256)


def cnn(samples: int) -> tuple[nn.Module, TensorDataset]:
    wide = [nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    deep = [nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*wide, *deep, nn.Flatten(), nn.Linear(16 * 7 * 7, CLASSES)), labelled(samples, 1, 28, 28)


class LastStep(nn.Module):
    def forward(self, answer: tuple[torch.Tensor, object]) -> torch.Tensor:
        outputs, _ = answer  # an LSTM's
        return outputs[:, -1]


def lstm(samples: int) -> tuple[nn.Module, TensorDataset]:
    model = nn.Sequential(nn.LSTM(16, 64, batch_first=True), LastStep(), nn.Linear(64, CLASSES))
    return model, labelled(samples, 24, 16)


def transformer(samples: int) -> tuple[nn.Module, TensorDataset]:
    layer = nn.TransformerEncoderLayer(32, nhead=4, dim_feedforward=64, batch_first=True)
    encoder = nn.TransformerEncoder(layer, num_layers=2)
    model = nn.Sequential(nn.Linear(16, 32), encoder, nn.Flatten(), nn.Linear(16 * 32, CLASSES))
    return model, labelled(samples, 16, 16)


@dataclass(frozen=True)
class Family:
    """Models of one sort; `full_batches` is a multiple of every divisor, so that all batches are whole."""

    make: Callable[[int], tuple[nn.Module, TensorDataset]]
    batch: int
    full_batches: int

    @property
    def full_samples(self) -> int:
        return self.batch * self.full_batches


FAMILIES = {
    "mlp": Family(mlp, batch=64, full_batches=192),
    "cnn": Family(cnn, batch=64, full_batches=96),
    "lstm": Family(lstm, batch=64, full_batches=160),
    "transformer": Family(transformer, batch=32, full_batches=112),
}


@dataclass(frozen=True)
class Training:
    """What is trained, and under what conditions."""

    family: str
    divisor: int
    kind: str
    sitting: int
    threads: int

    @property
    def samples(self) -> int:
        return FAMILIES[self.family].full_samples // self.divisor

    @property
    def tags(self) -> list[str]:
        family, busy = FAMILIES[self.family], BUSY_EPOCHS.get(self.kind)
        sizes = [f"samples={self.samples}", f"full_samples={family.full_samples}", f"batch={family.batch}"]
        tags = [f"kind={self.kind}", *sizes, f"threads={self.threads}", f"sitting={self.sitting}"]
        return [*tags, f"busy_epochs={busy.start}-{busy.stop - 1}"] if busy else tags


def start_neighbours(neighbourhood: ExitStack) -> None:
    """Other processes keep every core busy until the stack is closed."""
    for _ in range(NEIGHBOURS):
        neighbour = neighbourhood.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
        neighbourhood.callback(neighbour.kill)


def record(training: Training, into: Path) -> None:
    """Train under a Tracker; then take the machine's names out of the log."""
    torch.set_num_threads(training.threads)
    torch.manual_seed(training.sitting)
    family, n_held_back = FAMILIES[training.family], training.samples // VALIDATION_DIVISOR
    model, dataset = family.make(n_held_back + training.samples)
    held_back = DataLoader(TensorDataset(*dataset[:n_held_back]), family.batch)
    batches = DataLoader(TensorDataset(*dataset[n_held_back:]), family.batch, shuffle=True)
    optimizer, loss_of = torch.optim.Adam(model.parameters()), nn.CrossEntropyLoss()
    busy = BUSY_EPOCHS.get(training.kind, range(0))
    tracker = Tracker(
        epochs=EPOCHS, log_dir=into, project=training.family, tags=training.tags, verbose=0, epochs_before_pred=0
    )
    with ExitStack() as neighbourhood, tracker:
        if not tracker.wait_ready(30):
            raise RuntimeError("the meter did not come up")
        for epoch in range(1, EPOCHS + 1):
            if epoch == busy.start:
                start_neighbours(neighbourhood)
            if epoch == busy.stop:
                neighbourhood.close()
            tracker.epoch_start()
            for inputs, classes in batches:
                optimizer.zero_grad()
                loss_of(model(inputs), classes).backward()
                optimizer.step()
                tracker.step(n_samples=len(inputs))
            tracker.epoch_end()
            if training.kind == "validation":
                validate(model, held_back)
                if epoch % CHECKPOINT_EVERY == 0:
                    with tempfile.TemporaryFile() as file:
                        torch.save([model.state_dict(), optimizer.state_dict()], file)
    anonymise(tracker.run_dir / "run.csv")


def validate(model: nn.Module, batches: DataLoader) -> float:
    """The share of samples that the model is right about."""
    model.eval()
    with torch.no_grad():
        right = sum(int((model(inputs).argmax(1) == classes).sum()) for inputs, classes in batches)
    model.train()
    return right / len(batches.dataset)


def anonymise(run_csv: Path) -> None:
    """Drop the fields that name the machine, its paths and its processes."""
    lines = run_csv.read_text("utf-8").splitlines(keepends=True)
    run_csv.write_text("".join(line for line in lines if line.partition(",")[0] not in PRIVATE_FIELDS), "utf-8")


def plan(families: list[str], sittings: range, threads: int) -> Iterator[Training]:
    """The plain trainings, in the order of their recording."""
    for sitting in sittings:
        trainings = [Training(name, divisor, "plain", sitting, threads) for name in families for divisor in DIVISORS]
        random.Random(sitting).shuffle(trainings)
        yield from trainings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--into", type=Path, default=Path("greenlove_logs"))
    parser.add_argument("--first", type=int, default=1, help="number of the first sitting")
    parser.add_argument("--sittings", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--disturbed", action="store_true", help="the kinds with gaps and neighbours instead")
    parser.add_argument("--only", choices=FAMILIES, action="append", help="a family; may be repeated")
    arguments = parser.parse_args()
    families = arguments.only or list(FAMILIES)
    if arguments.disturbed:
        pairs = [(kind, name) for kind in DISTURBED_KINDS for name in families]
        trainings = [Training(name, 1, kind, arguments.first, arguments.threads) for kind, name in pairs]
    else:
        sittings = range(arguments.first, arguments.first + arguments.sittings)
        trainings = list(plan(families, sittings, arguments.threads))
    fresh = multiprocessing.get_context("spawn")
    for number, training in enumerate(trainings, 1):
        print(f"{number}/{len(trainings)} {training}", flush=True)
        with ProcessPoolExecutor(1, fresh) as pool:
            pool.submit(record, training, arguments.into).result()


if __name__ == "__main__":
    main()
