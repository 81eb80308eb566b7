"""The vocabulary of an experiment: what its file says, checked, and the trainings that it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


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
        key: a hash of all that follows, by which a finished run is known again: 12 hexadecimal digits.
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
        settings: further fields of ``greenlove_tracker.config.Settings``, by name.
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


@dataclass(frozen=True, slots=True)
class StartPolicy:
    """When trainings begin.

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
    """What all trainings together may take; at a limit no other begins, and the one that runs is stopped and saved.

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
    """What a file says.

    Attributes:
        name: of the experiment, and the project of its runs.
        path: of the file.
        text: of the file, as it was written: nothing in it is expanded.
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
