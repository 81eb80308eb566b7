"""CodeCarbon's rows as runs: those of one ``run_id`` are readings of one total, not parts of a sum."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path

from greenlove_tracker.errors import LogError
from greenlove_tracker.logs.csvio import ProblemLog, read_records, split_line
from greenlove_tracker.logs.foreign.base import (
    ForeignRecord,
    ForeignRun,
    amount,
    fields_of,
    iso,
    moment,
    read_file,
    safe_text,
)
from greenlove_tracker.logs.schema import cell, factor_fields
from greenlove_tracker.logs.totals import Ending
from greenlove_tracker.records import UNKNOWN_ENERGY, Counts, Energy, Factor, Field, Method, Row, RowKind, RunStatus
from greenlove_tracker.units import GRAMS_PER_KG

_UNKNOWN_METHODS = "CodeCarbon's file does not say how the energy of CPU and GPU was obtained"
_NEEDED = frozenset({"timestamp", "duration", "emissions", "energy_consumed"})
_ENERGIES = ("cpu_energy", "gpu_energy", "ram_energy")
_TEXTS = {  # our field by the column that it is the text of
    "project_name": "project",
    "country_iso_code": "country",
    "os": "os",
    "python_version": "python",
    "cpu_model": "cpu_model",
    "cpu_count": "cpu_threads",
    "gpu_count": "gpu_count",
    "gpu_model": "gpu_models",
    "ram_total_size": "ram_gb",
    "tracking_mode": "tracking_mode",
}
_FURTHER = (  # columns of all its versions so far
    "task_name run_id experiment_id experiment_name emissions_rate cpu_power gpu_power ram_power water_consumed "
    "country_name region cloud_provider cloud_region longitude latitude codecarbon_version cpu_utilization_percent "
    "gpu_utilization_percent ram_utilization_percent ram_used_gb on_cloud pue wue"
)
_COLUMNS = _NEEDED.union(_ENERGIES, _TEXTS, _FURTHER.split())


@dataclass(frozen=True, slots=True)
class Reading:
    """One row: totals since a run or a task of it began. CodeCarbon has multiplied the energies with its PUE."""

    at: datetime | None
    duration_s: float
    emissions_kgco2e: float | None
    kwh: tuple[float | None, ...]  # of CPU, GPU and memory
    total_kwh: float | None
    is_of_task: bool
    file: Path = field(compare=False)
    cells: Mapping[str, str] = field(compare=False)


def read_emissions(file: Path, notes: ProblemLog) -> list[tuple[str, Reading]]:
    """Return the rows of a CSV file, each with the name of its run; none where it is another kind of file."""
    found: list[tuple[str, Reading]] = []
    data = read_file(file, notes)
    header = split_line(data.partition(b"\n")[0].decode("utf-8-sig", "replace").strip())
    if not set(header) >= _NEEDED:
        return found
    if unknown := sorted(set(header) - _COLUMNS):
        notes.add(file, f"columns that are not known, left out: {', '.join(map(safe_text, unknown))}")
    for number, values in read_records(data, header, partial(notes.add, file)):
        cells = dict(zip(header, values, strict=True))
        try:
            found.append((cells.get("run_id") or f"{file}-{number}", _reading(file, cells)))
        except ValueError as error:
            notes.add(file, f"line {number} left out: {str(error)[:120]}")
            continue
        kwh, total_kwh = found[-1][1].kwh, amount(cells["energy_consumed"])
        is_sum = math.isclose(sum(filter(None, kwh)), total_kwh or 0.0, rel_tol=1e-3, abs_tol=1e-12)
        if any(kwh) and total_kwh is not None and not is_sum:
            notes.add(file, f"line {number}: energy_consumed is not the sum of its components; one of them is damaged")
    return found


def _reading(file: Path, cells: Mapping[str, str]) -> Reading:
    """Return a row; an energy of 0 is none: what was there and read took some, and what was not is written as 0."""
    duration_s = amount(cells["duration"])
    if duration_s is None:
        raise ValueError("a row without its duration")
    *kwh, total_kwh = (amount(cells.get(name, "")) or None for name in (*_ENERGIES, "energy_consumed"))
    amount(cells.get("pue", ""))
    at, emissions = moment(cells["timestamp"]), amount(cells["emissions"])
    return Reading(at, duration_s, emissions, tuple(kwh), total_kwh, "task_name" in cells, file, cells)


class CodeCarbonRun(ForeignRun):
    """A run of CodeCarbon.

    Args:
        name: its ``run_id``; where there is none, file and line.
        readings: its rows, in any order.
    """

    def __init__(self, name: str, readings: Sequence[Reading]) -> None:
        self._readings = readings
        self._ended_at = max((r.at for r in readings if r.at), default=None, key=datetime.isoformat)
        latest = max(readings, key=lambda r: r.duration_s)
        self._cells = latest.cells
        time = self._ended_at.strftime("%Y%m%dT%H%M%S") if self._ended_at else ""
        words = re.sub(r"[^\w.-]+", "_", name.removeprefix(f"{latest.file.parent}/"))[:80]
        super().__init__(latest.file, "-".join(part for part in (time, "codecarbon", words) if part))

    @cached_property
    def record(self) -> ForeignRecord:
        """The content of the log.

        Raises:
            LogError: where it holds tasks of the run alone.
        """
        tasks = [r for r in self._readings if r.is_of_task]
        readings = sorted(
            (r for r in self._readings if not r.is_of_task), key=lambda r: (r.duration_s, r.total_kwh or 0)
        )
        # stop() and every flush() write a row, so that the last of several may be either
        status = RunStatus.FINISHED if len(readings) <= 1 else RunStatus.EXITED
        if not readings:
            raise LogError(f"{self.path}: holds tasks alone: the row of the whole run is missing")
        last = max(readings, key=lambda r: (r.total_kwh or 0.0, r.duration_s))
        if tasks or readings[-1] != last or not all(_follows(a, b) for a, b in pairwise(readings)):
            # with tasks, CodeCarbon's duration is that of the latest: the run took at least all of them together
            readings = [replace(last, duration_s=max(last.duration_s, sum(t.duration_s for t in tasks)))]
        pue = amount(self._cells.get("pue", "")) or 0.0
        start = Reading(None, 0.0, None, (0.0, 0.0, 0.0), None, False, Path(), {})
        rows = [self._stretch(a, b, max(pue, 1.0)) for a, b in pairwise([start, *readings])]
        return ForeignRecord(
            fields=self._fields(last, rows[0].started_at, max(pue, 1.0)),
            rows=rows,
            ending=Ending(status, None, iso(self._ended_at)),
            is_closed=True,
            total_kwh=last.total_kwh,
            emissions_gco2e=None if last.emissions_kgco2e is None else last.emissions_kgco2e * GRAMS_PER_KG,
        )

    def _stretch(self, a: Reading, b: Reading, pue: float) -> Row:
        """Return the time between two readings as a row."""
        duration_s = b.duration_s - a.duration_s
        cpu, gpu, ram = (None if y is None else (y - (x or 0.0)) / pue for x, y in zip(a.kwh, b.kwh, strict=True))
        is_constant = ram is not None and not self._cells.get("cpu_model", "").startswith("Apple")
        energy = Energy(cpu, gpu, ram, None, None, Method.CONSTANT if is_constant else None)
        began_at = b.at - timedelta(seconds=duration_s) if b.at and duration_s < 1e9 else None
        return Row(RowKind.GAP, None, iso(began_at), duration_s, energy, 0.0, Counts(), UNKNOWN_ENERGY, None)

    def _fields(self, last: Reading, began_at: str, pue: float) -> dict[str, Field]:
        texts = {column: safe_text(text) for column, text in self._cells.items()}
        meter = f"CodeCarbon {texts.get('codecarbon_version', '')}".strip()
        place = filter(None, (texts.get(name) for name in ("cloud_provider", "cloud_region", "region")))
        values = {
            **{name: texts.get(column, "") for column, name in _TEXTS.items()},
            "started_at": began_at,
            "meter": meter,
            "meter_note": _UNKNOWN_METHODS,
            "location": " ".join(place),
            "pue": cell(pue),
        }
        for name in ("cpu_threads", "gpu_count"):
            values[name] = values[name].removesuffix(".0")  # as pandas writes whole numbers
        values["gpu_models"] = values["gpu_models"].replace(" x ", " × ")
        fields = fields_of(values)
        if last.emissions_kgco2e is not None and last.total_kwh:
            value = last.emissions_kgco2e * GRAMS_PER_KG / last.total_kwh
            source = f"{meter}, the run's emissions ÷ energy"
            fields |= {f.name: f for f in factor_fields(Factor("carbon_intensity", value, "gCO2e/kWh", source))}
        return fields


def _follows(a: Reading, b: Reading) -> bool:
    """Return True where every total of ``b`` is one of ``a`` that has grown."""
    return all((x is None) == (y is None) and (x or 0.0) <= (y or 0.0) for x, y in zip(a.kwh, b.kwh, strict=True))
