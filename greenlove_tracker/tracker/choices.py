"""What a run is counted and measured with, from its settings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from greenlove_tracker.config import Settings
from greenlove_tracker.grid import carbon_intensity, electricity_price, resolve_place
from greenlove_tracker.job import Ranks
from greenlove_tracker.logs.totals import Terms
from greenlove_tracker.logs.writer import claim_run_id, create_run_dir, new_run_id
from greenlove_tracker.meter import Meter, NullMeter, SimulatedMeter
from greenlove_tracker.records import Clock
from greenlove_tracker.tracker.plan import Plan


def make_terms(settings: Settings, plan: Plan, run_id: str, started_at: str) -> Terms:
    """The names and factors of a run.

    Raises:
        UsageError: for a place that is not known, or for which no carbon intensity is.
    """
    place = resolve_place(settings.country)
    return Terms(
        run_id=run_id,
        project=settings.project,
        started_at=started_at,
        epochs_planned=plan.epochs,
        carbon_intensity=carbon_intensity(place, settings.carbon_intensity_gco2e_per_kwh),
        pue=settings.pue,
        electricity_price=electricity_price(place, settings.electricity_price_usd_per_kwh),
        price_usd_per_gpu_hour=settings.price_usd_per_gpu_hour,
    )


def make_run_dir(log_dir: str, ranks: Ranks, utc_s: float) -> Path:
    """The directory of a new run, absolute: a script may change its working directory.

    Raises:
        UsageError: where the log directory cannot be written.
    """
    base = Path(log_dir).absolute()
    if not ranks.launch_key:
        return create_run_dir(base, new_run_id(utc_s))
    run_dir = base / claim_run_id(base, ranks.launch_key, ranks.rank, utc_s)
    run_dir.mkdir(exist_ok=True)
    return run_dir


def choose_meter(
    settings: Settings, ranks: Ranks, clock: Clock, terms: Terms, options: Mapping[str, Any] | None
) -> Meter:
    """None for further ranks of a node, simulated hardware where it is given, else CodeCarbon."""
    if not ranks.carries_meter:
        return NullMeter(f"local rank 0 measures this node; this is local rank {ranks.local_rank}")
    if settings.is_simulated:
        return SimulatedMeter(
            clock,
            cpu_tdp_w=settings.sim_cpu_tdp_w,
            cpu_util=settings.sim_cpu_util,
            gpu_w=settings.sim_gpu_w,
            gpu_util=settings.sim_gpu_util,
            gpu_count=settings.sim_gpu_count,
            ram_w=settings.ram_w,
        )
    from greenlove_tracker.meter.codecarbon import CodeCarbonMeter

    return CodeCarbonMeter(
        os.environ,
        local_world_size=ranks.local_world_size,
        cpu_tdp_w=settings.cpu_tdp_w,
        ram_w=settings.ram_w,
        carbon_intensity_gco2e_per_kwh=terms.carbon_intensity.value,
        options=options,
    )
