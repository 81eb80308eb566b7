"""Prices of electricity by the hour: a week that repeats itself in local time, or a series of prices by time.

A week is a small table in the settings, ``base 0.20; peak 0.32 17-21; weekend 0.15 0-24``; a series is a CSV file with
the columns ``utc,usd_per_kwh``.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

from greenlove_tracker.grid.live.intensity import checked_range
from greenlove_tracker.grid.time_series import TimedValue, read_series
from greenlove_tracker.vocabulary.errors import UsageError

PRICE_COLUMN = "usd_per_kwh"
# Beyond these it is another unit, USD/MWh or cents. The highest price of a market is 9 USD/kWh (Texas, February 2021);
# below zero are markets at noon in spring.
_MOST_USD_PER_KWH = 10.0

_MINUTE = timedelta(minutes=1)
_DAY_MINUTES = 24 * 60
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAY_SETS = {
    **{called: (n,) for n, name in enumerate(_DAYS) for called in (name, name[:3])},
    **dict.fromkeys(("weekday", "weekdays"), (0, 1, 2, 3, 4)),
    **dict.fromkeys(("weekend", "weekends"), (5, 6)),
}
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)")
_CLOCK = r"(\d{1,2})(?::([0-5]\d))?"
_HOURS = re.compile(rf"{_CLOCK}-{_CLOCK}")
_ENTRY_EXAMPLE = "peak 0.32 weekdays 17-21"


@dataclass(frozen=True)
class Tariff:
    """The price of a kWh, by time: of a week, or of a series.

    Where the clock is put forward or back, the price of a week is still that of the time that it shows.

    Attributes:
        source: where the prices are from, for people.
        week: the price of each minute since Monday, 00:00; empty of a series.
        time_zone: of the week's clock; None: this machine's.
        series: prices by their start; what lies between them, before and after is unknown.
    """

    source: str
    week: Sequence[float] = ()
    time_zone: tzinfo | None = None
    series: Sequence[TimedValue] = ()

    def usd_per_kwh(self, at: datetime) -> float | None:
        """Return the price at an aware time; None where a series says nothing of it."""
        if not self.week:
            n = bisect_right(self.series, at, key=lambda stretch: stretch.start_utc) - 1
            if n < 0:
                return None
            last = self.series[n]
            return last.value if at < last.end_utc else None
        local = at.astimezone(self.time_zone)  # without a zone, that is the machine's
        return self.week[local.weekday() * _DAY_MINUTES + local.hour * 60 + local.minute]

    def mean_usd_per_kwh(self, since: datetime, until: datetime) -> float | None:
        """Return the mean price, minute by minute; None where any part of it is unknown.

        Raises:
            UsageError: where a time is not aware, or ``until`` is not after ``since``.
        """
        at, until = checked_range(since, until)
        total_s = (until - at).total_seconds()
        terms = []
        while at < until:
            end = min(until, at.replace(second=0, microsecond=0) + _MINUTE)
            price = self.usd_per_kwh(at)
            if price is None:
                return None
            terms.append(price * (end - at).total_seconds())
            at = end
        return math.fsum(terms) / total_s


def parse_tariff(text_or_path: str | Path, time_zone: str | tzinfo | None = None) -> Tariff:
    """Return the tariff that a table or a CSV file holds.

    A table has an entry for each price, separated by ``;`` or lines: a name of one's own, USD per kWh, and then days
    (``weekdays``, ``weekend``, ``mon``, ``mon-fri``) and hours (``17-21``, ``22-6``, ``7:30-9``), each none, one or
    several; days may stand before the price as well. Hours past midnight belong to the day on which they begin. Where
    several entries hold, the last of them counts. An entry ``zone Europe/Berlin`` says whose clock it is.

    Args:
        text_or_path: the table, or the name of a file that ends in ``.csv``, with the columns ``utc,usd_per_kwh``.
        time_zone: whose clock a table means, such as ``Europe/Berlin``, if it does not say so; default: this machine's.

    Raises:
        UsageError: where a price, a day or a time cannot be read, or some hour of the week has no price.
    """
    text = str(text_or_path).strip()
    if text.lower().endswith(".csv"):
        series = read_series(Path(text), PRICE_COLUMN, _is_price, "price in USD per kWh")
        return Tariff(f"{Path(text).name}, given by the user", series=series)
    zone = _zone(time_zone) if isinstance(time_zone, str) else time_zone
    prices: list[float | None] = [None] * (7 * _DAY_MINUTES)
    for entry in filter(None, map(str.strip, re.split(r"[;\n]", text))):
        words = entry.split()
        try:
            if words[0].lower() == "zone" and len(words) == 2:
                zone = _zone(words[1])
            else:
                _set_prices(prices, words)
        except UsageError as error:
            raise UsageError(f"tariff, {entry!r}: {error}") from error
    if None in prices:
        day, minute = divmod(prices.index(None), _DAY_MINUTES)
        when = f"{_DAYS[day].title()}, {minute // 60:02d}:{minute % 60:02d}"
        raise UsageError(f"the tariff has no price for {when}: begin with one for all hours, such as base 0.20")
    week = tuple(price for price in prices if price is not None)
    return Tariff(f"given by the user: {' '.join(text.split())}", week, zone)


def _set_prices(prices: list[float | None], words: Sequence[str]) -> None:
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
        elif price is not None:
            raise UsageError(f"{word!r} is neither days nor hours; such as {_ENTRY_EXAMPLE}")
    if price is None:
        raise UsageError(f"a price in USD per kWh is needed, with a point, such as {_ENTRY_EXAMPLE}")
    if prices[0] is not None and not days and not hours:
        raise UsageError("a price without days and hours stands first; else those before it never count")
    for day in days or range(7):
        for start, end in hours or [(0, _DAY_MINUTES)]:
            for minute in range(start, end if end > start else end + _DAY_MINUTES):
                prices[(day * _DAY_MINUTES + minute) % len(prices)] = price


def _is_price(value: float) -> bool:
    return math.isfinite(value) and abs(value) <= _MOST_USD_PER_KWH


def _minutes(hours: str) -> tuple[int, int]:
    match = _HOURS.fullmatch(hours)
    if match:
        start, end = (int(match[n]) * 60 + int(match[n + 1] or 0) for n in (1, 3))
        if start < _DAY_MINUTES and end <= _DAY_MINUTES and start != end:
            return start, end
    raise UsageError(f"{hours!r} are no hours such as 17-21 or 22:30-6")


def _days(word: str) -> Sequence[int]:
    """Return the days, Monday being 0, of ``weekend``, ``sat`` or ``mon-fri``."""
    first, *rest = (_DAY_SETS.get(part, ()) for part in word.split("-"))
    if not rest:
        return first
    if len(first) != 1 or len(rest) != 1 or len(rest[0]) != 1:
        raise UsageError(f"{word!r} are no days such as weekdays, sat or mon-fri")
    return [(first[0] + n) % 7 for n in range((rest[0][0] - first[0]) % 7 + 1)]


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:  # ZoneInfoNotFoundError is a KeyError; a directory an OSError
        raise UsageError(f"no time zone is called {name!r}, such as Europe/Berlin") from error
