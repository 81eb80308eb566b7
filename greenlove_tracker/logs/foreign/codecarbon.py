"""CodeCarbon's CSV files of every version as runs: of a run's readings, which are totals that grow, the last counts.

Where its columns change, CodeCarbon renames ``emissions.csv`` to ``emissions.csv.bak``, ``emissions.csv_0.bak``, …, and
people rename it too: a file is known by its header. It is read line by line, and of a run no more is held than counts.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from operator import itemgetter
from pathlib import Path
from zlib import crc32

from greenlove_tracker.logs import schema
from greenlove_tracker.logs.csvio import OnProblem, ProblemLog, encoding_of, read_lines, split_line
from greenlove_tracker.logs.foreign.base import ForeignLog, ForeignRun, iso, moment, safe_text
from greenlove_tracker.logs.storage import read_head
from greenlove_tracker.logs.totals import Ending, utc
from greenlove_tracker.text.format import plural
from greenlove_tracker.vocabulary.errors import LogError
from greenlove_tracker.vocabulary.records import UNKNOWN_ENERGY, Counts, Energy, Factor, Method, Row, RowKind, RunStatus
from greenlove_tracker.vocabulary.units import GRAMS_PER_KG

# -- The columns of all versions, 1.0 to 3.3 --

_NUMBERS = ("duration", "energy_consumed", "cpu_energy", "gpu_energy", "ram_energy", "emissions", "pue")
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
_KNOWN = {"timestamp", *_NUMBERS, *_TEXTS, *_FURTHER.split()}
# No other tool's tables have these: one that has three of them is CodeCarbon's.
_OWN = {*_NUMBERS[1:6], "emissions_rate", "country_iso_code", "on_cloud", "tracking_mode"}
_LEAST_OWN = 3
# CodeCarbon 3.2.9 and 3.3.0 append a row without those of these cells that are None. The others are not told apart.
_MAY_LACK = {"region", "cloud_provider", "cloud_region", "cpu_model", "gpu_count", "gpu_model", "longitude", "latitude"}

_HEAD_LINES = 10  # a header may stand behind a title
_NONE = ("", "none", "nan")
_find_rounded = re.compile(r"^\d(?:\.\d\d?)?[eE]", re.MULTILINE).search  # 1.23E-05, as Excel saves numbers
_ROUNDING = 6e-3  # of those, as a share
_SAME_START_S = 3.0  # of a run as its readings have it: their times are whole seconds
_MOST_EXAMPLES = 3
_UNKNOWN_METHODS = "CodeCarbon's file does not say how the energy of CPU and GPU was obtained"
_are_plain = re.compile(rf"(?:(?:{schema.PLAIN_NUMBER})?\n)*", re.ASCII).fullmatch

# What a row that is read is without, as said of lines.
_NO_SUM = "whose energy_consumed is not the sum of its components: one of them is damaged"
_NO_CELLS = "without some of the cells from the region on: of those only the last are read"
_NO_NAME = "with cells behind the last column that has a name: those are left out"
_NO_TOTAL = "without energy_consumed"
_NO_TIME = "whose timestamp is not understood"


class Header:
    """The columns of a file, or of a part of one, and how its rows are read."""

    def __init__(self, delimiter: str, names: list[str]) -> None:
        self._n_cells = len(names)
        while names and not names[-1]:  # Excel fills lines up
            names.pop()
        self._delimiter = delimiter
        self._names = names
        self._places = {name: place for place, name in enumerate(names)}
        self._numbers = itemgetter(*map(self.place, _NUMBERS))
        self.missing = [name for name in _NEEDED if name not in names]
        self.is_left_out = bool(names and self.missing)
        self.is_of_tasks = "task_name" in names
        self.run_column = "run_id" if "cpu_energy" in names else "experiment_id"  # of 1.x: one for each run

    @classmethod
    def of(cls, line: str) -> Header | None:
        """Return the header that a line is; None where it is none of CodeCarbon's."""
        for delimiter in ",;\t|":
            names = [name.strip().lower() for name in split_line(line, delimiter)]
            if len(_OWN.intersection(names)) >= _LEAST_OWN:
                return cls(delimiter, names)
        return None

    def place(self, column: str) -> int:
        """Return the place of a column in the cells of a row; a missing one has the last cell, which is empty."""
        return self._places.get(column, -1)

    def tell(self, on_problem: OnProblem) -> None:
        """Tell what the columns lack, and which of them no version has: the PUE's, damaged, may be."""
        if self.missing:
            on_problem(f"left out: no column {', '.join(self.missing)}")
            return
        if "emissions" not in self._names:
            on_problem("no column emissions: CO2e is not known")
        if unknown := [safe_text(name) or "one without a name" for name in self._names if name not in _KNOWN]:
            on_problem(f"columns that are not known, left out: {', '.join(unknown)}")

    def reading(self, file: Path, number: int, line: str) -> Reading:
        """Return what a row says.

        Raises:
            ValueError: where it has other cells than there are columns, or a number is none.
        """
        cells = split_line(line, self._delimiter)
        is_longer = len(cells) > self._n_cells
        while len(cells) > len(self._names) and not cells[-1]:
            cells.pop()
        if is_longer and not cells[-1]:  # filled up, or one cell became two: nothing tells
            raise ValueError("more cells than columns")
        lack = ""
        if len(self._names) < len(cells) <= self._n_cells:
            lack = _NO_NAME
            del cells[len(self._names) :]
        elif len(cells) != len(self._names):
            lack = _NO_CELLS
            cells = self._completed(cells)
        cells.append("")
        numbers = self._numbers(cells)
        if not _are_plain("\n".join((*numbers, ""))):
            numbers = tuple(map(self._plain, numbers))
        if "\0" in line:  # blocks that a crash left unwritten
            raise ValueError("NUL bytes")
        if not numbers[0] or self.missing:
            raise ValueError("no duration")
        return Reading(file, number, self, cells, numbers, (float(numbers[1] or 0.0), float(numbers[0])), lack)

    def _completed(self, cells: list[str]) -> list[str]:
        """Return a row with an empty cell for each that may be missing.

        Raises:
            ValueError: where that is not what is wrong with it.
        """
        n_missing = len(self._names) - len(cells)
        lost = sorted(map(self.place, _MAY_LACK.intersection(self._names)))
        if not 0 < n_missing <= len(lost):
            raise ValueError(f"{len(cells) or 'unreadable'} cells instead of {len(self._names)}")
        between = [""] * (lost[-1] + 1 - lost[0])
        return [*cells[: lost[0]], *between, *cells[lost[-1] + 1 - n_missing :]]

    def _plain(self, text: str) -> str:
        """Return a number as Python writes it; nothing where a cell is empty, or says that there is none."""
        text = text.strip()
        if text.lower() in _NONE:
            return ""
        if self._delimiter != ",":
            text = text.replace(",", ".")
        schema.amount(text)
        return text


@dataclass(slots=True, eq=False)
class Reading:
    """A row: totals since a run, or a task of it, began. CodeCarbon has multiplied the energies with its PUE.

    Attributes:
        numbers: as ``_NUMBERS`` names them; empty: not known.
        size: what grows from reading to reading of a run: energy and duration.
        lack: what its cells are without, as said of lines; empty: nothing.
    """

    file: Path
    line: int
    header: Header
    cells: Sequence[str]
    numbers: Sequence[str]
    size: tuple[float, float]
    lack: str

    def text(self, column: str) -> str:
        """Return what it says in a column; nothing where there is none."""
        text = self.cells[self.header.place(column)].strip()
        return "" if text.lower() in _NONE else text

    @property
    def kwh(self) -> list[float | None]:
        """The energy of CPU, GPU and memory; 0 is none: what was there and read took some."""
        return [float(text or 0.0) or None for text in self.numbers[2:5]]

    @property
    def at(self) -> datetime | None:
        """When it was written, as CodeCarbon has it or Excel shows it; None where that is not known."""
        text = self.text("timestamp")
        return moment(text) or moment(re.sub(r"^(\d\d)\.(\d\d)\.(\d{4})", r"\3-\2-\1", text))

    @property
    def began_s(self) -> float:
        """When the run began, in seconds since 1970; 0 where that is not known."""
        return utc(self.at.isoformat()).timestamp() - self.size[1] if self.at else 0.0

    @property
    def flaw(self) -> str:
        """What it is without, as said of lines; empty: nothing."""
        known = list(filter(None, self.kwh))
        rounding = _ROUNDING if _find_rounded("\n".join(self.numbers[1:5])) else 1e-3
        is_sum = math.isclose(math.fsum(known), self.size[0], rel_tol=rounding, abs_tol=1e-12)
        if known and self.numbers[1] and not is_sum:
            return _NO_SUM
        if self.lack:
            return self.lack
        if not self.numbers[1]:
            return _NO_TOTAL
        return "" if self.at else _NO_TIME


@dataclass(slots=True, eq=False)
class FoundRun:
    """What counts of the readings of a run.

    Attributes:
        file: where it was found.
        last: of the whole run.
        has_several: of the whole run: the last may be of a flush.
        tasks_s: the time of each task, by its row.
    """

    file: Path
    last: Reading | None = None
    has_several: bool = False
    tasks_s: dict[int, float] = field(default_factory=dict)

    def add(self, reading: Reading) -> bool:
        """Add a reading, which may be there already; return True where it is the last from now on."""
        if reading.header.is_of_tasks:
            self.tasks_s[hash(tuple(reading.cells))] = reading.size[1]
            return False
        self.has_several |= self.last is not None and reading.size != self.last.size
        is_last = self.last is None or reading.size > self.last.size
        if is_last:
            self.last = reading
        return is_last

    def takes(self, reading: Reading) -> bool:
        """Return True where a reading without a name is of this run: both began at once, and its totals go on."""
        last = self.last
        if last is None or not reading.at or abs(last.began_s - reading.began_s) > _SAME_START_S:
            return False
        more_kwh, more_s = (one - other for one, other in zip(reading.size, last.size, strict=True))
        is_known = reading.numbers[1] and last.numbers[1]
        return more_kwh * more_s > 0 or more_kwh == more_s == 0 or not is_known


class Emissions:
    """The runs in files of CodeCarbon, which are read one by one."""

    def __init__(self) -> None:
        self._named: dict[str, FoundRun] = {}
        self._unnamed: defaultdict[tuple[str, int], list[FoundRun]] = defaultdict(list)

    def read(self, file: Path, notes: ProblemLog, count: Counter[str]) -> bool:
        """Read a file, and count it and its rows; return False where it is none of CodeCarbon's."""
        on_problem = partial(notes.add, file)
        try:
            head = read_head(file)
        except OSError as error:
            on_problem(f"cannot be read: {error.strerror or error}")
            return True
        encoding = encoding_of(head)
        if not any(map(Header.of, head.decode(encoding, "replace").splitlines()[:_HEAD_LINES])):
            return False
        header = Header(",", [])
        found: dict[FoundRun, None] = {}
        told: defaultdict[str, list[str]] = defaultdict(list)
        for number, line in enumerate(read_lines(str(file), on_problem, encoding, keeps_last=True), 1):
            try:
                reading = header.reading(file, number, line)
            except ValueError as error:
                next_header = Header.of(line)
                if next_header is not None:
                    header = next_header
                    header.tell(on_problem)
                elif header.is_left_out:
                    count["rows_left_out"] += 1
                elif line.strip(",;\t| \r\n") and not line.startswith("sep="):  # which Excel writes first
                    told["left out"].append(f"line {number}: {str(error)[:120]}")
                continue
            count["rows"] += 1
            run = self._run_of(reading)
            found[run] = None
            if not run.add(reading):
                told[reading.flaw].append(f"line {number}")
        for last in (run.last for run in found):
            if last is not None and last.file == file:
                told[last.flaw].append(f"line {last.line}")
        told.pop("", None)
        count["files" if found else "files_left_out"] += 1
        count["rows_left_out"] += len(told.get("left out", ()))
        for kind, lines in told.items():
            more = " …" if len(lines) > _MOST_EXAMPLES else ""
            on_problem(f"{plural(len(lines), 'line')} {kind}: {'; '.join(lines[:_MOST_EXAMPLES])}{more}")
        return True

    def _run_of(self, reading: Reading) -> FoundRun:
        """Return the run of a reading, by its name; without one, by its start."""
        name = reading.text(reading.header.run_column)
        if reading.header.is_of_tasks:
            name = name or reading.file.name
        if name:
            if name not in self._named:
                self._named[name] = FoundRun(reading.file)
            return self._named[name]
        project = reading.text("project_name")
        slot = int(reading.began_s // _SAME_START_S)
        for near in (slot - 1, slot, slot + 1):
            for found in self._unnamed.get((project, near), ()):
                if found.takes(reading):
                    return found
        new = FoundRun(reading.file)
        self._unnamed[project, slot].append(new)
        return new

    def runs(self) -> Iterator[ForeignRun]:
        """Yield the runs; not those of ours, which hold their readings already."""
        for name, found in self._named.items():
            if not name.startswith(schema.CODECARBON_PREFIX):
                yield _foreign_run(name, found)
        for found in chain.from_iterable(self._unnamed.values()):
            yield _foreign_run("", found)


def _foreign_run(name: str, found: FoundRun) -> ForeignRun:
    """Return a run; one without a name is called by its last reading, the same wherever that is read."""
    time = ""
    if found.last is not None:
        time = found.last.at.strftime("%Y%m%dT%H%M%S") if found.last.at else ""
        name = name or f"{crc32(repr(found.last.size).encode()):08x}"
    return ForeignRun(found.file, (time, "codecarbon", name), partial(_read, found))


def _read(found: FoundRun, notes: ProblemLog) -> ForeignLog:
    """Return what the readings of a run say.

    Raises:
        LogError: where there is none of the whole run.
    """
    last = found.last
    if last is None:
        raise LogError(f"{found.file}: holds tasks alone: the row of the whole run is missing")
    total_kwh, duration_s = last.size
    # with tasks, CodeCarbon's duration is that of the latest: the run took at least all of them together
    duration_s = max(duration_s, math.fsum(found.tasks_s.values()))
    ended_at = last.at
    began_at = iso(ended_at - timedelta(seconds=duration_s) if ended_at and duration_s < 1e9 else None)
    pue = max(1.0, float(last.numbers[6] or 1.0))
    cpu_kwh, gpu_kwh, ram_kwh = (None if kwh is None else kwh / pue for kwh in last.kwh)
    is_constant = ram_kwh is not None and not last.text("cpu_model").startswith("Apple")
    energy = Energy(cpu_kwh, gpu_kwh, ram_kwh, None, None, Method.CONSTANT if is_constant else None)
    # an energy that is not known by component is no row's: then the run has no parts of days and months
    row_at = began_at if energy.is_known else ""
    meter = safe_text(f"CodeCarbon {last.text('codecarbon_version')}")
    texts = {name: safe_text(last.text(column)) for column, name in _TEXTS.items()}
    texts |= {
        "cpu_threads": texts["cpu_threads"].removesuffix(".0"),  # as pandas writes whole numbers
        "gpu_count": texts["gpu_count"].removesuffix(".0"),
        "gpu_models": texts["gpu_models"].replace(" x ", " × "),
        "started_at": began_at,
        "meter": meter,
        "meter_note": _UNKNOWN_METHODS,
        "location": safe_text(" ".join(map(last.text, ("cloud_provider", "cloud_region", "region")))),
        "pue": schema.cell(pue),
        "pue.source": f"as {meter} counted it" if pue > 1 else "",
    }
    stated = {}
    factors = []
    if last.flaw != _NO_SUM and total_kwh:
        stated["energy_kwh"] = total_kwh
    if last.numbers[5] and total_kwh:
        kilograms = float(last.numbers[5])
        intensity = kilograms * GRAMS_PER_KG / total_kwh
        factors.append(Factor("carbon_intensity", intensity, "gCO2e/kWh", f"{meter}, the run's emissions ÷ energy"))
        stated["emissions_kgco2e"] = kilograms
    return ForeignLog(
        texts=texts,
        factors=factors,
        rows=[Row(RowKind.GAP, None, row_at, duration_s, energy, 0.0, Counts(), UNKNOWN_ENERGY, None)],
        # stop() and every flush() write a row, so that the last of several may be either
        ending=Ending(RunStatus.EXITED if found.has_several else RunStatus.FINISHED, None, iso(ended_at)),
        stated=stated,
    )
