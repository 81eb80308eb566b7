"""carbontracker's report of one log, as our PDF."""

from __future__ import annotations

import os

from greenlove_tracker.errors import UsageError
from greenlove_tracker.logs.directory import read_logs

__all__ = ["generate_report_from_log"]


def generate_report_from_log(log_file_path: str | os.PathLike[str], output_path: str | os.PathLike[str]) -> None:
    """Write a PDF on the run of a log.

    Args:
        log_file_path: a log of carbontracker, standard or output; the directory of a run of ours; an ``emissions.csv``.
        output_path: the file to write.

    Raises:
        UsageError: where the log cannot be read, by name, or the file cannot be written.
    """
    from greenlove_tracker.report.build import write_pdf  # reportlab takes a while to load

    logs = read_logs(log_file_path)
    if not list(logs.readable()):
        why = "; ".join(map(str, logs.problems)) or f"{os.fspath(log_file_path)} holds no run"
        raise UsageError(f"no report can be made: {why}")
    write_pdf(log_file_path, output_path)
