"""One run while it goes on: state, directory, meter, background thread and summary around a recorder."""

from __future__ import annotations

import functools
import os
import shlex
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from greenlove_tracker.grid import resolve_place
from greenlove_tracker.logs import schema, writer
from greenlove_tracker.logs.tables import CHECKPOINTS
from greenlove_tracker.machine import devices
from greenlove_tracker.machine.forks import start_thread
from greenlove_tracker.machine.job import RUN_DIR_VARIABLE, Ranks
from greenlove_tracker.meter import Meter
from greenlove_tracker.meter.codecarbon import choose_meter
from greenlove_tracker.meter.watched import WatchedMeter
from greenlove_tracker.settings.config import Settings
from greenlove_tracker.text import console
from greenlove_tracker.text.warn_once import WarnOnce
from greenlove_tracker.tracker import background, closing
from greenlove_tracker.tracker.budget_monitor import BudgetMonitor
from greenlove_tracker.tracker.budgets import BudgetActions
from greenlove_tracker.tracker.events import Exporter, RunEnded
from greenlove_tracker.tracker.exporters import RunExporters, named_exporters
from greenlove_tracker.tracker.forecaster import RunForecaster
from greenlove_tracker.tracker.metadata import run_fields
from greenlove_tracker.tracker.meter_starter import MeterStarter
from greenlove_tracker.tracker.part import RunPart, RunParts
from greenlove_tracker.tracker.rates_in_force import RatesInForce, open_rates
from greenlove_tracker.tracker.recorder import Recorder
from greenlove_tracker.tracker.shutdown import guard
from greenlove_tracker.tracker.span_recorder import SpanRecorder
from greenlove_tracker.tracker.state import RunMode, RunState, make_run_dir, run_factors
from greenlove_tracker.tracker.status import StatusPrinter
from greenlove_tracker.vocabulary.checkpoints import CheckpointEvent
from greenlove_tracker.vocabulary.errors import TrackerStateError, UsageError
from greenlove_tracker.vocabulary.forecasting import Forecast
from greenlove_tracker.vocabulary.metrics import number_of
from greenlove_tracker.vocabulary.phases import Plan
from greenlove_tracker.vocabulary.records import (
    Clock,
    Consumption,
    Counts,
    Field,
    Flag,
    Row,
    RunStatus,
    RunSummary,
    SystemClock,
)
from greenlove_tracker.vocabulary.stopping import StoppingRule
from greenlove_tracker.vocabulary.workloads import Seen

if TYPE_CHECKING:
    from greenlove_tracker.grid.live.fallback import IntensityFallbacks

# The parts of a run, in the order in which events reach them. A new part is a module, and a line here.
PARTS: tuple[Callable[[RunParts], RunPart], ...] = (
    background.IntensityWatch,
    MeterStarter,
    background.LogKeeper,
    SpanRecorder,
    background.MetricLog,
    RunForecaster,
    BudgetMonitor,
    StatusPrinter,
    RunExporters,
)
_FRESH_S = 1.0  # a reading of the meter this recent answers a question about the consumption
_END_S = 20.0  # the end of a run waits at most this long for its parts,
_TERMINATED_S = 3.0  # and after SIGTERM this long: schedulers give 5 s or more


@dataclass(frozen=True, slots=True)
class Launch:
    """A script under ``greenlove run``. Each training in it is a run; the time around them belongs to one of them.

    Attributes:
        settings: the settings that ``greenlove run`` was given.
        run_dir: the directory of the script's first run.
    """

    settings: Settings
    run_dir: Path


def _recorded(call: Callable[[Recorder], None]) -> Callable[[Session], None]:
    """Return a method of ``Session`` that calls this method of its recorder."""

    @functools.wraps(call)
    def method(session: Session) -> None:
        with session.tracked_call as recorder:
            getattr(recorder, call.__name__)()  # looked up now: a test may have put a fault in its place

    return method


class Session:
    """One run of this process. ``Tracker``, the runner and the exploration call it.

    Args:
        settings: what to measure and count with.
        plan: the number of epochs or steps, as far as known.
        ranks: the rank of this process in the training.
        clock: read for all times. With a clock of your own nothing runs in the background: call ``tick()``.
        meter: the meter; None chooses one by the settings and the rank.
        mode: the kind of training that the run tracks.
        join_dir: the directory of a run that another process leads.
        prior: the forecast of an exploration of this training.
        budget_actions: the user's own code for budgets.
        extra_fields: further lines for ``run.csv``.
        codecarbon_options: passed on to CodeCarbon.
        exporters: the script's exporters; those that the settings name are added.
        intensity: the script's own source of carbon intensity, instead of one that the settings name.
        launch: the ``greenlove run`` in whose script a further tracker begins. This run begins where the last one ends.

    Attributes:
        extra_fields: lines for ``run.csv`` beside those that each run has.
        launch: the ``greenlove run`` of this script; without it this run alone.
        run_parts: the parts of the run, which do all that is not timing rows.
        state: the state of the run.
        recorder: the recorder of the run.
        writer: the writer of the run's files.
        summary: the totals of this rank, once the run is closed.
        shows_final_screen: True to print the final screen once the run is closed.

    Raises:
        UsageError: if the place is unknown, or the log directory cannot be written.
    """

    _n_explorations: ClassVar[int] = 0  # open in this process

    def __init__(
        self,
        settings: Settings,
        plan: Plan,
        ranks: Ranks,
        clock: Clock | None = None,
        meter: Meter | None = None,
        *,
        mode: RunMode = RunMode.OWN,
        join_dir: Path | None = None,
        prior: Forecast | None = None,
        budget_actions: BudgetActions | None = None,
        extra_fields: Sequence[Field] = (),
        codecarbon_options: Mapping[str, Any] | None = None,
        exporters: Sequence[Exporter] = (),
        intensity: IntensityFallbacks | None = None,
        launch: Launch | None = None,
    ) -> None:
        self.pid = os.getpid()
        self.summary: RunSummary | None = None
        self.shows_final_screen = False
        in_background = clock is None
        clock = clock or SystemClock()
        warn_once = WarnOnce()
        if ranks.rank == 0 and launch is None:
            for note in settings.notes:
                warn_once.warn(note, note)
        started_s = clock.perf_s()
        started_utc_s = clock.utc_s()
        is_exported = ranks.rank == 0 and join_dir is None and mode is not RunMode.EXPLORATION
        exporters = exporters_of(settings, exporters, warn_once, is_exported=is_exported)
        factors = run_factors(settings, plan, "", writer.timestamp(started_utc_s))
        rates = RatesInForce(factors.carbon_intensity, factors.pue)
        if ranks.carries_meter and mode is not RunMode.EXPLORATION:  # an exploration is about a later time
            factors, rates = open_rates(settings, factors, clock, warn_once, source=intensity)
        place = resolve_place(settings.country)
        intensity_now = factors.carbon_intensity.value
        iso3 = "" if place is None else place.iso3
        meter = meter or choose_meter(settings, ranks, clock, intensity_now, iso3, codecarbon_options)
        run_dir = join_dir or make_run_dir(settings, ranks, started_utc_s)
        with guard.one_begins:  # if several threads begin runs, each closes the one before
            before = None if mode is RunMode.EXPLORATION else open_run()  # an exploration may run within a run
            if before is not None:
                before.end_before_next()
            if before is not None and launch is not None and in_background:
                started_s, started_utc_s = before.recorder.boundary
            if in_background and not meter.starts_at_once:
                meter = WatchedMeter(meter)
            is_planned = launch is not None or mode not in (RunMode.RUNNER, RunMode.COMMAND)
            state = self.state = RunState(
                settings=settings,
                plan=plan if is_planned else None,
                factors=replace(factors, run_id=run_dir.name),
                budget_actions=budget_actions or BudgetActions(),
                prior=prior,
                mode=mode,
                ranks=ranks,
                clock=clock,
                started_s=started_s,
                started_utc_s=started_utc_s,
                run_dir=run_dir,
                meter=meter,
                exporters=exporters,
                in_background=in_background,
                is_part_of_other=join_dir is not None,
                has_tracker=mode is RunMode.OWN or launch is not None,
                warn_once=warn_once,
                rates_in_force=rates,
            )
            self.launch = launch or Launch(settings, run_dir)
            if mode is RunMode.RUNNER:
                os.environ[RUN_DIR_VARIABLE] = str(run_dir)  # processes that the script starts join the run
            self.extra_fields = list(extra_fields)
            if join_dir is not None:
                self.extra_fields.append(Field("role", schema.JOINED_ROLE))
            if launch is not None:
                self.extra_fields.append(Field("part_of", launch.run_dir.name))
            stream: int | str = ranks.rank
            if mode is RunMode.COMMAND and join_dir is None and ranks.rank == 0:
                stream = schema.COMMAND_STREAM  # further ranks of srun run the command, too: each has rows of its own
            self.writer = writer.RunWriter(
                run_dir,
                stream,
                run_fields(state, plan, self.extra_fields),
                lambda error: warn_once.warn(
                    "log", f"the log cannot be written ({error}); tracking goes on in memory, writing is tried again"
                ),
                has_rates=rates.is_by_time,
            )
            self.recorder: Recorder = Recorder(
                clock,
                self._emit,
                before_reading=self._synchronise,
                rates=rates,
                on_meter_failure=lambda error: warn_once.warn(
                    "meter", f"the energy meter failed: {error}. Time is tracked on; energy is unknown where it fails"
                ),
                on_bad_count=lambda message: warn_once.misuse("count", message),
                started=(started_s, started_utc_s),
                epochs_before=plan.first_epoch,
            )
            self._calls = 0  # calls of the training that are under way, nested
            self._deferred: tuple[RunStatus, int | None] | None = None  # the end of the run, due after these calls
            self.run_parts = RunParts(PARTS, state, self.recorder, self.writer)
            self._is_over = threading.Event()
            if mode is RunMode.EXPLORATION:
                Session._n_explorations += 1
            if mode is not RunMode.EXPLORATION or open_run() is None:
                guard.watch(self)
            self.run_parts.tell(lambda part: part.started())
        if in_background:  # without a thread rows are still written, by the training's own calls
            start_thread("greenlove-tracker", self._work)

    def _emit(self, row: Row) -> None:
        self.run_parts.n_rows += 1  # first, since a signal handler of the training may raise in between: see summarise
        self.writer.write_row(row)
        self.run_parts.rows.append(row)

    def _synchronise(self) -> None:
        if guard.is_terminating:
            return  # a hanging device must not block the end
        try:
            devices.synchronise()
        except Exception as error:  # of a failed GPU kernel; torch raises it again at its next call
            self.state.warn_once.warn(
                "synchronise", f"the GPU could not be synchronised: {error}; times may be short", error
            )

    @property
    @contextmanager
    def tracked_call(self) -> Iterator[Recorder]:
        """Hold the run's lock around a call of the training: ``with session.tracked_call as recorder``.

        A call out of order and an error of ours give one warning each. What a signal handler of the training raises
        within the block passes through.
        """
        with self.state.lock:
            self._calls += 1
            try:
                yield self.recorder
            except Exception as error:
                self._warn_of(error)
            finally:
                self._calls -= 1  # first, so that no signal handler of the training can raise before it
                self._finish_if_deferred()

    def _finish_if_deferred(self) -> None:
        if self._deferred is not None and not self._calls:
            self.finish(*self._deferred)

    def _warn_of(self, error: Exception) -> None:
        if isinstance(error, TrackerStateError):
            self.state.warn_once.misuse(f"{error}", f"{error}")
        else:
            self.state.warn_once.internal_error("internal", error)

    # -- for every caller ----------------------------------------------------------------------------------------

    @property
    def run_dir(self) -> Path:
        """The directory of the run, absolute."""
        return self.state.run_dir

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait until the meter is up; return False if it fails or is not up in time."""
        return self.run_parts.get(MeterStarter).wait_ready(timeout_s)

    def write_fields(self, fields: Sequence[Field]) -> None:
        """Append lines to ``run.csv``."""
        with self.tracked_call:
            self.writer.write_fields(fields)

    def tick(self) -> None:
        """Pass on the rows so far, and tick each part: each second, or when the owner of the clock calls."""
        if not self.state.is_finished:
            self.run_parts.tell_rows()
            self.run_parts.tell(lambda part: part.tick())

    def _work(self) -> None:
        while not self._is_over.wait(background.TICK_S):
            self.tick()

    def forecast(self) -> Forecast | None:
        """Return the latest forecast, updated if the run has progressed."""
        try:
            self.run_parts.get(RunForecaster).update()
        except Exception as error:  # asking must not end a training
            self.state.warn_once.internal_error("forecast", error)
        return self.state.forecast

    def consumption(self) -> Consumption:
        """Return the run's consumption so far; of a closed run that of its summary."""
        if self.summary is not None:
            return self.summary.consumption
        found = Consumption()
        with self.tracked_call as recorder:
            if self.state.clock.perf_s() >= recorder.read_at_s + _FRESH_S:
                recorder.read_within_row()
            self.run_parts.tell_rows()
            found = self.state.consumption(recorder.metered_kwh)
        return found  # noqa: RET504  # unknown after an error of ours

    # -- the training's thread -----------------------------------------------------------------------------------

    def start_epoch(self) -> None:
        """Begin an epoch. One that is still open is closed first.

        Raises:
            BudgetExceeded: if a budget is overrun and the settings ask to stop.
        """
        self.act_on_overruns()
        if self.state.is_finished:
            return  # the user's own function stopped it
        with self.tracked_call as recorder:
            if recorder.epoch is not None and console.is_interactive():
                recorder.abandon_epoch()  # a cell was interrupted, and is run again
            elif recorder.epoch is not None:
                self.state.warn_once.misuse(
                    "epoch_start",
                    f"epoch_start() while epoch {recorder.epoch} is open: that one is closed here, counted and "
                    "flagged; call epoch_end() once for every start, before a `continue` too",
                )
                recorder.end_epoch(Flag.NOT_ENDED)
            recorder.start_epoch()

    end_epoch = _recorded(Recorder.end_epoch)
    pause = _recorded(Recorder.pause)
    resume = _recorded(Recorder.resume)
    # An observer knows that an epoch has begun only after its first step, and may be wrong before: it marks the time.
    mark = _recorded(Recorder.mark)
    start_epoch_at_mark = _recorded(Recorder.start_epoch_at_mark)
    abandon_epoch = _recorded(Recorder.abandon_epoch)

    def act_on_overruns(self) -> None:
        """Act on the overruns that the background thread found.

        Raises:
            BudgetExceeded: if the settings ask to stop.
        """
        if self.state.limits:
            self.run_parts.tell_rows()  # the last epoch's counts
            self.run_parts.pass_between_epochs()

    def plan_job(self, plan: Plan | None, source: str) -> None:
        """Set the length of the training, once the script shows it.

        Args:
            plan: the length; None: another training has begun, whose length is unknown.
            source: where the length was found, for the log.
        """
        known = plan or Plan()
        values = {"epochs_planned": known.epochs, "total_steps_planned": known.total_steps, "plan_source": source}
        state = self.state
        with self.tracked_call:
            state.plan = plan
            state.plan_source = source
            state.factors = replace(state.factors, epochs_planned=known.epochs)
            if plan is None:
                state.forecast = None
            changed = [name for name, value in values.items() if value or name in self.writer.fields]
            self.writer.write_fields([Field(name, schema.cell(values[name])) for name in changed])

    @property
    def is_elsewhere(self) -> bool:
        """True if an observer's epochs do not count: the script tracks or explores by itself, or the run is over."""
        return self.state.is_finished or self.is_exploring or self.state.has_tracker

    @property
    def is_exploring(self) -> bool:
        """True while this process explores."""
        return self._n_explorations > 0

    def step(self, done: Counts) -> None:
        """Count a step. If the plan has only steps, the first step opens the single epoch.

        Raises:
            BudgetExceeded: if the plan has only steps, a budget is overrun and the settings ask to stop.
        """
        recorder = self.recorder
        plan = self.state.plan
        with self.state.lock:  # as in ``tracked_call``, without its 3 µs
            self._calls += 1
            try:
                if recorder.epoch is None and plan is not None and plan.total_steps is not None:
                    recorder.open_epoch_from_last_row()
                recorder.count(done)
            except Exception as error:
                self._warn_of(error)
            finally:
                self._calls -= 1  # first, so that no signal handler of the training can raise before it
                self._finish_if_deferred()
        if plan is not None and plan.total_steps and not plan.epochs:
            self.act_on_overruns()

    def log_metric(self, name: str, value: object, higher_is_better: bool | None = None) -> None:
        """Log a value of a metric; leave out, with a warning, what is not a number."""
        number = number_of(value)  # before the lock is taken, since reading a value from a GPU waits
        with self.tracked_call:
            self.run_parts.get(background.MetricLog).log(name, value, number, higher_is_better)

    def expect_stop(self, rule: StoppingRule) -> None:
        """Forecast from now on with early stopping.

        Raises:
            UsageError: if this is not a stopping rule, or the run is planned in steps.
        """
        if not isinstance(rule, StoppingRule):
            raise UsageError(f"expect_stop wants a StoppingRule, such as EarlyStopping(…).rule, not {rule!r}")
        plan = self.state.plan
        if plan is not None and not plan.is_in_epochs and plan.total_steps:
            raise UsageError(
                "early stopping counts epochs, and this run is planned in steps: give Tracker(epochs=…) too"
            )
        with self.tracked_call:
            self.run_parts.get(RunForecaster).expect_stop(rule)

    def log_early_stop(self, best_epoch: int | None) -> None:
        """Note that early stopping ends the training after the open or the last epoch."""
        with self.tracked_call as recorder:
            after = recorder.epoch or recorder.last_epoch or 0
            self.state.stopped_early_after = after
            is_known = best_epoch is not None and best_epoch <= after  # else it counts something else
            self.run_parts.note(stopped_early_after=after or None, best_epoch=best_epoch if is_known else None)

    def note_kind(self, precision: Seen, workload: Seen) -> None:
        """Note the detected precision and workload; what the user gave stays.

        Args:
            precision: the precision that the training computes in.
            workload: the class of workload.
        """
        with self.tracked_call:
            for name, found in (("precision", precision), ("workload", workload)):
                if not getattr(self.state.settings, name) and not self.state.is_finished:
                    self.run_parts.note(**{name: found.value, f"{name}_basis": found.basis})

    def log_checkpoint(self, event: CheckpointEvent) -> None:
        """Log an event of a checkpoint, from any thread."""
        with self.tracked_call:
            self.writer.write(CHECKPOINTS, event)

    def warn_closed(self, method: str) -> None:
        """Warn of a call after the end of the run, unless another run has replaced it."""
        if self.summary is None or self.summary.status != RunStatus.SUPERSEDED:
            self.state.warn_once.misuse(
                "closed", f"{method}() after stop(): this run is closed, later calls are ignored; make a new Tracker"
            )

    @property
    def has_trained(self) -> bool:
        """True once a training has begun in this run."""
        return self.state.has_tracker or self.recorder.epochs_begun > 0

    def end_training(self, status: RunStatus, exit_code: int | None) -> None:
        """End the training. Under ``greenlove run`` the rest of the script still belongs to the run."""
        if self.state.mode is not RunMode.RUNNER or self._calls:
            self.finish(status, exit_code)
            return
        with self.tracked_call as recorder:
            closing.end_open_epoch(self.run_parts, status)
            recorder.write_segment()
            self.run_parts.tell_rows()
            self.state.training_status = status
            self.state.is_training_over = True
            self.run_parts.note(training_status=status)
            self.summary = closing.summarise(self.run_parts, status, None)
            self.writer.sync()
            exporters = self.run_parts.get(RunExporters)
            exporters.ended(RunEnded(status, self.summary, self.run_dir, self.state.clock.utc_s()))
        exporters.wait(_END_S)

    # -- the end -------------------------------------------------------------------------------------------------

    def end_before_next(self) -> None:
        """Close the run because another begins in this process: two meters would count everything twice."""
        state = self.state
        if state.mode is not RunMode.RUNNER or (state.has_tracker and state.training_status is None):
            run_id = state.factors.run_id
            state.warn_once.warn(
                "superseded",
                f"run {run_id} was still open; a new one closes it as superseded: a process tracks one run at a time, "
                "so trials side by side need a process each",
            )
            self.finish(RunStatus.SUPERSEDED)
            return
        with self.tracked_call:
            self.run_parts.note(part_of=self.launch.run_dir.name)
        self.shows_final_screen = state.settings.verbose > 0 and self.has_trained
        self.finish(RunStatus.FINISHED)

    def finish(self, status: RunStatus, exit_code: int | None = None) -> None:
        """Write the tail row and the summary, and release everything; once, and only in the process that began the run.

        Within a call of the training, such as when a handler of SIGTERM calls this, it is done after that call.
        """
        if self.pid != os.getpid():
            return
        with self.state.lock:
            if self._calls or self.state.is_finished:
                self._deferred = status, exit_code
                return
            self._calls += 1  # so that a signal during the end is deferred
            try:
                self._finish_now(status, exit_code)
            finally:
                self._calls -= 1
        limit_s = _TERMINATED_S if status is RunStatus.TERMINATED else _END_S
        self.run_parts.tell(lambda part: part.wait(limit_s))
        guard.end_if_terminated()

    def _finish_now(self, status: RunStatus, exit_code: int | None) -> None:
        """Finish the run. ``finish`` holds the lock and makes sure that no call of the training is under way."""
        status = self.state.training_status or status
        try:
            closing.end_rows(self.run_parts, status)
            self.summary = closing.summarise(self.run_parts, status, exit_code)
            closing.close_log(self.run_parts, self.summary)
        except Exception as error:  # an error of ours never spoils the end of a training
            self.state.warn_once.warn("finish", f"the run could not be closed properly: {error!r}", error)
        finally:
            self.state.is_finished = self.state.is_training_over = True
            self._is_over.set()
            ending = RunEnded(status, self.summary, self.run_dir, self.state.clock.utc_s())
            self.run_parts.tell(lambda part: part.ended(ending))
            guard.release(self)
            if self.state.mode is RunMode.EXPLORATION:
                Session._n_explorations -= 1
            if self.state.mode is RunMode.RUNNER and not self.state.is_part_of_other:
                os.environ.pop(RUN_DIR_VARIABLE, None)
        if self.shows_final_screen and self.summary is not None and status is not RunStatus.SUPERSEDED:
            closing.show_final_screen(self.run_parts, f"greenlove report {shlex.quote(self.state.shown_dir)}")


def exporters_of(
    settings: Settings, own: Sequence[Exporter], warn_once: WarnOnce, *, is_exported: bool
) -> Sequence[Exporter]:
    """Return the script's own exporters, and those that the settings name. Warn of a bad name in a file or a variable.

    Raises:
        UsageError: if an argument has a bad name.
    """
    if not is_exported:
        return ()
    instead = "nothing is exported, the run is tracked without"
    named = warn_once.of_setting(settings, "export", instead, lambda: named_exporters(settings.export))
    return (*own, *(named or ()))


def open_run() -> Session | None:
    """Return the open run of this process; None if there is none."""
    current = guard.current
    if isinstance(current, Session) and not current.state.is_finished:
        return current
    return None
