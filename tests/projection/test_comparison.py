from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from projection_samples import PLAN, compared, explored, row_of
from report_samples import GPU_FIELDS, demo_rows, write_run

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
    with pytest.raises(UsageError, match="a part of that GPU"):
        compared(logs)
