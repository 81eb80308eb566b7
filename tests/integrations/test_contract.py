"""What every framework's callback promises, in the real library's own loop."""

from __future__ import annotations

import copy

import pytest

from greenlove_tracker import Tracker
from greenlove_tracker.vocabulary.errors import UsageError
from tests.integrations.by_hand import only_run, runs, simulated
from tests.integrations.frameworks import FRAMEWORKS, STEP_S

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning warns of few workers, and much else


@pytest.fixture(params=FRAMEWORKS, ids=lambda kind: kind.name)
def framework(request, clock, monkeypatch):
    for package in request.param.needs:
        pytest.importorskip(package)
    if request.param.name == "Hugging Face":  # what greenlove run adds in a process stays there until its end
        import transformers.trainer

        usual = [kind for kind in transformers.trainer.DEFAULT_CALLBACKS if "greenlove" not in kind.__module__]
        monkeypatch.setattr(transformers.trainer, "DEFAULT_CALLBACKS", usual)
    return request.param(clock)


def counts(run):
    return [(e.steps, e.is_complete) for e in run.epochs]


def test_a_training_is_a_run_and_its_weights_are_those_without_us(framework, clock):
    without, rounds = framework.train(), {} if framework.knows_length else {"num_boost_round": 6}
    assert framework.train(framework.callback(**simulated(clock), **rounds)) == without
    run = only_run()
    assert counts(run) == framework.counts and run.summary.status == "finished" and run.summary.counts.steps == 6
    assert {name: run.text(name) for name in framework.planned} == framework.planned
    assert framework.steps_known in (3, None) and (framework.steps_known is None) == (len(run.epochs) == 1)
    assert sum(e.duration_s for e in run.epochs) == pytest.approx(6 * STEP_S)
    assert run.summary.energy_kwh == pytest.approx(360.0 * run.summary.duration_s / 3.6e6)


def test_each_training_is_a_run_of_its_own_and_one_that_raises_ends_with_the_next(framework, clock):
    callback, framework.breaks_at = framework.callback(**simulated(clock)), 5
    with pytest.raises(RuntimeError, match="out of luck"):
        framework.train(callback)
    framework.train(callback)
    framework.train(callback)
    broken, *whole = runs()
    assert broken.summary.status == framework.broken_is and broken.summary.counts.steps == 4
    assert [(counts(run), run.summary.status) for run in whole] == [(framework.counts, "finished")] * 2


def test_a_tracker_of_the_callers_is_the_callers_to_stop_and_has_all_trainings(framework, clock):
    with Tracker(**simulated(clock)) as tracker:
        for _ in range(2):
            framework.train(framework.callback(tracker))
        assert tracker.summary is None
        framework.breaks_at = framework.n_steps + 2
        with pytest.raises(RuntimeError, match="out of luck"):
            framework.train(framework.callback(tracker))
    assert counts(only_run()) == [*framework.counts * 2, (1, False)]


def test_a_budget_stops_the_training_as_its_framework_does(framework, clock, caplog):
    limits = {"on_overrun": "stop", "max_energy_kwh": 0.005}  # 50 s of 360 W
    limits |= {} if framework.knows_length else {"num_boost_round": 120}
    framework.train(framework.callback(**simulated(clock), **limits), times=20)
    run = only_run()
    assert run.summary.status == "stopped" and caplog.text.count("training stops ") == 1
    assert 0 < run.summary.counts.steps <= framework.n_steps < 60


@pytest.mark.parametrize("broken", ["GREENLOVE_PUE", "GREENLOVE_COUNTRY"])
def test_what_is_wrong_outside_the_script_costs_a_warning_and_no_training(
    framework, clock, monkeypatch, caplog, broken
):
    monkeypatch.setenv(broken, "abc")
    framework.train(framework.callback(**simulated(clock)))
    assert framework.n_steps == 6 and caplog.text.count("this training is not tracked") == 1


def test_a_tracker_that_is_closed_costs_a_warning_and_no_training(framework, clock, caplog):
    tracker = Tracker(**simulated(clock))
    tracker.stop()
    framework.train(framework.callback(tracker))
    assert framework.n_steps == 6 and caplog.text.count("make a new Tracker") == 1


@pytest.mark.parametrize("call", ["begin", "start_epoch", "step", "end_epoch"])
def test_what_another_version_lacks_costs_a_warning_and_no_training(framework, clock, monkeypatch, caplog, call):
    def lacking(self, *arguments, **more):
        raise AttributeError("no_such_field")

    monkeypatch.setattr(f"greenlove_tracker.integrations.training_adapter.TrainingAdapter.{call}", lacking)
    framework.train(framework.callback(**simulated(clock)))
    assert framework.n_steps == 6
    assert caplog.text.count(f"the {framework.name} callback failed") == 1 and "no_such_field" in caplog.text


def test_what_the_tracker_raises_for_the_user_ends_the_training(framework, clock, monkeypatch):
    class EnoughError(Exception):
        pass

    def step(self, *arguments, **more):
        raise EnoughError

    monkeypatch.setattr(Tracker, "step", step)  # as a budget's own function does
    with pytest.raises(EnoughError):
        framework.train(framework.callback(**simulated(clock)))


def test_bad_arguments_are_said_before_the_training_begins(framework):
    for settings, message in [({"epochs": 3}, "the trainer knows its plan"), ({"tracker": "DE"}, "must be a Tracker")]:
        with pytest.raises(UsageError, match=message):
            framework.callback(**settings)
    with pytest.raises(UsageError, match="did you mean country"):
        framework.train(framework.callback(contry="DE"))


def test_a_copy_has_the_plain_settings_and_a_tracker_of_its_own(framework):
    callback = framework.callback(project="copies", sim_gpu_w=360, verbose=0)
    framework.train(callback)  # which has a tracker with threads and locks now
    framework.train(copy.deepcopy(callback))
    assert [(counts(run), run.text("project")) for run in runs()] == [(framework.counts, "copies")] * 2
