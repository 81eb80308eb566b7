"""Logged runs compared with others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from report_samples import GERMANY, GPU_FIELDS, PRICE, WORLD, epoch_row, gpu_energy, write_run
from scipy import stats

from greenlove_tracker.extrapolation.run_comparison import compare_runs
from greenlove_tracker.logs.run import Run
from greenlove_tracker.vocabulary.comparisons import Comparison, Verdict
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.records import UNKNOWN_ENERGY, Counts, Factor, Row

EPOCHS = 10


def rows_of(total_s: float, *, epochs: int = EPOCHS, power_w: float = 100.0, samples: int = 640) -> list[Row]:
    """Return equal epochs that take so long together."""
    each_s = total_s / epochs
    rows = [epoch_row(n + 1, each_s, gpu_energy(each_s, power_w)) for n in range(epochs)]
    return [replace(row, counts=Counts(10, 10, samples)) for row in rows]


class Runs:
    """Writes runs, each some minutes after the one before."""

    def __init__(self, log_dir: Path, apart_min: int = 15) -> None:
        self.log_dir = log_dir
        self.apart_min = apart_min
        self.n = 0

    def write(
        self, rows: Sequence[Row], *, intensity: Factor = WORLD, status: str | None = "finished", **fields: str
    ) -> Run:
        self.n += 1
        hours, minutes = divmod(self.n * self.apart_min, 60)
        at = f"{hours:02d}:{minutes:02d}"
        texts = {**GPU_FIELDS, "started_at": f"2026-11-21T{at}:00.000Z", **fields}
        return write_run(
            self.log_dir, rows, f"run-{self.n:04d}", fields=texts, intensity=intensity, price=PRICE, status=status
        )

    def of(self, totals_s: Sequence[float], **more: str) -> list[Run]:
        return [self.write(rows_of(total_s), **more) for total_s in totals_s]


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


# Times of three runs each of two records on 8 × H100, in s: KellerJordan/modded-nanogpt @f411b3d3 (MIT), records
# 2024-11-24_WindowWarmup and 2024-12-08_UNetValueEmbedsTweaks; then 2025-09-15 and 2025-09-21_DropAttn.
RECORDS = [
    ((279.398, 279.948, 279.420), (236.845, 236.858, 236.871), Verdict.SAVES),
    ((153.756, 153.811, 153.887), (151.516, 151.527, 151.771), Verdict.SAVES),
    ((151.516, 151.527, 151.771), (153.756, 153.811, 153.887), Verdict.COSTS_MORE),
]


@pytest.mark.parametrize(("before_s", "after_s", "verdict"), RECORDS)
def test_three_recorded_runs_of_each(
    runs: Runs, before_s: Sequence[float], after_s: Sequence[float], verdict: Verdict
) -> None:
    comparison = compare_runs([("before", runs.of(before_s)), ("after", runs.of(after_s))])
    (row,) = comparison.rows
    truth = stats.ttest_ind([math.log(s) for s in after_s], [math.log(s) for s in before_s]).confidence_interval(0.95)
    assert row.time_ratio.point == pytest.approx(math.prod(after_s) ** (1 / 3) / math.prod(before_s) ** (1 / 3))
    assert row.time_ratio.lower == pytest.approx(math.exp(truth.low))
    assert row.time_ratio.upper == pytest.approx(math.exp(truth.high))
    assert row.verdict is verdict
    assert row.n_trials == 3
    assert comparison.is_of_runs
    assert [trial.arm for trial in comparison.trials] == ["before"] * 3 + ["after"] * 3


def test_everything_that_a_run_takes_is_compared(runs: Runs) -> None:
    before = [runs.write(rows_of(s, power_w=100.0), peak_gpu_memory_gb="8.00") for s in (100.0, 101.0, 99.5)]
    after = [runs.write(rows_of(s, power_w=50.0), peak_gpu_memory_gb="6.00") for s in (100.0, 101.0, 99.5)]
    comparison = compare_runs([("a", before), ("b", after)])
    (row,) = comparison.rows
    power = (50.0 + 28.0) / (100.0 + 28.0)  # CPU and memory draw 28 W in both
    for ratio, truth in (
        (row.time_ratio, 1.0),
        (row.energy_ratio, power),
        (row.co2e_ratio, power),
        (row.cost_ratio, power),
        (row.memory_ratio, 0.75),
    ):
        assert ratio.point == pytest.approx(truth)
        assert ratio.lower <= truth <= ratio.upper
    assert row.verdict is Verdict.SAVES  # of the energy: the time is the same
    assert row.peak_memory_gb == 6.0
    assert comparison.energy_method == "constant+counter"
    assert row.duration_s_per_sample == pytest.approx(100.165 / 6400, rel=1e-3)
    assert comparison.notes == ()


def test_without_a_gpu_the_peak_memory_is_that_of_the_cpu(runs: Runs) -> None:
    def of(**fields: str) -> list[Run]:
        return [runs.write(rows_of(s), **fields) for s in (100.0, 101.0, 99.5)]

    before, after = (
        of(peak_gpu_memory_gb="", peak_cpu_memory_gb="2.00"),
        of(peak_gpu_memory_gb="0", peak_cpu_memory_gb="1.50"),
    )
    comparison = compare_runs([("a", before), ("b", after)])
    assert comparison.rows[0].memory_ratio.point == pytest.approx(0.75)
    mixed = compare_runs([("a", before), ("b", of(peak_gpu_memory_gb="1.50"))])
    assert mixed.rows[0].memory_ratio is None


def test_unfinished_runs_and_explorations_are_left_out_and_said(runs: Runs) -> None:
    a, b = runs.of([100.0, 101.0]), runs.of([80.0, 81.0])
    cut_off = runs.write(rows_of(20.0), status=None)
    failed = runs.write(rows_of(20.0), status="failed")
    explored = runs.write(rows_of(5.0), plan_samples="640", plan_batch_size="64", plan_epochs="10")
    comparison = compare_runs([("a", a), ("b", [*b, cut_off, failed, explored])])
    assert comparison.rows[0].n_trials == 2
    assert comparison.notes[0] == "Of b, left out: 2 unfinished runs, 1 exploration"
    with pytest.raises(UsageError, match=r"nothing of c can be compared: 1 exploration\. Give finished runs of whole"):
        compare_runs([("a", a), ("c", [explored])])
    with pytest.raises(UsageError, match="1 comparison"):
        compare_runs([("a", a), ("c", [runs.write(rows_of(5.0), compared="amp-bf16")])])
    with pytest.raises(UsageError, match="no run is there"):
        compare_runs([("a", a), ("c", [])])


def test_what_is_no_comparison_is_refused(runs: Runs) -> None:
    a = runs.of([100.0, 101.0])
    with pytest.raises(UsageError, match="needs two"):
        compare_runs([("a", a)])
    with pytest.raises(UsageError, match="one name"):
        compare_runs([("a", a), ("a", runs.of([80.0]))])


def test_runs_of_other_lengths_are_compared_by_what_they_trained_on(runs: Runs) -> None:
    long = [runs.write(rows_of(s, epochs=20)) for s in (200.0, 202.0, 199.0)]
    short = runs.of([80.0, 81.0, 79.0])
    comparison = compare_runs([("long", long), ("short", short)])
    assert comparison.rows[0].time_ratio.point == pytest.approx(0.8, rel=0.01)
    assert "long: 12,800; short: 6,400 samples" in comparison.notes[0]


def noisy(total_s: float, epochs: int = 20) -> list[Row]:
    """Return epochs that scatter by some 1%."""
    noise = [1.0 + 0.014 * math.sin(2.4 * n * n) for n in range(epochs)]
    return [
        epoch_row(n + 1, total_s * x / math.fsum(noise), gpu_energy(total_s * x / math.fsum(noise)))
        for n, x in enumerate(noise)
    ]


def test_one_run_of_each_is_compared_by_an_assumption_and_says_so(runs: Runs) -> None:
    a, b, c = (runs.write(noisy(s)) for s in (100.0, 40.0, 97.0))
    comparison = compare_runs([("a", [a]), ("b", [b]), ("c", [c])])
    assert comparison.notes[0].startswith("Of one run each nothing shows how much a run differs")
    ratios = {row.name: row.time_ratio for row in comparison.rows}
    half = ratios["b"]
    assert half.kind == "assumption"
    assert half.point == pytest.approx(0.4)
    verdicts = {row.name: row.verdict for row in comparison.rows}
    assert verdicts == {"b": Verdict.SAVES, "c": Verdict.TOO_SHORT}
    assert 1.1 < half.upper / half.point < 1.6  # half-Cauchy tails, as the forecast's


def test_the_assumed_interval_is_that_of_the_prior(runs: Runs) -> None:
    """Against a simulation: τ from the half-Cauchy prior of scale 2% up to 50%, then two runs with it."""
    a, b = runs.of([100.0]), runs.of([100.0])
    ratio = compare_runs([("a", a), ("b", b)]).rows[0].time_ratio
    tau = stats.halfcauchy(scale=0.02).rvs(400_000, random_state=1)
    difference = stats.norm.rvs(size=400_000, random_state=2) * math.sqrt(2) * tau
    truth = stats.scoreatpercentile(difference[tau <= 0.5], 97.5)
    assert math.log(ratio.upper) == pytest.approx(truth, rel=0.05)


def test_what_else_was_not_the_same_is_said(runs: Runs) -> None:
    a = runs.of([100.0, 101.0])
    b = [
        runs.write(rows_of(s, samples=1280, epochs=5), gpu_models="1 × NVIDIA A100", pue="1.5", intensity=GERMANY)
        for s in (50.0, 51.0)
    ]
    notes = "\n".join(compare_runs([("a", a), ("b", b)]).notes)
    assert "other GPUs (a: 1 × NVIDIA GeForce RTX 3060 Laptop GPU; b: 1 × NVIDIA A100)" in notes
    assert "other batch sizes (a: 64; b: 128)" in notes
    assert "another PUE (a: 1.2; b: 1.5)" in notes
    assert "another carbon intensity (a: 458 gCO2e/kWh; b: 381 gCO2e/kWh)" in notes
    assert "differ in length" not in notes


def test_costs_on_another_basis_are_not_compared(runs: Runs) -> None:
    a = runs.of([100.0, 101.0])
    b = runs.of([80.0, 81.0], price_usd_per_gpu_hour="2.0")
    comparison = compare_runs([("a", a), ("b", b)])
    assert comparison.rows[0].cost_ratio is None
    assert "costs on another basis (a: electricity; b: machine): they are not compared" in "".join(comparison.notes)


def test_without_energy_the_time_decides(runs: Runs) -> None:
    def unmetered(total_s: float) -> list[Row]:
        return [replace(row, energy=UNKNOWN_ENERGY) for row in rows_of(total_s)]

    groups = [(name, [runs.write(unmetered(s * x)) for x in (1.0, 1.01, 0.99)]) for name, s in (("a", 90), ("b", 60))]
    comparison: Comparison = compare_runs(groups)
    (row,) = comparison.rows
    assert (row.energy_ratio, row.co2e_ratio, row.cost_ratio) == (None, None, None)
    assert row.verdict is Verdict.SAVES
    assert comparison.energy_method == ""
