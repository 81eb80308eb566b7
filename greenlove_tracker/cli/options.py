"""The options of verbs: how one is declared, and those that several verbs have alike."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click
from click import FloatRange

from greenlove_tracker.vocabulary.errors import UsageError


def option(*words: str, **settings: Any) -> Callable[..., Any]:
    """Return an option of a verb.

    Args:
        words: its names, the last of them with what it takes, ``--since DATE``, and its help.
        settings: further ones, as of ``click.option``.
    """
    *names, text = words
    declared = [name.partition(" ") for name in names]
    takes = "".join(form for _, _, form in declared)
    return click.option(*(name for name, _, _ in declared), metavar=takes or None, help=text, **settings)


def flag(*words: str) -> Callable[..., Any]:
    """Return an option that takes nothing."""
    return option(*words, is_flag=True)


json_option = flag("--json", "as_json", "as JSON, on stdout")
csv_option = flag("--csv", "as_csv", "as CSV, on stdout")
verbose_option = flag("-v", "--verbose", "is_verbose", "all: the method and sources too")
page_option = option("-o", "--output FILE", "page", "also write to this .html, .pdf or .md")
log_dir_option = option("--log-dir DIR", "where to write logs; default greenlove_logs")
group_option = option("--group", "--project NAME", "project", "name to group runs by")
within_option = option("--within TIME", 'longest time, 48h, or when it must be done: "friday 18:00"')
country_option = option("--country", "where it runs: DE, Germany, US-CA, us-east-1; default: the world")


HOURS = FloatRange(min=0, min_open=True, max=1e7)  # a thousand years at most


def within_time(text: str, now: datetime | None = None) -> datetime:
    """Return the time in UTC that is ``48h`` from now, or ``friday 18:00``.

    Raises:
        UsageError: where it is neither, or has passed.
    """
    from greenlove_tracker.scheduling.times import SPAN_FORMS, WHEN_FORMS, parse_when

    now = now or datetime.now(UTC)
    is_span = re.match(r"[\d.\s]+[a-z]", text.strip().lower()) is not None
    try:
        when = parse_when(f"+{text.strip()}" if is_span else text, now)
    except UsageError as error:
        raise UsageError(
            f"--within is a length of time ({SPAN_FORMS}) or a time ({WHEN_FORMS}), not {text!r}"
        ) from error
    if when <= now:
        raise UsageError(f"--within {text!r} has passed")
    return when


def within_s(text: str) -> float:
    """Return the seconds from now that ``--within`` leaves."""
    now = datetime.now(UTC)
    return (within_time(text, now) - now).total_seconds()
