"""The sections and keys of an experiment's file, their kinds and bounds, and their meaning.

Each key is described here alone: ``docs/reference/experiment.md`` is made of these descriptions.
"""

from __future__ import annotations

import difflib
import re
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from greenlove_tracker.errors import UsageError
from greenlove_tracker.experiments.core_yaml import (
    Location,
    YamlDocument,
    YamlMistake,
    location_text,
    nearest,
    shortened,
    shown,
)
from greenlove_tracker.experiments.definition import MOST_RUNS, TechniqueChoice
from greenlove_tracker.grid.place import resolve_place
from greenlove_tracker.scheduling.times import parse_span_s, parse_when
from greenlove_tracker.techniques.technique import TECHNIQUES

EXPERIMENTS_DIR = "greenlove_experiments"  # beside the file, where it names no other
_MOST_SEED = 2**32 - 1  # that numpy.random.seed takes


class _FileSection(BaseModel):
    """A mapping of the file: no key that it does not know, and no value turned into another kind in silence."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


def _when(text: str) -> str:
    parse_when(text, datetime.now(UTC))
    return text


def _span(text: str) -> str:
    parse_span_s(text)
    return text


def _start(text: str) -> str:
    if text in ("now", "best", "below"):
        return text
    try:
        return _when(text)
    except UsageError as error:
        raise UsageError(f"must be now, best, below or a time: {error}") from error


def _place(text: str) -> str:
    resolve_place(text)
    return text


def _directory_name(text: str) -> str:
    if not re.fullmatch(r"\w[\w.-]{0,79}", text):
        raise UsageError(f"becomes a directory: up to 80 letters, digits, dots, - and _, not {shown(text)}")
    return text


def _argument(value: Any) -> Any:
    if value is None:
        raise UsageError("is empty: leave it out, or write '' for an empty text")
    if isinstance(value, list | dict):
        raise UsageError(f"must be one word of a command line, not {shown(value)}: {_QUOTED}")
    return value


def _technique(value: Any) -> TechniqueChoice:
    """Return the technique of an item: ``name``, ``name=value``, ``name: value`` or ``name: {option: value}``."""
    given: Any = None
    if isinstance(value, dict) and len(value) == 1:
        ((value, given),) = value.items()
    if not isinstance(value, str):
        raise UsageError(
            f"must be the name of a technique, such as amp-bf16 or lr-schedule: {{shape: cosine}}, not {shown(value)}"
        )
    name, equals, behind = value.partition("=")
    if "+" in value:
        raise UsageError(f"write each technique as an item of its own, not {shown(value)}")
    if name not in TECHNIQUES:
        raise UsageError(f"no technique is called {shown(name)}: {nearest(name, TECHNIQUES)}")
    if isinstance(given, list | bool) or (equals and given is not None and not isinstance(given, dict)):
        raise UsageError(f"{name} takes options as {{name: value}}, not {shown(given)}")
    if not isinstance(given, dict | None):  # name: value
        behind, equals = str(given), "="
    if equals and not re.fullmatch(r"[\w.%-]+", behind):
        raise UsageError(f"{shown(value)}: no value stands after the =")
    return TechniqueChoice(f"{name}={behind}" if equals else name, given if isinstance(given, dict) else {})


def _exporter(text: str) -> str:
    name = text.partition("=")[0]
    if "," in text:
        raise UsageError(f"write each exporter as an item of its own, not {shown(text)}")
    if name not in EXPORTERS:
        raise UsageError(f"no exporter is called {shown(name)}: {nearest(name, EXPORTERS)}")
    return text


def _seeds(value: Any) -> Any:
    """Return the seeds 0, 1, 2 for 3."""
    if isinstance(value, int) and not isinstance(value, bool):
        if not 1 <= value <= MOST_RUNS:
            raise UsageError(f"must be from 1 to {MOST_RUNS:,} seeds, not {value}")
        return list(range(value))
    if not isinstance(value, list):
        raise UsageError(f"must be a list of seeds such as [0, 1, 2], or their number, not {shown(value)}")
    return value


EXPORTERS = ("mlflow", "wandb", "tensorboard", "prometheus")
_QUOTED = "put a text with such characters in quotes"
_Text = Annotated[str, Field(min_length=1)]
_Epochs = Annotated[int, Field(ge=1, le=10**9)]
_Steps = Annotated[int, Field(ge=1, le=10**12)]
_BatchSize = Annotated[int, Field(ge=1, le=10**9)]
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Seed = Annotated[int, Field(ge=0, le=_MOST_SEED)]


def _said(description: str, such_as: str, default: Any = None, **more: Any) -> Any:
    """Return a field that may be left out, with its description and an example as YAML, for the reference."""
    return Field(default, description=description, examples=[such_as], **more)


class ScheduleSection(_FileSection):
    """The section on when the trainings begin."""

    start: Annotated[str, AfterValidator(_start)] | None = _said(
        "`now`; `best`, the start that is expected to emit least before the deadline; `below`, as soon as the carbon "
        "intensity is under `below_gco2e_per_kwh`; or a time, after which the first one begins. Default: `below` where "
        "that is given, else `now`",
        "best",
    )
    deadline: Annotated[str, AfterValidator(_when)] | None = _said(
        "by which all is to be done: `08:00`, `tomorrow 08:00`, `monday 06:00`, `+6h` or `2026-11-23T08:00`; needed "
        "with `best`. One without a date counts from each call anew: write the date where the same command is to go on "
        "with the same deadline",
        "tomorrow 08:00",
    )
    max_wait: Annotated[str, AfterValidator(_span)] | None = _said("begin after so long anyway", "6h")
    below_gco2e_per_kwh: _Positive | None = _said("with `start: below`: the carbon intensity to wait for", "250")
    each: Literal["run", "experiment"] | None = _said(
        "`run`: wait before each training; `experiment`: before the first alone. Default: `run`; with a time "
        "`experiment`",
        "run",
    )


class CarbonSection(_FileSection):
    """The carbon intensity in force."""

    intensity: _Text | None = _said(
        "where it comes from: `live`, a service such as `neso` or `eia`, a CSV file, `mock`; default: the setting, "
        "else the offline table",
        "live",
    )


class BudgetSection(_FileSection):
    """The section on limits for all trainings together."""

    hours: _Positive | None = _said("of training, without waits", "2")
    energy_kwh: _Positive | None = _said("energy, with PUE", "1")
    cost_usd: _Positive | None = _said("by the machine's price where one is set, else of electricity", "5")
    kgco2e: _Positive | None = _said("operational emissions", "0.5")


class OutputsSection(_FileSection):
    """The section on the files to write."""

    directory: _Text | None = _said(
        f"of runs, checkpoints and reports, from the file's own directory; default: `{EXPERIMENTS_DIR}/NAME` beside "
        "the file. The same command goes on from what lies there, wherever it is called from",
        "results/digits",
    )
    reports: Annotated[list[Literal["html", "pdf", "md"]], Field(min_length=1)] = _said(
        "how the report of the whole is written: `html`, `pdf`, `md`", "[html, pdf]", ["html"]
    )


class MatrixSection(_FileSection):
    """Values of which every combination is trained, with every arm and seed."""

    model_config = ConfigDict(extra="allow")

    epochs: Annotated[list[_Epochs], Field(min_length=1)] | None = _said("epochs of the training", "[10, 20]")
    steps: Annotated[list[_Steps], Field(min_length=1)] | None = _said("optimizer steps of the training", "[500, 1000]")
    batch_size: Annotated[list[_BatchSize], Field(min_length=1)] | None = _said("batch sizes", "[32, 64]")
    __pydantic_extra__: dict[str, Annotated[list[Annotated[Any, AfterValidator(_argument)]], Field(min_length=1)]] = (
        Field(init=False)
    )


class ExperimentFile(_FileSection):
    """A whole file."""

    name: Annotated[str, AfterValidator(_directory_name)] = Field(
        description="of the experiment: the project of its runs, and a directory's name", examples=["digits"]
    )
    task: _Text = Field(
        description="the file and the function in it that returns the training's parts, as for `greenlove explore`; "
        "from the file's own directory",
        examples=["digits_task.py:task"],
    )
    arguments: list[Annotated[Any, AfterValidator(_argument)]] = _said(
        "of the task's file, as in `sys.argv`, each as it is written: `1e-3` stays `1e-3`", "[--width, 32]", []
    )
    epochs: _Epochs | None = _said("of each training; default: as the task says", "20")
    steps: _Steps | None = _said("optimizer steps of each training, instead of epochs", "2000")
    batch_size: _BatchSize | None = _said("default: as the task says", "64")
    seeds: Annotated[list[_Seed], Field(min_length=1), BeforeValidator(_seeds)] = _said(
        "of all random states: a list, or a number of seeds from 0; each arm is trained with each", "[0, 1, 2]", [0]
    )
    arms: dict[str, list[Annotated[Any, AfterValidator(_technique)]] | None] | None = _said(
        "ways to train, by name: each a list of techniques. Default: one, `baseline`, with none",
        "{baseline: [], faster: [amp-bf16]}",
        min_length=1,
    )
    baseline: str | None = _said(
        "the arm that the others are compared with, with a matrix its first values; default: the first arm",
        "baseline",
    )
    matrix: MatrixSection | None = _said(
        "values of which every combination is trained, with every arm and seed", "{batch_size: [32, 64]}"
    )
    schedule: ScheduleSection | None = _said("when the trainings begin", "{start: best, deadline: tomorrow 08:00}")
    carbon: CarbonSection | None = _said("the carbon intensity in force", "{intensity: live}")
    budget: BudgetSection | None = _said(
        "what all trainings together may take: at a limit no other begins, and the one that runs is stopped and saved",
        "{hours: 2}",
    )
    country: Annotated[str, AfterValidator(_place)] | None = _said(
        "where it runs: `NO`, `US-CA`, `us-east-1`; default: the setting, else the world", "NO"
    )
    exporters: list[Annotated[str, AfterValidator(_exporter)]] = _said(
        "services that hear of each run beside the log: `mlflow`, `wandb`, `tensorboard`, `prometheus=/a/file.prom`; "
        "what stands after `=` is as on the command line",
        "[tensorboard]",
        [],
    )
    settings: dict[str, Any] | None = _said(
        "further settings, as in `greenlove.toml`; those that have a place of their own in this file are refused here",
        "{price_usd_per_gpu_hour: 2.5, pue: 1.2}",
    )
    outputs: OutputsSection | None = _said("what is written, and where", "{directory: results/digits}")


SECTIONS: dict[str, type[_FileSection]] = {
    "": ExperimentFile,
    "matrix": MatrixSection,
    "schedule": ScheduleSection,
    "carbon": CarbonSection,
    "budget": BudgetSection,
    "outputs": OutputsSection,
}
"""The mappings of the file by where they stand; all but those of ``arms`` and ``settings``, whose keys are free."""


def read_sections(document: YamlDocument) -> ExperimentFile:
    """Return what a document says, each part of it checked by itself.

    Raises:
        ExceptionGroup: of a ``YamlMistake`` for each part that is not as it should be.
    """
    try:
        return ExperimentFile.model_validate(document.value)
    except ValidationError as error:
        found = [_mistake(document, details) for details in error.errors(include_url=False)]
    raise ExceptionGroup("mistakes in an experiment's file", found)


def plain_message(error: UsageError) -> str:
    """Return the message of an error of a value, without the name of the argument that it would be elsewhere."""
    return error.in_options(dict.fromkeys(error.arguments, "")).strip(" :")


def _mistake(document: YamlDocument, details: ErrorDetails) -> YamlMistake:
    """Return a mistake that pydantic found, in plain words."""
    location, kind, given = details["loc"], details["type"], details["input"]
    limits = details.get("ctx", {})
    if kind == "extra_forbidden":
        return document.mistake(location, _unknown_key(location), of_key=True)
    if kind == "missing":
        such_as = (ExperimentFile.model_fields[str(location[-1])].examples or [""])[0]
        return document.mistake(location, f"is missing: write {location[-1]}: {such_as}")
    if isinstance(error := limits.get("error"), UsageError):
        return document.mistake(location, plain_message(error))
    if given is None:
        return document.mistake(location, _EMPTY)
    written = shortened(document.written[location]) if location in document.written else shown(given)
    said = _PLAIN_WORDS[kind].format(written, **limits) if kind in _PLAIN_WORDS else details["msg"]
    is_bare = kind == "string_type" and location in document.written
    return document.mistake(location, f"{said}: put it in quotes" if is_bare else said)


def _unknown_key(location: Location) -> str:
    """Return what is said of a key that is none."""
    name, section = str(location[-1]), location_text(location[:-1])
    known = SECTIONS[section].model_fields
    if not difflib.get_close_matches(name, known, n=1):
        for other, model in SECTIONS.items():
            if name in model.model_fields:
                return f"no such key here: it stands {f'under {other}:' if other else 'under no other'}"
    return f"no such key: {nearest(name, known)}"


_EMPTY = "is empty: give it a value, or leave the line out"
_PLAIN_WORDS = {
    "string_type": "must be a text, not {0}",
    "string_too_short": _EMPTY,
    "int_type": "must be a whole number, not {0}",
    "float_type": "must be a number, not {0}",
    "finite_number": "must be a finite number, not {0}",
    "greater_than": "must be more than {gt:g}, not {0}",
    "greater_than_equal": "must be at least {ge}, not {0}",
    "less_than_equal": "must be at most {le:,}, not {0}",
    "list_type": "must be a list, such as [a, b], not {0}",
    "dict_type": "must be a mapping of names to values, not {0}",
    "model_type": "must be a mapping of names to values, not {0}",
    "literal_error": "must be {expected}, not {0}",
    "too_short": _EMPTY,
}
"""What is said of the kinds of mistakes that pydantic tells apart; ``{0}`` is the value as it is written."""
