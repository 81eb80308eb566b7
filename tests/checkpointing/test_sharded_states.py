"""Shards are written by all ranks and read by any number of them; in real processes over gloo."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from rank_processes import run_ranks
from torch import nn

from greenlove_tracker.checkpointing.checkpoint_files import Checkpoint, CheckpointStore
from greenlove_tracker.checkpointing.distributed import RankAgreement, write_together
from greenlove_tracker.checkpointing.sharded_states import (
    has_shards,
    is_sharded,
    load_sharded,
    sharded_state,
    write_sharded,
)
from greenlove_tracker.checkpointing.training_state import TrainingState, copied
from greenlove_tracker.checkpoints import CheckpointKind, Manifest, TrainingPosition
from greenlove_tracker.errors import UsageError

WRAPPERS = ["fsdp1", "fsdp1-flat", "fsdp2"]


class Network(nn.Module):
    """With a part that is registered against its use, one that is never used, and buffers that differ by rank."""

    def __init__(self, *, has_unused: bool = True) -> None:
        super().__init__()
        torch.manual_seed(11)
        self.last = nn.Linear(16, 3)
        self.first = nn.Linear(7, 16)
        self.norm = nn.BatchNorm1d(16)
        if has_unused:
            self.unused = nn.Linear(4, 5)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.norm(self.first(inputs))))


def wrapped(kind: str, network: nn.Module) -> nn.Module:
    cpu = torch.device("cpu")
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(network, find_unused_parameters=True)
    if kind.startswith("fsdp1"):
        from torch.distributed.fsdp import FullyShardedDataParallel

        return FullyShardedDataParallel(network, device_id=cpu, use_orig_params=kind == "fsdp1")
    if kind == "fsdp2":
        fsdp = pytest.importorskip("torch.distributed.fsdp")
        from torch.distributed.device_mesh import init_device_mesh

        mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
        fsdp.fully_shard(network.first, mesh=mesh)
        fsdp.fully_shard(network, mesh=mesh)
    return network


def optimizer_of(kind: str, model: nn.Module) -> torch.optim.Optimizer:
    if kind == "sgd":
        return torch.optim.SGD(model.parameters(), lr=0.1)
    if kind == "momentum":
        return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, first: int, last: int, rank: int) -> list[float]:
    losses = []
    for step in range(first, last):
        inputs = torch.randn(5, 7, generator=torch.Generator().manual_seed(100 * step + rank))
        loss = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def save(directory: str, ranks: RankAgreement, state: dict[str, Any], steps: int = 3) -> None:
    store = CheckpointStore(directory)
    position = TrainingPosition(steps=steps)
    name = f"step-{steps:010d}"
    write_together(
        ranks,
        lambda: store.draft(name),
        [lambda draft: write_sharded(draft, state, ranks)],
        Manifest(CheckpointKind.REGULAR, position, "2026-11-22T20:00:00Z", ranks.world_size),
    )


def newest(directory: str | Path) -> Checkpoint:
    checkpoint, damaged = CheckpointStore(directory).newest_whole()
    assert damaged == ()
    assert checkpoint is not None
    return checkpoint


def full_values(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return weights and optimizer, whole, as plain NumPy arrays and numbers."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_optimizer_state_dict

    options = StateDictOptions(full_state_dict=True)
    values = {name: value.numpy().copy() for name, value in get_model_state_dict(model, options=options).items()}
    if optimizer.state:
        saved = get_optimizer_state_dict(model, optimizer, options=options)
        for name, state in saved["state"].items():
            values |= {f"{name}/{key}": value.numpy().copy() for key, value in state.items()}
    values["lr"] = optimizer.param_groups[0]["lr"]
    return values


def assert_same(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert first.keys() == second.keys()
    differs = [name for name in first if not np.array_equal(first[name], second[name])]
    assert differs == []


# -- A resume, bit for bit --


def train_on(rank: int, kind: str, optimizer_kind: str, directory: str) -> tuple[dict[str, Any], list[float], Any]:
    """Train 6 steps, and save after 3."""
    ranks = RankAgreement()
    model = wrapped(kind, Network())
    optimizer = optimizer_of(optimizer_kind, model)
    train(model, optimizer, 0, 3, rank)
    models, optimizers = {"0": model}, {"0": optimizer}
    assert is_sharded(model)
    optimizer.param_groups[0]["lr"] *= 0.5  # as a scheduler does
    buffers = copied(TrainingState(models, optimizers, {}).capture_of_rank()["buffers"])
    save(directory, ranks, sharded_state(models, optimizers))
    losses = train(model, optimizer, 3, 6, rank)
    return full_values(model, optimizer), losses, {name: value.numpy() for name, value in buffers.items()}


def resume(
    rank: int, kind: str, optimizer_kind: str, directory: str, buffers: list[dict[str, Any]], last: int
) -> tuple[dict[str, Any], list[float], None]:
    ranks = RankAgreement()
    network = Network()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(7.0)  # nothing of it may stay
    model = wrapped(kind, network)
    optimizer = optimizer_of(optimizer_kind, model)
    checkpoint = newest(directory)
    assert has_shards(checkpoint)
    load_sharded(checkpoint, {"0": model}, {"0": optimizer}, ranks)
    if buffers:
        of_rank = {"gradients": {}, "buffers": {name: torch.from_numpy(v) for name, v in buffers[rank].items()}}
        TrainingState({"0": model}, {"0": optimizer}, {}).load_of_rank(of_rank, with_buffers=True)
    losses = train(model, optimizer, 3, last, rank)
    return full_values(model, optimizer), losses, None


@pytest.mark.slow
@pytest.mark.parametrize("optimizer_kind", ["adamw", "momentum", "sgd"])
@pytest.mark.parametrize("kind", WRAPPERS)
def test_resume_of_shards_is_bit_identical(tmp_path: Path, kind: str, optimizer_kind: str) -> None:
    directory = str(tmp_path / "checkpoints")
    unbroken = run_ranks(train_on, 2, tmp_path / "place", kind, optimizer_kind, directory)
    buffers = [found[2] for found in unbroken]
    mean = next(name for name in buffers[0] if name.endswith("norm.running_mean"))
    assert (buffers[0][mean] != buffers[1][mean]).any()
    resumed = run_ranks(resume, 2, tmp_path / "place", kind, optimizer_kind, directory, buffers, 6)
    for (values, losses, _), (values_again, losses_again, _) in zip(unbroken, resumed, strict=True):
        assert losses == losses_again
        assert_same(values, values_again)


# -- Another number of ranks --


def train_and_save(rank: int, kind: str, directory: str) -> dict[str, Any]:
    ranks = RankAgreement()
    model = wrapped(kind, Network())
    optimizer = optimizer_of("adamw", model)
    train(model, optimizer, 0, 3, rank)
    save(directory, ranks, sharded_state({"0": model}, {"0": optimizer}))
    return full_values(model, optimizer)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "kind_again"), [("fsdp1", "fsdp1"), ("fsdp2", "fsdp2"), ("fsdp1", "fsdp2"), ("fsdp2", "ddp")]
)
def test_shards_of_3_ranks_are_read_by_2_and_by_a_plain_process(tmp_path: Path, kind: str, kind_again: str) -> None:
    directory = str(tmp_path / "checkpoints")
    saved = run_ranks(train_and_save, 3, tmp_path / "place", kind, directory)[0]
    resumed = run_ranks(resume, 2, tmp_path / "place", kind_again, "adamw", directory, [], 3)
    assert_same(saved, resumed[0][0])

    model = Network()
    optimizer = optimizer_of("adamw", model)
    load_sharded(newest(directory), {"0": model}, {"0": optimizer}, RankAgreement(env={}))
    assert_same(saved, full_values(model, optimizer))
    assert len(train(model, optimizer, 3, 5, 0)) == 2  # it goes on


# -- Before the first step --


def save_before_a_step(rank: int, kind: str, directory: str) -> bool:
    ranks = RankAgreement()
    model = wrapped(kind, Network())
    optimizer = optimizer_of("momentum", model)
    save(directory, ranks, sharded_state({"0": model}, {"0": optimizer}))
    return not optimizer.state


@pytest.mark.slow
@pytest.mark.parametrize("kind", WRAPPERS)
def test_save_before_the_first_step_leaves_the_optimizer_without_a_state(tmp_path: Path, kind: str) -> None:
    directory = str(tmp_path / "checkpoints")
    assert run_ranks(save_before_a_step, 2, tmp_path / "place", kind, directory) == [True, True]
    model = Network()
    optimizer = optimizer_of("momentum", model)
    load_sharded(newest(directory), {"0": model}, {"0": optimizer}, RankAgreement(env={}))
    assert not optimizer.state


# -- What does not fit --


@pytest.mark.slow
def test_shards_of_another_model_are_said(tmp_path: Path) -> None:
    directory = str(tmp_path / "checkpoints")
    run_ranks(train_and_save, 2, tmp_path / "place", "fsdp1", directory)
    model = nn.Linear(7, 3)
    with pytest.raises(UsageError, match=r"is not of these models: it lacks models\.0\.bias"):
        load_sharded(newest(directory), {"0": model}, {}, RankAgreement(env={}))
    with pytest.raises(UsageError, match="in no single model"):
        load_sharded(newest(directory), {"0": model}, {"0": optimizer_of("sgd", Network())}, RankAgreement(env={}))


def fail_to_write(rank: int, directory: str, is_killed: bool) -> str:
    ranks = RankAgreement()
    model = wrapped("fsdp2", Network())
    optimizer = optimizer_of("adamw", model)
    state = sharded_state({"0": model}, {"0": optimizer})
    save(directory, ranks, state, 1)
    if rank == 1:
        from torch.distributed.checkpoint import FileSystemWriter

        def full(*_: Any, **__: Any) -> None:
            if is_killed:
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError(28, "No space left on device")

        FileSystemWriter.write_data = full
    try:
        save(directory, ranks, state, 3)
    except (OSError, RuntimeError) as error:
        return str(error)
    return "saved"


@pytest.mark.slow
def test_full_disk_of_one_rank_keeps_the_last_whole_one(tmp_path: Path) -> None:
    directory = tmp_path / "checkpoints"
    results = run_ranks(fail_to_write, 2, tmp_path / "place", str(directory), False)
    assert all("rank 1" in result for result in results)
    assert [path.name for path in directory.iterdir()] == ["step-0000000001"]
    assert newest(directory).name == "step-0000000001"


@pytest.mark.slow
def test_rank_that_is_killed_while_it_writes_shards_leaves_the_last_whole_one(tmp_path: Path) -> None:
    directory = tmp_path / "checkpoints"
    said = run_ranks(fail_to_write, 2, tmp_path / "place", str(directory), True, lost=1)[0]
    assert said
    assert newest(directory).name == "step-0000000001"
