"""Times and lengths of time as people write them: ``tomorrow 08:00``, ``monday 06:00``, ``+6h``, ``1h30m``.

A time without a zone is local. In the hour that the clocks skip in spring, it may be an hour off; where they go back,
the first of two such times is meant.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo

from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.units import SECONDS_PER_DAY, SECONDS_PER_HOUR

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MOST_SPAN_S = 1e7 * SECONDS_PER_HOUR  # a thousand years
SPAN_FORMS = "6h, 90m, 1h30m, 2d or 45s"
WHEN_FORMS = '"08:00", "tomorrow 08:00", "monday 06:00", "+6h" or 2026-11-23T08:00'

_NUMBER = r"\d{1,12}(?:\.\d{1,9})?"
_SPAN = re.compile(r"\s*".join(rf"(?:({_NUMBER})\s*{unit})?" for unit in ("d", "h", "m(?:in)?", "s", "ms")), re.ASCII)
_SPAN_UNITS_S = (SECONDS_PER_DAY, SECONDS_PER_HOUR, 60.0, 1.0, 1e-3)
_CLOCK = re.compile(r"(?:(?P<day>[a-z]+)\s+)?(?P<hour>\d{1,2}):(?P<minute>\d{2})", re.ASCII)


def parse_span_s(text: str) -> float:
    """Return the seconds of a length of time such as ``6h``, ``90m``, ``1h30m``, ``2d`` or ``45s``.

    What `greenlove_tracker.text.format.duration` writes is one, too: ``8 h 46 min``, ``1 d 5 h``, ``4.20 ms``.

    Raises:
        UsageError: for anything else; a number without a unit is none.
    """
    found = _SPAN.fullmatch(text.strip().lower())
    parts = found.groups() if found else ()
    if not any(parts):
        raise UsageError(f"{text!r} is no length of time with its unit: give {SPAN_FORMS}")
    span_s = sum(float(part) * unit_s for part, unit_s in zip(parts, _SPAN_UNITS_S, strict=True) if part)
    if span_s > _MOST_SPAN_S:
        raise UsageError(f"{text!r} is more than a thousand years, which cannot be meant: give {SPAN_FORMS}")
    return span_s


def parse_when(text: str, now: datetime, zone: tzinfo | None = None) -> datetime:
    """Return the time in UTC that a text names; one without a zone is local.

    ``08:00`` is the next one after ``now``, ``monday 06:00`` likewise; ``today 08:00`` may have passed. ``+6h`` is
    six hours after ``now``, whatever the clocks do in them.

    Args:
        text: the time.
        now: aware.
        zone: of local times; default: the machine's.

    Raises:
        UsageError: where it is no time.
    """
    stripped = text.strip()
    words = stripped.lower()
    if words == "now":
        return now.astimezone(UTC)
    if words.startswith("+"):
        return now.astimezone(UTC) + timedelta(seconds=parse_span_s(words[1:]))
    clock = _CLOCK.fullmatch(words)
    if clock:
        return _by_clock(text, clock, now, zone)
    try:
        when = datetime.fromisoformat(stripped)
        in_utc = (when if when.tzinfo else when.replace(tzinfo=zone)).astimezone(UTC)
    except (OverflowError, ValueError, OSError):  # of the years 1 and 9999, too
        raise _no_time(text) from None
    if not re.search(r"[T ]\d", stripped, re.IGNORECASE):  # a day alone: its beginning or its end?
        raise UsageError(f"{text!r} names no hour: give {stripped}T08:00")
    return in_utc


def _by_clock(text: str, clock: re.Match[str], now: datetime, zone: tzinfo | None) -> datetime:
    """Return the time that an hour of a day names, the day being a word or left out."""
    hour = int(clock["hour"])
    minute = int(clock["minute"])
    day = clock["day"]
    if hour > 23 or minute > 59:
        raise UsageError(f"{text!r} is no time of day: 00:00 to 23:59")
    today = now.astimezone(zone).replace(tzinfo=None, hour=hour, minute=minute, second=0, microsecond=0, fold=0)
    if day is None:
        days = [0, 1]
    elif day in ("today", "tomorrow"):
        days = [int(day == "tomorrow")]
    else:
        named = [n for n, name in enumerate(_DAYS) if day in (name, name[:3])]
        if not named:
            raise _no_time(text)
        ahead = (named[0] - today.weekday()) % 7
        days = [ahead, ahead + 7]
    times = [(today + timedelta(days=n)).replace(tzinfo=zone).astimezone(UTC) for n in days]
    return next((time for time in times if time > now), times[-1])


def _no_time(text: str) -> UsageError:
    return UsageError(f"{text!r} is no time: give {WHEN_FORMS}")
