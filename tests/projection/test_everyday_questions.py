"""Questions of every day, answered as one would by hand from the same prices; the working stands beside each.

The speedups are given, so that time there = hours here / speedup, and cost = time × price × GPUs.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from projection_samples import TODAY, forecast

from greenlove_tracker.grid import carbon_intensity, resolve_place
from greenlove_tracker.projection.decision import Decision, decide
from greenlove_tracker.projection.from_log import compare_hours, decided
from greenlove_tracker.projection.options import ProjectionOptions
from greenlove_tracker.projection.project import project_forecast
from greenlove_tracker.projection.types import Projection
from greenlove_tracker.rendering.document import ChartRow
from greenlove_tracker.report.decision_wording import advice, advice_reasons
from greenlove_tracker.report.projection_record import projection_values
from greenlove_tracker.report.projection_report import machines_table, projection_document

PRICES = """provider,gpu,access,price,unit,gpus_per_instance,country,date_read
acme,L40S,on demand,1.00,USD/GPU-hour,1,DE,2026-11-01
acme,A100 SXM4 80GB,on demand,1.50,USD/GPU-hour,1;2,DE,2026-11-01
bolt,H100 SXM5 80GB,on demand,2.50,USD/GPU-hour,1;8,DE,2026-11-01
cove,H100 SXM5 80GB,on demand,3.00,USD/GPU-hour,1;8,DE,2026-11-01
dune,H200 SXM,reserved,3.50,USD/GPU-hour,8,DE,2026-11-01
"""
A100, H100 = "A100 SXM4 80GB", "H100 SXM5 80GB"
SPEEDUPS = {"L40S": 1.25, A100: 2.0, H100: 4.0, "H200 SXM": 5.0, "GeForce RTX 5090": 1.6}


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    path = tmp_path / "prices.csv"
    path.write_text(PRICES)
    return path


def rows_of(prices: Path, hours: float = 20.0, **options) -> tuple[list[Projection], ProjectionOptions]:
    """20 h on an RTX 4090 at 450 W and 0.40 USD/kWh: 9 kWh are $3.60 of electricity."""
    given = {"local_gpu": "RTX 4090", "provider": "all", "electricity_price": 0.4, "utilization": 0.8, "today": TODAY}
    chosen = ProjectionOptions(prices=prices, custom_speedup=SPEEDUPS, **{**given, **options})
    rows = project_forecast(forecast(hours, kwh=0.45 * hours, half_width=0.0), chosen)
    mine = [row for row in rows if row.is_local or row.offer is None or row.offer.provider in "acme bolt cove dune"]
    return mine, chosen


def answered(prices: Path, hours: float = 20.0, **options) -> Decision:
    return decide(*rows_of(prices, hours, **options))


@pytest.mark.parametrize(
    ("question", "options", "machine", "hours", "usd"),
    [
        # Rent or stay? $3.60 here; an L40S is 20 / 1.25 = 16 h × $1 = $16: stay.
        ("rent or stay", {}, "here", 20.0, 3.6),
        # A machine here that costs $2 an hour is $40: an H100 at bolt is 20 / 4 = 5 h × $2.50 = $12.50.
        ("rent or stay, of a machine with a price", {"price_usd_per_gpu_hour": 2.0}, H100, 5.0, 12.5),
        # Within 8 h: L40S 16 h and A100 10 h are too slow; H100 5 h is $12.50 at bolt, $15 at cove.
        ("within 8 h", {"within_s": 8 * 3600.0}, H100, 5.0, 12.5),
        # Within 12 h: A100 10 h × $1.50 = $15 is dearer than the H100's $12.50.
        ("within 12 h", {"within_s": 12 * 3600.0}, H100, 5.0, 12.5),
        # Under $50, 100 h: here it is 45 kWh × $0.40 = $18.
        ("under $50", {"hours": 100.0, "max_cost_usd": 50.0}, "here", 100.0, 18.0),
        # Under $70 and within 48 h, 100 h: an H100 is 25 h × $2.50 = $62.50.
        ("under $70 within 48 h", {"hours": 100.0, "max_cost_usd": 70.0, "within_s": 48 * 3600.0}, H100, 25.0, 62.5),
    ],
)
def test_the_answer_is_the_one_by_hand(
    prices: Path, question: str, options: dict, machine: str, hours: float, usd: float
) -> None:
    made = answered(prices, **options)
    row = made.recommended
    assert ("here" if row.is_local else row.name, row.duration_s.point / 3600) == (machine, pytest.approx(hours))
    assert row.cost_usd.point == pytest.approx(usd)


def test_which_is_faster_and_at_which_price(prices: Path) -> None:
    """An H100 at bolt saves 15 h for 12.50 - 3.60 = $8.90 more, $0.59 an hour; an A100 10 h for $11.40, $1.14 each."""
    faster = answered(prices).faster
    assert (faster.machine.name, faster.machine.offer.provider) == (H100, "bolt")
    assert (faster.saved_s / 3600, faster.more_usd) == (pytest.approx(15.0), pytest.approx(8.9))


def test_eight_h100_of_several_providers(prices: Path) -> None:
    """The same machine at two prices takes the same time: the cheaper one; within 1 h, of what takes 20 / 4 / 6.8 h."""
    made = answered(prices, target_gpus=8, scaling=0.85, within_s=3600.0)
    row = made.recommended
    assert (row.name, row.billed_gpus, row.offer.provider) == (H100, 8, "bolt")
    assert row.cost_usd.point == pytest.approx(20 / 4 / 6.8 * 8 * 2.5)


def test_a_card_that_nobody_rents_out_is_counted_as_if_it_stood_here(prices: Path) -> None:
    """An RTX 5090: 20 / 1.6 = 12.5 h, of electricity here; it is no machine to be had, so never recommended."""
    rows, options = rows_of(prices, gpus=["RTX 5090"], provider="acme", within_s=13 * 3600.0)
    made, card = decide(rows, options), next(row for row in rows if row.name == "GeForce RTX 5090")
    assert (card.duration_s.point / 3600, card.obtained, card.cost_basis) == (12.5, "no offer", "electricity")
    assert made.recommended.name == A100


def test_a_slurm_node_is_given_and_what_is_the_cheapest_way_to_use_it(tmp_path: Path) -> None:
    """A node of eight A100 at $1.50 a GPU-hour, of which one, two, four or all are asked for; 40 h on one.

    Eight of efficiency 0.85 are 6.8 times as fast, so four are 6.8^(2/3) = 3.59 and two 6.8^(1/3) = 1.89 times.
    One: 40 h × $1.50 = $60. Two: 21.1 h, $63.3. Four: 11.1 h, $66.9. Eight: 5.9 h, $70.6. So one where there is time,
    two within 30 h, four within 16 h, all within 8 h: as few as keep the limit with 90%.
    """
    prices = tmp_path / "node.csv"
    prices.write_text(f"gpu,price,unit,gpus_per_instance,date_read\n{A100},1.50,USD/GPU-hour,1;2;4;8,2026-11-01\n")
    given = {"local_gpu": A100, "price_usd_per_gpu_hour": 1.5, "utilization": 0.8, "scaling": 0.85, "today": TODAY}
    given |= {"provider": "node", "prices": prices, "gpus": [f"{n} × {A100}" for n in (2, 4, 8)]}
    by_hand = {None: (1, 40.0, 60.0), 30: (2, 21.1, 63.3), 16: (4, 11.1, 66.9), 8: (8, 5.9, 70.6)}
    for within_h, (n_gpus, hours, usd) in by_hand.items():
        options = ProjectionOptions(**given, within_s=within_h and within_h * 3600.0)
        row = decide(project_forecast(forecast(40.0, half_width=0.0), options), options).recommended
        assert row.billed_gpus == n_gpus
        assert (row.duration_s.point / 3600, row.cost_usd.point) == pytest.approx((hours, usd), abs=0.1)


def asked(tmp_path: Path, offers: str, hours: float = 300.0, **options) -> tuple[list[Projection], Decision]:
    """300 h on an A100 of 80 GB, and the offers of one who names neither regions nor country."""
    prices = tmp_path / "acme.csv"
    prices.write_text(f"gpu,access,price,gpus_per_instance,country,regions,unit,date_read\n{offers}")
    given = {"local_gpu": A100, "provider": "acme", "prices": prices, "utilization": 0.8, "today": TODAY}
    chosen = ProjectionOptions(**{**given, **options})
    rows = project_forecast(forecast(hours, kwh=None, half_width=0.0), chosen)
    return rows, decide(rows, chosen)


ROW = "{gpu},on demand,{price},{sizes},DE,,USD/GPU-hour,2026-11-01\n"


def test_a_small_card_does_not_lead_where_the_peak_is_unknown(tmp_path: Path) -> None:
    """$2.79 here: $837. An A100 at $1.60 is $480; an A4000 of 16 GB, a fifth as fast, 1,500 h × $0.15 = $225."""
    offers = ROW.format(gpu=A100, price=1.6, sizes="1") + ROW.format(gpu="RTX A4000", price=0.15, sizes="1")
    options = {"price_usd_per_gpu_hour": 2.79, "custom_speedup": {"RTX A4000": 0.2, A100: 1.0}}
    rows, made = asked(tmp_path, offers, **options)
    assert advice(made, rows) == f"Rent 1 × {A100} at acme: 300 h, $480.00."
    saved, cheaper = advice_reasons(made, rows)
    assert saved == f"1 × {A100} at acme emits 4.06 kg CO2e less than here, 7%."
    assert cheaper == (
        "Cheaper: 1 × RTX A4000 at acme, 5.0 times as long as here, 1,500 h, $225.00 instead of $837.00, if it fits in "
        "16 GB, which --peak-memory would tell."
    )
    rows, made = asked(tmp_path, offers, **options, peak_memory_gb=10.0)  # it fits
    assert made.recommended.name == "RTX A4000" and "if it fits" not in advice(made, rows)


def test_where_only_a_small_card_keeps_the_limit_it_leads_under_its_condition(tmp_path: Path) -> None:
    """Within 200 h for $100: an RTX 4090 of 24 GB, twice as fast, takes 150 h × $0.50 = $75; the A100 300 h."""
    offers = ROW.format(gpu=A100, price=1.6, sizes="1") + ROW.format(gpu="RTX 4090", price=0.5, sizes="1")
    options = {"price_usd_per_gpu_hour": 2.79, "custom_speedup": {"GeForce RTX 4090": 2.0, A100: 1.0}}
    rows, made = asked(tmp_path, offers, **options, within_s=200 * 3600.0, max_cost_usd=100.0)
    assert advice(made, rows).endswith("likely): 150 h, $75.00, if it fits in 24 GB.")


@pytest.mark.parametrize(
    ("sd", "said"),
    [
        # log(1.25 × (1 - 10 min / 20 h)) = 0.2148. Φ(0.2148 / 0.39) = 71%: nothing is called faster.
        (0.39, "Train here: 20 h, 10.9 kWh of electricity at an unknown price."),
        # Φ(0.2148 / 0.2) = 86%: the chance stands beside it. 20 / 1.25 = 16 h × $1 = $16.
        (0.2, "Faster (86% likely): 1 × L40S at acme, 16 h [12–22], $16.00: 4.0 h sooner."),
        # Φ(0.2148 / 0.1) = 98%: it is faster.
        (0.1, "Faster: 1 × L40S at acme, 16 h [14–19], $16.00: 4.0 h sooner."),
    ],
)
def test_what_is_called_faster_is_likely_so(tmp_path: Path, sd: float, said: str) -> None:
    ends = (1.25, 1.25 * math.exp(-1.644854 * sd), 1.25 * math.exp(1.644854 * sd))
    offers = ROW.format(gpu="L40S", price=1.0, sizes="1")
    rows, made = asked(tmp_path, offers, 20.0, local_gpu="RTX 4090", custom_speedup={"L40S": ends}, utilization=None)
    assert said in advice(made, rows)
    assert (made.faster is None) == (sd == 0.39)


def test_machines_of_one_provider_are_compared_in_one_place() -> None:
    """Crusoe's A100 SXM stand in Virginia alone (270.489 g/kWh), its H100 in Iceland (28.33) and Texas (ERCT) too.

    With the same energy but for the PUE (1.3, in Iceland 1.2), 100 kWh without it are 35.16 kg in Virginia and 3.40 kg
    in Iceland.
    """
    rows = project_forecast(forecast(), ProjectionOptions(local_gpu="RTX 4090", today=TODAY))
    h100 = next(row for row in rows if row.name == H100)
    a100 = next(row for row in rows if row.name == A100)
    assert (h100.region, a100.region) == ("us-east1-a", "us-east1-a")
    assert list(h100.kgco2e_by_place) == ["Virginia", "Iceland", "Texas"]
    ratio = h100.kgco2e_by_place["Virginia"] / h100.kgco2e_by_place["Iceland"]
    assert ratio == pytest.approx(1.3 * 270.489 / (1.2 * 28.33), rel=1e-5)
    assert h100.kgco2e_by_place["Virginia"] == pytest.approx(h100.emissions_kgco2e.point)
    cells = [row[4] for row in machines_table([h100, a100], rows).rows]
    assert re.fullmatch(r"[\d.]+ Virginia \([\d.]+ Iceland, [\d.]+ Texas\)", cells[0])
    assert re.fullmatch(r"[\d.]+ Virginia", cells[1])


def test_a_cloud_of_several_regions_shows_them_all(tmp_path: Path) -> None:
    """10 h × 300 W × (80% + the rest) × PUE 1.25 are the same in Sweden and in Virginia: CO2e as their intensities."""
    path = tmp_path / "aws.csv"
    path.write_text("gpu,price,unit,date_read,regions\nL40S,1.9,USD/GPU-hour,2026-11-01,us-east-1;eu-north-1\n")
    options = ProjectionOptions(local_gpu="RTX 4090", provider="aws", prices=path, today=TODAY, custom_speedup=2.0)
    _, row = project_forecast(forecast(), options)
    sweden = carbon_intensity(resolve_place("SE")).value
    virginia = carbon_intensity(resolve_place("US-VA")).value
    assert row.region == "eu-north-1"
    assert row.kgco2e_by_place["us-east-1"] / row.kgco2e_by_place["eu-north-1"] == pytest.approx(virginia / sweden)


def test_machines_on_a_network_are_called_so_and_do_not_lead_where_one_machine_does(tmp_path: Path) -> None:
    """Eight A100 in one machine are 300 h / 6.8 = 44.1 h × 8 × $1.50 = $529; eight machines of one H100 cost less."""
    offers = ROW.format(gpu=A100, price=1.5, sizes="8") + ROW.format(gpu=H100, price=1.0, sizes="1")
    given = {"custom_speedup": {A100: 1.0, H100: 2.0}, "target_gpus": 8, "scaling": 0.85}
    rows, made = asked(tmp_path, offers, price_usd_per_gpu_hour=9.0, **given)
    assert advice(made, rows).startswith(f"Rent 8 × {A100} at acme: 44 h [")
    assert f"8 × {H100} at acme (8 machines, joined by a network)" in advice(made, rows)
    rows, made = asked(tmp_path, ROW.format(gpu=H100, price=1.0, sizes="1"), price_usd_per_gpu_hour=9.0, **given)
    assert advice(made, rows).startswith(f"Rent 8 × {H100} at acme (8 machines, joined by a network): ")
    assert "The code must train on 8 machines at once, 8 GPUs." in list(advice_reasons(made, rows))
    assert f"8 × {H100} (acme, 8 machines)" in {row[0] for row in machines_table(rows, rows).rows}


def test_two_machines_of_four_gain_no_more_than_one_of_eight(tmp_path: Path) -> None:
    """Of efficiency 0.85, four are 6.8^(2/3) = 3.59 times as fast, and two such machines at most 6.8 times."""
    options = {"custom_speedup": {H100: 1.0}, "target_gpus": 8, "scaling": 0.85}
    (_, four), _ = asked(tmp_path, ROW.format(gpu=H100, price=1.0, sizes="4"), **options)
    (_, eight), _ = asked(tmp_path, ROW.format(gpu=H100, price=1.0, sizes="8"), **options)
    assert (four.n_machines, eight.n_machines) == (2, 1)
    assert 3.59 < four.gain <= eight.gain == pytest.approx(6.8)


def test_what_one_pays_for_a_reservation_is_the_same_everywhere() -> None:
    """A week of 8 × H200 at $4.29 is $5,765.76, whatever the training takes; the chart draws no other figure."""
    rows = project_forecast(forecast(), ProjectionOptions(local_gpu="RTX 4090", country="DE", today=TODAY))
    h200 = next(row for row in rows if row.name == "H200 SXM")
    assert (h200.cost_usd.point, h200.cost_basis) == (pytest.approx(5765.76), "minimum term")
    assert "5,766 (a week)" in machines_table([h200], rows).rows[0]
    assert projection_values(h200)["cost_usd"] == h200.cost_usd.point
    limits = ProjectionOptions(within_s=2 * 3600.0)
    named = decide(rows, limits)
    page = projection_document(rows, (), named)
    marks = {
        mark.name: mark.y for block in page.blocks if isinstance(block, ChartRow) for mark in block.charts[0].marks
    }
    assert named.recommended.cost_basis == "minimum term"
    (drawn,) = (name for name in marks if name.endswith("(a week)"))
    assert marks[drawn] == named.recommended.cost_usd.point > 1000
    assert all(usd == max(marks.values()) or usd < 100 for usd in marks.values())


@pytest.mark.usefixtures("no_settings")
def test_where_nobody_says_how_many_gpus_they_are_as_many_as_the_limit_needs(tmp_path: Path) -> None:
    """The same node for rent, and one A100 here: 40 h here, within 30 h two of it, within 16 h four."""
    prices = tmp_path / "node.csv"
    prices.write_text(f"gpu,price,unit,gpus_per_instance,date_read\n{A100},1.50,USD/GPU-hour,1;2;4;8,2026-11-01\n")
    given = {"local_gpu": A100, "scaling": 0.85, "today": TODAY, "provider": "node", "prices": prices}
    for within_h, n_gpus in {48: 1, 30: 2, 16: 4}.items():
        options = ProjectionOptions(**given, within_s=within_h * 3600.0)
        found, made = decided(partial(compare_hours, 40.0), options)
        assert made == decide(found.projections, found.options)
        assert (made.recommended.billed_gpus, made.recommended.is_local) == (n_gpus, n_gpus == 1)
    assert decided(partial(compare_hours, 40.0), replace(options, target_gpus=1))[1].recommended is None
    hope = ProjectionOptions(
        local_gpu="RTX 4090", today=TODAY, provider="node", prices=prices, within_s=8 * 3600.0, max_cost_usd=25.0
    )
    found, made = decided(partial(compare_hours, 20.0), hope)  # no number of them surely keeps both
    assert made == decide(found.projections, found.options)
    assert (made.verdict, made.recommended.billed_gpus) == ("best chance", 2)
