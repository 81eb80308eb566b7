"""The cost of preemptions to a training: the best interval between checkpoints, and the expected time.

Preemptions come as a Poisson process while the machine runs, so also while it saves and restarts. A training of W
seconds saves every τ seconds of work and stands still for δ each time; after a preemption it restarts in R and goes on
from its last whole checkpoint. Their expected time is the complete model of Daly (2006), here with its last stretch,
behind which nothing needs saving, and with a checkpoint that is whole only L after the training went on:

    E = 1/λ · e^{λR} · (e^{λ(τ+δ)} − 1)          of one stretch
    E + (e^{λL} − 1) · E(the stretch before)      where a preemption in its first L seconds loses that one too

Sources: J. W. Young, "A first order approximation to the optimum checkpoint interval", Communications of the ACM 17(9),
1974, 530-531. J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", Future
Generation Computer Systems 22(3), 2006, 303-312.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from greenlove_tracker.errors import UsageError
from greenlove_tracker.units import SECONDS_PER_HOUR

_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
_STEPS = 80  # of the golden section: each leaves 62% of the bracket, so 1e-16 of it is left
_LEAST_TIMES, _MOST_TIMES = 1e-3, 1e4  # of Young's interval: where the best one is looked for


@dataclass(frozen=True, slots=True)
class PreemptionTerms:
    """The rate at which a machine is taken away, and the times that saving and restarting take.

    Attributes:
        per_hour: preemptions in an hour of running.
        checkpoint_s: time that the training stands still for one checkpoint.
        restart_s: time of a machine until a training goes on from its checkpoint; paid for.
        written_s: time after it went on until the checkpoint is whole, where it is written on a thread of its own.
        wait_s: from a preemption until there is a machine again; nothing is paid or drawn meanwhile.
        announced: share of the preemptions before which an emergency checkpoint is whole, so that no work is lost.

    Raises:
        UsageError: where a number cannot be meant.
    """

    per_hour: float
    checkpoint_s: float
    restart_s: float
    written_s: float = 0.0
    wait_s: float = 0.0
    announced: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.per_hour) and self.per_hour > 0):
            raise UsageError(
                f"{{argument}} must be positive, such as 0.05 in an hour, not {self.per_hour!r}",
                argument="preemptions_per_hour",
            )
        if not (math.isfinite(self.checkpoint_s) and self.checkpoint_s > 0):
            raise UsageError(
                f"{{argument}} must be positive, such as 4.5, not {self.checkpoint_s!r}", argument="checkpoint_s"
            )
        for name in ("restart_s", "written_s", "wait_s"):
            seconds = getattr(self, name)
            if not (math.isfinite(seconds) and seconds >= 0):
                raise UsageError(f"{{argument}} must be 0 or more seconds, not {seconds!r}", argument=name)
        if not 0 <= self.announced <= 1:
            raise UsageError(f"{{argument}} is a share from 0 to 1, not {self.announced!r}", argument="announced")

    @property
    def per_s(self) -> float:
        """Preemptions in a second of running."""
        return self.per_hour / SECONDS_PER_HOUR

    @property
    def emergency_s(self) -> float:
        """Time until an emergency checkpoint is whole: nothing goes on meanwhile."""
        return self.checkpoint_s + self.written_s

    def at_rate(self, per_hour: float) -> PreemptionTerms:
        """Return the same with another rate."""
        return replace(self, per_hour=per_hour)


def young_interval_s(terms: PreemptionTerms) -> float:
    """Return the interval between checkpoints of Young (1974), √(2δM): a first-order approximation for δ ≪ M."""
    return math.sqrt(2 * terms.checkpoint_s / terms.per_s)


def daly_interval_s(terms: PreemptionTerms) -> float:
    """Return the interval of Daly (2006): √(2δM)·(1 + ⅓√(δ/2M) + ⅑·δ/2M) − δ for δ < 2M, else M.

    It approximates the optimum of his complete model, in which the time of a restart has no part.
    """
    mean_s = 1 / terms.per_s
    ratio = terms.checkpoint_s / (2 * mean_s)
    if ratio >= 1:
        return mean_s
    return young_interval_s(terms) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - terms.checkpoint_s


def least_interval_s(terms: PreemptionTerms) -> float:
    """Return the shortest interval that can be: a checkpoint is begun when the one before is whole."""
    return max(0.0, terms.written_s - terms.checkpoint_s)


def best_interval_s(terms: PreemptionTerms, training_s: float) -> float:
    """Return the interval at which the most work gets done in the time: the optimum of the model itself.

    It is kept to what can be: a checkpoint is not begun before the last one is whole, and an interval as long as the
    training means no checkpoint. Else it is a whole part of the training, so that no short stretch is left at the end.

    Args:
        terms: of the machine.
        training_s: time of the training without preemptions.
    """
    if terms.announced >= 1:
        return training_s  # nothing is ever lost
    young_s = young_interval_s(terms)
    free_s = _minimum(lambda tau_s: time_per_work(terms, tau_s), _LEAST_TIMES * young_s, _MOST_TIMES * young_s)
    least_s = min(training_s, least_interval_s(terms))
    wanted_s = min(max(free_s, least_s), training_s)
    parts = max(1, math.floor(training_s / wanted_s))
    candidates = [training_s / n for n in {1, parts, parts + 1} if training_s / n >= least_s]
    if terms.announced:  # begins anew anywhere, so it has no whole parts
        return wanted_s
    return min(candidates, key=lambda tau_s: expected_running_s(terms, training_s, tau_s))


def time_per_work(terms: PreemptionTerms, interval_s: float) -> float:
    """Return the time of a machine for a second of work that is kept, in a training of many intervals.

    By renewal: each preemption and each whole checkpoint begins anew. A stretch gains τ where nothing comes between,
    and where a preemption is announced the work up to it; it takes until either, and a restart after a preemption.
    """
    rate, tau_s = terms.per_s, interval_s
    segment_s = tau_s + terms.checkpoint_s
    if rate * segment_s > 700:  # the exponential of what is beyond is no number
        return math.inf
    whole, broken = math.exp(-rate * segment_s), -math.expm1(-rate * segment_s)
    restart_s = math.expm1(min(700.0, rate * terms.restart_s)) / rate  # preempted too
    taken_s = broken * (1 / rate + restart_s + terms.announced * terms.emergency_s)
    lost_too = (1 - terms.announced) * -math.expm1(-rate * min(terms.written_s, segment_s))
    gained_s = tau_s * whole * (1 - lost_too)
    if terms.announced:
        worked = -math.expm1(-rate * tau_s)
        until_preemption_s = worked / rate - tau_s * math.exp(-rate * tau_s)  # ∫₀^τ λt·e^{−λt} dt
        gained_s += terms.announced * (until_preemption_s + tau_s * (math.exp(-rate * tau_s) - whole))
    return taken_s / gained_s if gained_s > 0 else math.inf


def expected_running_s(terms: PreemptionTerms, training_s: float, interval_s: float) -> float:
    """Return the expected time that the machine runs until the training is done, where no preemption is announced.

    Args:
        terms: of the machine; its announced share is not looked at.
        training_s: time of the training without preemptions and checkpoints.
        interval_s: work between two checkpoints.

    Returns:
        The time in seconds, work that is done anew, checkpoints and restarts in it; infinite beyond all numbers.
    """
    rate = terms.per_s
    n_saved = stretches(training_s, interval_s) - 1
    last_s = training_s - n_saved * interval_s
    try:
        per_rate_s = math.exp(rate * terms.restart_s) / rate
        full_s = per_rate_s * math.expm1(rate * (interval_s + terms.checkpoint_s))
        total_s = per_rate_s * math.expm1(rate * last_s)
        if n_saved:
            segment_s = interval_s + terms.checkpoint_s
            total_s += full_s * (1 + (n_saved - 1) * math.exp(rate * min(terms.written_s, segment_s)))
            total_s += full_s * math.expm1(rate * min(terms.written_s, last_s))
    except OverflowError:
        return math.inf
    return total_s


def stretches(training_s: float, interval_s: float) -> int:
    """Return into how many stretches checkpoints cut a training; the last one may be shorter."""
    return max(1, math.ceil(training_s / interval_s * (1 - 1e-12)))


def _minimum(value: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function with one minimum has it, by golden section over the logarithm."""
    a, b = math.log(low), math.log(high)
    for _ in range(_STEPS):
        c, d = b - _GOLDEN * (b - a), a + _GOLDEN * (b - a)
        # Beyond all numbers on both sides: the shorter interval is the one that gets on.
        if value(math.exp(c)) <= value(math.exp(d)):
            b = d
        else:
            a = c
    return math.exp((a + b) / 2)
