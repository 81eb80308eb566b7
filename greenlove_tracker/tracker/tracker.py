"""``Tracker`` and ``track``: what a training loop calls."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ContextDecorator
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeAlias, TypeVar

from greenlove_tracker.machine.job import is_worker, ranks_of_process
from greenlove_tracker.meter import Meter
from greenlove_tracker.settings.config import is_strict, load_settings, refuse_unknown
from greenlove_tracker.text.console import is_interactive
from greenlove_tracker.text.format import plural
from greenlove_tracker.text.warn_once import WarnOnce
from greenlove_tracker.tracker.budgets import BudgetActions, Overrun
from greenlove_tracker.tracker.events import Exporter
from greenlove_tracker.tracker.exporters import checked_exporters
from greenlove_tracker.tracker.forecaster import ExplorationResult, prior_for
from greenlove_tracker.tracker.loop_length import loop_length, overrules
from greenlove_tracker.tracker.session import Session, open_run, run_dir_to_join, run_of_script
from greenlove_tracker.tracker.span_recorder import OpenSpan, SpanRecorder, span_name
from greenlove_tracker.tracker.state import RunMode
from greenlove_tracker.vocabulary.checkpoints import CheckpointEvent
from greenlove_tracker.vocabulary.errors import UsageError, pass_on_from_handler, whole_number
from greenlove_tracker.vocabulary.forecasting import Forecast
from greenlove_tracker.vocabulary.phases import Phase, Plan, phases_from
from greenlove_tracker.vocabulary.records import Clock, Consumption, Counts, RunStatus, RunSummary, status_of
from greenlove_tracker.vocabulary.stopping import StoppingRule

if TYPE_CHECKING:
    from greenlove_tracker.grid.live.fallback import IntensityFallbacks

__all__ = ["Tracker", "track"]

_P = ParamSpec("_P")
Function = TypeVar("Function", bound=Callable[..., Any])


class Tracker:
    """Tracks a training: time, energy, CO2e and cost, of each epoch and of all that lies between them.

    ::

        with Tracker(epochs=30, country="DE") as tracker:
            for epoch in range(30):
                tracker.epoch_start()
                train_one_epoch()
                tracker.epoch_end()

    It never breaks the training: what goes wrong on our side, and a call out of order, are warned of once, and the
    loop runs on. Where the log directory cannot be written, or a file or variable holds a bad setting, it says so and
    does nothing from the start; ``run_dir`` is then None. In a process that was forked, or after pickling, it does
    nothing either, and where ``multiprocessing`` imports the script again to set up a process, such as a worker of a
    ``DataLoader``. Under torchrun, Slurm and MPI every rank makes one, and only the first of a node carries a meter.

    Args:
        epochs: number of epochs; without it that of the loop around ``epoch_start()``, where the script shows it, as in
            ``for epoch in range(args.epochs)``. Where that loop certainly has another number, as ``range(8, 12)`` of a
            training that resumes, the loop's counts, and a warning says so.
        total_steps: number of optimizer steps, for a training that counts in steps; then ``step()`` alone is
            enough, and the whole training is one epoch, written in segments of at most a minute.
        country: ISO 3166 code or English name, ``US-CA``, or a cloud's region (``us-east-1``); without it the world's
            average is counted with.
        project: a name that runs are grouped by.
        log_dir: where runs are written; default ``greenlove_logs``.
        verbose: 0 says nothing but warnings; 1 the status line and the final screen too.
        phases: stretches of the training in which a step does more or less work, such as a batch that grows, or
            evaluations are more frequent; ``epochs`` or ``total_steps`` follows from them. Give those of the whole
            training, also where it resumes.
        prior: an exploration of this training, as ``estimate()`` gives it, or a forecast of as many epochs or steps; it
            is what is expected until the run says more.
        on_overrun: what to do where a budget (``max_energy_kwh=``, ``max_cost_usd=``, ``max_kgco2e=``,
            ``max_hours=``, ``deadline_utc=``) is likely to be exceeded: ``"warn"``, ``"stop"`` (raise
            ``BudgetExceeded`` between two epochs), or a function that takes an ``Overrun``; it is called between two
            epochs too.
        tags: words to find the run by, or names with values such as ``{"lr": 0.1}``, which reports group by
            (``--by lr``); ``final`` marks those that a paper reports.
        first_epoch: epochs that an earlier job did, where this one resumes: the first one that it does itself, counted
            from 0 as in ``for epoch in range(first_epoch, epochs)``. ``epochs`` stays the number of all. Forecasts,
            budgets and the log's ``epochs_planned`` are of what is left; the rows and the status line have the
            epochs' true numbers, which begin with 1: ``Tracker(epochs=30, first_epoch=10)`` does epochs 11 to 30.
        first_step: likewise, optimizer steps that were done, of ``total_steps``. Where ``epochs`` and ``total_steps``
            are both given, one of the two is enough, and ``first_step`` may lie in the middle of an epoch.
        intensity: the carbon intensity that is in force while it runs: ``"live"``, the name of a service such as
            ``"neso"``, a CSV file, or an ``IntensityFallbacks`` of ``greenlove_tracker.grid.live.fallback``; without
            it the offline table counts, and no network is asked.
        exporters: objects that rows, forecasts and the report are handed to beside the log, such as
            ``greenlove_tracker.integrations.exporters.mlflow.MLflowExporter()``; by name: ``export="mlflow,wandb"``.
        save_checkpoint: called before ``BudgetExceeded`` is raised.
        meter: measures the energy; default CodeCarbon.
        clock: read for all times; with one of your own nothing runs in the background.
        codecarbon_options: further arguments for CodeCarbon's tracker, such as its own outputs.
        **settings: every other field of ``greenlove_tracker.settings.config.Settings``, such as ``pue``,
            ``carbon_intensity_gco2e_per_kwh``, ``price_usd_per_gpu_hour``, ``continues``, ``log_user``,
            ``log_command``.

    Raises:
        UsageError: on a bad argument, such as an unknown country.
    """

    _pid = 0
    _session: Session | None = None  # None: calls do nothing

    def __init__(
        self,
        epochs: int | None = None,
        *,
        total_steps: int | None = None,
        country: str | None = None,
        project: str | None = None,
        log_dir: str | os.PathLike[str] | None = None,
        verbose: int | None = None,
        phases: Sequence[Phase] | str | None = None,
        prior: Forecast | ExplorationResult | None = None,
        on_overrun: str | Callable[[Overrun], None] | None = None,
        tags: str | list[str] | dict[str, Any] | None = None,
        first_epoch: int | None = None,
        first_step: int | None = None,
        intensity: str | os.PathLike[str] | IntensityFallbacks | None = None,
        exporters: Sequence[Exporter] = (),
        save_checkpoint: Callable[[], object] | None = None,
        meter: Meter | None = None,
        clock: Clock | None = None,
        codecarbon_options: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self._pid = os.getpid()
        refuse_unknown(settings, inspect.signature(Tracker).parameters)
        plan = Plan(epochs, total_steps, phases_from(phases))
        given = {
            "phases": plan.phases or None,
            "log_dir": log_dir,
            "project": project,
            "country": country,
            "verbose": verbose,
            "tags": tags,
        }
        given |= settings
        if isinstance(intensity, str | os.PathLike):
            given["intensity"] = os.fspath(intensity)
            source = None
        else:
            source = intensity
        exporters = checked_exporters(exporters)
        if callable(on_overrun):
            budget_actions = BudgetActions(on_overrun, save_checkpoint)
        else:
            budget_actions = BudgetActions(None, save_checkpoint)
            given["on_overrun"] = on_overrun
        if is_worker():
            return
        script = run_of_script()

        def begin() -> Session:
            if script is None:
                merged = load_settings(given)
            else:
                merged = script.settings_for_tracker(given)
            own = replace(plan, phases=merged.phases).rest_from(first_epoch, first_step)
            measured = {"meter": meter, "codecarbon_options": codecarbon_options, "intensity": source}
            expected = prior_for(prior, own)
            more: dict[str, Any] = {"prior": expected, "budget_actions": budget_actions, "exporters": exporters}
            if script is not None and not any(measured.values()) and script.can_be_taken_over(merged, clock):
                script.take_over(merged, own, **more)
                return script
            more |= measured | {"join_dir": run_dir_to_join()}
            if script is None:
                ranks = ranks_of_process(os.environ)
            else:
                ranks = script.state.ranks
                more |= {"mode": RunMode.RUNNER, "launch": script.launch}
            session = Session(merged, own, ranks, clock, **more)
            session.shows_final_screen = merged.verbose > 0 and script is None
            return session

        arguments = {name for name, value in given.items() if value is not None}
        if source is not None:
            arguments.add("intensity")
        self._session = _begun(begin, arguments, lambda: is_strict(given))

    # -- the loop ------------------------------------------------------------------------------------------------

    # A call out of order, or an error of ours, gives one warning, and the training goes on.

    def epoch_start(self) -> None:
        """Begin an epoch. The time since the last one is the gap before it.

        An epoch that is still open, such as after a ``continue`` in the loop, is closed here, counted and flagged.

        Raises:
            BudgetExceeded: if a budget is likely to be exceeded and ``on_overrun="stop"``.
        """
        session = self._own_session()
        if session is not None and not session.recorder.epochs_begun:
            _plan_by_loop(session, sys._getframe(1))
        self._call(Session.start_epoch)

    def epoch_end(self) -> None:
        """End the open epoch."""
        self._call(Session.end_epoch)

    def step(
        self,
        n_samples: Any = None,
        n_tokens: Any = None,
        *,
        n_batches: Any = 1,
        n_steps: Any = 1,
    ) -> None:
        """Count one optimizer step within an epoch; with ``total_steps`` no epoch is needed.

        Counts are whole numbers, or scalars of NumPy or torch. A count that is negative, a fraction or NaN is left out,
        with a warning. Reading a tensor on a GPU waits for it, as ``.item()`` does: add such counts up on the GPU, and
        pass their sum now and then.

        Args:
            n_samples: samples of the step, on this rank.
            n_tokens: tokens of the step, on this rank.
            n_batches: batches that gradients were accumulated over.
            n_steps: optimizer steps, if one call of the framework does several; the other counts cover all of them.

        Raises:
            BudgetExceeded: as ``epoch_start()``, if only ``total_steps`` is planned.
        """
        self._call(Session.step, Counts(n_steps, n_batches, n_samples, n_tokens))

    def pause(self) -> None:
        """Interrupt the open epoch for an evaluation or a checkpoint: its time and energy become a gap in the epoch."""
        self._call(Session.pause)

    def resume(self) -> None:
        """Go on with the open epoch. The next ``step()`` or ``epoch_end()`` does this too."""
        self._call(Session.resume)

    def log_metric(self, name: str, value: Any, *, higher_is_better: bool | None = None) -> None:
        """Log a value of a metric, such as an accuracy. The report and ``summary`` show its last and best value.

        The value belongs to the open epoch, else to the last one. NaN and infinity are kept, but are never the best.

        Args:
            name: the name of the metric.
            value: a number, or a scalar of NumPy or torch. Reading a tensor on a GPU waits for it.
            higher_is_better: True if larger values are better. If it is not given, the name tells: larger for
                ``accuracy``, ``f1``, ``auc``, ``bleu``; smaller for ``loss``, ``error``, ``perplexity``, ``rmse``. For
                other names both the lowest and the highest value are kept.
        """
        self._call(Session.log_metric, name, value, higher_is_better)

    def expect_stop(self, rule: StoppingRule) -> None:
        """Forecast from now on with early stopping, as ``EarlyStopping(…, tracker=tracker)`` asks for by itself.

        The values of the rule's metric that ``log_metric`` logs after this call are simulated on; a run that resumes
        takes those of the epochs before from the run that it ``continues``.

        Args:
            rule: that may end the training.

        Raises:
            UsageError: where it is none, or the run is planned in steps.
        """
        self._call(Session.expect_stop, rule)

    def log_early_stop(self, best_epoch: int | None) -> None:
        """Log that early stopping ends the training with this epoch, as ``EarlyStopping`` does by itself.

        An epoch that is open still counts as done once the run is closed.

        Args:
            best_epoch: the number of the best epoch, from 1; None where none is known.
        """
        self._call(Session.log_early_stop, None if best_epoch is None else whole_number("best_epoch", best_epoch))

    def log_checkpoint(self, event: CheckpointEvent) -> None:
        """Log what became of a checkpoint, as a ``Checkpointer`` does by itself; from any thread.

        Args:
            event: a row of ``checkpoints-<rank>.csv``.
        """
        self._call(Session.log_checkpoint, event)

    def stop(self, *, status: RunStatus = RunStatus.FINISHED) -> None:
        """Close the run: totals are written, and shown at ``verbose=1``; it may be called again.

        Args:
            status: how it ended, such as ``RunStatus.STOPPED`` where a budget ended the training early.
        """
        self._finish(status, None)

    def wait_ready(self, timeout_s: float = 30.0) -> bool:
        """Wait until energy is being measured; return False if the meter fails or is not up in time."""
        session = self._session_here
        return session is not None and session.wait_ready(timeout_s)

    # -- what is known of the run --------------------------------------------------------------------------------

    @property
    def run_dir(self) -> Path | None:
        """The directory of this run; None if nothing is tracked."""
        return self._session.run_dir if self._session else None

    @property
    def forecast(self) -> Forecast | None:
        """The forecast of the whole run, past and future, with intervals; None if it is too early.

        A background thread makes it while the training runs. Asking for it brings it up to date.
        """
        session = self._session_here
        return session.forecast() if session is not None else None

    @property
    def consumption(self) -> Consumption:
        """The time, energy, CO2e and cost of the run so far, each None if unknown.

        It is up to date within an epoch too. Asking takes some 0.25 ms, or 1 ms if the last reading of the meter is
        over a second old: fine for every epoch, too slow for every step. It does not wait for the meter; until that is
        up the energy is None.
        """
        session = self._session_here
        return Consumption() if session is None else session.consumption()

    @property
    def summary(self) -> RunSummary | None:
        """The totals of this rank's node, once the run is closed. ``read_logs`` adds up all nodes."""
        return self._session.summary if self._session else None

    # -- its end -------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None and issubclass(error, KeyboardInterrupt) and is_interactive():
            return  # a notebook's cell was interrupted: the tracker stays usable
        self._finish(*status_of(error, value))

    def __reduce__(self) -> tuple[Any, ...]:
        return object.__new__, (Tracker,)  # which does nothing

    @property
    def _session_here(self) -> Session | None:
        """The session in the process that made it; None in a forked or pickled copy."""
        if os.getpid() == self._pid:
            return self._session
        return None

    def _own_session(self) -> Session | None:
        """Return the open session in the process that made it; else None."""
        session = self._session_here
        if session is None or session.state.is_training_over:
            return None
        return session

    def _call(self, method: Callable[Concatenate[Session, _P], None], *args: _P.args, **kwargs: _P.kwargs) -> None:
        """Call a method of the open run; after its end, warn once."""
        session = self._session_here
        if session is None:
            return
        if session.state.is_training_over:
            session.warn_closed(method.__name__)
        else:
            method(session, *args, **kwargs)

    def _finish(self, status: RunStatus, exit_code: int | None) -> None:
        session = self._own_session()
        if session is not None:
            session.end_training(status, exit_code)


def _plan_by_loop(session: Session, frame: FrameType) -> None:
    """Take the number of epochs from the script's loop, if none or a wrong one was given."""
    state = session.state
    plan = state.plan
    if plan is None:
        return
    given = plan.length
    # A user who gave more than a number knows better, and a notebook may have further loops.
    is_number_alone = plan == Plan(given) and state.prior is None and not is_interactive()
    if given is not None and not is_number_alone:
        return
    try:
        found = loop_length(frame, None)
        if found is None or (given is not None and not overrules(found, given, frame)):
            return
        if given is not None and state.is_first_rank:
            loop = f"the loop over {found.source}, has {plural(found.epochs, 'round')}"
            state.warn_once.warn("loop", f"Tracker(epochs={given}), but {loop}: the forecast goes by the loop")
        session.plan_job(replace(plan, epochs=found.epochs), found.source)
    except Exception as error:  # epochs are tracked all the same
        session.state.warn_once.internal_error("plan", error)


def _begun(begin: Callable[[], Session], arguments: set[str], is_strict: Callable[[], bool]) -> Session | None:
    """Return the new run; None, with a warning, if it cannot begin for a reason outside the script.

    Raises:
        UsageError: if an argument of the script is bad.
        Exception: with ``strict``, whatever error keeps the run from beginning.
    """
    try:
        return begin()
    except Exception as error:
        pass_on_from_handler(error)
        is_of_script = isinstance(error, UsageError) and error.is_in(arguments)
        if is_of_script or is_strict():
            raise
        reason = f"{error}"
        if not isinstance(error, UsageError | OSError):
            reason = f"an error of greenlove_tracker's own: {error!r}"
    WarnOnce().warn("untracked", f"this training is not tracked: {reason}")
    return None


# -- parts of a script ------------------------------------------------------------------------------------------------


# An entered ``track`` block with the open run and its span; None without a run, or within a span of the same name.
_Entry: TypeAlias = "tuple[NamedSpan, Session | None, OpenSpan | None]"
_entered: ContextVar[tuple[_Entry, ...]] = ContextVar("greenlove_tracker_spans", default=())
_warn_once = WarnOnce()


class NamedSpan(ContextDecorator):
    """A named part of a script, measured each time it is entered: a ``with`` block or a decorated function.

    Args:
        name: the name.

    Raises:
        UsageError: if the name is empty.
    """

    def __init__(self, name: str) -> None:
        self._name = span_name(name)
        if not self._name:
            raise UsageError('track wants a name: with track("preprocessing"):')

    def __enter__(self) -> NamedSpan:
        entries = _entered.get()
        session = open_run()
        span = None
        if session is not None:
            within = next((span for *_, span in reversed(entries) if span is not None), None)
            with session.tracked_call:
                span = session.run_parts.get(SpanRecorder).begin(self._name, within)
        elif not is_worker():
            _warn_once.misuse("track", "track() measures nothing without an open Tracker: put `with Tracker():` around")
        _entered.set((*entries, (self, session, span)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        entries = _entered.get()
        at = max((i for i, (owner, *_) in enumerate(entries) if owner is self), default=None)
        if at is None:
            return
        _entered.set(entries[:at])
        _, session, span = entries[at]
        if session is not None and session.pid == os.getpid() and span is not None:
            with session.tracked_call:
                session.run_parts.get(SpanRecorder).end(span, has_failed=kind is not None)

    def __call__(self, function: Function) -> Function:
        """Decorate a function, so that each call is a span.

        Raises:
            UsageError: if it yields or awaits, since its body then runs in pieces.
        """
        is_cut = (inspect.isgeneratorfunction, inspect.isasyncgenfunction, inspect.iscoroutinefunction)
        if any(is_of_kind(function) for is_of_kind in is_cut):
            name = f"track({self._name!r})"
            raise UsageError(f"{name}: a function that yields or awaits: measure parts of its body, with {name}:")
        return super().__call__(function)


def track(target: Any, /) -> Any:
    """Measure a function, or a part of a script, under a name.

    ::

        @track
        def preprocess(): ...

        with track("evaluation"):
            evaluate()

    Time and energy go to ``spans-<rank>.csv`` of the open run, and the report shows them. Epochs and totals stay the
    same. Without an open ``Tracker`` nothing is measured, and a warning says so. Spans may be nested. A span within a
    span of the same name is part of it. A span does not synchronise the GPU: work that it only queues counts for the
    next span.

    Args:
        target: a name, or a function to decorate under its own name; ``@track("a name")`` gives it another.

    Raises:
        UsageError: if it is neither a name nor a function, or the function yields or awaits.
    """
    if isinstance(target, str):
        return NamedSpan(target)
    if not callable(target):
        raise UsageError(f'track wants a name or a function, not {target!r}: with track("preprocessing"):')
    return NamedSpan(getattr(target, "__qualname__", type(target).__name__).rpartition("<locals>.")[2])(target)
