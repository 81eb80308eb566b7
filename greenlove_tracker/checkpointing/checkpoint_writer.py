"""Writes checkpoints beside the training: a copy of the state is taken, and a thread of its own writes it."""

from __future__ import annotations

import atexit
import os
import platform
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

import greenlove_tracker
from greenlove_tracker.checkpointing.checkpoint_files import CheckpointStore, Draft, checkpoint_name
from greenlove_tracker.checkpointing.distributed import RankAgreement, first_line, write_together
from greenlove_tracker.checkpointing.sharded_states import sharded_state, write_sharded
from greenlove_tracker.checkpointing.training_state import TrainingState, has_memory_for, not_plain, size_bytes
from greenlove_tracker.checkpoints import CheckpointAction, CheckpointEvent, CheckpointFile, Manifest
from greenlove_tracker.forks import start_thread
from greenlove_tracker.logs.writer import timestamp
from greenlove_tracker.records import Clock
from greenlove_tracker.tracker.state import WarnOnce

MODEL_FILE = "model.pt"
_EXIT_WAIT_S = 600.0  # that a process waits at its end for a checkpoint that is being written


def rank_file(rank: int) -> str:
    """Return the name of the file with what is a rank's own: random states, its position in the data."""
    return f"rank-{rank}.pt"


def versions() -> dict[str, str]:
    """Return the versions of what writes and reads checkpoints."""
    return {
        "greenlove_tracker": greenlove_tracker.__version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
    }


@dataclass(frozen=True)
class _PendingCheckpoint:
    """A checkpoint that is to be written.

    Attributes:
        manifest: without its files.
        when_done: is told whether it was written.
        state: of ``model.pt``; None on ranks that do not write it.
        of_rank: content of the rank's own file.
        shards: of models and optimizers, where they are sharded.
        problem: why the state could not be taken; the other ranks are told, which would wait else.
        blocked_s: that the training stood still.
        begun_s: when the thread was started; None where the training waits.
    """

    manifest: Manifest
    when_done: Callable[[bool], None] | None = None
    state: dict[str, Any] | None = None
    of_rank: dict[str, Any] | None = None
    shards: dict[str, Any] | None = None
    problem: Exception | None = None
    blocked_s: float = 0.0
    begun_s: float | None = None


class CheckpointWriter:
    """Writes the checkpoints of a training, one at a time.

    Args:
        store: where they are written.
        state: of the training.
        models: by name.
        optimizers: by name.
        ranks: that write together; used by whichever thread writes, by one at a time.
        in_background: write on a thread, where there is memory for a copy of the state.
        clock: for times.
        log: is told what became of each; from any thread.
        warn_once: says what went wrong.

    Attributes:
        last_name: of the newest checkpoint that was written; empty before.
        problem: why the newest one could not be written; empty where it was.
    """

    def __init__(
        self,
        store: CheckpointStore,
        state: TrainingState,
        models: dict[str, torch.nn.Module],
        optimizers: dict[str, torch.optim.Optimizer],
        ranks: RankAgreement,
        *,
        in_background: bool,
        clock: Clock,
        log: Callable[[CheckpointEvent], None],
        warn_once: WarnOnce,
    ) -> None:
        self._store, self._state = store, state
        self._models, self._optimizers = models, optimizers
        self._ranks, self._clock, self._log, self._warn_once = ranks, clock, log, warn_once
        self._in_background = in_background
        self._is_idle = threading.Event()
        self._is_idle.set()
        self._is_checked = False
        self._pid = os.getpid()
        self.last_name = ""
        self.problem = ""

    @property
    def is_busy(self) -> bool:
        """True while a thread writes."""
        return not self._is_idle.is_set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until nothing is being written; return False where that takes longer than ``timeout_s``."""
        return self._is_idle.wait(timeout_s)

    def save(
        self,
        manifest: Manifest,
        extra: Callable[[], dict[str, Any]],
        of_rank: Callable[[], dict[str, Any]],
        *,
        is_waited_for: bool,
        when_done: Callable[[bool], None] | None = None,
    ) -> bool:
        """Write a checkpoint; one that is being written is waited for first.

        Args:
            manifest: of it, without files and versions.
            extra: takes what else stands in ``model.pt``, in plain values.
            of_rank: takes what is the rank's own.
            is_waited_for: return once it is whole, or has failed.
            when_done: is told whether it is whole, from the thread that wrote it.

        Returns:
            False where it has failed; True where it is whole, or a thread writes it.
        """
        begun_s = self._clock.perf_s()
        self.wait()
        on_thread = self._in_background and not is_waited_for and self._has_memory()
        job = _PendingCheckpoint(replace(manifest, versions=versions()), when_done)
        try:
            if self._state.is_sharded:  # first: all ranks take part, also those where the user's objects fail below
                job = replace(job, shards=sharded_state(self._models, self._optimizers))
            state = self._state.capture(is_copied=on_thread) | extra() if self._ranks.rank == 0 else None
            job = replace(job, of_rank=of_rank(), state=state)
            self._check_plain(job)
        except Exception as error:  # of the user's objects too; the training goes on
            job = replace(job, problem=error)
        if on_thread:
            now_s = self._clock.perf_s()
            job = replace(job, blocked_s=now_s - begun_s, begun_s=now_s)
            self._is_idle.clear()
            # Only now: so it comes before the tracker's, which closes the log, and keeps no model alive in between.
            atexit.register(self._wait_at_exit)
            if start_thread("greenlove-checkpoint", lambda: self._work(job)) is None:
                return True
            self._note_idle()  # no thread is to be had
        return self._write(replace(job, blocked_s=begun_s, begun_s=None))

    def _has_memory(self) -> bool:
        n_bytes = size_bytes(self._models, self._optimizers)
        if has_memory_for(n_bytes):
            return True
        self._warn_once.warn(
            "checkpoint memory",
            f"there is no memory for a copy of the training's state ({n_bytes / 1e9:.1f} GB): checkpoints are written "
            "while the training waits",
        )
        return False

    def _check_plain(self, job: _PendingCheckpoint) -> None:
        """Warn at the first checkpoint of what a resume will not read without further ado."""
        if self._is_checked:
            return
        self._is_checked = True
        found = [*not_plain(job.state, "the state"), *not_plain(job.of_rank, "the values")]
        if found:
            self._warn_once.warn(
                "checkpoint pickles",
                f"{'; '.join(sorted(set(found))[:3])}: the checkpoint holds pickles, and is loaded only with "
                "Checkpointer(trust_pickles=True)",
            )

    def _work(self, job: _PendingCheckpoint) -> None:
        try:
            self._write(job)
        finally:
            self._note_idle()

    def _write(self, job: _PendingCheckpoint) -> bool:
        """Write a checkpoint, and tell who asked for it whether it is whole."""
        is_whole = self._written(job)
        if job.when_done is not None:
            job.when_done(is_whole)
        return is_whole

    def _written(self, job: _PendingCheckpoint) -> bool:
        """Write a checkpoint, tell the log, and delete old ones; return False where that has failed."""
        manifest = job.manifest
        name, shards = checkpoint_name(manifest.position, manifest.kind), job.shards
        try:
            written = write_together(
                self._ranks,
                lambda: self._store.draft(name),
                lambda draft: self._write_files(draft, job),
                manifest,
                write_shards=None if shards is None else lambda draft: write_sharded(draft, shards, self._ranks),
            )
        except Exception as error:  # a full disk, a store that does not answer: the one before stays
            self.problem = str(error) if isinstance(error, OSError) else first_line(error)
            self._tell(job, CheckpointAction.FAILED, name, None, self.problem)
            self._warn_once.warn(
                f"checkpoint {self.problem}",
                f"checkpoint {name} could not be written: {self.problem}. The training goes on, and so do the "
                "checkpoints before",
            )
            return False
        self.problem = ""
        self.last_name = name if written is None else written.name
        if written is not None:
            job = replace(job, manifest=written.manifest)  # with what the other ranks say
            note = "; ".join(written.manifest.not_identical)
            self._tell(job, CheckpointAction.SAVED, written.name, written.size_bytes, note)
            try:
                self._store.prune()
            except OSError as error:
                self._warn_once.warn("checkpoint prune", f"old checkpoints could not be deleted: {error}")
        return True

    def _write_files(self, draft: Draft, job: _PendingCheckpoint) -> list[CheckpointFile]:
        if job.problem is not None:
            raise job.problem
        files = [draft.write(rank_file(self._ranks.rank), lambda file: torch.save(job.of_rank, file))]
        if job.state is not None:
            files.append(draft.write(MODEL_FILE, lambda file: torch.save(job.state, file)))
        return files

    def _tell(
        self, job: _PendingCheckpoint, action: CheckpointAction, name: str, n_bytes: int | None, note: str
    ) -> None:
        """Tell the log, on the first rank."""
        if self._ranks.rank != 0:
            return
        now_s, manifest = self._clock.perf_s(), job.manifest
        self._log(
            CheckpointEvent(
                action,
                manifest.saved_at,
                manifest.kind,
                manifest.position,
                name,
                size_bytes=n_bytes,
                blocked_s=now_s - job.blocked_s if job.begun_s is None else job.blocked_s,
                written_s=None if job.begun_s is None else now_s - job.begun_s,
                is_bit_identical=manifest.is_bit_identical,
                note=note,
            )
        )

    def _note_idle(self) -> None:
        atexit.unregister(self._wait_at_exit)  # before the next one may register
        self._is_idle.set()

    def _wait_at_exit(self) -> None:
        if os.getpid() == self._pid:  # a forked child has no such thread
            self.wait(_EXIT_WAIT_S)


def saved_now(clock: Clock) -> str:
    """Return the time of a save, as manifests and logs have it."""
    return timestamp(clock.utc_s())
