"""A run that another tool logged, with the interface of one of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path

from greenlove_tracker.format import escape_formula
from greenlove_tracker.logs import schema
from greenlove_tracker.logs.csvio import ProblemLog
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.storage import read_bytes
from greenlove_tracker.logs.totals import Ending
from greenlove_tracker.records import COMPONENTS, Field, Row, RunSummary
from greenlove_tracker.units import GRAMS_PER_KG


@dataclass(frozen=True, slots=True)
class ForeignRecord:
    """A run as another tool's log has it.

    Attributes:
        fields: as ``run.csv`` holds them.
        rows: epochs, or stretches of time between readings.
        ending: how and when it ended.
        is_closed: whether the tool wrote its totals.
        total_kwh: the tool's own total, PUE included; stands in where the rows hold no energy.
        emissions_gco2e: the tool's own, likewise.
    """

    fields: Mapping[str, Field]
    rows: Sequence[Row]
    ending: Ending
    is_closed: bool
    total_kwh: float | None
    emissions_gco2e: float | None


class ForeignRun(Run):
    """A run of another tool, read when it is asked for; each tool's kind reads its own ``record``.

    Args:
        file: its log.
        run_id: its time and what the tool calls it: the same whenever it is read.
    """

    run_id = ""
    calibration = None  # other tools do not name the machine
    is_run = True
    _names: list[str] = []  # noqa: RUF012  # no directory of its own: no trials, no forecasts, no further ranks

    def __init__(self, file: Path, run_id: str) -> None:
        super().__init__(file)
        self.run_id = run_id

    @cached_property
    def record(self) -> ForeignRecord:
        """The content of the log."""
        raise NotImplementedError

    @cached_property
    def own_fields(self) -> Mapping[str, Field]:
        """Its fields."""
        return self.record.fields

    @cached_property
    def rows(self) -> Mapping[int, Sequence[Row]]:
        """Its rows; other tools know one rank."""
        return {0: self.record.rows}

    @cached_property
    def has_summary(self) -> bool:
        """True where the tool wrote its totals."""
        return self.record.is_closed

    @cached_property
    def metered_summary(self) -> RunSummary:
        """The totals, added up from what was logged; where that is no energy, the tool's own."""
        summary, record = self.added_up(self.record.ending), self.record
        if summary.energy_kwh is None and record.total_kwh is not None:
            grams = record.emissions_gco2e
            kilograms = None if grams is None else grams / GRAMS_PER_KG
            summary = replace(summary, energy_kwh=record.total_kwh, emissions_kgco2e=kilograms)
        energy = summary.energy
        if any(energy.component_kwh(c) is not None and not energy.component_method(c) for c in COMPONENTS):
            return replace(summary, measured_kwh=None)  # how much of it hardware measured is not known
        return summary


# -- Text files that other tools wrote, whatever they hold: bounded memory, and nothing in them is believed --

_MAX_TEXT = 200  # characters of a name or a note


def read_file(file: Path, notes: ProblemLog) -> bytes:
    """Return what a file holds; nothing, and a problem, where it cannot be read."""
    try:
        return read_bytes(file)
    except OSError as error:
        notes.add(file, f"cannot be read: {error.strerror}")
        return b""


def safe_text(text: str) -> str:
    """Return ``text`` as one short line that no spreadsheet takes for a formula."""
    visible = "".join(c if c.isprintable() else " " for c in text[: 4 * _MAX_TEXT])
    return escape_formula(" ".join(visible.split())[:_MAX_TEXT])


def amount(text: str) -> float | None:
    """Return the number that ``text`` holds; None where it is empty or says that there is none.

    Raises:
        ValueError: where it is no number, or a negative one.
    """
    return None if text.strip().lower() in ("", "none", "nan") else schema.amount(text)


def moment(text: str) -> datetime | None:
    """Return a time as a log has it; None where it is none."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def iso(moment: datetime | None) -> str:
    """Return ISO 8601; without a zone where the log gives none: local times, and not of where."""
    return moment.isoformat(timespec="milliseconds") if moment else ""


def fields_of(values: Mapping[str, str]) -> dict[str, Field]:
    """Return fields by name; what is empty is not there."""
    return {name: Field(name, value) for name, value in values.items() if value}
