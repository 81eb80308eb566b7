"""Files that start a training at its best time: for Slurm, ``at`` and Kubernetes.

Nothing is submitted here: the text is printed, and its first lines say how to submit it. Whoever runs the command
line in the end (a shell, a container) expands something in it, each by rules of its own. So each kind has its own
quoting, and the words of the command arrive as they were given.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, get_args

from greenlove_tracker.errors import UsageError

JobKind = Literal["slurm", "at", "k8s"]
Every = Literal["day", "week", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]

JOB_KINDS: tuple[JobKind, ...] = get_args(JobKind)
EVERY: tuple[Every, ...] = get_args(Every)

_WEEKDAYS = EVERY[2:]  # Monday first, as datetime.weekday() counts

# Kubernetes' names are labels of RFC 1123; a CronJob's has at most 52 characters, and a Job's gets the start behind it.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LONGEST_NAME = 38
_SECOND = timedelta(seconds=1)
_MINUTE = timedelta(minutes=1)

# Of the start: the container of the training begins when this one has ended.
_WAIT_IN_POD = 'until [ "$(date +%s)" -ge "$0" ]; do sleep 5; done'


@dataclass(frozen=True, slots=True)
class _Job:
    """The command to start, and its time.

    Attributes:
        command: its words.
        start_utc: not before this second.
        now: when that was planned.
        every: how often; None for once.
        name: of the job.
        duration_s: the longest that it is expected to take; None where that is not known.
        image: of the container.
        reason: of the start, in a sentence; may be empty.
    """

    command: tuple[str, ...]
    start_utc: datetime
    now: datetime
    every: Every | None
    name: str
    duration_s: float | None
    image: str | None
    reason: str

    @property
    def minutes(self) -> int | None:
        """The longest duration in whole minutes."""
        return None if self.duration_s is None else math.ceil(self.duration_s * _SECOND / _MINUTE)

    @property
    def shell_line(self) -> str:
        """The command for a shell, which becomes it: signals reach it, and no word is one of the shell's own."""
        return f"exec {shlex.join(self.command)}"

    @property
    def unit_name(self) -> str:
        """The name with the start, so that two trainings of one name do not collide."""
        return self.name if self.every else f"{self.name}-{self.start_utc:%Y%m%d-%H%M%S}"

    @property
    def first_utc(self) -> datetime:
        """The first start of a recurring one: the minute that is not before the start, on its weekday."""
        first = _up_to_minute(self.start_utc)
        if self.every in _WEEKDAYS:
            first += timedelta(days=(_WEEKDAYS.index(self.every) - first.weekday()) % 7)
        return first

    def cron_fields(self, when: datetime) -> str:
        """Return the five fields of cron for a start that recurs at the time of day, and weekday, of ``when``."""
        weekday = "*" if self.every == "day" else str(when.isoweekday() % 7)  # Sunday is 0
        return f"{when.minute} {when.hour} * * {weekday}"


def job_file(
    kind: JobKind,
    command: Sequence[str],
    start_utc: datetime,
    *,
    now: datetime,
    every: Every | None = None,
    name: str = "greenlove",
    duration_s: float | None = None,
    image: str | None = None,
    reason: str = "",
) -> str:
    """Return a file that starts a command at a time, or regularly; nothing is submitted.

    Args:
        kind: who starts it: ``slurm``, ``at`` or ``k8s``.
        command: its words; they arrive unchanged.
        start_utc: when; in the past: at once. Of a recurring one the time of day, and the weekday, count.
        now: when that was planned.
        every: of ``k8s``: ``day``, ``week`` (the weekday of the start) or a weekday in UTC; None for once.
        name: of the job: lower-case letters, digits and hyphens.
        duration_s: the longest that the command is expected to take: Slurm ends it then.
        image: of the container; ``k8s`` needs it.
        reason: of the start; a comment.

    Raises:
        UsageError: where an argument cannot be, or cannot be written for this kind.
    """
    if kind not in JOB_KINDS:
        raise UsageError(f"{{argument}} must be one of {', '.join(JOB_KINDS)}, not {kind!r}", argument="kind")
    for argument, when in (("start_utc", start_utc), ("now", now)):
        if when.tzinfo is None:
            raise UsageError(f"{argument} must have a time zone, such as datetime.now(timezone.utc) has")
    if duration_s is not None and not 0.0 < duration_s < math.inf:
        raise UsageError(f"{{argument}} must be above zero, not {duration_s}", argument="duration_s")
    if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        raise UsageError(
            f"{{argument}} must be lower-case letters, digits and hyphens, at most {_LONGEST_NAME}, not {name!r}",
            argument="name",
        )
    start = start_utc.astimezone(UTC)
    if start.microsecond:
        start = start.replace(microsecond=0) + _SECOND
    if every is not None and every not in EVERY:
        raise UsageError(f"{{argument}} must be one of {', '.join(EVERY)}, not {every!r}", argument="every")
    if every is not None and kind != "k8s":
        raise UsageError(f"{{argument}} is for k8s: {kind} starts once", argument="every")
    job = _Job(
        command=command_words(command),
        start_utc=start,
        now=now.astimezone(UTC),
        every=every,
        name=name,
        duration_s=duration_s,
        image=image,
        reason=" ".join(reason.split()),
    )
    return _WRITERS[kind](job)


def command_words(command: Sequence[str]) -> tuple[str, ...]:
    """Return the words of the command.

    Raises:
        UsageError: where there are none, or one cannot be an argument of a program or text of a file.
    """
    words = (command,) if isinstance(command, str) else tuple(command)
    if isinstance(command, str) or not words or not words[0] or words[0].startswith("-"):
        raise UsageError("{argument} must be the words of a command line, such as python train.py", argument="command")
    for word in words:
        if "\0" in word or not _is_utf8(word):
            raise UsageError(f"{{argument}} holds a word that is no text: {word!r}", argument="command")
    return words


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _up_to_minute(when: datetime) -> datetime:
    whole = when.replace(second=0, microsecond=0)
    return whole if whole == when else whole + _MINUTE


def _weekday(when: datetime) -> str:
    return _WEEKDAYS[when.weekday()].title()


def _time(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M:%S} UTC"


def _comments(job: _Job, what: str, start: datetime, *more: str) -> str:
    """Return the first lines: what this is, from which plan, and how to submit it."""
    if job.every:
        when = f"to start each {'day' if job.every == 'day' else _weekday(start)}, first at {_time(start)}"
    elif job.start_utc <= job.now:
        when = f"to start at once (the start, {_time(start)}, is past)"
    else:
        when = f"to start at {_time(start)}"
    lines = [f"A training for {what}, {when}; planned at {_time(job.now)}.", job.reason, *more]
    return "".join(f"# {line}\n" for line in lines if line)


# --- Slurm, at: scripts for sh, which find out when they are submitted how long it is until the start.


def _slurm(job: _Job) -> str:
    """``sbatch --begin=now+Nseconds``: an absolute time would be read in the time zone of the controller."""
    wait_s = max(0, math.ceil((job.start_utc - job.now).total_seconds()))
    limit = "" if job.minutes is None else f" --time={job.minutes}"
    return (
        "#!/bin/sh\n"
        + _comments(
            job,
            "Slurm",
            job.start_utc,
            "Submit: sh FILE [more options of sbatch, such as --gpus=1]",
            f"When planned, that was sbatch --begin=now+{wait_s}seconds; submitted later, it waits less.",
            f"Slurm ends it after {job.minutes} minutes, the longest expected: --time=… after FILE is more."
            if limit
            else "",
        )
        + f"wait_s=$(({_epoch(job.start_utc)} - $(date +%s)))\n"
        "begin=now\n"
        '[ "$wait_s" -le 0 ] || begin="now+${wait_s}seconds"\n'
        f'sbatch --begin="$begin" --job-name={job.name}{limit} "$@" --wrap={shlex.quote(job.shell_line)}\n'
    )


def _at(job: _Job) -> str:
    """``at -t``: whole minutes, in the zone of TZ (POSIX); in UTC, since an hour is twice when summer time ends.

    ``at`` starts the job with the environment of its submission. Its TZ is set back to what it was.
    """
    start = _up_to_minute(job.start_utc)
    return (
        "#!/bin/sh\n"
        + _comments(job, "at", start, "Submit: sh FILE [more options of at, such as -m]")
        + f"minute={start:%Y%m%d%H%M}\n"
        'if [ "$(date -u +%Y%m%d%H%M)" -lt "$minute" ]; then set -- "$@" -t "$minute"; else set -- "$@" now; fi\n'
        "{\n"
        '  if [ -n "${TZ+set}" ]; then printf "TZ=\'%s\'; export TZ\\n" "$TZ"; else echo \'unset TZ\'; fi\n'
        f"  printf '%s\\n' {shlex.quote(job.shell_line)}\n"
        '} | TZ=UTC0 at "$@"\n'
    )


def _epoch(when: datetime) -> int:
    return int(when.timestamp())


# --- Kubernetes


def _kubernetes(job: _Job) -> str:
    """Return a Job whose first container waits, or a CronJob.

    A Job has no start time. Suspended, somebody has to resume it; a CronJob for a date recurs each year. A container
    that waits needs nobody, and costs that the pod holds what it requests until then.
    """
    if not job.image:
        raise UsageError(
            "a Kubernetes job needs the image of its container: {argument}, such as registry/name:tag", argument="image"
        )
    waits = not job.every and job.start_utc > job.now
    container = {"name": job.name, "image": job.image, "command": [_unexpanded(word) for word in job.command]}
    pod: dict[str, Any] = {"restartPolicy": "Never"}
    if waits:
        wait = ["/bin/sh", "-c", _unexpanded(_WAIT_IN_POD), str(_epoch(job.start_utc))]
        pod["initContainers"] = [{"name": "wait-for-start", "image": job.image, "command": wait}]
    pod["containers"] = [container]
    spec: dict[str, Any] = {"backoffLimit": 0, "template": {"spec": pod}}
    manifest: dict[str, Any] = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job.unit_name}}
    if job.every:
        manifest["kind"] = "CronJob"
        spec = {
            "schedule": job.cron_fields(job.first_utc),
            "timeZone": "Etc/UTC",
            "concurrencyPolicy": "Forbid",
            "jobTemplate": {"spec": spec},
        }
    manifest["spec"] = spec
    return _comments(
        job,
        "Kubernetes",
        job.first_utc if job.every else job.start_utc,
        "Submit: kubectl apply -f FILE",
        "It requests no GPU: add `resources` to the container of the training.",
        "A Job has no start time: its first container waits, and the pod holds what it requests until then."
        if waits
        else "",
    ) + _yaml(manifest)


def _unexpanded(word: str) -> str:
    """Return a word as Kubernetes leaves it: ``$$`` becomes ``$``, and ``$(NAME)`` is not replaced."""
    return word.replace("$", "$$")


def _yaml(manifest: Mapping[str, Any]) -> str:
    """Return JSON, which YAML reads, with what cannot be printed as its number: no text is ever anything else."""
    text = json.dumps(manifest, indent=2, ensure_ascii=False)
    return "".join(c if c.isprintable() or c == "\n" else f"\\U{ord(c):08x}" for c in text) + "\n"


_WRITERS: Mapping[JobKind, Callable[[_Job], str]] = {
    "slurm": _slurm,
    "at": _at,
    "k8s": _kubernetes,
}
