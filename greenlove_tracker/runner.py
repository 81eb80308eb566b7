"""Runs a script, a module or any command under a tracker, as if the tracker were not there."""

from __future__ import annotations

import builtins
import contextlib
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from greenlove_tracker.config import Settings
from greenlove_tracker.console import say
from greenlove_tracker.errors import BudgetExceeded, NoSuchScriptError, UsageError
from greenlove_tracker.integrations.automatic import AutomaticCallbacks
from greenlove_tracker.integrations.loop_length import loop_length
from greenlove_tracker.integrations.pytorch import PyTorchHooks
from greenlove_tracker.integrations.training_loops import LoopDetector
from greenlove_tracker.job import find_ranks
from greenlove_tracker.phases import Plan
from greenlove_tracker.records import Field, RunStatus, status_of
from greenlove_tracker.signals import SignalForwarding
from greenlove_tracker.tracker.session import RUN_DIR_VARIABLE, Session, open_run, outer_run_dir
from greenlove_tracker.tracker.state import RunMode
from greenlove_tracker.warn_once import WarnOnce

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
        epochs: that it trains; None: as its own arguments say, where they do.
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
    if not Path(path).exists():
        raise NoSuchScriptError(f"no such script: {path}; for another command write: greenlove run -- {path} …")
    script = Path(path)
    try:
        source = script.read_bytes()
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
    with SignalForwarding() as forwarding:
        session = _start_session(settings, ["--", *command], RunMode.COMMAND)
        if any(_LAUNCHER.match(word) for word in command):
            session.write_fields([Field("loops_seen", "not looked for")])
        environment = {**os.environ, RUN_DIR_VARIABLE: str(session.run_dir)}
        try:
            child = subprocess.Popen(command, env=environment)
        except OSError as error:
            session.finish(RunStatus.FAILED, 127)
            raise UsageError(f"cannot start {command[0]}: {error.strerror}") from error
        forwarding.start(child.send_signal)
        code = child.wait()
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
    return RunStatus.TERMINATED if number in told else RunStatus.FAILED


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
        extra_fields=[Field("command", shlex.join(["greenlove", "run", *shown]))],
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
    watched = _WatchedLoops(session, argv[1:], loops.epochs) if loops.are_seen else contextlib.nullcontext()
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
        by_signal = signal.SIGINT if isinstance(error, KeyboardInterrupt) else None
        return ScriptOutcome(session, 128 + signal.SIGINT if by_signal else 1, by_signal)
    return ScriptOutcome(_finished(session, RunStatus.FINISHED, 0), 0)


def _finished(session: Session, status: RunStatus, exit_code: int | None) -> Session:
    """Close the script's run, or the last of those of its trackers, and return it."""
    last = open_run() or session
    last.finish(status, exit_code)
    return last


class _WatchedLoops:
    """``with``: epochs of the script's own loops and trainers are found, and the log says whether there were any."""

    def __init__(self, session: Session, arguments: Sequence[str], epochs: int | None) -> None:
        self._session, self._arguments, self._epochs = session, arguments, epochs
        self._planned_to = 0.0  # epochs of all trainings so far; infinite where no more is known
        self._detector = LoopDetector(session)
        self._detector.on_epoch = self._plan
        warn_once = session.state.warn_once
        self._hooks = PyTorchHooks(self._detector, lambda error: warn_once.internal_error("loops", error))
        self._callbacks = AutomaticCallbacks(lambda error: warn_once.internal_error("callbacks", error))

    def __enter__(self) -> None:
        self._hooks.__enter__()
        self._callbacks.__enter__()

    def __exit__(self, *error: object) -> None:
        self._callbacks.__exit__(*error)
        self._hooks.__exit__(*error)
        session, detector = self._session, self._detector
        try:
            with contextlib.suppress(BudgetExceeded, SystemExit):  # the script has ended already
                detector.finish()
            if detector.takes_turns:
                message = "the script's data loaders take turns: steps are counted, and its epochs cannot be told"
                session.state.warn_once.warn("turns", message)
            if not session.state.has_tracker and not session.is_finished:
                is_told = detector.n_epochs and not detector.takes_turns
                nothing = "no steps" if self._hooks.has_torch else "no torch"
                seen = "epochs" if is_told else "steps" if detector.n_steps else nothing
                session.write_fields([Field("loops_seen", seen)])
        except Exception as problem:
            session.state.warn_once.internal_error("loops", problem)

    def _plan(self, loader: object) -> None:
        """Plan a training before its first epoch; a number of epochs waits for a loader's: no others are counted.

        Where more epochs follow than were planned, another training has begun. Only its loop tells of its length.
        """
        session, done = self._session, self._session.recorder.epochs_done
        if done < self._planned_to:
            return
        is_first = not self._planned_to
        try:
            epochs, arguments = (self._epochs, self._arguments) if is_first else (None, ())
            planned = _planned_length(arguments, epochs, sys._getframe(1), loader)
            if loader is None and (planned is None or planned[0].epochs is not None):
                return
            self._planned_to = math.inf
            if planned is None:
                if not is_first:
                    session.plan_job(None, "")
                return
            plan, source = planned
            if plan.epochs is not None:
                self._planned_to = done + plan.epochs
                plan = Plan(done + plan.epochs)
            session.plan_job(plan, source if is_first else f"{source}, after {done} of another training")
        except Exception as error:  # epochs are seen without it
            session.state.warn_once.internal_error("plan", error)


# What scripts call their length; a number of any other name may mean something else.
_EPOCHS = {"epochs", "num_epochs", "n_epochs", "nepochs", "max_epochs", "total_epochs", "num_train_epochs"}
_STEPS = {"max_steps", "total_steps", "max_train_steps", "num_train_steps", "max_iters", "train_iters"}
_RESUMING = {"resume", "resume_from", "resume_from_checkpoint", "start_epoch", "initial_epoch", "init_from"}
_ARGUMENT = re.compile(r"[-+]{0,2}(?:[A-Za-z_]\w*\.)*([A-Za-z_][\w-]*)(?:=(.*))?", re.DOTALL)


def _planned_length(
    arguments: Sequence[str], epochs: int | None, frame: types.FrameType | None = None, loader: object = None
) -> tuple[Plan, str] | None:
    """Return the length and its origin: as given, or where the script's loop or its arguments say it unmistakably."""
    if epochs is not None:
        return Plan(epochs), "--epochs"
    found = None if loader is None else loop_length(frame, loader)
    if found is not None:
        return Plan(found.epochs), found.source
    given: dict[str, set[tuple[int, str]]] = {"epochs": set(), "steps": set()}
    for word, following in zip(arguments, [*arguments, ""][1:], strict=True):
        match = _ARGUMENT.fullmatch(word)
        name = match[1].replace("-", "_") if match else ""
        if match is None or (match[2] is None and not word.startswith("-")):
            continue
        if name in _RESUMING:
            return None  # the number is of all epochs, and some may be done
        unit = "epochs" if name in _EPOCHS else "steps" if name in _STEPS else ""
        value = following if match[2] is None else match[2]
        if unit and re.fullmatch(r"\d{1,15}(?:\.0*)?", value) and float(value) > 0:
            given[unit].add((int(float(value)), word if match[2] is not None else f"{word} {value}"))
    lengths = [(unit, *one) for unit, several in given.items() for one in several]
    if len(lengths) != 1:
        return None
    unit, length, text = lengths[0]
    plan = Plan(length) if unit == "epochs" else Plan(total_steps=length)
    return plan, f"the script's argument {text}"


def _show_traceback(error: BaseException) -> None:
    """Print it as Python itself would: from the script on, through the script's own hook where it has one."""
    is_ours, traceback = f"{Path(__file__).parent}{os.sep}", error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(is_ours):
        traceback = traceback.tb_next
    sys.excepthook(type(error), error.with_traceback(traceback), traceback)
