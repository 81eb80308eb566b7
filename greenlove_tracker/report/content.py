"""What a report says, from a log directory: one run in full, or all runs of a directory."""

from __future__ import annotations

import os

from greenlove_tracker.errors import UsageError
from greenlove_tracker.logs.aggregate import Aggregate, aggregate
from greenlove_tracker.logs.parser import Logs, Run
from greenlove_tracker.report.content_directory import CUTS, directory_document
from greenlove_tracker.report.content_run import run_document
from greenlove_tracker.report.document import Document


def document(
    log_dir: str | os.PathLike[str] | Logs,
    *,
    factors: str | os.PathLike[str] | None = None,
    n_jobs: int | None = None,
    since: str | None = None,
    until: str | None = None,
) -> Document:
    """The report of a run's directory, or of a log directory; one with a single run is reported as that run.

    Args:
        log_dir: the directory, or what ``read_logs`` gave for it.
        factors: a file of other carbon intensities, to restate the runs with; both figures are shown.
        since: only runs that began on or after this UTC date (``2026-11-01``) or time.
        until: only runs that began before this UTC date or time.
        n_jobs: jobs that ran then, as the scheduler counted them: the report says how many of them were not tracked.

    Raises:
        UsageError: where there is no such directory, no run in it, or where the factors or the number cannot be.
    """
    added_up = aggregate(log_dir, since=since, until=until)
    added_up.prepare(*CUTS)
    if not added_up.total.n_runs and not added_up.problems:
        then = " of that time" if since or until else ""
        raise UsageError(f"{added_up.path} holds no run{then}; a run writes to greenlove_logs unless told otherwise")
    only = _only_run(added_up) if n_jobs is None else None
    return directory_document(added_up, factors, n_jobs) if only is None else run_document(only, factors)


def _only_run(added_up: Aggregate) -> Run | None:
    """The one run there is, where there is nothing beside it that could not be read."""
    if added_up.total.n_runs != 1:
        return None
    (run,) = added_up.runs
    its_own = str(run.path)
    told = (str(problem.path) for problem in added_up.problems)
    return run if all(path == its_own or path.startswith((f"{its_own}/", f"{its_own}\\")) for path in told) else None
