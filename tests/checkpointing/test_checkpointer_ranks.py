"""A ``Checkpointer`` on every rank of a training: one is told to end, and the next job goes on, bit for bit."""

from __future__ import annotations

import contextlib
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
from greenlove_tracker.checkpointing.checkpoint_files import CheckpointStore, Draft
from greenlove_tracker.checkpointing.checkpointer import Checkpointer, TrainingInterrupted
from greenlove_tracker.checkpoints import NotIdentical

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


def wrapped(kind: str, network: nn.Module) -> nn.Module:
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(network)
    if kind == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel

        return FullyShardedDataParallel(network, device_id=torch.device("cpu"), use_orig_params=True)
    if kind == "fsdp2":
        fsdp = pytest.importorskip("torch.distributed.fsdp")
        from torch.distributed.device_mesh import init_device_mesh

        fsdp.fully_shard(network, mesh=init_device_mesh("cpu", (torch.distributed.get_world_size(),)))
    return network


def train(rank: int, kind: str, directory: str, end_at: int | None, *, exits: bool = False) -> dict[str, Any]:
    """Train 3 epochs of 8 steps on each of 2 ranks.

    Args:
        rank: of this process.
        kind: of the ranks' model.
        directory: of the checkpoints.
        end_at: after so many steps rank 1 is told to end.
        exits: let the interruption end the process.

    Returns:
        what came of each step, by its number, and the weights in the end.
    """
    torch.manual_seed(5)
    model = wrapped(
        kind, nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3))
    )
    torch.manual_seed(50 + rank)
    data = torch.utils.data.TensorDataset(
        torch.randn(64, 6, generator=torch.Generator().manual_seed(1)),
        torch.randint(0, 3, (64,), generator=torch.Generator().manual_seed(2)),
    )
    is_alone = kind == "plain"
    sampler = torch.utils.data.DistributedSampler(data, *([1, 0] if is_alone else []), seed=3)
    loader = torch.utils.data.DataLoader(data, batch_size=4, sampler=sampler)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.8)
    checkpointer = Checkpointer(
        directory, model=model, optimizer=optimizer, scheduler=scheduler, every_s=None, every_steps=5
    )
    steps = dict[str, Any]()
    begun_at = checkpointer.position.steps
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
    weights = {} if interrupted else full_weights(model)
    return {"steps": steps, "weights": weights, "interrupted": interrupted}


def full_weights(model: nn.Module) -> dict[str, Any]:
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    return {name: value.tolist() for name, value in state.items()}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ddp", "fsdp1", "fsdp2"])
def test_ranks_go_on_bit_for_bit_after_one_was_told_to_end(tmp_path: Path, kind: str) -> None:
    place, directory = tmp_path / "place", str(tmp_path / "interrupted")
    unbroken = run_ranks(train, 2, place, kind, str(tmp_path / "unbroken"), None)
    before = run_ranks(train, 2, place, kind, directory, 10)
    assert [result["interrupted"] for result in before] == [128 + signal.SIGTERM] * 2
    assert any(path.name.endswith("-emergency") for path in Path(directory).iterdir())
    after = run_ranks(train, 2, place, kind, directory, None)
    for whole, first, second in zip(unbroken, before, after, strict=True):
        assert len(whole["steps"]) == 24
        assert 0 < len(second["steps"]) < 24
        assert whole["steps"] == first["steps"] | second["steps"]
        assert whole["weights"] == second["weights"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "kind_again", "n_ranks"), [("fsdp2", "fsdp2", 2), ("ddp", "ddp", 2), ("fsdp1", "plain", 1)]
)
def test_another_number_of_ranks_goes_on(tmp_path: Path, kind: str, kind_again: str, n_ranks: int) -> None:
    place, directory = tmp_path / "place", str(tmp_path / "checkpoints")
    before = run_ranks(train, 3, place, kind, directory, 7)
    assert [result["interrupted"] for result in before] == [128 + signal.SIGTERM] * 3
    after = run_ranks(train, n_ranks, place, kind_again, directory, None)
    for result in after:
        assert result["interrupted"] == 0
        assert len(result["steps"]) > 0
        for name, value in result["weights"].items():  # the last step's buffers are each rank's own
            assert "running" in name or value == after[0]["weights"][name]


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
        assert after["weights"] == whole["weights"]
        assert after["steps"].items() <= whole["steps"].items()


def failed_before_shards(rank: int, directory: str) -> int:
    """Train with shards where rank 1 cannot write its own file; return the epochs done."""
    model = wrapped("fsdp2", nn.Sequential(nn.Linear(6, 16), nn.Linear(16, 3)))
    write = Draft.write
    if rank == 1:

        def full(draft: Draft, name: str, *args: Any) -> Any:
            raise OSError(28, "No space left on device")

        Draft.write = full  # type: ignore[method-assign]  # in a process of its own
    checkpointer = Checkpointer(directory, model=model, every_s=None, every_steps=2)
    try:
        for _ in checkpointer.epochs(2, tracker=False):
            for _ in checkpointer.batches([1, 2, 3]):
                pass
    finally:
        Draft.write = write  # type: ignore[method-assign]
    return checkpointer.position.epoch


@pytest.mark.slow
def test_a_rank_that_cannot_write_leaves_no_other_waiting_for_its_shards(tmp_path: Path) -> None:
    results = run_ranks(failed_before_shards, 2, tmp_path / "place", str(tmp_path / "c"))
    assert results == [2, 2]
    assert not list((tmp_path / "c").glob("step-*"))


def trained_from_an_iterator_on_one_rank(rank: int, directory: str) -> None:
    """Train where nothing is known of the order of rank 1's data."""
    loader = torch.utils.data.DataLoader(range(5))
    checkpointer = Checkpointer(directory, model=nn.Linear(2, 1), every_s=None, every_steps=3)
    for _ in checkpointer.epochs(1, tracker=False):
        for _ in checkpointer.batches(range(5) if rank else loader):
            pass


@pytest.mark.slow
def test_what_keeps_another_rank_from_going_on_bit_for_bit_stands_in_the_manifest(tmp_path: Path) -> None:
    run_ranks(trained_from_an_iterator_on_one_rank, 2, tmp_path / "place", str(tmp_path / "c"))
    within = next(one for one in CheckpointStore(tmp_path / "c").checkpoints() if one.manifest.position.batches)
    assert NotIdentical.OWN_ORDER in within.manifest.not_identical


def accumulated(rank: int, kind: str, directory: str, steps: int) -> tuple[list[float], list[str]]:
    """Save between the batches of one optimizer step, which ranks do not sum yet; return what came of the step."""
    torch.manual_seed(1)
    model = wrapped(kind, nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    checkpointer = Checkpointer(directory, model=model, optimizer=optimizer, every_s=None)
    data = [torch.full((1, 2), float(rank + n)) for n in range(4)]
    for _ in checkpointer.epochs(1, tracker=False):
        for x in checkpointer.batches(data):
            number = checkpointer.position.steps
            is_last = number == 3
            with contextlib.nullcontext() if is_last or kind != "ddp" else model.no_sync():
                model(x).sum().backward()
            if is_last:
                optimizer.step()
            if number == 0:
                checkpointer.save()
            if number + 1 == steps:
                break
        if steps < 4:
            break
    reasons = [why for found in CheckpointStore(directory).checkpoints() for why in found.manifest.not_identical]
    return [] if steps < 4 else full_weights(model)["weight"][0], reasons


@pytest.mark.slow
def test_gradients_that_each_rank_has_of_its_own_go_on_growing(tmp_path: Path) -> None:
    unbroken = run_ranks(accumulated, 2, tmp_path / "place", "ddp", str(tmp_path / "a"), 4)
    run_ranks(accumulated, 2, tmp_path / "place", "ddp", str(tmp_path / "b"), 3)
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["step-0000000001"]
    resumed = run_ranks(accumulated, 2, tmp_path / "place", "ddp", str(tmp_path / "b"), 4)
    assert [weights for weights, _ in resumed] == [weights for weights, _ in unbroken]


@pytest.mark.slow
def test_gradients_of_shards_are_named_as_not_saved(tmp_path: Path) -> None:
    (_, reasons), _ = run_ranks(accumulated, 2, tmp_path / "place", "fsdp2", str(tmp_path / "c"), 3)
    assert NotIdentical.GRADIENTS in reasons
