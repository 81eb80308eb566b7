"""CodeCarbon's rows as runs: those of one ``run_id`` are readings of one total, not parts of a sum."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from greenlove_tracker.logs.csvio import split_line
from greenlove_tracker.logs.foreign.base import (
    ForeignRecord,
    ForeignRun,
    amount,
    fields_of,
    iso,
    moment,
    read_lines,
    safe_text,
)
from greenlove_tracker.logs.problems import ProblemLog
from greenlove_tracker.logs.schema import cell, factor_fields
from greenlove_tracker.logs.totals import Ending
from greenlove_tracker.records import UNKNOWN_ENERGY, Counts, Energy, Factor, Field, Method, Row, RowKind, RunStatus
from greenlove_tracker.units import GRAMS_PER_KG

_UNKNOWN_METHODS = "CodeCarbon's file does not say how the energy of CPU and GPU was obtained"
_NEEDED = ("timestamp", "duration", "emissions", "energy_consumed")
_ENERGIES = ("cpu_energy", "gpu_energy", "ram_energy")
_TEXTS = (  # that a run keeps
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
_UNUSED = (  # of all its versions so far
    "task_name",
    "run_id",
    "experiment_id",
    "experiment_name",
    "emissions_rate",
    "cpu_power",
    "gpu_power",
    "ram_power",
    "water_consumed",
    "country_name",
    "longitude",
    "latitude",
    "cpu_utilization_percent",
    "gpu_utilization_percent",
    "ram_utilization_percent",
    "ram_used_gb",
    "on_cloud",
    "pue",
    "wue",
)

Kwh = tuple[float | None, float | None, float | None]  # of CPU, GPU and memory


@dataclass(frozen=True, slots=True)
class Reading:
    """One row: totals since a run or a task of it began. CodeCarbon has multiplied the energies with its PUE."""

    at: datetime | None
    duration_s: float
    emissions_kgco2e: float | None
    kwh: Kwh
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

    @property
    def rows(self) -> list[Reading]:
        """All of them."""
        return [*self.readings, *self.tasks]

    def shares_rows(self, other: LoggedRun) -> bool:
        """Return True where a row stands in both."""
        return not set(self.rows).isdisjoint(other.rows)

    def together(self, other: LoggedRun) -> LoggedRun:
        """Merge the run with the rows of another file; a row that stands in both counts once."""
        tasks = Counter(self.tasks) | Counter(other.tasks)  # two of one file may be alike
        latest = max(self, other, key=lambda run: max(row.duration_s for row in run.rows))
        readings = list(dict.fromkeys([*self.readings, *other.readings]))
        return LoggedRun(latest.file, self.key, readings, list(tasks.elements()), latest.texts, latest.pue)


def read_emissions(file: Path, notes: ProblemLog) -> dict[str, LoggedRun] | None:
    """Return the runs of a CSV file by ``run_id``, or by file and line; None where it is another kind of file."""
    runs: dict[str, LoggedRun] = {}
    lines = ((number, split_line(line)) for number, line in read_lines(file, notes))  # a stray quote ends with its line
    _, header = next(lines, (0, []))
    if not set(header) >= set(_NEEDED):
        return None
    if unknown := sorted(set(header).difference(_NEEDED, _ENERGIES, _TEXTS, _UNUSED)):
        notes.add(file, f"columns that are not known, left out: {', '.join(map(safe_text, unknown))}")
    if len(set(header)) < len(header):
        notes.add(file, "a column is there twice: the last of that name counts")
    for number, values in lines:
        try:
            if len(values) != len(header):
                raise ValueError(f"{len(values) or 'unreadable'} cells instead of {len(header)}")
            cells = dict(zip(header, values, strict=True))
            reading, pue = _reading(cells), amount(cells.get("pue", ""))
        except ValueError as error:
            notes.add(file, f"line {number} left out: {error}")
            continue
        known = [kwh for kwh in reading.kwh if kwh is not None]
        total_kwh = amount(cells["energy_consumed"])
        if known and total_kwh is not None and not math.isclose(sum(known), total_kwh, rel_tol=1e-3, abs_tol=1e-12):
            notes.add(file, f"line {number}: energy_consumed is not the sum of its components; one of them is damaged")
        run_id = cells.get("run_id", "")
        run = runs.setdefault(run_id or f"{file}-{number}", LoggedRun(file, run_id or f"{file.name}-{number}"))
        run.pue = pue if pue and pue >= 1 else 1.0
        run.texts = {name: safe_text(cells[name]) for name in _TEXTS if cells.get(name)}
        (run.tasks if "task_name" in cells else run.readings).append(reading)
    return runs


def _reading(cells: Mapping[str, str]) -> Reading:
    """Return a row; an energy of 0 is none: what was there and read took some, and what was not is written as 0."""
    duration_s = amount(cells["duration"])
    if duration_s is None:
        raise ValueError("a row without its duration")
    cpu, gpu, ram, total = (amount(cells.get(name, "")) or None for name in (*_ENERGIES, "energy_consumed"))
    return Reading(moment(cells["timestamp"]), duration_s, amount(cells["emissions"]), (cpu, gpu, ram), total)


class CodeCarbonRun(ForeignRun):
    """A run of CodeCarbon, from its rows."""

    def __init__(self, logged: LoggedRun) -> None:
        self._logged = logged
        moments = [row.at for row in logged.rows if row.at]
        self._ended_at = max(moments, default=None, key=datetime.isoformat)
        time = self._ended_at.strftime("%Y%m%dT%H%M%S") if self._ended_at else ""
        name = re.sub(r"[^\w.-]+", "_", logged.key)[:80]
        super().__init__(logged.file, "-".join(part for part in (time, "codecarbon", name) if part))

    @cached_property
    def record(self) -> ForeignRecord:
        """The content of the log."""
        logged, last = self._logged, _last(self._logged)
        rows = _rows(logged, last)
        # stop() and every flush() write a row, so that the last of several may be either
        status = RunStatus.FINISHED if len(logged.readings) <= 1 else RunStatus.EXITED
        return ForeignRecord(
            fields=_fields(logged, last, rows[0].started_at),
            rows=rows,
            ending=Ending(status, None, iso(self._ended_at)),
            is_closed=True,
            total_kwh=last.total_kwh,
            emissions_gco2e=None if last.emissions_kgco2e is None else last.emissions_kgco2e * GRAMS_PER_KG,
        )


def _last(logged: LoggedRun) -> Reading:
    """Return the totals of the run: its highest reading; where only tasks were written, their sum."""
    if logged.readings:
        return max(logged.readings, key=lambda r: (r.total_kwh or 0.0, r.duration_s))
    tasks = logged.tasks
    cpu, gpu, ram = (_sum(task.kwh[i] for task in tasks) for i in range(3))
    emissions, total = _sum(t.emissions_kgco2e for t in tasks), _sum(t.total_kwh for t in tasks)
    return Reading(tasks[-1].at, sum(t.duration_s for t in tasks), emissions, (cpu, gpu, ram), total)


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _rows(logged: LoggedRun, last: Reading) -> list[Row]:
    """Return the stretches between the readings; one for all where the readings do not follow on one another.

    With tasks, CodeCarbon's duration is that of the latest: the run took at least all of them together.
    """
    readings = sorted(logged.readings, key=lambda r: (r.duration_s, r.total_kwh or 0.0))
    if logged.tasks or readings[-1] != last or not all(_follows(a, b) for a, b in pairwise(readings)):
        return [_stretch(None, last, max(last.duration_s, sum(t.duration_s for t in logged.tasks)), logged)]
    before = [None, *readings[:-1]]
    return [
        _stretch(a, b, b.duration_s - (a.duration_s if a else 0.0), logged)
        for a, b in zip(before, readings, strict=True)
    ]


def _follows(a: Reading, b: Reading) -> bool:
    """Return True where every total of ``b`` is one of ``a`` that has grown."""
    return all((x is None) == (y is None) and (x or 0.0) <= (y or 0.0) for x, y in zip(a.kwh, b.kwh, strict=True))


def _stretch(a: Reading | None, b: Reading, duration_s: float, logged: LoggedRun) -> Row:
    before = a.kwh if a else (0.0, 0.0, 0.0)
    cpu, gpu, ram = (None if y is None else (y - (x or 0.0)) / logged.pue for x, y in zip(before, b.kwh, strict=True))
    is_apple = logged.texts.get("cpu_model", "").startswith("Apple")
    energy = Energy(cpu, gpu, ram, None, None, Method.CONSTANT if ram is not None and not is_apple else None)
    began_at = b.at - timedelta(seconds=duration_s) if b.at and duration_s < 1e9 else None
    return Row(RowKind.GAP, None, iso(began_at), duration_s, energy, 0.0, Counts(), UNKNOWN_ENERGY, None)


def _fields(logged: LoggedRun, last: Reading, began_at: str) -> dict[str, Field]:
    texts = {name: logged.texts.get(name, "") for name in _TEXTS}
    place = (texts["cloud_provider"], texts["cloud_region"], texts["region"])
    meter = f"CodeCarbon {texts['codecarbon_version']}".strip()
    fields = fields_of(
        {
            "project": texts["project_name"],
            "started_at": began_at,
            "meter": meter,
            "meter_note": _UNKNOWN_METHODS,
            "country": texts["country_iso_code"],
            "location": " ".join(filter(None, place)),
            "os": texts["os"],
            "python": texts["python_version"],
            "cpu_model": texts["cpu_model"],
            "cpu_threads": texts["cpu_count"].removesuffix(".0"),  # as pandas writes whole numbers
            "gpu_count": texts["gpu_count"].removesuffix(".0"),
            "gpu_models": texts["gpu_model"].replace(" x ", " × "),
            "ram_gb": texts["ram_total_size"],
            "tracking_mode": texts["tracking_mode"],
            "pue": cell(logged.pue),
        }
    )
    if last.emissions_kgco2e is not None and last.total_kwh:
        value = last.emissions_kgco2e * GRAMS_PER_KG / last.total_kwh
        source = f"{meter}, the run's emissions ÷ energy"
        fields |= {f.name: f for f in factor_fields(Factor("carbon_intensity", value, "gCO2e/kWh", source))}
    return fields
