"""``greenlove experiment``: its exit codes, its report and its screens."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path

import fake_trainings
import pytest
from click.testing import CliRunner
from fake_trainings import TRAIN, make_experiment, write_experiment

from greenlove_tracker.cli import cli
from greenlove_tracker.experiments import definition, runner
from greenlove_tracker.experiments.definition import ExperimentBudget, StartPolicy
from greenlove_tracker.experiments.dry_run import ExperimentForecast, GroupForecast
from greenlove_tracker.experiments.pages import forecast_document
from greenlove_tracker.experiments.progress import PlannedRunProgress, PlannedRunState
from greenlove_tracker.experiments.runner import ExperimentOutcome, ExperimentProgress
from greenlove_tracker.rendering import terminal
from greenlove_tracker.vocabulary.forecasting import Estimate

pytestmark = pytest.mark.usefixtures("no_settings")


@pytest.fixture
def call(monkeypatch):
    """Return a function that calls the verb for an experiment of stand-ins."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))

    def invoked(experiment, *words, **how):
        write_experiment(experiment, how=how)
        monkeypatch.setattr(definition, "read_experiment", lambda file, **how: experiment)
        train = partial(runner.run_experiment, command=TRAIN)
        with monkeypatch.context() as patch:
            patch.setattr(runner, "run_experiment", train)
            return CliRunner().invoke(cli, ["experiment", *words[:1], str(experiment.path), *words[1:]])

    return invoked


def test_a_run_shows_the_result_and_writes_the_report(tmp_path, call):
    result = call(replace(make_experiment(tmp_path, seeds=(0,)), reports=("html", "json", "csv")), "run")
    assert result.exit_code == 0
    assert "wrote outputs/report.html" in result.stderr
    savings = json.loads((tmp_path / "outputs" / "report.json").read_text())["savings"]
    assert [row["quantity"] for row in savings][:2] == ["duration_s", "energy_kwh"]
    assert (tmp_path / "outputs" / "report.csv").read_text().count("\n") == 1 + len(savings)
    page = (tmp_path / "outputs" / "report.html").read_text()
    assert "Experiment digits" in page


def test_a_failure_is_exit_code_1_and_is_in_the_report(tmp_path, call):
    result = call(make_experiment(tmp_path, seeds=(0,)), "run", **{"optimised-0": "fail:ValueError: nonsense"})
    assert result.exit_code == 1
    assert "optimised, seed 0 did not finish: ValueError: nonsense" in result.output
    assert "ValueError: nonsense" in (tmp_path / "outputs" / "report.html").read_text()


def test_a_used_budget_is_exit_code_3(tmp_path, call):
    experiment = make_experiment(tmp_path, seeds=(0,), budget=ExperimentBudget(hours=1.0))
    result = call(experiment, "run")
    assert result.exit_code == 3
    assert "left out: the budget is used" in result.stdout


def test_after_a_signal_no_time_is_spent_on_a_report(tmp_path, call, monkeypatch):
    experiment = make_experiment(tmp_path)
    outcome = ExperimentOutcome(ExperimentProgress.of(experiment), (), (), signal.SIGTERM)
    monkeypatch.setattr(runner, "run_experiment", lambda *given, command, **options: outcome)
    result = call(experiment, "run")
    assert result.exit_code == 143
    assert "greenlove experiment report" in result.stderr
    assert not (tmp_path / "outputs").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--budget", "30"], "--budget is the time that --dry-run explores for"),
        (["--dry-run", "--budget", "0"], "--budget must be a positive number of seconds"),
        (["--minutes", "2"], "No such option"),
    ],
)
def test_what_cannot_be_meant_is_exit_code_2(tmp_path, call, words, message):
    result = call(make_experiment(tmp_path), "run", *words)
    assert (result.exit_code, message in result.stderr) == (2, True)


def test_a_file_that_is_not_there_is_exit_code_2(tmp_path):
    result = CliRunner().invoke(cli, ["experiment", "run", str(tmp_path / "none.yaml")])
    assert (result.exit_code, "none.yaml" in result.stderr) == (2, True)


def test_the_report_is_made_again_from_the_logs(tmp_path, call):
    experiment = make_experiment(tmp_path)
    missing = call(experiment, "report")
    assert (missing.exit_code, "holds no training of this experiment yet" in missing.stderr) == (2, True)
    for run_id, key in enumerate(("baseline-0", "optimised-0")):
        fields = {"experiment": "digits", "experiment_run": key}
        fake_trainings.log_run(experiment.outputs / "runs" / str(run_id), fields)
    result = call(experiment, "report")
    assert result.exit_code == 0
    assert "not begun yet" in result.stdout
    assert (experiment.outputs / "report.html").exists()


def test_a_report_that_cannot_be_written_costs_no_other(tmp_path, call):
    experiment = replace(make_experiment(tmp_path), reports=("md", "html"))
    fake_trainings.log_run(experiment.outputs / "runs" / "0", {"experiment": "digits", "experiment_run": "baseline-0"})
    (experiment.outputs / "report.md").mkdir()
    result = call(experiment, "report")
    assert (result.exit_code, "report.md" in result.stderr) == (2, True)
    assert (experiment.outputs / "report.html").exists()


# -- the dry run --


def forecast_of(tmp_path):
    def estimate(point, unit):
        return Estimate(point, 0.9 * point, 1.2 * point, 0.95, unit)

    one = {"duration_s": estimate(3600.0, "s"), "energy_kwh": estimate(0.5, "kWh"), "plan": "15 epochs"}
    warning = "FEW: trials of one size"
    groups = (
        GroupForecast("baseline", 3, 2, warnings=(warning,), **one),
        GroupForecast("optimised", 3, 3, start_up_s=20.0, stop="stops after about 8 of 15 epochs (4 to 15)", **one),
        GroupForecast("half", 3, 3, reason="this CPU has no bf16 instructions"),
    )
    totals = dict.fromkeys(("duration_s", "energy_kwh", "emissions_kgco2e", "cost_usd"))
    totals |= {"duration_s": estimate(18000.0, "s"), "energy_kwh": estimate(2.5, "kWh")}
    experiment = make_experiment(
        tmp_path,
        arms=("baseline", "optimised", "half"),
        seeds=(0, 1, 2),
        start=StartPolicy(below_gco2e_per_kwh=200.0),
        budget=ExperimentBudget(hours=10, cost_usd=5),
    )
    states = [PlannedRunState.FINISHED, *[PlannedRunState.NOT_BEGUN] * 8]
    runs = tuple(map(PlannedRunProgress, experiment.runs, states))
    use = dict.fromkeys(totals, 0.0) | {"duration_s": 3600.0}
    progress = ExperimentProgress(runs, use, ("train.py has changed",))
    return ExperimentForecast(experiment, progress, groups, totals, {"duration_s": 0.02})


def test_the_screen_of_a_dry_run(tmp_path):
    screen = terminal.render(forecast_document(forecast_of(tmp_path)))
    assert screen.startswith("9 trainings, 1 of them finished: time 5 h [4 h 30 min – 6 h], energy 2.50 kWh")
    assert "CO2e unknown" in screen
    for line in (
        "baseline      2 of 3  1 h [54 min – 1 h 12 min]  500 Wh [450 Wh – 600 Wh]",
        "budget: time 10 h, of which 1 h is used: holds with 98%",
        "budget: cost $5.00: whether it holds is not known",
        "optimised: 15 epochs · stops after about 8 of 15 epochs (4 to 15)",
        "! half is in no sum: this CPU has no bf16 instructions",
        "! baseline: FEW: trials of one size",
        "* train.py has changed",
        "starting the processes takes about 1 min",
        "waits for a grid at or below 200 gCO2e/kWh, at most 6h for each of the 8",
    ):
        assert line in screen


# -- all of it, with real trainings --

TASK = """
import torch
from torch.utils.data import DataLoader, TensorDataset

def task():
    model = torch.nn.Linear(8, 1)
    data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
    return {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), 0.1),
        "criterion": torch.nn.MSELoss(),
        "train_dataset": DataLoader(data, batch_size=32, shuffle=True),
        "total_epochs": 2,
        "eval_fn": lambda model: {"val_loss": 1.0},
    }
"""
EXPERIMENT = """
name: lines
task: train.py:task
arms:
  baseline: []
  optimised: [{early-stopping: {metric: val_loss, patience: 1}}]
settings: {sim_cpu_tdp_w: 50}
country: NO
outputs: {reports: [html, md]}
"""


@pytest.mark.parametrize("words", [[], ["--dry-run"]])
def test_a_bad_option_of_a_technique_is_said_with_its_line_before_anything_trains(tmp_path, words):
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(TASK)
    (tmp_path / "lines.yaml").write_text(EXPERIMENT.replace("patience", "patiance"))
    result = CliRunner().invoke(cli, ["experiment", "run", str(tmp_path / "lines.yaml"), *words])
    assert result.exit_code == 2
    assert "lines.yaml, line 6: arms.optimised: early-stopping has no option" in result.stderr
    assert not (tmp_path / "greenlove_experiments").exists()


@pytest.mark.slow
def test_one_command_makes_the_report(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    (tmp_path / "train.py").write_text(TASK)
    (tmp_path / "lines.yaml").write_text(EXPERIMENT)
    result = CliRunner().invoke(cli, ["experiment", "run", str(tmp_path / "lines.yaml")])
    assert result.exit_code == 0, result.output
    outputs = tmp_path / "greenlove_experiments" / "lines"
    assert {path.name for path in outputs.glob("report.*")} == {"report.html", "report.md"}
    assert "2 of 2 trainings finished" in (outputs / "report.md").read_text()
    again = CliRunner().invoke(cli, ["experiment", "run", str(tmp_path / "lines.yaml")])
    assert (again.exit_code, "2 of them finished before" in again.stderr) == (0, True)
    assert len(list((outputs / "runs").iterdir())) == 2
