"""A user's own table of factors, by place, machine and period: to restate runs that were counted with others.

country,from,until,quantity,value,basis,source,evidence,host,gpu
DE,2026-01-01,2026-12-31,carbon_intensity,344,location-based,UBA 2027,,,
DE,2026-01-01,2026-12-31,market_intensity,12,market-based,supplier X,"GO certificate 123, 2026",,
*,2026-01-01,2026-12-31,pue,1.18,annual mean,facility report 2026,,node7,
*,2026-01-01,2026-12-31,energy_factor,1.24,wall meter,PDU study 2026,,,H100
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from greenlove_tracker.errors import UsageError
from greenlove_tracker.grid.place import names_of
from greenlove_tracker.logs.csvio import read_table
from greenlove_tracker.logs.run import Run
from greenlove_tracker.records import Factor

CARBON, MARKET, PUE, ENERGY = "carbon_intensity", "market_intensity", "pue", "energy_factor"
COLUMNS = ("country", "from", "until", "basis", "source")
_INTENSITY = "gco2e_per_kwh"  # the column of files that give intensities alone
_FURTHER = ("quantity", "value", _INTENSITY, "evidence", "host", "gpu")
_UNITS = {CARBON: "gCO2e/kWh", MARKET: "gCO2e/kWh", PUE: "×", ENERGY: "×"}
_BOUNDS = {CARBON: (0.0, math.inf), MARKET: (0.0, math.inf), PUE: (1.0, 10.0), ENERGY: (0.1, 10.0)}


@dataclass(frozen=True, slots=True)
class GivenFactor:
    """A factor that holds in a country, on a machine or for its GPUs, for a while.

    Attributes:
        country: as the runs name it; ``*`` for every country.
        first: the first day.
        last: the last day.
        factor: its name is the quantity that it gives.
        host: the machine that it is of; empty: any.
        gpu: a part of the GPUs' names; empty: any.
        evidence: of a contract: the certificate's name and period.
    """

    country: str
    first: date
    last: date
    factor: Factor
    host: str = ""
    gpu: str = ""
    evidence: str = ""

    def rank_for(self, names: Iterable[str], hosts: Iterable[str], gpu_models: str) -> int | None:
        """Return how closely it is meant for a run, the more the closer; None where it is not."""
        meant = self.country.casefold()
        is_place = meant in {name.casefold() for name in names if name}
        if (
            not (is_place or meant == "*")
            or (self.host and set(hosts) != {self.host})
            or self.gpu.casefold() not in gpu_models.casefold()
        ):
            return None
        return 4 * bool(self.host) + 2 * bool(self.gpu) + is_place


def read_factors(path: str | os.PathLike[str]) -> tuple[GivenFactor, ...]:
    """Read a table of factors: ``country,from,until,quantity,value,basis,source``, dates inclusive, and more.

    A file without ``quantity`` gives carbon intensities; their column may be called ``gco2e_per_kwh``. Other columns
    are refused: one with a mistyped name would be passed over.

    Raises:
        UsageError: where the file cannot be read or a line cannot be meant, by its number.
    """
    try:
        data = Path(path).read_bytes()
        columns, rows = read_table(data)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    missing = [name for name in COLUMNS if name not in columns]
    missing += [] if {"value", _INTENSITY} & set(columns) else ["value"]
    if unknown := [name for name in columns if name not in (*COLUMNS, *_FURTHER)]:
        known = ", ".join((*COLUMNS, *_FURTHER))
        raise UsageError(f"{path}: no such column: {', '.join(unknown)}; there are {known}")
    if missing:
        raise UsageError(f"{path} lacks the columns {', '.join(missing)}; it needs {','.join(COLUMNS)},quantity,value")
    digest = hashlib.sha256(data).hexdigest()
    return tuple(_factor(row, f"{path}, line {number}", digest) for number, row in rows)


def _factor(row: Mapping[str, str], where: str, digest: str) -> GivenFactor:
    texts = {name: (text or "").strip() for name, text in row.items()}
    quantity = texts.get("quantity") or CARBON
    if quantity not in _UNITS:
        raise UsageError(f"{where}: quantity must be one of {', '.join(_UNITS)}, not {quantity!r}")
    try:
        first, last = date.fromisoformat(texts["from"]), date.fromisoformat(texts["until"])
        value = float(texts.get("value") or texts.get(_INTENSITY, ""))
    except (ValueError, KeyError) as error:
        raise UsageError(f"{where}: {error}; dates are such as 2026-01-01, intensities in gCO2e/kWh") from error
    if last < first:
        raise UsageError(f"{where}: it ends on {last}, before it begins on {first}")
    least, most = _BOUNDS[quantity]
    if not (math.isfinite(value) and least <= value <= most):
        bounds = f"at least {least:g}" + ("" if most == math.inf else f" and at most {most:g}")
        raise UsageError(f"{where}: {quantity} must be {bounds}, not {value!r}")
    if not texts["country"]:
        raise UsageError(f"{where}: it names no country; * is every one")
    if not texts["source"]:
        raise UsageError(f"{where}: it names no source; an auditor will ask")
    if quantity == MARKET and not texts.get("evidence"):
        raise UsageError(f"{where}: a market_intensity needs evidence: the contract's or certificate's name and period")
    source = "; ".join(filter(None, (texts["source"], texts.get("evidence", ""))))
    factor = Factor(quantity, value, _UNITS[quantity], source, f"{first} to {last}", texts["basis"], digest)
    of = [texts.get(name, "") for name in ("host", "gpu", "evidence")]
    return GivenFactor(texts["country"], first, last, factor, *of)


def factors_for(factors: Iterable[GivenFactor], run: Run) -> dict[str, Factor]:
    """Return the factors that hold for a run, by their quantity.

    One of its host comes before one of its GPUs, that before one of its country, and that before one of all; of two
    that are as close, the later line.
    """
    try:
        on = date.fromisoformat(run.started_at[:10])
    except ValueError:
        return {}
    names, hosts, gpu_models = names_of(run.text("country")), run.hosts, run.text("gpu_models")
    found: dict[str, tuple[int, Factor]] = {}
    for given in factors:
        rank = given.rank_for(names, hosts, gpu_models) if given.first <= on <= given.last else None
        quantity = given.factor.name
        if rank is not None and (quantity not in found or rank >= found[quantity][0]):
            found[quantity] = (rank, given.factor)
    return {quantity: factor for quantity, (_, factor) in found.items()}
