"""Training a task to its end: one training, or it as it is and with techniques, each a tracked run of its own."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from greenlove_tracker import devices
from greenlove_tracker import format as fmt
from greenlove_tracker.checkpointing.checkpointer import Checkpointer
from greenlove_tracker.comparisons import BASELINE
from greenlove_tracker.config import load_settings, setting_names
from greenlove_tracker.console import say
from greenlove_tracker.errors import BudgetExceeded, UsageError, whole_number
from greenlove_tracker.exploration.estimator import check_single_process
from greenlove_tracker.exploration.random_state import saved_generator
from greenlove_tracker.exploration.snapshot import find_lr_schedulers
from greenlove_tracker.exploration.task import each_of
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.schema import cell
from greenlove_tracker.meter import Meter
from greenlove_tracker.records import Clock, Field, RunStatus
from greenlove_tracker.secret_masking import mask_secrets
from greenlove_tracker.techniques.arm import (
    Arm,
    Task,
    arm_of,
    check_is_new,
    is_out_of_memory,
    length_of,
    parts_of,
    seed_all,
)
from greenlove_tracker.techniques.arm_loop import LEARNING_RATE, ArmLoop
from greenlove_tracker.techniques.arm_training import process_states
from greenlove_tracker.techniques.batch_size import with_batch_size
from greenlove_tracker.techniques.compare import free_memory, reason_of, techniques_of
from greenlove_tracker.techniques.step import OwnStep
from greenlove_tracker.techniques.technique import Parts, Technique
from greenlove_tracker.tracker import Tracker
from greenlove_tracker.tracker.session import open_run, outer_run_dir

_METER_S = 30.0  # that the meter is waited for, before the first epoch
_SIGNALS = ("SIGTERM", "SIGUSR1", "SIGINT")  # Python's own SIGINT ends the training all the same, and saves nothing

_log = logging.getLogger("greenlove_tracker")

FieldsOf = Callable[[str], Sequence[Field]]  # of the id of a run


class InterruptedReason(str):
    """The reason of an arm that Ctrl-C ended, and with it the comparison: the arms behind it were not begun."""

    __slots__ = ()


def train_fully(
    task: Task,
    techniques: str | Sequence[str | Technique],
    *,
    log_dir: str | os.PathLike[str],
    seed: int = 0,
    epochs: int | None = None,
    repeats: int = 1,
    clock: Clock | None = None,
    meter: Meter | None = None,
    on_failure: Callable[[str, str], None] | None = None,
    **settings: Any,
) -> list[tuple[str, list[Run]]]:
    """Train a task to its end, as it is and then with each technique, one after another.

    Each arm is a run in the log directory, with the fields ``technique`` and ``comparison`` (the id of the first run),
    the mean loss of each epoch as the metric ``train_loss``, and what the task's ``eval_fn`` returns: a number is
    logged as ``accuracy``, a mapping by its names. It is called after every ``eval_every`` epochs (or steps, of a
    training in steps) and at the end, outside the epochs' time.

    A learning-rate scheduler of torch in ``also_restore`` that no step moved in an epoch is stepped behind it, as
    PyTorch documents it; ``ReduceLROnPlateau`` is not.

    Args:
        task: called anew for each arm; ``total_epochs`` or ``total_steps`` says how long it trains.
        techniques: names, or one's own.
        log_dir: where the runs are written.
        seed: of all random states, so that each arm begins with the same weights and the same order of the data.
        epochs: instead of the task's own length.
        repeats: of all arms in turns, with the seeds that follow: what one run learns may be chance. Each second one
            takes the arms in the reverse order, so that what drifts falls on all alike.
        clock: read for all times.
        meter: measures the energy; default CodeCarbon.
        on_failure: takes the name of an arm that did not finish, and the reason, an ``InterruptedReason``
            after Ctrl-C; default: it is printed.
        **settings: fields of ``greenlove_tracker.config.Settings``, such as ``country``, ``project``, ``intensity``.

    Returns:
        The baseline and each arm by name, in order, with its runs: those that came to their end. After Ctrl-C, what was
        done by then.

    Raises:
        UsageError: on a bad argument or setting, before anything trains.
        KeyboardInterrupt: before the first run came to its end.
    """
    check_single_process()
    arms = [None, *techniques_of(techniques)] if techniques else [None]
    _check_outermost()
    given = {name: value for name, value in settings.items() if value is not None} | {"log_dir": os.fspath(log_dir)}
    is_silent = load_settings(given).verbose == 0
    if epochs is not None:
        epochs = whole_number("epochs", epochs)
    with _as_before():
        _check_task(task, seed, epochs)
    tell = on_failure or (lambda name, reason: say(f"greenlove  {name} did not finish: {reason}"))
    groups: dict[str, list[Run]] = {BASELINE if arm is None else arm.name: [] for arm in arms}
    common: dict[str, Any] = {"log_dir": given["log_dir"], "epochs": epochs, "settings": given}
    common |= {"clock": clock, "meter": meter, "fields": _ComparisonField()}
    reasons: dict[str, str] = {}
    for number in range(whole_number("repeats", repeats)):
        for technique in arms if number % 2 == 0 else arms[::-1]:
            name = BASELINE if technique is None else technique.name
            if name in reasons:
                continue
            try:
                run = train_one(task, technique, seed=seed + number, **common)
            except KeyboardInterrupt:
                if not any(groups.values()):
                    raise
                kept = ", ".join(name for name, runs in groups.items() if runs)
                tell(name, InterruptedReason(f"stopped by Ctrl-C; kept: {kept}"))
                return list(groups.items())
            except Exception as error:
                if technique is None and not is_out_of_memory(error):  # the task's own: every arm would have it
                    raise
                _log.debug("greenlove_tracker", exc_info=error)
                reasons[name] = reason_of(error)
                tell(name, reasons[name])
                continue
            groups[name].append(run)
            if not is_silent:
                say(f"greenlove  {_line(name, run)}")
    return list(groups.items())


class _ComparisonField:
    """Names a comparison in each of its runs, by the id of the first."""

    def __init__(self) -> None:
        self._first = ""

    def __call__(self, run_id: str) -> list[Field]:
        self._first = self._first or run_id
        return [Field("comparison", self._first)]


def train_one(
    task: Task,
    technique: Technique | None,
    *,
    log_dir: str | os.PathLike[str],
    seed: int = 0,
    epochs: int | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
    fields: Sequence[Field] | FieldsOf = (),
    checkpoint_dir: str | os.PathLike[str] | None = None,
    settings: Mapping[str, Any] = MappingProxyType({}),
    clock: Clock | None = None,
    meter: Meter | None = None,
) -> Run:
    """Train a task to its end, as it is or with a technique, as a run of its own; metrics are as of ``train_fully``.

    With ``checkpoint_dir`` a ``Checkpointer`` saves the training: the same call goes on with it after a kill, bit for
    bit, in a run that ``continues`` the one before. What it puts back are models, optimizers, learning-rate schedulers,
    and what the task and the technique name in ``also_restore``; else a task's own state is not known, such as a
    counter of its ``train_step``. Where the position in the data cannot be gone to again, an epoch begins anew, and a
    warning says so.

    Args:
        task: called once; ``total_epochs`` or ``total_steps`` says how long it trains.
        technique: None: as it is.
        log_dir: where the run is written.
        seed: of all random states.
        epochs: instead of the task's own length.
        steps: likewise, optimizer steps.
        batch_size: instead of the task's own.
        fields: written into ``run.csv``, beside ``technique``, ``seed`` and ``batch_size``; or a function of the run's
            id that returns them.
        checkpoint_dir: of this training and no other; it is removed once the training has come to its end.
        settings: fields of ``greenlove_tracker.config.Settings``, before those of the task.
        clock: read for all times.
        meter: measures the energy; default CodeCarbon.

    Raises:
        UsageError: on a bad argument or setting, where the technique cannot be used here, or nothing can be logged.
        TrainingInterrupted: it was told to end by a signal, and is saved.
        BudgetExceeded: a budget of the settings ends it; it is saved.
        Exception: the task's own error.
    """
    check_single_process()
    _check_outermost()
    with _as_before():
        _forget_memory()
        arm = arm_of(with_length(parts_of(task, seed), epochs, steps, batch_size), technique)
        seed_all(seed)  # what a technique drew while it was applied changes no order of the data
        length = length_of(arm.parts)
        if length.epochs is not None and arm.source.batches_per_epoch is None:
            raise UsageError("the training data have no length, so there are no epochs: give total_steps")
        own = {name: value for name, value in arm.parts.items() if name in setting_names()}
        merged = {**own, **settings, "log_dir": os.fspath(log_dir)}
        known = {name: value for name, value in merged.items() if value is not None}
        with arm.active(), closing(arm.source):
            training = ArmLoop(arm, length)
            saved = None if checkpoint_dir is None else _checkpointer(Path(checkpoint_dir), arm, training, clock)
            if saved is not None:
                known |= saved.resumed
            if length.steps is not None and "first_step" in known:
                known["first_step"] = training.steps  # several steps a batch are one of the Checkpointer's
            tracker = Tracker(length.epochs, total_steps=length.steps, clock=clock, meter=meter, **known)
            session = open_run()
            if session is None or tracker.run_dir is None:
                raise UsageError(f"nothing can be logged in {merged['log_dir']}, as was warned")
            session.shows_final_screen = False  # that of whoever asked for the training follows
            with _interrupted(tracker), tracker:
                more = fields(tracker.run_dir.name) if callable(fields) else fields
                of_arm = {"technique": arm.name, "seed": cell(seed), "batch_size": cell(arm.source.batch_size)}
                session.write_fields([*more, *(Field(name, text) for name, text in of_arm.items())])
                if not training.is_over:
                    tracker.wait_ready(_METER_S)
                try:
                    training.run(tracker, saved)
                except BudgetExceeded:
                    raise
                except Exception as error:
                    session.write_fields([Field("failure", mask_secrets(reason_of(error)))])
                    raise
                if training.notes:
                    session.write_fields([Field("technique_note", "; ".join(training.notes))])
    run = Run(tracker.run_dir)
    if checkpoint_dir is not None and run.summary.status == RunStatus.FINISHED:  # as the disk has it
        _remove(Path(checkpoint_dir))
    return run


def _checkpointer(directory: Path, arm: Arm, training: ArmLoop, clock: Clock | None) -> Checkpointer:
    """Return what saves the training, which is put back to where it was.

    Raises:
        UsageError: where something cannot be saved, or the directory is of another training.
    """
    parts = arm.parts
    criterion, optimizers = parts["criterion"], each_of(parts["optimizer"])
    models = {"model": parts["model"]}
    if isinstance(criterion, nn.Module) and criterion.state_dict():
        models["criterion"] = criterion
    named = list(parts.get("also_restore", ()))
    found = find_lr_schedulers(optimizers, named)
    within = {id(inner) for s in (*named, *found) for inner in getattr(s, "_schedulers", ())}  # saved with the outer
    order = {id(optimizer): number for number, optimizer in enumerate(optimizers)}
    unnamed = [s for s in found if id(s) not in within]
    unnamed.sort(key=lambda s: (order[id(s.optimizer)], type(s).__name__))  # alike in each process
    others = {f"also-{n}": _with_state(thing) for n, thing in enumerate(named, 1)}
    others |= {f"scheduler-{n}": scheduler for n, scheduler in enumerate(unnamed, 1)}
    if "early_stopping" in parts:
        others["early-stopping"] = parts["early_stopping"]
    if isinstance(arm.step, OwnStep):
        others["step"] = arm.step
    return Checkpointer(
        directory,
        model=models,
        optimizer=optimizers,
        others={**others, "loop": training},
        signals=_SIGNALS,
        clock=clock,
    )


def _with_state(thing: Any) -> Any:
    """Return what of ``also_restore`` a checkpoint can hold: a generator, and functions in a list, as a pair."""
    generator = saved_generator("", thing)
    if generator is not None:
        return generator.save, generator.put_back
    return tuple(thing) if isinstance(thing, list) else thing


def _remove(directory: Path) -> None:
    """Remove the checkpoints of a training that has come to its end; where that fails, they only take space."""
    try:
        shutil.rmtree(directory)
    except OSError as error:
        say(f"greenlove: the checkpoints in {directory} are needed no more, and could not be removed: {error}")


def _check_outermost() -> None:
    """Refuse to train inside of another run.

    Raises:
        UsageError: there.
    """
    if outer_run_dir() is not None:
        raise UsageError("each arm is a run of its own, and greenlove run makes one of all: start it without")


def with_length(parts: Parts, epochs: int | None, steps: int | None, batch_size: int | None = None) -> Parts:
    """Return the parts of a training with another length or batch size, where they are given.

    An ``eval_every`` in the unit that counts no more is left out.

    Raises:
        UsageError: where they cannot be.
    """
    if epochs is not None and steps is not None:
        raise UsageError("epochs and steps: a training is as long as one of them says")
    if epochs is not None or steps is not None:
        is_of_epochs = parts.get("total_steps") is None
        if is_of_epochs != (steps is None):
            parts = {name: value for name, value in parts.items() if name != "eval_every"}
        parts = {**parts, "total_epochs": epochs, "total_steps": steps, "phases": ()}
    return parts if batch_size is None else with_batch_size(parts, batch_size)


def _check_task(task: Task, seed: int, epochs: int | None) -> None:
    """Call a task before anything trains, and refuse one that gives the same model each time.

    Raises:
        UsageError: there, or where it does not say how long it trains.
    """
    parts = parts_of(task, seed)
    length_of(with_length(parts, epochs, None))
    held = [weakref.ref(thing) for name in ("model", "optimizer") for thing in each_of(parts[name])]
    del parts
    gc.collect()
    if any(thing() is not None for thing in held):  # else it is another one: two at once may be too much for a GPU
        first = parts_of(task, seed)
        check_is_new(parts_of(task, seed), [first])


@contextmanager
def _as_before() -> Iterator[None]:
    """Put random states and switches of torch back behind the block: those of an arm are not the next one's."""
    states = process_states()
    try:
        yield
    finally:
        for state in states:
            state.restore()


@contextmanager
def _interrupted(tracker: Tracker) -> Iterator[None]:
    """Close the run at Ctrl-C, in a notebook too, where a tracker stays open."""
    try:
        yield
    except KeyboardInterrupt:
        tracker.stop(status=RunStatus.INTERRUPTED)
        raise


def _forget_memory() -> None:
    """Let go of what earlier arms left, and begin the peaks of GPU memory anew."""
    free_memory()
    if "torch._dynamo" in sys.modules:  # else the graphs of earlier arms count against this one's limit
        torch.compiler.reset()
    devices.reset_peak_gpu_memory()


def _line(name: str, run: Run) -> str:
    """Return one arm in a line, said as soon as it is trained."""
    summary = run.summary
    figures = [fmt.duration(summary.duration_s), fmt.energy(summary.energy_kwh)]
    learnt = [metric for metric in summary.metrics if metric.name != LEARNING_RATE]
    figures += [f"{metric.name} {fmt.significant(metric.last)}" for metric in learnt[:3]]
    return f"{name}: {' · '.join(figures)}"
