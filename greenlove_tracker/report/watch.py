"""The runs of a directory at a moment: how far each is, what is left by its latest forecast, and whether it lives."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from greenlove_tracker.logs.csvio import Problem
from greenlove_tracker.logs.directory import is_readable
from greenlove_tracker.logs.run import SILENT_AFTER_S, Run
from greenlove_tracker.logs.storage import LogPath, forget_listings
from greenlove_tracker.rendering.document import Blocks, Column, Document, Paragraph, Table, Texts, columns
from greenlove_tracker.report import wording
from greenlove_tracker.report.run_report import live_blocks, power_now, ranks_sentence
from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.forecasting import Estimate
from greenlove_tracker.vocabulary.records import RunStatus

MOST_ENDED = 5  # that are shown
_MOST_PROBLEMS = 3


@dataclass(frozen=True, slots=True)
class RunProgress:
    """A run at one moment.

    Attributes:
        status: one word or two; of a run without an end that seems to live no more, ``seems dead``.
        doubt: why it seems dead, or may hang; empty where nothing speaks for it.
        elapsed_s: since its start; of one that goes on no longer, as its rows have it.
        share: of the whole, 0..1; None where it has no plan.
        left: of its time, what is left; None without a forecast, or where it is overdue.
        is_overdue: it takes longer than the interval of its latest forecast said.
    """

    status: str
    doubt: str
    elapsed_s: float
    share: float | None
    left: Estimate | None
    is_overdue: bool


_Seen = Sequence[tuple[Run, RunProgress]]


def progress_of(run: Run, now_utc_s: float) -> RunProgress:
    """Return how far a run is.

    Args:
        run: a run that can be read.
        now_utc_s: seconds since the Unix epoch.
    """
    summary = run.summary
    is_running = summary.status == RunStatus.RUNNING
    silent_s = max(0.0, now_utc_s - run.written_s)  # the clock of who wrote it may be ahead
    elapsed_s = summary.duration_s
    if is_running:
        elapsed_s = max(elapsed_s, _since_s(run.started_at, now_utc_s))
    left = None
    is_overdue = False
    if is_running and run.forecasts:
        estimate = run.forecasts[-1].estimates["duration_s"]
        is_overdue = elapsed_s > estimate.upper
        if not is_overdue:
            left = estimate.given_more_than(elapsed_s).plus(-elapsed_s)
    return RunProgress(
        status=summary.status if is_running or run.has_summary else "seems dead",
        doubt="" if run.has_summary else _doubt(run, silent_s),
        elapsed_s=elapsed_s,
        share=_share(run),
        left=left,
        is_overdue=is_overdue,
    )


def _since_s(timestamp: str, now_utc_s: float) -> float:
    try:
        return now_utc_s - datetime.fromisoformat(timestamp).timestamp()
    except ValueError:  # a damaged log
        return 0.0


def _doubt(run: Run, silent_s: float) -> str:
    """Say why a run without an end seems dead, or why one whose process is there may hang; empty without a reason."""
    silence = f"nothing was written for {fmt.duration(silent_s)}"
    if run.summary.status == RunStatus.RUNNING:
        if silent_s > SILENT_AFTER_S:
            return f"its process is there, but {silence}: it may hang"
        return ""
    if run.text("host") == socket.gethostname() and run.text("pid").isdecimal():
        return f"no end was written, and process {run.text('pid')} is gone"
    return f"no end was written, and {silence}"


def _share(run: Run) -> float | None:
    """Return the share of the plan that is done, with the steps of an epoch that is not over."""
    summary = run.summary
    steps = run.total_steps_planned
    done_steps = summary.counts.steps or 0
    if summary.epochs_planned:
        done = float(summary.epochs_done)
        if steps:  # of an epoch of an hour there is something to see
            done = max(done, min(done_steps / steps * summary.epochs_planned, done + 1))
        return min(1.0, (run.first_epoch + done) / (run.first_epoch + summary.epochs_planned))
    if steps:
        return min(1.0, (run.first_step + done_steps) / (run.first_step + steps))
    return None


def _energy(run: Run) -> str:
    return f"{_tilde(run)}{fmt.energy(run.summary.energy_kwh)}"


def _tilde(run: Run) -> str:
    return "" if run.summary.energy_kwh is None else wording.energy_mark(run)


def _row(run: Run, progress: RunProgress, now_utc_s: float) -> Texts:
    left = progress.left
    done = wording.progress(run)
    if run.is_comparison:
        done = f"comparing, {fmt.duration(progress.elapsed_s)}"
    elif run.is_exploration:
        done = f"exploring, {fmt.duration(progress.elapsed_s)}"
    if progress.share is not None:
        done = f"{progress.share:.0%}  {done}"
    text = ""
    ends = ""
    if progress.is_overdue:
        text = "overdue"
    elif left is not None:
        text = fmt.brief_duration(left.point)
        if left.has_interval:
            text = fmt.interval(left, fmt.brief_duration)
        ends = fmt.clock_time(now_utc_s + left.point, now_utc_s)
    return (wording.run_label(run.run_id, run.label), done, text, ends, power_now(run), _energy(run))


class _Sighting(NamedTuple):
    """The content of a log directory at one moment.

    Attributes:
        running: runs that go on, the newest first.
        ended: all others, the newest first; those without an end of their own are dead. Of runs that wrote one, only
            the latest are read; the others are counted.
        problems: what cannot be read.
    """

    running: Sequence[Run]
    ended: Sequence[Run]
    problems: Sequence[Problem]


def _look(path: LogPath) -> _Sighting:
    """Return what a log directory, or the directory of one run, holds now."""
    forget_listings(path)
    directory = Run(path)
    found = [directory]
    if not directory.is_run:
        found = [Run(path / name) for name in reversed(directory.file_names)]
    running: list[Run] = []
    ended: list[Run] = []
    problems: list[Problem] = []
    for run in found if path.is_dir() else ():
        if not run.is_run:
            continue
        if run.has_summary and len(ended) >= MOST_ENDED:
            ended.append(run)
        elif not is_readable(run):
            problems += run.problems[-1:]
        else:
            (running if run.summary.status == RunStatus.RUNNING else ended).append(run)
    return _Sighting(running, ended, problems)


def watch_document(path: LogPath, now_utc_s: float, *, most: int | None = None) -> Document:
    """Return what is shown of a log directory, or of the directory of one run: what goes on, and what ended last.

    Args:
        path: the directory; it may be there only later.
        now_utc_s: seconds since the Unix epoch.
        most: runs that go on; None: all.
    """
    seen = _look(path)
    running = [(run, progress_of(run, now_utc_s)) for run in seen.running[:most]]
    ended = [(run, progress_of(run, now_utc_s)) for run in seen.ended[:MOST_ENDED]]
    n_dead = sum(not run.has_summary for run in seen.ended)
    n_ended = len(seen.ended) - n_dead
    n_more = len(seen.ended) - len(ended)
    counts = [f"{len(seen.running):,} running"]
    if n_dead:
        counts.append(f"{n_dead:,} {'seems' if n_dead == 1 else 'seem'} dead")
    if n_ended:
        counts.append(f"{n_ended:,} ended")
    counts.append(f"{datetime.fromtimestamp(now_utc_s).astimezone():%H:%M:%S}")
    blocks: Blocks = [Paragraph(_why_empty(path, seen))]
    if running:
        heads = columns({"running": 1, "done": 1}, ("left", "ends", "power", "so far"))
        blocks = [Table(heads, [_row(run, progress, now_utc_s) for run, progress in running], is_whole=True)]
    if len(running) < len(seen.running):
        blocks.append(Paragraph(f"and {len(seen.running) - len(running):,} more that run"))
    if ended:
        blocks.append(_ended_table(ended))
    if n_more:
        blocks.append(Paragraph(f"and {n_more:,} more that ended"))
    details = [block for run, _ in running for block in live_blocks(run)]
    notes = list(filter(None, (ranks_sentence(run) for run, _ in running)))
    notes += [f"! {run.title(34)}: {progress.doubt}" for run, progress in (*running, *ended) if progress.doubt]
    notes += [f"! {fmt.shortened(str(problem), 90)}" for problem in seen.problems[:_MOST_PROBLEMS]]
    return Document(
        title="Runs",
        verdict=f"greenlove watch  {fmt.shortened(str(path), 34)}  {' · '.join(counts)}",
        footer=wording.footer(),
        blocks=[*blocks, *map(Paragraph, notes), *details],
    )


def _why_empty(path: LogPath, seen: _Sighting) -> str:
    if not path.is_dir():
        return f"There is no directory {path} yet. It is shown as soon as a run writes to it."
    if seen.ended:
        return "nothing is running"
    return "There is no run in it yet. One is shown as soon as it begins."


def _ended_table(ended: _Seen) -> Table:
    rows = []
    for run, progress in ended:
        summary = run.summary
        status = progress.status
        if summary.exit_code:
            status += f", exit {summary.exit_code}"
        done = wording.progress(run)
        if run.is_comparison:
            done = "compared"
        elif run.is_exploration:
            done = "explored"
        emissions = f"{_tilde(run)}{fmt.mass(run.emissions_kgco2e)}"
        rows.append((run.title(34), status, done, fmt.duration(summary.duration_s), _energy(run), emissions))
    heads = [Column("ended, latest first"), Column(""), *columns({"": 1}, ("time", "energy", "CO2e"))]
    return Table(heads, rows, is_whole=True)
