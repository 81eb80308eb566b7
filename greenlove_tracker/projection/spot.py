"""A training on a machine that may be taken away: how often to save, and its time and cost against on demand.

The point of each figure is an expected value (``preemptions.py``). Its interval is simulated: the training's time by
its forecast, the rate of preemptions by its stated range, and the preemptions as a Poisson process.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy import optimize

from greenlove_tracker.projection.catalogue import counted, recognise
from greenlove_tracker.projection.options import check_number
from greenlove_tracker.projection.preemptions import (
    SpotTerms,
    best_interval_s,
    daly_interval_s,
    expected_running_s,
    least_interval_s,
    n_segments,
    young_interval_s,
)
from greenlove_tracker.projection.uncertain import at_level, draws, uncertain
from greenlove_tracker.vocabulary.errors import UsageError, whole_number
from greenlove_tracker.vocabulary.forecasting import PROJECTION_LEVEL, Estimate, Forecast, Kind
from greenlove_tracker.vocabulary.pricing import Rates
from greenlove_tracker.vocabulary.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from greenlove_tracker.projection.types import Projection

    Draws = NDArray[np.float64]

SURE = 0.95  # of a saving, below which it is called unclear
_DRAWS = 10_000  # the ends of a 90% interval are then known to about 0.2% of the distribution
# Each preemption is simulated: where they are many, the draws are fewer.
_LEAST_DRAWS = 2000
_MOST_EVENTS = 1_000_000  # preemptions of all draws together
_MOST_TIMES = 10.0  # the training's own time: a machine that takes longer does not get on
_RATE_ENDS = (1e-9, 1e6)  # preemptions in an hour, between which the rate is looked for at which nothing is saved


SpotVerdict = Literal["worth it", "unclear", "not worth it", "unknown"]


@dataclass(frozen=True, slots=True)
class SpotTotals:
    """The totals of a training done in one way; every interval is at the 90% level.

    Attributes:
        duration_s: from its start to its end, including waits for machines.
        energy_kwh: with PUE; None if unknown.
        cost_usd: the cost of the machine's time; None without a price.
        emissions_kgco2e: location-based; None without an energy or a carbon intensity.
    """

    duration_s: Estimate
    energy_kwh: Estimate | None
    cost_usd: Estimate | None
    emissions_kgco2e: Estimate | None


@dataclass(frozen=True, slots=True)
class TimeParts:
    """The expected parts of a spot training's time, in seconds.

    Attributes:
        training_s: the work itself.
        lost_s: work that is done anew, and the checkpoints in it.
        saving_s: standing still for checkpoints.
        restarting_s: starting again.
        waiting_s: for another machine.
    """

    training_s: float
    lost_s: float
    saving_s: float
    restarting_s: float
    waiting_s: float

    @property
    def running_s(self) -> float:
        """Time that a machine runs, and is paid for."""
        return self.training_s + self.lost_s + self.saving_s + self.restarting_s


@dataclass(frozen=True, slots=True)
class SpotAdvice:
    """The advice on a machine that may be taken away: whether to use it, and how often to save.

    Attributes:
        verdict: the verdict on cost; ``unknown`` without both prices.
        terms: the terms that it was computed with.
        interval_s: work between two checkpoints; the whole training if none pays.
        young_s: the same by Young (1974).
        daly_s: the same by Daly (2006).
        n_gpus: the GPUs that are paid for.
        on_demand: the training on a machine that stays.
        spot: the same on one that may be taken away; None if it would hardly progress.
        parts: where the expected time goes; None if it would hardly progress.
        preemptions: the expected number; None if it would hardly progress.
        saving: the share of the cost that is saved; None without both prices.
        probability_of_saving: the probability that it costs less; None without both prices.
        break_even_per_hour: the rate of preemptions at which it saves nothing; None without both prices, or if it never
            saves.
        break_even_usd_per_gpu_hour: the spot price at which it saves nothing; None without a price on demand.
    """

    verdict: SpotVerdict
    terms: SpotTerms
    interval_s: float
    young_s: float
    daly_s: float
    n_gpus: int
    on_demand: SpotTotals
    spot: SpotTotals | None = None
    parts: TimeParts | None = None
    preemptions: Estimate | None = None
    saving: Estimate | None = None
    probability_of_saving: float | None = None
    break_even_per_hour: float | None = None
    break_even_usd_per_gpu_hour: float | None = None

    @property
    def never_saves(self) -> bool:
        """True where the best is to save no checkpoint."""
        return self.interval_s >= self.on_demand.duration_s.point


def spot_advice(
    training: Forecast | Projection | float,
    *,
    n_gpus: int = 1,
    carbon_intensity: float | None = None,
    seed: int = 0,
    **terms: Any,
) -> SpotAdvice:
    """Advise whether to train on a machine that may be taken away, how often to save, and what that takes.

    Args:
        training: its forecast on this kind of machine, its projection onto it, or its time in seconds.
        n_gpus: the GPUs that are paid for.
        carbon_intensity: in gCO2e/kWh.
        seed: the seed of the simulation.
        **terms: fields of ``SpotTerms``: at least ``preemptions_per_hour``, ``checkpoint_s`` and ``restart_s``; also
            ``spot_price``, ``on_demand_price``, ``written_s``, ``wait_s``, ``interval_s``.

    Raises:
        UsageError: if a number is impossible.
    """
    duration, energy = _known(training)
    training_s = duration.point
    if carbon_intensity is not None:
        check_number("carbon_intensity", carbon_intensity, "positive")
    whole_number("n_gpus", n_gpus)
    of = SpotTerms(**terms)
    on_demand_usd = of.on_demand_price
    interval_s = best_interval_s(of, training_s)
    if of.interval_s is not None:
        interval_s = min(max(of.interval_s, least_interval_s(of)), training_s)

    def totals(duration_s: Estimate, running_s: Estimate, price: float | None, kwh: Estimate | None) -> SpotTotals:
        rates = Rates(carbon_intensity, price_usd_per_gpu_hour=price)
        cost, _ = rates.cost(running_s, kwh, n_gpus)
        return SpotTotals(duration_s, kwh, cost, rates.emissions(kwh))

    on_demand = totals(duration, duration, on_demand_usd, energy and at_level(energy))
    advice = SpotAdvice("not worth it", of, interval_s, young_interval_s(of), daly_interval_s(of), n_gpus, on_demand)
    rate = of.rate_per_hour
    at_worst_s = expected_running_s(of.at_rate(rate.upper), training_s, interval_s)
    if at_worst_s > _MOST_TIMES * training_s:
        return advice
    rng = np.random.default_rng(seed)
    expected = max(1.0, training_s * rate.upper / SECONDS_PER_HOUR)
    n = int(min(_DRAWS, max(_LEAST_DRAWS, _MOST_EVENTS / expected)))
    # A longer training takes more energy: both have one error.
    drawn = [uncertain(duration, "training"), uncertain(rate, "preemptions")]
    if energy:
        drawn.append(uncertain(energy, "training"))
    work_s, rates, *energies = draws(drawn, n, seed + 1)
    ran_s, preemptions = simulate(rng, of, rates / SECONDS_PER_HOUR, work_s, np.minimum(interval_s, work_s))
    parts = _parts(of, training_s, interval_s)
    longer = parts.running_s / training_s
    times_as_long = ran_s / work_s
    running_s = _interval(ran_s, parts.running_s, "s")
    if not math.isfinite(running_s.upper):
        return advice
    kwh = None
    if energy:
        kwh = _interval(energies[0] * times_as_long, energy.point * longer, energy.unit)
    wall_s = _interval(ran_s + preemptions * of.wait_s, parts.running_s + parts.waiting_s, "s")
    advice = replace(
        advice,
        verdict="unknown",
        spot=totals(wall_s, running_s, of.spot_price, kwh),
        parts=parts,
        preemptions=_interval(preemptions, of.per_s * parts.running_s, "preemptions"),
        break_even_usd_per_gpu_hour=on_demand_usd and on_demand_usd / longer,
    )
    if of.spot_price is None or on_demand_usd is None:
        return advice
    share = of.spot_price / on_demand_usd
    saved = 1 - share * times_as_long
    saving = _interval(saved, 1 - share * longer, "share")
    chance = float(np.mean(saved > 0))
    verdict: SpotVerdict = "unclear"
    if saving.point <= 0:
        verdict = "not worth it"
    elif chance >= SURE:
        verdict = "worth it"
    return replace(
        advice,
        verdict=verdict,
        saving=saving,
        probability_of_saving=chance,
        break_even_per_hour=break_even_rate(of, training_s, share),
    )


def break_even_rate(terms: SpotTerms, training_s: float, price_share: float) -> float | None:
    """Return the preemptions per hour at which spot saves nothing, with the best interval at each rate.

    Args:
        terms: the terms of the machine.
        training_s: the time of the training.
        price_share: spot price ÷ price on demand.

    Returns:
        None if it never saves, or always does.
    """

    def more_s(log_rate: float) -> float:
        at = terms.at_rate(math.exp(log_rate))
        return expected_running_s(at, training_s, best_interval_s(at, training_s)) * price_share - training_s

    low, high = map(math.log, _RATE_ENDS)
    if price_share >= 1 or more_s(low) >= 0 or more_s(high) < 0:
        return None
    return math.exp(optimize.bisect(more_s, low, high))


# -- The simulation --


def simulate(
    rng: np.random.Generator, terms: SpotTerms, per_s: Draws, work_s: Draws, interval_s: Draws
) -> tuple[Draws, Draws]:
    """Simulate trainings, from one preemption to the next.

    Args:
        rng: the source of randomness.
        terms: the terms of the machine, except its rate.
        per_s: the rate of preemptions of each training.
        work_s: the work of each training.
        interval_s: the interval between checkpoints of each training.

    Returns:
        The time that the machine ran, infinite if a training does not progress; and the number of preemptions.
    """
    left_s = work_s.copy()
    n = len(work_s)
    running_s = np.zeros(n)
    preemptions = np.zeros(n)
    active = np.arange(n)
    restart_s = 0.0  # the first start is the same on demand
    while len(active):
        gap_s = rng.exponential(1 / per_s[active])
        started_s = np.minimum(gap_s, restart_s)
        until_s = gap_s - started_s  # of work and saving, before the next preemption
        todo_s = left_s[active]
        tau_s = interval_s[active]
        segment_s = tau_s + terms.checkpoint_s
        n_saves = np.maximum(0.0, np.ceil(todo_s / tau_s * (1 - 1e-12)) - 1)
        whole_s = todo_s + n_saves * terms.checkpoint_s
        is_done = until_s >= whole_s
        n_kept = np.minimum(np.floor(until_s / segment_s), n_saves)
        n_kept -= (n_kept > 0) & (until_s - n_kept * segment_s < terms.written_s)  # the last one is not whole yet
        running_s[active] += started_s + np.where(is_done, whole_s, until_s)
        left_s[active] = np.where(is_done, 0.0, np.maximum(todo_s - n_kept * tau_s, 0.0))
        preemptions[active] += ~is_done
        is_lost = ~is_done & (running_s[active] > _MOST_TIMES * work_s[active])
        running_s[active[is_lost]] = math.inf
        active = active[~is_done & ~is_lost]
        restart_s = terms.restart_s
    return running_s, preemptions


def _interval(values: Draws, point: float, unit: str) -> Estimate:
    lower = float(np.quantile(values, (1 - PROJECTION_LEVEL) / 2, method="lower"))
    upper = float(np.quantile(values, (1 + PROJECTION_LEVEL) / 2, method="higher"))
    return Estimate(point, min(lower, point), max(upper, point), PROJECTION_LEVEL, unit, Kind.ASSUMPTION)


def _parts(terms: SpotTerms, training_s: float, interval_s: float) -> TimeParts:
    running_s = expected_running_s(terms, training_s, interval_s)
    restarting_s = running_s * -math.expm1(-terms.per_s * terms.restart_s)  # one begins after each preemption
    saving_s = (n_segments(training_s, interval_s) - 1) * terms.checkpoint_s
    lost_s = max(0.0, running_s - training_s - restarting_s - saving_s)
    waiting_s = terms.per_s * running_s * terms.wait_s
    return TimeParts(training_s, lost_s, saving_s, restarting_s, waiting_s)


def _known(training: Forecast | Projection | float) -> tuple[Estimate, Estimate | None]:
    if not isinstance(training, int | float):
        if training.duration_s is None:
            raise UsageError("the training does not fit this machine")
        return at_level(training.duration_s), training.energy_kwh
    if not (math.isfinite(training) and training > 0):
        raise UsageError(f"{{argument}} must be a positive time in seconds, not {training!r}", argument="training")
    return Estimate(training, training, training, PROJECTION_LEVEL, "s", Kind.ASSUMPTION), None


# -- The terms, by a projection --

_NEEDED = {
    "preemptions_per_hour": "how often such a machine is taken away in an hour of running, 0.05 or 0.05,0.02,0.12 with "
    "its range; no public list of these rates is kept here",
    "spot_price": "USD per GPU and hour; it changes by the hour, and no public list is kept here",
    "checkpoint_s": "how many seconds the training stands still for a checkpoint; greenlove checkpoints tells those of "
    "a log",
    "restart_s": "how many seconds it takes from the start of another machine until the training goes on (booting, "
    "starting, reading the checkpoint, fetching its batches again)",
}


def row_for_spot(rows: Sequence[Projection], targets: Sequence[str]) -> Projection:
    """Return the machine that spot advice is about: the one target, else the machine here.

    Args:
        rows: the rows of a projection, this machine first.
        targets: the GPUs that the user named.

    Raises:
        UsageError: if there are several.
    """
    if len(targets) > 1:
        raise UsageError("--spot is about one machine: give one --target, or none for the machine here")
    if not targets:
        return rows[0]
    name = recognise(counted(targets[0])[1]).name
    offered = [row for row in rows if row.name == name and not row.is_local]
    return next((row for row in offered if row.obtained != "spot"), offered[0])  # spot is compared with the other


def spot_advice_of(row: Projection, terms: Mapping[str, Any], price_here: float | None = None) -> SpotAdvice:
    """Return the advice for the machine of a row.

    Args:
        row: a row with a time.
        terms: the terms that are given; the price on demand defaults to that of the row's offer.
        price_here: USD per GPU and hour of the machine here; None if it has none.

    Raises:
        UsageError: if a figure is missing or impossible.
    """
    on_demand = row.offer.usd_per_gpu_hour if row.offer else price_here
    if row.obtained == "spot":
        on_demand = None
    for name, why in _NEEDED.items():
        if name not in terms:
            raise UsageError(f"{{argument}} is needed: {why}", argument=name)
    intensity = row.intensity.value if row.intensity else None
    known = {"on_demand_price": on_demand, **terms}
    return spot_advice(row, n_gpus=row.billed_gpus, carbon_intensity=intensity, **known)
