from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st
from projection_samples import projected_by_name as projected

from greenlove_tracker.forecasting import Estimate
from greenlove_tracker.projection.decision import Chance, JointDraws, shortlist_of
from greenlove_tracker.projection.types import Projection
from greenlove_tracker.projection.uncertain import Uncertain, uncertain

A100, L40S = "A100 PCIe 80GB", "L40S"


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


def chances_of(rows: list[Projection]) -> tuple[Chance, ...]:
    return JointDraws(rows).best(rows, "cost")


def test_what_is_not_settled_has_a_shortlist():
    rows = [row("here", 20, 4, 3.5, 0.04), row(A100, 10, 40, 1.0, 0.4), row(L40S, 12, 45, 1.27, 0.4)]
    chances = chances_of(rows[1:])
    assert [c.machine.name for c in shortlist_of(chances)] == [A100, L40S]
    assert sum(c.probability for c in chances) == pytest.approx(1.0)


def test_the_probability_is_that_of_two_normals():
    """P(X < Y) of independent log-normals: Φ(log(m_Y / m_X) / hypot of their deviations)."""
    a, b = row(A100, 10, 40, None, 0.2), row(L40S, 12, 45, None, 0.2)
    sides = [deviation for r in (a, b) for deviation in r.joint["cost_usd"].errors.popitem()[1]]
    sd = math.sqrt(2) * sum(sides) / 4
    a, b = (replace(r, joint={"cost_usd": Uncertain(r.cost_usd.point, {r.name: (sd / 2**0.5,) * 2})}) for r in (a, b))
    expected = NormalDist().cdf(math.log(45 / 40) / sd)
    assert chances_of([a, b])[0].probability == pytest.approx(expected, abs=0.012)


def test_an_error_that_two_machines_share_does_not_blur_which_is_cheaper():
    shared = {"time here": (0.5, 0.5)}
    a, b = (
        replace(row(name, 10, usd, None), joint={"cost_usd": Uncertain(usd, shared)})
        for name, usd in ((A100, 20), (L40S, 21))
    )
    first = chances_of([a, b])[0]
    assert first.machine.name == A100 and first.probability == 1.0


@given(st.lists(st.tuples(st.floats(1, 1e4), st.floats(0, 0.9)), min_size=2, max_size=5))
def test_probabilities_add_up_and_one_that_is_dearer_in_every_draw_has_none(numbers):
    rows = [
        replace(row(A100, 1, usd, None), joint={"cost_usd": Uncertain(usd, {f"of {i}": (sd, sd)})})
        for i, (usd, sd) in enumerate(numbers)
    ]
    dearer = replace(rows[0], joint={"cost_usd": rows[0].joint["cost_usd"].times(1.01)})
    chances = chances_of([*rows, dearer])
    assert sum(c.probability for c in chances) == pytest.approx(1.0)
    assert next(c.probability for c in chances if c.machine is dearer) == 0.0
    assert [c.probability for c in chances] == sorted((c.probability for c in chances), reverse=True)
