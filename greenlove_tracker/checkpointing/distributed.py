"""Checkpoints of a training of many ranks: they agree on when, and write it together.

Agreement is by groups of our own over gloo, so nothing of ours stands in the queue of the training's own collectives.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import distributed

from greenlove_tracker.checkpointing.checkpoint_files import Checkpoint, Draft
from greenlove_tracker.checkpoints import CheckpointFile, Manifest
from greenlove_tracker.errors import GreenloveError, UsageError

Result = TypeVar("Result")

_DEFAULT_TIMEOUT_S = 1800.0  # torch's own for gloo: no rank waits shorter for us than for the training
_POLL_S = 0.2  # while a file of another rank's is not seen yet
_VISIBLE_WITHIN_S = 75.0  # NFS keeps what a directory holds for up to 60 s (acdirmax of nfs(5))


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
        problem: in words, why the ranks agree on nothing any more; empty while they do.

    Raises:
        UsageError: where torchrun started many ranks and the training has not joined them yet.
    """

    def __init__(self, *, timeout_s: float = _DEFAULT_TIMEOUT_S, env: Mapping[str, str] | None = None) -> None:
        self._group: Any = None
        self._begun: tuple[Any, torch.Tensor] | None = None  # the exchange that runs while the step computes
        self._timeout_s = timeout_s
        self.problem = ""
        self.rank, self.world_size = 0, 1
        if distributed.is_available() and distributed.is_initialized():
            self.rank, self.world_size = distributed.get_rank(), distributed.get_world_size()
            self._group = distributed.new_group(backend="gloo", timeout=timedelta(seconds=timeout_s))
        elif _n_launched(os.environ if env is None else env) > 1:
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
        if self.problem:
            return 0
        try:
            agreed = self._finish()
            if not self.problem:
                self._begin(code if code > agreed else 0, steps)
        except RuntimeError as error:
            self._note_lost(error)
            return 0
        return agreed

    def decide(self, code: int, steps: int = 0) -> int:
        """Return the greatest number of all ranks, of this call and of an ``exchange`` before; waits for the ranks.

        Returns:
            the same on all ranks; 0 once ``problem`` says something.
        """
        before = self.exchange(code, steps)
        if self.world_size == 1 or self.problem:
            return before
        try:
            return max(before, self._finish())
        except RuntimeError as error:
            self._note_lost(error)
            return 0

    def gathered(self, thing: Any) -> list[Any]:
        """Return what every rank gave, by rank; waits for the ranks.

        Raises:
            RanksLostError: where a rank gave nothing in time.
        """
        if self.world_size == 1:
            return [thing]
        things: list[Any] = [None] * self.world_size
        with self.together():
            distributed.all_gather_object(things, thing, group=self._group)
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
            self._note_lost(error)
            raise RanksLostError(self.problem) from error

    @property
    def group(self) -> Any:
        """The group, for torch's own functions; None where the training has none."""
        return self._group

    def _begin(self, code: int, steps: int) -> None:
        sent = torch.tensor([code, steps, -steps], dtype=torch.int64)  # the greatest of the third is the least steps
        work = distributed.all_reduce(sent, op=distributed.ReduceOp.MAX, group=self._group, async_op=True)
        self._begun = work, sent

    def _finish(self) -> int:
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
            return 0
        return int(agreed)

    def _note_lost(self, error: Exception) -> None:
        first_line = next(iter(str(error).splitlines()), "")
        self.problem = f"the ranks lost each other: rank {self.rank} of {self.world_size} saw {first_line!r}"


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
    draft, problem = _tried(make_draft)
    try:
        _raise_any(ranks, problem)
        if draft is None:  # for the type checker: every problem was raised
            return None
        files, problem = _tried(lambda: tuple(write(draft)))
        if write_shards is not None:
            _raise_any(ranks, problem)  # or the others would wait in there for one that failed before
            shards, problem = _tried(lambda: tuple(write_shards(draft)))
            files = (*(files or ()), *(shards or ()))
        written = ranks.gathered((problem, files or (), manifest.not_identical))
        _raise_first([problem for problem, *_ in written])
        checkpoint = None
        if ranks.rank == 0:
            all_files = tuple(file for _, files, _ in written for file in files)
            reasons = reasons_of_ranks([reasons for *_, reasons in written])
            whole = replace(manifest, files=all_files, not_identical=reasons)
            checkpoint, problem = _tried(lambda: draft.commit(whole))
        _raise_any(ranks, problem)
        return checkpoint
    finally:
        if draft is not None:
            draft.abandon()  # does nothing to one that was committed


def reasons_of_ranks(by_rank: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return what the ranks say, each thing once; behind what rank 0 does not say stands the first that does."""
    first: dict[str, int] = {}
    for rank, reasons in enumerate(by_rank):
        for reason in reasons:
            first.setdefault(reason, rank)
    return tuple(f"{reason} (rank {rank})" if rank else reason for reason, rank in first.items())


def check_shared_directory(
    directory: Path,
    ranks: RankAgreement,
    *,
    perf_s: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Check that all ranks see one directory: each writes a part of a checkpoint there.

    Args:
        directory: of the checkpoints; it is made.
        ranks: all of which call this.
        perf_s: a clock.
        sleep: waits while another machine's file is not seen yet.

    Raises:
        UsageError: on every rank, where some do not see what rank 0 wrote; it names them.
        OSError: where rank 0 cannot write there.
    """
    if ranks.world_size == 1:
        return
    name = f".seen-by-all-ranks-{secrets.token_hex(8)}"
    problem = ""
    if ranks.rank == 0:
        _, problem = _tried(lambda: _touch(directory / name))
    told = ranks.gathered((name, problem))[0]
    try:
        _raise_first([told[1]])
        waits_until_s = perf_s() + _VISIBLE_WITHIN_S
        while not (is_seen := told[0] in _names(directory)) and perf_s() < waits_until_s:
            sleep(_POLL_S)
        found = ranks.gathered((is_seen, socket.gethostname()))
    finally:
        if ranks.rank == 0:
            with contextlib.suppress(OSError):  # hidden and empty: it does no harm
                (directory / name).unlink(missing_ok=True)
    if blind := [f"rank {rank} on {host}" for rank, (is_seen, host) in enumerate(found) if not is_seen]:
        raise UsageError(
            f"{', '.join(blind)} cannot see what rank 0 on {found[0][1]} writes to {directory}: the checkpoints of a "
            "training on several machines need a directory that all of them share, or a store such as s3://bucket/run"
        )


def _tried(work: Callable[[], Result]) -> tuple[Result | None, str]:
    """Return what some work gives and no problem, or nothing and the problem: the other ranks wait to hear of it."""
    try:
        return work(), ""
    except Exception as error:  # whatever it is, a rank that left would let the others wait
        return None, first_line(error)


def _raise_any(ranks: RankAgreement, problem: str) -> None:
    """Raise on all ranks what any of them has as a problem."""
    _raise_first(ranks.gathered(problem))


def _raise_first(problems: list[str]) -> None:
    if failed := [f"rank {rank}: {problem}" for rank, problem in enumerate(problems) if problem]:
        raise OSError("; ".join(failed) if len(problems) > 1 else problems[0])


def _touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def _names(directory: Path) -> set[str]:
    """Return what a directory holds; nothing where it is not there."""
    try:
        return {path.name for path in directory.iterdir()}
    except FileNotFoundError:
        return set()


def _n_launched(env: Mapping[str, str]) -> int:
    """Return how many processes torchrun started; 1 without it."""
    world_size = env.get("WORLD_SIZE", "")
    return int(world_size) if "TORCHELASTIC_RUN_ID" in env and world_size.isdecimal() else 1


def first_line(error: BaseException) -> str:
    """Return an error in one line: torch's have many."""
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
