"""What a training will take, as an exploration forecast it: the answer, its parts, and the trials behind it."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Iterator, Sequence

from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.uncertainty import forecast_with_meter_error
from greenlove_tracker.projection.types import Projection
from greenlove_tracker.rendering.document import (
    Blocks,
    ChartRow,
    Column,
    Document,
    Heading,
    KeyFigure,
    KeyFigures,
    Paragraph,
    Table,
    columns,
)
from greenlove_tracker.report import wording
from greenlove_tracker.report.forecast_report import narrowing_chart
from greenlove_tracker.report.projection_report import projection_blocks
from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.forecasting import Estimate, Forecast, TimeFit, Trial, stop_estimate

Trials = Sequence[Trial]
_TALLEST = 3.0  # of a chart, times what it is about
_EPOCHS = "The time of an epoch by sample size, and its range"
_NOT_COVERED = "what comes before the first epoch, another machine, other work here, an error of the carbon intensity"
_EXTENDED = {
    "wls": "a line through their epochs: weighted least squares with run-to-run variation",
    "power": "a power law through their times: least squares on a logarithmic scale",
}


def exploration_document(
    forecast: Forecast,
    trials: Trials,
    projections: Sequence[Projection] = (),
    *,
    now_utc_s: float | None = None,
    fit: TimeFit | None = None,
    notes: Sequence[str] = (),
    next_steps: Sequence[str] = (),
    tilde: str = "",
) -> Document:
    """Return the report of an exploration.

    Args:
        forecast: made from the trials.
        trials: what was timed.
        projections: the same training on other machines, as ``project`` gives them.
        now_utc_s: when the training would start; None: its end is not told.
        fit: how it fits a time limit; None without one.
        notes: what else is to be known before it is started, in sentences.
        next_steps: commands.
        tilde: what stands before an energy that no hardware measured, as ``wording.energy_mark`` gives it.
    """
    said = (*_when(forecast, now_utc_s, fit), *_said(forecast, trials), *notes)
    return Document(
        title="What this training will take",
        subtitle=fmt.plan(forecast.plan),
        footer=wording.footer(),
        verdict=_verdict(forecast),
        blocks=(
            KeyFigures(forecast_figures(forecast, tilde)),
            *map(Paragraph, said),
            *_details(forecast, trials),
            *projection_blocks(projections),
        ),
        next_steps=next_steps,
    )


def explored_blocks(run: Run) -> tuple[str, Blocks]:
    """Return the verdict and the result of an exploration, from its log; why where it cannot be forecast again."""
    from greenlove_tracker.extrapolation.extrapolate import forecast_from_log  # statsmodels: over a second

    try:
        forecast = forecast_with_meter_error(forecast_from_log(run), run)
    except (UsageError, ValueError) as error:
        return f"The exploration cannot be forecast again: {error}.", []
    figures = forecast_figures(forecast, wording.energy_mark(run))
    said = map(Paragraph, _said(forecast, run.trials))
    return _verdict(forecast), [KeyFigures(figures), *said, *_details(forecast, run.trials)]


def _verdict(forecast: Forecast) -> str:
    return f"{fmt.plan(forecast.plan) or 'This training'}: {fmt.interval(forecast.duration_s, fmt.duration)}."


def progress_line(spent_s: float, budget_s: float, sample_size: int, relative_width: float | None) -> str:
    """Return what is said while trials run: what is spent, the size that is timed, and how wide the forecast is."""
    spent = f"{fmt.duration(spent_s)} of {fmt.duration(budget_s)}"
    line = f"greenlove explore  {spent} · {fmt.plural(sample_size, 'sample')}"
    if relative_width is not None:
        line += f" · ±{fmt.percent(relative_width / 2, 1)}"
    return line


def forecast_figures(forecast: Forecast, mark: str = "") -> list[KeyFigure]:
    """Return what a training will take; the mark, or a tilde, stands before an energy that no hardware measured."""
    if forecast.is_energy_modelled:
        mark = mark or wording.TILDE
    missing = "not measured, or no factor known"
    return [wording.forecast_tile(name, getattr(forecast, name), missing, mark) for name in fmt.QUANTITIES]


def _when(forecast: Forecast, now_utc_s: float | None, fit: TimeFit | None) -> list[str]:
    """Say when it would end, what to ask Slurm for, and whether it fits its time limit."""
    said = []
    if now_utc_s is not None:
        end = fmt.clock_time(now_utc_s + forecast.duration_s.point, now_utc_s)
        latest = fmt.clock_time(now_utc_s + forecast.duration_s.upper, now_utc_s)
        ends = f"Ends {end} if started now, by {latest} at the latest."
        if forecast.duration_p99_s:
            ends += f" For Slurm: --time={fmt.slurm_time(forecast.duration_p99_s)} (99% fits)."
        said.append(ends)
    if fit is not None:
        fits = "over"
        if not fit.is_over:
            fits = fmt.time_fit(fit)
        said.append(f"Time limit of {fmt.duration(fit.limit_s)}: {fits}.")
    return said


def _said(forecast: Forecast, trials: Trials) -> list[str]:
    """Say where early stopping may end it, what it is made of, and what to be careful about."""
    said = []
    stop = forecast.expected_stop
    whole = forecast.without_stop
    if stop is not None and whole is not None:
        expected = fmt.expected_stop(stop_estimate(stop, forecast.duration_s.level), stop.most_epochs)
        all_of_them = f"All {fmt.plural(stop.most_epochs, 'epoch')} would take"
        said.append(f"It {expected}. {all_of_them} {fmt.interval(whole.duration_s, fmt.duration)}.")
    said.append(f"From {_trials_text(trials)}.")
    return [*said, *forecast_warnings(forecast)]


def forecast_warnings(forecast: Forecast) -> Iterator[str]:
    """Return the problems of a forecast, in sentences."""
    for warning in forecast.warnings:
        yield f"{'! ' if warning.is_serious else ''}{warning}."


def _trials_text(trials: Trials) -> str:
    return f"{fmt.plural(len(trials), 'trial')} of {fmt.plural(len({t.batches for t in trials}), 'size')}"


def _details(forecast: Forecast, trials: Trials) -> Blocks:
    timed = []
    epochs = []
    for size in sorted({trial.sample_size for trial in trials}):
        alike = [trial for trial in trials if trial.sample_size == size]
        durations_s = [s for trial in alike for s in trial.epoch_durations_s]
        median_s = statistics.median(durations_s)
        timed.append((f"{size:,}", f"{len(alike)}", fmt.duration(median_s)))
        epochs.append((float(size), Estimate(median_s, min(durations_s), max(durations_s), 1.0, "s")))
    took = fmt.duration(sum(trial.total_s for trial in trials))
    method = [
        ("trials", f"{_trials_text(trials)}, {took} of the training itself"),
        ("extended by", _EXTENDED[forecast.method]),
    ]
    if forecast.backtest_error is not None:
        off_by = fmt.error(forecast.backtest_error)
        method.append(("checked", f"the largest size, forecast from the others, is off {off_by}"))
    method.append(("not covered", _NOT_COVERED))
    tallest_s = _TALLEST * max(epoch.point for _, epoch in epochs)
    drawn = [narrowing_chart(_EPOCHS, "samples", epochs, tallest_s), *_narrowing(forecast, trials)]
    return [
        ChartRow([chart for row in drawn for chart in row.charts]),
        *_parts(forecast.without_stop or forecast),
        Heading("The trials"),
        Table(columns({}, ("samples", "trials", "median epoch")), timed),
        Heading("How the forecast was made"),
        wording.facts_table(method),
    ]


def _parts(forecast: Forecast) -> Blocks:
    """Return the time of each part, and of each phase of the plan where it has several."""
    plan = forecast.plan
    if plan is None or forecast.per_batch_s is None:
        return []
    rows: list[tuple[str, Estimate | None, float]] = [
        ("once: compilation, caches", forecast.one_off_s, 1),
        ("each epoch, beside its batches", forecast.per_epoch_s, plan.n_epochs),
        ("each batch", forecast.per_batch_s, plan.n_epochs * plan.batches_per_epoch),
        ("all evaluations and checkpoints", forecast.between_s, 1),
    ]
    if len(forecast.phases) > 1:
        for i, part in enumerate(forecast.phases, 1):
            rows.append((f"phase {i}: {fmt.phase_name(part.phase)}", part.duration_s, 1))
    cells = [(name, fmt.duration(e.point), _ends(e), fmt.repetitions(n)) for name, e, n in rows if e is not None]
    interval = f"{forecast.per_batch_s.level:.0%} {forecast.per_batch_s.kind} interval"
    heads = [
        Column("what", 2.4),
        Column("takes", is_number=True),
        Column(interval, 2.0, is_number=True),
        Column("times", is_number=True),
    ]
    return [Heading("Breakdown"), Table(heads, cells)]


def _ends(estimate: Estimate) -> str:
    if estimate.lower < estimate.upper:
        return fmt.bounds(estimate, fmt.duration, " to ")
    if estimate.point:
        return "seen once"
    return "none seen"


def _narrowing(forecast: Forecast, trials: Trials) -> list[ChartRow]:
    """Draw the forecast after each trial, up to the one that is given."""
    from greenlove_tracker.extrapolation.extrapolate import extrapolate  # statsmodels: over a second, loaded by now

    whole = forecast.without_stop or forecast
    if whole.plan is None:
        return []
    found = []
    for n in range(2, len(trials)):
        with contextlib.suppress(UsageError, ValueError):
            made = extrapolate(trials[:n], whole.plan, level=whole.duration_s.level, method=whole.method)
            found.append((float(n), made.duration_s))
    found.append((float(len(trials)), whole.duration_s))
    if len(found) < 3:
        return []
    tallest_s = min(_TALLEST * whole.duration_s.point, max(e.upper for _, e in found))
    return [narrowing_chart("The forecast after each trial", "trial", found, tallest_s)]
