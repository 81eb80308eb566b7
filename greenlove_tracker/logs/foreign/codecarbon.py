"""CodeCarbon's rows as runs: those of one ``run_id`` are readings of one total, of which the last counts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property, partial
from pathlib import Path

from greenlove_tracker.errors import LogError
from greenlove_tracker.logs.csvio import Line, ProblemLog, read_lines, read_records, split_line
from greenlove_tracker.logs.foreign.base import ForeignRun, amount, iso, lines_of, moment, safe_text
from greenlove_tracker.logs.schema import cell, factor_fields
from greenlove_tracker.logs.totals import Ending
from greenlove_tracker.records import UNKNOWN_ENERGY, Counts, Energy, Factor, Method, Row, RowKind, RunStatus
from greenlove_tracker.units import GRAMS_PER_KG

_UNKNOWN_METHODS = "CodeCarbon's file does not say how the energy of CPU and GPU was obtained"
_ENERGIES = ("cpu_energy", "gpu_energy", "ram_energy")
_NEEDED = frozenset({"timestamp", "run_id", "duration", "emissions", "energy_consumed", *_ENERGIES})
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
    "task_name experiment_id experiment_name emissions_rate cpu_power gpu_power ram_power water_consumed "
    "country_name region cloud_provider cloud_region longitude latitude codecarbon_version cpu_utilization_percent "
    "gpu_utilization_percent ram_utilization_percent ram_used_gb on_cloud pue wue"
)
_COLUMNS = _NEEDED.union(_TEXTS, _FURTHER.split())


@dataclass(frozen=True, slots=True)
class Reading:
    """One row: totals since a run or a task of it began. CodeCarbon has multiplied the energies with its PUE."""

    at: datetime | None
    duration_s: float
    emissions_kgco2e: float | None
    kwh: tuple[float | None, ...]  # of CPU, GPU and memory
    total_kwh: float | None
    pue: float
    is_of_task: bool
    file: Path = field(compare=False)
    cells: Mapping[str, str] = field(compare=False)


def read_emissions(file: Path, notes: ProblemLog) -> Iterator[tuple[str, Reading]]:
    """Yield the rows of a CSV file, each with the name of its run; none where it is another kind of file."""
    header = split_line(next(read_lines(str(file), partial(notes.add, file)), ""))
    if not set(header) >= _NEEDED:
        return
    if unknown := sorted(set(header) - _COLUMNS):
        notes.add(file, f"columns that are not known, left out: {', '.join(map(safe_text, unknown))}")
    for number, values in read_records(file, header, partial(notes.add, file)):
        cells = dict(zip(header, values, strict=True))
        try:
            reading = _reading(file, cells)
        except ValueError as error:
            notes.add(file, f"line {number} left out: {str(error)[:120]}")
            continue
        kwh, total_kwh = reading.kwh, reading.total_kwh or 0.0
        if any(kwh) and not math.isclose(sum(filter(None, kwh)), total_kwh, rel_tol=1e-3, abs_tol=1e-12):
            notes.add(file, f"line {number}: energy_consumed is not the sum of its components; one of them is damaged")
        yield cells["run_id"], reading


def _reading(file: Path, cells: Mapping[str, str]) -> Reading:
    """Return a row; an energy of 0 is none: what was there and read took some, and what was not is written as 0."""
    duration_s = amount(cells["duration"])
    if duration_s is None:
        raise ValueError("a row without its duration")
    *kwh, total_kwh = (amount(cells[name]) or None for name in (*_ENERGIES, "energy_consumed"))
    pue = max(1.0, amount(cells.get("pue", "")) or 0.0)
    at, emissions = moment(cells["timestamp"]), amount(cells["emissions"])
    return Reading(at, duration_s, emissions, tuple(kwh), total_kwh, pue, "task_name" in cells, file, cells)


class CodeCarbonRun(ForeignRun):
    """A run of CodeCarbon.

    Args:
        name: its ``run_id``.
        readings: its rows, in any order.
    """

    has_summary = True

    def __init__(self, name: str, readings: Sequence[Reading]) -> None:
        self._readings = list(dict.fromkeys(readings))  # a row may stand in several files
        self._ended_at = max((r.at for r in readings if r.at), default=None, key=datetime.isoformat)
        time = self._ended_at.strftime("%Y%m%dT%H%M%S") if self._ended_at else ""
        words = re.sub(r"[^\w.-]+", "_", name)[:80]
        super().__init__(readings[0].file, "-".join(part for part in (time, "codecarbon", words) if part))

    @property
    def ending(self) -> Ending:
        """How and when it ended: stop() and every flush() write a row, so that the last of several may be either."""
        n_readings = sum(not reading.is_of_task for reading in self._readings)
        return Ending(RunStatus.FINISHED if n_readings == 1 else RunStatus.EXITED, None, iso(self._ended_at))

    @cached_property
    def _last(self) -> Reading:
        """The row of the whole run; of several, which grow, the last.

        Raises:
            LogError: where there is none.
        """
        found = [reading for reading in self._readings if not reading.is_of_task]
        if not found:
            raise LogError(f"{self.path}: holds tasks alone: the row of the whole run is missing")
        return max(found, key=lambda r: (r.total_kwh or 0.0, r.duration_s))

    @cached_property
    def rows(self) -> Mapping[int, Sequence[Row]]:
        """Its one row: CodeCarbon knows no epochs."""
        last = self._last
        # with tasks, CodeCarbon's duration is that of the latest: the run took at least all of them together
        duration_s = max(last.duration_s, sum(r.duration_s for r in self._readings if r.is_of_task))
        cpu_kwh, gpu_kwh, ram_kwh = (None if kwh is None else kwh / last.pue for kwh in last.kwh)
        is_constant = ram_kwh is not None and not last.cells.get("cpu_model", "").startswith("Apple")
        energy = Energy(cpu_kwh, gpu_kwh, ram_kwh, None, None, Method.CONSTANT if is_constant else None)
        began_at = iso(last.at - timedelta(seconds=duration_s) if last.at and duration_s < 1e9 else None)
        row = Row(RowKind.GAP, None, began_at, duration_s, energy, 0.0, Counts(), UNKNOWN_ENERGY, None)
        return {0: [row]}

    @cached_property
    def own_lines(self) -> Mapping[str, Line]:
        """Its fields."""
        last = self._last
        texts = {column: safe_text(text) for column, text in last.cells.items()}
        meter = f"CodeCarbon {texts.get('codecarbon_version', '')}".strip()
        place = filter(None, (texts.get(name) for name in ("cloud_provider", "cloud_region", "region")))
        values = {
            **{name: texts.get(column, "") for column, name in _TEXTS.items()},
            "started_at": self.rows[0][0].started_at,
            "meter": meter,
            "meter_note": _UNKNOWN_METHODS,
            "location": " ".join(place),
            "pue": cell(last.pue),
        }
        for name in ("cpu_threads", "gpu_count"):
            values[name] = values[name].removesuffix(".0")  # as pandas writes whole numbers
        values["gpu_models"] = values["gpu_models"].replace(" x ", " × ")
        fields = lines_of(values)
        if last.emissions_kgco2e is not None and last.total_kwh:
            value = last.emissions_kgco2e * GRAMS_PER_KG / last.total_kwh
            source = f"{meter}, the run's emissions ÷ energy"
            fields |= {
                f.name: (f.value, f.unit) for f in factor_fields(Factor("carbon_intensity", value, "gCO2e/kWh", source))
            }
        return fields
