"""One run of a log directory, read on demand: its fields, rows and totals. ``run_files`` has its files."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Self, TypeVar

from greenlove_tracker.logs import schema, totals, trials
from greenlove_tracker.logs.calibration import Calibration, calibrated, measurements_in
from greenlove_tracker.logs.comparisons import COMPARED
from greenlove_tracker.logs.csvio import Line, Lines
from greenlove_tracker.logs.intensity_sources import IntensitySource, is_mock, mean_factor, sources_in, sources_of
from greenlove_tracker.logs.metrics import summarise_metrics
from greenlove_tracker.logs.run_fields import FIELDS, declared, factor_in, value_of
from greenlove_tracker.logs.run_files import RunFiles
from greenlove_tracker.logs.schema import LogTable, R
from greenlove_tracker.logs.storage import LogPath
from greenlove_tracker.logs.tables import (
    CHECKPOINTS,
    FORECASTS,
    METRICS,
    SPANS,
    TRIALS,
    IssuedForecast,
    MetricRecord,
    SpanRow,
)
from greenlove_tracker.logs.totals import Rows
from greenlove_tracker.text.format import shortened
from greenlove_tracker.vocabulary.checkpoints import CheckpointEvent
from greenlove_tracker.vocabulary.errors import LogError, UsageError
from greenlove_tracker.vocabulary.forecasting import Trial
from greenlove_tracker.vocabulary.pricing import RunFactors
from greenlove_tracker.vocabulary.records import (
    EpochRecord,
    Factor,
    Flag,
    LoggedGpuEnergy,
    MetricSummary,
    Row,
    RowKind,
    RunStatus,
    RunSummary,
    sum_known,
)

if TYPE_CHECKING:
    import pandas as pd

Value = TypeVar("Value")


SIMULATED_METERS = ("simulated", "replay")


def _rank_if_joined(fields: Lines) -> int | None:
    """Return the rank of a process that another process measures; None if it measures itself."""
    is_joined = value_of(fields, "role") == schema.JOINED_ROLE
    return count_in(fields, "rank") or 0 if is_joined else None


def _merge_fields(by_node: Sequence[Lines]) -> dict[str, Line]:
    """Return the fields of ``run.csv``, completed from those of further processes.

    The place and the factors of a run come from one process as a whole: from one that joined only if it names a country
    and ``run.csv`` does not.
    """
    merged = dict(by_node[0])
    for fields in by_node[1:]:
        names_a_place = "country" in fields and not value_of(merged, "country")
        takes_place = names_a_place and _rank_if_joined(fields) is not None
        for name, field in fields.items():
            declaration = FIELDS.get(name.partition(".")[0])
            is_of_place = name == "country" or (declaration is not None and declaration.is_factor)
            if (is_of_place and takes_place) or (not is_of_place and not merged.get(name, ("",))[0]):
                merged[name] = field
    for name in ("role", schema.CLOSED_FIELD):  # of one process each
        merged.pop(name, None)
    return merged


@dataclass(frozen=True, slots=True)
class Cut:
    """How a part of a run's time was cut out.

    Attributes:
        is_part: True if it was cut at all.
        has_end: True if the run ended within the part.
        splits_a_row: True if a row crossed an end of the part, and was split in proportion to time.
    """

    is_part: bool = False
    has_end: bool = True
    splits_a_row: bool = False


class Run(RunFiles):
    """One run of a log directory, read on demand.

    Attributes:
        parts: the runs that it was put together from, as ``whole_training`` does; else empty.
        cut: how it was cut out, if it is a part of a run's time.
    """

    parts: Sequence[Run] = ()
    cut: Cut = Cut()

    @property
    def place(self) -> str:
        """The directory as a text."""
        return str(self.path)

    @cached_property
    def run_id(self) -> str:
        """The directory's name."""
        return self._named_path.name

    @property
    def _named_path(self) -> LogPath:
        """The directory, as a path that ends with its name."""
        if self.path.name in ("", ".."):
            return self.path.resolve()
        return self.path

    def title(self, width: int = 80) -> str:
        """Return ``project/run_id``, or the run id alone."""
        project = shortened(self.summary.project, max(8, width - len(self.run_id) - 1))
        if project:
            return f"{project}/{self.run_id}"
        return self.run_id

    @property
    def script(self) -> str:
        """The name of the program that was run: the first file of Python in its command, else its first word."""
        words = self.text("command").split() or [""]
        return PurePath(next((word for word in words if word.endswith(".py")), words[0])).name

    @property
    def label(self) -> str:
        """What tells runs apart for people: the tags, else the project, else the script."""
        return self.text("tags") or self.summary.project or self.script

    # -- run.csv --

    @cached_property
    def own_lines(self) -> Lines:
        """The fields of ``run.csv`` alone."""
        return self._read_fields(schema.RUN_FILE)

    @cached_property
    def lines_by_stream(self) -> Mapping[int, Lines]:
        """The fields of each further rank and of each process that joined, by stream."""
        return {stream: self._read_fields(name) for stream, name in self._numbered("run").items()}

    @property
    def _lines_of_all(self) -> Sequence[Lines]:
        """The fields of ``run.csv``, and those of each further process."""
        return [self.own_lines, *self.lines_by_stream.values()]

    @cached_property
    def lines(self) -> Lines:
        """Every line of ``run.csv`` by field name; the last line of a name counts.

        Raises:
            LogError: if a newer version of this package wrote the run.
        """
        fields = self.own_lines
        if self.lines_by_stream or "role" in fields:
            fields = _merge_fields(self._lines_of_all)
        version = count_in(fields, "schema_version")
        if version is not None and version > schema.SCHEMA_VERSION:
            raise LogError(
                f"{self.path}: written with log schema {version}, newer than the {schema.SCHEMA_VERSION} that this "
                "version of greenlove_tracker reads: pip install -U greenlove-tracker"
            )
        return fields

    def text(self, name: str) -> str:
        """Return the value of one field of ``run.csv``; empty if it is not there.

        Raises:
            LookupError: if the field is not declared.
        """
        return value_of(self.lines, name)

    @property
    def started_at(self) -> str:
        """The start, UTC, ISO 8601; if ``run.csv`` does not say, that of the first row."""
        return self.text("started_at") or next((rows[0].started_at for rows in self.rows.values() if rows), "")

    @property
    def total_steps_planned(self) -> int | None:
        """The planned optimizer steps; None if the run counts in epochs or has no plan."""
        return count_in(self.lines, "total_steps_planned")

    @property
    def first_epoch(self) -> int:
        """The epochs that earlier runs of this training did; 0 if it began with the first."""
        return count_in(self.lines, "first_epoch") or 0

    @property
    def first_step(self) -> int:
        """The optimizer steps that earlier runs of this training did."""
        return count_in(self.lines, "first_step") or 0

    def amount(self, name: str) -> float | None:
        """Return the number in a field of ``run.csv``; None if it is missing or damaged."""
        text = self.text(name)
        return self._unless_damaged(name, lambda: declared(name).read(text) if text else None)

    def _unless_damaged(self, name: str, read: Callable[[], Value | None]) -> Value | None:
        """Return what is read from fields; if they are damaged, note a problem and return None."""
        try:
            return read()
        except ValueError as error:
            self._add_problem(schema.RUN_FILE, f"{name} left out: {error}")
            return None

    @property
    def carbon_intensity(self) -> Factor:
        """The carbon intensity that the run was counted with, or its mean; NaN if the log does not say."""
        if not self.intensity_sources:
            return self._constant_intensity
        return mean_factor(self.summary.carbon_intensity_gco2e_per_kwh, self.intensity_sources)

    @cached_property
    def _constant_intensity(self) -> Factor:
        return self.factor("carbon_intensity") or Factor("carbon_intensity", math.nan, "", "not in the log")

    @cached_property
    def intensity_sources(self) -> Sequence[IntensitySource]:
        """The sources of its rows' carbon intensities; empty if one intensity counts for all times."""
        if "intensity_order" not in self.lines:
            return ()
        if not self.lines_by_stream and (text := self.text("intensity_sources")):
            return sources_in(text)  # without a look into the rows
        return sources_of(row.carbon_intensity_source for rows in self.timed_streams for row in rows)

    @cached_property
    def knows_carbon_intensity(self) -> bool:
        """True if the log says the carbon intensity; without it, emissions are unknown."""
        factor = self._constant_intensity
        return bool(factor.unit) and math.isfinite(factor.value)

    @property
    def knows_gpu_count(self) -> bool:
        """True if the log says the number of GPUs, even 0; without it, GPU-hours are unknown."""
        return self.summary.gpu_count > 0 or self.text("gpu_count").isdecimal()

    @cached_property
    def market_intensity(self) -> Factor | None:
        """The contractual carbon intensity for market-based emissions; None if none was given."""
        return self.factor("market_intensity")

    @property
    def is_simulated(self) -> bool:
        """True if its energy is no machine's, or its carbon intensity is invented."""
        return self.text("meter") in SIMULATED_METERS or is_mock(self.intensity_sources)

    @property
    def electricity_price(self) -> Factor | None:
        """The price of electricity of the run; with a tariff, the mean over its energy."""
        price = self.factor("electricity_price")
        summary = self.summary
        is_by_time = "electricity_tariff" in self.lines and summary.cost_basis == "electricity"
        if price is None or not is_by_time or summary.cost_usd is None or not summary.energy_kwh:
            return price
        return replace(price, value=summary.cost_usd / summary.energy_kwh, basis="by time, mean over the energy")

    def factor(self, name: str) -> Factor | None:
        """Return a factor of ``run.csv``; None if it is missing or impossible."""
        return self._unless_damaged(name, lambda: factor_in(self.lines, name))

    @cached_property
    def terms(self) -> RunFactors:
        """The factors and names of the run. Without the energy of its GPUs, the rest has no price.

        Rates of single rows take precedence over these.
        """
        return RunFactors(
            run_id=self.run_id,
            project=self.text("project"),
            started_at=self.started_at,
            epochs_planned=self._epochs_planned(),
            carbon_intensity=self._constant_intensity,
            pue=self.amount("pue") or 1.0,
            electricity_price=None if self.lacks_gpus else self.factor("electricity_price"),
            price_usd_per_gpu_hour=self.amount("price_usd_per_gpu_hour"),
            node_overhead=self.amount("node_overhead"),
        )

    def _epochs_planned(self) -> int | None:
        """Return the planned epochs of the run, or of all trainings that joined it; None if one is unknown."""
        found = [lines for lines in self.lines_by_stream.values() if _rank_if_joined(lines) == 0]
        if self.own_lines.get("epochs_planned") or not found:
            found.append(self.own_lines)
        numbers = [count_in(fields, "epochs_planned") for fields in found]
        return None if None in numbers else sum(filter(None, numbers))

    def _gpu_count(self) -> int:
        measuring = [lines for stream, lines in self.lines_by_stream.items() if stream not in self.joined]
        return sum(count_in(lines, "gpu_count") or 0 for lines in (self.own_lines, *measuring))

    @property
    def hosts(self) -> frozenset[str]:
        """The machines that it ran on, by the names that its processes report."""
        return frozenset(value_of(lines, "host") for lines in self._lines_of_all) - {""}

    @cached_property
    def joined(self) -> Mapping[int, int]:
        """The streams of processes that another process on their node measures, each with its rank."""
        leading = [lines for lines in self._lines_of_all if _rank_if_joined(lines) is None]
        measured = {value_of(lines, "host") for lines in leading}
        found = {}
        for stream, lines in self.lines_by_stream.items():
            rank = _rank_if_joined(lines)
            if rank is not None and value_of(lines, "host") in measured:
                found[stream] = rank
        return found

    @cached_property
    def cut_off_ranks(self) -> Sequence[int]:
        """The ranks that ended without a word, such as by a kill; empty while some may still be running."""
        return [
            rank
            for rank, rows in self.rows.items()
            if rank and rank not in self.joined and all(row.kind is not RowKind.TAIL for row in rows)
            if self.cut.has_end
            if not _is_running(self.lines_by_stream.get(rank, {}), self.written_s)
        ]

    # -- epochs-<rank>.csv --

    @cached_property
    def rows(self) -> Mapping[int, Rows]:
        """The rows of each rank, as they were written.

        Raises:
            LogError: if a newer version of this package wrote the run.
        """
        return {rank: list(rows) for rank, rows in self._row_streams}

    @property
    def _row_streams(self) -> Iterator[tuple[int, Iterator[Row]]]:
        """The rows of each rank, to be read once; only one row is held at a time."""
        _ = self.lines  # of a version that we read
        return ((rank, self._read(name, schema.EPOCHS)) for rank, name in self._numbered("epochs").items())

    @cached_property
    def command_rows(self) -> Rows | None:
        """The rows with the totals of a whole command that was measured from outside.

        If the runner alone is killed, its program goes on and measures itself. Then the program's rows count, once they
        cover more time.
        """
        name = schema.epochs_file(schema.COMMAND_STREAM)
        if name not in self.file_names:
            return None
        rows = list(self._read(name, schema.EPOCHS))
        if self.has_summary:
            return rows
        of_processes_s = [totals.total_duration_s(self.rows[n]) for n in self.joined if n in self.rows]
        if totals.total_duration_s(rows) >= max(of_processes_s, default=0.0):
            return rows
        return None

    @cached_property
    def epochs(self) -> Sequence[EpochRecord]:
        """The epochs of the first rank that has any, in order; ``epochs_of(rank)`` returns another's."""
        return next(filter(None, map(self.epochs_of, self.rows)), [])

    def epochs_of(self, rank: int) -> Sequence[EpochRecord]:
        """Return the epochs of one rank, in order."""
        return totals.merge_epochs(self.rows.get(rank, ()), rank)

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas frame with one row per epoch and rank."""
        return schema.records_frame(EpochRecord, (record for rank in self.rows for record in self.epochs_of(rank)))

    @property
    def metered_rows(self) -> Rows:
        """The rows of the first stream with a meter: the command's, or those of the first such rank."""
        return next((rows for rows in self.timed_streams if not all(Flag.NO_METER in row.flags for row in rows)), ())

    @property
    def gpu_mean_w(self) -> float | None:
        """The mean power of all GPUs together while they were metered; None if they were not."""
        return sum_known(totals.mean_w(rows, "gpu") for rows in self.timed_streams)

    # -- summary.csv --

    @property
    def has_summary(self) -> bool:
        """True if the run wrote its totals at its end."""
        return schema.SUMMARY_FILE in self.file_names

    @cached_property
    def calibration(self) -> Calibration | None:
        """The calibration of its machine in the log directory; None if there is none, or it cannot be read.

        A run of several machines has none.
        """
        try:
            measured = measurements_in(self.log_dir)
        except UsageError as error:  # named, and everything else of the run is as good as before
            self._problem_log.add(self.log_dir / schema.CALIBRATION_FILE, f"no run is calibrated: {error}")
            return None
        of_host = [one for one in measured if {one.host} == self.hosts]
        of_machine = [one for one in of_host if one.gpu_models == self.text("gpu_models")]
        own = [one for one in of_machine if one.run_id == self.run_id]
        if of_machine:
            return Calibration(own or of_machine, bool(own))
        return None

    @property
    def log_dir(self) -> LogPath:
        """The log directory; for an exploration within an open run, that of the outer run."""
        parent = self._named_path.parent
        if parent.name == trials.EXPLORATIONS_DIR:
            return parent.parent.parent
        return parent

    @cached_property
    def summary(self) -> RunSummary:
        """The totals, with the factor of its machine if that was calibrated.

        Raises:
            LogError: if a newer version of this package wrote the run.
        """
        if self.calibration is None:
            return self.metered_summary
        return calibrated(self.metered_summary, self.calibration)

    @cached_property
    def stated(self) -> RunSummary | None:
        """The totals that it wrote at its end; None if there are none, or they cannot be read."""
        if self.has_summary:
            try:
                on_problem = partial(self._add_problem, schema.SUMMARY_FILE)
                return schema.read_summary(self._file(schema.SUMMARY_FILE), on_problem)
            except ValueError as error:
                self._add_problem(schema.SUMMARY_FILE, f"added up from the rows instead: {error}")
        return None

    @cached_property
    def metered_summary(self) -> RunSummary:
        """The totals by the run's own meters: as written at its end, else added up from its rows.

        A run of several nodes is always added up: the first rank cannot know when the others ended.

        Raises:
            LogError: if a newer version of this package wrote the run.
        """
        _ = self.lines  # of a version that we read
        stated = self.stated
        n_streams = sum(name.startswith("epochs-") for name in self.file_names)
        if stated is not None and (n_streams == 0 or stated.n_ranks == n_streams == 1):
            return stated
        return self.added_up()

    @cached_property
    def ending(self) -> totals.Ending:
        """How it ended, by its summary, else by its script's tracker, else by its process."""
        stated = self.stated
        if stated is not None:
            return totals.Ending(stated.status, stated.exit_code, stated.ended_at)
        status = value_of(self.own_lines, "training_status")
        if status not in list(RunStatus):
            is_running = _is_running(self.lines, self.written_s)
            status = RunStatus.RUNNING if is_running else RunStatus.INTERRUPTED
        return totals.Ending(status, None, "")

    def added_up(self, ending: totals.Ending | None = None) -> RunSummary:
        """Return the totals, added up from the rows whatever the summary says.

        Args:
            ending: how the run ended; by default as ``ending`` says.
        """
        rows = self.rows if "rows" in vars(self) else dict(self._row_streams)
        summary = totals.summarise(
            self.terms,
            rows,
            ending or self.ending,
            gpu_count=self._gpu_count(),
            command_rows=self.command_rows,
            joined=self.joined,
        )
        if self.metric_values:
            return replace(summary, metrics=summarise_metrics(self.metric_values))
        return summary

    def replace(self, **known: Any) -> Self:
        """Return the run with these values instead of those of its files, and with new totals."""
        other = copy(self)
        for name in ("metered_summary", "summary", "epochs"):
            vars(other).pop(name, None)
        vars(other).update(known)
        return other

    @property
    def timed_streams(self) -> Sequence[Rows]:
        """The rows behind the totals: a command's and those of further nodes, or those of each rank."""
        own = [rows for stream, rows in self.rows.items() if stream not in self.joined]
        if self.command_rows:
            return [self.command_rows, *own]
        return own or list(self.rows.values())

    @property
    def lacks_gpus(self) -> bool:
        """True if there are GPUs whose energy could not be measured; the rest then has no price."""
        return "gpu" in self.text("unmeasured").split()

    @property
    def gpu_energies(self) -> tuple[LoggedGpuEnergy, ...]:
        """The energy of each GPU of the first node; empty if the log does not say."""
        try:
            return tuple(map(LoggedGpuEnergy.of, self.text("gpu_energies_kwh").split()))
        except ValueError:
            return ()

    @property
    def lacks_energy_of_gpu(self) -> bool:
        """True if the energy lacks that of an existing GPU, so that it is a lower bound."""
        return self.lacks_gpus or Flag.GPU_MISSING in self.summary.flags

    @property
    def emissions_kgco2e(self) -> float | None:
        """The emissions; None if the energy or its carbon intensity is unknown."""
        if self.knows_carbon_intensity:
            return self.summary.emissions_kgco2e
        return None

    @property
    def is_complete(self) -> bool:
        """True if the run ended well and did all that was planned, so that it can stand for others."""
        if self.is_exploration:
            return False  # it is no training
        if self.summary.epochs_planned is None and self.total_steps_planned is None:
            return self.summary.status in GOOD_ENDINGS
        return self.units_done is not None

    @property
    def units_done(self) -> int | None:
        """The planned epochs, or steps, of a run that ended well and did all of them; else None.

        A run that early stopping ended did all of them.
        """
        summary = self.summary
        planned = summary.epochs_planned
        done: int | None = summary.epochs_done
        if planned is None:
            planned = self.total_steps_planned
            done = summary.counts.steps
        if planned is None or summary.status not in GOOD_ENDINGS:
            return None
        has_stopped = self.stopped_early_after is not None and summary.epochs_done <= planned
        if has_stopped or done == planned:
            return planned
        return None

    @property
    def stopped_early_after(self) -> int | None:
        """The epoch after which early stopping ended it; None if it did not."""
        number = count_in(self.lines, "stopped_early_after")
        last = self.first_epoch + self.summary.epochs_done
        if self.summary.status in GOOD_ENDINGS and number == last:
            return number
        return None

    # -- forecasts.csv --

    @cached_property
    def forecasts(self) -> Sequence[IssuedForecast]:
        """Every forecast that the run issued, in order."""
        return tuple(self._read(FORECASTS.file(0), FORECASTS))

    # -- spans-<rank>.csv --

    @cached_property
    def span_rows(self) -> Mapping[int, Sequence[SpanRow]]:
        """Every row of the spans, by rank."""
        return self._by_rank("spans", SPANS)

    # -- metrics-<rank>.csv --

    @property
    def metrics(self) -> Mapping[str, MetricSummary]:
        """The last and best value of each metric, by the first rank that logged it."""
        return {metric.name: metric for metric in self.summary.metrics}

    @cached_property
    def metric_values(self) -> Mapping[int, Sequence[MetricRecord]]:
        """Every value of every metric, by rank, as it was logged."""
        return self._by_rank("metrics", METRICS)

    # -- checkpoints-<rank>.csv --

    @cached_property
    def checkpoints(self) -> Sequence[CheckpointEvent]:
        """The events of its checkpoints, by the first rank that has any."""
        return next(filter(None, self._by_rank("checkpoints", CHECKPOINTS).values()), ())

    def _by_rank(self, kind: str, table: LogTable[R]) -> Mapping[int, Sequence[R]]:
        return {rank: tuple(self._read(name, table)) for rank, name in self._numbered(kind).items()}

    # -- An exploration: trials.csv, and what it left in run.csv --

    @property
    def is_exploration(self) -> bool:
        """True if the run explored a training or compared techniques instead of training."""
        return self.is_comparison or not _OF_PLANS.isdisjoint(self.lines)

    @property
    def is_comparison(self) -> bool:
        """True where the run compared techniques in trials (``comparison.csv``)."""
        return COMPARED in self.lines

    @cached_property
    def trials(self) -> Sequence[Trial]:
        """The trials of an exploration; empty if the run was none."""
        return trials.trials_of(self._read(TRIALS.file(0), TRIALS))


_OF_PLANS = frozenset(f"plan_{name}" for name in trials.PLAN_NAMES)


def count_in(fields: Lines, name: str) -> int | None:
    """Return the whole number in a field; None if it holds none."""
    text = value_of(fields, name)
    return int(text) if schema.is_count(text) else None


GOOD_ENDINGS = (RunStatus.FINISHED, RunStatus.EXITED)
SILENT_AFTER_S = 150.0  # a living run writes a row at least every 60 s
_CLOCK_SLACK_S = 60.0  # between the clocks of this machine and of a file server


def _is_running(fields: Lines, written_s: float) -> bool:
    """Return True if a run without an end is alive: here by its process, elsewhere by its last writing."""
    if value_of(fields, "host") != socket.gethostname() or (pid := count_in(fields, "pid")) is None:
        return time.time() - written_s < SILENT_AFTER_S
    try:  # a number is given to another process later: it must have lived when the log was written
        import psutil  # os.kill(pid, 0) would end the process on Windows

        return bool(psutil.Process(pid).create_time() <= written_s + _CLOCK_SLACK_S)
    except psutil.AccessDenied:
        return True
    except (psutil.Error, OverflowError):
        return False
