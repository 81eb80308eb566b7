"""Ranks agree, write together, and survive the loss of one; in real processes over gloo."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from rank_processes import run_ranks

from greenlove_tracker.checkpointing.checkpoint_files import CheckpointStore, Draft
from greenlove_tracker.checkpointing.distributed import RankAgreement, write_together
from greenlove_tracker.checkpoints import CheckpointFile, CheckpointKind, Manifest, TrainingPosition

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


# -- Agreement of two ranks --


def decisions(rank: int, codes: list[list[int]], steps: list[list[int]]) -> tuple[list[int], str]:
    ranks, before = RankAgreement(), torch.get_rng_state()
    answers = [ranks.decide(code, step) for code, step in zip(codes[rank], steps[rank], strict=True)]
    assert torch.equal(before, torch.get_rng_state())
    return answers, ranks.problem


def test_ranks_agree_on_the_greatest_code_until_they_are_out_of_step(tmp_path: Path) -> None:
    codes, steps = [[0, 0, 2, 7, 7], [0, 1, 0, 7, 7]], [[1, 2, 3, 4, 5], [1, 2, 3, 5, 6]]
    for answers, problem in run_ranks(decisions, 2, tmp_path, codes, steps):
        assert answers == [0, 1, 2, 0, 0]
        assert "one has done 5 batches and another 4" in problem


# -- Writing together --


def save_together(rank: int, directory: str, fails_at: str) -> tuple[str, list[str]]:
    ranks = RankAgreement()
    store = CheckpointStore(directory)

    def write(draft: Draft) -> list[CheckpointFile]:
        if rank == 1 and fails_at == "write":
            raise OSError(errno.ENOSPC, "No space left on device")
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
        checkpoint = write_together(ranks, lambda: store.draft(_NAME), [write, write_shards], manifest)
    except (OSError, RuntimeError) as error:
        return str(error), sorted(path.name for path in Path(directory).iterdir())
    assert checkpoint.name == _NAME
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


def write_earlier_checkpoint(directory: Path) -> None:
    draft = CheckpointStore(directory).draft("step-0000000001")
    draft.commit(manifest_of(tuple(write_rank_file(draft, 0)), steps=1, world_size=1))


# -- A directory for all --
