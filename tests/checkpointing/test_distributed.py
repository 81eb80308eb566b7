"""Ranks agree on when to save, in real processes over gloo."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from rank_processes import run_ranks

from greenlove_tracker.checkpointing.distributed import RankAgreement


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
