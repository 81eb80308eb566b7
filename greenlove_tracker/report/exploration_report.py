"""The report of an exploration: the forecast, its parts, and the trials behind it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

import greenlove_tracker
from greenlove_tracker import format as fmt
from greenlove_tracker.errors import UsageError
from greenlove_tracker.forecasting import Estimate, Forecast, Trial, stop_estimate
from greenlove_tracker.format import time_scale
from greenlove_tracker.logs.run import Run
from greenlove_tracker.projection.types import Projection
from greenlove_tracker.rendering import document as doc
from greenlove_tracker.rendering.axes import thinned
from greenlove_tracker.report.method import agrees, number
from greenlove_tracker.report.projection_report import projection_blocks

_MOST_DOTS = 300  # of single epochs in a chart


def exploration_document(
    forecast: Forecast, trials: Sequence[Trial], title: str = "", projections: Sequence[Projection] = ()
) -> doc.Document:
    """Return the report of an exploration.

    Args:
        forecast: made from the trials.
        trials: what was timed.
        title: the project or run.
        projections: the same training on other machines, as ``project`` gives them.
    """
    return doc.Document(
        title=title or "What this training will take",
        subtitle=fmt.plan(forecast.plan),
        footer=f"greenlove_tracker {greenlove_tracker.__version__}",
        blocks=(*exploration_blocks(forecast, trials), *projection_blocks(projections, {})),
    )


def explored_blocks(run: Run) -> tuple[doc.Block, ...]:
    """Return the result of an exploration, from its log; the reason where it cannot be forecast again."""
    from greenlove_tracker.extrapolation.extrapolate import forecast_from_log  # statsmodels: over a second

    try:
        return exploration_blocks(forecast_from_log(run), run.trials)
    except (UsageError, ValueError) as error:
        return (doc.Paragraph(f"The exploration cannot be forecast again: {error}."),)


def exploration_blocks(forecast: Forecast, trials: Sequence[Trial]) -> tuple[doc.Block, ...]:
    """Return the forecast of a training, its parts, and the trials behind it."""
    return (
        doc.KeyFigures(_figures(forecast)),
        *_stop(forecast),
        *(doc.Paragraph(f"{'! ' if warning.is_serious else ''}{warning}.") for warning in forecast.warnings),
        *_made_of(forecast.without_stop or forecast),
        *_phases(forecast),
        *_trials(forecast, trials),
        *_method(forecast, trials),
    )


def _stop(forecast: Forecast) -> tuple[doc.Block, ...]:
    """Return where early stopping is expected to end it, and what all epochs would take; nothing without a rule."""
    stop, whole = forecast.expected_stop, forecast.without_stop
    if stop is None or whole is None:
        return ()
    expected = fmt.expected_stop(stop_estimate(stop, forecast.duration_s.level), stop.most_epochs)
    whole_s = f"{fmt.duration(whole.duration_s.point)} ({fmt.bounds(whole.duration_s, fmt.duration, ' to ')})"
    all_of_them = f"All {fmt.plural(stop.most_epochs, 'epoch')} would take {whole_s}; so do the parts below"
    return (doc.Paragraph(f"It {expected}; from {stop.basis}. {all_of_them}."),)


def _figures(forecast: Forecast) -> tuple[doc.KeyFigure, ...]:
    return tuple(_figure(name, getattr(forecast, field), text) for field, (name, text) in fmt.QUANTITIES.items())


def _figure(label: str, estimate: Estimate | None, text: fmt.Text) -> doc.KeyFigure:
    if estimate is None:
        return doc.KeyFigure(label, fmt.UNKNOWN, ("no trial was long enough to measure it, or no factor is known",))
    how = f"forecast, {estimate.level:.0%} {estimate.kind} interval {fmt.bounds(estimate, text, ' to ')}"
    return doc.KeyFigure(label, text(estimate.point), (how,))


def _made_of(forecast: Forecast) -> tuple[doc.Block, ...]:
    plan = forecast.plan
    if plan is None or forecast.per_batch_s is None:
        return ()
    parts = (
        ("once: compilation, caches", forecast.one_off_s, 1),
        ("each epoch, beside its batches", forecast.per_epoch_s, plan.n_epochs),
        ("each batch", forecast.per_batch_s, plan.n_epochs * plan.batches_per_epoch),
        ("all evaluations and checkpoints", forecast.between_s, 1),
    )
    rows = tuple(
        (name, fmt.duration(e.point), _interval_or_count(e), fmt.repetitions(times))
        for name, e, times in parts
        if e is not None
    )
    interval = f"{forecast.per_batch_s.level:.0%} {forecast.per_batch_s.kind} interval"
    columns = (
        doc.Column("what", 2.4),
        doc.Column("takes", 1, True),
        doc.Column(interval, 2, True),
        doc.Column("times", 1, True),
    )
    added = _added(forecast.duration_s.point, [(e.point, times) for _, e, times in parts if e is not None])
    return (doc.Heading("Breakdown"), doc.Table(columns, rows), *added)


def _phases(forecast: Forecast) -> tuple[doc.Block, ...]:
    """Return the part of each phase of the plan; nothing where it has one."""
    parts = forecast.phases
    if len(parts) < 2:
        return ()
    total_s = math.fsum(part.duration_s.point for part in parts)
    rows = tuple(
        (
            fmt.plural(part.phase.length, part.phase.unit.removesuffix("s")),
            fmt.phase_name(part.phase),
            fmt.duration(part.duration_s.point),
            _interval_or_count(part.duration_s),
            fmt.percent(part.duration_s.point / total_s if total_s else None),
            f"{part.n_evaluations:,}" if part.n_evaluations else "",
        )
        for part in parts
    )
    interval = f"{parts[0].duration_s.level:.0%} {parts[0].duration_s.kind} interval"
    columns = (
        doc.Column("phase", 1.2),
        doc.Column("its name, or a step's work", 1.8),
        doc.Column("takes", 1, True),
        doc.Column(interval, 2, True),
        doc.Column("of all", 0.7, True),
        doc.Column("evaluations", 1, True),
    )
    return (doc.Heading("Its phases, without evaluations and checkpoints"), doc.Table(columns, rows))


def _interval_or_count(estimate: Estimate) -> str:
    if estimate.lower < estimate.upper:
        return fmt.bounds(estimate, fmt.duration, " to ")
    return "seen once" if estimate.point else "none seen"


def _added(whole_s: float, parts: Sequence[tuple[float, float]]) -> tuple[doc.Block, ...]:
    """Write the parts as a sum that a reader can repeat; nothing where they are not all of the time."""
    terms = [(number(point_s, "s"), times) for point_s, times in parts if point_s]
    result = number(math.fsum(term.value * times for term, times in terms), "s")
    if not agrees(result, whole_s):
        return ()
    expression = " + ".join(str(term) if times == 1 else f"{times:,.6g} × {term}" for term, times in terms)
    return (doc.Calculations((doc.Calculation("time", expression, str(result)),)),)


def _trials(forecast: Forecast, trials: Sequence[Trial]) -> tuple[doc.Block, ...]:
    by_size: dict[int, list[Trial]] = {}
    for trial in trials:
        by_size.setdefault(trial.sample_size, []).append(trial)
    medians = {
        size: statistics.median(d for t in group for d in t.epoch_durations_s)
        for size, group in sorted(by_size.items())
    }
    blocks: list[doc.Block] = [doc.Heading(f"Time of {_AN_EPOCH[_is_of_fits(forecast, trials)]}, for each sample size")]
    if len(medians) > 1:
        blocks += _chart(forecast, trials, medians)
    return (*blocks, _sizes(forecast, trials, by_size, medians))


def _sizes(
    forecast: Forecast, trials: Sequence[Trial], by_size: Mapping[int, Sequence[Trial]], medians: Mapping[int, float]
) -> doc.Table:
    """Return the sizes with the median and the fit at each; batches only where a sample is none."""
    scale = time_scale(max(medians.values()))
    batches = [by_size[size][0].batches for size in medians]
    fitted = {
        -(-round(samples) // trials[0].batch_size): mean_s.point for samples, mean_s in _band(forecast, trials, batches)
    }

    def headline(value_s: float | None) -> str:
        return "not used" if value_s is None else fmt.significant(scale.value(value_s), 3)

    columns = [
        ("samples", [f"{size:,}" for size in medians]),
        ("batches", [f"{n:,}" for n in batches] if not _is_of_fits(forecast, trials) else []),
        ("trials", [f"{len(by_size[size])}" for size in medians]),
        (f"median, {scale.unit}", [headline(median_s) for median_s in medians.values()]),
        (
            f"{_FITTED.get(forecast.method, '')}, {scale.unit}",
            [headline(fitted.get(n)) for n in batches] if fitted else [],
        ),
    ]
    filled = [(head, cells) for head, cells in columns if cells]
    return doc.Table(
        tuple(doc.Column(head, 1, True) for head, _ in filled), tuple(zip(*(cells for _, cells in filled), strict=True))
    )


def _is_of_fits(forecast: Forecast, trials: Sequence[Trial]) -> bool:
    """Return True where whole fits were timed, whose samples are no batches."""
    return forecast.method == "power" and trials[0].batch_size == 1


def _chart(forecast: Forecast, trials: Sequence[Trial], medians: Mapping[int, float]) -> tuple[doc.Block, ...]:
    """Draw the single epochs with the line through them; where no line was fitted, through their medians."""
    scale = time_scale(max(d for t in trials for d in t.epoch_durations_s))
    dots = thinned(
        sorted((float(t.sample_size), scale.value(d)) for t in trials for d in t.epoch_durations_s), _MOST_DOTS
    )
    band = _band(forecast, trials)
    line = tuple((x, scale.value(e.point)) for x, e in band) or tuple(
        (float(size), scale.value(median_s)) for size, median_s in medians.items()
    )
    edges = tuple((x, scale.value(e.lower), scale.value(e.upper)) for x, e in band)
    what = _FITTED[forecast.method] if band else "median of each size"
    band_note = f" The band is its {band[0][1].level:.0%} confidence interval." if band else ""
    if forecast.method == "power" and band and band[0][0] > min(medians):
        band_note += " It goes through the sizes from a tenth of the largest on."
    is_of_fits = _is_of_fits(forecast, trials)
    circles = "fits" if is_of_fits else "epochs"
    cold = ", cold ones too, which the fit leaves out" if forecast.method == "wls" else ""
    note = f"Circles are single {circles}{cold}. The line is the {what}.{band_note}"
    title, axis = f"Single {circles} and {what}", f"samples of {_AN_EPOCH[is_of_fits]}"
    chart = doc.LineChart(title, axis, scale.unit, line, dots, edges)
    return doc.ChartRow((chart,)), doc.Paragraph(note, is_note=True)


def _band(
    forecast: Forecast, trials: Sequence[Trial], batches: Sequence[int] = ()
) -> tuple[tuple[float, Estimate], ...]:
    """Return the fit, at these sizes or along all of them; nothing where the forecast was made in another way."""
    from greenlove_tracker.extrapolation.extrapolate import fitted_band  # statsmodels: over a second, and loaded by now

    if forecast.plan is None:
        return ()
    level = forecast.duration_s.level
    return fitted_band(trials, forecast.plan, level, method=forecast.method, batches=batches)


def _method(forecast: Forecast, trials: Sequence[Trial]) -> tuple[doc.Block, ...]:
    timed_s = sum(t.total_s for t in trials)
    checked = ""
    if forecast.backtest_error is not None:
        checked = f" Forecast from the others, the largest size is off by {fmt.error(forecast.backtest_error)}."
    return (
        doc.Heading("How the forecast was made"),
        doc.Paragraph(
            f"The training itself ran for {fmt.duration(timed_s)} in {fmt.plural(len(trials), 'trial')} of several "
            f"sample sizes. {_EXTENDED[forecast.method].format(forecast.degrees_of_freedom)}{checked} The intervals do "
            "not cover another machine, other work on this one, or the errors of modelled power and of the carbon "
            "intensity. A part's interval is that of its mean; the whole's also covers how single runs differ."
        ),
    )


_FITTED = {"wls": "fitted line", "power": "fitted power law"}
_AN_EPOCH = {False: "an epoch", True: "a fit"}
_EXTENDED = {
    "wls": "A line through their epochs (weighted least squares with run-to-run variation, {} degrees of freedom) is "
    "extended to the whole; its intervals hold what differs from run to run.",
    "power": "A power law through their times (least squares on a logarithmic scale, {} degrees of freedom) is "
    "extended to all of the data; its interval holds an assumed change of the exponent.",
    "green-love": "Each epoch is scaled to the whole in proportion to its samples, by the formulas of green-love.",
}
