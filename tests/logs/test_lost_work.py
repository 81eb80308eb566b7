"""What interruptions cost, from the logs of a training's runs: by hand-made rows of known times and energies."""

from dataclasses import replace

import pytest
from conftest import epoch_row

from greenlove_tracker import read_logs
from greenlove_tracker.checkpoints import CheckpointAction, CheckpointEvent, CheckpointKind, TrainingPosition
from greenlove_tracker.logs.checkpoints import CHECKPOINT_COLUMNS, checkpoint_cells, checkpoints_file
from greenlove_tracker.logs.csvio import log_lines
from greenlove_tracker.logs.lost_work import training_interruptions

A, B, C = (f"20261101T{hour}0000-{letter * 8}" for hour, letter in (("12", "a"), ("13", "b"), ("14", "c")))


def _rows(hour, n):
    """One row a 10 s and 1 Wh from the full hour on, without gaps."""
    at = [f"2026-11-01T{hour}:{10 * i // 60:02d}:{10 * i % 60:02d}.000Z" for i in range(n)]
    return [replace(epoch_row(i + 1), started_at=started) for i, started in enumerate(at)]


def _events(run_dir, *events):
    cells = [CHECKPOINT_COLUMNS, *map(checkpoint_cells, events)]
    (run_dir / checkpoints_file(0)).write_bytes(log_lines(cells))


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
    assert first.lost.duration_s == pytest.approx(35.0)  # of 60 s, the checkpoint was at 25
    assert first.lost.energy.total_kwh == pytest.approx(0.0035)
    assert first.lost.emissions_kgco2e == pytest.approx(0.0035 * 400 / 1000)
    assert second.lost.duration_s == pytest.approx(25.0)  # B: all but the 5 s until it was restored
    assert found.lost_s == pytest.approx(60.0)
    assert found.lost_kwh == pytest.approx(first.lost.energy_kwh + second.lost.energy_kwh)
    assert found.is_at_least


def test_restarts_and_waits(three_runs):
    first, second = training_interruptions(_run(three_runs, C)).interruptions
    assert first.restart.duration_s == pytest.approx(5.0)
    assert second.restart.duration_s == pytest.approx(2.0)
    assert second.restart.energy.total_kwh == pytest.approx(0.0002)
    assert first.waited_s == pytest.approx(3600.0 - 60.0)
    assert second.waited_s == pytest.approx(3600.0 - 30.0)


def test_a_run_that_goes_on_with_none_has_no_interruptions(three_runs):
    assert training_interruptions(_run(three_runs, A)) is None


def test_of_a_run_between_only_what_came_before_it_counts(three_runs):
    found = training_interruptions(_run(three_runs, B))
    assert found.runs == (A, B)
    assert found.lost_s == pytest.approx(35.0)


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
    assert found.lost.duration_s == 0.0
    assert training_interruptions(_run(c.parent, C)).lost_kwh == 0.0
    assert not found.is_at_least
