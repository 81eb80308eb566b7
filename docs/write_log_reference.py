"""Write ``docs/reference/log.md``: the meaning of each column, field and value of the log directory.

python docs/write_log_reference.py
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from greenlove_tracker.logs import schema, tables
from greenlove_tracker.logs.run_fields import FACTOR_DETAILS, FIELDS
from greenlove_tracker.logs.schema import EPOCHS, SCHEMA_VERSION, SUMMARY, LogTable, unit_of
from greenlove_tracker.logs.tables import SpanFlag
from greenlove_tracker.vocabulary.records import RATES, Flag, Method, RowKind, RunStatus

FURTHER: tuple[LogTable[Any], ...] = (
    tables.FORECASTS,
    tables.SPANS,
    tables.METRICS,
    tables.CHECKPOINTS,
    tables.TRIALS,
    tables.COMPARISON,
    tables.COMPARISON_TRIALS,
)
PAGE = Path(__file__).parent / "reference" / "log.md"


def log_reference() -> str:
    """Return the page ``docs/reference/log.md``."""
    history = inspect.getdoc(schema) or ""
    parts = [
        "# The log directory",
        "",
        "<!-- made by: python docs/write_log_reference.py -->",
        "",
        f"This is schema version {SCHEMA_VERSION}. Its history:",
        "",
        history.split("history:")[1].split("An empty")[0].strip(),
        "",
        "Each run is a directory `<UTC start>-<random>` with three files or more. A row is written at once, brought to",
        "the disk within a second, and never changes.",
        "**An empty cell means not measured; a zero means measured zero.**",
        "",
        "CodeCarbon takes no new sample within 50 ms of the last, so a gap shorter than that reads as zero energy, and",
        "what it took falls to its neighbour. Sums are not touched by this.",
        *_run_fields(),
        *_table("epochs-<rank>.csv", "column", _meanings(EPOCHS, EPOCHS.without(RATES).columns)),
        *_table(
            "epochs-<rank>.csv, after the others: only with `intensity` or `electricity_tariff`",
            "column",
            {column.name: column.meaning for column in EPOCHS.described if column.group == RATES},
        ),
        *(line for table in FURTHER for line in _table(table.title, "column", _meanings(table, table.columns))),
        *_table("summary.csv: field, value, unit", "field", _meanings(SUMMARY, SUMMARY.columns)),
        "",
        "After these each metric has six lines: `metric.<name>.last`, `.best` (empty where it is not known which is),",
        "`.lowest`, `.highest` (of the finite values), `.n_values` and `.higher_is_better`. Of one that several ranks",
        "logged, those of the first of them.",
        "",
        "A summary that cannot be read, or whose totals are not made of one another, counts as none: the run is added",
        "up from its rows, and taken for interrupted.",
    ]
    values = {
        "`kind`": RowKind,
        "`…_method`": Method,
        "`flags`": Flag,
        "`flags` of spans": SpanFlag,
        "`status`": RunStatus,
    }
    for title, names in values.items():
        parts += _table(f"Values of {title}", "value", {member.value: member.meaning for member in names})
    parts += [
        "",
        "A run of one process is three files, and one more each where forecasts were made, spans measured or metrics",
        "logged. Where there are more files of rows,",
        "totals are added up from them, and `summary.csv` has those of the first rank alone.",
        "`epochs-command.csv` holds the totals of `greenlove run -- command`; trackers in it, and in processes that a",
        "script starts, write their epochs to `epochs-<n>.csv`, and `run-<n>.csv` says `role,joined`.",
        "`.ranks-<user id>/` beside the runs holds the agreements of the ranks of one launch on their run's name, and",
        "may be deleted at any time. Every file has the mode that the umask gives: several users can write to one",
        "directory with the mode of `/tmp` (`chmod 1777`), and with a umask of 077 each reads their own runs alone.",
    ]
    return "\n".join(parts) + "\n"


def _run_fields() -> list[str]:
    """Return the table of the fields of ``run.csv``, and of the lines that a factor has behind its own."""
    found = {name: (unit_of(name), field.meaning) for name, field in FIELDS.items()}
    factors = ", ".join(f"`{name}`" for name, field in FIELDS.items() if field.is_factor)
    found |= {f"….{detail}": ("", f"of a factor: {meaning}") for detail, meaning in FACTOR_DETAILS.items()}
    return [
        *("", "## run.csv: field, value, unit; of several lines of one field the last counts", ""),
        f"Factors are {factors}.",
        *("", "| field | unit | meaning |", "|---|---|---|"),
        *(f"| `{name}` | {unit} | {meaning} |" for name, (unit, meaning) in found.items()),
    ]


def _meanings(table: LogTable[Any], columns: Sequence[str]) -> dict[str, str]:
    return {column.name: column.meaning for column in table.described if column.name in columns}


def _table(title: str, head: str, rows: dict[str, str]) -> list[str]:
    return ["", f"## {title}", "", f"| {head} | meaning |", "|---|---|", *(f"| `{k}` | {v} |" for k, v in rows.items())]


if __name__ == "__main__":
    PAGE.write_text(log_reference(), encoding="utf-8")
