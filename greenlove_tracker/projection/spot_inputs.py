"""The figures behind spot advice: checkpoints and restarts as a log measured them, and the machine of a row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from greenlove_tracker.checkpoints import CheckpointAction, CheckpointKind
from greenlove_tracker.config import load_settings
from greenlove_tracker.errors import UsageError
from greenlove_tracker.logs.continued_runs import training_interruptions
from greenlove_tracker.logs.directory import read_logs
from greenlove_tracker.logs.run import Run
from greenlove_tracker.projection.catalogue import counted, recognise
from greenlove_tracker.projection.types import Projection
from greenlove_tracker.units import h_from_s

if TYPE_CHECKING:
    from greenlove_tracker.projection.spot import SpotAdvice


@dataclass(frozen=True, slots=True)
class SpotOptions:
    """The user's figures for a machine that may be taken away; None is taken from a log, or not known.

    Attributes:
        preemptions_per_hour: of running; a rate, or with the range that holds it with 90%.
        spot_price: USD per GPU and hour.
        spot_discount: share that it is below the price on demand, instead.
        on_demand_price: USD per GPU and hour; None for that of the row.
        checkpoint_s: time that the training stands still for a checkpoint.
        written_s: time until it is whole after that.
        restart_s: from the start of another machine until the training goes on.
        wait_s: until there is another machine.
        announced: share of the preemptions that are announced.
        notice_s: so long before.
        interval_s: between checkpoints, where it is not to be the best one.
    """

    preemptions_per_hour: float | tuple[float, float, float] | None = None
    spot_price: float | None = None
    spot_discount: float | None = None
    on_demand_price: float | None = None
    checkpoint_s: float | None = None
    written_s: float | None = None
    restart_s: float | None = None
    wait_s: float | None = None
    announced: float | None = None
    notice_s: float | None = None
    interval_s: float | None = None


@dataclass(frozen=True, slots=True)
class MeasuredTimes:
    """The times of checkpoints and restarts in a run; None where its log does not tell.

    Attributes:
        checkpoint_s: mean time that the training stood still for one.
        written_s: mean time until one was whole after that; 0 where the training waited for all of it.
        n_saved: checkpoints that both are of.
        restart_s: mean time from the start of a run until it was where its checkpoint had been.
        n_restarts: restarts that this is of.
        share_of_time: of the run's time that went into saving.
        run_id: of the run.
    """

    checkpoint_s: float | None = None
    written_s: float | None = None
    n_saved: int = 0
    restart_s: float | None = None
    n_restarts: int = 0
    share_of_time: float | None = None
    run_id: str = ""


def measured_times(run: Run) -> MeasuredTimes:
    """Return what checkpoints and restarts took, from the log of a run and of those that it goes on with."""
    every = [e for e in run.checkpoints if e.action is CheckpointAction.SAVED and e.blocked_s is not None]
    # The training waits for all of an emergency's and of the final one: they tell of regular ones only without any.
    saved = [e for e in every if e.kind not in (CheckpointKind.EMERGENCY, CheckpointKind.FINAL)] or every
    blocked_s = math.fsum(event.blocked_s or 0.0 for event in saved)
    written_s = math.fsum(event.written_s or 0.0 for event in saved)
    interrupted = training_interruptions(run)
    found = interrupted.interruptions if interrupted is not None else ()
    restarts = [i.restart_s for i in found if i.restart_s is not None]
    total_s = run.summary.duration_s
    return MeasuredTimes(
        checkpoint_s=blocked_s / len(saved) if blocked_s > 0 else None,
        written_s=written_s / len(saved) if saved else None,
        n_saved=len(saved),
        restart_s=math.fsum(restarts) / len(restarts) if restarts else None,
        n_restarts=len(restarts),
        share_of_time=math.fsum(e.blocked_s or 0.0 for e in every) / total_s if every and total_s > 0 else None,
        run_id=run.run_id,
    )


def measured_in(log_dir: str | None) -> MeasuredTimes:
    """Return the same of the latest run of a log directory that logged checkpoints; all None where none did."""
    logs = read_logs(log_dir or load_settings().log_dir)
    run = next((run for run in reversed(list(logs.readable())) if run.checkpoints), None)
    return MeasuredTimes() if run is None else measured_times(run)


def row_for_spot(rows: Sequence[Projection], targets: Sequence[str]) -> Projection:
    """Return the machine that spot advice is about: the one target, else the machine here.

    Args:
        rows: of a projection, this machine first.
        targets: GPUs that the user named.

    Raises:
        UsageError: where there are several, or the training does not fit.
    """
    if len(targets) > 1:
        raise UsageError("--spot is about one machine: give one --target, or none for the machine here")
    row = rows[0]
    if targets:
        name = recognise(counted(targets[0])[1]).name
        row = next(row for row in rows if row.name == name and not row.is_local)
    if row.duration_s is None:
        raise UsageError(f"the training does not fit {row.name}: give another --target")
    return row


def spot_advice_for(row: Projection, options: SpotOptions, measured: MeasuredTimes) -> tuple[SpotAdvice, list[str]]:
    """Return the advice for the machine of a row, and where its figures are from, in sentences.

    Args:
        row: with a time.
        options: that the user gives.
        measured: what they leave open.

    Raises:
        UsageError: where a figure is missing or cannot be meant.
    """
    from greenlove_tracker.projection.spot import LEAST_NOTICE_S, spot_advice  # numpy

    if options.preemptions_per_hour is None:
        raise UsageError(
            "{argument} is needed: how often such a machine is taken away in an hour of running, 0.05 or "
            "0.05,0.02,0.12 with its range; no public list of these rates is kept here",
            argument="preemptions_per_hour",
        )
    if options.notice_s is not None and options.announced is None:
        raise UsageError(
            "{argument} is the time of a notice: give {argument} too, the share of the preemptions that have one",
            argument=("notice_s", "announced"),
        )
    on_demand = _price_of(row) if options.on_demand_price is None else options.on_demand_price
    basis: list[str] = []
    checkpoint_s, written_s = _checkpoint(options, measured, basis)
    advice = spot_advice(
        row,
        preemptions_per_hour=options.preemptions_per_hour,
        checkpoint_s=checkpoint_s,
        written_s=written_s,
        restart_s=_restart(options, measured, basis),
        spot_price=_spot_price(options, on_demand),
        on_demand_price=on_demand,
        n_gpus=row.billed_gpus,
        wait_s=options.wait_s or 0.0,
        announced=options.announced or 0.0,
        notice_s=LEAST_NOTICE_S if options.notice_s is None else options.notice_s,
        interval_s=options.interval_s,
        carbon_intensity=row.intensity.value if row.intensity is not None else None,
    )
    if on_demand is None:
        basis.append("no price on demand is known: give --on-demand-price")
    return advice, basis


def _checkpoint(options: SpotOptions, measured: MeasuredTimes, basis: list[str]) -> tuple[float, float]:
    """Return the time that saving takes and that it is whole after, as given, else as measured."""
    if options.checkpoint_s is not None:
        return options.checkpoint_s, options.written_s or 0.0
    if measured.checkpoint_s is None:
        raise UsageError(
            "{argument} is needed: how many seconds the training stands still for a checkpoint; a Checkpointer logs it",
            argument="checkpoint_s",
        )
    written_s = measured.written_s or 0.0
    text = f"a checkpoint takes {measured.checkpoint_s:.3g} s"
    text += f", and is whole {written_s:.3g} s later" if written_s else ""
    basis.append(f"{text}: the mean of {measured.n_saved} in the log{_of_run(measured)}")
    if measured.share_of_time:
        basis.append(f"the log's own time has its checkpoints in it, {measured.share_of_time:.1%}: they count twice")
    return measured.checkpoint_s, written_s if options.written_s is None else options.written_s


def _of_run(measured: MeasuredTimes) -> str:
    """Return of which run a log is: a directory may hold several trainings."""
    return f" of {measured.run_id}" if measured.run_id else ""


def _restart(options: SpotOptions, measured: MeasuredTimes, basis: list[str]) -> float:
    if options.restart_s is not None:
        return options.restart_s
    if measured.restart_s is None:
        raise UsageError(
            "{argument} is needed: how many seconds it takes from the start of another machine until the training goes "
            "on (booting, starting, reading the checkpoint, fetching its batches again); the log has no restart",
            argument="restart_s",
        )
    basis.append(
        f"a restart takes {measured.restart_s:.3g} s, the mean of {measured.n_restarts} in the log{_of_run(measured)}; "
        "booting the machine and starting Python are not in it: give --restart-s"
    )
    return measured.restart_s


def _spot_price(options: SpotOptions, on_demand: float | None) -> float | None:
    discount = options.spot_discount
    if discount is None:
        if options.spot_price is None:
            raise UsageError(
                "{argument} or {argument} is needed: spot prices change by the hour, and no public list is kept here",
                argument=("spot_price", "spot_discount"),
            )
        return options.spot_price
    if options.spot_price is not None:
        raise UsageError("{argument} and {argument}: choose one", argument=("spot_price", "spot_discount"))
    if not 0 < discount < 1:
        raise UsageError(
            f"{{argument}} is a share below the price on demand, such as 0.65, not {discount!r}",
            argument="spot_discount",
        )
    if on_demand is None:
        raise UsageError(
            "{argument} needs a price that it is off from: give {argument}",
            argument=("spot_discount", "on_demand_price"),
        )
    return on_demand * (1 - discount)


def _price_of(row: Projection) -> float | None:
    """Return the price of a row's machine per GPU and hour; None where it is not rented."""
    if row.offer is not None:
        return row.offer.usd_per_gpu_hour
    if row.cost_basis != "machine" or row.cost_usd is None or row.duration_s is None:
        return None
    return row.cost_usd.point / (h_from_s(row.duration_s.point) * row.billed_gpus)
