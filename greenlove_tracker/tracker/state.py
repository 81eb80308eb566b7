"""The state of one tracked run, in one place: settings, plan, factors, budgets, the latest forecast."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from greenlove_tracker.grid import carbon_intensity, electricity_price, resolve_place
from greenlove_tracker.logs import writer
from greenlove_tracker.logs.totals import RowTotals
from greenlove_tracker.machine.job import Ranks
from greenlove_tracker.meter import Meter
from greenlove_tracker.settings.config import Settings, TimeLimit, time_limit
from greenlove_tracker.text.warn_once import WarnOnce
from greenlove_tracker.tracker.budgets import BudgetActions
from greenlove_tracker.tracker.events import Exporter
from greenlove_tracker.tracker.rates_in_force import RatesInForce
from greenlove_tracker.vocabulary.errors import LogDirError
from greenlove_tracker.vocabulary.forecasting import Forecast
from greenlove_tracker.vocabulary.phases import Plan
from greenlove_tracker.vocabulary.pricing import MeanRates, Rates, RunFactors
from greenlove_tracker.vocabulary.records import Clock, Consumption, Row, RunStatus, times


class RunMode(Enum):
    """The kind of training that a run tracks."""

    OWN = "a training in this process, by a tracker of its own"
    RUNNER = "a script in this process, under greenlove run, and its training"
    COMMAND = "a whole command, measured from outside"
    EXPLORATION = "an exploration, which may be inside another run of this process and then goes on beside it"


@dataclass(slots=True, kw_only=True)
class RunState:
    """One tracked run as it goes on.

    Attributes:
        settings: the settings of the run.
        plan: the length in epochs or steps; None under ``greenlove run`` until the script shows it.
        plan_source: where the length was found, if the user did not give it to the tracker.
        factors: names of the run, and the factors that energy is multiplied with.
        budget_actions: the user's own code for budgets.
        prior: the forecast of an exploration of this training.
        mode: the kind of training.
        ranks: the rank of this process in the training.
        clock: read for all times.
        started_s: when the run began, by the steady clock.
        started_utc_s: when the run began, in seconds since the Unix epoch.
        run_dir: the directory of the run.
        meter: the meter of this node.
        exporters: services that get the events of the run.
        in_background: True if the run has threads of its own; else the owner of the clock calls ``tick()``.
        is_part_of_other: True if another process leads the run, and this one writes into its directory.
        lock: held while the run changes or a row is made.
        warn_once: gives each kind of warning once.
        time_limit: the earliest of the deadline, the longest time and the end of the Slurm job.
        limits: budgets by quantity; the time limit is a duration from the start.
        forecast: the latest forecast.
        gpu_count: our GPUs of this node; 0 until the meter is up.
        has_tracker: True if a tracker in the script marks the epochs; else an observer does, or nobody.
        training_status: how the tracker ended the training, if the script goes on after it.
        rates_in_force: carbon intensity and price at the time of each row.
        row_totals: the totals of the rows so far.
        stopped_early_after: the epoch after which early stopping ended the training; None if it has not.
        is_finished: True once the run is closed.
        is_training_over: True once nothing more of the training can come.
    """

    settings: Settings
    plan: Plan | None
    factors: RunFactors
    budget_actions: BudgetActions
    prior: Forecast | None
    mode: RunMode
    ranks: Ranks
    clock: Clock
    started_s: float
    started_utc_s: float
    run_dir: Path
    meter: Meter
    exporters: Sequence[Exporter]
    in_background: bool
    is_part_of_other: bool
    has_tracker: bool
    warn_once: WarnOnce
    rates_in_force: RatesInForce
    lock: threading.RLock = field(default_factory=threading.RLock)
    time_limit: TimeLimit | None = field(init=False)
    limits: Mapping[str, float] = field(init=False)
    forecast: Forecast | None = field(init=False)
    gpu_count: int = 0
    training_status: RunStatus | None = None
    row_totals: RowTotals = field(init=False)
    stopped_early_after: int | None = None
    plan_source: str = ""
    is_finished: bool = False
    is_training_over: bool = False
    _are_gpus_measured: bool = True

    def __post_init__(self) -> None:
        self.row_totals = RowTotals(MeanRates(self.factors.rates))
        self.time_limit = None
        if self.mode is not RunMode.EXPLORATION:  # the time limit is that of the training
            self.time_limit = time_limit(self.settings, self.started_utc_s, os.environ)
        limits = {
            "energy_kwh": self.settings.max_energy_kwh,
            "cost_usd": self.settings.max_cost_usd,
            "emissions_kgco2e": self.settings.max_kgco2e,
            "duration_s": None if self.time_limit is None else self.time_limit.limit_s,
        }
        self.limits = {quantity: limit for quantity, limit in limits.items() if limit is not None}
        self.forecast = self.prior
        if self.prior is not None and self.prior.position is not None:  # its position belongs to an earlier run
            self.forecast = replace(self.prior, position=None)

    def begin_anew(self, rows: Sequence[Row]) -> None:
        """Count with the settings and factors of a tracker in the script, which were set, and with the rows so far."""
        self.has_tracker = True
        self.rates_in_force = replace(self.rates_in_force, table=self.factors.carbon_intensity, pue=self.factors.pue)
        self.__post_init__()
        self.count_gpus(self.gpu_count, are_measured=self._are_gpus_measured)
        for row in rows:
            self.row_totals.add(row)

    def count_gpus(self, count: int, *, are_measured: bool) -> None:
        """Set the number of GPUs. Without their energy the cost of electricity is incomplete, so drop it."""
        self.gpu_count = count
        self._are_gpus_measured = are_measured
        if not are_measured:
            self.factors = replace(self.factors, electricity_price=None)

    @property
    def shown_dir(self) -> str:
        """The directory of the run, as the user named it."""
        return os.path.join(self.settings.log_dir, self.run_dir.name)  # noqa: PTH118  # keeps a leading ./

    @property
    def is_first_rank(self) -> bool:
        """True if this process forecasts and watches the budgets, for all ranks."""
        return self.ranks.rank == 0

    @property
    def is_leading(self) -> bool:
        """True if this process writes the run's summary."""
        return self.is_first_rank and not self.is_part_of_other

    @property
    def elapsed_s(self) -> float:
        """The time since the run began."""
        return self.clock.perf_s() - self.started_s

    @property
    def lost_s(self) -> float:
        """The time during which the machine was suspended: it counts for a deadline, but not for the run."""
        return self.clock.utc_s() - self.started_utc_s - self.elapsed_s

    @property
    def energy_factor(self) -> float:
        """Counted energy ÷ metered energy: the assumed rest of the node, and PUE."""
        return self.factors.node_factor(self.row_totals.node.metered) * self.factors.pue

    @property
    def rates(self) -> Rates:
        """The rates of the whole run. If they change with time, the mean over its rows; before the first, those now."""
        mean = self.row_totals.mean
        rates = self.factors.rates
        if self.rates_in_force.is_by_time and not mean.own:
            return self.rates_in_force.now(rates, self.clock.utc_s())
        return mean.counted_with(rates)

    def consumption(self, metered_kwh: float | None) -> Consumption:
        """Return the run's consumption so far."""
        rates = self.rates
        elapsed_s = self.elapsed_s
        energy_kwh = times(metered_kwh, self.energy_factor)
        cost_usd, _ = rates.cost(elapsed_s, energy_kwh, self.gpu_count)
        return Consumption(elapsed_s, energy_kwh, rates.emissions(energy_kwh), cost_usd)


def run_factors(settings: Settings, plan: Plan, run_id: str, started_at: str) -> RunFactors:
    """Return the names and factors of a run.

    Raises:
        UsageError: if the place is unknown, or has no known carbon intensity.
    """
    place = resolve_place(settings.country)
    of_intensity = settings.given_by("carbon_intensity_gco2e_per_kwh")
    of_price = settings.given_by("electricity_price_usd_per_kwh")
    return RunFactors(
        run_id=run_id,
        project=settings.project,
        started_at=started_at,
        epochs_planned=plan.epochs,
        carbon_intensity=carbon_intensity(place, settings.carbon_intensity_gco2e_per_kwh, of_intensity),
        pue=settings.pue,
        electricity_price=electricity_price(place, settings.electricity_price_usd_per_kwh, of_price),
        price_usd_per_gpu_hour=settings.price_usd_per_gpu_hour,
        node_overhead=settings.node_overhead,
    )


def make_run_dir(settings: Settings, ranks: Ranks, utc_s: float) -> Path:
    """Make the directory of a new run. Its path is absolute, since a script may change its working directory.

    Raises:
        LogDirError: if the log directory cannot be written, or is an address.
    """
    if "://" in settings.log_dir:
        raise LogDirError(
            f"{{argument}} is a directory of this machine, not {settings.log_dir}: copy it there afterwards, and "
            "greenlove report reads it there",
            argument="log_dir",
        )
    base = Path(settings.log_dir).absolute()
    is_shared = bool(ranks.launch_key)
    if is_shared:
        claimed = writer.claim_run_id(base, ranks.launch_key, ranks.rank, utc_s)
    else:
        claimed = writer.new_run_id(utc_s)
    return writer.create_run_dir(base, claimed, is_private=settings.private_logs, is_shared=is_shared)
