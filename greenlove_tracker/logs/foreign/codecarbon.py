"""CodeCarbon's rows as runs: those of one ``run_id`` are readings of one total, not parts of a sum."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

from greenlove_tracker.logs.csvio import split_line
from greenlove_tracker.logs.foreign.base import ForeignRecord, ForeignRun, amount, fields_of, read_lines, safe_text
from greenlove_tracker.logs.problems import ProblemLog
from greenlove_tracker.logs.schema import cell, factor_fields
from greenlove_tracker.logs.totals import Ending
from greenlove_tracker.records import UNKNOWN_ENERGY, Counts, Energy, Factor, Field, Method, Row, RowKind, RunStatus
from greenlove_tracker.units import GRAMS_PER_KG

_UNKNOWN_METHODS = "CodeCarbon's file does not say how the energy of CPU and GPU was obtained"


class CodeCarbonRun(ForeignRun):
    """A run of CodeCarbon, from its rows."""

    def __init__(self, logged: LoggedRun) -> None:
        moments = [r.at for r in (*logged.readings, *logged.tasks) if r.at]
        self._logged, self._ended_at = logged, max(moments, default=None, key=datetime.isoformat)
        time = self._ended_at.strftime("%Y%m%dT%H%M%S") if self._ended_at else ""
        name = re.sub(r"[^\w.-]+", "_", logged.key)[:80]
        super().__init__(logged.file, "-".join(part for part in (time, "codecarbon", name) if part))

    def _load(self) -> ForeignRecord:
        return _record(self._logged, self._ended_at)


def _record(logged: LoggedRun, ended_at: datetime | None) -> ForeignRecord:
    last = _last(logged)
    rows = _rows(logged, last)
    began_at = next((row.started_at for row in rows), "")
    return ForeignRecord(
        fields=_fields(logged, last, began_at),
        rows=rows,
        ending=Ending(_status(logged), None, _text(ended_at)),
        is_closed=True,
        total_kwh=last.total_kwh,
        emissions_gco2e=None if last.emissions_kgco2e is None else last.emissions_kgco2e * GRAMS_PER_KG,
    )


def _status(logged: LoggedRun) -> str:
    """Return the ending: stop() and every flush() write a row, so that the last of several may be either."""
    return RunStatus.FINISHED if len(logged.readings) <= 1 else RunStatus.EXITED


def _last(logged: LoggedRun) -> Reading:
    """Return the totals of the run: its highest reading; where only tasks were written, their sum."""
    if logged.readings:
        return max(logged.readings, key=lambda r: (r.total_kwh or 0.0, r.duration_s))
    tasks = logged.tasks
    return Reading(
        tasks[-1].at,
        sum(t.duration_s for t in tasks),
        _sum(t.emissions_kgco2e for t in tasks),
        _sum(t.cpu_kwh for t in tasks),
        _sum(t.gpu_kwh for t in tasks),
        _sum(t.ram_kwh for t in tasks),
        _sum(t.total_kwh for t in tasks),
    )


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _rows(logged: LoggedRun, last: Reading) -> list[Row]:
    """Return the stretches between the readings; one for all where the readings do not follow on one another.

    With tasks, CodeCarbon's duration is that of the latest: the run took at least all of them together.
    """
    readings = sorted(logged.readings, key=lambda r: (r.duration_s, r.total_kwh or 0.0))
    steps = [_nothing(readings[0]), *readings] if readings and readings[-1] == last and not logged.tasks else []
    if len(steps) < 3 or not all(_follows(*pair) for pair in pairwise(steps[1:])):
        duration_s = max(last.duration_s, sum(t.duration_s for t in logged.tasks))
        return [_stretch(_nothing(last), last, duration_s, logged)]
    return [_stretch(a, b, b.duration_s - a.duration_s, logged) for a, b in pairwise(steps)]


def _nothing(like: Reading) -> Reading:
    cpu, gpu, ram = (None if kwh is None else 0.0 for kwh in (like.cpu_kwh, like.gpu_kwh, like.ram_kwh))
    return Reading(None, 0.0, None, cpu, gpu, ram, None)


def _energies(reading: Reading) -> tuple[float | None, ...]:
    return reading.cpu_kwh, reading.gpu_kwh, reading.ram_kwh


def _follows(a: Reading, b: Reading) -> bool:
    """Return True where every total of ``b`` is one of ``a`` that has grown."""
    pairs = zip(_energies(a), _energies(b), strict=True)
    return all((x is None) == (y is None) and (x or 0.0) <= (y or 0.0) for x, y in pairs)


def _stretch(a: Reading, b: Reading, duration_s: float, logged: LoggedRun) -> Row:
    kwh = [
        None if y is None else (y - (x or 0.0)) / logged.pue for x, y in zip(_energies(a), _energies(b), strict=True)
    ]
    is_apple = logged.texts.get("cpu_model", "").startswith("Apple")
    ram_method = Method.CONSTANT if kwh[2] is not None and not is_apple else None
    energy = Energy(kwh[0], kwh[1], kwh[2], None, None, ram_method)
    began_at = b.at - timedelta(seconds=duration_s) if b.at and duration_s < 1e9 else None
    return Row(RowKind.GAP, None, _text(began_at), duration_s, energy, 0.0, Counts(), UNKNOWN_ENERGY, None)


def _text(moment: datetime | None) -> str:
    """Return ISO 8601; without a zone where the file gives none, as CodeCarbon's local times."""
    return moment.isoformat(timespec="milliseconds") if moment else ""


def _fields(logged: LoggedRun, last: Reading, began_at: str) -> dict[str, Field]:
    texts = logged.texts
    fields = fields_of(
        {
            "project": texts.get("project_name", ""),
            "started_at": began_at,
            "meter": f"CodeCarbon {texts.get('codecarbon_version', '')}".strip(),
            "meter_note": _UNKNOWN_METHODS,
            "country": texts.get("country_iso_code", ""),
            "location": _joined(texts.get(name, "") for name in ("cloud_provider", "cloud_region", "region")),
            "os": texts.get("os", ""),
            "python": texts.get("python_version", ""),
            "cpu_model": texts.get("cpu_model", ""),
            "cpu_threads": _count(texts.get("cpu_count", "")),
            "gpu_count": _count(texts.get("gpu_count", "")),
            "gpu_models": texts.get("gpu_model", "").replace(" x ", " × "),
            "ram_gb": texts.get("ram_total_size", ""),
            "tracking_mode": texts.get("tracking_mode", ""),
            "pue": cell(logged.pue),
        }
    )
    if last.emissions_kgco2e is not None and last.total_kwh:
        source = f"{fields['meter'].value}, the run's emissions ÷ energy"
        value = last.emissions_kgco2e * GRAMS_PER_KG / last.total_kwh
        fields |= {f.name: f for f in factor_fields(Factor("carbon_intensity", value, "gCO2e/kWh", source))}
    return fields


def _count(text: str) -> str:
    """Return a whole number, which pandas may have written as ``2.0``."""
    try:
        return str(int(float(text)))
    except (ValueError, OverflowError):
        return ""


def _joined(texts: Iterable[str]) -> str:
    return " ".join(text for text in texts if text)


# -- Reads CodeCarbon's ``emissions.csv``, with the columns of its versions 1 to 3, row by row --

_NEEDED = frozenset({"timestamp", "duration", "emissions", "energy_consumed"})
_KNOWN = _NEEDED | {
    "task_name",
    "project_name",
    "run_id",
    "experiment_id",
    "experiment_name",
    "emissions_rate",
    "cpu_power",
    "gpu_power",
    "ram_power",
    "cpu_energy",
    "gpu_energy",
    "ram_energy",
    "water_consumed",
    "country_name",
    "country_iso_code",
    "region",
    "cloud_provider",
    "cloud_region",
    "os",
    "python_version",
    "codecarbon_version",
    "cpu_count",
    "cpu_model",
    "gpu_count",
    "gpu_model",
    "longitude",
    "latitude",
    "ram_total_size",
    "tracking_mode",
    "cpu_utilization_percent",
    "gpu_utilization_percent",
    "ram_utilization_percent",
    "ram_used_gb",
    "on_cloud",
    "pue",
    "wue",
}  # of all its versions so far
_TEXTS = (
    "project_name",
    "country_iso_code",
    "region",
    "cloud_provider",
    "cloud_region",
    "os",
    "python_version",
    "codecarbon_version",
    "cpu_count",
    "cpu_model",
    "gpu_count",
    "gpu_model",
    "ram_total_size",
    "tracking_mode",
)


@dataclass(frozen=True, slots=True)
class Reading:
    """One row: totals since a run or a task of it began. CodeCarbon has multiplied the energies with its PUE."""

    at: datetime | None
    duration_s: float
    emissions_kgco2e: float | None
    cpu_kwh: float | None
    gpu_kwh: float | None
    ram_kwh: float | None
    total_kwh: float | None


@dataclass(slots=True)
class LoggedRun:
    """The rows of one ``run_id``, from one file or several.

    Attributes:
        file: where the latest row stands.
        key: the ``run_id``; where there is none, file and line.
        readings: each of all since the start of the run.
        tasks: each of one task alone.
        texts: what the latest row says of the machine, by column.
        pue: of the latest row.
    """

    file: Path
    key: str
    readings: list[Reading] = field(default_factory=list)
    tasks: list[Reading] = field(default_factory=list)
    texts: Mapping[str, str] = field(default_factory=dict)
    pue: float = 1.0

    def shares_rows(self, other: LoggedRun) -> bool:
        """Return True where a row stands in both."""
        return not {*self.readings, *self.tasks}.isdisjoint([*other.readings, *other.tasks])

    def together(self, other: LoggedRun) -> LoggedRun:
        """Merge the run with the rows of another file; a row that stands in both counts once."""
        tasks = Counter(self.tasks) | Counter(other.tasks)  # two of one file may be alike
        latest = max(self, other, key=lambda run: max(row.duration_s for row in (*run.readings, *run.tasks)))
        readings = list(dict.fromkeys([*self.readings, *other.readings]))
        return LoggedRun(latest.file, self.key, readings, list(tasks.elements()), latest.texts, latest.pue)


def read_emissions(file: Path, notes: ProblemLog) -> dict[str, LoggedRun] | None:
    """Return the runs of a CSV file by ``run_id``, or by file and line; None where it is another kind of file."""
    runs: dict[str, LoggedRun] = {}
    lines = _cells(file, notes)
    _, header = next(lines, (0, []))
    if not set(header) >= _NEEDED:
        return None
    if unknown := sorted(set(header) - _KNOWN):
        notes.add(file, f"columns that are not known, left out: {', '.join(map(safe_text, unknown))}")
    if len(set(header)) < len(header):
        notes.add(file, "a column is there twice: the last of that name counts")
    for number, values in lines:
        if len(values) != len(header):
            notes.add(file, f"line {number} left out: {len(values) or 'unreadable'} cells instead of {len(header)}")
            continue
        cells = dict(zip(header, values, strict=True))
        try:
            reading, pue = _reading(cells), amount(cells.get("pue", ""))
        except ValueError as error:
            notes.add(file, f"line {number} left out: {error}")
            continue
        if not _is_sum(reading, amount(cells["energy_consumed"])):
            notes.add(file, f"line {number}: energy_consumed is not the sum of its components; one of them is damaged")
        run_id = cells.get("run_id", "")
        run = runs.setdefault(run_id or f"{file}-{number}", LoggedRun(file, run_id or f"{file.name}-{number}"))
        run.pue = pue if pue and pue >= 1 else 1.0
        run.texts = {name: safe_text(cells[name]) for name in _TEXTS if cells.get(name)}
        (run.tasks if "task_name" in cells else run.readings).append(reading)
    return runs


def _cells(file: Path, notes: ProblemLog) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield the cells line by line: CodeCarbon writes no longer cells, and a stray quote must not swallow the rest."""
    for number, line in read_lines(file, notes):
        yield number, split_line(line)


def _reading(cells: Mapping[str, str]) -> Reading:
    duration_s = amount(cells["duration"])
    if duration_s is None:
        raise ValueError("a row without its duration")
    cpu, gpu, ram = (_energy_kwh(cells.get(f"{component}_energy", "")) for component in ("cpu", "gpu", "ram"))
    total_kwh = _energy_kwh(cells["energy_consumed"])
    return Reading(_moment(cells["timestamp"]), duration_s, amount(cells["emissions"]), cpu, gpu, ram, total_kwh)


def _is_sum(reading: Reading, total_kwh: float | None) -> bool:
    """Return True where the total is that of the components, as far as the file has both; people round such files."""
    known = [kwh for kwh in _energies(reading) if kwh is not None]
    if total_kwh is None or not known:
        return True
    return math.isclose(sum(known), total_kwh, rel_tol=1e-3, abs_tol=1e-12)


def _energy_kwh(text: str) -> float | None:
    """Return None for 0: what was there and read took some; what was not is written as 0."""
    return amount(text) or None


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
