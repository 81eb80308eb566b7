"""Measures named parts of a script within a run: their time, and their share of each reading of the meter.

Between two readings all time is given to the innermost open spans, and so is the energy (docs/decisions/0015). What
rows hold adds up to the meter's total as if there were no spans.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from greenlove_tracker.logs.spans import SpanFlag
from greenlove_tracker.logs.tables import SEPARATOR, SPANS, SpanRow
from greenlove_tracker.logs.writer import timestamp
from greenlove_tracker.records import COMPONENTS, UNKNOWN_ENERGY, Energy
from greenlove_tracker.secret_masking import mask_secrets
from greenlove_tracker.tracker.part import RunPart, RunParts
from greenlove_tracker.units import gco2e_from_kwh

_LEAST_READ_S = 0.1  # CodeCarbon takes no sample sooner than 50 ms behind the last
_READING_SHARE = 0.01  # of the time may be spent on readings that spans ask for
# A row of a path is written once it holds so much time, or this share of the run's: kill -9 loses no more.
_ENDED_ROW_S, _OPEN_ROW_S, _ROW_SHARE = 1.0, 60.0, 0.01
_MAX_PATHS = 1000
_OTHERS = "(others)"  # stands for the names beyond
_MOST_BY_TIME = 0.1
_LONGEST_NAME = 200
_MOSTLY = 0.9  # of a reading's time: what else is in it changes little


@dataclass(slots=True, eq=False)
class OpenSpan:
    """A span that goes on.

    Attributes:
        path: the names of the spans that it lies in, and its own last.
        parent: the span that it lies in.
        counted_from_s: what lies before is in a row.
    """

    path: tuple[str, ...]
    parent: OpenSpan | None
    counted_from_s: float


@dataclass(slots=True)
class _PathSums:
    """The sums added to a path since its last row; those that are new, since the meter was last read."""

    started_s: float
    started_utc_s: float
    calls: int = 0
    failed: int = 0
    duration_s: float = 0.0
    own_s: float = 0.0
    energy: Energy | None = None  # of ``own_s``; None before a reading
    by_time_kwh: float = 0.0
    new_s: float = 0.0
    new_share_s: float = 0.0  # the time divided by the spans open at once

    def add(self, energy: Energy, interval_s: float) -> None:
        """Add the share of a reading that is of what is new."""
        share = min(1.0, self.new_share_s / interval_s) if interval_s > 0 else 0.0
        shares: dict[str, Any] = {
            f"{c}_kwh": read_kwh * share for c in COMPONENTS if (read_kwh := energy.component_kwh(c)) is not None
        }
        part = replace(energy, **shares)
        self.energy = part if self.energy is None else self.energy + part
        self.by_time_kwh += (part.total_kwh or 0.0) if share < _MOSTLY else 0.0
        self.own_s += self.new_s
        self.new_s = self.new_share_s = 0.0


class SpanRecorder(RunPart):
    """The spans of one run; who begins and ends them holds the run's lock.

    Args:
        run: that it is a part of.
    """

    def __init__(self, run: RunParts) -> None:
        super().__init__(run)
        self._clock = run.state.clock
        self._open: list[OpenSpan] = []
        self._sums: dict[tuple[str, ...], _PathSums] = {}
        self._paths: set[tuple[str, ...]] = set()
        self._counted_to_s = self._clock.perf_s()
        self._wait_s = _LEAST_READ_S  # between two readings
        self._is_over = False

    def begin(self, name: str, within: OpenSpan | None) -> OpenSpan | None:
        """Begin a span; None where it lies within one of its name, whose time has it already.

        Args:
            name: of it, without ``SEPARATOR``.
            within: the span that it lies in.
        """
        if not self._paths:
            self._recorder.tell_readings(self._take_reading)
        with self._counted() as now_s:
            while within is not None and within not in self._open:  # it ended before, or with another run
                within = within.parent
            outer = () if within is None else within.path
            if name in outer or self._is_over:
                return None
            path = (*outer, name)
            if path not in self._paths and len(self._paths) >= _MAX_PATHS:
                path = path if name == _OTHERS else (*outer[:1], _OTHERS)
            self._paths.add(path)
        span = OpenSpan(path, within, now_s)
        self._sums_of(path)
        self._open.append(span)
        return span

    def end(self, span: OpenSpan, *, has_failed: bool = False) -> None:
        """End a span; one that the end of the run ended is left as it was written."""
        if span not in self._open:
            return
        with self._counted() as now_s:
            self._open.remove(span)
            sums = self._sums_of(span.path)
            sums.calls += 1
            sums.failed += has_failed
            sums.duration_s += max(0.0, now_s - span.counted_from_s)

    @contextmanager
    def _counted(self) -> Iterator[float]:
        """Give what lies before to the spans that were open; then read the meter where that is long enough ago."""
        now_s, recorder = self._clock.perf_s(), self._recorder
        self._count_to(now_s)
        yield now_s
        if now_s - recorder.read_at_s >= self._wait_s and not self._is_over:
            recorder.read_within_row()
            took_s = self._clock.perf_s() - now_s
            self._wait_s = max(_LEAST_READ_S, recorder.resolution_s, took_s / _READING_SHARE)

    def tick(self) -> None:
        """Write the rows that are due."""
        with self._state.lock:
            now_s = self._clock.perf_s()
            if not self._is_over and any(self._is_due(sums, now_s) for sums in self._sums.values()):
                self._recorder.read_within_row()

    def ending(self) -> None:
        """Write all that is left; spans that are open still are unfinished. The last reading has been taken."""
        self._is_over = True
        unfinished = {span.path for span in self._open}
        for path, sums in list(self._sums.items()):
            if sums.new_s and sums.energy is None:  # else it lies behind the run's last reading
                sums.add(UNKNOWN_ENERGY, 0.0)
            self._write(path, self._counted_to_s, is_unfinished=path in unfinished)
        self._open.clear()

    def _sums_of(self, path: tuple[str, ...]) -> _PathSums:
        if path not in self._sums:
            self._sums[path] = _PathSums(self._counted_to_s, self._clock.utc_s())
        return self._sums[path]

    def _count_to(self, now_s: float) -> None:
        """Give the time that has passed to the innermost spans."""
        passed_s = now_s - max(self._counted_to_s, self._recorder.boundary[0])
        self._counted_to_s = now_s
        outer = {id(span.parent) for span in self._open}
        innermost = [span for span in self._open if id(span) not in outer] if passed_s > 0 else []
        for span in innermost:
            sums = self._sums_of(span.path)
            sums.new_s += passed_s
            sums.new_share_s += passed_s / len(innermost)

    def _take_reading(self, now_s: float, interval_s: float, energy: Energy) -> None:
        """Share a reading of the meter among the spans, and write the rows that are due."""
        self._count_to(now_s)
        for path, sums in list(self._sums.items()):
            if sums.new_s and sums.energy is not None and sums.energy.is_known != energy.is_known:
                new_s, share_s = sums.new_s, sums.new_share_s  # a row is wholly metered or not at all
                self._write(path, now_s - new_s)
                sums = self._sums_of(path)
                sums.new_s, sums.new_share_s = new_s, share_s
            if sums.new_s:
                sums.add(energy, interval_s)
            if self._is_due(sums, now_s):
                self._write(path, now_s)

    def _is_due(self, sums: _PathSums, now_s: float) -> bool:
        least_s = _ENDED_ROW_S if sums.calls else _OPEN_ROW_S
        return now_s - sums.started_s >= max(least_s, _ROW_SHARE * self._state.elapsed_s)

    def _write(self, path: tuple[str, ...], now_s: float, *, is_unfinished: bool = False) -> None:
        """Write what was added to a path, of spans that are open still too; nothing where that is nothing."""
        sums = self._sums.pop(path)
        for span in self._open:
            if span.path == path:
                sums.duration_s += max(0.0, now_s - span.counted_from_s)
                span.counted_from_s = max(now_s, span.counted_from_s)
                self._sums_of(path)  # which is due in its turn
        if not (sums.calls or sums.own_s or sums.duration_s):
            return
        energy = sums.energy or UNKNOWN_ENERGY
        energy_kwh, grams = energy.total_kwh, None
        flags = {SpanFlag.UNFINISHED} if is_unfinished else set()
        if energy_kwh is None and sums.own_s:
            flags.add(SpanFlag.UNMETERED)
        elif energy_kwh and sums.by_time_kwh > _MOST_BY_TIME * energy_kwh:
            flags.add(SpanFlag.BY_TIME)
        if energy_kwh is not None:
            grams = gco2e_from_kwh(energy_kwh, self._recorder.grams_per_kwh(sums.started_utc_s, self._clock.utc_s()))
        started_at, own_s = timestamp(sums.started_utc_s), sums.own_s
        row = SpanRow(
            path, sums.calls, sums.failed, started_at, sums.duration_s, own_s, energy, grams, frozenset(flags)
        )
        self._writer.write(SPANS, row)


def span_name(text: str) -> str:
    """Return a name as it may stand in a path and in the log: on one line, its secrets masked."""
    words = mask_secrets(text.replace("\x00", "")).split()
    return " ".join("›" if word == SEPARATOR.strip() else word for word in words)[:_LONGEST_NAME].rstrip()
