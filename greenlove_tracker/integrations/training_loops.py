"""Finds the epochs of a training loop that nobody marked, from what passes: batches handed out and optimizer steps.

It hears of any data loader that a pass over it has begun, that a batch was handed out, that the pass has ended or its
iterator is gone; and of any optimizer that a step begins and has ended. It says when epochs begin and end, when they
pause, and what was done in them, to what a ``Session`` of the tracker is. It knows no framework.

How it decides:

- The loader whose batch was handed out last before a step is the training loader; a pass of it with at least one step
  is an epoch. A pass without steps (validation, a look at one batch) is none: between epochs it is a gap, within one a
  pause. Of two loaders in ``zip`` that is the last.
- Steps between two batches are the largest number of steps of any one optimizer: two optimizers and an optimizer for
  each parameter are one step; of a step within another the inner one counts.
- A pass that was exhausted is an epoch, with the steps that are missing then: they were fetched ahead. One that was
  left by ``break`` is one where another training pass follows, or has as many batches as such a one had.
- Steps without a loader, or behind an exhausted one (``itertools.cycle``): the training counts in steps, in an epoch
  that has no end. So it does where loaders take turns: which of them makes the epochs cannot be told then.
"""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Protocol

from greenlove_tracker.records import Counts

_COUNTED_EACH_S = 0.25  # what was done is told this often: telling it takes 40 to 100 µs, counting a batch 2
_PAUSED_EACH_S = 1.0  # a pause costs two readings of the meter and a row


class EpochLog(Protocol):
    """The calls of an observer; ``greenlove_tracker.tracker.session.Session`` says what each means."""

    def mark(self) -> None: ...
    def start_epoch_at_mark(self) -> None: ...
    def end_epoch(self) -> None: ...
    def abandon_epoch(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def step(self, done: Counts) -> None: ...
    def act_on_overruns(self) -> None: ...

    @property
    def is_elsewhere(self) -> bool: ...


class LoaderPass:
    """One iteration over a loader.

    Attributes:
        loader: that is iterated, as long as it lives.
        began_at: optimizer steps that had been made when it began,
        handed_at: and when its last batch was handed out; -1 before.
        mark: the number of the mark that was set where it began; -1 without one.
        batches: handed out so far.
        steps: made from its batches.
        first_batches: handed out by the first of them,
        interval: and from then to the second; 1 before.
        untold_batches: that were not counted yet.
        untold_samples: in those; None where that is not known.
        is_over: no batch is to come.
        is_exhausted: because the loader had no more; else because its iterator is gone.
    """

    __slots__ = (
        "batches",
        "began_at",
        "first_batches",
        "handed_at",
        "interval",
        "is_exhausted",
        "is_over",
        "loader",
        "mark",
        "steps",
        "untold_batches",
        "untold_samples",
    )

    def __init__(self, loader: object, began_at: int) -> None:
        self.loader = weakref.ref(loader)
        self.began_at = began_at
        self.handed_at = self.mark = -1
        self.interval = 1
        self.batches = self.steps = self.first_batches = self.untold_batches = 0
        self.untold_samples: int | None = 0
        self.is_over = self.is_exhausted = False

    def note_step(self) -> None:
        """Count a step, and note how many batches the first two of them were apart."""
        self.steps += 1
        if self.steps == 1:
            self.first_batches = self.batches
        elif self.steps == 2:
            self.interval = max(1, self.batches - self.first_batches)

    def missing_steps(self, n_all_steps: int) -> int:
        """Return how many steps are still to come when it is exhausted, from batches that were fetched ahead."""
        missing = math.ceil(self.batches / self.interval) - self.steps
        if self.handed_at == n_all_steps:  # no step has followed the last batch
            return max(1, missing)
        return missing if self.first_batches > self.interval else 0


class LoopDetector:
    """Turns batches and steps into epochs, pauses and counts.

    It may be called on several threads. A call within one of its own, as from a signal handler, is not heard.

    Args:
        log: what is told.
        clock: for how often to tell.

    Attributes:
        n_epochs: epochs that were found.
        n_batches: that were handed out in them, and counted in steps.
        n_steps: optimizer steps that were counted.
        takes_turns: loaders took turns, so that epochs cannot be told.
        on_epoch: called before an epoch begins, with its loader or None, until it returns True; and again where another
            training begins: neither its loader nor its optimizer was seen before.
    """

    def __init__(self, log: EpochLog, clock: Callable[[], float] = time.perf_counter) -> None:
        self._log, self._clock = log, clock
        self._call = _OneAtATime(self._take_gone)
        self._gone: deque[LoaderPass] = deque()  # whose iterators were freed, not looked at yet
        self._training: dict[int, weakref.ref[object]] = {}  # loaders trained on, and optimizers, by id()
        self._leader: LoaderPass | None = None  # the pass that the open epoch is
        self._counts_in_steps = False  # the open epoch is none of a loader
        self._latest: LoaderPass | None = None  # that a batch was handed out of last
        self._broken_off_at = 0  # batches of an epoch that was left by break
        self._n_marks = 0
        self._is_marked = False  # no batch was handed out since the last mark
        self._is_paused = False
        self._paused_at_s = -math.inf
        self._missing_steps = 0.0  # of the leader, which is over
        self._n_all_steps = 0  # of all optimizers
        self._is_stepping = False
        self._window: dict[int, int] = {}  # steps since the last batch, by optimizer
        self._batches = self._steps = 0  # not told yet
        self._samples: int | None = 0
        self._tell_at_s = 0.0
        self._may_end = False  # the next batch is where the script may be ended
        self._is_planned = False
        self.n_epochs = self.n_batches = self.n_steps = 0
        self.takes_turns = False
        self.on_epoch: Callable[[object], bool] = lambda loader: True

    # -- what is heard -------------------------------------------------------------------------------------------

    def begin(self, loader: object) -> LoaderPass | None:
        """Begin a pass over this loader; None: it is not watched."""
        with self._call as is_heard:
            if not is_heard or self._log.is_elsewhere:
                return None
            new = LoaderPass(loader, self._n_all_steps)
            self._log.act_on_overruns()
            leader = self._leader
            is_again = leader is not None and leader.loader() is loader
            if leader is not None and leader.is_over and (leader.is_exhausted or is_again):
                self._end_epoch()
            if self._leader is None and not self._counts_in_steps:
                self._mark()
                new.mark = self._n_marks
            elif is_again or not self._was_seen(loader):
                self._pause()
            return new

    # The next two are in every batch. What only counts is no call of its own: it costs a third.

    def batch(self, handed: LoaderPass, n_samples: int | None) -> None:
        """Note that a batch of so many samples was handed out."""
        with self._call.lock:
            if self._call.depth:
                return
            handed.batches += 1
            handed.untold_batches += 1
            handed.untold_samples = _added(handed.untold_samples, n_samples)
            handed.handed_at = self._n_all_steps
            self._latest, self._is_marked = handed, False
            if handed is self._leader:
                self._window.clear()
                if self._is_paused or self._may_end:
                    self._go_on()

    def step_begins(self, optimizer: object, args: object = None, kwargs: object = None) -> None:
        """``step()`` of an optimizer was called, with these arguments."""
        self._is_stepping = True

    def step_ended(self, optimizer: object) -> None:
        """``step()`` of an optimizer has returned; that of one around another, or of its own, is no step more."""
        with self._call.lock:
            if self._call.depth or not self._is_stepping:
                return
            self._is_stepping = False
            leader = self._leader
            is_next = leader is not None and leader is self._latest and not leader.is_over and not self._gone
            if is_next:
                self._count_step(optimizer)
                if self._clock() < self._tell_at_s:
                    return
            with self._call:
                self._hear_step(optimizer, is_counted=is_next)

    def end(self, ended: LoaderPass) -> None:
        """Note that the loader has no more batches."""
        with self._call as is_heard:
            if is_heard:
                self._over(ended, is_exhausted=True)

    def gone(self, left: LoaderPass, *, may_act: bool = True) -> None:
        """End the pass, whose iterator was freed: at once, where that may be and no call is under way."""
        self._gone.append(left)
        if may_act:
            self._call.try_at_once()

    def finish(self) -> None:
        """End the script: report an epoch that is complete."""
        with self._call as is_heard:
            leader = self._leader
            if not is_heard or self._log.is_elsewhere:
                return
            is_whole = leader is not None and (leader.is_exhausted or leader.batches == self._broken_off_at)
            if leader is not None and leader.is_over and is_whole:
                self._end_epoch()
            else:
                self._tell()

    # -- whose step it is ----------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        with self._call:
            self._resume()
            if self._may_end:
                self._may_end = False
                self._log.act_on_overruns()

    def _count_step(self, optimizer: object) -> None:
        window = self._window
        most = max(window.values()) if window else 0
        steps = window[id(optimizer)] = window.get(id(optimizer), 0) + 1
        self._n_all_steps += 1
        if steps > most:
            self._steps += 1
            if self._leader is not None:
                self._leader.note_step()

    def _hear_step(self, optimizer: object, *, is_counted: bool) -> None:
        if self._log.is_elsewhere:
            return
        if not is_counted:
            self._attribute(optimizer)
            self._count_step(optimizer)
        if self._leader is not None and self._leader.is_over:
            self._missing_steps -= 1
            if self._missing_steps <= 0:
                self._end_epoch()
        elif self._clock() >= self._tell_at_s:
            self._tell_at_s = self._clock() + _COUNTED_EACH_S
            self._tell()
            self._may_end = True

    def _attribute(self, optimizer: object) -> None:
        """Find out what a step belongs to that is not simply the training loader's next."""
        leader, latest = self._leader, self._latest
        is_handed = latest is not None and latest.handed_at == self._n_all_steps  # since the last step
        fresh = latest if latest is not None and is_handed and not latest.is_over else None
        if leader is not None and not leader.is_over and (fresh is None or leader.handed_at == self._n_all_steps):
            self._latest = leader  # an evaluation lay between the batch and its step; or another loader goes beside
        elif fresh is not None and not self.takes_turns:
            if fresh.began_at == self._n_all_steps:
                self._start_pass(fresh, optimizer)
            else:
                self._take_turns(optimizer)
        elif leader is None and not self._counts_in_steps:
            if latest is None or not is_handed or latest.mark != self._n_marks:
                self._log.mark()
            self._start(None, optimizer)
            self._counts_in_steps = True
        is_loose = is_handed and (self.takes_turns or fresh is None)  # the latter of ``next(iter(loader))``
        if self._counts_in_steps and latest is not None and is_loose and not latest.is_exhausted:
            self._note_training(latest.loader())
            self._add(latest)
            self._window.clear()
        self._resume()

    def _start_pass(self, new: LoaderPass, optimizer: object) -> None:
        if self._counts_in_steps:
            self._tell()
            self._forget_epoch()
            self._log.abandon_epoch()
        elif self._leader is not None:
            self._end_epoch()
        if new.mark != self._n_marks:
            self._log.mark()  # what lies between its beginning and here is another loader's
        self._start(new.loader(), optimizer)
        self._leader = new
        self._note_training(new.loader())

    def _take_turns(self, optimizer: object) -> None:
        """Count in steps from here on: the batch is of a pass that others were trained on beside."""
        self._tell()
        if self._leader is None and not self._counts_in_steps:
            self._log.mark()
            self._start(None, optimizer)
        self._leader, self._counts_in_steps, self.takes_turns = None, True, True

    def _over(self, ended: LoaderPass, *, is_exhausted: bool) -> None:
        if ended.is_over:
            return
        ended.is_over, ended.is_exhausted = True, is_exhausted
        if ended is not self._leader or self._log.is_elsewhere:
            return
        missing = ended.missing_steps(self._n_all_steps)
        if is_exhausted and missing <= 0:
            self._end_epoch()
            return
        self._missing_steps = missing if is_exhausted else math.inf
        self._pause(at_once=True)

    def _take_gone(self) -> None:
        while self._gone:
            self._over(self._gone.popleft(), is_exhausted=False)

    # -- what is said --------------------------------------------------------------------------------------------

    def _mark(self) -> None:
        if not self._is_marked:  # else another loader of the same loop has begun
            self._log.mark()
            self._is_marked = True
            self._n_marks += 1

    def _start(self, loader: object, optimizer: object) -> None:
        self._window, self._tell_at_s = {}, 0.0
        is_other = loader is not None and not self._was_seen(loader) and not self._was_seen(optimizer)
        if is_other or not self._is_planned:
            self._is_planned = self.on_epoch(loader)
        self._note_training(optimizer)
        self._log.start_epoch_at_mark()

    def _end_epoch(self) -> None:
        leader = self._leader
        if leader is not None and not leader.is_exhausted:
            self._broken_off_at = leader.batches
        self._tell()
        self._forget_epoch()
        self.n_epochs += 1
        self._log.end_epoch()

    def _forget_epoch(self) -> None:
        self._leader, self._counts_in_steps, self._is_paused = None, False, False
        self._window = {}

    def _pause(self, *, at_once: bool = False) -> None:
        """Pause the open epoch, unless pauses come so often that they would cost more than they tell."""
        now_s = self._clock()
        if self._is_paused or (not at_once and now_s < self._paused_at_s + _PAUSED_EACH_S):
            return
        self._tell()
        self._is_paused, self._paused_at_s = True, now_s
        self._log.pause()

    def _resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._log.resume()

    def _tell(self) -> None:
        if self._leader is not None:
            self._add(self._leader)
        if not self._batches and not self._steps:
            return
        self._is_paused = False  # counting goes on with an epoch that is paused
        done = Counts(self._steps, self._batches or None, self._samples if self._batches else None)
        self.n_batches, self.n_steps = self.n_batches + self._batches, self.n_steps + self._steps
        self._batches, self._samples, self._steps = 0, 0, 0
        self._log.step(done)

    def _add(self, trained: LoaderPass) -> None:
        """Add the batches of a pass that were not told yet."""
        self._batches += trained.untold_batches
        self._samples = _added(self._samples, trained.untold_samples)
        trained.untold_batches, trained.untold_samples = 0, 0

    # -- helpers -------------------------------------------------------------------------------------------------

    def _note_training(self, one: object) -> None:
        if one is not None:
            self._training[id(one)] = weakref.ref(one)

    def _was_seen(self, one: object) -> bool:
        found = self._training.get(id(one))
        return found is not None and found() is one


class _OneAtATime:
    """``with``: one call at a time; the value is False in a call from within another, which is not to be heard.

    Args:
        before: called before each one that is heard.

    Attributes:
        lock: held in a call.
        depth: calls that are under way, one within the other.
    """

    def __init__(self, before: Callable[[], None]) -> None:
        self._before, self.lock, self.depth = before, threading.RLock(), 0

    def __enter__(self) -> bool:
        self.lock.acquire()
        self.depth += 1
        if self.depth > 1:
            return False
        try:
            self._before()
        except BaseException:
            self.__exit__()
            raise
        return True

    def __exit__(self, *error: object) -> None:
        self.depth -= 1
        self.lock.release()

    def try_at_once(self) -> None:
        """Do what is done before a call, unless one is under way."""
        if self.lock.acquire(blocking=False):
            try:
                with self:
                    pass
            finally:
                self.lock.release()


def _added(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b
