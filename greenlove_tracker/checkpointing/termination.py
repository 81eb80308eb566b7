"""Notices that a job or its machine is about to end: signals, and what clouds tell a spot machine.

A notice sets a flag, and the training saves at its next step. SIGTERM gives it until a deadline; without a saving point
by then the process ends by the signal, as it would have without us. Clouds are asked on request only, by a thread.

Sources:
    AWS: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html (two minutes;
        ``instance-action``), …/rebalance-recommendations.html, …/configuring-instance-metadata-service.html (IMDSv2).
    GCP: https://cloud.google.com/compute/docs/instances/preemptible (30 s; ``instance/preempted``).
    Azure: https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events (Preempt: at least 30 s).
    Slurm: https://slurm.schedmd.com/slurm.conf.html#OPT_KillWait (30 s by default, between SIGTERM and SIGKILL).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
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
_FIRST_AZURE_TIMEOUT_S = 120.0  # its first call enables the service, which takes up to two minutes
_POLL_S = 5.0  # AWS and Google recommend asking every 5 s
_TOKEN_S = 21600  # the longest that IMDSv2 gives a token for
_FAILURES_UNTIL_WARNED = 3


@dataclass(frozen=True, slots=True)
class Notice:
    """The job or the machine is about to end.

    Attributes:
        source: who says so: ``SIGTERM``, ``AWS instance-action``.
        signal: its number; None for a cloud's notice.
        is_hint: True where it may not end after all: a checkpoint is worth it, and the training goes on.
    """

    source: str
    signal: int | None = None
    is_hint: bool = False


class TerminationNotices:
    """Listens for notices while the block runs; ``notice`` says whether there is one.

    Args:
        clouds: to be asked: ``aws``, ``gcp``, ``azure``.
        signals: that are notices; those that this system lacks are passed over.
        grace_s: time from SIGTERM to the end; default: what the cloud gives, or else Slurm's KillWait.
        metadata_url: of another server than the cloud's.
        poll_s: how often clouds are asked; default: every 5 s.

    Raises:
        UsageError: for an unknown cloud or signal.
    """

    def __init__(
        self,
        *,
        clouds: Sequence[str] = (),
        signals: Sequence[str] = ("SIGTERM", "SIGUSR1"),
        grace_s: float | None = None,
        metadata_url: str | None = None,
        poll_s: float | None = None,
    ) -> None:
        names = [clouds] if isinstance(clouds, str) else list(clouds)
        if unknown := [name for name in names if name not in GRACE_S]:
            raise UsageError(f"notices: {', '.join(GRACE_S)} are known, not {unknown[0]!r}")
        if unknown := [name for name in signals if not (name.startswith("SIG") and name.isupper())]:
            raise UsageError(f"signals are named as SIGTERM is, not {unknown[0]!r}")
        if grace_s is not None and not 0 < grace_s < float("inf"):
            raise UsageError(f"grace_s must be a positive number of seconds, not {grace_s!r}")
        self.grace_s = grace_s if grace_s is not None else min((GRACE_S[name] for name in names), default=KILL_WAIT_S)
        self._clouds = [_CLOUDS[name](metadata_url or METADATA_URL) for name in names]
        self._numbers = [int(getattr(signal, name)) for name in signals if hasattr(signal, name)]
        self._poll_s = _POLL_S if poll_s is None else poll_s
        self._before: dict[int, Any] = {}
        self._ended = threading.Event()
        self._has_sigterm = False
        self._is_saved = threading.Event()  # since SIGTERM
        self._is_due = False
        self._notice: Notice | None = None
        self._answered: Notice | None = None  # it makes way for another
        self._of_workers: Any = None  # torch's handler for dead workers, while it is out of place
        self._told: set[str] = set()  # by clouds, which tell it again at each question

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
        if self._clouds:
            threading.Thread(target=self._poll, name="greenlove-notices", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        is_pending = self.is_pending and not callable(self._before.get(signal.SIGTERM))
        self._ended.set()
        guard.stop_handing_to(self)
        if threading.current_thread() is threading.main_thread():  # else the handlers pass on what comes
            self._heed_dead_workers()
            for number, before in self._before.items():
                if signal.getsignal(number) == self._on_signal:
                    signal.signal(number, before)
        if is_pending:
            os.kill(os.getpid(), signal.SIGTERM)  # no saving point comes any more: it ends the process after all

    @property
    def notice(self) -> Notice | None:
        """The notice that came and is not answered yet; of several the first that is no hint."""
        return self._notice

    @property
    def is_pending(self) -> bool:
        """True from SIGTERM until it is answered, or its deadline."""
        return self._has_sigterm and not self._is_due and not self._is_saved.is_set()

    def saved(self) -> None:
        """Take the notice as answered: the emergency checkpoint is whole."""
        notice = self._notice
        if notice is not None and notice.is_hint:
            self._notice = None  # the next notice, which may be none, is another
            return
        self._answered = notice
        if self._has_sigterm:
            self._is_saved.set()

    def received(self, number: int) -> bool:
        """Take note of SIGTERM; return False where the process is to end by it now."""
        if self._has_sigterm:
            return False  # the deadline; or a second one: somebody insists
        self._has_sigterm = True
        self._ignore_dead_workers()
        self._take(Notice(signal.Signals(number).name, int(number)))
        threading.Thread(target=self._end_at_deadline, name="greenlove-deadline", daemon=True).start()
        return True

    def _take(self, notice: Notice) -> None:
        before = self._notice
        is_behind_sigterm = before is not None and before.signal == signal.SIGTERM  # whose deadline is the nearer one
        if (
            before is None
            or before.is_hint
            or before is self._answered
            or (notice.signal is not None and not is_behind_sigterm)
        ):
            self._notice = notice

    def _ignore_dead_workers(self) -> None:
        """Have torch not raise where a worker of a DataLoader ends: a job's signal goes to all of its processes.

        The workers end by it, and torch's handler would raise in the step before the training is saved.
        """
        number = getattr(signal, "SIGCHLD", None)
        handler = None if number is None else signal.getsignal(number)
        if getattr(handler, "__module__", "") == "torch.utils.data._utils.signal_handling":
            self._of_workers = handler
            signal.signal(number, _do_nothing)  # type: ignore[arg-type]

    def _heed_dead_workers(self) -> None:
        if self._of_workers is not None and signal.getsignal(signal.SIGCHLD) is _do_nothing:
            signal.signal(signal.SIGCHLD, self._of_workers)
        self._of_workers = None

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal whose handler is not the guard's."""
        before = self._before.get(number)
        is_listening = not self._ended.is_set()
        if is_listening and number != signal.SIGTERM:
            self._ignore_dead_workers()
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

    def _poll(self) -> None:
        failures: dict[str, int] = {}
        while not self._ended.wait(self._poll_s if failures else 0.0):
            for cloud in self._clouds:
                failures.setdefault(cloud.name, 0)
                try:
                    self._hear(cloud)
                    failures[cloud.name] = 0
                except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                    failures[cloud.name] += 1
                    if failures[cloud.name] == _FAILURES_UNTIL_WARNED:
                        _log.warning(
                            "greenlove: %s's notices of termination cannot be read: %s. Is this a machine of %s? "
                            "Asking goes on; signals are heard all the same",
                            cloud.name,
                            error,
                            cloud.name,
                        )

    def _hear(self, cloud: _Cloud) -> None:
        for notice in cloud.notices():
            if notice.source not in self._told and not self._has_sigterm:  # SIGTERM's end is the nearer one
                self._told.add(notice.source)
                self._take(notice)


class _Cloud:
    """The metadata server of a cloud, asked without a proxy."""

    name = ""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def notices(self) -> Iterator[Notice]:
        """Yield the notices that stand now.

        Raises:
            OSError: where the server does not answer.
            ValueError: where it answers something else.
        """
        raise NotImplementedError

    def _ask(
        self, path: str, headers: Mapping[str, str], *, method: str = "GET", timeout_s: float = _TIMEOUT_S
    ) -> str | None:
        """Return what the server answers; None for a 404, which says that there is none."""
        import urllib.error
        import urllib.request

        request = urllib.request.Request(f"{self._url}{path}", headers=dict(headers), method=method)  # noqa: S310  # ours
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=timeout_s) as answer:
                return str(answer.read(65536).decode("utf-8", "replace"))
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404:
                    return None
            raise


class _Aws(_Cloud):
    """The instance metadata service of EC2, version 2, which wants a token."""

    name = "AWS"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._token = ""

    def notices(self) -> Iterator[Notice]:
        """Yield an interruption, and a recommendation to rebalance, which is a hint."""
        action = self._get("/latest/meta-data/spot/instance-action")
        if action is not None and "action" in json.loads(action):  # some networks answer everything
            yield Notice("AWS instance-action")
        rebalance = self._get("/latest/meta-data/events/recommendations/rebalance")
        if rebalance is not None:
            yield Notice("AWS rebalance recommendation", is_hint=True)

    def _get(self, path: str) -> str | None:
        from urllib.error import HTTPError

        if not self._token:
            self._renew()
        try:
            return self._ask(path, {"X-aws-ec2-metadata-token": self._token})
        except HTTPError as error:
            if error.code != 401:
                raise
        self._renew()
        return self._ask(path, {"X-aws-ec2-metadata-token": self._token})

    def _renew(self) -> None:
        lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_S)}
        self._token = self._ask("/latest/api/token", lifetime, method="PUT") or ""


class _Gcp(_Cloud):
    name = "GCP"

    def notices(self) -> Iterator[Notice]:
        """Yield a preemption."""
        answer = self._ask("/computeMetadata/v1/instance/preempted", {"Metadata-Flavor": "Google"})
        if (answer or "").strip().upper() == "TRUE":
            yield Notice("GCP preempted")


class _Azure(_Cloud):
    name = "Azure"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._timeout_s = _FIRST_AZURE_TIMEOUT_S
        self._machine: str | None = None

    def notices(self) -> Iterator[Notice]:
        """Yield the preemption or deletion of this machine."""
        path = "/metadata/scheduledevents?api-version=2020-07-01"
        answer = self._ask(path, {"Metadata": "true"}, timeout_s=self._timeout_s)
        self._timeout_s = _TIMEOUT_S
        for event in json.loads(answer or "{}").get("Events", []):
            if event.get("EventType") in ("Preempt", "Terminate") and self._is_ours(event.get("Resources") or []):
                yield Notice(f"Azure {event['EventType']}")

    def _is_ours(self, machines: Sequence[str]) -> bool:
        """Return True where an event is of this machine: a scale set hears of all of its machines."""
        if self._machine is None:
            path = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
            with contextlib.suppress(OSError):
                self._machine = (self._ask(path, {"Metadata": "true"}) or "").strip()
        return not machines or not self._machine or self._machine in machines


def _do_nothing(number: int, frame: FrameType | None) -> None:
    """Stand in the place of a handler."""


_CLOUDS: Mapping[str, type[_Cloud]] = {"aws": _Aws, "gcp": _Gcp, "azure": _Azure}
