"""An arm as it trains on, a trial at a time: warm-up, start, settling, and the timed window."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from greenlove_tracker.errors import UsageError
from greenlove_tracker.exploration.peak_memory import cuda_peak, measured_peak
from greenlove_tracker.exploration.random_state import SavedState, random_states, switches
from greenlove_tracker.exploration.trials import BatchSource, Deadline, loss_of
from greenlove_tracker.techniques.arm import Arm

_LEAST_STEPS = 3  # of a warm-up: the first is cold, and one more may be
_STEADY_STEPS = 3  # that must agree
_STEADY_RATIO = 1.25  # of the longest of them to the shortest
_LEAST_WARM_S = 0.3  # steps of a millisecond agree by chance
_LOSS_SHARE = 0.2  # of a trial's samples, at its end, that its loss is the mean of
_ENDLESS = 10**9  # batches


@dataclass(frozen=True, slots=True)
class WarmUp:
    """The first steps of an arm, each brought to its end.

    Attributes:
        s_per_sample: of the steady ones.
        one_off_s: what the first ones took beyond as many steady ones; None where too few were made to tell.
        start_s: time until the first batch was there.
    """

    s_per_sample: float
    one_off_s: float | None
    start_s: float


@dataclass(frozen=True, slots=True)
class TimedWindow:
    """The timed part of a trial.

    Attributes:
        duration_s: of it.
        samples: that were trained on in it.
        start_s: time until the first batch was there, before it.
        n_starts: epochs that began inside it.
        losses: of its last batches, each with the samples of the batch.
        peak_memory_bytes: of the arm alone, on a GPU.
    """

    duration_s: float
    samples: int
    start_s: float
    n_starts: int
    losses: tuple[tuple[int, float], ...]
    peak_memory_bytes: int | None

    @property
    def loss(self) -> float | None:
        """The mean over the last batches, by their samples; None where the step returned none."""
        samples = sum(n for n, _ in self.losses)
        return math.fsum(n * loss for n, loss in self.losses) / samples if samples else None


class CutOffError(Exception):
    """The time was over before the trial was."""


class ArmTraining:
    """Trains an arm on, with random states and switches of its own, as if no other arm were there.

    Args:
        arm: that was just built: the random states and switches are those that it begins with.
        perf_s: a steady clock.
        synchronise: brings the device to rest.

    Attributes:
        arm: as given.
        samples: that it was trained on so far.
        settle_batches: that bring the workers of its loader to a steady run.
    """

    def __init__(self, arm: Arm, *, perf_s: Callable[[], float], synchronise: Callable[[], None]) -> None:
        self.arm = arm
        self.samples = 0
        self._perf_s, self._synchronise = perf_s, synchronise
        self._own: list[SavedState] = process_states()
        loader = arm.parts["train_dataset"]
        n_workers = getattr(loader, "num_workers", 0) or 0
        self.settle_batches = max(1, n_workers * (getattr(loader, "prefetch_factor", None) or 1))
        if isinstance(arm.parts["model"], torch.nn.Module):
            arm.parts["model"].train()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Be inside the arm's own switches and random states; those around it are put back."""
        around = process_states()
        for state in self._own:
            state.restore()
        try:
            with self.arm.active():
                yield
        finally:
            for state in self._own:
                state.copy()
            for state in around:
                state.restore()

    def warm_up(self, deadline_s: float) -> WarmUp:
        """Make the first steps, until they are steady or the time is over; at least one."""
        deadline = Deadline(deadline_s, self._perf_s, self._synchronise)
        feed = _Feed(self.arm.source)
        start_s = self._begin(feed)
        times_s: list[float] = []
        samples: list[int] = []
        began_s = self._perf_s()
        while not times_s or not deadline.has_passed():
            step_s = self._perf_s()
            n_samples, _ = self._step(feed)
            self._synchronise()
            times_s.append(self._perf_s() - step_s)
            samples.append(n_samples)
            if _are_steady(times_s) and self._perf_s() - began_s >= _LEAST_WARM_S:
                break
        return WarmUp(*_steady_cost(times_s, samples), start_s)

    def peak_of_a_step(self) -> int | None:
        """Return the most that tensors take on the CPU in a step, which is made apart; None on another device."""
        training = self.arm.training_step()
        if self.arm.device.type != "cpu" or training.is_compiled:
            return None  # compiled code allocates without a word
        feed = _Feed(self.arm.source)
        feed.begin()
        batch = feed.next()
        found = measured_peak(training, iter([batch]), as_on_gpu=False, most_batches=1)
        self.samples += samples_in(batch, self.arm.source.batch_size)
        return found.peak_bytes

    def trial(
        self,
        samples: int,
        from_samples: int,
        deadline_s: float,
        *,
        before_window: Callable[[], object],
    ) -> TimedWindow:
        """Begin an epoch, settle, and time the training on so many samples.

        Args:
            samples: of the window; it ends with a whole batch.
            from_samples: that the arm is to have trained on when the window begins, so that all arms are alike.
            deadline_s: by the clock.
            before_window: called when the device is at rest.

        Raises:
            CutOffError: where the deadline came before the end.
        """
        deadline = Deadline(deadline_s, self._perf_s, self._synchronise)
        feed = _Feed(self.arm.source)
        start_s = self._begin(feed)
        n_settled = 0
        while self.samples < from_samples or n_settled < self.settle_batches:
            self._step(feed)
            n_settled += 1
            if deadline.has_passed_after_step():
                raise CutOffError
        self._synchronise()
        before_window()
        feed.n_starts = 0
        done, last = 0, _LastLosses(_LOSS_SHARE * samples)
        with cuda_peak(self.arm.training_step().kept_tensors, self.arm.device) as peak:
            began_s = self._perf_s()
            while done < samples:
                n_samples, loss = self._step(feed)
                done += n_samples
                last.add(n_samples, loss)
                if deadline.has_passed_after_step() and done < samples:
                    self._synchronise()
                    raise CutOffError
            self._synchronise()
            duration_s = self._perf_s() - began_s
            peak_bytes = peak()
        return TimedWindow(duration_s, done, start_s, feed.n_starts, last.values(), peak_bytes)

    def close(self) -> None:
        """Let go of the workers of its loader."""
        self.arm.source.close()

    def _begin(self, feed: _Feed) -> float:
        self._synchronise()
        began_s = self._perf_s()
        feed.begin()
        return self._perf_s() - began_s

    def _step(self, feed: _Feed) -> tuple[int, Any]:
        batch = feed.next()
        loss = loss_of(self.arm.step(batch))
        n_samples = samples_in(batch, self.arm.source.batch_size)
        self.samples += n_samples
        return n_samples, loss


class _Feed:
    """The batches of one epoch after the other, as a training takes them.

    Each epoch is a whole one, so that the workers of a loader run ahead to the end of a window as they do in it.
    """

    def __init__(self, source: BatchSource) -> None:
        self._source = source
        self._batches: Iterator[Any] = iter(())
        self._first: list[Any] = []
        self.n_starts = 0

    def begin(self) -> None:
        """Begin an epoch, and wait for its first batch.

        Raises:
            UsageError: where it has none.
        """
        self._batches = self._source.first(self._source.batches_per_epoch or _ENDLESS)
        self.n_starts += 1
        try:
            self._first = [next(self._batches)]
        except StopIteration:
            raise UsageError("an epoch of the training data gave no batch") from None

    def next(self) -> Any:
        """Return the next batch; behind the last one of an epoch, the first of a new one."""
        if not self._first:
            try:
                return next(self._batches)
            except StopIteration:
                self.begin()
        return self._first.pop()


class _LastLosses:
    """The losses of the last batches, on the device until they are asked for: reading one would wait for it."""

    def __init__(self, samples: float) -> None:
        self._wanted, self._held = samples, 0
        self._losses: deque[tuple[int, Any]] = deque()

    def add(self, n_samples: int, loss: Any) -> None:
        """Add the loss of a batch; nothing where the step returned none."""
        if isinstance(loss, torch.Tensor):
            loss = loss.detach()
        elif not isinstance(loss, int | float):
            return
        self._losses.append((n_samples, loss))
        self._held += n_samples
        while len(self._losses) > 1 and self._held - self._losses[0][0] >= self._wanted:
            self._held -= self._losses.popleft()[0]

    def values(self) -> tuple[tuple[int, float], ...]:
        """Return each with the samples of its batch."""
        return tuple(
            (n, float(loss.float().mean()) if isinstance(loss, torch.Tensor) else float(loss))
            for n, loss in self._losses
        )


def process_states() -> list[SavedState]:
    """Return the switches of torch and the global random states, as they are now."""
    states: list[SavedState] = [*switches(), *random_states()]
    for state in states:
        state.copy()
    return states


def _are_steady(times_s: Sequence[float]) -> bool:
    last = times_s[-_STEADY_STEPS:]
    return len(times_s) > _LEAST_STEPS and max(last) <= _STEADY_RATIO * min(last)


def _steady_cost(times_s: Sequence[float], samples: Sequence[int]) -> tuple[float, float | None]:
    """Return the time of a sample in the steady steps, and what the others took beyond it."""
    half = len(times_s) // 2
    s_per_sample = max(math.fsum(times_s[half:]) / max(1, sum(samples[half:])), 1e-12)
    if len(times_s) < _LEAST_STEPS:
        return s_per_sample, None
    typical = statistics.median(t / max(1, n) for t, n in zip(times_s[half:], samples[half:], strict=True))
    cold = [t - n * typical for t, n in zip(times_s[:half], samples[:half], strict=True)]
    return s_per_sample, max(0.0, math.fsum(cold))


def samples_in(batch: Any, batch_size: int) -> int:
    """Return the samples of a batch: the first dimension of its first tensor; without one, the size of batches."""
    first = next(iter(_tensors_in(batch)), None)
    return batch_size if first is None or first.ndim == 0 else int(first.shape[0])


def _tensors_in(batch: Any) -> Iterator[torch.Tensor]:
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        for part in batch.values():
            yield from _tensors_in(part)
    elif isinstance(batch, list | tuple):
        for part in batch:
            yield from _tensors_in(part)
