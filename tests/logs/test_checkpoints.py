"""The rows of ``checkpoints-<rank>.csv``: what is written reads the same, and damage is said."""

from dataclasses import replace

from fakes import FakeClock, ScriptedMeter, make_tracker

from greenlove_tracker import read_logs
from greenlove_tracker.checkpoints import CheckpointAction, CheckpointEvent, CheckpointKind, TrainingPosition

SAVED = CheckpointEvent(
    CheckpointAction.SAVED,
    "2026-11-01T12:00:00.000Z",
    CheckpointKind.REGULAR,
    TrainingPosition(3, 20, 320),
    "step-0000000320",
    1234,
    0.01,
    0.2,
    is_bit_identical=True,
)
RESTORED = replace(
    SAVED,
    action=CheckpointAction.RESTORED,
    replay_s=1.5,
    replayed_batches=20,
    from_run="20261101T110000-bbbbbbbb",
    saved_at="2026-11-01T11:50:00.000Z",
    is_bit_identical=False,
    note="persistent workers, whose random states nobody knows",
)
NOTICED = CheckpointEvent(CheckpointAction.NOTICED, "2026-11-01T12:01:00.000Z", note="SIGTERM")


def test_a_tracker_logs_what_becomes_of_checkpoints(tmp_path):
    clock = FakeClock()
    with make_tracker(clock, tmp_path / "logs", meter=ScriptedMeter([])) as tracker:
        tracker.log_checkpoint(RESTORED)
        tracker.log_checkpoint(SAVED)
    (run,) = read_logs(tmp_path / "logs").runs
    assert run.checkpoints == (RESTORED, SAVED)
    assert not run.problems
