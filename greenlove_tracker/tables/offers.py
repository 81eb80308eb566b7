"""Offers of GPUs for rent: our own table, and files of prices in the same columns."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path

from greenlove_tracker.errors import UsageError
from greenlove_tracker.tables.reading import rows

OFFERS_TABLE = "cloud_offers.csv"
OUR_COLUMNS = frozenset({"gpu", "price", "unit", "date_read"})
GPU_HOUR, INSTANCE_HOUR = "USD/GPU-hour", "USD/instance-hour"


# The dearest listed one is near 15: more is cents, or the price of a month.
_MOST_USD_PER_GPU_HOUR = 100.0
_MOST_MEMORY_GB = 1500.0  # the largest GPU has 288: more is MB, of which even a small one has 2,048


@dataclass(frozen=True, slots=True)
class Offer:
    """One GPU model at one provider.

    Attributes:
        provider: who rents it out.
        gpu: its name as the table writes it; in our own table the canonical one.
        memory_gb: memory of the GPU where the table says it, which tells variants of one name apart.
        access: "on demand", "reserved", "spot", "on request" or "withdrawn".
        usd_per_gpu_hour: None where no price is public.
        status: "list", "contact sales" or "not listed".
        spot_status: what is known of a spot price where this is not one; empty where nothing is.
        gpus_per_instance: the sizes that can be rented, in ascending order.
        regions: where; empty where the table does not say.
        country: ISO 3166 code of the site, for the carbon intensity of a site that our tables do not know.
        price_date: ISO date on which the price was read.
        note: what else is to be known about it.
        source: where the row was read.
        row: file and number of the row.
    """

    provider: str
    gpu: str
    memory_gb: float | None
    access: str
    usd_per_gpu_hour: float | None
    status: str
    spot_status: str
    gpus_per_instance: tuple[int, ...]
    regions: tuple[str, ...]
    country: str
    price_date: str
    note: str
    source: str
    row: str


@cache
def bundled_offers() -> tuple[Offer, ...]:
    """Return the offers of the table that comes with the package."""
    return tuple(_ours(row, f"{OFFERS_TABLE}, row {n}", "") for n, row in enumerate(rows(OFFERS_TABLE), 2))


def read_offers(path: Path | str) -> tuple[Offer, ...]:
    """Return the offers of a CSV file in our columns; without ``provider`` they are the one's that its name says.

    Raises:
        UsageError: where the file cannot be read, it lacks a column, or a row says something impossible, such as a
            price in cents or memory in MB.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the prices in {path} cannot be read: {error}") from error
    reader = csv.DictReader(text.splitlines(), restval="")
    if missing := sorted(OUR_COLUMNS - set(reader.fieldnames or ())):
        raise UsageError(f"{path}: it has no column {', '.join(missing)}: {', '.join(sorted(OUR_COLUMNS))} are needed")
    return tuple(_ours(row, f"{path}, row {number}", path.stem) for number, row in enumerate(reader, 2))


def _ours(row: Mapping[str, str], where: str, provider: str) -> Offer:
    sizes = tuple(sorted(_whole(size, where) for size in _split(row.get("gpus_per_instance") or "1")))
    price = _usd_per_gpu_hour(row["price"], row["unit"], min(sizes, default=1), where)
    if not row["gpu"]:
        raise UsageError(f"{where}: the column gpu is empty: write the name of the GPU")
    return Offer(
        provider=(row.get("provider") or provider).lower(),
        gpu=row["gpu"],
        memory_gb=_memory_gb(row.get("memory_gb") or "", where),
        access=row.get("access") or "on demand",
        usd_per_gpu_hour=price,
        status=row.get("status") or ("list" if price is not None else "contact sales"),
        spot_status=row.get("spot_status") or "",
        gpus_per_instance=sizes,
        regions=tuple(_split(row.get("regions") or "")),
        country=row.get("country") or "",
        price_date=_day(row["date_read"], where),
        note=row.get("note") or "",
        source=row.get("source") or where,
        row=where,
    )


def _usd_per_gpu_hour(price: str, unit: str, gpus: int, where: str) -> float | None:
    if unit not in (GPU_HOUR, INSTANCE_HOUR):
        raise UsageError(f"{where}: the unit of the price is {unit or 'missing'}: write {GPU_HOUR} or {INSTANCE_HOUR}")
    if not price.strip():
        return None
    per_gpu = _number(price, "price", where) / (gpus if unit == INSTANCE_HOUR else 1)
    if per_gpu >= _MOST_USD_PER_GPU_HOUR:
        of = "an instance" if unit == INSTANCE_HOUR else "a GPU"
        raise UsageError(
            f"{where}: {per_gpu:g} USD per GPU and hour cannot be meant: write what {of} costs for an hour, in USD, "
            "not in cents and not for a month"
        )
    return per_gpu


def _memory_gb(text: str, where: str) -> float | None:
    if not text.strip():
        return None
    memory_gb = _number(text, "memory_gb", where)
    if memory_gb > _MOST_MEMORY_GB:
        raise UsageError(f"{where}: memory_gb is that of one GPU in GB, and {text} cannot be meant: is it in MB?")
    return memory_gb


def _split(text: str) -> Sequence[str]:
    return [part.strip() for part in re.split("[;|]", text) if part.strip()]


def _number(text: str, column: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise UsageError(f"{where}: {column} must be a positive number, or empty where it is not known, not {text!r}")
    return value


def _whole(text: str, where: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise UsageError(f"{where}: a number of GPUs must be at least 1, not {text!r}")
    return value


def _day(text: str, where: str) -> str:
    try:
        return date.fromisoformat(text.strip()).isoformat()
    except ValueError:
        raise UsageError(f"{where}: date_read must be a date such as 2026-09-28, not {text!r}") from None
