"""Reads an experiment from its YAML file, and says of each mistake where it stands and what to write instead.

YAML has one kind of scalar here, the text (its failsafe schema): ``1e-3`` and ``NO`` are as they are written, and each
key's own type says what is a number. Each key is described here alone: ``docs/reference/experiment.md`` is made of it.
Paths in a file start at the file's own directory: the same command finds the same runs wherever it is called from.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.resolver import VersionedResolver

from greenlove_tracker.files.reading import read_bytes, read_text
from greenlove_tracker.grid.place import resolve_place
from greenlove_tracker.scheduling.times import parse_span_s
from greenlove_tracker.settings.config import load_settings
from greenlove_tracker.techniques.technique import TECHNIQUES, Technique, combined, nearest, technique_with
from greenlove_tracker.vocabulary.errors import SettingError, UsageError
from greenlove_tracker.vocabulary.units import SECONDS_PER_HOUR

EXPERIMENTS_DIR = "greenlove_experiments"  # beside the file, where it names no other
_MOST_SEEDS = 1000
_MOST_RUNS = 10_000
_MOST_BYTES = 256 * 1024  # of a file
_MOST_VALUES = 20_000  # in it, with what its aliases stand for
_MOST_SEED = 2**32 - 1  # the largest that numpy.random.seed takes
_LENGTHS = ("epochs", "steps", "batch_size")  # of a training: above the matrix or in it

Location = tuple[str | int, ...]  # of a value: ("arms", "optimised", 2)


_KEY_FORM = 1  # of what a key is made of: another one makes every key anew, so that everything is trained again

# -- The trainings --


@dataclass(frozen=True, slots=True)
class TechniqueChoice:
    """A technique as a file names it: ``amp-bf16``, ``early-stopping=5`` or ``lr-schedule: {shape: cosine}``.

    Attributes:
        name: with its value, where it has one: ``grad-accumulation=4``.
        options: by name; empty for none.
    """

    name: str
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
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
        start: when it begins, where its arm says so; None: as the file says of all.
        settings: fields of ``greenlove_tracker.settings.config.Settings``, by name.
        task_sha256: of the task's file as it was when the experiment was read. It is no part of the key: who trains
            can say that the code has changed since a run, and the user decides.
    """

    key: str = ""
    arm: str = ""
    group: str = ""
    name: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    task: str
    arguments: tuple[str, ...]
    techniques: tuple[TechniqueChoice, ...]
    epochs: int | None
    steps: int | None
    batch_size: int | None
    start: StartPolicy | None = None
    settings: Mapping[str, Any]
    task_sha256: str = ""


def planned_runs(
    common: PlannedRun,
    arms: Mapping[str, ArmSection],
    matrix: Mapping[str, Sequence[Any]],
    seeds: Sequence[int],
) -> tuple[PlannedRun, ...]:
    """Return every training of an experiment, in the order in which they are trained.

    All arms of one seed and one combination follow one another, and take turns in who is first (A B, then B A): what
    drifts with time, such as the temperature of a GPU, favours none of them. Each combination has both orders over
    its seeds, and each seed over its combinations.

    Args:
        common: what all of them have; its key, names, arm, values and seed are of no account.
        arms: by name.
        matrix: the values of ``epochs``, ``steps``, ``batch_size`` or an argument such as ``--lr``, by name.
        seeds: of all random states.
    """
    combinations = [dict(zip(matrix, chosen, strict=True)) for chosen in itertools.product(*matrix.values())]
    found = []
    for (n_seed, seed), (n_combination, values) in itertools.product(enumerate(seeds), enumerate(combinations)):
        in_turn = list(arms)
        if (n_seed + n_combination) % 2 == 1:
            in_turn.reverse()
        for arm in in_turn:
            section = arms[arm]
            techniques = tuple(section.techniques)
            run = replace(common, arm=arm, techniques=techniques, start=section.schedule, seed=seed)
            run = _with_values(run, values)
            group = ", ".join((arm, *(f"{name}={value}" for name, value in values.items())))
            found.append(replace(run, key=training_key(run), group=group, name=f"{group}, seed {seed}"))
    return tuple(found)


def _with_values(run: PlannedRun, values: Mapping[str, Any]) -> PlannedRun:
    """Return a training with the values of a combination."""
    arguments = [*run.arguments]
    lengths = {}
    for name, value in sorted(values.items()):
        if name in _LENGTHS:
            lengths[name] = value
        elif name.startswith("--"):
            arguments.append(f"{name}={value}")  # which may begin with a dash
        else:
            arguments += (name, str(value))
    return replace(run, values=dict(values), arguments=tuple(arguments), **lengths)


def training_key(run: PlannedRun) -> str:
    """Return the first digits of the SHA-256 of what defines a training, as JSON in one certain form.

    It is what the training does: the name of the task's file and of its function, the arguments as they are written,
    the techniques in their order with their options, epochs, steps, batch size and seed, and the schedule that an arm
    has for itself. It is not the name of an arm, the schedule of all, the settings that only measure, the place of the
    file, nor whether a value stands in the matrix or above it: to rename an arm, or to add a seed, an exporter or a
    deadline, trains nothing anew.
    """
    what = {
        "form": _KEY_FORM,
        "task": PurePath(run.task).name,
        "arguments": list(run.arguments),
        "techniques": [[technique.name, dict(technique.options)] for technique in run.techniques],
        "epochs": run.epochs,
        "steps": run.steps,
        "batch_size": run.batch_size,
        "seed": run.seed,
    }
    if run.start is not None:
        what["schedule"] = run.start.model_dump()
    text = json.dumps(what, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:12]


def expanded(text: str) -> str:
    """Return a text with the values of environment variables, as ``os.path.expandvars`` does.

    Its result may hold secrets: it goes to the training alone, never into a log or a message.

    Raises:
        UsageError: for a ``${NAME}`` that is not set; it says the name alone.
    """
    found = os.path.expandvars(text)
    missing = re.search(r"\$\{\w+\}", found)
    if missing:
        raise UsageError(f"the environment variable {missing[0]} is not set, and the experiment names it: set it first")
    return found


def technique_of(choices: Sequence[TechniqueChoice]) -> Technique | None:
    """Return the techniques of an arm as one; None where it has none. It loads torch where one of them does.

    Raises:
        UsageError: where one is unknown, takes no such option, or two exclude each other.
    """
    if not choices:
        return None
    return combined([technique_with(choice.name, choice.options) for choice in choices])


# -- The keys --


class _FileSection(BaseModel):
    """A mapping of the file: no key that it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _checked_by(check: Any) -> AfterValidator:
    """Return a validator that keeps a text which a function takes."""

    def kept(text: str) -> str:
        check(text)
        return text

    return AfterValidator(kept)


def _check_name(text: str) -> None:
    if not re.fullmatch(r"\w[\w.-]{0,79}", text):
        raise UsageError(f"becomes a directory: up to 80 letters, digits, dots, - and _, not {text!r}")


def _check_label(text: str) -> None:
    if not text.isprintable() or not 0 < len(text) <= 100:
        raise UsageError("becomes part of a name: 1 to 100 characters, in one line")


def _technique(item: Any) -> TechniqueChoice:
    """Return the technique of an item: ``name``, ``name=value``, ``name: value`` or ``name: {option: value}``."""
    text = item
    given = None
    if isinstance(item, dict) and len(item) == 1:
        ((text, given),) = item.items()
    name = str(text).partition("=")[0]
    if name not in TECHNIQUES:
        raise UsageError(f"no technique is called {name!r}: {nearest(name, TECHNIQUES)}")
    if given is None or isinstance(given, dict):
        return TechniqueChoice(text, {str(option): _typed(value) for option, value in (given or {}).items()})
    return TechniqueChoice(f"{text}={given}", {})


def _typed(value: Any) -> Any:
    """Return an option of a technique as what its text is: a number, true, false or a text."""
    for kind in (int, float):
        with contextlib.suppress(TypeError, ValueError):
            return kind(value)
    if value in ("true", "false"):
        return value == "true"
    return value


def _seeds(value: Any) -> Any:
    """Return the seeds 0, 1, 2 for 3."""
    if isinstance(value, str) and value.isdecimal():
        return list(range(min(int(value), _MOST_SEEDS + 1)))
    return value


_Text = Annotated[str, Field(min_length=1)]
_Length = Annotated[int, Field(ge=1, le=10**12)]
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def _said(description: str, such_as: str, default: Any = None, **more: Any) -> Any:
    """Return a field that may be left out, with its description and an example as YAML, for the reference."""
    return Field(default, description=description, examples=[such_as], **more)


class StartPolicy(_FileSection):
    """When each training begins: at once, or when the grid is clean enough."""

    below_gco2e_per_kwh: _Positive | None = _said(
        "before each training, wait until the carbon intensity is at or below this", "250"
    )
    max_wait: Annotated[str, _checked_by(parse_span_s)] = _said("begin after so long anyway", "6h", "6h")


class ArmSection(_FileSection):
    """A way to train: a list of techniques, or these keys where it has a schedule of its own."""

    techniques: list[Annotated[Any, AfterValidator(_technique)]] = _said("of it, in their order", "[amp-bf16]", [])
    schedule: StartPolicy | None = _said(
        "when its trainings begin, instead of the file's `schedule`; those that wait for nothing come first",
        "{below_gco2e_per_kwh: 250}",
    )


def _arm(given: Any) -> Any:
    """Return the keys of an arm, which may be a list of techniques or have nothing behind its colon."""
    return given if isinstance(given, Mapping) else {"techniques": given or []}


class ExperimentBudget(_FileSection):
    """Limits for all trainings together; at one, no other begins, and the one that runs is stopped and saved."""

    hours: _Positive | None = _said("of training, without waits", "2")
    energy_kwh: _Positive | None = _said("energy, with PUE", "1")
    cost_usd: _Positive | None = _said("by the machine's price where one is set, else of electricity", "5")
    kgco2e: _Positive | None = _said("operational emissions", "0.5")

    @property
    def limits(self) -> dict[str, float]:
        """The limits that are set, by quantity as a run's summary has them."""
        limits = {
            "duration_s": self.hours and self.hours * SECONDS_PER_HOUR,
            "energy_kwh": self.energy_kwh,
            "emissions_kgco2e": self.kgco2e,
            "cost_usd": self.cost_usd,
        }
        return {quantity: limit for quantity, limit in limits.items() if limit is not None}


class OutputsSection(_FileSection):
    """The section on the files to write."""

    directory: str = _said(
        f"of runs, checkpoints and reports, from the file's own directory; default: `{EXPERIMENTS_DIR}/NAME` beside "
        "the file. The same command goes on from what lies there, wherever it is called from",
        "results/digits",
        "",
    )
    reports: Annotated[list[Literal["html", "pdf", "md", "json", "csv"]], Field(min_length=1)] = _said(
        "how the report of the whole is written: `html`, `pdf`, `md`; its savings as data: `json`, `csv`",
        "[html, pdf, csv]",
        ["html"],
    )
    weights: Literal["final", "none"] = _said(
        "`final`: keep the weights that each training ends with, which early stopping makes the best ones, as "
        "`weights/KEY.pt`; `none`",
        "none",
        "final",
    )


_Lengths = Annotated[list[_Length], Field(min_length=1)]


class MatrixSection(_FileSection):
    """Values of which every combination is trained, with every arm and seed."""

    model_config = ConfigDict(extra="allow")

    epochs: _Lengths | None = _said("epochs of the training", "[10, 20]")
    steps: _Lengths | None = _said("optimizer steps of the training", "[500, 1000]")
    batch_size: _Lengths | None = _said("batch sizes", "[32, 64]")
    __pydantic_extra__: dict[str, Annotated[list[Annotated[str, _checked_by(_check_label)]], Field(min_length=1)]] = (
        Field(init=False)
    )

    @model_validator(mode="after")
    def _check(self) -> MatrixSection:
        """Check the names of arguments."""
        for name in self.model_extra or ():
            if not re.fullmatch(r"--?[A-Za-z][\w.-]*", name):
                raise UsageError(f"no such key: {name}: there are {', '.join(_LENGTHS)}, and arguments such as --lr")
        return self


class ExperimentFile(_FileSection):
    """A whole file."""

    name: Annotated[str, _checked_by(_check_name)] = Field(
        description="of the experiment: the project of its runs, and a directory's name", examples=["digits"]
    )
    task: _Text = Field(
        description="the file and the function in it that returns the training's parts, as for `greenlove explore`; "
        "from the file's own directory",
        examples=["digits_task.py:task"],
    )
    arguments: list[str] = _said(
        "of the task's file, as in `sys.argv`, each as it is written: `1e-3` stays `1e-3`", "[--width, 32]", []
    )
    epochs: _Length | None = _said("of each training; default: as the task says", "20")
    steps: _Length | None = _said("optimizer steps of each training, instead of epochs", "2000")
    batch_size: _Length | None = _said("default: as the task says", "64")
    seeds: Annotated[
        list[Annotated[int, Field(ge=0, le=_MOST_SEED)]],
        Field(min_length=1, max_length=_MOST_SEEDS),
        BeforeValidator(_seeds),
    ] = _said(
        "of all random states: a list, or a number of seeds from 0; each arm is trained with each", "[0, 1, 2]", [0]
    )
    arms: dict[
        Annotated[str, _checked_by(_check_label)],
        Annotated[ArmSection, BeforeValidator(_arm)],
    ] = _said(
        "ways to train, by name: each a list of techniques. Default: one, `baseline`, with none",
        "{baseline: [], faster: [amp-bf16]}",
        {"baseline": ArmSection()},
        min_length=1,
    )
    baseline: str | None = _said(
        "the arm that the others are compared with, with a matrix its first values; default: the first arm",
        "baseline",
    )
    matrix: MatrixSection = _said(
        "values of which every combination is trained, with every arm and seed",
        "{batch_size: [32, 64]}",
        MatrixSection(),
    )
    schedule: StartPolicy = _said("when the trainings begin", "{below_gco2e_per_kwh: 250}", StartPolicy())
    budget: ExperimentBudget = _said(
        "what all trainings together may take: at a limit no other begins, and the one that runs is stopped and saved",
        "{hours: 2}",
        ExperimentBudget(),
    )
    country: Annotated[str, _checked_by(resolve_place)] | None = _said(
        "where it runs: `NO`, `US-CA`, `us-east-1`; default: the setting, else the world", "NO"
    )
    settings: dict[str, Any] = _said(
        "further settings, as in `greenlove.toml`; they count before the keys above",
        "{intensity: live, price_usd_per_gpu_hour: 2.5}",
        {},
    )
    outputs: OutputsSection = _said("what is written, and where", "{directory: results/digits}", OutputsSection())


SECTIONS: dict[str, type[_FileSection]] = {
    "": ExperimentFile,
    "arms": ArmSection,
    "matrix": MatrixSection,
    "schedule": StartPolicy,
    "budget": ExperimentBudget,
    "outputs": OutputsSection,
}
"""The mappings of the file by where they stand, of ``arms`` one of them; ``settings`` are those of the tracker."""


# -- Reading --


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment, as its file defines it.

    Attributes:
        name: of the experiment, and the project of its runs.
        path: of the file.
        sha256: of the file's bytes.
        runs: in the order in which they are trained; all arms of one combination and seed follow one another.
        baseline: the group that the others are compared with.
        start: when they begin, but for arms that have their own.
        budget: of them all.
        outputs: the directory of the runs, of the checkpoints and of the reports.
        reports: ``html``, ``pdf``, ``md``, ``json``, ``csv``.
        weights: of trainings that have ended: ``final`` are kept, or ``none``.
    """

    name: str
    path: Path
    sha256: str
    runs: tuple[PlannedRun, ...]
    baseline: str
    start: StartPolicy
    budget: ExperimentBudget
    outputs: Path
    reports: tuple[str, ...]
    weights: str

    def start_of(self, run: PlannedRun) -> StartPolicy:
        """Return when a training is to begin."""
        return run.start or self.start


class _Texts(VersionedResolver):
    """YAML's failsafe schema: no scalar is more than a text."""

    @property
    def versioned_resolver(self) -> Any:
        return {}


def read_experiment(path: str | os.PathLike[str], *, makes_techniques: bool = False) -> Experiment:
    """Return the experiment that a YAML file describes; ``docs/reference/experiment.md`` has what may stand in it.

    Nothing is trained, no network is asked, and no environment variable that the file names is looked up.

    Args:
        path: of the file.
        makes_techniques: check the options of techniques too, and which exclude each other, by making each: that loads
            torch. Without it only their names are checked, and no torch is loaded.

    Raises:
        UsageError: for the mistakes in the file, each with its line, its place and what to do.
        SettingError: for a mistake in a setting of this machine, or one that contradicts the file.
    """
    file = Path(path)
    try:
        data = read_bytes(file, _MOST_BYTES)
        text = data.decode("utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from error
    yaml = YAML(typ="rt")
    yaml.Resolver = _Texts
    try:
        values = yaml.load(text)
        _check_size(values)
        content = ExperimentFile.model_validate({} if values is None else values)
    except ValidationError as error:
        found = [(details["loc"], _message(details)) for details in error.errors(include_url=False)]
        raise _refused(file, values, found) from error
    except (YAMLError, ValueError, OverflowError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or error
        where = f", line {mark.line + 1}" if mark else ""
        raise UsageError(f"{file}{where}: not YAML: {' '.join(str(problem).split())}") from error
    experiment = _experiment(file.absolute(), content, values.get("matrix", ()), hashlib.sha256(data).hexdigest())
    found = list(_contradictions(content, experiment, makes_techniques=makes_techniques))
    if found:
        raise _refused(file, values, found)
    return experiment


def _check_size(values: Any) -> None:
    """Refuse a file whose aliases stand for more values than anybody writes, or for themselves.

    Raises:
        ValueError: then.
    """
    left = [values]
    for _ in range(_MOST_VALUES):
        if not left:
            return
        value = left.pop()
        if isinstance(value, Mapping):
            left += [*value, *value.values()]
        elif isinstance(value, Sequence) and not isinstance(value, str):
            left += value
    raise ValueError(f"it stands for more than {_MOST_VALUES:,} values")


def _message(details: Any) -> str:
    """Return what is said of a mistake that pydantic found."""
    location = details["loc"]
    error = details.get("ctx", {}).get("error")
    if isinstance(error, UsageError):
        return str(error)
    if details["type"] == "missing":
        key = str(location[-1])
        return f"is missing: write {key}: {ExperimentFile.model_fields[key].examples[0]}"  # type: ignore[index]
    if details["type"] != "extra_forbidden":
        problem = str(details["msg"]).removeprefix("Input ")
        given = details["input"]
        if isinstance(given, str):
            problem += f", not {given!r}"[:60]
        return problem
    section = SECTIONS[""]
    if len(location) > 1:
        section = SECTIONS["schedule" if "schedule" in location[:-1] else str(location[0])]
    return f"no such key: {nearest(str(location[-1]), section.model_fields)}"


def _refused(file: Path, values: Any, mistakes: Iterable[tuple[Location, str]]) -> UsageError:
    """Return the error that says all mistakes of a file, in the order of its lines."""
    found = sorted((*_place(values, location), message) for location, message in mistakes)
    said = [f"line {line}: {where}{message}" for line, where, message in found]
    if len(said) == 1:
        return UsageError(f"{file}, {said[0]}")
    return UsageError("\n  ".join((f"{file} has {len(said)} mistakes:", *said)))


def _place(values: Any, location: Location) -> tuple[int, str]:
    """Return the line of a value, or of the nearest that it would lie in, and its place: ``arms.optimised[2]:``."""
    line = 0
    place = ""
    for part in location:
        if isinstance(part, str) and isinstance(values, list):
            continue  # an arm that is a list of techniques
        place += f"[{part}]" if isinstance(part, int) else f".{part}"
        try:
            position = values.lc.key(part) if hasattr(values, "keys") else values.lc.item(part)  # of ruamel
            line = position[0]
            values = values[part]
        except (AttributeError, KeyError, IndexError, TypeError):
            values = None  # nor is there anything within it
    return line + 1, f"{place.removeprefix('.')}: " if place else ""


def _source(task: Path) -> str:
    """Return the code of a task; empty where there is none."""
    if task.suffix != ".py":
        return ""
    try:
        return read_text(task)
    except (OSError, ValueError):
        return ""


def _experiment(file: Path, content: ExperimentFile, names: Iterable[str], sha256: str) -> Experiment:
    """Return the experiment of a file whose parts are well-formed; ``names`` are those of its matrix, in order."""

    def beside(text: str) -> Path:
        return file.parent / os.path.expanduser(text)  # noqa: PTH111  # that of Path raises where no home is known

    values = dict(content.matrix)
    matrix: dict[str, list[Any]] = {name: values[name] for name in names}
    n_runs = math.prod(map(len, (content.arms, content.seeds, *matrix.values())))
    if n_runs > _MOST_RUNS:
        raise UsageError(f"{file}: arms, matrix and seeds make {n_runs:,} trainings; {_MOST_RUNS:,} are the most")
    own = {"project": content.name, "country": content.country, **content.settings}
    settings = {name: value for name, value in own.items() if value is not None}
    for name in ("intensity", "electricity_tariff"):
        path = beside(str(settings.get(name, "")))
        if os.path.isfile(path):  # noqa: PTH113  # too long a name
            settings[name] = str(path)
    task, _, function = content.task.rpartition(":")
    common = PlannedRun(
        task=f"{beside(task)}:{function}",
        arguments=tuple(content.arguments),
        techniques=(),
        epochs=content.epochs,
        steps=content.steps,
        batch_size=content.batch_size,
        settings=settings,
        task_sha256=hashlib.sha256(_source(beside(task)).encode()).hexdigest(),
    )
    runs = planned_runs(common, content.arms, matrix, content.seeds)
    baseline = content.baseline or runs[0].arm
    # what waits for nothing is not held up by what does
    in_turn = sorted(runs, key=lambda run: (run.start or content.schedule).below_gco2e_per_kwh is not None)
    return Experiment(
        name=content.name,
        path=file,
        sha256=sha256,
        runs=tuple(in_turn),
        baseline=next((run.group for run in runs if run.arm == baseline), ""),  # an unknown arm is refused later
        start=content.schedule,
        budget=content.budget,
        outputs=beside(content.outputs.directory or f"{EXPERIMENTS_DIR}/{content.name}"),
        reports=tuple(dict.fromkeys(content.outputs.reports)),
        weights=content.outputs.weights,
    )


def _contradictions(
    content: ExperimentFile, experiment: Experiment, *, makes_techniques: bool
) -> Iterator[tuple[Location, str]]:
    """Yield what does not fit together, each with its place."""
    runs = experiment.runs
    task, _, function = runs[0].task.rpartition(":")
    if not re.search(rf"\b{re.escape(function or ':')}\b", _source(Path(task))):
        yield ("task",), f"must name a file and a function in it, such as train.py:task: see {task}"
    if content.baseline is not None and content.baseline not in content.arms:
        yield ("baseline",), f"no arm is called {content.baseline!r}: {nearest(content.baseline, content.arms)}"
    if any(run.epochs is not None and run.steps is not None for run in runs):
        yield ("steps",), "epochs and steps exclude each other: leave one out"
    for arm, section in content.arms.items() if makes_techniques else ():
        try:
            technique_of(section.techniques)
        except (TypeError, ValueError) as error:  # a UsageError, or an option of another type
            yield ("arms", arm), str(error)
    counts = Counter(run.key for run in runs)
    same = [run.name for run in runs if counts[run.key] > 1]
    if same:
        yield (), f"{' and '.join(same[:2])} are the same training: leave one out"
    try:
        load_settings(runs[0].settings)
    except SettingError:
        raise
    except UsageError as error:
        yield ("settings", *error.arguments[:1]), str(error)
