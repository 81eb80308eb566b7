"""Files for Slurm and for Kubernetes that start a training at its best time.

Nothing is submitted: the text is printed, and its first lines say how to submit it. The words of the command arrive
unchanged, whatever a shell or Kubernetes would make of them.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime

from greenlove_tracker.rendering.html import fill
from greenlove_tracker.vocabulary.errors import UsageError


def job_file(
    command: Sequence[str],
    start_utc: datetime,
    *,
    now: datetime,
    image: str | None = None,
    duration_s: float | None = None,
    reason: str = "",
) -> str:
    """Return a script that submits a job to Slurm, or a manifest for Kubernetes, which starts a command at a time.

    Args:
        command: its words; they arrive unchanged.
        start_utc: the start; at once if it has passed. Kubernetes knows minutes, and starts in the next full one.
        now: when that was planned.
        image: of the container that Kubernetes runs the command in; None: it is for Slurm.
        duration_s: the longest expected duration of the command; it is ended then.
        reason: the reason for the start, as a comment.

    Raises:
        UsageError: if there is no command.
    """
    if not command or not command[0] or command[0].startswith("-"):
        raise UsageError("{argument} must be the words of a command line, such as python train.py", argument="command")
    start_s = math.ceil(start_utc.timestamp())
    wait_s = max(0, math.ceil((start_utc - now).total_seconds()))
    line = shlex.quote(f"exec {shlex.join(command)}")
    words = [_quoted(word.replace("$", "$$")) for word in command]  # Kubernetes would put values for $(NAME)
    text = fill(
        "kubernetes.yaml" if image else "slurm.sh",
        start_s=start_s,
        start=datetime.fromtimestamp(start_s, UTC),
        minute=datetime.fromtimestamp(60 * math.ceil(start_s / 60), UTC),
        now=now.astimezone(UTC),
        wait_s=wait_s,
        minutes=None if duration_s is None else math.ceil(duration_s / 60),
        reason=" ".join(reason.split()),
        line=line,
        image=_quoted(image or ""),
        words=words,
    )
    return f"{text}\n"


def _quoted(text: str) -> str:
    """Return a string of YAML 1.1 and 1.2: JSON's, but for what is not ASCII, which JSON writes in two halves."""
    return re.sub("[^ -~]", lambda found: f"\\U{ord(found[0]):08x}", json.dumps(text, ensure_ascii=False))
