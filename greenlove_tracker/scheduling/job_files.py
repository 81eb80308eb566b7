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
from collections.abc import Sequence
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
    if every is not None and every not in EVERY:
        raise UsageError(f"{{argument}} must be one of {', '.join(EVERY)}, not {every!r}", argument="every")
    if every is not None and kind != "k8s":
        raise UsageError(f"{{argument}} is for k8s: {kind} starts once", argument="every")
    words, now = command_words(command), now.astimezone(UTC)
    start = _up_to(start_utc.astimezone(UTC), _SECOND)
    start_s, wait_s = int(start.timestamp()), max(0, math.ceil((start - now).total_seconds()))
    line = shlex.quote(f"exec {shlex.join(words)}")  # the shell becomes the command: signals reach it
    if kind == "slurm":
        # An absolute time would be read in the time zone of the controller.
        minutes = None if duration_s is None else math.ceil(duration_s * _SECOND / _MINUTE)
        limit = "" if minutes is None else f" --time={minutes}"
        ends = f"Slurm ends it after {minutes} minutes, the longest expected: --time=… after FILE is more."
        about = [
            "Submit: sh FILE [more options of sbatch, such as --gpus=1]",
            f"When planned, that was sbatch --begin=now+{wait_s}seconds; submitted later, it waits less.",
            ends if limit else "",
        ]
        text = _SLURM.format(start_s=start_s, options=f"--job-name={name}{limit}", line=line)
    elif kind == "at":
        start = _up_to(start, _MINUTE)
        about = ["Submit: sh FILE [more options of at, such as -m]"]
        text = _AT.format(minute=f"{start:%Y%m%d%H%M}", line=line)
    else:
        waits = not every and wait_s > 0
        held = "A Job has no start time: its first container waits, and the pod holds what it requests until then."
        about = [
            "Submit: kubectl apply -f FILE",
            "It requests no GPU: add `resources` to the container of the training.",
            held if waits else "",
        ]
        if every:
            start = _up_to(start, _MINUTE)
            if every in _WEEKDAYS:
                start += timedelta(days=(_WEEKDAYS.index(every) - start.weekday()) % 7)
        text = _kubernetes(words, start, every, name, image, start_s if waits else None)
    at = f"{start:%Y-%m-%d %H:%M:%S} UTC"
    if every:
        day = "day" if every == "day" else _WEEKDAYS[start.weekday()].title()
        said = f"to start each {day}, first at {at}"
    else:
        said = f"to start at {at}" if wait_s > 0 else f"to start at once (the start, {at}, is past)"
    heading = f"A training for {_SCHEDULERS[kind]}, {said}; planned at {now:%Y-%m-%d %H:%M:%S} UTC."
    comments = "".join(f"# {comment}\n" for comment in (heading, " ".join(reason.split()), *about) if comment)
    return f"{'' if kind == 'k8s' else _SHELL}{comments}{text}"


_SHELL = "#!/bin/sh\n"
_SCHEDULERS = {"slurm": "Slurm", "at": "at", "k8s": "Kubernetes"}

_SLURM = """\
wait_s=$(({start_s} - $(date +%s)))
begin=now
[ "$wait_s" -le 0 ] || begin="now+${{wait_s}}seconds"
sbatch --begin="$begin" {options} "$@" --wrap={line}
"""

# ``at -t``: whole minutes, in the zone of TZ (POSIX); in UTC, since an hour is twice when summer time ends. ``at``
# starts the job with the environment of its submission: its TZ is set back to what it was.
_AT = """\
minute={minute}
if [ "$(date -u +%Y%m%d%H%M)" -lt "$minute" ]; then set -- "$@" -t "$minute"; else set -- "$@" now; fi
{{
  if [ -n "${{TZ+set}}" ]; then printf "TZ='%s'; export TZ\\n" "$TZ"; else echo 'unset TZ'; fi
  printf '%s\\n' {line}
}} | TZ=UTC0 at "$@"
"""


def _up_to(when: datetime, step: timedelta) -> datetime:
    """Return the first whole second or minute that is not before a time."""
    since = when - datetime.min.replace(tzinfo=UTC)
    return when + -since % step


def command_words(command: Sequence[str]) -> tuple[str, ...]:
    """Return the words of the command.

    Raises:
        UsageError: where there are none, or one cannot be an argument of a program or text of a file.
    """
    words = (command,) if isinstance(command, str) else tuple(command)
    if isinstance(command, str) or not words or not words[0] or words[0].startswith("-"):
        raise UsageError("{argument} must be the words of a command line, such as python train.py", argument="command")
    for word in words:
        if "\0" in word or word.encode(errors="replace").decode() != word:
            raise UsageError(f"{{argument}} holds a word that is no text: {word!r}", argument="command")
    return words


def _kubernetes(
    words: Sequence[str], start: datetime, every: Every | None, name: str, image: str | None, wait_until_s: int | None
) -> str:
    """Return a Job whose first container waits, or a CronJob.

    A Job has no start time. Suspended, somebody has to resume it; a CronJob for a date recurs each year. A container
    that waits needs nobody, and costs that the pod holds what it requests until then.
    """
    if not image:
        raise UsageError(
            "a Kubernetes job needs the image of its container: {argument}, such as registry/name:tag", argument="image"
        )
    pod: dict[str, Any] = {"restartPolicy": "Never"}
    if wait_until_s is not None:
        wait = ["/bin/sh", "-c", _unexpanded(_WAIT_IN_POD), str(wait_until_s)]
        pod["initContainers"] = [{"name": "wait-for-start", "image": image, "command": wait}]
    pod["containers"] = [{"name": name, "image": image, "command": [_unexpanded(word) for word in words]}]
    spec: dict[str, Any] = {"backoffLimit": 0, "template": {"spec": pod}}
    # With the start in it, so that two trainings of one name do not collide.
    manifest: dict[str, Any] = {"kind": "Job", "metadata": {"name": f"{name}-{start:%Y%m%d-%H%M%S}"}}
    if every:
        weekday = "*" if every == "day" else str(start.isoweekday() % 7)  # Sunday is 0
        manifest = {"kind": "CronJob", "metadata": {"name": name}}
        spec = {
            "schedule": f"{start.minute} {start.hour} * * {weekday}",
            "timeZone": "Etc/UTC",
            "concurrencyPolicy": "Forbid",
            "jobTemplate": {"spec": spec},
        }
    # JSON, which YAML reads, with what cannot be printed as its number: no text is ever anything else.
    text = json.dumps({"apiVersion": "batch/v1", **manifest, "spec": spec}, indent=2, ensure_ascii=False)
    return "".join(c if c.isprintable() or c == "\n" else f"\\U{ord(c):08x}" for c in text) + "\n"


def _unexpanded(word: str) -> str:
    """Return a word as Kubernetes leaves it: ``$$`` becomes ``$``, and ``$(NAME)`` is not replaced."""
    return word.replace("$", "$$")
