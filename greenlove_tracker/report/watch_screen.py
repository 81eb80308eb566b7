"""The screen of ``greenlove watch``: the runs that go on, and those that ended last; plain text, in any width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from greenlove_tracker import format as fmt
from greenlove_tracker.console import bar
from greenlove_tracker.forecasting import Estimate
from greenlove_tracker.logs.directory import Sighting
from greenlove_tracker.logs.run import Run
from greenlove_tracker.rendering.terminal import display_width, wrap
from greenlove_tracker.report import wording
from greenlove_tracker.report.ranks import ranks_sentence
from greenlove_tracker.report.run_progress import RunProgress, progress_of

MOST_ENDED = 5  # that are shown
_LEAST_WIDTH, _MOST_WIDTH = 40, 100
_MOST_PROBLEMS = 3
_DOT = " · "
_BEHIND_NAME = "   "
_MOST_COMMAND = 60


def watch_screen(seen: Sighting, now_utc_s: float, *, width: int = _MOST_WIDTH, height: int | None = None) -> str:
    """Return what is shown of a log directory.

    Args:
        seen: the directory as it is now.
        now_utc_s: seconds since the Unix epoch.
        width: columns of the terminal.
        height: its lines; default: as many as it takes.
    """
    width = min(max(width, _LEAST_WIDTH), _MOST_WIDTH)
    lines = _heading(seen, now_utc_s, width)
    if not seen.n_runs:
        return "\n".join([*lines, "", *wrap(_why_empty(seen), "  ", "  ", width=width), *_problem_lines(seen, width)])
    below = [*_ended_lines(seen, width, now_utc_s), *_problem_lines(seen, width)]
    room = None if height is None else height - len(lines) - len(below) - 2
    return "\n".join([*lines, *_running_lines(seen.running, now_utc_s, width, room), *below])


def _heading(seen: Sighting, now_utc_s: float, width: int) -> list[str]:
    """Return the directory, how many runs are what, and the time."""
    n_ended = seen.n_ended - seen.n_dead
    counts = [f"{len(seen.running):,} running"] if seen.is_there else []
    counts += [f"{seen.n_dead:,} seem{'s' if seen.n_dead == 1 else ''} dead"] if seen.n_dead else []
    counts += [f"{n_ended:,} ended"] if n_ended else []
    clock = f"{datetime.fromtimestamp(now_utc_s).astimezone():%H:%M:%S}"
    name = "greenlove watch  "
    room = max(8, width - len(name) - len(_DOT.join([*counts, clock])) - 2)
    return _joined(f"{name}{fmt.shortened(str(seen.path), room)}  ", [*counts, clock], width)


def _why_empty(seen: Sighting) -> str:
    if not seen.is_there:
        return f"There is no directory {seen.path} yet. It is shown as soon as a run writes to it."
    return "There is no run in it yet. One is shown as soon as it begins."


def _running_lines(runs: Sequence[Run], now_utc_s: float, width: int, room: int | None) -> list[str]:
    """Return the runs that go on, as many as there is room for."""
    if not runs:
        return ["", "  nothing is running"]
    lines = list[str]()
    for n_shown, run in enumerate(runs):
        block = ["", *run_lines(run, now_utc_s, width)]
        if n_shown and room is not None and len(lines) + len(block) > room:
            return [*lines, "", f"  and {len(runs) - n_shown:,} more that run"]
        lines += block
    return lines


def run_lines(run: Run, now_utc_s: float, width: int) -> list[str]:
    """Return a run that goes on: its name, how far it is, what is left, and what it draws and has used."""
    progress = progress_of(run, now_utc_s)
    head = [progress.status, *_where(run), fmt.shortened(run.text("command"), _MOST_COMMAND)]
    lines = _joined(_name("  ", run, progress, width), head, width)
    lines += _joined("    ", _done(run, progress), width)
    lines += _joined("    ", _ahead(run, progress, now_utc_s), width)
    lines += _joined("    ", _used(run, progress), width)
    notes = [ranks_sentence(run)] + ([f"! {progress.doubt}"] if progress.doubt else [])
    return lines + [line for note in notes if note for line in wrap(note, "    ", "      ", width=width)]


def _name(indent: str, run: Run, progress: RunProgress, width: int) -> str:
    """Return the name of a run, so that its status fits behind it."""
    room = width - len(indent) - len(_BEHIND_NAME) - len(progress.status)
    return f"{indent}{fmt.shortened(run.title(room), room)}{_BEHIND_NAME}"


def _where(run: Run) -> list[str]:
    parts = [] if run.is_of_this_machine else [f"on {fmt.shortened(run.text('host'), 24)}"]
    if run.summary.n_nodes > 1:
        parts.append(f"{run.summary.n_nodes} nodes")
    return parts + ([f"{run.summary.n_ranks} ranks"] if run.summary.n_ranks > 1 else [])


def _done(run: Run, progress: RunProgress) -> list[str]:
    if run.is_exploration:
        return ["comparing" if run.is_comparison else "exploring", fmt.duration(progress.elapsed_s)]
    done = wording.progress(run)
    steps = run.summary.counts.steps
    parts = [done]
    if progress.share is not None:
        parts = [f"{bar(progress.share, 16)} {progress.share:.0%}  {done}"]
    if steps and "step" not in done:
        parts.append(fmt.plural(steps, "step"))
    return [*parts, f"{fmt.duration(progress.elapsed_s)} so far"]


def _ahead(run: Run, progress: RunProgress, now_utc_s: float) -> list[str]:
    """Return what is forecast: the time left, the end and the whole, each with its interval."""
    whole, left = progress.whole, progress.left
    if progress.is_overdue and progress.latest:
        said = progress.latest.estimates["duration_s"]
        return [f"overdue: the latest forecast was {fmt.interval(said, fmt.duration)}"]
    if whole is None or left is None:
        if run.is_exploration:
            return []
        is_planned = run.summary.epochs_planned is not None or run.total_steps_planned is not None
        return ["no forecast yet" if is_planned else "no forecast: its length is unknown"]
    ends = fmt.clock_time(now_utc_s + left.point, now_utc_s)
    level = f" ({whole.level:.0%})" if whole.has_interval else ""
    stop = wording.expected_stop(run, progress.latest) if progress.latest else ""
    return [f"left {_estimate(left)}{level}", f"ends {ends}", f"the whole {_estimate(whole)}", stop]


def _estimate(estimate: Estimate) -> str:
    return fmt.interval(estimate, fmt.duration) if estimate.has_interval else fmt.duration(estimate.point)


def _used(run: Run, progress: RunProgress) -> list[str]:
    summary = run.summary
    if summary.energy_kwh is None:
        return ["energy unknown so far"]
    used = {"energy_kwh": summary.energy_kwh, "emissions_kgco2e": run.emissions_kgco2e, "cost_usd": summary.cost_usd}
    parts = [f"{fmt.power(progress.power_w)} now"] if progress.power_w is not None else ["power now unknown"]
    parts.append(f"{', '.join(_amounts(used))} so far")
    if progress.whole is not None and progress.latest:
        estimates = progress.latest.estimates
        expected = {q: estimates[q].total(used[q]) for q in used if q in estimates}
        if expected:
            parts.append(f"{', '.join(_amounts(expected))} in all")
    return parts


def _amounts(values: Mapping[str, float | None]) -> list[str]:
    """Write each quantity that is known."""
    texts = {quantity: fmt.QUANTITIES[quantity][1](value) for quantity, value in values.items() if value is not None}
    return [f"{text} CO2e" if quantity == "emissions_kgco2e" else text for quantity, text in texts.items()]


def _joined(first: str, parts: Sequence[str], width: int) -> list[str]:
    """Put parts behind one another, with dots between; what does not fit comes below."""
    lines, line = list[str](), first
    for part in filter(None, parts):
        is_first = line == first
        joined = f"{line}{part}" if is_first else f"{line}{_DOT}{part}"
        if display_width(joined) <= width:
            line = joined
            continue
        if not is_first:
            lines.append(line.rstrip())
            line = " " * 6
        line += fmt.shortened(part, width - len(line))
    return [text for text in [*lines, line.rstrip()] if text.strip()]


def _ended_lines(seen: Sighting, width: int, now_utc_s: float) -> list[str]:
    """Return the runs that ended, latest first; one line each."""
    if not seen.ended:
        return []
    lines = ["", "  ended, latest first" if seen.n_ended > 1 else "  ended"]
    for run in seen.ended:
        lines += _ended_run_lines(run, width, now_utc_s)
    n_more = seen.n_ended - len(seen.ended)
    return [*lines, f"    and {n_more:,} more"] if n_more else lines


def _ended_run_lines(run: Run, width: int, now_utc_s: float) -> list[str]:
    progress, summary = progress_of(run, now_utc_s), run.summary
    figures = [fmt.duration(summary.duration_s or None), fmt.energy(summary.energy_kwh), fmt.mass(run.emissions_kgco2e)]
    known = [text for text in figures if text != fmt.UNKNOWN]
    code = f"exit {summary.exit_code}" if summary.exit_code else ""
    done = wording.progress(run)
    if run.is_exploration:
        done = "compared" if run.is_comparison else "explored"
    lines = _joined(_name("    ", run, progress, width), [progress.status, done, *known, code], width)
    return lines + wrap(progress.doubt, "      ", "      ", width=width)


def _problem_lines(seen: Sighting, width: int) -> list[str]:
    shown = [fmt.shortened(str(problem), width - 4) for problem in seen.problems[:_MOST_PROBLEMS]]
    n_more = len(seen.problems) - len(shown)
    more = [f"  ! and {n_more:,} more that cannot be read"] if n_more else []
    return ["", *(f"  ! {text}" for text in shown), *more] if shown else []
