"""What an exploration says at the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from greenlove_tracker import format as fmt
from greenlove_tracker.console import bar
from greenlove_tracker.forecasting import Estimate, Forecast, TrainingPlan, Trial
from greenlove_tracker.report import wording

_WIDTH = 100
_AS_BEFORE = " · model and random state as before"


def progress_line(spent_s: float, budget_s: float, sample_size: int, relative_width: float | None) -> str:
    """Which size, how far into the budget, and how narrow the interval is."""
    parts = [f"{fmt.duration(spent_s)} of {fmt.duration(budget_s)}", f"{sample_size:,} samples"]
    if relative_width is not None:
        parts.append(f"±{fmt.percent(relative_width / 2, 1)}")
    return f"greenlove explore {bar(spent_s / budget_s)} " + " · ".join(parts)


def stopped_line(n_trials: int, *, undoes: bool) -> str:
    """That an exploration was ended by Ctrl-C; ``undoes``: whether model and random state are as before."""
    return f"stopped by Ctrl-C after {fmt.plural(n_trials, 'trial')}" + (_AS_BEFORE if undoes else "")


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
    unprojected: str = "",
) -> str:
    """What an exploration found, where it is kept, and what to do next.

    Args:
        forecast: of the whole training.
        trials: that it was made from.
        spent_s: what the exploration took.
        budget_s: what it might have taken.
        advice: what to do instead, where the training is short.
        run_dir: where the trials were written.
        now_utc_s: for the time at which a run that starts now would end.
        undoes: whether model and random state are as before.
        unprojected: why it cannot be told for other GPUs; empty where it can.
    """
    explored = f"explored {fmt.duration(spent_s)} of {fmt.duration(budget_s)}: {_trials_text(trials)}"
    lines = forecast_screen(forecast, trials, now_utc_s).splitlines()
    lines[1] = explored + (_AS_BEFORE if undoes else "")
    lines += ["", f"  {advice}"] if advice else []
    lines += [
        "",
        f"  saved   {run_dir}/dashboard.html",
        f"  other   greenlove forecast {run_dir} {_other(forecast.plan)}    no new run needed",
    ]
    if not unprojected:
        return "\n".join([*lines, f"          greenlove project {run_dir}    on other GPUs: time, cost, CO2e"])
    return "\n".join([*lines, *_wrapped(f"no other GPUs: {unprojected}", "          ", "          ")])


def _other(plan: TrainingPlan | None) -> str:
    """Another plan, for an example: three times as long, or of twice the data."""
    if plan is None or plan.steps is not None:
        return f"--steps {3 * (plan.steps or 1) if plan else 1000}"
    return f"--epochs {3 * (plan.epochs or 1)}" if (plan.epochs or 1) > 1 else f"--samples {2 * (plan.samples or 1)}"


def forecast_screen(forecast: Forecast, trials: Sequence[Trial], now_utc_s: float) -> str:
    """The forecast of a training from trials, what it is made of, and what speaks against it."""
    lines = [
        f"greenlove explore   {fmt.plan(forecast.plan)}",
        _trials_text(trials),
        "",
        f"  {'forecast':>18}   {forecast.duration_s.level:.0%} prediction",
        *(_quantity(name, getattr(forecast, field), text) for field, (name, text) in fmt.QUANTITIES.items()),
    ]
    lines.insert(5, f"  ends  {_ends(forecast, now_utc_s)}")
    lines += ["", *_made_of(forecast), *_checks(forecast)]
    for warning in forecast.warnings:
        mark = "!" if warning.is_serious else "·"
        lines += _wrapped(f"{warning}", f"  {mark} ", "    ")
    return "\n".join(lines)


def _wrapped(text: str, first: str, further: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=first, subsequent_indent=further)


def _trials_text(trials: Sequence[Trial]) -> str:
    sizes = sorted({t.batches for t in trials})
    span = f"{sizes[0]:,} to {sizes[-1]:,}" if len(sizes) > 1 else f"{sizes[0]:,}"
    what = "samples" if trials[0].batch_size == 1 else "batches"
    return f"{fmt.plural(len(trials), 'trial')} at {fmt.plural(len(sizes), 'size')}, {span} {what}"


def _quantity(name: str, estimate: Estimate | None, text: fmt.Text) -> str:
    if estimate is None:
        return f"  {name:<6}{fmt.UNKNOWN:>12}"
    return f"  {name:<6}{text(estimate.point):>12}   {text(estimate.lower)} – {text(estimate.upper)}"


def _ends(forecast: Forecast, now_utc_s: float) -> str:
    ends = (fmt.clock_time(now_utc_s + s, now_utc_s) for s in (forecast.duration_s.point, forecast.duration_s.upper))
    point, latest = ends
    limit = (
        "" if forecast.duration_p99_s is None else f"; for Slurm ask --time={fmt.slurm_time(forecast.duration_p99_s)}"
    )
    return f"{point:>12}   by {latest} if started now{limit} (99%)" if limit else f"{point:>12}   by {latest}"


def _made_of(forecast: Forecast) -> list[str]:
    plan = forecast.plan
    if plan is None or forecast.per_batch_s is None:
        return []
    parts = f"{plan.batches_per_epoch:,} batches × {fmt.duration(forecast.per_batch_s.point)}"
    if forecast.per_epoch_s is not None:
        parts = f"{fmt.duration(forecast.per_epoch_s.point)} + {parts}"
    between = f", and {fmt.duration(forecast.between_s.point)} of evaluations" if forecast.between_s else ""
    once = f"{fmt.duration(forecast.one_off_s.point)} once"
    return [f"  made of   {once} + {wording.times(plan.n_epochs)} × ({parts}){between}"]


def _checks(forecast: Forecast) -> list[str]:
    if forecast.backtest_error is None:
        return []
    names = {w.name for w in forecast.warnings}
    linear = "cost is not linear" if "NONLINEAR" in names else "no bend seen"
    foreseen = "not foreseen by the others" if "BACKTEST" in names else "forecast from the others"
    return [f"  checks    largest size {foreseen}: {fmt.error(forecast.backtest_error)} · {linear}"]
