"""Runs a script, a module or any command under a tracker, as if the tracker were not there."""

from __future__ import annotations

import builtins
import contextlib
import os
import re
import signal
import subprocess
import sys
import types
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from greenlove_tracker.integrations.script_loops import watched_loops
from greenlove_tracker.machine.job import RUN_DIR_VARIABLE, find_ranks, outer_run_dir
from greenlove_tracker.machine.signals import wait_and_forward
from greenlove_tracker.settings.config import Settings
from greenlove_tracker.settings.secret_masking import masked_command
from greenlove_tracker.text.console import say
from greenlove_tracker.text.warn_once import WarnOnce
from greenlove_tracker.tracker.session import Session, open_run
from greenlove_tracker.tracker.state import RunMode
from greenlove_tracker.vocabulary.errors import BudgetExceeded, NoSuchScriptError, UsageError
from greenlove_tracker.vocabulary.phases import Plan
from greenlove_tracker.vocabulary.records import Field, RunStatus, status_of

_LAUNCHER = re.compile(r"(?:.*[/\\])?(?:python[\d.]*|torchrun|accelerate|deepspeed)$|.*\.py$")


@dataclass(frozen=True, slots=True)
class ScriptOutcome:
    """The outcome of a script or command; the caller ends the process the same way.

    Attributes:
        session: the closed run.
        exit_code: to end with; a text is printed by ``sys.exit``.
        by_signal: the signal that ended it, to be sent to ourselves.
    """

    session: Session
    exit_code: int | str | None = 0
    by_signal: int | None = None


@dataclass(frozen=True, slots=True)
class LoopOptions:
    """The options for the training loop of a script that marks no epochs.

    Attributes:
        are_seen: its epochs are found from its data loaders and optimizers.
        epochs: that it trains; None: as its loop says, where it does.
    """

    are_seen: bool = True
    epochs: int | None = None


def run_script(
    path: str, arguments: Sequence[str], settings: Settings, loops: LoopOptions = LoopOptions()
) -> ScriptOutcome:
    """Run a Python file in this process: its ``sys.argv``, ``sys.path[0]`` and ``__main__`` are its own.

    Raises:
        NoSuchScriptError: where there is no such file.
        UsageError: where the file cannot be read.
    """
    script = Path(path)
    try:
        source = script.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise NoSuchScriptError(
            f"no such script: {path}; for another command write: greenlove run -- {path} …"
        ) from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    file = str(script.absolute())  # as Python has it since 3.9, for __file__ and in tracebacks
    main = _main_module(file, None)
    sys.path[0] = str(script.resolve().parent)
    argv = [path, *arguments]
    return _run(lambda: compile(source, file, "exec", dont_inherit=True), main, argv, settings, argv, loops)


def run_module(
    name: str, arguments: Sequence[str], settings: Settings, loops: LoopOptions = LoopOptions()
) -> ScriptOutcome:
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
    loader = spec.loader
    if not isinstance(loader, InspectLoader):
        raise UsageError(f"module {name} is not Python source")
    main = _main_module(spec.origin, spec)
    argv = [spec.origin, *arguments]
    return _run(lambda: loader.get_code(spec.name), main, argv, settings, ["-m", name, *arguments], loops)


def run_command(command: Sequence[str], settings: Settings) -> ScriptOutcome:
    """Run any program as a child process, and measure it from outside.

    Python programs in it that make trackers of their own write their epochs into the same run.

    Raises:
        UsageError: where the program cannot be started.
    """
    if settings.on_overrun == "stop":
        message = "on_overrun stop works where the epochs of a script are seen: a command is only warned of"
        WarnOnce().warn("on_overrun", message)
        settings = replace(settings, on_overrun="warn")
    session = _start_session(settings, ["--", *command], RunMode.COMMAND)
    if any(_LAUNCHER.match(word) for word in command):
        session.write_fields([Field("loops_seen", "not looked for")])
    environment = {**os.environ, RUN_DIR_VARIABLE: str(session.run_dir)}
    try:
        child = subprocess.Popen(command, env=environment)
    except OSError as error:
        session.finish(RunStatus.FAILED, 127)
        raise UsageError(f"cannot start {command[0]}: {error.strerror}") from error
    code, _ = wait_and_forward(child)
    if code >= 0:
        session.finish(_ending(code - 128) if code else RunStatus.FINISHED, code)
        return ScriptOutcome(session, code)
    session.finish(_ending(-code))
    return ScriptOutcome(session, 128 - code, by_signal=-code)


def _ending(number: int) -> RunStatus:
    """Return how a command ended that a signal of this number ended, or that says so as a shell does, by 128 more."""
    if number == signal.SIGINT:
        return RunStatus.INTERRUPTED
    told = [getattr(signal, name, None) for name in ("SIGTERM", "SIGUSR1")]  # the latter by Slurm; Windows has none
    if number in told:
        return RunStatus.TERMINATED
    return RunStatus.FAILED


def _main_module(file: str, spec: ModuleSpec | None) -> types.ModuleType:
    """Return a fresh ``__main__``, which stays in place: pickles, spawned workers and exit handlers look it up."""
    main = types.ModuleType("__main__")
    main.__file__ = file
    main.__spec__ = spec
    main.__package__ = spec.parent if spec else None
    main.__loader__ = spec.loader if spec else SourceFileLoader("__main__", file)
    main.__dict__["__builtins__"] = builtins
    return main


def _start_session(settings: Settings, shown: Sequence[str], mode: RunMode) -> Session:
    return Session(
        settings,
        Plan(),
        find_ranks(os.environ),
        mode=mode,
        join_dir=outer_run_dir(),  # a runner inside a run: its script's epochs belong there
        extra_fields=[Field("command", masked_command(["greenlove", "run", *shown]))],
    )


def _run(
    get_code: Callable[[], Any],
    main: types.ModuleType,
    argv: list[str],
    settings: Settings,
    shown: Sequence[str],
    loops: LoopOptions,
) -> ScriptOutcome:
    session = _start_session(settings, shown, RunMode.RUNNER)
    sys.argv = argv
    sys.modules["__main__"] = main
    watched: AbstractContextManager[None] = contextlib.nullcontext()
    if loops.are_seen:
        watched = watched_loops(session, loops.epochs)
    try:
        with watched:
            exec(get_code(), main.__dict__)  # noqa: S102  # running the user's script is what we are for
    except SystemExit as end:
        return ScriptOutcome(_finished(session, *status_of(type(end), end)), end.code)
    except BaseException as error:
        if isinstance(error, BudgetExceeded):  # as it was asked for
            say(f"greenlove  the script was stopped: {error}")
        else:
            _show_traceback(error)
        session = _finished(session, *status_of(type(error), error))
        if isinstance(error, KeyboardInterrupt):
            return ScriptOutcome(session, 128 + signal.SIGINT, signal.SIGINT)
        return ScriptOutcome(session, 1)
    return ScriptOutcome(_finished(session, RunStatus.FINISHED, 0), 0)


def _finished(session: Session, status: RunStatus, exit_code: int | None) -> Session:
    """Close the script's run, or the last of those of its trackers, and return it."""
    last = open_run() or session
    last.finish(status, exit_code)
    return last


def _show_traceback(error: BaseException) -> None:
    """Print it as Python itself would: from the script on, through the script's own hook where it has one."""
    is_ours = f"{Path(__file__).parent}{os.sep}"
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(is_ours):
        traceback = traceback.tb_next
    sys.excepthook(type(error), error.with_traceback(traceback), traceback)
