"""What ``greenlove project`` calls the arguments that sentences name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from greenlove_tracker.errors import in_options

if TYPE_CHECKING:
    from greenlove_tracker.projection.row import Projection

OPTIONS = {
    "utilization or manual_gpu_utilization": "--utilization",
    "manual_gpu_utilization": "--utilization",
    "custom_speedup": "--speedup",
    "electricity_price": "--electricity-price",
    "electricity_price_usd_per_kwh": "--electricity-price",
    "carbon_intensity": "--carbon-intensity",
    "carbon_intensity_gco2e_per_kwh": "--carbon-intensity",
    "peak_memory_gb": "--peak-memory",
    "manual_tdp_watts": "--tdp",
    "target_gpus": "--gpus",
    "price_usd_per_gpu_hour": "--price",
    "embodied_kgco2e_per_gpu_hour": "--embodied",
    "memory_gb": "--gpu-memory",
    "utilization is a share": "--utilization is a share",
    "scaling is the": "--scaling is the",
    "leave method out": "leave --method out",
    "give its memory": "give its memory with --gpu-memory",
    "give its prices in a file": "give its prices in a file, --prices",
    "a positive number, or None where it is not known": "a positive number",
}


def rows_in_options(rows: Iterable[Projection]) -> tuple[Projection, ...]:
    """The same rows, their warnings with the options' names: before a screen is broken into lines, not after."""
    return tuple(replace(row, warnings=tuple(in_options(text, OPTIONS) for text in row.warnings)) for row in rows)
