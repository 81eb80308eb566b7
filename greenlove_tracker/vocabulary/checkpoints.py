"""The vocabulary of checkpoints: what one is of, what its manifest says, and what the log has of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

MANIFEST = "manifest.json"  # written last: a checkpoint without one is not whole


class CheckpointKind(StrEnum):
    """The reason for a checkpoint."""

    REGULAR = "regular"  # it was due
    BEST = "best"  # a metric was never better
    EMERGENCY = "emergency"  # the machine or the job is about to end
    FINAL = "final"  # the training has ended


class NotIdentical(StrEnum):
    """A reason why a resume is not bit-identical to a training that was never interrupted: a code and a sentence."""

    OWN_ORDER = (
        "own-order: only a DataLoader with torch's own samplers, in order and without persistent workers, is known to "
        "give the same batches again"
    )
    GENERATOR = "generator: the data have a random generator of their own, which the loop may seed or draw from, too"
    LOOP_DRAWS = "loop-draws: the loop draws random numbers outside of its batches, which may order or change the data"
    ANOTHER_ITERATOR = "another-iterator: another loader or iterator is open beside these batches, and begins anew"
    NO_STEP = (
        "no-step: a batch of this epoch was not followed by a step of each optimizer: fetched ahead, accumulated or "
        "skipped"
    )
    OTHER_LOADER = "other-loader: the loader or its data is another than it was"
    RANDOM_STATES = "random-states: some random states could not be put back"
    OTHER_RANKS = "other-ranks: another number of ranks goes on"
    OTHER_VERSION = "other-version: another version of torch goes on"
    DDP_BUCKETS = (
        "ddp-buckets: DistributedDataParallel with more than 2 ranks adds up the gradients of "
        "its first step after a start in another order than later"
    )

    def with_detail(self, detail: str) -> str:
        """Return the reason with what it is of."""
        return f"{self} ({detail})"


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
        not_identical: reasons why it resumes, but not bit for bit as a training that was never interrupted: a code of
            ``NotIdentical`` and a sentence each; empty where it does.
        metric: name of the metric that it is the best by; empty for another kind.
        metric_value: of that metric.
        versions: of what wrote it, by name: greenlove_tracker, torch, python.
    """

    kind: CheckpointKind
    position: TrainingPosition
    saved_at: str
    world_size: int = 1
    files: tuple[CheckpointFile, ...] = ()
    run_id: str = ""
    epochs: int | None = None
    not_identical: tuple[str, ...] = ()
    metric: str = ""
    metric_value: float | None = None
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def is_bit_identical(self) -> bool:
        """True where a resume with as many ranks goes on as if nothing had happened, bit for bit."""
        return not self.not_identical


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
        bool | None, "`yes` where a resume goes on as if nothing had happened, bit for bit; empty for a notice"
    ] = None
    note: Annotated[str, "who gave the notice, why something failed, why a resume is not bit-identical"] = ""
