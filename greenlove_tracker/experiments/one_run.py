"""One training of an experiment, in a process of its own: ``python -m greenlove_tracker.experiments.one_run FILE KEY``.

A crash, a leak or a full GPU ends this process alone. What became of the training is one line of JSON, for the process
that began it, and the exit code: 0 finished, 1 failed or cannot be run here, 2 nothing to be trained, 75 or 128 and the
signal's number where it is saved, and the same call goes on with it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from greenlove_tracker.errors import BudgetExceeded, UsageError
from greenlove_tracker.records import Field
from greenlove_tracker.secret_masking import mask_secrets

if TYPE_CHECKING:
    from greenlove_tracker.experiments.definition import Experiment, PlannedRun

_FINISHED, _FAILED, _USAGE, _SAVED = 0, 1, 2, 75  # the last is EX_TEMPFAIL of sysexits.h, as of a Checkpointer


@dataclass(slots=True)
class TrainingResult:
    """The outcome of a training.

    Attributes:
        outcome: ``finished``, ``failed``, ``interrupted`` (it is saved), or ``not-run`` (it cannot be run here).
        run_id: of its run; empty where it did not come to one.
        reason: why it did not finish, as a clause.
    """

    outcome: str = "failed"
    run_id: str = ""
    reason: str = ""


def main(words: Sequence[str] | None = None) -> int:
    """Train one run of an experiment, write what became of it, and return the exit code.

    Args:
        words: of the command line; None: those of this process.
    """
    parser = argparse.ArgumentParser(prog="python -m greenlove_tracker.experiments.one_run", description=main.__doc__)
    parser.add_argument("file", help="of the experiment")
    parser.add_argument("key", help="of the training in it")
    parser.add_argument("--result-fd", type=int, default=1, help="where the line of JSON is written; default stdout")
    parser.add_argument("--outputs", type=Path, help="where it is written; default: as the file says")
    given = parser.parse_args(words)
    result = TrainingResult()
    try:
        return _attempted(given.file, given.key, given.outputs, result)
    finally:
        result.reason = mask_secrets(result.reason)  # it goes into a report
        line = json.dumps(asdict(result), ensure_ascii=False) + "\n"
        with contextlib.suppress(BrokenPipeError):  # who began it is gone, and reads the log when it comes back
            os.write(given.result_fd, line.encode())


def _attempted(file: str, key: str, outputs: Path | None, result: TrainingResult) -> int:
    """Train, note in the result what became of it, and return the exit code."""
    from greenlove_tracker.checkpointing.checkpointer import TrainingInterrupted
    from greenlove_tracker.techniques.compare import reason_of
    from greenlove_tracker.techniques.technique import NotApplicableError

    try:
        _train(file, key, outputs, result)
    except TrainingInterrupted as ended:
        result.outcome, result.reason = "interrupted", f"told to end by {ended.reason}"
        return int(ended.code or _SAVED)
    except KeyboardInterrupt:  # raised by the task's own handler
        result.outcome, result.reason = "interrupted", "stopped by Ctrl-C"
        return 128 + signal.SIGINT
    except BudgetExceeded as error:
        result.outcome, result.reason = "interrupted", str(error)
        return _SAVED
    except NotApplicableError as error:
        result.outcome, result.reason = "not-run", reason_of(error)
        return _FAILED
    except UsageError as error:
        result.reason = reason_of(error)
        sys.stderr.write(f"greenlove: {error}\n")
        return _USAGE
    except SystemExit as ended:
        result.reason = f"the task ended its process: sys.exit({ended.code!r})"
        return _FAILED
    except Exception as error:
        result.reason = reason_of(error)
        traceback.print_exception(error)
        return _FAILED
    result.outcome = "finished"
    return _FINISHED


def _train(file: str, key: str, outputs: Path | None, result: TrainingResult) -> None:
    """Train one run of an experiment.

    Raises:
        UsageError: where the file has no such run, or the task cannot be loaded.
        Exception: as ``train_one``.
    """
    from greenlove_tracker.experiments.definition import expanded, technique_of
    from greenlove_tracker.experiments.definition_file import read_experiment
    from greenlove_tracker.exploration.task import load_task_function
    from greenlove_tracker.techniques.full_training import train_one

    experiment = read_experiment(file)
    planned = next((run for run in experiment.runs if run.key == key), None)
    if planned is None:
        raise UsageError(f"{file} has no run {key}: it was changed since, so begin the experiment again")
    outputs = outputs or experiment.outputs

    def fields(run_id: str) -> list[Field]:
        result.run_id = run_id
        return _fields(experiment, planned)

    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # of a shell's background job it stays ignored
        # With Python's own handler a SIGINT would end the loop before it can be saved.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    train_one(
        load_task_function(planned.task, [expanded(argument, os.environ) for argument in planned.arguments]),
        technique_of(planned.techniques),
        log_dir=outputs / "runs",
        seed=planned.seed,
        epochs=planned.epochs,
        steps=planned.steps,
        batch_size=planned.batch_size,
        fields=fields,
        checkpoint_dir=outputs / "checkpoints" / planned.key,
        settings={"project": experiment.name, **planned.settings},
    )


def _fields(experiment: Experiment, planned: PlannedRun) -> list[Field]:
    """Return by what a run is known as one of this experiment."""
    known = {
        "experiment": experiment.name,
        "experiment_sha256": experiment.sha256,
        "experiment_run": planned.key,
        "task_sha256": planned.task_sha256,
        "arm": planned.arm,
        "group": planned.group,
    }
    return [Field(name, text) for name, text in known.items()]


if __name__ == "__main__":
    raise SystemExit(main())
