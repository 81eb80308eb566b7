"""Real processes of one training over gloo, forked from a server that has torch loaded already."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

_LIMIT_S = 180.0  # a hang is a failure


class RankFailedError(AssertionError):
    """A rank raised an error, died or hung."""


def run_ranks(
    work: Callable[..., Any], n_ranks: int, directory: Path, *args: Any, lost: int | None = None
) -> list[Any]:
    """Run a function of a test's module on every rank and return what each returned; None for a lost one.

    Args:
        work: called with the rank and the arguments, in a process group.
        n_ranks: how many.
        directory: for the meeting place.
        args: plain values.
        lost: a rank that dies or hangs, and is not waited for.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch.distributed.checkpoint.state_dict"])
    directory.mkdir(parents=True, exist_ok=True)
    meeting_place = directory / f"ranks-{os.urandom(4).hex()}"
    started = []
    for rank in range(n_ranks):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(
            target=_rank, args=(work, rank, n_ranks, str(meeting_place), theirs, args), daemon=True
        )
        process.start()
        theirs.close()
        started.append((process, ours))
    results = []
    try:
        for rank, (_, pipe) in enumerate(started):
            if rank == lost:
                results.append(None)
                continue
            if not pipe.poll(_LIMIT_S):
                raise RankFailedError(f"rank {rank} hangs")
            try:
                result, error = pipe.recv()
            except EOFError:
                result, error = None, "it died"
            if error:
                raise RankFailedError(f"rank {rank}: {error}")
            results.append(result)
    finally:
        for process, _ in started:
            process.kill()
            process.join()
    return results


def _rank(
    work: Callable[..., Any], rank: int, n_ranks: int, meeting_place: str, pipe: Connection, args: tuple[Any, ...]
) -> None:
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    try:
        store = distributed.FileStore(meeting_place, n_ranks)
        limit = timedelta(seconds=_LIMIT_S)
        distributed.init_process_group("gloo", store=store, rank=rank, world_size=n_ranks, timeout=limit)
        result, error = work(rank, *args), ""
    except BaseException:
        result, error = None, traceback.format_exc()
    pipe.send((result, error))
    pipe.close()
    os._exit(0)  # the others may be gone: nothing is to wait for them
