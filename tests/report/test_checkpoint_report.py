"""What reports and screens say of checkpoints, restarts and lost work."""

from dataclasses import replace

import pytest
from fakes import FakeClock, make_tracker, train
from report.test_metric_report import section

from greenlove_tracker.rendering.document import Paragraph
from greenlove_tracker.vocabulary.checkpoints import CheckpointAction, CheckpointEvent, CheckpointKind, TrainingPosition

TITLE = "Checkpoints and restarts"


def saved(tracker, clock, steps, **values):
    event = CheckpointEvent(
        CheckpointAction.SAVED,
        _now(clock),
        CheckpointKind.REGULAR,
        TrainingPosition(1, 0, steps),
        f"step-{steps}",
        size_bytes=2_000_000,
        blocked_s=0.5,
        is_bit_identical=True,
    )
    tracker.log_checkpoint(replace(event, **values))


def _now(clock):
    from greenlove_tracker.logs.writer import timestamp

    return timestamp(clock.utc_s())


@pytest.fixture
def resumed(tmp_path):
    """A run of 5 epochs that saved after 3, and one that goes on from there 100 s later."""
    clock, log_dir = FakeClock(), tmp_path / "logs"
    first = make_tracker(clock, log_dir)
    train(first, clock, 3)
    saved(first, clock, 30)
    saved_at = _now(clock)
    train(first, clock, 2)
    first.stop()
    clock.pass_s(100.0)
    second = make_tracker(clock, log_dir, continues=first.run_dir.name)
    clock.pass_s(4.0)
    second.log_checkpoint(
        CheckpointEvent(
            CheckpointAction.RESTORED,
            _now(clock),
            CheckpointKind.REGULAR,
            TrainingPosition(3, 7, 37),
            "step-30",
            blocked_s=1.0,
            replay_s=2.0,
            replayed_batches=7,
            from_run=first.run_dir.name,
            saved_at=saved_at,
            note="not rehearsed; threads 4 instead of 2",
        )
    )
    train(second, clock, 2)
    second.log_checkpoint(CheckpointEvent(CheckpointAction.NOTICED, _now(clock), note="SIGTERM"))
    saved(second, clock, 50, kind=CheckpointKind.EMERGENCY)
    second.log_checkpoint(CheckpointEvent(CheckpointAction.FAILED, _now(clock), note="No space left on device"))
    second.stop()
    return second.run_dir


def test_the_report_says_what_was_lost_and_how_it_went_on(resumed):
    blocks = section(resumed, TITLE)
    text = " ".join(block.text for block in blocks if isinstance(block, Paragraph))
    assert "1 interruption: 20.0 s of work lost (2.00 Wh); restarts took 4.00 s" in text
    assert "went on from the checkpoint of step 37 (not rehearsed; threads 4 instead of 2)." in text
    assert "1 checkpoint of up to 1.91 MiB saved. The training stood still for 500 ms" in text
    assert "! Not written: No space left on device." in text
