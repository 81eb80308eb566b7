"""Offers of GPUs for rent: our own table, and files of prices in the same columns."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from greenlove_tracker.files.reading import read_text
from greenlove_tracker.tables.reading import rows
from greenlove_tracker.vocabulary.errors import UsageError

OUR_COLUMNS = frozenset({"gpu", "price", "unit", "date_read"})
GPU_HOUR = "USD/GPU-hour"
INSTANCE_HOUR = "USD/instance-hour"


# The dearest listed one is near 15: more is cents, or the price of a month.
_MOST_USD_PER_GPU_HOUR = 100.0
_PRICE = "a positive number, empty where it is not known, in USD for an hour: not in cents and not for a month"
_MOST_MEMORY_GB = 1500.0  # the largest GPU has 288: more is MB, of which even a small one has 2,048


@dataclass(frozen=True, slots=True)
class Offer:
    """One GPU model at one provider.

    Attributes:
        provider: the provider.
        gpu: the name as the table writes it; in our own table the canonical one.
        memory_gb: the memory of the GPU if the table says it; it tells variants of one name apart.
        access: "on demand", "reserved", "spot", "on request" or "withdrawn".
        usd_per_gpu_hour: the price; None if none is public.
        status: "list", "contact sales" or "not listed".
        spot_status: what is known of a spot price, if this is not one; empty if nothing is.
        gpus_per_instance: the sizes that can be rented, in ascending order.
        regions: the regions; empty if the table does not say.
        country: ISO 3166 code of the site, for the carbon intensity of a site that our tables lack.
        price_date: ISO date on which the price was read.
        note: other facts about the offer.
        source: where the row was read.
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


@cache
def bundled_offers() -> tuple[Offer, ...]:
    """Return the offers of the table that comes with the package."""
    return tuple(_ours(row, f"cloud_offers.csv, row {n}", "") for n, row in enumerate(rows("cloud_offers.csv"), 2))


def read_offers(path: Path | str) -> tuple[Offer, ...]:
    """Return the offers of a CSV file in our columns; without a ``provider`` column, its name is the provider's.

    Raises:
        UsageError: if the file cannot be read, lacks a column, or has an impossible row, such as a price in cents or
            memory in MB.
    """
    path = Path(path)
    try:
        text = read_text(path)
        reader = csv.DictReader(text.splitlines(), restval="")
        offers = list(reader)
    except (OSError, ValueError, csv.Error) as error:
        raise UsageError(f"the prices in {path} cannot be read: {error}") from error
    missing = sorted(OUR_COLUMNS - set(reader.fieldnames or ()))
    if missing:
        raise UsageError(f"{path}: it has no column {', '.join(missing)}: {', '.join(sorted(OUR_COLUMNS))} are needed")
    return tuple(_ours(row, f"{path}, row {number}", path.stem) for number, row in enumerate(offers, 2))


def _ours(row: Mapping[str, str], where: str, provider: str) -> Offer:
    def read(column: str, reads: Callable[[str], Any], must: str) -> Any:
        """Return what a cell says."""
        text = (row.get(column) or "").strip()
        try:
            return reads(text)
        except (ValueError, KeyError):
            raise UsageError(f"{where}: {column} must be {must}, not {text!r}") from None

    sizes = read("gpus_per_instance", _sizes, "numbers of GPUs, such as 1;2;4")
    gpus = read("unit", {GPU_HOUR: 1, INSTANCE_HOUR: min(sizes)}.__getitem__, f"{GPU_HOUR} or {INSTANCE_HOUR}")
    price = read("price", lambda text: _positive(text, _MOST_USD_PER_GPU_HOUR * gpus), _PRICE)
    if not row["gpu"]:
        raise UsageError(f"{where}: the column gpu is empty: write the name of the GPU")
    cell = row.get
    return Offer(
        provider=(cell("provider") or provider).lower(),
        gpu=row["gpu"],
        memory_gb=read("memory_gb", lambda text: _positive(text, _MOST_MEMORY_GB), "that of one GPU in GB"),
        access=cell("access") or "on demand",
        usd_per_gpu_hour=None if price is None else price / gpus,
        status=cell("status") or ("list" if price is not None else "contact sales"),
        spot_status=cell("spot_status") or "",
        gpus_per_instance=sizes,
        regions=_split(cell("regions") or ""),
        country=cell("country") or "",
        price_date=read("date_read", date.fromisoformat, "a date such as 2026-09-28").isoformat(),
        note=cell("note") or "",
        source=cell("source") or where,
    )


def _positive(text: str, most: float) -> float | None:
    if not text:
        return None
    value = float(text)
    if not 0 < value < most:
        raise ValueError(text)
    return value


def _sizes(text: str) -> tuple[int, ...]:
    sizes = tuple(sorted(map(int, _split(text or "1"))))
    if sizes[0] < 1:
        raise ValueError(text)
    return sizes


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in re.split("[;|]", text) if part.strip())
