"""One run of a log directory, read when asked for; what cannot be read is reported by name, and the rest is kept."""

from __future__ import annotations

import math
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeVar

from greenlove_tracker.errors import LogError
from greenlove_tracker.forecasting import Trial
from greenlove_tracker.logs.csvio import read_lists, read_records
from greenlove_tracker.logs.forecasts import (
    FORECAST_COLUMNS,
    IssuedForecast,
    Scored,
    forecast_from_cells,
    forecasts_file,
    score,
    shown,
    units_done,
)
from greenlove_tracker.logs.problems import Problem, ProblemLog
from greenlove_tracker.logs.schema import (
    COMMAND_STREAM,
    EPOCH_COLUMNS,
    JOINED_ROLE,
    RUN_COLUMNS,
    RUN_FILE,
    SCHEMA_VERSION,
    SUMMARY_FILE,
    amount,
    epochs_file,
    factor_from_fields,
    row_from_cells,
    summary_from_lines,
)
from greenlove_tracker.logs.storage import LogFile, LogPath, file_in, modified_s, names
from greenlove_tracker.logs.totals import Ending, RunFactors, merge_epochs, summarise, total_duration_s
from greenlove_tracker.logs.trials import TRIAL_COLUMNS, TRIALS_FILE, trial_row_from_cells, trials_of
from greenlove_tracker.records import EpochRecord, Factor, Field, Row, RunStatus, RunSummary

if TYPE_CHECKING:
    import pandas as pd

# -- The files of one run's directory, read when asked for; what cannot be read is told, and the rest is kept --

Record = TypeVar("Record")


class RunFiles:
    """A directory that may hold a run.

    Args:
        path: the directory.
        held: files by name, in place of what the directory has of them: of a run whose disk did not take them.
    """

    def __init__(self, path: LogPath, held: Mapping[str, bytes] | None = None) -> None:
        self.path = path
        self._held = held or {}
        self._told = ProblemLog()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    @property
    def problems(self) -> list[Problem]:
        """What could not be read, of what was looked at so far."""
        return self._told.problems

    @cached_property
    def is_run(self) -> bool:
        """Whether the directory holds a run at all."""
        return RUN_FILE in self._names or any(name.startswith("epochs-") for name in self._names)

    def refuse(self, error: Exception) -> None:
        """Note why the run cannot be read."""
        self._tell("", str(error).removeprefix(f"{self.path}: "))

    @cached_property
    def _names(self) -> list[str]:
        """The files of the directory; listing it once costs less than asking for each."""
        try:
            found = names(self.path)
        except OSError as error:
            self._tell("", f"cannot be read: {error.strerror or error}")
            found = []
        return sorted({*found, *self._held}) if self._held else found

    def _file(self, name: str) -> LogFile | bytes:
        return self._held[name] if name in self._held else file_in(self.path, name)

    def _read_lines(self, name: str) -> list[list[str]]:
        return read_lists(self._file(name), RUN_COLUMNS, partial(self._tell, name))

    def _read(self, name: str, columns: Sequence[str], convert: Callable[[Sequence[str]], Record]) -> Iterator[Record]:
        """The records of a file, of cells in the order of ``columns``; those that cannot be read are told."""
        tell = partial(self._told.tell, self.path / name)
        for line, cells in read_records(self._file(name), columns, tell):
            try:
                record = convert(cells)
            except ValueError as error:
                tell(f"line {line} left out: {error}")
            else:
                yield record

    def _read_by_name(
        self, name: str, columns: Sequence[str], convert: Callable[[Mapping[str, str]], Record]
    ) -> Iterator[Record]:
        """The same, of cells by column."""
        return self._read(name, columns, lambda cells: convert(dict(zip(columns, cells, strict=False))))

    def _written_s(self) -> float:
        """When any of the files was last written, in seconds since the Unix epoch."""
        return max((modified_s(file_in(self.path, name)) for name in self._names if name.endswith(".csv")), default=0.0)

    def _tell(self, name: str, message: str) -> None:
        self._told.tell(self.path / name if name else self.path, message)


_RANK_FILE = re.compile(r"epochs-([0-9]{1,9})\.csv")
_NODE_FILE = re.compile(r"run-[0-9]{1,9}\.csv")


class Run(RunFiles):
    """One run of a log directory, read when it is asked for."""

    @property
    def run_id(self) -> str:
        """The directory's name."""
        name = self.path.name
        return name if name not in ("", "..") else self.path.resolve().name

    @cached_property
    def _fields_by_node(self) -> Sequence[Mapping[str, Field]]:
        """Of ``run.csv``, then of what further nodes wrote."""
        return [Fields(self._read_lines(n)) for n in (RUN_FILE, *filter(_NODE_FILE.fullmatch, self._names))]

    @cached_property
    def fields(self) -> Fields:
        """Every line of ``run.csv`` by field name; a later line of the same name wins.

        Raises:
            LogError: where a newer version of this package wrote the run.
        """
        by_node = self._fields_by_node
        is_alone = len(by_node) == 1 and "role" not in by_node[0]
        fields = Fields.of(by_node[0] if is_alone else merged_fields(by_node))
        version = fields.text("schema_version")
        if version.isdecimal() and int(version) > SCHEMA_VERSION:
            raise LogError(
                f"{self.path}: written with log schema {version}, newer than the {SCHEMA_VERSION} that this "
                "version of greenlove_tracker reads: pip install -U greenlove-tracker"
            )
        return fields

    def text(self, name: str, default: str = "") -> str:
        """The value of one field of ``run.csv``."""
        return self.fields.text(name, default)

    @property
    def started_at(self) -> str:
        """When the run began, UTC, ISO 8601; where ``run.csv`` does not say, when its first row began."""
        return self.text("started_at") or next((rows[0].started_at for rows in self.rows.values() if rows), "")

    @cached_property
    def rows(self) -> Mapping[int, Sequence[Row]]:
        """The rows of each rank, as they were written.

        Raises:
            LogError: where a newer version of this package wrote the run.
        """
        _ = self.fields  # knows the version
        found = filter(None, map(_RANK_FILE.fullmatch, self._names))
        return dict(sorted((int(name[1]), self._read_rows(name[0])) for name in found))

    @cached_property
    def command_rows(self) -> Sequence[Row] | None:
        """Where a whole command was measured from outside, the rows that hold its totals."""
        name = epochs_file(COMMAND_STREAM)
        return self._read_rows(name) if name in self._names else None

    @cached_property
    def epochs(self) -> Sequence[EpochRecord]:
        """The epochs of the first rank that has any, in order; ``epochs_of(rank)`` gives another's."""
        with_epochs = (rank for rank, rows in self.rows.items() if any(row.epoch is not None for row in rows))
        return self.epochs_of(next(with_epochs, 0))

    def epochs_of(self, rank: int) -> Sequence[EpochRecord]:
        """The epochs of one rank, in order."""
        return merge_epochs(self.rows.get(rank, ()), rank)

    @cached_property
    def carbon_intensity(self) -> Factor:
        """The carbon intensity that the run was counted with; NaN where the log does not say."""
        return self._factor("carbon_intensity") or Factor("carbon_intensity", math.nan, "", "not in the log")

    @property
    def knows_carbon_intensity(self) -> bool:
        """Whether the log says at which intensity it was counted; without, no emissions are known, whatever it sums."""
        field = self.fields.get("carbon_intensity")
        if field is None or not field.unit:
            return False
        try:
            amount(field.value)
        except ValueError:
            return False
        return True

    @property
    def knows_gpu_count(self) -> bool:
        """Whether the log says how many GPUs there were, none maybe; without, no GPU-hours are known."""
        return self.summary.gpu_count > 0 or self.text("gpu_count").isdecimal()

    @cached_property
    def electricity_price(self) -> Factor | None:
        """The price of electricity that the run was counted with."""
        return self._factor("electricity_price")

    @cached_property
    def has_summary(self) -> bool:
        """Whether the run wrote its totals at its end."""
        return SUMMARY_FILE in self._names

    @cached_property
    def summary(self) -> RunSummary:
        """The totals: as written at the end, or added up from the rows where the end was not written.

        A run of several nodes is always added up: the first rank cannot know when the others ended.

        Raises:
            LogError: where a newer version of this package wrote the run.
        """
        _ = self.fields  # knows the version
        if self.has_summary:
            try:
                summary = summary_from_lines(self._read_lines(SUMMARY_FILE))
            except LogError as error:
                self._tell(SUMMARY_FILE, f"added up from the rows instead: {str(error).partition(': ')[2]}")
            else:
                n_streams = len([name for name in self._names if name.startswith("epochs-")])
                if n_streams == 0 or (summary.n_ranks == 1 and n_streams == 1):
                    return summary
                return self.added_up(Ending(summary.status, summary.exit_code, summary.ended_at))
        return self.added_up(Ending(self._unwritten_status(), None, ""))

    def added_up(self, ending: Ending | None = None) -> RunSummary:
        """The totals, added up from the rows whatever the summary says."""
        if ending is None:
            ending = Ending(self.summary.status, self.summary.exit_code, self.summary.ended_at)
        return summarise(
            self.terms,
            self.rows,
            ending,
            gpu_count=self._gpu_count(),
            command_rows=self.command_rows,
            joined=self._joined,
        )

    @cached_property
    def forecasts(self) -> Sequence[IssuedForecast]:
        """Every forecast that the run issued while it ran, in order."""
        name = forecasts_file(0)
        return list(self._read_by_name(name, FORECAST_COLUMNS, forecast_from_cells)) if name in self._names else ()

    @cached_property
    def trials(self) -> Sequence[Trial]:
        """What an exploration timed; empty where the run was none."""
        if TRIALS_FILE not in self._names:
            return ()
        return trials_of(self._read_by_name(TRIALS_FILE, TRIAL_COLUMNS, trial_row_from_cells))

    def scores(self, quantity: str = "duration_s") -> Sequence[Scored]:
        """Each forecast of a quantity beside what it came to; empty where the run did not do what was forecast."""
        return tuple(self._scored(quantity, self.forecasts))

    def told(self, quantity: str = "duration_s") -> Scored | None:
        """The forecast to tell of, as ``shown`` chooses; those after it are not read."""
        name, seen = forecasts_file(0), list[Scored]()
        issued = self._read_by_name(name, FORECAST_COLUMNS, forecast_from_cells) if name in self._names else iter(())
        for scored in self._scored(quantity, issued):
            seen.append(scored)
            if shown(seen) is not scored:  # an earlier one: further ones change nothing
                break
        return shown(seen)

    def _scored(self, quantity: str, issued: Iterable[IssuedForecast]) -> Iterator[Scored]:
        steps, summary = self.text("total_steps_planned"), self.summary
        units = units_done(summary, int(steps) if steps.isdecimal() else None)
        if units is None:
            return
        run_s = summary.duration_s
        # of several nodes the first forecasts its own energy only
        is_of_all = self.command_rows is None and summary.n_nodes == 1
        outcome = getattr(summary, quantity) if is_of_all or quantity == "duration_s" else None
        if self.command_rows is not None:  # a script inside a command forecast itself and knows nothing of the rest
            run_s = total_duration_s(self.rows[0])
            outcome = run_s if quantity == "duration_s" else None
        for forecast in issued:
            yield from score([forecast], quantity, outcome, units=units, run_s=run_s)

    @cached_property
    def _joined(self) -> Mapping[int, int]:
        """The streams of processes that another one measures, each with its rank."""
        joined = {}
        for name in filter(_NODE_FILE.fullmatch, self._names):
            fields = Fields(self._read_lines(name))
            if is_joined(fields):
                rank = fields["rank"].value if "rank" in fields else "0"
                joined[int(name[4:-4])] = int(rank) if rank.isdecimal() else 0
        return joined

    @cached_property
    def terms(self) -> RunFactors:
        """The factors and names of the run."""
        return RunFactors(
            run_id=self.run_id,
            project=self.text("project"),
            started_at=self.started_at,
            epochs_planned=self._epochs_planned(),
            carbon_intensity=self.carbon_intensity,
            pue=pue.value if (pue := self._factor("pue")) else 1.0,
            electricity_price=self.electricity_price,
            price_usd_per_gpu_hour=price.value if (price := self._factor("price_usd_per_gpu_hour")) else None,
        )

    def _epochs_planned(self) -> int | None:
        """Of the run itself, or of all the trainings that joined it; None where one of them did not say."""
        own = self._fields_by_node[0].get("epochs_planned")
        leads = [f for f in self._fields_by_node[1:] if is_joined(f) and f.get("rank", NO_FIELD).value in ("", "0")]
        found = [own] if own or not leads else [f.get("epochs_planned") for f in leads]
        numbers = [int(f.value) for f in found if f and f.value.isdecimal()]
        return sum(numbers) if numbers and len(numbers) == len(found) else None

    def to_frame(self) -> pd.DataFrame:
        """One row an epoch and rank."""
        from greenlove_tracker.logs.frames import epochs_frame

        return epochs_frame(record for rank in self.rows for record in self.epochs_of(rank))

    def _factor(self, name: str) -> Factor | None:
        try:
            return factor_from_fields(name, self.fields)
        except ValueError as error:
            self._tell(RUN_FILE, f"{name} left out: {error}")
            return None

    def _gpu_count(self) -> int:
        every = self._fields_by_node
        nodes = every[:1] if self.command_rows else [fields for fields in every if not is_joined(fields)]
        found = (fields.get("gpu_count") for fields in nodes)
        return sum(int(field.value) for field in found if field and field.value.isdecimal())

    def _unwritten_status(self) -> str:
        """Running or interrupted: no summary was written."""
        pid, host = self.text("pid"), self.text("host")
        return RunStatus.RUNNING if is_running(host, pid, self._written_s()) else RunStatus.INTERRUPTED

    def _read_rows(self, name: str) -> list[Row]:
        return list(self._read(name, EPOCH_COLUMNS, row_from_cells))


# -- The lines of a ``run.csv`` by name; of the dozens that there are, few are asked for --


class Fields(Mapping[str, Field]):
    """Fields that become objects when they are asked for: of ten thousand runs the rest would be half the reading.

    Args:
        lines: name, value and unit of each; a later line of the same name wins.
    """

    def __init__(self, lines: Sequence[Sequence[str]]) -> None:
        self._lines = {line[0]: line for line in lines}

    @classmethod
    def of(cls, fields: Mapping[str, Field]) -> Fields:
        """The same as any mapping."""
        return fields if isinstance(fields, Fields) else cls([(f.name, f.value, f.unit) for f in fields.values()])

    def __getitem__(self, name: str) -> Field:
        line = self._lines[name]
        return Field(line[0], line[1], line[2])

    def __contains__(self, name: object) -> bool:
        return name in self._lines

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)

    def text(self, name: str, default: str = "") -> str:
        """The value of one field."""
        line = self._lines.get(name)
        return default if line is None else line[1]


# -- What the processes of one run wrote into their ``run.csv`` files, put together --

NO_FIELD = Field("", "")
_PLACE_FIELDS = ("country", "pue", "price_usd_per_gpu_hour", "carbon_intensity", "electricity_price")


def is_joined(fields: Mapping[str, Field]) -> bool:
    """Whether another process measures the one that wrote these."""
    return fields.get("role", NO_FIELD).value == JOINED_ROLE


def merged_fields(by_node: Sequence[Mapping[str, Field]]) -> dict[str, Field]:
    """``run.csv``, and what it leaves open from the others.

    What a run is counted with comes from one of them as a whole: from a process that joined only where it names a
    country and ``run.csv`` does not.
    """
    merged = dict(by_node[0])
    for fields in by_node[1:]:
        takes_place = is_joined(fields) and "country" in fields and not merged.get("country", NO_FIELD).value
        for name, field in fields.items():
            is_of_place = name.partition(".")[0] in _PLACE_FIELDS
            if (is_of_place and takes_place) or (not is_of_place and not merged.get(name, NO_FIELD).value):
                merged[name] = field
    merged.pop("role", None)
    return merged


# -- Whether a run whose end was not written is still going on --

_RUNNING_WITHIN_S = 150.0  # a living run writes a row at least every 60 s
_CLOCK_SLACK_S = 60.0  # between the clocks of this machine and of a file server


def is_running(host: str, pid: str, written_s: float) -> bool:
    """Whether it lives: on this machine by its process, elsewhere by when it was last written.

    Args:
        host: the machine that it was started on.
        pid: of its process there.
        written_s: when its log was last written, in seconds since the Unix epoch.
    """
    if host == socket.gethostname() and pid.isdecimal():
        return _was_alive(int(pid), written_s)
    return time.time() - written_s < _RUNNING_WITHIN_S


def _was_alive(pid: int, written_s: float) -> bool:
    """Whether the process lives, and did when the log was written: a number is given to another process later."""
    import psutil  # os.kill(pid, 0) would end the process on Windows

    try:
        return bool(psutil.Process(pid).create_time() <= written_s + _CLOCK_SLACK_S)
    except psutil.AccessDenied:
        return True
    except (psutil.Error, OverflowError):
        return False
