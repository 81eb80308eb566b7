from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st
from projection_samples import projected_by_name as projected

from greenlove_tracker.forecasting import Estimate
from greenlove_tracker.projection.decision import WINNER, Limits, rank, shortlist_of
from greenlove_tracker.projection.types import Projection
from greenlove_tracker.projection.uncertain import Uncertain, uncertain

H100, A100, H200, L40S = "H100 SXM5 80GB", "A100 PCIe 80GB", "H200 SXM", "L40S"


def estimate(point: float, share: float, unit: str) -> Estimate:
    return Estimate(point, point * (1 - share), point * (1 + share), 0.90, unit, "assumption")


TEMPLATE = projected(custom_speedup=2.0)


def row(name: str, hours: float, usd: float | None, kg: float | None, share: float = 0.1, **changes) -> Projection:
    """A machine whose errors are its own."""
    estimates = {
        "duration_s": estimate(hours * 3600, share, "s"),
        "cost_usd": None if usd is None else estimate(usd, share, "USD"),
        "emissions_kgco2e": None if kg is None else estimate(kg, share, "kgCO2e"),
    }
    joint = {q: uncertain(e, f"{q} of {name} {hours}") for q, e in estimates.items() if e is not None}
    return replace(TEMPLATE[name], **estimates, joint=joint, **changes)


def winner(chances):
    return chances[0].machine if chances[0].probability >= WINNER else None


def test_clear_winners_are_named():
    ranking = rank([row("here", 20, 4, 3.5), row(A100, 10, 20, 1.0), row(L40S, 12, 30, 1.5), row(H100, 1.5, 46, 0.27)])
    assert winner(ranking.cheapest_rented).name == A100
    assert winner(ranking.fastest).name == winner(ranking.greenest).name == H100


def test_what_is_not_settled_has_a_shortlist():
    rows = [row("here", 20, 4, 3.5, 0.04), row(A100, 10, 40, 1.0, 0.4), row(L40S, 12, 45, 1.27, 0.4)]
    ranking = rank(rows)
    chances = ranking.cheapest_rented
    assert winner(chances) is None and [c.machine.name for c in shortlist_of(chances)] == [A100, L40S]
    assert sum(c.probability for c in chances) == pytest.approx(1.0)


def test_the_probability_is_that_of_two_normals():
    """P(X < Y) of independent log-normals: Φ(log(m_Y / m_X) / hypot of their deviations)."""
    a, b = row(A100, 10, 40, None, 0.2), row(L40S, 12, 45, None, 0.2)
    sides = [deviation for r in (a, b) for deviation in r.joint["cost_usd"].errors.popitem()[1]]
    sd = math.sqrt(2) * sum(sides) / 4
    a, b = (replace(r, joint={"cost_usd": Uncertain(r.cost_usd.point, {r.name: (sd / 2**0.5,) * 2})}) for r in (a, b))
    expected = NormalDist().cdf(math.log(45 / 40) / sd)
    assert rank([a, b]).cheapest_rented[0].probability == pytest.approx(expected, abs=0.012)


def test_an_error_that_two_machines_share_does_not_blur_which_is_cheaper():
    shared = {"time here": (0.5, 0.5)}
    a, b = (
        replace(row(name, 10, usd, None), joint={"cost_usd": Uncertain(usd, shared)})
        for name, usd in ((A100, 20), (L40S, 21))
    )
    first = rank([a, b]).cheapest_rented[0]
    assert first.machine.name == A100 and first.probability == 1.0


def test_reservations_are_not_to_rent_now_and_what_nobody_rents_out_is_never_cheapest():
    unoffered = replace(row(A100, 10, 1, 1.0), offer=None)
    ranking = rank([row("here", 20, 40, 3.5), row(L40S, 12, 45, 1.0), unoffered, row(H100, 1.5, 30, 0.27)])
    assert ranking.cheapest_rented == ()  # one alone is not ranked
    assert any(c.machine is unoffered for c in ranking.fastest)


def test_whole_machines_are_ranked_for_rent_where_there_is_nothing_smaller():
    wanted = {"n_gpus": 3, "billed_gpus": 4}
    rows = [row("here", 20, 4, 3.5), row(L40S, 12, 45, 1.0, **wanted), row(A100, 10, 30, 1.0, **wanted)]
    chances = rank([*rows, row(H100, 1.5, 20, 0.27)]).cheapest_rented
    assert [chance.machine.name for chance in chances] == [A100, L40S] and winner(chances).name == A100


def test_what_does_not_fit_or_stands_aside_or_is_unknown_is_not_ranked():
    rows = [
        row("here", 20, 4, 3.5),
        row(A100, 10, 20, 1.0),
        row(H100, 1.5, 1, 0.27, fits=False),
        row(H200, 1.0, 1, 0.2, aside="price on request"),
    ]
    ranking = rank(rows)
    assert ranking.cheapest_rented == ()  # one alone is not ranked
    assert winner(ranking.fastest).name == A100
    without = rank([row("here", 20, None, None), row(A100, 10, 20, None)])
    assert without.cheapest_rented == without.greenest == rank([]).fastest == ()


@given(st.lists(st.tuples(st.floats(1, 1e4), st.floats(0, 0.9)), min_size=2, max_size=5))
def test_probabilities_add_up_and_one_that_is_dearer_in_every_draw_has_none(numbers):
    rows = [
        replace(row(A100, 1, usd, None), joint={"cost_usd": Uncertain(usd, {f"of {i}": (sd, sd)})})
        for i, (usd, sd) in enumerate(numbers)
    ]
    dearer = replace(rows[0], joint={"cost_usd": rows[0].joint["cost_usd"].times(1.01)})
    chances = rank([*rows, dearer]).cheapest_rented
    assert sum(c.probability for c in chances) == pytest.approx(1.0)
    assert next(c.probability for c in chances if c.machine is dearer) == 0.0
    assert [c.probability for c in chances] == sorted((c.probability for c in chances), reverse=True)


def test_a_gpu_at_several_providers_does_not_share_its_probability_with_itself():
    here, l40s, a100 = row("here", 20, 99, 3.5), row(L40S, 12, 45, 1.3, 0.3), row(A100, 13, 30, 1.0, 0.3)
    dearer = replace(l40s, offer=replace(l40s.offer, provider="acme"), cost_usd=l40s.cost_usd.times(1.5, "USD"))
    once, twice = rank([here, l40s, a100]).fastest, rank([here, dearer, l40s, a100]).fastest
    assert twice[0].machine is l40s and dearer not in [chance.machine for chance in twice]
    assert twice[0].probability == pytest.approx(once[0].probability)


def test_with_limits_the_cheapest_to_rent_is_one_that_keeps_them():
    rows = [row("here", 20, 4, 3.5), row(A100, 10, 30, 1.0), row(L40S, 15, 20, 1.5)]
    rows.append(replace(row(L40S, 11, 25, 1.5), name="L4"))
    assert winner(rank(rows).cheapest_rented).name == L40S
    chances = rank(rows, Limits(within_s=13 * 3600)).cheapest_rented
    assert {chance.machine.name for chance in chances} == {A100, "L4"}
    assert rank(rows, Limits(within_s=3600)).cheapest_rented == ()
