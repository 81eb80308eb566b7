"""A file for Slurm that starts a training at its best time.

Nothing is submitted: the text is printed, and its first lines say how to submit it. The words of the command arrive
unchanged, whatever a shell would make of them.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime

from greenlove_tracker.vocabulary.errors import UsageError


def slurm_file(
    command: Sequence[str],
    start_utc: datetime,
    *,
    now: datetime,
    duration_s: float | None = None,
    reason: str = "",
) -> str:
    """Return a script that submits a job to Slurm, which starts a command at a time.

    Args:
        command: its words; they arrive unchanged.
        start_utc: the start; at once if it has passed.
        now: when that was planned.
        duration_s: the longest expected duration of the command; Slurm ends it then.
        reason: the reason for the start, as a comment.

    Raises:
        UsageError: if there is no command.
    """
    if not command or not command[0] or command[0].startswith("-"):
        raise UsageError("{argument} must be the words of a command line, such as python train.py", argument="command")
    start_s = math.ceil(start_utc.timestamp())
    start = datetime.fromtimestamp(start_s, UTC)
    wait_s = max(0, math.ceil((start_utc - now).total_seconds()))
    at = f"{start:%Y-%m-%d %H:%M:%S} UTC"
    if wait_s > 0:
        said = f"to start at {at}"
    else:
        said = f"to start at once (the start, {at}, is past)"
    comments = [
        f"A training for Slurm, {said}; planned at {now.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC.",
        " ".join(reason.split()),
        "Submit: sh FILE [more options of sbatch, such as --gpus=1]",
        f"When planned, that was sbatch --begin=now+{wait_s}seconds; submitted later, it waits less.",
    ]
    options = "--job-name=greenlove"
    if duration_s is not None:
        minutes = math.ceil(duration_s / 60)
        options += f" --time={minutes}"
        comments.append(f"Slurm ends it after {minutes} minutes, the longest expected: --time=… after FILE is more.")
    line = shlex.quote(f"exec {shlex.join(command)}")  # the shell becomes the command: signals reach it
    about = "".join(f"# {comment}\n" for comment in comments if comment)
    return f"#!/bin/sh\n{about}{_SLURM.format(start_s=start_s, options=options, line=line)}"


# An absolute time would be read in the time zone of the controller.
_SLURM = """\
wait_s=$(({start_s} - $(date +%s)))
begin=now
[ "$wait_s" -le 0 ] || begin="now+${{wait_s}}seconds"
sbatch --begin="$begin" {options} "$@" --wrap={line}
"""
