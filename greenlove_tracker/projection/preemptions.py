"""The terms of a machine that may be taken away: the best interval between checkpoints, and the expected time.

Preemptions are a Poisson process while the machine runs, so also while it saves and restarts. A training of W seconds
saves after every τ seconds of work and pauses for δ each time; after a preemption it restarts in R and continues from
its last complete checkpoint. The expected time is the complete model of Daly (2006), extended by the last segment,
which needs no checkpoint, and by checkpoints that are complete only L after the training went on:

    E = 1/λ · e^{λR} · (e^{λ(τ+δ)} − 1)          of one segment
    E + (e^{λL} − 1) · E(the segment before)      if a preemption within its first L seconds loses that one too

Sources: J. W. Young, "A first order approximation to the optimum checkpoint interval", Communications of the ACM 17(9),
1974, 530-531. J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", Future
Generation Computer Systems 22(3), 2006, 303-312.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass, replace

from greenlove_tracker.projection.options import check_options, option
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.forecasting import PROJECTION_LEVEL, Estimate, Kind
from greenlove_tracker.vocabulary.units import SECONDS_PER_HOUR

# Where only the rate is given, it may be half or twice as much: an assumption. Clouds tell of it in wide classes at
# most (AWS's Spot Instance Advisor: under 5%, 5-10%, … over 20% of instances in a month), and it changes with demand.
RATE_FACTOR = 2.0
LEAST_OF_YOUNG = 1e-3  # of Young's interval: no shorter one is looked at


@dataclass(frozen=True, slots=True)
class SpotTerms:
    """The terms of a machine that may be taken away, and of a training on it.

    Attributes:
        preemptions_per_hour: per hour of running; a rate, or a rate with its 90% range: ``(0.05, 0.02, 0.12)``. The
            range of a rate alone is from half of it to twice.
        checkpoint_s: the time that the training pauses for a checkpoint.
        restart_s: from the start of a machine until the training goes on: boot, start, read, replay.
        written_s: from the end of the pause until the checkpoint is complete, if a thread of its own writes it.
        wait_s: from a preemption until there is a machine again; nothing is paid or drawn meanwhile.
        spot_price: USD per GPU and hour; None if unknown.
        on_demand_price: the same for a machine that stays.
        interval_s: between checkpoints; None for the best one.

    Raises:
        UsageError: if a number is impossible.
    """

    preemptions_per_hour: float | Sequence[float] = option(
        flag="--preemptions",
        help="with --spot: preemptions per hour; 0.05, or 0.05,0.02,0.12 with its range",
        metavar="RATE",
    )
    checkpoint_s: float = option(
        flag="--checkpoint-s", must_be="positive", type=float, help="with --spot: pause for a checkpoint"
    )
    restart_s: float = option(
        flag="--restart-s", must_be="time", type=float, help="with --spot: time to resume on another machine"
    )
    written_s: float = option(
        0.0,
        flag="--written-s",
        must_be="time",
        type=float,
        help="with --spot: further time until it is whole; default 0",
    )
    wait_s: float = option(
        0.0, flag="--wait-s", must_be="time", type=float, help="with --spot: wait for another machine; default 0"
    )
    spot_price: float | None = option(
        None, flag="--spot-price", must_be="positive", type=float, help="with --spot: USD per GPU and hour"
    )
    on_demand_price: float | None = option(
        None,
        flag="--on-demand-price",
        must_be="positive",
        type=float,
        help="with --spot: USD per GPU and hour; default: --price, or the offer's",
    )
    interval_s: float | None = option(
        None,
        flag="--save-every-s",
        must_be="positive",
        type=float,
        help="with --spot: interval between checkpoints; default: the best one",
    )

    def __post_init__(self) -> None:
        _ = self.rate_per_hour  # says whether it can be meant
        check_options(self)

    @property
    def rate_per_hour(self) -> Estimate:
        """Preemptions in an hour of running with their 90% range: as given, or from half to twice."""
        given = self.preemptions_per_hour
        if isinstance(given, int | float):
            given = (given, given / RATE_FACTOR, given * RATE_FACTOR)
        is_rate = len(given) == 3 and all(math.isfinite(r) and r > 0 for r in given)
        if not is_rate or not given[1] <= given[0] <= given[2]:
            raise UsageError(
                "{argument} is a positive rate, 0.05, or one with its range, 0.05,0.02,0.12, "
                f"not {self.preemptions_per_hour!r}",
                argument="preemptions_per_hour",
            )
        return Estimate(given[0], given[1], given[2], PROJECTION_LEVEL, "1/h", Kind.ASSUMPTION)

    @property
    def per_s(self) -> float:
        """Preemptions in a second of running."""
        return self.rate_per_hour.point / SECONDS_PER_HOUR

    def at_rate(self, per_hour: float) -> SpotTerms:
        """Return the same terms with another rate."""
        return replace(self, preemptions_per_hour=per_hour)


def young_interval_s(terms: SpotTerms) -> float:
    """Return the interval between checkpoints of Young (1974), √(2δM): a first-order approximation for δ ≪ M."""
    return math.sqrt(2 * terms.checkpoint_s / terms.per_s)


def daly_interval_s(terms: SpotTerms) -> float:
    """Return the interval of Daly (2006): √(2δM)·(1 + ⅓√(δ/2M) + ⅑·δ/2M) − δ for δ < 2M, else M.

    It approximates the optimum of his complete model, in which the time of a restart has no part.
    """
    mean_s = 1 / terms.per_s
    ratio = terms.checkpoint_s / (2 * mean_s)
    if ratio >= 1:
        return mean_s
    return young_interval_s(terms) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - terms.checkpoint_s


def best_interval_s(terms: SpotTerms, training_s: float) -> float:
    """Return the interval with the least expected time: the training in equal parts, or whole for no checkpoint.

    A checkpoint does not begin before the last one is complete.

    Args:
        terms: the terms of the machine.
        training_s: the time of the training without preemptions.
    """

    def time_s(n_parts: int) -> float:
        return expected_running_s(terms, training_s, training_s / n_parts)

    shortest_s = max(least_interval_s(terms), LEAST_OF_YOUNG * young_interval_s(terms))
    parts = range(1, max(2, math.floor(training_s / shortest_s) + 1))
    # More parts take less time up to the best, and more behind it; too few may take longer than any number.
    at = bisect(parts, False, key=lambda n: time_s(n) < math.inf and time_s(n) <= time_s(n + 1))
    return training_s / min(parts[0], parts[min(at, len(parts) - 1)], key=time_s)


def least_interval_s(terms: SpotTerms) -> float:
    """Return the shortest possible interval: a checkpoint begins once the one before is complete."""
    return max(0.0, terms.written_s - terms.checkpoint_s)


def expected_running_s(terms: SpotTerms, training_s: float, interval_s: float) -> float:
    """Return the expected time that the machine runs until the training is done.

    Args:
        terms: the terms of the machine.
        training_s: the time of the training without preemptions and checkpoints.
        interval_s: the work between two checkpoints.

    Returns:
        The time in seconds, with repeated work, checkpoints and restarts; infinite if it overflows.
    """
    rate = terms.per_s
    n_saved = n_segments(training_s, interval_s) - 1
    last_s = training_s - n_saved * interval_s
    segment_s = interval_s + terms.checkpoint_s
    try:
        per_rate_s = math.exp(rate * terms.restart_s) / rate
        total_s = per_rate_s * math.expm1(rate * last_s)
        if n_saved:
            full_s = per_rate_s * math.expm1(rate * segment_s)
            total_s += full_s * (1 + (n_saved - 1) * math.exp(rate * min(terms.written_s, segment_s)))
            total_s += full_s * math.expm1(rate * min(terms.written_s, last_s))
    except OverflowError:
        return math.inf
    return total_s


def n_segments(training_s: float, interval_s: float) -> int:
    """Return the number of segments that checkpoints cut a training into; the last may be shorter."""
    return max(1, math.ceil(training_s / interval_s * (1 - 1e-12)))
