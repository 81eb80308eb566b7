"""The command line; only here is the process ended."""

from __future__ import annotations

import sys

# The verbs add themselves.
from greenlove_tracker.cli import (  # noqa: F401
    calibrate,
    checkpoints,
    compare,
    config,
    demo,
    doctor,
    experiment,
    explore,
    export,
    import_logs,
    plan,
    project,
    report,
    run,
    watch,
)
from greenlove_tracker.cli.base import cli

__all__ = ["cli", "main"]


def main() -> None:
    """Entry point of the command ``greenlove``."""
    # A process that waited before a run begins anew with its own words: sys.orig_argv is no test's or notebook's here.
    cli.main(prog_name="greenlove", obj=tuple(sys.orig_argv[1:]))
