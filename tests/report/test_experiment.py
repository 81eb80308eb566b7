"""The page of an experiment: what its verdict says, and every training on it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from experiment_samples import record, training, two_arms
from fakes import FakeClock
from scipy import stats

from greenlove_tracker.experiments.whole_training import whole_training
from greenlove_tracker.logs.run import Run
from greenlove_tracker.rendering import markdown, terminal
from greenlove_tracker.rendering.document import Heading, Table
from greenlove_tracker.report.checkpoint_report import training_interruptions
from greenlove_tracker.report.experiment_report import ExperimentRecord, experiment_document, experiment_savings


def tables(of: ExperimentRecord) -> dict[str, list[dict[str, str]]]:
    """The rows of the last table under each heading, each by column."""
    found: dict[str, list[dict[str, str]]] = {}
    heading = ""
    for block in experiment_document(of).blocks:
        if isinstance(block, Heading):
            heading = block.text
        elif isinstance(block, Table):
            titles = [column.title for column in block.columns]
            found[heading] = [dict(zip(titles, row, strict=True)) for row in block.rows]
    return found


def tables_of(of: ExperimentRecord) -> list[list[dict[str, str]]]:
    """The rows of every table, each by column."""
    found = [block for block in experiment_document(of).blocks if isinstance(block, Table)]
    titles = [[column.title for column in block.columns] for block in found]
    return [
        [dict(zip(names, row, strict=True)) for row in block.rows] for names, block in zip(titles, found, strict=True)
    ]


@pytest.fixture(scope="module")
def experiment(tmp_path_factory) -> ExperimentRecord:
    not_run = (("optimised, seed 3", "the budget is used"),)
    return two_arms(tmp_path_factory.mktemp("logs"), not_run=not_run, budget={"energy_kwh": (0.06, 0.2)})


def test_what_counts_of_a_stopped_training_is_its_best_epoch_and_of_another_its_last(experiment):
    row = tables(experiment)["The trainings"][-1]
    run = dict(experiment.groups)["optimised"][-1]
    (kept,) = (r.value for r in run.metric_values[0] if (r.name, r.epoch) == ("val_loss", 6))
    assert float(row["final val_loss"]) == pytest.approx(kept, rel=1e-3)
    whole = dict(experiment.groups)["baseline"][0]
    assert float(tables(experiment)["The trainings"][0]["final val_loss"]) == pytest.approx(
        whole.metrics["val_loss"].last, rel=1e-3
    )


def test_a_carbon_intensity_that_is_invented_is_marked(tmp_path):
    made = experiment_document(record(("baseline", [training(tmp_path, intensity="mock")])))
    assert "! MOCK: the carbon intensity is invented" in terminal.render(made)


def test_each_arm_stands_beside_the_baseline_with_its_changes_and_their_ranges(tmp_path):
    grid = {"intensity_at_request_gco2e_per_kwh": "310", "intensity_at_start_gco2e_per_kwh": "190"}
    before = {"arm": "baseline", "peak_cpu_memory_gb": "0.02"}
    after = {"arm": "optimised", "peak_cpu_memory_gb": "0.015", "wait_s": "7200", **grid}
    one = {"epochs": 4, "country": "DE"}
    groups = (
        ("baseline", [training(tmp_path, seed, fields=before, **one) for seed in (0, 1, 2)]),
        ("optimised", [training(tmp_path, seed, fields=after, epoch_s=5.0, best=0.9, **one) for seed in (0, 1, 2)]),
    )
    (savings,) = [rows for rows in tables_of(record(*groups)) if "change" in rows[0]]
    found = {row[""].removesuffix("*"): row for row in savings}
    for quantity in ("time", "energy", "CO2e"):
        point, lower, upper = map(float, re.findall(r"-?[\d.]+", found[quantity]["change"].replace("−", "-")))
        assert lower <= point <= upper and point == pytest.approx(-46, abs=2)
    memory = found["peak memory"]
    assert tuple(memory.values()) == ("peak memory", "20.5 MiB", "15.4 MiB", "−25.0%")
    truth = stats.ttest_ind(
        *([run.metrics["accuracy"].last for run in runs] for _, runs in groups[::-1]), equal_var=False
    )
    interval = truth.confidence_interval(0.95)
    assert found["final accuracy"]["change"].startswith("−0.05 [")
    assert [
        found[name]["optimised (3 runs)"] for name in ("waited", "grid before, gCO2e/kWh", "grid at the start")
    ] == [
        "2 h",
        "310",
        "190",
    ]
    by_name = {row["quantity"]: row for row in experiment_savings(record(*groups)) if row["arm"] == "optimised"}
    assert by_name["peak_memory_gb"]["change"] == pytest.approx(0.75)
    accuracy = by_name["accuracy"]
    assert accuracy["change"] == pytest.approx(accuracy["value"] - accuracy["baseline"])
    assert (accuracy["change_lower"], accuracy["change_upper"]) == pytest.approx((interval.low, interval.high))
    assert (by_name["wait_s"]["baseline"], by_name["wait_s"]["value"]) == (None, 7200.0)


def test_after_two_epochs_of_one_run_each_a_large_ratio_is_told_with_a_wide_range(tmp_path):
    one = {"epochs": 2, "country": "DE"}
    before = training(tmp_path, fields={"arm": "baseline"}, epoch_s=168.0, **one)
    after = training(tmp_path, fields={"arm": "optimised"}, epoch_s=26.0, **one)
    said = experiment_document(record(("baseline", [before]), ("optimised", [after]))).verdict
    assert re.search(
        r"optimised saves 84% of the modelled energy \[7\d – 9\d\] and 84% of the time \[7\d – 9\d\]", said
    )
    near = training(tmp_path, fields={"arm": "near"}, epoch_s=160.0, **one)
    said = experiment_document(record(("baseline", [before]), ("near", [near]))).verdict
    assert re.search(r"near: modelled energy −5% \[−4\d – \+5\d\], time −5% .*, too short to tell", said)


def test_each_file_of_weights_is_named_by_arm_and_seed(experiment):
    content = markdown.render(
        experiment_document(replace(experiment, weights=[("optimised, seed 1", "weights/0a.pt")]))
    )
    assert re.search(r"optimised, seed 1 \| weights/0a.pt", content)


# -- A matrix --


@pytest.fixture(scope="module")
def matrix(tmp_path_factory) -> ExperimentRecord:
    """2 batch sizes, 2 rates and 3 arms: "half" takes half the time at 16 and 0.6 of it at 64, "same" as much."""
    folder, groups = tmp_path_factory.mktemp("matrix"), []
    factors = {"baseline": {16: 1.0, 64: 1.0}, "half": {16: 0.5, 64: 0.6}, "same": {16: 1.0, 64: 1.0}}
    for n, (size, rate) in enumerate((size, rate) for size in (16, 64) for rate in ("1e-3", "1e-2")):
        whole_s = {16: 4000.0, 64: 1000.0}[size] * {"1e-3": 1.0, "1e-2": 1.5}[rate]
        arms = list(factors) if n % 2 == 0 else [*factors][::-1]  # the order in which they are trained
        for arm in arms:
            runs = [
                training(folder, seed, fields={"arm": arm}, epochs=4, epoch_s=whole_s * factors[arm][size])
                for seed in (0, 1)
            ]
            groups.append((f"{arm}, batch_size={size}, --lr={rate}", runs))
    return record(*groups)


def test_each_combination_is_compared_with_its_own_baseline_and_then_all_together(matrix):
    (changes,) = [rows for rows in tables_of(matrix) if any("same values" in title for title in rows[0])]
    found = {
        next(iter(row.values())): next(value for title, value in row.items() if "time" in title) for row in changes
    }
    assert len(found) == 2 * (1 + 4)
    expected = {"half, batch_size=16": "−50", "half, batch_size=64": "−40", "half over all 4": "−45"}
    for name, text in found.items():
        truth = next((change for begin, change in expected.items() if name.startswith(begin)), "0")
        assert float(text.partition("%")[0].replace("−", "-")) == pytest.approx(float(truth.replace("−", "-")), abs=1)


def test_the_headline_and_the_savings_are_of_all_combinations(matrix):
    said = experiment_document(matrix).verdict
    assert said.startswith("half over all 4 combinations saves 45% of the ")
    assert "same over all 4 combinations" in said
    halves = [rows for rows in tables_of(matrix) if "half (8 runs)" in rows[0]]
    assert [row["change"][:4] for rows in halves for row in rows if row[""] in ("time", "CO2e")] == ["−45%"] * 2
    found = [row for row in experiment_savings(matrix) if (row["arm"], row["quantity"]) == ("half", "duration_s")]
    changes = {row["combination"]: row["change"] for row in found}
    assert changes["batch_size=64, --lr=1e-2"] == pytest.approx(0.6, rel=0.02) and len(changes) == 5


def test_a_sweep_of_one_arm_is_against_its_first_values(tmp_path):
    sweep = {
        size: [training(tmp_path, s, fields={"arm": "baseline"}, epoch_s=t, epochs=4) for s in (0, 1)]
        for size, t in ((16, 10.0), (64, 5.0))
    }
    of = record(*((f"baseline, batch_size={size}", runs) for size, runs in sweep.items()))
    (time,) = [row for row in experiment_savings(of) if row["quantity"] == "duration_s"]
    assert (time["arm"], time["combination"]) == ("baseline, batch_size=64", "")
    assert time["change"] == pytest.approx(0.54, abs=0.02)


# -- A training of several runs --


@pytest.fixture
def interrupted(tmp_path) -> tuple[Run, Run]:
    """6 of 12 epochs, and from the fifth on to the end 100 s later."""
    clock = FakeClock()
    peaks = {"peak_cpu_memory_gb": "0.6", "peak_gpu_memory_gb": "4.0"}
    first = training(tmp_path, clock=clock, epochs=6, planned=12, is_cut_off=True, fields=peaks)
    clock.pass_s(100)
    second = training(tmp_path, clock=clock, planned=12, first_epoch=4, continues=first.run_id)
    return first, second


def test_a_training_of_several_runs_is_one(interrupted):
    first, second = interrupted
    whole = whole_training([second, first])
    assert whole.parts == (first, second)
    for quantity in ("duration_s", "energy_kwh", "emissions_kgco2e"):
        assert getattr(whole.summary, quantity) == pytest.approx(
            getattr(first.summary, quantity) + getattr(second.summary, quantity)
        )
    assert (whole.summary.epochs_done, whole.summary.epochs_planned, whole.first_epoch) == (12, 12, 0)
    assert whole.summary.status == "finished"
    assert whole.text("peak_cpu_memory_gb") == "0.6" and whole.amount("peak_gpu_memory_gb") == 4.0
    assert whole.metrics["accuracy"].n_values == 12  # epochs 5 and 6 of the first run are lost
    assert whole_training([first]) is first


def test_what_was_lost_is_told(interrupted, tmp_path):
    first, _ = interrupted
    whole = whole_training([first, training(tmp_path, fields={"seed": "0"})])
    assert whole.metrics["accuracy"].n_values == 12
    assert training_interruptions(whole)[0].lost_s == pytest.approx(first.summary.duration_s, abs=0.01)
    assert tables(record(("baseline", [whole])))["The trainings"][0]["status"] == "finished, 2 runs"
