"""Reads an experiment from its YAML file, and says of each mistake where it stands and what to write instead.

A file is read alike on every machine that has its task too: a report may be made again elsewhere. So no network is
asked, no package of an exporter is needed, and no variable of the environment is looked at but the settings'. Paths in
a file start at the file's own directory: the same command finds the same runs wherever it is called from.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from stat import S_ISREG
from typing import Any

from greenlove_tracker.config import Settings, load_settings, setting_names
from greenlove_tracker.errors import SettingError, UsageError
from greenlove_tracker.experiments.core_yaml import (
    Location,
    YamlDocument,
    YamlMistake,
    location_text,
    nearest,
    shown,
)
from greenlove_tracker.experiments.definition import (
    MOST_RUNS,
    Experiment,
    ExperimentBudget,
    PlannedRun,
    StartPolicy,
    TechniqueChoice,
    argument_words,
    group_name,
    planned_runs,
    variables_in,
)
from greenlove_tracker.experiments.file_sections import (
    EXPERIMENTS_DIR,
    BudgetSection,
    CarbonSection,
    ExperimentFile,
    OutputsSection,
    ScheduleSection,
    plain_message,
    read_sections,
)
from greenlove_tracker.secret_masking import MASK, mask_arguments, mask_secrets
from greenlove_tracker.techniques.technique import combined, technique_with

_MOST_BYTES = 256 * 1024
_MOST_MISTAKES = 10  # in one message

OWN_PLACES = {
    "continues": "the same command goes on where an experiment stopped",
    "country": "write country:",
    "deadline_utc": "write schedule: {deadline: …}",
    "export": "write exporters:",
    "intensity": "write carbon: {intensity: …}",
    "intensity_urls": "set GREENLOVE_INTENSITY_URLS where it runs",
    "log_dir": "write outputs: {directory: …}",
    "max_cost_usd": "write budget: {cost_usd: …}, which is of all trainings together",
    "max_energy_kwh": "write budget: {energy_kwh: …}, which is of all trainings together",
    "max_hours": "write budget: {hours: …}, which is of all trainings together",
    "max_kgco2e": "write budget: {kgco2e: …}, which is of all trainings together",
    "project": "write name:",
    "stop_and_confirm": "nobody is there to answer",
}
"""Settings that the file has another place for, or none, and what to write instead."""


def read_experiment(path: str | os.PathLike[str], *, makes_techniques: bool = False) -> Experiment:
    """Return the experiment that a YAML file describes; ``docs/reference/experiment.md`` has what may stand in it.

    Nothing is trained, and no environment variable that the file names is looked up: what is returned holds the texts
    as they are written.

    Args:
        path: of the file.
        makes_techniques: check the options of techniques too, and which exclude each other, by making each: that loads
            torch. Without it only their names are checked, and no torch is loaded.

    Raises:
        UsageError: for mistakes in the file, up to ten at once, each with its line, its place and what to do.
        SettingError: for a mistake in a setting of this machine, or one that contradicts the file.
    """
    file = Path(path)
    data = _bytes_of(file)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{file}, line {line}: not UTF-8: save the file with that encoding") from error
    try:
        document = YamlDocument.of(text.removeprefix("\ufeff"))
        _check_variables(document)
        content = read_sections(document)
        return _Reading(file, document, content, makes_techniques).experiment(text, hashlib.sha256(data).hexdigest())
    except* YamlMistake as found:
        mistakes = [mistake for mistake in found.exceptions if isinstance(mistake, YamlMistake)]  # a flat group
    raise _refused(file, mistakes)


def _bytes_of(file: Path) -> bytes:
    """Return what a file holds.

    Raises:
        UsageError: where it cannot be read, or is larger than any experiment.
    """
    data = b""
    try:
        if is_regular := S_ISREG(file.stat().st_mode):  # of a pipe there may be nothing to read
            with file.open("rb") as opened:
                data = opened.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL
        raise UsageError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if not is_regular:
        raise UsageError(f"{file} is not a file: name the YAML file of an experiment")
    if len(data) > _MOST_BYTES:
        raise UsageError(f"{file} is larger than {_MOST_BYTES // 1024} KiB: that is no experiment")
    return data


def _refused(file: Path, mistakes: Sequence[YamlMistake]) -> UsageError:
    """Return the error that says all mistakes of a file, in the order of its lines."""
    ordered = sorted(mistakes, key=lambda mistake: (mistake.mark.line, mistake.mark.column))
    said = []
    for mistake in ordered[:_MOST_MISTAKES]:
        where = f"{location_text(mistake.location)}: " if mistake.location else ""
        said.append(f"line {mistake.mark.line}, column {mistake.mark.column}: {where}{mistake.message}")
    if len(ordered) == 1:
        return UsageError(f"{file}, {said[0]}")
    if len(ordered) > _MOST_MISTAKES:
        said.append(f"and {len(ordered) - _MOST_MISTAKES} more")
    return UsageError("\n  ".join((f"{file} has {len(ordered)} mistakes:", *said)))


def _check_variables(document: YamlDocument) -> None:
    """Refuse ``${NAME}`` where the log would have to hold what it stands for, and what only looks like it.

    Raises:
        ExceptionGroup: of a ``YamlMistake`` for each.
    """
    mistakes = []
    for location, text in _texts(document.value, ()):
        is_read = _is_expanded(location)
        try:
            if any(variables_in(text)) and not is_read:
                message = "${NAME} is read in arguments alone, for the log has the rest: "
                mistakes.append(document.mistake(location, f"{message}write what it stands for"))
        except UsageError as error:
            if is_read:
                mistakes.append(document.mistake(location, str(error)))
    if mistakes:
        raise ExceptionGroup("variables where none can be", mistakes)


def _is_expanded(location: Location) -> bool:
    """Return whether environment variables are read in the text of a place."""
    match location:
        case ("matrix", str(name), *_):
            return name.startswith("-")
        case _:
            return location[:1] == ("arguments",)


class _Reading:
    """A file whose parts are well-formed on its way to an experiment: checks that they fit together.

    Args:
        file: as the user named it.
        document: of the file.
        content: its sections.
        makes_techniques: as of ``read_experiment``.
    """

    def __init__(self, file: Path, document: YamlDocument, content: ExperimentFile, makes_techniques: bool) -> None:
        self._file, self._document, self._content = file, document, content
        self._makes_techniques = makes_techniques
        self._directory = file.absolute().parent
        self._mistakes: list[YamlMistake] = []

    def _add(self, location: Location, message: str, *, of_key: bool = False) -> None:
        self._mistakes.append(self._document.mistake(location, message, of_key=of_key))

    def experiment(self, text: str, sha256: str) -> Experiment:
        """Return the experiment.

        Raises:
            ExceptionGroup: of a ``YamlMistake`` for each part that does not fit the others.
        """
        content = self._content
        task, task_sha256 = self._task(content.task)
        arms = self._arms()
        matrix = self._matrix()
        settings = self._settings()
        start = self._start(content.schedule or ScheduleSection())
        baseline = self._baseline(content.baseline, arms, matrix)
        seeds = content.seeds
        if len(set(seeds)) < len(seeds):
            self._add(("seeds",), "a seed stands twice: each is trained once")
        if (n_runs := len(seeds) * len(arms) * prod(map(len, matrix.values()))) > MOST_RUNS:
            self._add((), f"these are {n_runs:,} trainings; an experiment has at most {MOST_RUNS:,}: leave some out")
        if self._mistakes:
            raise ExceptionGroup("parts of an experiment's file that do not fit together", self._mistakes)
        common = PlannedRun(
            key="",
            arm="",
            group="",
            name="",
            values={},
            seed=0,
            task=task,
            arguments=tuple(self._written(("arguments", n), value) for n, value in enumerate(content.arguments)),
            techniques=(),
            epochs=content.epochs,
            steps=content.steps,
            batch_size=content.batch_size,
            settings=settings,
            task_sha256=task_sha256,
        )
        outputs = content.outputs or OutputsSection()
        budget = content.budget or BudgetSection()
        return Experiment(
            name=content.name,
            path=self._file.absolute(),
            text=_without_secrets(text, common.arguments, matrix),
            sha256=sha256,
            runs=planned_runs(common, arms, matrix, seeds),
            baseline=baseline,
            start=start,
            budget=ExperimentBudget(**budget.model_dump()),
            outputs=self._beside(outputs.directory or f"{EXPERIMENTS_DIR}/{content.name}"),
            reports=tuple(dict.fromkeys(outputs.reports)),
        )

    def _beside(self, text: str) -> Path:
        """Return the path that a text of the file names: it starts at the file's own directory."""
        return self._directory / os.path.expanduser(text)  # noqa: PTH111  # that of Path raises where no home is known

    def _written(self, location: Location, value: Any) -> str:
        """Return a word of a command line as the file has it."""
        return self._document.written.get(location, str(value))

    def _task(self, task: str) -> tuple[str, str]:
        """Return the task with the absolute path of its file, and the hash of that file."""
        name, _, function = task.rpartition(":")
        path = self._beside(name)
        if path.suffix != ".py" or not function.isidentifier():
            self._add(("task",), f"must name a file and a function in it, such as train.py:task, not {shown(task)}")
        elif not os.path.isfile(path):  # noqa: PTH113  # that of Path raises for a name that is too long
            self._add(("task",), f"there is no file {path}")
        else:
            try:
                source = path.read_bytes()
            except OSError as error:
                self._add(("task",), f"{path} cannot be read: {error.strerror}")
            else:
                self._check_function(path, source, function)
                return f"{path}:{function}", hashlib.sha256(source).hexdigest()
        return "", ""

    def _check_function(self, path: Path, source: bytes, function: str) -> None:
        """Check that a file of Python has a name, without running it: that would load torch."""
        try:
            with warnings.catch_warnings(action="ignore"):
                tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError) as error:
            self._add(("task",), f"{path.name} is no Python: {error}")
            return
        names = {name for node in ast.walk(tree) for name in _bound_names(node)}
        if function not in names and not names & {"*", "__getattr__"}:
            functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
            hint = nearest(function, functions) if functions else "it defines none"
            self._add(("task",), f"{path.name} has no function {function}: {hint}")

    def _arms(self) -> dict[str, tuple[TechniqueChoice, ...]]:
        """Return the techniques of each arm."""
        content = self._content
        if content.arms is None:
            return {"baseline": ()}
        arms: dict[str, tuple[TechniqueChoice, ...]] = {}
        for name, given in content.arms.items():
            location, techniques = ("arms", name), tuple(given or ())
            if not re.fullmatch(r"[^\s,]([^,]{0,58}[^\s,])?", name) or not name.isprintable():
                self._add(location, "the name of an arm has 1 to 60 characters, and no comma", of_key=True)
            seen: dict[str, str] = {}
            for n, choice in enumerate(techniques):
                kind = choice.name.partition("=")[0]
                if kind in seen:
                    self._add((*location, n), f"{seen[kind]} and {choice.name} exclude each other: leave one out")
                seen[kind] = choice.name
            if self._makes_techniques:
                self._make_techniques(location, techniques)
            for other, known in arms.items():
                if techniques == known:
                    message = f"is the same training as arms.{other}: more seeds show how far one differs from itself"
                    self._add(location, message, of_key=True)
            arms[name] = techniques
        return arms

    def _make_techniques(self, location: Location, choices: Sequence[TechniqueChoice]) -> None:
        """Check the options of an arm's techniques, and that none excludes another."""
        made = []
        for n, choice in enumerate(choices):
            try:
                made.append(technique_with(choice.name, choice.options))
            except (TypeError, ValueError) as error:  # a UsageError, or an option of another type
                named = [option for option in choice.options if re.search(rf"\b{re.escape(option)}\b", str(error))]
                place = (*location, n, choice.name, named[0]) if len(named) == 1 else (*location, n)
                self._add(place, str(error), of_key=len(named) == 1)
        if made and len(made) == len(choices):
            try:
                combined(made)
            except UsageError as error:
                self._add(location, str(error), of_key=True)

    def _matrix(self) -> dict[str, list[Any]]:
        """Return the values of the matrix by name, those of arguments as they are written."""
        content = self._content
        above = {"epochs": content.epochs, "steps": content.steps, "batch_size": content.batch_size}
        given: Mapping[str, Any] = self._document.value.get("matrix") or {}
        if {"epochs", "steps"} <= {*given, *(name for name, value in above.items() if value is not None)}:
            location: Location = ("matrix", "steps") if "steps" in given else ("steps",)
            self._add(location, "epochs and steps exclude each other: leave one out", of_key=True)
        matrix = {}
        for name, values in given.items():
            location = ("matrix", name)
            if name.startswith("-"):
                values = [self._written((*location, n), value) for n, value in enumerate(values)]
                self._check_argument(name, values)
            elif name not in above:
                there_are = f"there are {', '.join(above)}, and arguments of the task's file, such as --lr"
                self._add(location, f"no such key: {there_are}", of_key=True)
            elif values is None:
                self._add(location, "is empty: give it a list, or leave the line out")
                continue
            elif above[name] is not None:
                self._add(location, "stands above the matrix too: leave one out", of_key=True)
            if len(set(map(str, values))) < len(values):
                self._add(location, "a value stands twice")
            matrix[name] = values
        return matrix

    def _check_argument(self, name: str, values: list[str]) -> None:
        """Check a named argument of the matrix."""
        location: Location = ("matrix", name)
        if not re.fullmatch(r"--?[A-Za-z][\w.-]*", name):
            self._add(location, "no argument has such a name: write it as --lr", of_key=True)
        if any(
            word == name or word.startswith(f"{name}=") for word in self._content.arguments if isinstance(word, str)
        ):
            self._add(location, "stands in arguments too: leave one out", of_key=True)
        for n, value in enumerate(values):
            if not value.isprintable() or len(value) > 100:
                self._add((*location, n), "becomes part of a name: at most 100 characters, in one line")

    def _settings(self) -> dict[str, Any]:
        """Return the settings of every run, by the names of ``Settings``."""
        content = self._content
        carbon = content.carbon or CarbonSection()
        own = {
            "project": content.name,
            "country": content.country,
            "export": ",".join(content.exporters) or None,
            "intensity": carbon.intensity and self._intensity(carbon.intensity),
        }
        n_mistakes = len(self._mistakes)
        further = {name: self._setting(name, value) for name, value in (content.settings or {}).items()}
        settings = {name: value for name, value in (own | further).items() if value is not None}
        if len(self._mistakes) == n_mistakes:  # each is right by itself: do they agree?
            places = {"country": "country", "export": "exporters"} | {name: f"settings.{name}" for name in further}
            places |= {name: f"carbon.{name}" for name in CarbonSection.model_fields}
            try:
                load_settings(settings)
            except SettingError:
                raise
            except UsageError as error:
                self._add(("settings",), error.in_options(places))
        return settings

    def _setting(self, name: str, value: Any) -> Any:
        """Return a setting that has no place of its own in the file, checked by itself."""
        location: Location = ("settings", name)
        if name in OWN_PLACES:
            self._add(location, f"is not set here: {OWN_PLACES[name]}", of_key=True)
        elif name not in setting_names():
            near = difflib.get_close_matches(name, OWN_PLACES, n=1)
            known = [known for known in setting_names() if known not in OWN_PLACES]
            hint = f"did you mean {near[0]}? {OWN_PLACES[near[0]]}" if near else nearest(name, known)
            self._add(location, f"no such setting: {hint}", of_key=True)
        elif value is None:
            self._add(location, "is empty: give it a value, or leave the line out")
        elif isinstance(value, bool) and not isinstance(getattr(Settings(), name), bool):
            self._add(location, f"cannot be {shown(value)}")
        else:
            try:
                checked = load_settings({name: value})
                return self._tariff(checked.electricity_tariff) if name == "electricity_tariff" else value
            except SettingError:
                raise
            except UsageError as error:
                self._add(location, plain_message(error))
        return None

    def _intensity(self, text: str) -> str:
        """Return the name of a source of carbon intensity, or the absolute path of a CSV file."""
        from greenlove_tracker.grid.live.fallback import NAMES  # HTTP, where an intensity is asked for alone

        path = self._beside(text)
        if text in NAMES:
            return text
        if not os.path.isfile(path):  # noqa: PTH113  # that of Path raises for a name that is too long
            hint = f"there is no file {path}" if path.suffix == ".csv" else f"{nearest(text, NAMES)}, or a CSV file"
            self._add(("carbon", "intensity"), f"no such source of carbon intensity: {hint}")
        return str(path)

    def _tariff(self, text: str) -> str:
        """Return a tariff, or the absolute path of its file.

        Raises:
            UsageError: where it is none.
        """
        from greenlove_tracker.grid.tariff import parse_tariff

        path = self._beside(text)
        found = str(path) if os.path.isfile(path) else text  # noqa: PTH113
        parse_tariff(found)
        return found

    def _start(self, schedule: ScheduleSection) -> StartPolicy:
        """Return when the trainings begin."""
        start = schedule.start or ("now" if schedule.below_gco2e_per_kwh is None else "below")
        if start == "best" and not schedule.deadline:
            self._add(("schedule", "start"), "best needs deadline: beside it, such as deadline: tomorrow 08:00")
        if start == "below" and schedule.below_gco2e_per_kwh is None:
            self._add(("schedule", "start"), "below needs below_gco2e_per_kwh: beside it, such as 250")
        if start != "below" and schedule.below_gco2e_per_kwh is not None:
            message = f"is of start: below, not of start: {start}: leave one of them out"
            self._add(("schedule", "below_gco2e_per_kwh"), message, of_key=True)
        if start == "now" and schedule.max_wait:
            self._add(("schedule", "max_wait"), "nothing is waited for: say start: best, below or a time")
        each = schedule.each or ("run" if start in ("now", "best", "below") else "experiment")
        return StartPolicy(start, schedule.below_gco2e_per_kwh, schedule.deadline or "", schedule.max_wait or "", each)

    def _baseline(self, named: str | None, arms: Mapping[str, Any], matrix: Mapping[str, list[Any]]) -> str:
        """Return the group that the others are compared with: an arm with the first values of the matrix."""
        if named is not None and named not in arms:
            self._add(("baseline",), f"no arm is called {shown(named)}: {nearest(named, arms)}")
        return group_name(named or next(iter(arms)), {name: values[0] for name, values in matrix.items()})


def _without_secrets(text: str, arguments: Sequence[str], matrix: Mapping[str, Sequence[Any]]) -> str:
    """Return a file's text with its secrets masked; those of arguments are told by the argument before them."""
    named = [argument_words(name, str(v)) for name, values in matrix.items() if name.startswith("-") for v in values]
    for words in (arguments, *named):
        for given, masked in zip(words, mask_arguments(words), strict=True):
            if given != masked and masked.endswith(MASK):
                secret = given.removeprefix(masked.removesuffix(MASK))
                text = re.sub(rf"(?<![\w-]){re.escape(secret)}(?![\w-])", MASK, text)
    return mask_secrets(text)


def _texts(value: Any, location: Location) -> Iterator[tuple[Location, str]]:
    """Yield all texts of a value, each with its place."""
    if isinstance(value, str):
        yield location, value
    elif isinstance(value, list | dict):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _texts(child, (*location, key))


def _bound_names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement of Python may bind."""
    match node:
        case ast.FunctionDef() | ast.ClassDef():
            yield node.name
        case ast.Name(ctx=ast.Store()):
            yield node.id
        case ast.alias():
            yield (node.asname or node.name).partition(".")[0]
