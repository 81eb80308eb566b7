from __future__ import annotations

import math
from dataclasses import replace

import pytest
from projection_samples import HERE, forecast
from projection_samples import projected_by_name as projected

from greenlove_tracker.projection.power import PowerDraw, draw_elsewhere, node_overhead, power_table, usual_draw
from greenlove_tracker.projection.project import project
from greenlove_tracker.projection.scaling import scaling_gain
from greenlove_tracker.projection.uncertain import Uncertain
from greenlove_tracker.tables.gpus import gpus
from greenlove_tracker.tables.offers import bundled_offers
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.forecasting import TrainingPlan
from greenlove_tracker.vocabulary.records import Factor

H100, A100, H200 = "H100 SXM5 80GB", "A100 PCIe 80GB", "H200 SXM"
OURS = "provider,gpu,access,price,unit,gpus_per_instance,regions,country,date_read\n"


def hours(row) -> float:
    return row.duration_s.point / 3600


def test_the_local_row_is_the_forecast_at_90_percent():
    here = project(forecast(), **HERE)[0]
    assert here.is_local and here.fits is None and here.scope == 2
    assert here.duration_s.point == 72_000
    # 3% at 95% is 2.518% at 90%: 1.644854 / 1.959964
    assert here.duration_s.upper == pytest.approx(72_000 * 1.0251768, rel=1e-6)
    assert here.energy_kwh.point == 9.1
    assert here.emissions_kgco2e.point == pytest.approx(9.1 * 0.34206)  # Germany, Ember 2024
    assert (here.cost_usd.point, here.cost_basis) == (pytest.approx(9.1 * 0.419), "electricity")


def test_time_times_price_times_gpus_is_the_cost_to_the_cent():
    rows = projected(custom_speedup=2.0, scaling=0.85)
    a100, h100 = rows[A100], rows[H100]
    assert hours(a100) == pytest.approx(10.0)
    assert round(a100.cost_usd.point, 2) == 20.00  # 10 h × 2.00 × 1
    assert (h100.billed_gpus, h100.n_gpus) == (8, 1)
    assert h100.gain == pytest.approx(6.8)  # 8 × 85%
    assert hours(h100) == pytest.approx(20 / 2 / 6.8)
    assert (h100.cost_usd.point, h100.cost_basis) == (3.90 * 8 * 24 * 7, "minimum term")  # not 1.4706 h × 3.90 × 8
    for row in projected().values():
        if row.offer is not None and row.cost_usd is not None:
            by_hand = row.duration_s.point / 3600 * row.offer.usd_per_gpu_hour * row.billed_gpus
            assert round(row.cost_usd.point, 2) == round(max(by_hand, row.minimum_term_usd or 0.0), 2)


def test_energy_and_emissions_by_hand():
    rows = projected(custom_speedup=2.0)
    a100, h200, here = rows[A100], rows[H200], gpus()["GeForce RTX 4090"]
    for row, tdp_w, pue, kg_per_kwh in ((a100, 300, 1.3, 0.270489), (h200, 700, 1.2, 0.02833)):
        # SRVC 596.326 lb/MWh = 270.489 g/kWh; Iceland 28.33 g/kWh
        there = draw_elsewhere(PowerDraw(Uncertain(0.82), ""), here, row.gpu)
        watts = row.billed_gpus * tdp_w * there.share.point * node_overhead(there).point * pue
        assert row.energy_kwh.point == pytest.approx(hours(row) * watts / 1000)
        assert row.emissions_kgco2e.point == pytest.approx(row.energy_kwh.point * kg_per_kwh, rel=1e-5)
        assert row.energy_kwh.relative_width > row.duration_s.relative_width  # of the draw there and of the host
    assert a100.market is None and a100.scope == 3


def test_a_claim_never_stands_alone_nor_is_a_bare_zero():
    rows = projected(include_all=True)
    claimed = [row for row in rows.values() if row.market is not None]
    assert {row.name for row in claimed} >= {"B200 SXM", H200}
    for row in claimed:
        assert row.emissions_kgco2e.point > 0
        assert row.market.kgco2e.point == 0 and "claim" in row.market.text and row.market.source


def test_the_same_gpu_is_once_as_fast_and_takes_the_local_time():
    row = projected(local_gpu="NVIDIA L40S")["L40S"]
    assert (row.speedup.estimate.point, row.speedup.method, row.gain) == (1.0, "same", 1.0)
    here = project(forecast(), **{**HERE, "local_gpu": "NVIDIA L40S"})[0]
    for end in ("point", "lower", "upper"):
        assert getattr(row.duration_s, end) == pytest.approx(getattr(here.duration_s, end))


def test_energy_tells_the_draw_where_nothing_measured_it():
    # 9.1 kWh / 20 h = 455 W = 101% of 450 W; less the rest of the node
    rest = power_table().rest.point
    row = projected(utilization=None, custom_speedup=2.0)[A100]
    drawn = 455 / 450 - rest
    assert row.energy_kwh.point == pytest.approx(10 * 0.3 * (drawn + rest) * 1.3)  # of neither GPU the range is known
    assert any(f"{drawn:.0%}" in text for text in row.assumptions)
    half = projected(utilization=None, custom_speedup=2.0, manual_tdp_watts=900.0)[A100]
    assert half.energy_kwh.point == pytest.approx(row.energy_kwh.point / 2)
    cooled = projected(utilization=None, custom_speedup=2.0, pue=1.25)[A100]  # of the 9.1 kWh, 7.28 are the machine's
    assert cooled.energy_kwh.point == pytest.approx(row.energy_kwh.point / 1.25)
    given_share = projected(utilization=0.5, custom_speedup=2.0)[A100]
    assert given_share.energy_kwh.point == pytest.approx(10 * 0.3 * (0.5 + rest) * 1.3)


def test_a_draw_that_nobody_knows_is_assumed_and_says_so():
    rows = projected(forecast(kwh=None), utilization=None)
    assert any("of their power limit is assumed" in t and "give utilization" in t for t in rows["here"].warnings)
    assert all(row.energy_kwh.relative_width > 0.3 for row in (rows["here"], rows[A100]))
    known = projected(forecast(kwh=None))
    assert known[A100].energy_kwh.relative_width < rows[A100].energy_kwh.relative_width
    nameless = projected(forecast(kwh=None), local_gpu="Unheard Of 9000", custom_speedup=2.0, utilization=None)
    assert nameless["here"].energy_kwh is None  # of no power limit there is no share either


def test_without_a_gpu_here_energy_elsewhere_is_the_targets_at_an_assumed_draw():
    rows = projected(forecast(kwh=1.3), local_gpu=None, utilization=None)  # measured here, of a CPU
    here, a100 = rows["here"], rows[A100]
    assumed = usual_draw(None, None)
    assert here.energy_kwh.point == pytest.approx(1.3)
    (said,) = (text for text in here.warnings if text.startswith("energy elsewhere is that of the GPUs there"))
    assert f"{assumed.share.point:.0%} of their power limit is assumed [" in said and "give utilization" in said
    assert not any("manual_tdp_watts" in text for text in here.warnings)
    there = draw_elsewhere(assumed, None, a100.gpu)
    node_w = 300 * (there.share.point + power_table().rest.point)  # not by the CPU's 65 W
    assert a100.energy_kwh.point == pytest.approx(a100.duration_s.point / 3600 * node_w / 1000 * 1.3)
    assert a100.emissions_kgco2e is not None
    unknown = projected(forecast(kwh=None), local_gpu=None, utilization=None)["here"]
    assert any(text.startswith("the energy here is not known, as there is no GPU; else") for text in unknown.warnings)


def test_a_peak_that_does_not_fit_is_shown_with_what_would():
    rows = projected(peak_memory_gb=60.0)
    l40s = rows["L40S"]
    assert l40s.fits is False and l40s.duration_s is None and l40s.cost_usd is None
    assert rows[H100].fits is True and not l40s.is_compared
    assert projected(peak_memory_gb=44.1)["L40S"].fits is True  # 45.0 of its 48 GB can be used, CUDA takes its part
    assert projected(peak_memory_gb=44.6)["L40S"].fits is False


def test_what_is_set_aside_and_what_asks_for_it():
    rows = projected()
    assert rows["B200 SXM"].aside == "price on request"
    assert rows["B200 SXM"].cost_usd is None and rows["B200 SXM"].duration_s is not None
    assert rows["Instinct MI300X"].aside == "other software (ROCm)"
    assert "A40" not in rows
    everything = projected(include_all=True)
    assert everything["A40"].aside == "not offered any more"
    assert {name for name, row in everything.items() if row.aside} == {"A40", "A100 PCIe 40GB"}
    costs = [row.cost_usd.point for row in rows.values() if row.is_compared and not row.is_local]
    assert costs == sorted(costs)
    asked_for = projected(gpus=["AMD Instinct MI300X"])["Instinct MI300X"]
    assert not asked_for.aside and any("PyTorch's ROCm build" in text for text in asked_for.warnings)
    assert not any("ROCm" in text for text in rows[H100].warnings)


def test_local_money():
    rows = projected(price_usd_per_gpu_hour=0.5, n_gpus=2)
    assert (rows["here"].cost_usd.point, rows["here"].cost_basis) == (pytest.approx(20.0), "machine")
    assert projected(electricity_price=0.1)["here"].cost_usd.point == pytest.approx(0.91)
    cuba = projected(country="Cuba")["here"]
    assert cuba.cost_usd is None and any("give electricity_price" in text for text in cuba.warnings)
    assert any("of 2019" in text for text in projected(country="IN")["here"].warnings)


def test_another_provider_stands_in_the_table_by_a_file(tmp_path):
    path = tmp_path / "acme.csv"
    path.write_text(
        OURS
        + "acme,L40S,spot,0.50,USD/GPU-hour,1,north,SE,2026-11-01\n"
        + "acme,L4,on demand,0.40,USD/GPU-hour,1,moon,,2026-11-01\n"
    )
    rows = {(r.offer.provider, r.name): r for r in project(forecast(), prices=path, **HERE) if r.offer}
    sweden = rows["acme", "L40S"]
    assert (sweden.offer.access, sweden.region, sweden.pue) == ("spot", "north", 1.25)
    assert "Sweden" in sweden.intensity.source
    assert round(sweden.cost_usd.point, 2) == round(hours(sweden) * 0.5, 2)
    nowhere = rows["acme", "L4"]
    assert nowhere.emissions_kgco2e is None and any("grid of acme moon" in text for text in nowhere.warnings)
    assert ("crusoe", "L40S") in rows
    assert {r.offer.provider for r in project(forecast(), prices=path, provider="acme", **HERE)[1:]} == {"acme"}


@pytest.mark.parametrize(
    "custom", ["1.8", [1.8, 1.5, 2.1], (1.8, 1.5), True, {"L40S": "1.8"}, {"L40S": [1, 2, 3]}, {"T4": "2"}]
)
def test_a_speedup_that_is_no_number_is_refused(custom):
    with pytest.raises(UsageError, match=r"custom_speedup must be a number such as 1.8, or \(1.8, 1.5, 2.1\), not"):
        projected(custom_speedup=custom)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"country": "Germoney"}, "did you mean Germany"),
        ({"price_usd_per_gpu_hour": -1.0}, "price_usd_per_gpu_hour must be a positive number"),
        ({"electricity_price": -0.1}, "electricity_price must be a positive"),
        ({"carbon_intensity": -5.0}, "carbon_intensity must be a positive"),
        ({"carbon_intensity": Factor("x", 5.0, "g/MWh", "y")}, "must be in gCO2e/kWh, not 'g/MWh'"),
        ({"provider": "nobody"}, "no offers of provider 'nobody' are known, only of aws"),
        ({"gpus": ["L40X"]}, "L40X"),
        ({"utilization": 82.0}, "a share from 0 to 1, such as 0.82"),
        ({"utilization": 0.0}, "utilization is a share"),
        ({"manual_tdp_watts": math.inf}, "manual_tdp_watts must be a positive number"),
        ({"peak_memory_gb": math.nan}, "peak_memory_gb must be a positive number"),
        ({"pue": 0.9}, "pue must be at least 1"),
        ({"scaling": 0.125}, "scaling is the efficiency of eight GPUs"),
        ({"scaling": 85}, "scaling is the efficiency of eight GPUs"),
        ({"n_gpus": 0}, "n_gpus must be a whole number of at least 1"),
        ({"target_gpus": 1.5}, "target_gpus must be a whole number"),
        ({"custom_speedup": -1.0}, "custom_speedup must be positive"),
    ],
)
def test_bad_input_is_refused(options, message):
    with pytest.raises(UsageError, match=message):
        projected(**options)


def test_more_gpus_here_and_there():
    both = projected(n_gpus=8, custom_speedup=2.0, local_gpu="A100 SXM4 40GB")[H100]
    assert (both.billed_gpus, both.gain, hours(both)) == (8, 1.0, pytest.approx(10.0))
    assert projected(n_gpus=8, custom_speedup=2.0)[H100].gain > 1  # cards on PCIe here, modules there
    sixteen = projected(target_gpus=9, custom_speedup=2.0, scaling=0.85)[H100]
    assert (sixteen.n_gpus, sixteen.billed_gpus) == (9, 16)
    assert sixteen.gain == pytest.approx(16 * 0.85 ** (4 / 3))


@pytest.mark.parametrize(
    ("provider", "location", "place"),
    [("aws", "us-east-1", "us-east-1"), ("gcp", "us-central1-a", "us-central1-a"), ("acme", "us-east-1", None)],
)
def test_a_file_of_a_known_cloud_tells_the_grid_of_its_regions(tmp_path, provider, location, place):
    path = tmp_path / f"{provider}.csv"
    columns, offer = "gpu,price,unit,date_read,regions", f"L40S,1.9,USD/GPU-hour,2026-11-01,{location}"
    path.write_text(f"{columns}\n{offer}\n")
    row = project(forecast(), prices=path, provider=provider, **HERE)[1]
    assert (row.intensity is not None) == (place is not None) and row.region == location
    assert any("is not known, so no CO2e" in text for text in row.warnings) == (place is None)
    path.write_text(f"{columns},country\n{offer},FR\n")
    row = project(forecast(), prices=path, provider=provider, **HERE)[1]
    assert row.intensity is not None and row.intensity.value < 100  # France


def test_machines_of_one_gpu_each_are_joined_by_a_network(tmp_path):
    """Eight instances of one GPU are no node of eight: they gain what GPUs on a network do."""
    gains = {}
    for name, sizes in (("singly.csv", "1"), ("together.csv", "1;8")):
        path = tmp_path / name
        path.write_text(
            "provider,gpu,access,price,unit,gpus_per_instance,country,date_read\n"
            f"acme,H100 SXM5 80GB,on demand,2,USD/GPU-hour,{sizes},DE,2026-09-28\n"
        )
        gains[sizes] = projected(provider="acme", prices=path, target_gpus=8)["H100 SXM5 80GB"]
    assert gains["1"].gain == pytest.approx(scaling_gain(8, interconnect="ethernet").point)
    assert gains["1;8"].gain == pytest.approx(scaling_gain(8, interconnect="nvlink").point)
    assert gains["1"].gain < gains["1;8"].gain


def test_a_target_may_say_how_many_of_it():
    rows = projected(gpus=["8 x A100 PCIe 80GB", "2 × L40S", "L40S", "4 x RTX 5090"])
    assert rows["A100 PCIe 80GB"].billed_gpus == rows["A100 PCIe 80GB"].n_gpus == 8
    assert rows["A100 PCIe 80GB"].n_machines == 2  # of the last provider, which rents out four in one
    ours = project(forecast(), **HERE, gpus=["8 x A100 PCIe 80GB"])
    assert next(row for row in ours if row.offer and row.offer.provider == "crusoe").is_for_rent_now
    assert (rows["GeForce RTX 5090"].n_gpus, rows["GeForce RTX 5090"].obtained) == (4, "no offer")
    of_l40s = [row for row in project(forecast(), **HERE, gpus=["2 × L40S", "L40S"]) if row.name == "L40S"]
    assert sorted(row.n_gpus for row in of_l40s if row.offer.provider == "crusoe") == [1, 2]
    assert {row.offer.provider for row in of_l40s} == {o.provider for o in bundled_offers() if o.gpu == "L40S"}
    with pytest.raises(UsageError, match="no GPU of the table is called 'A9000'"):
        projected(gpus=["8 x A9000"])


@pytest.mark.parametrize("wrong", [None, "20 h", 20.0])
def test_what_is_no_forecast_is_refused_with_what_is_one(wrong):
    with pytest.raises(UsageError, match=r"such as estimation\.forecast or tracker\.forecast, not "):
        project(wrong, local_gpu="GeForce RTX 4090")


def test_no_step_takes_less_than_its_kernels_launches():
    """50,000 batches × 0.3 ms are 15 s; eight GPUs share each batch. An assumed CPU's speedup makes it less."""
    plan = TrainingPlan(samples=100_000, batch_size=10, epochs=5)
    made = replace(forecast(1 / 20, kwh=None), plan=plan)
    rows = projected(made, local_gpu=None, utilization=None)
    a100, h200 = rows[A100].duration_s, rows[H200].duration_s
    assert (a100.point, h200.point) == (pytest.approx(15.0), pytest.approx(15.0))
    assert a100.upper > 4 * 15.0  # no surer for it
    assert round(rows[A100].cost_usd.point, 6) == round(15 / 3600 * 2.00, 6)
    card = {"gpus": ["GeForce GTX 1660 Ti"]}  # known from its data sheet
    on_a_gpu = projected(replace(forecast(1 / 3600), plan=plan), **card)["GeForce GTX 1660 Ti"]
    assert on_a_gpu.speedup.method == "specifications" and on_a_gpu.duration_s.point < 15.0


@pytest.mark.parametrize(
    ("method", "local_gpu", "why"),
    [("wls", "Voodoo 2", "in no table"), ("power", None, "a fit that used no GPU cannot be projected onto one")],
)
def test_where_nothing_leads_to_another_gpu_the_users_figures_do(method, local_gpu, why):
    made = replace(forecast(kwh=None), method=method)
    with pytest.raises(UsageError):
        projected(made, local_gpu=local_gpu, utilization=None)
    rows = projected(made, local_gpu=local_gpu, utilization=None, custom_speedup={"L40S": 900.0})
    assert set(rows) == {"here", "L40S"} and hours(rows["L40S"]) == pytest.approx(20 / 900)
    assert any(why in text and "left out" in text and H200 in text for text in rows["here"].warnings)
