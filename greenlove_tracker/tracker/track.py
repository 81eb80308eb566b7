"""``track``: measures a function, or a part of a script, by name."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar, overload

from greenlove_tracker.errors import UsageError
from greenlove_tracker.records import RunStatus
from greenlove_tracker.tracker.session import Session, open_run
from greenlove_tracker.tracker.shutdown import status_of
from greenlove_tracker.tracker.span_recorder import OpenSpan, SpanRecorder, span_name
from greenlove_tracker.tracker.tracker import Tracker

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, eq=False)
class _Entry:
    """One entry into a span, on one thread or in one task.

    Attributes:
        owner: the object that was entered.
        session: the run that it is written to; None where there is none.
        span: its span in that run.
        tracker: of a run that is the span's own, and ends with it.
    """

    owner: NamedSpan
    session: Session | None
    span: OpenSpan | None
    tracker: Tracker | None


_entered: ContextVar[tuple[_Entry, ...]] = ContextVar("greenlove_tracker_spans", default=())
_making_run = threading.Lock()  # of two threads that begin at once, one makes the run


class NamedSpan:
    """A part of a script that is measured wherever it is entered, as a ``with`` block or a decorated function.

    Args:
        name: of it; empty: that of the function that is decorated.
        settings: of the run that it makes where none is open.
    """

    def __init__(self, name: str, settings: dict[str, Any]) -> None:
        self._name, self._settings = span_name(name), settings

    def __enter__(self) -> NamedSpan:
        if not self._name:
            raise UsageError('track() of a block wants a name: with track("preprocessing"):')
        entries = _entered.get()
        session, tracker = open_run(), None
        if session is None and not entries:
            session, tracker = self._make_run()
        span = None
        if session is not None:
            within = entries[-1].span if entries and entries[-1].session is session else None
            with session.tracked_call:
                span = session.run_parts.get(SpanRecorder).begin(self._name, within) or within
        _entered.set((*entries, _Entry(self, session, span, tracker)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        entries = _entered.get()
        at = max((i for i, entry in enumerate(entries) if entry.owner is self), default=None)
        if at is None:
            return
        entry, outer = entries[at], entries[at - 1].span if at else None
        _entered.set(entries[:at])
        status, _ = status_of(kind, error)
        session, span = entry.session, entry.span
        is_open = session is not None and session.pid == os.getpid() and not session.is_finished
        if session is not None and is_open and span is not None and span is not outer:
            with session.tracked_call:
                session.run_parts.get(SpanRecorder).end(span, has_failed=status is not RunStatus.FINISHED)
        if entry.tracker is not None:
            entry.tracker.stop(status=status)

    def __call__(self, function: Function) -> Function:
        """Decorate a function; each call is a span.

        Raises:
            UsageError: where it is none, or one that yields: its body runs between the calls of others.
        """
        if not callable(function):
            raise UsageError(f"track: {function!r} is no function")
        qualified = getattr(function, "__qualname__", type(function).__name__)
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise UsageError(f'track: {qualified} yields: measure parts of its body, with track("a name"):')
        span = NamedSpan(self._name or qualified.rpartition("<locals>.")[2], self._settings)
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*args: Any, **kwargs: Any) -> Any:
                with span:
                    return await function(*args, **kwargs)

            return awaited  # type: ignore[return-value]

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with span:
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]

    def _make_run(self) -> tuple[Session | None, Tracker | None]:
        """Return a run of the span's own; none in a process of multiprocessing, which is a part of another's work."""
        process = sys.modules.get("multiprocessing.process")
        with _making_run:
            if (session := open_run()) is not None or (process and process.parent_process() is not None):
                return session, None
            tracker = Tracker(**self._settings)
            return open_run(), tracker


@overload
def track(function: Function, /) -> Function: ...
@overload
def track(name: str = "", /, **settings: Any) -> NamedSpan: ...
def track(target: Any = "", /, **settings: Any) -> Any:
    """Measure a function, or a part of a script, under a name.

    ::

        @track
        def preprocess(): ...

        with track("evaluation"):
            evaluate()

    Where a ``Tracker`` is open in the process, its time and energy are written to ``spans-<rank>.csv`` of that run,
    and the report shows them; epochs and totals stay as they are. Where none is, the outermost span makes a run of
    its own, which ends with it: put a ``Tracker`` around a loop of many short ones. Spans may be nested, and a span
    on another thread is one of its own; one within another of its name is a part of that. The GPU is not waited for
    at either end: work that a span has only queued is the next one's.

    Args:
        target: the name; of a function that is decorated its own is the default.
        **settings: of the run that it makes where none is open: what ``Tracker`` takes.

    Raises:
        UsageError: for a bad argument; of a setting where the run is made.
    """
    if isinstance(target, str):
        return NamedSpan(target, settings)
    if callable(target):
        return NamedSpan("", settings)(target)
    raise UsageError(f'track wants a name or a function, not {target!r}: with track("preprocessing"):')
