"""Checkpoints of a training of many ranks: they agree on when, and write it together.

Agreement is by groups of our own over gloo, so nothing of ours stands in the queue of the training's own collectives.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from itertools import chain
from typing import Any

import torch
from torch import distributed

from greenlove_tracker.checkpointing.checkpoint_files import Checkpoint, Draft
from greenlove_tracker.checkpoints import CheckpointFile, Manifest
from greenlove_tracker.errors import GreenloveError, UsageError

_DEFAULT_TIMEOUT_S = 1800.0  # torch's own for gloo: no rank waits shorter for us than for the training


class RanksLostError(GreenloveError, OSError):
    """A rank died, hangs or failed while all worked together; the checkpoint before stays."""


class RankAgreement:
    """Messages between the ranks of one training, over a gloo group of its own; trivial in a single process.

    Every rank makes it at the same place, and calls its methods in the same order. One is for one thread: the training
    has one, and the thread that writes another, since the order of calls between threads differs from rank to rank.

    Args:
        timeout_s: how long a rank waits for the others; one that died is mostly noticed at once.
        env: environment variables.

    Attributes:
        rank: of this process.
        world_size: how many ranks there are.
        group: for torch's own functions; None where the training has none.
        problem: in words, why the ranks agree on nothing any more; empty while they do.

    Raises:
        UsageError: where torchrun started many ranks and the training has not joined them yet.
    """

    def __init__(self, *, timeout_s: float = _DEFAULT_TIMEOUT_S, env: Mapping[str, str] = os.environ) -> None:
        self.group: Any = None
        self._begun: tuple[Any, torch.Tensor] | None = None  # the exchange that runs while the step computes
        self.problem = ""
        self.rank, self.world_size = 0, 1
        if distributed.is_available() and distributed.is_initialized():
            self.rank, self.world_size = distributed.get_rank(), distributed.get_world_size()
            self.group = distributed.new_group(backend="gloo", timeout=timedelta(seconds=timeout_s))
        elif "TORCHELASTIC_RUN_ID" in env and env.get("WORLD_SIZE", "1") != "1":
            raise UsageError(
                "torchrun started more than one process: call torch.distributed.init_process_group() before the "
                "Checkpointer is used, so that the processes write one checkpoint together"
            )

    def exchange(self, code: int, steps: int = 0) -> int:
        """Give a number and return the greatest that any rank gave in the call before; 0 in the first call.

        It costs no waiting while the ranks keep step: what one call begins runs while the training computes until the
        next. What is still asked for in the call that answers it counts as answered. Once ranks are lost or out of
        step, ``problem`` says so and every call returns 0 at once.

        Args:
            code: what this rank asks for; at least 0.
            steps: batches that are done here: where the ranks differ, they could not stop at one position.

        Returns:
            in a single process ``code`` itself.
        """
        if self.world_size == 1:
            return code
        agreed = 0
        with contextlib.suppress(RanksLostError), self.together():
            agreed = self._finish()
            if not self.problem:
                sent = torch.tensor([code if code > agreed else 0, steps, -steps], dtype=torch.int64)
                work = distributed.all_reduce(sent, op=distributed.ReduceOp.MAX, group=self.group, async_op=True)
                self._begun = work, sent
        return 0 if self.problem else agreed

    def decide(self, code: int, steps: int = 0) -> int:
        """Return the greatest number of all ranks, of this call and of an ``exchange`` before; waits for the ranks.

        Returns:
            the same on all ranks; 0 once ``problem`` says something.
        """
        agreed = self.exchange(code, steps)
        with contextlib.suppress(RanksLostError), self.together():
            agreed = max(agreed, self._finish())
        return 0 if self.problem else agreed

    def gathered(self, thing: Any) -> list[Any]:
        """Return what every rank gave, by rank; waits for the ranks.

        Raises:
            RanksLostError: where a rank gave nothing in time.
        """
        if self.world_size == 1:
            return [thing]
        things: list[Any] = [None] * self.world_size
        with self.together():
            distributed.all_gather_object(things, thing, group=self.group)
        return things

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Make an error of the group, for work of all ranks in the block, a RanksLostError.

        Raises:
            RanksLostError: for such an error, and at once where the ranks lost each other before.
        """
        if self.problem:
            raise RanksLostError(self.problem)
        try:
            yield
        except RuntimeError as error:
            seen = first_line(error).removeprefix("RuntimeError: ")
            self.problem = f"the ranks lost each other: rank {self.rank} of {self.world_size} saw {seen!r}"
            raise RanksLostError(self.problem) from error

    def _finish(self) -> int:
        """Return what the exchange that runs has come to."""
        if self._begun is None:
            return 0
        (work, received), self._begun = self._begun, None
        work.wait()
        agreed, most, least = received.tolist()
        if most != -least:  # all ranks see this in the same call
            self.problem = (
                f"the ranks are out of step: one has done {most} batches and another {-least}. No checkpoint is "
                "written any more. Give all ranks equally many batches (DistributedSampler, drop_last=True)"
            )
        return int(agreed)


def write_together(
    ranks: RankAgreement,
    make_draft: Callable[[], Draft],
    write: Callable[[Draft], Iterable[CheckpointFile]],
    manifest: Manifest,
    *,
    write_shards: Callable[[Draft], Iterable[CheckpointFile]] | None = None,
) -> Checkpoint | None:
    """Write a checkpoint by all ranks: whole where every rank wrote its files, else not at all.

    Args:
        ranks: of the thread that calls.
        make_draft: of the same name on every rank.
        write: writes this rank's files, without waiting for other ranks.
        manifest: of this rank, without files. That of rank 0 is written, with the files of all ranks, and with what all
            of them say of why a resume is not identical.
        write_shards: writes what needs all ranks at work together, once each has written its own; of all or none.

    Returns:
        the checkpoint on rank 0; None on the others. It is whole on all of them.

    Raises:
        OSError: on every rank where one could not write, and says which; the checkpoints before stay.
    """
    drafts, committed = list[Draft](), list[Checkpoint]()
    try:
        _done_by_all(ranks, lambda: drafts.append(make_draft()))
        written = _done_by_all(ranks, lambda: (*write(drafts[0]),))
        if write_shards is not None:  # only now: or the others would wait in there for one that failed before
            written += _done_by_all(ranks, lambda: (*write_shards(drafts[0]),))
        files = tuple(file for of_rank in written for file in of_rank)
        reasons = dict.fromkeys(chain.from_iterable(ranks.gathered(manifest.not_identical)))
        whole = replace(manifest, files=files, not_identical=tuple(reasons))
        _done_by_all(ranks, lambda: None if ranks.rank else committed.append(drafts[0].commit(whole)))
        return committed[0] if committed else None
    finally:
        for draft in drafts:
            if ranks.rank == 0 or not draft.is_shared:
                draft.close()


def _done_by_all(ranks: RankAgreement, work: Callable[[], Any]) -> list[Any]:
    """Return what some work gives on every rank; where it fails on one, all of them raise what failed."""
    result, problem = None, ""
    try:
        result = work()
    except Exception as error:  # whatever it is, a rank that left would let the others wait
        problem = first_line(error)
    done = ranks.gathered((result, problem))
    if failed := [f"rank {rank}: {problem}" for rank, (_, problem) in enumerate(done) if problem]:
        raise OSError("; ".join(failed) if ranks.world_size > 1 else problem)
    return [result for result, _ in done]


def first_line(error: BaseException) -> str:
    """Return an error in one line: torch's have many."""
    return f"{type(error).__name__}: {error}".partition("\n")[0].removesuffix(": ")
