"""What was forecast beside what it came to: of one run, of those of a directory, and of a sweep that is to come."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from greenlove_tracker.extrapolation.time_fit import run_time_fit
from greenlove_tracker.logs.forecasts import Scored, headline, scored_forecasts
from greenlove_tracker.logs.run import GOOD_ENDINGS, Run
from greenlove_tracker.logs.tables import QUANTITIES, IssuedForecast
from greenlove_tracker.logs.uncertainty import QUANTITIES as MEASURED
from greenlove_tracker.logs.uncertainty import with_meter_error
from greenlove_tracker.rendering import document as doc
from greenlove_tracker.rendering.axes import MAX_POINTS
from greenlove_tracker.report import wording
from greenlove_tracker.report.plain_values import same, values_at
from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.forecasting import Estimate, Position, TimeFit

_MOST_TIME_LIMITS = 5
_TALLEST = 2.0  # times the outcome
_CHOSEN = "Scored: the first forecast at 10% of the run or later without the warning FEW; if there is none, the last."


@dataclass(frozen=True, slots=True)
class ForecastOutcome:
    """One run's forecast of one quantity, with its outcome."""

    run: Run
    n_forecasts: int
    issued: IssuedForecast
    estimate: Estimate
    scores: Sequence[Scored]
    time_fit: TimeFit | None = None

    @property
    def scored(self) -> Scored | None:
        """Its forecast with the outcome; None where there is none yet."""
        return headline(self.scores)

    @property
    def interval(self) -> Estimate | None:
        """Its forecast, where that has an interval."""
        return self.estimate if self.estimate.has_interval else None

    @property
    def judged(self) -> Scored | None:
        """The scored forecast, where it has an interval that can have held."""
        return self.scored if self.interval else None

    @property
    def n_held(self) -> int | None:
        """How many of the run's intervals held; None without an outcome or an interval."""
        return sum(scored.has_held for scored in self.scores) if self.judged else None

    def as_dict(self) -> dict[str, Any]:
        """Return the forecast as a row for JSON and CSV; None where there is no outcome."""
        return values_at(self, _COLUMNS) | {"project": self.run.summary.project}

    def cells(self, text: fmt.Text) -> doc.Texts:
        """Write forecast, interval, outcome, error, and how many of the run's intervals held."""
        cells = (text(self.estimate.point), fmt.bounds(self.estimate, text))
        if self.scored is None:
            return (*cells, fmt.shortened(self.run.summary.status, 12), "", "")
        held = ""
        if self.judged:
            held = f"{self.n_held} of {len(self.scores)}"
        return (*cells, text(self.scored.outcome), fmt.error(self.scored.error), held)


_COLUMNS = {
    "run_id": "run.run_id",
    "project": "run.summary.project",
    "status": "run.summary.status",
    "unit": "estimate.unit",
    "epochs_done": "issued.epochs_done",
    "steps_done": "issued.steps_done",
    "elapsed_s": "issued.elapsed_s",
    "forecast": "estimate.point",
    "lower": "interval.lower",
    "upper": "interval.upper",
    "level": "interval.level",
    "outcome": "scored.outcome",
    "error": "scored.error",
    "has_held": "judged.has_held",
    **same(("n_forecasts", "n_held")),
    "time_limit_s": "time_fit.limit_s",
    "fits": "time_fit.probability",
    "fits_length": "time_fit.longest",
}


def outcome_of(run: Run, quantity: str) -> ForecastOutcome | None:
    """Choose a forecast: at a tenth of a run that is over, the latest of one that is not; None without any.

    Args:
        run: of a log.
        quantity: one of ``QUANTITIES``.
    """
    issued = [f for f in run.forecasts if quantity in f.estimates]
    if not issued:
        return None
    scores = scored_forecasts(run, quantity)
    scored = headline(scores)
    chosen = scored.issued if scored else issued[-1]
    return ForecastOutcome(run, len(issued), chosen, chosen.estimates[quantity], scores, time_fit_of(run))


def issued_after(issued: IssuedForecast) -> str:
    """Write when a forecast was made: ``after 3 epochs``."""
    if issued.epochs_done:
        return f"after {fmt.plural(issued.epochs_done, 'epoch')}"
    if issued.steps_done:
        return f"after {fmt.plural(issued.steps_done, 'step')}"
    return "before the start"


# -- A time limit --


def time_fit_of(run: Run) -> TimeFit | None:
    """Return how a run that is not done was to fit its time limit, on its latest forecast; None of any other run."""
    is_done = run.summary.status in GOOD_ENDINGS and not run.text("monitor_epochs")
    limit_s = run.amount("time_limit_s")
    if limit_s is None or is_done or run.is_complete or not run.forecasts:
        return None
    issued = run.forecasts[-1]
    epochs = run.summary.epochs_planned
    steps = run.total_steps_planned
    is_in_steps = epochs is None or (issued.planned != epochs and issued.planned == steps)
    done: float = issued.epochs_done
    if is_in_steps:
        done = issued.steps_done
    elif not done and steps and epochs:  # before the first epoch's end
        done = min(1.0, issued.steps_done / steps * epochs)
    position = Position(issued.planned, done, issued.elapsed_s, is_in_steps)
    passed_s = max(issued.elapsed_s, run.summary.duration_s)
    fit = run_time_fit(issued.estimates["duration_s"], limit_s, position, passed_s=passed_s)
    # the log does not have the time of each phase, nor that of all epochs where early stopping may end them
    if run.text("phases") or issued.stop_epochs is not None:
        return replace(fit, longest=None)
    return fit


def time_limit_sentence(run: Run) -> str:
    """Say whether a run kept its time limit, or how it was to fit it; empty where it had none, or no forecast."""
    limit_s = run.amount("time_limit_s")
    if run.is_exploration or limit_s is None:
        return ""
    limit = f"time limit of {fmt.duration(limit_s)}"
    fit = time_fit_of(run)
    spare_s = limit_s - run.summary.duration_s
    if fit is not None:
        fits = "missed"
        if not fit.is_over:
            fits = fmt.time_fit(fit)
        needs = fmt.interval(run.forecasts[-1].estimates["duration_s"], fmt.duration)
        return f"{limit}: {fits}; the whole takes about {needs}"
    if run.summary.status not in GOOD_ENDINGS:
        return ""
    if spare_s >= 0:
        return f"{limit} kept, {fmt.duration(spare_s)} to spare"
    return f"{limit} missed by {fmt.duration(-spare_s)}"


# -- Of one run --


def outcome_sentence(run: Run) -> str:
    """Return the run's own forecast and its error; empty where it made none, or did not do what was forecast."""
    scored = headline(scored_forecasts(run))
    if scored is None:
        return ""
    error = f"{fmt.percent(abs(scored.error), 1)} short"
    if scored.error > 0:
        error = f"{fmt.percent(scored.error, 1)} over"
    return f"forecast {issued_after(scored.issued)}: {fmt.interval(scored.estimate, fmt.duration)}, {error}"


def forecast_blocks(run: Run) -> doc.BlockIterator:
    """Yield a forecast of each quantity with its outcome, and all those of the time as a chart."""
    outcomes = {quantity: outcome_of(run, quantity) for quantity in QUANTITIES}
    lines = {quantity: line for quantity, line in outcomes.items() if line is not None}
    if not lines:
        return
    of_time = lines["duration_s"]  # without it no forecast is read
    outcome_s = None
    chosen = _CHOSEN
    if of_time.scores:
        outcome_s = run.summary.duration_s
    else:
        chosen = "It is the latest. The run has not done what was forecast."
        for quantity in MEASURED & lines.keys():
            with_error = with_meter_error(lines[quantity].estimate, run, quantity)
            lines[quantity] = replace(lines[quantity], estimate=with_error)
    issued = of_time.issued
    text = f"Forecast {issued_after(issued)}, {fmt.duration(issued.elapsed_s)} after the start."
    if issued.stop_epochs is not None:
        text += f" It said: {fmt.expected_stop(issued.stop_epochs, run.first_epoch + issued.planned)}."
    rows = [
        (name, *lines[quantity].cells(write)) for quantity, (name, write) in fmt.QUANTITIES.items() if quantity in lines
    ]
    yield doc.Heading("Forecast and outcome")
    yield doc.Paragraph(f"{text} {chosen}")
    yield doc.Table([doc.Column("", 0.9), *_columns([of_time], "forecast")], rows)
    yield from _forecast_chart(run.forecasts, outcome_s)


def _columns(outcomes: Sequence[ForecastOutcome], name: str) -> list[doc.Column]:
    level = next((f"{o.estimate.level:.0%} " for o in outcomes if o.estimate.has_interval), "")
    heads = {name: 1.2, f"{level}interval": 2.2, "actual": 1.2, "error": 0.9, "held": 0.9}
    return [doc.Column(head, weight, True) for head, weight in heads.items()]


def _forecast_chart(issued: Sequence[IssuedForecast], outcome_s: float | None) -> doc.BlockIterator:
    """Draw the forecasts of the time one after the other, with the outcome where that is known."""
    unit = "step"
    if all(forecast.epochs_done for forecast in issued):
        unit = "epoch"
    found = {float(getattr(forecast, f"{unit}s_done")): forecast.estimates["duration_s"] for forecast in issued}
    if len(found) < 2:
        return
    chosen = sorted(found.items())[:: math.ceil(len(found) / MAX_POINTS)]
    tallest_s = _TALLEST * max([e.point for _, e in chosen[len(chosen) // 2 :]] + [outcome_s or 0.0])
    title = f"Forecast of the whole time, with its {chosen[0][1].level:.0%} interval"
    yield narrowing_chart(title, unit, chosen, tallest_s, outcome_s)
    if any(estimate.upper > tallest_s for _, estimate in chosen):
        yield doc.Note(f"Cut off at {fmt.duration(tallest_s)}.")


def narrowing_chart(
    title: str, x_label: str, found: Sequence[tuple[float, Estimate]], tallest_s: float, outcome_s: float | None = None
) -> doc.ChartRow:
    """Draw how forecasts of a time narrowed; what is wider than ``tallest_s`` is cut off, or it would flatten the rest.

    Args:
        title: of the chart.
        x_label: of what the forecasts were made after.
        found: the forecasts, by it.
        tallest_s: the greatest height.
        outcome_s: what it took; None where that is not known.
    """
    scale = fmt.time_scale(tallest_s)
    level = None
    if outcome_s is not None:
        level = (scale.value(outcome_s), f"took {fmt.duration(outcome_s)}")

    def height(value_s: float) -> float:
        return scale.value(min(value_s, tallest_s))

    line = doc.Line("", [(x, height(e.point)) for x, e in found])
    band = [(x, height(e.lower), height(e.upper)) for x, e in found]
    return doc.ChartRow([doc.LineChart(title, x_label, scale.unit, [line], band=band, level=level, is_from_0=False)])


# -- Of a directory --


def outcomes_document(
    outcomes: Sequence[ForecastOutcome], n_without: int, time_limits: Sequence[str] = ()
) -> doc.Document:
    """Return all runs that made forecasts, and how far these can be trusted together.

    Args:
        outcomes: of the time, one a run.
        n_without: trainings that made none.
        time_limits: how runs that are not done fit their limits, in a sentence each.
    """
    name, text = fmt.QUANTITIES["duration_s"]
    verdict = f"No forecasts of {name}: give epochs= or total_steps= to get them."
    blocks: doc.Blocks = []
    if outcomes:
        judged = filter(None, (outcome.judged for outcome in outcomes))
        verdict = coverage_sentence([(scored.error, scored.has_held, scored.estimate.level) for scored in judged])
        rows = [
            (
                wording.run_label(outcome.run.run_id, outcome.run.summary.project),
                issued_after(outcome.issued).removeprefix("after "),
                *outcome.cells(text),
            )
            for outcome in outcomes
        ]
        heads = [*doc.columns({"run": 2.4, "forecast after": 1.4}), *_columns(outcomes, name)]
        blocks.append(doc.Table(heads, rows, is_whole=True))
    if n_without:
        blocks.append(doc.Paragraph(f"{fmt.plural(n_without, 'run')} without forecasts."))
    blocks += map(doc.Paragraph, time_limits[-_MOST_TIME_LIMITS:])
    return doc.Document(
        title="Forecasts and outcomes",
        verdict=verdict,
        blocks=blocks,
    )


def coverage_sentence(scored: Sequence[tuple[float, bool, float]]) -> str:
    """Say how often intervals held: one a run, since those of one run depend on one another.

    Args:
        scored: the error, whether the interval held, and its level.
    """
    if not scored:
        return "No run has completed yet a forecast with an interval."
    errors, held, levels = zip(*scored, strict=True)
    nominal = wording.joined([f"{level:.0%}" for level in sorted(set(levels))])
    kept = f"{fmt.held(sum(held), len(held))} of the runs (nominal {nominal})"
    return f"Intervals held in {kept}; median |error| {statistics.median(map(abs, errors)):.1%}."


def sweep_document(
    runs: int,
    project: str | None,
    seen: int,
    totals: Mapping[str, Estimate | None],
    unknown: Mapping[str, int],
    warnings: Sequence[str],
) -> doc.Document:
    """Return the forecast of a sweep.

    Args:
        runs: of the sweep.
        project: whose runs were gone by; None: all of the log.
        seen: runs of the log.
        totals: by quantity; None where it is not known of every run of the log.
        unknown: by quantity, runs of the log of which it is not known.
        warnings: of the forecast.
    """
    whose = f"the project {project}" if project else "this log"
    gone_by = fmt.plural(seen, "run")
    figures = []
    said = [f"! {warning}" for warning in warnings]
    for quantity, estimate in totals.items():
        missing = f"{unknown[quantity]:,} of {gone_by} without {fmt.QUANTITIES[quantity][0]}"
        figures.append(wording.forecast_tile(quantity, estimate, missing))
        if estimate is None:
            said.append(f"Not summed: {missing}.")
    verdict = f"{runs:,} runs like the {gone_by} of {whose}."
    return doc.Document("A sweep", blocks=(doc.KeyFigures(figures), *map(doc.Paragraph, said)), verdict=verdict)
