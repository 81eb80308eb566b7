import math
from dataclasses import replace
from pathlib import Path

import pytest
from report_samples import cpu_energy, epoch_row, write_run

from greenlove_tracker.logs.aggregate import aggregate, flat_totals
from greenlove_tracker.logs.measurement_errors import LEVEL, error_of, measurement_errors
from greenlove_tracker.logs.uncertainty import energy_deviations, error_parts, run_interval, with_meter_error
from greenlove_tracker.vocabulary.forecasting import Estimate
from greenlove_tracker.vocabulary.records import Energy, Factor, Method

PRICE = Factor("electricity_price", 0.4, "USD/kWh", "test", "2026")
GPU = {"gpu_models": "1 × NVIDIA RTX A4000", "gpu_count": "1"}


def run_of(tmp_path: Path, energy: Energy, run_id: str = "20261121T034044-7f3a", **options):
    duration_s = options.pop("duration_s", 100.0)
    return write_run(tmp_path, [epoch_row(1, duration_s, energy)], run_id, **options)


def test_each_row_of_the_table_is_a_range_with_a_source() -> None:
    for error in measurement_errors():
        assert 0 < error.lower < 1 < error.upper and error.after_1_s >= 0
        assert error.basis in ("published", "computed", "assumed") and len(error.source) > 12


def test_every_method_that_a_meter_may_log_has_an_error() -> None:
    logged = [m for m in Method if m != Method.ASSUMED]
    for component in ("cpu", "gpu"):
        assert all(error_of(component, method) for method in logged)
    assert all(error_of("ram", m) for m in (Method.COUNTER, Method.SAMPLED_POWER, Method.CONSTANT))
    assert error_of("ram", "guessed") is None


def test_independent_errors_are_added_in_quadrature_each_side_for_itself(tmp_path) -> None:
    energy = Energy(0.01, 0.1, 0.002, Method.TDP_MODEL, Method.COUNTER, Method.CONSTANT)
    run = run_of(tmp_path, energy, fields={**GPU, "pue": "1.5"}, price=PRICE)
    estimate = run_interval(run)
    assert estimate.point == pytest.approx(0.112 * 1.5) and estimate.level == LEVEL
    assert estimate.lower == pytest.approx(1.5 * (0.112 - math.hypot(0.01 * 0.29, 0.1 * 0.05, 0.002 * 0.6)))
    assert estimate.upper == pytest.approx(1.5 * (0.112 + math.hypot(0.01 * 0.67, 0.1 * 0.05, 0.002 * 1.5)))
    for quantity in ("emissions_kgco2e", "cost_usd"):  # they follow the energy
        other = run_interval(run, quantity)
        assert other.upper / other.point == pytest.approx(estimate.upper / estimate.point)
        assert other.lower / other.point == pytest.approx(estimate.lower / estimate.point)


def test_a_forecast_of_energy_is_off_by_as_much_as_what_was_metered(tmp_path) -> None:
    run = run_of(tmp_path, Energy(gpu_kwh=0.1, gpu_method=Method.TDP_MODEL), fields=GPU)
    measured = run_interval(run)
    sure = with_meter_error(Estimate(0.3, 0.3, 0.3, 0.95, "kWh"), run, "energy_kwh")
    assert (sure.lower / 0.3, sure.upper / 0.3) == pytest.approx((measured.lower / 0.1, measured.upper / 0.1))
    unsure = with_meter_error(Estimate(0.3, 0.2, 0.4, 0.95, "kWh"), run, "energy_kwh")
    assert unsure.upper - 0.3 == pytest.approx(math.hypot(0.1, sure.upper - 0.3)) and unsure.lower < sure.lower
    # 4.23 Wh [2.5 – 6] by a meter that may count six times too much: not from 0 on
    wide = with_meter_error(Estimate(4.23e-3, 2.5e-3, 6e-3, 0.95, "kWh"), run, "energy_kwh")
    assert wide.lower == pytest.approx(4.23e-3 / (1 + math.hypot(4.23 / 2.5 - 1, 0.1 / measured.lower - 1)))
    seconds = Estimate(9.0, 8.0, 10.0, 0.95, "s")
    unknown = run_of(tmp_path, Energy(), "20260921T034044-7f3b")
    assert with_meter_error(seconds, unknown, "energy_kwh") == seconds  # nothing was metered


def test_the_same_method_is_off_together_in_all_runs_and_others_are_not(tmp_path) -> None:
    for number in range(4):
        run_of(tmp_path, Energy(gpu_kwh=1.0, gpu_method=Method.COUNTER), f"2026112{number}T000000-aaaa", fields=GPU)
    same = aggregate(tmp_path).total
    assert same.energy_kwh_upper == pytest.approx(4.2) and same.energy_kwh_lower == pytest.approx(3.8)
    run_of(tmp_path, Energy(cpu_kwh=1.0, cpu_method=Method.COUNTER), "20261125T000000-aaaa")
    assert aggregate(tmp_path).total.energy_kwh_upper == pytest.approx(5 + math.hypot(0.2, 0.1))


def test_a_sensor_that_sees_a_quarter_of_the_time_errs_more_in_short_runs(tmp_path) -> None:
    energy = Energy(gpu_kwh=1.0, gpu_method=Method.COUNTER)
    h100 = {**GPU, "gpu_models": "8 × NVIDIA H100 80GB HBM3"}
    widths = {
        seconds: run_interval(run_of(tmp_path, energy, f"run-{seconds:g}", fields=h100, duration_s=seconds)).upper - 1
        for seconds in (1.0, 100.0, 1e6)
    }
    assert widths[1.0] == pytest.approx(math.hypot(0.05, 0.08))
    assert widths[100.0] == pytest.approx(math.hypot(0.05, 0.008))
    assert widths[1e6] == pytest.approx(0.05, rel=1e-3)
    flash = run_interval(run_of(tmp_path, energy, "run-flash", fields=h100, duration_s=0.001))
    assert flash.lower > 0.2  # of a sensor that all but missed it


def test_an_energy_of_several_methods_has_the_error_of_the_worst(tmp_path) -> None:
    run = run_of(tmp_path, Energy(cpu_kwh=1.0, cpu_method="counter+tdp_model"))
    assert run_interval(run).upper == pytest.approx(1.67)


def test_what_nobody_knows_has_no_interval(tmp_path) -> None:
    unknown = run_of(tmp_path, Energy(ram_kwh=1.0, ram_method=Method.TDP_MODEL), "a")
    assert run_interval(unknown) is None and error_parts(unknown) is None
    assert run_interval(run_of(tmp_path, Energy(), "b")) is None
    no_place = run_of(tmp_path, cpu_energy(1.0), "c", intensity=None)
    assert run_interval(no_place) is not None and run_interval(no_place, "emissions_kgco2e") is None
    assert run_interval(no_place, "cost_usd") is None
    total = aggregate(tmp_path).total
    assert total.n_unknown_error == 1 and total.bounds("energy_kwh") is None
    assert flat_totals(total)["energy_kwh_lower"] is None and flat_totals(total)["unknown_error"] == 1


def test_the_price_of_a_machine_hangs_on_time_alone(tmp_path) -> None:
    fields = {**GPU, "price_usd_per_gpu_hour": "2"}
    run = run_of(tmp_path, Energy(gpu_kwh=1.0, gpu_method=Method.COUNTER), fields=fields)
    machine = replace(run.summary, cost_usd=1.0, cost_basis="machine")
    run.__dict__["summary"] = machine
    assert run_interval(run, "cost_usd") is None and run_interval(run) is not None


def test_time_without_a_meter_and_the_rest_of_a_node_have_errors_of_their_own(tmp_path) -> None:
    rows = [epoch_row(1, 50.0, Energy(gpu_kwh=0.5, gpu_method=Method.COUNTER)), epoch_row(2, 50.0)]
    run = write_run(tmp_path, rows, fields={**GPU, "node_overhead": "1.25"})
    found = energy_deviations(run)
    assert set(found) == {"gpu counter", "unmetered estimate", "node assumed"}
    assert found["unmetered estimate"] == pytest.approx((0.25, 0.25))
    assert found["node assumed"][1] == pytest.approx(0.63 * run.summary.node_assumed_kwh)


def test_the_halves_of_a_run_have_the_bounds_of_the_whole(tmp_path) -> None:
    rows = [epoch_row(n, 3600.0, cpu_energy(3600.0)) for n in (1, 2)]
    write_run(tmp_path, rows, fields={"started_at": "2026-10-31T23:00:00Z"})
    months = list(aggregate(tmp_path).by("month").values())
    assert len(months) == 2
    total = aggregate(tmp_path).total
    assert math.fsum(m.energy_kwh_upper for m in months) == pytest.approx(total.energy_kwh_upper)


def test_a_negative_price_turns_the_range_of_a_cost_round(tmp_path) -> None:
    price = Factor("electricity_price", -0.1, "USD/kWh", "test", "2026")
    run = run_of(tmp_path, Energy(cpu_kwh=1.0, cpu_method=Method.TDP_MODEL), price=price)
    cost = run_interval(run, "cost_usd")
    assert (cost.lower, cost.upper) == pytest.approx((-0.167, -0.071))
