"""The terminal's screens of runs, forecasts and explorations: plain text within 100 columns, without markup."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from greenlove_tracker import format as fmt
from greenlove_tracker.console import bar
from greenlove_tracker.forecasting import Estimate, Forecast, TimeFit, TrainingPlan, Trial, WarningCode, stop_estimate
from greenlove_tracker.logs.forecasts import headline
from greenlove_tracker.logs.tables import QUANTITIES
from greenlove_tracker.rendering import terminal
from greenlove_tracker.rendering.terminal import MARGIN, wrap
from greenlove_tracker.report import wording
from greenlove_tracker.report.wording import ForecastOutcome
from greenlove_tracker.workloads import GIVEN, Seen

if TYPE_CHECKING:
    pass

_MAX_PROBLEMS = 10
_MAX_TIME_LIMITS = 5
_MAX_RUN_NAME = 34  # characters, in the table of forecasts
_MAX_PHASES, _MAX_PHASE_NAME = 8, 20
_NOT_SEEN = Seen()
_AS_BEFORE = " · model and random state as before"


def forecast_table(
    outcomes: Sequence[ForecastOutcome],
    quantity: str,
    n_without: int,
    n_explorations: int = 0,
    time_limits: Sequence[str] = (),
) -> str:
    """Return all runs that made forecasts, and how far these can be trusted together.

    Args:
        outcomes: one a run.
        quantity: one of ``QUANTITIES``.
        n_without: trainings that made none.
        n_explorations: explorations, whose forecasts are of a training that is to come.
        time_limits: how runs that are not done fit their limits, in a sentence each.
    """
    name, text = fmt.QUANTITIES[quantity]
    explorations = (
        f"{fmt.plural(n_explorations, 'exploration')}: greenlove forecast DIR --epochs N forecasts the latest again"
    )
    if not outcomes:
        none = f"no forecasts of {name}: give epochs= or total_steps= to get them"
        return f"{none}\n{explorations}" if n_explorations else none
    level = wording.interval_head([outcome.estimate for outcome in outcomes])
    rows = [("run", "forecast", name, level, "actual", "error", "held"), *(_cells(o, text) for o in outcomes)]
    lines = [*terminal.table(rows, "<<>>>>>", rules_below=(0,)), "", _coverage(outcomes)]
    if n_without:
        lines.append(f"{fmt.plural(n_without, 'run')} without forecasts")
    if n_explorations:
        lines.append(explorations)
    if len(time_limits) > _MAX_TIME_LIMITS:
        lines.append(f"the latest of {len(time_limits):,} unfinished runs with a time limit:")
    lines += [line for sentence in time_limits[-_MAX_TIME_LIMITS:] for line in wrap(sentence, "", MARGIN)]
    return "\n".join(lines)


def _cells(outcome: ForecastOutcome, text: fmt.Text) -> tuple[str, ...]:
    estimate, scored = outcome.estimate, headline(outcome.scores)
    run = f"{outcome.project}/{outcome.run_id}" if outcome.project else outcome.run_id
    forecast = (
        fmt.shortened(run, _MAX_RUN_NAME),
        wording.issued_after(outcome.issued),
        text(estimate.point),
        fmt.bounds(estimate, text),
    )
    if scored is None:
        return (*forecast, fmt.shortened(outcome.status, 12), "", "")
    n_held = sum(s.has_held for s in outcome.scores)
    held = f"{n_held} of {len(outcome.scores)}" if estimate.has_interval else ""
    return (*forecast, text(scored.outcome), fmt.error(scored.error), held)


def _coverage(outcomes: Sequence[ForecastOutcome]) -> str:
    """Return how often intervals held: of the forecasts shown, which are one a run and so independent, and of all."""
    bare = [s for outcome in outcomes if (s := headline(outcome.scores)) and not s.estimate.has_interval]
    scored = [s for outcome in outcomes if (s := headline(outcome.scores)) and s.estimate.has_interval]
    every = [s for outcome in outcomes for s in outcome.scores if s.estimate.has_interval]
    if bare and not scored:
        return f"without intervals; median |error| {statistics.median(abs(s.error) for s in bare):.1%}"
    if not scored:
        return "no run has completed yet what it forecast"
    return (
        f"intervals held in {fmt.held(sum(s.has_held for s in scored), len(scored))} of the runs (nominal "
        f"{scored[0].estimate.level:.0%}), in {statistics.fmean(s.has_held for s in every):.0%} of all {len(every):,} "
        f"forecasts; median |error| {statistics.median(abs(s.error) for s in scored):.1%}"
    )


def sweep_screen(
    n_runs: int,
    totals: Mapping[str, Estimate | None],
    n_unknown: Mapping[str, int],
    n_observed: int,
    warnings: Sequence[str],
    project: str | None = None,
) -> str:
    """Return the forecast of a sweep of ``n_runs``.

    Args:
        n_runs: of the sweep.
        totals: by quantity; None where it is not known of every run of the log.
        n_unknown: by quantity, runs of the log of which it is not known.
        n_observed: runs of the log.
        warnings: of the forecast.
        project: whose runs were gone by; None: all of the log.
    """
    whose = "this log" if project is None else f"the project {project}"
    lines = [f"{n_runs:,} runs like the {fmt.plural(n_observed, 'run')} of {whose}", ""]
    for quantity in QUANTITIES:
        estimate, (name, text) = totals[quantity], fmt.QUANTITIES[quantity]
        if estimate is None:
            note = f"{n_unknown[quantity]:,} of {fmt.plural(n_observed, 'run')} without {name}: not summed"
        else:
            note = fmt.bounds(estimate, text)
        value = fmt.UNKNOWN if estimate is None else text(estimate.point)
        lines += terminal.figure(name, value, note, label_width=8, value_width=14)
    lines += ["", *(f"  ! {warning}" for warning in warnings)] if warnings else []
    return "\n".join(lines)


def progress_line(spent_s: float, budget_s: float, sample_size: int, relative_width: float | None) -> str:
    """Return the size that is explored, the share of the budget that is spent, and the width of the interval."""
    parts = [f"{fmt.duration(spent_s)} of {fmt.duration(budget_s)}", fmt.plural(sample_size, "sample")]
    if relative_width is not None:
        parts.append(f"±{fmt.percent(relative_width / 2, 1)}")
    return f"greenlove explore {bar(spent_s / budget_s)} " + " · ".join(parts)


def stopped_line(n_trials: int, *, undoes: bool, left_changed: Sequence[str] = ()) -> str:
    """Return what is said of an exploration that Ctrl-C ended; arguments as of ``exploration_screen``."""
    line = f"stopped by Ctrl-C after {fmt.plural(n_trials, 'trial')}" + (
        _AS_BEFORE if undoes and not left_changed else ""
    )
    return "\n".join([line, *_left_changed_lines(left_changed)])


def _left_changed_lines(left_changed: Sequence[str]) -> list[str]:
    """Return what an exploration could not put back, loudly."""
    if not left_changed:
        return []
    advice = "the training goes on from there: make these anew, or name them in also_restore"
    named = [line for text in left_changed for line in wrap(f"NOT PUT BACK: {text}", "  ! ", "    ")]
    return [*named, *wrap(advice, "    ", "    ")]


def exploration_screen(
    forecast: Forecast,
    trials: Sequence[Trial],
    spent_s: float,
    budget_s: float,
    advice: str | None,
    *,
    run_dir: str,
    now_utc_s: float,
    undoes: bool,
    left_changed: Sequence[str] = (),
    unprojected: str = "",
    fit: TimeFit | None = None,
    precision: Seen = _NOT_SEEN,
    workload: Seen = _NOT_SEEN,
) -> str:
    """Return the result of an exploration, its directory, and what to do next.

    Args:
        forecast: of the whole training.
        trials: that it was made from.
        spent_s: what the exploration took.
        budget_s: what it might have taken.
        advice: what to do instead, where the training is short.
        run_dir: where the trials were written.
        now_utc_s: for the time at which a run that starts now would end.
        undoes: whether model and random state are put back.
        left_changed: what could not be, by name and with the reason.
        unprojected: why there is no projection onto other GPUs; empty where there is one.
        fit: how the training fits a time limit; None without one.
        precision: that the training computes in.
        workload: its class.
    """
    explored = f"explored {fmt.duration(spent_s)} of {fmt.duration(budget_s)}: {_trials_text(trials)}"
    as_before = _AS_BEFORE if undoes and not left_changed else ""
    lines = [
        *_forecast_lines(forecast, trials, explored + as_before, now_utc_s, fit),
        *_left_changed_lines(left_changed),
    ]
    if kind := _kind_text(precision, workload):
        lines += ["", *wrap(kind, "  ", "  ")]
    lines += ["", f"  {advice}"] if advice else []
    lines += [
        "",
        f"  saved   {run_dir}/dashboard.html",
        f"  other   greenlove forecast {run_dir} {_other_plan(forecast.plan)}    no new run needed",
    ]
    if unprojected:
        lines += wrap(f"no other GPUs: {unprojected}", " " * 10, " " * 10)
    else:
        lines.append(f"          greenlove project {run_dir}    on other GPUs: time, cost, CO2e")
    return "\n".join(lines)


def _kind_text(precision: Seen, workload: Seen) -> str:
    """Return what the training computes, and how to say otherwise; empty where neither is known."""
    if not precision.value and not workload.value:
        return ""
    computes = f"computes in {precision.value} ({precision.basis})"
    if not precision.value:
        computes = "precision unknown; set it with --precision"
    if not workload.value:
        return f"{computes} · workload unknown; set it with --workload"
    if workload.basis == GIVEN:
        return f"{computes} · {workload.value} ({GIVEN})"
    return f"{computes} · {workload.value}, guessed from {workload.basis}; --workload overrides it"


def _other_plan(plan: TrainingPlan | None) -> str:
    """Return another plan, for an example: three times as long, or of twice the data."""
    if plan is None or plan.steps is not None:
        return f"--steps {3 * (plan.steps or 1) if plan else 1000}"
    return f"--epochs {3 * (plan.epochs or 1)}" if (plan.epochs or 1) > 1 else f"--samples {2 * (plan.samples or 1)}"


def forecast_screen(forecast: Forecast, trials: Sequence[Trial], now_utc_s: float, fit: TimeFit | None = None) -> str:
    """Return the forecast of a training from trials, how it fits a time limit, its parts, and its warnings."""
    return "\n".join(_forecast_lines(forecast, trials, _trials_text(trials), now_utc_s, fit))


def _forecast_lines(
    forecast: Forecast, trials: Sequence[Trial], source: str, now_utc_s: float, fit: TimeFit | None
) -> list[str]:
    lines = [
        f"greenlove explore   {fmt.plan(forecast.plan)}",
        source,
        "",
        *terminal.figure("", "forecast", f"{forecast.duration_s.level:.0%} prediction"),
    ]
    for field, (name, text) in fmt.QUANTITIES.items():
        estimate: Estimate | None = getattr(forecast, field)
        if estimate is None:
            lines += terminal.figure(name, fmt.UNKNOWN)
        else:
            lines += terminal.figure(name, text(estimate.point), fmt.bounds(estimate, text))
        if field == "duration_s":
            lines += _stop_lines(forecast)
            lines += _end_lines(forecast, now_utc_s)
            lines += _limit_lines(fit)
    lines += ["", *_part_lines(forecast), *_phase_lines(forecast), *_check_lines(forecast, trials)]
    for warning in forecast.warnings:
        lines += wrap(f"{warning}", f"  {'!' if warning.is_serious else '·'} ", "    ")
    return lines


def _trials_text(trials: Sequence[Trial]) -> str:
    sizes = sorted({t.batches for t in trials})
    span = f"{sizes[0]:,} to " if len(sizes) > 1 else ""
    largest = fmt.plural(sizes[-1], "sample" if trials[0].batch_size == 1 else "batch")
    return f"{fmt.plural(len(trials), 'trial')} at {fmt.plural(len(sizes), 'size')}, {span}{largest}"


def _end_lines(forecast: Forecast, now_utc_s: float) -> list[str]:
    """Return when the training would end, and the time limit that it needs under Slurm."""
    end, latest = (
        fmt.clock_time(now_utc_s + s, now_utc_s) for s in (forecast.duration_s.point, forecast.duration_s.upper)
    )
    if forecast.duration_p99_s is None:
        return terminal.figure("ends", end, f"by {latest}")
    limit = fmt.slurm_time(forecast.duration_p99_s)
    return terminal.figure("ends", end, f"by {latest} if started now; for Slurm ask --time={limit} (99%)")


def _stop_lines(forecast: Forecast) -> list[str]:
    """Return where early stopping is expected to end it, and what all epochs would take; nothing without a rule."""
    stop, whole = forecast.expected_stop, forecast.without_stop
    if stop is None or whole is None:
        return []
    expected = fmt.expected_stop(stop_estimate(stop, forecast.duration_s.level), stop.most_epochs)
    all_of_them = (
        f"all {fmt.plural(stop.most_epochs, 'epoch')} would take {fmt.interval(whole.duration_s, fmt.duration)}"
    )
    return [line for text in (f"{expected}; from {stop.basis}", all_of_them) for line in terminal.figure("", "", text)]


def _limit_lines(fit: TimeFit | None) -> list[str]:
    """Return how a training that starts now fits its time limit; nothing where it has none."""
    if fit is None:
        return []
    if fit.is_over:
        return terminal.figure("limit", "over", "the deadline has passed")
    return terminal.figure("limit", fmt.duration(fit.limit_s), fmt.time_fit(fit))


def _part_lines(forecast: Forecast) -> list[str]:
    forecast = forecast.without_stop or forecast
    plan = forecast.plan
    if plan is None or forecast.per_batch_s is None:
        return []
    epoch = f"{fmt.plural(plan.batches_per_epoch, 'batch')} × {fmt.duration(forecast.per_batch_s.point)}"
    if forecast.per_epoch_s is not None:
        epoch = f"{fmt.duration(forecast.per_epoch_s.point)} + {epoch}"
    between = f", and {fmt.duration(forecast.between_s.point)} of evaluations" if forecast.between_s else ""
    once = f"{fmt.duration(forecast.one_off_s.point)} once"
    work = ""
    if len(forecast.phases) > 1:
        epoch_s = plan.batches_per_epoch * forecast.per_batch_s.point
        epoch_s += 0.0 if forecast.per_epoch_s is None else forecast.per_epoch_s.point
        ratio = math.fsum(part.duration_s.point for part in forecast.phases) / (plan.n_epochs * epoch_s)
        work = f" × {ratio:.2f} for the work of its phases"
    return wrap(f"{once} + {fmt.repetitions(plan.n_epochs)} × ({epoch}){work}{between}", "  made of   ", " " * 12)


def _phase_lines(forecast: Forecast) -> list[str]:
    """Return the time of each phase of the plan, and its share of all of them; nothing where it has one."""
    parts = forecast.phases
    if len(parts) < 2:
        return []
    total_s = math.fsum(part.duration_s.point for part in parts)
    rows = []
    for part in parts:
        name, share = fmt.phase_name(part.phase), part.duration_s.point / total_s if total_s else None
        length = fmt.plural(part.phase.length, part.phase.unit.removesuffix("s"))
        evaluations = f"and {fmt.plural(part.n_evaluations, 'evaluation')}" if part.n_evaluations else ""
        interval = fmt.interval(part.duration_s, fmt.duration)
        rows.append([length, fmt.shortened(name, _MAX_PHASE_NAME), fmt.percent(share), interval, evaluations])
    if len(rows) > _MAX_PHASES:
        rows = [*rows[:_MAX_PHASES], [f"and {len(rows) - _MAX_PHASES} more", "", "", "", ""]]
    lines = terminal.table(rows, "<<><<")
    return [f"{'  phases    ' if i == 0 else ' ' * 12}{line}".rstrip() for i, line in enumerate(lines)]


def _check_lines(forecast: Forecast, trials: Sequence[Trial]) -> list[str]:
    if forecast.backtest_error is None:
        return []
    names = {w.name for w in forecast.warnings}
    linear = "cost is not linear" if WarningCode.NONLINEAR in names else "no curvature found"
    backtest = "not predicted by the others" if WarningCode.BACKTEST in names else "forecast from the others"
    from greenlove_tracker.extrapolation.green_love import spearman_rho  # SciPy, which other screens do not need

    rho = spearman_rho(trials)
    grows = "" if rho is None else f" · Spearman's ρ {rho:.2f}"
    return [f"  checks    largest size {backtest}: {fmt.error(forecast.backtest_error)} · {linear}{grows}"]
