"""Writes checkpoints beside the training: a copy of the state is taken, and a thread of its own writes it."""

from __future__ import annotations

import platform
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from typing import Any

import torch

import greenlove_tracker
from greenlove_tracker.checkpointing.checkpoint_files import CheckpointStore, Draft, checkpoint_name
from greenlove_tracker.checkpointing.distributed import RankAgreement, first_line, write_together
from greenlove_tracker.checkpointing.sharded_states import write_sharded
from greenlove_tracker.checkpointing.training_state import copied, has_memory_for_copy
from greenlove_tracker.checkpoints import CheckpointAction, CheckpointEvent, CheckpointFile, Manifest
from greenlove_tracker.records import Clock
from greenlove_tracker.tracker.state import WarnOnce

MODEL_FILE = "model.pt"
RANK_FILE = "rank-{}.pt"  # what is a rank's own: random states, its position in the data


def versions() -> dict[str, str]:
    """Return the versions of what writes and reads checkpoints."""
    return {
        "greenlove_tracker": greenlove_tracker.__version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
    }


class CheckpointWriter:
    """Writes the checkpoints of a training, one at a time.

    Args:
        store: where they are written.
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
        ranks: RankAgreement,
        *,
        in_background: bool,
        clock: Clock,
        log: Callable[[CheckpointEvent], None],
        warn_once: WarnOnce,
    ) -> None:
        self._store, self._ranks, self._clock, self._log, self._warn_once = store, ranks, clock, log, warn_once
        self._in_background = in_background
        self._threads = ThreadPoolExecutor(1, "greenlove-checkpoint")  # a process waits for it at its end
        self._writing: Future[None] | None = None
        self.last_name = ""
        self.problem = ""

    @property
    def is_busy(self) -> bool:
        """True while a thread writes."""
        return self._writing is not None and not self._writing.done()

    def wait(self) -> None:
        """Wait until nothing is being written."""
        if self._writing is not None:
            wait([self._writing])

    def save(
        self,
        manifest: Manifest,
        take: Callable[[], dict[str, Any]],
        take_shards: Callable[[], dict[str, Any]] | None,
        *,
        is_waited_for: bool,
    ) -> None:
        """Write a checkpoint; one that is being written is waited for first.

        Args:
            manifest: of it, without files and versions.
            take: takes what this rank writes, by the name of the file.
            take_shards: takes its part of what is sharded; of all ranks or of none.
            is_waited_for: return once it is whole, or has failed.
        """
        begun_s = self._clock.perf_s()
        self.wait()
        manifest = replace(manifest, versions=versions())
        files, shards = dict[str, Any](), None
        problem: Exception | None = None
        on_thread = self._in_background and not is_waited_for
        try:
            if take_shards is not None:  # first: all ranks take part, also those where the user's objects fail below
                shards = take_shards()
            files = take()
            if on_thread and not has_memory_for_copy(files):
                self._warn_once.warn(
                    "checkpoint memory",
                    "there is no memory for a copy of the training's state: checkpoints are written while the training "
                    "waits",
                )
                on_thread = False
            if on_thread:
                files = copied(files)
        except Exception as error:  # of the user's objects too; the training goes on, and the other ranks are told
            problem = error
        if on_thread:
            blocked_s = self._clock.perf_s() - begun_s
            self._writing = self._threads.submit(self._write, manifest, files, shards, problem, begun_s, blocked_s)
        else:
            self._write(manifest, files, shards, problem, begun_s)

    def _write(
        self,
        manifest: Manifest,
        files: dict[str, Any],
        shards: dict[str, Any] | None,
        problem: Exception | None,
        begun_s: float,
        blocked_s: float | None = None,
    ) -> None:
        """Write a checkpoint, tell the log, and delete old ones."""

        def write(draft: Draft) -> list[CheckpointFile]:
            if problem is not None:
                raise problem
            return [draft.write(name, partial(torch.save, content)) for name, content in files.items()]

        name = checkpoint_name(manifest.position, manifest.kind)
        write_shards = None if shards is None else lambda draft: write_sharded(draft, shards, self._ranks)
        action, n_bytes, self.problem = CheckpointAction.SAVED, None, ""
        try:
            written = write_together(
                self._ranks, lambda: self._store.draft(name), write, manifest, write_shards=write_shards
            )
        except Exception as error:  # a full disk, a store that does not answer: the one before stays
            self.problem = str(error) if isinstance(error, OSError) else first_line(error)
            action, note = CheckpointAction.FAILED, self.problem
            self._warn_once.warn(
                f"checkpoint {self.problem}",
                f"checkpoint {name} could not be written: {self.problem}. The training goes on, and so do the "
                "checkpoints before",
            )
        else:
            if written is not None:  # on the first rank, with what the other ranks say
                name, manifest, n_bytes = written.name, written.manifest, written.size_bytes
            self.last_name, note = name, "; ".join(manifest.not_identical)
        if self._ranks.rank == 0:
            took_s = self._clock.perf_s() - begun_s
            self._log(
                CheckpointEvent(
                    action,
                    manifest.saved_at,
                    manifest.kind,
                    manifest.position,
                    name,
                    size_bytes=n_bytes,
                    blocked_s=took_s if blocked_s is None else blocked_s,
                    written_s=None if blocked_s is None else took_s - blocked_s,
                    is_bit_identical=manifest.is_bit_identical,
                    note=note,
                )
            )
            if not self.problem:
                self._prune()

    def _prune(self) -> None:
        try:
            self._store.prune()
        except Exception as error:  # of a store's own package too
            self._warn_once.warn("checkpoint prune", f"old checkpoints could not be deleted: {error}")
