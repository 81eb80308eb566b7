"""The rehearsal of a resume: the processes of it, and what they say."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from greenlove_tracker.checkpointing.checkpoint_files import CheckpointStore
from greenlove_tracker.text import console
from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.checkpoints import REHEARSAL_VARIABLE, RehearsalPoint, RehearsedResume
from greenlove_tracker.vocabulary.errors import UsageError

_TAIL_LINES = 4  # of a process that failed
_IN_WORDS = {RehearsalPoint.MID_EPOCH: "in mid-epoch", RehearsalPoint.EPOCH_END: "at an epoch's end"}


def rehearse(command: Sequence[str], steps: int) -> tuple[RehearsedResume, list[str]]:
    """Rehearse the resume of a training, and keep the result beside its checkpoints.

    Args:
        command: that trains.
        steps: batches that are compared behind each resume.

    Returns:
        the result, and what is to be said of it, in paragraphs.

    Raises:
        UsageError: where it cannot be rehearsed.
    """
    with tempfile.TemporaryDirectory(prefix="greenlove-rehearsal-") as made:
        directory = Path(made)
        console.say("greenlove: rehearsing: from the beginning")
        _run(command, directory, "straight", steps)
        points = [point for point in RehearsalPoint if _told(directory, f"{point}-straight")]
        if not points:
            raise UsageError(
                "the training ended before it could be saved and resumed: it needs 4 batches or 2 epochs at least. It "
                f"said: {_last_words(directory)}"
            )
        said = []
        differs = ""
        n_compared = steps
        variables = list[str]()
        for point in points:
            console.say(f"greenlove: rehearsing: resumed {_IN_WORDS[point]}")
            straight = _told(directory, f"{point}-straight")
            found = _resumed(command, directory, point, steps, straight)
            last = straight[-1]
            n_compared = min(n_compared, last["steps"])
            behind = f"at step {last['from']:,}, and trained on for {fmt.plural(last['steps'], 'step')}"
            result = f"differs in {found.first}" if found.first else "identical"
            said.append(f"Resumed {_IN_WORDS[point]}, {behind}: {result}.")
            if found.reason:
                said.append(f"Likeliest reason: {found.reason}.")
            else:
                variables += found.variables
            differs = differs or found.first
        manifest = CheckpointStore(directory / points[0]).listing()[0].manifest
        now = datetime.now(UTC).isoformat()
        result_kept = RehearsedResume(now, n_compared, tuple(points), differs, manifest.conditions)
        CheckpointStore((directory / "directory.txt").read_text("utf-8")).keep_rehearsal(result_kept)
    if variables:
        said.append(
            f"These variables of the script are others after a resume: {', '.join(dict.fromkeys(variables))}. One that "
            "decides something later, such as a count of epochs without progress, belongs into checkpointer.values."
        )
    return result_kept, said


@dataclass
class _Compared:
    """What differs between a straight training and a resumed one.

    Attributes:
        first: by name; empty for nothing.
        reason: the likeliest one; empty where nothing differs, or the resume failed.
        variables: of the loop, that differ.
    """

    first: str = ""
    reason: str = ""
    variables: Sequence[str] = ()


def _resumed(
    command: Sequence[str], directory: Path, point: str, steps: int, straight: Sequence[Mapping[str, Any]]
) -> _Compared:
    """Resume a training, and compare it with the straight one; where it differs, with another resume too."""
    resumed = f"{point}-{point}"
    try:
        _run(command, directory, point, steps)
        once = _told(directory, resumed)
        found = _compared(straight, once)
    except UsageError as error:
        return _Compared(f"the resume: it fails ({error})")
    if found.reason:
        _run(command, directory, point, steps)
        if _compared(once, _told(directory, resumed)).first:
            found.reason = "two resumes from the same checkpoint differ too, so the training itself does"
    return found


def _compared(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> _Compared:
    """Compare what all ranks of two trainings have written down: after the first step, and after the last."""
    variables = list[str]()
    for one, other in zip(before, after, strict=True):
        found = {kind: _differing(one[kind], other[kind]) for kind in ("metrics", "beside", "batches", "variables")}
        found["held"] = _differing({**dict.fromkeys(other["held"], "nothing"), **one["held"]}, other["held"])
        first = [*found["held"].values(), *found["metrics"].values(), *found["beside"].values()]
        variables = list(found["variables"])
        if first:
            more = f" and {len(first) - 1:,} more" if len(first) > 1 else ""
            return _Compared(first[0] + more, _reason(found), variables)
    return _Compared(variables=variables)


def _differing(was: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """Return what of both differs, in words by name."""
    found = {}
    for name, value in was.items():
        other = now.get(name, value)
        if other != value:
            found[name] = name if "sha256" in value + other else f"{name} ({other} instead of {value})"
    return found


def _reason(found: Mapping[str, Mapping[str, str]]) -> str:
    """Return the likeliest reason of a difference, and what to do."""
    kept = ", ".join(found["variables"])
    if found["beside"]:
        return f"what was not passed: {next(iter(found['beside']))}"
    if found["batches"]:
        return (
            "the batches are others: their order or content comes from what no checkpoint holds, such as a set, the "
            "time, or a sampler with a state of its own, which others= can keep"
        )
    if kept and any(".param_groups." in name for name in found["held"]):
        return (
            f"the learning rate is set from what begins anew ({kept}): count with "
            "enumerate(checkpointer.batches(loader), checkpointer.position.batches)"
        )
    if kept:
        return f"the script keeps {kept} from batch to batch: keep it in checkpointer.values, or pass others="
    return (
        "something changes in training that is neither passed nor a variable of the script, such as a tensor, a list "
        "or a random generator in an object: pass others=(save, restore)"
    )


def _told(directory: Path, name: str) -> list[dict[str, Any]]:
    """Return what each rank has written down."""
    files = directory.glob(f"{name}-*.json")
    return [json.loads(file.read_text("utf-8")) for file in sorted(files)]


def _run(command: Sequence[str], directory: Path, role: str, steps: int) -> None:
    """Run one process of the rehearsal, with all that it starts.

    Raises:
        UsageError: where it cannot be started, or fails.
    """
    (directory / "steps.txt").write_text(str(steps), "utf-8")
    hash_seed = str(["straight", *RehearsalPoint].index(role) + 1)  # a set has another order in each, as without us
    env = {"PYTHONHASHSEED": hash_seed, **os.environ, REHEARSAL_VARIABLE: str(directory / role)}
    with (directory / "output.txt").open("wb") as output:
        try:
            child = subprocess.Popen(
                command,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise UsageError(f"cannot start {command[0]}: {error.strerror}") from error
        try:
            code = child.wait()
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)  # workers of loaders, or all of it after Ctrl-C
            child.wait()
    if code:
        raise UsageError(f"the command ended with exit code {code}: {_last_words(directory)}")
    if not (directory / "directory.txt").exists():
        raise UsageError("the command made no Checkpointer, so there is nothing to rehearse")


def _last_words(directory: Path) -> str:
    """Return the last lines that a process has printed, without what would steer a terminal."""
    lines = (directory / "output.txt").read_text("utf-8", errors="replace").strip().splitlines()
    return fmt.printable(" / ".join(lines[-_TAIL_LINES:]), lines="")
