"""Adds runs up: over everything, and by run, project, device, account, day or month."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, overload

from greenlove_tracker.console import with_bar
from greenlove_tracker.errors import UsageError
from greenlove_tracker.logs.csvio import csv_text
from greenlove_tracker.logs.directory import Logs, RunIndex, read_logs
from greenlove_tracker.logs.highlights import Highlights
from greenlove_tracker.logs.mapreduce import (
    KEYS,
    Cut,
    Engine,
    Query,
    QueryResult,
    Verified,
    answer_of,
    checked_keys,
    engine_named,
    first_of_chain,
    is_in,
    utc,
)
from greenlove_tracker.logs.problems import Problem
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.storage import LogPath
from greenlove_tracker.logs.sums import ExactTotals, Totals

if TYPE_CHECKING:
    import os

    import pandas as pd

__all__ = ["KEYS", "Aggregate", "Runs", "Totals", "aggregate", "flat_totals"]

_EVERYTHING: Cut = ()


class Runs(Sequence[Run]):
    """Some runs of a directory: what they come to is known, and each is read again when it is asked for.

    So a directory of any size can be gone through; who goes through it more than once keeps a list.
    """

    def __init__(self, partial: ExactTotals, read: Callable[[], Iterator[Run]]) -> None:
        self.partial = partial
        self._read = read

    def __len__(self) -> int:
        return self.partial.n_runs

    def __iter__(self) -> Iterator[Run]:
        return with_bar(self._read(), len(self), len(self))

    @overload
    def __getitem__(self, index: int) -> Run: ...
    @overload
    def __getitem__(self, index: slice) -> list[Run]: ...
    def __getitem__(self, index: int | slice) -> Run | list[Run]:
        return list(self)[index]


class Aggregate:
    """The runs of a log directory, added up when they are asked for; made by ``aggregate``.

    Args:
        source: where the runs are.
        question: which of them, and how they are read.
        add_up: the engine.
    """

    def __init__(self, source: RunIndex, question: Query, add_up: Engine) -> None:
        self._source, self._question, self._add_up = source, question, add_up
        self._answer: QueryResult | None = None
        self._has_highlights = False

    @property
    def path(self) -> LogPath:
        """Where the runs are."""
        return self._source.path

    @property
    def partial(self) -> ExactTotals:
        """Everything together, exactly."""
        groups = next(iter(self._answered().groups.values()))
        return ExactTotals.merged(groups.values())

    @property
    def total(self) -> Totals:
        """Everything together."""
        return self.partial.totals

    @property
    def runs(self) -> Runs:
        """The runs that could be read, by name; each is read anew whenever they are gone through."""
        return Runs(self.partial, self._read)

    def run(self, run_id: str) -> Run:
        """One of the runs, by its name."""
        return self._source.run(run_id)

    @property
    def problems(self) -> list[Problem]:
        """What could not be read, by name; beyond ten thousand, how many more that are."""
        found = self._answered().problems
        n_more = found.count - len(found.items)
        more = [Problem(self._source.path, f"and {n_more:,} more problems")] if n_more else []
        return [*self._source.problems, *(problem for *_, problem in found.items), *more]

    @property
    def verified(self) -> Verified | None:
        """How many runs agree with their epochs; None where that was not asked for."""
        return self._answered().verified if self._question.is_verified else None

    @property
    def highlights(self) -> Highlights:
        """What a report tells of single runs."""
        return self._answered(has_highlights=True).highlights

    def prepare(self, *cuts: Sequence[str]) -> None:
        """Read everything once for several ``by`` and for the ``highlights``."""
        self._answered(*map(checked_keys, cuts), has_highlights=True)

    def by(self, *keys: str) -> dict[tuple[str, ...], Totals]:
        """Totals by one or more of ``KEYS``, in the order of the keys' values.

        Raises:
            UsageError: for a key that does not exist.
        """
        return {values: group.totals for values, group in self.partials_by(*keys).items()}

    def partials_by(self, *keys: str) -> dict[tuple[str, ...], ExactTotals]:
        """The same, exactly: sums that can be added to others.

        Raises:
            UsageError: for a key that does not exist.
        """
        cut = checked_keys(keys)
        answer = self._answered(cut)
        groups: dict[tuple[str, ...], list[ExactTotals]] = {}
        for values, group in answer.groups[cut].items():
            groups.setdefault(_with_chains(cut, values, answer.continues), []).append(group)
        return {values: ExactTotals.merged(groups[values]) for values in sorted(groups)}

    def runs_by(self, *keys: str) -> dict[tuple[str, ...], Runs]:
        """The runs by one or more of ``KEYS``, in the order of the keys' values.

        Raises:
            UsageError: for a key that does not exist.
        """
        return {
            values: Runs(group, partial(self._runs_of, checked_keys(keys), values))
            for values, group in self.partials_by(*keys).items()
        }

    def rows(self, *keys: str) -> list[dict[str, Any]]:
        """``by(*keys)`` as flat rows, for tables, CSV and JSON."""
        return [{**dict(zip(keys, values, strict=True)), **flat_totals(t)} for values, t in self.by(*keys).items()]

    def to_csv(self, *keys: str) -> str:
        """``rows(*keys)`` as CSV that a spreadsheet may open: a project that is called like a formula is not run."""
        return csv_text([*keys, *flat_totals(ExactTotals().totals)], self.rows(*keys))

    def to_frame(self, *keys: str) -> pd.DataFrame:
        """``rows(*keys)`` as a pandas frame; one row a run where no key is given."""
        from greenlove_tracker.logs.frames import groups_frame

        keys = keys or ("run",)
        return groups_frame(self.rows(*keys), [*keys, *flat_totals(ExactTotals().totals)])

    def _read(self) -> Iterator[Run]:
        return (run for run in self._source.runs() if is_in(self._question, run))

    def _runs_of(self, cut: Cut, values: tuple[str, ...]) -> Iterator[Run]:
        continues = self._answered().continues
        for run in self._read():
            if _with_chains(cut, tuple(KEYS[key](run) for key in cut), continues) == values:
                yield run

    def _answered(self, *cuts: Cut, has_highlights: bool = False) -> QueryResult:
        """The answer so far; what is not in it is read, all of it in one go."""
        before = self._answer
        missing = tuple(cut for cut in cuts if before is None or cut not in before.groups)
        has_all = not missing and (self._has_highlights or not has_highlights)
        if before is not None and has_all:
            return before
        question = replace(self._question, cuts=missing or (_EVERYTHING,), has_highlights=has_highlights)
        answer = self._add_up(question, str(self._source.path), self._source.names)
        if others := self._source.others(answer.no_runs):
            answer = QueryResult.merged((answer, answer_of(question, with_bar(others, len(others), len(others)))))
        if before is not None:
            answer = replace(answer, groups={**before.groups, **answer.groups})
            if self._has_highlights:
                answer = replace(answer, highlights=before.highlights)
        self._has_highlights = self._has_highlights or has_highlights
        self._answer = answer
        return answer


def _with_chains(cut: Cut, values: tuple[str, ...], continues: Mapping[str, str]) -> tuple[str, ...]:
    """The values of a group; a training is called by the first run of its chain."""
    if "training" not in cut:
        return values
    at = cut.index("training")
    return (*values[:at], first_of_chain(values[at], continues), *values[at + 1 :])


def flat_totals(totals: Totals) -> dict[str, Any]:
    """Totals as one flat row."""
    return {
        "runs": totals.n_runs,
        "duration_s": totals.duration_s,
        "gpu_hours": totals.gpu_hours,
        "energy_kwh": totals.energy_kwh,
        "cpu_kwh": totals.energy.cpu_kwh,
        "gpu_kwh": totals.energy.gpu_kwh,
        "ram_kwh": totals.energy.ram_kwh,
        "measured_kwh": totals.measured_kwh,
        "emissions_kgco2e": totals.emissions_kgco2e,
        "cost_usd": totals.cost_usd,
        "unknown_gpu_hours": totals.n_unknown_gpu_hours,
        "unknown_energy": totals.n_unknown_energy,
        "unknown_measured": totals.n_unknown_measured,
        "unknown_emissions": totals.n_unknown_emissions,
        "unknown_cost": totals.n_unknown_cost,
    }


def aggregate(
    log_dir: str | os.PathLike[str] | Logs,
    *,
    since: str | None = None,
    until: str | None = None,
    verify: bool = False,
    engine: str = "local",
    scheduler: str | None = None,
) -> Aggregate:
    """Add up the runs of a log directory; read when something is asked, and no more is held than the answer.

    Args:
        log_dir: the directory, an address such as ``s3://bucket/logs``, or what ``read_logs`` gave for it.
        since: only runs that began on or after this UTC date (``2026-11-01``) or time.
        until: only runs that began before this UTC date or time.
        verify: add the epochs of finished runs up again; a run whose summary differs is named in ``problems``.
        engine: ``local``, or ``dask``: the same answer, to the last bit, from several processes or machines.
        scheduler: the address of a running Dask scheduler, which ``dask`` is to use.

    Returns:
        The runs that could be read, added up; what could not is in ``problems``, by name.

    Raises:
        UsageError: where there is no such directory, a date is none, or there is no such engine.
        MissingExtraError: where what the address or the engine needs is not installed.
    """
    question = Query(
        cuts=(),
        since=None if since is None else _asked_for("since", since),
        until=None if until is None else _asked_for("until", until),
        is_verified=verify,
    )
    logs = log_dir if isinstance(log_dir, Logs) else read_logs(log_dir)
    return Aggregate(RunIndex(logs), question, engine_named(engine, scheduler))


def _asked_for(name: str, text: str) -> datetime:
    try:
        return utc(text)
    except ValueError as error:
        raise UsageError(
            f"{{argument}} must be a date such as 2026-11-01 or a time in ISO 8601, not {text!r}", argument=name
        ) from error
