"""``Checkpointer``: what a training loop goes through, so that a kill costs minutes and changes no result."""

from __future__ import annotations

import contextlib
import math
import os
import signal
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from greenlove_tracker.checkpointing.checkpoint_files import Checkpoint, CheckpointStore, Draft, checkpoint_name
from greenlove_tracker.checkpointing.data_position import PositionedBatches
from greenlove_tracker.checkpointing.distributed import RankAgreement
from greenlove_tracker.checkpointing.plain_files import check_readable, read_plain
from greenlove_tracker.checkpointing.rehearsal import Rehearsal, conditions, digest, loop_variables
from greenlove_tracker.checkpointing.termination import TerminationNotices
from greenlove_tracker.checkpointing.training_state import ALL_KINDS, TrainingState, named
from greenlove_tracker.exploration.random_state import Values, copied, put_back_random_state_values, random_state_values
from greenlove_tracker.files.locks import directory_lock
from greenlove_tracker.logs.writer import timestamp
from greenlove_tracker.text import console
from greenlove_tracker.text.warn_once import WarnOnce
from greenlove_tracker.tracker import Tracker
from greenlove_tracker.vocabulary.checkpoints import (
    REHEARSAL_VARIABLE,
    CheckpointAction,
    CheckpointEvent,
    CheckpointFile,
    CheckpointKind,
    Manifest,
    TrainingPosition,
)
from greenlove_tracker.vocabulary.errors import BudgetExceeded, TrainingInterrupted, UsageError, whole_number
from greenlove_tracker.vocabulary.metrics import direction_of, number_of
from greenlove_tracker.vocabulary.records import Clock, RunStatus, SystemClock

_MODEL_FILE = "model.pt"
_RANK_FILE = "rank-{}.pt"  # what is a rank's own: random states, its position in the data
# What ranks ask for: the greatest number of all counts. 1 is a checkpoint, and _STOP comes with the number of a signal.
_BEST = 2
_STOP = 1000
_NO_TRACKER = object.__new__(Tracker)  # which does nothing


class _Phase(IntEnum):
    IDLE = 0  # it has not begun, or has come to its end
    BETWEEN_EPOCHS = 1  # or it was left before its end
    EPOCH_ENDED = 2  # in its body, and the tracker was told so
    EPOCH = 3  # in its body, before the first batch
    BATCH = 4  # in the body of a batch
    BEHIND_BATCH = 5  # in the body of an epoch, between two batches or behind the last


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
        self._best = _Best(best, higher_is_better)
        self._clock = clock or SystemClock()
        self._notices = TerminationNotices((signals,) if isinstance(signals, str) else signals)
        self._warn_once = WarnOnce()
        beside = named("scheduler", scheduler) | named("scaler", scaler)
        optimizers = named("optimizer", optimizer)
        self._state = TrainingState(named("model", model), optimizers, beside, named("other", others))
        self._ranks = RankAgreement()
        self._is_first = self._ranks.rank == 0
        self._store = CheckpointStore(directory, keep_last=keep_last)
        self.directory = self._store.path
        self._rehearsed = "not rehearsed"
        self._is_bit_identical: bool | None = None
        self._conditions = conditions(self._ranks.world_size)
        rehearsed = self._store.rehearsal()
        if rehearsed is not None and rehearsed.conditions == self._conditions:
            self._rehearsed = rehearsed.sentence
            self._is_bit_identical = not rehearsed.differs
        place = os.environ.get(REHEARSAL_VARIABLE)
        if place:
            self._store = CheckpointStore(place)
        self.values = Values()
        self.tracker = _NO_TRACKER
        self.position = TrainingPosition()
        self.resumed = Values()
        self._phase = _Phase.IDLE
        self._is_stopped = False
        self._finished_after: int | None = -1  # epochs, as the final checkpoint says that was resumed
        self._resume: _Resume | None = None  # until the loop is where that was
        self._reasons = list[str]()  # why a resume may go on otherwise: what differs from the training that was saved
        self._pass: PositionedBatches | None = None  # the first one of the epoch, or of the one before
        self._optimizer_steps = 0
        self._batches_of_step = 0
        self._metrics = Values()  # values by name and epoch, as a rehearsal compares them
        self._types_read = set[type]()  # of what was saved and read back
        self._read()
        self._rehearsal = Rehearsal(Path(place), self.directory, self.position) if place else None

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
        if self._phase is not _Phase.IDLE:
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
        if self._phase <= _Phase.BETWEEN_EPOCHS:
            raise UsageError("call batches() inside a loop over epochs(): for epoch in checkpointer.epochs(30): …")
        return self._batches(loader)

    def log_metric(self, name: str, value: Any, *, higher_is_better: bool | None = None) -> None:
        """Log a value of a metric to the tracker; the best checkpoint is kept by that of ``best=``.

        It is written at the end of the epoch.

        Args:
            name: of the metric.
            value: a number, or a scalar of NumPy or torch.
            higher_is_better: which of two values is the better one; without it the name tells.
        """
        self.tracker.log_metric(name, value, higher_is_better=higher_is_better)
        number = number_of(value)
        self._metrics[f"{name} of epoch {self.position.epoch + 1}"] = number
        self._best.note(name, number)

    def epoch_end(self) -> None:
        """End the epoch for its tracker here: what follows in the body, such as an evaluation, is a gap after it.

        Without this call an epoch ends with the body.

        Raises:
            SystemExit: as ``Tracker.epoch_end()``.
        """
        self._batch_done()
        if self._phase >= _Phase.EPOCH:
            self._phase = _Phase.EPOCH_ENDED
            self.tracker.epoch_end()

    def save(self) -> None:
        """Ask for a checkpoint at the next saving point, between two batches or two epochs; rank 0's request counts."""
        self._is_asked = True

    def stop(self) -> None:
        """End the training after this epoch, as with early stopping: its checkpoint is the final one."""
        self._is_stopped = True

    # -- within the loop -----------------------------------------------------------------------------------------

    def _epochs(self, n: int | None, tracker: Tracker | Mapping[str, Any] | bool) -> Generator[int]:
        self._n_epochs = n
        if n == self._finished_after or (n is not None and self.position.epoch >= n):
            if self._is_first:
                console.say(f"greenlove: the training in {self.directory} has finished: nothing is left to do")
            if self._resume is not None:  # what follows the loop may draw
                put_back_random_state_values(self._resume.of_rank["at_epoch_start"])
                self._resume = None
            return
        path = self._store.path
        lock = directory_lock(path) if self._is_first and isinstance(path, Path) else contextlib.nullcontext(True)
        with lock as is_alone, self._notices, contextlib.ExitStack() as own:
            if not self._ranks.gathered(is_alone)[0]:
                raise UsageError(
                    f"another training writes its checkpoints to {self.directory}, and each would delete the other's: "
                    "give this one another directory, or end that one first"
                )
            self._phase = _Phase.BETWEEN_EPOCHS
            self._note_saved()
            if isinstance(tracker, Tracker):
                self.tracker = tracker
            elif tracker is not False:
                given = {} if tracker is True else dict(tracker)
                self.tracker = own.enter_context(Tracker(n, **self.resumed | given))
            self._counts_steps = self.tracker is not tracker  # one of the user's own is told by their loop
            try:
                while not self._is_over:
                    self._begin_epoch()
                    yield self.position.epoch
                    self._end_epoch()
            except GeneratorExit:  # by an error or by break: only the end of the process tells, and closes the run
                self._phase = _Phase.BETWEEN_EPOCHS
                own.pop_all()
                raise
            except (BudgetExceeded, SystemExit):  # a budget, or an answer, ends it between two epochs
                is_new = self.position.batches == 0 and self.position != self._saved_at
                if is_new and self._ranks.world_size == 1:
                    self._save(CheckpointKind.REGULAR)
                raise
            self._save(CheckpointKind.FINAL)
        self._phase = _Phase.IDLE
        self.tracker = _NO_TRACKER

    def _begin_epoch(self) -> None:
        if self._resume is not None:
            # Whatever the script did since; within an epoch its body is still to add groups to the optimizers.
            self._put_back(self._resume, is_in_loop=self.position.batches == 0)
            states = self._resume.of_rank["at_epoch_start"]
            missing = put_back_random_state_values(states)
            if states:  # there are none from another number of ranks
                self._reasons += map("not put back: {}".format, missing)
        self._random_at_epoch_start = random_state_values()
        self.tracker.epoch_start()
        self._phase = _Phase.EPOCH

    def _end_epoch(self) -> None:
        self._tell_restored()  # an epoch without batches
        self._batch_done()  # of a loop that was left by break
        self.position = TrainingPosition(self.position.epoch + 1, 0, self.position.steps)
        self.epoch_end()
        self._phase = _Phase.BETWEEN_EPOCHS
        self._is_stopped |= self._ranks.decide(self._is_stopped, self.position.steps) > 0
        self._saving_point()

    def _batches(self, loader: Iterable[Any]) -> Generator[Any]:
        """Yield what is left of the epoch's first pass, with saving points; of a further one, all of it."""
        longest = None if self._rehearsal is None else self._rehearsal.longest_epoch
        if self._phase is not _Phase.EPOCH:
            yield from islice(loader, longest)
            return
        self._phase = _Phase.BEHIND_BATCH
        self._pass = batches = PositionedBatches(loader)
        self._begin_pass(batches)
        try:
            for batch in batches:
                self._state.batch_begins()
                self._phase = _Phase.BATCH
                yield batch
                self._batch_done()
                self._saving_point()
                if self.position.batches == longest:
                    return
        except Exception:
            # A notice's signal ends the workers of a loader too. With more ranks others may be a step ahead; and a
            # pass that has only begun is no position of its own.
            if self._ranks.world_size == 1 and self.position.batches:
                self._saving_point()
            raise

    def _begin_pass(self, batches: PositionedBatches) -> None:
        resume = self._resume
        if resume is None:
            batches.begin({})
            return
        self.tracker.pause()
        began_s = self._clock.perf_s()
        batches.begin(resume.of_rank["data"])
        replay_s = self._clock.perf_s() - began_s
        self.tracker.resume()
        if self.position.batches:  # what the loop did before its batches has changed it
            self._put_back(resume)
        if batches.differ:
            self._reasons.append("the batches are others")
        self._tell_restored(replay_s)

    def _batch_done(self) -> None:
        """Count the batch that is open; and the optimizer's steps, with the batches of each, for our tracker."""
        if self._phase is not _Phase.BATCH:
            return
        self._phase = _Phase.BEHIND_BATCH
        position = self.position
        self.position = TrainingPosition(position.epoch, position.batches + 1, position.steps + 1)
        self._batches_of_step += 1
        if self._state.has_stepped:
            self._optimizer_steps += 1
            if self._counts_steps:
                self.tracker.step(n_batches=self._batches_of_step)
            self._batches_of_step = 0

    @property
    def _is_over(self) -> bool:
        return self._is_stopped or self.position.epoch == self._n_epochs

    # -- saving points -------------------------------------------------------------------------------------------

    @property
    def _is_within_step(self) -> bool:
        return self.position.batches > 0 and self._state.has_growing_gradients

    def _saving_point(self) -> None:
        """Save where one of the ranks asks for it.

        Raises:
            TrainingInterrupted: where the training is to end.
        """
        if self._rehearsal is not None:
            if not self._is_within_step:
                is_over = self.position.batches == 0 and self._is_over
                self._rehearsal.saving_point(
                    self._ranks, self.position, self._n_epochs, self._save_rehearsed, self._held, is_over=is_over
                )
            return
        code = self._ranks.decide(self._wish(), self.position.steps)
        if code < _STOP:
            if code:
                self._save(CheckpointKind.BEST if code == _BEST else CheckpointKind.REGULAR)
            return
        number = signal.Signals(code - _STOP)  # of whichever rank
        now = timestamp(self._clock.utc_s())
        self.tracker.log_checkpoint(
            CheckpointEvent(CheckpointAction.NOTICED, now, position=self.position, note=number.name)
        )
        saved = self._save(CheckpointKind.EMERGENCY)
        self._notices.notice = None  # it is answered
        self.tracker.stop(status=RunStatus.TERMINATED)
        error = TrainingInterrupted(128 + number, saved, number.name)
        if self._is_first:
            console.say(f"greenlove: {error}. Start the same command again to go on")
        raise error

    def _wish(self) -> int:
        """Return what this rank asks for; within an epoch nothing while gradients are growing."""
        is_between = self.position.batches == 0
        if self._is_within_step:
            return 0
        if self._notices.notice is not None:
            return _STOP + self._notices.notice
        if not self._is_first:  # the first rank's clock counts
            return 0
        if is_between and self._best.is_pending:
            self._best.is_pending = False
            return _BEST
        if is_between and self._is_over:  # the final one follows
            return 0
        by_time = self._clock.perf_s() - self._saved_s >= self._every_s
        by_steps = self.position.steps - self._saved_at.steps >= self._every_steps
        by_epochs = self.position.epoch - self._saved_at.epoch >= self._every_epochs
        return self._is_asked or by_time or by_steps or by_epochs

    # -- a rehearsal ---------------------------------------------------------------------------------------------

    def _save_rehearsed(self, place: Path) -> None:
        """Save for a rehearsal.

        Raises:
            UsageError: where it cannot be written.
        """
        self._store = CheckpointStore(place)
        if not self._save(CheckpointKind.REGULAR):
            raise UsageError("the training cannot be rehearsed: its checkpoint could not be written, as was warned")

    def _held(self) -> Values:
        """Return what a rehearsal compares: what a checkpoint holds, and what may be the reason of a difference."""
        along = self._state.not_passed(ALL_KINDS)
        return {
            "held": {
                "values": self.values,
                "steps": self._optimizer_steps,
                **self._state.capture_of_rank(),
                **{name: digest(state) for name, state in random_state_values().items()},
                **self._state.held(),
                "generators of the loader": self._pass and digest(self._pass.random_states()),
            },
            "metrics": self._metrics,
            "beside": {name: digest(thing.state_dict()) for name, thing in along.items()},
            "batches": {f"{self.position}": self._pass and self._pass.first},  # those of other positions tell nothing
            "variables": loop_variables(),
        }

    # -- saving --------------------------------------------------------------------------------------------------

    def _save(self, kind: CheckpointKind) -> str:
        """Write a checkpoint of the training as it is now, and delete old ones; return its name, empty for none."""
        began_s = self._clock.perf_s()
        is_timed = self._phase >= _Phase.EPOCH
        problem = ""
        manifest = Manifest(
            kind,
            self.position,
            timestamp(self._clock.utc_s()),
            self._ranks.world_size,
            run_id=getattr(self.tracker.run_dir, "name", ""),
            epochs=self._n_epochs,
            metric=self._best.metric,
            metric_value=self._best.value,
            conditions=self._conditions,
            holds=("random states", "position in the data", *self._state.names, *map("values.{}".format, self.values)),
            not_passed=self._not_passed,
            is_bit_identical=self._is_bit_identical,
        )
        if is_timed:
            self.tracker.pause()
        saved = Checkpoint(checkpoint_name(self.position, kind), manifest, self._store.path)
        try:
            saved = self._write(saved)
        except Exception as error:  # such as a full disk, or of a store: the one before stays
            problem = str(error)
            self._warn_once.warn(
                f"checkpoint {problem}",
                f"checkpoint {saved.name} could not be written: {problem}. The training goes on",
            )
        if is_timed:
            self.tracker.resume()
        if self._is_first:
            self.tracker.log_checkpoint(
                CheckpointEvent(
                    CheckpointAction.FAILED if problem else CheckpointAction.SAVED,
                    manifest.saved_at,
                    kind,
                    self.position,
                    saved.name,
                    size_bytes=saved.size_bytes or None,
                    blocked_s=self._clock.perf_s() - began_s,
                    is_bit_identical=self._is_bit_identical,
                    note=problem,
                )
            )
        self._note_saved()
        return "" if problem else saved.name

    def _write(self, planned: Checkpoint) -> Checkpoint:
        """Write a checkpoint by all ranks: whole where every rank wrote its files, else not at all.

        Raises:
            OSError: on every rank where one could not write, and says which; the checkpoints before stay.
        """
        ranks = self._ranks
        draft = ranks.together(partial(self._store.draft, planned.name))[ranks.rank]
        try:
            files = ranks.together(partial(self._write_files, draft))
            if self._state.is_sharded:
                from greenlove_tracker.checkpointing.shard_files import write_shards

                # Ranks wait for each other in these: not for one that could not write the files before.
                files += ranks.together(partial(write_shards, self._state, draft, ranks))
            whole = replace(planned.manifest, files=tuple(chain.from_iterable(files)))
            written: list[Checkpoint] = ranks.together(lambda: None if ranks.rank else draft.commit(whole))
            return written[0]
        finally:
            draft.close()
            if self._is_first:
                self._store.prune()

    @cached_property
    def _not_passed(self) -> tuple[str, ...]:
        """What trains along and was not passed, at the first save; a warning says it."""
        found = tuple(self._state.not_passed())
        if found and self._is_first:
            self._warn_once.warn("not passed", f"no checkpoint holds what was not passed: {', '.join(found)}")
        return found

    def _write_files(self, draft: Draft) -> list[CheckpointFile]:
        """Write this rank's files; the first content of each kind is read back.

        Raises:
            OSError: where one cannot be written.
            UsageError: where a value cannot be read back.
        """
        at_epoch_end = self.position.batches == 0
        of_rank = {
            "at_epoch_start": random_state_values() if at_epoch_end else self._random_at_epoch_start,  # of the next one
            "data": self._pass and self._pass.state(is_epoch_end=at_epoch_end),
            "values": self.values,
            "steps": (self._optimizer_steps, self._batches_of_step),
            **self._state.capture_of_rank(),
        }
        contents = {_RANK_FILE.format(self._ranks.rank): of_rank}
        read_back = self.values | of_rank
        if self._is_first:
            contents[_MODEL_FILE] = state = self._state.capture()
            read_back |= state["parts"]
        types = set(map(type, tree_leaves(contents)))
        if not types <= self._types_read:
            check_readable(read_back)
            self._types_read |= types
        return [draft.write(name, partial(torch.save, content)) for name, content in contents.items()]

    def _note_saved(self) -> None:
        self._saved_s = self._clock.perf_s()
        self._saved_at = self.position
        self._is_asked = False

    # -- resuming ------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Load the newest whole checkpoint, where there is one; damaged ones are said and passed over."""
        began_s = self._clock.perf_s()
        found = None
        if self._is_first:
            found, damaged = self._store.newest_whole()
            for sentence in damaged:
                self._warn_once.warn(sentence, f"{sentence} The newest whole checkpoint before it is used")
        found = self._ranks.gathered(found)[0]
        if found is None:
            return
        manifest = found.manifest
        state = read_plain(found.path / _MODEL_FILE)
        of_rank = read_plain(found.path / _RANK_FILE.format(self._ranks.rank % manifest.world_size))
        if state.get("is_sharded"):
            from greenlove_tracker.checkpointing.shard_files import load_shards

            load_shards(self._state, found.path, self._ranks)
        others = self._conditions.items() - manifest.conditions.items()
        self._reasons = sorted(f"{name} {now} instead of {manifest.conditions.get(name)}" for name, now in others)
        if manifest.world_size != self._ranks.world_size:  # with another's random states the ranks would draw alike
            of_rank |= {"at_epoch_start": {}, "data": {"batches": manifest.position.batches}}
        self._resume = _Resume(found, state, of_rank, self._clock.perf_s() - began_s)
        self._put_back(self._resume, is_in_loop=False)
        if manifest.kind is CheckpointKind.FINAL:
            self._finished_after = manifest.epochs
        self.position = manifest.position
        self._optimizer_steps, self._batches_of_step = of_rank["steps"]
        self.resumed = {
            "first_epoch": self.position.epoch,
            "first_step": self._optimizer_steps,
            "continues": manifest.run_id or None,
        }
        if manifest.metric == self._best.metric:
            self._best.value = manifest.metric_value
        if self._is_first:
            console.say(f"greenlove: resuming from {found.name}")

    def _put_back(self, resume: _Resume, *, is_in_loop: bool = True) -> None:
        """Put back models, optimizers and all else but shards and random states.

        Raises:
            UsageError: where it is of another training.
        """
        self._state.load(resume.state, resume.of_rank, is_in_loop=is_in_loop)
        self.values.clear()
        self.values.update(copied(resume.of_rank["values"]))

    def _tell_restored(self, replay_s: float = 0.0) -> None:
        resume = self._resume
        self._resume = None
        if resume is None or not self._is_first:
            return
        if self._reasons:
            reasons = "; ".join(self._reasons)
            self._warn_once.warn("conditions", f"the training goes on under other conditions: {reasons}")
        note = "; ".join([self._rehearsed, *self._reasons])
        manifest = resume.checkpoint.manifest
        self.tracker.log_checkpoint(
            CheckpointEvent(
                CheckpointAction.RESTORED,
                timestamp(self._clock.utc_s()),
                manifest.kind,
                manifest.position,
                resume.checkpoint.name,
                size_bytes=resume.checkpoint.size_bytes,
                blocked_s=resume.read_s,
                replay_s=replay_s,
                replayed_batches=manifest.position.batches,
                from_run=manifest.run_id,
                saved_at=manifest.saved_at,
                is_bit_identical=self._is_bit_identical,
                note=note,
            )
        )


@dataclass
class _Resume:
    """What a training goes on from.

    Attributes:
        checkpoint: that it goes on from.
        state: content of ``model.pt``.
        of_rank: content of the file of this rank; of another's, where this one has none.
        read_s: time that reading and checking took.
    """

    checkpoint: Checkpoint
    state: Values
    of_rank: Values
    read_s: float


class _Best:
    """The best value of a metric.

    Args:
        metric: its name; None: there is none.
        higher_is_better: which of two values is the better one; None: the name tells.

    Raises:
        UsageError: where nobody tells.
    """

    def __init__(self, metric: str | None, higher_is_better: bool | None) -> None:
        if metric is not None and higher_is_better is None:
            higher_is_better = direction_of(metric)
            if higher_is_better is None:
                raise UsageError(
                    f"best={metric!r}: its name does not tell which values are better; give higher_is_better="
                )
        self.metric = metric or ""
        self._sign = 1 if higher_is_better else -1
        self.value: float | None = None
        self.is_pending = False  # better than the one that was taken

    def note(self, name: str, value: float | None) -> None:
        """Compare a value with the best before."""
        if name != self.metric or value is None or math.isnan(value):
            return
        if self.value is None or self._sign * (value - self.value) > 0:
            self.value = value
            self.is_pending = True
