"""What interruptions cost, from the logs of a training's runs: by hand-made rows of known times and energies."""

from dataclasses import replace

import pytest
from conftest import epoch_row

from greenlove_tracker import read_logs
from greenlove_tracker.checkpoints import CheckpointAction, CheckpointEvent, CheckpointKind, TrainingPosition
from greenlove_tracker.logs.aggregate import aggregate
from greenlove_tracker.logs.continued_runs import training_interruptions
from greenlove_tracker.logs.csvio import log_lines
from greenlove_tracker.logs.tables import CHECKPOINTS

A, B, C = (f"20261101T{hour}0000-{letter * 8}" for hour, letter in (("12", "a"), ("13", "b"), ("14", "c")))


def _rows(hour, n):
    """One row a 10 s and 1 Wh from the full hour on, without gaps."""
    at = [f"2026-11-01T{hour}:{10 * i // 60:02d}:{10 * i % 60:02d}.000Z" for i in range(n)]
    return [replace(epoch_row(i + 1), started_at=started) for i, started in enumerate(at)]


def _events(run_dir, *events):
    cells = [CHECKPOINTS.columns, *map(CHECKPOINTS.cells, events)]
    (run_dir / CHECKPOINTS.file(0)).write_bytes(log_lines(cells))


def _restored(hour, seconds, from_run, saved):
    at = f"2026-11-01T{hour}:00:{seconds:02d}.000Z"
    position = TrainingPosition(2, 0, 10)
    return CheckpointEvent(
        CheckpointAction.RESTORED, at, CheckpointKind.REGULAR, position, "step-10", from_run=from_run, saved_at=saved
    )


@pytest.fixture
def three_runs(make_run):
    """A of 60 s is killed; B and C go on from A at 25 s, since B is killed before it saves anything."""
    make_run(A, _rows("12", 6), {"started_at": "2026-11-01T12:00:00.000Z"}, is_closed=False)
    b = make_run(B, _rows("13", 3), {"started_at": "2026-11-01T13:00:00.000Z", "continues": A}, is_closed=False)
    c = make_run(C, _rows("14", 4), {"started_at": "2026-11-01T14:00:00.000Z", "continues": A})
    _events(b, _restored("13", 5, A, "2026-11-01T12:00:25.000Z"))
    _events(c, _restored("14", 2, A, "2026-11-01T12:00:25.000Z"))
    return c.parent


def _run(log_dir, run_id):
    return next(run for run in read_logs(log_dir).runs if run.run_id == run_id)


def test_what_came_after_the_checkpoint_is_lost_and_all_of_a_run_nobody_went_on_from(three_runs):
    found = training_interruptions(_run(three_runs, C))
    assert found.runs == (A, B, C)
    first, second = found.interruptions
    assert first.lost_s == pytest.approx(35.0)  # of 60 s, the checkpoint was at 25
    assert first.lost_kwh == pytest.approx(0.0035)
    assert first.lost_kgco2e == pytest.approx(0.0035 * 400 / 1000)
    assert second.lost_s == pytest.approx(25.0)  # B: all but the 5 s until it was restored
    assert found.total("lost_s") == pytest.approx(60.0)
    assert found.total("lost_kwh") == pytest.approx(first.lost_kwh + second.lost_kwh)
    assert found.is_at_least


def test_where_newer_checkpoints_were_damaged_all_of_their_runs_is_lost(three_runs, make_run):
    """C went on from B; D finds C's and B's checkpoints damaged, and goes on from A's."""
    c, d = three_runs / C, f"20261101T150000-{'d' * 8}"
    (c / "summary.csv").unlink()  # killed too
    (c / "run.csv").write_text((c / "run.csv").read_text().replace(f"continues,{A}", f"continues,{B}"))
    _events(c, _restored("14", 2, B, "2026-11-01T13:00:20.000Z"))
    last = make_run(d, _rows("15", 1), {"started_at": "2026-11-01T15:00:00.000Z", "continues": A})
    _events(last, _restored("15", 1, A, "2026-11-01T12:00:25.000Z"))
    found = training_interruptions(_run(three_runs, d))
    assert found.runs == (A, B, C, d)
    assert [i.lost_s for i in found.interruptions] == pytest.approx([35.0, 25.0, 38.0])


def test_a_training_that_is_made_longer_was_not_interrupted(make_run):
    make_run(A, _rows("12", 6), {"started_at": "2026-11-01T12:00:00.000Z"})
    c = make_run(C, _rows("14", 4), {"started_at": "2026-11-01T14:00:00.000Z", "continues": A})
    _events(c, replace(_restored("14", 2, A, "2026-11-01T12:00:59.000Z"), kind=CheckpointKind.FINAL))
    assert training_interruptions(_run(c.parent, C)).interruptions == ()
    assert aggregate(c.parent).interruptions.interruptions == ()


def test_what_interruptions_cost_all_trainings_of_a_directory(three_runs, make_run):
    found = aggregate(three_runs).interruptions
    assert found == training_interruptions(_run(three_runs, C)) and found.is_at_least
    since = aggregate(three_runs, since="2026-11-01T13:00:00").interruptions
    assert [i.lost_s for i in since.interruptions] == [pytest.approx(25.0)]  # A began before


def test_of_two_trainings_that_go_on_from_one_run_neither_is_lost(make_run):
    make_run(A, _rows("12", 6), {"started_at": "2026-11-01T12:00:00.000Z"}, is_closed=False)
    for hour, run_id, at in (("13", B, "25"), ("14", C, "35")):
        of = make_run(run_id, _rows(hour, 3), {"continues": A, "epochs_planned": "3"})
        _events(of, _restored(hour, 2, A, f"2026-11-01T12:00:{at}.000Z"))
    found = aggregate(of.parent).interruptions
    assert [i.lost_s for i in found.interruptions] == [pytest.approx(25.0)]  # behind the later checkpoint


def test_without_a_run_that_went_on_nothing_was_lost(make_run):
    run = make_run(A, _rows("12", 6), {"started_at": "2026-11-01T12:00:00.000Z"})
    assert aggregate(run.parent).interruptions is None


def test_restarts_and_waits(three_runs):
    first, second = training_interruptions(_run(three_runs, C)).interruptions
    assert first.restart_s == pytest.approx(5.0)
    assert second.restart_s == pytest.approx(2.0)
    assert second.restart_kwh == pytest.approx(0.0002)
    assert first.waited_s == pytest.approx(3600.0 - 60.0)
    assert second.waited_s == pytest.approx(3600.0 - 30.0)


def test_a_run_that_goes_on_with_none_has_no_interruptions(three_runs):
    assert training_interruptions(_run(three_runs, A)) is None


def test_of_a_run_between_only_what_came_before_it_counts(three_runs):
    found = training_interruptions(_run(three_runs, B))
    assert found.runs == (A, B)
    assert found.total("lost_s") == pytest.approx(35.0)


def test_without_checkpoints_nothing_is_said_of_lost_work(make_run):
    make_run(A, _rows("12", 6), {"started_at": "2026-11-01T12:00:00.000Z"}, is_closed=False)
    c = make_run(C, _rows("14", 4), {"started_at": "2026-11-01T14:00:00.000Z", "continues": A})
    found = training_interruptions(_run(c.parent, C))
    assert found.runs == (A, C)
    assert found.interruptions == ()


def test_an_emergency_checkpoint_at_the_very_end_loses_nothing(make_run):
    make_run(A, _rows("12", 6), {"started_at": "2026-11-01T12:00:00.000Z"})
    c = make_run(C, _rows("14", 4), {"started_at": "2026-11-01T14:00:00.000Z", "continues": A})
    _events(c, _restored("14", 2, A, "2026-11-01T12:01:00.000Z"))
    (found,) = training_interruptions(_run(c.parent, C)).interruptions
    assert found.lost_s == 0.0
    assert training_interruptions(_run(c.parent, C)).total("lost_kwh") == 0.0
    assert not found.is_at_least
