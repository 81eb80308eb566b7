"""Reads CodeCarbon's ``emissions.csv``, with the columns of its versions 1 to 3, row by row."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from greenlove_tracker.logs.foreign.textfile import amount, read_lines, safe_text
from greenlove_tracker.logs.notes import Notes

_NEEDED = frozenset({"timestamp", "duration", "emissions", "energy_consumed"})
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
        """Whether a row stands in both."""
        return not {*self.readings, *self.tasks}.isdisjoint([*other.readings, *other.tasks])

    def together(self, other: LoggedRun) -> LoggedRun:
        """The same run with the rows of another file; a row that stands in both counts once."""
        tasks = Counter(self.tasks) | Counter(other.tasks)  # two of one file may be alike
        latest = max(self, other, key=lambda run: max(row.duration_s for row in (*run.readings, *run.tasks)))
        readings = list(dict.fromkeys([*self.readings, *other.readings]))
        return LoggedRun(latest.file, self.key, readings, list(tasks.elements()), latest.texts, latest.pue)


def read_emissions(file: Path, notes: Notes) -> dict[str, LoggedRun] | None:
    """The runs of a CSV file by ``run_id``, or by file and line; None where it is another kind of file."""
    runs: dict[str, LoggedRun] = {}
    lines = _cells(file, notes)
    _, header = next(lines, (0, []))
    if not set(header) >= _NEEDED:
        return None
    for number, values in lines:
        if len(values) != len(header):
            notes.tell(file, f"line {number} left out: {len(values) or 'unreadable'} cells instead of {len(header)}")
            continue
        cells = dict(zip(header, values, strict=True))
        try:
            reading, pue = _reading(cells), amount(cells.get("pue", ""))
        except ValueError as error:
            notes.tell(file, f"line {number} left out: {error}")
            continue
        run_id = cells.get("run_id", "")
        run = runs.setdefault(run_id or f"{file}-{number}", LoggedRun(file, run_id or f"{file.name}-{number}"))
        run.pue = pue if pue and pue >= 1 else 1.0
        run.texts = {name: safe_text(cells[name]) for name in _TEXTS if cells.get(name)}
        (run.tasks if "task_name" in cells else run.readings).append(reading)
    return runs


def _cells(file: Path, notes: Notes) -> Iterator[tuple[int, Sequence[str]]]:
    """Each line by itself: CodeCarbon writes no cell of several, and a stray quote must not swallow the rest."""
    for number, line in read_lines(file, notes):
        try:
            yield number, next(csv.reader([line], strict=True), [])
        except csv.Error:
            yield number, []


def _reading(cells: Mapping[str, str]) -> Reading:
    duration_s = amount(cells["duration"])
    if duration_s is None:
        raise ValueError("a row without its duration")
    cpu, gpu, ram = (_energy_kwh(cells.get(f"{component}_energy", "")) for component in ("cpu", "gpu", "ram"))
    total_kwh = _energy_kwh(cells["energy_consumed"])
    return Reading(_moment(cells["timestamp"]), duration_s, amount(cells["emissions"]), cpu, gpu, ram, total_kwh)


def _energy_kwh(text: str) -> float | None:
    """None for 0: what was there and read took some; what was not is written as 0."""
    return amount(text) or None


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
