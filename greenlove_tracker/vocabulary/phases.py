"""``Plan``: the planned work of a run; ``Phase``: a part of it whose steps all do the same work."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import accumulate
from typing import Any

from greenlove_tracker.vocabulary.errors import UsageError, whole_number

_WORKS = ("tokens_per_step", "samples_per_step", "work_per_step", "data_share")
_COUNTS = ("steps", "epochs", "tokens_per_step", "samples_per_step", "eval_every", "eval_from", "save_every")
# A number beyond these is a slip of the pen, or damage.
_LEAST = 1e-12
_MOST = 1e18
_OPTIONS = ("eval_every", "eval_from", "eval_s", "save_every", "name")  # of a phase as text, behind its length and work
_WORD = re.compile(r"(\d[\d_]*)(steps?|epochs?)?(?:x([-+\d._e]+?)(tokens|samples|work|share)?)?", re.ASCII)
_FIELDS = {"tokens": "tokens_per_step", "samples": "samples_per_step", "work": "work_per_step", "share": "data_share"}


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a training in which all steps do the same work.

    A training is a sequence of phases: ``Tracker(phases=[Phase(steps=505, tokens_per_step=131_072), …])``. The cost of
    a step is assumed to be linear in its work, with a constant part. A phase without work has a cost of its own,
    unknown until it is seen.

    Attributes:
        steps: the optimizer steps of the phase; give either these or ``epochs``.
        epochs: the epochs of the phase.
        tokens_per_step: the work of a step in tokens, of all ranks or of one, but the same in all phases.
        samples_per_step: the work of a step in samples, such as the batch size.
        work_per_step: the work of a step in any other measure, such as the pixels of an image. In a phase of epochs,
            tokens and samples determine into how few steps the same data are divided, and ``work_per_step`` how much
            each of the same number of steps does.
        data_share: the share of the data, in 0..1, that an epoch uses, in batches of the same size, as in a curriculum:
            an epoch has that share of the steps of a whole one.
        eval_every: an evaluation after every so many steps, or epochs, of the run; in epochs 1 if only the next two are
            given.
        eval_from: the first evaluation is after so many steps, or epochs, since the run began; then every
            ``eval_every`` from there.
        eval_s: the time of one evaluation; None if unknown.
        save_every: a checkpoint after every so many steps, or epochs, of the run.
        name: the name of the phase, for people.

    Raises:
        UsageError: if the phase is incomplete, contradicts itself or is impossible.
    """

    steps: int | None = None
    epochs: int | None = None
    tokens_per_step: int | None = None
    samples_per_step: int | None = None
    work_per_step: float | None = None
    eval_every: int | None = None
    eval_from: int | None = None
    eval_s: float | None = None
    save_every: int | None = None
    name: str | None = None
    data_share: float | None = None

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.epochs is None):
            raise UsageError("a phase is Phase(steps=…) or Phase(epochs=…): give one of the two")
        for name in _COUNTS:
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _count(name, getattr(self, name)))
        works = [name for name in _WORKS if getattr(self, name) is not None]
        if len(works) > 1:
            raise UsageError(f"{' and '.join(works)} of one phase: give the one that its cost goes by")
        for name in ("work_per_step", "data_share", "eval_s"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _positive(name, value))
        if self.data_share is not None and (self.epochs is None or self.data_share > 1):
            raise UsageError("data_share is the share of the data that an epoch goes through: Phase(epochs=…), up to 1")
        if self.eval_every is None and (self.eval_from is not None or self.eval_s is not None):
            if self.steps is not None:
                raise UsageError("evaluations of a phase in steps: say how often they come, with eval_every=")
            object.__setattr__(self, "eval_every", 1)
        if self.name is not None and not isinstance(self.name, str):
            raise UsageError(f"the name of a phase must be a text, not {self.name!r}")

    @property
    def length(self) -> int:
        """Its steps or epochs."""
        return self.steps or self.epochs or 0

    @property
    def unit(self) -> str:
        """The unit of its length: ``steps`` or ``epochs``."""
        return "steps" if self.steps is not None else "epochs"

    @property
    def measure(self) -> str | None:
        """The name of the field with its work; None if unknown."""
        return next((name for name in _WORKS if getattr(self, name) is not None), None)

    @property
    def work(self) -> float | None:
        """The work of a step; None if unknown."""
        if self.measure is None:
            return None
        return float(getattr(self, self.measure))

    @property
    def constant_and_growing(self) -> tuple[float, float] | None:
        """The multiples of the constant cost and of the growing cost that a unit pays; None without work.

        A step pays the constant cost once, and the growing cost by its work. An epoch of larger steps over the same
        data has fewer of them: it pays the constant cost by the number of its steps, and the growing cost once for its
        data. An epoch of equally many steps that each do more is as a step, and so is an epoch over a share of the
        data.
        """
        work = self.work
        if work is None:
            return None
        is_same_data = self.epochs is not None and self.measure in ("tokens_per_step", "samples_per_step")
        return (1.0 / work, 1.0) if is_same_data else (1.0, work)

    def of_length(self, length: int) -> Phase:
        """Return the phase with another number of steps or epochs."""
        if self.steps is not None:
            return replace(self, steps=length)
        return replace(self, epochs=length)

    def __str__(self) -> str:
        """Return the phase as a config file has it: ``505x131072``, ``30epochs,eval_every=5``."""
        from urllib.parse import quote

        text = f"{self.length}{'epochs' if self.steps is None else ''}"
        if self.measure is not None:
            word = next(word for word, field in _FIELDS.items() if field == self.measure)
            text += f"x{_number(getattr(self, self.measure))}{'' if word == 'tokens' else word}"
        for name in _OPTIONS:
            value = getattr(self, name)
            if value is not None:
                text += f",{name}={quote(value, safe='') if name == 'name' else _number(value)}"
        return text

    @classmethod
    def from_text(cls, text: str) -> Phase:
        """Return the phase of a text such as ``505x131072``; the work is in tokens unless the text says otherwise.

        Raises:
            UsageError: if the text is not a phase.
        """
        from urllib.parse import unquote

        head, *options = text.split(",")
        match = _WORD.fullmatch(head)
        given = {name: value for name, _, value in (option.partition("=") for option in options)}
        if match is None or not given.keys() <= set(_OPTIONS):
            raise UsageError(
                f"{text!r} is no phase: write its steps and the tokens of a step, as in 505x131072, or 30epochs, "
                f"10epochsx64samples, 500x131072,eval_every=100; options are {', '.join(_OPTIONS)}"
            )
        count, unit, work, measure = match.groups()
        named = {"name": unquote(given.pop("name"))} if "name" in given else {}
        given |= {"epochs" if (unit or "").startswith("epoch") else "steps": count}
        given |= {} if work is None else {_FIELDS[measure or "tokens"]: work}
        try:
            numbers = {name: int(value) if name in _COUNTS else float(value) for name, value in given.items()}
        except ValueError as error:
            raise UsageError(f"{text!r} is no phase: {error}") from error
        values: dict[str, Any] = {**numbers, **named}
        return cls(**values)


Phases = tuple[Phase, ...]  # of one training, in order


def _count(name: str, value: object) -> int:
    count = whole_number(name, value)
    if count > _MOST:
        raise UsageError(f"{name} cannot be meant: it is above {_MOST:g}")
    return count


def _number(value: float) -> str:
    return repr(value).removesuffix(".0")


def _positive(name: str, value: object) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool) or not _LEAST <= number <= _MOST:
        raise UsageError(f"{name} must be a positive number, from {_LEAST:g} to {_MOST:g}, not {value!r}")
    return number


def phases_from(given: object) -> Phases:
    """Return the phases of a training from the user's phases, texts of them, or mappings of their fields.

    Raises:
        UsageError: if they are not phases, or do not form one plan.
    """
    if given is None:
        return ()
    if isinstance(given, Phase | Mapping | str):
        given = [given]
    if not isinstance(given, Sequence):
        raise UsageError(f"{{argument}} must be a list of Phase(…), not {given!r}", argument="phases")
    try:
        found = tuple(_phases_of(given))
        _check(found)
    except UsageError as error:
        raise UsageError(f"{{argument}}: {error}", argument="phases") from error
    return found


def _phases_of(given: Sequence[object]) -> Iterator[Phase]:
    for item in given:
        if isinstance(item, Phase):
            yield item
        elif isinstance(item, str):
            yield from map(Phase.from_text, item.split())
        elif isinstance(item, Mapping):
            known = {field.name for field in fields(Phase)}
            unknown = [str(name) for name in item if name not in known]
            if unknown:
                raise UsageError(f"a phase has no {', '.join(unknown)}; it has {', '.join(sorted(known))}")
            yield Phase(**item)
        else:
            raise UsageError(f"a list of Phase(…) is needed, and {item!r} is none")


def _check(phases: Sequence[Phase]) -> None:
    if len({phase.unit for phase in phases}) > 1:
        raise UsageError("some phases are in steps and some in epochs: give all in one of the two")
    measures = {phase.measure for phase in phases} - {None}
    if len(measures) > 1:
        raise UsageError(f"work is given as {' and '.join(sorted(map(str, measures)))}: give all in one of them")
    for (_, end), phase in zip(spans(phases), phases, strict=True):
        if phase.eval_from is not None and phase.eval_from > end:
            raise UsageError(
                f"eval_from={phase.eval_from} lies after the end of its phase, after {end:,} {phase.unit}: it counts "
                "from the start of the run"
            )


def phases_text(phases: Sequence[Phase]) -> str:
    """Return phases as the text of a config file, which ``phases_from`` reads: ``505x131072 505x262144``."""
    return " ".join(map(str, phases))


def spans(phases: Sequence[Phase]) -> list[tuple[int, int]]:
    """Return how many units are done where each phase begins, and where it ends."""
    ends = list(accumulate(phase.length for phase in phases))
    return list(zip([0, *ends], ends, strict=False))


def phase_at(phases: Sequence[Phase], done: float) -> int:
    """Return the index of the phase after so many units; beyond the end, that of the last."""
    return next((i for i, (_, end) in enumerate(spans(phases)) if done < end), len(phases) - 1)


def pauses_between(phases: Sequence[Phase], begin: float, end: float, kind: str) -> int:
    """Count the planned evaluations or checkpoints that follow the units after ``begin`` until ``end``.

    Args:
        phases: the phases of the run.
        begin: the units that were done before.
        end: the units that are done then.
        kind: ``eval`` or ``save``.
    """
    each = zip(spans(phases), phases, strict=True)
    return sum(_pauses_of(phase, max(begin, a), min(end, b), kind) for (a, b), phase in each)


def _pauses_of(phase: Phase, begin: float, end: float, kind: str) -> int:
    every: int | None = getattr(phase, f"{kind}_every")
    if every is None or end <= begin:
        return 0
    first = every
    if kind == "eval" and phase.eval_from is not None:
        first = phase.eval_from

    def until(unit: float) -> int:
        """Return how many would have come since the run began."""
        return max(0, int((unit - first) // every) + 1)

    return until(end) - until(begin)


def length_by_phases(phases: Sequence[Phase], epochs: int | None, steps: int | None) -> int:
    """Return the length of a training of these phases, in their own unit.

    Args:
        phases: at least one.
        epochs: as given beside them.
        steps: as given beside them.

    Raises:
        UsageError: where that is another length.
    """
    total = sum(phase.length for phase in phases)
    unit = phases[0].unit
    given = steps if unit == "steps" else epochs
    if given is not None and given != total:
        raise UsageError(
            f"{{argument}} add up to {total:,} {unit}, and the training has {given:,}: correct one of them, or leave "
            "the number out, which follows from the phases",
            argument="phases",
        )
    return total


def phases_until(phases: Sequence[Phase], end: int) -> Phases:
    """Return the phases of a run that ends after so many units, such as by early stopping."""
    cut = zip(spans(phases), phases, strict=True)
    return tuple(_until(phase.of_length(min(b, end) - a), min(b, end)) for (a, b), phase in cut if a < end)


def _until(phase: Phase, end: int) -> Phase:
    is_planned = phase.eval_from is None or phase.eval_from <= end
    if is_planned:
        return phase
    return replace(phase, eval_every=None, eval_from=None, eval_s=None)


def phases_after(phases: Sequence[Phase], done: int) -> Phases:
    """Return the remaining phases for a run that resumes after so many units.

    Evaluations come where they would have; checkpoints are counted from the start of the new run.
    """
    if done <= 0:
        return tuple(phases)
    found = []
    for (begin, end), phase in zip(spans(phases), phases, strict=True):
        if end > done:
            left = phase.of_length(end - max(begin, done))
            if phase.eval_every is not None:
                first = phase.eval_from or phase.eval_every
                missed = max(0, -(-(done + 1 - first) // phase.eval_every))
                left = _until(replace(left, eval_from=first + missed * phase.eval_every - done), end - done)
            found.append(left)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Plan:
    """The planned work of a run, as far as it is known; phases determine it.

    Attributes:
        epochs: the epochs that this run does, without those done before it.
        total_steps: the optimizer steps that this run does, likewise.
        phases: the phases of these.
        first_epoch: the epochs that were done before, by a run that this one resumes.
        first_step: the optimizer steps that were done before.
        steps_of_epoch: the steps of a whole epoch, if the caller knows them and no ``total_steps`` are planned.
        is_in_epochs: True if progress and forecasts count epochs; False if they count planned steps.

    Raises:
        UsageError: if a number is invalid, or is not the length of the phases.
    """

    epochs: int | None = None
    total_steps: int | None = None
    phases: Phases = ()
    first_epoch: int = 0
    first_step: int = 0
    steps_of_epoch: int | None = None
    is_in_epochs: bool = field(init=False, repr=False, compare=False)  # asked at each row

    def __post_init__(self) -> None:
        for name in ("epochs", "total_steps"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, whole_number(name, value))
        is_in_epochs = bool(self.epochs)
        if self.phases:
            is_in_epochs = self.phases[0].unit == "epochs"
            length = length_by_phases(self.phases, self.epochs, self.total_steps)
            object.__setattr__(self, "epochs" if is_in_epochs else "total_steps", length)
        object.__setattr__(self, "is_in_epochs", is_in_epochs)

    @property
    def length(self) -> int | None:
        """The epochs or steps that the run does; None if neither is known."""
        if self.is_in_epochs:
            return self.epochs
        return self.total_steps

    @property
    def is_resumed(self) -> bool:
        """True if a part of the training was done before."""
        return self.first_epoch > 0 or self.first_step > 0

    @property
    def steps_per_epoch(self) -> float | None:
        """The steps of a whole epoch; None if unknown, or if phases may change them."""
        if not self.epochs or any(phase.work for phase in self.phases):
            return None
        if not self.total_steps:
            return self.steps_of_epoch
        return (self.first_step + self.total_steps) / (self.first_epoch + self.epochs)

    def rest_from(self, first_epoch: int | None, first_step: int | None) -> Plan:
        """Return the remainder of this plan for a run that resumes; if nothing remains, its length is unknown.

        If the plan has both epochs and steps, one follows from the other, since all epochs have equally many steps.

        Args:
            first_epoch: the epochs that are done, as in ``range(first_epoch, epochs)``; None if not given.
            first_step: the optimizer steps that are done; None if not given.

        Raises:
            UsageError: if they are beyond this plan, or the plan cannot place them.
        """
        done_epochs = whole_number("first_epoch", first_epoch or 0, 0)
        done_steps = whole_number("first_step", first_step or 0, 0)
        if not done_epochs and not done_steps:
            return self
        epochs = self.epochs
        steps = self.total_steps
        own = first_epoch if self.is_in_epochs else first_step
        if own is None and self.length is not None and (self.phases or not (epochs and steps)):
            wanted = "first_epoch=, in epochs" if self.is_in_epochs else "first_step=, in steps"
            raise UsageError(f"progress is in the unit of the plan: give {wanted}")
        if epochs and steps and first_epoch is None:
            done_epochs = done_steps * epochs // steps
        elif epochs and steps and first_step is None:
            done_steps = round(done_epochs * steps / epochs)
        if done_epochs > (epochs or done_epochs) or done_steps > (steps or done_steps):
            raise UsageError(
                f"first_epoch={done_epochs}, first_step={done_steps} of epochs={epochs}, total_steps={steps}: that is "
                "the number of all, those that are done included"
            )
        done = done_epochs if self.is_in_epochs else done_steps
        return Plan(
            None if epochs is None else epochs - done_epochs or None,
            None if steps is None else steps - done_steps or None,
            phases_after(self.phases, done),
            done_epochs,
            done_steps,
        )
