"""What interruptions cost, from the logs of a training's runs: by hand-made rows of known times and energies."""

from dataclasses import replace

import pytest
from conftest import epoch_row

from greenlove_tracker import read_logs
from greenlove_tracker.logs.schema import log_lines
from greenlove_tracker.logs.tables import CHECKPOINTS
from greenlove_tracker.report.checkpoint_report import training_interruptions
from greenlove_tracker.vocabulary.checkpoints import CheckpointAction, CheckpointEvent, CheckpointKind, TrainingPosition

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
def two_runs(make_run):
    """A of 60 s is killed; B goes on from A at 25 s."""
    make_run(A, _rows("12", 6), {"started_at": "2026-11-01T12:00:00.000Z"}, is_closed=False)
    b = make_run(B, _rows("13", 3), {"started_at": "2026-11-01T13:00:00.000Z", "continues": A}, is_closed=False)
    _events(b, _restored("13", 5, A, "2026-11-01T12:00:25.000Z"))
    return b.parent


def _run(log_dir, run_id):
    return next(run for run in read_logs(log_dir).runs if run.run_id == run_id)


def test_what_came_after_the_checkpoint_is_lost(two_runs, make_run):
    c = make_run(C, _rows("14", 4), {"started_at": "2026-11-01T14:00:00.000Z", "continues": B}, is_closed=False)
    _events(c, _restored("14", 2, B, "2026-11-01T13:00:20.000Z"))
    first, second = training_interruptions(_run(two_runs, C))
    assert first.lost_s == pytest.approx(35.0)  # of 60 s, the checkpoint was at 25
    assert first.lost_kwh == pytest.approx(0.0035)
    assert first.restart_s == pytest.approx(5.0) and first.is_at_least
    assert (second.lost_s, second.restart_s) == (pytest.approx(10.0), pytest.approx(2.0))
    assert len(training_interruptions(_run(two_runs, B))) == 1
    assert training_interruptions(_run(two_runs, A)) == []


def test_a_training_that_is_made_longer_was_not_interrupted(make_run):
    make_run(A, _rows("12", 6), {"started_at": "2026-11-01T12:00:00.000Z"})
    c = make_run(C, _rows("14", 4), {"started_at": "2026-11-01T14:00:00.000Z", "continues": A})
    _events(c, replace(_restored("14", 2, A, "2026-11-01T12:00:59.000Z"), kind=CheckpointKind.FINAL))
    assert training_interruptions(_run(c.parent, C)) == []


def test_without_checkpoints_nothing_is_said_of_lost_work(make_run):
    make_run(A, _rows("12", 6), {"started_at": "2026-11-01T12:00:00.000Z"}, is_closed=False)
    c = make_run(C, _rows("14", 4), {"started_at": "2026-11-01T14:00:00.000Z", "continues": A})
    assert training_interruptions(_run(c.parent, C)) == []


def test_an_emergency_checkpoint_at_the_very_end_loses_nothing(make_run):
    make_run(A, _rows("12", 6), {"started_at": "2026-11-01T12:00:00.000Z"}, ended_at="2026-11-01T12:01:00.100Z")
    c = make_run(C, _rows("14", 4), {"started_at": "2026-11-01T14:00:00.000Z", "continues": A})
    _events(c, _restored("14", 2, A, "2026-11-01T12:01:00.000Z"))
    (found,) = training_interruptions(_run(c.parent, C))
    assert (found.lost_s, found.lost_kwh, found.is_at_least) == (0.0, 0.0, False)
