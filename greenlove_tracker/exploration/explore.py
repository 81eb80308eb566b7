"""Runs what the exploration scheduler asks for, within its budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from greenlove_tracker.exploration.asks import Ask, Scheduler
from greenlove_tracker.exploration.sources import Source
from greenlove_tracker.exploration.trial import Step, run_trial
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

    ask: Ask
    spent_s: float
    relative_width: float | None


@dataclass(frozen=True, slots=True)
class Outcome:
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
    source: Source,
    step: Step,
    scheduler: Scheduler,
    *,
    perf_s: Callable[[], float],
    synchronise: Callable[[], None],
    measuring: Measuring,
    width_of: Callable[[tuple[Trial, ...]], float | None],
    watch: Callable[[Situation], None],
    spent_before_s: float = 0.0,
) -> Outcome:
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
    return Outcome(scheduler.trials(source.batch_size), perf_s() - began_s, is_finite)
