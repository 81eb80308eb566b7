from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greenlove_tracker.projection.speedup_model import (
    SpeedModel,
    parse_effect,
    shipped_model,
)
from greenlove_tracker.tables.gpus import gpus
from greenlove_tracker.vocabulary.workloads import PRECISIONS, WORKLOADS

G = gpus()
NAMES, CLASSES, FORMATS = st.sampled_from(sorted(G)), st.sampled_from([None, *WORKLOADS]), st.sampled_from(PRECISIONS)
A100, H100, T4, V100 = "A100 SXM4 80GB", "H100 SXM5 80GB", "T4", "V100 SXM2 16GB"

EFFECTS = """\
compute,,0.4,0.05,yes
compute|workload,language,0.1,0.04,yes
compute|workload,speech,-0.7,0.04,no
bandwidth,,0.5,0.06,yes
gpu,A100 SXM4 80GB,0.05,0.03,yes
gpu,T4,-0.1,0.1,yes
gpu|workload,A100 SXM4 80GB|language,0.02,0.01,no
gpu|precision,T4|bf16,0.3,0.02,no
maker|workload,AMD|vision,-0.2,0.1,no
fp8,,-0.1,0.05,no
prior,gpu,0,0.12,no
prior,gpu|workload,0,0.07,no
prior,gpu|precision,0,0.06,no
prior,compute|workload,0,0.08,no
task,language,0,0.1,no
task,vision,0,0.2,no
task,speech,0,0.2,no
architecture|task,language,0,0.09,no
architecture|task,vision,0,0.09,no
architecture|task,speech,0,0.09,no
compute|task,language,0,0.02,no
residual,language,0,0.04,no
residual,vision,0,0.04,no
residual,speech,0,0.04,no
share,language,0.75,0,no
share,vision,0.25,0,no"""
COVARIANCES = """\
compute:,compute:,0.0025
bandwidth:,compute:,-0.001
bandwidth:,bandwidth:,0.0036
compute|workload:language,compute:,-0.0005
compute|workload:language,compute|workload:language,0.0016
gpu:A100 SXM4 80GB,compute:,-0.0002
gpu:A100 SXM4 80GB,gpu:A100 SXM4 80GB,0.0009
gpu:T4,bandwidth:,0.001
gpu:T4,gpu:T4,0.01"""


def _model(effects: str = EFFECTS, covariances: str = COVARIANCES) -> SpeedModel:
    heads = ("kind", "level", "mean", "sd", "in_covariance")
    rows_of = (dict(zip(heads, line.split(","), strict=True)) for line in effects.splitlines())
    triples = (line.split(",") for line in covariances.splitlines())
    covariance = {(row, column): float(value) for row, column, value in triples}
    return SpeedModel([parse_effect(row | {"source": f"of {row['kind']}"}) for row in rows_of], covariance)


def _x(name: str, compute: float) -> tuple[float, float]:
    return math.log(compute / 100), math.log(G[name].bandwidth_gb_s / 1000)


def test_a_speed_is_the_sum_of_its_effects():
    found = _model().log_speeds([G[A100], G[H100], G[T4]], workload="language", precision="bf16")
    a, h, t = (_x(name, G[name].fp16_tflops) for name in (A100, H100, T4))
    means = [0.5 * a[0] + 0.5 * a[1] + 0.05 + 0.02, 0.5 * h[0] + 0.5 * h[1], 0.5 * t[0] + 0.5 * t[1] - 0.1 + 0.3]
    assert found.means == pytest.approx(means)
    assert found.measured_as == (A100, "", T4)
    joint = np.array(
        [[25, -10, -5, -2, 0], [-10, 36, 0, 0, 10], [-5, 0, 16, 0, 0], [-2, 0, 0, 9, 0], [0, 10, 0, 0, 100]]
    )
    loadings = np.array([[*a, a[0], 1, 0], [*h, h[0], 0, 0], [*t, t[0], 0, 1]])
    own = [0.01**2 + 0.06**2, 0.12**2 + 0.07**2 + 0.06**2, 0.07**2 + 0.02**2]
    expected = loadings @ (joint * 1e-4) @ loadings.T + np.diag(np.array(own) + 0.1**2 + 0.04**2 + 0.09**2)
    x = np.array([a[0], h[0], t[0]])
    expected += 0.02**2 * np.outer(x, x)  # the slope of the task is one in all GPUs
    assert found.covariance == pytest.approx(expected)
    assert found.sources == (("of gpu",), (G[H100].source, "of compute"), ("of gpu",))


def test_an_unknown_class_is_a_mixture():
    three = [G[A100], G[H100], G[T4]]
    model = _model()
    language = model.log_speeds(three, workload="language", precision="bf16")
    vision = model.log_speeds(three, workload="vision", precision="bf16")
    mixed = model.log_speeds(three, workload=None, precision="bf16")
    rng = np.random.default_rng(1)
    n = 200_000
    drawn = np.concatenate(
        [rng.multivariate_normal(of.means, of.covariance, k) for of, k in ((language, n * 3 // 4), (vision, n // 4))]
    )
    assert mixed.means == pytest.approx(drawn.mean(axis=0), abs=0.01)
    assert mixed.covariance == pytest.approx(np.cov(drawn.T), abs=0.005)


# -- The tables as they are shipped --


@given(st.lists(NAMES, min_size=1, max_size=6), CLASSES, FORMATS, st.booleans())
@settings(max_examples=60)
def test_the_covariance_is_one(names, workload, precision, data_sheets_only):
    found = shipped_model().log_speeds(
        [G[name] for name in names], workload=workload, precision=precision, data_sheets_only=data_sheets_only
    )
    assert np.isfinite(found.means).all()
    assert found.covariance == pytest.approx(found.covariance.T, abs=1e-12)
    assert np.linalg.eigvalsh(found.covariance).min() > -1e-9


@given(NAMES, CLASSES, FORMATS, st.floats(1, 50), st.floats(1, 50))
@settings(max_examples=100)
def test_more_compute_or_bandwidth_is_never_slower(name, workload, precision, compute, bandwidth):
    gpu = G[name]
    rates = ("fp32_tflops", "fp16_tflops", "tf32_tflops", "fp8_tflops")
    more = {rate: value * compute for rate in rates if (value := getattr(gpu, rate)) is not None}
    better = replace(gpu, name="better", bandwidth_gb_s=gpu.bandwidth_gb_s * bandwidth, **more)
    means = (
        shipped_model().log_speeds([gpu, better], workload=workload, precision=precision, data_sheets_only=True).means
    )
    assert means[1] >= means[0] - 1e-12
