"""Files for Slurm and for Kubernetes that start a training at its best time.

Nothing is submitted: the text is printed, and its first lines say how to submit it. The words of the command arrive
unchanged, whatever a shell or Kubernetes would make of them.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import textwrap
from collections.abc import Sequence
from datetime import UTC, datetime

from greenlove_tracker.vocabulary.errors import UsageError


def job_file(
    command: Sequence[str],
    start_utc: datetime,
    *,
    now: datetime,
    image: str = "",
    duration_s: float | None = None,
    reason: str = "",
) -> str:
    """Return a script that submits a job to Slurm, or a manifest for Kubernetes, which starts a command at a time.

    Args:
        command: its words; they arrive unchanged.
        start_utc: the start; at once if it has passed.
        now: when that was planned.
        image: of the container that Kubernetes runs the command in; empty: it is for Slurm.
        duration_s: the longest expected duration of the command; it is ended then.
        reason: the reason for the start, as a comment.

    Raises:
        UsageError: if there is no command.
    """
    if not command or not command[0] or command[0].startswith("-"):
        raise UsageError("{argument} must be the words of a command line, such as python train.py", argument="command")
    wait_s = max(0, math.ceil((start_utc - now).total_seconds()))
    start_s = math.ceil(start_utc.timestamp())
    at = f"{datetime.fromtimestamp(start_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
    said = f"to start at {at}" if wait_s else f"to start at once (the start, {at}, is past)"
    about = f"# A training, {said}; planned at {now.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC.\n"
    if reason:
        about += f"# {' '.join(reason.split())}\n"
    minutes = None if duration_s is None else math.ceil(duration_s / 60)
    if image:
        return about + _manifest(command, image, start_s, minutes, waits=wait_s > 0)
    options = "--job-name=greenlove"
    if minutes is not None:
        options += f" --time={minutes}"
        about += f"# Slurm ends it after {minutes} minutes, the longest expected: --time=… after FILE is more.\n"
    line = shlex.quote(f"exec {shlex.join(command)}")  # the shell becomes the command: signals reach it
    return f"#!/bin/sh\n{about}{_SLURM.format(wait_s=wait_s, start_s=start_s, options=options, line=line)}"


def _manifest(command: Sequence[str], image: str, start_s: int, minutes: int | None, *, waits: bool) -> str:
    """Return a CronJob that starts at the next full minute; a Job where there is no wait."""
    words = ", ".join(_quoted(word.replace("$", "$$")) for word in command)  # Kubernetes would put values for $(NAME)
    limit = "" if minutes is None else f"  activeDeadlineSeconds: {60 * minutes}\n"
    job = _JOB.format(limit=limit, image=_quoted(image), words=words)
    at = datetime.fromtimestamp(60 * math.ceil(start_s / 60), UTC)
    kind = "Job"
    if waits:
        kind = "CronJob"
        job = _CRON.format(at=at) + textwrap.indent(job, "    ")
    return _MANIFEST.format(kind=kind, at=at) + job


def _quoted(text: str) -> str:
    """Return a string of YAML 1.1 and 1.2: JSON's, but for what is not ASCII, which JSON writes in two halves."""
    return re.sub("[^ -~]", lambda found: f"\\U{ord(found[0]):08x}", json.dumps(text, ensure_ascii=False))


# An absolute time would be read in the time zone of the controller.
_SLURM = """\
# Submit: sh FILE [more options of sbatch, such as --gpus=1]
# When planned, that was sbatch --begin=now+{wait_s}seconds; submitted later, it waits less.
wait_s=$(({start_s} - $(date +%s)))
begin=now
[ "$wait_s" -le 0 ] || begin="now+${{wait_s}}seconds"
sbatch --begin="$begin" {options} "$@" --wrap={line}
"""

_MANIFEST = """\
# Submit: kubectl apply -f FILE. Add what it needs: resources such as GPUs, volumes for its data and logs.
apiVersion: batch/v1
kind: {kind}
metadata:
  name: greenlove-{at:%Y%m%d-%H%M}
"""
_CRON = """\
spec:  # to be submitted before that time, and deleted once it ran: a CronJob comes again each year
  schedule: "{at.minute} {at.hour} {at.day} {at.month} *"
  timeZone: Etc/UTC
  concurrencyPolicy: Forbid
  jobTemplate:
"""
_JOB = """\
spec:
  backoffLimit: 0
{limit}  template:
    spec:
      restartPolicy: Never
      containers:
        - name: training
          image: {image}
          command: [{words}]
"""
