"""The command line; only here is the process ended."""

from __future__ import annotations

# The verbs add themselves.
from greenlove_tracker.cli import explore, forecast, plan, project, report, run, wait  # noqa: F401
from greenlove_tracker.cli.base import cli

__all__ = ["cli", "main"]


def main() -> None:
    """Entry point of the command ``greenlove``."""
    cli.main(prog_name="greenlove")
