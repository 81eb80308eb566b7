"""A training on a machine that may be taken away: how often to save, and what it takes and costs against on demand.

The point of each figure is expected (`preemptions.py`); its interval is simulated: the training's time by its forecast,
the rate of preemptions by the range that it is stated with, and the preemptions as a Poisson process.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from greenlove_tracker.errors import UsageError, whole_number
from greenlove_tracker.forecasting import PROJECTION_LEVEL, Estimate, Forecast, Kind
from greenlove_tracker.format import duration as duration_text
from greenlove_tracker.pricing import Rates
from greenlove_tracker.projection.preemptions import (
    PreemptionTerms,
    best_interval_s,
    daly_interval_s,
    expected_running_s,
    least_interval_s,
    stretches,
    time_per_work,
    young_interval_s,
)
from greenlove_tracker.projection.uncertain import at_level
from greenlove_tracker.units import JOULES_PER_KWH, SECONDS_PER_HOUR

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from greenlove_tracker.projection.types import Projection

    Draws = NDArray[np.float64]

# Where only the rate is given, it may be half or twice as much: an assumption. Clouds tell of it in wide classes at
# most (AWS's Spot Instance Advisor: under 5%, 5-10%, … over 20% of instances in a month), and it changes with demand.
RATE_FACTOR = 2.0
# AWS gives two minutes of notice, Google Cloud and Azure 30 seconds: the shortest that any of them gives.
LEAST_NOTICE_S = 30.0
SURE = 0.95  # of a saving, below which it is called unclear
_DRAWS = 10_000  # the ends of a 90% interval are then known to about 0.2% of the distribution
_LEAST_DRAWS, _MOST_EVENTS = 2000, 1_000_000  # fewer where preemptions are many: each is simulated
_MOST_TIMES = 10.0  # the training's own time: a machine that takes longer does not get on
_ROUNDING = 1e-9  # of a sum of many floats
_RATE_ENDS = 1e-9, 1e6  # preemptions in an hour, between which the rate is looked for at which nothing is saved


class SpotVerdict(StrEnum):
    """The verdict on a machine that may be taken away."""

    WORTH_IT = "worth it"
    UNCLEAR = "unclear"
    NOT_WORTH_IT = "not worth it"
    UNKNOWN = "unknown"  # without both prices


@dataclass(frozen=True, slots=True)
class SpotTotals:
    """The totals of a training done in one way; every interval is at the 90% level.

    Attributes:
        duration_s: from its start to its end, waiting for machines in it.
        energy_kwh: PUE included; None where it is not known.
        cost_usd: of the machine's time; None without a price.
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
    """The advice on a machine that may be taken away: to use it or not, and how often to save there.

    Attributes:
        verdict: on cost.
        reason: of the verdict, in a sentence.
        terms: rate, checkpoints and restarts that it was reckoned with.
        rate_per_hour: preemptions in an hour of running, with the range that was drawn from.
        interval_s: work between two checkpoints; as long as the training where none pays.
        young_s: the same by Young (1974).
        daly_s: the same by Daly (2006).
        is_own_interval: the interval is the user's own, and not the best one.
        is_held_up: the interval is that long only because a checkpoint takes so long to be whole.
        on_demand: the training on a machine that stays.
        spot: the same on one that may be taken away; None where it would not get on.
        parts: where the expected time goes; None where it would not get on.
        preemptions: expected; None where it would not get on.
        saving: share of the cost; None without both prices.
        probability_of_saving: that it costs less; None without both prices.
        break_even_per_hour: the rate from which on it saves nothing; None without both prices, or where it never does.
        break_even_usd_per_gpu_hour: the spot price from which on it saves nothing; None without a price on demand.
        spot_usd_per_gpu_hour: as given; None without.
        on_demand_usd_per_gpu_hour: as given; None without.
        n_gpus: that are paid for.
        assumptions: behind the figures, in sentences.
    """

    verdict: SpotVerdict
    reason: str
    terms: PreemptionTerms
    rate_per_hour: Estimate
    interval_s: float
    young_s: float
    daly_s: float
    is_own_interval: bool
    is_held_up: bool
    on_demand: SpotTotals
    spot: SpotTotals | None
    parts: TimeParts | None
    preemptions: Estimate | None
    saving: Estimate | None
    probability_of_saving: float | None
    break_even_per_hour: float | None
    break_even_usd_per_gpu_hour: float | None
    spot_usd_per_gpu_hour: float | None
    on_demand_usd_per_gpu_hour: float | None
    n_gpus: int
    assumptions: tuple[str, ...]

    @property
    def never_saves(self) -> bool:
        """True where the best is to save no checkpoint."""
        return self.interval_s >= self.on_demand.duration_s.point


def spot_advice(
    training: Forecast | Projection | float,
    *,
    preemptions_per_hour: float | Sequence[float],
    checkpoint_s: float,
    restart_s: float,
    spot_price: float | None = None,
    on_demand_price: float | None = None,
    n_gpus: int = 1,
    written_s: float = 0.0,
    wait_s: float = 0.0,
    announced: float = 0.0,
    notice_s: float = LEAST_NOTICE_S,
    interval_s: float | None = None,
    power_w: float | None = None,
    carbon_intensity: float | None = None,
    seed: int = 0,
) -> SpotAdvice:
    """Say whether to train on a machine that may be taken away, how often to save, and what that takes.

    Args:
        training: its forecast on this kind of machine, its projection onto it, or its time in seconds.
        preemptions_per_hour: of running; a rate, or with the range that holds it with 90%: ``(0.05, 0.02, 0.12)``. The
            range of a rate alone is from half of it to twice.
        checkpoint_s: time that the training stands still for a checkpoint.
        restart_s: time of a machine from its start until the training goes on: booting, starting, reading, replaying.
        spot_price: USD per GPU and hour.
        on_demand_price: USD per GPU and hour of the same machine that stays.
        n_gpus: that are paid for.
        written_s: time until a checkpoint is whole after the training went on, where a thread of its own writes it.
        wait_s: from a preemption until there is a machine again.
        announced: share of the preemptions that are announced ``notice_s`` before, so that an emergency checkpoint can
            be written.
        notice_s: AWS 120, Google Cloud and Azure 30.
        interval_s: between checkpoints, where it is not to be the best one.
        power_w: of the machine while it runs, PUE included, where the forecast has no energy.
        carbon_intensity: in gCO2e/kWh.
        seed: of the simulation.

    Raises:
        UsageError: where a number cannot be meant.
    """
    duration = _known(training) if isinstance(training, int | float) else _time_of(training)
    energy = None if isinstance(training, int | float) else training.energy_kwh
    for name, number in (
        ("spot_price", spot_price),
        ("on_demand_price", on_demand_price),
        ("interval_s", interval_s),
        ("power_w", power_w),
        ("carbon_intensity", carbon_intensity),
    ):
        if number is not None and not (math.isfinite(number) and number > 0):
            raise UsageError(f"{{argument}} must be a positive number, not {number!r}", argument=name)
    if math.isnan(notice_s) or notice_s < 0:
        raise UsageError(f"{{argument}} must be 0 or more seconds, not {notice_s!r}", argument="notice_s")
    whole_number("n_gpus", n_gpus)
    rate = rate_estimate(preemptions_per_hour)
    terms = PreemptionTerms(rate.point, checkpoint_s, restart_s, written_s, wait_s, announced)
    assumptions = [_rate_text(preemptions_per_hour)]
    if announced and terms.emergency_s > notice_s:
        assumptions.append(
            f"an emergency checkpoint takes {terms.emergency_s:.3g} s, longer than the notice of {notice_s:.3g} s, so "
            "every preemption is taken to lose work"
        )
        terms = replace(terms, announced=0.0)
    if energy is None and power_w is not None:
        energy = duration.times(power_w / JOULES_PER_KWH, "kWh")
    best_s = best_interval_s(terms, duration.point)
    if interval_s is not None:
        best_s = min(max(interval_s, least_interval_s(terms)), duration.point)
        if interval_s < best_s:
            assumptions.append(
                f"a checkpoint is whole only {terms.emergency_s:.3g} s after it was begun, so the next one waits: it "
                f"saves every {best_s:.3g} s of work, not every {interval_s:.3g} s"
            )
    prices = _Prices(spot_price, on_demand_price, n_gpus, carbon_intensity)
    simulated = _simulated(terms, rate, duration, energy, best_s, prices, seed)
    saving = chance = break_even = None
    share = 0.0
    if simulated is not None and spot_price is not None and on_demand_price is not None:
        share = spot_price / on_demand_price
        saved = 1 - share * simulated.times_as_long
        saving = _interval(saved, 1 - share * simulated.parts.running_s / duration.point, "share")
        chance, break_even = float(np.mean(saved > 0)), break_even_rate(terms, duration.point, share)
    parts = None if simulated is None else simulated.parts
    verdict, reason = _verdict(terms, rate, duration, best_s, parts, saving, chance, share)
    return SpotAdvice(
        verdict=verdict,
        reason=reason,
        terms=terms,
        rate_per_hour=rate,
        interval_s=best_s,
        young_s=young_interval_s(terms),
        daly_s=daly_interval_s(terms),
        is_own_interval=interval_s is not None,
        is_held_up=interval_s is None
        and best_interval_s(replace(terms, written_s=0.0), duration.point) < least_interval_s(terms),
        on_demand=prices.totals(duration, duration, on_demand_price, energy and at_level(energy)),
        spot=None if simulated is None else simulated.totals,
        parts=parts,
        preemptions=None if simulated is None else simulated.preemptions,
        saving=saving,
        probability_of_saving=chance,
        break_even_per_hour=break_even,
        break_even_usd_per_gpu_hour=None
        if on_demand_price is None or parts is None
        else on_demand_price * duration.point / parts.running_s,
        spot_usd_per_gpu_hour=spot_price,
        on_demand_usd_per_gpu_hour=on_demand_price,
        n_gpus=n_gpus,
        assumptions=(*assumptions, *_assumptions(terms, energy is not None, announced > 0)),
    )


def rate_estimate(per_hour: float | Sequence[float]) -> Estimate:
    """Return a rate of preemptions with its 90% range: as given, or from half to twice.

    Raises:
        UsageError: where it cannot be meant.
    """
    if isinstance(per_hour, int | float):
        given: Sequence[float] = (per_hour, per_hour / RATE_FACTOR, per_hour * RATE_FACTOR)
    else:
        given = tuple(per_hour)
    if len(given) != 3 or not all(math.isfinite(r) and r > 0 for r in given) or not given[1] <= given[0] <= given[2]:
        raise UsageError(
            f"{{argument}} is a positive rate, 0.05, or one with its range, 0.05,0.02,0.12, not {per_hour!r}",
            argument="preemptions_per_hour",
        )
    return Estimate(given[0], given[1], given[2], PROJECTION_LEVEL, "1/h", Kind.ASSUMPTION)


def break_even_rate(terms: PreemptionTerms, training_s: float, price_share: float) -> float | None:
    """Return the preemptions in an hour from which on spot saves nothing, saving as often as is best at each rate.

    Args:
        terms: of the machine; announced preemptions count as the others, so the rate is no higher than the true one.
        training_s: time of the training.
        price_share: spot price ÷ price on demand.

    Returns:
        None where it never saves, or always does.
    """

    def costs_more(per_hour: float) -> bool:
        at = replace(terms.at_rate(per_hour), announced=0.0)
        return expected_running_s(at, training_s, best_interval_s(at, training_s)) * price_share >= training_s

    low, high = _RATE_ENDS
    if price_share >= 1 or costs_more(low) or not costs_more(high):
        return None
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if costs_more(middle) else (middle, high)
    return math.sqrt(low * high)


# -- The simulation --


@dataclass(frozen=True, slots=True)
class SpotDraws:
    """Simulated trainings; those that do not get on run for ever.

    Attributes:
        running_s: time that a machine ran.
        preemptions: how often it was taken away.
        restarting_s: of the running time.
        saves: checkpoints that the training kept, emergencies in them.
    """

    running_s: Draws
    preemptions: Draws
    restarting_s: Draws
    saves: Draws


def simulate(
    rng: np.random.Generator, terms: PreemptionTerms, per_s: Draws, training_s: Draws, interval_s: Draws
) -> SpotDraws:
    """Simulate trainings, from one preemption to the next.

    Args:
        rng: source of chance.
        terms: of the machine; its rate is not looked at.
        per_s: rate of preemptions of each training.
        training_s: work of each.
        interval_s: between checkpoints of each.
    """
    n = len(training_s)
    left_s, running_s = training_s.copy(), np.zeros(n)
    preemptions, restarting_s, saves = np.zeros(n), np.zeros(n), np.zeros(n)
    most_s = _MOST_TIMES * training_s
    gets_on = [
        _gets_on(terms.at_rate(rate * SECONDS_PER_HOUR), work_s, tau_s)
        for rate, work_s, tau_s in zip(per_s.tolist(), training_s.tolist(), interval_s.tolist(), strict=True)
    ]
    running_s[~np.array(gets_on)] = math.inf
    active = np.flatnonzero(gets_on)
    restart_s = 0.0  # the first start is the same on demand
    while len(active):
        gap_s = rng.exponential(1 / per_s[active])
        started_s = np.minimum(gap_s, restart_s)
        running_s[active] += started_s
        restarting_s[active] += started_s
        work_s, tau_s = left_s[active], interval_s[active]
        n_saves = np.maximum(0.0, np.ceil(work_s / tau_s * (1 - 1e-12)) - 1)
        until_s = gap_s - started_s  # of work and saving, before the next preemption
        whole_s = work_s + n_saves * terms.checkpoint_s
        is_done = until_s >= whole_s
        segment_s = tau_s + terms.checkpoint_s
        n_kept = np.minimum(np.floor(until_s / segment_s), n_saves)
        within_s = until_s - n_kept * segment_s
        is_announced = rng.random(len(active)) < terms.announced
        # The one before is not whole yet: an announced preemption waits for it.
        n_kept -= (n_kept > 0) & (within_s < terms.written_s) & ~is_announced
        is_emergency = is_announced & (gap_s > restart_s) & ~is_done
        kept_s = n_kept * tau_s + np.where(is_emergency, np.minimum(within_s, tau_s), 0.0)
        saves[active] += np.where(is_done, n_saves, n_kept + is_emergency)
        running_s[active] += np.where(is_done, whole_s, until_s + is_emergency * terms.emergency_s)
        left_s[active] = np.where(is_done, 0.0, np.maximum(work_s - kept_s, 0.0))
        preemptions[active] += ~is_done
        is_lost = ~is_done & (running_s[active] > most_s[active])
        running_s[active[is_lost]] = math.inf
        active = active[~is_done & ~is_lost]
        restart_s = terms.restart_s
    return SpotDraws(running_s, preemptions, restarting_s, saves)


def _gets_on(terms: PreemptionTerms, training_s: float, interval_s: float) -> bool:
    """Return False where a training takes so many times as long that it hardly gets on."""
    if time_per_work(terms, interval_s) < _MOST_TIMES:
        return True
    is_short = terms.per_s * training_s < 1  # most of those end in one piece, whatever the interval
    return is_short and expected_running_s(terms, training_s, interval_s) < _MOST_TIMES * training_s


@dataclass(frozen=True, slots=True)
class _Prices:
    """The prices and emissions of a machine's time and energy."""

    spot: float | None
    on_demand: float | None
    n_gpus: int
    carbon_intensity: float | None

    def totals(
        self, duration_s: Estimate, running_s: Estimate, usd_per_gpu_hour: float | None, energy_kwh: Estimate | None
    ) -> SpotTotals:
        """Return the totals of a training; of it the machine is paid for while it runs."""
        rates = Rates(self.carbon_intensity, price_usd_per_gpu_hour=usd_per_gpu_hour)
        cost, _ = rates.cost(running_s, energy_kwh, self.n_gpus)
        return SpotTotals(duration_s, energy_kwh, cost, rates.emissions(energy_kwh))


@dataclass(frozen=True, slots=True)
class _Simulated:
    """A spot training, as expected and as simulated.

    Attributes:
        totals: of it.
        parts: of its expected time.
        preemptions: of it.
        times_as_long: time of a machine ÷ time on demand, of each draw.
    """

    totals: SpotTotals
    parts: TimeParts
    preemptions: Estimate
    times_as_long: Draws


def _simulated(
    terms: PreemptionTerms,
    rate: Estimate,
    duration: Estimate,
    energy: Estimate | None,
    interval_s: float,
    prices: _Prices,
    seed: int,
) -> _Simulated | None:
    """Return a training on a machine that may be taken away; None where it hardly gets on."""
    if not _gets_on(terms.at_rate(rate.upper), duration.point, interval_s):
        return None
    rng = np.random.default_rng(seed)
    expected = max(1.0, duration.point * rate.upper / SECONDS_PER_HOUR)
    n = int(min(_DRAWS, max(_LEAST_DRAWS, _MOST_EVENTS / expected)))
    z = rng.standard_normal(n)  # of the time and of the energy: a longer training takes more
    work_s = _values(duration, z)
    drawn = simulate(rng, terms, _drawn_rates(rng, rate, n), work_s, np.minimum(interval_s, work_s))
    parts = _parts(terms, duration.point, interval_s, seed)
    running_s = _interval(drawn.running_s, parts.running_s, "s")
    if not math.isfinite(running_s.upper):
        return None
    times_as_long = drawn.running_s / work_s
    kwh = None
    if energy is not None:
        kwh = _interval(
            _values(energy, z) * times_as_long, energy.point * parts.running_s / duration.point, energy.unit
        )
    wall_s = _interval(drawn.running_s + drawn.preemptions * terms.wait_s, parts.running_s + parts.waiting_s, "s")
    return _Simulated(
        prices.totals(wall_s, running_s, prices.spot, kwh),
        parts,
        _interval(drawn.preemptions, terms.per_s * parts.running_s, "preemptions"),
        times_as_long,
    )


def _interval(values: Draws, point: float, unit: str) -> Estimate:
    """Return an expected figure with the interval of its draws."""
    shares = (1 - PROJECTION_LEVEL) / 2, (1 + PROJECTION_LEVEL) / 2
    lower = float(np.quantile(values, shares[0], method="lower"))
    upper = float(np.quantile(values, shares[1], method="higher"))
    return Estimate(point, min(lower, point), max(upper, point), PROJECTION_LEVEL, unit, Kind.ASSUMPTION)


def _values(estimate: Estimate, z: Draws) -> Draws:
    """Return an estimate at normal deviates: each side of its interval is half a normal distribution."""
    if not estimate.has_interval:
        return np.full(len(z), estimate.point)
    of_level = NormalDist().inv_cdf((1 + estimate.level) / 2)
    sides = np.where(z > 0, estimate.upper - estimate.point, estimate.point - estimate.lower)
    values: Draws = estimate.point + z / of_level * sides
    return np.maximum(values, estimate.point * 0.01)  # no less than nothing at the far end of a wide interval


def _drawn_rates(rng: np.random.Generator, rate: Estimate, n: int) -> Draws:
    """Return rates in 1/s: the logarithm of each side of the range is half a normal distribution."""
    z = rng.standard_normal(n) / NormalDist().inv_cdf((1 + rate.level) / 2)
    sides = np.where(z > 0, math.log(rate.upper / rate.point), math.log(rate.point / rate.lower))
    drawn: Draws = rate.point / SECONDS_PER_HOUR * np.exp(z * sides)
    return drawn


def _parts(terms: PreemptionTerms, training_s: float, interval_s: float, seed: int) -> TimeParts:
    """Return where the time goes at the stated rate: by the model, or simulated where preemptions are announced."""
    if terms.announced:
        rng = np.random.default_rng(seed + 1)
        alike = np.ones(_LEAST_DRAWS if terms.per_s * training_s > 100 else _DRAWS)
        drawn = simulate(rng, terms, alike * terms.per_s, alike * training_s, alike * interval_s)
        running_s, restarting_s = float(np.mean(drawn.running_s)), float(np.mean(drawn.restarting_s))
        saving_s = float(np.mean(drawn.saves)) * terms.checkpoint_s
    else:
        running_s = expected_running_s(terms, training_s, interval_s)
        restarting_s = running_s * -math.expm1(-terms.per_s * terms.restart_s)  # one begins after each preemption
        saving_s = (stretches(training_s, interval_s) - 1) * terms.checkpoint_s
    lost_s = running_s - training_s - restarting_s - saving_s
    lost_s = lost_s if lost_s > _ROUNDING * running_s else 0.0
    return TimeParts(training_s, lost_s, saving_s, restarting_s, terms.per_s * running_s * terms.wait_s)


# -- In words --


def _verdict(
    terms: PreemptionTerms,
    rate: Estimate,
    duration: Estimate,
    interval_s: float,
    parts: TimeParts | None,
    saving: Estimate | None,
    chance: float | None,
    price_share: float,
) -> tuple[SpotVerdict, str]:
    if parts is None:
        is_at_point = not _gets_on(terms, duration.point, interval_s)
        per_hour = rate.point if is_at_point else rate.upper
        reason = (
            f"the training would hardly get on: a preemption comes every {duration_text(SECONDS_PER_HOUR / per_hour)} "
            f"at the {'stated rate' if is_at_point else 'upper end of the rate'}, and a restart and a checkpoint take "
            f"{duration_text(terms.restart_s + terms.emergency_s)}"
        )
        return SpotVerdict.NOT_WORTH_IT, reason
    longer = parts.running_s / duration.point - 1
    if saving is None or chance is None:
        return SpotVerdict.UNKNOWN, f"the machine runs {longer:.1%} longer; without both prices no cost is compared"
    if saving.point <= 0:
        price = f"its price is {price_share - 1:.0%} higher, and " if price_share > 1 else ""
        reason = f"it costs {-saving.point:.1%} more, since {price}the machine runs {longer:.1%} longer than on demand"
        return SpotVerdict.NOT_WORTH_IT, reason
    if chance < SURE:
        reason = (
            f"it saves {saving.point:.0%} as expected, but costs more in {1 - chance:.0%} of the simulated trainings"
        )
        return SpotVerdict.UNCLEAR, reason
    return SpotVerdict.WORTH_IT, f"it costs {saving.point:.0%} less, though the machine runs {longer:.1%} longer"


def _rate_text(given: float | Sequence[float]) -> str:
    if isinstance(given, int | float):
        return "the range of the rate of preemptions, from half of it to twice, is an assumption"
    return "the rate of preemptions and its range are as given"


def _assumptions(terms: PreemptionTerms, has_energy: bool, is_announced: bool) -> list[str]:
    found = ["preemptions come by chance at a constant rate while the machine runs, while it restarts and saves too"]
    if has_energy:
        found.append("saving and restarting draw as much power as training")
    if not terms.wait_s:
        found.append("another machine is there at once: no waiting for one is counted")
    if not is_announced:
        found.append("every preemption loses the work since the last whole checkpoint: none is taken to be announced")
    found.append(
        "machines of both kinds are billed by the second, and the first start of a machine is counted for neither"
    )
    return found


def _time_of(training: Forecast | Projection) -> Estimate:
    if training.duration_s is None:
        raise UsageError("the training does not fit this machine, so there is nothing to say of it")
    return at_level(training.duration_s)


def _known(training_s: float) -> Estimate:
    if not (math.isfinite(training_s) and training_s > 0):
        raise UsageError(f"{{argument}} must be a positive time in seconds, not {training_s!r}", argument="training")
    return Estimate(training_s, training_s, training_s, PROJECTION_LEVEL, "s", Kind.ASSUMPTION)
