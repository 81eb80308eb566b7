from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from projection_samples import PLAN, compared, explored, row_of
from report_samples import GPU_FIELDS, demo_rows, demo_run, write_run

from greenlove_tracker.cli import cli
from greenlove_tracker.errors import UsageError
from greenlove_tracker.extrapolation.extrapolate import forecast_from_log
from greenlove_tracker.projection.comparison import compare_log
from greenlove_tracker.projection.options import ProjectionOptions
from greenlove_tracker.projection.uncertain import at_level
from greenlove_tracker.records import Counts

pytestmark = pytest.mark.usefixtures("no_settings")
L40S = "L40S"


def test_a_tracked_run_on_a_cpu_without_steps_is_refused(logs: Path) -> None:
    rows = [replace(row, counts=Counts()) for row in demo_rows()]
    write_run(logs, rows)
    with pytest.raises(UsageError, match=r"used no GPU and counted no steps.*tracker.step\(\)"):
        compared(logs)
    assert row_of(compared(logs, custom_speedup=2.0), L40S).duration_s.point > 0
    write_run(logs, rows, "20261122T000000-bbbb", fields=GPU_FIELDS)
    assert row_of(compared(logs), L40S).duration_s.point > 0  # from a GPU benchmarks lead on


def test_a_gpu_that_was_not_metered_must_be_named(logs: Path) -> None:
    explored(logs, used_gpus="1", gpu_count="0", gpu_models="")
    with pytest.raises(UsageError, match=r"does not name its GPU: give --gpu, such as --gpu 'RTX 4090'$"):
        compared(logs)


def test_the_forecast_at_hand_is_not_made_again(logs: Path) -> None:
    run = explored(logs)
    made = forecast_from_log(run, replace(PLAN, epochs=7))
    comparison = compare_log(str(logs), ProjectionOptions(), forecast=made)
    assert comparison.projections[0].duration_s == at_level(made.duration_s) and "7 epochs" in comparison.about[0]


def test_gpus_of_several_kinds_must_be_chosen_from(logs: Path) -> None:
    explored(logs, gpu_models="1 × NVIDIA L40S, 1 × NVIDIA A40", gpu_count="2")
    with pytest.raises(UsageError, match="different GPUs"):
        compared(logs)
    assert compared(logs, local_gpu="2 × L40S").projections[0].n_gpus == 2
    explored(logs, run_id="20261122T000000-cccc", gpu_models="")
    with pytest.raises(UsageError, match="does not name its GPU"):
        compared(logs)


def test_a_measured_speedup_is_the_ratio_of_two_forecasts(logs: Path, tmp_path: Path) -> None:
    here = explored(logs)
    there = explored(
        tmp_path / "there", faster=3.0, gpu_models="1 × NVIDIA L40S", plan_epochs="7"
    )  # the number of epochs may differ
    comparison = compared(logs, measured_log_dir=str(tmp_path / "there"), provider="crusoe")
    row = row_of(comparison, L40S)
    its_own = at_level(forecast_from_log(there, PLAN).duration_s)
    assert (row.speedup.method, row.speedup.known_from) == ("measured", "measured")
    assert row.speedup.estimate.point == pytest.approx(3.0)
    for end in ("point", "lower", "upper"):  # its time is what its own exploration says: not the errors of both
        assert getattr(row.duration_s, end) == pytest.approx(getattr(its_own, end))
    local = at_level(forecast_from_log(here).duration_s)
    assert row.speedup.estimate.relative_width > max(local.relative_width, its_own.relative_width)
    assert there.run_id in row.speedup.sources[0]
    assert row.cost_usd.point == pytest.approx(its_own.point / 3600 * 1.5)
    others = {r.name: r for r in compared(logs).projections if r.name != L40S}
    for own in comparison.projections:
        if own.name != L40S:
            assert own.duration_s.point == pytest.approx(others[own.name].duration_s.point)
            assert own.duration_s.upper == pytest.approx(others[own.name].duration_s.upper)


def test_a_measured_machine_of_eight_is_taken_back_to_one(logs: Path, tmp_path: Path) -> None:
    explored(logs)
    explored(tmp_path / "there", faster=13.6, gpu_models="8 × NVIDIA H100 80GB HBM3", gpu_count="8")
    row = row_of(compared(logs, measured_log_dir=str(tmp_path / "there"), scaling=0.85), "H100 SXM5 80GB")
    assert row.speedup.estimate.point == pytest.approx(2.0)  # 13.6 / (8 × 85%)
    local = compared(logs).projections[0]
    assert row.duration_s.point == pytest.approx(local.duration_s.point / 13.6)


def test_what_cannot_be_compared_is_refused(logs: Path, tmp_path: Path) -> None:
    explored(logs)
    demo_run(tmp_path / "demo")
    with pytest.raises(UsageError, match=r"compares two explorations .*demo holds none"):
        compared(logs, measured_log_dir=str(tmp_path / "demo"))
    with pytest.raises(UsageError, match="the log here holds none"):
        compared(tmp_path / "demo", measured_log_dir=str(logs))
    explored(tmp_path / "other", gpu_models="1 × NVIDIA L40S", plan_samples="60000")
    with pytest.raises(UsageError, match="another training"):
        compared(logs, measured_log_dir=str(tmp_path / "other"))
    explored(tmp_path / "cpu", gpu_models="", gpu_count="0")
    with pytest.raises(UsageError, match="no GPU is named"):
        compared(logs, measured_log_dir=str(tmp_path / "cpu"))
    explored(tmp_path / "there", gpu_models="1 × NVIDIA L40S")
    both = compared(logs, measured_log_dir=str(tmp_path / "there"), custom_speedup={"A100 PCIe 80GB": 2.0})
    assert row_of(both, "A100 PCIe 80GB").speedup.known_from == "given"
    assert row_of(both, L40S).speedup.known_from == "measured"


def test_the_memory_of_the_log_tells_its_card(logs: Path) -> None:
    explored(logs, gpu_models="1 × NVIDIA GeForce RTX 3080", gpu_power_limit_w="320")
    assert compared(logs).projections[0].name == "GeForce RTX 3080 10GB"  # the common one
    assert compared(logs, local_memory_gb=12.0).projections[0].name == "GeForce RTX 3080 12GB"
    assert CliRunner().invoke(cli, ["project", str(logs), "--gpu-memory", "10", "--json"]).exit_code == 0
    explored(
        logs,
        run_id="20261122T000000-bbbb",
        gpu_models="1 × NVIDIA GeForce RTX 3080",
        gpu_power_limit_w="320",
        gpu_memory_gb="9.996",
    )
    assert compared(logs).projections[0].name == "GeForce RTX 3080 10GB"
    explored(logs, run_id="20261123T000000-cccc", gpu_models="1 × NVIDIA L40S", gpu_memory_gb="11.2")
    with pytest.raises(UsageError, match="a part of that GPU, whose speed is in no table"):
        compared(logs)
