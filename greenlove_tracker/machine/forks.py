"""Make forks of a training wait while threads of ours import libraries.

A child that is forked in the middle of an import has that module's lock held by a thread that does not exist there: its
own import of the same library would wait for ever. So a fork waits until nothing is being loaded; for some seconds at
most, since what takes longer waits for a network, or for something that the forking thread holds.

A library that is loaded while a fork waits may ask for a lock to be taken before a fork and let go behind it: of this
fork only the second is done, with a message on the training's standard error. Python's own pool of threads does so, and
is loaded by ours: it is loaded here, before.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401  # see above
import os
import threading
from collections import Counter
from collections.abc import Callable

LONGEST_WAIT_S = 5.0  # CodeCarbon loads in 1 to 3 s


class _ForksWait:
    """``with forks_wait:`` around imports beside a training, on any thread; it can be nested."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._changed = threading.Condition(threading.RLock())
        self._inside = Counter[int]()  # by thread
        self._is_late = False  # a fork has waited in vain for these imports; later forks do not wait for them

    def __enter__(self) -> None:
        with self._changed:
            self._inside[threading.get_ident()] += 1

    def __exit__(self, *error: object) -> None:
        with self._changed:
            self._inside[threading.get_ident()] -= 1
            if not self._others():
                self._is_late = False
            self._changed.notify_all()

    def _others(self) -> bool:
        """Return True if another thread imports. A thread that forks during its own import does not wait for itself."""
        own = threading.get_ident()
        return any(n > 0 for thread, n in self._inside.items() if thread != own)

    def before_fork(self) -> None:
        """Wait for the imports, and let no other begin until the process is forked."""
        self._changed.acquire()
        if not self._is_late:
            self._is_late = not self._changed.wait_for(lambda: not self._others(), LONGEST_WAIT_S)

    def after_fork_in_parent(self) -> None:
        """Let imports begin again."""
        self._changed.release()

    def after_fork_in_child(self) -> None:
        """Start again, since the child has no importing threads."""
        self._reset()


forks_wait = _ForksWait()
"""The one of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=forks_wait.before_fork,
        after_in_parent=forks_wait.after_fork_in_parent,
        after_in_child=forks_wait.after_fork_in_child,
    )


def start_thread(name: str, work: Callable[[], None]) -> RuntimeError | None:
    """Start a daemon thread; return the error if it cannot be started."""
    try:
        threading.Thread(target=work, name=name, daemon=True).start()
    except RuntimeError as error:
        return error
    return None
