"""What is read of other tools' logs, beside what their files say by themselves.

    python benchmarks/foreign_history.py DIR

Adds up the last reading of each run in all CSV files of CodeCarbon and logs of carbontracker under DIR, without the
package's readers: pandas reads the CSV files, three patterns the logs. Beside it stands what the package reads of DIR.
Each run that is not the same in both is named, with what the package says of its file. It fails where there is one of
which nothing is said.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from greenlove_tracker import read_logs

ENERGIES = {"emissions", "energy_consumed", "cpu_energy", "gpu_energy", "ram_energy", "country_iso_code", "on_cloud"}
QUANTITIES = ("s", "kWh", "kgCO2e")
ROUNDING = 1e-6  # as a share: sums of the same numbers in another order
CARBONTRACKER_ROUNDING = 0.02  # its log rounds durations and powers
DIGITS = r"([\d.]+(?:e[+-]\d+)?)"
CONSUMED = re.compile(
    rf"Actual consumption[^\n]*\n\s*Time:\s+([^\n]+)\n\s*Energy:\s+{DIGITS} kWh\s*\n\s*CO2eq:\s+{DIGITS} g", re.ASCII
)


@dataclass
class Said:
    """What a file says of a run: duration in s, energy in kWh, CO2e in kg; None where it does not say."""

    file: Path
    run: str
    amounts: tuple[float | None, float | None, float | None]


# -- What the files say --


def table_of(file: Path) -> pd.DataFrame | None:
    """Return a table of CodeCarbon as pandas reads it; None where it is none."""
    data = file.read_bytes()
    encodings = ["utf-16"] if data[:2] in (b"\xff\xfe", b"\xfe\xff") else ["utf-8-sig", "cp1252"]
    for encoding in encodings:
        try:
            text = data.decode(encoding)
            break
        except UnicodeDecodeError:
            continue
    else:
        return None
    lines = [line for line in text.splitlines() if line.strip(",;\t ")]
    heads = [n for n, line in enumerate(lines) if len(ENERGIES & set(re.split(r"[\s,;\"]+", line.lower()))) >= 3]
    tables = []
    for begin, end in zip(heads, [*heads[1:], len(lines)], strict=True):
        delimiter = max(",;\t", key=lines[begin].count)
        rows = list(csv.reader(lines[begin:end], delimiter=delimiter))
        names = [name.strip().lower() for name in rows[0]]
        whole = [[cell.strip() for cell in row[: len(names)]] for row in rows[1:] if len(row) >= len(names)]
        table = pd.DataFrame(whole, columns=names)
        for name in table.columns.intersection(["duration", "emissions", "energy_consumed"]):
            numbers = table[name].str.replace(",", ".") if delimiter != "," else table[name]
            table[name] = pd.to_numeric(numbers, errors="coerce")
        tables.append(table)
    return pd.concat(tables) if tables else None
