"""The advice on a start, as a document and as plain values for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo
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
from greenlove_tracker.vocabulary.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from greenlove_tracker.scheduling.intensity_series import IntensityBasis
    from greenlove_tracker.scheduling.start_windows import IntensityHour, StartAdvice

Zone = tzinfo | None  # None: that of the machine
_MOCK = "The intensities are invented, of no grid: for trying things out alone."
_OFFLINE = ("csv", "table", "mock")  # providers that ask no network
_MOST_LINES = 5  # regions of a chart; the table holds them all
_OLD_S = 6 * SECONDS_PER_HOUR  # services are 1 to 3 hours late
_REGION_NUMBERS = ("intensity", "CO2e", "cost", "saved against now")
_MOST_TICKS = 9  # of its hours


def plan_document(advice: StartAdvice, about: str = "", zone: Zone = None) -> Document:
    """Return when and where to start, and what that saves.

    Args:
        advice: of ``best_start``.
        about: the run in words.
        zone: of the clock; default: the machine's.
    """
    now = _now(advice)
    subtitle = [about]
    if advice.deadline_utc is not None:
        subtitle.append(f"by {_dated(advice.deadline_utc, zone)}")
    subtitle.append(f"given {_dated(now, zone)}")
    start = start_title(advice, zone)
    heads = columns({"": 1}, filter(None, (f"now, {when_text(now, now, zone)}", start)))
    now_and_then = Table(heads, [row[: len(heads)] for row in figures(advice, zone)])
    is_choice = len(advice.alternatives) > 1
    blocks: Blocks = [now_and_then]
    if is_choice:
        regions = [region_cells(row, advice, zone) for row in advice.alternatives]
        blocks = [Table(columns({"region": 1, "best start": 1}, _REGION_NUMBERS), regions)]
    if advice.hours:
        blocks += _curve(advice, zone)
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
    if advice.wait_s > 0 and advice.duration_s is not None:
        blocks.append(Paragraph(_waiting_text(advice, now, zone)))
    if is_choice:
        blocks += [Heading("Now and then"), now_and_then]
    sources = [(one.region or "here", source_text(one, is_left_out=bool(advice.hours))) for one in advice.sources]
    blocks += [Heading("How we know"), Table(columns({"region": 1, "source": 5}), sources)]
    chance = advice.probability_of_saving
    if start and chance is not None:
        blocks.append(Paragraph(f"Any saving at all is {fmt.chance(chance)} likely."))
    blocks += [Note(f"{note}.") for note in advice.notes]
    return Document(
        title="When to start",
        subtitle=" · ".join(filter(None, subtitle)),
        footer=footer(),
        verdict=f"{headline(advice, zone)}.",
        stamp=stamp,
        blocks=blocks,
    )


def headline(advice: StartAdvice, zone: Zone = None) -> str:
    """Return the advice in one sentence: when and where to start, and what that saves; or why not to wait."""
    reason = advice.reason.removesuffix(".")
    if advice.saving is None:
        return f"No advice: {reason}"
    if not advice.is_worth_waiting:
        return reason
    start = "Start now"
    if advice.wait_s > 0:
        start = f"Start at {when_text(advice.start_utc, _now(advice), zone)} (in {fmt.brief_duration(advice.wait_s)})"
    if len(advice.alternatives) > 1 and advice.region is not None:
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


def when_text(when: datetime, now: datetime, zone: Zone = None) -> str:
    """Write a time by the local clock: ``21:00``, ``03:00 tomorrow``, ``Wed 06:00``, or with its date.

    Args:
        when: aware.
        now: aware.
        zone: of the clock; default: the machine's.
    """
    local = when.astimezone(zone)
    clock = f"{local:%H:%M}"
    days = (local.date() - now.astimezone(zone).date()).days
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


def figures(advice: StartAdvice, zone: Zone) -> list[tuple[str, str, str]]:
    """Return what a run emits, costs and meets when started now, and when started as advised: label, now, then."""
    now = _now(advice)
    intensity_now = intensity_text(advice.intensity_now_gco2e_per_kwh)
    rows = [
        ("CO2e", fmt.mass(advice.emissions_now_kgco2e), fmt.mass(advice.emissions_kgco2e)),
        ("cost", fmt.money(advice.cost_now_usd), fmt.money(advice.cost_usd)),
        ("intensity", intensity_now, intensity_text(advice.intensity_gco2e_per_kwh)),
    ]
    if advice.duration_s is not None:
        duration = timedelta(seconds=advice.duration_s)
        rows.append(("ends", when_text(now + duration, now, zone), when_text(advice.start_utc + duration, now, zone)))
    return [row for row in rows if row[1:] != (fmt.UNKNOWN, fmt.UNKNOWN)]


def start_title(advice: StartAdvice, zone: Zone) -> str:
    """Return the title of the figures of the start: ``at 03:00 tomorrow``; empty where it is now and here."""
    title = ""
    if advice.wait_s > 0:
        title = f"at {when_text(advice.start_utc, _now(advice), zone)}"
    if _is_elsewhere(advice):
        return f"{title or 'now'}, {advice.region}"
    return title


def _waiting_text(advice: StartAdvice, now: datetime, zone: Zone) -> str:
    duration = timedelta(seconds=advice.duration_s or 0.0)
    end = advice.start_utc + duration
    text = f"It ends at {when_text(end, now, zone)} instead of {when_text(now + duration, now, zone)}"
    if advice.deadline_utc is not None:
        left_s = (advice.deadline_utc - end).total_seconds()
        spare = "at" if left_s < 60 else f"{fmt.brief_duration(left_s)} before"
        text += f", {spare} the deadline"
    return f"{text}."


def region_cells(row: StartAdvice, advice: StartAdvice, zone: Zone) -> Texts:
    """Return a region's row: its name, start, intensity, CO2e, cost and saving."""
    start = when_text(row.start_utc, _now(advice), zone)
    if row.problem:
        start = fmt.UNKNOWN
    elif row.start_utc <= _now(advice):
        start = "now"
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


def _now(advice: StartAdvice) -> datetime:
    return advice.now_utc or advice.start_utc - timedelta(seconds=advice.wait_s)


def _is_elsewhere(advice: StartAdvice) -> bool:
    """Return True where the run starts in another region than it would now."""
    here = next((s.region for s in advice.sources if not s.problem), advice.region)
    return advice.region != here


def _dated(when: datetime, zone: Zone) -> str:
    """Write a time with its date and zone: a page is read on another day."""
    return f"{when.astimezone(zone):%Y-%m-%d %H:%M %Z}"


def _curve(advice: StartAdvice, zone: Zone) -> Blocks:
    """Return the chart of the hours: what is expected with its interval, the run's window, and the other regions."""
    first = advice.hours[0].utc
    known = _points(advice.hours, first)
    if not known:
        return [Paragraph("No hour is known.")]
    begin = (advice.start_utc - first) / timedelta(hours=1)
    end = begin + (advice.duration_s or 0.0) / SECONDS_PER_HOUR
    saved = ""
    if advice.saving is not None:
        saved = f", {saving_text(advice).partition(' (')[0]}"
    window = ShadedSpan(begin, end, f"the run{saved}")
    others = [Line(row.region or "", _points(row.hours, first)) for row in advice.alternatives]
    others = [line for line in others if line.points and line.name != advice.region][: _MOST_LINES - 1]
    bounds = ((x, hour.lower, hour.upper) for x, hour in enumerate(advice.hours))
    step_h = next((step for step in (3, 6, 12, 24) if len(advice.hours) / step <= _MOST_TICKS), 48)
    clocks = ((float(x), hour.utc.astimezone(zone)) for x, hour in enumerate(advice.hours))
    chart = LineChart(
        title="Carbon intensity as expected, with its 90% interval",
        x_label="local time",
        y_label="gCO2e/kWh",
        lines=[Line(advice.region or "expected", known), *others],
        band=[(x, low, high) for x, low, high in bounds if low is not None and high is not None],
        spans=[window] if end > begin else [],
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


def _points(hours: Sequence[IntensityHour], first: datetime) -> Points:
    return [((hour.utc - first) / timedelta(hours=1), hour.expected) for hour in hours if hour.expected is not None]


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
