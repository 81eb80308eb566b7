"""The runs of a script under ``greenlove run``: its trackers take over the run that has begun, or begin the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from greenlove_tracker.machine.job import outer_run_dir
from greenlove_tracker.settings.config import Settings, load_settings
from greenlove_tracker.tracker.budgets import BudgetActions
from greenlove_tracker.tracker.events import Exporter
from greenlove_tracker.tracker.metadata import run_fields
from greenlove_tracker.tracker.session import Session, exporters_of, open_run
from greenlove_tracker.tracker.state import RunMode, run_factors
from greenlove_tracker.vocabulary.forecasting import Forecast
from greenlove_tracker.vocabulary.phases import Plan
from greenlove_tracker.vocabulary.records import Clock

# Settings that the meter depends on, and those that rates by time depend on.
_HARDWARE = (
    "components",
    "cpu_tdp_w",
    "ram_w",
    "sim_cpu_tdp_w",
    "sim_cpu_util",
    "sim_gpu_w",
    "sim_gpu_util",
    "sim_gpu_count",
)
_RATES = (
    "country",
    "pue",
    "intensity",
    "intensity_urls",
    "carbon_intensity_gco2e_per_kwh",
    "electricity_price_usd_per_kwh",
    "electricity_tariff",
)


def run_of_script() -> Session | None:
    """Return the open run of the script under ``greenlove run``; None without ``greenlove run``."""
    run = open_run()
    if run is not None and run.state.mode is RunMode.RUNNER:
        return run
    return None


def run_dir_to_join() -> Path | None:
    """Return the directory of the run of another process that a new tracker would join; None if there is none."""
    run = run_of_script()
    if run is not None and not run.state.is_part_of_other:
        return None
    return outer_run_dir()


def settings_for_tracker(run: Session | None, given: Mapping[str, Any]) -> Settings:
    """Return the settings of a tracker: what its script gives, before the options of ``greenlove run``.

    Args:
        run: the open run of the script; None without ``greenlove run``.
        given: the settings that the script gives.

    Raises:
        UsageError: for a bad setting.
    """
    if run is None:
        return load_settings(given)
    launch = run.launch
    options = {name: getattr(launch.settings, name) for name in launch.settings.given}
    if run.has_trained:  # only the first run resumes an earlier one
        options.pop("continues", None)
    if not run.state.is_part_of_other:  # the script may have changed its working directory
        is_here = Path(launch.settings.log_dir).absolute() == launch.run_dir.parent
        if is_here:
            options["log_dir"] = launch.settings.log_dir
        else:
            options["log_dir"] = str(launch.run_dir.parent)
    own = {name: value for name, value in given.items() if value is not None}
    # Only the script's own arguments may raise errors; options of the command are warned of.
    return replace(load_settings({**options, **own}), given=frozenset(own))


def can_be_taken_over(run: Session, settings: Settings, clock: Clock | None) -> bool:
    """Return True if a tracker in the script may take over this run, instead of beginning another.

    Meter, directory and rates by time stay as the run began with them, so the tracker must ask for the same.
    """
    begun = run.launch.settings
    by_time: Sequence[str] = ("electricity_tariff",)
    if settings.intensity or run.state.rates_in_force.is_by_time:
        by_time = _RATES
    is_same = all(getattr(settings, name) == getattr(begun, name) for name in (*_HARDWARE, *by_time))
    is_here = run.state.is_part_of_other or Path(settings.log_dir).absolute() == run.run_dir.parent
    has_own_clock = clock is not None and clock is not run.state.clock
    return is_same and is_here and not (run.has_trained or has_own_clock)


def take_over(
    run: Session,
    settings: Settings,
    plan: Plan,
    *,
    prior: Forecast | None,
    budget_actions: BudgetActions,
    exporters: Sequence[Exporter],
) -> None:
    """Make the run that of a tracker in the script. The time until now is the start-up of its training.

    Args:
        run: the run that ``greenlove run`` has begun.
        settings: the settings of the tracker; they count for the whole run.
        plan: the number of epochs or steps.
        prior: the forecast of an exploration of this training.
        budget_actions: the user's own code for budgets.
        exporters: the script's exporters; those that the settings name are added.

    Raises:
        UsageError: if the tracker asks for something impossible; the run then goes on as before.
    """
    state = run.state
    exporters = exporters_of(settings, exporters, state.warn_once, is_exported=state.is_leading)
    factors = run_factors(settings, plan, run.run_dir.name, state.factors.started_at)
    if state.rates_in_force.tariff is not None:
        factors = replace(factors, electricity_price=state.factors.electricity_price)
    with run.tracked_call as recorder:
        recorder.write_segment()
        run.run_parts.tell_rows()
        state.settings = settings
        state.plan = plan
        state.factors = factors
        state.budget_actions = budget_actions
        state.prior = prior
        state.exporters = exporters
        state.begin_anew(run.writer.rows())
        recorder.change_terms(plan.first_epoch, state.rates_in_force)
        run.writer.write_fields(run_fields(state, plan, run.extra_fields))
