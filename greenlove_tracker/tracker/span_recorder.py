"""Measure named parts of a script within a run: their time, and their share of each reading of the meter.

Between two readings the innermost open spans get all time and energy (docs/decisions/0015). The rows of epochs are the
same as without spans.
"""

from __future__ import annotations

from dataclasses import dataclass

from greenlove_tracker.logs.tables import SEPARATOR, SPANS, SpanFlag, SpanRow
from greenlove_tracker.logs.writer import timestamp
from greenlove_tracker.settings.secret_masking import mask_secrets
from greenlove_tracker.tracker.part import RunPart, RunParts
from greenlove_tracker.vocabulary.records import UNKNOWN_ENERGY, Energy, part_of_energy, times

_LEAST_READ_S = 0.1  # CodeCarbon takes no sample sooner than 50 ms behind the last
_READING_SHARE = 0.01  # of the time may be spent on readings that spans ask for
# Rows are written so often, or each time this share of the run has passed.
_ROW_S = 1.0
_ROW_SHARE = 0.01
_MOST_BY_TIME = 0.1
_LONGEST_NAME = 200
_MOSTLY = 0.9  # of a reading's time: what else is in it changes little


SpanPath = tuple[str, ...]  # the names of the spans around a span, outermost first, and its own


@dataclass(slots=True, eq=False)
class OpenSpan:
    """A span that is open.

    Attributes:
        path: the names of the spans around it, outermost first, and its own.
        parent: the span around it.
        counted_from_s: the time before this is in a row already.
    """

    path: SpanPath
    parent: OpenSpan | None
    counted_from_s: float


@dataclass(slots=True)
class _PathSums:
    """The sums of a path since its last row, up to the last reading of the meter."""

    started_utc_s: float
    calls: int = 0
    failed: int = 0
    duration_s: float = 0.0
    own_s: float = 0.0
    energy: Energy = UNKNOWN_ENERGY  # of ``own_s``
    by_time_kwh: float = 0.0

    def add(self, own_s: float, energy: Energy, share: float) -> None:
        """Add own time, and its share of the energy that was read for that time."""
        part = part_of_energy(energy, share)
        if self.own_s:
            self.energy += part
        else:
            self.energy = part
        if share < _MOSTLY:
            self.by_time_kwh += part.total_kwh or 0.0
        self.own_s += own_s


class SpanRecorder(RunPart):
    """Record the spans of one run. Callers hold the run's lock.

    Args:
        run: the parts of the run.
    """

    def __init__(self, run: RunParts) -> None:
        super().__init__(run)
        self._clock = run.state.clock
        self._open: list[OpenSpan] = []
        self._sums: dict[SpanPath, _PathSums] = {}
        self._new_s: dict[SpanPath, float] = {}  # own times since the last reading
        self._counted_to_s = self._clock.perf_s()
        self._wait_s = _LEAST_READ_S  # between two readings
        self._write_at_s = 0.0
        self._is_over = False

    def begin(self, name: str, within: OpenSpan | None) -> OpenSpan | None:
        """Begin a span; return None within a span of the same name, which already counts the time.

        Args:
            name: the name, without ``SEPARATOR``.
            within: the span around it.
        """
        self._recorder.on_reading = self._take_reading
        now_s = self._count()
        while within is not None and within not in self._open:  # the span around has ended
            within = within.parent
        outer = () if within is None else within.path
        if name in outer or self._is_over:
            return None
        span = OpenSpan((*outer, name), within, now_s)
        self._read(now_s)
        self._sums_of(span.path)
        self._open.append(span)
        return span

    def end(self, span: OpenSpan, *, has_failed: bool = False) -> None:
        """End a span, unless the end of the run has ended it."""
        if span not in self._open:
            return
        now_s = self._count()
        self._open.remove(span)
        sums = self._sums_of(span.path)
        sums.calls += 1
        if has_failed:
            sums.failed += 1
        sums.duration_s += max(0.0, now_s - span.counted_from_s)
        self._read(now_s)

    def _read(self, now_s: float) -> None:
        """Read the meter if its last reading is old enough."""
        recorder = self._recorder
        if now_s - recorder.read_at_s >= self._wait_s:
            recorder.read_within_row()
            took_s = self._clock.perf_s() - now_s
            self._wait_s = max(_LEAST_READ_S, recorder.resolution_s, took_s / _READING_SHARE)

    def tick(self) -> None:
        """Write the rows that are due."""
        with self._state.lock:
            if self._sums and not self._is_over and self._clock.perf_s() >= self._write_at_s:
                self._recorder.read_within_row()

    def ending(self) -> None:
        """Write all that is left, with open spans flagged as unfinished. The last reading has been taken."""
        self._is_over = True
        unfinished = {span.path for span in self._open}
        for path in list(self._sums):
            self._write(path, self._counted_to_s, is_unfinished=path in unfinished)
        self._open.clear()

    def _sums_of(self, path: SpanPath) -> _PathSums:
        """Return the sums of a path, which begin now if it has none."""
        return self._sums.setdefault(path, _PathSums(self._clock.utc_s()))

    def _count(self) -> float:
        """Add the time since the last call to the innermost open spans, and return the present time."""
        now_s = self._clock.perf_s()
        passed_s = max(0.0, now_s - max(self._counted_to_s, self._recorder.boundary[0]))
        self._counted_to_s = now_s
        outer = {id(span.parent) for span in self._open}
        for span in self._open:
            if id(span) not in outer:
                self._new_s[span.path] = self._new_s.get(span.path, 0.0) + passed_s
        return now_s

    def _take_reading(self, interval_s: float, energy: Energy) -> None:
        """Divide a reading of the meter among the spans by their times, and write the rows that are due."""
        now_s = self._count()
        new_s = self._new_s
        self._new_s = {}
        whole_s = max(interval_s, sum(new_s.values()))
        for path, own_s in new_s.items():
            sums = self._sums_of(path)
            if sums.own_s and sums.energy.is_known != energy.is_known:
                self._write(path, now_s - own_s)  # a row is either metered or not
            if own_s:
                self._sums_of(path).add(own_s, energy, own_s / whole_s)
        if now_s >= self._write_at_s:
            self._write_at_s = now_s + max(_ROW_S, _ROW_SHARE * self._state.elapsed_s)
            for path in list(self._sums):
                self._write(path, now_s)

    def _write(self, path: SpanPath, now_s: float, *, is_unfinished: bool = False) -> None:
        """Write the sums of a path as a row, open spans included; no row if nothing was added."""
        sums = self._sums.pop(path)
        for span in self._open:
            if span.path == path:
                sums.duration_s += max(0.0, now_s - span.counted_from_s)
                span.counted_from_s = max(now_s, span.counted_from_s)
                self._sums_of(path)  # the rest of the open span is a later row
        if not (sums.calls or sums.own_s or sums.duration_s):
            return
        energy_kwh = sums.energy.total_kwh
        flags = {SpanFlag.UNFINISHED} if is_unfinished else set()
        if energy_kwh is None and sums.own_s:
            flags.add(SpanFlag.UNMETERED)
        elif energy_kwh and sums.by_time_kwh > _MOST_BY_TIME * energy_kwh:
            flags.add(SpanFlag.BY_TIME)
        rates = self._state.rates_in_force.between(sums.started_utc_s, self._clock.utc_s())
        self._writer.write(
            SPANS,
            SpanRow(
                path,
                sums.calls,
                sums.failed,
                timestamp(sums.started_utc_s),
                sums.duration_s,
                sums.own_s,
                sums.energy,
                times(energy_kwh, rates.grams_per_kwh),
                frozenset(flags),
            ),
        )


def span_name(text: str) -> str:
    """Return a name as the log may hold it: in one line, with secrets masked."""
    words = mask_secrets(text.replace("\x00", "")).split()
    return " ".join("›" if word == SEPARATOR.strip() else word for word in words)[:_LONGEST_NAME].rstrip()
