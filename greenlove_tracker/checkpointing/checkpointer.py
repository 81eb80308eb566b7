"""``Checkpointer``: what a training loop goes through, so that a kill costs minutes and changes no result."""

from __future__ import annotations

import contextlib
import math
import os
import platform
import signal
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from greenlove_tracker.checkpointing.checkpoint_files import (
    Checkpoint,
    CheckpointStore,
    Draft,
    checkpoint_name,
    live_mark,
)
from greenlove_tracker.checkpointing.data_position import PositionedBatches
from greenlove_tracker.checkpointing.distributed import RankAgreement, first_line, write_together
from greenlove_tracker.checkpointing.plain_files import read_plain
from greenlove_tracker.checkpointing.rehearsal import Rehearsal, conditions, digest, loop_variables, script_sha256
from greenlove_tracker.checkpointing.termination import TerminationNotices
from greenlove_tracker.checkpointing.training_state import (
    ALL_KINDS,
    TrainingState,
    copied,
    named,
    state_beside,
    unreadable,
)
from greenlove_tracker.exploration.random_state import put_back_random_state_values, random_state_values
from greenlove_tracker.logs.writer import timestamp
from greenlove_tracker.text import console
from greenlove_tracker.text.warn_once import WarnOnce
from greenlove_tracker.tracker import Tracker
from greenlove_tracker.vocabulary.checkpoints import (
    CheckpointAction,
    CheckpointEvent,
    CheckpointFile,
    CheckpointKind,
    Manifest,
    RehearsedResume,
    TrainingPosition,
)
from greenlove_tracker.vocabulary.errors import BudgetExceeded, TerminatedExit, UsageError, whole_number
from greenlove_tracker.vocabulary.metrics import direction_of, number_of
from greenlove_tracker.vocabulary.records import Clock, RunStatus, SystemClock
from greenlove_tracker.vocabulary.version import __version__

_MODEL_FILE = "model.pt"
_RANK_FILE = "rank-{}.pt"  # what is a rank's own: random states, its position in the data
# What ranks ask for: the greatest number of all counts. A stop is _STOP and the number of the signal.
_NOTHING = 0
_REGULAR = 1
_BEST = 2
_STOP = 1000
_NO_TRACKER: Tracker = object.__new__(Tracker)  # which does nothing
_VERSIONS = {  # of what writes and reads checkpoints
    "greenlove_tracker": __version__,
    "torch": str(torch.__version__),
    "python": platform.python_version(),
}


class TrainingInterrupted(TerminatedExit):  # it is no error: the training goes on in another job
    """The job or the machine is about to end; the training's state is saved, and another job goes on from there.

    Attributes:
        code: exit code: 128 and the number of the signal.
        checkpoint: name of the emergency checkpoint; empty where it could not be written.
        reason: the name of the signal.
    """

    def __init__(self, code: int, checkpoint: str, reason: str) -> None:
        super().__init__(code)
        self.checkpoint = checkpoint
        self.reason = reason

    def __str__(self) -> str:
        if self.checkpoint:
            saved = f"saved as {self.checkpoint}"
        else:
            saved = "its last state could not be saved"
        return f"the training was interrupted by {self.reason}; {saved}"


class Checkpointer:
    """Saves a training while it runs, and goes on from there after a kill, a preemption or a time limit.

    ::

        checkpointer = Checkpointer("checkpoints", model=model, optimizer=optimizer, scheduler=scheduler)
        for epoch in checkpointer.epochs(30):
            for x, y in checkpointer.batches(train_loader):
                train_step(x, y)
            checkpointer.log_metric("accuracy", evaluate())
            scheduler.step()

    The newest whole checkpoint of the directory is loaded when it is made. The first ``batches()`` of an epoch then
    begins where the training was, with the random states that it had. Whether the result is the same, bit for bit, as
    without an interruption, ``greenlove checkpoints rehearse`` tries. Under torchrun every rank makes one, after
    ``init_process_group()`` and after the model was wrapped.

    Args:
        directory: of the checkpoints of this training, and of no other; from where the process is now, wherever it
            goes later. Or an address in a store that fsspec knows, such as ``s3://bucket/run``.
        model: one module, several, or a dict of them; averaged weights too.
        optimizer: likewise.
        scheduler: of learning rates, likewise.
        scaler: the gradient scaler of mixed precision.
        others: whatever else changes in training: objects with ``state_dict`` and ``load_state_dict``, or pairs of
            functions (save, restore); one, several, or a dict of them.
        every_s: seconds between regular checkpoints; None: none by time.
        every_steps: batches between them.
        every_epochs: epochs between them.
        best: the metric that the best checkpoint is kept by, as it is named in ``log_metric()``; None for none.
        higher_is_better: which of its values is the better one; without it the name tells, as in ``Tracker``.
        keep_last: how many checkpoints are kept, beside the best and the final one.
        signals: that save and end the training, by name.
        clock: read for all times.

    Attributes:
        values: plain values of your own, such as a running loss: saved, and put back.
        position: the progress of the training.
        resumed: the arguments that tell your own tracker of the resume: ``Tracker(30, **checkpointer.resumed)``.
        tracker: that tracks the training, while it runs; else one that does nothing.
        directory: of the checkpoints.

    Raises:
        UsageError: on a bad argument, and where the newest checkpoint is of another training.
        OSError: where the directory cannot be read.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        model: Any = None,
        optimizer: Any = None,
        scheduler: Any = None,
        scaler: Any = None,
        others: Any = (),
        every_s: float | None = 600.0,
        every_steps: int | None = None,
        every_epochs: int | None = None,
        best: str | None = None,
        higher_is_better: bool | None = None,
        keep_last: int = 3,
        signals: Sequence[str] = ("SIGTERM", "SIGUSR1"),
        clock: Clock | None = None,
    ) -> None:
        if every_s is not None and not (number_of(every_s) or 0.0) > 0:
            raise UsageError(f"every_s must be a number of seconds above 0, or None, not {every_s!r}")
        self._every_s = every_s or math.inf
        self._every_steps = math.inf if every_steps is None else whole_number("every_steps", every_steps)
        self._every_epochs = math.inf if every_epochs is None else whole_number("every_epochs", every_epochs)
        self._best = None if best is None else _Best(best, higher_is_better)
        self._clock = clock or SystemClock()
        self._notices = TerminationNotices((signals,) if isinstance(signals, str) else signals)
        self._warn_once = WarnOnce()
        of_user = named("other", others)
        beside = {**named("scheduler", scheduler), **named("scaler", scaler), **of_user}
        models = named("model", model)
        optimizers = named("optimizer", optimizer)
        self._state = TrainingState(models, optimizers, beside, has_others=bool(of_user))
        self._ranks = RankAgreement()
        self._store = CheckpointStore(directory, keep_last=keep_last)
        self.directory = self._store.path
        self._versions = {**_VERSIONS, "script": script_sha256()}
        self._rehearsal = Rehearsal.of_environment()
        if self._rehearsal is not None:
            (self._rehearsal.directory / "directory.txt").write_text(str(self.directory), "utf-8")
            self._store = CheckpointStore(self._rehearsal.directory / self._rehearsal.role)
        self.values: dict[str, Any] = {}
        self.tracker = _NO_TRACKER
        self.position = TrainingPosition()
        self._n_epochs: int | None = None
        # In the loop, or it was left before its end; in an epoch, which is open for its tracker; in a batch's body.
        self._is_looping = self._is_in_epoch = self._is_timed = self._is_batch_open = False
        self._is_pass_begun = self._is_stopped = False
        self._pass: PositionedBatches | None = None  # the first one of the epoch, or of the one before
        self._reasons = list[str]()  # why the resume may be another training: what differs from the checkpoint's
        self._at_epoch_start = dict[str, Any]()  # random states
        self._optimizer_steps = self._batches_of_step = 0
        self._counts_steps = False  # the tracker is ours: one of the user's own is told by their loop
        self._types_read = set[type]()  # of what was saved and read back
        self._left: _Resumed | None = None  # what is still to be put back in the loop
        self._resumed_from: Manifest | None = None
        self.resumed: dict[str, Any] = {}
        self._note_saved()
        self._read()
        self._rehearsed = self._rehearsal_of_this()

    # -- the loop ------------------------------------------------------------------------------------------------

    def epochs(self, n: int | None, *, tracker: Tracker | Mapping[str, Any] | bool = True) -> Iterator[int]:
        """Yield the epochs that are left, counted from 0; the one that was interrupted is yielded again.

        Args:
            n: epochs of the whole training; None where that is not known: ``stop()`` ends it.
            tracker: True tracks the training, a dict does so with these arguments of ``Tracker``; or a tracker of your
                own, made with ``**checkpointer.resumed``. False: none.

        Raises:
            UsageError: on a bad argument; in the loop: another training is live in the directory.
            TrainingInterrupted: in the loop: a signal ended it, and its state is saved.
            BudgetExceeded: in the loop: as ``Tracker.epoch_start()``; the training is saved.
        """
        if n is not None:
            n = whole_number("n", n, 0)
        if self._is_looping:
            raise UsageError(
                "epochs() is being looped over, or that loop was left before its end: make the Checkpointer anew (in a "
                "notebook, run its cell again), which goes on from the newest checkpoint"
            )
        if not isinstance(tracker, Tracker | Mapping | bool):
            raise UsageError(f"tracker must be a Tracker, a dict of its arguments, True or False, not {tracker!r}")
        return self._epochs(n, tracker)

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches of a loader; of the first loop of an epoch those that are left, saving where it is due.

        A further loop of the epoch, such as a validation, passes its batches through.

        Raises:
            UsageError: outside a loop over ``epochs()``.
            TrainingInterrupted: in the loop: as of ``epochs()``.
        """
        if not self._is_in_epoch:
            raise UsageError("call batches() inside a loop over epochs(): for epoch in checkpointer.epochs(30): …")
        return self._pass_over(loader)

    def log_metric(self, name: str, value: Any, *, higher_is_better: bool | None = None) -> None:
        """Log a value of a metric to the tracker; the best checkpoint is kept by that of ``best=``.

        It is written at the end of the epoch.

        Args:
            name: of the metric.
            value: a number, or a scalar of NumPy or torch.
            higher_is_better: which of two values is the better one; without it the name tells.
        """
        self.tracker.log_metric(name, value, higher_is_better=higher_is_better)
        if self._best is not None and name == self._best.metric:
            self._best.note(value)
        if self._rehearsal is not None:
            self._rehearsal.seen["metrics"][f"{name} of epoch {self.position.epoch + 1}"] = repr(number_of(value))

    def epoch_end(self) -> None:
        """End the epoch for its tracker here: what follows in the body, such as an evaluation, is a gap after it.

        Without this call an epoch ends with the body.

        Raises:
            SystemExit: as ``Tracker.epoch_end()``.
        """
        if self._is_timed:
            self._is_timed = False
            self.tracker.epoch_end()

    def save(self) -> None:
        """Ask for a checkpoint at the next saving point, between two batches or two epochs; rank 0's request counts."""
        self._is_asked = True

    def stop(self) -> None:
        """End the training after this epoch, as with early stopping: its checkpoint is the final one."""
        self._is_stopped = True

    # -- within the loop -----------------------------------------------------------------------------------------

    def _epochs(self, n: int | None, tracker: Tracker | Mapping[str, Any] | bool) -> Generator[int]:
        manifest = self._resumed_from
        is_final = manifest is not None and manifest.kind is CheckpointKind.FINAL and manifest.epochs == n
        if is_final or (n is not None and self.position.epoch >= n):
            if self._ranks.rank == 0:
                console.say(f"greenlove: the training in {self.directory} has finished: nothing is left to do")
            if self._left is not None:  # what follows the loop may draw
                self._put_back_random(self._left, "random")
                self._left = None
            return
        with live_mark(self._store.path if self._ranks.rank == 0 else None) as is_alone:
            if not self._ranks.gathered(is_alone)[0]:
                raise UsageError(
                    f"another training writes its checkpoints to {self.directory}, and each would delete the other's: "
                    "give this one another directory, or end that one first"
                )
            self._is_looping = True
            self._n_epochs = n
            with self._notices, self._tracking(n, tracker):
                yield from self._loop(n)

    def _loop(self, n: int | None) -> Generator[int]:
        self._note_saved()
        try:
            while (n is None or self.position.epoch < n) and not self._is_stopped:
                self._begin_epoch()
                yield self.position.epoch
                self._end_epoch()
            self._rehearse(is_over=True)
            self._save(CheckpointKind.FINAL)
            self._is_looping = False
        except (BudgetExceeded, SystemExit) as error:  # a budget, or an answer, ends it between two epochs
            is_saved = isinstance(error, TrainingInterrupted)
            if not is_saved and self._ranks.world_size == 1 and self.position.batches == 0:
                self._save(CheckpointKind.REGULAR)
            raise
        finally:
            self._is_in_epoch = False

    @contextlib.contextmanager
    def _tracking(self, n: int | None, tracker: Tracker | Mapping[str, Any] | bool) -> Iterator[None]:
        """Have the loop tracked."""
        with contextlib.ExitStack() as own:
            if isinstance(tracker, Tracker):
                self.tracker = tracker
            elif tracker is not False:
                given = dict(tracker) if isinstance(tracker, Mapping) else {}
                if n is not None or "total_steps" in given:
                    given = self.resumed | given
                self.tracker = own.enter_context(Tracker(n, **given))
                self._counts_steps = True
            try:
                yield
            except GeneratorExit:  # by an error or by break: only the end of the process tells, and closes the run
                own.pop_all()
                raise
        self.tracker = _NO_TRACKER
        self._counts_steps = False

    def _begin_epoch(self) -> None:
        self._is_pass_begun = False
        left = self._left
        is_within = self.position.batches > 0
        if left is not None:
            if not is_within:
                self._put_back(left)  # as it was between two epochs, whatever the script did since it was loaded
            self._put_back_random(left, "at_epoch_start" if is_within else "random")
        self._at_epoch_start = random_state_values()
        self.tracker.epoch_start()
        self._is_in_epoch = self._is_timed = True

    def _end_epoch(self) -> None:
        if self._left is not None:  # an epoch without batches
            self._tell_restored(self._left)
        if self._is_batch_open:  # the loop was left by break: its last batch is done all the same
            self._batch_done()
        self._is_in_epoch = False
        self._left = None
        position = self.position
        self.position = TrainingPosition(position.epoch + 1, 0, position.steps)
        self.epoch_end()
        self._rehearse()
        self._act(self._ranks.decide(self._code(is_epoch_end=True), position.steps))
        if self._ranks.decide(int(self._is_stopped), position.steps):
            self._is_stopped = True

    def _pass_over(self, loader: Iterable[Any]) -> Generator[Any]:
        """Yield what is left of the epoch's first pass, with saving points; of a further one, all of it."""
        longest = None if self._rehearsal is None else self._rehearsal.longest_epoch
        if self._is_pass_begun:
            yield from islice(loader, longest)
            return
        self._is_pass_begun = True
        batches = self._begin_pass(loader)
        while self.position.batches != longest:
            try:
                batch = next(batches)
            except StopIteration:
                return
            except Exception:
                # A notice's signal has ended the workers too. With more ranks others may be a step ahead; and a
                # pass that has only begun is no position of its own.
                if self._ranks.world_size == 1 and self.position.batches:
                    self._act(self._code())
                raise
            self._is_batch_open = True
            self._state.batch_begins()
            if self._rehearsal is not None:
                self._rehearsal.seen["batches"][str(self.position.steps)] = digest(batch)
            yield batch
            self._batch_done()
            self._rehearse()
            self._act(self._ranks.decide(self._code(), self.position.steps))

    def _begin_pass(self, loader: Iterable[Any]) -> PositionedBatches:
        """Begin the epoch's first pass; where the training is resumed in it, go to where that was."""
        left = self._left
        self._left = None
        resume = None
        if left is not None:
            resume = left.of_rank["data"]
            if resume is not None and not left.is_of_this_rank:  # or the ranks would draw alike
                resume = resume | {"random_states": {}, "generators": {"before": [], "now": []}, "own": None}
        positioned = PositionedBatches(loader)
        is_replayed = left is not None and self.position.batches > 0
        with self._gap(is_one=is_replayed):
            began_s = self._clock.perf_s()
            positioned.begin(resume)
            replay_s = self._clock.perf_s() - began_s if is_replayed else 0.0
        if left is not None:
            if is_replayed:  # what the loop did before its batches, and the replay, have changed it
                self._put_back(left)
                self._put_back_random(left, "random")
            self._reasons += positioned.differs
            self._tell_restored(left, replay_s)
        self._pass = positioned
        return positioned

    @contextlib.contextmanager
    def _gap(self, *, is_one: bool) -> Iterator[None]:
        """Have the time of the block counted as none of the epoch's."""
        if is_one:
            self.tracker.pause()
        yield
        if is_one:
            self.tracker.resume()

    def _batch_done(self) -> None:
        """Count a batch; and the optimizer's steps, with the batches each was accumulated over, for our tracker."""
        self._is_batch_open = False
        position = self.position
        self.position = TrainingPosition(position.epoch, position.batches + 1, position.steps + 1)
        self._batches_of_step += 1
        if self._state.has_stepped:
            n_batches = self._batches_of_step
            self._batches_of_step = 0
            self._optimizer_steps += 1
            if self._counts_steps:
                self.tracker.step(n_batches=n_batches)

    def _code(self, *, is_epoch_end: bool = False) -> int:
        """Return what this rank asks for at a saving point; within an epoch nothing while gradients are growing."""
        if self._rehearsal is not None or (not is_epoch_end and self._state.has_growing_gradients):
            return _NOTHING
        notice = self._notices.notice
        if notice is not None:
            event = CheckpointEvent(
                CheckpointAction.NOTICED, timestamp(self._clock.utc_s()), position=self.position, note=notice.name
            )
            self.tracker.log_checkpoint(event)
            return _STOP + notice
        if self._ranks.rank != 0:
            return _NOTHING  # the first rank's clock counts
        if is_epoch_end and self._best is not None and self._best.is_pending:
            return _BEST
        is_last = is_epoch_end and self.position.epoch == self._n_epochs  # the final one follows
        if not is_last and self._is_due(is_epoch_end=is_epoch_end):
            return _REGULAR
        return _NOTHING

    def _is_due(self, *, is_epoch_end: bool) -> bool:
        by_time = self._clock.perf_s() - self._saved_s >= self._every_s
        by_steps = self.position.steps - self._saved_at.steps >= self._every_steps
        by_epochs = self.position.epoch - self._saved_at.epoch >= self._every_epochs
        return self._is_asked or by_time or by_steps or (is_epoch_end and by_epochs)

    def _act(self, code: int) -> None:
        """Do what the ranks agreed on.

        Raises:
            TrainingInterrupted: where the training is to end.
        """
        if self._ranks.problem:
            self._warn_once.warn("checkpoint ranks", self._ranks.problem)
        if code == _REGULAR:
            self._save(CheckpointKind.REGULAR)
        elif code == _BEST:
            self._save(CheckpointKind.BEST)
        elif code >= _STOP:
            saved = self._save(CheckpointKind.EMERGENCY)
            self._notices.is_answered = True
            self.tracker.stop(status=RunStatus.TERMINATED)
            number = signal.Signals(code - _STOP)  # of whichever rank
            error = TrainingInterrupted(128 + number, saved, number.name)
            if self._ranks.rank == 0:
                console.say(f"greenlove: {error}. Start the same command again to go on")
            raise error

    # -- a rehearsal ---------------------------------------------------------------------------------------------

    def _rehearse(self, *, is_over: bool = False) -> None:
        """Save and write down what a rehearsal asks for at this saving point; at last it ends the process."""
        rehearsal = self._rehearsal
        if rehearsal is None:
            return
        point = rehearsal.due(self.position, self._n_epochs)
        is_within_step = self.position.batches > 0 and self._state.has_growing_gradients
        if point and not self._ranks.decide(int(is_within_step)):
            self._store = CheckpointStore(rehearsal.directory / point)
            if not self._save(CheckpointKind.REGULAR):
                raise UsageError("the training cannot be rehearsed: its checkpoint could not be written, as was warned")
            rehearsal.saved_at(point, self.position, self._n_epochs)
        if rehearsal.write(self._ranks.rank, self.position, self._held, is_over=is_over):
            self._ranks.gathered(None)  # or a launcher would end the ranks that still write
            os._exit(0)

    def _held(self) -> dict[str, Any]:
        """Return what a rehearsal compares: what a checkpoint holds, and what may be the reason of a difference."""
        held = dict(self._state.shards())
        for content in self._files().values():
            held |= content
        held |= {name: digest(state) for name, state in held.pop("random").items()}
        held |= held.pop("parts", {})
        data = held.pop("data")
        if data is not None:
            held["generators of the loader"] = digest(data["generators"]["now"])
        del held["at_epoch_start"]
        along = self._state.not_passed(ALL_KINDS)
        beside = {name: digest(state_beside(thing)) for name, thing in along.items()}
        return {"held": held, "beside": beside, "variables": loop_variables()}

    @property
    def _is_bit_identical(self) -> bool | None:
        return None if self._rehearsed is None else not self._rehearsed.differs

    def _rehearsal_of_this(self) -> RehearsedResume | None:
        """Return what a rehearsal of this very training has found."""
        found = self._store.rehearsal()
        if found is not None and found.conditions == conditions(self._ranks.world_size, self._versions):
            return found
        return None

    # -- saving --------------------------------------------------------------------------------------------------

    def _save(self, kind: CheckpointKind) -> str:
        """Write a checkpoint of the training as it is now, and delete old ones; return its name, empty for none."""
        begun_s = self._clock.perf_s()
        name = checkpoint_name(self.position, kind)
        problem = ""
        manifest = Manifest(
            kind,
            self.position,
            timestamp(self._clock.utc_s()),
            self._ranks.world_size,
            run_id="" if self.tracker.run_dir is None else self.tracker.run_dir.name,
            epochs=self._n_epochs,
            conditions=conditions(self._ranks.world_size, self._versions),
            holds=("random states", "position in the data", *self._state.names, *map("values.{}".format, self.values)),
            not_passed=self._not_passed,
            is_bit_identical=self._is_bit_identical,
        )
        if kind is CheckpointKind.BEST and self._best is not None:
            self._best.is_pending = False
            manifest = replace(manifest, metric=self._best.metric, metric_value=self._best.value)
        size_bytes: int | None = None
        writers: list[Callable[[Draft], list[CheckpointFile]]] = [
            self._write_files,
            partial(self._state.write_shards, ranks=self._ranks),
        ]
        with self._gap(is_one=self._is_in_epoch):
            try:
                written = write_together(self._ranks, partial(self._store.draft, name), writers, manifest)
                name = written.name
                size_bytes = written.size_bytes
                manifest = written.manifest  # with what the other ranks say
                if self._ranks.rank == 0:
                    self._store.prune()
            except Exception as error:  # such as a full disk: the one before stays
                if isinstance(error, OSError):
                    problem = str(error)
                else:
                    problem = first_line(error)
                self._warn_once.warn(
                    f"checkpoint {problem}", f"checkpoint {name} could not be written: {problem}. The training goes on"
                )
        if self._ranks.rank == 0:
            self.tracker.log_checkpoint(
                CheckpointEvent(
                    CheckpointAction.FAILED if problem else CheckpointAction.SAVED,
                    manifest.saved_at,
                    manifest.kind,
                    manifest.position,
                    name,
                    size_bytes=size_bytes,
                    blocked_s=self._clock.perf_s() - begun_s,
                    is_bit_identical=manifest.is_bit_identical,
                    note=problem,
                )
            )
        self._note_saved()
        return "" if problem else name

    @cached_property
    def _not_passed(self) -> tuple[str, ...]:
        """What trains along and was not passed, at the first save; a warning says it."""
        found = tuple(self._state.not_passed())
        if found and self._ranks.rank == 0:
            self._warn_once.warn("not passed", f"no checkpoint holds what was not passed: {', '.join(found)}")
        return found

    def _write_files(self, draft: Draft) -> list[CheckpointFile]:
        """Write this rank's files; the first one of each kind of content is read back.

        Raises:
            OSError: where one cannot be written.
            UsageError: where one cannot be read back; it names the value.
        """
        files = list[CheckpointFile]()
        for name, content in self._files().items():
            types = set(map(type, tree_leaves(content)))
            try:
                files.append(draft.write(name, partial(torch.save, content)))
                if not types <= self._types_read:
                    read_plain(draft.directory / name, "meta")
            except OSError:
                raise
            except Exception as error:  # of pickle, torch, or a user's object
                raise UsageError(
                    f"{unreadable(content)} cannot be saved and read back: keep plain values instead, or give its type "
                    "to torch.serialization.add_safe_globals()"
                ) from error
            self._types_read |= types
        return files

    def _files(self) -> dict[str, Any]:
        """Return what this rank writes, by the name of the file."""
        data = None if self._left is None else self._left.of_rank["data"]  # no pass has begun since
        of_rank = {
            "random": random_state_values(),
            "at_epoch_start": self._at_epoch_start,
            "data": data if self._pass is None else self._pass.state(is_epoch_end=self.position.batches == 0),
            "values": self.values,
            "steps": (self._optimizer_steps, self._batches_of_step),
            **self._state.capture_of_rank(),
        }
        files = {_RANK_FILE.format(self._ranks.rank): of_rank}
        if self._ranks.rank == 0:
            best = None
            if self._best is not None:
                best = (self._best.metric, self._best.value)
            files[_MODEL_FILE] = self._state.capture() | {"best": best}
        return files

    def _note_saved(self) -> None:
        self._saved_s = self._clock.perf_s()
        self._saved_at = self.position
        self._is_asked = False

    # -- resuming ------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Load the newest whole checkpoint, where there is one; damaged ones are said and passed over."""
        began_s = self._clock.perf_s()
        found = None
        if self._ranks.rank == 0:
            found, damaged = self._store.newest_whole()
            for sentence in damaged:
                self._warn_once.warn(sentence, f"{sentence} The newest whole checkpoint before it is used")
        name = self._ranks.gathered("" if found is None else found.name)[0]
        if not name:
            return
        found = found or next((one for one in self._store.listing() if one.name == name), None)
        if found is None:
            raise OSError(f"rank {self._ranks.rank} does not see {name}: do all ranks share the directory?")
        manifest = found.manifest
        is_of_this_rank = manifest.world_size == self._ranks.world_size
        for name, now in conditions(self._ranks.world_size, self._versions).items():
            was = manifest.conditions.get(name)
            if name == "script" and now != was:
                self._reasons.append("the script or its arguments are others")
            elif now != was:
                self._reasons.append(f"{name} {now} instead of {was}")
        rank = self._ranks.rank
        if rank >= manifest.world_size:
            rank = 0
        with found.local_directory() as directory:
            state = read_plain(directory / _MODEL_FILE)
            of_rank = read_plain(directory / _RANK_FILE.format(rank))
            if state.get("is_sharded"):
                self._state.load_shards(directory, self._ranks)
        left = _Resumed(found, state, of_rank, is_of_this_rank)
        self._left = left
        self._put_back(left, is_in_loop=False)
        self._resumed_from = manifest
        self.position = manifest.position
        if self._rehearsal is not None:
            self._rehearsal.saved_at(self._rehearsal.role, self.position, None)
        self._optimizer_steps, self._batches_of_step = of_rank["steps"]
        self.resumed = {"first_epoch": self.position.epoch, "first_step": self._optimizer_steps}
        if manifest.run_id:
            self.resumed["continues"] = manifest.run_id
        if self._best is not None and state["best"] is not None and state["best"][0] == self._best.metric:
            self._best.value = state["best"][1]
        left.read_s = self._clock.perf_s() - began_s
        if self._ranks.rank == 0:
            console.say(f"greenlove: resuming from {found.name}")

    def _put_back(self, left: _Resumed, *, is_in_loop: bool = True) -> None:
        """Put back models, optimizers and all else but shards and random states.

        Raises:
            UsageError: where it is of another training.
        """
        self._state.load(left.state, left.of_rank, is_in_loop=is_in_loop)
        self.values.clear()
        self.values.update(copied(left.of_rank["values"]))

    def _put_back_random(self, left: _Resumed, key: str) -> None:
        """Put back the random states of this rank; another's would make the ranks draw alike."""
        if left.is_of_this_rank and (missing := put_back_random_state_values(left.of_rank[key])):
            self._reasons.append(f"not put back: {', '.join(missing)}")

    def _tell_restored(self, left: _Resumed, replay_s: float | None = None) -> None:
        """Tell the log of the resume, once the training is where it was."""
        if self._ranks.rank != 0:
            return
        manifest = left.checkpoint.manifest
        reasons = "; ".join(dict.fromkeys(self._reasons))
        if reasons:
            self._warn_once.warn("conditions", f"the training goes on under other conditions: {reasons}")
        rehearsed = "not rehearsed" if self._rehearsed is None else self._rehearsed.sentence
        self.tracker.log_checkpoint(
            CheckpointEvent(
                CheckpointAction.RESTORED,
                timestamp(self._clock.utc_s()),
                manifest.kind,
                manifest.position,
                left.checkpoint.name,
                size_bytes=left.checkpoint.size_bytes,
                blocked_s=left.read_s,
                replay_s=replay_s,
                replayed_batches=None if replay_s is None else manifest.position.batches,
                from_run=manifest.run_id,
                saved_at=manifest.saved_at,
                is_bit_identical=self._is_bit_identical,
                note="; ".join([rehearsed, *self._reasons]),
            )
        )


@dataclass
class _Resumed:
    """A checkpoint that a training goes on from.

    Attributes:
        checkpoint: that was read.
        state: content of ``model.pt``.
        of_rank: content of the file of this rank; of the first rank's, where this one has none.
        is_of_this_rank: random states and the position in the data are those of this rank.
        read_s: that reading it took.
    """

    checkpoint: Checkpoint
    state: dict[str, Any]
    of_rank: dict[str, Any]
    is_of_this_rank: bool
    read_s: float = 0.0


class _Best:
    """The best value of a metric.

    Args:
        metric: its name.
        higher_is_better: which of two values is the better one; None: the name tells.

    Raises:
        UsageError: where nobody tells.
    """

    def __init__(self, metric: str, higher_is_better: bool | None) -> None:
        direction = higher_is_better
        if direction is None:
            direction = direction_of(metric)
        if direction is None:
            raise UsageError(f"best={metric!r}: its name does not tell which values are better; give higher_is_better=")
        self.metric = metric
        self._higher = direction
        self.value: float | None = None
        self.is_pending = False  # better than the one that was taken

    def note(self, value: Any) -> None:
        """Compare a value with the best before."""
        number = number_of(value)
        if number is None or math.isnan(number):
            return
        if self.value is None or (number > self.value if self._higher else number < self.value):
            self.value = number
            self.is_pending = True
