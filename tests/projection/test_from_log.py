from __future__ import annotations

import csv
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from report_samples import GERMANY, GPU_FIELDS, PRICE, demo_rows, demo_run, gpu_rows, gpu_run, write_run

from greenlove_tracker.cli import cli, forecast
from greenlove_tracker.errors import UsageError
from greenlove_tracker.extrapolation.extrapolate import forecast_from_log
from greenlove_tracker.forecasting import Estimate, Forecast, TrainingPlan, Trial
from greenlove_tracker.logs.directory import read_logs
from greenlove_tracker.logs.forecasts import FORECAST_COLUMNS, IssuedForecast, forecast_cells
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.trials import plan_fields, write_trials
from greenlove_tracker.projection.from_log import Asked, Machine, given_subject, logged_subject
from greenlove_tracker.projection.measured import given_speedups
from greenlove_tracker.projection.power import at_level
from greenlove_tracker.projection.project import compare
from greenlove_tracker.projection.types import rows_in_options
from greenlove_tracker.records import Counts
from greenlove_tracker.report.screens import projection_screen

PLAN = TrainingPlan(samples=50_000, batch_size=128, epochs=100)
LAPTOP, L40S = "GeForce RTX 3060 Laptop GPU", "L40S"


@pytest.fixture(autouse=True)
def no_settings(tmp_path: Path, monkeypatch) -> None:
    for name in list(os.environ):
        if name.startswith(("GREENLOVE_", "SLURM_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return tmp_path / "logs"


def explored(
    logs: Path, *, faster: float = 1.0, run_id: str = "20261121T120000-aaaa", trials_kwh: str = "", **fields: str
) -> Run:
    """An exploration on the laptop's GPU: 92 of 115 W, 4.1 GiB."""
    plan = {field.name: field.value for field in plan_fields(PLAN)}
    machine = {**GPU_FIELDS, "gpu_method": "counter", "gpu_power_w": "92"}
    written = {**machine, **plan, **fields}
    run = write_run(logs, gpu_rows(3), run_id, fields=written, intensity=GERMANY, price=PRICE)
    trials = [
        Trial(
            128 * b,
            128,
            tuple((0.4 + 0.06 * b * (1 + 0.02 * ((i * 7 + b) % 5 - 2))) / faster for i in range(4)),
            float(trials_kwh) * b if trials_kwh else None,
        )
        for b in (10, 20, 40, 80, 40)
    ]
    write_trials(run.path, trials)
    return Run(run.path)


def screen_of(comparison) -> str:
    return projection_screen(rows_in_options(comparison.projections), comparison.about, comparison.today)


def row_of(comparison, name: str):
    return next(row for row in comparison.projections if row.name == name and not row.is_local)


# -- what is known of the training ---------------------------------------------------------------------------------


def test_an_exploration_is_forecast_again_with_its_machine(logs: Path) -> None:
    run = explored(logs)
    subject = logged_subject(str(logs), Asked())
    assert subject.forecast == forecast_from_log(run)
    here = subject.machine
    assert (here.gpu, here.n_gpus, here.limit_w) == ("NVIDIA GeForce RTX 3060 Laptop GPU", 1, 115.0)
    assert (here.draw, here.peak_memory_gb) == (pytest.approx(0.8), 4.1)
    assert subject.place["carbon_intensity"] == GERMANY and subject.place["pue"] == 1.2
    assert "50,000 samples · batch 128 · 100 epochs" in subject.about[0]
    took = at_level(subject.forecast.duration_s)
    local = compare(str(logs), Asked()).projections[0]
    assert (local.name, local.duration_s) == (LAPTOP, took)


def test_foresight_forecasts_the_same_again(logs: Path) -> None:
    run = explored(logs)
    shown = forecast.exploration_text(read_logs(logs), 200, None, None)
    made = forecast_from_log(run, replace(PLAN, epochs=200))
    assert "200 epochs" in shown
    assert made.duration_s.point == pytest.approx(2 * forecast_from_log(run).duration_s.point, rel=1e-6)


def test_a_finished_run_is_what_it_took(logs: Path) -> None:
    run = gpu_run(logs)
    subject = logged_subject(str(logs), Asked())
    took = subject.forecast.duration_s
    assert took.point == took.lower == took.upper == run.summary.duration_s
    assert subject.forecast.energy_kwh.point == run.summary.energy_kwh  # PUE included
    assert subject.machine.draw is None  # the log does not say that a counter gave it
    local, *others = compare(str(logs), Asked()).projections
    assert local.energy_kwh.point == run.summary.energy_kwh and local.duration_s.upper == local.duration_s.point
    assert local.cost_usd.point == pytest.approx(run.summary.cost_usd)
    assert local.emissions_kgco2e.point == pytest.approx(run.summary.emissions_kgco2e)
    assert all(row.fits for row in others)


def test_the_draw_of_a_tracked_run_is_that_of_its_gpus(logs: Path) -> None:
    run = write_run(logs, gpu_rows(), fields={**GPU_FIELDS, "gpu_method": "counter"}, intensity=GERMANY)
    gpu_kwh = sum((r.energy.gpu_kwh or 0) + (r.gap_before.gpu_kwh or 0) for r in run.rows[0])
    mean_w = gpu_kwh * 3.6e6 / run.summary.duration_s
    assert logged_subject(str(logs), Asked()).machine.draw == pytest.approx(mean_w / 115)
    assert logged_subject(str(logs), Asked(gpu="2 × RTX 3060")).machine.draw is None  # of another number of GPUs


def test_an_interrupted_run_is_what_it_forecast_last(logs: Path) -> None:
    run = write_run(logs, gpu_rows(3), fields={**GPU_FIELDS, "epochs_planned": "30"}, status="interrupted")
    with pytest.raises(UsageError, match="neither finished nor forecast anything"):
        logged_subject(str(logs), Asked())
    with (run.path / "forecasts.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(FORECAST_COLUMNS)
        for hours in (2.0, 3.0):
            made = Forecast(
                Estimate(hours * 3600, hours * 3500, hours * 3700, 0.95, "s"),
                None,
                None,
                None,
                Estimate(0.0, 0.0, 0.0, 0.95, "s"),
                None,
                None,
                (),
                None,
                "live",
                1,
                None,
            )
            issued = {"issued_at": "x", "elapsed_s": 1.0, "epochs_done": 1, "steps_done": 1, "planned": 30}
            writer.writerow(forecast_cells(IssuedForecast.of(made, **issued)))
    subject = logged_subject(str(logs), Asked())
    assert subject.forecast.duration_s == Estimate(10_800, 10_500, 11_100, 0.95, "s")
    assert "forecast last" in subject.about[1]


def test_the_latest_exploration_goes_before_later_runs(logs: Path) -> None:
    explored(logs)
    gpu_run(logs, "20261122T000000-bbbb")
    assert logged_subject(str(logs), Asked()).exploration.run_id == "20261121T120000-aaaa"


def test_a_run_without_a_gpu_has_none_and_no_peak_of_one(logs: Path) -> None:
    demo_run(logs)
    subject = logged_subject(str(logs), Asked())
    assert subject.machine == Machine(None)
    explored(logs, gpu_count="0", gpu_models="", peak_gpu_memory_gb="", peak_memory_gb="3.3")
    assert logged_subject(str(logs), Asked()).machine.peak_memory_gb is None  # that of the process is no GPU's


def test_idle_gpus_beside_a_training_on_the_cpu_are_not_its_own(logs: Path) -> None:
    explored(logs, used_gpus="0", gpu_models="1 × NVIDIA L40S", price_usd_per_gpu_hour="2.0", trials_kwh="0.001")
    subject = logged_subject(str(logs), Asked())
    assert subject.machine == Machine(None, idle="1 metered GPU idle, so the energy is not compared")
    assert subject.forecast.energy_kwh is None and subject.place["price_usd_per_gpu_hour"] is None
    comparison = compare(str(logs), Asked())
    local = comparison.projections[0]
    assert (local.name, local.gpu, local.energy_kwh, local.fits) == ("this machine", None, None, None)
    assert all(row.energy_kwh is None and row.fits is None for row in comparison.projections)
    head = " ".join(screen_of(comparison).split("\n\n")[0].split())
    assert "here, without a GPU" in head and "L40S" not in head and "1 metered GPU idle" in head


def test_a_training_on_the_cpu_alone_keeps_its_energy(logs: Path) -> None:
    run = explored(logs, used_gpus="0", gpu_count="0", gpu_models="", trials_kwh="0.001", price_usd_per_gpu_hour="2.0")
    subject = logged_subject(str(logs), Asked())
    energy = forecast_from_log(run).energy_kwh
    assert energy is not None and subject.forecast.energy_kwh == energy and not subject.machine.idle
    local = compare(str(logs), Asked()).projections[0]
    assert local.energy_kwh.point == energy.point
    assert local.cost_basis == "electricity"  # as the forecast says: no GPU, no price of one
    assert local.cost_usd.point == pytest.approx(forecast_from_log(run).cost_usd.point)


def test_the_time_of_a_cpu_is_not_that_of_a_gpu_by_name(logs: Path) -> None:
    demo_run(logs)
    with pytest.raises(UsageError, match=r"made on a CPU, and its time is not that of RTX 4090: give --hours"):
        logged_subject(str(logs), Asked(gpu="RTX 4090"))
    explored(logs, used_gpus="0", gpu_models="1 × NVIDIA L40S")
    with pytest.raises(UsageError, match="made on a CPU"):
        logged_subject(str(logs), Asked(gpu="L40S"))
    explored(logs, run_id="20261123T000000-cccc", used_gpus="1", gpu_count="0", gpu_models="")  # no meter saw it
    assert logged_subject(str(logs), Asked(gpu="RTX 4090")).machine.gpu == "RTX 4090"


def test_a_tracked_run_on_a_cpu_has_its_own_steps_as_the_least(logs: Path) -> None:
    demo_run(logs)
    subject = logged_subject(str(logs), Asked())
    assert subject.forecast.plan == TrainingPlan(steps=120) and subject.about[0] == "demo/20261121T034044-7f3a"
    comparison = compare(str(logs), Asked())
    assert row_of(comparison, "H200 SXM").duration_s.lower == pytest.approx(120 * 0.3e-3)
    assert "120 steps take 36.0 ms at least" in " ".join(screen_of(comparison).split())


def test_a_tracked_run_on_a_cpu_without_steps_is_refused(logs: Path) -> None:
    rows = [replace(row, counts=Counts()) for row in demo_rows()]
    write_run(logs, rows)
    with pytest.raises(UsageError, match=r"used no GPU and counted no steps.*tracker.step\(\)"):
        compare(str(logs), Asked())
    assert row_of(compare(str(logs), Asked(speedups=("2",))), L40S).duration_s.point > 0
    write_run(logs, rows, "20261122T000000-bbbb", fields=GPU_FIELDS)
    assert row_of(compare(str(logs), Asked()), L40S).duration_s.point > 0  # from a GPU benchmarks lead on


def test_one_of_eight_gpus_is_one(logs: Path) -> None:
    eight = {"gpu_models": "8 × NVIDIA L40S", "gpu_count": "8", "gpu_power_limit_w": "2800", "gpu_power_w": "600"}
    explored(logs, used_gpus="1", **eight, trials_kwh="0.001", price_usd_per_gpu_hour="2.0")
    subject = logged_subject(str(logs), Asked())
    machine = subject.machine
    assert (machine.gpu, machine.n_gpus, machine.draw, machine.limit_w) == ("NVIDIA L40S", 1, None, 350.0)
    assert machine.peak_memory_gb == 4.1 and subject.forecast.energy_kwh is None
    comparison = compare(str(logs), Asked())
    local = comparison.projections[0]
    assert local.n_gpus == 1 and local.cost_usd.point == pytest.approx(local.duration_s.point / 3600 * 2.0)
    assert "7 metered GPUs idle" in screen_of(comparison) and "give --utilization" in " ".join(
        screen_of(comparison).split()
    )
    given = compare(str(logs), Asked(utilization=0.5)).projections[0]
    hours = given.duration_s.point / 3600
    assert given.energy_kwh.point == pytest.approx(hours * 0.350 * 0.5 * 1.2 * 1.2)  # host, PUE
    explored(logs, run_id="20261122T000000-bbbb", used_gpus="8", **eight)
    assert logged_subject(str(logs), Asked()).machine.draw == pytest.approx(600 / 2800)


def test_a_gpu_that_was_not_metered_must_be_named(logs: Path) -> None:
    explored(logs, used_gpus="1", gpu_count="0", gpu_models="")
    with pytest.raises(UsageError, match=r"does not name its GPU: give --gpu, such as --gpu 'RTX 4090'$"):
        compare(str(logs), Asked())


def test_a_simulated_gpu_is_the_users_word_for_one_of_the_training(logs: Path) -> None:
    explored(logs, used_gpus="0", meter="simulated", gpu_models="1 × simulated GPU, 350 W at 75%", trials_kwh="0.001")
    subject = logged_subject(str(logs), Asked())
    assert subject.machine.gpu is None and subject.forecast.energy_kwh is not None and not subject.machine.idle


def test_a_named_gpu_keeps_the_number_and_the_draw_of_the_log(logs: Path) -> None:
    two = {"gpu_count": "2", "gpu_power_limit_w": "700", "gpu_power_w": "560"}
    run = explored(logs, gpu_models="1 × NVIDIA L40S, 1 × NVIDIA A40", **two)
    advice = r"say which to go by, such as --gpu 'NVIDIA L40S' for all 2, or --gpu '1 × NVIDIA L40S' for fewer$"
    with pytest.raises(UsageError, match=advice):
        logged_subject(str(logs), Asked())
    named = logged_subject(str(logs), Asked(gpu="L40S")).machine
    assert (named.n_gpus, named.draw, named.limit_w) == (2, pytest.approx(0.8), 350.0)
    typed = logged_subject(str(logs), Asked(gpu="1 × L40S")).machine
    assert (typed.n_gpus, typed.draw, typed.limit_w) == (1, None, None)
    (run.path / "run.csv").write_text((run.path / "run.csv").read_text().replace("gpu_models", "gpu_molds"))
    advice = r"does not name its GPU: give --gpu, such as --gpu 'RTX 4090' for all 2, or --gpu '1 × RTX 4090' for fewer"
    with pytest.raises(UsageError, match=advice):
        logged_subject(str(logs), Asked())


def test_the_memory_of_the_log_tells_its_card(logs: Path) -> None:
    explored(logs, gpu_models="1 × NVIDIA GeForce RTX 3080", gpu_power_limit_w="320")
    with pytest.raises(UsageError, match="give its memory"):
        compare(str(logs), Asked())
    assert compare(str(logs), Asked(gpu_memory=12.0)).projections[0].name == "GeForce RTX 3080 12GB"
    assert call(str(logs), "--gpu-memory", "10", "--json").exit_code == 0
    explored(
        logs,
        run_id="20261122T000000-bbbb",
        gpu_models="1 × NVIDIA GeForce RTX 3080",
        gpu_power_limit_w="320",
        gpu_memory_gb="9.996",
    )
    assert compare(str(logs), Asked()).projections[0].name == "GeForce RTX 3080 10GB"
    explored(logs, run_id="20261123T000000-cccc", gpu_models="1 × NVIDIA L40S", gpu_memory_gb="11.2")
    with pytest.raises(UsageError, match="a part of that GPU, whose speed is in no table"):
        compare(str(logs), Asked())


def test_the_forecast_at_hand_is_not_made_again(logs: Path) -> None:
    run = explored(logs)
    made = forecast_from_log(run, replace(PLAN, epochs=7))
    comparison = compare(str(logs), Asked(), forecast=made)
    assert comparison.projections[0].duration_s == at_level(made.duration_s) and "7 epochs" in comparison.about[0]


def test_what_is_asked_goes_before_the_log(logs: Path) -> None:
    run = explored(logs)
    france = logged_subject(str(logs), Asked(country="FR")).place
    assert france["carbon_intensity"] is None and france["electricity_price"] is None
    subject = logged_subject(str(logs), Asked(pue=1.5, price=2.0, carbon_intensity=50.0, electricity_price=0.1))
    assert (subject.place["pue"], subject.place["price_usd_per_gpu_hour"]) == (1.5, 2.0)
    assert (subject.place["carbon_intensity"], subject.place["electricity_price"]) == (50.0, 0.1)
    energy = forecast_from_log(run).energy_kwh
    assert (energy is None) == (subject.forecast.energy_kwh is None)
    rows = compare(str(logs), Asked(utilization=0.5, tdp=100.0, peak_memory=60.0)).projections
    assert row_of(compare(str(logs), Asked(peak_memory=60.0)), L40S).fits is False
    a100 = next(row for row in rows if row.name == "A100 PCIe 80GB")
    assert any("50% (draw given by the user)" in text for text in a100.assumptions)


def test_another_pue_replaces_that_of_the_run(logs: Path) -> None:
    run = gpu_run(logs)  # PUE 1.2
    energy = logged_subject(str(logs), Asked(pue=1.5)).forecast.energy_kwh
    assert energy.point == pytest.approx(run.summary.energy_kwh * 1.5 / 1.2)


def test_gpus_of_several_kinds_must_be_chosen_from(logs: Path) -> None:
    explored(logs, gpu_models="1 × NVIDIA L40S, 1 × NVIDIA A40", gpu_count="2")
    with pytest.raises(UsageError, match="different GPUs"):
        compare(str(logs), Asked())
    assert compare(str(logs), Asked(gpu="2 × L40S")).projections[0].n_gpus == 2
    explored(logs, run_id="20261122T000000-cccc", gpu_models="")
    with pytest.raises(UsageError, match="does not name its GPU"):
        compare(str(logs), Asked())


def test_a_damaged_exploration_is_named(logs: Path) -> None:
    run = explored(logs, cold_start_s="soon")
    with pytest.raises(UsageError, match=rf"{run.run_id}: run.csv is damaged: .*'soon'"):
        compare(str(logs), Asked())


def test_hours_without_a_log(monkeypatch) -> None:
    subject = given_subject(Asked(gpu="4x RTX 4090", hours=20.0))
    assert (subject.machine.gpu, subject.machine.n_gpus) == ("RTX 4090", 4)
    assert subject.forecast.duration_s.point == 72_000
    assert subject.forecast.duration_s.kind == "assumption" and subject.place["pue"] == 1.0
    monkeypatch.setenv("GREENLOVE_COUNTRY", "FR")
    assert given_subject(Asked(hours=1.0)).place["country"] == "FR"
    for hours in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="--hours must be positive"):
            compare(None, Asked(hours=hours))


# -- speedups ------------------------------------------------------------------------------------------------------


def test_speedups_that_are_given() -> None:
    assert given_speedups(()) is None
    assert given_speedups(("1.8",)) == 1.8
    assert given_speedups(("L40S=1.8", "RTX 4090 = 2,1.5,2.5")) == {"L40S": 1.8, "RTX 4090": (2.0, 1.5, 2.5)}
    for wrong in (("x",), ("1,2",), ("",), ("L40S=",), ("1.8", "L40S=2")):
        with pytest.raises(UsageError, match="--speedup"):
            given_speedups(wrong)


def test_a_measured_speedup_is_the_ratio_of_two_forecasts(logs: Path, tmp_path: Path) -> None:
    here = explored(logs)
    there = explored(
        tmp_path / "there", faster=3.0, gpu_models="1 × NVIDIA L40S", plan_epochs="7"
    )  # the number of epochs may differ
    comparison = compare(str(logs), Asked(measured=str(tmp_path / "there")))
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
    others = {r.name: r for r in compare(str(logs), Asked()).projections if r.name != L40S}
    assert all(others[r.name] == r for r in comparison.projections if r.name != L40S)


def test_a_measured_machine_of_eight_is_taken_back_to_one(logs: Path, tmp_path: Path) -> None:
    explored(logs)
    explored(tmp_path / "there", faster=13.6, gpu_models="8 × NVIDIA H100 80GB HBM3", gpu_count="8")
    row = row_of(compare(str(logs), Asked(measured=str(tmp_path / "there"))), "H100 SXM5 80GB")
    assert row.speedup.estimate.point == pytest.approx(2.0)  # 13.6 / (8 × 85%)
    local = compare(str(logs), Asked()).projections[0]
    assert row.duration_s.point == pytest.approx(local.duration_s.point / 13.6)


def test_what_cannot_be_compared_is_refused(logs: Path, tmp_path: Path) -> None:
    explored(logs)
    demo_run(tmp_path / "demo")
    with pytest.raises(UsageError, match=r"compares two explorations .*demo holds none"):
        compare(str(logs), Asked(measured=str(tmp_path / "demo")))
    with pytest.raises(UsageError, match="the log here holds none"):
        compare(str(tmp_path / "demo"), Asked(measured=str(logs)))
    explored(tmp_path / "other", gpu_models="1 × NVIDIA L40S", plan_samples="60000")
    with pytest.raises(UsageError, match="another training"):
        compare(str(logs), Asked(measured=str(tmp_path / "other")))
    explored(tmp_path / "cpu", gpu_models="", gpu_count="0")
    with pytest.raises(UsageError, match="no GPU is named"):
        compare(str(logs), Asked(measured=str(tmp_path / "cpu")))
    explored(tmp_path / "there", gpu_models="1 × NVIDIA L40S")
    with pytest.raises(UsageError, match="name the GPUs"):
        compare(str(logs), Asked(measured=str(tmp_path / "there"), speedups=("2",)))
    both = compare(str(logs), Asked(measured=str(tmp_path / "there"), speedups=("A100 PCIe 80GB=2",)))
    assert row_of(both, "A100 PCIe 80GB").speedup.known_from == "given"
    assert row_of(both, L40S).speedup.known_from == "measured"


# -- the command ---------------------------------------------------------------------------------------------------


def call(*arguments: str):
    return CliRunner().invoke(cli, ["project", *arguments])


def test_the_command_without_a_log() -> None:
    result = call("--gpu", "RTX 4090", "--hours", "20", "--country", "DE", "--utilization", "0.82")
    assert result.exit_code == 0 and "here on 1 × GeForce RTX 4090 · time as given" in result.stdout
    assert "L40S" in result.stdout and "0 claimed" in result.stdout
    bare = call("--gpu", "RTX 4090", "--hours", "20").stdout
    assert "give --electricity-price in USD/kWh" in bare
    assert "give --utilization, a share" in " ".join(bare.split()) and "manual_gpu" not in bare


def test_a_machine_without_a_gpu_has_no_price_of_one(monkeypatch) -> None:
    monkeypatch.setenv("GREENLOVE_PRICE_USD_PER_GPU_HOUR", "2.0")
    assert compare(None, Asked(hours=1.0)).projections[0].cost_usd is None
    assert compare(None, Asked(hours=1.0, gpu="L40S")).projections[0].cost_usd.point == pytest.approx(2.0)


def test_options_are_named_before_lines_are_broken() -> None:
    for arguments in ([], ["--country", "IN"], ["--country", "Cuba"], ["--speedup", "L40S=2", "--gpu", "Voodoo 2"]):
        text = call("--hours", "20", *(arguments or ["--gpu", "RTX 4090"])).stdout
        assert text and max(map(len, text.splitlines())) <= 100, arguments
        assert "electricity_price" not in text and "custom_speedup" not in text


def test_embodied_emissions_are_an_option() -> None:
    result = call("--gpu", "L40S", "--hours", "10", "--embodied", "0.02", "--json")
    assert json.loads(result.stdout)["projections"][0]["embodied_kgco2e"] == pytest.approx(0.2)
    wrong = call("--gpu", "L40S", "--hours", "10", "--embodied", "-1")
    assert wrong.exit_code == 1 and "--embodied must be a positive number" in wrong.output


def test_the_command_on_a_log_in_every_style(logs: Path, tmp_path: Path) -> None:
    explored(logs)
    assert LAPTOP in " ".join(call(str(logs)).stdout.split())
    record = json.loads(call(str(logs), "--json").stdout)
    assert {"about", "projections", "verdicts", "savings", "notes", "warnings"} == record.keys()
    rows = list(csv.DictReader(call(str(logs), "--csv").stdout.splitlines()))
    assert [r["gpu"] for r in rows] == [p["gpu"] for p in record["projections"]]
    wanted = call(str(logs), "--gpus", "4", "--csv").stdout.splitlines()
    assert {r["gpu"]: r["gpus_billed"] for r in csv.DictReader(wanted)}["L40S"] == "4"
    assert call(str(logs), "-o", "x.html").exit_code == 0
    assert "Here and on other machines" in (tmp_path / "x.html").read_text()
    assert call(str(logs), "-o", "x.pdf").exit_code == 0
    assert (tmp_path / "x.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere"], "nowhere is not a directory of logs"),
        (["--gpu", "RTX 409", "--hours", "1"], "give one of its names, or --speedup"),
        (["--hours", "1", "--provider", "nobody"], "no offers of provider 'nobody'"),
        (["--hours", "1", "--region", "mars"], "nothing is offered in region 'mars'"),
        (["--hours", "1", "--country", "Germny"], "Germany"),
        (["--hours", "1", "--task", "cooking"], "no benchmark is called 'cooking'"),
        (["--hours", "1", "--pue", "0.5"], "pue must be at least 1"),
        (["--hours", "1", "--utilization", "82"], "a share from 0 to 1"),
        (["--hours", "1", "--json", "--csv"], "choose one"),
        (["--hours", "1", "-o", "x.docx"], ".pdf, .html and .md can be written"),
        (["--hours", "1", "--target", "RTX 99"], "no GPU of the table is called 'RTX 99'"),
        (["x", "--hours", "1"], "--hours is for a training without a log"),
    ],
)
def test_a_users_mistake_is_one_line_that_says_what_to_do(arguments, says) -> None:
    result = call(*arguments)
    assert result.exit_code == 1
    assert says in result.output and result.output.count("\n") == 1, result.output


def test_an_empty_log_says_what_to_do(logs: Path) -> None:
    logs.mkdir()
    assert "explore or track one, or give --gpu and --hours" in call(str(logs)).output
