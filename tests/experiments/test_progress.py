"""Which trainings of an experiment are done, from logs that trainings left in all their ways."""

from __future__ import annotations

import hashlib

import pytest
from fake_trainings import EPOCH_KWH, EPOCHS, log_run, make_experiment

from greenlove_tracker.experiments.definition import ExperimentBudget
from greenlove_tracker.experiments.progress import (
    ExperimentProgress,
    PlannedRunState,
    outputs_lock,
)
from greenlove_tracker.vocabulary.errors import LogDirError, UsageError

FINISHED, INTERRUPTED, FAILED, NOT_BEGUN = PlannedRunState


@pytest.fixture
def experiment(tmp_path):
    return make_experiment(tmp_path)


@pytest.fixture
def log(experiment):
    """Return a function that logs a run of a training."""

    def write(key, run_id, epochs=EPOCHS, status="finished", **fields):
        own = {"experiment": "digits", "experiment_run": key, **fields}
        log_run(experiment.outputs / "runs" / run_id, own, epochs, status)

    return write


def states(experiment):
    return {run.planned.key: run.state for run in ExperimentProgress.of(experiment).runs}


def test_without_outputs_nothing_is_begun(experiment):
    progress = ExperimentProgress.of(experiment)
    assert set(states(experiment).values()) == {NOT_BEGUN}
    assert progress.use == dict.fromkeys(("duration_s", "energy_kwh", "emissions_kgco2e", "cost_usd"), 0.0)
    assert not experiment.outputs.exists()  # and nothing is made by looking


def test_each_training_has_the_state_that_its_log_says(experiment, log):
    log("baseline-0", "1")
    log("optimised-0", "2", 2, None)  # killed
    log("baseline-1", "3", 1, "failed", failure="out of memory")
    assert states(experiment) == {
        "baseline-0": FINISHED,
        "optimised-0": INTERRUPTED,
        "baseline-1": FAILED,
        "optimised-1": NOT_BEGUN,
    }
    progress = ExperimentProgress.of(experiment)
    assert progress.left[1].reason == "out of memory"
    assert [run.planned.key for run in progress.left] == ["optimised-0", "baseline-1", "optimised-1"]


@pytest.mark.parametrize("status", ["stopped", "terminated", "interrupted", "exited"])
def test_a_training_that_was_stopped_goes_on(experiment, log, status):
    log("baseline-0", "1", 1, status)
    assert states(experiment)["baseline-0"] is INTERRUPTED


def test_the_runs_of_a_training_that_was_gone_on_with_are_one_training(experiment, log):
    log("baseline-0", "1", 3, None)
    log("baseline-0", "2", 1, "interrupted", continues="1", first_epoch="2")
    log("baseline-0", "3", 1, continues="2", first_epoch="3")
    training = ExperimentProgress.of(experiment).runs[0]
    assert [run.run_id for run in training.runs] == ["1", "2", "3"]
    assert (training.state, training.duration_s) == (FINISHED, 5 * 900.0)


def test_what_failed_and_what_the_file_names_no_more_was_used_all_the_same(experiment, log):
    log("baseline-0", "1")
    log("baseline-1", "2", 1, "failed")
    log("earlier-arm-0", "3", 2)
    progress = ExperimentProgress.of(experiment)
    assert progress.use["energy_kwh"] == pytest.approx((EPOCHS + 1 + 2) * EPOCH_KWH)


def test_what_is_damaged_or_of_no_experiment_is_passed_over_and_said(experiment, log):
    log("baseline-0", "1")
    log_run(experiment.outputs / "runs" / "2", {})
    damaged = experiment.outputs / "runs" / "3"
    damaged.mkdir()
    (damaged / "run.csv").write_bytes(b"\x00\xff field,value")
    progress = ExperimentProgress.of(experiment)
    assert progress.n_finished == 1
    assert any(str(damaged) in note for note in progress.notes)


def test_outputs_of_another_experiment_are_refused(experiment, log):
    log("baseline-0", "1", experiment="moons")
    with pytest.raises(
        UsageError,
        match="holds the runs of the experiment moons, and this one is called digits",
    ):
        ExperimentProgress.of(experiment)


def test_trainings_of_code_that_has_changed_are_kept_and_warned_of(experiment, log, tmp_path):
    today = hashlib.sha256((tmp_path / "train.py").read_bytes()).hexdigest()
    log("baseline-0", "1", task_sha256="of another day")
    log("optimised-0", "2", task_sha256=today)
    log("baseline-1", "3")  # which does not say
    progress = ExperimentProgress.of(experiment)
    (note,) = progress.notes
    assert note.startswith("train.py has changed since 1 of the 3 trainings that finished: they are not trained")
    assert progress.n_finished == 3


def test_groups_begin_with_the_baseline(experiment, log):
    progress = ExperimentProgress.of(experiment)
    groups = progress.groups("optimised")
    assert [name for name, _ in groups] == ["optimised", "baseline"]
    assert [run.planned.seed for run in groups[0][1]] == [0, 1]


def test_a_budget_has_the_limits_that_it_sets():
    assert ExperimentBudget(hours=2, kgco2e=0.5).limits == {"duration_s": 7200.0, "emissions_kgco2e": 0.5}
    assert ExperimentBudget().limits == {}


# -- the lock --


def test_outputs_that_cannot_be_written_are_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LogDirError, match="cannot be written"), outputs_lock(tmp_path / "file" / "outputs"):
        pass
