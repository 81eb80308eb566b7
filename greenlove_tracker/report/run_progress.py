"""The progress of a run at a moment: its share, the rest by its latest forecast, its power, and whether it lives."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from greenlove_tracker import format as fmt
from greenlove_tracker.forecasting import Estimate
from greenlove_tracker.logs.run import SILENT_AFTER_S, Run
from greenlove_tracker.logs.tables import IssuedForecast
from greenlove_tracker.logs.totals import metered_intervals
from greenlove_tracker.records import Flag, Row, RunStatus
from greenlove_tracker.rendering import document as doc
from greenlove_tracker.report import wording
from greenlove_tracker.units import w_from_kwh_s

_POWER_OVER_S = 10.0  # the latest rows are taken together up to this: a counter needs some 100 ms for a new value


@dataclass(frozen=True, slots=True)
class RunProgress:
    """A run at one moment.

    Attributes:
        status: one word or two; of a run without an end that seems to live no more, ``seems dead``.
        doubt: why it seems dead, or may hang; empty where nothing speaks for it.
        elapsed_s: since its start; of one that goes on no longer, as its rows have it.
        share: of the whole, 0..1; None where it has no plan.
        latest: the latest forecast; None without one.
        whole: the time of the whole by that, given what has passed; None without a forecast, or where it is overdue.
        left: of that, what is left.
        is_overdue: it takes longer than the interval of its latest forecast said.
        power_w: of its components together over its latest rows, before PUE; None where they were not metered, or are
            not of now.
    """

    status: str
    doubt: str
    elapsed_s: float
    share: float | None
    latest: IssuedForecast | None
    whole: Estimate | None
    left: Estimate | None
    is_overdue: bool
    power_w: float | None


def progress_of(run: Run, now_utc_s: float) -> RunProgress:
    """Return how far a run is.

    Args:
        run: a run that can be read.
        now_utc_s: seconds since the Unix epoch.
    """
    summary = run.summary
    is_running = summary.status == RunStatus.RUNNING
    silent_s = max(0.0, now_utc_s - run.written_s)  # the clock of who wrote it may be ahead
    elapsed_s = max(summary.duration_s, _since_s(run.started_at, now_utc_s)) if is_running else summary.duration_s
    latest = _latest_forecast(run) if is_running else None
    passed_s = elapsed_s if latest is None else _passed_s(run, latest, elapsed_s, now_utc_s)
    estimate = None if latest is None else latest.estimates["duration_s"]
    is_overdue = estimate is not None and passed_s > estimate.upper
    whole = None if estimate is None or is_overdue else estimate.given_more_than(passed_s)
    return RunProgress(
        status=summary.status if is_running or run.has_summary else "seems dead",
        doubt=_doubt(run, silent_s) if not run.has_summary else "",
        elapsed_s=elapsed_s,
        share=_share(run),
        latest=latest,
        whole=whole,
        left=None if whole is None else whole.plus(-passed_s),
        is_overdue=is_overdue,
        power_w=_latest_power_w(run) if is_running and silent_s <= SILENT_AFTER_S else None,
    )


def progress_blocks(run: Run) -> tuple[doc.Block, ...]:
    """Return how far a run that goes on was when it last wrote: what is done, left, and drawn; nothing of any other."""
    if run.summary.status != RunStatus.RUNNING or run.is_exploration:
        return ()
    progress = progress_of(run, run.written_s)
    elapsed = f"{fmt.duration(progress.elapsed_s)} so far"
    if progress.share is None:
        done = doc.KeyFigure("done", wording.progress(run), (elapsed,))
    else:
        done = doc.KeyFigure("done", f"{progress.share:.0%}", (wording.progress(run), elapsed))
    return (doc.KeyFigures((done, _left_figure(run, progress), _power_figure(progress))),)


def _left_figure(run: Run, progress: RunProgress) -> doc.KeyFigure:
    whole, left = progress.whole, progress.left
    if whole is None or left is None:
        if progress.is_overdue and progress.latest:
            said = progress.latest.estimates["duration_s"]
            return doc.KeyFigure("left", "overdue", (f"forecast {fmt.interval(said, fmt.duration)}",))
        return doc.KeyFigure("left", fmt.UNKNOWN, ("no forecast yet, or no plan to forecast",))
    interval = f"{left.level:.0%} interval {fmt.bounds(left, fmt.duration, ' to ')}" if left.has_interval else ""
    stop = wording.expected_stop(run, progress.latest) if progress.latest else ""
    how = (interval, f"of {fmt.duration(whole.point)} in all, forecast", stop)
    return doc.KeyFigure("left", fmt.duration(left.point), tuple(filter(None, how)))


def _power_figure(progress: RunProgress) -> doc.KeyFigure:
    how = "mean of the latest rows, before PUE" if progress.power_w is not None else "the latest rows were not metered"
    return doc.KeyFigure("power", fmt.power(progress.power_w), (how,))


def _latest_forecast(run: Run) -> IssuedForecast | None:
    """Return the latest forecast; of a command that trains in several processes, that of whichever it is."""
    if run.joined:
        return max(run.forecasts, key=lambda issued: issued.issued_at, default=None)
    return run.forecasts[-1] if run.forecasts else None


def _passed_s(run: Run, issued: IssuedForecast, elapsed_s: float, now_utc_s: float) -> float:
    """Return the time of what was forecast: of the run, or of the training in a process that a command started."""
    if not run.joined:
        return elapsed_s
    return issued.elapsed_s + max(0.0, _since_s(issued.issued_at, now_utc_s))


def _since_s(timestamp: str, now_utc_s: float) -> float:
    try:
        return now_utc_s - datetime.fromisoformat(timestamp).timestamp()
    except ValueError:  # a damaged log
        return 0.0


def _doubt(run: Run, silent_s: float) -> str:
    """Say why a run without an end seems dead, or why one whose process is there may hang; empty without a reason.

    On the machine of its process that is looked for; elsewhere only the time since its last row is known.
    """
    silence = f"nothing was written for {fmt.duration(silent_s)}"
    if run.summary.status == RunStatus.RUNNING:
        return f"its process is there, but {silence}: it may hang" if silent_s > SILENT_AFTER_S else ""
    if run.is_of_this_machine:
        return f"no end was written, and process {run.text('pid')} is gone"
    host = fmt.shortened(run.text("host"), 30) or "the machine where it ran"
    return f"no end was written, and {silence}; {host} knows more"


def _share(run: Run) -> float | None:
    """Return the share of the plan that is done, with the steps of an epoch that is not over."""
    summary, steps = run.summary, run.total_steps_planned
    done_steps = run.first_step + (summary.counts.steps or 0)
    if summary.epochs_planned:
        whole, done = run.first_epoch + summary.epochs_planned, float(run.first_epoch + summary.epochs_done)
        if steps:  # of an epoch of an hour there is something to see
            by_steps = run.first_epoch + (summary.counts.steps or 0) / steps * summary.epochs_planned
            done = max(done, min(by_steps, done + 1))
        return min(1.0, done / whole)
    return min(1.0, done_steps / (run.first_step + steps)) if steps else None


def _latest_power_w(run: Run) -> float | None:
    """Return the mean power over the latest rows, of all nodes that meter; None where one of them does not any more."""
    streams = _metering(run.rows)
    if run.command_rows is not None:  # it is measured from outside, and each process that meters sees all of it too
        streams = sorted([run.command_rows, *streams], key=lambda rows: rows[-1].started_at if rows else "")[-1:]
    powers = [_mean_of_latest_w(rows) for rows in streams]
    known = [power_w for power_w in powers if power_w is not None]
    return math.fsum(known) if known and len(known) == len(powers) else None


def _metering(rows: Mapping[int, Sequence[Row]]) -> list[Sequence[Row]]:
    return [of_rank for of_rank in rows.values() if not all(Flag.NO_METER in row.flags for row in of_rank)]


def _mean_of_latest_w(rows: Sequence[Row]) -> float | None:
    over_s, energies_kwh = 0.0, list[float]()
    for row in reversed(rows):
        for duration_s, energy in metered_intervals([row]):
            if duration_s > 0:
                if (energy_kwh := energy.total_kwh) is None:
                    return w_from_kwh_s(math.fsum(energies_kwh), over_s) if energies_kwh else None
                over_s += duration_s
                energies_kwh.append(energy_kwh)
        if over_s >= _POWER_OVER_S:
            break
    return w_from_kwh_s(math.fsum(energies_kwh), over_s)
