"""The advice on a start, as a document and as plain values for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from greenlove_tracker.grid.place import grid_place
from greenlove_tracker.rendering.document import (
    Blocks,
    ChartRow,
    Document,
    Heading,
    Line,
    LineChart,
    Note,
    Paragraph,
    Points,
    ShadedSpan,
    Table,
    Texts,
    columns,
)
from greenlove_tracker.report.plain_values import same, values_at
from greenlove_tracker.report.wording import footer
from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.records import sum_known
from greenlove_tracker.vocabulary.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from greenlove_tracker.scheduling.intensity_series import IntensityBasis
    from greenlove_tracker.scheduling.start_windows import IntensityHour, StartAdvice

_MOCK = "The intensities are invented, of no grid: for trying things out alone."
_OFFLINE = ("csv", "table", "mock")  # providers that ask no network
_MOST_LINES = 5  # regions of a chart; the table holds them all
_OLD_S = 6 * SECONDS_PER_HOUR  # services are 1 to 3 hours late
_REGION_NUMBERS = ("intensity", "CO2e", "cost", "saved against now")
_MOST_TICKS = 9  # of its hours


def plan_document(advice: StartAdvice, about: str = "") -> Document:
    """Return when and where to start, and what that saves.

    Args:
        advice: of ``best_start``.
        about: the run in words.
    """
    now = advice.now_utc
    subtitle = (about, f"by {_dated(advice.deadline_utc)}", f"given {_dated(now)}")
    now_and_then = _now_and_then(advice)
    blocks: Blocks = [now_and_then]
    if advice.alternatives:
        regions = list(map(region_cells, advice.alternatives))
        blocks = [Table(columns({"region": 1, "best start": 1}, _REGION_NUMBERS), regions)]
    if advice.hours:
        blocks += _curve(advice)
    stamp = ""
    if advice.is_mock:
        stamp = "MOCK"
        blocks.append(Paragraph(_MOCK))
    for source in advice.sources:
        if source.age_s is not None and source.age_s > _OLD_S and source.forecast:
            age = fmt.brief_duration(source.age_s)
            blocks.append(Paragraph(f"{source.source}: the newest figure is {age} old."))
    if about:
        blocks.append(Paragraph(f"The run: {about}."))
    if advice.wait_s > 0:
        blocks.append(Paragraph(_waiting_text(advice)))
    if advice.alternatives:
        blocks += [Heading("Now and then"), now_and_then]
    sources = [(one.region or "here", source_text(one, is_left_out=bool(advice.hours))) for one in advice.sources]
    blocks += [Heading("How we know"), Table(columns({"region": 1, "source": 5}), sources)]
    chance = advice.probability_of_saving
    if len(now_and_then.columns) > 2 and chance is not None:
        blocks.append(Paragraph(f"Any saving at all is {fmt.chance(chance)} likely."))
    blocks += [Note(f"{note}.") for note in advice.notes]
    return Document(
        title="When to start",
        subtitle=" · ".join(filter(None, subtitle)),
        footer=footer(),
        verdict=f"{headline(advice)}.",
        stamp=stamp,
        blocks=blocks,
    )


def headline(advice: StartAdvice) -> str:
    """Return the advice in one sentence: when and where to start, and what that saves; or why not to wait."""
    reason = advice.reason.removesuffix(".")
    if advice.saving is None:
        return f"No advice: {reason}"
    if not advice.is_worth_waiting:
        return reason
    start = "Start now"
    if advice.wait_s > 0:
        start = f"Start at {when_text(advice.start_utc, advice.now_utc)} (in {fmt.brief_duration(advice.wait_s)})"
    if advice.alternatives and advice.region is not None:
        start += f" in {_place(advice.region)}"
    return f"{start}: {saving_text(advice)}"


def _place(region: str) -> str:
    """Write a region with the name of its country, where it is a place: ``France (FR)``."""
    try:
        name = grid_place(region).place
    except UsageError:  # a name of one's own, for a file
        return region
    if name is None or name.name == region:
        return region
    return f"{name.name} ({region})"


def when_text(when: datetime, now: datetime) -> str:
    """Write a time by the local clock: ``21:00``, ``03:00 tomorrow``, ``Wed 06:00``, or with its date.

    Args:
        when: aware.
        now: aware.
    """
    local = when.astimezone()
    clock = f"{local:%H:%M}"
    days = (local.date() - now.astimezone().date()).days
    if days == 0:
        return clock
    if days == 1:
        return f"{clock} tomorrow"
    if 1 < days < 7:
        return f"{local:%a} {clock}"
    return f"{local:%Y-%m-%d} {clock}"


def saving_text(advice: StartAdvice) -> str:
    """Write a saving with its range: ``47% less CO2e (46% to 48%)``; what is given as known has none."""
    amount, blank, rest = advice.saved.partition(" ")
    return f"{amount} less {'cost' if advice.by == 'cost' else 'CO2e'}{blank}{rest}"


def intensity_text(value: float | None) -> str:
    """Write a carbon intensity in gCO2e/kWh."""
    return fmt.UNKNOWN if value is None else f"{fmt.significant(value)} g/kWh"


def _now_and_then(advice: StartAdvice) -> Table:
    """Return what a run emits, costs and meets when started now, and when and where it is advised, if that differs."""
    now = advice.now_utc
    duration = timedelta(seconds=advice.duration_s)
    rows = (
        ("CO2e", fmt.mass(advice.emissions_now_kgco2e), fmt.mass(advice.emissions_kgco2e)),
        ("cost", fmt.money(advice.cost_now_usd), fmt.money(advice.cost_usd)),
        (
            "intensity",
            intensity_text(advice.intensity_now_gco2e_per_kwh),
            intensity_text(advice.intensity_gco2e_per_kwh),
        ),
        ("ends", when_text(now + duration, now), when_text(advice.start_utc + duration, now)),
    )
    starts = [f"now, {when_text(now, now)}"]
    here = next((source.region for source in advice.sources if not source.problem), advice.region)
    start = f"at {when_text(advice.start_utc, now)}" if advice.wait_s else "now"
    if advice.region != here:
        starts.append(f"{start}, {advice.region}")
    elif advice.wait_s:
        starts.append(start)
    heads = columns({"": 1}, starts)
    known = [row[: len(heads)] for row in rows if row[1:] != (fmt.UNKNOWN, fmt.UNKNOWN)]
    return Table(heads, known)


def _waiting_text(advice: StartAdvice) -> str:
    now = advice.now_utc
    duration = timedelta(seconds=advice.duration_s)
    end = advice.start_utc + duration
    left_s = (advice.deadline_utc - end).total_seconds()
    spare = "at" if left_s < 60 else f"{fmt.brief_duration(left_s)} before"
    return f"It ends at {when_text(end, now)} instead of {when_text(now + duration, now)}, {spare} the deadline."


def region_cells(row: StartAdvice) -> Texts:
    """Return a region's row: its name, start, intensity, CO2e, cost and saving."""
    start = when_text(row.start_utc, row.now_utc) if row.wait_s else "now"
    if row.saving is None:
        start = fmt.UNKNOWN
    return (
        row.region or "",
        start,
        intensity_text(row.intensity_gco2e_per_kwh),
        fmt.mass(row.emissions_kgco2e),
        fmt.money(row.cost_usd),
        row.saved,
    )


def source_text(source: IntensityBasis, *, is_left_out: bool) -> str:
    """Return where the figures of a region are from, how old the newest is, and who failed before.

    Args:
        source: of a region.
        is_left_out: whether a region with a problem is left out among others; else the advice itself says why.
    """
    parts = [source.source or "no service answered"]
    if source.provider in _OFFLINE and not source.failures:
        parts.append("no network used")
    parts.append(source.basis)
    if source.age_s is not None:
        parts.append(f"newest figure {fmt.brief_duration(source.age_s)} old")
    parts.append(source.forecast)
    if source.yearly_gco2e_per_kwh is not None:
        parts.append(f"{intensity_text(source.yearly_gco2e_per_kwh)}, of a year")
    if source.problem and is_left_out:
        parts.append(f"left out: {source.problem}")
    if source.failures and not source.problem:
        parts.append(f"asked in vain: {'; '.join(source.failures)}")
    return " · ".join(filter(None, parts))


def _dated(when: datetime) -> str:
    """Write a time with its date and zone: a page is read on another day."""
    return f"{when.astimezone():%Y-%m-%d %H:%M %Z}"


def _curve(advice: StartAdvice) -> Blocks:
    """Return the chart of the hours: what is expected with its interval, the run's window, and the other regions."""
    known = _points(advice.hours)
    if not known:
        return [Paragraph("No hour is known.")]
    begin = (advice.start_utc - advice.hours[0].utc) / timedelta(hours=1)
    end = begin + advice.duration_s / SECONDS_PER_HOUR
    saved = ""
    if advice.saving is not None:
        saved = f", {saving_text(advice).partition(' (')[0]}"
    window = ShadedSpan(begin, end, f"the run{saved}")
    others = [Line(row.region or "", _points(row.hours)) for row in advice.alternatives]
    others = [line for line in others if line.points and line.name != advice.region][: _MOST_LINES - 1]
    step_h = next((step for step in (3, 6, 12, 24) if len(advice.hours) / step <= _MOST_TICKS), 48)
    clocks = ((float(x), hour.utc.astimezone()) for x, hour in enumerate(advice.hours))
    chart = LineChart(
        title="Carbon intensity as expected, with its 90% interval",
        x_label="local time",
        y_label="gCO2e/kWh",
        lines=[Line(advice.region or "expected", known), *others],
        band=[
            (x, hour.lower, hour.upper)
            for x, hour in enumerate(advice.hours)
            if hour.lower is not None and hour.upper is not None
        ],
        spans=[window],
        x_names=[
            (x, f"{at:%a %H:%M}" if at.hour < step_h else f"{at:%H:%M}") for x, at in clocks if at.hour % step_h == 0
        ],
    )
    blocks: Blocks = [ChartRow([chart])]
    n_unknown = sum(hour.expected is None for hour in advice.hours)
    if n_unknown:
        unknown = f"{n_unknown} of these {len(advice.hours)} hours are unknown"
        blocks.append(Note(f"{unknown}; a forecast reaches a week at most."))
    return blocks


def _points(hours: Sequence[IntensityHour]) -> Points:
    return [(x, hour.expected) for x, hour in enumerate(hours) if hour.expected is not None]


# -- Of several jobs --

Named = Sequence[tuple[str, "StartAdvice"]]


def jobs_document(found: Named) -> Document:
    """Return where and when each of several jobs starts, and what that saves together.

    Args:
        found: the advice of each job, with its name.
    """
    rows = [(name, *region_cells(advice)) for name, advice in found]
    without = [Paragraph(f"{name}: {advice.reason}") for name, advice in found if not advice.is_worth_waiting]
    return Document(
        title="When to start",
        footer=footer(),
        verdict=f"{_jobs_headline(found)}.",
        stamp="MOCK" if any(advice.is_mock for _, advice in found) else "",
        blocks=[
            Table(columns({"job": 1, "region": 1, "best start": 1}, _REGION_NUMBERS), rows, is_whole=True),
            *without,
        ],
    )


def _jobs_headline(found: Named) -> str:
    parts = []
    planned = [advice for _, advice in found if advice.saving is not None]
    for now_name, name in (("emissions_now_kgco2e", "emissions_kgco2e"), ("cost_now_usd", "cost_usd")):
        now, then = (sum_known(getattr(advice, amount) for advice in planned) for amount in (now_name, name))
        what, text = fmt.QUANTITIES[name]
        if then is not None:
            parts.append(f"{text(then)} of {what} instead of {text(now)}")
    said = ", ".join(parts) or fmt.UNKNOWN
    jobs = fmt.plural(len(found), "job")
    if len(planned) < len(found):
        jobs = f"{len(planned)} of {jobs}"
    return f"{jobs}, each at its best start, against all now: {said}"


def jobs_record(found: Named) -> dict[str, Any]:
    """Return the advices of several jobs as one object for JSON."""
    return {"says": _jobs_headline(found), "jobs": [{"name": name, **plan_record(advice)} for name, advice in found]}


# -- Plain values --


_NAMES = (
    "is_worth_waiting",
    "reason",
    "by",
    "now_utc",
    "start_utc",
    "wait_s",
    "deadline_utc",
    "duration_s",
    "energy_kwh",
    "region",
    "saving",
    "probability_of_saving",
    "emissions_kgco2e",
    "emissions_now_kgco2e",
    "cost_usd",
    "cost_now_usd",
    "price_usd_per_kwh",
    "price_now_usd_per_kwh",
    "intensity_gco2e_per_kwh",
    "intensity_now_gco2e_per_kwh",
    "is_mock",
    "hours",
)
_ESTIMATE = same(("point", "lower", "upper", "level"))
_NESTED: dict[str, Any] = {"saving": _ESTIMATE, "hours": same(("utc", "expected", "lower", "upper"))}
_REGION_NAMES = ("region", "intensity_gco2e_per_kwh", "emissions_kgco2e", "cost_usd", "saving", "hours", "start_utc")
_SOURCE_NAMES = ("region", "provider", "source", "basis", "is_mock", "newest_utc", "age_s", "forecast")
_LEFT_OUT = {"left_out": "problem"}
_ADVICE = same(_NAMES) | _NESTED
_REGION = same(_REGION_NAMES) | _NESTED | _LEFT_OUT
_SOURCE = same((*_SOURCE_NAMES, "yearly_gco2e_per_kwh", "failures")) | {"known_hours": "n_hours"} | _LEFT_OUT


def plan_record(advice: StartAdvice, about: str = "") -> dict[str, Any]:
    """Return all of an advice as one object for JSON; what is not known is null, not zero."""
    regions = []
    for row in advice.alternatives:
        region = values_at(row, _REGION)
        if row.problem:
            region["start_utc"] = None
        regions.append(region)
    return {
        "says": headline(advice),
        "about": about or None,
        **values_at(advice, _ADVICE),
        "regions": regions,
        "sources": [values_at(source, _SOURCE) for source in advice.sources],
        "notes": list(advice.notes),
    }
