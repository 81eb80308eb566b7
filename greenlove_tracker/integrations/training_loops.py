"""Finds the epochs of a training loop that nobody marked, from what passes: batches handed out and optimizer steps.

It hears of any data loader that a pass over it has begun, that a batch was handed out, that the pass has ended or its
iterator is gone; and of any optimizer that a step begins and has ended. It says when epochs begin and end, when they
pause, and what was done in them, to what a ``Session`` of the tracker is. It knows no framework.

How it decides:

- The loader whose batch was handed out last before a step is the training loader; a pass of it with at least one step
  is an epoch. A pass without steps (validation, a look at one batch) is none: between epochs it is a gap, within one a
  pause. Of two loaders in ``zip`` that is the last, whose batches all reach the loop.
- Steps between two batches are the largest number of outermost steps of any one optimizer: two optimizers, an optimizer
  for each parameter and a closure that is evaluated again are one step; a wrapper around another optimizer is none.
- A pass that was exhausted is an epoch. One that was left by ``break`` is one as soon as another training pass follows,
  or has as many batches as such a one had; else the training counts in steps (a loader of 10¹⁰ samples).
- An iterator that fetches ahead ends before its last batches are trained on: the steps that are missing then are
  awaited, and they are the epoch's.
- Steps without a loader, or behind an exhausted one (``itertools.cycle``, batches of the script's own): the training
  counts in steps, in an epoch that has no end.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from greenlove_tracker.records import Counts

_COUNTED_EACH_S = 0.25  # what was done is told this often: telling it takes 40 to 100 µs, counting a batch 2
_PAUSE_SHARE = 0.01  # of the time, that may be spent on the boundaries of pauses,
_FREE_PAUSES_S = 0.5  # and this much in any case


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
        batches: handed out so far.
        samples: in them; None where that is not known.
        mark: the number of the mark that was set where it began; -1 without one.
        handed_at_step: steps of all optimizers that had been made when the last batch was handed out.
        is_over: no batch is to come.
        is_exhausted: because the loader had no more; else because its iterator is gone.
        steps: made from its batches.
        batches_stepped: batches that had been handed out at the last step.
        interval: batches between the first step and the second; 0 until then.
        thread: that the last batch was handed out on.
        is_companion: its batches are used beside those of the training loader.
    """

    __slots__ = (
        "_first",
        "batches",
        "batches_stepped",
        "handed_at_step",
        "interval",
        "is_companion",
        "is_exhausted",
        "is_over",
        "loader",
        "mark",
        "samples",
        "steps",
        "thread",
    )

    def __init__(self, loader: object) -> None:
        self.loader = weakref.ref(loader)
        self.batches = self.steps = 0
        self.samples: int | None = 0
        self.thread = threading.get_ident()
        self.handed_at_step = self.mark = -1
        self.is_over = self.is_exhausted = False
        self.is_companion = False
        self.batches_stepped = self._first = self.interval = 0

    def note_step(self) -> None:
        """Note how many batches lay before the first step, and between it and the second."""
        if self.batches_stepped == self.batches:
            return
        if not self._first:
            self._first = self.batches
        elif not self.interval:
            self.interval = self.batches - self.batches_stepped
        self.batches_stepped = self.batches

    def missing_steps(self, step_thread: int) -> int:
        """Return how many steps are still to come from batches of an exhausted pass, which were fetched ahead."""
        interval = self.interval or 1
        ahead = self._first - interval
        if self.thread != step_thread:
            ahead = max(ahead, self.batches - self.steps * interval)
        return max(0, -(-ahead // interval))


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
        quiet_pass: a pass whose batches need not be told by ``batch``: count them, and their samples, in the pass.
        is_waiting: the open epoch is paused; tell of a batch that is asked for then, by ``requested``.
        on_epoch: called before an epoch begins, with its loader or None, until it returns True; and again where another
            training begins: neither its loader nor its optimizer was seen before.
        is_within_itself: tells of an optimizer whose last step has not ended, whether this one lies within that, as of
            a subclass that calls ``super().step()``; else that one raised.
    """

    def __init__(self, log: EpochLog, clock: Callable[[], float] = time.perf_counter) -> None:
        self._log, self._clock = log, clock
        self._lock = threading.RLock()
        self._is_busy = False
        self._gone: deque[LoaderPass] = deque()  # whose iterators were freed at a bad moment
        self._open: dict[int, LoaderPass] = {}  # passes that are not over
        self._training: dict[int, weakref.ref[object]] = {}  # loaders trained on, and optimizers, by id()
        self._leader: LoaderPass | None = None  # the pass that the open epoch is
        self._counts_in_steps = False  # the open epoch is none of a loader
        self._partners: list[LoaderPass] = []  # passes that go on in step with the leader, as in zip
        self._latest: LoaderPass | None = None  # that a batch was handed out of last
        self._broken_off_at = 0  # batches of an epoch that was left by break
        self._n_marks = 0
        self._has_other_batch = False  # one of no leader was handed out since the last step
        self._is_marked = False  # no batch was handed out since the last mark
        self.is_waiting = False
        self._missing_steps = 0  # of the leader, which is exhausted
        self._n_all_steps = 0  # of all optimizers
        self._stack: list[int] = []  # optimizers whose step is under way, the outermost first
        self._stack_batches = 0  # of the leader when the outermost of them began
        self._step_thread = threading.get_ident()
        self._window: dict[int, int] = {}  # steps since the last batch, by optimizer
        self._window_counted = 0
        self._batches = self._steps = 0  # not told yet; of batches only those of no leader
        self._batches_told = self._samples_told = 0  # of the leader
        self._loose_samples: int | None = 0  # of passes that are over before their batches are used
        self._tell_at_s = 0.0
        self._began_s, self._spent_s = clock(), 0.0
        self._is_planned = False
        self._stepped: weakref.ref[object]  # the optimizer of the last step that was not simply the next
        self.quiet_pass: LoaderPass | None = None
        self.n_epochs = self.n_batches = self.n_steps = 0
        self.on_epoch: Callable[[object], bool] = lambda loader: True
        self.is_within_itself: Callable[[object], bool] = lambda optimizer: False

    # -- what is heard -------------------------------------------------------------------------------------------

    def begin(self, loader: object) -> LoaderPass | None:
        """Begin a pass over this loader; None: it is not watched."""
        with self._call() as is_heard:
            if not is_heard or self._log.is_elsewhere:
                return None
            new = LoaderPass(loader)
            self.quiet_pass = None
            self._open[id(new)] = new
            self._log.act_on_overruns()
            leader = self._leader
            if leader is not None and leader.is_over and (leader.is_exhausted or leader.loader() is loader):
                self._end_epoch()
            if self._leader is None and not self._counts_in_steps:
                self._mark()
                new.mark = self._n_marks
            elif not self._was_seen(loader) or loader is (self._leader and self._leader.loader()):
                self._pause()
            return new

    def requested(self, asked: LoaderPass) -> None:
        """Note that the next batch of this pass is asked for."""
        with self._call() as is_heard:
            if is_heard and asked is self._leader and not asked.is_over:
                self._resume()

    # The next three are in every batch, but for those of ``quiet_pass``: they cost some 0.5 µs where nothing but
    # counting is to be done.

    def batch(self, handed: LoaderPass, n_samples: int | None) -> None:
        """Note that a batch of so many samples was handed out."""
        with self._lock:
            if self._is_busy:
                return
            self._is_busy = True
            try:
                self._hear_batch(handed, n_samples)
            finally:
                self._is_busy = False

    def _hear_batch(self, handed: LoaderPass, n_samples: int | None) -> None:
        if self._gone:
            self._take_gone()
        handed.thread = threading.get_ident()
        if handed.is_over:  # it was not: an iterator that goes on behind its end
            handed.is_over = handed.is_exhausted = False
            self._open[id(handed)] = handed
        handed.batches += 1
        handed.samples = _added(handed.samples, n_samples)
        handed.handed_at_step = self._n_all_steps
        self._latest, self._is_marked = handed, False
        self._stack.clear()  # a step that raised never ended
        if handed is not self._leader:
            self._has_other_batch, self.quiet_pass = True, None
            return
        self._partners = [p for p in self._partners if p.batches == handed.batches]
        if not self._log.is_elsewhere:
            self._log.act_on_overruns()
        if not self._partners and not self._gone and not self.is_waiting and handed.samples is not None:
            self.quiet_pass = handed

    def step_begins(self, optimizer: object, args: object = None, kwargs: object = None) -> None:
        """``step()`` of an optimizer was called, with these arguments."""
        stack, leader = self._stack, self._leader
        n_batches = 0 if leader is None else leader.batches
        if not stack:
            self._stack_batches = n_batches
        elif n_batches != self._stack_batches:  # a step that raised never ended
            stack.clear()
            self._stack_batches = n_batches
        elif id(optimizer) in stack and not self.is_within_itself(optimizer):  # its last step raised
            del stack[stack.index(id(optimizer)) :]
        stack.append(id(optimizer))

    def step_ended(self, optimizer: object) -> None:
        """``step()`` of an optimizer has returned."""
        with self._lock:
            if self._is_busy:
                return
            key, stack = id(optimizer), self._stack
            if len(stack) > 1 and key in stack:
                del stack[-1 - stack[::-1].index(key) :]
                if stack:  # it is a part of another optimizer's, or of its own
                    return
            stack.clear()
            leader = self._leader
            if self._gone or (
                self._has_other_batch
                if self._counts_in_steps
                else leader is None or leader is not self._latest or leader.is_over
            ):
                self._is_busy = True
                try:
                    self._count_other_step(optimizer)
                finally:
                    self._is_busy = False
                return
            self._n_all_steps += 1
            if self._count_step(key) if leader is None else self._count_step_of(leader, key):
                self._is_busy = True
                try:
                    self._tell_on_time()
                finally:
                    self._is_busy = False

    def _count_step_of(self, leader: LoaderPass, key: int) -> bool:
        """Count a step of the training loader's last batch; True: it is time to tell."""
        window = self._window
        if leader.batches_stepped == leader.batches:
            window[key] = window.get(key, 0) + 1
            return False
        if len(window) == 1 and key in window and leader.interval:  # what _close_window does, and quicker
            n_new = window[key] - self._window_counted
            self._steps += n_new
            leader.steps += n_new
            self._window_counted, leader.batches_stepped = 0, leader.batches
        else:
            self._close_window(leader)
        window[key] = 1
        return self._clock() >= self._tell_at_s

    def _count_step(self, key: int) -> bool:
        """Count a step of a training in steps; True: it is time to tell."""
        self._window[key] = steps = self._window.get(key, 0) + 1
        if steps <= self._window_counted:
            return False
        self._window_counted = steps
        self._steps += 1
        return self._clock() >= self._tell_at_s

    def end(self, ended: LoaderPass) -> None:
        """Note that the loader has no more batches."""
        with self._call() as is_heard:
            if is_heard and not ended.is_over:
                self._over(ended, is_exhausted=True)

    def gone(self, left: LoaderPass) -> None:
        """End the pass, whose iterator was freed; called at any moment, of the garbage collector too."""
        self.gone_later(left)
        if self._lock.acquire(blocking=False):
            try:
                if not self._is_busy:
                    with self._call():
                        pass
            finally:
                self._lock.release()

    def gone_later(self, left: LoaderPass) -> None:
        """As ``gone``, at a moment at which nothing may be done about it; the next call does."""
        self._gone.append(left)
        self.quiet_pass = None

    def finish(self) -> None:
        """End the script: report an epoch that is complete."""
        with self._call() as is_heard:
            leader = self._leader
            if not is_heard or self._log.is_elsewhere:
                return
            if leader is not None and leader.is_over:
                is_whole = leader.is_exhausted or leader.batches == self._broken_off_at
                self._tell()
                if is_whole:
                    self._end_epoch()
            else:
                self._tell()

    def _count_other_step(self, stepped: object) -> None:
        """Count a step that is not simply the training loader's next."""
        optimizer, self._stepped = id(stepped), weakref.ref(stepped)
        if self._gone:
            self._take_gone()
        self._step_thread = threading.get_ident()
        if not self._attribute():
            return
        self._has_other_batch = False
        self._n_all_steps += 1
        leader = self._leader
        if leader is not None and not leader.is_over and leader.batches_stepped != leader.batches:
            self._close_window(leader)
        self._window[optimizer] = self._window.get(optimizer, 0) + 1
        if leader is not None and not leader.is_over:
            pass
        elif self._missing_steps:
            self._missing_steps -= 1
            self._tell()
            if not self._missing_steps:
                self._end_epoch()
        self._resume()
        if self._clock() >= self._tell_at_s:
            self._tell_on_time()

    # -- whose step it is ----------------------------------------------------------------------------------------

    def _attribute(self) -> bool:
        """Find out what a step belongs to that is not simply the training loader's next; False: it is none of ours."""
        if self._log.is_elsewhere:
            return False
        leader, latest, now = self._leader, self._latest, self._n_all_steps
        fresh = latest if latest is not None and not latest.is_over and latest.handed_at_step >= now else None
        if leader is not None and not leader.is_over:
            self._attribute_beside(leader, fresh)
        elif fresh is not None:
            if self._counts_in_steps:
                self._abandon()
            elif leader is not None:
                self._end_epoch()
            self._start_pass(fresh)
        elif not self._counts_in_steps and not self._missing_steps:
            if leader is not None:  # left by break, and trained on with its last batch
                self._leader, self._counts_in_steps = None, True
            else:
                self._start_steps(latest)
        if self._counts_in_steps and latest is not None and _is_sampled(latest, now):
            self._note_training(latest)
            self._batches += latest.batches
            self._loose_samples = _added(self._loose_samples, latest.samples)
            latest.batches, latest.samples = 0, 0
        return True

    def _attribute_beside(self, leader: LoaderPass, fresh: LoaderPass | None) -> None:
        """Find out whether another loader, whose batch was handed out last, is trained on beside the leader."""
        if fresh is None:
            self._latest = leader  # an evaluation lay between the batch and its step
        elif leader.batches_stepped != leader.batches:  # it handed one out since the last step, too
            fresh.is_companion, self._latest = True, leader
            self._note_training(fresh)
        elif fresh.is_companion:
            self._tell()  # of the same epoch: the batches of the former have run out
            self._leader, self._batches_told, self._samples_told = fresh, fresh.batches, fresh.samples or 0
        else:  # the training has gone on to another loader, and the former's iterator is still there
            self._end_epoch()
            self._start_pass(fresh)

    def _start_pass(self, new: LoaderPass) -> None:
        if new.mark != self._n_marks:
            self._log.mark()  # what lies between its beginning and here is another loader's
        self._start(new.loader())
        self._leader = self._latest = new
        self._note_training(new)
        self._partners = [p for p in self._open.values() if p is not new and p.batches == new.batches]
        self._batches_told = self._samples_told = 0

    def _start_steps(self, latest: LoaderPass | None) -> None:
        if latest is None or not _is_sampled(latest, self._n_all_steps) or latest.mark != self._n_marks:
            self._log.mark()
        self._start(None)
        self._counts_in_steps = True

    def _over(self, ended: LoaderPass, *, is_exhausted: bool) -> None:
        self._open.pop(id(ended), None)
        self.quiet_pass = None
        ended.is_over, ended.is_exhausted = True, is_exhausted
        leader = self._leader
        if leader is None or self._log.is_elsewhere:
            return
        if is_exhausted and ended in self._partners and not leader.is_over:
            ended = leader  # zip asks the others for no batch any more
            leader.is_over = leader.is_exhausted = True
            self._open.pop(id(leader), None)
        if ended is not leader:
            return
        self._count_window()
        self._tell()
        self._missing_steps = leader.missing_steps(self._step_thread) if is_exhausted else 0
        is_whole = is_exhausted and not self._missing_steps
        if is_whole or (not is_exhausted and leader.batches == self._broken_off_at):
            self._end_epoch()
        else:
            self._pause(at_once=True)

    # -- what is said --------------------------------------------------------------------------------------------

    def _mark(self) -> None:
        if not self._is_marked:  # else another loader of the same loop has begun
            self._log.mark()
            self._is_marked = True
            self._n_marks += 1

    def _start(self, loader: object) -> None:
        self._window, self._window_counted, self._tell_at_s = {}, 0, 0.0
        optimizer = self._stepped()
        is_other = loader is not None and not self._was_seen(loader) and not self._was_seen(optimizer)
        if is_other or not self._is_planned:
            self._is_planned = self.on_epoch(loader)
        self._training[id(optimizer)] = self._stepped
        self._log.start_epoch_at_mark()

    def _end_epoch(self) -> None:
        leader = self._leader
        if leader is not None and not leader.is_exhausted:
            self._broken_off_at = leader.batches
        self._tell()
        self._forget_epoch()
        self.n_epochs += 1
        self._log.end_epoch()

    def _abandon(self) -> None:
        self._tell()
        self._forget_epoch()
        self._log.abandon_epoch()

    def _forget_epoch(self) -> None:
        self._leader, self._counts_in_steps, self.is_waiting = None, False, False
        self._partners, self._missing_steps, self.quiet_pass = [], 0, None
        self._window, self._window_counted = {}, 0

    def _pause(self, *, at_once: bool = False) -> None:
        """Pause the open epoch, unless pauses come so often that their boundaries would cost more than they tell."""
        if self.is_waiting or (not at_once and threading.get_ident() != self._step_thread):
            return
        now_s = self._clock()
        if not at_once and self._spent_s > _FREE_PAUSES_S + _PAUSE_SHARE * (now_s - self._began_s):
            return
        self._count_window()
        self._tell()
        self.is_waiting, self.quiet_pass = True, None
        self._log.pause()
        self._spent_s += 2 * (self._clock() - now_s)  # with its end

    def _resume(self) -> None:
        if self.is_waiting:
            self.is_waiting = False
            self._log.resume()

    def _close_window(self, leader: LoaderPass) -> None:
        """Count the steps before this one, which is the first since a batch."""
        self._count_window()
        self._window.clear()
        self._window_counted = 0
        leader.note_step()

    def _count_window(self) -> None:
        """Count the steps since the last batch that are not counted yet."""
        steps = max(self._window.values(), default=0)
        if steps > self._window_counted:
            self._steps += steps - self._window_counted
            if self._leader is not None:
                self._leader.steps += steps - self._window_counted
            self._window_counted = steps

    def _tell_on_time(self) -> None:
        if not self._log.is_elsewhere:
            self._tell_at_s = self._clock() + _COUNTED_EACH_S
            self._tell()
            self.quiet_pass = None  # the next batch is where the script may be ended

    def _tell(self) -> None:
        if self._leader is not None or self._counts_in_steps:
            self._count_window()
        n_batches, samples = self._take_batches()
        if not n_batches and not self._steps:
            return
        self.is_waiting = False  # counting goes on with an epoch that is paused
        done = Counts(self._steps, n_batches or None, samples if n_batches else None)
        self.n_batches, self.n_steps = self.n_batches + n_batches, self.n_steps + self._steps
        self._steps = 0
        self._log.step(done)

    def _take_batches(self) -> tuple[int, int | None]:
        """Return the batches that were not told yet, and the samples in them; None where they are not known."""
        leader = self._leader
        n_batches, self._batches = self._batches, 0
        samples, self._loose_samples = self._loose_samples, 0
        if leader is None:
            return n_batches, samples
        n_batches, self._batches_told = leader.batches - self._batches_told, leader.batches
        if leader.samples is None:
            return n_batches, None
        samples, self._samples_told = leader.samples - self._samples_told, leader.samples
        return n_batches, samples

    # -- helpers -------------------------------------------------------------------------------------------------

    @contextmanager
    def _call(self) -> Iterator[bool]:
        """Hold the lock; the value is False in a call from within another, which is not to be heard."""
        with self._lock:
            if self._is_busy:
                yield False
                return
            self._is_busy = True
            try:
                if self._gone:
                    self._take_gone()
                yield True
            finally:
                self._is_busy = False

    def _take_gone(self) -> None:
        while self._gone:
            left = self._gone.popleft()
            if not left.is_over:
                self._over(left, is_exhausted=False)

    def _note_training(self, trained: LoaderPass) -> None:
        loader = trained.loader()
        if loader is not None:
            self._training[id(loader)] = trained.loader

    def _was_seen(self, one: object) -> bool:
        found = self._training.get(id(one))
        return found is not None and found() is one


def _is_sampled(latest: LoaderPass, n_steps: int) -> bool:
    """Return True of ``next(iter(loader))`` since the last step: the iterator is gone before its batch is used."""
    return latest.is_over and not latest.is_exhausted and latest.batches > 0 and latest.handed_at_step >= n_steps


def _added(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b
