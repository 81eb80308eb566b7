from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import greenlove_tracker
from greenlove_tracker.projection.speedup import given_speedup, speedup, speedups
from greenlove_tracker.projection.speedup_model import shipped_model
from greenlove_tracker.projection.uncertain import draws
from greenlove_tracker.tables.gpus import gpus
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.forecasting import Kind
from greenlove_tracker.vocabulary.workloads import PRECISIONS, WORKLOADS

G = gpus()
NAMES, CLASSES, FORMATS = st.sampled_from(sorted(G)), st.sampled_from([None, *WORKLOADS]), st.sampled_from(PRECISIONS)
A100, H100, H200, V100, T4, L40S = "A100 SXM4 80GB", "H100 SXM5 80GB", "H200 SXM", "V100 SXM2 16GB", "T4", "L40S"
UNMEASURED = "GeForce GTX 1660 Ti"


def _point(local, target, **options):
    return speedup(local, target, **options).estimate.point


def test_large_language_models_on_an_h100():
    """llm-foundry's table: 2.14 times an A100's tokens a second, the geometric mean over sizes of model."""
    found = greenlove_tracker.speedup(A100, H100, workload="language", precision="bf16")
    assert found.estimate.lower < 2.14 < found.estimate.upper
    assert (found.method, found.known_from) == ("benchmarks", "benchmarks")
    assert found.sources and (found.estimate.level, found.estimate.unit) == (0.90, "×")


@given(NAMES, NAMES, CLASSES, FORMATS)
@settings(max_examples=60)
def test_there_and_back_is_one(local, target, workload, precision):
    options = {"workload": workload, "precision": precision}
    there, back = (speedup(G[x], G[y], **options).estimate for x, y in ((local, target), (target, local)))
    assert there.point * back.point == pytest.approx(1, rel=1e-9)
    assert there.upper * back.lower == pytest.approx(1, rel=1e-9)
    assert 0 < there.lower <= there.point <= there.upper
    assert (there.level, there.unit, there.kind) == (0.90, "×", Kind.ASSUMPTION)
    assert (there.lower < there.point) == (local != target)


@pytest.mark.parametrize("workload", [None, "language"])
def test_several_are_drawn_from_their_joint_distribution(workload):
    names = [H100, H200, UNMEASURED, L40S]
    found = speedups(G[A100], [G[name] for name in names], workload=workload, precision="bf16")
    known = shipped_model().log_speeds([G[name] for name in (A100, *names)], workload=workload, precision="bf16")
    against = np.hstack([-np.ones((4, 1)), np.eye(4)])
    n = 100_000
    drawn = np.log(draws([each.ratio for each in found], n, seed=3))
    sd = np.sqrt(np.diag(against @ known.covariance @ against.T))
    assert drawn.mean(axis=1) == pytest.approx(against @ known.means, abs=4 * sd.max() / n**0.5)
    assert np.cov(drawn) == pytest.approx(against @ known.covariance @ against.T, abs=0.02 * sd.max() ** 2)
    each = [speedup(A100, name, workload=workload).estimate for name in names]
    assert [s.estimate.upper for s in found] == pytest.approx([e.upper for e in each])


def test_what_a_figure_is_known_from():
    assert speedup(A100, UNMEASURED).known_from == speedup(UNMEASURED, A100).known_from == "half specs"
    twin = replace(G[A100], name="A100 160GB", memory_gb=160)
    found = speedup(V100, twin)
    assert found.known_from == "benchmarks"
    assert [source.partition(",")[0].split()[0] for source in found.sources] == ["Lambda", "MLPerf", "MosaicML"]
    assert found.notes[-1] == "A100 160GB is counted as A100 SXM4 80GB, which differs in its memory alone"
    assert found.ratio.point == pytest.approx(_point(V100, A100))


def test_an_ordinary_run_is_not_sped_up_by_fp8():
    """Whether a GPU has the format makes a difference where it is asked for alone."""
    without = replace(G[H100], name="without", fp8_tflops=None)
    for precision in ("fp32", "tf32", "bf16"):
        both = [
            speedup(UNMEASURED, gpu, precision=precision).ratio.point
            for gpu in (replace(G[H100], name="with"), without)
        ]
        assert both[0] == both[1]
    found = speedup(A100, without, precision="fp8")
    assert {"A100 SXM4 80GB has no FP8: it is counted in bf16", "without has no FP8: it is counted in bf16"} <= set(
        found.notes
    )
    assert found.ratio.point == speedup(A100, without, precision="bf16").ratio.point
    assert speedup(A100, H100, precision="fp8", workload="language").ratio.point > _point(
        A100, H100, workload="language"
    )


def test_the_cpu_is_rough():
    found = speedup(None, "GeForce RTX 4090")
    assert "rough" in found.known_from and "no benchmark" in found.sources[0]
    assert found.method == "specifications"
    assert found.estimate.upper / found.estimate.lower == pytest.approx(25, rel=1e-4)


def test_a_figure_of_the_users():
    found = given_speedup(3)
    assert (found.estimate.point, found.estimate.lower, found.estimate.upper) == (3, 3, 3)
    assert (found.method, found.known_from) == ("custom", "given")
    assert given_speedup((3, 2, 5)).estimate.upper == pytest.approx(5)


@pytest.mark.parametrize("custom", [0, -1, float("nan"), float("inf"), (2, 3, 4), (2, 0, 4), (2, 1, 1.5)])
def test_a_figure_that_is_not_positive_is_refused(custom):
    with pytest.raises(UsageError, match="custom_speedup must be positive"):
        given_speedup(custom)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"precision": "int4"}, "precision must be fp32, tf32, bf16 or fp8"),
        ({"workload": "llama"}, "workload must be language, vision"),
    ],
)
def test_what_cannot_be_is_refused(options, match):
    with pytest.raises(UsageError, match=match):
        speedup(UNMEASURED, H100, **options)
