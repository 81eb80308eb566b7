import subprocess
import sys
from dataclasses import replace
from itertools import combinations
from math import exp, isclose, log
from statistics import geometric_mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenlove_tracker.errors import UsageError
from greenlove_tracker.forecasting import Estimate, Kind
from greenlove_tracker.projection import benchmarks, specifications, speedup_error
from greenlove_tracker.projection.speedup import measured_speedup, speedup
from greenlove_tracker.projection.speedup_error import Residual, fit_spread
from greenlove_tracker.tables.gpus import CURRENT_SOFTWARE, gpus

G = gpus()
NAMES = st.sampled_from(sorted(G))
PRECISIONS = st.sampled_from(["fp16", "fp32"])


def _point(local, target, **options):
    return speedup(G[local], G[target], **options).estimate.point


def test_a_task_is_the_ratio_of_its_throughputs():
    found = speedup(G["GeForce RTX 4090"], G["H100 SXM5 80GB"], task="resnet50")
    assert found.estimate.point == pytest.approx(2791 / 1301)
    assert (found.method, found.known_from) == ("benchmarks", "resnet50")


def test_without_a_task_it_is_the_geometric_mean():
    found = speedup(G["A100 SXM4 80GB"], G["H100 SXM5 80GB"])
    published = [858 / 443, 311 / 152, 473757 / 243500, 2791 / 1582, 859 / 458, 85457 / 59716, 472240 / 244438]  # v1_v2
    published += [62259 / 43078, 30841 / 17918]  # v1
    assert found.estimate.point == pytest.approx(geometric_mean(published))
    assert found.known_from == "9 benchmarks" and len(found.sources) >= 2


def test_where_no_software_ran_on_both_it_goes_through_an_anchor():
    found = speedup(G["GeForce RTX 3070"], G["H100 SXM5 80GB"])
    assert (found.method, found.known_from) == ("benchmarks", "via GeForce RTX 3090")
    old = benchmarks.log_ratios("GeForce RTX 3070", "GeForce RTX 3090", "fp16", ("v0",))
    new = benchmarks.log_ratios("GeForce RTX 3090", "H100 SXM5 80GB", "fp16", CURRENT_SOFTWARE)
    common = old.keys() & new.keys()
    assert log(found.estimate.point) == pytest.approx(sum(old[t] + new[t] for t in common) / len(common))


def test_where_one_anchor_is_not_enough_it_takes_two():
    found = benchmarks.ratios("GeForce RTX 3070", "H200 SXM", "fp16")
    legs = [("GeForce RTX 3070", found.anchor), (found.anchor, "GH200 96GB"), ("GH200 96GB", "H200 SXM")]
    each = [benchmarks.ratios(*leg, "fp16").by_task for leg in legs]
    common = set.intersection(*(set(by_task) for by_task in each))
    assert found.mean == pytest.approx(sum(by_task[t] for t in common for by_task in each) / len(common))


def test_a_ratio_is_of_one_generation_of_software():
    with_v0 = benchmarks.log_ratios("GeForce RTX 3090", "A100 SXM4 80GB", "fp16", ("v0",))
    used = benchmarks.ratios("GeForce RTX 3090", "A100 SXM4 80GB", "fp16")
    assert used.family == CURRENT_SOFTWARE
    assert used.by_task["bert_base_squad"] == pytest.approx(log(443 / 172))
    assert with_v0["bert_base_squad"] == pytest.approx(log(374 / 160))


def test_a_gpu_with_another_memory_only_counts_as_its_twin():
    found = speedup(G["V100 SXM2 32GB"], G["A100 SXM4 80GB"])
    assert found.known_from == "as V100 SXM2 16GB"
    assert found.estimate.point == pytest.approx(_point("V100 SXM2 16GB", "A100 SXM4 80GB"))
    assert _point("V100 SXM2 32GB", "V100 SXM2 16GB") == 1


def test_a_figure_bound_by_the_host_is_not_used():
    assert "resnet50" not in benchmarks.ratios("H100 SXM5 80GB", "B200 SXM", "fp16").by_task
    assert "resnet50" in benchmarks.ratios("H100 SXM5 80GB", "B200 SXM", "fp32").by_task


def test_data_sheets_where_there_is_no_benchmark():
    found = speedup(G["GeForce RTX 4090"], G["L40S"])
    assert (found.method, found.known_from) == ("specifications", "specs only")
    compute, bandwidth = specifications.powers()
    assert found.estimate.point == pytest.approx((362.05 / 165.2) ** compute * (864 / 1008) ** bandwidth)
    assert found.sources == (G["GeForce RTX 4090"].source, G["L40S"].source)


def test_the_powers_are_those_of_the_page():
    assert specifications.powers() == pytest.approx((0.353, 0.507), abs=0.001)


def test_green_loves_blend_by_name():
    found = speedup(G["GeForce RTX 4090"], G["H100 SXM5 80GB"], method="green-love")
    assert found.estimate.point == pytest.approx(0.7 * 989.4 / 165.2 + 0.3 * 3350 / 1008)
    assert found.method == "green-love"


def test_the_cpu_is_rough():
    found = speedup(None, G["GeForce RTX 4090"])
    assert "rough" in found.known_from and "no benchmark" in found.sources[0]
    assert found.estimate.upper / found.estimate.lower == pytest.approx(25)
    assert speedup(None, G["GeForce RTX 4090"], cpu_fp32_tflops=2.0).estimate.point < found.estimate.point
    with pytest.raises(UsageError, match="cpu_bandwidth_gb_s must be positive"):
        speedup(None, G["GeForce RTX 4090"], cpu_bandwidth_gb_s=0)


@given(NAMES, PRECISIONS)
def test_the_same_gpu_is_as_fast(name, precision):
    found = speedup(G[name], G[name], precision=precision)
    assert (found.estimate.lower, found.estimate.point, found.estimate.upper) == (1, 1, 1)
    assert found.method == "same"


@given(NAMES, NAMES, PRECISIONS, st.sampled_from([None, "specifications"]))
def test_there_and_back_is_one(local, target, precision, method):
    there = speedup(G[local], G[target], precision=precision, method=method).estimate
    back = speedup(G[target], G[local], precision=precision, method=method).estimate
    assert there.point * back.point == pytest.approx(1)
    assert there.upper * back.lower == pytest.approx(1)


@given(NAMES, NAMES, PRECISIONS, st.floats(1, 100), st.floats(1, 100))
def test_more_compute_or_bandwidth_is_never_slower(local, target, precision, compute, bandwidth):
    gpu = G[target]
    better = replace(
        gpu,
        name="better",
        fp32_tflops=(gpu.fp32_tflops or 1) * compute,
        fp16_tflops=gpu.fp16_tflops and gpu.fp16_tflops * compute,
        tf32_tflops=gpu.tf32_tflops and gpu.tf32_tflops * compute,
        bandwidth_gb_s=(gpu.bandwidth_gb_s or 1) * bandwidth,
    )
    options = {"precision": precision, "method": "specifications"}
    here = replace(G[local], name="here")
    more, less = speedup(here, better, **options).estimate.point, speedup(here, gpu, **options).estimate.point
    assert more >= less or isclose(more, less)


@given(NAMES, NAMES, PRECISIONS)
def test_an_interval_holds_its_point_and_is_an_assumption(local, target, precision):
    estimate = speedup(G[local], G[target], precision=precision).estimate
    assert 0 < estimate.lower <= estimate.point <= estimate.upper
    assert (estimate.level, estimate.unit, estimate.kind) == (0.90, "×", Kind.ASSUMPTION)


def test_through_an_anchor_is_never_surer_than_directly():
    for local, target in combinations(["GeForce RTX 3070", "A40", "H200 SXM", "B200 SXM", "Quadro RTX 5000"], 2):
        found = speedup(G[local], G[target])
        family = benchmarks.ratios(local, target, "fp16").family
        direct = speedup_error.spread("benchmarks", "fp16", family)
        half_width = direct.half_width(specifications.distance(G[local], G[target], "fp16"))
        assert log(found.estimate.upper / found.estimate.point) >= half_width - 1e-12


def test_a_figure_of_the_users_comes_first():
    found = speedup(G["GeForce RTX 4090"], G["H100 SXM5 80GB"], custom=3)
    assert (found.estimate.point, found.estimate.lower, found.estimate.upper) == (3, 3, 3)
    assert (found.method, found.known_from) == ("custom", "given")
    assert speedup(None, G["L4"], custom=(3, 2, 5)).estimate.upper == 5


@pytest.mark.parametrize("custom", [0, -1, float("nan"), float("inf"), (2, 3, 4), (2, 0, 4), (2, 1, 1.5)])
def test_a_figure_that_is_not_positive_is_refused(custom):
    with pytest.raises(UsageError, match="custom_speedup must be positive"):
        speedup(None, G["L4"], custom=custom)


def _time(point, lower, upper, level=0.95):
    return Estimate(point, lower, upper, level, "s")


def test_measured_errors_add_in_quadrature():
    found = measured_speedup(_time(100, 100 / 1.1, 110), _time(50, 50 / 1.1, 55))
    assert found.estimate.point == 2 and found.method == found.known_from == "measured"
    assert found.estimate.upper == pytest.approx(2 * exp(log(1.1) * 2**0.5))
    assert found.estimate.lower == pytest.approx(2 / exp(log(1.1) * 2**0.5))
    assert (found.estimate.kind, found.estimate.level) == (Kind.PREDICTION, 0.95)


def test_measured_times_must_be_times():
    with pytest.raises(UsageError, match="positive"):
        measured_speedup(_time(1, -1, 3), _time(1, 1, 1))
    with pytest.raises(UsageError, match="levels"):
        measured_speedup(_time(1, 1, 1), _time(1, 1, 1, level=0.9))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"precision": "bf16"}, "bfloat16 counts as fp16"),
        ({"task": "llama"}, "there are bert_base_squad"),
        ({"method": "guess"}, "method must be benchmarks"),
        ({"method": "benchmarks"}, "no published benchmark leads from GeForce RTX 4090 to L40S"),
    ],
)
def test_what_cannot_be_is_refused(options, match):
    with pytest.raises(UsageError, match=match):
        speedup(G["GeForce RTX 4090"], G["L40S"], **options)


@pytest.mark.parametrize("lost", [{"bandwidth_gb_s": None}, {"fp16_tflops": None, "fp32_tflops": None}])
def test_a_gpu_of_which_nothing_is_known(lost):
    with pytest.raises(UsageError, match=r"known of unheard: give custom_speedup"):
        speedup(G["L4"], replace(G["L40S"], name="unheard", **lost))


def test_a_spread_holds_its_share():
    residuals = [Residual(("a", "b"), "t", "v0", 1.0, sign * i / 100) for i in range(1, 101) for sign in (1, -1)]
    held = [abs(m.log_error) <= fit_spread(residuals).half_width(1.0) for m in residuals]
    assert sum(held) / len(held) == pytest.approx(0.90, abs=0.02)


def test_a_spread_grows_where_the_errors_do():
    residuals = [Residual(("a", "b"), "t", "v0", d, 0.1 + 0.2 * d) for d in (0.5, 1.0, 1.5, 2.0)]
    assert fit_spread(residuals).half_width(1.0) == pytest.approx(0.3)
    assert fit_spread(residuals).half_width(2.0) == pytest.approx(0.5)


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_data_sheets_left_out_stay_within_what_is_asked(precision):
    by_pair = {}
    for residual in speedup_error.specification_residuals(precision):
        if residual.generation == "v1_v2":
            by_pair.setdefault(residual.pair, []).append(residual.log_error)
    means = [sum(errors) / len(errors) for errors in by_pair.values()]
    relative = [abs(exp(sign * mean) - 1) for mean in means for sign in (1, -1)]
    assert sum(relative) / len(relative) < 0.20


def test_what_is_left_out_is_left_out():
    assert specifications.powers(frozenset({"B200 SXM"})) != specifications.powers()
    pairs = {name for residual in speedup_error.specification_residuals("fp16", {"A10"}) for name in residual.pair}
    assert "A10" not in pairs and "B200 SXM" in pairs


def test_the_import_loads_no_numpy():
    code = "import sys, greenlove_tracker.projection.speedup; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
