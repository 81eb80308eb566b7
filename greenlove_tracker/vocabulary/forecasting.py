"""The vocabulary of forecasts: trials, plans, estimates, warnings and forecasts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Literal

from greenlove_tracker.vocabulary.errors import UsageError, whole_number
from greenlove_tracker.vocabulary.phases import (
    Phase,
    length_by_phases,
    pauses_between,
    phases_from,
    phases_until,
)
from greenlove_tracker.vocabulary.stopping import ExpectedStop
from greenlove_tracker.vocabulary.worded import Worded

_MOST_BATCHES = 10**12  # a month of microsecond steps is 2.6e12: more is a slip of the pen
_MOST_EPOCHS = 10**8

_MOST_PASSED = 1 - 1e-9  # of a distribution; beyond, rounding is larger than what is left of it

LEVEL = 0.95  # of the intervals of a forecast, where no other is asked for
PROJECTION_LEVEL = 0.90  # of those of a projection to another machine
P99 = 0.99  # the probability that a batch system's time limit holds with
FITS = 0.95  # the probability with which so many epochs are said to fit a limit
WIDE_RELATIVE_WIDTH = 0.25  # (upper - lower) / point, above which an interval is called wide
LEAST_SIZES = 3  # two sizes of trials cannot show whether cost is linear in them
# Energy counters refresh about every 100 ms: under 5 s a mean power is noise (CodeCarbon's notes, NVML).
LEAST_ENERGY_S = 5.0


# Of a time that somebody measured, in s: beyond these its square, or its share of a whole, is no number any more.
LEAST_S = 1e-12
MOST_S = 1e12


@dataclass(frozen=True, slots=True)
class Trial:
    """One timed trial: some epochs over a sample of the data.

    Attributes:
        sample_size: samples of one epoch.
        batch_size: samples of a batch.
        epoch_durations_s: the time of each epoch, in order, the first ones cold.
        energy_kwh: the energy of all its epochs together; None if it was not measured.
        tokens_per_epoch: tokens of one epoch, if they vary and the cost is proportional to them.

    Raises:
        UsageError: if a number is invalid.
    """

    sample_size: int
    batch_size: int
    epoch_durations_s: tuple[float, ...]
    energy_kwh: float | None = None
    tokens_per_epoch: int | None = None

    def __post_init__(self) -> None:
        for name in ("sample_size", "batch_size", "tokens_per_epoch"):
            if getattr(self, name) is not None or name != "tokens_per_epoch":
                object.__setattr__(self, name, whole_number(name, getattr(self, name)))
        object.__setattr__(self, "epoch_durations_s", tuple(float(d) for d in self.epoch_durations_s))
        if not self.epoch_durations_s:
            raise UsageError("a trial needs at least one epoch_durations_s")
        for duration_s in self.epoch_durations_s:
            if not LEAST_S <= duration_s <= MOST_S:
                raise UsageError(f"epoch_durations_s must be between 1e-12 and 1e12 s, not {duration_s!r}")
        if self.energy_kwh is not None and not (math.isfinite(self.energy_kwh) and self.energy_kwh > 0):
            raise UsageError(f"energy_kwh must be positive, or None where it was not measured, not {self.energy_kwh!r}")

    @property
    def batches(self) -> int:
        """Batches of one epoch; a partial last batch counts as one."""
        return -(-self.sample_size // self.batch_size)

    @property
    def total_s(self) -> float:
        """The time of all its epochs."""
        return math.fsum(self.epoch_durations_s)


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """The full training: in samples and epochs, or in optimizer steps.

    Attributes:
        samples: samples of one epoch.
        batch_size: samples of a batch.
        epochs: number of epochs.
        steps: number of optimizer steps, for a training that counts in steps. With ``samples`` and ``batch_size`` each
            pass over the data is an epoch; without, all steps are one epoch.
        tokens_per_step: tokens of one step, or with ``samples`` of one batch, if the cost is proportional to tokens.
        eval_every: an evaluation after every so many epochs, or steps in a plan in steps; None for none.
        save_every: a checkpoint after every so many epochs, or steps in a plan in steps; None for none.
        batches_per_step: batches that one optimizer step accumulates, in a plan in steps; None for one.
        phases: phases in which a step does more or less work, or evaluations are more frequent; they determine the
            length of the plan.
        stop: where early stopping is expected to end a plan in epochs; None if no rule may.

    Raises:
        UsageError: if the plan is incomplete, contradicts itself or is impossible.
    """

    samples: int | None = None
    batch_size: int | None = None
    epochs: int | None = None
    steps: int | None = None
    tokens_per_step: int | None = None
    eval_every: int | None = None
    save_every: int | None = None
    batches_per_step: int | None = None
    phases: tuple[Phase, ...] = ()
    stop: ExpectedStop | None = None

    def __post_init__(self) -> None:
        self._take_phases()
        if self.steps is None and None in (self.samples, self.batch_size, self.epochs):
            raise UsageError("a plan is TrainingPlan(samples=…, batch_size=…, epochs=…) or TrainingPlan(steps=…)")
        if self.steps is not None and self.epochs is not None:
            raise UsageError("a plan is in epochs or in steps, not in both: give one of them")
        if self.samples is not None and self.batch_size is None:
            raise UsageError("samples say how long a pass over the data is only with their batch_size: give both")
        for field in fields(self):
            if field.name not in ("phases", "stop") and getattr(self, field.name) is not None:
                object.__setattr__(self, field.name, whole_number(field.name, getattr(self, field.name)))
        if self.stop is not None and self.epochs is None:
            raise UsageError(
                "an expected stop counts epochs: give the plan in epochs, TrainingPlan(epochs=…), not steps"
            )
        if self.stop is not None and self.stop.most_epochs != self.epochs:
            raise UsageError(
                f"the expected stop is of a training of {self.stop.most_epochs:,} epochs, and the plan has "
                f"{self.epochs:,}: make it with most_epochs={self.epochs}"
            )
        if self.n_epochs > _MOST_EPOCHS or self.n_epochs * self.batches_per_epoch > _MOST_BATCHES:
            raise UsageError(
                f"{self.n_epochs:,} epochs of {self.batches_per_epoch:,} batches cannot be meant: give the number of "
                "epochs, and the samples of one epoch"
            )

    def _take_phases(self) -> None:
        """Check the phases, and take the length from them.

        Raises:
            UsageError: if they contradict the rest of the plan.
        """
        object.__setattr__(self, "phases", phases_from(self.phases))
        if not self.phases:
            return
        object.__setattr__(self, self.phases[0].unit, length_by_phases(self.phases, self.epochs, self.steps))
        for name in ("eval_every", "save_every"):
            if getattr(self, name) is not None and any(getattr(phase, name) is not None for phase in self.phases):
                raise UsageError(f"{name} of the plan and of its phases: give it in one place")

    @property
    def n_epochs(self) -> float:
        """The number of epochs; for a training in steps its passes over the data, or one."""
        return self.epochs or self._batches_of_steps / self.batches_per_epoch

    @property
    def n_starts(self) -> int:
        """The number of epochs that begin; the last one may be partial."""
        return math.ceil(self.n_epochs)

    @property
    def batches_per_epoch(self) -> int:
        """Batches of one epoch; a partial last batch counts as one."""
        if self.samples is None:
            return self._batches_of_steps
        batches = -(-self.samples // (self.batch_size or 1))
        if self.steps is None:
            return batches
        return min(self._batches_of_steps, batches)

    @property
    def _batches_of_steps(self) -> int:
        return (self.steps or 0) * (self.batches_per_step or 1)

    @property
    def n_evaluations(self) -> int:
        """Evaluations in the whole training."""
        return self._times("eval")

    @property
    def n_checkpoints(self) -> int:
        """Checkpoints in the whole training."""
        return self._times("save")

    def with_length(
        self, *, epochs: int | None = None, samples: int | None = None, steps: int | None = None
    ) -> TrainingPlan:
        """Return the same training with other numbers of epochs, samples or steps; None keeps one as it is.

        Phases belong to one length and are dropped for another; so are evaluations and checkpoints that were planned in
        the other unit. An expected stop is kept, up to the new end.

        Raises:
            UsageError: if both epochs and steps are given, or epochs for a plan in steps alone.
        """
        if epochs and self.steps is not None and (samples or self.samples) is None:
            raise UsageError("the training was planned in steps alone, and has no epochs to count: say its steps")
        if not (epochs or steps):
            return replace(self, samples=samples or self.samples)
        stop = stop_within(self.stop, epochs) if self.stop is not None and epochs else self.stop
        plan = replace(self, samples=samples or self.samples, epochs=epochs, steps=steps, phases=(), stop=stop)
        if (epochs, steps) == (self.epochs, self.steps):
            return replace(plan, phases=self.phases)
        is_same_unit = (epochs is None) == (self.epochs is None)
        if is_same_unit:
            return plan
        return replace(plan, eval_every=None, save_every=None)

    def until(self, epochs: int) -> TrainingPlan:
        """Return the plan of the same training if it ends after this epoch; without an expected stop."""
        return replace(self, epochs=epochs, phases=phases_until(self.phases, epochs), stop=None)

    def has_pauses(self, kind: str) -> bool:
        """Return True if the plan or a phase has evaluations, ``eval``, or checkpoints, ``save``."""
        return any(getattr(part, f"{kind}_every") is not None for part in (self, *self.phases))

    def _times(self, kind: str) -> int:
        every = getattr(self, f"{kind}_every")
        length = self.steps or self.epochs or 0
        return length // every if every else pauses_between(self.phases, 0, length, kind)


def stop_within(stop: ExpectedStop, most_epochs: int, *, after: int = 0) -> ExpectedStop:
    """Return the expected stop of a training with another number of epochs, of which the first may be left out.

    What the rule would end later, or never, ends with the last epoch; what it ended before ends with the first.

    Args:
        stop: the expected stop of the training.
        most_epochs: the number of epochs that count.
        after: the epochs before the first that counts; the training did not end in them.
    """
    shares: dict[int, float] = {}
    none = stop.probability_of_none
    for epochs, share in stop.probabilities:
        if epochs > after:
            is_cut = epochs - after > most_epochs
            if is_cut or epochs == stop.most_epochs:
                end = most_epochs
            else:
                end = epochs - after
            shares[end] = shares.get(end, 0.0) + share
            none += share if is_cut and epochs != stop.most_epochs else 0.0
    total = math.fsum(shares.values()) or 1.0
    found = tuple((epochs, share / total) for epochs, share in sorted(shares.items())) or ((1, 1.0),)
    return ExpectedStop(found, most_epochs, min(1.0, none / total), stop.basis)


class Kind(StrEnum):
    """The kind of statement that an interval makes."""

    PREDICTION = "prediction"  # of one future total
    CONFIDENCE = "confidence"  # of a mean
    ASSUMPTION = "assumption"  # not statistical
    MEASUREMENT = "measurement"  # of a past total, whose meters err


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its interval."""

    point: float
    lower: float
    upper: float
    level: float
    unit: str
    kind: str = Kind.PREDICTION

    @property
    def has_interval(self) -> bool:
        """False for a bare number without an interval: its level is 0, and its ends are the point."""
        return self.level > 0

    @property
    def relative_width(self) -> float:
        """(upper - lower) / point."""
        if self.point:
            return (self.upper - self.lower) / self.point
        return math.inf

    def probability_above(self, limit: float) -> float:
        """Return the probability of more than ``limit``; each side of the interval is half a normal.

        Beyond the interval itself, this is only as good as that assumption.
        """
        from statistics import NormalDist  # 10 ms, and only where there is a budget

        end = self.upper if limit >= self.point else self.lower
        distance = abs(end - self.point)
        if distance == 0:
            return float(limit < self.point)
        z = (limit - self.point) / distance * NormalDist().inv_cdf((1 + self.level) / 2)
        return 1.0 - NormalDist().cdf(z)

    def quantile(self, probability: float) -> float:
        """Return the value that is not exceeded with this probability, as ``probability_above`` counts."""
        if not self.has_interval:
            return self.point
        from statistics import NormalDist

        z = NormalDist().inv_cdf(probability) / NormalDist().inv_cdf((1 + self.level) / 2)
        return self.point + z * (self.upper - self.point if z > 0 else self.point - self.lower)

    def given_more_than(self, value: float) -> Estimate:
        """Return the estimate of a total that is known to exceed ``value``, such as the time that has passed.

        Each side of the interval is half a normal distribution, of which the part above ``value`` remains.
        """
        if value <= self.lower:
            return self
        passed = 1.0 - self.probability_above(value)
        if passed >= _MOST_PASSED:
            return replace(self, point=value, lower=value, upper=value)
        shares = (1 - self.level) / 2, 0.5, (1 + self.level) / 2
        lower, point, upper = (max(value, self.quantile(passed + share * (1 - passed))) for share in shares)
        return replace(self, point=point, lower=lower, upper=upper)

    def plus(self, amount: float) -> Estimate:
        """Return the estimate with an exact amount added."""
        return Estimate(self.point + amount, self.lower + amount, self.upper + amount, self.level, self.unit, self.kind)

    def times(self, factor: float, unit: str) -> Estimate:
        """Return the estimate in another unit, or multiplied by an exact factor."""
        ends = self.lower * factor, self.upper * factor  # at a negative price the least energy costs most
        lower = min(ends)
        upper = max(ends)
        return Estimate(self.point * factor, lower, upper, self.level, unit, self.kind)

    def with_error(self, below: float, above: float) -> Estimate:
        """Return the estimate with a further, independent error; the squares add up on either side.

        Args:
            below: this error alone lets the truth be as low as the point / (1 + below), so no interval reaches 0.
            above: and as high as the point * (1 + above).
        """
        if self.point <= 0:
            return self
        lower = self.lower
        if lower > 0:
            lower = self.point / (1 + math.hypot(self.point / lower - 1, below))
        upper = self.point * (1 + math.hypot(self.upper / self.point - 1, above))
        return replace(self, lower=lower, upper=upper)

    def total(self, used: float | None) -> float:
        """Return the point of a total, raised to what is used so far."""
        if used is None or self.point < 0:
            return self.point
        return max(self.point, used)


def stop_estimate(stop: ExpectedStop, level: float, *, before: int = 0) -> Estimate:
    """Return the median and an interval of the epoch after which a rule ends a training.

    Args:
        stop: the distribution of that epoch.
        level: the level of the interval.
        before: the epochs that were done before the first that it counts.
    """
    lower, point, upper = (before + stop.quantile(p) for p in ((1 - level) / 2, 0.5, (1 + level) / 2))
    return Estimate(point, lower, upper, level, "epochs", Kind.PREDICTION)


class WarningCode(StrEnum):
    """The name of a problem that makes a forecast worse.

    Attributes:
        WIDE: the interval is so wide that it says little.
        FEW: trials of too few sizes, or too little of a run, or too few runs.
        FAR: the plan's epoch is many times the largest trial.
        NONLINEAR: the cost is not linear in the size.
        POWER_LAW: a power law is extended beyond what was timed.
        BACKTEST: the other trials do not predict the largest size.
        SCATTER: trials of one size differ by a factor.
        ENERGY: energy was measured for too short a time.
        EVALUATION: evaluations were timed once or not at all.
        CHECKPOINT: checkpoints were timed once or not at all.
        GAPS: no gap between epochs has been timed, so none is forecast; or no end of an epoch: its time is assumed.
        NAN: a loss was not finite.
        WORK: the work of a step changes and no plan says how it goes on; or it is planned, and its cost still unknown.
    """

    WIDE = "WIDE"
    FEW = "FEW"
    FAR = "FAR"
    NONLINEAR = "NONLINEAR"
    POWER_LAW = "POWER_LAW"
    BACKTEST = "BACKTEST"
    SCATTER = "SCATTER"
    ENERGY = "ENERGY"
    EVALUATION = "EVALUATION"
    CHECKPOINT = "CHECKPOINT"
    GAPS = "GAPS"
    NAN = "NAN"
    WORK = "WORK"

    def warning(self, message: str, advice: str = "", is_serious: bool = False) -> ForecastWarning:
        """Return the warning of this name."""
        return ForecastWarning(self, message, advice, is_serious)


@dataclass(frozen=True, slots=True)
class ForecastWarning:
    """A problem that makes a forecast worse, and what would help."""

    name: WarningCode
    message: str
    advice: str = ""
    is_serious: bool = False

    def __str__(self) -> str:
        return f"{self.name}: {self.message}" + (f"; {self.advice}" if self.advice else "")


@dataclass(frozen=True, slots=True)
class PhaseForecast:
    """The part of a forecast that belongs to one phase.

    Attributes:
        phase: the phase of the plan.
        duration_s: the time of its steps or epochs, past and future, without evaluations and checkpoints.
        eval_s: the time of one evaluation in it; None if the plan has none, or if their length is unknown.
        n_evaluations: the number of evaluations planned in it.
    """

    phase: Phase
    duration_s: Estimate
    eval_s: Estimate | None = None
    n_evaluations: int = 0


@dataclass(frozen=True, slots=True)
class Position:
    """How far a run was when a forecast of it was made.

    Attributes:
        total_units: the epochs, or optimizer steps, of the whole training.
        done_units: those that were done.
        done_s: the time since the start at that point.
        is_in_steps: True if the units are optimizer steps instead of epochs.
    """

    total_units: float
    done_units: float
    done_s: float
    is_in_steps: bool = False


@dataclass(frozen=True, slots=True)
class TimeFit:
    """The prospect of a training under a time limit.

    Attributes:
        limit_s: the limit, from its start.
        probability: the probability that the whole training fits; exactly 0 if ``is_over``.
        is_over: True if the limit has passed.
        longest: the largest number of units, from the first one on, that fits with 95% probability; None if unknown, or
            if a running training fits as a whole.
        unit: ``epoch``, ``step`` or ``sample``.
        done: the units that are done.
    """

    limit_s: float
    probability: float
    is_over: bool = False
    longest: int | None = None
    unit: str = "epoch"
    done: int = 0


@dataclass(frozen=True, slots=True)
class Forecast(Worded):
    """The forecast of a training, each quantity with its interval.

    Attributes:
        duration_s: wall time of the whole training.
        energy_kwh: its energy; None if no trial measured any.
        emissions_kgco2e: None without an energy or a carbon intensity; includes the intensity's own error if known.
        cost_usd: None without a price; the cost of the machine's time if it has a price, else of electricity.
        one_off_s: the time spent once: compilation, caches, the excess of the first epochs.
        per_epoch_s: the time of an epoch beside its batches; None if the method or a single size cannot tell.
        per_batch_s: the time of a batch (of a token if the fit is in tokens); None if no batches were counted.
        warnings: the problems that make this forecast worse, by name.
        backtest_error: the relative error of the largest size forecast from the others; None with too few sizes.
        method: how it was made; ``live`` from the run itself.
        degrees_of_freedom: trials minus fitted parameters; for a live forecast, epochs (or blocks of steps) minus one.
        plan: the plan that was forecast; None if only the number of epochs or steps is known.
        duration_p99_s: the time that is exceeded with a probability of 1%; request it from a batch system.
        between_s: all evaluations and checkpoints together, part of the duration; None if the plan has none, or none
            was timed.
        phases: the part of each phase of the plan; empty if it has none.
        position: the position of the run that it was made from; None before a run.
        expected_stop: where early stopping is expected to end it; the quantities are mixtures over these epochs. None
            if no rule may end it.
        without_stop: the forecast of all epochs, if a rule may end it earlier; else None.
        is_energy_modelled: True if its energy is of a run in which no hardware measured any.
    """

    duration_s: Estimate
    energy_kwh: Estimate | None
    emissions_kgco2e: Estimate | None
    cost_usd: Estimate | None
    one_off_s: Estimate
    per_epoch_s: Estimate | None
    per_batch_s: Estimate | None
    warnings: Sequence[ForecastWarning]
    backtest_error: float | None
    method: Literal["wls", "power", "green-love", "live"]
    degrees_of_freedom: int
    plan: TrainingPlan | None
    duration_p99_s: float | None = None
    between_s: Estimate | None = None
    phases: tuple[PhaseForecast, ...] = ()
    position: Position | None = None
    expected_stop: ExpectedStop | None = None
    without_stop: Forecast | None = None
    is_energy_modelled: bool = False

    @property
    def is_reliable(self) -> bool:
        """True if none of the warnings is serious."""
        return not any(w.is_serious for w in self.warnings)

    def seconds_per_unit(self, total_units: float) -> float:
        """Return the mean time of an epoch, or step, without what lies between them.

        Args:
            total_units: the units of the training, if neither a plan nor a run has them.
        """
        if self.without_stop is not None:
            return self.without_stop.seconds_per_unit(total_units)
        if self.method == "live" and self.phases:
            return math.fsum(p.duration_s.point for p in self.phases) / sum(p.phase.length for p in self.phases)
        if self.method == "live" and self.per_epoch_s is not None:
            return self.per_epoch_s.point
        between_s = self.between_s.point if self.between_s is not None else 0.0
        if self.plan is not None:
            units = self.plan.steps or self.plan.n_epochs
        else:
            units = total_units
        return (self.duration_s.point - self.one_off_s.point - between_s) / units


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a running training between two boundaries.

    Attributes:
        units: the epochs, or optimizer steps, done in it; below one for an epoch that began before the run resumed.
        active_s: the time of these, without pauses.
        paused_s: the time of evaluations and checkpoints within them.
        between_s: the time of the gap that followed; None while that gap is still open.
        is_cold: True if known to be slower than what follows, such as an epoch during which we were still importing.
    """

    units: float
    active_s: float
    paused_s: float
    between_s: float | None
    is_cold: bool = False

    @property
    def gap_units(self) -> float:
        """The units that its gaps belong to: the gap after a part of an epoch is that of a whole one."""
        return max(1.0, self.units)


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a running training.

    Attributes:
        total_units: the epochs, or steps, of the whole training.
        done_units: those that are done: the units of the blocks and those before them, which are the first step (it
            counts as start-up) and, for a resumed run, what was done of its epoch before.
        blocks: the blocks that are done, in order.
        startup_s: the time before the first epoch, or to the end of the first step.
        elapsed_s: the time from the start to the end of the last block, or of the gap behind it.
        metered: duration in s and mean power in W of each part that was metered, PUE included.
        used_kwh: the energy so far, the unmetered part estimated, PUE included; None if nothing was metered.
        gpu_count: the GPUs that the price of the machine is paid for.
        phases: the phases of the plan, in the same units; empty if it has none.
        is_in_steps: True if the units are optimizer steps instead of epochs.
        is_of_first_epoch: True if the blocks are parts of the first epoch, which may be cold as a whole, and no other
            epoch has ended.
        stop: where early stopping is expected to end it, in the same epochs; None if no rule may.
    """

    total_units: float
    done_units: float
    blocks: tuple[Block, ...]
    startup_s: float
    elapsed_s: float
    metered: tuple[tuple[float, float], ...] = ()
    used_kwh: float | None = None
    gpu_count: int = 0
    phases: tuple[Phase, ...] = ()
    is_in_steps: bool = False
    is_of_first_epoch: bool = False
    stop: ExpectedStop | None = None

    @property
    def has_unseen_ends(self) -> bool:
        """True for steps of an epoch if no end of an epoch, such as a validation, was seen yet."""
        return self.is_of_first_epoch and all(block.between_s is None for block in self.blocks)

    @property
    def warm_blocks(self) -> tuple[Block, ...]:
        """The blocks that predict the rest: those that are not known to be cold."""
        return tuple(block for block in self.blocks if not block.is_cold)
