"""``track``: measures a function, or a part of a script, by name."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import Any, NamedTuple, TypeVar, overload

from greenlove_tracker.devices import in_dataloader_worker
from greenlove_tracker.errors import UsageError
from greenlove_tracker.tracker.session import Session, open_run
from greenlove_tracker.tracker.span_recorder import OpenSpan, SpanRecorder, span_name
from greenlove_tracker.tracker.state import WarnOnce

Function = TypeVar("Function", bound=Callable[..., Any])


class _Entry(NamedTuple):
    """An entry into a span; without a run it has no session, and within a span of its name it is none."""

    owner: NamedSpan
    session: Session | None
    span: OpenSpan | None


_entered: ContextVar[tuple[_Entry, ...]] = ContextVar("greenlove_tracker_spans", default=())
_warn_once = WarnOnce()


class NamedSpan:
    """A part of a script that is measured wherever it is entered, as a ``with`` block or a decorated function.

    Args:
        name: of it; empty: that of the function that is decorated.
    """

    def __init__(self, name: str) -> None:
        self._name = span_name(name)

    def __enter__(self) -> NamedSpan:
        if not self._name:
            raise UsageError('track() of a block wants a name: with track("preprocessing"):')
        entries, session, span = _entered.get(), open_run(), None
        if session is not None:
            within = next((entry.span for entry in reversed(entries) if entry.span is not None), None)
            with session.tracked_call:
                span = session.run_parts.get(SpanRecorder).begin(self._name, within)
        elif not in_dataloader_worker():
            _warn_once.misuse("track", "track() measures nothing without an open Tracker: put `with Tracker():` around")
        _entered.set((*entries, _Entry(self, session, span)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        entries = _entered.get()
        at = max((i for i, entry in enumerate(entries) if entry.owner is self), default=None)
        if at is None:
            return
        _entered.set(entries[:at])
        session, span = entries[at].session, entries[at].span
        if session is not None and session.pid == os.getpid() and span is not None:
            with session.tracked_call:
                session.run_parts.get(SpanRecorder).end(span, has_failed=kind is not None)

    def __call__(self, function: Function) -> Function:
        """Decorate a function; each call is a span.

        Raises:
            UsageError: where it is none, or one that yields or awaits: its body runs between the calls of others.
        """
        if not callable(function):
            raise UsageError(f"track: {function!r} is no function")
        qualified = getattr(function, "__qualname__", type(function).__name__)
        is_cut = (inspect.isgeneratorfunction, inspect.isasyncgenfunction, inspect.iscoroutinefunction)
        if any(is_of_kind(function) for is_of_kind in is_cut):
            raise UsageError(f'track: {qualified} yields or awaits: measure parts of its body, with track("a name"):')
        span = NamedSpan(self._name or qualified.rpartition("<locals>.")[2])

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with span:
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]


@overload
def track(function: Function, /) -> Function: ...
@overload
def track(name: str = "", /) -> NamedSpan: ...
def track(target: Any = "", /) -> Any:
    """Measure a function, or a part of a script, under a name.

    ::

        @track
        def preprocess(): ...

        with track("evaluation"):
            evaluate()

    Its time and energy are written to ``spans-<rank>.csv`` of the run of the ``Tracker`` that is open in the process,
    and the report shows them; epochs and totals stay as they are. Where none is open, nothing is measured, and a
    warning says so. Spans may be nested, and a span on another thread is one of its own; one within another of its
    name is a part of that. The GPU is not waited for at either end: work that a span has only queued is the next one's.

    Args:
        target: the name; of a function that is decorated its own is the default.

    Raises:
        UsageError: for what is neither a name nor a function, and for a function that yields or awaits.
    """
    if isinstance(target, str):
        return NamedSpan(target)
    if callable(target):
        return NamedSpan("")(target)
    raise UsageError(f'track wants a name or a function, not {target!r}: with track("preprocessing"):')
