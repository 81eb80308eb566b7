from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from projection_samples import LAPTOP, PLAN, compared, explored, row_of
from report_samples import (
    GERMANY,
    GPU_FIELDS,
    PRICE,
    cpu_energy,
    demo_rows,
    demo_run,
    epoch_row,
    gpu_rows,
    gpu_run,
    issued,
    write_forecasts,
    write_run,
)

from greenlove_tracker.cli import cli
from greenlove_tracker.extrapolation.extrapolate import forecast_from_log
from greenlove_tracker.projection.from_log import compare_hours, compare_run, logged_gpus
from greenlove_tracker.projection.options import ProjectionOptions
from greenlove_tracker.projection.power import power_table
from greenlove_tracker.projection.uncertain import at_level
from greenlove_tracker.rendering import terminal
from greenlove_tracker.report import wording
from greenlove_tracker.report.projection_report import projection_document
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.forecasting import Estimate
from greenlove_tracker.vocabulary.records import Counts

L40S = "L40S"
pytestmark = pytest.mark.usefixtures("no_settings")


def screen_of(comparison) -> str:
    return terminal.render(projection_document(comparison.projections, comparison.about), brief=False)


def test_an_exploration_is_forecast_again_with_its_machine(logs: Path) -> None:
    run = explored(logs)
    training = compared(logs)
    assert training.forecast == forecast_from_log(run)
    here = training.options
    assert (here.local_gpu, here.n_gpus, here.manual_tdp_watts) == ("NVIDIA GeForce RTX 3060 Laptop GPU", 1, 115.0)
    assert (here.utilization, here.peak_memory_gb) == (pytest.approx(0.8), 4.1)
    assert training.options.carbon_intensity == GERMANY and training.options.pue == 1.2
    assert "50,000 samples · batch 128 · 100 epochs" in training.about[0]
    took = at_level(training.forecast.duration_s)
    assert (training.projections[0].name, training.projections[0].duration_s) == (LAPTOP, took)


def test_a_finished_run_is_what_it_took(logs: Path) -> None:
    run = gpu_run(logs)
    training = compared(logs)
    took = training.forecast.duration_s
    assert took.point == took.lower == took.upper == run.summary.duration_s
    assert training.forecast.energy_kwh.point == run.summary.energy_kwh  # PUE included
    assert training.options.utilization is None  # the log does not say that a counter gave it
    local, *others = training.projections
    assert local.energy_kwh.point == run.summary.energy_kwh and local.duration_s.upper == local.duration_s.point
    assert local.cost_usd.point == pytest.approx(run.summary.cost_usd)
    assert local.emissions_kgco2e.point == pytest.approx(run.summary.emissions_kgco2e)
    assert all(row.fits for row in others)


def test_the_draw_of_a_tracked_run_is_that_of_its_gpus(logs: Path) -> None:
    run = write_run(logs, gpu_rows(), fields={**GPU_FIELDS, "gpu_method": "counter"}, intensity=GERMANY)
    gpu_kwh = sum((r.energy.gpu_kwh or 0) + (r.gap_before.gpu_kwh or 0) for r in run.rows[0])
    mean_w = gpu_kwh * 3.6e6 / run.summary.duration_s
    assert compared(logs).options.utilization == pytest.approx(mean_w / 115)
    assert compared(logs, local_gpu="2 × RTX 3060").options.utilization is None  # of another number of GPUs


def test_an_interrupted_run_is_what_it_forecast_last(logs: Path) -> None:
    run = write_run(logs, gpu_rows(3), fields={**GPU_FIELDS, "epochs_planned": "30"}, status="interrupted")
    with pytest.raises(UsageError, match="neither finished nor forecast anything"):
        compared(logs)
    write_forecasts(run, issued(point=7200.0), issued(point=10_800.0, half=300.0))
    training = compared(logs)
    assert training.forecast.duration_s == Estimate(10_800, 10_500, 11_100, 0.95, "s")
    assert "forecast last" in training.about[1]


def test_a_run_without_a_gpu_has_none_and_no_peak_of_one(logs: Path) -> None:
    run = demo_run(logs)
    training = compared(logs)
    found, problem = logged_gpus(run, ProjectionOptions())
    assert found.local_gpu is training.options.local_gpu is None and problem == ""
    explored(logs, gpu_count="0", gpu_models="", peak_gpu_memory_gb="", peak_memory_gb="3.3")
    assert compared(logs).options.peak_memory_gb is None  # that of the process is no GPU's


def test_a_peak_that_was_estimated_on_a_cpu_leaves_out_what_is_too_small(logs: Path) -> None:
    on_cpu = {"gpu_count": "0", "gpu_models": "", "peak_gpu_memory_gb": "", "peak_memory_gb": "3.3", "used_gpus": "0"}
    explored(logs, **on_cpu, gpu_memory_estimate_gb="50")
    found = compared(logs)
    assert (found.options.peak_memory_gb, found.options.memory_estimate_gb) == (None, 50.0)
    l40s, h100 = row_of(found, L40S), row_of(found, "H100 SXM5 80GB")
    assert l40s.fits is False and l40s.duration_s is None and l40s.is_fit_estimated and h100.fits is True
    text = screen_of(found)
    assert "estimated peak 50.0 GiB" in text and "L40S (48 GB)" in text
    assert "too small for the estimated peak memory" in " ".join(text.split())
    given = compared(logs, peak_memory_gb=20.0)  # what the user says goes first
    assert row_of(given, L40S).fits is True and "peak 20 GiB" in screen_of(given)


def test_idle_gpus_beside_a_training_on_the_cpu_are_not_its_own(logs: Path) -> None:
    run = explored(logs, used_gpus="0", gpu_models="1 × NVIDIA L40S", price_usd_per_gpu_hour="2.0", trials_kwh="0.001")
    training = compared(logs)
    problem = "1 GPU metered, 0 used, so the energy is not compared"
    assert logged_gpus(run, ProjectionOptions())[1] == problem
    assert training.options.local_gpu is None and training.about[-1] == problem
    assert training.forecast.energy_kwh is None and training.options.price_usd_per_gpu_hour is None
    local = training.projections[0]
    assert (local.name, local.gpu, local.energy_kwh, local.fits) == ("this machine", None, None, None)
    assert all((row.energy_kwh is None, row.fits) == (row.is_local, None) for row in training.projections)
    assert "give --tdp" not in screen_of(training)


def test_the_time_of_a_cpu_is_not_that_of_a_gpu_by_name(logs: Path) -> None:
    demo_run(logs)
    with pytest.raises(UsageError, match=r"made on a CPU, and its time is not that of RTX 4090: give --hours"):
        compared(logs, local_gpu="RTX 4090")
    explored(logs, used_gpus="0", gpu_models="1 × NVIDIA L40S")
    with pytest.raises(UsageError, match="made on a CPU"):
        compared(logs, local_gpu="L40S")
    explored(logs, run_id="20261123T000000-cccc", used_gpus="1", gpu_count="0", gpu_models="")  # no meter saw it
    assert compared(logs, local_gpu="RTX 4090").options.local_gpu == "RTX 4090"


def test_one_of_eight_gpus_is_one(logs: Path) -> None:
    eight = {"gpu_models": "8 × NVIDIA L40S", "gpu_count": "8", "gpu_power_limit_w": "2800", "gpu_power_w": "600"}
    explored(logs, used_gpus="1", **eight, trials_kwh="0.001", price_usd_per_gpu_hour="2.0")
    training = compared(logs)
    found = training.options
    assert (found.local_gpu, found.n_gpus, found.utilization, found.manual_tdp_watts) == ("NVIDIA L40S", 1, None, 350.0)
    assert found.peak_memory_gb == 4.1 and training.forecast.energy_kwh is None
    local = training.projections[0]
    assert local.n_gpus == 1 and local.cost_usd.point == pytest.approx(local.duration_s.point / 3600 * 2.0)
    assert "8 GPUs metered, 1 used" in screen_of(training)
    given = compared(logs, utilization=0.5).projections[0]
    hours = given.duration_s.point / 3600
    assert given.energy_kwh.point == pytest.approx(hours * 0.350 * (0.5 + power_table().rest.point) * 1.2)  # PUE
    explored(logs, run_id="20261122T000000-bbbb", used_gpus="8", **eight)
    assert compared(logs).options.utilization == pytest.approx(600 / 2800)


def test_a_named_gpu_keeps_the_number_and_the_draw_of_the_log(logs: Path) -> None:
    two = {"gpu_count": "2", "gpu_power_limit_w": "700", "gpu_power_w": "560"}
    run = explored(logs, gpu_models="1 × NVIDIA L40S, 1 × NVIDIA A40", **two)
    advice = r"say which to go by, such as --gpu 'NVIDIA L40S'$"
    with pytest.raises(UsageError, match=advice):
        compared(logs)
    named = compared(logs, local_gpu="L40S").options
    assert (named.n_gpus, named.utilization, named.manual_tdp_watts) == (2, pytest.approx(0.8), 350.0)
    typed = compared(logs, local_gpu="1 × L40S").options
    assert (typed.n_gpus, typed.utilization, typed.manual_tdp_watts) == (1, None, None)
    (run.path / "run.csv").write_text((run.path / "run.csv").read_text().replace("gpu_models", "gpu_molds"))
    advice = r"does not name its GPU: give --gpu, such as --gpu 'RTX 4090'"
    with pytest.raises(UsageError, match=advice):
        compared(logs)


def test_gpus_that_were_not_metered_are_counted_with_an_assumed_draw(logs: Path) -> None:
    """Half an energy, that of the CPU alone, would make the machine here cheaper and cleaner than it is."""
    rows = [epoch_row(n, 100.0, cpu_energy(100.0)) for n in range(1, 4)]
    fields = {**GPU_FIELDS, "unmeasured": "gpu"}
    run = write_run(logs, rows, fields=fields, intensity=GERMANY, price=PRICE)
    summary = run.added_up()
    assert summary.energy.cpu_kwh > 0 and (summary.cost_usd, summary.cost_basis) == (None, "")
    assert wording.why_no_cost(run) == "the energy of the GPUs is unknown"
    training = compared(logs)
    assert training.forecast.energy_kwh is training.forecast.cost_usd is None
    assert "its GPUs could not be metered" in training.about[2]
    local = training.projections[0]
    assert training.options.electricity_price is not None  # of the place: other machines there are paid with it
    assert any("of their power limit is assumed" in text for text in local.warnings)  # not what was metered of the CPU
    assert local.energy_kwh.point > 3 * summary.energy.cpu_kwh
    assert local.energy_kwh.upper > 1.2 * local.energy_kwh.point


@pytest.mark.parametrize(
    ("fields", "kind", "said"),
    [
        (
            {"precision": "tf32", "precision_basis": "convolutions in TF32"},
            (None, "tf32"),
            "counted in tf32 (convolutions in TF32)",
        ),
        (
            {"workload": "language", "workload_basis": "attention in 12 layers"},
            ("language", None),
            "counted as language (guessed from attention in 12 layers)",
        ),
        (
            {"precision": "bf16+fp32", "precision_basis": "autocast", "workload": "vision", "workload_basis": "given"},
            ("vision", "fp32"),
            "counted in fp32 (the slowest of several) and as vision (given)",
        ),
        ({"precision": "bf16+int4", "workload": "chess", "workload_basis": "a guess"}, (None, None), ""),
    ],
)
def test_what_the_log_knows_of_the_training_is_counted_with_and_said(logs: Path, fields, kind, said) -> None:
    explored(logs, **fields)
    known = compared(logs).options
    assert (known.workload, known.precision) == kind
    assert [text for text in compared(logs).about if text.startswith("counted")] == ([said] if said else [])
    given = compared(logs, workload="speech", precision="fp8").about
    assert not [text for text in given if "counted" in text]


def test_hours_without_a_log(monkeypatch) -> None:
    training = compare_hours(20.0, ProjectionOptions(local_gpu="4x RTX 4090"))
    assert (training.options.local_gpu, training.options.n_gpus) == ("RTX 4090", 4)
    assert training.forecast.duration_s.point == 72_000
    assert training.forecast.duration_s.kind == "assumption" and training.options.pue == 1.0
    monkeypatch.setenv("GREENLOVE_COUNTRY", "FR")
    assert compare_hours(1.0, ProjectionOptions()).options.country == "FR"
    monkeypatch.setenv("GREENLOVE_WORKLOAD", "speech")
    training = compare_hours(1.0, ProjectionOptions(precision="tf32"))
    assert (training.options.workload, training.options.precision) == ("speech", "tf32")
    for hours in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="--hours must be positive"):
            compare_hours(hours, ProjectionOptions())


def test_a_tracked_run_on_a_cpu_without_steps_is_refused(logs: Path) -> None:
    rows = [replace(row, counts=Counts()) for row in demo_rows()]
    write_run(logs, rows)
    with pytest.raises(UsageError, match=r"used no GPU and counted no steps.*tracker.step\(\)"):
        compared(logs)
    assert row_of(compared(logs, custom_speedup=2.0), L40S).duration_s.point > 0
    write_run(logs, rows, "20261122T000000-bbbb", fields=GPU_FIELDS)
    assert row_of(compared(logs), L40S).duration_s.point > 0  # from a GPU benchmarks lead on


def test_the_forecast_at_hand_is_not_made_again(logs: Path) -> None:
    run = explored(logs)
    made = forecast_from_log(run, replace(PLAN, epochs=7))
    comparison = compare_run(run, ProjectionOptions(), forecast=made)
    assert comparison.projections[0].duration_s == at_level(made.duration_s) and "7 epochs" in comparison.about[0]


def test_the_memory_of_the_log_tells_its_card(logs: Path) -> None:
    explored(logs, gpu_models="1 × NVIDIA GeForce RTX 3080", gpu_power_limit_w="320")
    assert compared(logs).projections[0].name == "GeForce RTX 3080 10GB"  # the common one
    assert compared(logs, local_memory_gb=12.0).projections[0].name == "GeForce RTX 3080 12GB"
    assert CliRunner().invoke(cli, ["project", str(logs), "--gpu-memory", "10", "--json"]).exit_code == 0
    explored(logs, run_id="20261123T000000-cccc", gpu_models="1 × NVIDIA L40S", gpu_memory_gb="11.2")
    with pytest.raises(UsageError, match="a part of that GPU"):
        compared(logs)
