"""``greenlove run --start``: when a run begins, and the wait until then."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from greenlove_tracker.cli.processes import become, check_command, nothing_started_yet
from greenlove_tracker.config import load_settings
from greenlove_tracker.errors import UsageError
from greenlove_tracker.tracker.metadata import deadline_after_wait

_BEST, _NOW = "best", "now"


@dataclass(frozen=True, slots=True)
class StartOptions:
    """The options that say when a run begins.

    Attributes:
        start: ``best``, ``now`` or a time; None: now.
        deadline: when it must be done, in words.
        max_wait: a length of time.
        is_dry_run: nothing is run.
    """

    start: str | None
    deadline: str | None
    max_wait: str | None
    is_dry_run: bool


def hold_back(
    options: StartOptions,
    settings: dict[str, Any],
    words: Sequence[str],
    what: str,
    own_arguments: Sequence[str] | None,
) -> bool:
    """Wait until a run is to begin; return False where it is not to begin at all, after a dry run.

    After a wait that had to forecast, the process begins anew with its own words: the script finds nothing loaded that
    it would not find without the wait, such as a NumPy that took its number of threads already.

    Args:
        options: when it is to begin.
        settings: options of the command line; a deadline in words becomes one of them.
        words: what is run.
        what: ``script``, ``module`` or ``command``.
        own_arguments: of this process's Python; None where it is not ours alone.

    Raises:
        UsageError: for what cannot be meant.
    """
    known_deadline_utc = deadline_after_wait(os.environ)
    if options.deadline is not None:
        settings["deadline_utc"] = _deadline_utc(options.deadline, settings, known_deadline_utc)
    if options.start is None:
        if options.max_wait is not None or options.is_dry_run:
            raise UsageError("--max-wait and --dry-run say what --start does: give --start best, or a time")
        return True
    if known_deadline_utc is not None or (options.start == _NOW and not options.is_dry_run):
        return True
    if what == "command":
        check_command(words)
    elif what == "script" and not Path(words[0]).exists():
        raise UsageError(f"no such script: {words[0]}")
    from greenlove_tracker.scheduling.run_start import BestStart, TimedStart
    from greenlove_tracker.scheduling.waiting import checked_span_s

    merged = load_settings(settings)
    max_wait_s = None if options.max_wait is None else checked_span_s(options.max_wait, "max_wait")
    if options.start == _BEST:
        held: BestStart | TimedStart = BestStart.of(merged, max_wait_s)
    else:
        held = TimedStart.of(options.start, merged, max_wait_s)
    if options.is_dry_run:
        prefix = {"script": "", "module": "-m ", "command": ""}[what]
        click.echo(
            f"{held.plan_text()}\n\nA dry run: nothing is started. Without --dry-run this starts then: "
            f"{prefix}{shlex.join(words)}"
        )
        return False
    with nothing_started_yet(quiet=merged.verbose == 0):
        held.wait(quiet=merged.verbose == 0)
    if own_arguments is not None and "numpy" in sys.modules and os.name != "nt":
        become([sys.executable, *own_arguments])
    return True


def _deadline_utc(text: str, settings: Mapping[str, Any], known: str | None) -> str:
    if settings.get("deadline_utc") is not None:
        raise UsageError("--deadline and --deadline-utc: choose one")
    if known is not None:  # "tomorrow" was another day before the wait
        return known
    from greenlove_tracker.scheduling.times import parse_when

    try:
        when = parse_when(text, datetime.now(UTC))
    except UsageError as error:
        raise UsageError(f"--deadline: {error}") from error
    if when <= datetime.now(UTC):
        raise UsageError(f"--deadline {text!r} has passed")
    return when.isoformat()
