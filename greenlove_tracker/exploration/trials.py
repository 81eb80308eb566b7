"""Runs what the exploration scheduler asks for, within its budget."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from greenlove_tracker.errors import UsageError
from greenlove_tracker.exploration.batches import BatchSource
from greenlove_tracker.exploration.scheduler import Scheduler, TrialRequest
from greenlove_tracker.forecasting import Trial

_LEAST_SIZES = 3  # below it a forecast is wide by rule, and its width no reason to stop


class Measuring(Protocol):
    """Energy of a stretch of time."""

    def begin(self) -> None:
        """The stretch begins."""

    def end(self) -> float | None:
        """It is over; its energy in kWh, None where that is not known."""


@dataclass(frozen=True, slots=True)
class Situation:
    """Where an exploration stands, for whoever watches it."""

    ask: TrialRequest
    spent_s: float
    relative_width: float | None


@dataclass(frozen=True, slots=True)
class ExplorationOutcome:
    """What an exploration found.

    Attributes:
        trials: for the extrapolation.
        spent_s: all of it, what was not timed too.
        is_finite: whether every loss that was looked at was a finite number.
    """

    trials: tuple[Trial, ...]
    spent_s: float
    is_finite: bool


def explore(
    source: BatchSource,
    step: Step,
    scheduler: Scheduler,
    *,
    perf_s: Callable[[], float],
    synchronise: Callable[[], None],
    measuring: Measuring,
    width_of: Callable[[tuple[Trial, ...]], float | None],
    watch: Callable[[Situation], None],
    spent_before_s: float = 0.0,
) -> ExplorationOutcome:
    """Run trials until the scheduler has no more to ask.

    Args:
        source: of batches.
        step: the training's own.
        scheduler: says what to run.
        perf_s: a steady clock.
        synchronise: brings the device to rest.
        measuring: of energy.
        width_of: the relative width of the forecast that trials give, None where they give none.
        watch: is told before each trial.
        spent_before_s: of the budget, on the snapshot and the like.
    """
    began_s = perf_s() - spent_before_s
    width, is_finite = None, True
    while (ask := scheduler.next(perf_s() - began_s, relative_width=width)) is not None:
        watch(Situation(ask, perf_s() - began_s, width))
        measuring.begin()
        timed = run_trial(
            source,
            step,
            ask.batches,
            ask.epochs,
            deadline_s=perf_s() + ask.deadline_s,
            perf_s=perf_s,
            synchronise=synchronise,
        )
        energy_kwh = measuring.end()
        is_finite = is_finite and timed.is_finite
        has_whole = bool(timed.epoch_durations_s) and not timed.partial_batches
        scheduler.tell(
            timed.epoch_durations_s,
            timed.partial_batches,
            timed.partial_s,
            energy_kwh=energy_kwh if has_whole and energy_kwh else None,
        )
        trials = scheduler.trials(source.batch_size)
        width = width_of(trials) if len({t.sample_size for t in trials}) >= _LEAST_SIZES else None
    return ExplorationOutcome(scheduler.trials(source.batch_size), perf_s() - began_s, is_finite)


# -- One timed trial of a torch training: the user's own loader and step, on the first batches of an epoch --

Step = Callable[[Any], Any]  # takes a batch, may return its loss
_SYNCHRONISE_EVERY_S = 0.5  # a GPU runs behind: without this a deadline would be seen too late


@dataclass(frozen=True, slots=True)
class TrialTiming:
    """What a trial took.

    Attributes:
        batches: of each whole epoch.
        epoch_durations_s: of the whole epochs.
        partial_batches: of the epoch that the deadline cut off; 0 where none was.
        partial_s: its time.
        is_finite: whether the last loss was a finite number, or there was none to look at.
    """

    batches: int
    epoch_durations_s: tuple[float, ...]
    partial_batches: int = 0
    partial_s: float = 0.0
    is_finite: bool = True


def run_trial(
    source: BatchSource,
    step: Step,
    batches: int,
    epochs: int,
    *,
    deadline_s: float,
    perf_s: Callable[[], float],
    synchronise: Callable[[], None],
) -> TrialTiming:
    """Time some epochs of some batches each; the deadline is looked at after each step.

    Args:
        source: of the batches.
        step: the training's.
        batches: of an epoch.
        epochs: how many.
        deadline_s: by ``perf_s``; the step that passes it is the last.
        perf_s: a steady clock.
        synchronise: brings the device to rest.
    """
    durations_s: list[float] = []
    is_finite = True
    for _ in range(epochs):
        epoch = _run_epoch(source, step, batches, deadline_s, perf_s, synchronise)
        is_finite = epoch.is_finite
        if epoch.batches < batches:
            return TrialTiming(batches, tuple(durations_s), epoch.batches, epoch.duration_s, is_finite)
        durations_s.append(epoch.duration_s)
        if perf_s() >= deadline_s:
            break
    return TrialTiming(batches, tuple(durations_s), is_finite=is_finite)


@dataclass(frozen=True, slots=True)
class _TimedEpoch:
    """What was done of an epoch, and whether its last loss was finite."""

    batches: int
    duration_s: float
    is_finite: bool


def _run_epoch(
    source: BatchSource,
    step: Step,
    batches: int,
    deadline_s: float,
    perf_s: Callable[[], float],
    synchronise: Callable[[], None],
) -> _TimedEpoch:
    """One epoch, to its end or to the step that passes the deadline.

    Raises:
        UsageError: where the data end before.
    """
    synchronise()
    began_s = seen_s = perf_s()
    done, loss = 0, None
    first = source.first(batches)  # held to the end: what a stream loaded ahead is thrown away outside the clock
    for batch in first:
        if perf_s() >= deadline_s:  # a loader's start may have taken it all
            break
        loss = step(batch)
        done += 1
        if perf_s() > seen_s + _SYNCHRONISE_EVERY_S:
            synchronise()
            seen_s = perf_s()
        if perf_s() >= deadline_s:
            break
    is_late = perf_s() >= deadline_s
    synchronise()
    epoch = _TimedEpoch(done, perf_s() - began_s, _is_finite(loss))
    if done < batches and not is_late:
        raise UsageError(
            f"the training data ended after {done} batches where {batches} were asked for: give it a length that "
            "is true, or fewer batches"
        )
    return epoch


def _is_finite(loss: Any) -> bool:
    loss = loss.get("loss") if isinstance(loss, dict) else getattr(loss, "loss", loss)
    if isinstance(loss, torch.Tensor):
        return bool(torch.isfinite(loss.detach()).all())
    return not isinstance(loss, float) or math.isfinite(loss)


def default_step(model: Any, batch: Any, optimizer: Any, criterion: Any, device: Any) -> Any:
    """One step on a batch of (inputs, targets); anything else needs a ``train_step`` of the user's.

    Raises:
        UsageError: where the batch is something else.
    """
    if isinstance(batch, dict) or not isinstance(batch, list | tuple) or len(batch) != 2:
        kind = type(batch).__name__ + (f" of {len(batch)}" if isinstance(batch, list | tuple | dict) else "")
        raise UsageError(
            f"a batch is a {kind}, not (inputs, targets): give train_step=, a function of "
            "(model, batch, optimizer, criterion, device) that makes one step"
        )
    inputs, targets = (part.to(device, non_blocking=True) for part in batch)
    optimizer.zero_grad()
    loss = criterion(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss
