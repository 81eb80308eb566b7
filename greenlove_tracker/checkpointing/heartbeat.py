"""The mark of the live training in a directory of checkpoints: two trainings there would delete each other's."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from greenlove_tracker import format as fmt
from greenlove_tracker.checkpointing.checkpoint_files import is_running, started_utc_s
from greenlove_tracker.job import job_fields
from greenlove_tracker.records import Clock

MARK = ".training.json"
_FRESH_S, _EVERY_S = 180.0, 30.0
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # no link or pipe that somebody else left


class Heartbeat:
    """Says while a training runs that it does.

    Args:
        directory: of the checkpoints.
        clock: for times.
        env: where the job is named.
        host: that this process is on.
    """

    def __init__(self, directory: Path, clock: Clock, env: Mapping[str, str] = os.environ, host: str = "") -> None:
        self._path, self._clock = directory / MARK, clock
        job = next((field.value for field in job_fields(env) if field.name == "job_id"), "")
        self._own = {
            "host": host or socket.gethostname(),
            "pid": os.getpid(),
            "started_s": started_utc_s(os.getpid()) or 0.0,
            "job": job,
            "restarts": env.get("SLURM_RESTART_COUNT", "0"),
        }
        self._beaten_s: float | None = None  # None: it has not begun, or has ended

    def begin(self) -> str:
        """Mark the directory; return in a sentence why that cannot be, for another training is live there."""
        if problem := self._problem():
            return problem
        with contextlib.suppress(OSError):  # a directory that cannot be written: the saves say so
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.unlink(missing_ok=True)
            try:
                self._write(self._path)
            except FileExistsError:
                return self._problem() or f"another training has just begun to write to {self._path.parent}"
            self._beaten_s = self._clock.perf_s()
        return ""

    def beat(self) -> None:
        """Renew the mark, at most every 30 s."""
        if self._beaten_s is None or self._clock.perf_s() - self._beaten_s < _EVERY_S:
            return
        self._beaten_s = self._clock.perf_s()
        draft = self._path.with_name(f"{MARK}-{os.getpid()}")
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
            self._write(draft)
            draft.replace(self._path)

    def end(self) -> None:
        """Take the mark away."""
        if self._beaten_s is not None and self._is_own(self._read()):
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)
        self._beaten_s = None

    def _problem(self) -> str:
        other, own = self._read(), self._own
        age_s = self._clock.utc_s() - other.get("at_utc_s", 0.0)
        is_here = other.get("host") == own["host"]
        if age_s >= _FRESH_S or self._is_own(other):
            return ""
        if is_here and not is_running(other["pid"], other["started_s"]):
            return ""
        if own["job"] and own["job"] == other["job"] and (not is_here or own["restarts"] != other["restarts"]):
            return ""  # it was requeued
        return (
            f"another training (process {other['pid']} on {other['host']}, seen {fmt.duration(max(0.0, age_s))} ago) "
            f"writes its checkpoints to {self._path.parent}, and each would delete the other's: give this one another "
            f"directory, or end that one first. If it is gone, start again in {fmt.duration(_FRESH_S - age_s)}, or "
            f"delete {self._path}"
        )

    def _is_own(self, mark: Mapping[str, Any]) -> bool:
        return all(mark.get(name) == self._own[name] for name in ("host", "pid", "started_s"))

    def _read(self) -> dict[str, Any]:
        """Return the mark of the directory; empty where there is none that can be read."""
        try:
            with open(os.open(self._path, os.O_RDONLY | _FLAGS), encoding="utf-8") as file:  # noqa: PTH123
                mark = json.load(file)
            kinds = {"host": str, "pid": int, "started_s": float, "job": str, "restarts": str, "at_utc_s": float}
            return mark if all(isinstance(mark[name], kind) for name, kind in kinds.items()) else {}
        except (OSError, ValueError, KeyError, TypeError):
            return {}

    def _write(self, path: Path) -> None:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS), "w", encoding="utf-8") as file:  # noqa: PTH123
            json.dump(self._own | {"at_utc_s": self._clock.utc_s()}, file)
