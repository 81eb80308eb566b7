"""What a run is, as far as it is known: it changes only where a script's own tracker joins it."""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from greenlove_tracker.config import Settings, load_settings
from greenlove_tracker.errors import UsageError
from greenlove_tracker.grid import carbon_intensity, electricity_price, resolve_place
from greenlove_tracker.job import Ranks
from greenlove_tracker.logs.totals import RunFactors
from greenlove_tracker.logs.writer import claim_run_id, create_run_dir, new_run_id
from greenlove_tracker.meter import Meter, NullMeter, SimulatedMeter
from greenlove_tracker.records import Clock
from greenlove_tracker.tracker.budgets import BudgetActions


@dataclass(frozen=True, slots=True)
class Particulars:
    """What a run is.

    Attributes:
        settings: what it is measured and counted with.
        plan: what the training is going to be; None where no script has said so yet.
        terms: its names, and what energy is multiplied with.
        hooks: the user's own code for budgets.
    """

    settings: Settings
    plan: Plan | None
    terms: RunFactors
    hooks: BudgetActions

    @property
    def grams_per_kwh(self) -> float:
        """Emissions of metered energy: carbon intensity times PUE."""
        return self.terms.carbon_intensity.value * self.terms.pue

    def plan_with(self, plan: Plan) -> Plan:
        """The plan once a script's tracker brings one; that of a second tracker comes on top."""
        return plan if self.plan is None else self.plan.and_then(plan)

    def joined_by(self, plan: Plan, arguments: Mapping[str, Any], hooks: BudgetActions) -> Particulars:
        """The same run, once a script's own tracker has joined it.

        Args:
            plan: of the whole run from then on.
            arguments: the settings that the script gives; where the command line set one, that one stays.
            hooks: the script's code for budgets.

        Raises:
            UsageError: for a bad setting.
        """
        ours = {name: getattr(self.settings, name) for name in self.settings.given}
        settings = load_settings({**arguments, **ours, "log_dir": self.settings.log_dir})
        terms = make_terms(settings, plan, self.terms.run_id, self.terms.started_at)
        return Particulars(settings, plan, terms, hooks.under(settings))


# -- What a run is counted and measured with, from its settings --


def make_terms(settings: Settings, plan: Plan, run_id: str, started_at: str) -> RunFactors:
    """The names and factors of a run.

    Raises:
        UsageError: for a place that is not known, or for which no carbon intensity is.
    """
    place = resolve_place(settings.country)
    return RunFactors(
        run_id=run_id,
        project=settings.project,
        started_at=started_at,
        epochs_planned=plan.epochs,
        carbon_intensity=carbon_intensity(place, settings.carbon_intensity_gco2e_per_kwh),
        pue=settings.pue,
        electricity_price=electricity_price(place, settings.electricity_price_usd_per_kwh),
        price_usd_per_gpu_hour=settings.price_usd_per_gpu_hour,
    )


def make_run_dir(log_dir: str, ranks: Ranks, utc_s: float) -> Path:
    """The directory of a new run, absolute: a script may change its working directory.

    Raises:
        UsageError: where the log directory cannot be written.
    """
    base = Path(log_dir).absolute()
    if not ranks.launch_key:
        return create_run_dir(base, new_run_id(utc_s))
    run_dir = base / claim_run_id(base, ranks.launch_key, ranks.rank, utc_s)
    run_dir.mkdir(exist_ok=True)
    return run_dir


def choose_meter(
    settings: Settings, ranks: Ranks, clock: Clock, terms: RunFactors, options: Mapping[str, Any] | None
) -> Meter:
    """None for further ranks of a node, simulated hardware where it is given, else CodeCarbon."""
    if not ranks.carries_meter:
        return NullMeter(f"local rank 0 measures this node; this is local rank {ranks.local_rank}")
    if settings.is_simulated:
        return SimulatedMeter(
            clock,
            cpu_tdp_w=settings.sim_cpu_tdp_w,
            cpu_util=settings.sim_cpu_util,
            gpu_w=settings.sim_gpu_w,
            gpu_util=settings.sim_gpu_util,
            gpu_count=settings.sim_gpu_count,
            ram_w=settings.ram_w,
        )
    from greenlove_tracker.meter.codecarbon import CodeCarbonMeter

    return CodeCarbonMeter(
        os.environ,
        local_world_size=ranks.local_world_size,
        cpu_tdp_w=settings.cpu_tdp_w,
        ram_w=settings.ram_w,
        carbon_intensity_gco2e_per_kwh=terms.carbon_intensity.value,
        options=options,
    )


# -- What a training is going to be --


@dataclass(frozen=True, slots=True)
class Plan:
    """What the training is going to be, as far as it is known."""

    epochs: int | None = None
    total_steps: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("epochs", self.epochs), ("total_steps", self.total_steps)):
            if value is None:
                continue
            try:
                number = operator.index(value)
            except TypeError:
                number = None
            if number is None or isinstance(value, bool):
                raise UsageError(f"{name} must be a whole number, not {value!r}")
            object.__setattr__(self, name, number)
            if number <= 0:
                raise UsageError(f"{name} must be at least 1, not {value}; leave it out where it is not known")

    def and_then(self, other: Plan) -> Plan:
        """This plan, and another training behind it in the same run."""
        return Plan(_sum(self.epochs, other.epochs), _sum(self.total_steps, other.total_steps))


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b
