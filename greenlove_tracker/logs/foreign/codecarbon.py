"""CodeCarbon's rows as runs: those of one ``run_id`` are readings of one total, of which the last counts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from greenlove_tracker.logs import schema
from greenlove_tracker.logs.csvio import ProblemLog, read_lines, read_records, split_line
from greenlove_tracker.logs.foreign.base import ForeignLog, ForeignRun, iso, moment, safe_text
from greenlove_tracker.logs.totals import Ending
from greenlove_tracker.vocabulary.errors import LogError
from greenlove_tracker.vocabulary.records import UNKNOWN_ENERGY, Counts, Energy, Factor, Method, Row, RowKind, RunStatus
from greenlove_tracker.vocabulary.units import GRAMS_PER_KG

_UNKNOWN_METHODS = "CodeCarbon's file does not say how the energy of CPU and GPU was obtained"
_ENERGIES = ("cpu_energy", "gpu_energy", "ram_energy")
_NEEDED = frozenset({"timestamp", "run_id", "duration", "emissions", "energy_consumed", *_ENERGIES})
_TEXTS = {  # our field by the column that it is the text of
    "project_name": "project",
    "country_iso_code": "country",
    "os": "os",
    "python_version": "python",
    "cpu_model": "cpu_model",
    "ram_total_size": "ram_gb",
    "tracking_mode": "tracking_mode",
}
_FURTHER = (  # columns of all its versions so far
    "task_name experiment_id experiment_name emissions_rate cpu_power gpu_power ram_power water_consumed country_name "
    "region cloud_provider cloud_region longitude latitude codecarbon_version cpu_count gpu_count gpu_model "
    "cpu_utilization_percent gpu_utilization_percent ram_utilization_percent ram_used_gb on_cloud pue wue"
)


@dataclass(frozen=True, slots=True)
class Reading:
    """One row: totals since a run or a task of it began. CodeCarbon has multiplied the energies with its PUE."""

    at: datetime | None
    duration_s: float
    emissions_kgco2e: float | None
    kwh: tuple[float | None, ...]  # of CPU, GPU and memory
    total_kwh: float
    pue: float
    is_of_task: bool
    file: Path = field(compare=False)
    cells: Mapping[str, str] = field(compare=False)


def read_emissions(file: Path, notes: ProblemLog) -> Iterator[tuple[str, Reading]]:
    """Yield the rows of a CSV file, each with the name of its run; none where it is another kind of file."""
    on_problem = partial(notes.add, file)
    header = split_line(next(read_lines(str(file), on_problem), ""))
    if not set(header) >= _NEEDED:
        return
    if unknown := sorted(set(header).difference(_NEEDED, _TEXTS, _FURTHER.split())):  # the PUE's, damaged, may be
        on_problem(f"columns that are not known, left out: {', '.join(map(safe_text, unknown))}")
    for number, values in read_records(file, header, on_problem):
        cells = dict(zip(header, values, strict=True))
        try:
            reading = _reading(file, cells)
        except ValueError as error:
            on_problem(f"line {number} left out: {str(error)[:120]}")
            continue
        known = [kwh for kwh in reading.kwh if kwh]
        if known and not math.isclose(math.fsum(known), reading.total_kwh, rel_tol=1e-3, abs_tol=1e-12):
            on_problem(f"line {number}: energy_consumed is not the sum of its components; one of them is damaged")
        yield cells["run_id"], reading


def _reading(file: Path, cells: Mapping[str, str]) -> Reading:
    """Return a row; an energy of 0 is none: what was there and read took some, and what was not is written as 0."""
    return Reading(
        at=moment(cells["timestamp"]),
        duration_s=schema.amount(cells["duration"]),
        emissions_kgco2e=_amount(cells["emissions"]),
        kwh=tuple(_amount(cells[name]) or None for name in _ENERGIES),
        total_kwh=_amount(cells["energy_consumed"]) or 0.0,
        pue=max(1.0, _amount(cells.get("pue", "")) or 0.0),
        is_of_task="task_name" in cells,
        file=file,
        cells=cells,
    )


def _amount(text: str) -> float | None:
    """Return the number that a cell holds; None where it is empty or says that there is none."""
    if text.strip().lower() in ("", "none", "nan"):
        return None
    return schema.amount(text)


def codecarbon_run(name: str, readings: Sequence[Reading]) -> ForeignRun:
    """Return the run of a ``run_id``, by its rows in any order."""
    ended_at = max((r.at for r in readings if r.at), default=None, key=datetime.isoformat)
    time = ended_at.strftime("%Y%m%dT%H%M%S") if ended_at else ""
    return ForeignRun(readings[0].file, (time, "codecarbon", name), partial(_read, readings, ended_at))


def _read(readings: Sequence[Reading], ended_at: datetime | None, notes: ProblemLog) -> ForeignLog:
    """Return what the rows of a run say: of those of the whole run, which grow, the last.

    Raises:
        LogError: where there is none.
    """
    distinct = dict.fromkeys(readings)  # a row may stand in several files
    of_run = [reading for reading in distinct if not reading.is_of_task]
    if not of_run:
        raise LogError(f"{readings[0].file}: holds tasks alone: the row of the whole run is missing")
    last = max(of_run, key=lambda r: (r.total_kwh, r.duration_s))
    # with tasks, CodeCarbon's duration is that of the latest: the run took at least all of them together
    duration_s = max(last.duration_s, sum(reading.duration_s for reading in distinct if reading.is_of_task))
    began_at = iso(last.at - timedelta(seconds=duration_s) if last.at and duration_s < 1e9 else None)
    texts = {column: safe_text(text) for column, text in last.cells.items()}
    cpu_kwh, gpu_kwh, ram_kwh = (None if kwh is None else kwh / last.pue for kwh in last.kwh)
    is_constant = ram_kwh is not None and not texts.get("cpu_model", "").startswith("Apple")
    energy = Energy(cpu_kwh, gpu_kwh, ram_kwh, None, None, Method.CONSTANT if is_constant else None)
    # stop() and every flush() write a row, so that the last of several may be either
    status = RunStatus.FINISHED if len(of_run) == 1 else RunStatus.EXITED
    meter = f"CodeCarbon {texts.get('codecarbon_version', '')}".strip()
    place = (texts.get(column) for column in ("cloud_provider", "cloud_region", "region"))
    kilograms = last.emissions_kgco2e
    source = f"{meter}, the run's emissions ÷ energy"
    return ForeignLog(
        texts={
            **{name: texts.get(column, "") for column, name in _TEXTS.items()},
            "cpu_threads": texts.get("cpu_count", "").removesuffix(".0"),  # as pandas writes whole numbers
            "gpu_count": texts.get("gpu_count", "").removesuffix(".0"),
            "gpu_models": texts.get("gpu_model", "").replace(" x ", " × "),
            "started_at": began_at,
            "meter": meter,
            "meter_note": _UNKNOWN_METHODS,
            "location": " ".join(filter(None, place)),
            "pue": schema.cell(last.pue),
            "pue.source": f"as {meter} counted it" if last.pue > 1 else "",
        },
        factors=[Factor("carbon_intensity", kilograms * GRAMS_PER_KG / last.total_kwh, "gCO2e/kWh", source)]
        if kilograms is not None and last.total_kwh
        else [],
        rows=[Row(RowKind.GAP, None, began_at, duration_s, energy, 0.0, Counts(), UNKNOWN_ENERGY, None)],
        ending=Ending(status, None, iso(ended_at)),
    )
