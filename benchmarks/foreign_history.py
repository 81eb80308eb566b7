"""What is read of other tools' logs, beside what their files say by themselves.

    python benchmarks/foreign_history.py DIR

Adds up the last reading of each run in all files of CodeCarbon and carbontracker under DIR, without the package's
readers: pandas reads the tables, two patterns the logs. Beside it stands what the package reads. Each file of which
another sum was read is listed with what the package says of it. It fails where it says nothing of one.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pandas as pd

from greenlove_tracker import read_logs
from greenlove_tracker.logs.directory import is_readable

QUANTITIES = ("s", "kWh", "kgCO2e")
KNOWN_BY = {"emissions", "energy_consumed", "cpu_energy", "gpu_energy", "country_iso_code", "on_cloud"}
ROUNDING = {"CodeCarbon": 1e-9, "carbontracker": 0.02}  # as a share: carbontracker rounds powers and durations
WHOLE_S = 1.0  # in which carbontracker gives the time of a run
CLOCK_S = 3  # rows of a run without a name give its start in whole seconds
TIME = r"(?:(\d+) days?, )?(\d+):(\d\d):(\d\d(?:\.\d+)?)"
NUMBER = r"\d+(?:\.\d+)?(?:e[+-]?\d+)?"
CONSUMED = re.compile(
    rf"Actual consumption.*\n\s*Time:\s+{TIME}\s*\n\s*Energy:\s+({NUMBER}) kWh\s*\n\s*CO2eq:\s+({NUMBER}) g"
)


@dataclass(frozen=True)
class Said:
    """What a file says of one run.

    Attributes:
        tool: that wrote it.
        file: that the package has to name where it reads something else.
        amounts: ``QUANTITIES``; NaN where it does not say.
    """

    tool: str
    file: Path
    amounts: tuple[float, float, float]


# -- What the files say --


def text_of(file: Path) -> str:
    """Return a file as text, in the encodings that Excel saves."""
    data = file.read_bytes()
    if b"\0" in data[:2] or data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16" if b"\0" not in data[:1] else "utf-16-be", "replace").removeprefix("\ufeff")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")


def tables_of(text: str) -> Iterator[pd.DataFrame]:
    """Yield the tables of CodeCarbon in a text, one for each header."""
    lines = [line for line in text.splitlines() if line.strip(",;\t ")]
    heads = [n for n, line in enumerate(lines) if len(KNOWN_BY & set(re.split(r"[\s,;\"]+", line.lower()))) >= 3]
    for begin, end in zip(heads, [*heads[1:], len(lines)], strict=bool(heads)):
        delimiter = max(",;\t", key=lines[begin].count)
        table = pd.read_csv(StringIO("\n".join(lines[begin:end])), sep=delimiter, dtype=str, on_bad_lines="skip")
        table.columns = [str(name).strip().lower() for name in table.columns]
        yield table.apply(lambda column: column.str.strip()).replace({"": None, "nan": None, "None": None})


def numbers(table: pd.DataFrame, column: str) -> pd.Series:
    """Return a column as numbers."""
    if column not in table:
        return pd.Series(math.nan, table.index)
    return pd.to_numeric(table[column].str.replace(",", "."), errors="coerce")


def codecarbon(files: list[Path]) -> list[Said]:
    """Return the last reading of each run, which may stand in several files.

    With tasks, CodeCarbon gives the time of the last of them as that of the run: it took at least all together.
    """
    rows = []
    tasks_s: dict[str, dict[tuple[str, ...], float]] = defaultdict(dict)
    for file in files:
        for table in tables_of(text_of(file)):
            if "timestamp" not in table or "duration" not in table:
                continue
            if "task_name" in table:
                for row, duration_s in zip(table.itertuples(index=False), numbers(table, "duration"), strict=True):
                    tasks_s[row.run_id][row.task_name, row.timestamp, row.duration] = duration_s
                continue
            name = table.get("run_id", table.get("experiment_id", pd.Series(None, table.index, dtype=object)))
            frame = pd.DataFrame({"name": name, "project": table.get("project_name"), "file": file})
            frame["s"] = numbers(table, "duration")
            frame["kWh"] = numbers(table, "energy_consumed")
            frame["kgCO2e"] = numbers(table, "emissions")
            ended = pd.to_datetime(table["timestamp"], errors="coerce", format="ISO8601")
            frame["began"] = (ended - pd.to_timedelta(frame["s"], unit="s")).astype("int64") / 1e9
            rows.append(frame)
    if not rows:
        return []
    every = pd.concat(rows).dropna(subset=["s", "kWh"])
    named = every[every["name"].notna()]
    last = named.sort_values(["kWh", "s"]).groupby("name").tail(1)
    unnamed = every[every["name"].isna()].drop_duplicates(["project", "s", "kWh", "began"])
    found = [*last.itertuples(), *last_of_unnamed(unnamed)]
    return [
        Said("CodeCarbon", row.file, (max(row.s, math.fsum(tasks_s[row.name].values())), row.kWh, row.kgCO2e))
        for row in found
    ]


def last_of_unnamed(rows: pd.DataFrame) -> Iterator[object]:
    """Yield the last row of each run without a name: one whose totals no other that began with it goes on from."""
    listed = list(rows.itertuples())
    for row in listed:
        others = (o for o in listed if o.project == row.project and abs(o.began - row.began) <= CLOCK_S)
        if not any(other.kWh > row.kWh and other.s > row.s for other in others):
            yield row


def carbontracker(files: list[Path]) -> Iterator[Said]:
    """Yield what the output logs say was consumed."""
    for file in files:
        if match := CONSUMED.search(text_of(file)):
            days, hours, minutes, seconds, kwh, grams = (float(text or 0) for text in match.groups())
            standard = file.with_name(file.name.replace("_output.log", ".log"))
            amounts = (((days * 24 + hours) * 60 + minutes) * 60 + seconds, kwh, grams / 1000)
            yield Said("carbontracker", standard, amounts)


# -- Beside what is read --


def files_below(directory: Path) -> Iterator[Path]:
    """Yield the files, without hidden ones."""
    for path in sorted(directory.iterdir()):
        if path.is_dir() and not path.is_symlink() and not path.name.startswith("."):
            yield from files_below(path)
        elif path.is_file() and not path.name.startswith("."):
            yield path


def compare(directory: Path) -> tuple[list[str], bool]:
    """Return the lines that say what was read, and whether each difference is explained."""
    files = list(files_below(directory))
    tables = [file for file in files if re.search(r"\.([ct]sv|txt|bak|old)|^emissions", file.name, re.IGNORECASE)]
    outputs = [file for file in files if file.name.endswith("carbontracker_output.log")]
    said = [*codecarbon(tables), *carbontracker(outputs)]
    outputs_of = {one.file for one in said if one.tool == "carbontracker"}
    logs = read_logs(directory)
    read = []
    for run in filter(is_readable, logs.runs):
        tool = run.text("meter").partition(" ")[0]
        if tool == "CodeCarbon" or run.path in outputs_of:
            read.append(Said(tool, run.path, (run.summary.duration_s, run.summary.energy_kwh, run.emissions_kgco2e)))
    told = defaultdict(list)
    for problem in logs.problems:
        told[problem.path].append(problem.message)
    lines = []
    is_explained = True
    for tool, rounding in ROUNDING.items():
        ours = [one for one in read if one.tool == tool]
        theirs = [one for one in said if one.tool == tool]
        lines.append(f"{tool}: {len(ours)} runs read, {len(theirs)} in the files")
        is_different = False
        for at, unit in enumerate(QUANTITIES):
            known = [[one.amounts[at] for one in each if not is_unknown(one.amounts[at])] for each in (ours, theirs)]
            sums = list(map(math.fsum, known))
            lines.append(f"  {sums[0]:.15g} {unit} read, {sums[1]:.15g} in the files")
            least = len(ours) * WHOLE_S if unit == "s" and tool == "carbontracker" else 1e-12
            is_different |= not math.isclose(*sums, rel_tol=rounding, abs_tol=least)
        if is_different:
            reasons = [f"    {file}: {text}" for file, texts in told.items() for text in texts]
            lines += ["  They differ, and this was said:", *(reasons or ["    nothing"])]
            is_explained &= bool(reasons)
    return lines, is_explained


def is_unknown(amount: float | None) -> bool:
    return amount is None or math.isnan(amount)


def main() -> None:
    """Compare, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", metavar="DIR", type=Path)
    lines, is_explained = compare(parser.parse_args().directory)
    print("\n".join(lines))
    if not is_explained:
        sys.exit("a difference is not explained")


if __name__ == "__main__":
    main()
