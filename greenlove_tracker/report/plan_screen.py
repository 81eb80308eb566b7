"""The advice on a start, on the terminal with the curve of the hours, and as plain values for JSON.

And in how many jobs a training that is longer than a job may be is done.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any

from greenlove_tracker import format as fmt
from greenlove_tracker.forecasting import Estimate
from greenlove_tracker.rendering import terminal
from greenlove_tracker.rendering.terminal import MARGIN, WIDTH, wrap
from greenlove_tracker.units import SECONDS_PER_DAY, SECONDS_PER_HOUR

if TYPE_CHECKING:
    from greenlove_tracker.scheduling.advice import IntensityHour, RegionAdvice, StartAdvice
    from greenlove_tracker.scheduling.intensity_series import IntensityBasis
    from greenlove_tracker.scheduling.job_chain import JobChain, TimeTaken

MOCK_WARNING = "MOCK  the intensities are invented, of no grid: for trying things out alone"
_OFFLINE = ("csv", "table", "mock")  # providers that ask no network
_LABEL = 11  # columns
_HOURS_SAID_H = 72  # beyond, a wait is told in days

# -- What the screen and the page say in the same words --


def when_text(when: datetime, now: datetime, zone: tzinfo | None = None) -> str:
    """Write a time by the local clock: ``21:00``, ``03:00 tomorrow``, ``Wed 06:00``, or with its date.

    Where the clocks go back, an hour is there twice, and its time in UTC stands beside it.

    Args:
        when: aware.
        now: aware.
        zone: of the clock; default: the machine's.
    """
    local = when.astimezone(zone)
    clock = f"{local:%H:%M}"
    shown = [(when + hours).astimezone(zone) for hours in (timedelta(hours=-1), timedelta(0), timedelta(hours=1))]
    if len({f"{moment:%d %H:%M}" for moment in shown}) < len(shown):
        clock += f" ({when.astimezone(UTC):%H:%M} UTC)"
    days = (local.date() - now.astimezone(zone).date()).days
    if days == 0:
        return clock
    if days == 1:
        return f"{clock} tomorrow"
    return f"{local:%a} {clock}" if 1 < days < 7 else f"{local:%Y-%m-%d} {clock}"


def span_text(seconds: float) -> str:
    """Write a length of time in words' company: ``40 min``, ``11 h``, ``4.2 d``."""
    if round(seconds / 60) < 60:
        return f"{round(seconds / 60)} min"
    hours = seconds / SECONDS_PER_HOUR
    if hours > _HOURS_SAID_H:
        return f"{seconds / SECONDS_PER_DAY:.1f} d"
    return f"{hours:.1f} h" if abs(hours - round(hours)) >= 0.05 and hours < 10 else f"{hours:.0f} h"


def quantity_of(advice: StartAdvice) -> str:
    """Return what the advice saves: CO2e or cost."""
    return "cost" if advice.by == "cost" else "CO2e"


def headline(advice: StartAdvice, zone: tzinfo | None = None) -> str:
    """Return the advice in one sentence: when and where to start, and what that saves; or why not to wait."""
    if not advice.is_worth_waiting or advice.saving is None:
        return advice.reason.removesuffix(".")
    start = "Start now"
    if advice.wait_s > 0:
        start = f"Start at {when_text(advice.start_utc, _now(advice), zone)} (in {span_text(advice.wait_s)})"
    elsewhere = len(advice.alternatives) > 1 and advice.region is not None
    return f"{start}{f' in {advice.region}' if elsewhere else ''}: {saving_text(advice.saving, quantity_of(advice))}"


def saving_text(saving: Estimate, quantity: str) -> str:
    """Write a saving with its interval: ``47% less CO2e (46% to 48%)``; a tariff is known, and has none."""
    if quantity == "cost" and saving.lower == saving.upper:
        return f"{saving.point:z.0%} less {quantity}"
    return f"{saving.point:z.0%} less {quantity} ({saving.lower:z.0%} to {saving.upper:z.0%})"


def intensity_text(value: float | None) -> str:
    """Write a carbon intensity in gCO2e/kWh."""
    return fmt.UNKNOWN if value is None else f"{fmt.significant(value)} g/kWh"


def figures(advice: StartAdvice, zone: tzinfo | None = None) -> list[tuple[str, str, str]]:
    """Return what a run emits, costs and meets when started now, and then: label, now, then.

    Where the start is now the third text is empty.
    """
    now = _now(advice)
    is_later = advice.wait_s > 0 or _is_elsewhere(advice)
    rows = [
        ("CO2e", fmt.mass(advice.emissions_now_kgco2e), fmt.mass(advice.emissions_kgco2e)),
        ("cost", fmt.money(advice.cost_now_usd), fmt.money(advice.cost_usd)),
        (
            "intensity",
            intensity_text(advice.intensity_now_gco2e_per_kwh),
            intensity_text(advice.intensity_gco2e_per_kwh),
        ),
    ]
    if advice.duration_s is not None:
        duration = timedelta(seconds=advice.duration_s)
        rows.append(("ends", when_text(now + duration, now, zone), when_text(advice.start_utc + duration, now, zone)))
    return [(label, here, there if is_later else "") for label, here, there in rows]


def start_title(advice: StartAdvice, zone: tzinfo | None = None) -> str:
    """Return the title of the figures of the start: ``at 03:00 tomorrow``; empty where it is now and here."""
    if advice.wait_s > 0:
        title = f"at {when_text(advice.start_utc, _now(advice), zone)}"
        return f"{title}, {advice.region}" if _is_elsewhere(advice) else title
    return f"now, {advice.region}" if _is_elsewhere(advice) else ""


def remarks(advice: StartAdvice, zone: tzinfo | None = None) -> list[tuple[str, str]]:
    """Return what else there is to know of the start, each with its label."""
    found = []
    now = _now(advice)
    if advice.wait_s > 0 and advice.duration_s is not None:
        found.append(("waiting", _waiting_text(advice, now, zone)))
    if advice.probability_of_saving is not None and (advice.wait_s > 0 or _is_elsewhere(advice)):
        found.append(("chance", f"of any saving at all: {fmt.chance(advice.probability_of_saving)}"))
    return found


def _waiting_text(advice: StartAdvice, now: datetime, zone: tzinfo | None) -> str:
    duration = timedelta(seconds=advice.duration_s or 0.0)
    end, end_now = advice.start_utc + duration, now + duration
    text = f"it ends at {when_text(end, now, zone)} instead of {when_text(end_now, now, zone)}"
    if advice.deadline_utc is not None:
        left_s = (advice.deadline_utc - end).total_seconds()
        text += ", at the deadline" if left_s < 60 else f", {span_text(left_s)} before the deadline"
    if advice.cost_usd is not None and advice.cost_now_usd is not None:
        more = advice.cost_usd - advice.cost_now_usd
        alike = abs(more) < 0.005 * max(advice.cost_now_usd, 1e-9)  # half a percent is not told
        text += "; electricity costs the same" if alike else f"; electricity costs {_signed(more)}"
    return text


def _signed(more_usd: float) -> str:
    return f"{fmt.money(abs(more_usd))} {'more' if more_usd > 0 else 'less'}"


def region_cells(row: RegionAdvice, advice: StartAdvice, zone: tzinfo | None = None) -> tuple[str, ...]:
    """Return a region's row: its name, start, intensity, CO2e, cost and saving."""
    start = fmt.UNKNOWN
    if row.start_utc is not None:
        is_now = row.start_utc <= _now(advice)
        start = "now" if is_now else when_text(row.start_utc, _now(advice), zone)
    saving = "" if row.problem or advice.by == "cost" else fmt.UNKNOWN
    if row.saving is not None:
        saving = f"{row.saving.point:z.0%} ({row.saving.lower:z.0%} to {row.saving.upper:z.0%})"
    return (
        row.region or "",
        start,
        intensity_text(row.intensity_gco2e_per_kwh),
        fmt.mass(row.emissions_kgco2e),
        fmt.money(row.cost_usd),
        saving,
    )


REGION_COLUMNS = ("region", "best start", "intensity", "CO2e", "cost", "saved against now")


def source_text(source: IntensityBasis, *, is_left_out: bool = True) -> str:
    """Return where the figures of a region are from, how old the newest is, and who failed before.

    Args:
        source: of a region.
        is_left_out: whether a region with a problem is left out among others; else the advice itself says why.
    """
    parts = [source.source or "no service answered"]
    if source.provider in _OFFLINE and not source.failures:
        parts.append("no network used")
    if source.basis:
        parts.append(source.basis)
    if source.age_s is not None:
        parts.append(f"newest figure {span_text(source.age_s)} old")
    if source.forecast:
        parts.append(source.forecast)
    if source.yearly_gco2e_per_kwh is not None:
        parts.append(f"{intensity_text(source.yearly_gco2e_per_kwh)}, of a year")
    if source.problem and is_left_out:
        parts.append(f"left out: {source.problem}")
    elif source.failures and not source.problem:
        parts.append(f"asked in vain: {'; '.join(source.failures)}")
    return " · ".join(parts)


def _now(advice: StartAdvice) -> datetime:
    return advice.now_utc or advice.start_utc - timedelta(seconds=advice.wait_s)


def _is_elsewhere(advice: StartAdvice) -> bool:
    """Return True where the run starts in another region than it would now."""
    here = next((s.region for s in advice.sources if not s.problem), advice.region)
    return advice.region != here


# -- The screen --


def plan_screen(advice: StartAdvice, about: str = "", zone: tzinfo | None = None) -> str:
    """Return the advice, what it saves and rests on, and the curve of the hours, within 100 columns.

    Args:
        advice: of ``best_start``.
        about: the run in words.
        zone: of the clock; default: the machine's.
    """
    lines = [*wrap(headline(advice, zone), "", MARGIN), ""]
    if advice.is_mock:
        lines += [*wrap(MOCK_WARNING, "! ", "  "), ""]
    if about:
        lines += _labelled("run", about)
    lines += _figure_lines(advice, zone)
    if said := remarks(advice, zone):
        lines.append("")
        for label, text in said:
            lines += _labelled(label, text)
    if len(advice.alternatives) > 1:
        rows = [REGION_COLUMNS, *(region_cells(row, advice, zone) for row in advice.alternatives)]
        lines += ["", *(f"{MARGIN}{line}" for line in terminal.table(rows, "<<>>>>"))]
    if advice.hours:
        lines += ["", *curve_lines(advice, zone)]
    lines.append("")
    for source in advice.sources:
        lines += _labelled(source.region or "source", source_text(source, is_left_out=bool(advice.hours)))
    for note in advice.notes:
        lines += _labelled("note", note)
    return "\n".join(lines)


def _labelled(label: str, text: str) -> list[str]:
    head = fmt.shortened(label, _LABEL - 1).ljust(_LABEL)
    return wrap(text, f"{MARGIN}{head}", MARGIN + " " * _LABEL, breaks_hyphens=False)


def _figure_lines(advice: StartAdvice, zone: tzinfo | None) -> list[str]:
    rows = figures(advice, zone)
    title = start_title(advice, zone)
    now = f"now, {when_text(_now(advice), _now(advice), zone)}"
    table = [("", now, title), *rows] if title else [("", now), *((label, here) for label, here, _ in rows)]
    widths = [_LABEL - 2]
    return [f"{MARGIN}{line}" for line in terminal.table(table, "<>>"[: len(table[0])], widths=widths, gap="  ")]


_ROWS = 8  # of the curve
_EIGHTHS = " ▁▂▃▄▅▆▇"
_SCALE = 6  # columns of the figures beside it
_MOST_COLUMNS = WIDTH - len(MARGIN) - _SCALE - 1
_NAME_EVERY = 4  # columns from one name of an hour to the next, at least
_STEPS_H = (1, 2, 3, 4, 6, 8, 12, 24)  # of names of hours


def curve_lines(advice: StartAdvice, zone: tzinfo | None = None) -> list[str]:
    """Draw the intensity of each hour until the deadline: full up to what is expected, and its 90% interval.

    A column is an hour, or several where there are too many.
    """
    hours_each = -(-len(advice.hours) // _MOST_COLUMNS)
    columns = [_mean_hour(advice.hours[i : i + hours_each]) for i in range(0, len(advice.hours), hours_each)]
    highest = max((c.upper or 0.0 for c in columns), default=0.0) or 1.0
    lines = []
    for row in range(_ROWS - 1, -1, -1):
        label = f"{highest:.0f}" if row == _ROWS - 1 else f"{highest / 2:.0f}" if row == _ROWS // 2 - 1 else ""
        cells = "".join(_cell(column, row, highest) for column in columns)
        lines.append(f"{MARGIN}{label:>{_SCALE - 1}} {cells}".rstrip())
    first = advice.hours[0].utc
    begin = int((advice.start_utc - first) / timedelta(hours=1)) // hours_each
    length = max(1, math.ceil((advice.duration_s or 0.0) / SECONDS_PER_HOUR / hours_each))
    mark = ("▲" + "━" * (length - 1))[: len(columns) - begin]
    lines.append(f"{MARGIN}{'':{_SCALE}}{' ' * begin}{mark}")
    lines += [f"{MARGIN}{'':{_SCALE}}{line}".rstrip() for line in _hour_names(columns, hours_each, zone)]
    key = f"{advice.region}: " if len(advice.alternatives) > 1 and advice.region else ""
    key += "▓ and █ expected, from █ to ░ the 90% interval, in g/kWh by local time; ▲ start"
    if any(column.expected is None for column in columns):
        key += "; ? unknown: no more than a week is forecast"
    lines += wrap(key, f"{MARGIN}{'':{_SCALE}}", f"{MARGIN}{'':{_SCALE}}")
    return lines


def _mean_hour(hours: Sequence[IntensityHour]) -> IntensityHour:
    """Return several hours as one; not known where any of them is not."""
    first = hours[0]
    if any(hour.expected is None for hour in hours):
        return first._replace(expected=None, lower=None, upper=None)
    return first._replace(
        expected=_mean([hour.expected for hour in hours]),
        lower=_mean([hour.lower for hour in hours]),
        upper=_mean([hour.upper for hour in hours]),
    )


def _mean(values: Sequence[float | None]) -> float:
    return math.fsum(value or 0.0 for value in values) / len(values)


def _cell(hour: IntensityHour, row: int, highest: float) -> str:
    if hour.expected is None or hour.lower is None or hour.upper is None:
        return "?" if row == 0 else " "
    expected, lower, upper = (value / highest * _ROWS - row for value in (hour.expected, hour.lower, hour.upper))
    if expected >= 1:
        return "█" if lower >= 0.5 else "▓"  # half of the cell
    if expected > 0 and round(expected * 8) > 0:
        return _EIGHTHS[min(7, round(expected * 8))]
    return "░" if upper >= 0.5 else " "


def _hour_names(columns: Sequence[IntensityHour], hours_each: int, zone: tzinfo | None) -> list[str]:
    """Return the local hours below the columns, and the days below these."""
    step_h = next(step for step in _STEPS_H if step >= min(24, _NAME_EVERY * hours_each - hours_each + 1))
    names, days, end, day_end = "", "", 0, 0
    for i, column in enumerate(columns):
        local = column.utc.astimezone(zone)
        into = local.hour % step_h
        if into < hours_each and i >= end:
            names = names.ljust(i) + f"{local:%H}"
            end = i + 3
        if (i == 0 or local.hour < hours_each) and i >= day_end:
            days = days.ljust(i) + f"{local:%a}"
            day_end = i + 4
    return [names, days]


# -- A chain of jobs --


def chain_screen(chain: JobChain, about: str = "", *, is_longest: bool = True) -> str:
    """Return how many jobs a training takes, why, and what to know of them, within 100 columns.

    Args:
        chain: of ``job_chain``.
        about: the training in words.
        is_longest: whether its time is the longest expected; False: a time as given.
    """
    longest = span_text(chain.training_s)
    how = f"at most {longest} with a probability of 99%" if is_longest else f"{longest} (no margin is added)"
    limit = span_text(chain.limit_s)
    said = "One job is enough" if chain.n_jobs == 1 else f"{chain.n_jobs} jobs, one after the other"
    lines = [*wrap(f"{said}: the training takes {how}, and a job may take {limit}", "", MARGIN), ""]
    if about:
        lines += _labelled("run", about)
    times = chain.times
    lines += _labelled(
        "each job",
        f"trains for {fmt.duration(chain.usable_s)}; the rest: restart {_taken(times.restart)}, replay of an epoch's "
        f"batches up to {_taken(times.replay)}; {fmt.duration(chain.notice_s)} before its end it gets a signal to save "
        f"(save {_taken(times.save)}), by Slurm up to a minute earlier",
    )
    lines += [line for text in chain_notes(chain) for line in _labelled("note", text)]
    return "\n".join(lines)


def chain_notes(chain: JobChain) -> list[str]:
    """Return what to know of a chain before it is submitted, in sentences."""
    notes = [
        "the training must go on from its checkpoints by itself, as with greenlove_tracker.Checkpointer; once it ends "
        "with exit code 0, the jobs after it end at once",
    ]
    if chain.n_jobs > 1:
        notes.append(
            f"two jobs in a row that fail stop the chain. A job that Slurm preempts is used up, as one of the "
            f"{chain.n_jobs}; submitted again, the chain goes on from the last checkpoint"
        )
    if chain.checkpoints is None:
        notes.append(
            "without --checkpoints DIR only exit codes tell failures: a training that saves nothing is not noticed"
        )
    if chain.is_launched:
        notes.append(
            f"{chain.command[0]} starts the training in processes of its own and hands SIGTERM on, not SIGUSR1: they "
            "then have 30 s to save. One task of srun for each rank has the whole time"
        )
    return notes


def _taken(time: TimeTaken) -> str:
    return f"{fmt.duration(time.seconds)} ({time.basis})"


def chain_record(chain: JobChain, about: str = "") -> dict[str, Any]:
    """Return all of a chain as one object for JSON."""
    parts = {"save": chain.times.save, "restart": chain.times.restart, "replay": chain.times.replay}
    return {
        "about": about or None,
        "jobs": chain.n_jobs,
        "limit_s": chain.limit_s,
        "training_s": chain.training_s,
        "usable_s": chain.usable_s,
        "notice_s": chain.notice_s,
        "signal": f"SIG{chain.signal}",
        "times": {name: {"seconds": part.seconds, "basis": part.basis} for name, part in parts.items()},
        "command": list(chain.command),
        "checkpoints": chain.checkpoints,
        "notes": chain_notes(chain),
        "script": chain.script(),
    }


# -- Plain values --


def plan_record(advice: StartAdvice, about: str = "") -> dict[str, Any]:
    """Return all of an advice as one object for JSON; what is not known is null, not zero."""
    return {
        "says": headline(advice),
        "about": about or None,
        "is_worth_waiting": advice.is_worth_waiting,
        "reason": advice.reason,
        "by": advice.by,
        "now_utc": _time(advice.now_utc),
        "start_utc": _time(advice.start_utc),
        "wait_s": advice.wait_s,
        "deadline_utc": _time(advice.deadline_utc),
        "duration_s": advice.duration_s,
        "energy_kwh": advice.energy_kwh,
        "region": advice.region or None,
        "saving": _estimate(advice.saving),
        "probability_of_saving": advice.probability_of_saving,
        "emissions_kgco2e": advice.emissions_kgco2e,
        "emissions_now_kgco2e": advice.emissions_now_kgco2e,
        "cost_usd": advice.cost_usd,
        "cost_now_usd": advice.cost_now_usd,
        "intensity_gco2e_per_kwh": advice.intensity_gco2e_per_kwh,
        "intensity_now_gco2e_per_kwh": advice.intensity_now_gco2e_per_kwh,
        "is_mock": advice.is_mock,
        "hours": [_hour(hour) for hour in advice.hours],
        "regions": [
            {
                "region": row.region or None,
                "start_utc": _time(row.start_utc),
                "intensity_gco2e_per_kwh": row.intensity_gco2e_per_kwh,
                "emissions_kgco2e": row.emissions_kgco2e,
                "cost_usd": row.cost_usd,
                "saving": _estimate(row.saving),
                "left_out": row.problem or None,
                "hours": [_hour(hour) for hour in row.hours],
            }
            for row in advice.alternatives
        ],
        "sources": [
            {
                "region": source.region or None,
                "provider": source.provider or None,
                "source": source.source or None,
                "basis": source.basis or None,
                "is_mock": source.is_mock,
                "known_hours": source.n_hours,
                "newest_utc": _time(source.newest_utc),
                "age_s": source.age_s,
                "forecast": source.forecast or None,
                "yearly_gco2e_per_kwh": source.yearly_gco2e_per_kwh,
                "failures": list(source.failures),
                "left_out": source.problem or None,
            }
            for source in advice.sources
        ],
        "notes": list(advice.notes),
    }


def _time(when: datetime | None) -> str | None:
    return None if when is None else when.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _estimate(estimate: Estimate | None) -> dict[str, float] | None:
    if estimate is None:
        return None
    return {"point": estimate.point, "lower": estimate.lower, "upper": estimate.upper, "level": estimate.level}


def _hour(hour: IntensityHour) -> dict[str, Any]:
    return {"utc": _time(hour.utc), "expected": hour.expected, "lower": hour.lower, "upper": hour.upper}
