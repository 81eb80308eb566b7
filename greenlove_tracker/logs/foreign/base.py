"""A run that another tool logged, with the interface of one of ours."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path

from greenlove_tracker.logs.csvio import Lines, ProblemLog
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.totals import Ending, Rows
from greenlove_tracker.text.format import escape_formula
from greenlove_tracker.vocabulary.records import Row, RunSummary


@dataclass(frozen=True, slots=True)
class ForeignLog:
    """What a log of another tool says, in our terms.

    Attributes:
        texts: fields of ``run.csv`` by name; what is empty is not there.
        rows: its epochs, or its one row.
        ending: how and when it ended.
        stated: totals by their names in ``RunSummary``: they count before those of the rows.
        output: of carbontracker alone, its output log; empty where there is none.
        components: of carbontracker alone, by ``cpu`` and ``gpu``: the devices, and of each epoch the power of each of
            them, where it was measured.
        predicted: of carbontracker alone, what it predicted for all epochs: ``time`` in s, ``energy`` in kWh and CO2e
            in ``grams``, with PUE; nothing without a prediction, and where that does not count each device.
    """

    texts: Mapping[str, str]
    rows: Rows
    ending: Ending
    stated: Mapping[str, float | None]
    output: str = ""
    components: Mapping[str, tuple[Sequence[str], Sequence[Sequence[float]]]] = field(default_factory=dict)
    predicted: Mapping[str, float] | None = None


class ForeignRun(Run):
    """A run of another tool, read when it is asked for.

    Args:
        file: its log.
        name: what the tool calls it, and before it the tool and the time: the same whenever it is read.
        read: returns what the log says, and notes what cannot be read.
    """

    calibration = None  # other tools do not name the machine
    is_run = True
    stated = None
    file_names: list[str] = []  # noqa: RUF012  # no directory of its own: no trials, no forecasts, no further ranks

    def __init__(self, file: Path, name: Sequence[str], read: Callable[[ProblemLog], ForeignLog]) -> None:
        super().__init__(file, run_id="-".join(re.sub(r"[^\w.-]+", "_", part)[:80] for part in name if part))
        self._read_log = read

    @cached_property
    def log(self) -> ForeignLog:
        """What its log says.

        Raises:
            LogError: where it is no log of that tool.
        """
        return self._read_log(self._problem_log)

    @property
    def has_summary(self) -> bool:
        """True where it came to its end."""
        return bool(self.ending.ended_at)

    @cached_property
    def own_lines(self) -> Lines:
        units = {"carbon_intensity": "gCO2e/kWh"}
        return {name: (text, units.get(name, "")) for name, text in self.log.texts.items() if text}

    @property
    def _row_streams(self) -> Iterator[tuple[int, Iterator[Row]]]:
        """The rows of its one rank."""
        yield 0, iter(self.log.rows)

    @cached_property
    def ending(self) -> Ending:
        return self.log.ending

    @cached_property
    def metered_summary(self) -> RunSummary:
        return replace(self.added_up(), **self.log.stated)  # type: ignore[arg-type]


# -- Text that other tools wrote, whatever it holds: nothing in it is believed --

_MAX_TEXT = 200  # characters of a name or a note


def safe_text(text: str) -> str:
    """Return ``text`` as one short line that no spreadsheet takes for a formula."""
    line = " ".join(text[: 4 * _MAX_TEXT].split())
    return escape_formula("".join(filter(str.isprintable, line))[:_MAX_TEXT])


def moment(text: str) -> datetime | None:
    """Return a time as a log has it, which has no zone; None where it is none."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=None)
    except ValueError:
        return None


def iso(moment: datetime | None) -> str:
    """Return ISO 8601; without a zone where the log gives none: local times, and not of where."""
    if moment:
        return moment.isoformat(timespec="milliseconds")
    return ""
