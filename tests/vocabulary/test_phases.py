"""Phases of a training: as text, stretched, cut on resume, and when their evaluations come."""

from __future__ import annotations

import pickle
import re

import pytest

from greenlove_tracker import Phase, TrainingPlan
from greenlove_tracker.settings.config import load_settings
from greenlove_tracker.vocabulary.errors import SettingError, UsageError
from greenlove_tracker.vocabulary.phases import (
    pauses_between,
    phases_after,
    phases_from,
    phases_text,
    phases_until,
)

GROWING = (Phase(505, tokens_per_step=131_072), Phase(505, tokens_per_step=262_144))


def evaluated_after(phases, kind="eval"):
    return [u for u in range(1, sum(phase.length for phase in phases) + 1) if pauses_between(phases, u - 1, u, kind)]


def test_the_line_of_a_config_file_is_steps_times_tokens():
    assert phases_from("505x131072 505x262144") == GROWING
    assert phases_text(GROWING) == "505x131072 505x262144"


@pytest.mark.parametrize(
    "phase",
    [
        Phase(7),
        Phase(epochs=30),
        Phase(epochs=10, samples_per_step=64, name="warm-up, x = 2"),
        Phase(500, work_per_step=1e-5, eval_every=100, eval_from=200, eval_s=2.5, save_every=50),
        Phase(epochs=110, eval_from=50, eval_s=1.8),
        Phase(5, work_per_step=224.0),
    ],
)
def test_a_phase_reads_back_from_its_text(phase):
    assert phases_from(str(phase)) == (phase,)
    assert pickle.loads(pickle.dumps(phase)) == phase
    assert " " not in str(phase)


def test_phases_are_given_as_objects_texts_or_mappings():
    given = [Phase(5, tokens_per_step=1), "6x2 7x3", {"steps": 8, "tokens_per_step": 4}]
    assert [(p.steps, p.tokens_per_step) for p in phases_from(given)] == [(5, 1), (6, 2), (7, 3), (8, 4)]
    assert phases_from(None) == phases_from(()) == phases_from("") == ()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Phase(), "give one of the two"),
        (lambda: Phase(5, 5), "give one of the two"),
        (lambda: Phase(0), "at least 1"),
        (lambda: Phase(5, tokens_per_step=1, samples_per_step=1), "tokens_per_step and samples_per_step"),
        (lambda: Phase(5, work_per_step=0), "work_per_step must be a positive number"),
        (lambda: Phase(5, work_per_step=True), "work_per_step must be a positive number"),
        (lambda: Phase(5, eval_every=5, eval_s=float("nan")), "eval_s must be a positive number"),
        (lambda: Phase(5, eval_from=3), "eval_every="),
        (lambda: Phase(5, name=3), "must be a text"),
        (lambda: Phase(5, work_per_step=1e-300), "from 1e-12 to 1e+18"),
        (lambda: Phase(10**400), "cannot be meant"),
        (lambda: phases_from("9" * 5000), "is no phase"),
        (lambda: phases_from("505*131072"), "is no phase"),
        (lambda: phases_from("505x13.5"), "is no phase"),
        (lambda: phases_from("505x131072,every=5"), "options are eval_every"),
        (lambda: phases_from(505), "must be a list of Phase"),
        (lambda: phases_from([505]), "is none"),
        (lambda: phases_from([{"step": 5}]), "has no step"),
        (lambda: phases_from("5 5epochs"), "all in one of the two"),
        (lambda: phases_from("5x5 5x5samples"), "give all in one"),
        (lambda: phases_from("5 5,eval_every=1,eval_from=11"), "counts from the start of the run"),
    ],
)
def test_what_cannot_be_meant_is_said(make, says):
    with pytest.raises(UsageError, match=re.escape(says)):
        make()


def test_evaluations_count_from_the_start_of_the_run():
    assert evaluated_after(phases_from("10,eval_every=4 10,eval_every=3")) == [4, 8, 12, 15, 18]
    assert evaluated_after((Phase(epochs=6, eval_from=4),)) == [4, 5, 6]
    assert evaluated_after(phases_from("5 10,eval_every=4,eval_from=7")) == [7, 11, 15]
    assert evaluated_after(phases_from("5,save_every=2 5"), "save") == [2, 4]
    assert pauses_between((Phase(10**9, eval_every=7),), 0, 10**9, "eval") == 10**9 // 7


def test_a_run_that_resumes_has_what_is_left():
    phases = phases_from("10x1,eval_every=4 10x2,eval_every=3,eval_from=15")
    for done in range(20):
        left = phases_after(phases, done)
        assert sum(phase.length for phase in left) == 20 - done
        assert [u + done for u in evaluated_after(left)] == [u for u in evaluated_after(phases) if u > done], done
    assert phases_after(phases, 20) == ()


def test_a_plan_has_the_length_of_its_phases():
    assert TrainingPlan(phases=GROWING).steps == 1010
    plan = TrainingPlan(samples=640, batch_size=64, phases=phases_from("3epochs 7epochs,eval_every=2"))
    assert (plan.epochs, plan.steps, plan.n_evaluations) == (10, None, 4)
    with pytest.raises(UsageError, match="phases add up to 1,010 steps, and the training has 1,000"):
        TrainingPlan(steps=1000, phases=GROWING)
    with pytest.raises(UsageError, match="eval_every of the plan and of its phases"):
        TrainingPlan(phases=phases_from("5,eval_every=1"), eval_every=1)


def test_a_file_and_a_variable_give_phases(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "greenlove.toml").write_text('phases = "505x131072 505x262144"')
    assert load_settings({}, {}).phases == GROWING
    (tmp_path / "greenlove.toml").write_text('phases = ["505x131072", {steps = 505, tokens_per_step = 262144}]')
    assert load_settings({}, {}).phases == GROWING
    assert load_settings({}, {"GREENLOVE_PHASES": "7x1"}).phases == (Phase(7, tokens_per_step=1),)
    assert load_settings({"phases": "9x1"}, {"GREENLOVE_PHASES": "7x1"}).phases == (Phase(9, tokens_per_step=1),)
    with pytest.raises(SettingError, match="GREENLOVE_PHASES: phases: '7y1' is no phase"):
        load_settings({}, {"GREENLOVE_PHASES": "7y1"})


def test_an_epoch_of_larger_steps_over_the_same_data_has_fewer_of_them():
    small, large = (Phase(epochs=1, samples_per_step=n).constant_and_growing for n in (64, 128))
    assert small == (1 / 64, 1.0) and large == (1 / 128, 1.0)
    assert Phase(epochs=1, work_per_step=3).constant_and_growing == (1.0, 3.0)
    assert Phase(5, samples_per_step=64).constant_and_growing == (1.0, 64.0)
    assert Phase(5).constant_and_growing is None


def test_a_phase_over_a_share_of_the_data():
    phase = Phase(epochs=10, data_share=0.25)
    assert (phase.measure, phase.work, phase.constant_and_growing) == ("data_share", 0.25, (1.0, 0.25))
    assert str(phase) == "10epochsx0.25share" and Phase.from_text(str(phase)) == phase
    for made in (lambda: Phase(steps=5, data_share=0.5), lambda: Phase(epochs=5, data_share=1.5)):
        with pytest.raises(UsageError, match="the share of the data that an epoch goes through"):
            made()


def test_phases_are_cut_where_a_run_ends():
    phases = (Phase(epochs=10), Phase(epochs=20, eval_every=5, eval_from=25))
    assert phases_until(phases, 4) == (Phase(epochs=4),)
    assert phases_until(phases, 20) == (Phase(epochs=10), Phase(epochs=10))
    assert phases_until(phases, 27)[1] == Phase(epochs=17, eval_every=5, eval_from=25)
