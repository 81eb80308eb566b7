"""Ranks agree, write together, and survive the loss of one; in real processes over gloo."""

from __future__ import annotations

import errno
import os
import signal
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from rank_processes import run_ranks
from torch.distributed import distributed_c10d

from greenlove_tracker.checkpointing.checkpoint_files import CheckpointStore, Draft
from greenlove_tracker.checkpointing.distributed import RankAgreement, write_together
from greenlove_tracker.checkpoints import CheckpointFile, CheckpointKind, Manifest, TrainingPosition
from greenlove_tracker.errors import UsageError

_NAME = "step-0000000005"


def manifest_of(files: tuple[CheckpointFile, ...], steps: int = 5, world_size: int = 2) -> Manifest:
    return Manifest(
        CheckpointKind.REGULAR,
        TrainingPosition(steps=steps),
        "2026-11-22T20:00:00Z",
        world_size=world_size,
        files=files,
    )


def write_rank_file(draft: Draft, rank: int) -> list[CheckpointFile]:
    return [draft.write(f"rank-{rank}.pt", lambda file: file.write(b"state of a rank" * 1000))]


# -- One process --


def test_single_process_agrees_with_itself_at_once() -> None:
    ranks = RankAgreement(env={})
    assert (ranks.rank, ranks.world_size, ranks.group) == (0, 1, None)
    assert [ranks.exchange(code) for code in (0, 3, 1)] == [0, 3, 1]
    assert ranks.decide(2) == 2
    assert ranks.gathered("thing") == ["thing"]
    assert ranks.problem == ""


def test_torchrun_without_a_process_group_is_said() -> None:
    with pytest.raises(UsageError, match="init_process_group"):
        RankAgreement(env={"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "2"})
    assert RankAgreement(env={"TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "1"}).world_size == 1
    assert RankAgreement(env={"SLURM_NTASKS": "2", "WORLD_SIZE": "2"}).world_size == 1  # two trainings of their own


def test_single_process_writes_together(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    checkpoint = write_together(
        RankAgreement(env={}),
        lambda: store.draft(_NAME),
        lambda draft: write_rank_file(draft, 0),
        manifest_of((), world_size=1),
    )
    assert checkpoint is not None
    assert checkpoint.problem() == ""
    assert [file.name for file in checkpoint.manifest.files] == ["rank-0.pt"]


def test_single_process_that_cannot_write_keeps_what_was(tmp_path: Path) -> None:
    def fail(draft: Draft) -> list[CheckpointFile]:
        raise OSError(errno.ENOSPC, "No space left on device")

    store = CheckpointStore(tmp_path)
    with pytest.raises(OSError, match="No space left"):
        write_together(RankAgreement(env={}), lambda: store.draft(_NAME), fail, manifest_of(()))
    assert list(tmp_path.iterdir()) == []


# -- Agreement of two ranks --


def exchange_codes(rank: int, codes: list[list[int]]) -> list[int]:
    ranks = RankAgreement()
    answers = [ranks.exchange(code, step) for step, code in enumerate(codes[rank], 1)]
    answers.append(ranks.decide(0, len(codes[rank]) + 1))
    assert ranks.problem == ""
    return answers


@pytest.mark.slow
def test_ranks_learn_the_greatest_code_of_the_call_before(tmp_path: Path) -> None:
    codes = [[0, 0, 2, 0, 0, 0], [0, 1, 0, 0, 5, 6]]
    first, second = run_ranks(exchange_codes, 2, tmp_path, codes)
    assert first == second == [0, 0, 1, 2, 0, 5, 6]  # the last is of decide(), which waits


def test_what_is_asked_for_until_it_is_answered_is_answered_once(tmp_path: Path) -> None:
    codes = [[0, 1, 1, 0, 0], [0, 0, 3, 3, 0]]
    first, second = run_ranks(exchange_codes, 2, tmp_path, codes)
    assert first == second == [0, 0, 1, 3, 0, 0]


def exchange_steps(rank: int, steps: list[list[int]]) -> tuple[list[int], str]:
    ranks = RankAgreement()
    return [ranks.exchange(7, step) for step in steps[rank]], ranks.problem


def test_ranks_out_of_step_write_nothing_any_more(tmp_path: Path) -> None:
    results = run_ranks(exchange_steps, 2, tmp_path, [[1, 2, 3, 4, 5], [1, 2, 4, 5, 6]])
    for answers, problem in results:
        assert answers == [0, 7, 0, 0, 0]
        assert "one has done 4 batches and another 3" in problem


def keeps_random_state(rank: int) -> bool:
    ranks = RankAgreement()
    before = torch.get_rng_state()
    for step in range(20):
        ranks.exchange(0, step)
    return torch.equal(before, torch.get_rng_state())


def test_exchange_does_not_touch_random_states(tmp_path: Path) -> None:
    assert run_ranks(keeps_random_state, 2, tmp_path) == [True, True]


def lose_a_rank(rank: int, dies: bool) -> tuple[list[int], str]:
    ranks = RankAgreement(timeout_s=60.0)
    if not dies:
        distributed_c10d._set_pg_timeout(timedelta(seconds=2.0), ranks.group)  # it was made without hurry
    answers = [ranks.exchange(1, 1)]
    if rank == 1 and dies:
        os._exit(1)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)  # it hangs
    answers += [ranks.exchange(1, step) for step in range(2, 6)]
    return answers, ranks.problem


@pytest.mark.slow
@pytest.mark.parametrize("dies", [True, False])
def test_loss_of_a_rank_ends_the_agreement_and_not_the_training(tmp_path: Path, dies: bool) -> None:
    answers, problem = run_ranks(lose_a_rank, 2, tmp_path, dies, lost=1)[0]
    assert answers[-1] == 0
    assert "the ranks lost each other: rank 0 of 2 saw" in problem


# -- Writing together --


def save_together(rank: int, directory: str, fails_at: str) -> tuple[str, list[str]]:
    ranks = RankAgreement(timeout_s=60.0)
    store = CheckpointStore(directory)

    def make_draft() -> Draft:
        if rank == 1 and fails_at == "draft":
            raise OSError(errno.EACCES, "Permission denied")
        return store.draft(_NAME)

    def write(draft: Draft) -> list[CheckpointFile]:
        if rank == 1 and fails_at == "write":
            raise OSError(errno.ENOSPC, "No space left on device")
        if rank == 1 and fails_at == "killed":
            os._exit(1)
        return write_rank_file(draft, rank)

    def no_manifest(draft: Draft, manifest: Manifest) -> None:
        raise RuntimeError("no manifest")

    if fails_at == "manifest":
        Draft.commit = no_manifest  # type: ignore[assignment,method-assign]  # in a process of its own
    reasons = ("said by both", *(["of its own"] if rank else []))

    def write_shards(draft: Draft) -> list[CheckpointFile]:
        ranks.gathered(None)  # as torch.distributed.checkpoint waits for all
        return [draft.write(f"shard-{rank}", lambda file: file.write(b"shard"))]

    try:
        manifest = replace(manifest_of(()), not_identical=reasons)
        checkpoint = write_together(ranks, make_draft, write, manifest, write_shards=write_shards)
    except OSError as error:
        return str(error), sorted(path.name for path in Path(directory).iterdir())
    assert (checkpoint is not None) == (rank == 0)
    return "", sorted(path.name for path in Path(directory).iterdir())


def test_ranks_write_one_checkpoint(tmp_path: Path) -> None:
    results = run_ranks(save_together, 2, tmp_path / "place", str(tmp_path / "checkpoints"), "")
    assert results == [("", [_NAME])] * 2
    checkpoint, damaged = CheckpointStore(tmp_path / "checkpoints").newest_whole()
    assert checkpoint is not None
    assert damaged == ()
    assert [file.name for file in checkpoint.manifest.files] == ["rank-0.pt", "rank-1.pt", "shard-0", "shard-1"]
    assert checkpoint.manifest.not_identical == ("said by both", "of its own")


@pytest.mark.parametrize(
    ("fails_at", "said"),
    [
        ("draft", "rank 1: PermissionError: [Errno 13] Permission denied"),
        ("write", "rank 1: OSError: [Errno 28] No space left on device"),
        ("manifest", "rank 0: RuntimeError: no manifest"),
    ],
)
def test_what_fails_on_one_rank_is_said_on_all_and_the_last_whole_one_stays(
    tmp_path: Path, fails_at: str, said: str
) -> None:
    directory = tmp_path / "checkpoints"
    write_earlier_checkpoint(directory)
    results = run_ranks(save_together, 2, tmp_path / "place", str(directory), fails_at)
    assert [problem for problem, _ in results] == [said, said]
    assert [path.name for path in directory.iterdir()] == ["step-0000000001"]


def test_rank_that_dies_in_a_save_leaves_the_last_whole_one(tmp_path: Path) -> None:
    directory = tmp_path / "checkpoints"
    write_earlier_checkpoint(directory)
    first, _ = run_ranks(save_together, 2, tmp_path / "place", str(directory), "killed", lost=1)
    assert "lost each other" in first[0]
    checkpoint, damaged = CheckpointStore(directory).newest_whole()
    assert checkpoint is not None
    assert (checkpoint.name, damaged) == ("step-0000000001", ())


def write_earlier_checkpoint(directory: Path) -> None:
    draft = CheckpointStore(directory).draft("step-0000000001")
    draft.commit(manifest_of(tuple(write_rank_file(draft, 0)), steps=1, world_size=1))


# -- A directory for all --


def save_in_own_directory(rank: int, directories: list[str]) -> str:
    return save_together(rank, directories[rank], "")[0]


def test_ranks_that_share_no_disk_are_told_so_on_every_rank(tmp_path: Path) -> None:
    directories = [str(tmp_path / "a"), str(tmp_path / "b")]
    for said in run_ranks(save_in_own_directory, 2, tmp_path, directories):
        assert "rank-1.pt is missing: do all ranks write to the same directory?" in said
