"""What runs can be grouped by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from greenlove_tracker.errors import UsageError
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.trials import is_exploration
from greenlove_tracker.records import Factor

TRAINING, EXPLORATION = "training", "exploration"  # kinds of runs
_JOB = ("cluster", "job_id", "array_task_id")

KEYS: Mapping[str, Callable[[Run], str]] = {
    "run": lambda run: run.run_id,
    "project": lambda run: run.text("project"),
    "device": lambda run: run.text("gpu_models") or run.text("cpu_model"),
    "account": lambda run: run.text("account"),
    "partition": lambda run: run.text("partition"),
    "user": lambda run: run.text("user"),
    "job": lambda run: "/".join(filter(None, map(run.text, _JOB))) if run.text("job_id") else "",
    "kind": lambda run: EXPLORATION if is_exploration(run.fields) else TRAINING,
    "intensity": lambda run: _intensity(run.carbon_intensity) if run.knows_carbon_intensity else "",
    "status": lambda run: str(run.summary.status),
    "training": lambda run: run.run_id,  # Aggregate.by puts the first run of the chain that it continues
    "day": lambda run: run.started_at[:10],
    "month": lambda run: run.started_at[:7],
}


def _intensity(factor: Factor) -> str:
    return f"{factor.value:.6g} {factor.unit}, {factor.source.partition(' (')[0].partition(' as shipped')[0]}"


def checked_keys(keys: Sequence[str]) -> tuple[str, ...]:
    """``keys``, which are some of ``KEYS``.

    Raises:
        UsageError: for a key that does not exist, one that is there twice, or none.
    """
    unknown = [key for key in keys if key not in KEYS]
    if unknown or not keys or len(set(keys)) < len(keys):
        asked = ", ".join(unknown or keys) or "nothing"
        raise UsageError(f"cannot group by {asked}; choose from {', '.join(KEYS)}, each once")
    return tuple(keys)


def first_of_chain(run_id: str, continues: Mapping[str, str]) -> str:
    """The first of the runs that each continue another; of a circle, which only an edited log holds, the least."""
    seen: dict[str, None] = {}
    while run_id in continues and run_id not in seen:
        seen[run_id] = None
        run_id = continues[run_id]
    if run_id not in seen:
        return run_id
    chain = list(seen)
    return min(chain[chain.index(run_id) :])
