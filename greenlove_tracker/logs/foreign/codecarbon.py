"""CodeCarbon's CSV files of every version as runs: of a run's readings, which are totals that grow, the last counts.

Where its columns change, CodeCarbon renames ``emissions.csv`` to ``emissions.csv.bak``, ``emissions.csv_0.bak``, …, and
people rename it too: a file is known by its header. It is read line by line, and of a run no more is held than counts.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from operator import itemgetter
from pathlib import Path
from zlib import crc32

from greenlove_tracker.logs import schema
from greenlove_tracker.logs.csvio import OnProblem, ProblemLog, encoding_of, read_lines, split_line
from greenlove_tracker.logs.foreign.base import ForeignLog, ForeignRun, iso, moment, safe_text
from greenlove_tracker.logs.storage import open_binary
from greenlove_tracker.logs.totals import Ending
from greenlove_tracker.text.format import plural
from greenlove_tracker.vocabulary.records import (
    UNKNOWN_ENERGY,
    Counts,
    Energy,
    Method,
    Row,
    RowKind,
    RunStatus,
    sum_known,
)
from greenlove_tracker.vocabulary.units import GRAMS_PER_KG

# -- The columns of all versions, 1.0 to 3.3 --

_AMOUNTS = ("duration", "energy_consumed", "cpu_energy", "gpu_energy", "ram_energy", "emissions", "pue")
_NEEDED = ("timestamp", "duration", "energy_consumed")
_TEXTS = {  # our field by the column that it is the text of
    "project_name": "project",
    "country_iso_code": "country",
    "os": "os",
    "python_version": "python",
    "cpu_count": "cpu_threads",
    "cpu_model": "cpu_model",
    "gpu_count": "gpu_count",
    "gpu_model": "gpu_models",
    "ram_total_size": "ram_gb",
    "tracking_mode": "tracking_mode",
}
_FURTHER = (
    "run_id experiment_id task_name experiment_name emissions_rate cpu_power gpu_power ram_power water_consumed "
    "country_name region cloud_provider cloud_region longitude latitude codecarbon_version on_cloud wue ram_used_gb "
    "cpu_utilization_percent gpu_utilization_percent ram_utilization_percent"
)
_KNOWN = {"timestamp", *_AMOUNTS, *_TEXTS, *_FURTHER.split()}
# No other tool's tables have these: one that has three of them is CodeCarbon's.
_OWN = {*_AMOUNTS[1:-1], "emissions_rate", "country_iso_code", "on_cloud", "tracking_mode"}
_LEAST_OWN = 3
_FIRST_OPTIONAL = "region"  # CodeCarbon 3.2.9 and 3.3.0 append a row without those cells from here on that are None

_NONE = ("", "none", "nan")
_NOWHERE = -1  # the place of a column that is not there: an empty cell behind those of a row
_HEAD_BYTES = 64 * 1024  # which tell the encoding
_HEAD_LINES = 10  # a header may stand behind a title
_is_plain = re.compile(schema.PLAIN_NUMBER, re.ASCII).fullmatch  # as nearly all: a third of the time of ``_amount``
_is_rounded = re.compile(r"\d(?:[.,]\d\d?)?[eE]").match  # 1.23E-05, as Excel saves numbers
_SAME_START_S = 3.0  # of a run as its readings have it: their times are whole seconds
_LONGEST_S = 1e9  # 30 years: what took longer is damaged, and when it began is unknown
_MOST_EXAMPLES = 3
_UNKNOWN_METHODS = "CodeCarbon's file does not say how the energy of CPU and GPU was obtained"

# What a row that is read is without, as said of lines.
_NO_SUM = "whose energy_consumed is not the sum of its components: one of them is damaged"
_NO_CELLS = "without some of the cells from the region on: these are left out"
_NO_NAME = "with cells behind the last column that has a name: those are left out"
_NO_TOTAL = "without energy_consumed"
_NO_TIME = "whose timestamp is not understood"


class Header:
    """The columns of a file, or of a part of one, and how its rows are read.

    Attributes:
        is_known: the line is a header of CodeCarbon's.
        places: of the columns in a row, by their names.
    """

    def __init__(self, line: str) -> None:
        self._delimiter = max(",;\t", key=line.count)
        self._decimal = "." if self._delimiter == "," else ","
        names = [name.strip().lower() for name in split_line(line, self._delimiter)]
        self.is_known = len(_OWN.intersection(names)) >= _LEAST_OWN
        self._n_cells = len(names)
        while names and not names[-1]:  # Excel fills lines up
            names.pop()
        self.places = {name: place for place, name in enumerate(names)}
        self._names = names
        self._numbers = itemgetter(*(self.places.get(name, _NOWHERE) for name in _AMOUNTS))
        self._missing = [name for name in _NEEDED if name not in names]

    def tell(self, on_problem: OnProblem) -> None:
        """Tell what the columns lack, and which of them no version has: the PUE's, damaged, may be."""
        if self._missing:
            on_problem(f"left out: no column {', '.join(self._missing)}")
            return
        if "emissions" not in self._names:
            on_problem("no column emissions: CO2e is not known")
        if unknown := [safe_text(name) or "one without a name" for name in self._names if name not in _KNOWN]:
            on_problem(f"columns that are not known, left out: {', '.join(unknown)}")

    def reading(self, file: Path, number: int, line: str) -> Reading:
        """Return what a row says.

        Raises:
            ValueError: where it has other cells than there are columns, or a number is none; without a reason where
                the columns lack one that is needed.
        """
        cells = split_line(line, self._delimiter)
        n_columns = len(self._names)
        n_read = n_columns
        lack = ""
        if len(cells) > self._n_cells:
            raise ValueError("more cells than columns")
        if any(cells[n_columns:]):
            lack = _NO_NAME
        if len(cells) < n_columns:
            lack = _NO_CELLS
            n_read = self.places.get(_FIRST_OPTIONAL, n_columns)
        if len(cells) < n_read:
            raise ValueError(f"{len(cells) or 'unreadable'} cells instead of {n_columns}")
        if self._missing:
            raise ValueError
        cells[n_read:] = [""] * (n_columns + 1 - n_read)
        amounts = [float(text) if _is_plain(text) else _amount(text, self._decimal) for text in self._numbers(cells)]
        duration_s, energy_kwh, *parts_kwh, emissions_kgco2e, pue = amounts
        if "\0" in line:  # blocks that a crash left unwritten
            raise ValueError("NUL bytes")
        if duration_s is None:
            raise ValueError("no duration")
        return Reading(file, number, self, cells, lack, duration_s, energy_kwh, parts_kwh, emissions_kgco2e, pue)


def _amount(text: str, decimal: str) -> float | None:
    """Return the number in a cell, with this decimal sign; None if it is empty, or says that there is none."""
    text = text.strip().replace(decimal, ".")
    return None if text.lower() in _NONE else schema.amount(text)


@dataclass(slots=True, eq=False)
class Reading:
    """A row: totals since a run, or a task of it, began. CodeCarbon has multiplied the energies with its PUE.

    Attributes:
        lack: what its cells are without, as said of lines; empty: nothing.
        parts_kwh: of CPU, GPUs and memory.
        has_several: other readings of its run are there: the last may be of a flush.
    """

    file: Path
    line: int
    header: Header
    cells: Sequence[str]
    lack: str
    duration_s: float
    energy_kwh: float | None
    parts_kwh: Sequence[float | None]
    emissions_kgco2e: float | None
    pue: float | None
    has_several: bool = False

    def text(self, column: str) -> str:
        """Return what it says in a column; nothing where there is none."""
        text = self.cells[self.header.places.get(column, _NOWHERE)].strip()
        return "" if text.lower() in _NONE else text

    @property
    def name(self) -> str:
        """The name of its run: 1.x has experiments alone, one for each."""
        return self.text("run_id" if "cpu_energy" in self.header.places else "experiment_id")

    @property
    def size(self) -> tuple[float, float]:
        """What grows from reading to reading of a run: energy and duration."""
        return self.energy_kwh or 0.0, self.duration_s

    @property
    def at(self) -> datetime | None:
        """When it was written, as CodeCarbon has it or Excel shows it; None where that is not known."""
        return moment(re.sub(r"^(\d\d)\.(\d\d)\.(\d{4})", r"\3-\2-\1", self.text("timestamp")))

    @property
    def flaw(self) -> str:
        """What it is without, as said of lines; empty: nothing."""
        if self.energy_kwh is None:
            return self.lack or _NO_TOTAL
        summed_kwh = sum_known(self.parts_kwh)
        tolerance = 6e-3 if any(map(_is_rounded, map(self.text, _AMOUNTS[1:5]))) else 1e-3
        if summed_kwh and not math.isclose(summed_kwh, self.energy_kwh, rel_tol=tolerance, abs_tol=1e-12):
            return _NO_SUM
        if self.at is None:
            return self.lack or _NO_TIME
        return self.lack

    def after(self, before: Reading | None) -> Reading:
        """Return the later of two readings of a run, which notes that there are several; of two copies the first."""
        if before is None:
            return self
        last = self if self.size > before.size else before
        last.has_several = before.has_several or self.has_several or self.size != before.size
        return last

    @property
    def began_s(self) -> float:
        """When its run began, in seconds of a clock without a zone; 0 if that is unknown."""
        if self.at is None:
            return 0.0
        return (self.at - datetime.min).total_seconds() - self.duration_s

    def goes_on(self, other: Reading) -> bool:
        """Return True if both are of one unnamed run: they began at once, and the longer one has more energy."""
        if not (self.began_s and other.began_s) or abs(self.began_s - other.began_s) > _SAME_START_S:
            return False
        more_s = self.duration_s - other.duration_s
        if self.energy_kwh is None or other.energy_kwh is None:
            return True
        more_kwh = self.energy_kwh - other.energy_kwh
        return more_kwh * more_s > 0 or more_kwh == more_s == 0


class Emissions:
    """The runs in files of CodeCarbon, which are read one by one."""

    def __init__(self) -> None:
        self._last: dict[str, Reading] = {}  # of each run
        # By project and start, the runs without a name; their readings may lie in several files, and among others.
        self._unnamed: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
        self._tasks: dict[str, Reading] = {}  # by line: files may be copies

    def read(self, file: Path, notes: ProblemLog, count: Counter[str]) -> bool:
        """Read a file, and count it and its rows; return False where it is none of CodeCarbon's."""
        on_problem = partial(notes.add, file)
        try:
            with open_binary(file) as stream:
                head = stream.read(_HEAD_BYTES)
        except OSError as error:
            on_problem(f"cannot be read: {error.strerror or error}")
            return True
        encoding = encoding_of(head)
        if not any(Header(line).is_known for line in head.decode(encoding, "replace").splitlines()[:_HEAD_LINES]):
            return False
        header = Header("")
        found = dict[str, None]()
        n_rows = 0
        told: defaultdict[str, list[str]] = defaultdict(list)
        for number, line in enumerate(read_lines(str(file), on_problem, encoding, keeps_last=True), 1):
            try:
                reading = header.reading(file, number, line)
            except ValueError as error:
                next_header = Header(line)
                if next_header.is_known:
                    header = next_header
                    header.tell(on_problem)
                elif line.strip(",;\t \r\n") and not line.startswith("sep="):  # which Excel writes first
                    count["rows_left_out"] += 1
                    if error.args:
                        told["left out"].append(f"line {number}: {str(error)[:120]}")
                continue
            n_rows += 1
            if "task_name" in header.places:
                self._tasks[line] = reading
                told[reading.flaw].append(f"line {number}")
                continue
            key = reading.name or self._unnamed_run(reading)
            found[key] = None
            self._last[key] = reading.after(self._last.get(key))
            if self._last[key] is not reading:
                told[reading.flaw].append(f"line {number}")
        for reading in map(self._last.__getitem__, found):
            if reading.file == file:
                told[reading.flaw].append(f"line {reading.line}")
        told.pop("", None)
        count["files" if n_rows else "files_left_out"] += 1
        count["rows"] += n_rows
        for kind, lines in told.items():
            more = " …" if len(lines) > _MOST_EXAMPLES else ""
            on_problem(f"{plural(len(lines), 'line')} {kind}: {'; '.join(lines[:_MOST_EXAMPLES])}{more}")
        return True

    def _unnamed_run(self, reading: Reading) -> str:
        """Return the key of the run of a reading without a name: one that began with it, in its project."""
        project = reading.text("project_name")
        slot = int(reading.began_s // _SAME_START_S)
        for near in (slot - 1, slot, slot + 1):
            for key in self._unnamed.get((project, near), ()):
                if reading.goes_on(self._last[key]):
                    return key
        key = f"{reading.file}, line {reading.line}"
        self._unnamed[project, slot].append(key)
        return key

    def runs(self, notes: ProblemLog) -> Iterator[ForeignRun]:
        """Yield the runs; not those of ours, which hold their readings already."""
        tasks_s: defaultdict[str, float] = defaultdict(float)
        for task in self._tasks.values():
            tasks_s[task.name] += task.duration_s
            if task.name not in self._last:
                notes.add(task.file, "holds tasks alone: the row of the whole run is missing")
        for key, last in self._last.items():
            if not key.startswith(schema.CODECARBON_PREFIX):
                time = f"{last.at:%Y%m%dT%H%M%S}" if last.at else ""
                # without a name it is called by its last reading, the same wherever that is read
                name = last.name or f"{crc32(repr(last.size).encode()):08x}"
                yield ForeignRun(last.file, (time, "codecarbon", name), partial(_read, last, tasks_s[key]))


def _read(last: Reading, tasks_s: float, notes: ProblemLog) -> ForeignLog:
    """Return what the last reading of a run says, which has tasks of so much time."""
    # with tasks, CodeCarbon's duration is that of the latest: the run took at least all of them together
    duration_s = max(last.duration_s, tasks_s)
    ended_at = last.at
    began_at = ""
    if ended_at is not None and duration_s < _LONGEST_S:
        began_at = iso(ended_at - timedelta(seconds=duration_s))
    pue = max(1.0, last.pue or 1.0)
    # 0 is none: what was there and read took some
    cpu_kwh, gpu_kwh, ram_kwh = (kwh / pue if kwh else None for kwh in last.parts_kwh)
    energy = Energy(cpu_kwh, gpu_kwh, ram_kwh, None, None, None if ram_kwh is None else Method.CONSTANT)
    meter = safe_text(f"CodeCarbon {last.text('codecarbon_version')}")
    texts = {name: safe_text(last.text(column)) for column, name in _TEXTS.items()}
    texts |= {
        "gpu_count": texts["gpu_count"].removesuffix(".0"),  # as pandas writes whole numbers
        "gpu_models": texts["gpu_models"].replace(" x ", " × "),
        "started_at": began_at,
        "meter": meter,
        "meter_note": _UNKNOWN_METHODS,
        "location": safe_text(" ".join(map(last.text, ("cloud_provider", "cloud_region", "region")))),
        "pue": schema.cell(pue),
        "pue.source": f"as {meter} counted it" if pue > 1 else "",
    }
    if last.lack == _NO_CELLS:
        del texts["pue"]  # it was among the cells that are left out
    stated: dict[str, float | None] = {"measured_kwh": None}  # how much of it hardware measured is not known
    total_kwh = last.energy_kwh
    if total_kwh and last.flaw != _NO_SUM:
        stated["energy_kwh"] = total_kwh
    if total_kwh and last.emissions_kgco2e is not None:
        texts["carbon_intensity"] = schema.cell(last.emissions_kgco2e * GRAMS_PER_KG / total_kwh)
        texts["carbon_intensity.source"] = f"{meter}, the run's emissions ÷ energy"
        stated["emissions_kgco2e"] = last.emissions_kgco2e
    # an energy that is not known by component is no row's: then the run has no parts of days and months
    row_at = began_at if energy.is_known else ""
    return ForeignLog(
        texts=texts,
        rows=[Row(RowKind.GAP, None, row_at, duration_s, energy, 0.0, Counts(), UNKNOWN_ENERGY, None)],
        # stop() and every flush() write a row, so that the last of several may be either
        ending=Ending(RunStatus.EXITED if last.has_several else RunStatus.FINISHED, None, iso(ended_at)),
        stated=stated,
    )
