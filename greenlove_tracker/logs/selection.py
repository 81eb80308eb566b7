"""Chooses runs by time, project, user, job and host, and cuts runs that cross an end of the period.

A period begins with its first moment and ends before its last, in UTC. Of a run that crosses an end only what lies
within counts: whole rows, and a share of the row across the end, in proportion to time. So adjacent periods add up to
the whole; the same holds for the days and months that runs are grouped by.

Time without a meter counts at the mean power of the run, wherever it is cut.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import chain, pairwise
from typing import Any, TypedDict, Unpack

from greenlove_tracker.logs.run import Cut, Run
from greenlove_tracker.logs.schema import COMMAND_STREAM
from greenlove_tracker.logs.totals import TIMESTAMP_S, Rows, utc, utc_s
from greenlove_tracker.logs.writer import timestamp
from greenlove_tracker.vocabulary.errors import LogError, UsageError
from greenlove_tracker.vocabulary.records import (
    Counts,
    Flag,
    Row,
    RowKind,
    RunSummary,
    part_of_energy,
    sum_known,
    times,
)

_NAMES = ("project", "user", "job", "host")
DAY = "day"
MONTH = "month"
_MOST_PARTS = 3_660  # days; a run of ten years is a damaged log, whose rest is in the last
_MONTH = re.compile(r"(\d{4})-(\d{2})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Period:
    """A half-open period of time.

    Attributes:
        since: its first moment, UTC; None if it has no beginning.
        until: the first moment after it; None if it has no end.
    """

    since: datetime | None = None
    until: datetime | None = None

    @classmethod
    def parse(cls, since: str | None, until: str | None) -> Period:
        """Return the period that two dates or times name; a month alone (``2026-11``) is the whole month.

        Raises:
            UsageError: if one is no date, or the end is not after the beginning.
        """
        begin = None if since is None else _moment("since", since)
        end = None if until is None else _moment("until", until)
        if begin is not None and end is None and _MONTH.fullmatch(since or ""):
            end = _next(begin, MONTH)
        if begin is not None and end is not None and begin >= end:
            raise UsageError(
                f"{{argument}} must be after {{argument}}: {until} is not after {since}",
                argument=("until", "since"),
            )
        return cls(begin, end)

    @property
    def is_everything(self) -> bool:
        """True if it has neither beginning nor end."""
        return self.since is None and self.until is None

    @property
    def text(self) -> str:
        """The period in words: the month, the days or the times, in UTC."""
        since = self.since
        until = self.until
        if since is None:
            if until is None:
                return "all that was logged"
            return f"before {_written(until)} (UTC)"
        if until is None:
            return f"from {_written(since)} (UTC) on"
        if since == _next(since - timedelta(microseconds=1), MONTH) and until == _next(since, MONTH):
            return f"{since:%B %Y} (UTC)"
        return f"{_written(since)} to before {_written(until)} (UTC)"

    @property
    def bounds_s(self) -> tuple[float, float]:
        """Beginning and end in seconds since the Unix epoch; infinite if there is none."""
        return (
            -math.inf if self.since is None else self.since.timestamp(),
            math.inf if self.until is None else self.until.timestamp(),
        )


class Chosen(TypedDict, total=False):
    """The arguments that choose runs, of Python's functions and of the commands alike.

    Attributes:
        since: only what was done from this UTC date (``2026-11-01``) or time on; a month alone (``2026-11``) is the
            whole month if ``until`` is left out.
        until: only what was done before this UTC date or time. Of a run that crosses an end of the period what lies
            within counts, so that adjacent periods add up to the whole.
        project: only runs of this project, or of one of these.
        user: only runs of these users.
        job: only runs of these jobs, as ``by("job")`` or ``by("job_id")`` name them.
        host: only runs that these machines took part in.
        simulated: True counts simulated runs in, False leaves them out; by default they count only if there is no other
            run.
    """

    since: str | None
    until: str | None
    project: str | Sequence[str]
    user: str | Sequence[str]
    job: str | Sequence[str]
    host: str | Sequence[str]
    simulated: bool | None


@dataclass(frozen=True, slots=True)
class Selection:
    """The runs that count, and the period.

    Attributes:
        period: the period.
        names: projects, users, jobs and hosts, one of which must match; all runs match if none is given.
        simulated: True if simulated runs count; None if they count only without other runs.
    """

    period: Period = field(default_factory=Period)
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    simulated: bool | None = None

    @classmethod
    def of(cls, **chosen: Unpack[Chosen]) -> Selection:
        """Return what was chosen.

        Raises:
            UsageError: where a date is none.
        """
        given = dict[str, Any](chosen)
        names: dict[str, Sequence[str]] = {}
        for name in _NAMES:
            value = given.get(name)
            if isinstance(value, str):
                names[name] = (value,)
            elif value:
                names[name] = tuple(value)
        period = Period.parse(chosen.get("since"), chosen.get("until"))
        return cls(period, names, chosen.get("simulated"))

    @property
    def is_everything(self) -> bool:
        """True if all runs count with all of their time, simulated ones perhaps excepted."""
        return self.period.is_everything and not self.names

    @property
    def text(self) -> str:
        """The choice in words; empty if nothing but the period was chosen."""
        return " · ".join(f"{name} {' or '.join(values)}" for name, values in self.names.items())

    def part(self, run: Run) -> Run | None:
        """Return what counts of a run: itself, a part of its time, or nothing.

        Raises:
            LogError: if a period was asked for, and the beginning of the run is unknown.
        """
        if self.names:
            own = {
                "project": {run.text("project")},
                "user": {run.text("user")},
                "job": {job_of(run), job_id_of(run), run.text("job_id")},
                "host": run.hosts,
            }
            if any(own[name].isdisjoint(wanted) for name, wanted in self.names.items()):
                return None
        if self.period.is_everything:
            return run
        return part_of(run, *self.period.bounds_s)


def job_of(run: Run) -> str:
    """Return the scheduler's job; else the ``greenlove run`` that the runs of a script's trackers belong to."""
    if number := run.text("job_id"):
        return "/".join(filter(None, (run.text("cluster"), number, run.text("array_task_id"))))
    return run.text("part_of")


def job_id_of(run: Run) -> str:
    """Return the scheduler's number of a run's job as Slurm writes it: ``81``, or ``81_3`` in an array."""
    array = run.text("array_job_id")
    task = run.text("array_task_id")
    return f"{array}_{task}" if array and task else run.text("job_id")


def calendar_parts(run: Run, unit: str, period: Period) -> Iterator[Run]:
    """Yield the parts of a run in each day or month of a period; the run itself if its beginning is unknown.

    Args:
        run: the whole run.
        unit: ``day`` or ``month``.
        period: the period outside which nothing counts.
    """
    try:
        began_s, ended_s = _times_s(run)
    except LogError:
        yield run
        return
    since_s, until_s = period.bounds_s
    starts_s = _starts_between(max(began_s, since_s), min(ended_s, until_s), unit)
    yield from parts_of(run, [since_s, *starts_s, until_s])


def _starts_between(from_utc_s: float, to_utc_s: float, unit: str) -> Iterator[float]:
    """Yield the beginnings of days or months after ``from_utc_s`` and before ``to_utc_s``."""
    at = datetime.fromtimestamp(from_utc_s, UTC)
    for _ in range(_MOST_PARTS):
        at = _next(at, unit)
        if at.timestamp() >= to_utc_s:
            return
        yield at.timestamp()


def _next(moment: datetime, unit: str) -> datetime:
    """Return the beginning of the next day or month."""
    day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    if unit == DAY:
        return day + timedelta(days=1)
    return (day.replace(day=1) + timedelta(days=32)).replace(day=1)


def _written(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}".removesuffix(":00").removesuffix(" 00:00")


def _moment(name: str, text: str) -> datetime:
    """Return a date, a time or the beginning of a month, in UTC.

    Raises:
        UsageError: if it is none of these.
    """
    try:
        when = utc(f"{text}-01" if _MONTH.fullmatch(text) else text).astimezone(UTC)
        if not 1 < when.year < 9999:  # the month before and behind it exists, too
            raise ValueError(text)
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"{{argument}} must be a date such as 2026-11-01, a month such as 2026-11 or a time in ISO 8601, not "
            f"{text!r}",
            argument=name,
        ) from error
    return when


# -- The part of a run that lies in a stretch of time: a run of its rows --


def parts_of(run: Run, bounds_utc_s: Sequence[float]) -> Iterator[Run]:
    """Yield the part of a run in each interval between adjacent bounds, unless the run lies outside.

    A part has the rows of its time, and a share of a row across a bound; it begins and ends with the interval, and is
    otherwise the run. A row without a start time belongs to no part. The run itself is yielded if it lies within, and
    if no rows say when its time was spent: then it counts where it ended.

    Args:
        run: the run.
        bounds_utc_s: the bounds in seconds since the Unix epoch, in order.

    Raises:
        LogError: if the beginning of the run is unknown.
    """
    began_s, ended_s = _times_s(run)
    stretches = list(pairwise(bounds_utc_s))
    is_within = any(from_s <= began_s < to_s and ended_s <= to_s for from_s, to_s in stretches)
    if is_within:
        yield run
    if is_within or not any(began_s < to_s and (from_s <= began_s or from_s < ended_s) for from_s, to_s in stretches):
        return  # its rows are not read
    timed = _timed_streams(run)
    if not timed and any(from_s < ended_s <= to_s for from_s, to_s in stretches):
        yield run
    is_all = not run.command_rows
    counted = [one for stream in timed for one in timed[stream] if is_all or stream not in run.joined]
    last_s = max((end_s for _, _, end_s, _ in counted), default=ended_s)
    for from_s, to_s in stretches:
        # rows note their beginning to the millisecond: it may lie before the run's
        if began_s < to_s and any(_lies_in(one, from_s, to_s) for one in counted):
            yield _part(run, timed, -math.inf if from_s <= began_s else from_s, math.inf if last_s <= to_s else to_s)


def part_of(run: Run, from_utc_s: float, to_utc_s: float = math.inf) -> Run | None:
    """Return the part of a run in one interval, see ``parts_of``; None if it lies outside."""
    return next(parts_of(run, [from_utc_s, to_utc_s]), None)


_Timed = tuple[float, float, float, Row]  # a row behind the times at which its gap and itself begin, and it ends


def _timed(row: Row) -> _Timed | None:
    """Return a row with its times, in seconds since the Unix epoch; None if it does not say."""
    at_s = utc_s(row.started_at)
    if at_s is None:
        return None
    if row.kind in (RowKind.GAP, RowKind.TAIL):
        begin_s = at_s + row.gap_before_s
    else:
        begin_s = at_s
    return begin_s - row.gap_before_s, begin_s, begin_s + row.duration_s, row


def _lies_in(timed: _Timed, from_s: float, to_s: float) -> bool:
    """Return True if part of a row lies between two times; a row without duration, after the first."""
    start_s, _, end_s, _ = timed
    return (start_s < to_s and from_s < end_s) or from_s < end_s <= to_s


def _timed_streams(run: Run) -> Mapping[int | str, Sequence[_Timed]]:
    """Return the rows of each stream with their times; nothing if they do not cover the run.

    If the rows are not all that the run says it took, note that as a problem of the run.
    """
    if Flag.PREDICTED in run.summary.flags:
        return {}
    streams: dict[Any, Rows] = {COMMAND_STREAM: run.command_rows or (), **run.rows}
    timed = {stream: [one for row in rows if (one := _timed(row)) is not None] for stream, rows in streams.items()}
    if not any(timed.values()):
        return {}
    whole = run.metered_summary
    in_rows = whole if run.stated is None else run.added_up()
    if not math.isclose(in_rows.energy_kwh or in_rows.duration_s, whole.energy_kwh or whole.duration_s, rel_tol=1e-6):
        run.refuse(LogError("its rows are not all there: days, months and periods hold less than the run"))
    return timed


def _times_s(run: Run) -> tuple[float, float]:
    """Return beginning and end of a run, in seconds since the Unix epoch; its last row's end if it goes on."""
    began_s = utc_s(run.started_at)
    if began_s is None:
        raise LogError("left out: it is not known when it began")
    ended_s = utc_s(run.summary.ended_at)
    ends_s = [began_s, ended_s or began_s]
    if ended_s is None or run.summary.n_ranks > 1:  # the first rank does not know when the others ended
        last = [_timed(row) for rows in run.timed_streams for row in rows[-1:]]
        ends_s += [one[2] for one in last if one is not None]
    return began_s, max(ends_s)


def _part(run: Run, timed: Mapping[int | str, Sequence[_Timed]], from_s: float, to_s: float) -> Run:
    rows: dict[Any, Rows] = {
        stream: [_cut(one, from_s, to_s) for one in of_stream if _lies_in(one, from_s, to_s)]
        for stream, of_stream in timed.items()
    }
    splits = any(
        start_s + TIMESTAMP_S < at_s < end_s - TIMESTAMP_S
        for start_s, _, end_s, _ in chain.from_iterable(timed.values())
        for at_s in (from_s, to_s)
    )
    started_at = run.started_at if from_s == -math.inf else timestamp(from_s)
    ending = run.ending if to_s == math.inf else replace(run.ending, ended_at=timestamp(to_s))
    part = run.replace(
        lines={**run.lines, "started_at": (started_at, "")},
        command_rows=rows.pop(COMMAND_STREAM) or None,
        rows=rows,
        metric_values=run.metric_values,
        terms=replace(run.terms, started_at=started_at),
        stated=None,
        ending=ending,
        cut=Cut(True, to_s == math.inf, splits),
    )
    return part.replace(metered_summary=_estimated(part.added_up(), run.metered_summary))


def _estimated(part: RunSummary, whole: RunSummary) -> RunSummary:
    """Return the totals of a part, with unmetered time counted as in the whole run, so that parts add up to it."""
    if whole.measured_kwh is None:
        part = replace(part, measured_kwh=None)
    unmetered_s = whole.duration_s - whole.metered_s
    metered_kwh = whole.energy.total_kwh
    if not metered_kwh or not whole.unmetered_estimate_kwh or unmetered_s <= 0:
        return part
    estimate_kwh = whole.unmetered_estimate_kwh * (part.duration_s - part.metered_s) / unmetered_s
    more = (estimate_kwh - (part.unmetered_estimate_kwh or 0.0)) / (metered_kwh + whole.unmetered_estimate_kwh)
    names = ["node_assumed_kwh", "energy_kwh", "emissions_kgco2e"]
    if whole.cost_basis != "machine":
        names.append("cost_usd")
    changed: dict[str, Any] = {
        name: sum_known((getattr(part, name), times(getattr(whole, name), more))) for name in names
    }
    return replace(part, unmetered_estimate_kwh=estimate_kwh, **changed)


def _cut(timed: _Timed, from_s: float, to_s: float) -> Row:
    """Return the part of a row between two times; its counts, and the end of its epoch, belong to its end."""
    gap_s, begin_s, end_s, row = timed
    if from_s <= gap_s and end_s <= to_s:
        return row
    of_gap = _share(gap_s, begin_s, from_s, to_s)
    of_row = _share(begin_s, end_s, from_s, to_s)
    part = replace(
        row,
        started_at=timestamp(from_s) if begin_s < from_s < end_s else row.started_at,
        gap_before_s=row.gap_before_s * of_gap,
        gap_before=part_of_energy(row.gap_before, of_gap),
        duration_s=row.duration_s * of_row,
        energy=part_of_energy(row.energy, of_row),
        emissions_gco2e=times(row.emissions_gco2e, of_row),
    )
    if end_s <= to_s:
        return part
    return replace(part, kind=RowKind.SEGMENT, counts=Counts())


def _share(start_s: float, end_s: float, from_s: float, to_s: float) -> float:
    """Return the share of a time that lies between two others; for no duration, all if it lies after the first."""
    if end_s <= start_s:
        return float(from_s < end_s <= to_s)
    return max(0.0, min(end_s, to_s) - max(start_s, from_s)) / (end_s - start_s)
