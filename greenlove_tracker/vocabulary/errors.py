"""The errors of the package, and the check of a whole number. Errors of the user say what to do; ours only warn."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterator, Mapping
from importlib.util import find_spec
from numbers import Integral

_ARGUMENT = re.compile(r"\{argument(=?)\}")


class GreenloveError(Exception):
    """Base of every error that the package raises on purpose."""


class UsageError(GreenloveError, ValueError):
    """A bad argument, setting or file of the user. The message says what to do.

    Args:
        message: a sentence. ``{argument}`` in it stands for the name of an argument; ``{argument=}`` too, which
            reads ``name=`` in Python.
        argument: the name of that argument in Python; several in the order in which the sentence names them.

    Attributes:
        arguments: the names of the arguments.
        is_of_value: whether the sentence begins with an argument, so that it is about the value that was given.
        is_of_machine: it lies in a file, a variable or the disk.
    """

    is_of_machine = False

    def __init__(self, message: str = "", *, argument: str | tuple[str, ...] = ()) -> None:
        super().__init__(message)  # all that ``args`` holds: pickle and copy add the attributes by themselves
        self.arguments = (argument,) if isinstance(argument, str) else argument
        self.is_of_value = message.startswith("{argument}")

    def __str__(self) -> str:
        return self.in_options({})

    def is_in(self, given: Collection[str]) -> bool:
        """Return True if the error is in one of these arguments, given in code or on a command line.

        Else it lies in a file, a variable or the disk, and must not keep a training from running.
        """
        return not self.is_of_machine and (not self.arguments or not set(self.arguments).isdisjoint(given))

    def in_options(self, options: Mapping[str, str]) -> str:
        """Return the message with the names of command-line options instead of arguments.

        Args:
            options: the option by the name of its argument; other arguments keep their names.
        """
        names = iter(self.arguments)

        def named(place: re.Match[str]) -> str:
            name = next(names, None)
            if name is None:
                return place[0]
            return options.get(name, f"{name}{place[1]}")

        return _ARGUMENT.sub(named, str(self.args[0]))


class NoSuchScriptError(UsageError):
    """The script does not exist. The process ends with exit code 2, as Python does."""


class SettingError(UsageError):
    """A bad setting in a file or an environment variable. The message says where."""

    is_of_machine = True


class LogDirError(UsageError):
    """The log directory cannot be written. The message says why."""

    is_of_machine = True  # wherever its name was given


class TrackerStateError(GreenloveError, RuntimeError):
    """A call out of order, such as ``epoch_end()`` without a start. The tracker only warns of it."""


class MissingExtraError(GreenloveError, ImportError):
    """An optional dependency is not installed. The message is the command that installs it."""


@contextlib.contextmanager
def needing(who: str, packages: Collection[str], install: str) -> Iterator[None]:
    """Turn a failed import within the block into the command that installs the package.

    An error of an installed package passes through.

    Args:
        who: who needs the packages, such as "the XGBoost callback".
        packages: the packages.
        install: the argument of ``pip install``.

    Raises:
        MissingExtraError: if one of the packages is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in packages:
            raise
        raise MissingExtraError(f'{who} needs {error.name}: pip install "{install}"') from error


def require(package: str, extra: str, needed: str = "") -> None:
    """Check that an optional package is installed, without importing it.

    Args:
        package: the name that it is imported by.
        extra: of ours that installs it.
        needed: who needs it, such as "exploring needs torch".

    Raises:
        MissingExtraError: where it is not.
    """
    if find_spec(package) is None:
        needed = needed or f"{package} is not installed"
        raise MissingExtraError(f'{needed}: pip install "greenlove-tracker[{extra}]"')


class MeterError(GreenloveError, RuntimeError):
    """The energy meter could not start, or failed. The training goes on, and the energy is unknown."""


class LogError(GreenloveError):
    """A file of a log directory cannot be read. The message names the file."""


class BudgetExceeded(GreenloveError):  # noqa: N818  # a budget is exceeded: that is no error of the program
    """A budget is likely to be exceeded, and the settings ask to stop. The message says by how much."""


def is_whole(value: object, least: int = 1) -> bool:
    """Return True for a whole number of at least ``least``, of any numeric type but no boolean."""
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= least


def whole_number(name: str, value: object, least: int = 1) -> int:
    """Return a whole number of any numeric type as a Python integer.

    Raises:
        UsageError: if it is not a whole number, or less than ``least``.
    """
    if not is_whole(value, least):
        raise UsageError(f"{name} must be a whole number of at least {least}, not {value!r}")
    return int(value)  # type: ignore[call-overload, no-any-return]


def is_from_handler(error: BaseException) -> bool:
    """Return True if a signal handler of the training raised the error within our code.

    A handler is recognised by its arguments: Python calls it with the frame that it interrupts.
    """
    if not isinstance(error, Exception):  # Ctrl-C, SystemExit
        return True
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        trace = trace.tb_next
        for value in frame.f_locals.values():
            values = value if type(value) is tuple else (value,)
            if frame.f_back is not None and any(v is frame.f_back for v in values):
                return True
    return False


def pass_on_from_handler(error: BaseException) -> None:
    """Raise the error again if a signal handler of the training raised it, since the training expects it."""
    if is_from_handler(error):
        raise error


class TrainingInterrupted(SystemExit):  # no error: the run counts as terminated
    """The job or the machine is about to end; the training's state is saved, and another job goes on from there.

    Attributes:
        code: exit code: 128 and the number of the signal.
        checkpoint: name of the emergency checkpoint; empty where it could not be written.
        reason: the name of the signal.
    """

    def __init__(self, code: int, checkpoint: str, reason: str) -> None:
        super().__init__(code)
        self.checkpoint = checkpoint
        self.reason = reason

    def __str__(self) -> str:
        saved = f"saved as {self.checkpoint}" if self.checkpoint else "its last state could not be saved"
        return f"the training was interrupted by {self.reason}; {saved}"
