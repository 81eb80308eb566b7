"""``summary.csv`` as a record, by a table: of ten thousand runs it is most of what is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from greenlove_tracker.errors import LogError
from greenlove_tracker.logs.flat import flat_columns
from greenlove_tracker.logs.schema import SUMMARY_FILE, amount, count
from greenlove_tracker.records import Counts, Energy, RunSummary


def _maybe_amount(text: str) -> float | None:
    return amount(text) if text else None


def _maybe_count(text: str) -> int | None:
    return count(text) if text else None


def _exit_code(text: str) -> int | None:
    return int(text) if text else None  # negative: the number of a signal


def _maybe_text(text: str) -> str | None:
    return text or None


def _flags(text: str) -> frozenset[str]:
    return frozenset(text.split())


_READ: Mapping[str, Callable[[str], Any]] = {
    **dict.fromkeys(("run_id", "project", "status", "started_at", "ended_at", "cost_basis"), str),
    **dict.fromkeys(("epochs_planned", "steps", "batches", "samples", "tokens"), _maybe_count),
    **dict.fromkeys(("epochs_done", "gpu_count", "n_ranks", "n_nodes"), count),
    **dict.fromkeys(("duration_s", "epochs_duration_s", "metered_s", "pue", "gpu_hours"), amount),
    **dict.fromkeys(("cpu_method", "gpu_method", "ram_method"), _maybe_text),
    "carbon_intensity_gco2e_per_kwh": amount,
    "exit_code": _exit_code,
    "flags": _flags,
}
_COLUMNS = flat_columns(RunSummary)
_READERS = [_READ.get(column, _maybe_amount) for column in _COLUMNS]
_cells_of = itemgetter(*_COLUMNS)
_COUNTS_AT, _ENERGY_AT = _COLUMNS.index("steps"), _COLUMNS.index("cpu_kwh")  # parts of the record, flat in the file


def summary_from_lines(lines: Sequence[Sequence[str]]) -> RunSummary:
    """The summary that the lines of ``summary.csv`` hold; each begins with its field and value.

    Raises:
        LogError: where a field is missing or is not what it should be.
    """
    try:
        cells = _cells_of({line[0]: line[1] for line in lines})
        v: list[Any] = [read(cell) for read, cell in zip(_READERS, cells, strict=True)]
    except KeyError as error:
        raise LogError(f"{SUMMARY_FILE}: no line for {error.args[0]}") from error
    except ValueError as error:
        raise LogError(f"{SUMMARY_FILE}: {error}") from error
    counts, energy = slice(_COUNTS_AT, _COUNTS_AT + 4), slice(_ENERGY_AT, _ENERGY_AT + 6)
    v[energy] = [Energy(*v[energy])]  # the later one first, so that the other stays where it is
    v[counts] = [Counts(*v[counts])]
    return RunSummary(*v)
