"""Checkpoints of a training of many ranks: they agree on when, and write it together.

Agreement is by groups of our own over gloo, so nothing of ours stands in the queue of the training's own collectives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import distributed

from greenlove_tracker.machine.job import torch_group
from greenlove_tracker.text.warn_once import WarnOnce


class RankAgreement:
    """Messages between the ranks of one training, over a gloo group of its own; trivial in a single process.

    Every rank makes it at the same place, and calls its methods in the same order. Where a rank dies, the others get
    torch's error, as in their own collectives.

    Attributes:
        rank: of this process.
        world_size: how many ranks there are.
        group: for torch's own functions; None where the training has none.
        problem: in words, why the ranks agree on no saving point any more; empty while they do.
    """

    def __init__(self) -> None:
        self.problem = ""
        self.rank, n_ranks = torch_group()
        self.world_size = max(1, n_ranks)
        self.group: Any = distributed.new_group(backend="gloo") if n_ranks else None

    def decide(self, code: int, steps: int) -> int:
        """Return the greatest number of all ranks; waits for the ranks.

        Args:
            code: what this rank asks for; at least 0.
            steps: batches that are done here: where the ranks differ, they could not stop at one position.

        Returns:
            the same on all ranks; 0 once ``problem`` says something; in a single process ``code`` itself.
        """
        if self.world_size == 1:
            return code
        if self.problem:
            return 0
        sent = torch.tensor([code, steps, -steps], dtype=torch.int64)
        distributed.all_reduce(sent, op=distributed.ReduceOp.MAX, group=self.group)
        agreed, most, least = sent.tolist()
        if most == -least:  # all ranks see this in the same call
            return int(agreed)
        self.problem = (
            f"the ranks are out of step: one has done {most} batches and another {-least}. No checkpoint is written "
            "before the end. Give all ranks equally many batches (DistributedSampler, drop_last=True)"
        )
        WarnOnce().warn("checkpoint ranks", self.problem)
        return 0

    def gathered(self, thing: Any) -> list[Any]:
        """Return what every rank gave, by rank; waits for the ranks."""
        if self.world_size == 1:
            return [thing]
        things: list[Any] = [None] * self.world_size
        distributed.all_gather_object(things, thing, group=self.group)
        return things

    def together(self, work: Callable[[], Any]) -> list[Any]:
        """Return what some work gives on every rank, by rank; waits for the ranks.

        Raises:
            OSError: on all of them, where it fails on one.
        """
        try:
            result = work()
        except Exception as error:  # whatever it is, a rank that left would let the others wait
            result = OSError(first_line(error))
        results = self.gathered(result)
        failed = [f"rank {rank}: {one}" for rank, one in enumerate(results) if isinstance(one, OSError)]
        if failed:
            raise OSError("; ".join(failed) if self.world_size > 1 else f"{result}")
        return results


def first_line(error: BaseException) -> str:
    """Return an error in one line: torch's have many."""
    return f"{type(error).__name__}: {error}".partition("\n")[0].removesuffix(": ")
