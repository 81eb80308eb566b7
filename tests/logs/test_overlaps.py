"""Runs at once on one machine: what a sum over them counts twice is estimated, named, and in the ledger."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from report_samples import epoch_row, write_run

from greenlove_tracker import aggregate
from greenlove_tracker.cli import cli
from greenlove_tracker.vocabulary.records import Energy

METHODS = {"cpu_method": "counter", "gpu_method": "counter", "ram_method": "constant"}
BEGIN = datetime(2026, 11, 21, tzinfo=UTC)


def ran(log_dir: Path, name: str, hour: float, hours: float = 2.0, energy: Energy | None = None, **fields: str) -> None:
    """Write a run of 380 W: 60 W of the CPU, 300 W of the GPU, 20 W of memory."""
    if energy is None:
        energy = Energy(0.06 * hours, 0.3 * hours, 0.02 * hours, **METHODS)
    began = f"{BEGIN + timedelta(hours=hour):%Y-%m-%dT%H:%M:%SZ}"
    fields = {"host": "node1", "started_at": began, "country": "DE"} | fields
    write_run(log_dir, [epoch_row(1, 3600.0 * hours, energy)], name, fields=fields)


def twice_kwh(log_dir: Path) -> float | None:
    return aggregate(log_dir).total.counted_twice_kwh


def shown(log_dir: Path, *arguments: str) -> str:
    return CliRunner().invoke(cli, ["report", str(log_dir), *arguments], catch_exceptions=False).stdout


def test_two_runs_at_once_are_named_and_what_is_counted_twice(tmp_path):
    ran(tmp_path, "first", 10)
    ran(tmp_path, "second", 11)
    ran(tmp_path, "after", 13)
    said = " ".join(shown(tmp_path, "--text").split())
    assert "! 2 runs overlap on node1: each holds what the whole machine drew." in said
    assert "Up to 380 Wh is counted twice; counted once, the sum is 1.90 kWh." in said
    by_host = aggregate(tmp_path).rows("host")[0]
    assert (by_host["energy_kwh"], by_host["counted_twice_kwh"]) == pytest.approx((2.28, 0.38))
    ledger = {row["run_id"]: row for row in csv.DictReader(io.StringIO(shown(tmp_path, "--format", "ledger")))}
    assert {name: row["overlaps_with"] for name, row in ledger.items()} == {
        "first": "second",
        "second": "first",
        "after": "",
    }
    twice = [float(ledger[name]["counted_twice_kwh"]) for name in ("first", "second", "after")]
    assert twice == pytest.approx([0.0, 0.38, 0.0])


def test_three_at_once_count_the_machine_once(tmp_path):
    for name in ("a", "b", "c"):
        ran(tmp_path, name, 10)
    assert twice_kwh(tmp_path) == pytest.approx(2 * 0.76)


def test_runs_on_other_gpus_share_the_rest_of_the_machine_alone(tmp_path):
    ran(tmp_path, "first", 10, gpu_energies_kwh="0=0.6")
    ran(tmp_path, "second", 10, gpu_energies_kwh="1=0.4 2=0.2")
    assert twice_kwh(tmp_path) == pytest.approx(0.16)
    ran(tmp_path, "third", 10, gpu_energies_kwh="2=0.6")
    assert twice_kwh(tmp_path) == pytest.approx(2 * 0.16 + 0.6)


@pytest.mark.parametrize(
    ("fields", "twice"),
    [
        ({"host": "node2"}, 0.0),
        ({"cpu_share": "0.5"}, 0.72),  # memory is modelled, so each has its share; a counter is the machine's
        ({"pue": "1.5"}, 1.14),
    ],
)
def test_what_is_no_ones_else_is_not_counted_twice(tmp_path, fields, twice):
    ran(tmp_path, "first", 10)
    ran(tmp_path, "second", 10, **fields)
    assert twice_kwh(tmp_path) == pytest.approx(twice)


def test_what_is_modelled_of_the_whole_machine_is_counted_twice_too(tmp_path):
    modelled = Energy(0.12, None, 0.04, "tdp_model", None, "constant")
    for name in ("first", "second"):
        ran(tmp_path, name, 10, energy=modelled)
    assert twice_kwh(tmp_path) == pytest.approx(0.16)


def test_runs_one_after_another_and_runs_without_a_host_make_no_claim(tmp_path):
    ran(tmp_path / "one", "first", 10)
    ran(tmp_path / "one", "second", 12)
    assert twice_kwh(tmp_path / "one") == 0.0
    assert "overlap" not in shown(tmp_path / "one", "--text")
    for name in ("first", "second"):
        ran(tmp_path / "none", name, 10, host="")
    assert twice_kwh(tmp_path / "none") is None
    assert "overlap" not in shown(tmp_path / "none", "--text")
