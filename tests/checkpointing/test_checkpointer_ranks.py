"""A ``Checkpointer`` on every rank of a training: one is told to end, and the next job goes on, bit for bit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from rank_processes import run_ranks
from torch import nn

import greenlove_tracker
from greenlove_tracker import Checkpointer, TrainingInterrupted
from greenlove_tracker.checkpointing.checkpoint_files import CheckpointStore, Draft
from greenlove_tracker.vocabulary.errors import UsageError

SCRIPT = """
import json, os, sys
import torch
sys.path[:0] = sys.argv[1:3]
from test_checkpointer_ranks import train

torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
directory, end_at = sys.argv[3], int(sys.argv[4])
result = train(torch.distributed.get_rank(), "ddp", directory, end_at or None, exits=True)
with open(f"{directory}/result-{torch.distributed.get_rank()}.json", "w") as file:
    json.dump(result, file)
torch.distributed.destroy_process_group()
"""


class Network(nn.Module):
    """With a part that is registered against its use, one that is never used, and buffers that differ by rank."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(16, 3)
        self.first = nn.Linear(6, 16)
        self.norm = nn.BatchNorm1d(16)
        self.unused = nn.Linear(4, 5)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.norm(self.first(inputs)))
        return self.last(nn.functional.dropout(hidden, 0.3, self.training))


def wrapped(kind: str, network: nn.Module) -> nn.Module:
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(network, find_unused_parameters=True)
    if kind.startswith("fsdp1"):
        from torch.distributed.fsdp import FullyShardedDataParallel

        return FullyShardedDataParallel(network, device_id=torch.device("cpu"), use_orig_params=kind == "fsdp1")
    if kind == "fsdp2":
        fsdp = pytest.importorskip("torch.distributed.fsdp")
        from torch.distributed.device_mesh import init_device_mesh

        mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
        if isinstance(network, Network):
            fsdp.fully_shard(network.first, mesh=mesh)
        fsdp.fully_shard(network, mesh=mesh)
    return network


OPTIMIZERS = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, 0.01),
    "momentum": lambda parameters: torch.optim.SGD(parameters, 0.01, momentum=0.9, weight_decay=0.01),
    "sgd": lambda parameters: torch.optim.SGD(parameters, 0.01),
}


def train(
    rank: int, kind: str, directory: str, end_at: int | None, optimizer_kind: str = "adamw", *, exits: bool = False
) -> dict[str, Any]:
    """Train 3 epochs of 8 steps on each of 2 ranks.

    Args:
        rank: of this process.
        kind: of the ranks' model.
        directory: of the checkpoints.
        end_at: after so many steps rank 1 is told to end.
        optimizer_kind: of their optimizer.
        exits: let the interruption end the process.

    Returns:
        what came of each step, by its number, and weights and optimizer at the beginning and in the end.
    """
    torch.manual_seed(5)
    model = wrapped(kind, Network())
    torch.manual_seed(50 + rank)
    data = torch.utils.data.TensorDataset(
        torch.randn(64, 6, generator=torch.Generator().manual_seed(1)),
        torch.randint(0, 3, (64,), generator=torch.Generator().manual_seed(2)),
    )
    is_alone = kind == "plain"
    sampler = torch.utils.data.DistributedSampler(data, *([1, 0] if is_alone else []), seed=3)
    loader = torch.utils.data.DataLoader(data, batch_size=4, sampler=sampler)
    optimizer = OPTIMIZERS[optimizer_kind](model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.8)
    checkpointer = Checkpointer(
        directory, model=model, optimizer=optimizer, scheduler=scheduler, every_s=None, every_steps=5
    )
    steps = dict[str, Any]()
    begun_at, begun_with = checkpointer.position.steps, full_values(model, optimizer)
    interrupted = 0
    try:
        for epoch in checkpointer.epochs(3, tracker=False):
            sampler.set_epoch(epoch)
            for x, y in checkpointer.batches(loader):
                loss = nn.functional.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                number = len(steps) + begun_at
                steps[str(number)] = [loss.item(), torch.rand(1).item(), optimizer.param_groups[0]["lr"]]
                if number == end_at and rank == 1:
                    os.kill(os.getpid(), signal.SIGTERM)
            scheduler.step()
    except TrainingInterrupted as error:
        if exits:
            raise
        interrupted = int(str(error.code))
    ended_with = full_values(model, optimizer)
    return {"steps": steps, "begun": begun_with, "ended": ended_with, "interrupted": interrupted}


def full_values(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return weights and the state of their optimizer, whole, in plain values."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_optimizer_state_dict

    options = StateDictOptions(full_state_dict=True)
    values = {name: value.tolist() for name, value in get_model_state_dict(model, options=options).items()}
    if optimizer.state:
        for name, state in get_optimizer_state_dict(model, optimizer, options=options)["state"].items():
            values |= {f"{name}/{key}": value.tolist() for key, value in state.items()}
    return values


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "optimizer"),
    [
        *[("ddp", "adamw"), ("fsdp1", "adamw"), ("fsdp1", "sgd"), ("fsdp1-flat", "adamw"), ("fsdp1-flat", "momentum")],
        *[("fsdp2", "adamw"), ("fsdp2", "momentum"), ("fsdp2", "sgd")],
    ],
)
def test_ranks_go_on_bit_for_bit_after_one_was_told_to_end(tmp_path: Path, kind: str, optimizer: str) -> None:
    place, directory = tmp_path / "place", str(tmp_path / "interrupted")
    unbroken = run_ranks(train, 2, place, kind, str(tmp_path / "unbroken"), None, optimizer)
    before = run_ranks(train, 2, place, kind, directory, 10, optimizer)
    assert [result["interrupted"] for result in before] == [128 + signal.SIGTERM] * 2
    assert any(path.name.endswith("-emergency") for path in Path(directory).iterdir())
    after = run_ranks(train, 2, place, kind, directory, None, optimizer)
    for whole, first, second in zip(unbroken, before, after, strict=True):
        assert len(whole["steps"]) == 24
        assert 0 < len(second["steps"]) < 24
        assert whole["steps"] == first["steps"] | second["steps"]
        assert whole["ended"] == second["ended"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "kind_again", "n_ranks"),
    [("fsdp2", "fsdp2", 2), ("fsdp1", "fsdp2", 2), ("fsdp2", "ddp", 2), ("ddp", "ddp", 2), ("fsdp1", "plain", 1)],
)
def test_another_number_of_ranks_goes_on(tmp_path: Path, kind: str, kind_again: str, n_ranks: int) -> None:
    place, directory = tmp_path / "place", str(tmp_path / "checkpoints")
    before = run_ranks(train, 3, place, kind, directory, 7)
    assert [result["interrupted"] for result in before] == [128 + signal.SIGTERM] * 3
    after = run_ranks(train, n_ranks, place, kind_again, directory, None)
    for result in after:
        assert result["interrupted"] == 0
        assert len(result["steps"]) > 0
        assert result["begun"].keys() == before[0]["ended"].keys()
        for name, value in result["ended"].items():  # the last step's buffers are each rank's own
            assert "running" in name or value == after[0]["ended"][name]
            assert "running" in name or result["begun"][name] == before[0]["ended"][name]


@pytest.mark.slow
def test_torchrun_goes_on_bit_for_bit(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    here = Path(__file__).parent

    def torchrun(directory: Path, end_at: int) -> subprocess.CompletedProcess[str]:
        directory.mkdir(exist_ok=True)
        words = ["--standalone", "--nproc-per-node", "2", str(script), str(here), str(here.parent)]
        return subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", *words, str(directory), str(end_at)],
            capture_output=True,
            text=True,
            timeout=120,
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(greenlove_tracker.__file__).parents[1])},
        )

    unbroken = run_ranks(train, 2, tmp_path / "place", "ddp", str(tmp_path / "unbroken"), None)
    ended = torchrun(tmp_path / "interrupted", 10)
    assert ended.returncode != 0
    assert "the training was interrupted by" in ended.stderr
    again = torchrun(tmp_path / "interrupted", 0)
    assert again.returncode == 0, again.stderr[-2000:]
    assert "greenlove: resuming from step-" in again.stderr
    for rank, whole in enumerate(unbroken):
        after = json.loads((tmp_path / "interrupted" / f"result-{rank}.json").read_text())
        assert after["ended"] == whole["ended"]
        assert after["steps"].items() <= whole["steps"].items()


def train_on_a_full_disk(rank: int, directory: str, fails_at: str) -> int:
    """Train with shards where rank 1 cannot write its own file, or its shards, from the second save on."""
    from torch.distributed.checkpoint import FileSystemWriter

    model = wrapped("fsdp2", Network())
    checkpointer = Checkpointer(directory, model=model, every_s=None, every_steps=2)

    def full(*_: Any, **__: Any) -> Any:
        if fails_at == "a kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(28, "No space left on device")

    try:
        for _ in checkpointer.epochs(2, tracker=False):
            for _ in checkpointer.batches([1, 2, 3]):
                if rank == 1 and checkpointer.position.steps == 2:  # in a process of its own
                    writer, call = (Draft, "write") if fails_at == "file" else (FileSystemWriter, "write_data")
                    setattr(writer, call, full)
    except RuntimeError:  # the other rank is gone
        assert fails_at == "a kill"
    return checkpointer.position.epoch


@pytest.mark.slow
@pytest.mark.parametrize("fails_at", ["file", "shards"])
def test_a_rank_that_cannot_write_leaves_no_other_waiting_and_the_last_whole_one(tmp_path: Path, fails_at: str) -> None:
    results = run_ranks(train_on_a_full_disk, 2, tmp_path / "place", str(tmp_path / "c"), fails_at)
    assert results == [2, 2]
    assert [path.name for path in (tmp_path / "c").glob("*step-*")] == ["step-0000000002"]


@pytest.mark.slow
def test_a_rank_that_is_killed_while_it_writes_shards_leaves_the_last_whole_one(tmp_path: Path) -> None:
    run_ranks(train_on_a_full_disk, 2, tmp_path / "place", str(tmp_path / "c"), "a kill", lost=1)
    found, damaged = CheckpointStore(tmp_path / "c").newest_whole()
    assert found is not None and (found.name, damaged) == ("step-0000000002", ())


def save_before_a_step(rank: int, kind: str, directory: str) -> bool:
    model = wrapped(kind, Network())
    optimizer = OPTIMIZERS["momentum"](model.parameters())
    for _ in Checkpointer(directory, model=model, optimizer=optimizer, every_s=None).epochs(1, tracker=False):
        pass
    return not optimizer.state


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fsdp1", "fsdp1-flat", "fsdp2"])
def test_shards_saved_before_the_first_step_make_no_state_and_fit_no_other_model(tmp_path: Path, kind: str) -> None:
    directory = str(tmp_path / "c")
    assert run_ranks(save_before_a_step, 2, tmp_path / "place", kind, directory) == [True, True]
    model = Network()
    optimizer = OPTIMIZERS["momentum"](model.parameters())
    Checkpointer(directory, model=model, optimizer=optimizer, every_s=None)
    assert not optimizer.state
    with pytest.raises(UsageError, match=r"is not of these models: it lacks models\.model\.bias"):
        Checkpointer(directory, model=nn.Linear(7, 3), every_s=None)


def train_two_models(rank: int, kind: str, directory: str, epochs: int) -> list[dict[str, Any]]:
    torch.manual_seed(1)
    models = [wrapped(kind, nn.Linear(4, 4)) for _ in range(2)]
    optimizer = OPTIMIZERS["adamw"]([parameter for model in models for parameter in model.parameters()])
    checkpointer = Checkpointer(directory, model=models, optimizer=optimizer, every_s=None)
    for _ in checkpointer.epochs(epochs, tracker=False):
        for x in checkpointer.batches(torch.arange(24.0).reshape(2, 3, 4) + rank):
            models[1](models[0](x)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    return [full_values(model, torch.optim.SGD(model.parameters())) for model in models]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fsdp1", "fsdp2"])
def test_sharded_models_may_share_an_optimizer(tmp_path: Path, kind: str) -> None:
    unbroken = run_ranks(train_two_models, 2, tmp_path / "place", kind, str(tmp_path / "a"), 2)
    run_ranks(train_two_models, 2, tmp_path / "place", kind, str(tmp_path / "b"), 1)
    assert run_ranks(train_two_models, 2, tmp_path / "place", kind, str(tmp_path / "b"), 2) == unbroken
