"""The forecast of an experiment: each group in a process of its own, and the sum over what is left."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from fake_trainings import EPOCHS, log_run, make_experiment

from greenlove_tracker.experiments import dry_run, one_run
from greenlove_tracker.experiments.definition import ExperimentBudget, TechniqueChoice
from greenlove_tracker.experiments.dry_run import forecast_experiment
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.forecasting import Estimate

pytestmark = pytest.mark.usefixtures("no_settings")

# Answers as an exploration does: what it was asked is in a file beside the experiment, and so is what it finds.
EXPLORER = """
import json, os, sys, time
file, key, answer, _, budget_s, *_ = sys.argv[1:]
with open(file.replace("experiment.json", "requests.txt"), "a") as requests:
    requests.write(json.dumps({"key": key, "budget_s": float(budget_s), "answer": answer}) + chr(10))
how = json.load(open(file.replace("experiment.json", "how.json"))).get(key.partition("-")[0], {})
if "hang" in how:
    time.sleep(60)
if "crash" in how:
    os.abort()
def estimate(point, unit):
    return {"point": point, "lower": 0.9 * point, "upper": 1.2 * point, "level": 0.95, "unit": unit}
found = {"duration_s": estimate(100.0, "s"), "energy_kwh": estimate(0.5, "kWh"), "cost_usd": None}
found |= {"emissions_kgco2e": estimate(0.2, "kgCO2e"), "plan": "4 epochs", "stop": "", "outcome": "finished"}
found |= {"reason": "", "warnings": ["FEW: trials of one size"], "spent_s": 0.0} | how
open(answer, "w").write(json.dumps(found))
"""
COMMAND = (sys.executable, "-c", EXPLORER)


@pytest.fixture
def forecast(tmp_path):
    """Return a function that forecasts an experiment whose groups are explored as is said."""

    def made(experiment, budget_s=20.0, **how):
        (tmp_path / "how.json").write_text(json.dumps(how))
        return forecast_experiment(experiment, budget_s, command=COMMAND)

    return made


@pytest.fixture
def requests(tmp_path):
    """Return a function that returns what explorations were asked."""
    return lambda: [json.loads(line) for line in (tmp_path / "requests.txt").read_text().splitlines()]


def log(experiment, key, run_id, epochs=EPOCHS, status="finished", **fields):
    own = {"experiment": "digits", "experiment_run": key, **fields}
    log_run(experiment.outputs / "runs" / run_id, own, epochs, status)


def ends(estimate):
    return pytest.approx((estimate.lower, estimate.point, estimate.upper))


def test_all_is_the_sum_of_the_groups_with_errors_of_one_sign(tmp_path, forecast, requests):
    experiment = make_experiment(tmp_path, seeds=(0, 1, 2))
    found = forecast(experiment)
    assert ends(found.totals["duration_s"]) == (600 * 0.9, 600.0, 600 * 1.2)  # six of 100 s
    assert ends(found.totals["energy_kwh"]) == (6 * 0.45, 3.0, 6 * 0.6)
    assert found.totals["cost_usd"] is None
    assert [request["budget_s"] for request in requests()] == [10.0, 10.0]
    assert [request["key"] for request in requests()] == ["baseline-0", "optimised-0"]
    assert found.start_up_s == pytest.approx(3 * sum(group.start_up_s for group in found.groups)) != 0
    assert not experiment.outputs.exists()
    assert not any(Path(request["answer"]).exists() for request in requests())


def test_what_is_done_is_not_forecast_again(tmp_path, forecast, requests):
    experiment = make_experiment(tmp_path)
    for number, key in enumerate(("baseline-0", "baseline-1")):
        log(experiment, key, str(number))
    log(experiment, "optimised-0", "2", 3, None)
    found = forecast(experiment)
    assert [request["key"] for request in requests()] == ["optimised-0"]
    assert [(group.group, group.n_runs, group.n_left) for group in found.groups] == [
        ("baseline", 2, 0),
        ("optimised", 2, 2),
    ]
    assert found.totals["duration_s"].point == pytest.approx(200.0)
    assert (len(found.progress.runs), found.progress.n_finished) == (4, 2)
    assert found.progress.use["duration_s"] == (2 * EPOCHS + 3) * 900.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"reason": "this CPU has no bf16 instructions", "outcome": "failed"}, "this CPU has no bf16 instructions"),
        ({"crash": 1}, "its process was ended by SIGABRT"),
        ({"hang": 1}, "the exploration did not end within 11 s"),
    ],
)
def test_a_group_that_cannot_be_explored_is_in_no_sum_and_says_why(tmp_path, forecast, monkeypatch, how, reason):
    monkeypatch.setattr(dry_run, "_LOADING_S", 1.0)
    monkeypatch.setattr(dry_run, "_LEAST_GROUP_S", 10.0)
    found = forecast(make_experiment(tmp_path), 1.0, optimised=how)
    assert [group.reason for group in found.groups] == ["", reason]
    assert found.totals["duration_s"].point == 200.0


def test_the_budget_is_compared_with_what_is_left_and_what_was_used(tmp_path, forecast):
    experiment = make_experiment(tmp_path, budget=ExperimentBudget(hours=1.0 + 300 / 3600, energy_kwh=1e3))
    log(experiment, "baseline-0", "1")  # an hour
    found = forecast(experiment)
    assert found.over["duration_s"] == pytest.approx(0.5)  # three of 100 s are left, and 300 s of the budget
    assert found.over["energy_kwh"] == pytest.approx(0.0)


def test_a_total_of_which_a_part_is_not_known_is_not_known(tmp_path, forecast):
    found = forecast(make_experiment(tmp_path), optimised={"energy_kwh": None})
    assert found.totals["energy_kwh"] is None
    assert found.totals["duration_s"].point == 400.0


@pytest.mark.parametrize("budget_s", [0.0, -1.0, float("nan"), float("inf")])
def test_a_budget_that_is_none_is_refused(tmp_path, budget_s):
    with pytest.raises(UsageError, match="budget_s must be a positive number of seconds"):
        forecast_experiment(make_experiment(tmp_path), budget_s)


# -- a real exploration --

TASK = """
import sys
import time
import torch
from torch.utils.data import DataLoader, TensorDataset

def task():
    width = int(sys.argv[1])
    model = torch.nn.Sequential(torch.nn.Linear(8, width), torch.nn.ReLU(), torch.nn.Linear(width, 1))
    data = TensorDataset(torch.randn(640, 8), torch.randn(640, 1))
    return {
        "model": model,
        "optimizer": torch.optim.Adam(model.parameters()),
        "criterion": torch.nn.MSELoss(),
        "train_dataset": DataLoader(data, batch_size=32, shuffle=True),
        "total_epochs": 3,
        "eval_fn": lambda model: {"val_loss": float(model(data.tensors[0]).detach().pow(2).mean())},
    }
"""


@pytest.fixture
def explored(tmp_path):
    """Return a function that explores a small training."""
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(TASK)

    def found(*techniques, **changes):
        experiment = make_experiment(tmp_path, seeds=(0, 1, 2))
        known = {"arguments": ("16",), "techniques": techniques, "settings": {"sim_cpu_tdp_w": 50.0, "country": "DE"}}
        planned = replace(experiment.runs[0], **{**known, **changes})
        return one_run._explored(planned, 2.0, tmp_path / "logs")

    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("length", "plan"),
    [
        ({"epochs": 50, "batch_size": 64}, "640 samples · batch 64 · 50 epochs"),
        ({"steps": 500}, "640 samples · batch 32 · 500 steps"),
    ],
)
def test_a_training_is_explored_at_the_length_that_the_file_gives(explored, length, plan):
    found = explored(**length)
    assert found["plan"] == plan and Estimate(**found["duration_s"]).point > 0


@pytest.mark.slow
def test_early_stopping_is_in_the_forecast(explored):
    choice = TechniqueChoice("early-stopping", {"metric": "val_loss", "patience": 2})
    found = explored(choice, epochs=40)
    assert found["stop"].startswith("stops after about 21 of 40 epochs (")  # the middle of what is possible
    assert found["duration_s"]["lower"] < 0.5 * found["duration_s"]["upper"]
