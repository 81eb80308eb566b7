"""A question to many runs, and its answer: given by parts of a directory, and the same whatever the parts were."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

from greenlove_tracker.errors import LogError
from greenlove_tracker.logs.first import First
from greenlove_tracker.logs.highlights import Highlights, Notable, notable
from greenlove_tracker.logs.keys import KEYS
from greenlove_tracker.logs.notes import Problem
from greenlove_tracker.logs.partial import Contribution, Partial, contribution
from greenlove_tracker.logs.places import RemotePath, place
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.verify import Verified, differences

N_PROBLEMS = 10_000
_N_AT_ONCE = 32  # of a store, where each file is waited for

Cut = tuple[str, ...]  # some of KEYS; the empty one is everything together


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of every run.

    Attributes:
        cuts: what to group by, each giving groups of its own.
        since: only runs that began then or later, and
        until: that began before.
        is_verified: whether finished runs are added up again from their epochs.
        has_highlights: whether single runs are to be told of.
    """

    cuts: tuple[Cut, ...]
    since: datetime | None = None
    until: datetime | None = None
    is_verified: bool = False
    has_highlights: bool = False

    def covers(self, run: Run) -> bool:
        """Whether the run began in the period.

        Raises:
            LogError: where it is not known when it began.
        """
        if self.since is None and self.until is None:
            return True
        try:
            began = utc(run.started_at)
        except ValueError as error:
            raise LogError("left out: it is not known when it began") from error
        return (self.since is None or began >= self.since) and (self.until is None or began < self.until)


def utc(text: str) -> datetime:
    """A time or date in ISO 8601, in UTC unless it says otherwise.

    Raises:
        ValueError: where it is none.
    """
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Answer:
    """What runs come to.

    Attributes:
        groups: by cut, and by the values of its keys.
        problems: what could not be read: (the run's path, number in it, problem).
        continues: by run id, the run that it continues; of runs outside the period too.
        no_runs: names in the directory that turned out to be no runs of ours.
        highlights: of no run where they were not asked for.
        verified: no run where that was not asked for.
    """

    groups: Mapping[Cut, Mapping[tuple[str, ...], Partial]]
    problems: First[tuple[str, int, Problem]]
    continues: Mapping[str, str]
    no_runs: tuple[str, ...]
    highlights: Highlights
    verified: Verified

    @classmethod
    def merged(cls, parts: Iterable[Answer]) -> Answer:
        """Of all parts together; there is at least one."""
        parts = list(parts)
        return cls(
            groups={cut: _merged_groups([p.groups[cut] for p in parts]) for cut in parts[0].groups},
            problems=First.merged(p.problems for p in parts),
            continues={run_id: before for p in parts for run_id, before in p.continues.items()},
            no_runs=tuple(sorted({name for p in parts for name in p.no_runs})),
            highlights=Highlights.merged(p.highlights for p in parts),
            verified=Verified(sum(p.verified.n_agreeing for p in parts), sum(p.verified.n_differing for p in parts)),
        )


def _merged_groups(parts: Sequence[Mapping[tuple[str, ...], Partial]]) -> dict[tuple[str, ...], Partial]:
    found: dict[tuple[str, ...], list[Partial]] = {}
    for part in parts:
        for values, group in part.items():
            found.setdefault(values, []).append(group)
    return {values: groups[0] if len(groups) == 1 else Partial.merged(groups) for values, groups in found.items()}


class _Look(NamedTuple):
    """What one run says to a question."""

    run: Run
    values: tuple[tuple[str, ...], ...] = ()  # of each cut
    added: Contribution | None = None  # None: it is not in the answer
    continues: str = ""
    notable: Notable | None = None
    difference: str | None = None  # None: not verified


def answer_from(question: Question, directory: str, names: Sequence[str]) -> Answer:
    """What the runs of these names in a directory come to; pure, so that any process of any machine may do it."""
    root = place(directory)
    runs = (Run(root / name) for name in names)
    if not isinstance(root, RemotePath):
        return _added_up(question, (_look(question, run) for run in runs))
    from concurrent.futures import ThreadPoolExecutor  # not at the end of a process, which reports itself too

    with ThreadPoolExecutor(_N_AT_ONCE) as pool:
        return _added_up(question, pool.map(partial(_look, question), runs))


def answer_of(question: Question, runs: Iterable[Run]) -> Answer:
    """What these runs come to; of each, what was read is let go."""
    return _added_up(question, (_look(question, run) for run in map(copy, runs)))


def is_in(question: Question, run: Run) -> bool:
    """Whether a run counts: it can be read, and began in the period."""
    return _look(replace(question, cuts=(), is_verified=False, has_highlights=False), run).added is not None


def _look(question: Question, run: Run) -> _Look:
    if not run.is_run:
        return _Look(run)
    try:
        added = contribution(run)
        before = run.text("continues")
        if not question.covers(run):
            return _Look(run, continues=before)
        values = tuple(tuple(KEYS[key](run) for key in cut) for cut in question.cuts)
        difference = differences(run) if question.is_verified else None
        if difference:
            run.refuse(LogError(difference))
        told = notable(run, added) if question.has_highlights else None
    except (LogError, OSError, ValueError, ArithmeticError) as error:
        run.refuse(error)
        return _Look(run)
    return _Look(run, values, added, before, told, difference)


def _added_up(question: Question, looks: Iterable[_Look]) -> Answer:
    groups: dict[Cut, dict[tuple[str, ...], list[Contribution]]] = {cut: {} for cut in question.cuts}
    problems: list[tuple[str, int, Problem]] = []
    continues: dict[str, str] = {}
    no_runs: list[str] = []
    told: list[Notable] = []
    verified: list[bool] = []
    for run, values, added, before, highlight, difference in looks:
        if not run.is_run:
            no_runs.append(run.path.name)
            continue
        problems += ((str(run.path), i, problem) for i, problem in enumerate(run.problems))
        if before:
            continues[run.run_id] = before
        if added is not None:
            for cut, of_cut in zip(question.cuts, values, strict=True):
                groups[cut].setdefault(of_cut, []).append(added)
        if highlight is not None:
            told.append(highlight)
        if difference is not None:
            verified.append(not difference)
    return Answer(
        groups={cut: {values: Partial.of(c) for values, c in found.items()} for cut, found in groups.items()},
        problems=First.of(N_PROBLEMS, problems),
        continues=continues,
        no_runs=tuple(no_runs),
        highlights=Highlights.of(told),
        verified=Verified(verified.count(True), verified.count(False)),
    )
