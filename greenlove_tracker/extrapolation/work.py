"""What the units of a training cost that differ in their work: by plan, or as its loop tells.

A unit, a step or an epoch, costs φ·k + (1 − φ)·g: k is how often it pays what does not grow with work, g its work, both
relative to the phase of the smallest work, and φ the share there that does not grow. Each phase has an effect of its
own besides. Relative to what is expected that is linear: cost · (1 + F·β), with β normal a priori, and so it goes into
the least squares of ``level``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from greenlove_tracker.extrapolation.draws import Array
from greenlove_tracker.phases import Phase, spans, total_length

Cost = tuple[float, float] | None  # k and g of a unit; None where its work is not known
Deviations = tuple[tuple[float, Array], ...]

# Priors: assumptions of the order of what recorded runs show (docs/method/forecasts.md).
_SHARE = 0.18  # φ
ASSUMED_SHARE = "what does not grow with it is taken to be 18% (up to 40%) of the least"
# Prior weight, and standard deviations of φ and of a phase's own effect.
_SPREADS = ((0.88, 0.11, 0.015), (0.1, 0.11, 0.08), (0.02, 0.35, 0.015))
NEXT_LEVEL = 0.2  # standard deviation of a phase without work, against the one before it
_UNRELATED = 1.0  # and where none is before it


def costs_of(units: Sequence[Cost]) -> tuple[Array, Array, Deviations]:
    """Return the expected cost of each kind of unit, the factors F, and the deviations of β with their weights."""
    n = len(units)
    known = [cost for cost in units if cost is not None]
    constant, growing = max(known, key=lambda cost: cost[0] / cost[1]) if known else (1.0, 1.0)
    expected, factors = np.ones(n), np.zeros((n, n + 1))
    own = np.full(n, NEXT_LEVEL if (known and units[0] is not None) or not known else _UNRELATED)
    for p, cost in enumerate(units):
        if cost is not None:
            k, g = cost[0] / constant, cost[1] / growing
            expected[p] = _SHARE * k + (1.0 - _SHARE) * g
            factors[p, 0] = (k - g) / expected[p]
        elif p:
            expected[p], factors[p], own[p] = expected[p - 1], factors[p - 1], NEXT_LEVEL
        if cost is not None or p or known:
            factors[p, p + 1] = 1.0
    is_known = np.array([cost is not None for cost in units])
    choices = _SPREADS if known else ((1.0, 0.0, 0.0),)
    deviations = [(w, np.append(share, np.where(is_known, effect, own))) for w, share, effect in choices]
    return expected, factors, tuple(deviations)


def planned_costs(phases: Sequence[Phase], trial_work: float | None) -> tuple[float, float, Array, Array]:
    """Return what a unit of a plan costs on average, in one that was timed, and a unit of each phase; with deviations.

    Args:
        phases: of the plan.
        trial_work: work of a step that was timed, in the measure of the phases; None where that is not known: then it
            is taken to be the first phase's.
    """
    units: list[Cost] = [phase.constant_and_growing for phase in phases]
    timed = 0
    if trial_work is not None:
        is_same_data = phases[0].epochs is not None and phases[0].measure in ("tokens_per_step", "samples_per_step")
        cost = (1.0 / trial_work, 1.0) if is_same_data else (1.0, trial_work)
        timed = units.index(cost) if cost in units else len(units)
        units += [] if cost in units else [cost]
    expected, factors, choices = costs_of(units)
    lengths = np.array([end - begin for begin, end in spans(phases)], dtype=float)
    n, each = len(phases), expected / expected[timed]
    all_units = float(lengths @ each[:n])
    mean_factors = lengths * each[:n] @ factors[:n] / all_units
    deviations = np.sqrt(
        sum(w * ((np.vstack([mean_factors, factors[:n]]) - factors[timed]) ** 2 @ s**2) for w, s in choices)
    )
    share = all_units / total_length(phases)
    return share, share * float(deviations[0]), each[:n], deviations[1:]
