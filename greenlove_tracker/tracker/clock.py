"""The real clocks; tests pass their own."""

from __future__ import annotations

import time


class SystemClock:
    """``time.perf_counter`` for durations, UTC for timestamps."""

    def perf_s(self) -> float:
        """Seconds of a steady clock, unmoved by changes of the date."""
        return time.perf_counter()

    def utc_s(self) -> float:
        """Seconds since the Unix epoch."""
        return time.time()
