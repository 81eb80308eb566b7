"""When the trainings of an experiment begin."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import fake_trainings
import pytest
from fake_trainings import make_experiment

from greenlove_tracker.experiments.definition import StartPolicy
from greenlove_tracker.experiments.progress import ExperimentProgress
from greenlove_tracker.experiments.runner import LengthLeft, length_left, planned_start, with_fixed_deadline
from greenlove_tracker.scheduling.run_start import BestStart, TimedStart

pytestmark = pytest.mark.usefixtures("no_settings")
NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)


def test_now_waits_for_nothing():
    experiment = make_experiment(Path())
    assert planned_start(experiment, experiment.runs[0], None, NOW) is None


def test_a_time_is_waited_for_until_it_has_passed(tmp_path):
    experiment = make_experiment(tmp_path, start=StartPolicy(start="2026-11-23T22:00+00:00", each="experiment"))
    start = planned_start(experiment, experiment.runs[0], None, NOW)
    assert isinstance(start, TimedStart)
    assert start.start == datetime(2026, 11, 23, 22, tzinfo=UTC)
    assert planned_start(experiment, experiment.runs[0], None, NOW + timedelta(days=1)) is None


@pytest.mark.parametrize(("each", "planned_h"), [("run", 1.0), ("experiment", 4.0)])
def test_the_best_start_leaves_time_for_all_that_is_left(tmp_path, each, planned_h):
    policy = StartPolicy(start="best", deadline="2026-11-24T12:00+00:00", each=each)
    experiment = make_experiment(tmp_path, start=policy)
    start = planned_start(experiment, experiment.runs[0], LengthLeft(1.0, 4.0, "as others took"), NOW)
    assert isinstance(start, BestStart)
    assert start.latest == datetime(2026, 11, 24, 8, tzinfo=UTC)
    assert (start.duration, start.country, start.intensity) == (planned_h, "DE", "live")


@pytest.mark.parametrize("deadline", ["+6h", "2026-11-23T18:00+00:00"])
def test_a_deadline_does_not_move_while_trainings_go_on(tmp_path, deadline):
    policy = StartPolicy(start="best", deadline=deadline, each="run")
    experiment = with_fixed_deadline(make_experiment(tmp_path, start=policy), NOW)
    start = planned_start(experiment, experiment.runs[0], LengthLeft(1.0, 4.0, ""), NOW + timedelta(hours=5))
    assert isinstance(start, BestStart)
    assert start.deadline == datetime(2026, 11, 23, 18, tzinfo=UTC)


def test_the_longest_wait_bounds_the_best_start(tmp_path):
    policy = StartPolicy(start="best", deadline="2026-11-24T12:00+00:00", max_wait="2h", each="run")
    experiment = make_experiment(tmp_path, start=policy)
    start = planned_start(experiment, experiment.runs[0], LengthLeft(1.0, 4.0, ""), NOW)
    assert isinstance(start, BestStart)
    assert start.latest == NOW + timedelta(hours=2)


def test_a_training_is_as_long_as_others_of_its_group_were(tmp_path):
    policy = StartPolicy(start="best", deadline="+2d", each="run")
    experiment = make_experiment(tmp_path, start=policy)
    for number, epochs in enumerate((4, 2)):
        key = experiment.runs[number].key  # a training of each group: an hour, and half of one
        fields = {"experiment": "digits", "experiment_run": key, "epochs_planned": str(epochs)}
        fake_trainings.log_run(experiment.outputs / "runs" / str(number), fields, epochs)
    length = length_left(ExperimentProgress.of(experiment), experiment.runs[3], {})
    assert length == LengthLeft(0.5, 1.5, "as others of its kind took")


def test_where_nothing_has_finished_an_exploration_says_how_long_it_takes(tmp_path):
    policy = StartPolicy(start="best", deadline="+2d", each="run")
    experiment = make_experiment(tmp_path, start=policy)
    progress = ExperimentProgress.of(experiment)
    found = length_left(progress, experiment.runs[1], {"baseline": 7200.0})
    assert found == LengthLeft(2.0, 8.0, "as an exploration says")  # the group that is not known as the others
    assert length_left(progress, experiment.runs[1], {}) is None
