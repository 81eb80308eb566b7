"""Run directories for the tests of reports, written as a tracker writes them: from rows made by hand."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.run_fields import factor_fields
from greenlove_tracker.logs.tables import FORECASTS, IssuedForecast
from greenlove_tracker.logs.totals import Ending, summarise
from greenlove_tracker.logs.writer import RunWriter
from greenlove_tracker.vocabulary.forecasting import Estimate
from greenlove_tracker.vocabulary.pricing import RunFactors
from greenlove_tracker.vocabulary.records import UNKNOWN_ENERGY, Counts, Energy, Factor, Field, Flag, Row, RowKind

WORLD = Factor(
    "carbon_intensity",
    458.0,
    "gCO2e/kWh",
    "world average: no country set (Ember, Global Electricity Review)",
    "2025",
    "location-based, lifecycle",
    "ab" * 32,
)
GERMANY = Factor(
    "carbon_intensity",
    381.0,
    "gCO2e/kWh",
    "Germany, Our World in Data (CC BY 4.0) as shipped with CodeCarbon",
    "2023",
    "location-based, lifecycle",
    "cd" * 32,
)
PRICE = Factor(
    "electricity_price", 0.419, "USD/kWh", "Germany, household, all taxes: Eurostat", "2025-S1", "household", "ef" * 32
)
STARTED_AT = "2026-11-21T03:40:44.000Z"
STARTED_S = datetime.fromisoformat(STARTED_AT).timestamp()
HERE = {"host": socket.gethostname(), "pid": str(os.getpid())}  # of a run that this process seems to train


def cpu_energy(duration_s: float, cpu_w: float = 8.4, ram_w: float = 20.0) -> Energy:
    """A machine without counters: everything modelled."""
    return Energy(
        cpu_kwh=cpu_w * duration_s / 3.6e6,
        ram_kwh=ram_w * duration_s / 3.6e6,
        cpu_method="tdp_model",
        ram_method="constant",
    )


def gpu_energy(duration_s: float, gpu_w: float = 92.0) -> Energy:
    """A machine with counters for GPU and CPU."""
    per_w = duration_s / 3.6e6
    return Energy(18.0 * per_w, gpu_w * per_w, 10.0 * per_w, "counter", "counter", "constant")


def epoch_row(
    epoch: int,
    duration_s: float,
    energy: Energy = UNKNOWN_ENERGY,
    *,
    gap_s: float = 0.0,
    gap: Energy = UNKNOWN_ENERGY,
    flags: Sequence[str] = (),
    kind: RowKind = RowKind.EPOCH,
) -> Row:
    """One epoch with what lay before it."""
    return Row(kind, epoch, STARTED_AT, gap_s, gap, duration_s, Counts(10, 10, 640), energy, None, frozenset(flags))


def write_run(
    log_dir: Path,
    rows: Sequence[Row],
    run_id: str = "20261121T034044-7f3a",
    *,
    fields: Mapping[str, str] | None = None,
    intensity: Factor | None = WORLD,
    price: Factor | None = None,
    status: str | None = "finished",
    exit_code: int | None = 0,
) -> Run:
    """Write a run and open it; with ``status`` None its end is not written."""
    texts = {
        "schema_version": "1",
        "greenlove_version": "0.1.0",
        "project": "demo",
        "command": "train.py",
        "host": "elsewhere",
        "os": "Linux 6.8",
        "python": "3.12.4",
        "started_at": STARTED_AT,
        "epochs_planned": str(len(rows)),
        "pue": "1.0",
        "meter": "codecarbon 3.3.2",
        "cpu_model": "Xeon",
        "gpu_count": "0",
        "ram_w": "20",
        **(fields or {}),
    }
    ended_at = "2026-11-21T03:41:09Z"
    if texts["started_at"] != STARTED_AT:
        rows, ended_at = _one_after_another(rows, texts["started_at"])
    lines = [Field(name, value) for name, value in texts.items() if value]
    for factor in (intensity, price):
        lines += factor_fields(factor) if factor else []
    run_dir = log_dir / run_id
    run_dir.mkdir(parents=True, exist_ok=True)
    writer = RunWriter(run_dir, 0, lines, on_error=_raise)
    for row in rows:
        writer.write_row(row)
    hourly, planned = texts.get("price_usd_per_gpu_hour"), texts["epochs_planned"]
    terms = RunFactors(
        run_id,
        texts["project"],
        texts["started_at"],
        int(planned) if planned else None,
        intensity or Factor("carbon_intensity", 0.0, "", ""),
        float(texts["pue"]),
        price,
        float(hourly) if hourly else None,
        float(texts["node_overhead"]) if "node_overhead" in texts else None,
    )
    gpu_count = int(texts["gpu_count"] or 0)
    summary = summarise(terms, {0: rows}, Ending(status or "", exit_code, ended_at), gpu_count=gpu_count)
    writer.close(summary if status else None)
    return Run(run_dir)


def _one_after_another(rows: Sequence[Row], started_at: str) -> tuple[list[Row], str]:
    """Return the rows that all begin with the sample, one behind the other from a time on, and when they end."""
    try:
        at = datetime.fromisoformat(started_at)
    except ValueError:  # a damaged log
        return list(rows), ""
    timed = []
    for row in rows:
        begins = at + timedelta(seconds=row.gap_before_s)
        timed.append(replace(row, started_at=_iso(begins)) if row.started_at == STARTED_AT else row)
        at = begins + timedelta(seconds=row.duration_s)
    return timed, _iso(at)


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _raise(error: OSError) -> None:
    raise error


def demo_rows(n_epochs: int = 12) -> list[Row]:
    """The demo: the meter comes up 1.3 s after the start, then everything is modelled."""
    rows = [epoch_row(1, 1.86, cpu_energy(1.86), gap_s=1.3, flags=[Flag.METER_STARTING])]
    for epoch in range(2, n_epochs + 1):
        rows.append(epoch_row(epoch, 1.86, cpu_energy(1.86), gap_s=0.15, gap=cpu_energy(0.15)))
    return rows


def demo_run(log_dir: Path) -> Run:
    """A run of the demo, on a virtual machine."""
    return write_run(log_dir, demo_rows(), fields={"meter_note": "a virtual machine without counters"})


def gpu_rows(n_epochs: int = 30) -> list[Row]:
    """A laptop with a GPU, everything but the memory measured."""
    rows = []
    for epoch in range(1, n_epochs + 1):
        duration_s = 76.9 + 2.5 * ((epoch * 7) % 5 - 2) / 2
        energy = gpu_energy(duration_s, 92 + 8 * ((epoch * 3) % 7 - 3) / 3)
        rows.append(epoch_row(epoch, duration_s, energy, gap_s=5.5, gap=gpu_energy(5.5, 35.0)))
    return rows


GPU_FIELDS = {
    "project": "thesis",
    "country": "DE",
    "gpu_count": "1",
    "gpu_models": "1 × NVIDIA GeForce RTX 3060 Laptop GPU",
    "gpu_power_limit_w": "115",
    "cpu_model": "11th Gen Intel Core i7-11800H",
    "cpu_threads": "16",
    "ram_gb": "16.0",
    "ram_w": "10",
    "peak_gpu_memory_gb": "4.10",
    "command": "greenlove run --country DE train.py --lr 3e-4",
    "git_commit": "4f1c2d9e7b",
    "user": "ada",
    "meter_ready_s": "1.204",
    "cpu_share": "1.0",
    "ram_share": "1.0",
    "share_source": "whole machine",
    "pue": "1.2",
}


def gpu_run(log_dir: Path, run_id: str = "20261121T101502-c41e") -> Run:
    """A run on a GPU in Germany, with a price of electricity."""
    return write_run(log_dir, gpu_rows(), run_id, fields=GPU_FIELDS, intensity=GERMANY, price=PRICE)


def issued(elapsed_s=2.0, point=20.0, half=1.0, warnings=(), **more) -> IssuedForecast:
    estimates = {"duration_s": Estimate(point, point - half, point + half, 0.95, "s"), **more}
    return IssuedForecast(
        "2026-11-21T10:00:00.000Z", elapsed_s, 2, 10, 20, "live", estimates, 23.0, frozenset(warnings)
    )


def write_forecasts(run: Run, *forecasts: IssuedForecast) -> None:
    """Give a run that is written the forecasts that it issued."""
    (run.path / "forecasts.csv").write_bytes(FORECASTS.lines(forecasts))


def running(
    log_dir: Path,
    rows: Sequence[Row] | None = None,
    run_id: str = "20261121T000001-a",
    forecast: IssuedForecast | None = None,
    **fields: str,
) -> Run:
    """A run of 12 epochs that goes on, written 24 s after its start as far as its files say."""
    fields = {**HERE, "epochs_planned": "12", **fields}
    run = write_run(log_dir, demo_rows(6) if rows is None else rows, run_id, status=None, fields=fields)
    if forecast is not None:
        write_forecasts(run, forecast)
    for path in run.path.iterdir():
        os.utime(path, (STARTED_S + 24.0,) * 2)
    return Run(run.path)
