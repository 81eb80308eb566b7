"""What can go wrong, by whose fault: the user's errors say what to do, ours only warn."""

from __future__ import annotations

import re
from collections.abc import Mapping


class GreenloveError(Exception):
    """Base of every error that the package raises on purpose."""


class UsageError(GreenloveError, ValueError):
    """A bad argument, setting or file of the user's; the message says what to do."""


class SettingError(UsageError):
    """A bad setting in a file or an environment variable; the message says where it stands."""


class TrackerStateError(GreenloveError, RuntimeError):
    """A tracker method was called out of order, such as ``epoch_end()`` without a start."""


class MissingExtraError(GreenloveError, ImportError):
    """An optional dependency is not installed; the message is the line that installs it."""


class MeterError(GreenloveError, RuntimeError):
    """The energy meter could not start or failed; training goes on and the energy is unknown."""


class LogError(GreenloveError):
    """A file of a log directory cannot be read; the message names the file."""


class BudgetExceeded(GreenloveError):  # noqa: N818  # a budget is exceeded: that is no error of the program
    """A budget that the run was given is likely to be exceeded, and it was to stop then; the message says by what."""


def in_options(sentence: str, options: Mapping[str, str]) -> str:
    """The same sentence with the names of the command line.

    Args:
        sentence: that names arguments of Python's, ``name=`` too; a part of a path is none.
        options: by argument, or by a few words that hold one.
    """
    if not options:
        return sentence
    names = "|".join(sorted(map(re.escape, options), key=len, reverse=True))
    return re.sub(rf"(?<![\w./\\-])({names})(?![\w/\\])(=(?=\s))?", lambda found: options[found[1]], sentence)
