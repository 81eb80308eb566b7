"""The columns of the log directory, and how records become cells and cells records.

SCHEMA_VERSION stands in every ``run.csv``. Its history:

1. first version: ``run.csv``, ``epochs-<rank>.csv``, ``forecasts.csv``, ``summary.csv``; later ``spans-<rank>.csv``,
   ``metrics-<rank>.csv``, the metrics' lines of ``summary.csv`` and the rates of a row's time, which older readers
   pass over.

An empty cell means not measured; a zero means measured zero. Floats are written so that they read back exactly.

A file is a ``LogTable`` of a dataclass, whose fields say all that there is to know of a column: its name, its type,
and in ``Annotated`` its meaning. The files that only some runs have are in ``tables.py``.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from enum import StrEnum
from functools import cache, lru_cache, partial
from itertools import islice
from operator import attrgetter, itemgetter
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    NamedTuple,
    Self,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from greenlove_tracker.files.reading import parsed_json
from greenlove_tracker.logs.csvio import RUN_COLUMNS as RUN_COLUMNS
from greenlove_tracker.logs.csvio import OnProblem, read_fields, read_records, read_small
from greenlove_tracker.logs.storage import LogFile
from greenlove_tracker.vocabulary.records import Energy, Field, MetricSummary, Row, RunSummary
from greenlove_tracker.vocabulary.units import GRAMS_PER_KG, h_from_s

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 1

RUN_FILE = "run.csv"
CODECARBON_PREFIX = "greenlove-"  # of the run_id in the files that CodeCarbon writes while it measures a run of ours
SUMMARY_FILE = "summary.csv"
CALIBRATION_FILE = "greenlove_calibration.csv"  # of a log directory: its machines' energy at the wall
CLOSED_FIELD = "closed"  # last in ``run-<n>.csv``: its process has written all that it will
JOINED_ROLE = "joined"  # of a tracker in a run that another process leads: its rows count for no total
COMMAND_STREAM = "command"  # rows of ``greenlove run -- command``: they hold the totals of the whole command

# float() takes more for a number than a log has: 1_0 for 10, and ".5", "2. " or "03" where digits were lost
_is_number = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d{1,3})?", re.ASCII).fullmatch
is_count = re.compile(r"0|[1-9]\d{,19}", re.ASCII).fullmatch  # more digits are noise
_MOST = 1e100  # of any unit: no run comes to as much, and the sums of all are numbers still
_ROUNDING = 1e-9  # of a sum, as a share of it: another order of its parts may round otherwise
_LEAST = 1e-300  # of any unit: numbers below have fewer digits


def epochs_file(rank: int | str) -> str:
    """Return the name of the file that holds a rank's rows."""
    return f"epochs-{rank}.csv"


def holds_run(names: Iterable[str]) -> bool:
    """Return True where files of these names are a run's."""
    return any(name == RUN_FILE or name.startswith("epochs-") for name in names)


def run_file(rank: int | str) -> str:
    """Return the name of the file that holds what a further node found; rank 0 writes ``run.csv`` itself."""
    if rank in (0, COMMAND_STREAM):
        return RUN_FILE
    return f"run-{rank}.csv"


def cell(value: object) -> str:
    """Return one value as the text of a cell."""
    if value is None:
        return ""
    if isinstance(value, float):
        return repr(float(value)) if math.isfinite(value) else ""  # float(): repr(numpy.float64(1)) is no number
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, frozenset | set):
        return " ".join(sorted(value))
    if isinstance(value, tuple):
        if value:
            return json.dumps(value, ensure_ascii=False)
        return ""
    text = str(value)
    # which takes four times as long
    if text.isprintable():
        return text
    return text.translate(_ONE_LINE)


_ONE_LINE = str.maketrans({"\0": None, "\n": " ", "\r": " "})


def log_lines(rows: Iterable[Sequence[str]]) -> bytes:
    """Return rows as lines of a log; no cell contains a line break (``cell``)."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode("utf-8", "replace")


def any_cell(value: float | None) -> str:
    """Return a number that may be NaN or infinite, for ``any_number``."""
    return "" if value is None else repr(float(value))


def unit_of(column: str) -> str:
    """Return the unit at the end of a column's name; empty if it has none."""
    return next((unit for end, unit in _UNITS.items() if column.endswith(end)), "")


_UNITS = {
    "_gco2e_per_kwh": "gCO2e/kWh",
    "_kgco2e": "kgCO2e",
    "_usd": "USD",
    "_usd_per_gpu_hour": "USD/h",
    "_kwh": "kWh",
    "_gb": "GiB",
    "_w": "W",
    "_s": "s",
}


# -- What a cell holds --


def amount(text: str, least: float = 0.0) -> float:
    """Return the number in a cell, of a quantity that is at least ``least``.

    Raises:
        ValueError: if it is no number, infinite or smaller.
    """
    value = float(text) if _is_number(text) else math.nan
    if not least <= value < _MOST:
        if least == 0:
            kind = "an amount"
        elif least < 0:
            kind = "a finite number"
        else:
            kind = f"{least:g} or more"
        raise ValueError(f"{text!r} is not {kind}")
    return value


finite = partial(amount, least=-_MOST)
at_least_1 = partial(amount, least=1.0)


def any_number(text: str) -> float:
    """Return the number in a cell, which may be ``nan``, ``inf`` or ``-inf``.

    Raises:
        ValueError: if it is no number.
    """
    if not (_is_number(text) or text in ("nan", "inf", "-inf")):
        raise ValueError(f"{text!r} is not a number")
    return float(text)


def count(text: str) -> int:
    """Return the whole number in a cell of a count.

    Raises:
        ValueError: if it is no whole number, or negative.
    """
    if not is_count(text):
        raise ValueError(f"{text!r} is not a count")
    return int(text)


@lru_cache(maxsize=256)  # of some ten that there are
def _words_of(kind: type[StrEnum], text: str) -> str:
    """Return words joined by ``+``; raise ValueError if one is unknown."""
    for word in text.split("+"):
        kind(word)
    return text


@lru_cache(maxsize=256)
def _flags(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _texts(text: str) -> tuple[str, ...]:
    found = parsed_json(text) if text else []
    if not isinstance(found, list) or not all(isinstance(part, str) for part in found):
        raise ValueError(f"{text[:40]} is no list of sentences")
    return tuple(found)


def yes(text: str) -> bool:
    if text not in ("yes", "no"):
        raise ValueError(f"{text[:40]!r} is neither yes nor no")
    return text == "yes"


def _are_close(a: float | None, b: float | None) -> bool:
    """Return True if two numbers agree up to rounding, or if one of them is unknown."""
    return a is None or b is None or math.isclose(a, b, rel_tol=_ROUNDING, abs_tol=_LEAST)


# -- A file of the log --

R = TypeVar("R")
Reader = Callable[[str], Any]  # of a cell; raises ValueError


class LogColumn(NamedTuple):
    """A column of a file, with the functions that read and write its cells; ``read`` raises ValueError."""

    name: str
    meaning: str
    read: Reader
    may_be_empty: bool = False  # then it is None: not known
    write: Callable[[Any], str] = cell
    group: str = ""  # of columns that a file has only together; empty: it has this one always


class Part(NamedTuple):
    """The columns of one field of a record, and the conversion of its value to theirs and back."""

    columns: Sequence[LogColumn]
    values: Callable[[Any], Sequence[Any]] | None = None
    make: Callable[..., Any] | None = None  # raises ValueError where they contradict each other


class LogTable(Generic[R]):
    """A file of a run: one row per record, or in ``summary.csv`` one line per column.

    A field of the record is a column of its name, read and checked by its type; ``Annotated`` has its meaning. A second
    entry there says which numbers it may hold, if not an amount or a count: ``from 1``, ``finite`` or ``any`` (NaN
    too); or it is an enumeration whose words are joined by ``+``. A third is the name of a group: a file has all
    columns of a group or none. A field that is a dataclass becomes several columns; its entries are patterns of their
    names and meanings, and the name and meaning of a column for their sum. A field may have a ``Part`` of its own, or
    None for no column.

    Args:
        record: the dataclass.
        name: the name of the file, with ``{}`` for the number of a rank.
        when: when it is written; empty for always.
        last_of_first: the last column of the first version; columns behind it came later. All, if none is given.
        check: returns the record that was read, or raises ValueError.

    Attributes:
        described: all columns.
        columns: their names.
        least: the columns that every file has.
        later: the others, each with its group.
    """

    def __init__(
        self,
        record: type[R],
        name: str = "",
        when: str = "",
        *,
        last_of_first: str = "",
        check: Callable[[R], R] = lambda record: record,
    ) -> None:
        self._record = record
        self._name = name
        self._when = when
        self._check = check
        found = {field: _part(field, hint) for field, hint in get_type_hints(record, include_extras=True).items()}
        self._parts = {field: part for field, part in found.items() if part is not None}
        self.described = [column for part in self._parts.values() for column in part.columns]
        self.columns = tuple(column.name for column in self.described)
        n_first = self.columns.index(last_of_first) + 1 if last_of_first else len(self.columns)
        self.least = self.columns[:n_first]
        self.later = {column.name: column.group for column in self.described[n_first:]}  # they may be empty

    @property
    def title(self) -> str:
        """The name of the file, and when there is one."""
        return self._name.format("<rank>") + (self._when and f": {self._when}")

    def file(self, stream: int | str) -> str:
        """Return the name of a rank's file."""
        if "{}" in self._name or stream in (0, COMMAND_STREAM):
            return self._name.format(stream)
        return self._name.replace(".csv", f"-{stream}.csv")

    def without(self, group: str) -> Self:
        """Return the table of a file without this group."""
        table = copy(self)
        table._parts = {field: part for field, part in self._parts.items() if part.columns[0].group != group}
        table.described = [column for column in self.described if column.group != group]
        table.columns = tuple(column.name for column in table.described)
        return table

    def _flat(self, record: R) -> list[Any]:
        found: list[Any] = []
        for name, part in self._parts.items():
            value = getattr(record, name)
            found += (value,) if part.values is None else part.values(value)
        return found

    def values(self, record: R) -> dict[str, Any]:
        """Return a record as a flat row, by column."""
        return dict(zip(self.columns, self._flat(record), strict=True))

    def cells(self, record: R) -> list[str]:
        """Return the cells of a record, in the order of the columns."""
        return [column.write(value) for column, value in zip(self.described, self._flat(record), strict=True)]

    def lines(self, records: Iterable[R]) -> bytes:
        """Return a whole file."""
        return log_lines([self.columns, *map(self.cells, records)])

    def record(self, cells: Sequence[str]) -> R:
        """Return the record of cells in the order of the columns.

        Raises:
            ValueError: if a cell does not fit its column, or if the cells contradict each other.
        """
        values: list[Any] = []
        try:
            for column, text in zip(self.described, cells, strict=True):
                values.append(column.read(text) if text or not column.may_be_empty else None)  # its length says where
        except ValueError as error:
            raise ValueError(f"{self.columns[len(values)]}: {error}") from error
        rest = iter(values)
        made = [p.make(*islice(rest, len(p.columns))) if p.make else next(rest) for p in self._parts.values()]
        return self._check(self._record(*made))

    def read(self, file: LogFile | Path | bytes, on_problem: OnProblem) -> Iterator[R]:
        """Yield the records of a file; ``on_problem`` takes a sentence about each part that cannot be read."""
        for line, cells in read_records(file, self.least, on_problem, self.later):
            try:
                record = self.record(cells)
            except ValueError as error:
                on_problem(f"line {line} left out: {error}")
            else:
                yield record


_READERS: Mapping[Any, Reader] = {
    (str, ""): str,
    (bool, ""): yes,
    (frozenset, ""): _flags,
    (tuple, ""): _texts,
    (int, ""): count,
    (int, "finite"): int,
    (float, ""): amount,
    (float, "from 1"): at_least_1,
    (float, "finite"): finite,
    (float, "any"): any_number,
}

PLAIN_NUMBER = (
    r"(?:0|[1-9]\d{0,15})(?:\.\d{1,25})?(?:[eE][+-]?\d{1,2})?"  # not all that ``amount`` takes, and none too large
)


def _part(name: str, hint: Any) -> Part | None:
    """Return the columns of a field; None if it has none."""
    meta: list[Any] = []
    if get_origin(hint) is Annotated:
        hint, *meta = get_args(hint)
    if meta and (meta[0] is None or isinstance(meta[0], Part)):
        return meta[0]
    if dataclasses.is_dataclass(hint):
        return _nested(hint, *meta)
    return Part([_column(name, hint, *meta)])


def _column(name: str, hint: Any, meaning: str = "", kind: str | type[StrEnum] = "", group: str = "") -> LogColumn:
    """Return the column of a field; see ``LogTable``."""
    may_be_empty = isinstance(hint, UnionType)
    if may_be_empty:
        hint = next(one for one in get_args(hint) if one is not NoneType)
    read: Reader
    if not isinstance(kind, str):
        read = partial(_words_of, kind)
    elif kind:
        read = _READERS[hint, kind]
    else:
        read = _READERS.get((get_origin(hint) or hint, kind), hint)
    return LogColumn(name, meaning, read, may_be_empty, any_cell if read is any_number else cell, group)


def _nested(kind: Any, names: str = "{}", meanings: str = "{}", total: tuple[str, str] | None = None) -> Part:
    """Return the columns of a field that is a dataclass, with one of their sum before them if declared."""
    table = _table_of(kind)
    columns = [c._replace(name=names.format(c.name), meaning=meanings.format(c.meaning)) for c in table.described]
    if total is None:
        return Part(columns, attrgetter(*table.columns), kind)
    return Part([LogColumn(*total, amount, True), *columns], attrgetter("total_kwh", *table.columns), _energy)


@cache
def _table_of(record: type) -> LogTable[Any]:
    return LogTable(record)


def _energy(total_kwh: float | None, *values: Any) -> Energy:
    """Return an energy; raise ValueError if it differs from its total: one of its cells is damaged."""
    energy = Energy(*values)
    sum_kwh = energy.total_kwh
    if (total_kwh is None) != (sum_kwh is None) or not _are_close(total_kwh, sum_kwh):
        raise ValueError(f"its energy of {cell(total_kwh) or 'nothing'} kWh is not the sum of its components")
    return energy


def _consistent(summary: RunSummary) -> RunSummary:
    """Return totals; raise ValueError if they contradict each other, unlike when they were written."""
    energy_kwh = summary.energy_kwh
    before_pue_kwh = summary.before_pue_kwh
    if before_pue_kwh is not None and not _are_close(before_pue_kwh * summary.pue, energy_kwh):
        raise ValueError("energy_kwh is not the energy of its components")
    if energy_kwh is not None:
        emissions_kgco2e = energy_kwh * summary.carbon_intensity_gco2e_per_kwh / GRAMS_PER_KG
        if not _are_close(emissions_kgco2e, summary.emissions_kgco2e):
            raise ValueError("emissions_kgco2e is not energy times carbon intensity")
    if not _are_close(summary.gpu_count * h_from_s(summary.duration_s), summary.gpu_hours):
        raise ValueError("gpu_hours is not the time of its GPUs")
    return summary


EPOCHS = LogTable(Row, "epochs-{}.csv", last_of_first="flags")
SUMMARY = LogTable(RunSummary, SUMMARY_FILE, last_of_first="flags", check=_consistent)
_METRIC_LINES = LogTable(MetricSummary)


def flat_values(record: Any) -> dict[str, Any]:
    """Return a record's flat row, by column."""
    kind: type = type(record)
    return _table_of(kind).values(record)


def records_frame(kind: type, records: Iterable[object]) -> pd.DataFrame:
    """Return a pandas frame with one row per record; what was not measured is missing, not zero."""
    table = _table_of(kind)
    rows = [{k: cell(v) if isinstance(v, frozenset) else v for k, v in table.values(one).items()} for one in records]
    return frame(rows, table.columns)


def frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    """Return rows as a pandas frame; pandas is imported only here."""
    import pandas as pd

    return pd.DataFrame(rows, columns=list(columns))


# -- ``summary.csv``: a line a column, and behind them six lines a metric --

_METRIC = "metric."
_METRIC_PARTS = ("last", "best", "lowest", "highest", "n_values", "higher_is_better")  # the best follows from others


def summary_fields(summary: RunSummary) -> list[Field]:
    """Return the lines of ``summary.csv``."""
    lines = [*zip(SUMMARY.columns, SUMMARY.cells(summary), strict=True)]
    for metric in summary.metrics:
        name, last, *others = _METRIC_LINES.cells(metric)
        cells = zip(_METRIC_PARTS, (last, cell(metric.best), *others), strict=True)
        lines += [(f"{_METRIC}{name}.{part}", text) for part, text in cells]
    return [Field(name, text, unit_of(name)) for name, text in lines]


def read_summary(file: LogFile | bytes, on_problem: OnProblem) -> RunSummary:
    """Return the totals in a ``summary.csv``.

    Raises:
        ValueError: if a field is missing or damaged, or if the totals contradict each other.
    """
    texts = dict.fromkeys(SUMMARY.later, "")  # which older ones lack
    texts |= {name: value for name, (value, _) in read_fields(read_small(file, on_problem), on_problem).items()}
    beginnings = [name[: name.rindex(".") + 1] for name in texts if name.startswith(_METRIC)]
    beginning = ""  # of the lines of a metric
    metrics = []
    try:
        summary = SUMMARY.record(_summary_cells_of(texts))
        for beginning in dict.fromkeys(beginnings):
            cells = [texts[f"{beginning}{part}"] for part in _METRIC_LINES.columns[1:]]
            metrics.append(_METRIC_LINES.record([beginning[len(_METRIC) : -1], *cells]))
    except KeyError as error:
        raise ValueError(f"no line for {error.args[0]}") from error
    except ValueError as error:
        raise ValueError(f"{beginning}{error}") from error
    return dataclasses.replace(summary, metrics=tuple(metrics)) if metrics else summary


_summary_cells_of = itemgetter(*SUMMARY.columns)
