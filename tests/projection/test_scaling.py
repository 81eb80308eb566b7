from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenlove_tracker.projection.scaling import INTERCONNECTS, interconnect_of, scaling_gain, scalings
from greenlove_tracker.tables.gpus import gpus
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.workloads import WORKLOADS

Z90 = 1.6448536269514722

counts = st.integers(1, 512)
workloads = st.sampled_from([None, *WORKLOADS])
interconnects = st.sampled_from([None, *INTERCONNECTS])
efficiencies = st.none() | st.floats(0.13, 1.0)


def gain(n_from, n_to, **how):
    return scaling_gain(n_to, **how).over(scaling_gain(n_from, **how))


@given(counts, counts, counts, workloads, interconnects, efficiencies)
def test_gains_multiply_in_the_point_and_in_every_error(a, b, c, workload, interconnect, efficiency):
    how = {"workload": workload, "interconnect": interconnect, "efficiency_of_eight": efficiency}
    by_way, direct = gain(a, b, **how).times(gain(b, c, **how)), gain(a, c, **how)
    assert by_way.point == pytest.approx(direct.point, rel=1e-9)
    for name in {*by_way.errors, *direct.errors}:
        assert by_way.errors.get(name, (0, 0)) == pytest.approx(direct.errors.get(name, (0, 0)), abs=1e-9)


@given(counts, counts, workloads, interconnects, efficiencies)
def test_more_gpus_gain_never_more_than_their_number_and_never_for_certain(a, b, workload, interconnect, efficiency):
    found = gain(a, b, workload=workload, interconnect=interconnect, efficiency_of_eight=efficiency)
    interval = found.estimate("")
    if a == b:
        assert interval.lower == interval.point == interval.upper == pytest.approx(1.0)
        return
    assert interval.lower < interval.point < interval.upper
    assert abs(math.log(found.point)) <= abs(math.log(b / a)) * (1 + 1e-12)
    assert (found.point > 1) == (b > a)


def test_eight_gpus_by_hand():
    row = scalings()["nvlink", "language"]
    eight = scaling_gain(8, workload="language", interconnect="nvlink")
    assert eight.point == pytest.approx(8**row.exponent)
    below, above = (
        math.hypot(exponent * math.log(8), number)
        for exponent, number in zip(row.exponent_errors, row.number_errors, strict=True)
    )
    interval = eight.estimate("")
    assert interval.lower == pytest.approx(eight.point * math.exp(-Z90 * below))
    assert interval.upper == pytest.approx(eight.point * math.exp(Z90 * above))
    # Lambda, BERT large with FP16: 926 sequences a second on 8 × A100 SXM4 80GB, 123 on one
    assert interval.lower < 926 / 123 < interval.upper


def test_beyond_eight_the_network_adds_its_own_error():
    inside, across = (scaling_gain(n, workload="language", interconnect="nvlink") for n in (8, 16))
    between = gain(8, 16, workload="language", interconnect="nvlink")
    assert {name for name, sides in between.errors.items() if any(sides)} == {
        "scaling by ethernet between nodes",
        "scaling to 16 GPUs by ethernet between nodes",
    }
    assert across.point == pytest.approx(inside.point * between.point)
    assert set(across.errors) == {*inside.errors, *between.errors}
    # llm-foundry, 125 million parameters on A100: 136,334 tokens a second and GPU on 8, 130,535 on 16
    interval = between.estimate("")
    assert interval.lower < 2 * 130_535 / 136_334 < interval.upper


def test_a_users_efficiency_sets_the_point_and_leaves_an_error():
    how = {"workload": "language", "interconnect": "nvlink"}
    ours, theirs = scaling_gain(8, **how), scaling_gain(8, **how, efficiency_of_eight=0.7)
    assert theirs.point == pytest.approx(8 * 0.7)
    name = "scaling by nvlink"
    assert theirs.errors[name] == pytest.approx(tuple(0.5 * side for side in ours.errors[name]))
    assert theirs.errors["scaling to 8 GPUs by nvlink"] == ours.errors["scaling to 8 GPUs by nvlink"]
    # The network is no better than the links inside a node; nor does a good efficiency inside make it better.
    assert gain(8, 64, **how, efficiency_of_eight=0.7).point == pytest.approx(8 * 0.7)
    assert gain(8, 64, **how, efficiency_of_eight=1.0).point == pytest.approx(gain(8, 64, **how).point)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"interconnect": "infiniband"}, "interconnect must be nvlink, pcie or ethernet, not 'infiniband'"),
        ({"efficiency_of_eight": 0.125}, "scaling is the efficiency of eight GPUs"),
        ({"efficiency_of_eight": 85}, "scaling is the efficiency of eight GPUs"),
        ({"efficiency_of_eight": math.nan}, "scaling is the efficiency of eight GPUs"),
        ({"workload": "poetry"}, "workload must be language, vision"),
    ],
)
def test_what_cannot_be_meant_is_refused(how, message):
    with pytest.raises(UsageError, match=message):
        scaling_gain(8, **how)


@pytest.mark.parametrize(
    ("name", "interconnect"),
    [
        ("H100 SXM5 80GB", "nvlink"),
        ("A100 PCIe 80GB", "pcie"),
        ("H100 NVL 94GB", "pcie"),  # bridges join two cards, and are not assumed
        ("Instinct MI300X", "nvlink"),
        ("GH200 96GB", "ethernet"),
    ],
)
def test_modules_have_nvlink_and_cards_pcie(name, interconnect):
    assert interconnect_of(gpus()[name]) == interconnect
