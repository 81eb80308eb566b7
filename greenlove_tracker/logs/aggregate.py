"""Adds runs up: over everything, and by run, project, device, account, day or month."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from greenlove_tracker.console import with_bar
from greenlove_tracker.errors import UsageError
from greenlove_tracker.logs.continued_runs import chain_start
from greenlove_tracker.logs.csvio import Problem, csv_text
from greenlove_tracker.logs.directory import Logs, read_logs
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.run_rows import KEYS, Query, read_rows
from greenlove_tracker.logs.selection import DAY, MONTH, Chosen, Selection
from greenlove_tracker.logs.storage import LogPath
from greenlove_tracker.logs.sums import FLAT, RunRow, Totals, flat_totals

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["KEYS", "Aggregate", "Totals", "aggregate", "flat_totals"]


class Aggregate:
    """The runs of a log directory, read when they are asked for, and added up; made by ``aggregate``.

    Args:
        source: the runs.
        query: the period, and how they are read.
        how: ``processes`` and ``scheduler``, as ``read_rows`` takes them.
    """

    def __init__(self, source: Logs, query: Query, how: Mapping[str, Any]) -> None:
        self._source, self._query, self._how = source, query, how
        self._every: list[RunRow] = []
        self._total: Totals | None = None
        self._n_left_out = 0

    @property
    def path(self) -> LogPath:
        """The directory of the runs."""
        return self._source.path

    @property
    def selection(self) -> Selection:
        """The runs that count, and the time of them."""
        return self._query.selection

    def prepare(self, *needs: str) -> Totals:
        """Read everything once for what will be asked: ``DAY``, ``MONTH`` and ``DETAILS``, as in ``Query``.

        Returns:
            Everything together.
        """
        if self._total is None or not self._query.needs.issuperset(needs):
            self._query = replace(self._query, needs=self._query.needs.union(needs))
            self._every = read_rows(self._query, self._source.runs, **self._how)
            chosen = [row for row in self._every if row["counts"]]
            real, simulated = [row for row in chosen if not row["n_simulated"]], self.selection.simulated
            self._total = Totals(chosen if simulated or (simulated is None and not real) else real)
            self._n_left_out = len(chosen) - self._total.n_runs
        return self._total

    @property
    def total(self) -> Totals:
        """Everything together; its ``rows`` are the runs that count, without simulated ones beside others."""
        return self.prepare()

    @property
    def runs(self) -> list[Run]:
        """The runs that count, by name; see ``each``."""
        return list(self.each())

    def each(self) -> Iterator[Run]:
        """Yield each run that counts, read anew, and not held; of one that crosses an end of the period its part."""
        chosen = {(row["path"], row["run"]) for row in self.total.rows}  # a file of CodeCarbon's holds several
        for run in with_bar(self._source.runs, len(self._source.runs), len(chosen)):
            if (run.place, run.run_id) in chosen:
                yield self._part(copy(run))

    def run(self, run_id: str) -> Run:
        """Return one of the runs, by its name; of one that crosses an end of the period, what lies within."""
        return self._part(copy(next(run for run in self._source.runs if run.run_id == run_id)))

    def _part(self, run: Run) -> Run:
        return self.selection.part(run) or run

    @property
    def problems(self) -> list[Problem]:
        """Everything that could not be read, by name."""
        self.prepare()
        by_path = sorted(self._every, key=lambda row: row["path"])
        return [*self._source.own_problems, *(problem for row in by_path for problem in row["problems"])]

    @property
    def n_left_out(self) -> int:
        """The number of simulated runs that were chosen and do not count."""
        self.prepare()
        return self._n_left_out

    @property
    def _continues(self) -> Mapping[str, str]:
        """The run that a run continues; of runs outside the period too."""
        return {row["run"]: row["continues"] for row in self._every if row["continues"]}

    def by(self, *keys: str) -> dict[tuple[str, ...], Totals]:
        """Return totals by one or more of ``KEYS``, in the order of the keys' values.

        Raises:
            UsageError: for a key that does not exist.
        """
        unknown = [key for key in keys if key not in KEYS]
        if unknown or not keys or len(set(keys)) < len(keys):
            asked = ", ".join(unknown or keys) or "nothing"
            raise UsageError(f"cannot group by {asked}; choose from {', '.join(KEYS)}, each once")
        unit = DAY if DAY in keys else MONTH if MONTH in keys else None
        total = self.prepare(*([unit] if unit else []))
        continues = self._continues
        groups: dict[tuple[str, ...], list[RunRow]] = {}
        for row in total.rows:
            for part in row["parts"].get(unit, [row]):
                values = (chain_start(row["run"], continues) if key == "training" else part[key] for key in keys)
                groups.setdefault(tuple(values), []).append(part)
        return {values: Totals(groups[values]) for values in sorted(groups)}

    def rows(self, *keys: str) -> list[dict[str, Any]]:
        """Return ``by(*keys)`` as flat rows, for tables, CSV and JSON."""
        return [{**dict(zip(keys, values, strict=True)), **flat_totals(t)} for values, t in self.by(*keys).items()]

    def to_csv(self, *keys: str) -> str:
        """Return ``rows(*keys)`` as CSV; a spreadsheet does not run a project that is called like a formula."""
        return csv_text([*keys, *FLAT], self.rows(*keys))

    def to_frame(self, *keys: str) -> pd.DataFrame:
        """Return ``rows(*keys)`` as a pandas frame; one row a run where no key is given."""
        from greenlove_tracker.logs.export import groups_frame

        keys = keys or ("run",)
        return groups_frame(self.rows(*keys), [*keys, *FLAT])


def aggregate(
    log_dir: str | os.PathLike[str] | Logs,
    *,
    processes: int = 1,
    scheduler: str | None = None,
    **chosen: Unpack[Chosen],
) -> Aggregate:
    """Add up the runs of a log directory; read when something is asked, and no more is held than a row a run.

    Args:
        log_dir: the directory, an address such as ``s3://bucket/logs``, or what ``read_logs`` gave for it.
        processes: that read; a script that asks for several needs ``if __name__ == "__main__":``.
        scheduler: the address of a running Dask scheduler, ``tcp://…``, whose workers read instead: the same answer.
        **chosen: which runs, and what of them: ``since``, ``until``, ``project``, ``user``, ``job``, ``host``,
            ``simulated``, as ``Chosen`` says.

    Returns:
        The runs that could be read, added up; what could not is in ``problems``, by name.

    Raises:
        UsageError: where there is no such directory, or a date is none.
        MissingExtraError: where what the address needs is not installed.
    """
    query = Query(Selection.of(**chosen))
    if scheduler and not isinstance(log_dir, Logs) and "://" not in str(log_dir):
        log_dir = os.path.abspath(log_dir)  # noqa: PTH100  # a worker is somewhere else
    logs = log_dir if isinstance(log_dir, Logs) else read_logs(log_dir)
    return Aggregate(logs, query, {"processes": processes, "scheduler": scheduler})
