"""Measures named parts of a script within a run: their time, and their share of each reading of the meter.

Between two readings all time is given to the innermost open spans, and so is the energy (docs/decisions/0015). What
rows hold adds up to the meter's total as if there were no spans.
"""

from __future__ import annotations

from collections import deque

from greenlove_tracker.logs.spans import SpanFlag
from greenlove_tracker.logs.tables import SEPARATOR, SPANS, SpanRow
from greenlove_tracker.logs.writer import timestamp
from greenlove_tracker.records import COMPONENTS, UNKNOWN_ENERGY, Energy
from greenlove_tracker.secret_masking import mask_secrets
from greenlove_tracker.tracker.part import RunPart, RunParts
from greenlove_tracker.units import gco2e_from_kwh

_LEAST_READ_S = 0.1  # CodeCarbon takes no sample sooner than 50 ms behind the last
_READING_SHARE = 0.01  # of the time may be spent on readings that spans ask for
_LONG_S = 1.0  # a span this long has a row of its own; shorter ones of a path share one
_SHARED_ROW_S = 60.0  # as long as this, and kill -9 loses no more
_ROWS_PER_DOUBLING = 50_000  # behind each so many, shared rows are twice as long: what is larger is not read
_MAX_OWN_ROWS = 100_000  # beyond, long spans share rows too
_MAX_PATHS = 1000
_OTHERS = "(others)"  # stands for the names beyond
_MOST_BY_TIME = 0.1
_LONGEST_NAME = 200
_MOSTLY = 0.9  # of a reading's time: what else is in it changes little


class OpenSpan:
    """A span that goes on.

    Attributes:
        path: the names of the spans that it lies in, and its own last.
        parent: the span that it lies in.
        is_open: it has not ended.
    """

    __slots__ = ("counted_from_s", "is_again", "is_open", "n_within", "parent", "path", "started_s")

    def __init__(self, path: tuple[str, ...], parent: OpenSpan | None, now_s: float, *, is_again: bool) -> None:
        self.path, self.parent = path, parent
        self.is_open = True
        self.is_again = is_again  # within itself: its time is that of the outer one already
        self.n_within = 0
        self.started_s = self.counted_from_s = now_s


class _PathSums:
    """The sums added to a path since its last row."""

    __slots__ = (
        "by_time_kwh",
        "calls",
        "duration_s",
        "failed",
        "is_long",
        "is_metered",
        "kwh",
        "methods",
        "new_s",
        "new_share_s",
        "own_s",
        "started_s",
        "started_utc_s",
    )

    def __init__(self, started_s: float, started_utc_s: float) -> None:
        self.started_s, self.started_utc_s = started_s, started_utc_s
        self.calls = self.failed = 0
        self.duration_s = self.own_s = 0.0
        self.new_s = self.new_share_s = 0.0  # since the last reading: time, and time divided by the spans open at once
        self.kwh: dict[str, float] = {}
        self.methods: dict[str, set[str]] = {}
        self.by_time_kwh = 0.0
        self.is_metered: bool | None = None  # None: no reading yet
        self.is_long = False

    def add(self, energy: Energy, interval_s: float) -> None:
        """Add the share of a reading that is of what has passed since the reading before."""
        share = min(1.0, self.new_share_s / interval_s) if interval_s > 0 else 0.0
        self.own_s += self.new_s
        self.new_s = self.new_share_s = 0.0
        self.is_metered = energy.is_known
        for component in COMPONENTS:
            read_kwh = energy.component_kwh(component)
            if read_kwh is not None:
                self.kwh[component] = self.kwh.get(component, 0.0) + read_kwh * share
                self.methods.setdefault(component, set()).update((energy.component_method(component) or "").split("+"))
        if share < _MOSTLY:
            self.by_time_kwh += (energy.total_kwh or 0.0) * share

    def split_off(self) -> _PathSums:
        """Return what has been added since the last reading, and keep the rest; calls that ended are taken along."""
        newer = _PathSums(self.started_s + self.own_s, self.started_utc_s + self.own_s)
        newer.calls, newer.failed, newer.is_long = self.calls, self.failed, self.is_long
        newer.duration_s = min(self.duration_s, self.new_s)
        newer.new_s, newer.new_share_s = self.new_s, self.new_share_s
        self.calls = self.failed = 0
        self.duration_s -= newer.duration_s
        return newer

    def energy(self) -> Energy:
        """Return the energy of ``own_s``."""
        if not self.is_metered:
            return UNKNOWN_ENERGY
        methods = {component: "+".join(sorted(names - {""})) or None for component, names in self.methods.items()}
        cpu_kwh, gpu_kwh, ram_kwh = map(self.kwh.get, COMPONENTS)
        return Energy(cpu_kwh, gpu_kwh, ram_kwh, *map(methods.get, COMPONENTS))


class SpanRecorder(RunPart):
    """The spans of one run; who begins and ends them holds the run's lock.

    Args:
        run: that it is a part of.
    """

    def __init__(self, run: RunParts) -> None:
        super().__init__(run)
        self._clock = run.state.clock
        self._open: set[OpenSpan] = set()
        self._innermost: set[OpenSpan] = set()
        self._sums: dict[tuple[str, ...], _PathSums] = {}
        self._paths: set[tuple[str, ...]] = set()
        self._counted_to_s = self._clock.perf_s()
        self._wait_s = _LEAST_READ_S  # between two readings
        self._took_s: deque[float] = deque(maxlen=5)  # the last ones: one may have waited for another process
        self._n_rows = 0
        self._is_over = False

    def begin(self, name: str, within: OpenSpan | None) -> OpenSpan:
        """Begin a span.

        Args:
            name: of it, without ``SEPARATOR``.
            within: the span that it lies in.
        """
        now_s = self._clock.perf_s()
        self._count_to(now_s)
        self._read(now_s)  # what lies before is not the span's
        while within is not None and within not in self._open:  # it ended before, or with another run
            within = within.parent
        path, is_again = self._path(name, () if within is None else within.path)
        span = OpenSpan(path, within, now_s, is_again=is_again)
        self._sums_of(path)
        if not self._is_over:
            self._open.add(span)
            self._innermost.add(span)
        if within is not None:
            within.n_within += 1
            self._innermost.discard(within)
        return span

    def end(self, span: OpenSpan, *, has_failed: bool = False) -> None:
        """End a span; one that the end of the run ended is left as it was written."""
        if span not in self._open:
            return
        now_s = self._clock.perf_s()
        self._count_to(now_s)
        self._open.discard(span)
        self._innermost.discard(span)
        outer = span.parent
        if outer is not None:
            outer.n_within -= 1
            if outer.n_within == 0 and outer in self._open:
                self._innermost.add(outer)
        sums = self._sums_of(span.path)
        sums.calls += 1
        sums.failed += has_failed
        if not span.is_again:
            sums.duration_s += max(0.0, now_s - span.counted_from_s)
            sums.is_long = sums.is_long or now_s - span.started_s >= _LONG_S
        self._read(now_s)

    def tick(self) -> None:
        """Write what has waited for a reading."""
        with self._state.lock:
            now_s = self._clock.perf_s()
            if not self._is_over and any(self._is_due(sums, now_s) for sums in self._sums.values()):
                self._count_to(now_s)
                self._read(now_s)

    def ending(self) -> None:
        """Write all that is left; spans that are open still are unfinished. The last reading has been taken."""
        self._is_over = True
        now_s = self._counted_to_s
        unfinished = {span.path for span in self._open}
        for path, sums in list(self._sums.items()):
            if sums.new_s and not sums.is_metered:  # else it lies behind the run's last reading
                sums.add(UNKNOWN_ENERGY, 0.0)
            self._write(path, sums, now_s, is_unfinished=path in unfinished)
        self._open.clear()
        self._innermost.clear()

    def _path(self, name: str, outer: tuple[str, ...]) -> tuple[tuple[str, ...], bool]:
        """Return the path of a span, and whether it lies within itself: recursion lengthens no path."""
        path = (*outer, name)
        if path not in self._paths and name not in outer:
            if len(self._paths) < _MAX_PATHS:
                self._paths.add(path)
            else:
                name, path = _OTHERS, (*outer, _OTHERS)
        return (outer[: outer.index(name) + 1], True) if name in outer else (path, False)

    def _sums_of(self, path: tuple[str, ...]) -> _PathSums:
        sums = self._sums.get(path)
        if sums is None:
            sums = self._sums[path] = _PathSums(self._counted_to_s, self._clock.utc_s())
        return sums

    def _count_to(self, now_s: float) -> None:
        """Give the time that has passed to the innermost spans."""
        passed_s = now_s - max(self._counted_to_s, self._recorder.boundary[0])
        self._counted_to_s = now_s
        if passed_s <= 0 or not self._innermost:
            return
        share_s = passed_s / len(self._innermost)
        for span in self._innermost:
            sums = self._sums_of(span.path)
            sums.new_s += passed_s
            sums.new_share_s += share_s

    def _read(self, now_s: float) -> None:
        """Read the meter, where the last reading is long enough ago; what it gives comes to ``reading``."""
        recorder = self._recorder
        if now_s - recorder.read_at_s < self._wait_s or self._is_over:
            return
        recorder.read_within_row()
        self._took_s.append(self._clock.perf_s() - now_s)
        self._wait_s = max(
            _LEAST_READ_S, recorder.resolution_s, sorted(self._took_s)[len(self._took_s) // 2] / _READING_SHARE
        )

    def reading(self, now_s: float, interval_s: float, energy: Energy) -> None:
        """Share a reading of the meter among the spans, and write the rows that are due."""
        if not self._sums:
            self._counted_to_s = now_s
            return
        self._count_to(now_s)
        for path, sums in list(self._sums.items()):
            if sums.new_s:
                if sums.is_metered is not None and sums.is_metered != energy.is_known:
                    newer = sums.split_off()  # a row is wholly metered or not at all
                    self._write(path, sums, now_s)
                    sums = self._sums[path] = newer
                sums.add(energy, interval_s)
            if self._is_due(sums, now_s):
                self._write(path, sums, now_s)

    def _is_due(self, sums: _PathSums, now_s: float) -> bool:
        is_alone = sums.is_long and self._n_rows < _MAX_OWN_ROWS
        return is_alone or now_s - sums.started_s >= _SHARED_ROW_S * 2 ** (self._n_rows // _ROWS_PER_DOUBLING)

    def _write(self, path: tuple[str, ...], sums: _PathSums, now_s: float, *, is_unfinished: bool = False) -> None:
        """Write what was added to a path, of spans that are open still too; nothing where that is nothing."""
        del self._sums[path]
        for span in self._open:
            if span.path == path and not span.is_again:
                sums.duration_s += max(0.0, now_s - span.counted_from_s)
                span.counted_from_s = now_s
                self._sums_of(path)  # which is due in its turn
        if not (sums.calls or sums.own_s or sums.duration_s):
            return
        energy = sums.energy()
        energy_kwh = energy.total_kwh
        flags = {SpanFlag.UNFINISHED} if is_unfinished else set()
        if energy_kwh is None and sums.own_s:
            flags.add(SpanFlag.UNMETERED)
        elif energy_kwh and sums.by_time_kwh > _MOST_BY_TIME * energy_kwh:
            flags.add(SpanFlag.BY_TIME)
        grams = None
        if energy_kwh is not None:
            rate = self._recorder.grams_per_kwh(sums.started_utc_s, self._clock.utc_s())
            grams = gco2e_from_kwh(energy_kwh, rate)
        self._n_rows += 1
        started_at = timestamp(sums.started_utc_s)
        duration_s, own_s = sums.duration_s, sums.own_s
        row = SpanRow(path, sums.calls, sums.failed, started_at, duration_s, own_s, energy, grams, frozenset(flags))
        self._writer.write(SPANS, row)


def span_name(text: str) -> str:
    """Return a name as it may stand in a path and in the log: on one line, its secrets masked."""
    words = mask_secrets(text.replace("\x00", "")).split()
    return " ".join("›" if word == SEPARATOR.strip() else word for word in words)[:_LONGEST_NAME].rstrip()
