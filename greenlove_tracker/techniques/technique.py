"""A technique: a change of how a training runs, by name; several are joined by ``+``."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from enum import IntEnum
from importlib import import_module
from inspect import signature
from types import MappingProxyType
from typing import Any

from greenlove_tracker.vocabulary.errors import UsageError

Parts = dict[str, Any]  # model, optimizer, criterion, train_dataset, and more arguments of ``Estimator``, by name


class NotApplicableError(UsageError):
    """A technique cannot be used here; the message is the reason: "this CPU has no bf16 instructions"."""


class Stage(IntEnum):
    """The order in which techniques are applied."""

    OWN = 5  # the user's own, as if the task had returned what it returns: the others find it there
    DATA = 10
    MODEL = 20
    OPTIMIZER = 30
    STEP = 40  # settings of the step
    SCHEDULE = 60  # what counts the steps, once the size of the batches is known
    PROCESS = 70  # a switch of the process or of the GPU


@dataclass(frozen=True, slots=True)
class Technique:
    """A change of how a training runs.

    Attributes:
        name: as in ``--techniques``, such as ``grad-accumulation=4``.
        apply: takes the parts of a training and returns them changed; ``NotApplicableError`` says why it cannot. The
            model is this arm's own, and may be changed in place.
        stage: of the order; one's own stands before the others.
        kind: two of one kind exclude each other, such as two precisions; empty: it excludes only itself.
        active: a context in which everything of the arm runs, for what is a switch of the process.
        note: what it changes in what is learnt, as a sentence without a full stop; empty for nothing.
        is_of_whole: it changes how long a training is, or what comes when: only whole trainings show what it saves.
        is_slow_to_start: its first step may take minutes, as compiling does: its trials come after the others'.
    """

    name: str
    apply: Callable[[Parts], Parts]
    stage: Stage = Stage.OWN
    kind: str = ""
    active: Callable[[], AbstractContextManager[Any]] = nullcontext
    note: str = ""
    is_of_whole: bool = False
    is_slow_to_start: bool = False


@dataclass(frozen=True, slots=True)
class ListedTechnique:
    """Facts about a technique before it is made.

    Attributes:
        module: of this package, whose function ``technique(name, value, **options)`` makes it; the value stands behind
            "=", and each option is an argument by name. Value and options are added to its name here.
        summary: what it does, in a line.
        value_hint: how its value is written, such as ``=4``; empty where it needs none, None where it takes none.
        needs_gpu: an NVIDIA GPU.
    """

    module: str
    summary: str
    value_hint: str | None = None
    needs_gpu: bool = False


TECHNIQUES: dict[str, ListedTechnique] = {
    "activation-checkpointing": ListedTechnique(
        "computation", "keeps fewer activations, and computes them again: less memory, more time"
    ),
    "adam-8bit": ListedTechnique("optimizers", "Adam with its state in 8 bits"),
    "amp-bf16": ListedTechnique("computation", "matrix products in bfloat16"),
    "amp-fp16": ListedTechnique("computation", "matrix products in float16, with the loss scaled"),
    "batch-size": ListedTechnique("loading", "another batch size: it learns otherwise", value_hint="=128"),
    "channels-last": ListedTechnique("computation", "images with their channels last in memory"),
    "compile": ListedTechnique("computation", "torch.compile; its one-off compile time is shown apart", ""),
    "curriculum": ListedTechnique(
        "curriculum", "the easiest samples first, and all of them after so many stairs", value_hint="=4"
    ),
    "early-stopping": ListedTechnique(
        "early_stopping",
        "stops after this many evaluations without a better one, with the best weights",
        value_hint="=5",
    ),
    "fused-optimizer": ListedTechnique("optimizers", "the optimizer's step in one kernel"),
    "grad-accumulation": ListedTechnique(
        "computation",
        "splits each batch into this many parts, with one optimizer step for all: less memory",
        value_hint="=4",
    ),
    "lr-schedule": ListedTechnique(
        "lr_schedule", "a warm-up and a falling learning rate, step by step", value_hint="=cosine"
    ),
    "num-workers": ListedTechnique("loading", "processes that load the data beside the training", value_hint="=4"),
    "pin-memory": ListedTechnique("loading", "batches in pinned memory, and copies that do not wait", needs_gpu=True),
    "power-limit": ListedTechnique(
        "power_limit", "a lower power limit of the GPU, in W, put back at the end", value_hint="=250", needs_gpu=True
    ),
    "tf32": ListedTechnique("computation", "matrix products in TF32 on the GPU", needs_gpu=True),
}


def technique_named(text: str) -> Technique:
    """Return the technique of a name, such as ``amp-bf16``, ``grad-accumulation=4`` or ``amp-bf16+compile``.

    Raises:
        UsageError: where there is none of that name, its value cannot be, or two of them exclude each other.
    """
    return combined([_single(part.strip()) for part in text.split("+")])


def technique_with(name: str, options: Mapping[str, Any]) -> Technique:
    """Return the technique of a name with options: ``early-stopping=5`` with ``{"metric": "accuracy"}``.

    Args:
        name: as of ``technique_named``; with options, of one technique.
        options: arguments of the technique, by name; they stand in its own name too.

    Raises:
        UsageError: as ``technique_named``; where it has no such option, or one cannot be.
    """
    if not options:
        return technique_named(name)
    if "+" in name:
        raise UsageError(f"{name} are several techniques: give options to each by itself, and join them then")
    return _single(name.strip(), options)


def _single(text: str, options: Mapping[str, Any] = MappingProxyType({})) -> Technique:
    name, separator, value = text.partition("=")
    listed = TECHNIQUES.get(name)
    if not listed:
        raise UsageError(f"no technique is called {name or text!r}: {nearest(name, TECHNIQUES)}")
    if separator and not re.fullmatch(r"[\w.%-]+", value):
        raise UsageError(f"{text}: no value stands after the =")
    if separator and listed.value_hint is None:
        raise UsageError(f"{name} takes no value, and {value!r} is given: write {name}")
    module = import_module(f"greenlove_tracker.techniques.{listed.module}")
    known = list(signature(module.technique).parameters)[2:]  # behind name and value
    for option in options:
        if option not in known:
            raise UsageError(f"{name} has no option {option!r}: {nearest(str(option), known)}")
    made: Technique = module.technique(name, value or None, **options)
    said = ", ".join(f"{key}={value}" for key, value in options.items())
    return replace(made, name=f"{text} ({said})" if said else text, kind=made.kind or name)


def whole_value(name: str, value: str | None, what: str, least: int = 1) -> int:
    """Return the value of a technique that is a whole number.

    Raises:
        UsageError: where it is none, or less than ``least``.
    """
    if value is None or not value.isdecimal() or int(value) < least:
        raise UsageError(f"{name} needs {what}, such as {name}{TECHNIQUES[name].value_hint}")
    return int(value)


def with_note(parts: Parts, says: Callable[[], str]) -> Parts:
    """Return the parts with what says in the end what the technique did."""
    return {**parts, "technique_notes": [*parts.get("technique_notes", ()), says]}


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint at what was meant by a name."""
    names = tuple(known)
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f"did you mean {near[0]}?"
    return f"there are {', '.join(names) or 'none'}"


def combined(techniques: Sequence[Technique]) -> Technique:
    """Return several techniques as one, which applies them in the order of their stages.

    Raises:
        UsageError: where there is none, or two of them exclude each other.
    """
    if not techniques:
        raise UsageError("no technique is named")
    if len(techniques) == 1:
        return techniques[0]
    seen: dict[str, Technique] = {}
    for technique in techniques:
        kind = technique.kind or technique.name
        if kind in seen:
            raise UsageError(f"{seen[kind].name} and {technique.name} exclude each other")
        seen[kind] = technique
    ordered = sorted(techniques, key=lambda t: t.stage)  # stable: those of one stage in the order given

    def apply(parts: Parts) -> Parts:
        for technique in ordered:
            parts = technique.apply(parts)
        return parts

    @contextmanager
    def active() -> Iterator[None]:
        with ExitStack() as stack:
            for technique in ordered:
                stack.enter_context(technique.active())
            yield

    return Technique(
        "+".join(t.name for t in techniques),
        apply,
        active=active,
        note="; ".join(dict.fromkeys(t.note for t in ordered if t.note)),
        is_of_whole=any(t.is_of_whole for t in ordered),
        is_slow_to_start=any(t.is_slow_to_start for t in ordered),
    )
