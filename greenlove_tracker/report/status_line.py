"""The line that says how far a run is, and the words for a budget that it will exceed.

The line: ``epoch 3/30 · 4 min · ends 18:42 · 0.41 kWh · 0.16 kg CO2e · $0.17``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from greenlove_tracker.extrapolation.time_fit import time_fit
from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.forecasting import Estimate, Forecast, WarningCode, stop_estimate
from greenlove_tracker.vocabulary.phases import Plan, phase_at
from greenlove_tracker.vocabulary.records import Consumption


def status_line(
    plan: Plan | None,
    forecast: Forecast | None,
    used: Consumption,
    *,
    epochs_begun: int,
    epochs_done: int,
    steps_done: int,
    utc_s: float,
    limit_s: float | None,
    is_measured: bool,
) -> str:
    """Return epochs or steps, and time, energy, CO2e and cost: forecast where that is known, else so far.

    Args:
        plan: of the run, as far as it is known.
        forecast: the latest.
        used: so far.
        epochs_begun: of this run.
        epochs_done: of this run.
        steps_done: of this run.
        utc_s: the present time.
        limit_s: the time that the run may take in all.
        is_measured: hardware measured any of the energy; else a tilde stands before it, as on the final screen.
    """
    elapsed_s = used.duration_s or 0.0
    parts = [fmt.brief_duration(elapsed_s)]
    if forecast is not None and elapsed_s > forecast.duration_s.upper:
        parts = [*parts, "overdue"]
        forecast = None  # what it said is over, and nothing is known instead
    elif forecast is not None:
        left_s = forecast.duration_s.given_more_than(elapsed_s).plus(-elapsed_s)
        parts.append(f"ends {fmt.end_time(left_s, utc_s)}")
        parts += _ends(plan or Plan(), forecast, elapsed_s, limit_s)
    done = _done(plan or Plan(), epochs_begun, epochs_done, steps_done)
    return done + " · ".join([*parts, *_quantities(forecast, used, "" if is_measured else "~")])


def _ends(plan: Plan, forecast: Forecast, elapsed_s: float, limit_s: float | None) -> Iterator[str]:
    """Give how it fits its time limit, where early stopping may end it, and the time to ask Slurm for."""
    is_cold = any(warning.name == WarningCode.FEW for warning in forecast.warnings)  # of too little to say so
    if limit_s is not None and not is_cold:
        fit = time_fit(forecast, limit_s, passed_s=elapsed_s)
        if not fit.is_over:
            yield fmt.time_fit(fit)
    if forecast.expected_stop is not None and plan.epochs:
        stop = stop_estimate(forecast.expected_stop, forecast.duration_s.level, before=plan.first_epoch)
        yield fmt.expected_stop(stop, plan.first_epoch + plan.epochs)
    p99_s = forecast.duration_p99_s
    if "SLURM_JOB_ID" in os.environ and forecast.is_reliable and p99_s is not None and not is_cold:
        yield f"--time={fmt.slurm_time(max(p99_s, elapsed_s))}"


def _done(plan: Plan, epochs_begun: int, epochs_done: int, steps_done: int) -> str:
    phase = _phase(plan, epochs_done if plan.is_in_epochs else steps_done)
    if plan.is_in_epochs and plan.epochs:
        whole = plan.first_epoch + plan.epochs
        planned = whole if epochs_done <= plan.epochs else f"{whole} planned"
        return f"epoch {plan.first_epoch + epochs_done}/{planned} {phase}· "
    if plan.total_steps:
        return f"step {plan.first_step + steps_done:,}/{plan.first_step + plan.total_steps:,} {phase}· "
    if epochs_begun:
        return f"epoch {plan.first_epoch + epochs_done} · "
    return ""


def _phase(plan: Plan, done: int) -> str:
    """Return in which phase of the plan the run is: ``phase 2/3 (262,144 tokens) ``; empty where it has one."""
    if len(plan.phases) < 2:
        return ""
    number = phase_at(plan.phases, done)
    name = fmt.phase_name(plan.phases[number])
    return f"phase {number + 1}/{len(plan.phases)}{f' ({name})' if name else ''} "


def _quantities(forecast: Forecast | None, used: Consumption, tilde: str) -> Iterator[str]:
    """Give energy, CO2e and cost as they are forecast, or what is used so far; the dispensable last."""
    said = ""
    for quantity in ("energy_kwh", "emissions_kgco2e", "cost_usd"):
        text = fmt.QUANTITIES[quantity][1]
        suffix = " CO2e" if quantity == "emissions_kgco2e" else ""
        expected: Estimate | None = getattr(forecast, quantity, None)
        value = getattr(used, quantity)
        of = "so far "
        if expected is not None:
            value = expected.total(value)
            of = "in all "
        if value is not None:
            before = "" if of == said else of
            said = of  # once for those that follow
            yield f"{before}{'' if quantity == 'cost_usd' else tilde}{text(value)}{suffix}"


def about_length(plan: Plan | None, source: str, option: str) -> str:
    """Return where the number of epochs is from that the user did not give, or with which option to give it."""
    if source:
        return f" · length from {source}"
    if plan is not None and plan.length:
        return ""
    return f" · no forecast: the number of epochs is unknown, give {option}"


def over_budget(
    quantity: str, limit: float, used: float | None, expected: Estimate | None, probability: float, limit_source: str
) -> str:
    """Return which budget a run exceeds, or how likely it will.

    Args:
        quantity: of ``format.QUANTITIES``.
        limit: of it.
        used: what exceeds it already; None where nothing does yet.
        expected: the forecast; None where there is none.
        probability: that the run comes to more.
        limit_source: of a limit of the time.
    """
    name, text = fmt.QUANTITIES[quantity]
    is_time = quantity == "duration_s"
    if is_time and limit <= 0:
        return f"the {limit_source} had passed before the run began"
    over = f"over the {f'{limit_source} after' if is_time else 'limit of'} {text(limit)}"
    if used is not None:
        return f"{name} is at {text(used)}, {over}"
    total = ""
    if expected is not None:
        total = f"will reach {fmt.interval(expected, text)}"
    return f"{name} {total}, {over} with a probability of {fmt.chance(probability)}"
