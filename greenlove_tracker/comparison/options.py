"""The arguments that sentences name, as the options of ``greenlove project``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from greenlove_tracker.projection.row import Projection

_OPTIONS = {
    "utilization or manual_gpu_utilization": "--utilization", "custom_speedup": "--speedup",
    "electricity_price": "--electricity-price", "electricity_price_usd_per_kwh": "--electricity-price",
    "carbon_intensity": "--carbon-intensity", "carbon_intensity_gco2e_per_kwh": "--carbon-intensity",
    "peak_memory_gb": "--peak-memory", "manual_tdp_watts": "--tdp", "target_gpus": "--gpus",
    "price_usd_per_gpu_hour": "--price", "embodied_kgco2e_per_gpu_hour": "--embodied", "memory_gb": "--gpu-memory",
}  # fmt: skip
_NAMES = re.compile(rf"\b(?:{'|'.join(_OPTIONS)})\b")


def in_options(text: str) -> str:
    """The same sentence with the options' names."""
    return _NAMES.sub(lambda found: _OPTIONS[found[0]], text)


def rows_in_options(rows: Iterable[Projection]) -> tuple[Projection, ...]:
    """The same rows, their warnings with the options' names: before a screen is broken into lines, not after."""
    return tuple(replace(row, warnings=tuple(map(in_options, row.warnings))) for row in rows)
