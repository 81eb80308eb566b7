"""What a report says, from a log directory: one run in full, or all runs of a directory."""

from __future__ import annotations

import os

from greenlove_tracker.errors import UsageError
from greenlove_tracker.logs.aggregate import aggregate
from greenlove_tracker.logs.parser import read_logs
from greenlove_tracker.report.content_directory import directory_document
from greenlove_tracker.report.content_run import run_document
from greenlove_tracker.report.document import Document


def document(log_dir: str | os.PathLike[str]) -> Document:
    """The report of a run's directory, or of a log directory; one with a single run is reported as that run.

    Raises:
        UsageError: where there is no such directory, or no run in it.
    """
    logs = read_logs(log_dir)
    if not logs.runs:
        raise UsageError(f"{logs.path} holds no run; a run writes to greenlove_logs unless told otherwise")
    added_up = aggregate(logs)
    if len(logs.runs) == 1 and len(added_up.runs) == 1:
        return run_document(added_up.runs[0])
    return directory_document(added_up, logs.path.resolve().name)
