"""A run that another tool logged, with the interface of one of ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from pathlib import Path

from greenlove_tracker.format import escape_formula
from greenlove_tracker.logs import schema
from greenlove_tracker.logs.csvio import Line
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.totals import Ending
from greenlove_tracker.records import COMPONENTS, RunSummary


class ForeignRun(Run):
    """A run of another tool, read when it is asked for; each tool's kind has its own fields, rows and ending.

    Args:
        file: its log.
        run_id: its time and what the tool calls it: the same whenever it is read.
    """

    calibration = None  # other tools do not name the machine
    is_run = True
    stated = None
    file_names: list[str] = []  # noqa: RUF012  # no directory of its own: no trials, no forecasts, no further ranks

    def __init__(self, file: Path, run_id: str) -> None:
        super().__init__(file, run_id=run_id)

    @property
    def ending(self) -> Ending:
        """How and when it ended."""
        raise NotImplementedError

    @cached_property
    def metered_summary(self) -> RunSummary:
        """The totals, added up from what was logged."""
        summary = self.added_up(self.ending)
        energy = summary.energy
        if any(energy.component_kwh(c) is not None and not energy.component_method(c) for c in COMPONENTS):
            return replace(summary, measured_kwh=None)  # how much of it hardware measured is not known
        return summary


# -- Text files that other tools wrote, whatever they hold: nothing in them is believed --

_MAX_TEXT = 200  # characters of a name or a note


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


def lines_of(values: Mapping[str, str]) -> dict[str, Line]:
    """Return lines of ``run.csv`` by field; what is empty is not there."""
    return {name: (value, "") for name, value in values.items() if value}
