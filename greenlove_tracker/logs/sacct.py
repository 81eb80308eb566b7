"""Jobs as Slurm's accounting lists them, beside the logs: which left none, and how many GPU-hours that is.

Read is what ``sacct -P`` prints (https://slurm.schedmd.com/sacct.html): a header and one line a job, cells separated by
``|``. Its times are of the zone that it ran in and are taken for UTC, so it is to be run with ``TZ=UTC``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from greenlove_tracker.errors import UsageError
from greenlove_tracker.logs.aggregate import Aggregate
from greenlove_tracker.logs.selection import Period
from greenlove_tracker.logs.totals import utc
from greenlove_tracker.units import h_from_s

SACCT = "TZ=UTC sacct -a -X -P -o JobID,User,ElapsedRaw,AllocTRES,State,Start,End"
JOB_IDS = ("job_id",)  # the sums that it needs
_COLUMNS = ("JobID", "User", "ElapsedRaw", "AllocTRES", "State", "Start", "End")
_RAW = "JobIDRaw"  # the number that a job of an array has in its own environment
_NO_TIME = ("", "Unknown", "None", "N/A")
_JOB_ID = re.compile(r"\d{1,12}(?:_(?:\d{1,9}|\[[^\]]*\]))?(?:\+\d{1,5})?", re.ASCII)
_GPUS = re.compile(r"gres/gpu(?P<type>:[^=]+)?=(?P<count>\d{1,6})", re.ASCII)
_MOST_BYTES = 256 * 1024**2


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One job of Slurm that has run or runs.

    Attributes:
        job_id: as ``sacct`` writes it: ``81``, of an array ``81_3``.
        names: all under which a log may know it.
        user: who submitted it.
        state: such as ``COMPLETED``.
        gpu_count: GPUs that were allocated to it.
        elapsed_s: time that it ran, suspensions taken off.
        started_s: when it began, in seconds since the Unix epoch.
        ended_s: when it ended; of one that runs, when it was asked for.
    """

    job_id: str
    names: frozenset[str]
    user: str
    state: str
    gpu_count: int
    elapsed_s: float
    started_s: float
    ended_s: float

    def gpu_hours(self, period: Period) -> float | None:
        """Return its GPU-hours within a period, in proportion to time; None where it lies outside."""
        since_s, until_s = period.bounds_s
        if self.started_s >= until_s or (self.ended_s <= since_s and self.started_s < since_s):
            return None
        whole = self.gpu_count * h_from_s(self.elapsed_s)
        if self.ended_s <= self.started_s:
            return whole
        within_s = min(self.ended_s, until_s) - max(self.started_s, since_s)
        return whole * (within_s / (self.ended_s - self.started_s))


@dataclass(frozen=True, slots=True)
class JobCoverage:
    """The jobs of a period beside the logs.

    Attributes:
        n_jobs: jobs that ran in it.
        gpu_hours: theirs together.
        untracked: those of them without a log, each with its GPU-hours, the most first.
        logged_gpu_hours: of the runs that the other jobs logged; a job may do more than its runs.
        n_unlisted: jobs that logged runs and are not in the list.
    """

    n_jobs: int
    gpu_hours: float
    untracked: tuple[tuple[SlurmJob, float], ...]
    logged_gpu_hours: float
    n_unlisted: int

    @property
    def untracked_gpu_hours(self) -> float:
        """GPU-hours of the jobs without a log."""
        return sum(gpu_hours for _, gpu_hours in self.untracked)

    @property
    def tracked_share(self) -> float | None:
        """The share of all GPU-hours that belongs to jobs with a log, in 0..1; None where no job had a GPU."""
        return max(0.0, 1.0 - self.untracked_gpu_hours / self.gpu_hours) if self.gpu_hours else None

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "jobs": self.n_jobs,
            "gpu_hours": self.gpu_hours,
            "untracked_gpu_hours": self.untracked_gpu_hours,
            "tracked_share": self.tracked_share,
            "logged_gpu_hours": self.logged_gpu_hours,
            "not_in_list": self.n_unlisted,
            "untracked": [
                {"job": job.job_id, "user": job.user, "state": job.state, "gpu_hours": gpu_hours}
                for job, gpu_hours in self.untracked
            ],
        }


def read_jobs(path: str | os.PathLike[str]) -> Sequence[SlurmJob]:
    """Return the jobs that a file of ``sacct`` lists, without their steps and without jobs that never ran.

    Raises:
        UsageError: where it cannot be read or a line of it is not what sacct prints; the message names the line.
    """
    try:
        if Path(path).stat().st_size > _MOST_BYTES:
            raise UsageError(f"{path} is larger than {_MOST_BYTES / 1024**2:.0f} MiB: ask sacct for a shorter time")
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text: write it with {SACCT}") from error
    return list(_jobs(str(path), lines))


def _jobs(path: str, lines: Sequence[str]) -> Iterator[SlurmJob]:
    header = lines[0].rstrip("|").split("|") if lines else []
    if missing := [name for name in _COLUMNS if name not in header]:
        raise UsageError(f"{path}, line 1: no column {missing[0]}: write the file with {SACCT} > FILE, without -n")
    for number, line in enumerate(lines[1:], 2):
        if not line.strip():
            continue
        cells = line.split("|")
        if len(cells) == len(header) + 1 and not cells[-1]:  # sacct -p ends each line with one
            cells.pop()
        if len(cells) != len(header):
            raise UsageError(
                f"{path}, line {number}: {len(cells)} cells, where the header has {len(header)}: write the file "
                f"with {SACCT} > FILE"
            )
        try:
            job = _job(dict(zip(header, map(str.strip, cells), strict=True)))
        except ValueError as error:
            raise UsageError(f"{path}, line {number}: {error}") from error
        if job is not None:
            yield job


def _job(cells: Mapping[str, str]) -> SlurmJob | None:
    """Return the job of a line; None for a step, or a job that never ran.

    Raises:
        ValueError: where a cell is not what its column holds.
    """
    job_id, elapsed, tres = cells["JobID"], cells["ElapsedRaw"], cells["AllocTRES"]
    if "." in job_id:  # a step of a job, which is in that
        return None
    if not _JOB_ID.fullmatch(job_id):
        raise ValueError(f"JobID {job_id!r} is not a job's number, such as 81 or 81_3")
    if not re.fullmatch(r"\d{1,12}", elapsed, re.ASCII):
        raise ValueError(f"ElapsedRaw {elapsed!r} is not a number of seconds")
    if cells["Start"] in _NO_TIME:
        if int(elapsed):
            raise ValueError(f"job {job_id} ran for {elapsed} s, and has no Start")
        return None
    started_s, elapsed_s = _utc_s("Start", cells["Start"]), float(elapsed)
    ended_s = started_s + elapsed_s if cells["End"] in _NO_TIME else _utc_s("End", cells["End"])
    if ended_s < started_s:
        raise ValueError(f"job {job_id} ends before it starts")
    names = {job_id, job_id.partition("+")[0], cells.get(_RAW, "")} - {""}  # 81+1 is a part of the heterogeneous job 81
    return SlurmJob(
        job_id, frozenset(names), cells["User"], cells["State"], _gpu_count(tres), elapsed_s, started_s, ended_s
    )


def _utc_s(column: str, text: str) -> float:
    try:
        return utc(text).timestamp()
    except (ValueError, OverflowError):
        raise ValueError(f"{column} {text!r} is not a time such as 2026-11-01T12:00:00") from None


def _gpu_count(tres: str) -> int:
    """Return the GPUs in ``billing=8,cpu=8,gres/gpu=2,gres/gpu:a100=2``: the sum over types where no total is given."""
    total, by_type = 0, 0
    for item in tres.split(","):
        if (found := _GPUS.fullmatch(item)) is not None:
            by_type += int(found["count"]) if found["type"] else 0
            total += 0 if found["type"] else int(found["count"])
        elif item.startswith(("gres/gpu=", "gres/gpu:")):  # gres/gpumem and gres/gpuutil are something else
            raise ValueError(f"AllocTRES has {item!r}, which is not a number of GPUs")
    return total or by_type


def job_coverage(jobs: Sequence[SlurmJob], aggregate: Aggregate) -> JobCoverage:
    """Return which jobs of the aggregate's period left no log among its runs.

    Args:
        jobs: of ``read_jobs``; those of other users and other jobs than were chosen do not count.
        aggregate: the runs.

    Raises:
        UsageError: where runs were chosen by something that sacct does not say.
    """
    selection = aggregate.selection
    for names, name in ((selection.projects, "project"), (selection.hosts, "host")):
        if names:
            raise UsageError(
                "{argument} is not in what sacct prints: leave it or {argument} out", argument=(name, "sacct")
            )
    aggregate.prepare(JOB_IDS)
    logged = {job_id: totals for (job_id,), totals in aggregate.by(*JOB_IDS).items() if job_id}
    asked = [
        (job, gpu_hours)
        for job in jobs
        if (not selection.users or job.user in selection.users)
        and (not selection.jobs or not job.names.isdisjoint(selection.jobs))
        and (gpu_hours := job.gpu_hours(selection.period)) is not None
    ]
    untracked = [(job, gpu_hours) for job, gpu_hours in asked if job.names.isdisjoint(logged)]
    listed = {name for job, _ in asked for name in job.names}
    return JobCoverage(
        n_jobs=len(asked),
        gpu_hours=sum(gpu_hours for _, gpu_hours in asked),
        untracked=tuple(sorted(untracked, key=lambda one: (-one[1], one[0].job_id))),
        logged_gpu_hours=sum(totals.gpu_hours or 0.0 for job_id, totals in logged.items() if job_id in listed),
        n_unlisted=len([job_id for job_id in logged if job_id not in listed]),
    )
