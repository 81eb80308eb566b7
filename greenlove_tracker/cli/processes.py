"""Programs that a verb starts, and what comes before them: a wait that ends cleanly, and becoming the program."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import types
from collections.abc import Iterator, Sequence
from typing import NoReturn

from greenlove_tracker.console import say
from greenlove_tracker.errors import UsageError

BY_CTRL_C = 130  # as a shell ends: 128 and the number of SIGINT


def check_command(command: Sequence[str]) -> None:
    """Check before a wait that a command is there.

    Raises:
        UsageError: where it is not.
    """
    if command and shutil.which(command[0]) is None:
        raise UsageError(f"cannot start {command[0]}: there is no such command")


def become(words: Sequence[str]) -> NoReturn:
    """Become a program: its exit code, its end by a signal and the signals to it are ours.

    Raises:
        UsageError: where it cannot be started.
    """
    if os.name == "nt":  # where a process cannot
        sys.exit(subprocess.run(words, check=False).returncode)
    sys.stdout.flush()
    for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores them, and what is ignored stays so in another program
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execvp(words[0], list(words))  # noqa: S606  # the user asked for it
    except OSError as error:
        raise UsageError(f"cannot start {words[0]}: {error.strerror}") from error


class SignalledError(BaseException):
    """A signal ends the wait.

    Attributes:
        number: of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextlib.contextmanager
def nothing_started_yet(*, quiet: bool) -> Iterator[None]:
    """Say of Ctrl-C, SIGTERM and SIGHUP in the block that nothing was started, and end by them."""

    def end(number: int, frame: types.FrameType | None) -> None:
        raise SignalledError(number)

    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    # One that is ignored (nohup, a shell's background job) stays ignored; one that C installed is None, and not ours.
    found = {number: signal.getsignal(number) for number in numbers}
    before = {n: handler for n, handler in found.items() if handler not in (signal.SIG_IGN, None)}
    try:
        for number in before:
            signal.signal(number, end)
        yield
    except SignalledError as ended:
        for number in before:
            signal.signal(number, signal.SIG_DFL)
        if not quiet:
            say("greenlove: the wait was ended, nothing was started")
        if ended.number == signal.SIGINT:
            raise SystemExit(BY_CTRL_C) from None
        os.kill(os.getpid(), ended.number)
        raise SystemExit(128 + ended.number) from None  # where the signal is slow to come
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
