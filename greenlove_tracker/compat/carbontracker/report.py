"""carbontracker's report of one log, as our PDF."""

from __future__ import annotations

from greenlove_tracker import write_pdf
from greenlove_tracker.compat.carbontracker.parser import PathText

__all__ = ["generate_report_from_log"]


def generate_report_from_log(log_file_path: PathText, output_path: PathText) -> None:
    """Write the PDF of the run in one of carbontracker's logs, or in a run directory of ours.

    Raises:
        UsageError: if there is no such run, or the PDF cannot be written.
    """
    write_pdf(log_file_path, output_path)
