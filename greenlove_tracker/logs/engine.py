"""Where the parts of a directory are added up: in this process, or by Dask on several cores or machines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Protocol

from greenlove_tracker.errors import UsageError
from greenlove_tracker.logs.bar import with_bar
from greenlove_tracker.logs.question import Answer, Question, answer_from

_PART = 500  # runs: a twentieth of a second, and what is merged is small beside what is read


class Engine(Protocol):
    """Answers a question to the runs of a directory."""

    def __call__(self, question: Question, directory: str, names: Sequence[str]) -> Answer:
        """What the runs of these names come to."""


def engine_named(name: str, scheduler: str | None) -> Engine:
    """The engine of that name.

    Args:
        name: ``local``, or ``dask`` for several processes or machines.
        scheduler: the address of a running Dask scheduler, ``tcp://…``; default: a process a core of this machine.

    Raises:
        UsageError: where there is no such engine, or it has no scheduler.
        MissingExtraError: where Dask is not installed.
    """
    match name:
        case "dask":
            from greenlove_tracker.logs import on_dask

            on_dask.check_installed()
            return partial(on_dask.answered, scheduler=scheduler)
        case "local" if scheduler is None:
            return in_this_process
        case "local":
            raise UsageError("a scheduler is Dask's: say engine dask (--engine dask) too")
        case _:
            raise UsageError(f"there is no engine {name!r}: choose local or dask")


def in_this_process(question: Question, directory: str, names: Sequence[str]) -> Answer:
    """Part by part; no more is held than the answer and one part."""
    parts = in_parts(names)
    return merged_in_pairs(with_bar((answer_from(question, directory, part) for part in parts), len(parts), len(names)))


def in_parts(names: Sequence[str]) -> list[Sequence[str]]:
    """``names`` in parts, at least one."""
    return [names[i : i + _PART] for i in range(0, len(names), _PART)] or [()]


def merged_in_pairs(answers: Iterable[Answer]) -> Answer:
    """All of them together; there is at least one.

    Those of equally many parts are merged first, as a counter carries: adding each to the sum of all before would
    copy that sum every time, where there are as many groups as runs.
    """
    carried: list[tuple[int, Answer]] = []
    for answer in answers:
        level, merged = 0, answer
        while carried and carried[-1][0] == level:
            merged = Answer.merged((carried.pop()[1], merged))
            level += 1
        carried.append((level, merged))
    return Answer.merged(answer for _, answer in carried)
