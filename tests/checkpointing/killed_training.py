"""Trainings that are killed: a process with torch loaded forks each one anew, so that a start costs no import.

It reads commands as lines of JSON on stdin and answers each with a line; see ``Command``. Each training writes the loss
of every step as it goes and, at its end, digests of all that it has learnt and of all random states.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import random
import select
import signal
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
)

from greenlove_tracker.checkpointing.checkpointer import Checkpointer

EPOCHS, SAMPLES, BATCH, WIDTH = 3, 96, 8, 8
LOSSES = "losses-{rank}.txt"  # a line a step: its number of the whole training and its loss, exactly
LEARNT = "learnt-{rank}.json"  # digests, at the end


@dataclass
class Command:
    """What a training is, and when it is killed.

    Attributes:
        directory: where it writes; its checkpoints are in ``checkpoints`` there.
        loader: one of ``LOADERS``; those that are ``plain_loader`` are of other kinds of training: ``fsdp`` shards the
            model, ``accumulating`` steps at each second batch, ``amp`` scales its losses, ``optimizers`` has two,
            ``loaders`` goes through another one in each epoch, too, ``zipped`` through both at a time, and ``stopping``
            ends an epoch early.
        ranks: processes, in a gloo group where there are two.
        is_saved: with a Checkpointer; else it is a plain loop.
        kill_after_s: after the fork; None: never.
        signal: by whose number it is killed.
        between_ranks_s: until the other rank is killed too.
        dies_at: ``os.fsync`` or ``replace``: kills itself in place of the call of that number; empty: never.
        call: that number.
    """

    directory: str
    loader: str
    ranks: int = 1
    is_saved: bool = True
    kill_after_s: float | None = None
    signal: int = signal.SIGKILL
    between_ranks_s: float = 0.0
    dies_at: str = ""
    call: int = 0


class Noisy(Dataset):
    """Samples that are changed at random as they are fetched, by all three generators, as augmentations are."""

    def __init__(self, inputs, targets):
        self.inputs, self.targets = inputs, targets

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, i):
        noise = torch.rand(WIDTH) + np.random.rand() + random.random()
        return self.inputs[i] + 0.1 * noise, self.targets[i]


class Stream(IterableDataset):
    """Samples in an order that is drawn at the start of each pass; workers and ranks share them out."""

    def __init__(self, data, rank, ranks):
        self.data, self.rank, self.ranks = data, rank, ranks

    def __iter__(self):
        info = get_worker_info()
        share, shares = (0, 1) if info is None else (info.id, info.num_workers)
        order = torch.randperm(len(self.data.inputs)).tolist()[self.rank :: self.ranks][share::shares]
        for i in order:
            noise = 0.0 if info is None else torch.rand(WIDTH)  # the state of a worker is its own
            yield self.data.inputs[i] + 0.1 * noise, self.data.targets[i]


def plain_loader(data, rank, ranks):
    if ranks == 1:
        return DataLoader(data, batch_size=BATCH, shuffle=True)
    return DataLoader(data, batch_size=BATCH, sampler=DistributedSampler(data, ranks, rank, seed=3))


def worker_loader(data, rank, ranks):
    sampler = DistributedSampler(data, ranks, rank, seed=3) if ranks > 1 else None
    return DataLoader(data, batch_size=BATCH, shuffle=sampler is None, sampler=sampler, num_workers=2)


def weighted_loader(data, rank, ranks):
    sampler = WeightedRandomSampler(torch.linspace(0.1, 1.0, SAMPLES), SAMPLES // ranks)
    return DataLoader(data, batch_size=BATCH, sampler=sampler)


def iterable_loader(data, rank, ranks):
    return DataLoader(Stream(data, rank, ranks), batch_size=BATCH)


def iterable_worker_loader(data, rank, ranks):
    return DataLoader(Stream(data, rank, ranks), batch_size=BATCH, num_workers=2)


def stateful_loader(data, rank, ranks):
    from torchdata.stateful_dataloader import StatefulDataLoader

    return StatefulDataLoader(data, batch_size=BATCH, shuffle=True)


LOADERS = {
    "plain": plain_loader,
    **dict.fromkeys(("fsdp", "accumulating", "amp", "optimizers", "loaders", "zipped", "stopping"), plain_loader),
    "stateful": stateful_loader,
    "worker": worker_loader,
    "weighted": weighted_loader,
    "iterable": iterable_loader,
    "iterable-worker": iterable_worker_loader,
}


class PlainLoop:
    """What a training has without a Checkpointer."""

    def __init__(self):
        self.values = {}

    def epochs(self, n, **_):
        return iter(range(n))

    def batches(self, loader):
        yield from loader


def train(command, rank):
    directory = Path(command.directory)
    torch.manual_seed(7 + rank), np.random.seed(7 + rank), random.seed(7 + rank)
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(SAMPLES, WIDTH, generator=generator)
    data = Noisy(inputs, inputs.sum(1, keepdim=True))
    loader = LOADERS[command.loader](data, rank, command.ranks)
    validation = DataLoader(TensorDataset(inputs[:16], inputs[:16, :1]), batch_size=BATCH)
    model = nn.Sequential(nn.Linear(WIDTH, 32), nn.BatchNorm1d(32), nn.Tanh(), nn.Dropout(0.2), nn.Linear(32, 1))
    if command.loader == "fsdp":
        fully_shard(model, mesh=init_device_mesh("cpu", (command.ranks,)))
    elif command.ranks > 1:
        model = DistributedDataParallel(model)
    parts = [model[:2], model[2:]] if command.loader == "optimizers" else [model]
    optimizers = [torch.optim.Adam(part.parameters(), lr=0.01) for part in parts]
    schedulers = [torch.optim.lr_scheduler.StepLR(optimizer, 7, gamma=0.9) for optimizer in optimizers]
    scaler = torch.amp.GradScaler("cpu", enabled=command.loader == "amp")
    loop = PlainLoop()
    if command.is_saved:
        kept = {"model": model, "optimizer": optimizers, "scheduler": schedulers, "scaler": scaler}
        loop = Checkpointer(directory / "checkpoints", **kept, every_steps=2, every_s=None)
    with open(directory / LOSSES.format(rank=rank), "ab", buffering=0) as losses:  # noqa: PTH123  # a kill loses no line
        for epoch in loop.epochs(EPOCHS, tracker=False):
            if isinstance(getattr(loader, "sampler", None), DistributedSampler):
                loader.sampler.set_epoch(epoch)
            model.train()
            for inputs, targets in batches_of(command.loader, loop, loader, data):
                with torch.autocast("cpu", enabled=scaler.is_enabled()):
                    loss = nn.functional.mse_loss(model(inputs), targets)
                scaler.scale(loss).backward()
                if command.loader != "accumulating" or loop.values.get("batch", 0) % 2:
                    for optimizer, scheduler in zip(optimizers, schedulers, strict=True):
                        scaler.step(optimizer)
                        scheduler.step()
                        optimizer.zero_grad()
                    scaler.update()
                loop.values["batch"] = loop.values.get("batch", 0) + 1
                loop.values["sum"] = loop.values.get("sum", 0.0) + loss.item()
                losses.write(f"{loop.values['batch']} {loss.item().hex()} {loop.values['sum'].hex()}\n".encode())
                if command.loader == "stopping" and loop.values["batch"] % 9 == 0:
                    break
            model.eval()
            with torch.no_grad():
                for inputs, targets in loop.batches(validation):
                    loop.values["validation"] = nn.functional.mse_loss(model(inputs), targets).item().hex()
    learnt = {
        "model": digest(getattr(model, "module", model).state_dict()),
        "optimizer": digest([optimizer.state_dict() for optimizer in optimizers]),
        "scheduler": digest([scheduler.state_dict() for scheduler in schedulers]),
        "scaler": digest(scaler.state_dict()),
        "values": loop.values,
        "torch": digest(torch.get_rng_state()),
        "numpy": digest(np.random.get_state()[1:3]),
        "python": digest(random.getstate()),
    }
    (directory / LEARNT.format(rank=rank)).write_text(json.dumps(learnt))


def batches_of(kind, loop, loader, data):
    """Return the batches of an epoch."""
    if kind not in ("loaders", "zipped"):
        return loop.batches(loader)
    other = DataLoader(data, batch_size=2 * BATCH, shuffle=True)
    if kind == "loaders":
        return itertools.chain(loop.batches(loader), loop.batches(other))
    return (first for first, _ in zip(loop.batches(loader), loop.batches(other), strict=False))


def digest(thing):
    """Return a digest of the exact content of tensors, arrays and plain values."""
    found = hashlib.sha256()

    def add(thing):
        if isinstance(thing, torch.Tensor):
            thing = (thing.to_local() if hasattr(thing, "to_local") else thing).numpy()
        if isinstance(thing, np.ndarray):
            found.update(f"{thing.dtype}{thing.shape}".encode() + thing.tobytes())
        elif isinstance(thing, dict):
            for key in sorted(thing, key=str):
                found.update(f"{key}:".encode())
                add(thing[key])
        elif isinstance(thing, list | tuple):
            for part in thing:
                add(part)
        else:
            found.update(f"{thing!r};".encode())

    add(thing)
    return found.hexdigest()


def die_at(name, number):
    """Have this process killed in place of the call of that number."""
    owner, attribute = (os, "fsync") if name == "os.fsync" else (Path, "replace")
    real, calls = getattr(owner, attribute), 0

    def counted(*arguments):
        nonlocal calls
        calls += 1
        if calls == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments)

    setattr(owner, attribute, counted)


def run_child(command, rank):
    """Train in a child that has just been forked, in a process group of its own, and end it."""
    code = 1
    try:
        os.setpgid(0, 0)
        if command.dies_at:
            die_at(command.dies_at, command.call)
        if command.ranks > 1:
            meeting = f"file://{command.directory}/meeting"
            distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=command.ranks)
        train(command, rank)
        if command.ranks > 1:
            distributed.destroy_process_group()
        code = 0
    except SystemExit as error:  # of a training that was told to end
        code = error.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def run(command):
    """Fork all ranks, kill them when it is time, and return how each ended, as ``os.waitstatus_to_exitcode`` has it."""
    Path(command.directory, "meeting").unlink(missing_ok=True)  # of the job before
    pids = []
    for rank in range(command.ranks):
        pid = os.fork()
        if pid == 0:
            run_child(command, rank)
        pids.append(pid)
    order = list(pids)
    if command.kill_after_s is not None:
        if int(command.kill_after_s * 1e6) % 2:  # now the one rank first, now the other
            order.reverse()
        for pid, wait_s in zip(order, [command.kill_after_s, command.between_ranks_s], strict=False):
            has_ended_within(pid, wait_s)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, command.signal)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    for pid in pids:  # workers of loaders, which would look for their parent only now and then
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
    return codes


def has_ended_within(pid, wait_s):
    descriptor = os.pidfd_open(pid)
    try:
        return bool(select.select([descriptor], [], [], wait_s)[0])
    finally:
        os.close(descriptor)


def warm_up():
    """Load what the first step of an optimizer loads, which takes over a second: children have it then."""
    parameter = nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    torch.optim.Adam([parameter]).step()


def main():
    torch.set_num_threads(1)
    warm_up()
    for line in sys.stdin:
        sys.stdout.write(json.dumps(run(Command(**json.loads(line)))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
