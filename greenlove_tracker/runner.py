"""Runs a script, a module or any command under a tracker, as if the tracker were not there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import types
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path

from greenlove_tracker.config import Settings
from greenlove_tracker.errors import UsageError
from greenlove_tracker.job import find_ranks
from greenlove_tracker.records import Field, RunStatus
from greenlove_tracker.tracker.clock import SystemClock
from greenlove_tracker.tracker.facade import RUN_DIR_VARIABLE
from greenlove_tracker.tracker.lifecycle import status_of
from greenlove_tracker.tracker.plan import Plan
from greenlove_tracker.tracker.session import Session


@dataclass(frozen=True, slots=True)
class Outcome:
    """How what was run ended; the caller ends the process the same way.

    Attributes:
        session: the closed run.
        exit_code: the exit code to end with; a text is printed by ``sys.exit``.
        by_signal: the signal that ended it, to be sent to ourselves.
    """

    session: Session
    exit_code: int | str | None = 0
    by_signal: int | None = None


def run_script(path: str, arguments: Sequence[str], settings: Settings) -> Outcome:
    """Run a Python file in this process: its ``sys.argv``, ``sys.path[0]`` and ``__main__`` are its own.

    Raises:
        UsageError: where the file cannot be read or is not Python.
    """
    if not Path(path).is_file():
        raise UsageError(f"no such script: {path}; for another command write: greenlove run -- {path} …")
    spec = spec_from_file_location("__main__", path, loader=SourceFileLoader("__main__", path))
    code = _compiled(spec)
    main = _main_module(path, None)
    sys.path[0] = str(Path(path).resolve().parent)
    return _run(code, main, [path, *arguments], settings, shown=[path, *arguments])


def run_module(name: str, arguments: Sequence[str], settings: Settings) -> Outcome:
    """Run a module or a package's ``__main__`` in this process, as ``python -m`` does.

    Raises:
        UsageError: where there is no such module.
    """
    sys.path[0] = str(Path.cwd())
    try:
        spec = find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = find_spec(f"{name}.__main__")
    except ImportError as error:
        raise UsageError(f"cannot run module {name}: {error}") from error
    if spec is None or spec.origin is None:
        raise UsageError(f"no module named {name} that can be run")
    code = _compiled(spec)
    main = _main_module(spec.origin, spec)
    return _run(code, main, [spec.origin, *arguments], settings, shown=["-m", name, *arguments])


def run_command(command: Sequence[str], settings: Settings) -> Outcome:
    """Run any program as a child process; what it takes is measured from outside.

    Python programs in it that make trackers of their own write their epochs into the same run.

    Raises:
        UsageError: where the program cannot be started.
    """
    session = _session(settings, ["--", *command], is_command=True)
    handlers = {}
    try:
        child = subprocess.Popen(command, env={**os.environ, RUN_DIR_VARIABLE: str(session.run_dir.resolve())})
    except OSError as error:
        session.finish(RunStatus.FAILED, 127)
        raise UsageError(f"cannot start {command[0]}: {error.strerror}") from error
    # A signal to us is meant for the child: it ends, and then so do we. The terminal sends Ctrl-C to both.
    for number in (signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])):
        forward = _ignore if number == signal.SIGINT and sys.stdin.isatty() else _forwarder(child)
        handlers[number] = signal.signal(number, forward)
    try:
        code = child.wait()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if code >= 0:
        session.finish(RunStatus.FAILED if code else RunStatus.FINISHED, code)
        return Outcome(session, code)
    status = RunStatus.INTERRUPTED if -code == signal.SIGINT else RunStatus.TERMINATED
    session.finish(status)
    return Outcome(session, 128 - code, by_signal=-code)


def _ignore(number: int, frame: types.FrameType | None) -> None:
    """Leave the signal to the child."""


def _forwarder(child: subprocess.Popen[bytes]) -> types.FunctionType:
    def forward(number: int, frame: types.FrameType | None) -> None:
        child.send_signal(number)

    return forward  # type: ignore[return-value]  # a function is what signal.signal wants


def _compiled(spec: ModuleSpec | None) -> types.CodeType:
    loader = spec.loader if spec else None
    if spec is None or not hasattr(loader, "get_code"):
        raise UsageError("this is not Python source; for another command write: greenlove run -- …")
    try:
        code: types.CodeType | None = loader.get_code(spec.name)  # type: ignore[union-attr]
    except OSError as error:
        raise UsageError(f"cannot read {spec.origin}: {error.strerror}") from error
    if code is None:
        raise UsageError(f"{spec.origin} is not Python source")
    return code


def _main_module(file: str, spec: ModuleSpec | None) -> types.ModuleType:
    """A fresh ``__main__``, which stays in place: pickles, spawned workers and exit handlers look it up."""
    main = types.ModuleType("__main__")
    main.__file__ = file
    main.__spec__ = spec
    main.__package__ = spec.parent if spec else None
    main.__loader__ = spec.loader if spec else SourceFileLoader("__main__", file)
    main.__dict__["__builtins__"] = __builtins__
    return main


def _session(settings: Settings, shown: Sequence[str], *, is_command: bool = False) -> Session:
    import shlex

    return Session(
        settings, Plan(), find_ranks(os.environ), SystemClock(), is_command=is_command, is_led_by_runner=True,
        extra_fields=[Field("command", shlex.join(["greenlove", "run", *shown]))],
    )  # fmt: skip


def _run(
    code: types.CodeType, main: types.ModuleType, argv: list[str], settings: Settings, shown: Sequence[str]
) -> Outcome:
    session = _session(settings, shown)
    sys.argv = argv
    sys.modules["__main__"] = main
    try:
        exec(code, main.__dict__)  # noqa: S102  # running the user's script is what we are for
    except SystemExit as end:
        status, number = status_of(SystemExit, end)
        session.finish(status, number)
        return Outcome(session, end.code)
    except BaseException as error:
        status, number = status_of(type(error), error)
        _show_traceback(error)
        session.finish(status, number)
        by_signal = signal.SIGINT if isinstance(error, KeyboardInterrupt) else None
        return Outcome(session, 1, by_signal)
    session.finish(RunStatus.FINISHED, 0)
    return Outcome(session, 0)


def _show_traceback(error: BaseException) -> None:
    """As Python itself would print it: without our frames, through the script's own hook where it has one."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
        traceback = traceback.tb_next
    sys.excepthook(type(error), error.with_traceback(traceback), traceback)
