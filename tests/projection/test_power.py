"""Tests of the power of GPUs elsewhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenlove_tracker.projection.power import (
    PowerDraw,
    draw_elsewhere,
    draw_of_machine,
    node_overhead,
    power_table,
    usual_draw,
)
from greenlove_tracker.projection.uncertain import Uncertain
from greenlove_tracker.tables.gpus import gpus
from greenlove_tracker.vocabulary.workloads import WORKLOADS

names = st.sampled_from(["A40", "V100 PCIe 32GB", "P100 PCIe 16GB", "H100 SXM5 80GB", "B200 SXM", "GeForce RTX 4090"])
shares = st.floats(0.02, 1.0)


def seen(share: float) -> PowerDraw:
    return PowerDraw(Uncertain(share), "draw seen here")


def test_a_recommendation_model_draws_less_than_half_on_another_gpu_of_the_same_speed():
    # Zeus's NCF with a batch of 1024 on MovieLens: 84 W of 300 on an A40, 38 W of 250 on a V100, as fast
    there = draw_elsewhere(seen(84 / 300), gpus()["A40"], gpus()["V100 PCIe 32GB"])
    interval = there.share.estimate("")
    assert interval.lower < 38 / 250 < interval.upper
    assert 84 / (there.share.point * 250) == pytest.approx(84 / 38, rel=0.25)


def test_the_same_gpu_draws_the_same():
    local = seen(0.4)
    assert draw_elsewhere(local, gpus()["A40"], gpus()["A40"]) is local


@given(shares, shares, names, names)
def test_a_busier_training_draws_more_everywhere_and_never_more_than_the_limit(a, b, here, there):
    if here == there:
        return
    low, high = (draw_elsewhere(seen(share), gpus()[here], gpus()[there]).share.point for share in sorted((a, b)))
    assert 0 < low <= high <= 1


@pytest.mark.parametrize(("workload", "activity"), [(None, ""), ("graph", ""), *((w, w) for w in WORKLOADS[:4])])
def test_a_draw_that_nothing_tells_is_assumed_by_class(workload, activity):
    draw = usual_draw(gpus()["A40"], workload)
    table = power_table()
    idle, full = table.idle["A40"].point, table.full["A40"].point
    assert draw.is_assumed and draw.basis.startswith("assumed, usual for ")
    assert draw.share.point == pytest.approx(idle + (full - idle) * table.activity[activity].point)
    interval = draw.share.estimate("")
    assert interval.lower < 0.95 * interval.point and interval.upper > interval.point


def test_the_energy_of_a_machine_gives_its_draw_and_comes_back_from_it():
    rest = power_table().rest.point
    draw = draw_of_machine(300.0, gpus()["A40"], 300.0)
    assert draw.share.point == pytest.approx(1 - rest) and not draw.is_assumed
    whole = draw.share.times(node_overhead(draw))
    assert whole.point == pytest.approx(1.0)
    # what is not the GPU's is the rest's: the whole is known as well as the meter is
    assert whole.errors["rest of the node"] == pytest.approx((0, 0), abs=1e-9)


def test_a_busy_node_draws_at_the_wall_as_mlperf_measured():
    # 8 × H100, 8 × B200: 1.20 to 1.29 times the power limit of their GPUs (MLPerf Training v4.0 and v5.0)
    table = power_table()
    busy = seen(min(1.0, table.full[""].point))
    interval = busy.share.times(node_overhead(busy)).estimate("")
    assert interval.lower < 1.20 < 1.29 < interval.upper and interval.point == pytest.approx(1.25, rel=0.05)


def test_lora_on_b200_saves_about_half_the_energy_at_the_wall():
    # MLPerf: 8 × H100 SXM5 80GB 1686 s and 3.35 kWh (v4.0), 8 × B200 656 s and 1.745 kWh (v5.0, Lenovo)
    h100, b200 = gpus()["H100 SXM5 80GB"], gpus()["B200 SXM"]
    local = draw_of_machine(3.35e6 / (1686 / 3600) / 1000, h100, 8 * 700.0)
    there = draw_elsewhere(local, h100, b200)
    kwh = there.share.times(node_overhead(there)).times(8 * 1.0 * 656 / 3600).estimate("kWh")
    assert kwh.lower < 1.745 < kwh.upper
    assert kwh.point / 3.35 - 1 == pytest.approx(-0.48, abs=0.06)
