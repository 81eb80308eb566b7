"""What is read out of a run beside its totals: its title, its mean power, and whether it can stand for others."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from greenlove_tracker.format import shortened
from greenlove_tracker.logs.forecasts import units_done
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.trials import is_exploration
from greenlove_tracker.records import Energy, Flag, Row, RunStatus
from greenlove_tracker.units import w_from_kwh_s


def title(run: Run, width: int = 80) -> str:
    """``project/run_id``, or the run id alone."""
    project = shortened(run.summary.project, max(8, width - len(run.run_id) - 1))
    return f"{project}/{run.run_id}" if project else run.run_id


def is_whole(run: Run) -> bool:
    """Whether the run came to a good end with all that was planned, so that it can stand for others."""
    if is_exploration(run.fields):
        return False  # it is no training
    steps, summary = run.text("total_steps_planned"), run.summary
    if summary.epochs_planned is None and not steps.isdecimal():
        return summary.status in (RunStatus.FINISHED, RunStatus.EXITED)
    return units_done(summary, int(steps) if steps.isdecimal() else None) is not None


def metered_rows(run: Run) -> Sequence[Row]:
    """The rows of the first stream that carries a meter: the command's, or of the first rank that has one."""
    if run.command_rows is not None:
        return run.command_rows
    return next((rows for rows in run.rows.values() if not all(Flag.NO_METER in row.flags for row in rows)), ())


def stretches(rows: Sequence[Row]) -> Iterator[tuple[float, Energy]]:
    """Duration in s and energy of each gap and each row, in order."""
    for row in rows:
        yield row.gap_before_s, row.gap_before
        yield row.duration_s, row.energy


def mean_w(rows: Sequence[Row], component: str) -> float | None:
    """The mean power of a component over the rows that metered it; None where none did."""
    known = [(s, kwh) for s, energy in stretches(rows) if (kwh := energy.component_kwh(component)) is not None]
    return w_from_kwh_s(math.fsum(kwh for _, kwh in known), math.fsum(s for s, _ in known))


def gpu_mean_w(run: Run) -> float | None:
    """The mean power of all GPUs together while they were metered; None where they were not."""
    streams = [run.command_rows] if run.command_rows is not None else run.rows.values()
    means_w = [power_w for rows in streams if (power_w := mean_w(rows, "gpu")) is not None]
    return math.fsum(means_w) if means_w else None
