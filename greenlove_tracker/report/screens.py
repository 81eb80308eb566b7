"""The terminal's screens: plain text within 100 columns, without markup."""

from __future__ import annotations

import statistics
import textwrap
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any

from greenlove_tracker import format as fmt
from greenlove_tracker.console import bar
from greenlove_tracker.forecasting import Estimate, Forecast, TrainingPlan, Trial, WarningCode
from greenlove_tracker.logs.aggregate import Aggregate
from greenlove_tracker.logs.csvio import csv_text
from greenlove_tracker.logs.forecasts import QUANTITIES, headline
from greenlove_tracker.logs.run import Run
from greenlove_tracker.projection.ranking import rank
from greenlove_tracker.projection.types import OPTION_NAMES, Projection
from greenlove_tracker.rendering.document import KeyFigure
from greenlove_tracker.report import wording
from greenlove_tracker.report.directory_report import Sums
from greenlove_tracker.report.projection_text import COMPARED, Figure, ProjectionText, projection_text
from greenlove_tracker.report.run_report import run_figures
from greenlove_tracker.report.wording import STAR, STAR_NOTE, ForecastOutcome, when

WIDTH = 100

_VALUE_ENDS = 18  # the column, after the margin, where label and value end

_MARGIN = "  "

_MAX_PROBLEMS = 10


def end_screen(run: Run, *, exit_code: int | None, wrote: Sequence[str] = (), next_command: str = "") -> str:
    """What a tracked run says at its end.

    Args:
        run: the run, from its directory.
        exit_code: of the script; None where there is none to tell.
        wrote: the paths written, never shortened.
        next_command: what to type next, never shortened.
    """
    figures = [f for f in run_figures(run) if f.label != "compute" or run.summary.gpu_count]
    lines = [_first_line(run, exit_code), ""]
    lines += [line for figure in figures for line in _figure_lines(figure)]
    lines.append("")
    if outcome := outcome_sentence(run):
        lines += textwrap.wrap(outcome, WIDTH, initial_indent=_MARGIN, subsequent_indent=_MARGIN)
    for text in (wording.measured_sentence(run), *wording.warnings(run)):
        lines += textwrap.wrap(text, WIDTH, initial_indent=_MARGIN, subsequent_indent=_MARGIN)
    if wrote or next_command:
        lines.append("")
    lines += _wrote_lines(wrote)
    if next_command:
        lines.append(f"{_MARGIN}next    {next_command}")
    return "\n".join(lines)


def _first_line(run: Run, exit_code: int | None) -> str:
    done = wording.progress(run)
    code = f"exit {exit_code}" if exit_code is not None else ""
    ending = "   ".join(part for part in (fmt.shortened(run.summary.status, 16), done, code) if part)
    return f"greenlove  {run.title(WIDTH - len('greenlove  ') - len(ending) - 3)}   {ending}"


def _figure_lines(figure: KeyFigure) -> list[str]:
    value = figure.value.rjust(_VALUE_ENDS - len(figure.label) - 1)
    head = f"{_MARGIN}{figure.label} {value}   "
    indent = " " * (len(_MARGIN) + _VALUE_ENDS + 3)
    return textwrap.wrap(
        figure.how_text, WIDTH, initial_indent=head, subsequent_indent=indent, break_on_hyphens=False
    ) or [head.rstrip()]


def _wrote_lines(wrote: Sequence[str]) -> list[str]:
    """In one line where they fit; else one below the other, whole, because paths are there to be copied."""
    if not wrote:
        return []
    line = f"{_MARGIN}wrote   " + "   ".join(wrote)
    if len(line) <= WIDTH:
        return [line]
    return [f"{_MARGIN}{'wrote' if i == 0 else '     '}   {path}" for i, path in enumerate(wrote)]


def summary_table(aggregate: Aggregate, keys: Sequence[str]) -> str:
    """The sums by ``keys`` as one table with its total, then what verifying found and what could not be read, by name.

    Raises:
        UsageError: for a key that does not exist.
    """
    groups = {values: Sums(totals) for values, totals in aggregate.exact_totals_by(*keys).items()}
    if not groups:
        return "\n".join(["no runs", *_problem_lines(aggregate)])
    every = Sums(aggregate.exact_totals)
    body = [([_name(v) for v in values], _number_cells(g)) for values, g in groups.items()]
    body.append((["total", *("" for _ in keys[1:])], _number_cells(every)))
    heads = ["runs", "time", "GPU-h", "energy", "CO2e", "cost"]
    widths = [max(len(heads[i]), *(len(numbers[i]) for _, numbers in body)) for i in range(len(heads))]
    name_widths = _name_widths([list(keys), *(names for names, _ in body)], WIDTH - sum(widths) - 2 * len(widths))
    lines = [_table_line(list(keys), heads, name_widths, widths)]
    lines += [_table_line(names, numbers, name_widths, widths) for names, numbers in body]
    lines.insert(1, "─" * max(map(len, lines)))
    lines.insert(len(lines) - 1, lines[1])
    if any(cell.endswith(STAR) for _, numbers in body for cell in numbers):
        lines += ["", STAR_NOTE]
    return "\n".join(line.rstrip() for line in [*lines, *_verified_lines(aggregate), *_problem_lines(aggregate)])


def _verified_lines(aggregate: Aggregate) -> list[str]:
    found = aggregate.verified
    if found is None:
        return []
    n_verified = found.n_agreeing + found.n_differing
    n_others = aggregate.total.n_runs - n_verified
    others = f"; {n_others:,} with no totals of their own to verify" if n_others else ""
    if not n_verified:
        return ["", f"no run could be verified{others}"]
    differing = {0: "none differs", 1: "1 differs"}.get(found.n_differing, f"{found.n_differing:,} differ")
    return ["", f"{fmt.plural(n_verified, 'run')} verified, {differing}{others}"]


def _number_cells(sums: Sums) -> list[str]:
    time, *others = sums.cells
    return [f"{sums.totals.n_runs:,}", time, sums.gpu_hours, *others]


def _name(value: str) -> str:
    return fmt.shortened(value, WIDTH) or "(none)"


def _name_widths(rows: Sequence[Sequence[str]], available: int) -> list[int]:
    """What each column of names needs, or an equal share of what there is."""
    needed = [max(map(_columns, column)) for column in zip(*rows, strict=True)]
    if sum(needed) + 2 * (len(needed) - 1) <= available:
        return needed
    share = max(4, (available - 2 * (len(needed) - 1)) // len(needed))
    return [min(width, share) for width in needed]


def _columns(text: str) -> int:
    """The columns of a terminal that ``text`` takes: two for East Asian wide characters, none for combining ones."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) != 0 for c in text)


def _table_line(names: Sequence[str], numbers: Sequence[str], name_widths: list[int], widths: list[int]) -> str:
    left = [_fitted(name, width) for name, width in zip(names, name_widths, strict=True)]
    right = [cell.rjust(width) for cell, width in zip(numbers, widths, strict=True)]
    return "  ".join([*left, *right])


def _fitted(name: str, width: int) -> str:
    cut = name
    for length in range(width, 0, -1):
        cut = fmt.shortened(name, length)
        if _columns(cut) <= width:
            break
    return cut + " " * (width - _columns(cut))


def _problem_lines(aggregate: Aggregate) -> list[str]:
    problems = aggregate.problems
    if not problems:
        return []
    lines = [fmt.shortened(str(problem), WIDTH - 2) for problem in problems[:_MAX_PROBLEMS]]
    if len(problems) > _MAX_PROBLEMS:
        lines.append(f"and {len(problems) - _MAX_PROBLEMS:,} more")
    differs = aggregate.verified is not None and aggregate.verified.n_differing
    heading = "differs from its epochs, or could not be read:" if differs else "could not be read:"
    return ["", heading, *(_MARGIN + line for line in lines)]


def outcome_sentence(run: Run) -> str:
    """How the run's own forecast came out; empty where it made none, or did not do what was forecast."""
    scores = run.scores()
    told = headline(scores)
    if told is None:
        return ""
    held = sum(s.has_held for s in scores)
    fate, e = "held" if told.has_held else "missed", told.estimate
    error = f"error {fmt.error(told.error)}, interval {fate} ({held} of {len(scores)})"
    return (
        f"forecast {when(told.issued)}  {fmt.interval(e.point, e.lower, e.upper, fmt.duration)}   "
        f"came to {fmt.duration(told.outcome)}   {error}"
    )


def forecast_table(lines: Sequence[ForecastOutcome], quantity: str, n_without: int, n_explored: int = 0) -> str:
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
        "  ".join(
            _aligned_cell(cell, width, i) for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    table.insert(1, "─" * max(map(len, table)))
    notes = _record(lines)
    if n_without:
        notes.append(f"{fmt.plural(n_without, 'run')} without forecasts")
    if n_explored:
        notes.append(explored)
    return "\n".join([*table, "", *notes])


def _aligned_cell(cell: str, width: int, column: int) -> str:
    return cell.ljust(width) if column < 2 else cell.rjust(width)


def _cells(line: ForecastOutcome, text: Callable[[float | None], str]) -> tuple[str, ...]:
    e, told = line.estimate, headline(line.scores)
    name = fmt.shortened(f"{line.project}/{line.run_id}" if line.project else line.run_id, 34)
    head = (name, when(line.issued), text(e.point), f"{text(e.lower)} – {text(e.upper)}")
    if told is None:
        return (*head, fmt.shortened(line.status, 12), "", "")
    held = sum(s.has_held for s in line.scores)
    return (*head, text(told.outcome), fmt.error(told.error), f"{held} of {len(line.scores)}")


def _record(lines: Sequence[ForecastOutcome]) -> list[str]:
    """How often intervals held: of the headline forecasts, which are one a run and so independent, and of all."""
    told = [t for line in lines if (t := headline(line.scores))]
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


_LEAST_NAME = 8

_LABEL = 10  # columns that the labels of the verdicts take


def projection_screen(projections: Sequence[Projection], about: Sequence[str], today: date) -> str:
    """The table, who leads, and what it all rests on, within 100 columns.

    Args:
        projections: this machine first.
        about: the training in words.
        today: against which the age of prices is counted.
    """
    told = projection_text(projections, about, today, OPTION_NAMES)
    lines = [*_wrapped_projection(told.head), "", *_table(told)]
    beside = " · ".join(told.beside)
    lines += _wrapped_projection(f"{beside} (--all compares them)" if _has_more(projections) else beside)
    lines.append("")
    for label, text in told.verdicts:
        lines += textwrap.wrap(text, WIDTH, initial_indent=label.ljust(_LABEL), subsequent_indent=" " * _LABEL)
        if label == "settle":
            lines.append(f"{'':{_LABEL}}greenlove explore train.py:task there, then greenlove project --measured DIR")
    lines += [""] if told.verdicts else []
    for text in told.notes:
        lines += _wrapped_projection(text)
    for text in told.warnings:
        lines += textwrap.wrap(text, WIDTH, initial_indent="! ", subsequent_indent="  ")
    return "\n".join(lines)


def _wrapped_projection(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, break_on_hyphens=False)


def _has_more(projections: Sequence[Projection]) -> bool:
    """Whether ``--all`` would compare a machine that is set aside."""
    return any(r.aside and r.fits is not False and r.offer and r.offer.access != "withdrawn" for r in projections)


def _table(told: ProjectionText) -> list[str]:
    units = told.units
    times, costs = [line.time for line in told.lines], [line.cost for line in told.lines]
    columns = [
        ("rent as", "× $/h", [line.rent_as for line in told.lines]),
        (f"time {units.time.unit}", "90% range", _aligned_figures(times)),
        (f"cost {units.cost.unit}", "90% range", _aligned_figures(costs)),
        (units.energy.unit, "", [line.energy for line in told.lines]),
        (f"CO2e {units.mass.unit}", "location", [line.location for line in told.lines]),
        ("", "market", [line.market for line in told.lines]),
    ]
    widths = [max(map(len, (first, second, *cells))) for first, second, cells in columns]
    taken = sum(widths) + 2 * (len(widths) + 1)
    known_width = min(max(len(line.known_from) for line in told.lines), WIDTH - taken - _LEAST_NAME)
    name_width = min(max(len(line.name) for line in told.lines), WIDTH - taken - max(known_width, len("known from")))
    names = ["", "", *(line.name for line in told.lines)]
    known = ["speedup", "known from", *(fmt.shortened(line.known_from, known_width) for line in told.lines)]
    table = []
    for i, (name, source) in enumerate(zip(names, known, strict=True)):
        row = [(first, second, *column)[i] for first, second, column in columns]
        right = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        if len(name) > name_width:  # whole, in a line of its own: cut, two GPUs may read the same
            table.append(fmt.shortened(name, WIDTH))
            name = ""
        table.append("  ".join([name.ljust(name_width), *right, source]).rstrip())
    return table


def _aligned_figures(figures: Sequence[Figure]) -> list[str]:
    """Points and ranges below each other."""
    points, ranges = max(len(f.point) for f in figures), max(len(f.range) for f in figures)
    return [f"{f.point:>{points}} {f.range:<{ranges}}" for f in figures]


def projection_record(projections: Sequence[Projection], about: Sequence[str]) -> dict[str, Any]:
    """All of it as one object for JSON."""
    told, ranking = projection_text(projections, about), rank(projections)
    lists = [{"sources": row.sources, "assumptions": row.assumptions, "warnings": row.warnings} for row in projections]
    return {
        "about": told.head,
        "projections": [{**cells(row), **more} for row, more in zip(projections, lists, strict=True)],
        "verdicts": [{"by": label, "says": text} for label, text in told.verdicts if label != COMPARED],
        "savings": [saving.sentence for saving in ranking.savings],
        "notes": [*told.notes, *ranking.notes],
        "warnings": told.warnings,
    }


def projection_csv(projections: Sequence[Projection]) -> str:
    """One row a machine; what is not known is empty, not zero."""
    rows = [cells(row) for row in projections]
    return csv_text(list(rows[0]), rows)


def cells(row: Projection) -> Mapping[str, Any]:
    """A machine in plain values, None where something is not known."""
    offer, speedup, intensity = row.offer, row.speedup, row.intensity
    return {
        "gpu": row.name,
        "is_local": row.is_local,
        "aside": row.aside,
        "provider": offer.provider if offer else None,
        "region": row.region or None,
        "access": offer.access if offer else None,
        "gpus_wanted": row.n_gpus,
        "gpus_billed": row.billed_gpus,
        "usd_per_gpu_hour": offer.usd_per_gpu_hour if offer else None,
        "price_date": offer.price_date if offer else None,
        **_interval_fields("speedup", "", speedup.estimate if speedup else None),
        "speedup_known_from": speedup.known_from if speedup else None,
        "gain_of_gpus": row.gain,
        **_interval_fields("duration", "_s", row.duration_s),
        **_interval_fields("energy", "_kwh", row.energy_kwh),
        **_interval_fields("cost", "_usd", row.cost_usd),
        "cost_basis": row.cost_basis or None,
        **_interval_fields("emissions", "_kgco2e", row.emissions_kgco2e),
        "carbon_intensity_gco2e_per_kwh": intensity.value if intensity else None,
        "carbon_intensity_basis": intensity.basis if intensity else None,
        "market_based_claim_kgco2e": row.market.kgco2e.point if row.market else None,
        "market_based_claim": row.market.text if row.market else None,
        **_interval_fields("embodied", "_kgco2e", row.embodied_kgco2e),
        "scope": row.scope,
        "pue": row.pue,
        "fits": row.fits,
    }


def _interval_fields(name: str, unit: str, estimate: Estimate | None) -> dict[str, float | None]:
    values = (None,) * 3 if estimate is None else (estimate.point, estimate.lower, estimate.upper)
    return dict(zip((f"{name}{unit}", f"{name}_lower{unit}", f"{name}_upper{unit}"), values, strict=True))


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
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=further)


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
    linear = "cost is not linear" if WarningCode.NONLINEAR in names else "no bend seen"
    foreseen = "not foreseen by the others" if WarningCode.BACKTEST in names else "forecast from the others"
    return [f"  checks    largest size {foreseen}: {fmt.error(forecast.backtest_error)} · {linear}"]
