"""``track``: measures a function, or a part of a script, by name."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextvars import ContextVar
from types import TracebackType
from typing import Any, TypeVar, overload

from greenlove_tracker.errors import UsageError
from greenlove_tracker.records import RunStatus
from greenlove_tracker.tracker.session import Session, open_run
from greenlove_tracker.tracker.shutdown import guard, status_of
from greenlove_tracker.tracker.span_recorder import OpenSpan, SpanRecorder, span_name
from greenlove_tracker.tracker.tracker import Tracker

Function = TypeVar("Function", bound=Callable[..., Any])


class _Entry:
    """One entry into a span, on one thread or in one task.

    Attributes:
        owner: the object that was entered.
        outer: the entry that this one lies in.
        session: the run that it is written to; None where there is none.
        span: its span in that run.
        tracker: of a run that is the span's own, and ends with it.
        is_open: it has not been left.
    """

    __slots__ = ("is_open", "outer", "owner", "session", "span", "tracker")

    def __init__(self, owner: NamedSpan, outer: _Entry | None) -> None:
        self.owner, self.outer = owner, outer
        self.session: Session | None = None
        self.span: OpenSpan | None = None
        self.tracker: Tracker | None = None
        self.is_open = True


_entered: ContextVar[_Entry | None] = ContextVar("greenlove_tracker_span", default=None)
_making_run = threading.Lock()  # of two threads that begin at once, one makes the run


class NamedSpan:
    """A part of a script that is measured wherever it is entered, as a ``with`` block or a decorated function.

    Args:
        name: of it; empty: that of the function that is decorated.
        settings: of the run that it makes where none is open.
        makes_run: it makes one.
    """

    def __init__(self, name: str, settings: dict[str, Any], *, makes_run: bool = True) -> None:
        self._name, self._settings, self._makes_run = span_name(name), settings, makes_run

    def __enter__(self) -> NamedSpan:
        self._enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit(kind, error)

    def __call__(self, function: Function) -> Function:
        """Decorate a function; each call is a span. Of a generator, the time is counted in which it runs."""
        if not callable(function):
            raise UsageError(f"track: {function!r} is no function")
        qualified = getattr(function, "__qualname__", type(function).__name__)
        name = self._name or qualified.rpartition("<locals>.")[2]
        is_resumed = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
        span = NamedSpan(name, self._settings, makes_run=not is_resumed)  # else each item would be a run
        wrapped: Any
        if inspect.isasyncgenfunction(function):
            wrapped = _async_generator(function, span)
        elif inspect.iscoroutinefunction(function):

            async def wrapped(*args: Any, **kwargs: Any) -> Any:
                with span:
                    return await function(*args, **kwargs)

        elif inspect.isgeneratorfunction(function):
            wrapped = _generator(function, span)
        else:

            def wrapped(*args: Any, **kwargs: Any) -> Any:
                with span:
                    return function(*args, **kwargs)

        return functools.wraps(function)(wrapped)  # type: ignore[return-value]

    def _enter(self) -> None:
        if not self._name:
            raise UsageError('track() of a block wants a name: with track("preprocessing"):')
        outer = _innermost()
        entry = _Entry(self, outer)
        session = open_run()
        if session is None and outer is None and self._makes_run:
            session = self._make_run(entry)
        if session is not None:
            entry.session = session
            within = outer.span if outer is not None and outer.session is session else None
            with session.tracked_call:
                entry.span = session.run_parts.get(SpanRecorder).begin(self._name, within)
        _entered.set(entry)

    def _make_run(self, entry: _Entry) -> Session | None:
        with _making_run:
            session = open_run()
            if session is None and not _is_part_of_other_process():
                entry.tracker = Tracker(**self._settings)
                session = open_run()
        return session

    def _exit(self, kind: type[BaseException] | None, error: BaseException | None) -> None:
        entry = _innermost()
        while entry is not None and entry.owner is not self:  # a generator that was left open lies within
            entry = _open_from(entry.outer)
        if entry is None:
            return
        entry.is_open = False
        _entered.set(_innermost())
        status, _ = status_of(kind, error)
        session = entry.session
        if session is not None and session.pid == os.getpid() and entry.span is not None and not session.is_finished:
            with session.tracked_call:
                session.run_parts.get(SpanRecorder).end(entry.span, has_failed=status is not RunStatus.FINISHED)
        if entry.tracker is not None:
            entry.tracker.stop(status=status)


def _innermost() -> _Entry | None:
    return _open_from(_entered.get())


def _open_from(entry: _Entry | None) -> _Entry | None:
    while entry is not None and not entry.is_open:
        entry = entry.outer
    return entry


def _is_part_of_other_process() -> bool:
    """Return True in a process that another one made for a part of its work, and that may be measured there."""
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        return True
    return isinstance(guard.current, Session) and guard.current.pid != os.getpid()


def _generator(function: Callable[..., Any], span: NamedSpan) -> Callable[..., Any]:
    """Return a generator function that is in the span while its body runs, and not while its caller does."""

    def wrapped(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        generator = function(*args, **kwargs)
        resume: Callable[[], Any] = functools.partial(next, generator)
        while True:
            with span:
                try:
                    item = resume()
                except StopIteration as stop:
                    return stop.value
            try:
                sent = yield item
            except GeneratorExit:
                with span:
                    generator.close()
                raise
            except BaseException as error:  # thrown in by the caller, for the body to see
                resume = functools.partial(generator.throw, error)
            else:
                resume = functools.partial(generator.send, sent)

    return wrapped


def _async_generator(function: Callable[..., Any], span: NamedSpan) -> Callable[..., Any]:
    """Return the same of an asynchronous generator function."""

    async def wrapped(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        generator = function(*args, **kwargs)
        resume: Callable[[], Any] = generator.__anext__
        while True:
            with span:
                try:
                    item = await resume()
                except StopAsyncIteration:
                    return
            try:
                sent = yield item
            except GeneratorExit:
                with span:
                    await generator.aclose()
                raise
            except BaseException as error:  # thrown in by the caller, for the body to see
                resume = functools.partial(generator.athrow, error)
            else:
                resume = functools.partial(generator.asend, sent)

    return wrapped


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
    on another thread is one of its own. Of a generator function the time is counted in which its body runs, each item
    is a call, and none makes a run. The GPU is not waited for at either end: work that a span has only queued is the
    next one's.

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
