"""Prices of electricity by the hour: a week that repeats itself in local time, or a series of prices by time.

A week is a small table in the settings, ``base 0.20; peak 0.32 17-21; weekend 0.15 0-24``, or a CSV file with the
columns ``days,from,to,usd_per_kwh``; a series is a CSV file with the columns ``utc,usd_per_kwh``.
"""

from __future__ import annotations

import difflib
import math
import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from operator import itemgetter
from pathlib import Path
from zoneinfo import ZoneInfo, available_timezones

from greenlove_tracker.errors import UsageError
from greenlove_tracker.grid.live.intensity import checked_range
from greenlove_tracker.grid.time_series import TIME_COLUMN, TimedValue, read_csv, read_series

PRICE_COLUMN = "usd_per_kwh"
_WEEK_COLUMNS = ("days", "from", "to", PRICE_COLUMN)
# Beyond these it is another unit, USD/MWh or cents. The highest price of a market is 9 USD/kWh (Texas, February 2021);
# below zero are markets at noon in spring.
_MOST_USD_PER_KWH = 10.0

_DAY_MINUTES = 24 * 60
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAY_SETS = {
    **{name[:3]: (n,) for n, name in enumerate(_DAYS)},
    **{name: (n,) for n, name in enumerate(_DAYS)},
    **dict.fromkeys(("weekday", "weekdays"), (0, 1, 2, 3, 4)),
    **dict.fromkeys(("weekend", "weekends"), (5, 6)),
}
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)")
_CLOCK = r"(\d{1,2})(?::([0-5]\d))?"
_HOURS = re.compile(rf"{_CLOCK}-{_CLOCK}")
_ENTRY_EXAMPLE = "peak 0.32 weekdays 17-21"


class Tariff(ABC):
    """The price of a kWh, by time.

    Attributes:
        source: where the prices are from, for people.
    """

    source: str

    @abstractmethod
    def stretches(self, since: datetime, until: datetime) -> Iterator[TimedValue]:
        """Yield the prices from ``since`` to ``until``, without a gap between them; None where it is unknown.

        Raises:
            UsageError: where a time is not aware, or ``until`` is not after ``since``.
        """

    def usd_per_kwh(self, when_utc: datetime) -> float | None:
        """Return the price at an aware time; None where a series says nothing of it.

        Raises:
            UsageError: where the time is not aware.
        """
        return next(self.stretches(when_utc, when_utc + timedelta(microseconds=1))).value

    def mean_usd_per_kwh(self, since: datetime, until: datetime) -> float | None:
        """Return the mean price, weighted by time; None where any part of it is unknown.

        Raises:
            UsageError: where a time is not aware, or ``until`` is not after ``since``.
        """
        terms = []
        for stretch in self.stretches(since, until):
            if stretch.value is None:
                return None
            terms.append(stretch.value * (stretch.end_utc - stretch.start_utc).total_seconds())
        return math.fsum(terms) / (until - since).total_seconds()


@dataclass(frozen=True)
class PriceSeries(Tariff):
    """Prices by time, as an exchange publishes them.

    Attributes:
        known: the prices, by their start; what lies between them, before and after is unknown.
        source: the name of the file, for people.
    """

    known: tuple[TimedValue, ...]
    source: str

    def stretches(self, since: datetime, until: datetime) -> Iterator[TimedValue]:
        """Yield the prices from ``since`` to ``until``."""
        at, until = checked_range(since, until)
        first = bisect_right(self.known, at, key=lambda stretch: stretch.end_utc)
        for stretch in self.known[first:]:
            if stretch.start_utc >= until:
                break
            if at < stretch.start_utc:
                yield TimedValue(at, stretch.start_utc, None)
                at = stretch.start_utc
            end = min(stretch.end_utc, until)
            yield TimedValue(at, end, stretch.value)
            at = end
        if at < until:
            yield TimedValue(at, until, None)


@dataclass(frozen=True)
class WeeklyTariff(Tariff):
    """Prices that repeat themselves each week, by the clock of a time zone.

    Where the clock is put forward or back, the price is still that of the time that it shows.

    Attributes:
        changes: the minutes since Monday, 00:00 at which the price changes, with the price from then on; the first
            is 0.
        source: the table as it was given, for people.
        time_zone: of the clock; None: this machine's.
    """

    changes: tuple[tuple[int, float], ...]
    source: str
    time_zone: tzinfo | None = None

    def stretches(self, since: datetime, until: datetime) -> Iterator[TimedValue]:
        """Yield the prices from ``since`` to ``until``."""
        at, until = checked_range(since, until)
        while at < until:
            local = at.astimezone(self.time_zone)  # without a zone, that is the machine's
            minute = local.weekday() * _DAY_MINUTES + local.hour * 60 + local.minute
            n = bisect_right(self.changes, minute, key=itemgetter(0))
            next_minute = self.changes[n][0] if n < len(self.changes) else 7 * _DAY_MINUTES
            full_minute = at.replace(second=0, microsecond=0)
            end = full_minute + timedelta(minutes=min(next_minute - minute, _DAY_MINUTES))
            if end.astimezone(self.time_zone).utcoffset() != local.utcoffset():
                end = full_minute + timedelta(minutes=1)  # the clock is put forward or back before that
            yield TimedValue(at, min(until, end), self.changes[n - 1][1])
            at = end


def parse_tariff(text_or_path: str | Path, time_zone: str | tzinfo | None = None) -> Tariff:
    """Return the tariff that a table or a CSV file holds.

    A table has an entry for each price, separated by ``;`` or lines: a name of one's own, USD per kWh, and then days
    (``weekdays``, ``weekend``, ``mon``, ``mon-fri``) and hours (``17-21``, ``22-6``, ``7:30-9``), each none, one or
    several; days may stand before the price as well. Hours past midnight belong to the day on which they begin. Where
    several entries hold, the last of them counts. An entry ``zone Europe/Berlin`` says whose clock it is.

    Args:
        text_or_path: the table, or the name of a file that ends in ``.csv``. With the columns ``utc,usd_per_kwh`` it is
            a series of prices; with ``days,from,to,usd_per_kwh`` a table, an entry in each row.
        time_zone: whose clock a table means, such as ``Europe/Berlin``, if it does not say so; default: this machine's.

    Raises:
        UsageError: where a price, a day or a time cannot be read, or some hour of the week has no price.
    """
    zone = _zone(time_zone) if isinstance(time_zone, str) else time_zone
    if isinstance(text_or_path, Path) or text_or_path.strip().lower().endswith(".csv"):
        return _from_file(text_or_path if isinstance(text_or_path, Path) else Path(text_or_path.strip()), zone)
    entries = []
    for entry in filter(None, map(str.strip, re.split(r"[;\n]", text_or_path))):
        words = entry.split()
        if words[0].lower() == "zone" and len(words) == 2:
            zone = _zone(words[1])
        else:
            entries.append((f"tariff, {entry!r}", words))
    return WeeklyTariff(_changes(entries), f"given by the user: {' '.join(text_or_path.split())}", zone)


def _from_file(path: Path, zone: tzinfo | None) -> Tariff:
    columns, rows = read_csv(path)
    source = f"{path.name}, given by the user"
    if TIME_COLUMN in columns:
        return PriceSeries(read_series(path, PRICE_COLUMN, _is_price, "price in USD per kWh")[1], source)
    if not set(_WEEK_COLUMNS) <= set(columns):
        raise UsageError(
            f"{path} needs the columns {TIME_COLUMN},{PRICE_COLUMN} or {','.join(_WEEK_COLUMNS)}; it has "
            f"{', '.join(columns) or 'none'}"
        )
    entries = []
    for line, row in rows:
        days, start, end, price = ((row[column] or "").strip() for column in _WEEK_COLUMNS)
        entries.append((f"{path}, line {line}", [price, *days.split(), *([f"{start}-{end}"] if start or end else [])]))
    return WeeklyTariff(_changes(entries), source, zone)


def _changes(entries: Sequence[tuple[str, Sequence[str]]]) -> tuple[tuple[int, float], ...]:
    """Return the prices of a week, by the minute at which each begins; of entries for a minute the last one counts.

    Args:
        entries: where each stands, for people, and its words.
    """
    prices: list[float | None] = [None] * (7 * _DAY_MINUTES)
    for n, (where, words) in enumerate(entries):
        try:
            price, days, hours = _entry(words)
            if n and not days and not hours:
                raise UsageError("a price without days and hours stands first; else those before it never count")
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from error
        for day in days or range(7):
            for start, end in hours or [(0, _DAY_MINUTES)]:
                for minute in range(start, end if end > start else end + _DAY_MINUTES):
                    prices[(day * _DAY_MINUTES + minute) % len(prices)] = price
    if None in prices:
        day, minute = divmod(prices.index(None), _DAY_MINUTES)
        when = f"{_DAYS[day].title()}, {minute // 60:02d}:{minute % 60:02d}"
        raise UsageError(f"the tariff has no price for {when}: begin with one for all hours, such as base 0.20")
    found: list[tuple[int, float]] = []
    for minute, of_minute in enumerate(prices):
        if of_minute is not None and (not found or found[-1][1] != of_minute):
            found.append((minute, of_minute))
    return tuple(found)


def _entry(words: Sequence[str]) -> tuple[float, list[int], list[tuple[int, int]]]:
    """Return the price, the days and the hours of an entry, each empty for all."""
    price: float | None = None
    days: list[int] = []
    hours: list[tuple[int, int]] = []
    for word in words:
        if price is None and _NUMBER.fullmatch(word):
            price = float(word)
            if not _is_price(price):
                raise UsageError(f"{word!r} is no price in USD per kWh, such as 0.20")
        elif "-" in word and word[0].isdigit():
            hours.append(_minutes(word))
        elif word.lower().partition("-")[0] in _DAY_SETS:
            days += _days(word.lower())
        elif price is not None or _near(word):  # a misspelt day would be a name, and the price that of the whole week
            raise UsageError(f"{word!r} is neither days nor hours{_near(word)}; such as {_ENTRY_EXAMPLE}")
    if price is None:
        raise UsageError(f"a price in USD per kWh is needed, with a point, such as {_ENTRY_EXAMPLE}")
    return price, days, hours


def _is_price(value: float) -> bool:
    return math.isfinite(value) and abs(value) <= _MOST_USD_PER_KWH


def _minutes(hours: str) -> tuple[int, int]:
    """Return the minutes since midnight of ``17-21`` or ``7:30-9``."""
    match = _HOURS.fullmatch(hours)
    start, end = (int(match[n]) * 60 + int(match[n + 1] or 0) for n in (1, 3)) if match else (0, 0)
    if match is None or start >= _DAY_MINUTES or end > _DAY_MINUTES or start == end:
        raise UsageError(f"{hours!r} are no hours such as 17-21 or 22:30-6")
    return start, end


def _days(word: str) -> Sequence[int]:
    """Return the days, Monday being 0, of ``weekend``, ``sat`` or ``mon-fri``."""
    first, *rest = (_DAY_SETS.get(part, ()) for part in word.split("-"))
    if not rest:
        return first
    if len(first) != 1 or len(rest) != 1 or len(rest[0]) != 1:
        raise UsageError(f"{word!r} are no days such as weekdays, sat or mon-fri")
    return [(first[0] + n) % 7 for n in range((rest[0][0] - first[0]) % 7 + 1)]


def _near(word: str) -> str:
    near = difflib.get_close_matches(word.lower(), [name for name in _DAY_SETS if len(name) > 3], n=1, cutoff=0.85)
    return f"; did you mean {near[0]}?" if near else ""


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:  # ZoneInfoNotFoundError is a KeyError; a directory an OSError
        near = difflib.get_close_matches(name, available_timezones(), n=1)
        hint = f"; did you mean {near[0]}?" if near else ", such as Europe/Berlin"
        raise UsageError(f"no time zone is called {name!r}{hint}") from error
