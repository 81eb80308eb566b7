"""One training of an experiment, in a process of its own, to be trained or explored.

A crash, a leak or a full GPU ends this process alone. What became of it is JSON in a file, for the process that began
it, and the exit code: 0 done, 1 failed, 75 or 128 and the signal's number where the training is saved, and the same
call goes on with it.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from greenlove_tracker.experiments.definition import Experiment, PlannedRun, expanded, technique_of
from greenlove_tracker.files.reading import parsed_json, read_text
from greenlove_tracker.settings.secret_masking import mask_secrets
from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.errors import BudgetExceeded, TrainingInterrupted, UsageError
from greenlove_tracker.vocabulary.forecasting import LEVEL, stop_estimate
from greenlove_tracker.vocabulary.records import Field

COMMAND = (sys.executable, "-P", "-m", "greenlove_tracker.experiments.one_run")  # file, key and answer follow
_SAVED = 75  # EX_TEMPFAIL of sysexits.h: "the user is invited to retry"
ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def read_answer(file: Path, code: int) -> tuple[dict[str, Any], int | None]:
    """Return what a process answered, or how it ended without a word; and the signal that ended it, if one did."""
    number = -code if code < 0 else code - 128
    by = number if number in ENDING else None
    try:
        found: dict[str, Any] = parsed_json(read_text(file))
    except (OSError, ValueError):
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return {"outcome": "failed" if by is None else "interrupted", "reason": f"its process {how}"}, by
    return found, by


def main(words: Sequence[str] | None = None) -> int:
    """Train or explore one run of an experiment, write what became of it, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m greenlove_tracker.experiments.one_run", description=main.__doc__)
    parser.add_argument("file", help="of the experiment")
    parser.add_argument("key", help="of the training in it")
    parser.add_argument("answer", type=Path, help="the file that says what became of it")
    parser.add_argument("--outputs", type=Path, help="where it is written; default: as the file says")
    parser.add_argument("--explore", type=float, help="for so many seconds, instead of training")
    given = parser.parse_args(words)
    answer: dict[str, Any] = {"outcome": "failed", "reason": ""}
    try:
        return _attempted(given, answer)
    finally:
        answer["reason"] = mask_secrets(answer["reason"])  # it goes into a report
        given.answer.write_text(json.dumps(answer), "utf-8")


def _attempted(given: argparse.Namespace, answer: dict[str, Any]) -> int:
    """Train or explore, note in the answer what became of it, and return the exit code."""
    from greenlove_tracker.experiments.definition import read_experiment
    from greenlove_tracker.techniques.compare import reason_of

    try:
        experiment = read_experiment(given.file)
        planned = next((run for run in experiment.runs if run.key == given.key), None)
        if planned is None:
            raise UsageError(f"{given.file} has no run {given.key}: it was changed since, so begin again")
        if given.explore:
            answer |= _explored(planned, given.explore, given.answer.parent)
        else:
            _train(experiment, planned, given.outputs or experiment.outputs)
    except TrainingInterrupted as ended:
        answer |= {"outcome": "interrupted", "reason": f"ended by {ended.reason}"}
        return int(ended.code or _SAVED)
    except BudgetExceeded as error:
        answer |= {"outcome": "interrupted", "reason": str(error)}
        return _SAVED
    except (Exception, SystemExit) as error:
        answer["reason"] = reason_of(error)
        if not isinstance(error, UsageError):
            traceback.print_exception(error)
        return 1
    answer["outcome"] = "finished"
    return 0


def _task(planned: PlannedRun) -> Any:
    from greenlove_tracker.exploration.task import load_task_function

    return load_task_function(planned.task, list(map(expanded, planned.arguments)))


def _train(experiment: Experiment, planned: PlannedRun, outputs: Path) -> None:
    """Train one run of an experiment.

    Raises:
        Exception: as ``train_one``.
    """
    from greenlove_tracker.techniques.full_training import train_one

    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # of a shell's background job it stays ignored
        # With Python's own handler a SIGINT would end the loop before it can be saved.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    known = {
        "experiment": experiment.name,
        "experiment_sha256": experiment.sha256,
        "experiment_run": planned.key,
        "task_sha256": planned.task_sha256,
        "arm": planned.arm,
        "group": planned.group,
    }
    train_one(
        _task(planned),
        technique_of(planned.techniques),
        log_dir=outputs / "runs",
        seed=planned.seed,
        epochs=planned.epochs,
        steps=planned.steps,
        batch_size=planned.batch_size,
        fields=[Field(name, text) for name, text in known.items()],
        checkpoint_dir=outputs / "checkpoints" / planned.key,
        weights=outputs / "weights" / f"{planned.key}.pt" if experiment.weights == "final" else None,
        settings={"project": experiment.name, **planned.settings},
    )


def _explored(planned: PlannedRun, budget_s: float, log_dir: Path) -> dict[str, Any]:
    """Explore a training with its techniques, and return its forecast as plain values.

    Raises:
        UsageError: where a technique cannot be used here, or the training cannot be explored.
    """
    from greenlove_tracker.exploration.estimator import ARGUMENT_NAMES, Estimator
    from greenlove_tracker.techniques.arm import arm_of, parts_of
    from greenlove_tracker.techniques.full_training import with_length

    found = parts_of(_task(planned), planned.seed)
    parts = with_length(found, planned.epochs, planned.steps, planned.batch_size)
    if parts.get("eval_fn") is not None and parts.get("total_steps") and not parts.get("eval_every"):
        parts["eval_every"] = parts["total_steps"]  # as it is trained: evaluated at its end alone
    arm = arm_of(parts, technique_of(planned.techniques))
    options = {name: value for name, value in arm.parts.items() if name in ARGUMENT_NAMES} | dict(planned.settings)
    options |= {"budget_s": budget_s, "asks": False, "log_dir": log_dir, "verbose": 0, "export": ""}
    options |= {"seed": planned.seed, "train_step": lambda model, batch, *_: arm.step(batch)}  # of the techniques
    stopping = arm.parts.get("early_stopping")
    if stopping is not None and parts.get("total_epochs") is not None:
        options["stopping"] = stopping.rule
    with arm.active():
        estimator = Estimator(**options)
        estimation = estimator.estimate()
    forecast = estimation.forecast
    stop = estimator.plan.stop
    estimates = {quantity: getattr(forecast, quantity) for quantity in fmt.QUANTITIES}
    return {
        **{quantity: asdict(estimate) if estimate else None for quantity, estimate in estimates.items()},
        "plan": fmt.plan(estimator.plan),
        "stop": "" if stop is None else fmt.expected_stop(stop_estimate(stop, LEVEL), stop.most_epochs),
        "spent_s": estimation.spent_s,
        # Without their advice, which names a budget for this group alone.
        "warnings": [f"{warning.name}: {warning.message}" for warning in forecast.warnings],
    }


if __name__ == "__main__":
    raise SystemExit(main())
