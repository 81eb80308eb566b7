from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from projection_samples import projected_by_name as projected

from greenlove_tracker.forecasting import Estimate
from greenlove_tracker.projection.ranking import label, rank
from greenlove_tracker.projection.types import Projection

H100, A100, H200 = "H100 SXM5 80GB", "A100 PCIe 80GB", "H200 SXM"


def estimate(point: float, share: float, unit: str) -> Estimate:
    return Estimate(point, point * (1 - share), point * (1 + share), 0.90, unit, "assumption")


TEMPLATE = projected(custom_speedup=2.0)


def row(name: str, hours: float, usd: float | None, kg: float | None, share: float = 0.1, **changes) -> Projection:
    return replace(
        TEMPLATE[name],
        duration_s=estimate(hours * 3600, share, "s"),
        cost_usd=None if usd is None else estimate(usd, share, "USD"),
        emissions_kgco2e=None if kg is None else estimate(kg, share, "kgCO2e"),
        **changes,
    )


def test_clear_winners_are_named():
    ranking = rank([row("here", 20, 4, 3.5), row(A100, 10, 20, 1.0), row(H100, 1.5, 46, 0.27)])
    assert ranking.cheapest.winner.is_local
    assert ranking.cheapest.sentence == "cheapest: here, $4.00 [$3.60–$4.40] of electricity alone"
    assert ranking.cheapest_rented.winner.name == A100
    assert ranking.fastest.sentence == "fastest: 8 × H100 SXM5 80GB, 1:30:00 [1:21:00–1:39:00]"
    assert ranking.greenest.sentence == "greenest: 8 × H100 SXM5 80GB, 270 g [243 g–297 g], location-based"
    assert ranking.suggested_trial is None  # nothing is left to settle


def test_overlapping_ranges_are_not_ranked_and_a_trial_would_settle_them():
    ranking = rank([row("here", 20, 4, 3.5, 0.04), row(A100, 10, 40, 1.0, 0.4), row(H100, 1.5, 45, 0.27, 0.4)])
    assert ranking.cheapest_rented.winner is None
    assert [r.name for r in ranking.cheapest_rented.leaders] == [A100, H100]
    assert ranking.cheapest_rented.sentence == (
        "cheapest rented: no winner can be named, the ranges of 1 × A100 PCIe 80GB, 8 × H100 SXM5 80GB overlap"
    )
    settle = ranking.suggested_trial
    assert (settle.machine.name, settle.gpus) == (A100, 1)  # one GPU, not eight
    assert settle.cost_usd == pytest.approx(0.25 * 2.00)
    assert "15 minutes of 1 × A100 PCIe 80GB ($0.50) would cut its range to about ±4%" in settle.sentence


def test_a_trial_on_eight_that_are_billed_together_is_paid_for_eight():
    ranking = rank([row("here", 20, 4, 3.5), row(H200, 1.4, 46, 0.2, 0.3), row(H100, 1.5, 45, 0.27, 0.3)])
    assert (ranking.suggested_trial.machine.name, ranking.suggested_trial.gpus) == (H100, 8)
    assert ranking.suggested_trial.cost_usd == pytest.approx(0.25 * 8 * 3.90)


def test_savings_against_here_say_what_they_rest_on():
    ranking = rank([row("here", 20, 4, 3.5), row(A100, 10, 20, 1.0), row(H100, 1.5, 46, 0.27)])
    cost, time, co2e = ranking.savings
    assert [s.criterion for s in ranking.savings] == ["cost", "time", "co2e"]
    assert (cost.machine.name, cost.amount.point) == (A100, -16)
    assert (cost.amount.lower, cost.amount.upper) == (pytest.approx(3.6 - 22), pytest.approx(4.4 - 18))
    assert cost.sentence == "1 × A100 PCIe 80GB costs $16.00 [$13.60–$18.40] more than here"
    assert time.sentence == "8 × H100 SXM5 80GB saves 18:30:00 [16:21:00–20:39:00] against here"
    assert co2e.amount.point == pytest.approx(3.23)
    assert co2e.sentence == "8 × H100 SXM5 80GB saves 3.23 kg [2.85 kg–3.61 kg] CO2e against here, location-based"


def test_a_saving_whose_sign_is_not_certain_is_not_told():
    ranking = rank([row("here", 20, 21, 3.5), row(A100, 10, 20, 1.0)])
    assert ranking.savings[0].sentence == "whether 1 × A100 PCIe 80GB saves money against here cannot be told"
    assert ranking.savings[0].amount.lower < 0 < ranking.savings[0].amount.upper


def test_a_saving_by_one_of_several_that_overlap_says_so():
    ranking = rank([row("here", 20, 4, 3.5), row(A100, 10, 20, 1.0), row(H100, 1.5, 21, 0.27), row(H200, 1.4, 60, 0.2)])
    cost, time, _ = ranking.savings
    assert cost.sentence.startswith("1 × A100 PCIe 80GB, one of 2 whose ranges overlap, costs $16.00 [")
    assert time.sentence.startswith("8 × H200 SXM, one of 2 whose ranges overlap, saves 18:36:00 [")


def test_what_does_not_fit_or_stands_aside_or_is_unknown_is_not_ranked():
    rows = [
        row("here", 20, 4, 3.5),
        row(A100, 10, 20, 1.0),
        row(H100, 1.5, 1, 0.27, fits=False),
        row(H200, 1.0, 1, 0.2, aside="price on request"),
    ]
    ranking = rank(rows)
    assert ranking.cheapest_rented is None  # one alone is not ranked
    assert ranking.fastest.winner.name == A100
    without = rank([row("here", 20, None, None), row(A100, 10, 20, None)])
    assert without.cheapest is None and without.greenest is None
    assert [s.criterion for s in without.savings] == ["time"]
    assert rank([]).fastest is None


def test_notes_point_out_what_does_not_compare():
    notes = " ".join(rank(list(projected().values())).notes)
    assert "mixes direct (EPA eGRID) and lifecycle" in notes
    assert "electricity alone" in notes
    assert "no ranking rests on them" in notes
    assert rank([TEMPLATE["here"]]).notes == ()


def test_no_sentence_says_a_bare_zero():
    ranking = rank(list(projected(include_all=True).values()))
    verdicts = [ranking.cheapest, ranking.cheapest_rented, ranking.fastest, ranking.greenest]
    for sentence in [*(v.sentence for v in verdicts if v), *(s.sentence for s in ranking.savings)]:
        assert not re.search(r"(?<![\d.,])0 (kg|g)\b", sentence)


@given(st.lists(st.tuples(st.floats(1, 1e4), st.floats(0, 0.9)), min_size=2, max_size=5))
def test_a_winner_is_below_everybody_elses_range(numbers):
    rows = [row(A100, 1, usd, None, share) for usd, share in numbers]
    verdict = rank(rows).cheapest
    least = verdict.leaders[0].cost_usd
    assert least.point == min(r.cost_usd.point for r in rows)
    others = [r.cost_usd for r in rows if all(r is not leader for leader in verdict.leaders)]
    assert all(least.upper < other.lower for other in others)
    assert (verdict.winner is not None) == (len(others) == len(rows) - 1)


def test_labels():
    assert label(TEMPLATE["here"]) == "here"
    assert label(TEMPLATE[H100]) == "8 × H100 SXM5 80GB"
