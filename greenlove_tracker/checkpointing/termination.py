"""Notices that a job or its machine is about to end: signals, and what clouds tell a spot machine.

A notice sets a flag, and the training saves at its next step. Clouds are asked on request only, by a thread.

Sources:
    AWS: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html (two minutes;
        ``instance-action``), …/configuring-instance-metadata-service.html (IMDSv2).
    GCP: https://cloud.google.com/compute/docs/instances/preemptible (30 s; ``instance/preempted``).
    Azure: https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events (Preempt: at least 30 s).
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Self

from greenlove_tracker.errors import UsageError
from greenlove_tracker.tracker.shutdown import guard

_log = logging.getLogger("greenlove_tracker")

METADATA_URL = "http://169.254.169.254"  # link-local, of all three clouds; it never leaves the machine
_TOKEN_HEADER = "X-aws-ec2-metadata-token"  # noqa: S105  # its name
# What is asked, with which headers, and what the answer has in it once the machine is about to end.
_CLOUDS: dict[str, tuple[str, Mapping[str, str], str]] = {
    "aws": ("/latest/meta-data/spot/instance-action", {}, '"action"'),
    "gcp": ("/computeMetadata/v1/instance/preempted", {"Metadata-Flavor": "Google"}, "TRUE"),
    "azure": ("/metadata/scheduledevents?api-version=2020-07-01", {"Metadata": "true"}, '"Preempt"'),
}
_TIMEOUT_S = 2.0
_POLL_S = 5.0  # AWS and Google recommend asking every 5 s


@dataclass(frozen=True, slots=True)
class Notice:
    """The job or the machine is about to end.

    Attributes:
        source: who says so: ``SIGTERM``, ``aws``.
        signal: its number; None for a cloud's notice.
    """

    source: str
    signal: int | None = None


class TerminationNotices:
    """Listens for notices while the block runs; ``notice`` says whether there is one.

    Args:
        clouds: to be asked: ``aws``, ``gcp``, ``azure``.
        signals: that are notices; those that this system lacks are passed over.

    Attributes:
        notice: the newest that came.
        is_answered: the emergency checkpoint is whole.

    Raises:
        UsageError: for an unknown cloud or signal.
    """

    def __init__(self, *, clouds: Sequence[str] = (), signals: Sequence[str] = ("SIGTERM", "SIGUSR1")) -> None:
        if unknown := [name for name in clouds if name not in _CLOUDS]:
            raise UsageError(f"notices: {', '.join(_CLOUDS)} are known, not {unknown[0]!r}")
        if unknown := [name for name in signals if not (name.startswith("SIG") and name.isupper())]:
            raise UsageError(f"signals are named as SIGTERM is, not {unknown[0]!r}")
        self._clouds = clouds
        self._numbers = [int(getattr(signal, name)) for name in signals if hasattr(signal, name)]
        self._before: dict[int, Any] = {}
        self._ended = threading.Event()
        self.is_answered = False
        self.notice: Notice | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # Python lets no other thread set handlers
            for number in self._numbers:
                before = signal.getsignal(number)
                if before is signal.SIG_IGN or before is None:
                    continue  # nohup, or a shell's background job; None: a handler in C, which could not be put back
                if number == signal.SIGTERM and guard.receive(self.received):
                    continue
                self._before[number] = before
                signal.signal(number, self._on_signal)
        for name in self._clouds:
            threading.Thread(target=self._poll, args=(name,), name=f"greenlove-notices-{name}", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        guard.stop_handing_to(self.received)
        if threading.current_thread() is threading.main_thread():
            for number, before in self._before.items():
                signal.signal(number, before)
        if self.notice == Notice("SIGTERM", signal.SIGTERM) and not self.is_answered:
            os.kill(os.getpid(), signal.SIGTERM)  # no saving point comes any more: it ends the process after all

    def received(self, number: int) -> bool:
        """Take note of a signal; return False where the process is to end by it now: it came for the second time."""
        if self.notice is not None and self.notice.signal == number:
            return False
        self.notice = Notice(signal.Signals(number).name, int(number))
        child = getattr(signal, "SIGCHLD", None)
        handler = None if child is None else signal.getsignal(child)
        if child is not None and getattr(handler, "__module__", "") == "torch.utils.data._utils.signal_handling":
            # A job's signal goes to all of its processes, and ends the workers of a DataLoader: torch would raise in
            # the step before the training is saved.
            signal.signal(child, signal.SIG_DFL)
        return True

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal whose handler is not the guard's."""
        before = self._before[number]
        is_taken = self.received(number)
        if callable(before):
            before(number, frame)
        elif not is_taken:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _poll(self, name: str) -> None:
        """Ask a cloud until it gives notice; on a thread of its own."""
        path, headers, word = _CLOUDS[name]
        has_warned = False
        while not self._ended.is_set():
            try:
                if name == "aws":
                    token = _asked("/latest/api/token", {f"{_TOKEN_HEADER}-ttl-seconds": "60"}, "PUT")
                    headers = {_TOKEN_HEADER: token}
                if word in _asked(path, headers):
                    self.notice = self.notice or Notice(name)
                    return
            except urllib.error.HTTPError as error:
                error.close()  # 404: there is nothing
            except (OSError, ValueError) as error:
                if not has_warned:
                    _log.warning("greenlove: %s's notices of termination cannot be read yet: %s", name, error)
                has_warned = True
            self._ended.wait(_POLL_S)


def _asked(path: str, headers: Mapping[str, str], method: str = "GET") -> str:
    """Return what the metadata server answers, without a proxy.

    Raises:
        OSError: where it does not answer.
    """
    request = urllib.request.Request(f"{METADATA_URL}{path}", headers=dict(headers), method=method)  # noqa: S310
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=_TIMEOUT_S) as answer:
        return str(answer.read(65536).decode("utf-8", "replace"))
