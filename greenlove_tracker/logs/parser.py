"""Reads log directories, damaged ones too: what cannot be read is reported by name, and the rest is kept."""

from __future__ import annotations

import csv
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, overload

from greenlove_tracker.errors import LogError, UsageError
from greenlove_tracker.logs.schema import (
    COMMAND_STREAM,
    EPOCH_COLUMNS,
    RUN_COLUMNS,
    RUN_FILE,
    SCHEMA_VERSION,
    SUMMARY_FILE,
    epochs_file,
    factor_from_fields,
    row_from_cells,
    summary_from_fields,
)
from greenlove_tracker.logs.totals import Ending, Terms, merge_epochs, summarise
from greenlove_tracker.records import EpochRecord, Factor, Field, Row, RunStatus, RunSummary

if TYPE_CHECKING:
    import pandas as pd

_RUNNING_WITHIN_S = 150.0  # a living run writes a row at least every 60 s


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in a log directory that could not be read."""

    path: Path
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class Run:
    """One run of a log directory, read when it is asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[Problem] = []

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @property
    def run_id(self) -> str:
        """The directory's name."""
        return self.path.name

    @cached_property
    def fields(self) -> Mapping[str, Field]:
        """Every line of ``run.csv`` by field name; a later line of the same name wins."""
        fields = self._read_fields(self.path / RUN_FILE)
        for further in sorted(self.path.glob("run-*.csv")):
            fields = {**self._read_fields(further), **fields}
        version = fields.get("schema_version")
        if version and version.value.isdigit() and int(version.value) > SCHEMA_VERSION:
            raise LogError(
                f"{self.path}: written with log schema {version.value}, newer than the {SCHEMA_VERSION} that this "
                "version of greenlove_tracker reads: pip install -U greenlove-tracker"
            )
        return fields

    def text(self, name: str, default: str = "") -> str:
        """The value of one field of ``run.csv``."""
        found = self.fields.get(name)
        return found.value if found else default

    @cached_property
    def rows(self) -> Mapping[int, Sequence[Row]]:
        """The rows of each rank, as they were written."""
        ranks = {}
        for file in self.path.glob("epochs-*.csv"):
            name = file.stem.removeprefix("epochs-")
            if name.isdigit():
                ranks[int(name)] = self._read_rows(file)
        return dict(sorted(ranks.items()))

    @cached_property
    def command_rows(self) -> Sequence[Row] | None:
        """Where a whole command was measured from outside, the rows that hold its totals."""
        file = self.path / epochs_file(COMMAND_STREAM)
        return self._read_rows(file) if file.exists() else None

    @cached_property
    def epochs(self) -> Sequence[EpochRecord]:
        """The epochs of the first rank, in order; ``epochs_of(rank)`` gives another's."""
        return self.epochs_of(next(iter(self.rows), 0))

    def epochs_of(self, rank: int) -> Sequence[EpochRecord]:
        """The epochs of one rank, in order."""
        return merge_epochs(self.rows.get(rank, ()), rank)

    @cached_property
    def carbon_intensity(self) -> Factor:
        """The carbon intensity that the run was counted with."""
        return self._factor("carbon_intensity") or Factor("carbon_intensity", 0.0, "", "not in the log")

    @cached_property
    def electricity_price(self) -> Factor | None:
        """The price of electricity that the run was counted with."""
        return self._factor("electricity_price")

    @cached_property
    def has_summary(self) -> bool:
        """Whether the run wrote its totals at its end."""
        return (self.path / SUMMARY_FILE).exists()

    @cached_property
    def summary(self) -> RunSummary:
        """The totals: as written at the end, or added up from the rows where the end was not written.

        A run of several nodes is always added up: the first rank cannot know when the others ended.
        """
        if self.has_summary:
            try:
                summary = summary_from_fields(self._read_fields(self.path / SUMMARY_FILE))
            except LogError as error:
                self.problems.append(Problem(self.path / SUMMARY_FILE, f"added up from the rows instead: {error}"))
            else:
                if summary.n_ranks == 1 and len(list(self.path.glob("epochs-*.csv"))) == 1:
                    return summary
                return self.added_up(Ending(summary.status, summary.exit_code, summary.ended_at))
        return self.added_up(Ending(self._unwritten_status(), None, ""))

    def added_up(self, ending: Ending | None = None) -> RunSummary:
        """The totals, added up from the rows whatever the summary says."""
        if ending is None:
            ending = Ending(self.summary.status, self.summary.exit_code, self.summary.ended_at)
        return summarise(self.terms, self.rows, ending, gpu_count=self._gpu_count(), command_rows=self.command_rows)

    @cached_property
    def terms(self) -> Terms:
        """The factors and names of the run."""
        price = self.text("price_usd_per_gpu_hour")
        planned = self.text("epochs_planned")
        return Terms(
            run_id=self.run_id,
            project=self.text("project"),
            started_at=self.text("started_at"),
            epochs_planned=int(planned) if planned.isdigit() else None,
            carbon_intensity=self.carbon_intensity,
            pue=float(self.text("pue") or 1.0),
            electricity_price=self.electricity_price,
            price_usd_per_gpu_hour=float(price) if price else None,
        )

    def to_frame(self) -> pd.DataFrame:
        """One row an epoch and rank."""
        from greenlove_tracker.logs.frames import epochs_frame

        return epochs_frame(record for rank in self.rows for record in self.epochs_of(rank))

    def _factor(self, name: str) -> Factor | None:
        try:
            return factor_from_fields(name, self.fields)
        except ValueError as error:
            self.problems.append(Problem(self.path / RUN_FILE, f"{name}: {error}"))
            return None

    def _gpu_count(self) -> int:
        counts = []
        for file in (self.path / RUN_FILE, *self.path.glob("run-*.csv")):
            found = self._read_fields(file).get("gpu_count") if file.exists() else None
            counts.append(int(found.value) if found and found.value.isdigit() else 0)
        return sum(counts)

    def _unwritten_status(self) -> str:
        """Running or interrupted: no summary was written."""
        pid, host = self.text("pid"), self.text("host")
        if host == socket.gethostname() and pid.isdigit():
            return RunStatus.RUNNING if _is_alive(int(pid)) else RunStatus.INTERRUPTED
        age_s = time.time() - max((f.stat().st_mtime for f in self.path.glob("*.csv")), default=0.0)
        return RunStatus.RUNNING if age_s < _RUNNING_WITHIN_S else RunStatus.INTERRUPTED

    def _read_fields(self, file: Path) -> dict[str, Field]:
        fields = {}
        for _, cells in self._read_cells(file, RUN_COLUMNS):
            fields[cells["field"]] = Field(cells["field"], cells["value"], cells["unit"])
        return fields

    def _read_rows(self, file: Path) -> list[Row]:
        rows = []
        for line, cells in self._read_cells(file, EPOCH_COLUMNS):
            try:
                rows.append(row_from_cells(cells))
            except (ValueError, KeyError) as error:
                self.problems.append(Problem(file, f"line {line} left out: {error}"))
        return rows

    def _read_cells(self, file: Path, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
        """The lines of one CSV file by column; a line that is cut off or too long is left out, and said so."""
        try:
            text = file.read_bytes().decode("utf-8", "replace")
        except OSError as error:
            self.problems.append(Problem(file, f"cannot be read: {error.strerror}"))
            return
        if not text:
            self.problems.append(Problem(file, "is empty"))
            return
        if not text.endswith("\n"):
            self.problems.append(Problem(file, "last line was cut off, and is left out"))
            text = text[: text.rfind("\n") + 1]
        reader = csv.reader(text.replace("\x00", "").splitlines(keepends=True))
        header: list[str] | None = None
        while True:
            try:
                cells = next(reader, None)
            except csv.Error as error:
                self.problems.append(Problem(file, f"line {reader.line_num} left out: {error}"))
                continue
            if cells is None:
                return
            if header is None:
                header = cells
                if missing := set(columns) - set(header):
                    self.problems.append(Problem(file, f"is not ours: no column {', '.join(sorted(missing))}"))
                    return
            elif len(cells) != len(header):
                self.problems.append(Problem(file, f"line {reader.line_num} left out: {len(cells)} cells"))
            else:
                yield reader.line_num, dict(zip(header, cells, strict=True))


def _is_alive(pid: int) -> bool:
    import psutil  # os.kill(pid, 0) would end the process on Windows

    return bool(psutil.pid_exists(pid))


class _Runs(Sequence[Run]):
    def __init__(self, paths: Sequence[Path]) -> None:
        self._runs = [Run(path) for path in paths]

    @overload
    def __getitem__(self, index: int) -> Run: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Run]: ...
    def __getitem__(self, index: int | slice) -> Run | Sequence[Run]:
        return self._runs[index]

    def __len__(self) -> int:
        return len(self._runs)


class Logs:
    """A log directory, or the directory of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._own_problems: list[Problem] = []

    def __repr__(self) -> str:
        return f"Logs({str(self.path)!r})"

    @cached_property
    def runs(self) -> Sequence[Run]:
        """Every run, the oldest first, interrupted ones too."""
        if _is_run_dir(self.path):
            return _Runs([self.path])
        found = []
        with os.scandir(self.path) as entries:
            for entry in sorted(entries, key=lambda e: e.name):
                path = Path(entry.path)
                if entry.name.startswith(".") or not entry.is_dir():
                    continue
                if _is_run_dir(path):
                    found.append(path)
                else:
                    self._own_problems.append(Problem(path, "is not a run: no run.csv"))
        return _Runs(found)

    @property
    def problems(self) -> list[Problem]:
        """What could not be read, of the runs that were looked at so far."""
        return [*self._own_problems, *(problem for run in self.runs for problem in run.problems)]

    def readable(self) -> Iterator[Run]:
        """The runs that can be read; the others are added to ``problems``, by name."""
        for run in self.runs:
            try:
                _ = run.summary
            except (LogError, OSError, ValueError) as error:
                run.problems.append(Problem(run.path, str(error).removeprefix(f"{run.path}: ")))
            else:
                yield run

    def to_frame(self) -> pd.DataFrame:
        """One row a run."""
        from greenlove_tracker.logs.frames import runs_frame

        return runs_frame(run.summary for run in self.readable())


def _is_run_dir(path: Path) -> bool:
    return (path / RUN_FILE).is_file() or any(path.glob("epochs-*.csv"))


def read_logs(log_dir: str | os.PathLike[str]) -> Logs:
    """Open a log directory, or the directory of one run; nothing is read before it is asked for.

    Raises:
        UsageError: where there is no such directory.
    """
    path = Path(log_dir)
    if not path.is_dir():
        raise UsageError(f"{path} is not a directory of logs; a run writes to greenlove_logs unless told otherwise")
    return Logs(path)
