"""Turn starts and ends of epochs into rows: time and energy of each epoch, and of the gap between epochs.

It has no threads, files or signals: the session holds the lock and writes the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from greenlove_tracker.logs.writer import timestamp
from greenlove_tracker.meter.base import Meter, ReadGpus, checked_reading, sum_of_readings
from greenlove_tracker.vocabulary.errors import MeterError, TrackerStateError, pass_on_from_handler
from greenlove_tracker.vocabulary.records import UNKNOWN_ENERGY, Clock, Counts, Energy, Flag, Row, RowKind, times

if TYPE_CHECKING:
    from greenlove_tracker.tracker.rates_in_force import RatesInForce

_UNMETERED_S = 0.01  # a shorter time before a meter that starts at once gets no row of its own
LOADING_SHARE = 0.1  # a row or an epoch is flagged if our imports ran for more than this share of it
_OF_EPOCHS_ALONE = {Flag.SHORT, Flag.LOADING}  # flags of a gap that its row does not take over
_QUANTITIES = ("steps", "batches", "samples", "tokens")
_TOO_MANY = 10**20  # the log has no room for more digits
_CLOCK_TOLERANCE_S = 2.0  # wall and steady clock may differ by this much, plus 1% of the time


@dataclass(frozen=True, slots=True)
class _Boundary:
    """A boundary between two spans of time."""

    perf_s: float
    utc_s: float
    loading_s: float = 0.0  # our imports until then


@dataclass(frozen=True, slots=True)
class _MeteredSpan:
    """The time and energy between two boundaries."""

    started_utc_s: float
    ended_utc_s: float
    duration_s: float = 0.0
    energy: Energy = UNKNOWN_ENERGY
    flags: frozenset[str] = frozenset()


class StepMark(NamedTuple):
    """The progress at the end of a step. A tuple, since each step makes one.

    Attributes:
        steps: the steps done so far.
        at_s: the time since the run began.
        paused_s: the pauses until then.
        loading_s: the time until then during which our imports ran.
    """

    steps: int
    at_s: float
    paused_s: float = 0.0
    loading_s: float = 0.0

    @property
    def active_s(self) -> float:
        """The time until then, without pauses."""
        return self.at_s - self.paused_s


class Recorder:
    """Measures the time and energy between two rows, and counts epochs and steps.

    Args:
        clock: read at every boundary.
        emit: called with each finished row.
        before_reading: synchronises the device, called before the clock is read where an epoch begins or ends.
        rates: the rates that rows are counted with.
        on_meter_failure: called with the error when the meter fails.
        on_bad_count: called with the reason when a count of the loop is left out.
        started: when the run began, by both clocks; None: now.
        epochs_before: epochs that an earlier run did; the first epoch here has the next number.

    Attributes:
        epoch: the number of the open epoch, from 1; None between two.
        is_paused: True while an evaluation or a checkpoint interrupts the open epoch.
        epochs_begun: epochs that were started.
        epochs_done: epochs that were ended.
        step_marks: the marks after the first and after the last counted step; None before the first.
        paused_s: the sum of the finished pauses.
        is_opened_by_step: True if the first step opened the epoch, since nothing else marked its start.
        metered_kwh: the energy that was read so far, without PUE; None if nothing was read.
        read_at_s: when the meter was last read, by the steady clock.
        on_reading: called at each reading, with the time since the last reading and the energy.
    """

    def __init__(
        self,
        clock: Clock,
        emit: Callable[[Row], None],
        *,
        before_reading: Callable[[], None],
        rates: RatesInForce,
        on_meter_failure: Callable[[MeterError], None],
        on_bad_count: Callable[[str], None],
        started: tuple[float, float] | None = None,
        epochs_before: int = 0,
    ) -> None:
        self._clock = clock
        self._emit = emit
        self._wait_for_device = before_reading
        self._rates = rates
        self._constant_rates = rates.constant
        self._on_meter_failure = on_meter_failure
        self._epochs_before = epochs_before
        self._meter: Meter | None = None
        self._no_energy_flag = Flag.METER_STARTING
        self._is_failing = False  # the last reading failed
        self._n_loading = 0  # threads of ours that import something
        self._loading_from_s = self._loaded_s = 0.0  # the start of the present imports; the time of the finished ones
        self._boundary = _Boundary(*started) if started else self._now()
        self._started_s = self.read_at_s = self._boundary.perf_s
        self.on_reading: Callable[[float, Energy], None] | None = None
        self._energy: Energy | None = None  # read since the boundary; unknown if a reading failed
        self._has_failed = False  # a reading since the boundary failed
        self._gap = self._no_span()  # the time between two epochs, up to the boundary, that is in no row yet
        self._is_marked = False
        self._on_bad_count = on_bad_count
        self._counts: dict[str, int] = {}  # since the last row, as Python integers, which cannot overflow
        self._steps_in_rows = 0
        self._gpu_was_read = self._is_finished = False
        self._gpus: ReadGpus = tuple
        self._lacks_gpu = False  # a reading since the boundary lacked a GPU
        self.epoch: int | None = None
        self.is_paused = self.is_opened_by_step = False
        self.epochs_begun = self.epochs_done = 0
        self.step_marks: tuple[StepMark, StepMark] | None = None
        self.paused_s = 0.0
        self.metered_kwh: float | None = None

    def attach_meter(self, meter: Meter, gpus: ReadGpus = tuple) -> None:
        """Measure energy from now on. The time before becomes a row without energy.

        Args:
            meter: the meter.
            gpus: returns the energy that was read of each GPU.
        """
        unmetered_s = _UNMETERED_S if meter.starts_at_once else 0.0
        if self.open_for_s() > unmetered_s:
            self.write_segment()
        self._meter = meter
        self._gpus = gpus

    def detach_meter(self, flag: Flag) -> None:
        """Stop measuring energy, for the reason that the flag names."""
        self._meter = None
        self._no_energy_flag = flag

    def begin_loading(self) -> None:
        """Note that a thread of ours begins an import, which may slow the training down."""
        if not self._n_loading:
            self._loading_from_s = self._clock.perf_s()
        self._n_loading += 1

    def end_loading(self) -> None:
        """Note that the import is done."""
        self._n_loading -= 1
        if not self._n_loading:
            self._loaded_s += self._clock.perf_s() - self._loading_from_s

    def _loading_until(self, perf_s: float) -> float:
        if self._n_loading:
            return self._loaded_s + (perf_s - self._loading_from_s)
        return self._loaded_s

    # -- epochs

    def mark(self) -> None:
        """Note that an epoch may begin now. ``start_epoch_at_mark()`` later opens the epoch from here.

        A later mark replaces this one, and a row that is written meanwhile moves it. Within an epoch it does nothing.
        """
        if self.epoch is None and not self._is_finished:
            self._wait_for_device()
            self._close_gap()
            self._is_marked = True

    def start_epoch(self) -> None:
        """Close the gap and open the next epoch. No epoch may be open."""
        try:
            self._wait_for_device()
            self._close_gap()
        finally:  # after an error of ours the later epochs keep their right numbers
            self._open_epoch()

    def start_epoch_at_mark(self) -> None:
        """Open the next epoch where ``mark()`` was last called, else now."""
        if self._is_marked:
            self._open_epoch()
        else:
            self.start_epoch()

    def open_epoch_from_last_row(self) -> None:
        """Open the next epoch where the last row ended, since its first step is already done."""
        self._open_epoch()
        self.is_opened_by_step = True

    def _open_epoch(self) -> None:
        self.epochs_begun += 1
        self.epoch = self._epochs_before + self.epochs_begun
        self.is_opened_by_step = False
        self._is_marked = False

    def end_epoch(self, *more_flags: Flag) -> None:
        """Close the open epoch and emit its row, with these flags added."""
        if self.epoch is None:
            raise TrackerStateError("epoch_end() without epoch_start(): call epoch_start() where the epoch begins")
        self.resume()
        self._wait_for_device()
        row = self._epoch_row(RowKind.EPOCH, frozenset(more_flags))
        self.epoch = None
        self.epochs_done = self.epochs_done + 1
        self._emit(row)

    def pause(self) -> None:
        """Write the open epoch so far as a segment. Until ``resume`` the time is a gap within the epoch."""
        if self.epoch is None:
            raise TrackerStateError("pause() outside an epoch: what lies between two epochs is a gap already")
        if not self.is_paused:
            self._wait_for_device()
            row = self._epoch_row(RowKind.SEGMENT)
            self.is_paused = True
            self._emit(row)

    def resume(self) -> None:
        """Go on with the open epoch if it is paused."""
        if self.is_paused:
            self._wait_for_device()
            self._close_gap()
            self.is_paused = False
            self.paused_s += self._gap.duration_s

    def abandon_epoch(self) -> None:
        """Close the open epoch, if any, as unfinished; the next epoch gets the next number."""
        if self.epoch is not None:
            self.resume()
            row = self._epoch_row(RowKind.SEGMENT, frozenset({Flag.UNFINISHED}))
            self.epoch = None
            self._emit(row)

    def finish(self) -> None:
        """Close the open epoch as unfinished and write the tail row, once."""
        if not self._is_finished:
            self._wait_for_device()
            self.abandon_epoch()
            self._is_finished = True
            self._emit_gap(RowKind.TAIL)

    def count(self, done: Counts) -> None:
        """Add steps, batches, samples and tokens to the open epoch."""
        if self.epoch is None:
            raise TrackerStateError("step() outside an epoch: call epoch_start() first, or give Tracker(total_steps=…)")
        self.resume()
        for name in _QUANTITIES:
            count = getattr(done, name)
            if count is None:
                continue
            try:
                if type(count) is int and 0 <= count < _TOO_MANY:
                    whole = count
                else:
                    whole = _whole(count)
                self._counts[name] = self._counts.get(name, 0) + whole
            except Exception as error:  # the conversion of a foreign object or a failed GPU kernel may raise anything
                pass_on_from_handler(error)
                self._on_bad_count(f"step(n_{name}={str(count)[:40]}) is no whole number from 0 up: it is left out")
        now_s = self._clock.perf_s()
        last = StepMark(self.steps_done, now_s - self._started_s, self.paused_s, self._loading_until(now_s))
        if self.step_marks is None:
            self.step_marks = (last, last)
        else:
            self.step_marks = (self.step_marks[0], last)

    def write_segment(self) -> None:
        """Write the open epoch, or the gap, so far as a row."""
        if self.epoch is not None and not self.is_paused:
            self._emit(self._epoch_row(RowKind.SEGMENT))
        elif not self._is_finished:  # after the tail a late meter has nothing to measure
            self._emit_gap(RowKind.GAP)

    def change_terms(self, epochs_before: int, rates: RatesInForce) -> None:
        """Change the number of the first epoch and the rates, before any epoch has begun."""
        self._epochs_before = epochs_before
        self._rates = rates
        self._constant_rates = rates.constant

    # -- what is known ---------------------------------------------------------------------------------------------

    @property
    def last_epoch(self) -> int | None:
        """The number of the last epoch that began; None before the first."""
        if self.epochs_begun:
            return self._epochs_before + self.epochs_begun
        return None

    @property
    def steps_done(self) -> int:
        """The optimizer steps so far, including the open row."""
        return self._steps_in_rows + self._counts.get("steps", 0)

    @property
    def resolution_s(self) -> float:
        """The least time for a meaningful energy; 0 without a meter."""
        if self._meter is not None:
            return self._meter.resolution_s
        return 0.0

    @property
    def is_metering(self) -> bool:
        """True once the meter is up."""
        return self._meter is not None

    @property
    def awaits_meter(self) -> bool:
        """True while the meter is starting."""
        return self._meter is None and self._no_energy_flag is Flag.METER_STARTING

    @property
    def gap_before_open_s(self) -> float:
        """The gap before the open epoch or segment that is in no row yet."""
        if self.epoch is not None:
            return self._gap.duration_s
        return 0.0

    def open_for_s(self) -> float:
        """Return the time since the last row ended."""
        return self._clock.perf_s() - self._boundary.perf_s

    @property
    def boundary(self) -> tuple[float, float]:
        """The end of the last row, by both clocks."""
        return self._boundary.perf_s, self._boundary.utc_s

    # -- rows ------------------------------------------------------------------------------------------------------

    def _epoch_row(self, kind: RowKind, more_flags: frozenset[str] = frozenset()) -> Row:
        span = self._close_span()
        gap = self._gap
        self._gap = self._no_span()
        counts = Counts(**self._counts)
        self._counts = {}
        self._steps_in_rows += counts.steps or 0
        return self._row(kind, self.epoch, gap, span, counts, span.flags | more_flags)

    def _emit_gap(self, kind: RowKind) -> None:
        self._close_gap()
        gap = self._gap
        self._gap = self._no_span()
        if self.is_paused:
            self.paused_s += gap.duration_s
        self._emit(self._row(kind, None, gap, self._no_span(), Counts(), frozenset()))

    def _row(
        self, kind: RowKind, epoch: int | None, gap: _MeteredSpan, span: _MeteredSpan, counts: Counts, flags: Set[str]
    ) -> Row:
        first = gap if gap.duration_s > 0 else span
        started_utc_s = gap.started_utc_s if epoch is None else span.started_utc_s
        rates = self._constant_rates or self._rates.between(first.started_utc_s, span.ended_utc_s)
        return Row(
            kind,
            epoch,
            timestamp(started_utc_s),
            gap.duration_s,
            gap.energy,
            span.duration_s,
            counts,
            span.energy,
            times(span.energy.total_kwh, rates.grams_per_kwh),
            frozenset(flags | (gap.flags - _OF_EPOCHS_ALONE)),
            rates.carbon_intensity_gco2e_per_kwh,
            rates.carbon_intensity_source,
            rates.electricity_price_usd_per_kwh,
        )

    def _now(self) -> _Boundary:
        perf_s = self._clock.perf_s()
        return _Boundary(perf_s, self._clock.utc_s(), self._loading_until(perf_s))

    def _no_span(self) -> _MeteredSpan:
        return _MeteredSpan(self._boundary.utc_s, self._boundary.utc_s)

    def _close_gap(self) -> None:
        """Add the time since the boundary to the gap, which includes the time before a mark that no epoch followed."""
        span = self._close_span()
        before = self._gap
        if before.duration_s > 0:
            flags = (before.flags | span.flags) - ({Flag.SHORT} - (before.flags & span.flags))
            energy = sum_of_readings(before.energy, span.energy)
            duration_s = before.duration_s + span.duration_s
            span = _MeteredSpan(before.started_utc_s, span.ended_utc_s, duration_s, energy, flags)
        self._gap = span

    def _close_span(self) -> _MeteredSpan:
        """Return the span from the last boundary until now, which becomes the next boundary."""
        before = self._boundary
        now = self._now()
        passed_s = now.perf_s - before.perf_s
        duration_s = max(0.0, passed_s)  # after a clock went back the time is unknown
        wall_s = now.utc_s - before.utc_s
        flags = set()
        if passed_s < 0 or abs(wall_s - duration_s) > _CLOCK_TOLERANCE_S + 0.01 * duration_s:
            flags.add(Flag.CLOCK_JUMP)
        if now.loading_s - before.loading_s > LOADING_SHARE * duration_s:
            flags.add(Flag.LOADING)
        self._read(now.perf_s)
        energy = self._energy or UNKNOWN_ENERGY
        if self._meter is None:
            flags.add(self._no_energy_flag)
        elif self._has_failed:
            flags.add(Flag.METER_FAILED)
        elif duration_s < self._meter.resolution_s:
            flags.add(Flag.SHORT)
        if energy.gpu_kwh is not None:
            self._gpu_was_read = True
            if self._lacks_gpu:
                flags.add(Flag.GPU_MISSING)
        elif self._gpu_was_read and energy.is_known:
            flags.add(Flag.GPU_UNREAD)
        self._boundary = now
        self._energy = None
        self._has_failed = self._lacks_gpu = False
        return _MeteredSpan(before.utc_s, now.utc_s, duration_s, energy, frozenset(flags))

    def read_within_row(self) -> None:
        """Read the meter within a row. The energy of a row is the sum of its readings."""
        self._read(self._clock.perf_s())

    def _read(self, now_s: float) -> None:
        """Add the energy since the last reading to the open row, and pass the reading on."""
        interval_s = max(0.0, now_s - self.read_at_s)
        self.read_at_s = now_s
        energy = UNKNOWN_ENERGY
        if self._meter is not None:
            energy = self._metered(self._meter, interval_s)
            if self._energy is None:
                self._energy = energy
            else:
                self._energy = sum_of_readings(self._energy, energy)
        if self.on_reading is not None:
            self.on_reading(interval_s, energy)

    def _metered(self, meter: Meter, interval_s: float) -> Energy:
        """Return the energy since the last reading.

        It is unknown if the reading fails, and at the next reading, which covers the time of both.
        """
        was_failing = self._is_failing
        self._is_failing = self._has_failed = True
        try:
            energy = checked_reading(meter.read())
            if not all(gpu.is_read for gpu in self._gpus()):
                self._lacks_gpu = True
        except Exception as error:  # foreign code on unknown hardware may raise anything
            pass_on_from_handler(error)
            self._on_meter_failure(error if isinstance(error, MeterError) else MeterError(repr(error)))
            return UNKNOWN_ENERGY
        self._is_failing = False
        if was_failing:
            return UNKNOWN_ENERGY
        self._has_failed = False
        read_kwh = energy.total_kwh
        if read_kwh or (read_kwh is not None and interval_s >= meter.resolution_s):  # else too short to tell
            self.metered_kwh = read_kwh + (self.metered_kwh or 0.0)
        return energy


def _whole(count: Any) -> int:
    """Return a count as a Python integer.

    Raises:
        ValueError: if it is negative, a fraction, or has too many digits.
    """
    value = count.item() if hasattr(count, "item") else count
    number = int(value)
    if number != value or not 0 <= number < _TOO_MANY:
        raise ValueError(value)
    return number
