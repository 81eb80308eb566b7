"""Find the epochs of a training loop that marks none, from the batches that loaders hand out and the optimizer steps.

It hears of any data loader that a pass over it has begun, that a batch was handed out and that the pass has ended; and
of any optimizer that a step begins and has ended. It says when epochs begin and end, when they pause, and what was done
in them, to a ``Session`` of the tracker. It knows no framework.

How it decides:

- The loader whose batch was handed out last before a step is the training loader; a pass of it with at least one step
  is an epoch. A pass without steps (validation, a look at one batch) is none: between epochs it is a gap, within one a
  pause.
- Steps between two batches are the largest number of steps of any one optimizer; of a step within another one counts.
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
from collections.abc import Callable
from typing import TYPE_CHECKING

from greenlove_tracker.vocabulary.records import Counts

if TYPE_CHECKING:
    from greenlove_tracker.tracker.session import Session

_COUNTED_EACH_S = 0.25  # what was done is told this often: telling it takes 40 to 100 µs, counting a batch 2
_PAUSED_EACH_S = 1.0  # a pause costs two readings of the meter and a row


class LoaderPass:
    """One iteration over a loader.

    Attributes:
        loader: that is iterated, as long as it lives,
        iterator: and what hands its batches out.
        began_at: optimizer steps that had been made when it began,
        handed_at: and when its last batch was handed out; -1 before.
        batches: handed out so far.
        steps: made from its batches.
        untold_batches: that were not counted yet.
        untold_samples: in those; None where that is not known.
        is_exhausted: the loader had no more.
    """

    def __init__(self, loader: object, began_at: int) -> None:
        self.loader: Callable[[], object | None] = weakref.ref(loader)
        self.iterator = self.loader
        self.began_at = began_at
        self.handed_at = -1
        self.batches = self.steps = self.untold_batches = 0
        self.untold_samples: int | None = 0
        self.is_exhausted = False

    @property
    def is_over(self) -> bool:
        """True if no batch will follow: the loader has no more, or the loop was left."""
        return self.is_exhausted or self.iterator() is None


class LoopDetector:
    """Turn batches and steps into epochs, pauses and counts. It may be called on several threads.

    Args:
        log: receives epochs, pauses and counts.
        clock: the time in seconds, which limits how often the log is called.

    Attributes:
        n_epochs: epochs that were found.
        n_steps: optimizer steps that were counted.
        takes_turns: True if loaders took turns, so that epochs cannot be told apart.
        on_epoch: called before an epoch begins, with its loader, or None.
    """

    def __init__(self, log: Session, clock: Callable[[], float] = time.perf_counter) -> None:
        self._log = log
        self._clock = clock
        self._lock = threading.RLock()
        self._leader: LoaderPass | None = None  # the pass that the open epoch is
        self._counts_in_steps = False  # the open epoch is none of a loader
        self._latest: LoaderPass | None = None  # that a batch was handed out of last
        self._broken_off_at = 0  # batches of an epoch that was left by break
        self._is_paused = False
        self._paused_at_s = -math.inf
        self._n_all_steps = 0  # of all optimizers
        self._is_stepping = False
        self._window: dict[int, int] = {}  # steps since the last batch, by optimizer
        self._batches = self._steps = 0  # not told yet
        self._samples: int | None = 0
        self._tell_at_s = 0.0
        self.n_epochs = self.n_steps = 0
        self.takes_turns = False
        self.on_epoch: Callable[[object], None] = lambda loader: None

    # -- what is heard -------------------------------------------------------------------------------------------

    def begin(self, loader: object) -> LoaderPass | None:
        """Begin a pass over this loader; return None if it is not watched."""
        with self._lock:
            if self._log.is_elsewhere:
                return None
            self._log.act_on_overruns()
            leader = self._leader
            if leader is not None and leader.is_over and (leader.is_exhausted or leader.loader() is loader):
                self._end_epoch()
            if self._leader is None and not self._counts_in_steps:
                self._log.mark()
            else:
                self._pause()
            return LoaderPass(loader, self._n_all_steps)

    def batch(self, handed: LoaderPass, n_samples: int | None) -> None:
        """Note that a batch with this number of samples was handed out."""
        with self._lock:
            handed.batches += 1
            handed.untold_batches += 1
            handed.untold_samples = _added(handed.untold_samples, n_samples)
            handed.handed_at = self._n_all_steps
            self._latest = handed
            if handed is self._leader:
                self._window.clear()
                if self._is_paused:
                    self._resume()

    def end(self, ended: LoaderPass) -> None:
        """Note that the loader has no more batches. Steps of batches that were fetched ahead may still follow."""
        with self._lock:
            ended.is_exhausted = True
            if ended is self._leader and not self._log.is_elsewhere:
                if ended.steps >= ended.batches:
                    self._end_epoch()
                else:
                    self._pause(at_once=True)

    def step_begins(self, optimizer: object, args: object = None, kwargs: object = None) -> None:
        """Note that ``step()`` of an optimizer was called with these arguments."""
        self._is_stepping = True

    def step_ended(self, optimizer: object) -> None:
        """Note that ``step()`` of an optimizer has returned. A ``step()`` within another one is not counted again."""
        with self._lock:
            if not self._is_stepping:
                return
            self._is_stepping = False
            leader = self._leader
            if leader is None or leader is not self._latest or leader.is_exhausted:
                if self._log.is_elsewhere:
                    return
                self._attribute()
                leader = self._leader
            self._count_step(optimizer)
            if leader is not None and leader.is_exhausted:
                if leader.steps >= leader.batches:
                    self._end_epoch()
            elif self._clock() >= self._tell_at_s and not self._log.is_elsewhere:
                self._tell_at_s = self._clock() + _COUNTED_EACH_S
                self._tell()
                self._log.act_on_overruns()

    def finish(self) -> None:
        """End the last epoch if it is complete, since the script ends."""
        with self._lock:
            leader = self._leader
            if self._log.is_elsewhere:
                return
            if leader is None or not leader.is_over:
                self._tell()
            elif leader.is_exhausted or leader.batches == self._broken_off_at:
                self._end_epoch()
            else:
                self._tell()

    # -- whose step it is ----------------------------------------------------------------------------------------

    def _count_step(self, optimizer: object) -> None:
        window = self._window
        most = max(window.values()) if window else 0
        steps = window.get(id(optimizer), 0) + 1
        window[id(optimizer)] = steps
        self._n_all_steps += 1
        if steps > most:
            self._steps += 1
            if self._leader is not None:
                self._leader.steps += 1

    def _attribute(self) -> None:
        """Find the loader of a step that does not follow a batch of the training loader."""
        leader = self._leader
        latest = self._latest
        is_handed = latest is not None and latest.handed_at == self._n_all_steps  # since the last step
        if latest is not None and is_handed and not latest.is_over:
            fresh = latest
        else:
            fresh = None
        if leader is not None and not leader.is_over and (fresh is None or leader.handed_at == self._n_all_steps):
            self._latest = leader  # an evaluation lay between the batch and its step; or another loader goes beside
        elif fresh is not None and not self.takes_turns:
            if fresh.began_at == self._n_all_steps:
                self._start_pass(fresh)
            else:
                self._count_in_steps()
                self.takes_turns = True  # the batch is of a pass that others were trained on beside
        elif leader is None and not self._counts_in_steps:
            if not is_handed:
                self._log.mark()
            self._count_in_steps()
        if self._counts_in_steps and latest is not None and is_handed and not latest.is_exhausted:
            self._add(latest)
            self._window.clear()
        self._resume()

    def _start_pass(self, new: LoaderPass) -> None:
        if self._counts_in_steps:
            self._tell()
            self._forget_epoch()
            self._log.abandon_epoch()
        elif self._leader is not None:
            self._end_epoch()
        self._start(new.loader())
        self._leader = new

    def _count_in_steps(self) -> None:
        """Count in steps from now on, in the open epoch if there is one."""
        self._tell()
        if self._leader is None and not self._counts_in_steps:
            self._start(None)
        self._leader = None
        self._counts_in_steps = True

    # -- what is said --------------------------------------------------------------------------------------------

    def _start(self, loader: object) -> None:
        self._window = {}
        self._tell_at_s = 0.0
        self.on_epoch(loader)
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
        self._leader = None
        self._counts_in_steps = False
        self._is_paused = False

    def _pause(self, *, at_once: bool = False) -> None:
        """Pause the open epoch, unless pauses come so often that they would slow the training down."""
        now_s = self._clock()
        if self._is_paused or (not at_once and now_s < self._paused_at_s + _PAUSED_EACH_S):
            return
        self._tell()
        self._is_paused = True
        self._paused_at_s = now_s
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
        done = Counts(self._steps, self._batches or None, self._samples or None)
        self.n_steps += self._steps
        self._batches = 0
        self._samples = 0
        self._steps = 0
        self._log.step(done)

    def _add(self, trained: LoaderPass) -> None:
        """Add the batches of a pass that were not counted yet."""
        self._batches += trained.untold_batches
        self._samples = _added(self._samples, trained.untold_samples)
        trained.untold_batches = 0
        trained.untold_samples = 0


def _added(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b
