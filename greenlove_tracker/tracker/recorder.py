"""Turns starts and ends of epochs into rows: time and energy of each, and of the gap between them.

It knows nothing of threads, files or signals: the session holds the lock and takes the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from greenlove_tracker.logs.writer import timestamp
from greenlove_tracker.meter.base import GpuEnergy, Meter, checked_reading, sum_of_readings
from greenlove_tracker.vocabulary.errors import MeterError, TrackerStateError, pass_on_from_handler
from greenlove_tracker.vocabulary.records import (
    UNKNOWN_ENERGY,
    Clock,
    Counts,
    Energy,
    Flag,
    Row,
    RowKind,
)
from greenlove_tracker.vocabulary.units import gco2e_from_kwh

if TYPE_CHECKING:
    from greenlove_tracker.tracker.rates_in_force import RatesInForce

_UNMETERED_S = 0.01  # what a meter that starts at once may miss at the beginning without a row of its own
LOADING_SHARE = 0.1  # of a row or an epoch beside which we were loading: less is hardly felt
_OF_EPOCHS_ALONE = {Flag.SHORT, Flag.LOADING}  # flags of a gap that say nothing of the row that holds it
_QUANTITIES = ("steps", "batches", "samples", "tokens")
_TOO_MANY = 10**20  # a cell of the log has no more digits
_CLOCK_TOLERANCE_S = 2.0  # wall and steady clock of a span may differ by this much, and by 1% of it


@dataclass(frozen=True, slots=True)
class _Boundary:
    """A boundary between two spans of time."""

    perf_s: float
    utc_s: float
    loading_s: float = 0.0  # until then


@dataclass(frozen=True, slots=True)
class _MeteredSpan:
    """The time and energy between two boundaries."""

    started_utc_s: float
    ended_utc_s: float
    duration_s: float = 0.0
    energy: Energy = UNKNOWN_ENERGY
    flags: frozenset[str] = frozenset()


class StepMark(NamedTuple):
    """The work of a loop at the end of one of its steps: a tuple, since each step makes one.

    Attributes:
        steps: all that are done.
        at_s: when that was, since the run began.
        paused_s: pauses until then.
        loading_s: for how long we have been loading beside them.
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
        emit: takes each finished row.
        before_reading: brings the device to rest before the clock is read at a boundary of an epoch.
        rates: by which rows are counted.
        on_meter_failure: called with the error when the meter fails.
        on_bad_count: called with the reason where something that the loop counted is left out.
        started: when the run began, by both clocks; None: now.
        epochs_before: epochs that a run before this one did; the number of the first one here follows theirs.

    Attributes:
        epoch: the number of the open epoch, from 1; None between two.
        is_paused: the open epoch is interrupted by an evaluation or a checkpoint.
        epochs_begun: epochs that were started.
        epochs_done: epochs that were ended.
        step_marks: the marks behind the first call that counted steps, and the last one; None before any.
        paused_s: pauses that are over.
        is_opened_by_step: nobody said where the open epoch began: its first step did.
        metered_kwh: all that the meter gave so far, without PUE; None where it gave nothing yet.
        read_at_s: when the meter was last read, by the steady clock.
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
        self._is_failing = False  # the last reading could not be taken
        self._n_loading = 0  # threads of ours that load something
        self._loading_from_s = self._loaded_s = 0.0  # since when they do; for how long they have before
        self._boundary = _Boundary(*started) if started else self._now()
        self._started_s = self.read_at_s = self._boundary.perf_s
        self._on_reading: Callable[[float, Energy], None] | None = None
        self._energy: Energy | None = None  # that was read since the boundary; unknown where a reading failed
        self._has_failed = False  # one of those readings
        self._gap = self._no_span()  # up to the boundary, what lies between two epochs and is in no row yet
        self._is_marked = False
        self._on_bad_count = on_bad_count
        self._counts: dict[str, int] = {}  # since the last row: Python's integers, which neither overflow nor change
        self._steps_in_rows = 0
        self._gpu_was_read = self._is_finished = False
        self._gpus: Callable[[], tuple[GpuEnergy, ...]] = tuple
        self._lacks_gpu = False  # one of those readings is without a GPU
        self.epoch: int | None = None
        self.is_paused = self.is_opened_by_step = False
        self.epochs_begun = self.epochs_done = 0
        self.step_marks: tuple[StepMark, StepMark] | None = None
        self.paused_s = 0.0
        self.metered_kwh: float | None = None

    def attach_meter(self, meter: Meter, gpus: Callable[[], tuple[GpuEnergy, ...]] = tuple) -> None:
        """Measure energy from now on; what came before is a row of its own without energy.

        Args:
            meter: that measures.
            gpus: returns what was read of each GPU.
        """
        unmetered_s = _UNMETERED_S if meter.starts_at_once else 0.0
        if self.open_for_s() > unmetered_s:
            self.write_segment()
        self._meter = meter
        self._gpus = gpus

    def detach_meter(self, flag: Flag) -> None:
        """Measure no energy from now on, for the reason that the flag names."""
        self._meter = None
        self._no_energy_flag = flag

    def tell_readings(self, on_reading: Callable[[float, Energy], None]) -> None:
        """Call this at each reading, with how long the one before it is ago, and its energy."""
        self._on_reading = on_reading

    def begin_loading(self) -> None:
        """Note that a thread of ours loads something from now on, which may slow the training down."""
        if not self._n_loading:
            self._loading_from_s = self._clock.perf_s()
        self._n_loading += 1

    def end_loading(self) -> None:
        """Note that it has loaded it."""
        self._n_loading -= 1
        if not self._n_loading:
            self._loaded_s += self._clock.perf_s() - self._loading_from_s

    def _loading_until(self, perf_s: float) -> float:
        if self._n_loading:
            return self._loaded_s + (perf_s - self._loading_from_s)
        return self._loaded_s

    # -- epochs

    def mark(self) -> None:
        """Note that an epoch may have begun now: ``start_epoch(at_mark=True)`` opens it from here, once that is known.

        Another mark replaces this one. It holds between two epochs, and a row that is written meanwhile moves it.
        """
        if self.epoch is None and not self._is_finished:
            self._wait_for_device()
            self._close_gap()
            self._is_marked = True

    def start_epoch(self, *, at_mark: bool = False) -> None:
        """Close the gap and open the next epoch; none is open.

        Args:
            at_mark: it has begun where ``mark()`` was called last; without such a call, now.
        """
        try:
            if not (at_mark and self._is_marked):
                self._wait_for_device()
                self._close_gap()
        finally:  # an error of ours costs a row, and not the numbers of all epochs that follow
            self._open_epoch(is_opened_by_step=False)

    def open_epoch_from_last_row(self) -> None:
        """Open the next epoch where the last row ended: its first step is done before anybody said so."""
        self._open_epoch(is_opened_by_step=True)

    def _open_epoch(self, *, is_opened_by_step: bool) -> None:
        self.epochs_begun += 1
        self.epoch = self._epochs_before + self.epochs_begun
        self.is_opened_by_step = is_opened_by_step
        self._is_marked = False

    def end_epoch(self, *more_flags: Flag) -> None:
        """Close the open epoch; its row is emitted, with these flags too."""
        if self.epoch is None:
            raise TrackerStateError("epoch_end() without epoch_start(): call epoch_start() where the epoch begins")
        self.resume_epoch()
        self._wait_for_device()
        row = self._epoch_row(RowKind.EPOCH, frozenset(more_flags))
        self.epoch = None
        self.epochs_done = self.epochs_done + 1
        self._emit(row)

    def pause_epoch(self) -> None:
        """Write the part of the open epoch that has passed; until ``resume_epoch`` time is a gap within it."""
        if self.epoch is None:
            raise TrackerStateError("pause() outside an epoch: what lies between two epochs is a gap already")
        if not self.is_paused:
            self._wait_for_device()
            row = self._epoch_row(RowKind.SEGMENT)
            self.is_paused = True
            self._emit(row)

    def resume_epoch(self) -> None:
        """Go on with the open epoch, where it is paused."""
        if self.is_paused:
            self._wait_for_device()
            self._close_gap()
            self.is_paused = False
            self.paused_s += self._gap.duration_s

    def abandon_epoch(self) -> None:
        """Close the open epoch, if any, as unfinished; the next epoch gets the next number."""
        if self.epoch is not None:
            self.resume_epoch()
            row = self._epoch_row(RowKind.SEGMENT, frozenset({Flag.UNFINISHED}))
            self.epoch = None
            self._emit(row)

    def finish(self) -> None:
        """Close the open epoch as unfinished and write the tail; once."""
        if not self._is_finished:
            self._wait_for_device()
            self.abandon_epoch()
            self._is_finished = True
            self._emit_gap(RowKind.TAIL)

    def count(self, done: Counts) -> None:
        """Add steps, batches, samples and tokens to the open epoch."""
        if self.epoch is None:
            raise TrackerStateError("step() outside an epoch: call epoch_start() first, or give Tracker(total_steps=…)")
        self.resume_epoch()
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
            except Exception as error:  # of a foreign object's own conversion, too, and of the training's own kernels
                pass_on_from_handler(error)
                self._on_bad_count(f"step(n_{name}={str(count)[:40]}) is no whole number from 0 up: it is left out")
        now_s = self._clock.perf_s()
        last = StepMark(self.steps_done, now_s - self._started_s, self.paused_s, self._loading_until(now_s))
        if self.step_marks is None:
            self.step_marks = (last, last)
        else:
            self.step_marks = (self.step_marks[0], last)

    def write_segment(self) -> None:
        """Write the part of the open epoch, or of the gap, that has passed, as a row of its own."""
        if self.epoch is not None and not self.is_paused:
            self._emit(self._epoch_row(RowKind.SEGMENT))
        elif not self._is_finished:  # a meter that comes up behind the tail has nothing to measure
            self._emit_gap(RowKind.GAP)

    def change_terms(self, epochs_before: int, rates: RatesInForce) -> None:
        """Count epochs and emissions otherwise from now on; no epoch has begun."""
        self._epochs_before = epochs_before
        self._rates = rates
        self._constant_rates = rates.constant

    # -- what is known ---------------------------------------------------------------------------------------------

    @property
    def last_epoch(self) -> int | None:
        """The number of the epoch that began last; None before the first."""
        if self.epochs_begun:
            return self._epochs_before + self.epochs_begun
        return None

    @property
    def steps_done(self) -> int:
        """Optimizer steps, those of the open row too."""
        return self._steps_in_rows + self._counts.get("steps", 0)

    @property
    def resolution_s(self) -> float:
        """An energy over less time than this is noise; 0 without a meter."""
        if self._meter is not None:
            return self._meter.resolution_s
        return 0.0

    @property
    def is_metering(self) -> bool:
        """True once the meter is up."""
        return self._meter is not None

    @property
    def awaits_meter(self) -> bool:
        """True while the meter is coming up beside the training."""
        return self._meter is None and self._no_energy_flag is Flag.METER_STARTING

    @property
    def gap_before_open_s(self) -> float:
        """The gap before the open epoch or segment that no row holds yet."""
        if self.epoch is not None:
            return self._gap.duration_s
        return 0.0

    def open_for_s(self) -> float:
        """Return the time that the current span has been open."""
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
        metered_kwh = span.energy.total_kwh
        rates = self._constant_rates or self._rates.between(first.started_utc_s, span.ended_utc_s)
        if metered_kwh is None:
            emissions_gco2e = None
        else:
            emissions_gco2e = gco2e_from_kwh(metered_kwh, rates.grams_per_kwh)
        return Row(
            kind,
            epoch,
            timestamp(started_utc_s),
            gap.duration_s,
            gap.energy,
            span.duration_s,
            counts,
            span.energy,
            emissions_gco2e,
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
        """Add what has passed to the gap; what lay before a mark from which no epoch began is in it."""
        span = self._close_span()
        before = self._gap
        if before.duration_s > 0:
            flags = (before.flags | span.flags) - ({Flag.SHORT} - (before.flags & span.flags))
            energy = sum_of_readings(before.energy, span.energy)
            duration_s = before.duration_s + span.duration_s
            span = _MeteredSpan(before.started_utc_s, span.ended_utc_s, duration_s, energy, flags)
        self._gap = span

    def _close_span(self) -> _MeteredSpan:
        """Return the span from the last boundary until now, from where the next one begins."""
        before = self._boundary
        now = self._now()
        passed_s = now.perf_s - before.perf_s
        duration_s = max(0.0, passed_s)  # a clock that goes back says nothing of the time
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
        """Read the meter before the open row ends, whose energy is the sum of its readings."""
        self._read(self._clock.perf_s())

    def _read(self, now_s: float) -> None:
        """Add what was metered since the last reading to the open span, and tell of it."""
        interval_s = max(0.0, now_s - self.read_at_s)
        self.read_at_s = now_s
        energy = UNKNOWN_ENERGY
        if self._meter is not None:
            energy = self._metered(self._meter, interval_s)
            if self._energy is None:
                self._energy = energy
            else:
                self._energy = sum_of_readings(self._energy, energy)
        if self._on_reading is not None:
            self._on_reading(interval_s, energy)

    def _metered(self, meter: Meter, interval_s: float) -> Energy:
        """Return what was metered; unknown where it fails, and the next time, which would hold the energy of both."""
        was_failing = self._is_failing
        self._is_failing = self._has_failed = True
        try:
            energy = checked_reading(meter.read())
            if not all(gpu.is_read for gpu in self._gpus()):
                self._lacks_gpu = True
        except Exception as error:  # a meter is somebody else's code on somebody else's hardware
            pass_on_from_handler(error)
            self._on_meter_failure(error if isinstance(error, MeterError) else MeterError(repr(error)))
            return UNKNOWN_ENERGY
        self._is_failing = False
        if was_failing:
            return UNKNOWN_ENERGY
        self._has_failed = False
        read_kwh = energy.total_kwh
        if read_kwh or (read_kwh is not None and interval_s >= meter.resolution_s):  # else it cannot tell yet
            self.metered_kwh = read_kwh + (self.metered_kwh or 0.0)
        return energy


def _whole(count: Any) -> int:
    """Return a count as a Python integer.

    Raises:
        ValueError: where it is negative or a fraction, or has too many digits.
    """
    value = count.item() if hasattr(count, "item") else count
    number = int(value)
    if number != value or not 0 <= number < _TOO_MANY:
        raise ValueError(value)
    return number
