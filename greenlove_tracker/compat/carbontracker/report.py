"""carbontracker's report of one log, as our PDF."""

from __future__ import annotations

import os

from greenlove_tracker import write_pdf

__all__ = ["generate_report_from_log"]


def generate_report_from_log(log_file_path: str | os.PathLike[str], output_path: str | os.PathLike[str]) -> None:
    """Write the PDF of the run in one of carbontracker's logs, or in a run directory of ours.

    Raises:
        UsageError: if there is no such run, or the PDF cannot be written.
    """
    write_pdf(log_file_path, output_path)
