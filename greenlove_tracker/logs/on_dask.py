"""The parts of a directory added up by Dask: on the cores of this machine, or wherever a scheduler has workers.

Only here is Dask used. The workers read the files, so they must see the same directory or store under the same name;
only sums travel. These are exact, so the answer does not depend on who added what first.
"""
# mypy: disable-error-code="no-untyped-call, import-not-found, import-untyped"

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from greenlove_tracker.errors import MissingExtraError, UsageError
from greenlove_tracker.logs.bar import with_bar
from greenlove_tracker.logs.engine import in_parts, merged_in_pairs
from greenlove_tracker.logs.notes import Problem
from greenlove_tracker.logs.places import RemotePath, place
from greenlove_tracker.logs.question import Answer, Question, answer_from

if TYPE_CHECKING:
    from distributed import Client

_CONNECT_S = 10.0


def check_installed() -> None:
    """Raises MissingExtraError where Dask is not."""
    if find_spec("distributed") is None:
        raise MissingExtraError('adding up with Dask needs: pip install "greenlove-tracker[dask]"')


def answered(question: Question, directory: str, names: Sequence[str], *, scheduler: str | None = None) -> Answer:
    """What the runs of these names come to.

    Args:
        question: what is asked.
        directory: a path or the address of a store.
        names: of directories in it.
        scheduler: the address of a running one; default: a process a core of this machine, for this answer only.

    Raises:
        UsageError: where the scheduler does not answer.
    """
    from distributed import as_completed

    is_remote = isinstance(place(directory), RemotePath)
    seen_as = directory if is_remote else os.path.abspath(directory)  # noqa: PTH100  # a worker is somewhere else
    parts = in_parts(names)
    with _client(scheduler) as client:
        futures = client.map(partial(answer_from, question, seen_as), parts, pure=False)
        answers = (answer for _, answer in as_completed(futures, with_results=True))
        answer = merged_in_pairs(with_bar(answers, len(parts), len(names)))
    return answer if is_remote else _as_seen_here(answer, Path(seen_as), Path(directory))


def _as_seen_here(answer: Answer, there: Path, here: Path) -> Answer:
    """The same, with paths as the user wrote them."""
    items = tuple(
        (str(here / Path(run).relative_to(there)), i, Problem(here / problem.path.relative_to(there), problem.message))
        for run, i, problem in answer.problems.items
        if isinstance(problem.path, Path)
    )
    return replace(answer, problems=replace(answer.problems, items=items))


@contextmanager
def _client(scheduler: str | None) -> Iterator[Client]:
    from distributed import Client, LocalCluster

    if scheduler is None:
        # processes: threads of one would wait for each other
        local = LocalCluster(threads_per_worker=1, processes=True, dashboard_address=None)
        with local as cluster, Client(cluster) as client:
            yield client
        return
    try:
        client = Client(scheduler, timeout=_CONNECT_S)
    except (OSError, ValueError) as error:
        raise UsageError(f"no Dask scheduler answers at {scheduler}: {error}") from error
    with client:
        yield client
