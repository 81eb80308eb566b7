"""Forecasts beside what came of them, as text: of one run, and of a whole directory."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from greenlove_tracker import format as fmt
from greenlove_tracker.forecasting import Estimate
from greenlove_tracker.logs.forecasts import QUANTITIES, IssuedForecast, Scored, shown
from greenlove_tracker.logs.parser import Run


def when(issued: IssuedForecast) -> str:
    """``after 3 epochs``."""
    if issued.epochs_done:
        return f"after {fmt.plural(issued.epochs_done, 'epoch')}"
    if issued.steps_done:
        return f"after {fmt.plural(issued.steps_done, 'step')}"
    return "before the start"


def outcome_sentence(run: Run) -> str:
    """How the run's own forecast came out; empty where it made none, or did not do what was forecast."""
    scores = run.scores()
    told = shown(scores)
    if told is None:
        return ""
    held = sum(s.has_held for s in scores)
    fate, e = "held" if told.has_held else "missed", told.estimate
    error = f"error {fmt.error(told.error)}, interval {fate} ({held} of {len(scores)})"
    return (
        f"forecast {when(told.issued)}  {fmt.interval(e.point, e.lower, e.upper, fmt.duration)}   "
        f"came to {fmt.duration(told.outcome)}   {error}"
    )


@dataclass(frozen=True, slots=True)
class Line:
    """One run's forecast of one quantity: as shown, and as data."""

    run_id: str
    project: str
    status: str
    n_forecasts: int
    issued: IssuedForecast
    estimate: Estimate
    scores: Sequence[Scored]

    def as_dict(self) -> dict[str, object]:
        """For JSON and CSV; None where there is no outcome."""
        told = shown(self.scores)
        return {
            "run_id": self.run_id,
            "project": self.project,
            "status": self.status,
            "unit": self.estimate.unit,
            "epochs_done": self.issued.epochs_done,
            "steps_done": self.issued.steps_done,
            "elapsed_s": self.issued.elapsed_s,
            "forecast": self.estimate.point,
            "lower": self.estimate.lower,
            "upper": self.estimate.upper,
            "level": self.estimate.level,
            "outcome": told.outcome if told else None,
            "error": told.error if told else None,
            "has_held": told.has_held if told else None,
            "n_forecasts": self.n_forecasts,
            "n_held": sum(s.has_held for s in self.scores) if self.scores else None,
        }


def line_of(run: Run, quantity: str) -> Line | None:
    """The forecast to tell of: at a tenth of a run that is over, the latest of one that is not; None without any."""
    issued = [f for f in run.forecasts if quantity in f.estimates]
    if not issued:
        return None
    scores = run.scores(quantity)
    told = shown(scores)
    chosen = told.issued if told else issued[-1]
    summary = run.summary
    return Line(run.run_id, summary.project, summary.status, len(issued), chosen, chosen.estimates[quantity], scores)


def forecast_table(lines: Sequence[Line], quantity: str, n_without: int, n_explored: int = 0) -> str:
    """All runs that made forecasts, and how far they can be trusted together.

    Args:
        lines: one a run.
        quantity: one of ``QUANTITIES``.
        n_without: trainings that made none.
        n_explored: explorations, whose forecasts are of a training that is to come.
    """
    name, text = fmt.QUANTITIES[quantity]
    explored = f"{fmt.plural(n_explored, 'exploration')}: greenlove forecast DIR --epochs N forecasts the latest again"
    if not lines:
        none = f"no forecasts of {name}: they are made where epochs= or total_steps= is given"
        return f"{none}\n{explored}" if n_explored else none
    rows: list[tuple[str, ...]] = [
        ("run", "forecast", name, f"{lines[0].estimate.level:.0%} interval", "came to", "error", "held")
    ]
    rows += [_cells(line, text) for line in lines]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    table = [
        "  ".join(_aligned(cell, width, i) for i, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip()
        for row in rows
    ]
    table.insert(1, "─" * max(map(len, table)))
    notes = _record(lines)
    if n_without:
        notes.append(f"{fmt.plural(n_without, 'run')} without forecasts")
    if n_explored:
        notes.append(explored)
    return "\n".join([*table, "", *notes])


def _aligned(cell: str, width: int, column: int) -> str:
    return cell.ljust(width) if column < 2 else cell.rjust(width)


def _cells(line: Line, text: Callable[[float | None], str]) -> tuple[str, ...]:
    e, told = line.estimate, shown(line.scores)
    name = fmt.shortened(f"{line.project}/{line.run_id}" if line.project else line.run_id, 34)
    head = (name, when(line.issued), text(e.point), f"{text(e.lower)} – {text(e.upper)}")
    if told is None:
        return (*head, fmt.shortened(line.status, 12), "", "")
    held = sum(s.has_held for s in line.scores)
    return (*head, text(told.outcome), fmt.error(told.error), f"{held} of {len(line.scores)}")


def _record(lines: Sequence[Line]) -> list[str]:
    """How often intervals held: of the forecasts shown, which are one a run and so independent, and of all."""
    told = [t for line in lines if (t := shown(line.scores))]
    every = [s for line in lines for s in line.scores]
    if not told:
        return ["no run has done yet what it forecast"]
    held = fmt.held(sum(t.has_held for t in told), len(told))
    median = statistics.median(abs(t.error) for t in told)
    of_all = f"{statistics.fmean(s.has_held for s in every):.0%} of all {len(every):,} forecasts"
    nominal = f"nominal {told[0].estimate.level:.0%}"
    return [f"intervals held in {held} of the runs ({nominal}), in {of_all}; median |error| {median:.1%}"]


def sweep_screen(
    n_runs: int,
    totals: Mapping[str, Estimate | None],
    n_unknown: Mapping[str, int],
    n_seen: int,
    warnings: Sequence[str],
) -> str:
    """What a sweep of ``n_runs`` will take.

    Args:
        n_runs: of the sweep.
        totals: by quantity; None where it is not known of every run that was seen.
        n_unknown: by quantity, runs of which it is not known.
        n_seen: runs to go by.
        warnings: of the forecast.
    """
    lines = [f"{n_runs:,} runs like the {fmt.plural(n_seen, 'run')} of this log", ""]
    for quantity in QUANTITIES:
        estimate = totals[quantity]
        name, text = fmt.QUANTITIES[quantity]
        value = fmt.UNKNOWN if estimate is None else text(estimate.point)
        without = f"{n_unknown[quantity]:,} of {fmt.plural(n_seen, 'run')} without {name}: not summed"
        bounds = without if estimate is None else f"{text(estimate.lower)} – {text(estimate.upper)}"
        lines.append(f"  {name:<8}{value:>14}   {bounds}")
    lines += ["", *(f"  ! {warning}" for warning in warnings)] if warnings else []
    return "\n".join(lines)
