"""The vocabulary of an experiment: what its file says, checked, and the trainings that it stands for."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from greenlove_tracker.errors import UsageError

if TYPE_CHECKING:
    from greenlove_tracker.techniques.technique import Technique

MOST_RUNS = 10_000  # of one experiment
_KEY_DIGITS = 12
_KEY_FORM = 1  # of what a key is made of: another one makes every key anew, so that everything is trained again

# ``$$`` is a dollar, ``${NAME}`` a variable; a dollar before anything else is itself.
_VARIABLE = re.compile(r"\$\$|\$\{([^}]*)(\}?)")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class TechniqueChoice:
    """A technique as a file names it: ``amp-bf16``, ``early-stopping=5`` or ``lr-schedule: {shape: cosine}``.

    Attributes:
        name: with its value, where it has one: ``grad-accumulation=4``.
        options: by name; empty for none.
    """

    name: str
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One training of an experiment: an arm, one combination of the matrix, one seed.

    Attributes:
        key: a hash of what defines the training, by which a finished run is known again: 12 hexadecimal digits.
            ``training_key`` says what that is.
        arm: the name of the arm.
        group: the arm with the values of the matrix, without the seed: "optimised, batch_size=64"; runs of one group
            differ in their seed alone.
        name: the group with the seed: "optimised, batch_size=64, seed 1".
        values: of the matrix, by name.
        seed: of all random states.
        task: ``file.py:function``, with an absolute path.
        arguments: of the file, as they are written: ``${NAME}`` stands for an environment variable.
        techniques: in order.
        epochs: None: as the task says.
        steps: likewise.
        batch_size: likewise.
        settings: fields of ``greenlove_tracker.config.Settings``, by name.
        task_sha256: of the task's file as it was when the experiment was read. It is no part of the key: who trains
            can say that the code has changed since a run, and the user decides.
    """

    key: str
    arm: str
    group: str
    name: str
    values: Mapping[str, Any]
    seed: int
    task: str
    arguments: tuple[str, ...]
    techniques: tuple[TechniqueChoice, ...]
    epochs: int | None
    steps: int | None
    batch_size: int | None
    settings: Mapping[str, Any]
    task_sha256: str = ""


@dataclass(frozen=True, slots=True)
class StartPolicy:
    """The policy for when trainings begin.

    Attributes:
        start: ``now``, ``best`` (the start that is expected to emit least before the deadline), ``below`` or a time.
        below_gco2e_per_kwh: with ``below``: wait until the carbon intensity is under it.
        deadline: by which all is to be done; a time as ``greenlove plan`` takes it.
        max_wait: begin after it anyway; a span such as ``6h``.
        each: ``run``: before each training; ``experiment``: once, before the first.
    """

    start: str = "now"
    below_gco2e_per_kwh: float | None = None
    deadline: str = ""
    max_wait: str = ""
    each: str = "run"


@dataclass(frozen=True, slots=True)
class ExperimentBudget:
    """Limits for all trainings together; at one, no other begins, and the one that runs is stopped and saved.

    Attributes:
        hours: of training, without waits.
        energy_kwh: with PUE.
        cost_usd: by the price of the machine where one is set, else of electricity.
        kgco2e: operational.
    """

    hours: float | None = None
    energy_kwh: float | None = None
    cost_usd: float | None = None
    kgco2e: float | None = None


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment, as its file defines it.

    Attributes:
        name: of the experiment, and the project of its runs.
        path: of the file.
        text: of the file, as it was written, for a report: nothing in it is expanded, and secrets are masked.
        sha256: of the file's bytes.
        runs: in the order in which they are trained; all arms of one combination and seed follow one another.
        baseline: the group that the others are compared with.
        start: when they begin.
        budget: of them all.
        outputs: the directory of the runs, of the checkpoints and of the reports.
        reports: ``html``, ``pdf``, ``md``.
    """

    name: str
    path: Path
    text: str
    sha256: str
    runs: tuple[PlannedRun, ...]
    baseline: str
    start: StartPolicy
    budget: ExperimentBudget
    outputs: Path
    reports: tuple[str, ...]


def planned_runs(
    common: PlannedRun,
    arms: Mapping[str, Sequence[TechniqueChoice]],
    matrix: Mapping[str, Sequence[Any]],
    seeds: Sequence[int],
) -> tuple[PlannedRun, ...]:
    """Return every training of an experiment, in the order in which they are trained.

    All arms of one seed and one combination follow one another, and take turns in who is first (A B, then B A): what
    drifts with time, such as the temperature of a GPU, favours none of them. Each combination has both orders over
    its seeds, and each seed over its combinations.

    Args:
        common: what all of them have; its key, names, arm, values and seed are of no account.
        arms: the techniques of each arm, by its name.
        matrix: the values of ``epochs``, ``steps``, ``batch_size`` or an argument such as ``--lr``, by name.
        seeds: of all random states.
    """
    combinations = [dict(zip(matrix, chosen, strict=True)) for chosen in itertools.product(*matrix.values())]
    found = []
    for (n_seed, seed), (n_combination, values) in itertools.product(enumerate(seeds), enumerate(combinations)):
        is_reversed = (n_seed + n_combination) % 2 == 1
        for arm in reversed(list(arms)) if is_reversed else arms:
            run = _with_values(replace(common, arm=arm, techniques=tuple(arms[arm]), seed=seed), values)
            group = group_name(arm, values)
            found.append(replace(run, key=training_key(run), group=group, name=f"{group}, seed {seed}"))
    return tuple(found)


def group_name(arm: str, values: Mapping[str, Any]) -> str:
    """Return the name of an arm with the values of the matrix: ``optimised, batch_size=64, --lr=1e-3``."""
    return ", ".join((arm, *(f"{name}={value}" for name, value in values.items())))


def _with_values(run: PlannedRun, values: Mapping[str, Any]) -> PlannedRun:
    """Return a training with the values of a combination."""
    given = sorted((name, str(value)) for name, value in values.items() if name.startswith("-"))
    words = itertools.chain.from_iterable(argument_words(name, value) for name, value in given)
    own = {name: value for name, value in values.items() if not name.startswith("-")}
    return replace(run, values=dict(values), arguments=(*run.arguments, *words), **own)


def argument_words(name: str, value: str) -> tuple[str, ...]:
    """Return a named argument as a command line has it: ``--lr=1e-3`` (a value may begin with a dash), ``-l 1e-3``."""
    return (f"{name}={value}",) if name.startswith("--") else (name, value)


def training_key(run: PlannedRun) -> str:
    """Return the first digits of the SHA-256 of what defines a training, as JSON in one certain form.

    It is what the training does: the name of the task's file and of its function, the arguments as they are written,
    the techniques in their order with their options, epochs, steps, batch size and seed. It is not the name of an arm,
    the settings that only measure, the place of the file, nor whether a value stands in the matrix or above it: to
    rename an arm, or to add a seed, an exporter or a deadline, trains nothing anew.
    """
    file, _, function = run.task.rpartition(":")
    what = {
        "form": _KEY_FORM,
        "task": f"{PurePath(file).name}:{function}",
        "arguments": list(run.arguments),
        "techniques": [[technique.name, dict(technique.options)] for technique in run.techniques],
        "epochs": run.epochs,
        "steps": run.steps,
        "batch_size": run.batch_size,
        "seed": run.seed,
    }
    text = json.dumps(what, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:_KEY_DIGITS]


def variables_in(text: str) -> Iterator[str]:
    """Yield the names of the environment variables in a text.

    Raises:
        UsageError: where ``${`` is followed by anything but a name and ``}``.
    """
    for found in _VARIABLE.finditer(text):
        if found[0] == "$$":
            continue
        if not found[2] or not _VARIABLE_NAME.fullmatch(found[1]):
            raise UsageError("${NAME} stands for an environment variable, and $$ for a dollar; nothing else is known")
        yield found[1]


def expanded(text: str, environ: Mapping[str, str]) -> str:
    """Return a text with the values of environment variables for ``${NAME}``, and a dollar for ``$$``.

    Its result may hold secrets: it goes to the training alone, never into a log or a message.

    Raises:
        UsageError: for a variable that is not set; it says the names alone, and no value.
    """
    if missing := [name for name in dict.fromkeys(variables_in(text)) if name not in environ]:
        names, is_one = ", ".join(missing), len(missing) == 1
        raise UsageError(
            f"the environment variable{'' if is_one else 's'} {names} {'is' if is_one else 'are'} not set, and the "
            f"experiment names {'it' if is_one else 'them'}: set {'it' if is_one else 'them'} and begin again"
        )
    return _VARIABLE.sub(lambda found: "$" if found[0] == "$$" else environ[found[1]], text)


def technique_of(choices: Sequence[TechniqueChoice]) -> Technique | None:
    """Return the techniques of an arm as one; None where it has none. It loads torch where one of them does.

    Raises:
        UsageError: where one is unknown, takes no such option, or two exclude each other.
    """
    if not choices:
        return None
    from greenlove_tracker.techniques.technique import combined, technique_with

    return combined([technique_with(choice.name, choice.options) for choice in choices])
