"""An arm as it trains on, a trial at a time: warm-up, start, settling, and the timed window."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import torch

from greenlove_tracker.exploration.peak_memory import peak_of_steps, started_cuda_peak
from greenlove_tracker.exploration.random_state import saved_process
from greenlove_tracker.exploration.trials import Deadline
from greenlove_tracker.machine import devices
from greenlove_tracker.techniques.arm import Arm
from greenlove_tracker.techniques.trial_schedule import ArmCost
from greenlove_tracker.vocabulary.comparisons import ArmTrial
from greenlove_tracker.vocabulary.errors import UsageError

_LEAST_STEPS = 3  # of a warm-up: the first is cold, and one more may be
_STEADY_STEPS = 3  # that must agree
_STEADY_RATIO = 1.25  # of the longest of them to the shortest
_LEAST_WARM_S = 0.3  # steps of a millisecond agree by chance
_MOST_PEAK_STEP_S = 1.0  # where a step takes minutes, its memory is not worth one
_LAST_LOSSES = 10  # of a trial, that its loss is the mean of
_ENDLESS = 10**9  # batches


@dataclass(slots=True)
class ArmRecord:
    """Facts about an arm beside its trials.

    Attributes:
        notes: what the technique changes in what is learnt, and what it counted.
        reason: it was not run because; empty where it was.
        one_off_s: what its first steps took beyond as many steady ones; None where too few were made to tell.
        starts_s: times until the first batch of an epoch was there, of all trials.
        n_starts: epochs that began in the windows of its trials.
        warm_up_s: that its building and its first steps took.
    """

    notes: list[str] = field(default_factory=list)
    reason: str = ""
    one_off_s: float | None = None
    starts_s: list[float] = field(default_factory=list)
    n_starts: int = 0
    warm_up_s: float = 0.0


class CutOffError(Exception):
    """The time was over before the trial was."""


class ArmTraining:
    """Trains an arm on, with random states and switches of its own, as if no other arm were there.

    Args:
        arm: that was just built: the random states and switches are those that it begins with.
        perf_s: a steady clock.
        record: takes the facts beside the trials.

    Attributes:
        arm: as given.
        record: as given.
        cost: of its trials, as known so far.
        step_peak_bytes: of a step on the CPU.
    """

    def __init__(self, arm: Arm, perf_s: Callable[[], float], record: ArmRecord) -> None:
        self.arm = arm
        self.record = record
        self.cost = ArmCost(0.0, arm.source.batch_size)
        self.step_peak_bytes: int | None = None
        self._perf_s = perf_s
        self._put_own_back = saved_process()
        self._batches: Iterator[Any] = iter(())
        self._n_begun = 0
        loader = arm.parts["train_dataset"]
        n_workers = getattr(loader, "num_workers", 0) or 0
        self._settle_batches = max(1, n_workers * (getattr(loader, "prefetch_factor", None) or 1))
        arm.parts["model"].train()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Be inside the arm's own switches and random states; those around it are put back."""
        put_around_back = saved_process()
        self._put_own_back()
        try:
            with self.arm.active():
                yield
        finally:
            self._put_own_back = saved_process()
            put_around_back()

    def warm_up(self, until_s: float, end_s: float) -> None:
        """Make the first steps, until they are steady or the time is over; at least one.

        Args:
            until_s: the end of its time, by the clock.
            end_s: the end of all time: until then a model that is compiled makes some more, as the first step tells
                nothing of the others.
        """
        start_s = self._begin_epoch()
        began_s = self._perf_s()
        times_s = list[float]()
        samples = list[int]()
        n_least = _LEAST_STEPS if self.arm.training_step().is_compiled else 1
        while not times_s or self._perf_s() < (end_s if len(times_s) < n_least else until_s):
            step_s = self._perf_s()
            samples.append(self._step()[0])
            times_s.append(self._rested_s() - step_s)
            if _are_steady(times_s) and self._perf_s() - began_s >= _LEAST_WARM_S:
                break
        s_per_sample, self.record.one_off_s = _steady_cost(times_s, samples)
        batch_size = self.arm.source.batch_size
        self.cost = ArmCost(s_per_sample, batch_size, start_s + self._settle_batches * batch_size * s_per_sample)
        if times_s[-1] <= _MOST_PEAK_STEP_S or self._perf_s() < until_s:
            self.step_peak_bytes = self._peak_of_a_step()

    def _peak_of_a_step(self) -> int | None:
        """Return the most that tensors take on the CPU in a step, which is made apart; None where it cannot be told."""
        training = self.arm.training_step()
        if self.arm.device.type != "cpu" or training.is_compiled:
            return None  # compiled code allocates without a word
        self._begin_epoch()
        with suppress(Exception):  # steps run without this: it takes no trial away
            return peak_of_steps(training, iter([next(self._batches)]), as_on_gpu=False, most_batches=1).peak_bytes
        return None

    def trial(
        self, samples: int, deadline_s: float, *, block: int, position: int, before_window: Callable[[], object]
    ) -> ArmTrial:
        """Begin an epoch, settle, and time the training on so many samples.

        Args:
            samples: of the window; it ends with a whole batch.
            deadline_s: by the clock.
            block: of the trial.
            position: of the trial.
            before_window: called when the device is at rest.

        Returns:
            The trial, without its energy; its start is by the clock.

        Raises:
            CutOffError: where the deadline came before the end.
        """
        deadline = Deadline(deadline_s, self._perf_s)
        start_s = self._begin_epoch()
        for _ in range(self._settle_batches):
            self._step()
            if deadline.has_passed():
                raise CutOffError
        devices.synchronise()
        before_window()
        n_begun = self._n_begun
        done = 0
        losses = deque[Any](maxlen=_LAST_LOSSES)
        peak_bytes = started_cuda_peak(self.arm.training_step().kept(), self.arm.device)
        began_s = self._perf_s()
        while done < samples:
            n_samples, loss = self._step()
            done += n_samples
            losses.append(loss)
            if deadline.has_passed() and done < samples:
                raise CutOffError
        duration_s = self._rested_s() - began_s
        measured_bytes = peak_bytes()
        self.record.starts_s.append(start_s)
        self.record.n_starts += self._n_begun - n_begun
        return ArmTrial(
            self.arm.name,
            block,
            position,
            began_s,
            duration_s,
            done,
            start_s,
            peak_memory_bytes=self.step_peak_bytes if measured_bytes is None else measured_bytes,
            loss=_mean_loss(losses),
        )

    def close(self) -> None:
        """Let go of the workers of its loader."""
        self.arm.source.close()

    def _rested_s(self) -> float:
        devices.synchronise()
        return self._perf_s()

    def _begin_epoch(self) -> float:
        """Begin an epoch, and return the time until its first batch was there.

        Each is a whole one, so that the workers of a loader run ahead to the end of a window as they do in it.

        Raises:
            UsageError: where it has none.
        """
        began_s = self._rested_s()
        source = self.arm.source
        batches = source.first(source.batches_per_epoch or _ENDLESS)
        first = next(batches, None)
        if first is None:
            raise UsageError("an epoch of the training data gave no batch")
        self._batches = chain([first], batches)
        self._n_begun += 1
        return self._perf_s() - began_s

    def _step(self) -> tuple[int, Any]:
        """Make a step on the next batch, of a new epoch where one has ended; return its samples and its loss."""
        batch = next(self._batches, None)
        if batch is None:
            self._begin_epoch()
            batch = next(self._batches)
        return self.arm.train_on(batch)


def _mean_loss(losses: Sequence[Any]) -> float | None:
    """Return the mean of what steps returned, read now: on the way each would have waited for the device."""
    known = [loss for loss in losses if isinstance(loss, torch.Tensor | int | float)]
    if known:
        return statistics.fmean(map(float, known))
    return None


def _are_steady(times_s: Sequence[float]) -> bool:
    last = times_s[-_STEADY_STEPS:]
    return len(times_s) > _LEAST_STEPS and max(last) <= _STEADY_RATIO * min(last)


def _steady_cost(times_s: Sequence[float], samples: Sequence[int]) -> tuple[float, float | None]:
    """Return the time of a sample in the steady steps, and what the others took beyond it."""
    half = len(times_s) // 2
    n_steady = max(1, sum(samples[half:]))
    s_per_sample = max(math.fsum(times_s[half:]) / n_steady, 1e-12)
    if len(times_s) < _LEAST_STEPS:
        return s_per_sample, None
    usual_s = sum(samples[:half]) * s_per_sample
    return s_per_sample, max(0.0, math.fsum(times_s[:half]) - usual_s)
