"""The columns of the log directory, and how records become cells and cells records.

SCHEMA_VERSION stands in every ``run.csv``. Its history:

1. first version: ``run.csv``, ``epochs-<rank>.csv``, ``forecasts.csv``, ``summary.csv``; later ``spans-<rank>.csv``,
   ``metrics-<rank>.csv``, the metrics' lines of ``summary.csv`` and the rates of a row's time, which older readers
   pass over.

An empty cell means not measured; a zero means measured zero. Floats are written so that they read back exactly.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from operator import attrgetter, itemgetter
from typing import Any

from greenlove_tracker.errors import LogError
from greenlove_tracker.records import (
    COMPONENTS,
    Counts,
    Energy,
    Factor,
    Field,
    Method,
    MetricSummary,
    Row,
    RowKind,
    RunSummary,
)
from greenlove_tracker.secret_masking import mask_command, mask_secrets
from greenlove_tracker.units import GRAMS_PER_KG, h_from_s

SCHEMA_VERSION = 1

RUN_FILE = "run.csv"
CODECARBON_PREFIX = "greenlove-"  # of the run_id in the files that CodeCarbon writes while it measures a run of ours
SUMMARY_FILE = "summary.csv"
SEAL_PREFIX = "greenlove_seal."  # of files that versions before wrote into a log directory
CALIBRATION_FILE = "greenlove_calibration.csv"  # of a log directory: its machines' energy at the wall
RUN_COLUMNS = ("field", "value", "unit")
CLOSED_FIELD = "closed"  # last in ``run-<n>.csv``: its process has written all that it will
JOINED_ROLE = "joined"  # of a tracker in a run that another process leads: its rows count for no total
UNSEEN = "unseen: "  # in ``loops_seen``, before the frameworks that were loaded and show no epochs to the runner
COMMAND_STREAM = "command"  # rows of ``greenlove run -- command``: they hold the totals of the whole command

ENERGY_COLUMNS = ("energy_kwh", "cpu_kwh", "gpu_kwh", "ram_kwh", "cpu_method", "gpu_method", "ram_method")
EPOCH_COLUMNS = (
    "kind",
    "epoch",
    "started_at",
    "gap_before_s",
    "gap_before_kwh",
    "gap_before_cpu_kwh",
    "gap_before_gpu_kwh",
    "gap_before_ram_kwh",
    "gap_before_cpu_method",
    "gap_before_gpu_method",
    "gap_before_ram_method",
    "duration_s",
    "steps",
    "batches",
    "samples",
    "tokens",
    *ENERGY_COLUMNS,
    "emissions_gco2e",
    "flags",
)
# Behind the others, only where a run asked for a carbon intensity or a price of its time.
RATE_COLUMNS = ("carbon_intensity_gco2e_per_kwh", "carbon_intensity_source", "electricity_price_usd_per_kwh")


def _cells_of(*columns: str) -> Callable[[Sequence[str]], Sequence[str]]:
    return itemgetter(*map(EPOCH_COLUMNS.index, columns))


_KWH = [f"{component}_kwh" for component in COMPONENTS]
_METHODS = [f"{component}_method" for component in COMPONENTS]
_amounts_of = _cells_of("gap_before_s", "duration_s", "emissions_gco2e", *[f"gap_before_{c}" for c in _KWH], *_KWH)
_gap_methods_of = _cells_of(*[f"gap_before_{c}" for c in _METHODS])
_methods_of = _cells_of(*_METHODS)
_counts_of = _cells_of("steps", "batches", "samples", "tokens")
_totals_of = _cells_of("energy_kwh", "gap_before_kwh")
_FLAGS_AT = EPOCH_COLUMNS.index("flags")
# float() takes more for a number than a log has: 1_0 for 10, and ".5", "2. " or "03" where digits were lost
_is_number = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d{1,3})?", re.ASCII).fullmatch
_is_count = re.compile(r"0|[1-9]\d{,19}", re.ASCII).fullmatch  # more digits are noise
_ROUNDING = 1e-9  # of a sum, as a share of it: another order of its parts may round otherwise


def is_of_directory(name: str) -> bool:
    """Return True for a file that is of a whole log directory, and no run: its calibration, and a seal of before."""
    return name.startswith(SEAL_PREFIX) or name == CALIBRATION_FILE


def epochs_file(rank: int | str) -> str:
    """Return the name of the file that holds a rank's rows."""
    return f"epochs-{rank}.csv"


def run_file(rank: int | str) -> str:
    """Return the name of the file that holds what a further node found; rank 0 writes ``run.csv`` itself."""
    return RUN_FILE if rank in (0, COMMAND_STREAM) else f"run-{rank}.csv"


def cell(value: object) -> str:
    """Return one value as the text of a cell."""
    if value is None:
        return ""
    if isinstance(value, float):
        return repr(float(value)) if math.isfinite(value) else ""  # float(): repr(numpy.float64(1)) is no number
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, frozenset | set):
        return " ".join(sorted(value))
    return str(value).replace("\x00", "")


def without_secrets(name: str, value: str) -> str:
    """Return the value of a field of ``run.csv`` with the passwords, tokens and keys in it masked."""
    mask = _MASKED.get(name)
    return value if mask is None else mask(value)


# The fields that hold texts from outside; the others are names and numbers that somebody chose to have in the log.
_MASKED: Mapping[str, Callable[[str], str]] = {"command": mask_command, "meter_note": mask_secrets}


def row_cells(row: Row, *, has_rates: bool = False) -> list[str]:
    """Return a row's cells in the order of EPOCH_COLUMNS, and of RATE_COLUMNS where it has them."""
    gap, energy, counts = row.gap_before, row.energy, row.counts
    values = (
        row.kind.value,
        row.epoch,
        row.started_at,
        row.gap_before_s,
        gap.total_kwh,
        gap.cpu_kwh,
        gap.gpu_kwh,
        gap.ram_kwh,
        gap.cpu_method,
        gap.gpu_method,
        gap.ram_method,
        row.duration_s,
        counts.steps,
        counts.batches,
        counts.samples,
        counts.tokens,
        energy.total_kwh,
        energy.cpu_kwh,
        energy.gpu_kwh,
        energy.ram_kwh,
        energy.cpu_method,
        energy.gpu_method,
        energy.ram_method,
        row.emissions_gco2e,
        row.flags,
    )
    rates = (row.carbon_intensity_gco2e_per_kwh, row.carbon_intensity_source, row.electricity_price_usd_per_kwh)
    return [cell(v) for v in (values + rates if has_rates else values)]


def finite(text: str) -> float:
    """Return the number that a cell holds.

    Raises:
        ValueError: where it holds none, or an infinite one.
    """
    value = float(text)
    if not math.isfinite(value) or not _is_number(text):
        raise ValueError(f"{text!r} is not a finite number")
    return value


def amount(text: str) -> float:
    """Return the number that a cell holds of something of which there cannot be less than none.

    Raises:
        ValueError: where it holds none, or an infinite or a negative one.
    """
    value = float(text)
    if not 0 <= value < math.inf or not _is_number(text):
        raise ValueError(f"{text!r} is not an amount")
    return value


def any_number(text: str) -> float:
    """Return the number that a cell holds, which may be ``nan``, ``inf`` or ``-inf``.

    Raises:
        ValueError: where it holds none.
    """
    return float(text) if text in ("nan", "inf", "-inf") else finite(text)


def count(text: str) -> int:
    """Return the whole number that a cell holds of something that is counted.

    Raises:
        ValueError: where it holds none, or a negative one.
    """
    if not _is_count(text):
        raise ValueError(f"{text!r} is not a count")
    return int(text)


def _amounts(texts: Sequence[str]) -> list[float | None]:
    """Return the amounts that cells hold; None for an empty one."""
    return [amount(text) if text else None for text in texts]


def energy_from_cells(kwh: Sequence[str], methods: Sequence[str], total: str) -> Energy:
    """Return an energy from the cells of its components, their methods and their sum.

    Raises:
        ValueError: where one is damaged.
    """
    return _energy(_amounts(kwh), methods, total)


def _energy(kwh: Sequence[float | None], methods: Sequence[str], total: str) -> Energy:
    """Return an energy; raise ValueError where it is not its total: one of its cells is damaged."""
    energy = Energy(kwh[0], kwh[1], kwh[2], *map(_methods, methods))
    try:
        total_kwh, written_kwh = energy.total_kwh, amount(total) if total else None
    except OverflowError as error:
        raise ValueError("its energy is too large to be a number") from error
    if (total_kwh is None) != (written_kwh is None) or not _are_close(total_kwh, written_kwh):
        raise ValueError(f"its energy of {total or 'nothing'} kWh is not the sum of its components")
    return energy


def _are_close(a: float | None, b: float | None) -> bool:
    """Return True where two numbers are one up to rounding, or one of them is not known."""
    return a is None or b is None or a == b or math.isclose(a, b, rel_tol=_ROUNDING)


@lru_cache(maxsize=256)  # of some ten that there are
def _methods(text: str) -> str | None:
    """Return the methods of an energy, joined by ``+``; raise ValueError where one is unknown."""
    for word in text.split("+") if text else ():
        Method(word)
    return text or None


def row_from_cells(cells: Sequence[str]) -> Row:
    """Return the row that ``cells``, in the order of EPOCH_COLUMNS and maybe RATE_COLUMNS, stand for.

    Raises:
        ValueError: where a cell is not what its column holds.
    """
    gap_before_s, duration_s, emissions_gco2e, *kwh = _amounts(_amounts_of(cells))
    if duration_s is None or gap_before_s is None:
        raise ValueError("a row without its duration")
    total, gap_total = _totals_of(cells)
    rates = cells[len(EPOCH_COLUMNS) :]
    intensity, source, price = rates if rates else ("", "", "")
    return Row(
        RowKind(cells[0]),
        count(cells[1]) if cells[1] else None,
        cells[2],
        gap_before_s,
        _energy(kwh[:3], _gap_methods_of(cells), gap_total),
        duration_s,
        Counts(*[count(text) if text else None for text in _counts_of(cells)]),
        _energy(kwh[3:], _methods_of(cells), total),
        emissions_gco2e,
        frozenset(cells[_FLAGS_AT].split()),
        amount(intensity) if intensity else None,
        source,
        finite(price) if price else None,  # that of an exchange may be negative
    )


def factor_fields(factor: Factor) -> list[Field]:
    """Return the lines of ``run.csv`` that record a factor."""
    details = ("source", "year", "basis", "table_sha256")
    fields = [Field(factor.name, cell(factor.value), factor.unit)]
    # empty ones too: a later line must replace an earlier one of the same name
    return fields + [Field(f"{factor.name}.{d}", getattr(factor, d)) for d in details]


def factor_from_fields(name: str, fields: Mapping[str, Field]) -> Factor | None:
    """Return the factor of that name in ``run.csv``; None where there is none."""
    if name not in fields or not fields[name].value:
        return None
    details = ("source", "year", "basis", "table_sha256")
    texts = [fields[key].value if (key := f"{name}.{d}") in fields else "" for d in details]
    number = finite if name == "electricity_price" else amount  # that of a tariff may be negative
    return Factor(name, number(fields[name].value), fields[name].unit, *texts)


def summary_fields(summary: RunSummary) -> list[Field]:
    """Return the lines of ``summary.csv``."""
    metrics = [field for metric in summary.metrics for field in _metric_fields(metric)]
    unit = {"_s": "s", "_kwh": "kWh", "_kgco2e": "kgCO2e", "_usd": "USD", "_gco2e_per_kwh": "gCO2e/kWh"}
    return [
        Field(name, cell(value), next((u for end, u in reversed(unit.items()) if name.endswith(end)), ""))
        for name, value in flat_values(summary).items()
    ] + metrics


# -- Records as flat rows: the energies and counts inside them become columns of their own --

_PARTS = {"energy": ("", Energy), "counts": ("", Counts), "gap_before": ("gap_before_", Energy)}


def flat_columns(record: type) -> list[str]:
    """Return the columns of a record's flat row."""
    return list(_getters(record))


def flat_values(record: Any) -> dict[str, Any]:
    """Return a record's flat row, by column."""
    kind: type = type(record)
    return {column: value_of(record) for column, value_of in _getters(kind).items()}


@cache
def _getters(record: type) -> Mapping[str, Callable[[Any], Any]]:
    """Return the getter of each column."""
    getters: dict[str, Callable[[Any], Any]] = {}
    for f in dataclasses.fields(record):
        if f.name == "metrics":  # as many as were logged: they have lines of their own
            continue
        if f.name in _PARTS:
            prefix, part = _PARTS[f.name]
            getters |= {f"{prefix}{g.name}": attrgetter(f"{f.name}.{g.name}") for g in dataclasses.fields(part)}
        else:
            getters[f.name] = attrgetter(f.name)
    return getters


# -- ``summary.csv`` as a record, by a table: of ten thousand runs it is most of what is read --


def _maybe_amount(text: str) -> float | None:
    return amount(text) if text else None


def _maybe_count(text: str) -> int | None:
    return count(text) if text else None


def _pue(text: str) -> float:
    value = amount(text)
    if value < 1:
        raise ValueError(f"a PUE of {text}: there is none below 1")
    return value


def _exit_code(text: str) -> int | None:
    return int(text) if text else None  # negative: the number of a signal


def _flags(text: str) -> frozenset[str]:
    return frozenset(text.split())


_READ: Mapping[str, Callable[[str], Any]] = {
    **dict.fromkeys(("run_id", "project", "status", "started_at", "ended_at", "cost_basis"), str),
    **dict.fromkeys(("epochs_planned", "steps", "batches", "samples", "tokens"), _maybe_count),
    **dict.fromkeys(("epochs_done", "gpu_count", "n_ranks", "n_nodes"), count),
    **dict.fromkeys(("duration_s", "epochs_duration_s", "metered_s", "gpu_hours"), amount),
    **dict.fromkeys(("cpu_method", "gpu_method", "ram_method"), _methods),
    "cost_usd": lambda text: finite(text) if text else None,  # at prices of an exchange it may be negative
    "pue": _pue,
    "carbon_intensity_gco2e_per_kwh": amount,
    "exit_code": _exit_code,
    "flags": _flags,
}
_COLUMNS = flat_columns(RunSummary)
_READERS = [_READ.get(column, _maybe_amount) for column in _COLUMNS]
_summary_cells_of = itemgetter(*_COLUMNS)
_NOT_IN_OLDER = {"node_assumed_kwh": ""}
_COUNTS_AT, _ENERGY_AT = _COLUMNS.index("steps"), _COLUMNS.index("cpu_kwh")  # parts of the record, flat in the file


def summary_from_lines(lines: Sequence[Sequence[str]]) -> RunSummary:
    """Return the summary that the lines of ``summary.csv`` hold; each begins with its field and value.

    Raises:
        LogError: where a field is missing or is not what it should be.
    """
    try:
        cells = _summary_cells_of(_NOT_IN_OLDER | {line[0]: line[1] for line in lines})
        v: list[Any] = [read(cell) for read, cell in zip(_READERS, cells, strict=True)]
    except KeyError as error:
        raise LogError(f"{SUMMARY_FILE}: no line for {error.args[0]}") from error
    except ValueError as error:
        raise LogError(f"{SUMMARY_FILE}: {error}") from error
    counts, energy = slice(_COUNTS_AT, _COUNTS_AT + 4), slice(_ENERGY_AT, _ENERGY_AT + 6)
    v[energy] = [Energy(*v[energy])]  # the later one first, so that the other stays where it is
    v[counts] = [Counts(*v[counts])]
    v.append(_metrics_from_lines([line for line in lines if line[0].startswith(_METRIC)]))
    return RunSummary(*v)


# -- The metrics of a run, each in six lines of ``summary.csv`` --

_METRIC = "metric."
_METRIC_PARTS: Mapping[str, Callable[[str], Any]] = {
    "last": any_number,
    "best": lambda text: None,  # follows from the others
    "lowest": lambda text: finite(text) if text else None,
    "highest": lambda text: finite(text) if text else None,
    "n_values": count,
    "higher_is_better": lambda text: {"yes": True, "no": False}.get(text),
}


def _metric_fields(metric: MetricSummary) -> list[Field]:
    values = (repr(metric.last), *map(cell, (metric.best, metric.lowest, metric.highest, metric.n_values)))
    cells = (*values, cell(metric.higher_is_better))
    return [Field(f"{_METRIC}{metric.name}.{part}", text) for part, text in zip(_METRIC_PARTS, cells, strict=True)]


def _metrics_from_lines(lines: Sequence[Sequence[str]]) -> tuple[MetricSummary, ...]:
    """Return the metrics in their lines of ``summary.csv``.

    Raises:
        LogError: where one is damaged.
    """
    found: dict[str, dict[str, Any]] = {}
    for line in lines:
        name, _, part = line[0].removeprefix(_METRIC).rpartition(".")
        if part in _METRIC_PARTS:
            try:
                found.setdefault(name, {})[part] = _METRIC_PARTS[part](line[1])
            except ValueError as error:
                raise LogError(f"{SUMMARY_FILE}: {line[0]}: {error}") from error
    metrics = []
    for name, parts in found.items():
        parts.pop("best", None)
        if len(parts) < len(_METRIC_PARTS) - 1:
            raise LogError(f"{SUMMARY_FILE}: metric {name} is not complete")
        metrics.append(MetricSummary(name, **parts))
    return tuple(metrics)


def contradiction(summary: RunSummary) -> str:
    """Return which of the totals are not made of one another, as they were when they were written; empty: none."""
    try:
        return _contradiction(summary)
    except OverflowError:
        return "a number in it is too large"


def _contradiction(s: RunSummary) -> str:
    before_pue_kwh, energy_kwh = s.before_pue_kwh, s.energy_kwh
    if before_pue_kwh is not None and not _are_close(before_pue_kwh * s.pue, energy_kwh):
        return "energy_kwh is not the energy of its components"
    if energy_kwh is not None:
        emissions_kgco2e = energy_kwh * s.carbon_intensity_gco2e_per_kwh / GRAMS_PER_KG
        if not _are_close(emissions_kgco2e, s.emissions_kgco2e):
            return "emissions_kgco2e is not energy times carbon intensity"
    if not _are_close(s.gpu_count * h_from_s(s.duration_s), s.gpu_hours):
        return "gpu_hours is not the time of its GPUs"
    return ""
