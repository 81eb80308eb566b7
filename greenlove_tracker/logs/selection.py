"""Chooses runs by time, project, user, job and host, and cuts those that cross an end of the time at it.

A period begins with its first moment and ends before its last, in UTC. Of a run that crosses an end of it only what
lies within counts: whole rows, and of the row that lies across the end the share of its time. So adjacent periods add
up to the whole. The same holds for the days and months that runs are grouped by.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import pairwise
from typing import Any, TypedDict, Unpack

from greenlove_tracker.errors import LogError, UsageError
from greenlove_tracker.logs.run import Cut, Run
from greenlove_tracker.logs.schema import summary_of, summary_values
from greenlove_tracker.logs.totals import (
    TIMESTAMP_S,
    Ending,
    is_measured,
    mean_rates,
    mean_w,
    timed_stretches,
    total_duration_s,
    utc,
)
from greenlove_tracker.logs.writer import timestamp
from greenlove_tracker.pricing import Rates
from greenlove_tracker.records import COMPONENTS, Flag, Row
from greenlove_tracker.units import kwh_from_w_s

_NAMES = ("project", "user", "job", "host")
DAY, MONTH = "day", "month"
_MOST_PARTS = 3_660  # days; a run of ten years is a damaged log, whose rest is in the last
_MONTH = re.compile(r"(\d{4})-(\d{2})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Period:
    """A half-open stretch of time.

    Attributes:
        since: its first moment, UTC; None where it has no beginning.
        until: the first moment behind it; None where it has no end.
    """

    since: datetime | None = None
    until: datetime | None = None

    @classmethod
    def parse(cls, since: str | None, until: str | None) -> Period:
        """Return the period that two dates or times name; a month alone (``2026-11``), the whole of it.

        Raises:
            UsageError: where one is none, or the end is not behind the beginning.
        """
        if since is not None and until is None and _MONTH.fullmatch(since):
            month = _moment("since", since)
            return cls(month, _next(month, MONTH))
        begin = None if since is None else _moment("since", since)
        end = None if until is None else _moment("until", until)
        if begin is not None and end is not None and begin >= end:
            raise UsageError(
                f"{{argument}} must be after {{argument}}: {until} is not after {since}",
                argument=("until", "since"),
            )
        return cls(begin, end)

    @property
    def is_everything(self) -> bool:
        """True where it has neither beginning nor end."""
        return self.since is None and self.until is None

    @property
    def text(self) -> str:
        """The period in words: the month, the days or the times, in UTC."""
        since, until = self.since, self.until
        if since is None:
            return "all that was logged" if until is None else f"before {_written(until)} (UTC)"
        if until is None:
            return f"from {_written(since)} (UTC) on"
        if since == _next(since - timedelta(microseconds=1), MONTH) and until == _next(since, MONTH):
            return f"{since:%B %Y} (UTC)"
        return f"{_written(since)} to before {_written(until)} (UTC)"

    @property
    def bounds_s(self) -> tuple[float, float]:
        """Beginning and end in seconds since the Unix epoch, infinite where there is none."""
        return (
            -math.inf if self.since is None else self.since.timestamp(),
            math.inf if self.until is None else self.until.timestamp(),
        )


class Chosen(TypedDict, total=False):
    """The arguments that choose runs, of Python's functions and of the verbs alike.

    Attributes:
        since: only what was done from this UTC date (``2026-11-01``) or time on; a month alone (``2026-11``) is the
            whole of it where ``until`` is left out.
        until: only what was done before this UTC date or time. Of a run that crosses an end of the period what lies
            within counts, so that adjacent periods add up to the whole.
        project: only runs of this project, or of one of these.
        user: only runs of these users.
        job: only runs of these jobs, as ``by("job")`` or ``by("job_id")`` name them.
        host: only runs that these machines took part in.
        simulated: True: count simulated runs in; False: leave them out; default: leave them out, unless there is no
            other run.
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
    """The runs that count, and the time of them.

    Attributes:
        period: the time.
        names: of projects, users, jobs and hosts, any of which is chosen; all, where none is given.
        simulated: True where simulated runs count; None: where there is no other run.
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
        given: dict[str, Any] = {
            name: value for name, value in chosen.items() if name in _NAMES and (value or value == "")
        }
        names = {name: (one,) if isinstance(one, str) else tuple(one) for name, one in given.items()}
        period = Period.parse(chosen.get("since"), chosen.get("until"))
        return cls(period, names, chosen.get("simulated"))

    @property
    def is_everything(self) -> bool:
        """True where all runs count, with all of their time; maybe without the simulated ones."""
        return self.period.is_everything and not self.names

    @property
    def text(self) -> str:
        """The choice in words; empty where everything but the period was chosen."""
        return " · ".join(f"{name} {' or '.join(values)}" for name, values in self.names.items())

    def part(self, run: Run) -> Run | None:
        """Return what counts of a run: itself, a part of its time, or nothing.

        Raises:
            LogError: where it is not known when it began, and a period was asked for.
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
        return run if self.period.is_everything else part_of(run, *self.period.bounds_s)


def job_of(run: Run) -> str:
    """Return the scheduler's job; without one, the run of ``greenlove run`` that runs of a script's trackers are of."""
    if number := run.text("job_id"):
        return "/".join(filter(None, (run.text("cluster"), number, run.text("array_task_id"))))
    return run.text("part_of")


def job_id_of(run: Run) -> str:
    """Return the scheduler's number of a run's job as Slurm writes it: ``81``, of an array ``81_3``."""
    if not (number := run.text("job_id")):
        return ""
    array, task = run.text("array_job_id"), run.text("array_task_id")
    return f"{array}_{task}" if array and task else number


def calendar_parts(run: Run, unit: str, period: Period) -> Iterator[Run]:
    """Yield the parts of a run that lie in each day or month of a period.

    Args:
        run: the whole run.
        unit: ``day`` or ``month``.
        period: outside which nothing counts.

    Raises:
        LogError: where it is not known when the run began, and a period was asked for.
    """
    timeline = Timeline(run)
    try:
        began_s, ended_s = timeline.times_s
    except LogError:
        if not period.is_everything:
            raise
        yield run
        return
    since_s, until_s = period.bounds_s
    from_s, to_s = max(began_s, since_s), min(ended_s, until_s)
    bounds = [-math.inf, *_starts_between(from_s, to_s, unit), math.inf]
    for begin_s, end_s in pairwise(bounds):
        if (part := timeline.part(max(begin_s, since_s), min(end_s, until_s))) is not None:
            yield part


def _starts_between(from_utc_s: float, to_utc_s: float, unit: str) -> Iterator[float]:
    """Yield when days or months begin behind ``from_utc_s`` and before ``to_utc_s``."""
    at = datetime.fromtimestamp(from_utc_s, UTC)
    for _ in range(_MOST_PARTS):
        at = _next(at, unit)
        if at.timestamp() >= to_utc_s:
            return
        yield at.timestamp()


def _next(moment: datetime, unit: str) -> datetime:
    """Return when the next day or month begins."""
    day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    if unit == DAY:
        return day + timedelta(days=1)
    return (day.replace(day=1) + timedelta(days=32)).replace(day=1)


def _written(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}".removesuffix(":00").removesuffix(" 00:00")


def _moment(name: str, text: str) -> datetime:
    """Return a date, a time or the beginning of a month, in UTC.

    Raises:
        UsageError: where it is none.
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


# -- The part of a run that lies in a stretch of time --

# What was not metered counts at the mean power and the mean rates of the run, wherever it is cut. Each total of a part
# is a share of the run's, and the shares of adjacent parts come to 1: so they add up to the run, whatever they are.


def part_of(run: Run, from_utc_s: float, to_utc_s: float) -> Run | None:
    """Return a run as of a stretch of time: itself where it lies within, None where it lies outside.

    A part has the totals of its time, begins and ends with it, and is else the run.

    Args:
        run: the run.
        from_utc_s: the beginning, in seconds since the Unix epoch.
        to_utc_s: the end, which is not in it.

    Raises:
        LogError: where it is not known when the run began.
    """
    return Timeline(run).part(from_utc_s, to_utc_s)


class Timeline:
    """A run by time.

    Args:
        run: the whole run.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    @cached_property
    def times_s(self) -> tuple[float, float]:
        """Its beginning and end, in seconds since the Unix epoch; of a run that goes on, its last row's end.

        Raises:
            LogError: where it is not known when it began.
        """
        run, ended_at = self._run, self._run.summary.ended_at
        try:
            began_s, ended_s = utc(run.started_at).timestamp(), utc(ended_at or run.started_at).timestamp()
        except ValueError as error:
            raise LogError("left out: it is not known when it began") from error
        if run.summary.n_ranks > 1 or not ended_at:  # the first rank does not know when the others ended
            last = [row for rows in run.timed_streams for row in rows[-1:]]
            ended_s = max([ended_s, *(start_s + duration_s for start_s, duration_s, *_ in timed_stretches(last))])
        return began_s, max(began_s, ended_s)

    @cached_property
    def _stretches(self) -> Sequence[_Stretch]:
        """Those of ``_stretches_of``; without any, the run evenly."""
        metered = [s for s in self._run.timed_streams if not all(Flag.NO_METER in row.flags for row in s)]
        found = list(_stretches_of(metered, self._run.terms.rates))
        if any(amounts[0] > 0 for *_, amounts in found):
            return found
        began_s, ended_s = self.times_s
        return [(began_s, max(ended_s, began_s + TIMESTAMP_S), (1.0, *(0.0 for _ in _SUMS[1:])))]

    def part(self, from_utc_s: float, to_utc_s: float) -> Run | None:
        """Return what ``part_of`` returns."""
        (began_s, ended_s), run = self.times_s, self._run
        if began_s >= to_utc_s or (ended_s <= from_utc_s and began_s < from_utc_s):
            return None
        has_begin, has_end = began_s >= from_utc_s, ended_s <= to_utc_s
        if has_begin and has_end:
            return run
        from_s, to_s = -math.inf if has_begin else from_utc_s, math.inf if has_end else to_utc_s
        values = self.between(from_s, to_s)
        values["started_at"] = values["started_at"] if has_begin else timestamp(from_s)
        values["ended_at"] = values["ended_at"] if has_end else timestamp(to_s)
        is_split = any(
            start_s + TIMESTAMP_S < at_s < end_s - TIMESTAMP_S
            for start_s, end_s, _ in self._stretches
            for at_s in (from_s, to_s)
        )
        lines = {**run.lines, "started_at": (values["started_at"], "")}
        known = {"values": values, "summary": summary_of(values), "lines": lines, "calibration": run.calibration}
        return run.replace(cut=Cut(has_end, is_split), **known)

    def between(self, from_utc_s: float, to_utc_s: float = math.inf) -> dict[str, Any]:
        """Return the totals of a stretch of time, in seconds since the Unix epoch, as a flat row."""
        whole, sums, of_whole = self._run.values, self._sums(from_utc_s, to_utc_s), self._whole
        of_time = sums["time"] / of_whole["time"]
        share = {name: sums[name] / total if total > 0 else of_time for name, total in of_whole.items()}
        ending = Ending(whole["status"], whole["exit_code"], whole["ended_at"])
        counted = summary_values(self._run.added_up(ending, within_utc_s=(from_utc_s, to_utc_s)))
        values = {**whole, **{name: counted[name] for name in _COUNTED}}
        values |= {name: whole[name] * share[of] for name, of in _SHARED.items() if whole[name] is not None}
        if share["energy"] > 0:
            values["carbon_intensity_gco2e_per_kwh"] *= share["emissions"] / share["energy"]
        if whole["cost_usd"] is not None:
            is_of_time = whole["cost_basis"] == "machine"
            values["cost_usd"] = whole["cost_usd"] * share["time" if is_of_time else "energy"]
            if not is_of_time and of_whole["energy"] > 0:
                # beyond that share, what its energy cost more than on average: prices may be negative, and sum to zero
                dearer = sums["cost"] - of_whole["cost"] * share["energy"]
                values["cost_usd"] += dearer * (whole["energy_kwh"] or 0.0) / of_whole["energy"]
        return values

    @cached_property
    def _whole(self) -> Mapping[str, float]:
        return self._sums(-math.inf, math.inf)

    def _sums(self, from_utc_s: float, to_utc_s: float) -> Mapping[str, float]:
        found = [[0.0] * len(_SUMS)]
        for start_s, end_s, amounts in self._stretches:
            overlap_s = min(end_s, to_utc_s) - max(start_s, from_utc_s)
            if overlap_s > 0:
                found.append([amount * (overlap_s / (end_s - start_s)) for amount in amounts])
        return dict(zip(_SUMS, map(math.fsum, zip(*found, strict=True)), strict=True))


_Stretch = tuple[float, float, tuple[float, ...]]
_SUMS = ("time", *COMPONENTS, "measured", "estimate", "energy", "emissions", "cost")
_COUNTED = ("epochs_done", "steps", "batches", "samples", "tokens")  # of the rows that end in it
_SHARED = {  # totals, and the sum that they are shared out by
    **dict.fromkeys(("duration_s", "epochs_duration_s", "metered_s", "gpu_hours"), "time"),
    **{f"{component}_kwh": component for component in COMPONENTS},
    "measured_kwh": "measured",
    "unmetered_estimate_kwh": "estimate",
    **dict.fromkeys(("node_assumed_kwh", "energy_kwh"), "energy"),
    "emissions_kgco2e": "emissions",
}


def _stretches_of(streams: Sequence[Sequence[Row]], base: Rates) -> Iterator[_Stretch]:
    """Yield beginning and end of each gap and row, and what it adds to each of ``_SUMS``.

    A stream that metered nothing is taken at the mean power of the others, as in the totals of a run.
    """
    streams = sorted(streams, key=total_duration_s, reverse=True)  # the time of a run is that of the slowest
    means_w = [{c: w for c in COMPONENTS if (w := mean_w(rows, c)) is not None} for rows in streams]
    known_w = [math.fsum(of_one.values()) for of_one in means_w if of_one]
    of_others = {"": math.fsum(known_w) / len(known_w)} if known_w else {}
    mean = mean_rates(base, (row for rows in streams for row in rows))
    for n, (rows, of_stream) in enumerate(zip(streams, means_w, strict=True)):
        for start_s, duration_s, energy, row in timed_stretches(rows):
            if duration_s <= 0 and not energy.is_known:
                continue
            metered = {c: kwh for c in COMPONENTS if (kwh := energy.component_kwh(c)) is not None}
            missing_w = math.fsum(w for c, w in (of_stream or of_others).items() if c not in metered)
            metered_kwh, estimate_kwh = math.fsum(metered.values()), kwh_from_w_s(missing_w, duration_s)
            intensity = _first(row.carbon_intensity_gco2e_per_kwh, base.carbon_intensity)
            price = _first(row.electricity_price_usd_per_kwh, base.electricity_price)
            amounts = (
                duration_s if n == 0 else 0.0,
                *(metered.get(c, 0.0) for c in COMPONENTS),
                math.fsum(kwh for c, kwh in metered.items() if is_measured(energy.component_method(c))),
                estimate_kwh,
                metered_kwh + estimate_kwh,
                metered_kwh * intensity + estimate_kwh * _first(mean.carbon_intensity),
                metered_kwh * price + estimate_kwh * _first(mean.electricity_price),
            )
            yield start_s, start_s + max(duration_s, TIMESTAMP_S / 2), amounts


def _first(*rates: float | None) -> float:
    """Return the first rate that is known; 1 where none is, so that the energy counts."""
    return next((rate for rate in rates if rate is not None), 1.0)
