"""When the trainings of an experiment begin."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import fake_trainings
import pytest
from fake_trainings import make_experiment

from greenlove_tracker.experiments.definition import StartPolicy
from greenlove_tracker.experiments.progress import ExperimentProgress
from greenlove_tracker.experiments.runner import planned_start, with_fixed_deadline
from greenlove_tracker.scheduling.run_start import BestStart, TimedStart

pytestmark = pytest.mark.usefixtures("no_settings")
NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)


@pytest.fixture
def start_of(tmp_path):
    """Return a function that plans the start of the last training, where one of each group has finished or none."""

    def planned(policy, now=NOW, *, has_finished=True):
        experiment = with_fixed_deadline(make_experiment(tmp_path, start=policy), NOW)
        for number, epochs in enumerate((4, 2) if has_finished else ()):
            key = experiment.runs[number].key  # a training of each group: an hour, and half of one
            fields = {"experiment": "digits", "experiment_run": key, "epochs_planned": str(epochs)}
            fake_trainings.log_run(experiment.outputs / "runs" / str(number), fields, epochs)
        return planned_start(experiment, ExperimentProgress.of(experiment), experiment.runs[3], now)

    return planned


def test_now_waits_for_nothing(start_of):
    assert start_of(StartPolicy()) is None


def test_a_time_is_waited_for_until_it_has_passed(start_of):
    policy = StartPolicy(start="2026-11-23T22:00+00:00")
    start = start_of(policy)
    assert isinstance(start, TimedStart)
    assert start.start == datetime(2026, 11, 23, 22, tzinfo=UTC)
    assert start_of(policy, NOW + timedelta(days=1)) is None


@pytest.mark.parametrize("deadline", ["+6h", "2026-11-23T18:00+00:00"])
def test_the_best_start_leaves_time_for_all_that_is_left(start_of, deadline):
    start = start_of(StartPolicy(start="best", deadline=deadline), NOW + timedelta(hours=1))
    assert isinstance(start, BestStart)
    assert (start.deadline, start.latest) == (NOW + timedelta(hours=6), NOW + timedelta(hours=4.5))
    assert (start.duration, start.country, start.intensity) == (0.5, "DE", "live")


def test_the_longest_wait_bounds_the_best_start(start_of):
    start = start_of(StartPolicy(start="best", deadline="+1d", max_wait="2h"))
    assert isinstance(start, BestStart)
    assert start.latest == NOW + timedelta(hours=2)


def test_the_first_of_all_begins_at_once(start_of):
    assert start_of(StartPolicy(start="best", deadline="+2d"), has_finished=False) is None
