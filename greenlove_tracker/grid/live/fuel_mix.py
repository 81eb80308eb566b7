"""Carbon intensity from the electricity that each fuel made: the emissions of every fuel, over all that was made.

That is the mix of generation; electricity that comes over the border, and what leaves, is not in it. Storage is not
either: what it gives back was made before. The factors, each with its source, stand in
``data/fuel_emission_factors.csv``.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

MOST_UNKNOWN_SHARE = 0.2  # of generation from fuels without a factor, such as "other"
# Of the median of all hours. In EIA's 2022 of PJM five hours have 0.3% of it, all from wind and hydro; the least of any
# other hour with generation, there and in CISO, ERCO and BPAT, is over 40%.
_LEAST_TOTAL = 0.2
_LEAST_MISSED_SHARE = 0.02  # of generation: a fuel below it may be missing from an hour

Generation = Mapping[str, float | None]  # in MWh or MW by fuel; None: not reported


def mix_intensity(generation: Generation, factors: Mapping[str, float]) -> float | None:
    """Return the intensity in gCO2e/kWh of what was generated in one stretch of time.

    What has no factor counts as the mean of the rest. A negative generation, a plant's own use, counts as none.

    Args:
        generation: by fuel.
        factors: gCO2e/kWh by fuel; a fuel that is not among them has none.

    Returns:
        None where nothing was generated, or where more than a fifth of it has no factor: unknown, not 0 g.
    """
    made = {fuel: value for fuel, value in generation.items() if value is not None and value > 0}
    known = {fuel: value for fuel, value in made.items() if fuel in factors}
    total = math.fsum(made.values())
    known_total = math.fsum(known.values())
    if total <= 0 or known_total < (1 - MOST_UNKNOWN_SHARE) * total:
        return None
    return math.fsum(value * factors[fuel] for fuel, value in known.items()) / known_total


def intensities(
    generation: Mapping[datetime, Generation], factors: Mapping[str, float]
) -> Sequence[tuple[datetime, float]]:
    """Return the intensity of each stretch of time that is wholly reported, in their order.

    The newest hours come in fuel by fuel: one in which a fuel is missing that makes at least 2% of what all hours
    here report is unknown, since without its coal it would look clean. So is one in which hardly anything was
    generated: zeros stand for what was not reported.

    Args:
        generation: by the start of the stretch, then by fuel.
        factors: gCO2e/kWh by fuel.
    """
    totals: dict[str, float] = defaultdict(float)
    for made in generation.values():
        for fuel, value in made.items():
            totals[fuel] += max(0.0, value or 0.0)
    least = _LEAST_MISSED_SHARE * math.fsum(totals.values())
    needed = [fuel for fuel, total in totals.items() if total >= least]
    made_at = {at: math.fsum(max(0.0, value or 0.0) for value in made.values()) for at, made in generation.items()}
    least_total = _LEAST_TOTAL * statistics.median(made_at.values()) if made_at else 0.0
    found = []
    for start, made in sorted(generation.items()):
        if made_at[start] < least_total or any(made.get(fuel) is None for fuel in needed):
            continue
        value = mix_intensity(made, factors)
        if value is not None:
            found.append((start, value))
    return found
