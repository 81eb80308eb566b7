"""A user's own table of carbon intensities, by country and period: to restate what was counted with others."""

from __future__ import annotations

import csv
import hashlib
import io
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from greenlove_tracker.errors import UsageError
from greenlove_tracker.records import Factor

COLUMNS = ("country", "from", "until", "gco2e_per_kwh", "basis", "source")


@dataclass(frozen=True, slots=True)
class GivenFactor:
    """A carbon intensity that holds in a country for a while.

    Attributes:
        country: as the runs name it; ``*`` for every country.
        first: the first day.
        last: the last day.
        factor: the intensity.
    """

    country: str
    first: date
    last: date
    factor: Factor


def read_factors(path: str | os.PathLike[str]) -> tuple[GivenFactor, ...]:
    """Read ``country,from,until,gco2e_per_kwh,basis,source``, dates inclusive.

    Raises:
        UsageError: where the file cannot be read or a line cannot be meant, by its number.
    """
    try:
        data = Path(path).read_bytes()
        reader = csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""))
        missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            raise UsageError(f"{path} lacks the columns {', '.join(missing)}; it needs {','.join(COLUMNS)}")
        digest = hashlib.sha256(data).hexdigest()
        return tuple(_factor(row, f"{path}, line {reader.line_num}", digest) for row in reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error


def _factor(row: dict[str, str], where: str, digest: str) -> GivenFactor:
    try:
        first, last = date.fromisoformat(row["from"].strip()), date.fromisoformat(row["until"].strip())
        value = float(row["gco2e_per_kwh"])
    except (TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{where}: {error}; dates are such as 2026-01-01, intensities in gCO2e/kWh") from error
    if last < first:
        raise UsageError(f"{where}: it ends on {last}, before it begins on {first}")
    if not (math.isfinite(value) and value >= 0):
        raise UsageError(f"{where}: gco2e_per_kwh must be at least 0, not {value!r}")
    if not (row["source"] or "").strip():
        raise UsageError(f"{where}: it names no source; an auditor will ask")
    factor = Factor(
        "carbon_intensity",
        value,
        "gCO2e/kWh",
        row["source"].strip(),
        f"{first} to {last}",
        (row["basis"] or "").strip(),
        digest,
    )
    return GivenFactor((row["country"] or "").strip(), first, last, factor)


def factor_for(given: Iterable[GivenFactor], names: Iterable[str], day: str) -> Factor | None:
    """The factor that holds there on that day: one of the country before one of all; the later line of two.

    Args:
        given: in the order of the file.
        names: of the country, as the run and others call it; empty ones are none.
        day: ISO 8601; empty where it is not known.
    """
    try:
        on = date.fromisoformat(day)
    except ValueError:
        return None
    holding: Sequence[GivenFactor] = [g for g in given if g.first <= on <= g.last]
    for meant in ({name.casefold() for name in names if name}, {"*"}):
        found = [g.factor for g in holding if g.country.casefold() in meant]
        if found:
            return found[-1]
    return None
