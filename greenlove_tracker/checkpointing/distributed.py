"""Checkpoints of a training of many ranks: they agree on when, and write it together.

Agreement is by groups of our own over gloo, so nothing of ours stands in the queue of the training's own collectives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, cast

import torch
from torch import distributed

from greenlove_tracker.checkpointing.checkpoint_files import Checkpoint, Draft
from greenlove_tracker.vocabulary.checkpoints import CheckpointFile, Manifest


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
        self.group: Any = None
        self.problem = ""
        self.rank = 0
        self.world_size = 1
        if distributed.is_available() and distributed.is_initialized():
            self.rank = distributed.get_rank()
            self.world_size = distributed.get_world_size()
            self.group = distributed.new_group(backend="gloo")

    def decide(self, code: int, steps: int = 0) -> int:
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
        return 0

    def gathered(self, thing: Any) -> list[Any]:
        """Return what every rank gave, by rank; waits for the ranks."""
        if self.world_size == 1:
            return [thing]
        things: list[Any] = [None] * self.world_size
        distributed.all_gather_object(things, thing, group=self.group)
        return things


def write_together(
    ranks: RankAgreement,
    make_draft: Callable[[], Draft],
    writers: Iterable[Callable[[Draft], Iterable[CheckpointFile]]],
    manifest: Manifest,
) -> Checkpoint:
    """Write a checkpoint by all ranks: whole where every rank wrote its files, else not at all.

    Args:
        ranks: that write.
        make_draft: of the same name on every rank.
        writers: write this rank's files, one after the other once all ranks are done with the one before: or one that
            waits for the other ranks would wait for one that has failed.
        manifest: of this rank, without files. That of rank 0 is written, with the files of all ranks.

    Raises:
        OSError: on every rank where one could not write, and says which; the checkpoints before stay.
    """
    draft = _done_by_all(ranks, make_draft)[ranks.rank]
    try:
        files = list[CheckpointFile]()
        for write in writers:
            files += chain.from_iterable(_done_by_all(ranks, partial(write, draft)))
        whole = replace(manifest, files=tuple(files))
        return cast(Checkpoint, _done_by_all(ranks, lambda: None if ranks.rank else draft.commit(whole))[0])
    finally:
        if ranks.rank == 0 or not draft.is_shared:
            draft.close()


def _done_by_all(ranks: RankAgreement, work: Callable[[], Any]) -> list[Any]:
    """Return what some work gives on every rank; where it fails on one, all of them raise what failed."""
    result = None
    problem = ""
    try:
        result = work()
    except Exception as error:  # whatever it is, a rank that left would let the others wait
        problem = first_line(error)
    done = ranks.gathered((result, problem))
    failed = [f"rank {rank}: {problem}" for rank, (_, problem) in enumerate(done) if problem]
    if failed:
        raise OSError("; ".join(failed) if ranks.world_size > 1 else problem)
    return [result for result, _ in done]


def first_line(error: BaseException) -> str:
    """Return an error in one line: torch's have many."""
    return f"{type(error).__name__}: {error}".partition("\n")[0].removesuffix(": ")
