"""The fit of the model of GPU speed, on rows that are drawn here, against statsmodels and against its own truth."""

from __future__ import annotations

import csv
import importlib
from types import SimpleNamespace

import numpy as np
import pytest
from statsmodels.regression.mixed_linear_model import MixedLM

from greenlove_tracker.projection.speedup_model import COVARIANCE_TABLE, EFFECTS_TABLE, SpeedModel, features
from greenlove_tracker.tables.gpus import gpus
from greenlove_tracker.vocabulary.workloads import PRECISIONS, WORKLOADS
from tests.test_benchmarks import BENCHMARKS

NAMES = [
    "A10", "A100 SXM4 80GB", "A40", "GeForce RTX 3090", "GeForce RTX 4090", "H100 SXM5 80GB", "L4", "L40S",
    "Quadro RTX 6000", "RTX A6000", "T4", "V100 SXM2 16GB",
]  # fmt: skip
COMPUTE, BANDWIDTH, GPU_SD, ROW_SD = 0.3, 0.6, 0.12, 0.05


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    names = ("speedup_fit", "speedup_export", "speedup_scores", "speedup_tables", "speedup_by_pairs")
    return SimpleNamespace(**{name.removeprefix("speedup_"): importlib.import_module(name) for name in names})


def drawn(bench, rng, tasks=10, *, gpu_sd=GPU_SD, row_sd=ROW_SD, gpu_names=NAMES, workload="vision"):
    """Return rows of a known truth: two slopes, an effect of each GPU, and what each row scatters by."""
    of_gpu = dict(zip(gpu_names, rng.normal(0, gpu_sd, len(gpu_names)), strict=True))
    found = []
    for task in range(tasks):
        for name in gpu_names:
            x, y = features(gpus()[name], "bf16")
            speed = task + COMPUTE * x + BANDWIDTH * y + of_gpu[name] + rng.normal(0, row_sd)
            of = ("lambda", "v0", name, 1, "bf16", f"task {task}", workload, "ordinary", f"{workload} {task}")
            found.append(bench.tables.Observation(*of, speed))
    return found


def test_variances_and_effects_are_those_of_statsmodels(bench):
    rows = drawn(bench, np.random.default_rng(3))
    x = np.array([features(gpus()[row.gpu], "bf16") for row in rows])
    gpu = bench.fit.term(rows, "gpu", lambda r: r.gpu, np.ones(len(rows)))
    slopes = [
        bench.fit.term(rows, kind, lambda r: "", x[:, i], 30.0) for i, kind in enumerate(("compute", "bandwidth"))
    ]
    data = bench.fit.Data(rows, [*slopes, gpu])
    ours = bench.fit.fitted_variances(data, has_priors=False)
    known = bench.fit.posterior(data, ours)

    cells = np.array([row.cell for row in rows])
    level = (cells[:, None] == np.unique(cells)).astype(float)
    names = np.array([row.gpu for row in rows])
    theirs = MixedLM(np.array([row.log_speed for row in rows]), np.column_stack([x, level]), groups=names).fit(
        reml=True
    )
    residual = ours["residual of lambda"] + ours["residual of vision"]
    assert residual == pytest.approx(theirs.scale, rel=0.005)
    assert ours["gpu"] == pytest.approx(float(np.asarray(theirs.cov_re)[0, 0]), rel=0.02)
    assert known.means[:2] == pytest.approx(theirs.fe_params[:2], abs=0.002)
    effects = dict(zip(known.effects, known.means, strict=True))
    assert [effects["gpu", name] for name in NAMES] == pytest.approx(
        [float(np.asarray(theirs.random_effects[name]).item()) for name in NAMES], abs=0.002
    )
    assert np.sqrt(np.diag(known.covariance))[:2] == pytest.approx(theirs.bse_fe[:2], rel=0.02)


def test_effects_that_are_shipped_hold_the_truth_as_often_as_they_say(bench):
    """New rows of measured GPUs and of one that was not, from 40 draws of the same truth."""
    rng = np.random.default_rng(8)
    held = {"measured": [], "data sheet": []}
    for _ in range(40):
        rows = drawn(bench, rng, tasks=5)
        kept = [row for row in rows if row.gpu != "A40" and row.task != "task 4"]
        data = bench.fit.Data(kept)
        variances = dict.fromkeys([term.kind for term in data.terms] + list(data.residuals), 1e-8)
        variances |= data.given | {"gpu": GPU_SD**2, "residual of lambda": ROW_SD**2}
        model = SpeedModel(
            *bench.export.exported(bench.fit.posterior(data, variances, but=bench.export.NUISANCE), kept)
        )
        new = [row for row in rows if row.task == "task 4"]
        speeds = model.log_speeds([gpus()[row.gpu] for row in new], workload="vision", precision="bf16")
        for i, j in zip(range(len(new)), [*range(1, len(new)), 0], strict=True):
            off = new[i].log_speed - new[j].log_speed - (speeds.means[i] - speeds.means[j])
            c = speeds.covariance
            within = abs(off) <= bench.scores.Z90 * (c[i, i] + c[j, j] - 2 * c[i, j]) ** 0.5
            held["data sheet" if "A40" in (new[i].gpu, new[j].gpu) else "measured"].append(within)
    for which, hits in held.items():
        assert abs(np.mean(hits) - 0.9) < 4 * (0.09 / len(hits)) ** 0.5, which


def test_the_shipped_covariance_is_one_and_all_spreads_are_there():
    folder = BENCHMARKS.parent / "greenlove_tracker" / "data"
    with (folder / EFFECTS_TABLE).open(encoding="utf-8") as file:
        effects = list(csv.DictReader(file))
    names = [f"{row['kind']}:{row['level']}" for row in effects if row["in_covariance"] == "yes"]
    place = {name: index for index, name in enumerate(names)}
    covariance = np.zeros((len(names),) * 2)
    with (folder / COVARIANCE_TABLE).open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            i, j = place[row["row"]], place[row["column"]]
            covariance[i, j] = covariance[j, i] = float(row["covariance"])
    assert np.linalg.eigvalsh(covariance).min() > 0
    of = {(row["kind"], row["level"]): row for row in effects}
    deviations = np.array([float(of[tuple(name.split(":", 1))]["sd"]) for name in names])
    assert np.sqrt(np.diag(covariance)) == pytest.approx(deviations, rel=1e-4)
    for kind in ("task", "residual", "architecture|task", "compute|task", "bandwidth|task"):
        assert all(float(of[kind, workload]["sd"]) > 0 for workload in WORKLOADS)
    assert {level for kind, level in of if kind == "compute|precision"} == set(PRECISIONS)
    assert sum(float(of["share", workload]["mean"]) for workload in WORKLOADS) == pytest.approx(1)
    assert all(row["source"] and row["date_read"] for row in effects)
