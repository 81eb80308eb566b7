"""Damaged logs of three tools: none may crash or hang the reader, and no number of a damaged row goes unnoticed.

    nice -n 15 python benchmarks/fuzz_logs.py [--inputs 100000] [--seed 0] [--keep DIR] [--into PAGE]

The logs of ``tests/recorded`` (ours, carbontracker's and CodeCarbon's; ours also with forecasts and trials) are damaged
again and again, one to three times each, and everything is read that reports read. An input fails where

- anything but an error of ours, by name, comes out of the reader (a crash);
- reading it takes over a second of this process's time (a hang);
- a row is read that is not in the undamaged log and whose line does not fit the file's grammar, and nothing is said of
  it: no problem, no flag (an unnoticed number). The grammar is written down here once more, without the reader's code.

A digit that becomes another digit fits every grammar. It is found where the log says a thing twice (a total and its
components); where it says it once, nobody can find it. How many of those there were is counted as "plausible".
"""

from __future__ import annotations

import argparse
import csv
import io
import math
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from scoring import markdown, told

from greenlove_tracker import read_logs
from greenlove_tracker.extrapolation.explorations import exploration_of, explored_plan, has_trials
from greenlove_tracker.logs import schema
from greenlove_tracker.logs.forecasts import headline, scored_forecasts
from greenlove_tracker.logs.run import Run
from greenlove_tracker.vocabulary.errors import GreenloveError
from greenlove_tracker.vocabulary.records import Method, RowKind

RECORDED = Path(__file__).parents[1] / "tests" / "recorded"
BEGIN, END = "<!-- fuzzed logs begin -->", "<!-- fuzzed logs end -->"
HANG_S = 1.0
_ROWS = 6  # of a recorded run: enough for every kind of damage


# -- the undamaged logs --


@dataclass(frozen=True)
class Seed:
    """An undamaged log.

    Attributes:
        tool: that wrote it.
        files: its content by the path below its directory.
    """

    tool: str
    files: Mapping[str, bytes]


def seeds() -> list[Seed]:
    """Return the logs that are damaged."""
    return [*_own_seeds(), *_foreign_seeds()]


def _own_seeds() -> Iterator[Seed]:
    """Yield recorded runs of ours, cut to some rows, with a summary and without; and one with forecasts and trials."""
    with tempfile.TemporaryDirectory() as made:
        with zipfile.ZipFile(RECORDED / "cpu-trainings.zip") as archive:
            names = sorted({name.split("/")[0] for name in archive.namelist() if "/" in name})
            for run_id in (names[0], names[len(names) // 2]):
                archive.extractall(made, [n for n in archive.namelist() if n.startswith(run_id)])
                directory = Path(made, run_id)
                rows = (directory / "epochs-0.csv").read_bytes().splitlines(keepends=True)
                (directory / "epochs-0.csv").write_bytes(b"".join(rows[: _ROWS + 1]))
                run = Run(directory)
                summary = schema.summary_fields(replace(run.added_up(), gpu_count=2, gpu_hours=2 * _hours(run)))
                _write(directory / "summary.csv", schema.RUN_COLUMNS, [[f.name, f.value, f.unit] for f in summary])
                files = {f"{run_id}/{p.name}": p.read_bytes() for p in directory.iterdir()}
                yield Seed("ours", files)
                yield Seed("ours", {name: data for name, data in files.items() if "summary" not in name})
        yield Seed("ours", {**files, **_with_forecasts(f"{run_id}/")})


def _hours(run: Run) -> float:
    return run.added_up().duration_s / 3600


def _with_forecasts(folder: str) -> dict[str, bytes]:
    """Return the files of a run that was forecast, and of an exploration, as the writer writes them."""
    from greenlove_tracker.logs.tables import FORECASTS, TRIALS, IssuedForecast, TrialRow
    from greenlove_tracker.vocabulary.forecasting import Estimate

    estimates = {
        "duration_s": Estimate(100.0, 90.0, 115.0, 0.95, "s"),
        "energy_kwh": Estimate(0.02, 0.018, 0.024, 0.95, "kWh"),
    }
    issued = [
        IssuedForecast(f"2026-11-21T08:1{n}:00.000Z", 10.0 * n, n, 5 * n, 40, "local level", estimates, 130.0)
        for n in (2, 3, 4)
    ]
    times = [(n, epoch, n * factor) for n in (1, 2, 4) for epoch, factor in enumerate((0.01, 0.011, 0.0105), 1)]
    trials = [TrialRow(n, epoch, 64 * n, 32, duration_s, 1e-6 * n) for n, epoch, duration_s in times]
    return {
        f"{folder}forecasts.csv": FORECASTS.lines(issued),
        f"{folder}trials.csv": TRIALS.lines(trials),
    }


def _write(file: Path, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([columns, *rows])
    file.write_text(text.getvalue())


def _foreign_seeds() -> Iterator[Seed]:
    logs = [
        *(RECORDED / "foreign" / "carbontracker").glob("*.log"),
        *RECORDED.glob("carbontracker-releases/*.[146]/*.log"),
    ]
    by_run: dict[Path, dict[str, bytes]] = {}
    for file in sorted(logs):
        if not file.name.endswith("_err.log"):
            run = file.with_name(file.name.partition("_carbontracker")[0])
            by_run.setdefault(run, {})[file.name] = file.read_bytes()
    yield from (Seed("carbontracker", files) for files in by_run.values())
    for file in sorted((RECORDED / "foreign").glob("codecarbon*/*.csv")):
        yield Seed("CodeCarbon", {file.name: file.read_bytes()})
    yield from (Seed("CodeCarbon", {"emissions.csv": data}) for data in _codecarbon_history())


_COLUMNS_1 = (
    *("timestamp", "project_name", "duration", "emissions", "energy_consumed", "country_name", "country_iso_code"),
    *("region", "on_cloud", "cloud_provider", "cloud_region"),
)
_NONE_ON_A_CPU = ("gpu_count", "gpu_model")


def _codecarbon_history() -> Iterator[bytes]:
    """Yield a recorded file as 1.x would have written it, without names of runs, as Excel saves it, and twice in one.

    The last is of 3.2.9, which appends rows without the cells that are None.
    """
    text = (RECORDED / "foreign" / "codecarbon" / "emissions.csv").read_text()
    rows = list(csv.DictReader(io.StringIO(text)))
    yield _table(rows, _COLUMNS_1)
    yield _table([row | {"run_id": ""} for row in rows], rows[0])
    yield _table([{name: _with_comma(cell) for name, cell in row.items()} for row in rows], rows[0], ";")
    yield _table(rows, rows[0], "\t").decode().encode("utf-16")
    yield text.encode() * 2
    whole = _table(rows, rows[0]).decode()
    short = _table(rows, [name for name in rows[0] if name not in _NONE_ON_A_CPU]).decode().partition("\n")[2]
    yield (whole + short.replace(rows[0]["run_id"], "r2")).encode()


def _with_comma(cell: str) -> str:
    return cell.replace(".", ",") if _NUMBER.fullmatch(cell) else cell


def _table(rows: Sequence[Mapping[str, str]], columns: Iterable[str], delimiter: str = ",") -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(columns), extrasaction="ignore", delimiter=delimiter, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


# -- damage --

_HOSTILE = (
    *b"nan -nan inf -inf 1e400 -1 -0.5 0 1_0 0x10 1,5 1e308 None true =1+1 1.5.2 -- +3 1e-3".split(),
    *(b"", b" 5", b"5 ", b"\xd9\xa3", b"\xff\xfe", b"\x00", b"9" * 400, b'"', b'""', b"\r"),
)
Damage = Callable[[random.Random, bytearray], None]


def _flip_bit(chance: random.Random, data: bytearray) -> None:
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _set_byte(chance: random.Random, data: bytearray) -> None:
    data[chance.randrange(len(data))] = chance.randrange(256)


def _change_digit(chance: random.Random, data: bytearray) -> None:
    places = [m.start() for m in re.finditer(rb"[0-9]", data)]
    if places:
        data[chance.choice(places)] = chance.choice(b"0123456789")


def _drop_bytes(chance: random.Random, data: bytearray) -> None:
    begin = chance.randrange(len(data))
    del data[begin : begin + chance.choice((1, 1, 1, 2, 5, 40, 500))]


def _insert_bytes(chance: random.Random, data: bytearray) -> None:
    begin = chance.randrange(len(data) + 1)
    data[begin:begin] = bytes(chance.choice(b'0123456789.,-e"_ \n\r:;x[]') for _ in range(chance.choice((1, 1, 1, 3))))


def _cut_off(chance: random.Random, data: bytearray) -> None:
    del data[chance.randrange(len(data)) :]


def _zero_block(chance: random.Random, data: bytearray) -> None:
    begin = chance.randrange(len(data))
    end = min(len(data), begin + chance.choice((1, 16, 512)))
    data[begin:end] = bytes(end - begin)


def _lines_of(data: bytearray) -> list[bytes]:
    return bytes(data).splitlines(keepends=True)


def _drop_line(chance: random.Random, data: bytearray) -> None:
    lines = _lines_of(data)
    del lines[chance.randrange(len(lines))]
    data[:] = b"".join(lines)


def _repeat_line(chance: random.Random, data: bytearray) -> None:
    lines = _lines_of(data)
    lines.insert(chance.randrange(len(lines)), chance.choice(lines))
    data[:] = b"".join(lines)


def _swap_lines(chance: random.Random, data: bytearray) -> None:
    lines = _lines_of(data)
    a, b = chance.randrange(len(lines)), chance.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    data[:] = b"".join(lines)


def _cut_line(chance: random.Random, data: bytearray) -> None:
    lines = _lines_of(data)
    at = chance.randrange(len(lines))
    lines[at] = lines[at][: chance.randrange(len(lines[at]) + 1)] + chance.choice((b"", b"\n"))
    data[:] = b"".join(lines)


def _cells_of(line: bytes) -> list[bytes]:
    return line.rstrip(b"\n").split(b"," if b"," in line else b" ")


def _replace_cell(chance: random.Random, data: bytearray) -> None:
    lines = _lines_of(data)
    at = chance.randrange(len(lines))
    cells, comma = _cells_of(lines[at]), b"," if b"," in lines[at] else b" "
    cells[chance.randrange(len(cells))] = chance.choice(_HOSTILE)
    lines[at] = comma.join(cells) + b"\n"
    data[:] = b"".join(lines)


def _swap_cells(chance: random.Random, data: bytearray) -> None:
    lines = _lines_of(data)
    at = chance.randrange(len(lines))
    cells, comma = _cells_of(lines[at]), b"," if b"," in lines[at] else b" "
    a, b = chance.randrange(len(cells)), chance.randrange(len(cells))
    cells[a], cells[b] = cells[b], cells[a]
    lines[at] = comma.join(cells) + b"\n"
    data[:] = b"".join(lines)


def _as_windows(chance: random.Random, data: bytearray) -> None:
    data[:] = chance.choice((b"\xef\xbb\xbf", b"", b"\xff\xfe")) + bytes(data).replace(
        b"\n", chance.choice((b"\r\n", b"\r"))
    )


DAMAGES: Mapping[str, Damage] = {
    "a bit flipped": _flip_bit,
    "a byte set": _set_byte,
    "a digit changed": _change_digit,
    "bytes lost": _drop_bytes,
    "bytes added": _insert_bytes,
    "the file cut off": _cut_off,
    "a block of zeros": _zero_block,
    "a line lost": _drop_line,
    "a line twice": _repeat_line,
    "lines swapped": _swap_lines,
    "a line cut": _cut_line,
    "a hostile cell": _replace_cell,
    "cells swapped": _swap_cells,
    "line ends, byte order": _as_windows,
}


def damaged(chance: random.Random, data: bytes) -> tuple[bytes, str]:
    """Return a damaged file, and the name of the first damage."""
    changed, first = bytearray(data), ""
    for _ in range(chance.choice((1, 1, 1, 1, 2, 3))):
        name = chance.choice(_NAMES)
        first = first or name
        if changed:
            DAMAGES[name](chance, changed)
    return bytes(changed), first


_NAMES = list(DAMAGES)


# -- reading everything that reports read --


@dataclass(frozen=True)
class Reading:
    """Everything that was read of a log.

    Attributes:
        rows: of all runs.
        totals: of all runs: duration, energy, emissions.
        n_problems: that were named.
        flags: of the rows and totals; ``interrupted`` where the end is missing.
    """

    rows: tuple[object, ...]
    totals: tuple[object, ...]
    n_problems: int
    flags: frozenset[str]


def read(directory: Path) -> Reading:
    """Read a log as reports do."""
    logs = read_logs(directory)
    rows: list[object] = []
    totals: list[object] = []
    flags = set[str]()
    for run in logs.readable():
        try:
            rows += _read_run(run, totals, flags)
        except GreenloveError as error:  # by name, as the verbs of the command line show it
            run.refuse(error)
        if run.problems:
            flags.add("problem")
    flags |= {problem.message for problem in logs.problems}  # one may count the lines that it is of
    return Reading(tuple(rows), tuple(totals), len(logs.problems), frozenset(flags))


def _read_run(run: Run, totals: list[object], flags: set[str]) -> list[object]:
    summary = run.summary
    rows: list[object] = [row for rank in run.rows.values() for row in rank]
    for rank in run.rows:
        for epoch in run.epochs_of(rank):
            flags |= epoch.flags
    rows += [*run.forecasts, *run.trials]
    flags |= summary.flags
    flags.add(str(summary.status))
    totals.append((summary.duration_s, summary.energy_kwh, run.emissions_kgco2e, summary.cost_usd, summary.epochs_done))
    _ = headline(scored_forecasts(run)), run.gpu_mean_w, run.is_complete, run.title(), has_trials(run)
    _ = run.carbon_intensity, run.electricity_price, run.knows_carbon_intensity, run.knows_gpu_count, run.started_at
    _ = run.metered_rows, run.added_up(), run.run_id, summary.between_s, summary.measured_share
    if run.is_exploration:
        _ = exploration_of(run), explored_plan(run)
    return rows


# -- the grammar of each file, without the reader's code --

_NUMBER = re.compile(r"(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d{1,3})?", re.ASCII)
_WHOLE = re.compile(r"\d{1,18}", re.ASCII)
_METHODS = {m.value for m in Method}
_EPOCH_KINDS = {k.value for k in RowKind}


def _is_amount(text: str) -> bool:
    text = text.strip()
    return not text or (_NUMBER.fullmatch(text) is not None and math.isfinite(float(text)))


def _is_sum(total: str, parts: Sequence[str]) -> bool:
    known = [float(part) for part in parts if part]
    if not known or not total:
        return not known and not total
    return math.isclose(float(total), math.fsum(known), rel_tol=1e-6, abs_tol=1e-15)


def _is_own_row(cells: Mapping[str, str]) -> bool:
    """Return True for a row of ``epochs-<rank>.csv`` in which nothing contradicts itself."""
    names = [n for n in cells if n.endswith(("_kwh", "_s", "_gco2e"))]
    if cells["kind"] not in _EPOCH_KINDS or not all(_is_amount(cells[n]) for n in names):
        return False
    counts = ("epoch", "steps", "batches", "samples", "tokens")
    if not all(not cells[n] or _WHOLE.fullmatch(cells[n]) for n in counts):
        return False
    methods = {word for n in cells if n.endswith("_method") for word in cells[n].split("+") if word}
    sums = [("energy_kwh", ""), ("gap_before_kwh", "gap_before_")]
    are_sums = all(_is_sum(cells[total], [cells[f"{p}{c}_kwh"] for c in ("cpu", "gpu", "ram")]) for total, p in sums)
    return bool(cells["duration_s"] and cells["gap_before_s"]) and methods <= _METHODS and are_sums


def _key(row: object) -> tuple[object, ...]:
    """Return the numbers of a row that was read."""
    names = ("epoch", "duration_s", "gap_before_s")
    energies = [getattr(row, n, None) for n in ("energy", "gap_before")]
    parts = [getattr(e, f"{c}_kwh", None) for e in energies for c in ("cpu", "gpu", "ram")]
    return (*(getattr(row, n, None) for n in names), *parts)


def _own_keys(data: bytes) -> set[tuple[object, ...]]:
    """Return the numbers of all rows of a file of ours that fit the grammar."""
    keys = set()
    lines = re.split(r"\r\n|\n|\r", data.decode("utf-8", "replace").removeprefix("\ufeff"))
    header = _cells(lines[0])
    if not set(header) >= set(schema.EPOCHS.least):
        return keys
    for line in lines[1:]:
        cells = _cells(line)
        row = dict(zip(reversed(header), reversed(cells), strict=False))  # of a name that is there twice, the first
        if len(cells) == len(header) and _is_own_row(row):
            number = [float(row[n]) if row[n] else None for n in ("duration_s", "gap_before_s")]
            parts = [
                float(row[f"{p}{c}_kwh"]) if row[f"{p}{c}_kwh"] else None
                for p in ("", "gap_before_")
                for c in ("cpu", "gpu", "ram")
            ]
            keys.add((int(row["epoch"]) if row["epoch"] else None, *number, *parts))
    return keys


def unnoticed(seed: Seed, name: str, data: bytes, before: Reading, after: Reading) -> str:
    """Return why a number went unnoticed; empty where none did, ``plausible`` where nobody can notice it.

    Args:
        seed: the undamaged log.
        name: the file that was damaged.
        data: its content now.
        before: the undamaged log as it was read.
        after: the damaged one.
    """
    if (after.rows, after.totals) == (before.rows, before.totals):
        return ""
    if seed.tool == "ours" and name.rpartition("/")[2].startswith("epochs-"):
        known, fitting = set(map(_key, before.rows)), None
        for row in after.rows:
            key = _key(row)
            if key[1] is not None and key not in known:
                fitting = _own_keys(data) if fitting is None else fitting
                if key not in fitting:
                    return f"a row that does not fit the grammar was read: {key}"
    if after.n_problems > before.n_problems or after.flags - before.flags:
        return ""
    misfits = misfit_lines(seed, name, data) if after.rows else []  # else nothing of it is used
    return f"{_CHANGED}: {misfits[0]}" if misfits else "plausible"


_CHANGED = "numbers changed, and nothing was said"


def misfit_lines(seed: Seed, name: str, data: bytes) -> list[str]:
    """Return the changed lines that do not fit their grammar; a heading that does not, alone."""
    ends = r"\r\n|\n|\r" if seed.tool == "ours" else r"\r?\n"
    old = set(re.split(ends, _text(seed.files[name])))
    fits = {"ours": _fits_own, "carbontracker": _fits_carbontracker, "CodeCarbon": _fits_codecarbon}[seed.tool]
    lines = re.split(ends, _text(data))
    header = _cells(lines[0])
    if seed.tool != "carbontracker" and lines[0] not in old:  # columns in another order are a table all the same
        columns = _cells(_text(seed.files[name]).partition("\n")[0])
        header = [name.strip().lower() for name in header]
        if sorted(header) != sorted(columns):
            return lines[:1]
        lines = lines[1:]
    return [line for line in lines if line and line not in old and not fits(line, header, name)]


def _is_unused(seed: Seed, directory: Path, name: str, data: bytes, reading: Reading) -> bool:
    """Return True where the numbers do not come from the lines that do not fit: without those they are the same."""
    misfits = set(misfit_lines(seed, name, data))
    lines = _text(data).splitlines(keepends=True)
    (directory / name).write_bytes("".join(line for line in lines if line.rstrip("\r\n") not in misfits).encode())
    again = read(directory)
    (directory / name).write_bytes(data)
    return (again.rows, again.totals) == (reading.rows, reading.totals)


def _text(data: bytes) -> str:
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    return data.decode(encoding, "replace").removeprefix("\ufeff")


def _cells(line: str) -> list[str]:
    delimiter = max(",;\t", key=line.count)
    if delimiter == "," and line.count(";") > 10:  # more commas are of its numbers
        delimiter = ";"
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []


def _fits_own(line: str, header: Sequence[str], name: str) -> bool:
    cells = _cells(line)
    file = name.rpartition("/")[2]
    if len(cells) != len(header):
        return False
    row = dict(zip(header, cells, strict=True))
    if file.startswith("epochs-"):
        return _is_own_row(row)
    if file in ("forecasts.csv", "trials.csv"):
        words = ("issued_at", "method", "warnings")
        return all(_is_amount(v) for n, v in row.items() if n not in words)
    numeric: tuple[str, ...] = ("pue", "carbon_intensity", "electricity_price", "price_usd_per_gpu_hour", "gpu_count")
    if file == schema.SUMMARY_FILE:
        numeric += ("_s", "_kwh", "_usd", "_kgco2e", "_gco2e_per_kwh", "hours", "_done")
    number = cells[1].removeprefix("-") if cells[0] == "cost_usd" else cells[1]  # a price may be below zero
    return not cells[0].endswith(numeric) or _is_amount(number)


_STAMP = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d+)? - ([\w -]+ - [A-Z]+ - )?"
_POWER = r"(\d[\d.]*(e[+-]\d\d)?|None|nan)"
_POWERS = rf"({_POWER}|\[ *{_POWER}([ ,]+{_POWER})* *\]|\[\[{_POWER}(, {_POWER})*\](, \[{_POWER}(, {_POWER})*\])*\])"
_DURATION = r"\d{1,7}:[0-5]\d:[0-5]?\d(\.\d+)?"
_CARBONTRACKER = re.compile(
    "|".join(
        (
            rf"{_STAMP}Epoch \d{{1,9}}(: ?| started\.| ended\.)",
            rf"{_STAMP}Duration: {_DURATION}",
            rf"{_STAMP}(Average power usage|Power usages)( \(W\))? for \w+: {_POWERS}\.?",
            rf"{_STAMP}.*PUE coefficient of \d+(\.\d+)?( \(.*\))?\.?",
            rf"{_STAMP}Average carbon intensity during training was \d+(\.\d+)? gCO2(eq)?/kWh.*",
            rf"{_STAMP}(CarbonTracker: )?(Carbo|Live|Current).*",  # the place, and an intensity
            rf"{_STAMP}(CarbonTracker:)? ?(Monitoring|carbontracker|The|Carbon|Training|Session|Finished|Average).*",
            r"(Actual|Predicted) consumption( for \d+ epoch(\(s\)|s)?)?:?",
            r"(First|Prediction for) \d+ epoch\(s\):",
            rf"\tTime:\s{_DURATION}( s)?",
            r"\tEnergy:\s\d+(\.\d+)?([eE]-?\d+)? kWh",
            r"\tCO2eq:\s\d+(\.\d+)?([eE]-?\d+)? g",
            r"\t\d[\d.]* \S.*",
            r"\tThis is equivalent to:",
        )
    ),
    re.ASCII,
)


def _fits_carbontracker(line: str, header: Sequence[str], name: str) -> bool:
    message = line.partition(" - ")[2] or line
    return (
        not re.search(r"\d", message) or _CARBONTRACKER.fullmatch(line.rstrip()) is not None
    )  # without a digit: no number


def _fits_codecarbon(line: str, header: Sequence[str], name: str) -> bool:
    cells = _cells(line)
    if len(cells) == len(header) - len(_NONE_ON_A_CPU) and "cpu_energy" in header:
        cells = [*cells[: header.index("region")], *[""] * len(_NONE_ON_A_CPU), *cells[header.index("region") :]]
    if sorted(cells) == sorted(header):  # a file may have several headers
        return True
    if len(cells) != len(header):
        return False
    row = dict(zip(header, cells, strict=True))
    if line.count(";") > 10:
        row = {name: text.replace(",", ".") for name, text in row.items()}
    names = ("duration", "emissions", "cpu_energy", "gpu_energy", "ram_energy", "energy_consumed", "pue")
    row = {
        n: "" if text.strip().lower() in ("nan", "none") else text for n, text in row.items()
    }  # CodeCarbon's unknown
    if not all(_is_amount(row.get(n, "")) for n in names):
        return False
    parts = [row.get(f"{c}_energy", "") for c in ("cpu", "gpu", "ram")]
    total = row.get("energy_consumed", "")
    if not all((*parts, total)):
        return True
    is_rounded = any(re.match(r"\d(\.\d\d?)?[eE]", text) for text in (*parts, total))  # 1.23E-05, as Excel saves it
    rel_tol = 6e-3 if is_rounded else 1e-3
    return math.isclose(float(total), math.fsum(map(float, parts)), rel_tol=rel_tol, abs_tol=1e-12)


# -- the run --


@dataclass
class Tally:
    """The inputs of one tool, counted.

    Attributes:
        inputs: that were read.
        unchanged: of which everything was read as before.
        noticed: of which numbers changed, and a problem, a flag or a refusal says so.
        plausible: of which numbers changed to others that fit: nobody can notice.
        failures: crashes, hangs and unnoticed numbers, by what went wrong.
        slowest_s: the longest reading.
    """

    inputs: int = 0
    unchanged: int = 0
    noticed: int = 0
    plausible: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    examples: dict[str, tuple[str, str]] = field(default_factory=dict)
    slowest_s: float = 0.0

    def count(self, kind: str) -> int:
        """Return the failures of one kind."""
        return sum(n for text, n in self.failures.items() if text.startswith(kind))


class _HangError(BaseException):
    """Reading took too long."""


def _on_alarm(number: int, frame: object) -> None:
    raise _HangError


def fuzz(n_inputs: int, seed: int, keep: Path | None = None) -> dict[str, Tally]:
    """Damage and read logs.

    Args:
        n_inputs: to read.
        seed: of the random damage.
        keep: a directory for the inputs that fail.
    """
    chance, tallies = random.Random(seed), dict[str, Tally]()
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # in memory: no disk is worn out
    before = signal.signal(signal.SIGVTALRM, _on_alarm)
    with tempfile.TemporaryDirectory(dir=shared) as made:
        places = [_lay_out(log, Path(made, str(n))) for n, log in enumerate(seeds())]
        for _ in range(n_inputs):
            log, directory, undamaged = chance.choice(places)
            tally = tallies.setdefault(log.tool, Tally())
            name = chance.choice(list(log.files))
            data, damage = damaged(chance, log.files[name])
            (directory / name).write_bytes(data)
            tally.inputs += 1
            failure = _try(log, directory, name, data, undamaged, tally)
            if failure:
                tally.failures[failure.partition(":")[0]] += 1
                tally.examples.setdefault(failure.partition(":")[0], (f"{damage} in {name}", failure))
                if keep is not None:
                    shutil.copytree(directory, keep / f"{log.tool}-{sum(tally.failures.values())}", dirs_exist_ok=True)
            (directory / name).write_bytes(log.files[name])
    signal.signal(signal.SIGVTALRM, before)
    return tallies


def _lay_out(log: Seed, directory: Path) -> tuple[Seed, Path, Reading]:
    for name, data in log.files.items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return log, directory, read(directory)


def _try(log: Seed, directory: Path, name: str, data: bytes, undamaged: Reading, tally: Tally) -> str:
    """Read a damaged log and count it; return what went wrong."""
    begun_s = time.process_time()
    signal.setitimer(signal.ITIMER_VIRTUAL, 5 * HANG_S)
    try:
        reading = read(directory)
    except _HangError:
        return "hang: still reading after 5 s"
    except Exception as error:  # everything that the reader lets through is a crash
        return f"crash of {type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        took_s = time.process_time() - begun_s
        tally.slowest_s = max(tally.slowest_s, took_s)
    if took_s > HANG_S:
        return f"hang: {took_s:.1f} s"
    verdict = unnoticed(log, name, data, undamaged, reading)
    if verdict.startswith(_CHANGED) and _is_unused(log, directory, name, data, reading):
        verdict = "plausible"
    if not verdict and (reading.rows, reading.totals) == (undamaged.rows, undamaged.totals):
        tally.unchanged += 1
    elif not verdict:
        tally.noticed += 1
    elif verdict == "plausible":
        tally.plausible += 1
    else:
        return f"unnoticed: {verdict}"
    return ""


COLUMNS = [
    "logs of",
    "inputs",
    "read as before",
    "changed, and said",
    "plausible",
    "crashes",
    "hangs",
    "unnoticed",
    "slowest",
]


def report(tallies: Mapping[str, Tally]) -> str:
    """Return the table."""
    rows = []
    for tool, t in sorted(tallies.items()):
        failures = [str(t.count(kind)) for kind in ("crash", "hang", "unnoticed")]
        counts = [f"{n:,}" for n in (t.inputs, t.unchanged, t.noticed, t.plausible)]
        rows.append([tool, *counts, *failures, f"{t.slowest_s * 1000:.0f} ms"])
    n_inputs = sum(t.inputs for t in tallies.values())
    n_failed = sum(sum(t.failures.values()) for t in tallies.values())
    return f"{n_inputs:,} damaged logs, {n_failed} failures.\n\n{markdown(COLUMNS, rows)}"


def main() -> None:
    """Damage and read logs, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="a directory for the inputs that fail")
    parser.add_argument("--into", type=Path, help="the page to put the table into")
    arguments = parser.parse_args()
    tallies = fuzz(arguments.inputs, arguments.seed, arguments.keep)
    told(report(tallies), arguments.into, BEGIN, END)
    for tool, tally in tallies.items():
        for text, (where, what) in tally.examples.items():
            print(f"{tool}: {tally.failures[text]} × {what[:600]} ({where})", file=sys.stderr)
    if any(tally.failures for tally in tallies.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
