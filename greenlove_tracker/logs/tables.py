"""The files of a run that only some have: forecasts, spans, metrics, checkpoints, trials and comparisons.

``schema.py`` says how a dataclass is a file; the records of checkpoints and trials of arms stand with their words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any

from greenlove_tracker.logs import schema
from greenlove_tracker.logs.schema import LogColumn, LogTable, Part, amount, any_cell, any_number, cell, finite
from greenlove_tracker.vocabulary.checkpoints import CheckpointEvent
from greenlove_tracker.vocabulary.comparisons import ArmTrial, Verdict
from greenlove_tracker.vocabulary.forecasting import LEVEL, Estimate, Kind
from greenlove_tracker.vocabulary.records import DescribedStr, Energy

_LEVEL = "of the intervals"


_FORECAST_BOUNDS = "{name}_{end}_{unit}"


def _columns(quantity: str, meaning: str, bounds: str, kind: Kind) -> list[LogColumn]:
    """Return the columns of an estimate: its point, and the ends of its interval; see ``_estimates``."""
    read: Callable[[str], float] = any_number
    write: Callable[[Any], str] = any_cell
    if kind == Kind.PREDICTION:  # so that it is no NaN, and of all but a cost no less than zero
        write = cell
        read = finite if quantity == "cost_usd" else amount
    name, _, unit = quantity.rpartition("_")
    columns = [LogColumn(quantity, meaning, read, True, write)]
    for end in ("lower", "upper"):
        meaning = f"{end} end of the interval of `{quantity}`"
        columns.append(LogColumn(bounds.format(name=name, end=end, unit=unit), meaning, read, True, write))
    return columns


def _values(estimate: Estimate | None) -> Sequence[float | None]:
    return [None] * 3 if estimate is None else [estimate.point, estimate.lower, estimate.upper]


def _estimate(
    quantity: str, values: Sequence[float | None], level: float | None, kind: Kind, unit: str
) -> Estimate | None:
    """Return the estimate that cells hold; None where they are empty."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    if len(known) < len(values) or level is None or known[1] > known[2]:
        raise ValueError(f"{quantity} without its interval")
    point, lower, upper = known
    return Estimate(point, lower, upper, level, unit, kind)


def _estimates(meanings: Mapping[str, str], bounds: str, kind: Kind, level: str = _LEVEL) -> Part:
    """Return the columns of estimates by quantity: the level of all, and three of each.

    Args:
        meanings: of the quantities.
        bounds: pattern of the names of a quantity's bounds, with its name, its unit and the end.
        kind: of the estimates.
        level: meaning of the level.
    """
    columns = [LogColumn("level", level, amount, True)]
    for quantity, meaning in meanings.items():
        columns += _columns(quantity, meaning, bounds, kind)

    def values(estimates: Mapping[str, Estimate]) -> list[float | None]:
        level = max((e.level for e in estimates.values()), default=None)
        return [level, *chain.from_iterable(_values(estimates.get(quantity)) for quantity in meanings)]

    def make(level: float | None, *ends: float | None) -> dict[str, Estimate]:
        found = {}
        for quantity, *values in zip(meanings, ends[::3], ends[1::3], ends[2::3], strict=True):
            found[quantity] = _estimate(quantity, values, level, kind, schema.unit_of(quantity) or "1")
        return {quantity: estimate for quantity, estimate in found.items() if estimate is not None}

    return Part(columns, values, make)


# -- forecasts.csv --

QUANTITIES = {
    "duration_s": "wall time of the whole run, done and remaining",
    "energy_kwh": "its energy, with PUE, and with what `node_overhead` assumes",
    "emissions_kgco2e": "its emissions; the carbon intensity's own error is not in the interval",
    "cost_usd": "its cost: of the machine where its price is set, else of electricity",
}


_STOP_COLUMNS = _columns(
    "stop_epochs",
    "the number of the epoch with which early stopping is expected to end the run, the median; empty without a rule",
    _FORECAST_BOUNDS,
    Kind.PREDICTION,
)
_STOP = Part(
    [column._replace(group="stop") for column in _STOP_COLUMNS],
    _values,
    lambda *values: _estimate("stop_epochs", values, LEVEL, Kind.PREDICTION, "epochs"),
)


@dataclass(frozen=True, slots=True)
class IssuedForecast:
    """A forecast of a run's totals, as it was issued; ``estimates`` are by quantity, what is unknown is not there."""

    issued_at: Annotated[str, "UTC, ISO 8601"]
    elapsed_s: Annotated[float, "time since the start of the run"]
    epochs_done: Annotated[int, "epochs done by then"]
    steps_done: Annotated[int, "optimizer steps done by then"]
    planned: Annotated[int, "epochs that the run is to do, or steps where it counts in steps"]
    method: Annotated[str, "`live`: from the run itself; `wls` or `power`: from an exploration, before the first epoch"]
    estimates: Annotated[Mapping[str, Estimate], _estimates(QUANTITIES, _FORECAST_BOUNDS, Kind.PREDICTION)]
    duration_p99_s: Annotated[float | None, "the time that is exceeded with a probability of 1%"] = None
    warnings: Annotated[frozenset[str], "names of what makes the forecast worse, separated by spaces"] = frozenset()
    stop_epochs: Annotated[Estimate | None, _STOP] = None


def _whole_forecast(issued: IssuedForecast) -> IssuedForecast:
    if "duration_s" not in issued.estimates:
        raise ValueError("a forecast without its duration")
    return issued


# -- spans-<rank>.csv --


class SpanFlag(DescribedStr):
    """A reservation about a row of ``spans-<rank>.csv``."""

    BY_TIME = (
        "by_time",
        "over a tenth of its energy is an estimate: it shared those readings with other work, and has its part by time",
    )
    UNMETERED = "unmetered", "no energy: the meter was not up, had failed, or is carried by another rank"
    UNFINISHED = "unfinished", "the run ended while the span was open"


SEPARATOR = " > "  # of the names in a path


def _span_path(name: str, path: str, is_nested: bool) -> tuple[str, ...]:
    found = tuple(path.split(SEPARATOR))
    if not name or found[-1] != name or is_nested != (len(found) > 1):
        raise ValueError(f"a span {name!r} at {path!r}")
    return found


_PATH = Part(
    (
        LogColumn("name", "of the span, as given to `track`", str),
        LogColumn(
            "path",
            "the names of the spans that it lies in and its own, joined by ` > `; recursion lengthens none",
            str,
        ),
        LogColumn("is_nested", "`yes` or `no`: it lies in another", schema.yes),
    ),
    lambda path: (path[-1], SEPARATOR.join(path), len(path) > 1),
    _span_path,
)


@dataclass(frozen=True, slots=True)
class SpanRow:
    """The sums added to the spans of one path since its last row; its last name is the span's own."""

    path: Annotated[tuple[str, ...], _PATH]
    calls: Annotated[int, "that ended since the row before of this path: 0 where a span of over a minute goes on"]
    failed: Annotated[int, "calls that an exception ended"]
    started_at: Annotated[str, "UTC, ISO 8601: where the time of the row begins"]
    duration_s: Annotated[float, "time in the span, with that of the spans within it"]
    own_s: Annotated[
        float, "time without that of the spans within it: these add up (on several threads, to more than the run)"
    ]
    energy: Annotated[
        Energy,
        "{}",
        "{}",
        (
            "energy_kwh",
            "energy of `own_s`, the sum of the three that follow, as metered, before PUE: all rows add up to that of "
            "all spans, each counted once; that of a span is the sum over its path and all that begin with it",
        ),
    ]
    emissions_gco2e: Annotated[float | None, "of that energy: × PUE × carbon intensity"]
    flags: Annotated[frozenset[str], "what is to be known of the row, separated by spaces, see below"] = frozenset()


# -- metrics-<rank>.csv --


@dataclass(frozen=True, slots=True)
class MetricRecord:
    """One value of a metric, as it was logged."""

    logged_at: Annotated[str, "UTC, ISO 8601"]
    epoch: Annotated[int | None, "that was open then, or the last one before; empty before the first"]
    steps_done: Annotated[int, "optimizer steps done by then"]
    name: Annotated[str, "of the metric"]
    value: Annotated[float, "as it was given; `nan`, `inf` and `-inf` too", "any"]
    higher_is_better: Annotated[
        bool | None, "`yes` or `no`, as given to `log_metric`; empty: by its name, or unknown"
    ] = None


def _named(record: MetricRecord) -> MetricRecord:
    if not record.name:
        raise ValueError("a metric without a name")
    return record


# -- trials.csv --


@dataclass(frozen=True, slots=True)
class TrialRow:
    """One epoch of a trial of an exploration."""

    trial: Annotated[int, "number of the trial, from 1"]
    epoch: Annotated[int, "number of the epoch in it, from 1"]
    sample_size: Annotated[int, "samples of an epoch"]
    batch_size: Annotated[int, "samples of a batch"]
    duration_s: Annotated[float, "of the epoch"]
    trial_energy_kwh: Annotated[float | None, "of the whole trial, as metered, before PUE"]


# -- comparison.csv --

RATIOS = {
    "time_ratio": "of the time of a sample to the baseline's; below 1 saves",
    "energy_ratio": "of its energy to the baseline's",
    "co2e_ratio": "of its operational emissions to the baseline's",
    "cost_ratio": "of its cost, of the machine where its price is set, else of electricity, to the baseline's",
    "memory_ratio": "of the peak memory to the baseline's",
}
WHOLE_RUN = {
    "duration_s": "the whole training, projected, with the starts of its epochs and what is spent once",
    "energy_kwh": "its energy, with PUE, and with what `node_overhead` assumes",
    "emissions_kgco2e": "its emissions",
    "cost_usd": "its cost",
}
_COMPARED = _estimates(
    RATIOS | WHOLE_RUN,
    "{name}_{unit}_{end}",
    Kind.CONFIDENCE,
    "of the intervals, all of which are confidence intervals",
)


@dataclass(frozen=True, slots=True)
class ComparisonLine:
    """An arm of a comparison; in that of the baseline, which is the first, the last seven are of the comparison."""

    name: Annotated[str, "of the technique, or of several joined by `+`; the first row is the `baseline`'s"]
    verdict: Annotated[
        Verdict,
        "`saves`, `costs more`, `no measurable difference`, `too short to tell` or `not run`: of its energy where "
        "that was measured, else of its time",
    ]
    n_trials: Annotated[int, "that were timed"]
    estimates: Annotated[Mapping[str, Estimate], _COMPARED]
    duration_s_per_sample: Annotated[float | None, "geometric mean over its trials", "any"]
    peak_memory_gb: Annotated[
        float | None,
        "largest of its trials, in GiB: on a GPU, without what other arms hold there; on a CPU, of the tensors that "
        "live at a time in a step apart",
    ]
    one_off_s: Annotated[
        float | None,
        "its first steps beyond as many steady ones, as of `compile`; in the projection, not in the ratios",
        "finite",
    ]
    final_loss: Annotated[
        float | None, "mean over the last batches of its last trial, after as many samples as the baseline's", "any"
    ]
    budget_s: Annotated[float | None, "that would tell, where this was too short", "any"]
    reason: Annotated[str, "it was not run because"]
    notes: Annotated[tuple[str, ...], "what it changes in the training, and what was observed, as a JSON list"]
    learns_otherwise: Annotated[
        str, "how what it learns differs from the baseline, as a clause; empty where no difference is seen"
    ]
    spent_s: Annotated[
        float | None, "time that the comparison took; like all that follow, in the baseline's row only"
    ] = None
    given_budget_s: Annotated[float | None, "time that it had", "any"] = None
    residual_cv: Annotated[
        float | None, "coefficient of variation of a trial that is left after arm, block and drift", "any"
    ] = None
    energy_method: Annotated[str, "how the energy of the trials was obtained; several methods are joined by `+`"] = ""
    comparison_notes: Annotated[tuple[str, ...], "on the whole, as a JSON list"] = ()
    left_changed: Annotated[tuple[str, ...], "what could not be put back, as a JSON list"] = ()
    is_of_runs: Annotated[bool | None, "`yes`: logged runs were compared, not trials of one training"] = None


FORECASTS = LogTable(
    IssuedForecast, "forecasts.csv", "only where a forecast was made", last_of_first="warnings", check=_whole_forecast
)
SPANS = LogTable(SpanRow, "spans-{}.csv", "only where `track` was used", last_of_first="flags")
METRICS = LogTable(
    MetricRecord, "metrics-{}.csv", "only where a metric was logged", last_of_first="higher_is_better", check=_named
)
CHECKPOINTS = LogTable(
    CheckpointEvent,
    "checkpoints-{}.csv",
    "only where a `Checkpointer` wrote, or `log_checkpoint`",
    last_of_first="note",
)
TRIALS = LogTable(
    TrialRow, "trials.csv", "only of an exploration, one row an epoch of a trial", last_of_first="trial_energy_kwh"
)
COMPARISON = LogTable(
    ComparisonLine, "comparison.csv", "only of a comparison of techniques", last_of_first="is_of_runs"
)
COMPARISON_TRIALS = LogTable(
    ArmTrial, "comparison_trials.csv", "one row for each trial of a comparison", last_of_first="loss"
)
