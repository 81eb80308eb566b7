"""Phases through the tracker, on a fake clock: a batch that grows by plan, late evaluations, unplanned work."""

from __future__ import annotations

import pytest
from fakes import make_tracker, session, tick

from greenlove_tracker import Phase, read_logs
from greenlove_tracker.vocabulary.errors import UsageError

PHASES = [Phase(300, tokens_per_step=100), Phase(300, tokens_per_step=200), Phase(300, tokens_per_step=300)]
TOTAL_S = 300 * (0.1 + 0.18 + 0.26)


def step_s(tokens):
    return 0.02 + 0.0008 * tokens


def take_steps(tracker, clock, until, *, tells=False):
    """Take steps of the phases, and tick after each ten."""
    while session().recorder.steps_done < until:
        done = session().recorder.steps_done
        tokens = PHASES[done // 300].tokens_per_step
        clock.pass_s(step_s(tokens))
        tracker.step(n_tokens=tokens if tells else None)
        if done % 10 == 0:
            tick()


@pytest.mark.slow
def test_a_batch_that_grows_by_plan_is_foreseen(clock, tmp_path):
    with make_tracker(clock, tmp_path, epochs=None, phases=PHASES) as tracker:
        take_steps(tracker, clock, 90)
        forecast = tracker.forecast
        assert forecast.duration_s.lower < TOTAL_S < forecast.duration_s.upper
        assert forecast.duration_s.point == pytest.approx(TOTAL_S, rel=0.04)
        assert [part.phase for part in forecast.phases] == PHASES
        take_steps(tracker, clock, 450)
        assert tracker.forecast.duration_s.point == pytest.approx(TOTAL_S, rel=0.01)
        take_steps(tracker, clock, 900)
    (run,) = read_logs(tmp_path).runs
    assert run.summary.duration_s == pytest.approx(TOTAL_S)
    assert {f.planned for f in run.forecasts} == {900}


def test_the_log_keeps_the_phases_and_stays_the_log_of_a_training(clock, tmp_path):
    with make_tracker(clock, tmp_path, epochs=None, phases="300x100 300x200,name=large 300x300"):
        pass
    (run,) = read_logs(tmp_path).runs
    assert run.text("phases") == "300x100 300x200,name=large 300x300"
    assert run.text("total_steps_planned") == "900"
    assert not run.is_exploration
    assert not any(name.startswith("plan_") for name in run.lines)


def test_the_length_follows_and_another_one_is_refused_at_once(clock, tmp_path):
    with pytest.raises(UsageError, match="phases add up to 900 steps, and the training has 800"):
        make_tracker(clock, tmp_path, epochs=None, total_steps=800, phases=PHASES)
    with pytest.raises(UsageError, match="phases add up to 5 epochs, and the training has 20"):
        make_tracker(clock, tmp_path, phases=[Phase(epochs=5)])
    with pytest.raises(UsageError, match="phases: 'y' is no phase"), make_tracker(clock, tmp_path, phases=["300 y"]):
        pass
    assert not any(tmp_path.iterdir())


def test_phases_of_a_file_that_are_of_another_training_cost_a_warning(clock, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("GREENLOVE_PHASES", "300x100 300x200")
    with make_tracker(clock, tmp_path, epochs=None, total_steps=800) as tracker:
        tracker.step()
    assert tracker.run_dir is None
    assert any("phases add up to 600 steps, and the training has 800" in r.message for r in caplog.records)


def test_evaluations_in_pauses_between_steps_are_told_apart(clock, tmp_path):
    """The tracker's own thread ticks in the middle of each evaluation."""
    with make_tracker(clock, tmp_path, epochs=None, phases=[Phase(1000, eval_every=100)]) as tracker:
        for step in range(1, 451):
            clock.pass_s(0.1)
            tracker.step()
            if step % 10 == 0:
                tick()
            if step % 100 == 0:
                tracker.pause()
                clock.pass_s(2.0)
                tick()
                clock.pass_s(3.0)
        assert tracker.forecast.duration_s.point == pytest.approx(100 + 50, rel=0.01)
