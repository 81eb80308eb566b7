"""Notices that a job or its machine is about to end: signals, and what clouds tell a spot machine.

A notice sets a flag, and the training saves at its next step. SIGTERM gives it until a deadline; without a saving point
by then the process ends by the signal, as it would have without us. Clouds are asked on request only, by a thread.

Sources:
    AWS: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html (two minutes;
        ``instance-action``), …/configuring-instance-metadata-service.html (IMDSv2).
    GCP: https://cloud.google.com/compute/docs/instances/preemptible (30 s; ``instance/preempted``).
    Azure: https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events (Preempt: at least 30 s).
    Slurm: https://slurm.schedmd.com/slurm.conf.html#OPT_KillWait (30 s by default, between SIGTERM and SIGKILL).
"""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Self

from greenlove_tracker.errors import UsageError
from greenlove_tracker.tracker.shutdown import guard

_log = logging.getLogger("greenlove_tracker")

METADATA_URL = "http://169.254.169.254"  # link-local, of all three clouds; it never leaves the machine
GRACE_S = {"aws": 120.0, "gcp": 30.0, "azure": 30.0}
KILL_WAIT_S = 30.0  # Slurm's default; also what Kubernetes waits (terminationGracePeriodSeconds)
_TIMEOUT_S = 2.0
_POLL_S = 5.0  # AWS and Google recommend asking every 5 s
_FAILURES_UNTIL_WARNED = 24  # 2 minutes: so long does Azure's service take to answer for the first time


@dataclass(frozen=True, slots=True)
class Notice:
    """The job or the machine is about to end.

    Attributes:
        source: who says so: ``SIGTERM``, ``AWS instance-action``.
        signal: its number; None for a cloud's notice.
    """

    source: str
    signal: int | None = None


class TerminationNotices:
    """Listens for notices while the block runs; ``notice`` says whether there is one.

    Args:
        clouds: to be asked: ``aws``, ``gcp``, ``azure``.
        signals: that are notices; those that this system lacks are passed over.
        grace_s: time from SIGTERM to the end; default: what the cloud gives, or else Slurm's KillWait.

    Attributes:
        notice: the newest that came; after SIGTERM no other counts, for its end is the nearest one.

    Raises:
        UsageError: for an unknown cloud or signal.
    """

    def __init__(
        self,
        *,
        clouds: Sequence[str] = (),
        signals: Sequence[str] = ("SIGTERM", "SIGUSR1"),
        grace_s: float | None = None,
    ) -> None:
        if unknown := [name for name in clouds if name not in GRACE_S]:
            raise UsageError(f"notices: {', '.join(GRACE_S)} are known, not {unknown[0]!r}")
        if unknown := [name for name in signals if not (name.startswith("SIG") and name.isupper())]:
            raise UsageError(f"signals are named as SIGTERM is, not {unknown[0]!r}")
        if grace_s is not None and not 0 < grace_s < float("inf"):
            raise UsageError(f"grace_s must be a positive number of seconds, not {grace_s!r}")
        self.grace_s = grace_s if grace_s is not None else min((GRACE_S[name] for name in clouds), default=KILL_WAIT_S)
        self._clouds = clouds
        self._numbers = [int(getattr(signal, name)) for name in signals if hasattr(signal, name)]
        self._before: dict[int, Any] = {}
        self._ended = threading.Event()
        self._has_sigterm = False
        self._is_saved = threading.Event()  # since SIGTERM
        self._is_due = False
        self._of_workers: Any = None  # torch's handler for dead workers, while it is out of place
        self.notice: Notice | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # Python lets no other thread set handlers
            for number in self._numbers:
                before = signal.getsignal(number)
                if before is signal.SIG_IGN or before is None:
                    continue  # nohup, or a shell's background job; None: a handler in C, which could not be put back
                if number == signal.SIGTERM and guard.receive(self):
                    continue
                self._before[number] = before
                signal.signal(number, self._on_signal)
        for name in self._clouds:
            threading.Thread(target=self._poll, args=(name,), name=f"greenlove-notices-{name}", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        is_pending = self.is_pending and not callable(self._before.get(signal.SIGTERM))
        self._ended.set()
        guard.stop_handing_to(self)
        if threading.current_thread() is threading.main_thread():  # else the handlers pass on what comes
            if self._of_workers is not None and signal.getsignal(signal.SIGCHLD) is _do_nothing:
                signal.signal(signal.SIGCHLD, self._of_workers)
            for number, before in self._before.items():
                if signal.getsignal(number) == self._on_signal:
                    signal.signal(number, before)
        if is_pending:
            os.kill(os.getpid(), signal.SIGTERM)  # no saving point comes any more: it ends the process after all

    @property
    def is_pending(self) -> bool:
        """True from SIGTERM until it is answered, or its deadline."""
        return self._has_sigterm and not self._is_due and not self._is_saved.is_set()

    def saved(self) -> None:
        """Take the notice as answered: the emergency checkpoint is whole."""
        if self._has_sigterm:
            self._is_saved.set()

    def received(self, number: int) -> bool:
        """Take note of SIGTERM; return False where the process is to end by it now."""
        if self._has_sigterm:
            return False  # the deadline; or a second one: somebody insists
        self._take(Notice(signal.Signals(number).name, int(number)))
        self._has_sigterm = True
        threading.Thread(target=self._end_at_deadline, name="greenlove-deadline", daemon=True).start()
        return True

    def _take(self, notice: Notice) -> None:
        if not self._has_sigterm:
            self.notice = notice
        number = getattr(signal, "SIGCHLD", None)
        handler = None if number is None or notice.signal is None else signal.getsignal(number)
        if getattr(handler, "__module__", "") == "torch.utils.data._utils.signal_handling":
            # A job's signal goes to all of its processes, and ends the workers of a DataLoader: torch would raise in
            # the step before the training is saved.
            self._of_workers = handler
            signal.signal(signal.SIGCHLD, _do_nothing)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal whose handler is not the guard's."""
        before = self._before.get(number)
        is_listening = not self._ended.is_set()
        if is_listening and number != signal.SIGTERM:
            self._take(Notice(signal.Signals(number).name, number))
        elif not (is_listening and self.received(number)) and not callable(before):
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        if callable(before):
            before(number, frame)

    def _end_at_deadline(self) -> None:
        """End the process by SIGTERM where no checkpoint was whole in time; on a thread of its own."""
        if self._is_saved.wait(self.grace_s) or self._ended.is_set():
            return
        self._is_due = True
        os.kill(os.getpid(), signal.SIGTERM)

    def _poll(self, name: str) -> None:
        """Ask a cloud until it gives notice; on a thread of its own."""
        n_failures = 0
        while not self._ended.is_set():
            try:
                if source := _CLOUDS[name]():
                    self._take(Notice(source))
                    return
                n_failures = 0
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                n_failures += 1
                if n_failures == _FAILURES_UNTIL_WARNED:
                    _log.warning(
                        "greenlove: %s's notices of termination cannot be read: %s. Is this a machine of that cloud? "
                        "Asking goes on; signals are heard all the same",
                        name,
                        error,
                    )
            self._ended.wait(_POLL_S)


# -- the metadata servers of clouds: each function returns the notice that stands now, or nothing --


def _asked(path: str, headers: dict[str, str], method: str = "GET") -> str:
    """Return what the metadata server answers, without a proxy; empty for a 404, which says that there is nothing.

    Raises:
        OSError: where it does not answer.
    """
    import urllib.error
    import urllib.request

    request = urllib.request.Request(f"{METADATA_URL}{path}", headers=headers, method=method)  # noqa: S310  # ours
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_TIMEOUT_S) as answer:
            return str(answer.read(65536).decode("utf-8", "replace"))
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 404:
                return ""
        raise


def _of_aws() -> str:
    """Ask the instance metadata service of EC2, version 2, which wants a token."""
    token = _asked("/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}, "PUT")
    action = _asked("/latest/meta-data/spot/instance-action", {"X-aws-ec2-metadata-token": token})
    return "AWS instance-action" if action and "action" in json.loads(action) else ""  # some networks answer everything


def _of_gcp() -> str:
    answer = _asked("/computeMetadata/v1/instance/preempted", {"Metadata-Flavor": "Google"})
    return "GCP preempted" if answer.strip().upper() == "TRUE" else ""


def _of_azure() -> str:
    """Ask for the preemption or deletion of this machine: a scale set hears of all of its machines."""
    answer = _asked("/metadata/scheduledevents?api-version=2020-07-01", {"Metadata": "true"})
    for event in json.loads(answer or "{}").get("Events", []):
        if event.get("EventType") in ("Preempt", "Terminate"):
            path = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
            name = _asked(path, {"Metadata": "true"}).strip()
            if not name or not event.get("Resources") or name in event["Resources"]:
                return f"Azure {event['EventType']}"
    return ""


def _do_nothing(number: int, frame: FrameType | None) -> None:
    """Stand in the place of a handler."""


_CLOUDS: dict[str, Callable[[], str]] = {"aws": _of_aws, "gcp": _of_gcp, "azure": _of_azure}
