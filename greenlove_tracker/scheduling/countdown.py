"""The display of a wait: a line that is redrawn on a terminal, else one line at each change."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Self

from greenlove_tracker import format as fmt
from greenlove_tracker.console import StatusLine, say
from greenlove_tracker.scheduling.wait_loop import (
    LONGEST_SLEEP_S,
    Outlook,
    Wait,
    WaitProgress,
    WaitReason,
    WaitResult,
)
from greenlove_tracker.units import SECONDS_PER_HOUR

_REDRAWN_EVERY_S = 1.0
_LEVELS = "▁▂▃▄▅▆▇█"
_MOST_CURVE_H = 48


class Countdown:
    """``with``: shows a wait on standard error.

    Args:
        quiet: show nothing.
        opening: a screen that stands above the line on a terminal, once something is known; empty: none.
    """

    def __init__(self, *, quiet: bool = False, opening: Callable[[], str] = str) -> None:
        self._is_quiet, self._opening = quiet, opening
        self._line = StatusLine()  # nothing else is printed while we wait
        self._shown: tuple[object, ...] = ()

    @property
    def longest_sleep_s(self) -> float:
        """The longest time in s between two displays of the wait."""
        return _REDRAWN_EVERY_S if self._line.is_seen and not self._is_quiet else LONGEST_SLEEP_S

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._line.clear()

    def show(self, progress: WaitProgress) -> None:
        """Show where the wait stands; beside the line that is redrawn, what changed stays on the screen."""
        outlook, known = progress.outlook, progress.known
        if self._is_quiet or outlook is None:
            return  # asked for the first time, and not answered yet
        # To the minute: the latest possible start, reckoned from two clocks, trembles.
        start_min = None if outlook.start_utc_s is None else round(outlook.start_utc_s / 60)
        now = (None if known is None else round(known.gco2e_per_kwh), start_min, outlook.problem)
        if now != self._shown:
            self._line.clear()
            screen = self._opening() if self._line.is_seen and not self._shown else ""
            say("\n\n".join(filter(None, (screen, change_text(progress, outlook, is_first=not self._shown)))))
            self._shown = now
        self._line.draw(status_text(progress, outlook))

    def hold(self, wait: Wait, *, deadline_utc: str | None = None) -> WaitResult:
        """Wait, say why it ended, and hand that over to the run that follows.

        Args:
            wait: that shows itself here.
            deadline_utc: of the run that this very process begins then; None: it is another's.
        """
        result = wait.run()
        self._line.clear()
        if not self._is_quiet:
            say(end_text(result))
        result.facts.hand_over(wait.utc_s(), deadline_utc=deadline_utc)
        return result


def change_text(progress: WaitProgress, outlook: Outlook, *, is_first: bool) -> str:
    """Return the line of a change, and of the beginning."""
    parts = [f"waiting {progress.goal}"] if is_first or outlook.start_utc_s is not None else []
    if outlook.start_utc_s is not None:
        parts.append(f"starting {fmt.clock_time(outlook.start_utc_s, progress.now_utc_s)}")
    if progress.known is not None:
        parts.append(f"now {progress.known}")
    if is_first and progress.max_wait_s is not None:
        latest_utc_s = progress.now_utc_s + progress.max_wait_s - progress.waited_s
        parts.append(f"at most until {fmt.clock_time(latest_utc_s, progress.now_utc_s)}")
    if outlook.problem:
        parts.append(f"asked in vain: {outlook.problem}")
    if is_first and outlook.curve:
        parts.append(f"expected by the hour: {curve_text(outlook, progress.now_utc_s)}")
    return f"greenlove: {'; '.join(parts)}"


def status_text(progress: WaitProgress, outlook: Outlook) -> str:
    """Return the line that is redrawn."""
    parts = []
    if outlook.start_utc_s is not None:
        left_s = max(0.0, outlook.start_utc_s - progress.now_utc_s)
        parts.append(f"starts in {fmt.duration(round(left_s))}")
    elif progress.max_wait_s is not None:
        parts.append(f"at most {fmt.duration(round(max(0.0, progress.max_wait_s - progress.waited_s)))} more")
    if progress.known is not None:
        parts.append(f"{progress.known.gco2e_per_kwh:.0f} gCO2e/kWh")
    if outlook.start_utc_s is None:
        parts.append(progress.goal)
    if outlook.curve:
        parts.append(curve_text(outlook, progress.now_utc_s))
    return f"waiting  {' · '.join(parts)}  Ctrl-C ends it"


def end_text(result: WaitResult) -> str:
    """Return the line of the end."""
    after = f" after {fmt.duration(round(result.waited_s))}" if result.waited_s >= 1 else ""
    is_said = result.reason in (WaitReason.BELOW_THRESHOLD, WaitReason.NO_PROVIDER)
    at_start = "" if is_said or result.at_start is None else f"; now {result.at_start}"
    return f"greenlove: starting{after}: {result.explanation}{at_start}"


def curve_text(outlook: Outlook, now_utc_s: float) -> str:
    """Return the expected intensities as a row of bars, one for each hour from now, that of the start in brackets."""
    passed_h = math.floor(now_utc_s / SECONDS_PER_HOUR) - outlook.curve_first_hour
    values = outlook.curve[max(0, passed_h) : max(0, passed_h) + _MOST_CURVE_H]
    start_h = None
    if outlook.start_utc_s is not None:
        start_h = math.floor(outlook.start_utc_s / SECONDS_PER_HOUR) - outlook.curve_first_hour - max(0, passed_h)
    return "".join(f"[{bar}]" if n == start_h else bar for n, bar in enumerate(bars(values)))


def bars(values: Sequence[float | None]) -> str:
    """Return a row of bars between the least and the greatest value; a gap where one is not known."""
    known = [value for value in values if value is not None]
    if not known:
        return ""
    least, span = min(known), max(known) - min(known)
    levels = [None if value is None else min(7, int((value - least) / (span or 1.0) * 8)) for value in values]
    return "".join(" " if level is None else _LEVELS[level] for level in levels)
