"""The trainings of an experiment one after another: in order, within a budget, and past whatever ends one of them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import fake_trainings
import pytest
from fake_trainings import TRAIN, make_experiment, write_experiment

from greenlove_tracker.experiments import runner
from greenlove_tracker.experiments.definition import ExperimentBudget, StartPolicy
from greenlove_tracker.experiments.one_run import read_answer
from greenlove_tracker.experiments.progress import ExperimentProgress, PlannedRunState
from greenlove_tracker.experiments.runner import (
    run_experiment,
)
from greenlove_tracker.vocabulary.errors import MissingExtraError, UsageError
from greenlove_tracker.vocabulary.records import Field
from greenlove_tracker.vocabulary.waits import WAIT_VARIABLE, hand_over_wait

pytestmark = pytest.mark.usefixtures("no_settings", "package_path")
NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)


@pytest.fixture
def package_path(monkeypatch):
    """Have processes find the package that is tested, from wherever they are started."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))


def begun(experiment) -> list[str]:
    """Return the keys of the trainings that were begun, in order."""
    path = experiment.outputs / "begun.txt"
    return path.read_text().split() if path.exists() else []


def run(experiment, **how):
    write_experiment(experiment, how=how.pop("how", {}))
    return run_experiment(experiment, command=TRAIN, **how)


def seen(experiment, name):
    """Return a field of all runs, in order."""
    return [one.text(name) for training in ExperimentProgress.of(experiment).runs for one in training.runs]


# -- what is trained --


def test_all_trainings_run_in_order_and_none_of_them_again(tmp_path, capfd):
    experiment = make_experiment(tmp_path)
    outcome = run(experiment)
    assert begun(experiment) == ["baseline-0", "optimised-0", "baseline-1", "optimised-1"]
    assert (outcome.exit_code, outcome.progress.n_finished) == (0, 4)
    said = capfd.readouterr().err
    assert "greenlove  digits: 4 trainings\n" in said
    assert "greenlove  3 of 4  baseline, seed 1: 1 h · 1.00 kWh\n" in said
    assert run(experiment).exit_code == 0
    assert len(begun(experiment)) == 4
    assert "4 trainings, 4 of them finished before" in capfd.readouterr().err


# -- what ends one training ends no other --


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("fail:ValueError: nonsense", "ValueError: nonsense"),
        ("abort", "its process was ended by SIGABRT"),
        ("lose-log", "it trained to its end, and its log could not be written"),
    ],
)
def test_the_others_go_on_and_the_next_call_tries_again(tmp_path, how, reason, capfd):
    experiment = make_experiment(tmp_path)
    outcome = run(experiment, how={"optimised-0": how})
    assert len(begun(experiment)) == 4
    assert outcome.not_run == (("optimised, seed 0", reason),)
    assert (outcome.exit_code, outcome.progress.n_finished) == (1, 3)
    assert f"2 of 4  optimised, seed 0 did not finish: {reason}" in capfd.readouterr().err
    assert run(experiment).exit_code == 0
    assert begun(experiment)[4:] == ["optimised-0"]


@pytest.mark.parametrize(
    ("code", "outcome", "reason", "by"),
    [
        (0, "failed", "its process ended with exit code 0", None),
        (-9, "failed", "its process was ended by SIGKILL", None),
        (-15, "interrupted", "its process was ended by SIGTERM", signal.SIGTERM),
    ],
)
def test_how_a_process_ended_stands_for_what_it_did_not_say(tmp_path, code, outcome, reason, by):
    assert read_answer(tmp_path / "none", code) == ({"outcome": outcome, "reason": reason}, by)


@pytest.mark.slow
def test_a_training_that_somebody_else_ended_ends_all_as_that_did(tmp_path, started):
    experiment = make_experiment(tmp_path)
    ended = started(experiment, how={"optimised-0": "wait-once"})
    os.kill(ended.wait_for(), signal.SIGINT)
    assert ended.end()[0] == 130
    assert_goes_on(experiment, started)


# -- the budget --


@pytest.mark.slow
def test_a_budget_that_is_used_begins_no_other(tmp_path, capfd):
    experiment = make_experiment(tmp_path, budget=ExperimentBudget(energy_kwh=2.0))
    outcome = run(experiment)
    assert begun(experiment) == ["baseline-0", "optimised-0"]
    assert outcome.left_out == ("baseline, seed 1", "optimised, seed 1")
    assert outcome.exit_code == 3
    said = capfd.readouterr().err
    assert "the budget is used: energy is at 2.00 kWh of 2.00 kWh: 2 of 4 trainings done" in said
    assert "left out are baseline, seed 1; optimised, seed 1" in said
    larger = make_experiment(tmp_path, budget=ExperimentBudget(energy_kwh=4.5))
    assert run(larger).exit_code == 0


def test_a_training_is_given_what_is_left_and_ends_all_where_that_stops_it(tmp_path, capfd):
    budget = ExperimentBudget(hours=1.5, energy_kwh=3.0, kgco2e=2.0)
    experiment = make_experiment(tmp_path, budget=budget)
    outcome = run(experiment, how={"optimised-0": "stop-by-budget"})
    assert json.loads((experiment.outputs / "limits.json").read_text()) == {
        "GREENLOVE_ON_OVERRUN": "stop",
        "GREENLOVE_MAX_HOURS": "0.5",
        "GREENLOVE_MAX_ENERGY_KWH": "2.0",
        "GREENLOVE_MAX_KGCO2E": "1.6",
    }
    assert begun(experiment) == ["baseline-0", "optimised-0"]
    assert outcome.left_out == ("optimised, seed 0", "baseline, seed 1", "optimised, seed 1")
    assert "optimised, seed 0 was stopped by the budget and saved (over its limit)" in capfd.readouterr().err
    assert outcome.exit_code == 3
    assert outcome.progress.runs[1].state is PlannedRunState.INTERRUPTED


def test_a_limit_of_the_users_own_ends_one_training_and_not_the_experiment(tmp_path):
    experiment = make_experiment(tmp_path, seeds=(0,))
    outcome = run(experiment, how={"baseline-0": "stop-by-budget"})
    assert begun(experiment) == ["baseline-0", "optimised-0"]
    assert (outcome.signal, outcome.exit_code, outcome.not_run) == (None, 1, (("baseline, seed 0", "over its limit"),))


# -- what can be checked is checked before anything trains --


def test_a_variable_that_is_not_set_is_said_first(tmp_path):
    experiment = make_experiment(tmp_path)
    runs = tuple(replace(run, arguments=("--token", "${A_TOKEN_THAT_IS_NOT_SET}")) for run in experiment.runs)
    with pytest.raises(UsageError, match=r"environment variable \$\{A_TOKEN_THAT_IS_NOT_SET\} is not set"):
        run_experiment(replace(experiment, runs=runs))


def test_an_intensity_that_cannot_be_meant_is_said_first(tmp_path):
    settings = {"intensity": "no-such-service"}
    experiment = make_experiment(tmp_path, start=StartPolicy(below_gco2e_per_kwh=250.0), settings=settings)
    with pytest.raises(UsageError, match="no-such-service"):
        run_experiment(experiment)


def test_without_torch_nothing_begins(tmp_path, monkeypatch):
    monkeypatch.setattr("greenlove_tracker.vocabulary.errors.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="an experiment needs torch"):
        run_experiment(make_experiment(tmp_path))


def test_within_a_run_nothing_begins(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "outer_run_dir", lambda: tmp_path)
    with pytest.raises(UsageError, match="start it without"):
        run_experiment(make_experiment(tmp_path))


# -- pulling the plug --


class RunningExperiment:
    """``greenlove experiment run`` in a process of its own, with a group of its own."""

    def __init__(self, experiment, arms=("baseline", "optimised"), seeds=(0, 1), **how):
        self.experiment = experiment
        write_experiment(experiment, arms=arms, seeds=seeds, **how)
        self.process = subprocess.Popen(
            [sys.executable, fake_trainings.__file__, "run", experiment.path],
            start_new_session=True,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for(self, name="training") -> int:
        """Wait until a training is in the middle, and return its process."""
        path = self.experiment.outputs / name
        for _ in range(3000):
            if path.exists() and (text := path.read_text()):
                return int(text)
            time.sleep(0.01)
        raise AssertionError(self.process.poll())

    def end(self) -> tuple[int, str]:
        """Return the exit code, and what was said."""
        said = self.process.communicate(timeout=60)[1]
        return self.process.returncode, said


@pytest.fixture
def started():
    running = []

    def start(*arguments, **how):
        running.append(RunningExperiment(*arguments, **how))
        return running[-1]

    yield start
    for one in running:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(one.process.pid, signal.SIGKILL)
        one.process.communicate()


def assert_goes_on(experiment, started):
    """The same command finishes: nothing that is done runs again, and what was interrupted goes on."""
    code, said = started(experiment, how={"optimised-0": "wait-once"}).end()
    assert code == 0
    assert "4 trainings, 1 of them finished before" in said
    assert begun(experiment) == ["baseline-0", "optimised-0", "optimised-0", "baseline-1", "optimised-1"]
    first, second = ExperimentProgress.of(experiment).runs[1].runs
    assert (second.text("continues"), second.first_epoch) == (first.run_id, 2)


@pytest.mark.slow
def test_killed_with_all_its_processes_it_goes_on(tmp_path, started):
    experiment = make_experiment(tmp_path)
    killed = started(experiment, how={"optimised-0": "wait-once"})
    killed.wait_for()
    os.killpg(killed.process.pid, signal.SIGKILL)
    assert killed.end()[0] == -signal.SIGKILL
    assert_goes_on(experiment, started)


@pytest.mark.slow
def test_ctrl_c_saves_the_training_and_says_how_to_go_on(tmp_path, started):
    experiment = make_experiment(tmp_path)
    interrupted = started(experiment, how={"optimised-0": "wait-once"})
    interrupted.wait_for()
    os.killpg(interrupted.process.pid, signal.SIGINT)  # as a terminal does
    code, said = interrupted.end()
    assert code == 130
    assert "ended by SIGINT: 1 of 4 trainings done. The same command goes on" in said
    assert_goes_on(experiment, started)


@pytest.mark.slow
def test_sigterm_to_us_alone_is_passed_on(tmp_path, started):
    experiment = make_experiment(tmp_path)
    ended = started(experiment, how={"optimised-0": "wait-once"})
    ended.wait_for()
    ended.process.terminate()
    assert ended.end()[0] == 143
    assert ExperimentProgress.of(experiment).runs[1].runs[0].summary.status == "interrupted"
    assert_goes_on(experiment, started)


@pytest.mark.slow
def test_two_commands_at_once_are_one_too_many(tmp_path, started):
    experiment = make_experiment(tmp_path)
    first = started(experiment, how={"optimised-0": "until-told"})
    first.wait_for()
    with pytest.raises(UsageError, match="another process runs this experiment"):
        run_experiment(experiment, command=TRAIN, quiet=True)
    (experiment.outputs / "go").write_text("")
    assert first.end()[0] == 0


# -- when a training begins --


@pytest.fixture
def waits(monkeypatch):
    """Have each wait take no time; return those that there were, with the training that they were for."""
    found = []

    def wait(experiment, planned, *, quiet):
        found.append(planned.key)
        lines = [Field("wait_s", str(len(found))), Field("intensity_at_start_gco2e_per_kwh", "200")]
        hand_over_wait(lines, time.time())

    monkeypatch.setattr(runner, "wait_to_start", wait)
    monkeypatch.delenv(WAIT_VARIABLE, raising=False)
    return found


def test_each_run_has_the_wait_before_it_in_its_log(tmp_path, waits):
    experiment = make_experiment(tmp_path, seeds=(0,), start=StartPolicy(below_gco2e_per_kwh=250.0))
    run(experiment)
    assert waits == ["baseline-0", "optimised-0"]
    assert seen(experiment, "wait_s") == ["1", "2"]
    assert seen(experiment, "intensity_at_start_gco2e_per_kwh") == ["200", "200"]
    assert WAIT_VARIABLE not in os.environ
