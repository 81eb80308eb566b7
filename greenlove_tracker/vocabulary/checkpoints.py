"""The vocabulary of checkpoints: what one is of, what its manifest says, and what the log has of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

REHEARSAL_VARIABLE = "GREENLOVE_REHEARSAL"  # where a process of a rehearsal has its checkpoints
MANIFEST = "manifest.json"  # written last: a checkpoint without one is not whole


class CheckpointKind(StrEnum):
    """The reason for a checkpoint."""

    REGULAR = "regular"  # it was due
    BEST = "best"  # a metric was never better
    EMERGENCY = "emergency"  # the machine or the job is about to end
    FINAL = "final"  # the training has ended


class RehearsalPoint(StrEnum):
    """Where a training is resumed in a rehearsal."""

    MID_EPOCH = "mid-epoch"
    EPOCH_END = "epoch-end"


@dataclass(frozen=True, slots=True, order=True)
class TrainingPosition:
    """The progress of a training, over all its jobs."""

    epoch: Annotated[int, "whole epochs that were done, of the whole training"] = 0
    batches: Annotated[int, "that were done of the next epoch, on one rank; 0 between two"] = 0
    steps: Annotated[int, "batches that were done in all, on one rank"] = 0


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """A file of a checkpoint.

    Attributes:
        name: in the checkpoint's directory.
        size_bytes: its length.
        sha256: of its content, in hexadecimal.

    Raises:
        ValueError: where the name is a path.
    """

    name: str
    size_bytes: int
    sha256: str

    def __post_init__(self) -> None:
        if not is_file_name(self.name):
            raise ValueError(f"{self.name!r} is no name of a file of a checkpoint")


def is_file_name(text: str) -> bool:
    """Return True of a name such as a file of a checkpoint has, which leads to no other directory."""
    return re.fullmatch(r"\.?\w[\w.-]*", text) is not None


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of a checkpoint's ``manifest.json``, which has a checksum of its own too.

    Attributes:
        kind: why it was written.
        position: how far the training was.
        saved_at: when its state was taken, UTC, ISO 8601.
        world_size: ranks that wrote it.
        files: all other files of it.
        run_id: of the run of ours that wrote it; empty for none.
        epochs: that the training was to have; None where that was not known.
        metric: name of the metric that the best one is kept by; empty for none.
        metric_value: its best value by then.
        conditions: that it was written under, by name: versions, script, ranks, threads, CPU and GPUs.
        holds: what it holds, by name.
        not_passed: what trains along and was not passed, with what to pass.
        is_bit_identical: what a rehearsal of this very training had found by then; None: not rehearsed.
    """

    kind: CheckpointKind
    position: TrainingPosition
    saved_at: str
    world_size: int = 1
    files: tuple[CheckpointFile, ...] = ()
    run_id: str = ""
    epochs: int | None = None
    metric: str = ""
    metric_value: float | None = None
    conditions: dict[str, str] = field(default_factory=dict)
    holds: tuple[str, ...] = ()
    not_passed: tuple[str, ...] = ()
    is_bit_identical: bool | None = None


@dataclass(frozen=True, slots=True)
class RehearsedResume:
    """What a rehearsal found: the content of ``rehearsal.json``, beside the checkpoints.

    Attributes:
        rehearsed_at: UTC, ISO 8601.
        steps: batches that were compared behind each resume.
        resumed_at: where it was resumed, as ``RehearsalPoint`` has it.
        differs: the first thing that differs, by name; empty: all is identical.
        conditions: that it holds under, as a manifest has them.
    """

    rehearsed_at: str
    steps: int
    resumed_at: tuple[str, ...]
    differs: str
    conditions: dict[str, str]

    @property
    def sentence(self) -> str:
        """The result in words."""
        found = f"differs in {self.differs}" if self.differs else f"identical over {self.steps:,} steps"
        return f"rehearsed on {self.rehearsed_at[:10]}: {found}"


class CheckpointAction(StrEnum):
    """An event in a row of ``checkpoints.csv``."""

    SAVED = "saved"
    FAILED = "failed"  # the one before stays
    RESTORED = "restored"  # this run goes on from it
    DAMAGED = "damaged"  # it was found so, and passed over
    NOTICED = "noticed"  # a signal said that the job or the machine is about to end


@dataclass(frozen=True, slots=True)
class CheckpointEvent:
    """A row of ``checkpoints.csv``."""

    action: Annotated[
        CheckpointAction,
        "`saved`, `failed` (the one before stays), `skipped` (the one before was still being written), `restored` "
        "(this run goes on from it), `damaged` (it was passed over), `noticed` (the job or the machine is about to "
        "end)",
    ]
    at: Annotated[str, "UTC, ISO 8601: of a save when its state was taken, of a restore when the replay was done"]
    kind: Annotated[CheckpointKind | None, "`regular`, `best`, `emergency` or `final`; empty for a notice"] = None
    position: TrainingPosition = TrainingPosition()
    name: Annotated[str, "of the checkpoint, in its directory"] = ""
    size_bytes: Annotated[int | None, "of all its files"] = None
    blocked_s: Annotated[float | None, "for which the training stood still; of a restore, reading and checking"] = None
    written_s: Annotated[
        float | None,
        "time of writing on a thread of its own; empty where the training waited",
    ] = None
    replay_s: Annotated[float | None, "of a restore: fetching and dropping the batches that were done"] = None
    replayed_batches: Annotated[int | None, "how many batches those were"] = None
    from_run: Annotated[str, "of a restore: the run that wrote the checkpoint"] = ""
    saved_at: Annotated[str, "of a restore: when the checkpoint's state was taken"] = ""
    is_bit_identical: Annotated[
        bool | None,
        "`yes` where a rehearsal of this very training was identical, `no` where it was not; empty: not rehearsed",
    ] = None
    note: Annotated[str, "who gave the notice, why something failed, under which other conditions this goes on"] = ""
