"""Training a task to its end, as it is and with techniques: each a tracked run of its own, in one log directory."""

from __future__ import annotations

import ctypes
import gc
import itertools
import logging
import os
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from greenlove_tracker import devices
from greenlove_tracker import format as fmt
from greenlove_tracker.comparisons import BASELINE
from greenlove_tracker.config import load_settings, setting_names
from greenlove_tracker.console import say
from greenlove_tracker.errors import UsageError, whole_number
from greenlove_tracker.exploration.estimator import check_single_process
from greenlove_tracker.exploration.task import each_of
from greenlove_tracker.exploration.trials import loss_of
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.schema import cell
from greenlove_tracker.meter import Meter
from greenlove_tracker.phases import length_by_phases, phases_from
from greenlove_tracker.records import Clock, Field, RunStatus
from greenlove_tracker.techniques.arm import Arm, Task, arm_of, is_out_of_memory, lives_on, own_parts, parts_of, seed_all
from greenlove_tracker.techniques.arm_training import process_states, samples_in
from greenlove_tracker.techniques.compare import free_memory, reason_of, techniques_of
from greenlove_tracker.techniques.technique import Parts, Technique
from greenlove_tracker.tracker import Tracker
from greenlove_tracker.tracker.session import open_run
from greenlove_tracker.tracker.tracker import outer_run_dir

TRAIN_LOSS = "train_loss"  # the metric that every arm logs where its step returns a loss
ACCURACY = "accuracy"  # the name of what an ``eval_fn`` returns that gives a number without one
_LOSSES_OF_STEPS = 100  # logged over a training that counts in steps, at most
_MOST_WITHOUT_STEP = 10_000  # batches in a row; a training in steps whose optimizer never steps would not end
_METER_S = 30.0  # that the meter is waited for, before the first epoch

_log = logging.getLogger("greenlove_tracker")


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
    training in steps) and at the end, outside the epochs' time. A training in steps ends for every arm after as many
    samples as the baseline took.

    A learning-rate scheduler of torch in ``also_restore`` that the training's own step leaves alone is stepped once an
    epoch, after the evaluation, as PyTorch documents it. ``ReduceLROnPlateau``, and any that belongs to an optimizer
    which a technique replaced, is not; the run says so in its field ``technique_note``.

    Args:
        task: called anew for each arm; ``total_epochs`` or ``total_steps`` says how long it trains.
        techniques: names, or one's own.
        log_dir: where the runs are written.
        seed: of all random states, so that each arm begins with the same weights and the same order of the data.
        epochs: instead of the task's own length.
        repeats: of all arms in turns, with the seeds that follow: what one run learns may be chance.
        clock: read for all times.
        meter: measures the energy; default CodeCarbon.
        on_failure: takes the name of an arm that did not come to its end, and the reason, an ``InterruptedReason``
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
    if outer_run_dir() is not None:
        raise UsageError("each arm is a run of its own, and greenlove run makes one of all: start it without")
    given = {name: value for name, value in settings.items() if value is not None} | {"log_dir": os.fspath(log_dir)}
    is_silent = load_settings(given).verbose == 0
    length = None if epochs is None else _TrainingLength(epochs=whole_number("epochs", epochs))
    with _as_before():
        living = _living_parts(task, seed, length)
    comparison = _FullComparison(task, seed, length, given, clock, meter, living)
    tell = on_failure or (lambda name, reason: say(f"greenlove  {name} did not come to its end: {reason}"))

    groups: dict[str, list[Run]] = {BASELINE if arm is None else arm.name: [] for arm in arms}
    failed: set[str] = set()
    for number in range(whole_number("repeats", repeats)):
        comparison.begin_round(seed + number)
        for technique, name in zip(arms, groups, strict=True):
            if name in failed:
                continue
            try:
                run = comparison.tried(technique, tell)
            except KeyboardInterrupt:
                if not any(groups.values()):
                    raise
                kept = ", ".join(name for name, runs in groups.items() if runs)
                tell(name, InterruptedReason(f"stopped by Ctrl-C; kept: {kept}"))
                return list(groups.items())
            if run is None:
                failed.add(name)
                continue
            groups[name].append(run)
            if not is_silent:
                say(f"greenlove  {_line(name, run)}")
    return list(groups.items())


def _living_parts(task: Task, seed: int, length: _TrainingLength | None) -> Parts | None:
    """Call a task before anything trains; return its parts where it gives the same ones each time.

    Such a model lives on: trained once, it would have learnt already when the next arm begins, so that arms are copies.

    Raises:
        UsageError: where it does not say how long it trains.
    """
    parts = parts_of(task, seed)
    if length is None:
        _length_of(parts)
    things = [weakref.ref(thing) for name in ("model", "optimizer") for thing in each_of(parts[name])]
    del parts
    gc.collect()
    if all(thing() is None for thing in things):  # two models at once may be too much for a GPU
        return None
    first, second = parts_of(task, seed), parts_of(task, seed)
    return first if lives_on(second, [first]) else None


@dataclass(frozen=True, slots=True)
class _TrainingLength:
    """How long an arm trains: ``epochs``, or else optimizer ``steps``."""

    epochs: int | None = None
    steps: int | None = None


def _length_of(parts: Mapping[str, Any]) -> _TrainingLength:
    """Return how long a task says that it trains.

    Raises:
        UsageError: where it does not.
    """
    epochs, steps = parts.get("total_epochs"), parts.get("total_steps")
    if phases := phases_from(parts.get("phases")):
        total = length_by_phases(phases, epochs, steps)
        epochs, steps = (total, None) if phases[0].unit == "epochs" else (None, total)
    if (epochs is None) == (steps is None):
        raise UsageError(
            "how long is the whole training? A task says it with total_epochs or total_steps, in a dict with the rest; "
            "or give {argument=}",
            argument="epochs",
        )
    if epochs is not None:
        return _TrainingLength(epochs=whole_number("total_epochs", epochs))
    return _TrainingLength(steps=whole_number("total_steps", steps))


@dataclass(slots=True)
class _FullComparison:
    """What the arms have in common.

    Attributes:
        task: called anew for each arm.
        seed: of all random states.
        length: of every arm; None: as the task says.
        settings: of every tracker.
        clock: of every tracker.
        meter: of every tracker.
        living: parts that the task returns each time, and that no arm may train; None where it makes them anew.
        run_id: of the first run, which names the comparison.
        samples: that the baseline trained on; None before.
    """

    task: Task
    seed: int
    length: _TrainingLength | None
    settings: Mapping[str, Any]
    clock: Clock | None
    meter: Meter | None
    living: Parts | None = None
    run_id: str = ""
    samples: int | None = None

    def begin_round(self, seed: int) -> None:
        """Begin with the baseline again, from other random states."""
        self.seed, self.samples = seed, None

    def tried(self, technique: Technique | None, tell: Callable[[str, str], None]) -> Run | None:
        """Train one arm to its end; return None where it failed, for a reason that is told with its name.

        Raises:
            Exception: the task's own error, in the baseline: every arm would have it.
        """
        try:
            with _as_before():
                return self.train(technique)
        except Exception as error:
            if technique is None and not is_out_of_memory(error):
                raise
            _log.debug("greenlove_tracker", exc_info=error)
            name = BASELINE if technique is None else technique.name
            tell(name, reason_of(error))
            return None

    def train(self, technique: Technique | None) -> Run:
        """Train one arm to its end.

        Raises:
            UsageError: where the technique cannot be used here, or nothing can be logged.
        """
        is_own_peak = _forget_memory()
        others = [] if self.living is None else [self.living]
        arm = arm_of(own_parts(parts_of(self.task, self.seed), others), technique)
        seed_all(self.seed)  # what a technique drew while it was applied changes no order of the data
        length = self.length or _length_of(arm.parts)
        if length.epochs is not None and arm.source.batches_per_epoch is None:
            raise UsageError("the training data have no length, so there are no epochs: give total_steps")
        settings = {name: value for name, value in arm.parts.items() if name in setting_names()}
        if self.length is not None:
            settings.pop("phases", None)  # of another length
        settings |= self.settings
        with arm.active(), closing(arm.source):
            tracker = Tracker(
                length.epochs, total_steps=length.steps, clock=self.clock, meter=self.meter, **_known(settings)
            )
            session = open_run()
            if session is None or tracker.run_dir is None:
                raise UsageError(f"nothing can be logged in {self.settings['log_dir']}, as was warned")
            session.shows_final_screen = False  # the comparison's own follows
            self.run_id = self.run_id or tracker.run_dir.name
            with _interrupted(tracker), tracker:
                training = _ArmLoop(arm, tracker, length, self.samples if technique is not None else None)
                session.write_fields(self._fields(arm))
                tracker.wait_ready(_METER_S)
                training.run()
                session.write_fields(_ending_fields(training, length, is_own_peak=is_own_peak))
        if technique is None:
            self.samples = training.samples
        return Run(tracker.run_dir)

    def _fields(self, arm: Arm) -> list[Field]:
        return [
            Field("technique", arm.name),
            Field("comparison", self.run_id),
            Field("seed", cell(self.seed)),
            Field("batch_size", cell(arm.source.batch_size)),
        ]


def _ending_fields(training: _ArmLoop, length: _TrainingLength, *, is_own_peak: bool) -> list[Field]:
    """Return what is known only once an arm is trained."""
    fields = []
    if training.notes:
        fields.append(Field("technique_note", "; ".join(training.notes)))
    if length.steps is not None and training.steps != length.steps:  # as many samples, in steps of another size
        fields.append(Field("total_steps_planned", cell(training.steps)))
    on_gpu = devices.peak_gpu_memory_gb()  # the tracker writes it
    if not on_gpu and is_own_peak and (peak_gb := devices.peak_memory_gb()) is not None:
        fields.append(Field("peak_memory_gb", f"{peak_gb:.3f}", "GiB"))
    return fields


class _ArmLoop:
    """The loop over the batches of an arm, under a tracker.

    Args:
        arm: to train.
        tracker: that is told.
        length: of the training.
        samples: after which a training in steps ends; None: after its steps.

    Attributes:
        steps: of the optimizer that were made.
        samples: that were trained on.
    """

    def __init__(self, arm: Arm, tracker: Tracker, length: _TrainingLength, samples: int | None) -> None:
        self.steps = self.samples = 0
        self._arm, self._tracker, self._length, self._samples_wanted = arm, tracker, length, samples
        self._model, self._eval_fn = arm.parts["model"], arm.parts.get("eval_fn")
        self._schedulers = _Schedulers(arm.parts)
        self._loss = _MeanLoss()
        self._n_without_step = 0

    @property
    def notes(self) -> list[str]:
        """What is to be known of the arm: of its technique, of what that counted, of its schedulers."""
        counted = [tell() for tell in self._arm.parts.get("technique_notes", ())]
        return [note for note in (self._arm.note, *counted, *self._schedulers.notes) if note]

    def run(self) -> None:
        """Train to the end."""
        self._model.train()
        with _counted_steps(self._arm.parts["optimizer"]) as self._n_steps:
            if self._length.epochs is not None:
                self._run_epochs(self._length.epochs)
            else:
                self._run_steps(self._length.steps or 0)
                self._schedulers.never_stepped()

    def _run_epochs(self, epochs: int) -> None:
        every = whole_number("eval_every", self._arm.parts.get("eval_every") or 1)
        for epoch in range(1, epochs + 1):
            self._tracker.epoch_start()
            for batch in self._arm.source.first(self._arm.source.batches_per_epoch or 0):
                self._step(batch)
            self._tracker.epoch_end()
            self._log_loss()
            if epoch % every == 0 or epoch == epochs:
                self._evaluate()
            self._schedulers.epoch_ended()

    def _run_steps(self, steps: int) -> None:
        given = self._arm.parts.get("eval_every")
        eval_every = None if given is None else whole_number("eval_every", given)
        loss_every = max(1, steps // _LOSSES_OF_STEPS)
        evaluated = logged = 0
        for batch in self._endless():
            self._step(batch)
            is_over = self._is_over(steps)
            if is_over or self.steps >= logged + loss_every:
                logged = self.steps
                self._log_loss()
            if is_over or (eval_every is not None and self.steps >= evaluated + eval_every):
                evaluated = self.steps
                self._tracker.pause()
                self._evaluate()
                if not is_over:
                    self._tracker.resume()
            if is_over:
                return

    def _is_over(self, steps: int) -> bool:
        return self.steps >= steps if self._samples_wanted is None else self.samples >= self._samples_wanted

    def _endless(self) -> Iterator[Any]:
        """Yield batches, epoch after epoch.

        Raises:
            UsageError: where there are none.
        """
        source = self._arm.source
        while True:
            n_batches = 0
            for batch in source.first(source.batches_per_epoch or sys.maxsize):
                n_batches += 1
                yield batch
            if not n_batches:
                raise UsageError("the training data gave no batch")

    def _step(self, batch: Any) -> None:
        self._loss.add(self._arm.step(batch))
        n_steps, n_samples = self._n_steps() - self.steps, samples_in(batch, self._arm.source.batch_size)
        self.steps += n_steps
        self.samples += n_samples
        self._n_without_step = 0 if n_steps else self._n_without_step + 1
        if self._length.steps is not None and self._n_without_step > _MOST_WITHOUT_STEP:
            raise UsageError(f"no optimizer step in {_MOST_WITHOUT_STEP:,} batches: this training would never end")
        self._tracker.step(n_samples, n_steps=n_steps)

    def _log_loss(self) -> None:
        if (loss := self._loss.take()) is not None:
            self._tracker.log_metric(TRAIN_LOSS, loss)

    def _evaluate(self) -> None:
        """Evaluate, and leave each layer in the mode, training or evaluation, that it was in."""
        if self._eval_fn is None:
            return
        modes = [(module, module.training) for module in self._model.modules()]
        found = self._eval_fn(self._model)
        for module, is_training in modes:
            module.training = is_training
        if isinstance(found, Mapping):
            for name, value in found.items():
                self._tracker.log_metric(f"eval_{name}" if name == TRAIN_LOSS else str(name), value)
        elif found is not None:
            self._tracker.log_metric(ACCURACY, found)


class _MeanLoss:
    """The mean of what the steps of an epoch return; summed up where it lies, so that no step waits for a GPU."""

    def __init__(self) -> None:
        self._sum: Any = None
        self._n = 0

    def add(self, returned: Any) -> None:
        """Add what a step returned: a loss, something that has one, or None."""
        loss = loss_of(returned)
        if isinstance(loss, torch.Tensor):
            loss = loss.detach().float().mean()
        elif isinstance(loss, bool) or not isinstance(loss, int | float):
            return
        self._sum = loss if self._sum is None else self._sum + loss
        self._n += 1

    def take(self) -> float | None:
        """Return the mean since it was last taken; None where there was no loss."""
        mean = None if self._sum is None else float(self._sum) / self._n
        self._sum, self._n = None, 0
        return mean


class _Schedulers:
    """The learning-rate schedulers that a task names, of which some are stepped by its own step and some by nobody.

    Args:
        parts: of an arm.

    Attributes:
        notes: on those that were not followed.
    """

    def __init__(self, parts: Mapping[str, Any]) -> None:
        named = [s for s in parts.get("also_restore", ()) if isinstance(s, LRScheduler | ReduceLROnPlateau)]
        within = {id(inner) for s in named for inner in getattr(s, "_schedulers", ())}  # SequentialLR, ChainedScheduler
        optimizers = {id(optimizer) for optimizer in each_of(parts["optimizer"])}
        outer = [s for s in named if id(s) not in within]
        self.notes = [
            f"{type(s).__name__} belongs to an optimizer that was replaced: its learning rates were not followed"
            for s in outer
            if id(getattr(s, "optimizer", None)) not in optimizers
        ]
        followed = [s for s in outer if id(getattr(s, "optimizer", None)) in optimizers]
        self._before = [(s, _position(s)) for s in followed]
        self._ours: list[Any] | None = None  # known after the first epoch

    def epoch_ended(self) -> None:
        """Step those that nobody else stepped in the first epoch."""
        if self._ours is None:
            idle = self._idle()
            self._ours = [s for s in idle if not isinstance(s, ReduceLROnPlateau)]
            self.notes += [
                "ReduceLROnPlateau steps by a value, which only the training's own loop knows: it was not followed"
                for s in idle
                if s not in self._ours
            ]
        for scheduler in self._ours:
            scheduler.step()

    def never_stepped(self) -> None:
        """Note those that were not stepped in a training in steps, whose rhythm nobody knows."""
        self.notes += [
            f"{type(scheduler).__name__} is not stepped by train_step: its learning rates were not followed"
            for scheduler in self._idle()
        ]

    def _idle(self) -> list[Any]:
        """Return those that have not been stepped since the training began."""
        return [scheduler for scheduler, before in self._before if _position(scheduler) == before]


def _position(scheduler: Any) -> Any:
    """Return how often a scheduler was stepped; ``ChainedScheduler`` does not say, those in it do."""
    position = getattr(scheduler, "last_epoch", None)
    return [_position(inner) for inner in getattr(scheduler, "_schedulers", ())] if position is None else position


@contextmanager
def _counted_steps(optimizers: Any) -> Iterator[Callable[[], int]]:
    """Count optimizer steps; of several optimizers those of the one with the most. Without hooks, a batch is a step."""
    hooked = [o for o in each_of(optimizers) if hasattr(o, "register_step_post_hook")]
    counts = [0] * len(hooked)

    def counter(index: int) -> Callable[..., None]:
        def count(*_: Any) -> None:
            counts[index] += 1

        return count

    batches = itertools.count(1)
    handles = [optimizer.register_step_post_hook(counter(i)) for i, optimizer in enumerate(hooked)]
    try:
        yield (lambda: max(counts)) if hooked else (lambda: next(batches))
    finally:
        for handle in handles:
            handle.remove()


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


def _known(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _forget_memory() -> bool:
    """Let go of what earlier arms left, and begin the peaks of memory anew.

    Returns:
        Whether the peak of the process began anew: on Linux (proc(5), ``/proc/pid/clear_refs``).
    """
    free_memory()
    if "torch._dynamo" in sys.modules:  # else the graphs of earlier arms count against this one's limit
        torch.compiler.reset()
    devices.reset_peak_gpu_memory()
    with suppress(OSError, AttributeError, TypeError):  # of glibc, which keeps what was freed; elsewhere there is none
        ctypes.CDLL(None).malloc_trim(0)
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:  # noqa: PTH123  # opened for writing only
            file.write("5")
    except OSError:
        return False
    return True


def _line(name: str, run: Run) -> str:
    """Return one arm in a line, said as soon as it is trained."""
    summary = run.summary
    figures = [fmt.duration(summary.duration_s), fmt.energy(summary.energy_kwh)]
    figures += [f"{m.name} {fmt.significant(m.last)}" for m in summary.metrics[:3]]
    return f"{name}: {' · '.join(figures)}"
