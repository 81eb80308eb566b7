from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

import pytest
from projection_samples import forecast, projected, projected_by_name

from greenlove_tracker.projection.decision import JointDraws, decide, saved_co2e_share
from greenlove_tracker.projection.options import ProjectionOptions
from greenlove_tracker.projection.uncertain import Uncertain

A100, L40S = "A100 PCIe 80GB", "L40S"
OFFERS = """provider,gpu,access,price,unit,gpus_per_instance,regions,country,date_read
acme,L40S,on demand,1.50,USD/GPU-hour,1,,DE,2026-11-01
acme,A100 PCIe 80GB,on demand,0.1,USD/GPU-hour,8,,DE,2026-11-01
acme,H100 SXM5 80GB,reserved,0.1,USD/GPU-hour,8,,DE,2026-11-01
"""


def within(rows, hours: float | None = None, usd: float | None = None):
    return decide(rows, ProjectionOptions(within_s=hours and hours * 3600, max_cost_usd=usd))


def chosen(made) -> tuple[str, str, int]:
    row = made.recommended
    return row.name, row.obtained, row.billed_gpus


# -- what is cheapest leads; what is faster has its price --


@pytest.mark.slow_cases
@pytest.mark.parametrize("gpu", ["T4", "GeForce RTX 3090", "H100 SXM5 80GB"])
@pytest.mark.parametrize("price", [0.05, 0.419, 2.0, 9.0, None])
def test_a_machine_is_rented_for_money_alone_only_where_it_is_likely_to_cost_less(gpu: str, price: float | None):
    rows = projected(local_gpu=gpu, country=None, electricity_price=price)
    made, drawn = decide(rows), JointDraws(rows)
    cheaper = [row for row in rows if row.is_for_rent_now and drawn.better(row, rows[0], "cost_usd") > 0.5]
    assert made.recommended.is_rented == bool(cheaper) and (not cheaper or made.recommended in cheaper)
    if made.faster is not None:
        assert drawn.better(made.faster.machine, made.recommended, "duration_s", by=600.0) >= 0.8


@pytest.mark.parametrize("place", ["DE", "NO", "US-VA", "IS"])
def test_co2e_is_saved_or_not_only_where_that_is_as_likely_as_what_is_called_faster(place: str):
    rows = projected(local_gpu="GeForce RTX 3090", country=place, provider="all")
    drawn = JointDraws(rows)
    for row in rows:
        if row.is_rented and row.is_compared and row.emissions_kgco2e:
            less = drawn.better(row, rows[0], "emissions_kgco2e")
            share = saved_co2e_share(row, rows[0])
            if share is None:
                assert 0.19 < less < 0.81 or row.coverage != rows[0].coverage
            else:
                assert less > 0.79 if share.point > 0 else less < 0.21
                assert share.lower <= share.point <= share.upper < 1


def test_the_faster_machine_is_the_one_whose_saved_hours_cost_the_least():
    speedups = {"L40S": (1.2, 1.19, 1.21), A100: (2.0, 1.99, 2.01)}
    made = decide(projected(forecast(half_width=0.0), gpus=["L40S"], custom_speedup=speedups))
    assert made.recommended.is_local and made.faster.machine.name == A100
    none = decide(projected(local_gpu="H100 SXM5 80GB"))
    assert none.recommended.is_local and none.faster is None and none.alternatives == ()


def test_where_what_the_training_costs_here_is_not_known_it_leads_and_renting_has_its_whole_price():
    rows = projected(forecast(half_width=0.0), country=None, local_gpu="GeForce RTX 3090")
    made = decide(rows)
    assert made.recommended is rows[0] and made.probability is None and made.alternatives == ()
    assert made.faster.more_usd == made.faster.machine.cost_usd.point


def test_others_that_may_be_the_cheapest_stand_beside_it():
    open_between_two = decide(projected(local_gpu="GeForce RTX 3090", electricity_price=9.0))
    assert {c.machine.name for c in open_between_two.alternatives} == {"L40S"}
    settled = decide(projected(custom_speedup={"L40S": 50.0}, gpus=["L40S"]))
    assert settled.recommended.name == "L40S" and settled.probability >= 0.9 and settled.alternatives == ()


# -- minimum terms --


@pytest.fixture
def offered(tmp_path):
    """An L40S now; dearer in no way but its minimum term: eight A100 as a whole machine, eight H100 reserved."""
    prices = tmp_path / "acme.csv"
    prices.write_text(OFFERS)
    speedups = {"L40S": 2.0, A100: 3.0, "H100 SXM5 80GB": 9.0}
    return projected(forecast(), provider="acme", prices=prices, custom_speedup=speedups)


def test_what_has_a_minimum_term_is_recommended_only_where_nothing_else_will_do(offered):
    now, whole, reserved = ("L40S", "on demand", 1), (A100, "on demand", 8), ("H100 SXM5 80GB", "reserved", 8)
    assert within(offered).recommended.is_local and within(offered).faster.machine.name == "L40S"
    for hours, expected in ((11, now), (2, whole), (0.5, reserved)):
        assert chosen(within(offered, hours)) == expected
    elsewhere = offered[1:]
    for expected in (now, whole, reserved):
        assert chosen(decide(elsewhere)) == expected
        elsewhere = [row for row in elsewhere if row.name != expected[0]]


@pytest.fixture(scope="module")
def slow_here():
    """20 h here; within 12 h, what is for rent may do, and what can only be reserved does."""
    return projected(forecast(half_width=0.0), local_gpu="GeForce RTX 3090")


def test_the_minimum_term_costs_the_price_of_all_gpus_for_its_days(slow_here):
    h200 = next(row for row in slow_here if row.name == "H200 SXM")
    assert h200.minimum_term_usd == pytest.approx(4.29 * 8 * 24 * 7)
    assert all(row.minimum_term_usd is None for row in slow_here if row.obtained != "reserved")
    dear = within(slow_here, 2, h200.minimum_term_usd + 1)
    assert dear.recommended.obtained == "reserved" and dear.verdict == "cheapest"
    nothing = within(slow_here, 2, 60.0)
    assert (nothing.verdict, nothing.recommended) == ("nothing", None)


# -- limits --


@pytest.mark.parametrize(("seconds", "is_short"), [(599.0, True), (601.0, False)])
def test_a_training_of_seconds_is_not_worth_moving(seconds: float, is_short: bool):
    rows = projected(forecast(hours=seconds / 3600, kwh=0.005, half_width=0.0), local_gpu="T4", electricity_price=90.0)
    made = decide(rows)
    assert (made.verdict == "too short", made.recommended.is_local) == (is_short, is_short)
    assert made.faster is None
    if is_short:
        late = within(rows, 30 / 3600)
        assert late.recommended.is_local and late.meets == 0.0


# -- what is left out of the choice --


@pytest.fixture
def spot_beside(tmp_path):
    """An L40S on demand, the same as a spot offer, and electricity here that costs more than both."""
    path = tmp_path / "prices.csv"
    path.write_text(
        "provider,gpu,access,price,unit,country,date_read\n"
        "acme,L40S,on demand,1.20,USD/GPU-hour,DE,2026-11-01\n"
        "acme,L40S,spot,0.50,USD/GPU-hour,DE,2026-11-01\n"
    )
    return projected(forecast(), provider="acme", prices=path, custom_speedup=1.5, electricity_price=9.0)


def test_a_spot_offer_is_no_choice_beside_others_but_is_named(spot_beside):
    made = decide(spot_beside)
    assert (made.recommended.obtained, made.spot.obtained) == ("on demand", "spot")
    assert decide([row for row in spot_beside if row.obtained != "spot"]).spot is None
    alone = decide([row for row in spot_beside if row.obtained in ("here", "spot")])  # of nothing else: it is asked for
    assert alone.recommended.obtained == "spot" and alone.spot is None


def test_a_card_that_cannot_hold_the_training_is_no_choice():
    rows = projected(peak_memory_gb=60.0, provider="all")
    assert decide(rows).recommended.gpu != rows[0].gpu
    assert {(row.is_local, row.fits) for row in rows if row.gpu == rows[0].gpu} == {(True, False), (False, False)}
    assert decide(projected(peak_memory_gb=20.0)).recommended.is_local


# -- the probability to be the cheapest --


def test_the_probability_is_that_of_two_normals():
    """P(X < Y) of independent log-normals: Φ(log(m_Y / m_X) / hypot of their deviations); nothing is left over."""
    template, sd = projected_by_name(custom_speedup=2.0), 0.15
    a, b = (
        replace(template[name], joint={"cost_usd": Uncertain(usd, {name: (sd, sd)})})
        for name, usd in ((A100, 40.0), (L40S, 45.0))
    )
    dearer = replace(a, joint={"cost_usd": a.joint["cost_usd"].times(1.01)})  # in every draw
    found = JointDraws([a, b, dearer]).cheapest([a, b, dearer])
    expected = NormalDist().cdf(math.log(45 / 40) / (sd * math.sqrt(2)))
    assert [c.probability for c in found] == pytest.approx([expected, 1 - expected, 0.0], abs=0.012)
